//! What a client does with the map: it looks. Who writes has an operation announced; who reads looks
//! once more when the disks have answered.
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
use crate::Announced;

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

/// Where blocks are written, as long as the operation is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePlaces<'a> {
    copies: Copies,
    announced: PhantomData<&'a ()>,
}

impl WritePlaces<'_> {
    /// All of them get the blocks.
    #[must_use]
    pub fn copies(&self) -> &[CopyPlace] {
        &self.copies
    }
}

/// Where blocks were to be read when the map was looked at. What was read there counts if
/// [`SeenMap::stands`] says so behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "what was read counts only if it stands"]
pub struct ReadPlaces {
    copies: Copies,
    standing: u64,
    entry: SeenEntry,
}

impl ReadPlaces {
    /// One of them is asked.
    #[must_use]
    pub fn copies(&self) -> &[CopyPlace] {
        &self.copies
    }
}

type Copies = SmallVec<[CopyPlace; COPIES_MAX]>;

/// An entry that was found whole, and the words that say whether it is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenEntry {
    entry: Entry,
    row: (usize, RowState),
    state: (usize, EntryState),
}

/// What a client wants to do with the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Read,
    Write,
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

    /// Where these blocks are to be written, of which the operation is announced. They may be written there
    /// until the announcement ends.
    ///
    /// # Errors
    /// Why the mount is asked, which is right always.
    ///
    /// # Panics
    /// Where the operation was announced of another file.
    pub fn places_to_write<'a>(
        &self,
        announced: &'a Announced<'_>,
        disks: &Disks,
        piece: &Piece,
    ) -> Result<WritePlaces<'a>, Reason> {
        let file = announced.blocks().file;
        assert_eq!(file, Some(piece.file.file), "the announced file");
        let (copies, _) = self.find(Wish::Write, disks, piece)?;
        Ok(WritePlaces {
            copies,
            announced: PhantomData,
        })
    }

    /// Where these blocks can be read. Nothing is announced and nobody waits for who reads: what the disks
    /// have answered counts only if the places [still stand](Self::stands) behind it.
    ///
    /// # Errors
    /// Why the mount is asked, which is right always.
    pub fn places_to_read(&self, disks: &Disks, piece: &Piece) -> Result<ReadPlaces, Reason> {
        let (copies, entry) = self.find(Wish::Read, disks, piece)?;
        Ok(ReadPlaces {
            copies,
            standing: disks.standing,
            entry,
        })
    }

    /// Whether the owner has said no less since, and no other copies: what was read from these places meanwhile is the
    /// file's. Else it may be anything's.
    #[must_use]
    pub fn stands(&self, places: &ReadPlaces) -> bool {
        // What was read, in front of these loads.
        fence(Ordering::Acquire);
        let SeenEntry { row, state, .. } = &places.entry;
        let version = |state: u64| EntryState(state).version();
        self.memory.load(STANDING) == Some(places.standing)
            && self.memory.load(row.0) == Some(row.1.0)
            && self.memory.load(state.0).map(version) == Some(state.1.version())
    }

    fn find(
        &self,
        wish: Wish,
        disks: &Disks,
        piece: &Piece,
    ) -> Result<(Copies, SeenEntry), Reason> {
        // What hangs on it comes with the message that tells the client of it.
        if !self.is_current(disks) {
            return Err(Reason::Standing);
        }
        let seen = self.entry(piece.file, piece.index)?;
        let entry = &seen.entry;
        match entry.allowed() {
            Allowed::Nothing => return Err(Reason::NotAllowed),
            Allowed::WaitsInMemory => return Err(Reason::WaitsInMemory),
            Allowed::Read if wish == Wish::Write => return Err(Reason::ReadOnly),
            Allowed::Read | Allowed::ReadAndWrite => {}
        }
        entry.judge().map_err(|_| Reason::Damaged)?;
        let end = piece.inside_blocks.checked_add(piece.blocks);
        if end.is_none_or(|end| end > u64::from(entry.limit_blocks())) {
            return Err(Reason::BeyondLimit);
        }
        let mut places = Copies::new();
        for copy in entry.copies() {
            let disk = copy.disk();
            let known = (disks.blocks.get(usize::from(disk.0))).map_or(0, |blocks| *blocks);
            if known == 0 && wish == Wish::Read {
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
            false => Ok((places, seen)),
        }
    }

    /// The entry as it was stored whole, while its row was this one.
    fn entry(&self, file: FileKey, index: u32) -> Result<SeenEntry, Reason> {
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
            return Ok(SeenEntry {
                entry: state.with_copies(copies).ok_or(Reason::Damaged)?,
                row: (row_word, row_state),
                state: (state_word, state),
            });
        }
        Err(Reason::NotInMap)
    }
}
