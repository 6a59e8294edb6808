//! What a client does with the map: it looks, with an operation announced.
//!
//! The memory may hold anything, and change at any moment. What is found is checked as bytes of a
//! disk are: what cannot be goes through the mount.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::words::{MAGIC_WORDS, ReadOnlyMemory, fence};
use spindle_format::COPIES_MAX;

use super::entry::{Allowed, Entry, EntryState};
use super::layout::{
    FileKey, MAGIC, Place, RowState, STANDING, VERSION, WORDS_COUNT, names_of, row_of,
};
use crate::{Announced, Mode};

/// The map as a client has it.
#[derive(Debug)]
pub struct SeenMap {
    memory: ReadOnlyMemory,
}

/// What a client was told of the disks: it goes to no others, and nowhere beyond their ends.
#[derive(Debug, Clone, Default)]
pub struct Disks {
    /// The standing that this is of.
    pub standing: u64,
    /// The blocks of each disk by its number; 0 for one that the client cannot reach.
    pub blocks: Vec<u64>,
}

/// Blocks of a file that lie together in one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub file: FileKey,
    /// The extent's number.
    pub index: u32,
    /// The first one, from the extent's start.
    pub inside_blocks: u64,
    /// How many.
    pub blocks: u64,
}

/// How the client goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'a> {
    /// It asks the disks.
    Direct(Direct<'a>),
    /// It goes through the mount, which is right always.
    ThroughMount(Reason),
}

/// Where blocks lie, as long as the operation is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direct<'a> {
    copies: SmallVec<[CopyPlace; COPIES_MAX]>,
    announced: PhantomData<&'a ()>,
}

impl Direct<'_> {
    /// A read asks one of them, a write all.
    #[must_use]
    pub fn copies(&self) -> &[CopyPlace] {
        &self.copies
    }
}

/// Where one copy of the blocks lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPlace {
    /// On which disk.
    pub disk: DiskNumber,
    /// The first byte on it.
    pub offset_bytes: u64,
}

/// Why the mount is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The disks are not as the client was told: it asks the owner.
    Standing,
    /// The map has no row for the extent.
    NotInMap,
    /// The owner allows nothing: a hole, an extent on its way, whatever is not plain.
    NotAllowed,
    /// A write of the mount waits in the keeper's memory.
    WaitsInMemory,
    /// The blocks, or some of them, hold no data yet or do not lie wholly inside the file.
    BeyondLimit,
    /// They may be read, and not written.
    ReadOnly,
    /// The owner changed the entry at this moment.
    Changes,
    /// A copy lies on a disk that the client does not know, or beyond its end.
    UnknownPlace,
    /// The entry is none that an owner would store.
    Damaged,
}

impl SeenMap {
    /// The map in this memory.
    ///
    /// # Errors
    /// What it is instead, for a message.
    pub fn new(memory: ReadOnlyMemory) -> Result<Self, String> {
        if memory.load(WORDS_COUNT - 1).is_none() {
            return Err(format!(
                "the memory of the map has not the {WORDS_COUNT} words that are needed"
            ));
        }
        let head: [Option<u64>; MAGIC_WORDS] = [memory.load(0), memory.load(1)];
        if head != [Some(MAGIC), Some(VERSION)] {
            return Err(format!(
                "the memory is not that of a map of version {VERSION}"
            ));
        }
        Ok(Self { memory })
    }

    /// Whether the disks are as the client was told: what has failed may have done so because they are
    /// not.
    #[must_use]
    pub fn is_current(&self, disks: &Disks) -> bool {
        self.memory.load(STANDING) == Some(disks.standing)
    }

    /// Where these blocks lie, of which the operation is announced: to be written where the operation
    /// writes, and to be read otherwise. They may be asked for until the announcement ends.
    ///
    /// # Panics
    /// Where the operation was announced of another file.
    #[must_use]
    pub fn lookup<'a>(
        &self,
        announced: &'a Announced<'_>,
        disks: &Disks,
        piece: &Piece,
    ) -> Found<'a> {
        let file = announced.blocks().file;
        assert_eq!(file, Some(piece.file.file), "the announced file");
        match self.find(announced.mode(), disks, piece) {
            Ok(copies) => Found::Direct(Direct {
                copies,
                announced: PhantomData,
            }),
            Err(reason) => Found::ThroughMount(reason),
        }
    }

    pub(super) fn find(
        &self,
        mode: Mode,
        disks: &Disks,
        piece: &Piece,
    ) -> Result<SmallVec<[CopyPlace; COPIES_MAX]>, Reason> {
        // What hangs on it comes with the message that tells the client of it.
        if !self.is_current(disks) {
            return Err(Reason::Standing);
        }
        let entry = self.entry(piece.file, piece.index)?;
        match entry.allowed() {
            Allowed::Nothing => return Err(Reason::NotAllowed),
            Allowed::WaitsInMemory => return Err(Reason::WaitsInMemory),
            Allowed::Read if mode != Mode::Read => return Err(Reason::ReadOnly),
            Allowed::Read | Allowed::ReadAndWrite => {}
        }
        entry.judge().map_err(|_| Reason::Damaged)?;
        let end = piece.inside_blocks.checked_add(piece.blocks);
        if end.is_none_or(|end| end > u64::from(entry.limit_blocks())) {
            return Err(Reason::BeyondLimit);
        }
        let mut places = SmallVec::new();
        for copy in entry.copies() {
            let disk = copy.disk();
            let known = (disks.blocks.get(usize::from(disk.0))).map_or(0, |blocks| *blocks);
            if known == 0 && mode == Mode::Read {
                // One copy that can be reached is enough.
                continue;
            }
            if copy.start_block() + copy.blocks() > known {
                return Err(Reason::UnknownPlace);
            }
            places.push(CopyPlace {
                disk,
                offset_bytes: copy.start_bytes() + piece.inside_blocks * BLOCK_SIZE_BYTES,
            });
        }
        match places.is_empty() {
            true => Err(Reason::UnknownPlace),
            false => Ok(places),
        }
    }

    /// The entry as it was stored whole, while its row was this one.
    fn entry(&self, file: FileKey, index: u32) -> Result<Entry, Reason> {
        let load = |word| self.memory.load(word).ok_or(Reason::Damaged);
        let (row, at) = row_of(index);
        for place in Place::all_of(file, row) {
            let [row_word, names @ ..] = place.head();
            let row_state = RowState(load(row_word)?);
            if !row_state.is_there() {
                continue;
            }
            // The names and the entries are this row's or a later one's.
            fence(Ordering::Acquire);
            if names.map(|word| self.memory.load(word)) != names_of(file, row).map(Some) {
                continue;
            }
            let (state_word, [first, second, third]) = place.entry(at);
            let state = EntryState(load(state_word)?);
            // The copies are this state's or a later one's.
            fence(Ordering::Acquire);
            let copies = [load(first)?, load(second)?, load(third)?];
            // And if one was a later one's, so is the state by now.
            fence(Ordering::Acquire);
            if load(state_word)? != state.0 || load(row_word)? != row_state.0 {
                return Err(Reason::Changes);
            }
            return state.with_copies(copies).ok_or(Reason::Damaged);
        }
        Err(Reason::NotInMap)
    }
}
