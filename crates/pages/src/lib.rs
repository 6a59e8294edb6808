//! Pages of databases, judged by the checksums that the databases themselves put on them.
//!
//! Pure: bytes in, a verdict out. Which file is which is told from its path and its first bytes
//! ([`PageFile::recognise`]); which copy of a page is right, from what all its copies are worth
//! ([`choose`]). Formats by their public descriptions: PostgreSQL's `storage/checksum_impl.h`,
//! MariaDB's knowledge base on InnoDB's page checksums, SQLite's page on its checksum extension.
//!
//! Invariants: any bytes get a verdict, never a panic. A page is `Good` only where a checksum
//! over it is right and it stands where it says it stands; it is `Bad` only where it is certain
//! that its file has checksums. Whatever is doubtful is `Unknown`, and nothing is ever repaired
//! by or from a page that is unknown.

mod choice;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod innodb;
pub mod postgresql;
pub mod sqlite;

pub use choice::{Choice, choose};
pub use file::{HEAD_BYTES, PageFile, is_candidate, is_database};

/// What a page is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its checksum is right, and it stands where it says it stands.
    Good,
    /// Its checksum or its place is wrong.
    Bad,
    /// All zeros, as a database leaves a page that it has not used yet. Sound, and proof of
    /// nothing: a write that was lost can leave zeros too.
    Empty,
    /// It has no checksum, or none that can be relied on.
    Unknown,
}

impl Verdict {
    /// The worse of two: what a unit is worth that holds both pages.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bad, _) | (_, Self::Bad) => Self::Bad,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Empty, Self::Empty) => Self::Empty,
            (Self::Good | Self::Empty, _) => Self::Good,
        }
    }
}

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// The little-endian number at `offset`; zero beyond the end.
pub(crate) fn little(bytes: &[u8], offset: usize) -> u32 {
    array(bytes, offset).map_or(0, u32::from_le_bytes)
}

/// The big-endian number at `offset`; zero beyond the end.
pub(crate) fn big(bytes: &[u8], offset: usize) -> u32 {
    array(bytes, offset).map_or(0, u32::from_be_bytes)
}

fn array(bytes: &[u8], offset: usize) -> Option<[u8; 4]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
