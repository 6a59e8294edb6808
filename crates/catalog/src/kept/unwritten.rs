//! Blocks that were answered and are not on the disks yet.
//!
//! A program's write is answered when its bytes lie here: a killed process leaves them to the next
//! one, which writes them. A block has a slot: its 4 KiB, and two words that say whose it is. The
//! word with the file is stored last and taken away first, so that a kill at any point leaves a
//! block that is whole and named, or none. A block that is written again keeps its slot: a kill
//! then may leave a part of the newer bytes, of a write that nobody was answered.
//!
//! A block that must not reach the disks any more is lost from one word to the next, and its slot
//! says whose it was until the file owes the error for good. A program of before, which knows
//! nothing of that, finds such a slot free.

use std::sync::atomic::Ordering;

use spindle_base::FileId;
use spindle_sync::Mutex;

use spindle_device::words::{MAGIC_WORDS, SharedMemory, Word, check_head, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDBLKS");

/// Words of a block.
#[cfg(not(feature = "loom"))]
const BLOCK_WORDS: usize = 512;
/// Just enough for a model to find half of it.
#[cfg(feature = "loom")]
const BLOCK_WORDS: usize = 2;
pub(super) const BLOCK_BYTES: usize = BLOCK_WORDS * size_of::<u64>();
#[cfg(not(feature = "loom"))]
const _: () = assert!(BLOCK_BYTES as u64 == spindle_base::BLOCK_SIZE_BYTES);
const HEADER_WORDS: usize = 8;
/// How many slots were ever used.
const USED: usize = MAGIC_WORDS;
/// Slots whose memory the machine is asked for together: 1 MiB.
const CHUNK_SLOTS: u32 = 256;
/// Of whom a slot's block is: the file, and which of its blocks. Of a lost one the second word has the
/// file beside [`LOST`], and the first one nothing.
const NAME_WORDS: usize = 2;
/// No file has so many blocks, and no group so many files.
const LOST: u64 = 1 << 63;

/// The place of one block. Without [`UnwrittenBlocks::give_back`] it stays taken.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "who drops a slot has taken it from everybody"]
pub struct BlockSlot(u32);

/// A block that an earlier process left.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftBlock {
    /// Whose.
    pub file: FileId,
    /// Which block of the file.
    pub block: u64,
    /// Where its bytes are.
    pub slot: BlockSlot,
}

/// A block that is lost, and whose file owes that to its next sync.
#[derive(Debug, PartialEq, Eq)]
pub struct LostBlock {
    /// Whose it was.
    pub file: FileId,
    /// Where.
    pub slot: BlockSlot,
}

/// The slots that nobody has.
#[derive(Debug)]
struct Free {
    /// Those that somebody had; the last one is given first, because its memory is there.
    slots: Vec<u32>,
    /// From this one on none was ever used.
    fresh: u32,
    /// By chunk, whether this process has asked for its memory since it was given back last.
    reserved: Vec<bool>,
    /// The machine has no memory.
    #[cfg(test)]
    is_short: bool,
}

/// The memory of blocks to be written: a header, the names of all slots, and their bytes. All
/// methods may be called from many threads; the bytes of one slot are for its owner to order.
#[derive(Debug)]
pub struct UnwrittenBlocks {
    memory: SharedMemory,
    /// So many slots.
    count: u32,
    free: Mutex<Free>,
}

impl UnwrittenBlocks {
    /// Changes where a program of before would misread what lies here; words that it leaves alone may
    /// be added. A process that finds another one cannot take over.
    pub const VERSION: u64 = 1;
    /// Bytes of memory for as many blocks as a daemon ever needs, 1 GiB of them; what is not used
    /// costs nothing.
    pub const LENGTH_BYTES: u64 = Self::length_bytes(1 << 18);

    /// Bytes of memory for so many blocks.
    #[must_use]
    pub const fn length_bytes(blocks_count: u32) -> u64 {
        (data_start(blocks_count) + blocks_count as usize * BLOCK_WORDS) as u64 * 8
    }

