//! Write-behind: what a program writes is answered from memory and written to the disks behind it.
//!
//! The memory is the keeper's ([`UnwrittenBlocks`]), so that a killed daemon loses none of it. It
//! is Spindle, and not the kernel's cache, that knows what is written: sizes, holes and bytes are
//! right at every moment, whoever asks.
//!
//! **Invariants.**
//! - A block that is in memory is the truth; of all others the disks have it.
//! - A file with blocks is among those that a sync of all writes before a write to it is answered.
//! - Its space was found before its write was answered: no write behind finds the group full.
//! - Whoever writes a run of blocks to the disks shares the file's content all the while, and has
//!   the run to itself. So nobody truncates below it, and no older bytes land on newer ones. A
//!   block that changes meanwhile stays in memory and is written again.
//! - A write past the memory puts its bytes into the blocks that are there before it is out, and no
//!   part of a block comes into memory meanwhile: see [`Blocks::begin_around`]. Until it has ended
//!   its blocks stay in memory, where they may be newer than what it has yet to bring to the disks; a
//!   sync waits for it.
//! - A block that an earlier process left and that nobody has taken yet is taken before anybody can
//!   write its file: see [`left`].
//!
//! A group without a journal has no such memory: its writes go to the disks at once.

mod blocks;
mod due;
mod left;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::WriteSource;
use spindle_group::{File, UnwrittenBlocks};

use crate::attribute::Time;
use crate::data::{Reach, bytes_of, checked_end, length_of};
use crate::error::FsResult;
use crate::handle::Handle;
use crate::node::Node;
use crate::system::{Core, FileSystem};

pub(crate) use blocks::Unwritten;
use blocks::{Blocks, CHUNK_BLOCKS, Put, WriteOf};
pub(crate) use due::Behind;
use due::Which;

/// A stretch that is written as soon as a program has filled it.
const CHUNK_BYTES: u64 = CHUNK_BLOCKS * BLOCK_SIZE_BYTES;
/// Blocks that are put in under one lock.
const PUT_BLOCKS: usize = 64;
/// So often something is read again where the disks got something of it meanwhile.
pub(crate) const READS_MOST: u32 = 8;
/// How long whoever waits for room in memory sleeps where others write all there is.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);
/// After so many such waits in which nothing went writers go past the memory, until something does:
/// a second or two, longer than a disk that works takes for a run.
const ROOM_WAITS_MOST: u32 = 300;

/// What memory has of a range of a file, with what is asked of the disks for the rest.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// For [`Core::has_begun_since`].
    pub(crate) begun_count: u64,
    /// A write past the memory is under way there: the disks may have less of it than the blocks.
    pub(crate) is_written_around: bool,
}

/// A write that goes past the memory, until it is dropped, be that by a panic.
struct Around<'a> {
    node: &'a Node,
    number: u64,
}

impl<'a> Around<'a> {
    fn begin(memory: &UnwrittenBlocks, node: &'a Node, offset_bytes: u64, data: &[u8]) -> Self {
        let number = (node.unwritten.lock()).begin_around(memory, offset_bytes, data);
        Self { node, number }
    }
}

impl Drop for Around<'_> {
    fn drop(&mut self) {
        let is_awaited = self.node.unwritten.lock().end_around(self.number);
        if is_awaited {
            self.node.unwritten.notify();
        }
    }
}

impl FileSystem {
    /// As [`FileSystem::write_from`], answered when the bytes are where a kill of this process
    /// loses none of them; they are written to the disks behind it. Where the group has no
    /// memory for that they are there at return.
    ///
    /// # Errors
    /// As [`FileSystem::write_from`].
    pub fn write_behind(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        data: WriteSource<'_>,
        now: Time,
    ) -> FsResult<()> {
        let memory = self.core.unwritten_memory();
        let Some(memory) = memory.filter(|_| self.core.wait_for_memory(&handle.node)) else {
            return self.write_from(handle, offset_bytes, data, false, now);
        };
        let node = &handle.node;
        let file = node.file()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = checked_end(offset_bytes, bytes_of(data.len()))?;
        let stamp = now.stamp()?;
        loop {
            {
                let _content = node.content.read();
                if self.core.is_ready(node, Reach::Bytes(end)) {
                    let core = &self.core;
                    (core.group).allocate(file, offset_bytes, bytes_of(data.len()))?;
                    let _withheld = core.withhold(file, offset_bytes, end);
                    return match core.put(memory, node, file, offset_bytes, data.bytes()) {
                        Ok(true) => {
                            core.note_written(node, end, stamp);
                            Ok(())
                        }
                        Ok(false) => core.write_at(node, file, offset_bytes, data, now),
                        Err(error) => {
                            node.note_failed_write(end);
                            Err(error)
                        }
                    };
                }
            }
            drop(self.core.content_for(node, file, Reach::Bytes(end))?);
        }
    }

