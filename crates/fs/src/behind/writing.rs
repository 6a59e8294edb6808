//! The way of blocks from memory to the disks: for a sync, by age, and to make room.

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{AlignedBuffer, WriteSource};
use spindle_group::UnwrittenBlocks;

use super::blocks::{After, Blocks, CHUNK_BLOCKS, Next, Run};
use super::due::Which;
use crate::data::length_of;
use crate::error::{FsError, FsResult};
use crate::node::Node;
use crate::system::Core;

/// A run that is being written. However that ends, a panic included, others may write it after.
struct UnderWay<'a> {
    core: &'a Core,
    memory: &'a UnwrittenBlocks,
    node: &'a Node,
    run: Run,
    /// Which of its blocks the disks have, and nothing takes that away from them.
    is_written: Vec<bool>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Self { core, node, .. } = *self;
        let mut blocks = node.unwritten.lock();
        let gone = blocks.settle(self.memory, &self.run, &self.is_written);
        drop(blocks);
        node.unwritten.notify();
        core.behind.went(gone);
        if gone > 0 {
            // Nothing else may tell that a disk has what no flush has covered: a takeover and a
            // second try come long after the change was counted.
            core.note_change();
            core.behind.forget_where_empty(node);
        }
    }
}

/// Failures after which the rest of a run is left for later: one bad block of a run takes nine.
const FAILURES_MAX: u32 = 20;

impl Core {
    /// Writes what is in memory of these blocks; at return the disks have what was there at the
    /// call. The caller holds the content, shared or alone.
    pub(crate) fn write_out(&self, node: &Node, first: u64, end: u64) -> FsResult<()> {
        let after = node.unwritten.after_those_under_way();
        let mut at = first;
        while let Some((next, answer)) = self.write_run(node, at, end, after) {
            answer?;
            at = next;
        }
        Ok(())
    }

    /// As [`Core::write_out`], of the blocks of a byte range.
    pub(crate) fn write_out_range(
        &self,
        node: &Node,
        offset_bytes: u64,
        end_bytes: u64,
    ) -> FsResult<()> {
        let end = end_bytes.div_ceil(BLOCK_SIZE_BYTES);
        self.write_out(node, offset_bytes / BLOCK_SIZE_BYTES, end)
    }

    /// As [`Core::write_out`], of the whole file, for whoever holds nothing. Between two runs the
    /// content is let go of. What can be written is, whatever fails. Of a file that was removed
    /// nothing is written: its blocks are forgotten.
    pub(crate) fn write_out_all(&self, node: &Node) -> FsResult<()> {
        let number = node.state.lock().begin_writing_out();
        let answer = self.write_out_what_is_there(node);
        node.state.lock().end_writing_out(number, answer.is_ok());
        answer
    }

    pub(super) fn write_out_what_is_there(&self, node: &Node) -> FsResult<()> {
        // What comes behind that is not asked for, and may come as fast as it is written.
        let (end, after) = node.unwritten.there_now();
        let mut at = 0;
        let mut answer = Ok(());
        while !node.unwritten.is_empty() {
            let content = node.content.read();
            if is_removed(node) {
                drop(content);
                return self.discard_removed(node);
            }
            let Some((next, written)) = self.write_run(node, at, end, after) else {
                break;
            };
            at = next;
            answer = answer.and(written);
        }
        answer
    }

    /// Writes the first run of a range, where somebody else writes it after that; where the next
    /// one may begin, and what came of it. The caller holds the content.
    fn write_run(
        &self,
        node: &Node,
        first: u64,
        end: u64,
        after: After,
    ) -> Option<(u64, FsResult<()>)> {
        let memory = self.unwritten_memory()?;
        let mut blocks = node.unwritten.lock();
        let next = loop {
            match blocks.next(first, end, after) {
                None => return None,
                Some((_, true)) => node.unwritten.wait(&mut blocks),
                Some((next, false)) => break next,
            }
        };
        let (run, buffer) = blocks.take(memory, next, end, after);
        drop(blocks);
        Some((run.end, self.write_taken(memory, node, run, &buffer)))
    }