    /// The blocks in `memory`, as an earlier process left them or none. Those that are left have
    /// their slots: see [`UnwrittenBlocks::left`].
    ///
    /// # Errors
    /// A line that says why this program cannot read what is there.
    pub fn new(memory: SharedMemory) -> Result<Self, String> {
        (memory.reserve(0, HEADER_WORDS))
            .map_err(|error| format!("there is no memory for blocks to be written: {error}"))?;
        let words = memory.words();
        let count = count_in(words.len());
        check_head(words, MAGIC, Self::VERSION, "blocks to be written")?;
        let fresh = u32::try_from(get(&words[USED]))
            .unwrap_or(u32::MAX)
            .min(count);
        let is_free =
            |slot: &u32| name_in(words, *slot).is_none() && lost_in(words, *slot).is_none();
        let slots = (0..fresh).rev().filter(is_free).collect();
        Ok(Self {
            count,
            free: Mutex::new(Free {
                slots,
                fresh,
                reserved: vec![false; count.div_ceil(CHUNK_SLOTS) as usize],
                #[cfg(test)]
                is_short: false,
            }),
            memory,
        })
    }

    /// Memory of this process's own.
    ///
    /// # Errors
    /// Where the kernel gives none.
    pub fn create() -> std::io::Result<Self> {
        let memory = SharedMemory::create("spindle-unwritten", Self::LENGTH_BYTES)?;
        Self::new(memory).map_err(std::io::Error::other)
    }

