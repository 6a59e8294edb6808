//! Where everything lies in the memory, in words of 8 bytes, and the records that are found whole.
//!
//! A head; the count of revocations; the revocations; a word for each client; the operations of
//! each; the locks of blocks.
//!
//! A record is four words: a state, a file, its first block and the end of its blocks. Zero in the
//! state's lower bits says that the record says nothing; the upper ones count how often it was made, so
//! that who reads the others between two looks at the same state has those of one record.

use std::sync::atomic::Ordering;

use spindle_base::FileId;
use spindle_device::words::{MAGIC_WORDS, Word, fence};

use crate::Leases;
pub use sizes::{CLIENTS_COUNT, OPERATIONS_COUNT};
pub(crate) use sizes::{LOCKS_COUNT, REVOCATIONS_COUNT};

#[cfg(not(feature = "loom"))]
mod sizes {
    /// Processes that may be clients of a group at a time, the owner among them.
    pub const CLIENTS_COUNT: usize = 512;
    /// Operations that a client may have under way at a time.
    pub const OPERATIONS_COUNT: usize = 64;
    /// Ranges of blocks that may be revoked at a time, and everything, which has the first place.
    pub(crate) const REVOCATIONS_COUNT: usize = 64;
    /// Words that lock blocks; a power of two.
    pub(crate) const LOCKS_COUNT: usize = 1 << 16;
}

/// Just enough for a model.
#[cfg(feature = "loom")]
mod sizes {
    /// Processes that may be clients of a group at a time, the owner among them.
    pub const CLIENTS_COUNT: usize = 2;
    /// Operations that a client may have under way at a time.
    pub const OPERATIONS_COUNT: usize = 1;
    pub(crate) const REVOCATIONS_COUNT: usize = 2;
    pub(crate) const LOCKS_COUNT: usize = 1;
}

const RECORD_WORDS: usize = 4;
const REVOKED: usize = MAGIC_WORDS;
const REVOCATIONS_START: usize = REVOKED + 1;
const CLIENTS_START: usize = REVOCATIONS_START + REVOCATIONS_COUNT * RECORD_WORDS;
const OPERATIONS_START: usize = CLIENTS_START + CLIENTS_COUNT;
const LOCKS_START: usize = OPERATIONS_START + CLIENTS_COUNT * OPERATIONS_COUNT * RECORD_WORDS;
pub(crate) const WORDS_COUNT: usize = LOCKS_START + LOCKS_COUNT;

/// A client of the group. 0 is the owner itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(u16);

impl ClientNumber {
    /// The process that serves the group: for what goes through the mount.
    pub const OWNER: Self = Self(0);

    /// The client of this number; `None` where there are not so many.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < CLIENTS_COUNT {
            Some(Self(number))
        } else {
            None
        }
    }

    /// All but the owner.
    pub(crate) fn all_others() -> impl Iterator<Item = Self> {
        (1..CLIENTS_COUNT).filter_map(|number| Self::new(u16::try_from(number).ok()?))
    }

    /// As it is said to another process.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Blocks of a file, of 4 KiB each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// `None` stands for every file.
    pub file: Option<FileId>,
    /// The first one.
    pub first: u64,
    /// The one behind the last.
    pub end: u64,
}

impl Blocks {
    /// All blocks of all files.
    pub const ALL: Self = Self {
        file: None,
        first: 0,
        end: u64::MAX,
    };

    /// Blocks `first` to `end` of the file, `end` not among them.
    #[must_use]
    pub const fn new(file: FileId, first: u64, end: u64) -> Self {
        let file = Some(file);
        Self { file, first, end }
    }

    /// Whether some block is in both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let same_file = match (self.file, other.file) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        same_file && self.first < other.end && other.first < self.end
    }
}

/// What an operation is about to do, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It waits for locks, and has written nothing.
    Waits,
    /// It writes, to every copy.
    Write,
    /// It wrote where the owner wrote too, which did not wait for it, or did not come to its end:
    /// copies may differ.
    Torn,
}

impl Mode {
    /// Whether copies may differ where it was when its client died.
    pub(crate) const fn may_leave_copies_unequal(self) -> bool {
        matches!(self, Self::Write | Self::Torn)
    }
}

