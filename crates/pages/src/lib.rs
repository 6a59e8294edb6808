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
//! by or from a page that is unknown. No version of a page is overwritten that may be the newer
//! good one ([`choice`](choose)).

mod choice;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod innodb;
pub mod postgresql;
pub mod sqlite;
mod verdict;

pub use choice::{Choice, Undecided, choose};
pub use file::{HEAD_BYTES, PageFile, is_candidate, is_database};
pub use verdict::{Origin, Position, Verdict};

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// The little-endian number at `offset`; zero beyond the end.
pub(crate) fn little(bytes: &[u8], offset: usize) -> u32 {
    array(bytes, offset).map_or(0, u32::from_le_bytes)
}

/// The little-endian number of 64 bits at `offset`; zero beyond the end.
pub(crate) fn little_long(bytes: &[u8], offset: usize) -> u64 {
    u64::from(little(bytes, offset)) | u64::from(little(bytes, offset + 4)) << 32
}

/// The big-endian number of 64 bits at `offset`; zero beyond the end.
pub(crate) fn big_long(bytes: &[u8], offset: usize) -> u64 {
    u64::from(big(bytes, offset)) << 32 | u64::from(big(bytes, offset + 4))
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