    /// The memory, to be kept by another process.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// At most so many blocks.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    fn name_words(&self, slot: u32) -> &[Word] {
        name_words_in(self.memory.words(), slot)
    }

    fn name(&self, slot: u32) -> Option<(FileId, u64)> {
        name_in(self.memory.words(), slot)
    }

    fn bytes(&self, slot: u32) -> &[Word] {
        let start = data_start(self.count) + slot as usize * BLOCK_WORDS;
        &self.memory.words()[start..][..BLOCK_WORDS]
    }

    /// What an earlier process left. To be called once, before any slot is taken.
    #[must_use]
    pub fn left(&self) -> Vec<LeftBlock> {
        let blocks = (0..self.free.lock().fresh).filter_map(|number| {
            let (file, block) = self.name(number)?;
            Some(LeftBlock {
                file,
                block,
                slot: BlockSlot(number),
            })
        });
        blocks.collect()
    }

    /// The block must not be written any more, whoever finds it: a kill leaves it to nobody, and to the
    /// next process that it was lost.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "nobody has the block afterwards"
    )]
    pub fn lose(&self, left: LeftBlock) {
        let words = self.name_words(left.slot.0);
        words[1].store(LOST | left.file.0, Ordering::Release);
        words[0].store(0, Ordering::Release);
    }

    /// What was lost, here or in an earlier process, and is not given back yet.
    #[must_use]
    pub fn lost(&self) -> Vec<LostBlock> {
        let blocks = (0..self.free.lock().fresh).filter_map(|number| {
            Some(LostBlock {
                file: lost_in(self.memory.words(), number)?,
                slot: BlockSlot(number),
            })
        });
        blocks.collect()
    }

    /// Takes a free slot; none where all are taken, or the machine has no memory for it.
    #[must_use]
    pub fn take(&self) -> Option<BlockSlot> {
        let mut free = self.free.lock();
        let known = free.slots.last().copied();
        let slot = known.unwrap_or(free.fresh);
        if slot == self.count || !self.reserve(&mut free, slot) {
            return None;
        }
        if known.is_some() {
            free.slots.pop();
        } else {
            free.fresh += 1;
            self.memory.words()[USED].store(u64::from(free.fresh), Ordering::Release);
        }
        Some(BlockSlot(slot))
    }

    /// Whether the slot's memory is there. Where the machine gave none at the first store into it,
    /// this process would be killed, and the next one again.
    fn reserve(&self, free: &mut Free, slot: u32) -> bool {
        let chunk = slot / CHUNK_SLOTS;
        if free.reserved[chunk as usize] {
            return true;
        }
        #[cfg(test)]
        if free.is_short {
            return false;
        }
        let first = (chunk * CHUNK_SLOTS) as usize;
        let end = first + CHUNK_SLOTS.min(self.count - chunk * CHUNK_SLOTS) as usize;
        let (names, data) = (HEADER_WORDS, data_start(self.count));
        let is_there =
            [(names, NAME_WORDS), (data, BLOCK_WORDS)]
                .into_iter()
                .all(|(start, words)| {
                    let reserved =
                        (self.memory).reserve(start + first * words, start + end * words);
                    reserved.is_ok()
                });
        free.reserved[chunk as usize] = is_there;
        is_there
    }

    /// Puts the block of a file into the slot: from here on a kill leaves it to the next process.
    ///
    /// # Panics
    /// Where `bytes` are no whole block.
    pub fn put(&self, slot: &BlockSlot, file: FileId, block: u64, bytes: &[u8]) {
        self.fill(slot, bytes);
        let words = self.name_words(slot.0);
        words[1].store(block, Ordering::Release);
        words[0].store(file.0, Ordering::Release);
    }

    /// Changes a part of the block in the slot.
    ///
    /// # Panics
    /// Where the part does not lie within a block.
    pub fn patch(&self, slot: &BlockSlot, at: usize, bytes: &[u8]) {
        if bytes.len() == BLOCK_BYTES {
            return self.fill(slot, bytes);
        }
        let mut block = [0; BLOCK_BYTES];
        self.read(slot, &mut block);
        block[at..at + bytes.len()].copy_from_slice(bytes);
        self.fill(slot, &block);
    }

    /// The slot's bytes.
    ///
    /// # Panics
    /// Where `out` is no whole block.
    pub fn read(&self, slot: &BlockSlot, out: &mut [u8]) {
        assert_eq!(out.len(), BLOCK_BYTES, "a whole block");
        let words = self.bytes(slot.0);
        for (bytes, word) in out.chunks_exact_mut(size_of::<u64>()).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    fn fill(&self, slot: &BlockSlot, bytes: &[u8]) {
        assert_eq!(bytes.len(), BLOCK_BYTES, "a whole block");
        let words = self.bytes(slot.0);
        let (chunks, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
        for (chunk, word) in chunks.iter().zip(words) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }

    /// The block is on the disks, or nobody wants it any more; of a lost one its file owes the error,
    /// whoever is killed.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "nobody has the slot afterwards"
    )]
    pub fn give_back(&self, slot: BlockSlot) {
        let words = self.name_words(slot.0);
        words[0].store(0, Ordering::Release);
        if get(&words[1]) & LOST != 0 {
            words[1].store(0, Ordering::Release);
        }
        // Whoever gets the slot next fills it, and a kill must not find that under the old name.
        fence(Ordering::Release);
        self.free.lock().slots.push(slot.0);
    }

    /// Gives the memory of free slots back to the machine, where all of them are free.
    pub fn release(&self) {
        let mut free = self.free.lock();
        if free.slots.len() == free.fresh as usize {
            free.reserved.fill(false);
            let start = data_start(self.count);
            let end = start + free.fresh as usize * BLOCK_WORDS;
            self.memory.release(start, end);
        }
    }
}

const fn data_start(blocks_count: u32) -> usize {
    (HEADER_WORDS + blocks_count as usize * NAME_WORDS).next_multiple_of(BLOCK_WORDS)
}

fn name_words_in(words: &[Word], slot: u32) -> &[Word] {
    &words[HEADER_WORDS + slot as usize * NAME_WORDS..][..NAME_WORDS]
}

/// Whose block is in the slot: none where it is free or lost, or its block was not named yet.
fn name_in(words: &[Word], slot: u32) -> Option<(FileId, u64)> {
    let words = name_words_in(words, slot);
    // No file has the number zero.
    let (file, block) = (get(&words[0]), get(&words[1]));
    (file != 0 && block & LOST == 0).then_some((FileId(file), block))
}

/// Whose block was lost in the slot, if one was.
fn lost_in(words: &[Word], slot: u32) -> Option<FileId> {
    let block = get(&name_words_in(words, slot)[1]);
    (block & LOST != 0).then_some(FileId(block & !LOST))
}

/// The word that says whose block is in the slot.
#[cfg(feature = "loom")]
pub(super) fn file_word(words: &[Word], slot: u32) -> &Word {
    &name_words_in(words, slot)[0]
}