/// The state's lower bits.
pub(crate) const KIND_BITS: u32 = 3;
pub(crate) const KIND: u64 = (1 << KIND_BITS) - 1;
pub(crate) const NOTHING: u64 = 0;
/// It waits for its locks.
pub(crate) const WAITS: u64 = 1;
pub(crate) const WRITE: u64 = 2;
pub(crate) const TORN: u64 = 3;
/// A write that the owner did not wait for.
pub(crate) const OVERTAKEN: u64 = 4;

pub(crate) const fn mode_of(state: u64) -> Option<Mode> {
    match state & KIND {
        WAITS => Some(Mode::Waits),
        WRITE | OVERTAKEN => Some(Mode::Write),
        TORN => Some(Mode::Torn),
        _ => None,
    }
}

/// Four words that say something of some blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a>(&'a [Word]);

/// The word of the file that stands for every file: no file has it, as the names' root is 1 and the
/// last number is never given.
const EVERY_FILE: u64 = u64::MAX;

impl<'a> Record<'a> {
    pub(crate) fn state(self) -> &'a Word {
        &self.0[0]
    }

    /// Says `kind` of the blocks from now on; gives the state. Only one writes a record that says
    /// nothing: whose it is.
    pub(crate) fn say(self, kind: u64, blocks: Blocks) -> u64 {
        let before = self.state().load(Ordering::Relaxed);
        debug_assert_eq!(before & KIND, NOTHING, "it says something already");
        // What it said last must not be seen with these blocks.
        fence(Ordering::Release);
        let file = blocks.file.map_or(EVERY_FILE, |file| file.0);
        for (word, value) in self.0[1..].iter().zip([file, blocks.first, blocks.end]) {
            word.store(value, Ordering::Relaxed);
        }
        let state = ((before >> KIND_BITS) + 1) << KIND_BITS | kind;
        self.state().store(state, Ordering::Release);
        state
    }

    /// Says nothing any more.
    pub(crate) fn end(self, state: u64) {
        self.state().store(state & !KIND, Ordering::Release);
    }

    /// Its state and blocks, where it says something; `Err` where it changed meanwhile.
    pub(crate) fn look(self) -> Result<Option<(u64, Blocks)>, Changed> {
        let state = self.state().load(Ordering::Acquire);
        if state & KIND == NOTHING {
            return Ok(None);
        }
        let [file, first, end] = [1, 2, 3].map(|word: usize| self.0[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let now = self.state().load(Ordering::Relaxed);
        // Only the kind may have become another one: of the same blocks.
        if now & KIND == NOTHING || now >> KIND_BITS != state >> KIND_BITS {
            return Err(Changed);
        }
        let file = (file != EVERY_FILE).then_some(FileId(file));
        Ok(Some((now, Blocks { file, first, end })))
    }
}

/// A record said something else at the end of a look than at its beginning.
#[derive(Debug)]
pub(crate) struct Changed;

impl Leases {
    fn words(&self) -> &[Word] {
        self.memory.words()
    }

    /// How many revocations there are; more than that only for a moment.
    pub(crate) fn revoked(&self) -> &Word {
        &self.words()[REVOKED]
    }

    fn record(&self, start: usize, index: usize) -> Record<'_> {
        Record(&self.words()[start + index * RECORD_WORDS..][..RECORD_WORDS])
    }

    pub(crate) fn revocations(&self) -> impl Iterator<Item = Record<'_>> {
        (0..REVOCATIONS_COUNT).map(|index| self.record(REVOCATIONS_START, index))
    }

    /// Zero where nobody is this client.
    pub(crate) fn client_word(&self, client: ClientNumber) -> &Word {
        &self.words()[CLIENTS_START + client.index()]
    }

    /// # Panics
    /// Where a client has not so many operations.
    pub(crate) fn operation_record(&self, client: ClientNumber, index: usize) -> Record<'_> {
        assert!(index < OPERATIONS_COUNT, "operation {index} of a client");
        self.record(OPERATIONS_START, client.index() * OPERATIONS_COUNT + index)
    }

    pub(crate) fn locks(&self) -> &[Word] {
        &self.words()[LOCKS_START..][..LOCKS_COUNT]
    }
}
