//! The record of a dirty region: whether its copies may differ after an unclean stop, and what
//! each disk missed of it while it was away.
//!
//! An open record is written before a region is written to and stands while it is. Of a disk that is
//! away it cannot tell which blocks, because they change with every write; of others it can, where
//! the group has the feature for it. A closed one is written when the region has become quiet, and is
//! exact. Version 1 knew no closed records.

use serde::Serialize;
use spindle_base::DiskNumber;

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::{Reader, Writer};

/// The version of the dirty-region record that this program writes.
pub const DIRTY_RECORD_VERSION: u8 = 2;
/// The bytes of a dirty-region record before its disks.
pub const DIRTY_RECORD_HEADER_BYTES: usize = 4;
/// The bytes of a disk in the record, before its runs.
pub const DIRTY_DISK_BYTES: usize = 4;
/// The bytes of a run.
pub const DIRTY_RUN_BYTES: usize = 4;
/// The blocks of a region: 64 MiB.
pub const DIRTY_REGION_BLOCKS: u16 = 16_384;

/// The only version before.
const VERSION_OF_DISKS_ONLY: u8 = 1;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// Successive blocks of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BlockRun {
    /// The first, counted from the region's start.
    pub first_block: u16,
    /// How many.
    pub blocks: u16,
}

/// What one disk missed of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaleDisk {
    /// The disk.
    pub disk: DiskNumber,
    /// What is stale on it, in ascending order and apart from each other. Empty in an open record
    /// where nobody knows: then the whole region counts.
    pub runs: Vec<BlockRun>,
}

/// A region of a mirrored file that is written to, or of which some disk missed a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirtyRecord {
    /// The region is written to: after an unclean stop its copies may differ, and the whole region is
    /// stale on all disks that are offline. Else the copies agree but for the runs.
    pub open: bool,
    /// Disks that missed writes, in ascending order.
    pub stale: Vec<StaleDisk>,
}

impl DirtyRecord {
    /// Checks a record's bytes, of either version.
    ///
    /// # Errors
    /// [`FormatError`] where they are no dirty-region record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::DirtyRecord, bytes);
        let version = reader.u8()?;
        let record = match version {
            VERSION_OF_DISKS_ONLY => Self::read_disks_only(&mut reader)?,
            DIRTY_RECORD_VERSION => Self::read(&mut reader)?,
            _ => {
                let kind = FormatErrorKind::Version(u32::from(version));
                return Err(reader.error_at(0, kind));
            }
        };
        reader.end()?;
        Ok(record)
    }

    fn read_disks_only(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        reader.reserved(1)?;
        let count = reader.u16()?;
        let disks = reader.ascending_disks(usize::from(count))?;
        let stale = |disk| StaleDisk {
            disk,
            runs: Vec::new(),
        };
        Ok(Self {
            open: true,
            stale: disks.into_iter().map(stale).collect(),
        })
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let open = reader.judged("state", Reader::u8, |code| match code {
            OPEN => Some(true),
            CLOSED => Some(false),
            _ => None,
        })?;
        // A closed record that names no disk says nothing and is deleted instead.
        let count = reader.judged("disks count", Reader::u16, |count| {
            (open || count > 0).then_some(count)
        })?;
        let mut stale: Vec<StaleDisk> = Vec::new();
        for _ in 0..count {
            let last = stale.last().map(|before| before.disk);
            let disk = reader.disk_above(last)?;
            let runs = reader.judged("runs count", Reader::u16, |runs| {
                (open || runs > 0).then_some(runs)
            })?;
            stale.push(StaleDisk {
                disk,
                runs: read_runs(reader, runs)?,
            });
        }
        Ok(Self { open, stale })
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// Where disks or runs are not in ascending order, or only an open record could be so: our
    /// own state is wrong then.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            (self.stale).is_sorted_by(|left, right| left.disk < right.disk),
            "stale disks are in ascending order"
        );
        assert!(
            self.open || !self.stale.is_empty(),
            "a closed record names a disk"
        );
        let runs: usize = self.stale.iter().map(|stale| stale.runs.len()).sum();
        let length = DIRTY_RECORD_HEADER_BYTES
            + self.stale.len() * DIRTY_DISK_BYTES
            + runs * DIRTY_RUN_BYTES;
        let mut writer = Writer::with_capacity(length);
        writer.u8(DIRTY_RECORD_VERSION);
        writer.u8(if self.open { OPEN } else { CLOSED });
        writer.u16(u16::try_from(self.stale.len()).expect("disk numbers have 16 bits"));
        for stale in &self.stale {
            assert!(
                self.open || !stale.runs.is_empty(),
                "a closed record has runs for each disk"
            );
            assert!(are_runs(&stale.runs), "runs are ascending and apart");
            writer.u16(stale.disk.0);
            writer.u16(u16::try_from(stale.runs.len()).expect("a region has 16,384 blocks"));
            for run in &stale.runs {
                writer.u16(run.first_block);
                writer.u16(run.blocks);
            }
        }
        writer.finish()
    }
}

fn read_runs(reader: &mut Reader<'_>, count: u16) -> Result<Vec<BlockRun>, FormatError> {
    let mut runs: Vec<BlockRun> = Vec::new();
    for _ in 0..count {
        let read = |reader: &mut Reader<'_>| {
            Ok(BlockRun {
                first_block: reader.u16()?,
                blocks: reader.u16()?,
            })
        };
        let run = reader.judged("run", read, |run| {
            let follows = runs.last().is_none_or(|last| is_apart(last, &run));
            (follows && lies_inside(&run)).then_some(run)
        })?;
        runs.push(run);
    }
    Ok(runs)
}

fn are_runs(runs: &[BlockRun]) -> bool {
    runs.iter().all(lies_inside) && runs.windows(2).all(|pair| is_apart(&pair[0], &pair[1]))
}

const fn lies_inside(run: &BlockRun) -> bool {
    run.blocks > 0 && run.first_block as u32 + run.blocks as u32 <= DIRTY_REGION_BLOCKS as u32
}

/// Runs that touch are one run: one way only to write a set.
const fn is_apart(before: &BlockRun, after: &BlockRun) -> bool {
    before.first_block as u32 + (before.blocks as u32) < after.first_block as u32
}
