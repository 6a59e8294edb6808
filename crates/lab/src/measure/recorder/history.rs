//! What a recorder kept, and the disks as a loss of power would have left them.
//!
//! ```text
//! record: kind u8, disk u8, 0 u16, length u32, offset u64, then the bytes of a write
//! ```
//!
//! Of the records before the cut, each write with a later flush of its disk is there. Of the others
//! the disk may have kept any: none, all, some, and of one that was kept in part any of its blocks of
//! 4 KiB. A record that was torn by the end of the server never happened.

mod commits;

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate};

pub use self::commits::Commit;

/// Bytes before those of a write.
pub const HEADER_BYTES: usize = 16;
/// No disk tears less.
const BLOCK_BYTES: u64 = 4096;

/// What a disk was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Write,
    /// Nothing but zeros, without their bytes: a discard is one, too.
    Zero,
    /// Everything before it is to be durable.
    Flush,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What.
    pub kind: Kind,
    /// Which disk, from 0.
    pub disk: u8,
    /// Of the disk.
    pub offset: u64,
    /// Of it.
    pub length: u32,
}

impl Record {
    /// As it stands in the file.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = match self.kind {
            Kind::Write => 1,
            Kind::Zero => 2,
            Kind::Flush => 3,
        };
        bytes[1] = self.disk;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self> {
        let [kind, disk, _, _, l0, l1, l2, l3, offset @ ..] = bytes;
        Ok(Self {
            kind: match kind {
                1 => Kind::Write,
                2 => Kind::Zero,
                3 => Kind::Flush,
                other => bail!("{other} is no kind of a record"),
            },
            disk,
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            offset: u64::from_le_bytes(offset),
        })
    }
}

/// What a disk kept of a write that no flush followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unflushed {
    None,
    All,
    Some,
}

/// Every record in order.
#[derive(Debug)]
pub struct History {
    file: File,
    /// Each with the place of its bytes.
    records: Vec<(Record, u64)>,
}

impl History {
    /// Reads a record.
    ///
    /// # Errors
    /// Where it cannot be read or is something else.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let end = file.metadata()?.len();
        let mut reader = BufReader::new(file.try_clone()?);
        let mut records = Vec::new();
        let mut at = 0;
        let mut header = [0; HEADER_BYTES];
        while at + HEADER_BYTES as u64 <= end {
            reader.seek(SeekFrom::Start(at))?;
            reader.read_exact(&mut header)?;
            let record = Record::parse(header)?;
            at += HEADER_BYTES as u64;
            let stored = if record.kind == Kind::Write {
                u64::from(record.length)
            } else {
                0
            };
            if at + stored > end {
                break;
            }
            records.push((record, at));
            at += stored;
        }
        Ok(Self { file, records })
    }

    /// How many records there are; a sequence is the number of those before it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.iter().map(|(record, _)| *record)
    }

    /// Writes the disks as they are after a cut at the sequence `cut`: new files in `paths`, of so
    /// many bytes each. What was not flushed is there as `random` has it.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn rebuild(
        &self,
        cut: u64,
        random: &mut fastrand::Rng,
        paths: &[PathBuf],
        size_bytes: u64,
    ) -> Result<()> {
        let cut = usize::try_from(cut)?.min(self.records.len());
        for (path, disk) in paths.iter().zip(0_u8..) {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            file.set_len(size_bytes)?;
            let own = |(record, _): &&(Record, u64)| record.disk == disk;
            let flushed = self.records[..cut]
                .iter()
                .rposition(|(record, _)| record.disk == disk && record.kind == Kind::Flush)
                .unwrap_or(0);
            for (record, at) in self.records[..flushed].iter().filter(own) {
                self.apply(&file, record, *at, None)?;
            }
            let kept = match random.u8(..3) {
                0 => Unflushed::None,
                1 => Unflushed::All,
                _ => Unflushed::Some,
            };
            for (record, at) in self.records[flushed..cut].iter().filter(own) {
                match kept {
                    Unflushed::None => {}
                    Unflushed::All => self.apply(&file, record, *at, None)?,
                    Unflushed::Some => self.apply(&file, record, *at, Some(random))?,
                }
            }
        }
        Ok(())
    }

    /// Carries a record out; with chance each of its blocks by itself, or not.
    fn apply(
        &self,
        file: &File,
        record: &Record,
        at: u64,
        mut chance: Option<&mut fastrand::Rng>,
    ) -> Result<()> {
        if record.kind == Kind::Flush {
            return Ok(());
        }
        let end = record.offset + u64::from(record.length);
        if record.kind == Kind::Zero && chance.is_none() {
            // Most of what a file system is made of, and nothing that needs room.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = fallocate(file, flags, record.offset, u64::from(record.length));
            if punched.is_ok() {
                return Ok(());
            }
        }
        let mut from = record.offset;
        let mut bytes = Vec::new();
        while from < end {
            let until = match chance {
                Some(_) => ((from / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end),
                None => end.min(from + (1 << 20)),
            };
            let is_kept = chance.as_mut().is_none_or(|random| random.bool());
            if is_kept {
                bytes.clear();
                bytes.resize(usize::try_from(until - from)?, 0);
                if record.kind == Kind::Write {
                    let place = at + (from - record.offset);
                    self.file.read_exact_at(&mut bytes, place)?;
                }
                file.write_all_at(&bytes, from)?;
            }
            from = until;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