/// As many blocks as find room in so many words.
fn count_in(words_count: usize) -> u32 {
    let without_header = words_count.saturating_sub(HEADER_WORDS);
    let most = u32::try_from(without_header / (NAME_WORDS + BLOCK_WORDS)).unwrap_or(u32::MAX);
    let is_too_long = |count: u32| {
        UnwrittenBlocks::length_bytes(count) > words_count as u64 * size_of::<u64>() as u64
    };
    most - u32::from(most > 0 && is_too_long(most))
}

fn get(word: &Word) -> u64 {
    word.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 100;

    fn new() -> UnwrittenBlocks {
        let length_bytes = UnwrittenBlocks::length_bytes(COUNT);
        UnwrittenBlocks::new(SharedMemory::create("test", length_bytes).unwrap()).unwrap()
    }

    /// The next process's view of the same memory.
    fn next(blocks: &UnwrittenBlocks) -> UnwrittenBlocks {
        let descriptor = blocks.memory().descriptor().try_clone_to_owned().unwrap();
        UnwrittenBlocks::new(SharedMemory::from_descriptor(descriptor).unwrap()).unwrap()
    }

    fn bytes_of(blocks: &UnwrittenBlocks, slot: &BlockSlot) -> Vec<u8> {
        let mut out = vec![0; BLOCK_BYTES];
        blocks.read(slot, &mut out);
        out
    }

    #[test]
    fn a_block_that_was_put_is_left_to_the_next_process_and_its_slot_is_not_given_twice() {
        let blocks = new();
        let (first, second, third) = (blocks.take(), blocks.take(), blocks.take());
        let (first, second) = (first.unwrap(), second.unwrap());
        blocks.put(&first, FileId(7), 3, &[1; BLOCK_BYTES]);
        blocks.put(&second, FileId(7), 4, &[2; BLOCK_BYTES]);
        blocks.patch(&second, 5, &[9, 9]);
        blocks.give_back(first);
        // The third was taken and never named: a kill in the midst of a write.
        assert!(third.is_some());

        let blocks = next(&blocks);
        let mut left = blocks.left();
        let only = left.pop().unwrap();
        assert!(left.is_empty());
        assert_eq!((only.file, only.block), (FileId(7), 4));
        let mut expected = vec![2; BLOCK_BYTES];
        expected[5..7].fill(9);
        assert_eq!(bytes_of(&blocks, &only.slot), expected);
        let others: Vec<_> = (0..4).map(|_| blocks.take().unwrap()).collect();
        assert!(!others.contains(&only.slot), "{others:?}");
    }

    #[test]
    fn what_is_forgotten_is_not_left_and_what_is_free_costs_no_memory() {
        let blocks = new();
        let slot = blocks.take().unwrap();
        blocks.put(&slot, FileId(2), 0, &[5; BLOCK_BYTES]);
        let blocks = next(&blocks);
        for left in blocks.left() {
            blocks.give_back(left.slot);
        }
        assert_eq!(blocks.left(), []);
        blocks.release();
        assert_eq!(bytes_of(&blocks, &blocks.take().unwrap()), [0; BLOCK_BYTES]);
    }

    #[test]
    fn a_lost_block_is_left_to_nobody_and_stays_lost_until_it_is_given_back() {
        let blocks = new();
        let slot = blocks.take().unwrap();
        blocks.put(&slot, FileId(7), 3, &[1; BLOCK_BYTES]);
        let blocks = next(&blocks);
        blocks.lose(blocks.left().pop().unwrap());

        let blocks = next(&blocks);
        assert_eq!(blocks.left(), []);
        let lost = blocks.lost().pop().unwrap();
        assert_eq!(lost.file, FileId(7));
        let other = blocks.take().unwrap();
        assert_ne!(other, lost.slot);
        blocks.give_back(lost.slot);

        let blocks = next(&blocks);
        assert_eq!((blocks.left(), blocks.lost()), (vec![], vec![]));
        let again = blocks.take().unwrap();
        blocks.put(&again, FileId(8), 0, &[1; BLOCK_BYTES]);
        let names = |left: LeftBlock| (left.file, left.block);
        assert_eq!(blocks.left().pop().map(names), Some((FileId(8), 0)));
        assert_eq!(blocks.lost(), []);
    }

    /// A kill in the midst of losing a block, or of giving a lost one back.
    #[test]
    fn half_a_lost_block_is_lost_and_never_a_block_that_is_left() {
        let blocks = new();
        let slot = blocks.take().unwrap();
        blocks.put(&slot, FileId(7), 3, &[1; BLOCK_BYTES]);
        blocks.name_words(slot.0)[1].store(LOST | 7, Ordering::Relaxed);
        let blocks = next(&blocks);
        assert_eq!(blocks.left(), []);
        assert_eq!(blocks.lost().pop().unwrap().file, FileId(7));
        blocks.name_words(slot.0)[0].store(0, Ordering::Relaxed);
        let blocks = next(&blocks);
        assert_eq!(blocks.left(), []);
        assert_eq!(blocks.lost().pop().unwrap().file, FileId(7));
    }

    #[test]
    fn memory_of_another_version_is_refused_by_name() {
        let blocks = new();
        blocks.memory().words()[1].store(UnwrittenBlocks::VERSION + 1, Ordering::Relaxed);
        let descriptor = blocks.memory().descriptor().try_clone_to_owned().unwrap();
        let memory = SharedMemory::from_descriptor(descriptor).unwrap();
        let why = UnwrittenBlocks::new(memory).unwrap_err();
        assert!(
            why.contains("has version 2, and this program reads version 1"),
            "{why}"
        );
    }

    #[test]
    fn memory_of_a_slot_is_there_before_it_is_handed_out_and_none_is_handed_out_without() {
        use std::os::unix::fs::MetadataExt;
        let blocks = new();
        let memory = blocks.memory().descriptor().try_clone_to_owned().unwrap();
        let memory = std::fs::File::from(memory);
        let length_bytes = || memory.metadata().unwrap().blocks() * 512;
        let all_bytes = UnwrittenBlocks::length_bytes(COUNT);
        assert!(length_bytes() < all_bytes);
        let slot = blocks.take().unwrap();
        assert_eq!(length_bytes(), all_bytes);
        blocks.put(&slot, FileId(7), 3, &[1; BLOCK_BYTES]);

        // Given back, it is asked for again; where there is none the slot stays free.
        blocks.give_back(slot);
        blocks.release();
        assert!(length_bytes() < all_bytes);
        blocks.free.lock().is_short = true;
        assert_eq!(blocks.take(), None);
        assert!(length_bytes() < all_bytes);
        blocks.free.lock().is_short = false;
        let slot = blocks.take().unwrap();
        assert_eq!(length_bytes(), all_bytes);
        blocks.put(&slot, FileId(7), 3, &[2; BLOCK_BYTES]);
        assert_eq!(bytes_of(&blocks, &slot), [2; BLOCK_BYTES]);
        // So does the next process.
        let blocks = next(&blocks);
        blocks.free.lock().is_short = true;
        assert_eq!(blocks.take(), None);
        assert_eq!(blocks.left().len(), 1);
    }

    #[test]
    fn no_store_into_a_slot_needs_memory_that_is_not_there() {
        use std::os::unix::fs::MetadataExt;
        let length_bytes = UnwrittenBlocks::length_bytes(3 * CHUNK_SLOTS - 100);
        let blocks =
            UnwrittenBlocks::new(SharedMemory::create("test", length_bytes).unwrap()).unwrap();
        let memory = blocks.memory().descriptor().try_clone_to_owned().unwrap();
        let memory = std::fs::File::from(memory);
        let blocks_count = || memory.metadata().unwrap().blocks();
        for block in 0..u64::from(blocks.count()) {
            let slot = blocks.take().unwrap();
            let before = blocks_count();
            blocks.put(&slot, FileId(9), block, &[3; BLOCK_BYTES]);
            assert_eq!(blocks_count(), before, "slot {slot:?}");
        }
        assert_eq!(blocks.take(), None);
    }

    #[test]
    fn memory_ends_after_so_many_blocks() {
        let blocks = new();
        assert_eq!(blocks.count(), COUNT);
        for _ in 0..COUNT {
            assert!(blocks.take().is_some());
        }
        assert_eq!(blocks.take(), None);
    }
}