    /// Bytes that may wait to be written before writers wait for the disks.
    pub fn set_unwritten_most(&self, most_bytes: u64) {
        if let Some(memory) = self.core.unwritten_memory() {
            let most = (most_bytes / BLOCK_SIZE_BYTES).min(u64::from(memory.count()) / 2);
            self.core.behind.set_most(most);
        }
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.core.behind.blocks_count() * BLOCK_SIZE_BYTES
    }

    /// Writes one run of blocks that is due; false where none is. A run that fails is left for ten seconds;
    /// its error is the next sync's.
    pub fn write_due(&self) -> bool {
        // What is old comes before a stream that would keep the disks busy for ever.
        self.core.write_oldest(Which::Old)
            || self.core.write_filled()
            || self.core.write_oldest(Which::WherePressed)
    }

    /// Waits until something may be due to be written, for so long at most.
    pub fn wait_for_due(&self, most: Duration) {
        self.core.behind.wait(most);
    }

    /// What waits is due, however young.
    pub fn hurry_writes(&self) {
        self.core.behind.hurry();
    }

    /// Nobody holds the memory beyond this process any more: from now on writes are answered when
    /// the disks have them, and what waits is due.
    pub fn write_behind_no_more(&self) {
        self.core.behind.go_on_alone();
        self.core.behind.hurry();
    }
}

impl Core {
    /// Where blocks wait, if the group has it.
    fn unwritten_memory(&self) -> Option<&UnwrittenBlocks> {
        self.group.journal()?.unwritten()
    }

    /// Gives memory back that nobody needs now.
    pub(crate) fn release_memory(&self) {
        if let Some(memory) = self.unwritten_memory() {
            memory.release();
        }
    }

    /// Where as much waits as may, the caller writes too, of the file that it wants to write: any
    /// other may lie on a disk that hangs. False where it is to go past the memory, because the
    /// disks take nothing of it. The caller holds nothing.
    fn wait_for_memory(&self, node: &Node) -> bool {
        let mut waits_left = ROOM_WAITS_MOST;
        while self.behind.is_full() && !self.behind.is_alone() {
            if self.write_own(node) {
                waits_left = ROOM_WAITS_MOST;
                continue;
            }
            if self.behind.is_stuck() || self.behind.is_stalled() {
                return false;
            }
            let before = self.behind.blocks_count();
            self.behind.wait(ROOM_INTERVAL);
            if self.behind.blocks_count() < before {
                waits_left = ROOM_WAITS_MOST;
                continue;
            }
            waits_left -= 1;
            if waits_left == 0 {
                // Somebody may take it back at once: who waited so long goes past the memory.
                self.behind.note_stalled();
                return false;
            }
        }
        !self.behind.is_alone()
    }

    /// Puts bytes into memory; false where they must go to the disks at once. The caller shares
    /// the content and has found space.
    fn put(
        &self,
        memory: &UnwrittenBlocks,
        node: &Arc<Node>,
        file: &File,
        offset_bytes: u64,
        data: &[u8],
    ) -> FsResult<bool> {
        let block_bytes = length_of(BLOCK_SIZE_BYTES);
        let mut at = offset_bytes;
        let mut left = data;
        let mut came_count = 0;
        // Nobody makes it shorter meanwhile: the content is shared.
        let of = WriteOf {
            file: node.id,
            size_bytes: node.state.lock().inode.size_bytes,
        };
        while !left.is_empty() {
            let block = at / BLOCK_SIZE_BYTES;
            let inside = length_of(at % BLOCK_SIZE_BYTES);
            let is_whole = inside == 0 && left.len() >= block_bytes;
            let length = if is_whole {
                (left.len() / block_bytes).min(PUT_BLOCKS) * block_bytes
            } else {
                left.len().min(block_bytes - inside)
            };
            let (part, rest) = left.split_at(length);
            let (put, count) = if is_whole {
                self.putting(node, |blocks| blocks.put(memory, of, block, part))
            } else {
                self.put_part(memory, node, (file, of), block, (inside, part))?
            };
            came_count += count;
            if put != Put::There {
                return Ok(false);
            }
            at += bytes_of(length);
            left = rest;
        }
        let (first, end) = (offset_bytes / CHUNK_BYTES, at / CHUNK_BYTES);
        if first < end && came_count > 0 {
            let firsts = (first..end).map(|chunk| chunk * CHUNK_BLOCKS);
            self.behind.note_filled(node, firsts);
        }
        Ok(true)
    }

