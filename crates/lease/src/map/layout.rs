//! Where everything lies in the memory of the map, in words of 8 bytes.
//!
//! A head of one page, which has the number of the disks' standing; a head for each row; the rows,
//! each of one page. A row's head is four words: its state, the file, the file's incarnation, and which
//! row of the file it is. An entry is four words too: its state, and a word for each copy.

use spindle_base::FileId;
use spindle_device::words::MAGIC_WORDS;
use spindle_format::COPIES_MAX;

pub(super) use sizes::{BUCKET_ROWS, ROW_EXTENTS, ROWS_COUNT};

use crate::locks::mixed;

#[cfg(not(feature = "loom"))]
mod sizes {
    /// Rows that the map has room for: of 4 million extents, in 128 MiB where all are there.
    pub(crate) const ROWS_COUNT: usize = 1 << 15;
    /// Rows that have their places among the same ones, by their hash. With an eighth of the room used
    /// one row in a million finds no place, with a quarter one in seven thousand.
    pub(crate) const BUCKET_ROWS: usize = 8;
    /// As many as in a row of the catalog; a row of them is a page of memory.
    pub(crate) const ROW_EXTENTS: usize = spindle_format::EXTENTS_PER_ROW;
    pub(super) const HEAD_WORDS: usize = 512;
}

/// Just enough for a model.
#[cfg(feature = "loom")]
mod sizes {
    pub(crate) const ROWS_COUNT: usize = 1;
    pub(crate) const BUCKET_ROWS: usize = 1;
    pub(crate) const ROW_EXTENTS: usize = 1;
    pub(super) const HEAD_WORDS: usize = 4;
}

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"spndlmap");
/// Of the words' order.
pub(super) const VERSION: u64 = 1;

/// The word that has the number of the disks' standing.
pub(super) const STANDING: usize = MAGIC_WORDS;
const ROW_HEAD_WORDS: usize = 4;
pub(super) const ENTRY_WORDS: usize = 1 + COPIES_MAX;
const ROW_WORDS: usize = ROW_EXTENTS * ENTRY_WORDS;
const ROW_HEADS_START: usize = sizes::HEAD_WORDS;
pub(super) const ENTRIES_START: usize = ROW_HEADS_START + ROWS_COUNT * ROW_HEAD_WORDS;
pub(super) const WORDS_COUNT: usize = ENTRIES_START + ROWS_COUNT * ROW_WORDS;

#[cfg(not(feature = "loom"))]
const _: () = assert!(
    ROW_WORDS == 512 && ENTRIES_START.is_multiple_of(512),
    "a row is a page, so that its memory is given back by itself"
);
const _: () = assert!(ROWS_COUNT.is_multiple_of(BUCKET_ROWS));

/// A file as the map knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Its number.
    pub file: FileId,
    /// Told with what a client is told of the file when it opens it (its striping), and another one where
    /// that has changed: who knows something else does not find the file.
    pub incarnation: u64,
}

/// A row's place in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Place {
    /// The places that this row may have.
    pub(super) fn all_of(file: FileKey, row: u32) -> impl Iterator<Item = Self> {
        let hash = mixed(file.file.0, u64::from(row));
        #[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 rows")]
        let bucket = (hash % (ROWS_COUNT / BUCKET_ROWS) as u64) as usize;
        (bucket * BUCKET_ROWS..).take(BUCKET_ROWS).map(Self)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..ROWS_COUNT).map(Self)
    }

    /// The words of its head: the state, and what the row is of.
    pub(super) const fn head(self) -> [usize; ROW_HEAD_WORDS] {
        let first = ROW_HEADS_START + self.0 * ROW_HEAD_WORDS;
        [first, first + 1, first + 2, first + 3]
    }

    /// The words of its entry `at`: the state, and those of the copies.
    ///
    /// # Panics
    /// Where a row has not so many.
    pub(super) fn entry(self, at: usize) -> (usize, [usize; COPIES_MAX]) {
        assert!(at < ROW_EXTENTS, "entry {at} of a row");
        let first = ENTRIES_START + self.0 * ROW_WORDS + at * ENTRY_WORDS;
        (first, [first + 1, first + 2, first + 3])
    }

    /// The words of all its entries: the first, and the one behind the last.
    pub(super) const fn entries(self) -> (usize, usize) {
        let first = ENTRIES_START + self.0 * ROW_WORDS;
        (first, first + ROW_WORDS)
    }
}

/// The row of extent `index`, and the extent's place in it.
pub(super) const fn row_of(index: u32) -> (u32, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "it is 128")]
    let row_extents = ROW_EXTENTS as u32;
    (index / row_extents, (index % row_extents) as usize)
}

/// What the words behind a row's state say where the row is this one.
pub(super) const fn names_of(file: FileKey, row: u32) -> [u64; ROW_HEAD_WORDS - 1] {
    [file.file.0, file.incarnation, row as u64]
}

/// A row's state: whether it is there, and how many rows had the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowState(pub(super) u64);

impl RowState {
    const THERE: u64 = 1;

    pub(super) const fn is_there(self) -> bool {
        self.0 & Self::THERE != 0
    }

    /// The next row has the place.
    pub(super) const fn next(self) -> Self {
        Self(((self.0 >> 1).wrapping_add(1)) << 1 | Self::THERE)
    }

    pub(super) const fn gone(self) -> Self {
        Self(self.0 & !Self::THERE)
    }
}