    /// Writes a run. Where it fails it is halved, so that what can be written is, until it has failed
    /// often. What cannot be written stays in memory, where reads find it.
    fn write_taken(
        &self,
        memory: &UnwrittenBlocks,
        node: &Node,
        run: Run,
        buffer: &AlignedBuffer,
    ) -> FsResult<()> {
        let first = run.first;
        let mut is_written = vec![false; run.versions.len()];
        let mut under_way = UnderWay {
            core: self,
            memory,
            node,
            is_written: is_written.clone(),
            run,
        };
        let file = node.file()?;
        let block_bytes = length_of(BLOCK_SIZE_BYTES);
        let mut answer = Ok(());
        let mut pieces = vec![(0, is_written.len())];
        let mut failures_left = FAILURES_MAX;
        while let Some((start, end)) = pieces.pop() {
            let bytes = start * block_bytes..end * block_bytes;
            let offset_bytes = (first + start as u64) * BLOCK_SIZE_BYTES;
            let part = WriteSource::from(buffer).slice(bytes);
            let Err(error) = self.group.write_from(file, offset_bytes, part) else {
                is_written[start..end].fill(true);
                continue;
            };
            failures_left -= 1;
            if failures_left == 0 {
                answer = Err(FsError::from(error));
                break;
            }
            if end - start == 1 {
                answer = Err(FsError::from(error));
                continue;
            }
            let middle = usize::midpoint(start, end);
            pieces.push((middle, end));
            pieces.push((start, middle));
        }
        // The mark that the write moved may have found no room in the journal.
        self.group.keep_what_fell_out()?;
        under_way.is_written = is_written;
        answer
    }

    /// Writes what waits of all files. What can be written is, whatever fails.
    pub(crate) fn write_out_everything(&self) -> FsResult<()> {
        let loaded = self.load_parked();
        let nodes = self.behind.nodes();
        let answers = nodes.iter().map(|node| self.write_out_all(node));
        answers.fold(loaded, Result::and)
    }

    /// Writes a stretch that a program has filled.
    pub(super) fn write_filled(&self) -> bool {
        let Some((node, first)) = self.behind.take_filled() else {
            return false;
        };
        if is_removed(&node) {
            return true;
        }
        let _content = node.content.read();
        // What fails is tried again by its age.
        self.write_free_run(&node, |blocks| {
            match blocks.next(first, first + CHUNK_BLOCKS, After::ALL) {
                Some((next, false)) => Some(next),
                _ => None,
            }
        });
        true
    }

    /// Writes a run of the file that waits longest and has one which nobody writes.
    pub(super) fn write_oldest(&self, which: Which) -> bool {
        // Where a round ends the file may be old all the same: what came meanwhile, or failed.
        let mut has_round_ended = false;
        self.write_first_due(which, &mut has_round_ended)
            || has_round_ended && self.write_first_due(which, &mut has_round_ended)
    }

    fn write_first_due(&self, which: Which, has_round_ended: &mut bool) -> bool {
        for due in self.behind.due(which) {
            let node = &due.node;
            if is_removed(node) {
                if self.discard_removed(node).is_err() {
                    self.behind.leave_for_later(node.id);
                }
                self.behind.forget_where_empty(node);
                return true;
            }
            let mut round_began_ms = None;
            let has_written = self.write_free(node, |blocks| {
                if !due.is_old {
                    return blocks.next_free();
                }
                match blocks.next_of_round(self.behind.now_ms()) {
                    Next::At(block) => Some(block),
                    Next::RoundIsOver { began_ms } => {
                        round_began_ms = Some(began_ms);
                        None
                    }
                }
            });
            if has_written {
                return true;
            }
            if let Some(began_ms) = round_began_ms {
                self.behind.begin_anew(node.id, began_ms);
                *has_round_ended = true;
            }
            self.behind.forget_where_empty(node);
        }
        false
    }

    /// Writes a run of this file, to make room; false where it has none, or where it failed.
    pub(super) fn write_own(&self, node: &Node) -> bool {
        !self.behind.has_failed(node.id) && self.write_free(node, Blocks::next_free)
    }

    /// Writes the run that begins where `choose` says, if it says so.
    fn write_free(&self, node: &Node, choose: impl FnOnce(&mut Blocks) -> Option<u64>) -> bool {
        let written = {
            let _content = node.content.read();
            self.write_free_run(node, choose)
        };
        match written {
            Some(true) => self.behind.leave_no_more(node.id),
            Some(false) => self.behind.leave_for_later(node.id),
            None => return false,
        }
        true
    }

    /// Writes the run that begins where `choose` says; whether that went well. The caller shares
    /// the content.
    fn write_free_run(
        &self,
        node: &Node,
        choose: impl FnOnce(&mut Blocks) -> Option<u64>,
    ) -> Option<bool> {
        let memory = self.unwritten_memory()?;
        let (run, buffer) = {
            let mut blocks = node.unwritten.lock();
            let next = choose(&mut blocks)?;
            blocks.take(memory, next, u64::MAX, After::ALL)
        };
        Some(self.write_taken(memory, node, run, &buffer).is_ok())
    }
}

/// Whether its rows are gone. Nobody can reach it then, and no disk has a place for its blocks.
fn is_removed(node: &Node) -> bool {
    node.state.lock().removed
}