    /// A part of a block: the rest of it is what the disks have, where it is not in memory.
    fn put_part(
        &self,
        memory: &UnwrittenBlocks,
        node: &Arc<Node>,
        (file, of): (&File, WriteOf),
        block: u64,
        part: (usize, &[u8]),
    ) -> FsResult<(Put, u64)> {
        let mut base = vec![0; length_of(BLOCK_SIZE_BYTES)];
        let mut turn = None;
        for _ in 0..READS_MOST {
            let (put, count) = self.putting(node, |blocks| {
                let known = turn.replace(blocks.turn());
                let base = known.map(|turn| (turn, &mut base[..]));
                blocks.put_part(memory, of, block, part, base)
            });
            if put != Put::Again {
                return Ok((put, count));
            }
            (self.group).read(file, block * BLOCK_SIZE_BYTES, &mut base)?;
        }
        Ok((Put::Around, 0))
    }

    /// Puts blocks of the node; how many came.
    fn putting<T>(&self, node: &Arc<Node>, put: impl FnOnce(&mut Blocks) -> T) -> (T, u64) {
        let (answer, came_count, is_unnoted) = {
            let mut blocks = node.unwritten.lock();
            let before = blocks.len();
            let answer = put(&mut blocks);
            let came_count = blocks.len() - before;
            self.behind.came(came_count);
            let is_unnoted = blocks.len() > 0 && !blocks.is_noted;
            (answer, came_count, is_unnoted)
        };
        // Also where another thread's write brought the blocks and has not come to this yet: who is
        // answered first must find the file among those that a sync writes.
        if is_unnoted {
            self.behind.note_waiting(node);
        }
        (answer, came_count)
    }

    /// Runs a write that goes past the memory.
    pub(crate) fn around<T>(
        &self,
        node: &Node,
        offset_bytes: u64,
        data: &[u8],
        write: impl FnOnce() -> T,
    ) -> T {
        let _around =
            (self.unwritten_memory()).map(|memory| Around::begin(memory, node, offset_bytes, data));
        write()
    }

    /// Copies of the blocks of a byte range that are in memory. To be asked before the disks are:
    /// what is not in memory then is on them, or on its way past it.
    pub(crate) fn copies_of_waiting(
        &self,
        node: &Node,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Copies {
        let Some(memory) = self.unwritten_memory() else {
            return Copies::default();
        };
        let first = offset_bytes / BLOCK_SIZE_BYTES;
        let end = (offset_bytes + length_bytes).div_ceil(BLOCK_SIZE_BYTES);
        let blocks = node.unwritten.lock();
        Copies {
            blocks: blocks.copies(memory, first, end),
            begun_count: blocks.begun_count(),
            is_written_around: blocks.has_around(first, end),
        }
    }

    /// Whether the disks may have got something of a byte range since the copies were made. What was
    /// read from them after that need not go with the copies.
    pub(crate) fn has_begun_since(
        &self,
        node: &Node,
        count: u64,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> bool {
        if self.unwritten_memory().is_none() {
            return false;
        }
        let first = offset_bytes / BLOCK_SIZE_BYTES;
        let end = (offset_bytes + length_bytes).div_ceil(BLOCK_SIZE_BYTES);
        (node.unwritten.lock()).has_begun_since(count, first, end)
    }

    /// Forgets the blocks of a range. The caller has the content alone, and a kill loses nothing of
    /// what makes the blocks needless: see `Group::keep_what_fell_out`.
    pub(crate) fn discard(&self, node: &Node, first: u64, end: u64) {
        let Some(memory) = self.unwritten_memory() else {
            return;
        };
        let gone = {
            let mut blocks = node.unwritten.lock();
            let gone = blocks.discard(memory, first, end);
            self.behind.went(gone);
            gone
        };
        if gone > 0 {
            self.behind.forget_where_empty(node);
        }
    }

    /// Makes a byte range a hole: blocks at its ends are written out, and those within are forgotten
    /// when the disks have the hole. The caller has the content alone.
    pub(crate) fn punch(
        &self,
        node: &Node,
        file: &File,
        offset_bytes: u64,
        end_bytes: u64,
    ) -> FsResult<()> {
        // It is several changes, between which no direct client reads either.
        let _withheld = self.withhold(file, offset_bytes, end_bytes);
        let (first, end) = (
            offset_bytes.div_ceil(BLOCK_SIZE_BYTES),
            end_bytes / BLOCK_SIZE_BYTES,
        );
        if first < end {
            self.write_out_range(node, offset_bytes, first * BLOCK_SIZE_BYTES)?;
            self.write_out_range(node, end * BLOCK_SIZE_BYTES, end_bytes)?;
        } else {
            self.write_out_range(node, offset_bytes, end_bytes)?;
        }
        (self.group).punch(file, offset_bytes, end_bytes - offset_bytes)?;
        self.group.keep_what_fell_out()?;
        self.discard(node, first, end.max(first));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
