//! A file's blocks that are to be written: which, where their bytes lie, and who writes them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_device::AlignedBuffer;
use spindle_group::{BlockSlot, UnwrittenBlocks};
use spindle_sync::Condvar;
use spindle_sync::level::{LeafGuard, LeafMutex};

use crate::data::length_of;

/// A run that is written never goes over a multiple of so many blocks: 1 MiB, as an extent has it
/// or a multiple of it.
pub(super) const CHUNK_BLOCKS: u64 = 256;

/// Runs that are remembered, to tell a reader whether one of them was its own.
const BEGUN_MOST: usize = 16;

/// The blocks of one node.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    blocks: LeafMutex<Blocks>,
    /// A run is no longer under way, or a write past the memory.
    written: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    waiting: BTreeMap<u64, Waiting>,
    /// Writes under way that go to the disks past the memory.
    around: Vec<WriteAround>,
    /// Changes whenever the disks may have got bytes that memory did not have: what was read from
    /// them before is old.
    turn: u64,
    /// Where the next run is looked for by whoever writes behind.
    cursor: u64,
    /// The round that writes all that was there when it began.
    round: Option<Round>,
    /// Writes to the disks that have begun, and the blocks of the last ones.
    begun_count: u64,
    begun: VecDeque<(u64, u64)>,
    /// Whether the file is among those with blocks that wait. Changes under the lock of that list.
    pub(super) is_noted: bool,
}

/// A write to the disks past the memory: its blocks, and how many writes to the disks had begun with
/// it.
#[derive(Debug)]
struct WriteAround {
    number: u64,
    first: u64,
    end: u64,
}

/// Who is to be done before a block is written: the writes past the memory that lie over it, where
/// they began no later than that. What memory has of a block may be newer than what such a write has
/// yet to bring to the disks, which would come over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct After(u64);

impl After {
    /// All of them. For whoever writes what nobody waits for, and looks for another block instead.
    pub(super) const ALL: Self = Self(u64::MAX);
}

/// A way through all blocks of a file. What comes behind its end waits for the next round: a stream
/// would keep this one from its end for ever.
#[derive(Debug, Clone, Copy)]
struct Round {
    end: u64,
    began_ms: u64,
}

/// What an old file is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// To write the run that begins here.
    At(u64),
    /// All that was there then is written or under way.
    RoundIsOver { began_ms: u64 },
}

/// One block.
#[derive(Debug)]
struct Waiting {
    slot: BlockSlot,
    /// Counts its changes.
    version: u32,
    is_under_way: bool,
    /// Where the file ended before this block made it longer, if it did since the disks last got it:
    /// from there on they have zeros of it.
    grown_from_bytes: Option<u64>,
    /// The same, since the bytes that are under way were taken.
    grown_since_bytes: Option<u64>,
}

impl Waiting {
    const fn new(slot: BlockSlot) -> Self {
        Self {
            slot,
            version: 0,
            is_under_way: false,
            grown_from_bytes: None,
            grown_since_bytes: None,
        }
    }

    /// Bytes of a write came, up to `end` within the block.
    fn note_growth(&mut self, of: WriteOf, block: u64, end: u64) {
        let start_bytes = block * BLOCK_SIZE_BYTES;
        if start_bytes + end > of.size_bytes {
            let from = of.size_bytes.max(start_bytes);
            let known = if self.is_under_way {
                &mut self.grown_since_bytes
            } else {
                &mut self.grown_from_bytes
            };
            *known = Some(known.map_or(from, |known| known.min(from)));
        }
    }
}

/// What is written to.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteOf {
    pub(super) file: FileId,
    /// Where the file ended before the write, or farther in front where others make it longer too.
    pub(super) size_bytes: u64,
}

/// Blocks that follow each other, with the bytes that they had; nobody else writes them.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) versions: Vec<u32>,
}

/// What becomes of bytes that are to be kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// They are there.
    There,
    /// They must go to the disks at once: no memory is left, or somebody writes past it. None of them
    /// came into memory.
    Around,
    /// The disks got something since the block was read: read it again.
    Again,
}

