//! Whether the commits of a journal wait for the flush that they ask for, read from a record.
//!
//! ext3 and ext4 write the commit block of a transaction when all its other blocks are answered, and
//! ask that the device be flushed first (`PREFLUSH` of Linux). Whatever lies between them and the
//! disks has to flush each disk after the last descriptor block of the transaction and before its
//! commit. A commit that is written earlier has overtaken its flush: a loss of power before that
//! flush may keep the commit without its blocks, and the next mount replays what is not there.
//!
//! ```text
//! block of a journal: magic u32, kind u32, transaction u32, all big-endian
//! ```
//!
//! The magic stands at the beginning of no other block of the journal: where a block that it copies
//! has it, the copy has zeros. Source: Documentation/filesystems/ext4/journal.rst of Linux.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use anyhow::Result;

use super::{History, Kind};

const MAGIC: u32 = 0xC03B_3998;
/// Its list of the blocks that follow.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
/// Blocks that are not to be replayed, written as descriptors are.
const REVOCATION: u32 = 5;
/// No file system with a journal has smaller blocks.
const BLOCK_BYTES_AT_LEAST: usize = 1024;

/// A transaction of a journal, by the numbers of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Its number.
    pub transaction: u32,
    /// Its commit block; the first copy where there are several.
    pub committed: u64,
    /// The flush after its descriptor on the disk that was flushed last; none where one never was.
    pub flushed: Option<u64>,
}

impl Commit {
    /// Whether it was written before a flush that had to come first.
    #[must_use]
    pub fn overtook(&self) -> bool {
        self.flushed.is_none_or(|flushed| self.committed < flushed)
    }

    /// Whether a loss of power at this sequence may keep the commit without its blocks.
    #[must_use]
    pub fn is_bare_at(&self, cut: u64) -> bool {
        self.committed < cut && self.flushed.is_none_or(|flushed| cut <= flushed)
    }
}

impl History {
    /// The commits of a journal on the first so many disks, in order.
    ///
    /// # Errors
    /// Where the record cannot be read.
    pub fn commits(&self, disks: usize) -> Result<Vec<Commit>> {
        let mut described = BTreeMap::new();
        let mut committed = BTreeMap::new();
        let mut bytes = Vec::new();
        for ((record, at), number) in self.records.iter().zip(0_u64..) {
            if record.kind != Kind::Write {
                continue;
            }
            bytes.resize(usize::try_from(record.length)?, 0);
            self.file.read_exact_at(&mut bytes, *at)?;
            for (kind, transaction) in bytes.chunks(BLOCK_BYTES_AT_LEAST).filter_map(head) {
                match kind {
                    DESCRIPTOR | REVOCATION if !committed.contains_key(&transaction) => {
                        described.insert(transaction, number);
                    }
                    COMMIT => {
                        committed.entry(transaction).or_insert(number);
                    }
                    _ => {}
                }
            }
        }
        // One without a descriptor commits nothing that could be lacking.
        let commits = committed
            .into_iter()
            .filter_map(|(transaction, committed)| {
                let described = *described.get(&transaction)?;
                Some(Commit {
                    transaction,
                    committed,
                    flushed: self.all_flushed_after(described, disks),
                })
            });
        Ok(commits.collect())
    }

    /// The record by which each of the disks was flushed after this one.
    fn all_flushed_after(&self, number: u64, disks: usize) -> Option<u64> {
        let first_of = |disk: usize| {
            let later = self.records().zip(0_u64..).skip_while(|of| of.1 <= number);
            let mut flushes = later.filter(|(record, _)| {
                record.kind == Kind::Flush && usize::from(record.disk) == disk
            });
            flushes.next().map(|of| of.1)
        };
        let all: Option<Vec<u64>> = (0..disks).map(first_of).collect();
        all?.into_iter().max()
    }
}

/// Kind and transaction of a block of a journal.
fn head(block: &[u8]) -> Option<(u32, u32)> {
    let word = |index: usize| {
        let bytes = block.get(4 * index..4 * index + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    (word(0)? == MAGIC).then_some((word(1)?, word(2)?))
}

#[cfg(test)]
mod tests;
