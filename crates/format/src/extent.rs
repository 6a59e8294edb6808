//! Where the copies of a file's extents lie: the entry of 8 bytes, and the row of 128 extents.
//!
//! Invariants of a row: an extent is a hole in all of its copies or in none; its copies have one
//! length class and lie on different disks; at least one copy is there; the last extent of a row
//! is not a hole; marks are in order of their extents and below the extent's length. The table's
//! key says which file and row it is, and the region below carries the checksum, so that a row
//! needs neither magic nor CRC of its own.

use serde::{Deserialize, Serialize};
use spindle_base::DiskNumber;

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::{Reader, Writer};

/// The version of the row that this program writes.
pub const EXTENT_ROW_VERSION: u8 = 1;
/// Extents of one row.
pub const EXTENTS_PER_ROW: usize = 128;
/// The most copies an extent can have.
pub const COPIES_MAX: usize = 3;
/// The largest length class: 2^18 blocks, which is 16 AUs of 64 MiB.
pub const EXTENT_CLASS_MAX: u8 = 18;
/// The bytes before a row's entries.
pub const EXTENT_ROW_HEADER_BYTES: usize = 4;
/// The bytes of an entry.
pub const EXTENT_COPY_BYTES: usize = 8;
/// The bytes of a mark.
pub const EXTENT_MARK_BYTES: usize = 4;

const START_BITS: u32 = 40;
const START_MASK: u64 = (1 << START_BITS) - 1;
const CLASS_SHIFT: u32 = START_BITS;
const DISK_SHIFT: u32 = 48;

/// One copy of one extent: disk, first block and length class, packed into 8 bytes.
///
/// Bits 0 to 39 are the start in blocks of 4 KiB, 40 to 47 the class, 48 to 63 the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExtentCopy(u64);

impl ExtentCopy {
    /// No extent: reads as zeros. Block 0 of disk 0 is its label, so no extent looks like this.
    pub const HOLE: Self = Self(0);
    /// A copy that was not written because its disk's failure group was away.
    pub const MISSING: Self = Self(u64::MAX);

    /// A copy at `start_block` of `disk` with 2^`class` blocks.
    ///
    /// # Panics
    /// Where the start does not fit 40 bits, the class is beyond the largest, or the start is in
    /// block 0: our own state is wrong then.
    #[must_use]
    pub const fn new(disk: DiskNumber, start_block: u64, class: u8) -> Self {
        assert!(
            start_block > 0 && start_block <= START_MASK,
            "an extent begins after block 0 and below 2^40"
        );
        assert!(
            class <= EXTENT_CLASS_MAX,
            "an extent has at most 2^18 blocks"
        );
        Self(((disk.0 as u64) << DISK_SHIFT) | ((class as u64) << CLASS_SHIFT) | start_block)
    }

    /// The 8 bytes as a number, as they are on disk.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// An entry from its 8 bytes; it may be anything until a row's check accepted it.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether there is no extent.
    #[must_use]
    pub const fn is_hole(self) -> bool {
        self.0 == 0
    }

    /// Whether this copy of an existing extent is not there.
    #[must_use]
    pub const fn is_missing(self) -> bool {
        self.0 == u64::MAX
    }

    /// Whether there are blocks: neither a hole nor missing.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.0 != 0 && self.0 != u64::MAX
    }

    /// The disk; meaningful where the copy is present.
    #[must_use]
    pub const fn disk(self) -> DiskNumber {
        DiskNumber((self.0 >> DISK_SHIFT) as u16)
    }

    /// The first block; meaningful where the copy is present.
    #[must_use]
    pub const fn start_block(self) -> u64 {
        self.0 & START_MASK
    }

    /// The first byte on its disk; meaningful where the copy is present.
    #[must_use]
    pub const fn start_bytes(self) -> u64 {
        self.start_block() << 12
    }

    /// The length class; meaningful where the copy is present.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the eight bits of the class are what is wanted"
    )]
    pub const fn class(self) -> u8 {
        (self.0 >> CLASS_SHIFT) as u8
    }

    /// The length in blocks; meaningful where the copy is present.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        1 << self.class()
    }

    /// The length in bytes; meaningful where the copy is present.
    #[must_use]
    pub const fn length_bytes(self) -> u64 {
        self.blocks() << 12
    }
}

/// How far an extent that is not full holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct InitialisedMark {
    /// Index of the extent in its row.
    pub index: u8,
    /// Blocks from its start that hold data; fewer than it has.
    pub blocks: u32,
}

/// A row whose invariants were checked. It borrows the row's bytes: a mount reads millions of
/// extents and must not allocate for each row.
#[derive(Debug, Clone, Copy)]
pub struct ExtentRow<'a> {
    copies: usize,
    entries: &'a [u8],
    marks: &'a [u8],
}