impl Unwritten {
    pub(super) fn lock(&self) -> LeafGuard<'_, Blocks> {
        self.blocks.lock()
    }

    pub(super) fn wait(&self, blocks: &mut LeafGuard<'_, Blocks>) {
        blocks.wait(&self.written);
    }

    pub(super) fn notify(&self) {
        self.written.notify_all();
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.lock().waiting.is_empty()
    }

    /// For whoever is asked to write what is here now: where that ends, and whom it waits for.
    pub(super) fn there_now(&self) -> (u64, After) {
        let blocks = self.blocks.lock();
        let last = blocks.waiting.last_key_value();
        (last.map_or(0, |(block, _)| block + 1), blocks.after())
    }

    /// As [`Self::there_now`], for whoever knows where it ends.
    pub(super) fn after_those_under_way(&self) -> After {
        self.blocks.lock().after()
    }

    /// The first block from `block` on that is here.
    pub(crate) fn first_from(&self, block: u64) -> Option<u64> {
        let blocks = self.blocks.lock();
        blocks.waiting.range(block..).next().map(|(at, _)| *at)
    }

    /// How far the file may reach with what the disks have: up to the first bytes that made it longer
    /// and that they have not got. What they cannot take holds nothing up: its error is told.
    pub(crate) fn grown_from_bytes(&self) -> Option<u64> {
        let blocks = self.blocks.lock();
        let mut waiting = blocks.waiting.values();
        waiting.find_map(|waiting| waiting.grown_from_bytes.or(waiting.grown_since_bytes))
    }

    /// The first block from `block` on that is not here.
    pub(crate) fn end_from(&self, block: u64) -> u64 {
        let blocks = self.blocks.lock();
        let mut at = block;
        for (found, _) in blocks.waiting.range(block..) {
            if *found != at {
                break;
            }
            at += 1;
        }
        at
    }
}

impl Blocks {
    /// Those under way. Those that begin later are not waited for: as one of them comes after the other
    /// there may always be one.
    const fn after(&self) -> After {
        After(self.begun_count)
    }

    pub(super) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Puts whole blocks, all or none of them: a reader would see some beside what the disks have of
    /// the others, until the write goes there.
    pub(super) fn put(
        &mut self,
        memory: &UnwrittenBlocks,
        of: WriteOf,
        first: u64,
        bytes: &[u8],
    ) -> Put {
        let bytes = bytes.chunks_exact(length_of(BLOCK_SIZE_BYTES));
        let here_count = self
            .waiting
            .range(first..first + bytes.len() as u64)
            .count();
        let mut slots = Vec::new();
        while here_count + slots.len() < bytes.len() {
            let Some(slot) = memory.take() else {
                slots.into_iter().for_each(|slot| memory.give_back(slot));
                return Put::Around;
            };
            slots.push(slot);
        }
        for (block, bytes) in (first..).zip(bytes) {
            if !self.patch_block(memory, of, block, (0, bytes)) {
                let slot = slots.pop().expect("one for each block that was not here");
                self.put_new(memory, slot, of, block, (bytes, BLOCK_SIZE_BYTES));
            }
        }
        Put::There
    }

    /// Puts a block that is not here, of which the write has what comes before `end`.
    fn put_new(
        &mut self,
        memory: &UnwrittenBlocks,
        slot: BlockSlot,
        of: WriteOf,
        block: u64,
        (bytes, end): (&[u8], u64),
    ) {
        memory.put(&slot, of.file, block, bytes);
        let mut waiting = Waiting::new(slot);
        waiting.note_growth(of, block, end);
        let former = self.waiting.insert(block, waiting);
        assert!(former.is_none(), "it was not here to be patched");
    }

