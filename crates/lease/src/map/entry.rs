//! What the map says of one extent, and how its state packs that.
//!
//! The words of an entry's copies are those of the catalog's rows and of the owner's own map.

use spindle_format::{COPIES_MAX, EXTENT_CLASS_MAX, ExtentCopy};

/// What a client may do by itself with the blocks of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Allowed {
    /// Nothing: a hole, an extent that is being moved, or whatever else is not plain.
    #[default]
    Nothing,
    /// Nothing, because a write of the mount waits in the keeper's memory.
    WaitsInMemory,
    /// Read them. Their region is not open for writes, or not all copies are good.
    Read,
    /// Read them, and write all the copies.
    ReadAndWrite,
}

impl Allowed {
    const ALL: [Self; 4] = [
        Self::Nothing,
        Self::WaitsInMemory,
        Self::Read,
        Self::ReadAndWrite,
    ];
}

/// What the map says of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    copies: [u64; COPIES_MAX],
    limit_blocks: u32,
    allowed: Allowed,
}

/// Why the map cannot say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryError {
    /// No copy, or more than an extent can have.
    CopiesCount(usize),
    /// A copy that is a hole or missing: only those that are good are said.
    Absent,
    /// Copies of several lengths, or a limit beyond their end.
    Length,
    /// Two copies on one disk.
    SameDisk,
}

impl Entry {
    /// What stands for a hole, and for all that goes through the mount.
    pub const NOTHING: Self = Self {
        copies: [0; COPIES_MAX],
        limit_blocks: 0,
        allowed: Allowed::Nothing,
    };

    /// An extent with these copies, all of them good, of which the first `limit_blocks` blocks hold
    /// data and lie wholly inside the file.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn new(
        copies: &[ExtentCopy],
        limit_blocks: u32,
        allowed: Allowed,
    ) -> Result<Self, EntryError> {
        let mut words = [0; COPIES_MAX];
        if copies.is_empty() || copies.len() > COPIES_MAX {
            return Err(EntryError::CopiesCount(copies.len()));
        }
        for (word, copy) in words.iter_mut().zip(copies) {
            *word = copy.to_bits();
        }
        let entry = Self {
            copies: words,
            limit_blocks,
            allowed,
        };
        entry.judge().map(|()| entry)
    }

    /// The same extent, with which something else may be done.
    #[must_use]
    pub const fn with(self, allowed: Allowed) -> Self {
        Self { allowed, ..self }
    }

    /// What may be done with it.
    #[must_use]
    pub const fn allowed(&self) -> Allowed {
        self.allowed
    }

    /// Of how many blocks from its start.
    #[must_use]
    pub const fn limit_blocks(&self) -> u32 {
        self.limit_blocks
    }

    /// Its copies.
    pub fn copies(&self) -> impl Iterator<Item = ExtentCopy> + '_ {
        let words = self.copies.iter().take_while(|word| **word != 0);
        words.map(|word| ExtentCopy::from_bits(*word))
    }

    /// What its words cannot say. They may be anything.
    pub(super) fn judge(&self) -> Result<(), EntryError> {
        let copies_count = self.copies().count();
        let Some(first) = self.copies().next() else {
            return Err(EntryError::CopiesCount(0));
        };
        if self.copies[copies_count..].iter().any(|word| *word != 0) {
            return Err(EntryError::Absent);
        }
        for (at, copy) in self.copies().enumerate() {
            if !copy.is_present() || copy.start_block() == 0 {
                return Err(EntryError::Absent);
            }
            if copy.class() != first.class() || copy.class() > EXTENT_CLASS_MAX {
                return Err(EntryError::Length);
            }
            if self
                .copies()
                .take(at)
                .any(|other| other.disk() == copy.disk())
            {
                return Err(EntryError::SameDisk);
            }
        }
        if u64::from(self.limit_blocks) > first.blocks() {
            return Err(EntryError::Length);
        }
        Ok(())
    }

    /// Whether it says what the other one says of the same copies, and perhaps more: who acts by that one
    /// does nothing wrong.
    pub(super) fn adds_to(&self, before: &Self) -> bool {
        let may_read =
            |entry: &Self| matches!(entry.allowed, Allowed::Read | Allowed::ReadAndWrite);
        let may_write = |entry: &Self| entry.allowed == Allowed::ReadAndWrite;
        self.copies == before.copies
            && self.limit_blocks >= before.limit_blocks
            && may_read(self) >= may_read(before)
            && may_write(self) >= may_write(before)
    }

    pub(super) const fn words(&self) -> [u64; COPIES_MAX] {
        self.copies
    }

    pub(super) const fn state(&self, version: u32) -> EntryState {
        EntryState(
            (version as u64) << VERSION_SHIFT
                | (self.allowed as u64) << ALLOWED_SHIFT
                | self.limit_blocks as u64,
        )
    }
}

/// An entry's state: bits 0 to 23 how many blocks, 24 to 31 what may be done with them, 32 to 63 how
/// often it has said less than before, or other copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryState(pub(super) u64);

const ALLOWED_SHIFT: u32 = 24;
const VERSION_SHIFT: u32 = 32;
const LIMIT_MASK: u64 = (1 << ALLOWED_SHIFT) - 1;

const _: () = assert!(LIMIT_MASK >= 1 << EXTENT_CLASS_MAX, "every length has room");

impl EntryState {
    /// `None` for a word that no owner stores.
    pub(super) fn allowed(self) -> Option<Allowed> {
        let code = (self.0 >> ALLOWED_SHIFT) & 0xff;
        Allowed::ALL.get(usize::try_from(code).ok()?).copied()
    }

    pub(super) const fn version(self) -> u32 {
        (self.0 >> VERSION_SHIFT) as u32
    }

    /// The entry with this state and these words of its copies, which may be anything.
    pub(super) fn with_copies(self, copies: [u64; COPIES_MAX]) -> Option<Entry> {
        Some(Entry {
            copies,
            limit_blocks: u32::try_from(self.0 & LIMIT_MASK).ok()?,
            allowed: self.allowed()?,
        })
    }
}