impl<'a> ExtentRow<'a> {
    /// Checks a row's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where an invariant of the row does not hold.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::ExtentRow, bytes);
        reader.record_version(EXTENT_ROW_VERSION)?;
        let copies = reader.judged("copies", Reader::u8, |copies| {
            let copies = usize::from(copies);
            (1..=COPIES_MAX).contains(&copies).then_some(copies)
        })?;
        let extents = reader.judged("extents count", Reader::u8, |extents| {
            let extents = usize::from(extents);
            (extents <= EXTENTS_PER_ROW).then_some(extents)
        })?;
        let marks = reader.judged("marks count", Reader::u8, |marks| {
            let marks = usize::from(marks);
            (marks <= extents).then_some(marks)
        })?;
        let row = Self {
            copies,
            entries: reader.bytes(extents * copies * EXTENT_COPY_BYTES)?,
            marks: reader.bytes(marks * EXTENT_MARK_BYTES)?,
        };
        reader.end()?;
        row.check_entries()?;
        row.check_marks()?;
        Ok(row)
    }

    /// Copies of each extent.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.copies
    }

    /// Extents up to the last that is no hole; those beyond are holes.
    #[must_use]
    pub const fn extents_count(&self) -> usize {
        self.entries.len() / EXTENT_COPY_BYTES / self.copies
    }

    /// Every entry, extent after extent, the copies of each together.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = ExtentCopy> + 'a {
        self.entries
            .as_chunks::<EXTENT_COPY_BYTES>()
            .0
            .iter()
            .map(|bytes| ExtentCopy(u64::from_le_bytes(*bytes)))
    }

    /// The extents that are not full, in order.
    pub fn marks(&self) -> impl ExactSizeIterator<Item = InitialisedMark> + 'a {
        self.marks
            .as_chunks::<EXTENT_MARK_BYTES>()
            .0
            .iter()
            .map(|&[index, low, middle, high]| InitialisedMark {
                index,
                blocks: u32::from_le_bytes([low, middle, high, 0]),
            })
    }

    fn check_entries(&self) -> Result<(), FormatError> {
        let bad = |index: usize, what| FormatError {
            structure: Structure::ExtentRow,
            kind: FormatErrorKind::Value(what),
            offset_bytes: EXTENT_ROW_HEADER_BYTES + index * self.copies * EXTENT_COPY_BYTES,
        };
        let mut copies = [ExtentCopy::HOLE; COPIES_MAX];
        let mut entries = self.entries();
        for index in 0..self.extents_count() {
            for copy in &mut copies[..self.copies] {
                *copy = entries.next().unwrap_or(ExtentCopy::HOLE);
            }
            match judge_extent(&copies[..self.copies]) {
                Some(what) => return Err(bad(index, what)),
                None if index + 1 == self.extents_count() && copies[0].is_hole() => {
                    return Err(bad(index, "the last extent (a hole)"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_marks(&self) -> Result<(), FormatError> {
        let mut next = 0;
        for (number, mark) in self.marks().enumerate() {
            let bad = FormatError {
                structure: Structure::ExtentRow,
                kind: FormatErrorKind::Value("mark"),
                offset_bytes: EXTENT_ROW_HEADER_BYTES
                    + self.entries.len()
                    + number * EXTENT_MARK_BYTES,
            };
            let index = usize::from(mark.index);
            if index < next || index >= self.extents_count() {
                return Err(bad);
            }
            next = index + 1;
            let full = self
                .entries()
                .skip(index * self.copies)
                .take(self.copies)
                .find(|copy| copy.is_present())
                .map_or(0, ExtentCopy::blocks);
            if u64::from(mark.blocks) >= full {
                return Err(bad);
            }
        }
        Ok(())
    }
}

/// What contradicts the invariants of one extent, if anything does.
fn judge_extent(copies: &[ExtentCopy]) -> Option<&'static str> {
    if copies.iter().all(|copy| copy.is_hole()) {
        return None;
    }
    if copies.iter().any(|copy| copy.is_hole()) {
        return Some("an extent (a hole in some copies only)");
    }
    let Some(first) = copies.iter().find(|copy| copy.is_present()) else {
        return Some("an extent (no copy is there)");
    };
    for (index, copy) in copies.iter().enumerate() {
        if copy.is_missing() {
            continue;
        }
        if copy.class() != first.class() || copy.class() > EXTENT_CLASS_MAX {
            return Some("the length class of an extent");
        }
        if copy.start_block() == 0 {
            return Some("the start of an extent");
        }
        let same_disk = |other: &ExtentCopy| other.is_present() && other.disk() == copy.disk();
        if copies[..index].iter().any(same_disk) {
            return Some("an extent (two copies on one disk)");
        }
    }
    None
}

/// The bytes of a row with `copies` entries for each extent; `None` where every extent is a hole,
/// because such a row does not exist. Trailing holes are left out.
///
/// # Panics
/// Where the entries or marks break an invariant of the row: our own state is wrong then.
#[must_use]
pub fn encode_extent_row(
    copies: usize,
    entries: &[ExtentCopy],
    marks: &[InitialisedMark],
) -> Option<Vec<u8>> {
    assert!(
        (1..=COPIES_MAX).contains(&copies) && entries.len().is_multiple_of(copies),
        "a row has whole extents"
    );
    let extents = entries
        .chunks_exact(copies)
        .rposition(|extent| !extent[0].is_hole())?
        + 1;
    assert!(extents <= EXTENTS_PER_ROW, "a row has at most 128 extents");
    let mut writer = Writer::with_capacity(
        EXTENT_ROW_HEADER_BYTES
            + extents * copies * EXTENT_COPY_BYTES
            + marks.len() * EXTENT_MARK_BYTES,
    );
    let small = |count: usize| u8::try_from(count).expect("a row counts to 128");
    writer.u8(EXTENT_ROW_VERSION);
    writer.u8(small(copies));
    writer.u8(small(extents));
    writer.u8(small(marks.len()));
    for entry in &entries[..extents * copies] {
        writer.u64(entry.0);
    }
    for mark in marks {
        let [low, middle, high, zero] = mark.blocks.to_le_bytes();
        assert!(zero == 0, "an extent has at most 2^18 blocks");
        writer.bytes(&[mark.index, low, middle, high]);
    }
    let bytes = writer.finish();
    if let Err(error) = ExtentRow::parse(&bytes) {
        panic!("a row to be written breaks an invariant: {error}");
    }
    Some(bytes)
}