    /// What the disks have is only as old as this.
    pub(super) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Changes a part of a block that is here; else puts it in whole, where `base` has what the
    /// disks had of it at that turn.
    pub(super) fn put_part(
        &mut self,
        memory: &UnwrittenBlocks,
        of: WriteOf,
        block: u64,
        (at, bytes): (usize, &[u8]),
        base: Option<(u64, &mut [u8])>,
    ) -> Put {
        if !self.around.is_empty() {
            return Put::Around;
        }
        if self.patch_block(memory, of, block, (at, bytes)) {
            return Put::There;
        }
        match base {
            Some((turn, base)) if turn == self.turn => {
                let Some(slot) = memory.take() else {
                    return Put::Around;
                };
                let end = at + bytes.len();
                base[at..end].copy_from_slice(bytes);
                self.put_new(memory, slot, of, block, (base, end as u64));
                Put::There
            }
            _ => Put::Again,
        }
    }

    /// A block that an earlier process left. Where it has a slot already, this one is
    /// handed back.
    pub(super) fn insert(&mut self, block: u64, slot: BlockSlot) -> Result<(), BlockSlot> {
        match self.waiting.entry(block) {
            Entry::Occupied(_) => Err(slot),
            Entry::Vacant(place) => {
                place.insert(Waiting::new(slot));
                Ok(())
            }
        }
    }

    fn patch_block(
        &mut self,
        memory: &UnwrittenBlocks,
        of: WriteOf,
        block: u64,
        (at, bytes): (usize, &[u8]),
    ) -> bool {
        let Some(waiting) = self.waiting.get_mut(&block) else {
            return false;
        };
        memory.patch(&waiting.slot, at, bytes);
        waiting.note_growth(of, block, (at + bytes.len()) as u64);
        waiting.version = waiting.version.wrapping_add(1);
        true
    }

    /// A write goes past the memory, where what it overwrites must not come back over it; its number.
    pub(super) fn begin_around(
        &mut self,
        memory: &UnwrittenBlocks,
        offset: u64,
        bytes: &[u8],
    ) -> u64 {
        let (first, end) = range_of(offset, bytes);
        self.note_begun(first, end);
        let number = self.begun_count;
        self.around.push(WriteAround { number, first, end });
        self.turn += 1;
        self.patch(memory, offset, bytes);
        number
    }

    /// It has ended; whether somebody may have waited for that. What came into memory meanwhile stays
    /// as it is: whoever brought it may have read what this write had put on the disks before, or into
    /// memory, so that it is newer. And it stays until it is written once more: where that was begun
    /// before now, this write may have come over it.
    pub(super) fn end_around(&mut self, number: u64) -> bool {
        let mut under_way = self.around.iter();
        let index = under_way.position(|around| around.number == number);
        let WriteAround { first, end, .. } =
            (self.around).swap_remove(index.expect("a write ends that has begun"));
        self.turn += 1;
        let mut is_any_here = false;
        for (_, waiting) in self.waiting.range_mut(first..end) {
            waiting.version = waiting.version.wrapping_add(1);
            is_any_here = true;
        }
        is_any_here
    }

    fn patch(&mut self, memory: &UnwrittenBlocks, offset: u64, bytes: &[u8]) {
        if self.waiting.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        let (first, end_block) = range_of(offset, bytes);
        for (block, waiting) in self.waiting.range_mut(first..end_block) {
            let start = block * BLOCK_SIZE_BYTES;
            let from = start.max(offset);
            let to = (start + BLOCK_SIZE_BYTES).min(end);
            let part = &bytes[length_of(from - offset)..length_of(to - offset)];
            memory.patch(&waiting.slot, length_of(from - start), part);
            waiting.version = waiting.version.wrapping_add(1);
        }
    }

    /// Whether a write past the memory is under way to a block of this range. What is here of its
    /// blocks is as new as it, and the disks need not have the rest of it yet.
    pub(super) fn has_around(&self, first: u64, end: u64) -> bool {
        is_any_over(&self.around, After::ALL, first, end)
    }

    /// Copies of the blocks of a range that are here.
    pub(super) fn copies(
        &self,
        memory: &UnwrittenBlocks,
        first: u64,
        end: u64,
    ) -> Vec<(u64, Vec<u8>)> {
        let blocks = self.waiting.range(first..end).map(|(block, waiting)| {
            let mut bytes = vec![0; length_of(BLOCK_SIZE_BYTES)];
            memory.read(&waiting.slot, &mut bytes);
            (*block, bytes)
        });
        blocks.collect()
    }

    /// The first block of the range that is here and whether somebody writes it.
    pub(super) fn next(&self, first: u64, end: u64, after: After) -> Option<(u64, bool)> {
        let (block, waiting) = self.waiting.range(first..end).next()?;
        let is_written = waiting.is_under_way || is_over(&self.around, after, *block);
        Some((*block, is_written))
    }

    /// The first block of the range that nobody writes.
    fn free(&self, first: u64, end: u64) -> Option<u64> {
        let mut blocks = self.waiting.range(first..end.max(first));
        let free = blocks.find(|(block, waiting)| {
            !waiting.is_under_way && !is_over(&self.around, After::ALL, **block)
        });
        free.map(|(block, _)| *block)
    }

    /// The first block from the cursor on that nobody writes, or else the first one of all.
    pub(super) fn next_free(&mut self) -> Option<u64> {
        let ahead = self.free(self.cursor, u64::MAX);
        let found = ahead.or_else(|| self.free(0, self.cursor))?;
        // A round under way goes on where it was: taken back each time it would not end.
        if ahead.is_some() || self.round.is_none() {
            self.cursor = found;
        }
        Some(found)
    }

    /// The next block of the round under way, which begins where none is.
    pub(super) fn next_of_round(&mut self, now_ms: u64) -> Next {
        let round = self.round.unwrap_or_else(|| {
            self.cursor = 0;
            let last = self.waiting.last_key_value();
            Round {
                end: last.map_or(0, |(block, _)| block + 1),
                began_ms: now_ms,
            }
        });
        let found = self.free(self.cursor, round.end);
        self.round = found.map(|_| round);
        match found {
            Some(found) => {
                self.cursor = found;
                Next::At(found)
            }
            None => Next::RoundIsOver {
                began_ms: round.began_ms,
            },
        }
    }

    /// The disks are asked to take these blocks.
    fn note_begun(&mut self, first: u64, end: u64) {
        self.begun_count += 1;
        self.begun.truncate(BEGUN_MOST - 1);
        self.begun.push_front((first, end));
    }

    /// Writes to the disks that have begun by now.
    pub(super) const fn begun_count(&self) -> u64 {
        self.begun_count
    }

    /// Whether one of these blocks may have gone to the disks since so many had begun.
    pub(super) fn has_begun_since(&self, count: u64, first: u64, end: u64) -> bool {
        let since = self.begun_count - count;
        let mut begun = (self.begun.iter()).take(length_of(since));
        since > self.begun.len() as u64 || begun.any(|(from, to)| *from < end && first < *to)
    }

    /// Takes the run that begins with this block, which is here and which nobody writes, to write
    /// it.
    pub(super) fn take(
        &mut self,
        memory: &UnwrittenBlocks,
        first: u64,
        end: u64,
        after: After,
    ) -> (Run, AlignedBuffer) {
        let most = end.min((first / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS);
        let mut versions = Vec::new();
        for (block, waiting) in self.waiting.range_mut(first..most) {
            let follows = *block == first + versions.len() as u64;
            if !follows || waiting.is_under_way || is_over(&self.around, after, *block) {
                break;
            }
            waiting.is_under_way = true;
            versions.push(waiting.version);
        }
        let block_bytes = length_of(BLOCK_SIZE_BYTES);
        let mut buffer = AlignedBuffer::zeroed(versions.len() * block_bytes);
        let run = Run {
            first,
            end: first + versions.len() as u64,
            versions,
        };
        self.note_begun(run.first, run.end);
        if self.cursor == run.first {
            self.cursor = run.end;
        }
        let blocks = self.waiting.range(run.first..run.end);
        for ((_, waiting), out) in blocks.zip(buffer.chunks_exact_mut(block_bytes)) {
            memory.read(&waiting.slot, out);
        }
        (run, buffer)
    }

    /// The blocks of the run are on the disks where `is_written` says so; the others are to be
    /// written still, and those over which a write past the memory may have come or may come yet. So
    /// many went.
    pub(super) fn settle(
        &mut self,
        memory: &UnwrittenBlocks,
        run: &Run,
        is_written: &[bool],
    ) -> u64 {
        let mut gone = 0;
        let versions = run.versions.iter().zip(is_written);
        for (block, (version, is_written)) in (run.first..run.end).zip(versions) {
            let waiting = self.waiting.get_mut(&block);
            let waiting = waiting.expect("whoever discards blocks has the content alone");
            let is_as_written = *is_written && waiting.version == *version;
            if is_as_written && !is_over(&self.around, After::ALL, block) {
                let waiting = self.waiting.remove(&block).expect("it was found");
                memory.give_back(waiting.slot);
                gone += 1;
            } else {
                waiting.is_under_way = false;
                waiting.grown_from_bytes = waiting.grown_since_bytes.take();
            }
        }
        // Where all were written anew meanwhile the disks have got something all the same.
        self.turn += 1;
        self.end_round_where_empty();
        gone
    }

    /// Forgets the blocks of a range; so many.
    pub(super) fn discard(&mut self, memory: &UnwrittenBlocks, first: u64, end: u64) -> u64 {
        let blocks: Vec<u64> = (self.waiting.range(first..end))
            .map(|(block, _)| *block)
            .collect();
        for block in &blocks {
            let waiting = self.waiting.remove(block).expect("it was found");
            assert!(
                !waiting.is_under_way,
                "whoever writes blocks shares the content"
            );
            memory.give_back(waiting.slot);
        }
        self.end_round_where_empty();
        blocks.len() as u64
    }

    /// What comes later has a round of its own.
    fn end_round_where_empty(&mut self) {
        if self.waiting.is_empty() {
            self.round = None;
        }
    }
}

/// Whether one of the writes past the memory lies over a block of this range.
fn is_any_over(around: &[WriteAround], after: After, first: u64, end: u64) -> bool {
    let mut before = around.iter().filter(|around| around.number <= after.0);
    before.any(|around| around.first < end && first < around.end)
}

fn is_over(around: &[WriteAround], after: After, block: u64) -> bool {
    is_any_over(around, after, block, block + 1)
}

/// The blocks of which a write has bytes.
const fn range_of(offset: u64, bytes: &[u8]) -> (u64, u64) {
    let end = offset + bytes.len() as u64;
    (offset / BLOCK_SIZE_BYTES, end.div_ceil(BLOCK_SIZE_BYTES))
}

#[cfg(test)]
mod tests {
    use spindle_base::{BLOCK_SIZE_BYTES, FileId};
    use spindle_group::UnwrittenBlocks;

    use super::{After, Blocks, Next, Put, WriteOf};
    use crate::data::length_of;

    #[test]
    fn a_round_ends_though_writers_take_blocks_beside_it_and_others_come() {
        let memory = UnwrittenBlocks::create().unwrap();
        let mut blocks = Blocks::default();
        let of = WriteOf {
            file: FileId(1),
            size_bytes: 1 << 20,
        };
        let bytes = vec![1; length_of(BLOCK_SIZE_BYTES)];
        // Every other one: each is a run of its own. Of nine the last one is the round's.
        for block in (0..18).step_by(2) {
            assert_eq!(blocks.put(&memory, of, block, &bytes), Put::There);
        }
        // And is written anew at once.
        let write = |blocks: &mut Blocks, block| {
            let (run, _) = blocks.take(&memory, block, block + 1, After::ALL);
            blocks.settle(&memory, &run, &[true]);
            blocks.put(&memory, of, block, &bytes);
        };
        let mut looks = 0;
        while let Next::At(block) = blocks.next_of_round(0) {
            looks += 1;
            assert!(
                looks <= 5,
                "the round goes on with what came after it began"
            );
            write(&mut blocks, block);
            // A writer that waits for room has its turn too.
            let next = blocks.next_free().unwrap();
            write(&mut blocks, next);
        }
    }
}
