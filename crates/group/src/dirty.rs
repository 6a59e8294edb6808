//! Dirty regions: where copies may differ after an unclean stop, and which copies are stale.
//!
//! A region is 64 MiB of one mirrored file. Invariants:
//! - Before a write that overwrites initialised blocks reaches any disk, its region's row is
//!   durable. After an unclean stop only regions with a row are compared.
//! - Before a write is answered that an offline disk missed, the row names that disk, durably;
//!   such a row stays until a resync has brought the disk's copies up to date.
//! - A row is deleted only while nobody writes to its region, after two quiet rounds. The commit
//!   that makes the deletion durable flushes every disk first, so the copies agree by then; a
//!   crash before it leaves the row, and with it only a comparison too many.
//!
//! Rows are recorded by the sequence of their edit: a row is durable once the catalog has
//! committed that sequence. Committing is the caller's business.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence, Table};
use spindle_format::DirtyRecord;

/// The bytes of a file that share one mark.
pub const REGION_BYTES: u64 = 64 << 20;

/// Rounds without a write after which a region counts as quiet.
const QUIET_ROUNDS: u8 = 2;

/// The regions that a range of a file touches.
pub fn regions(offset_bytes: u64, length_bytes: u64) -> std::ops::RangeInclusive<u32> {
    let last = offset_bytes + length_bytes.max(1) - 1;
    region_of(offset_bytes)..=region_of(last)
}

fn region_of(offset_bytes: u64) -> u32 {
    u32::try_from(offset_bytes / REGION_BYTES).expect("the largest file has fewer regions")
}

fn key(file: FileId, region: u32) -> Vec<u8> {
    let mut key = file.0.to_be_bytes().to_vec();
    key.extend_from_slice(&region.to_be_bytes());
    key
}

#[derive(Debug, Default)]
struct Region {
    /// The edit that last put the row.
    recorded: Sequence,
    /// Disks the row names, ascending.
    stale_disks: Vec<DiskNumber>,
    writers_count: u32,
    quiet_rounds: u8,
    /// Found at opening and not compared yet.
    doubtful: bool,
}

/// A region that recovery must look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtfulRegion {
    /// The file.
    pub file: FileId,
    /// Which 64 MiB of it.
    pub region: u32,
    /// Disks whose copies are stale: they neither win a comparison nor take part in it.
    pub stale_disks: Vec<DiskNumber>,
}

/// All dirty regions of a group.
#[derive(Debug, Default)]
pub struct DirtyRegions {
    regions: Mutex<BTreeMap<(FileId, u32), Region>>,
}

impl DirtyRegions {
    /// Takes a row as the catalog holds it at opening.
    pub fn load(&self, file: FileId, region: u32, record: DirtyRecord) {
        let state = Region {
            stale_disks: record.stale_disks,
            doubtful: true,
            ..Region::default()
        };
        self.regions.lock().insert((file, region), state);
    }

    /// The regions found at opening, in the order of files.
    pub fn doubtful(&self) -> Vec<DoubtfulRegion> {
        let regions = self.regions.lock();
        let doubtful = regions.iter().filter(|(_, state)| state.doubtful);
        doubtful
            .map(|((file, region), state)| DoubtfulRegion {
                file: *file,
                region: *region,
                stale_disks: state.stale_disks.clone(),
            })
            .collect()
    }

    /// The copies of every region found at opening are equal now: rows that name no stale disk
    /// go with `edit`, whose commit flushes the disks first.
    pub fn settle(&self, edit: &mut Edit) {
        self.regions.lock().retain(|(file, region), state| {
            state.doubtful = false;
            let keep = !state.stale_disks.is_empty();
            if !keep {
                edit.delete(Table::DirtyRegion, key(*file, *region));
            }
            keep
        });
    }

    /// Announces a write to regions of a file, of which the offline `missed` disks hold copies
    /// that it will not reach. Returns the sequence that must be durable before the data goes to
    /// any disk (or, for a disk that failed during the write, before the write is answered).
    ///
    /// Rows that are not there yet, or do not name all of `missed`, are given to `apply`.
    /// Each call is ended by [`DirtyRegions::end_write`] with the same regions.
    pub fn begin_write(
        &self,
        file: FileId,
        touched: std::ops::RangeInclusive<u32>,
        missed: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        let mut needed = Sequence(0);
        let mut regions = self.regions.lock();
        for region in touched {
            let mut is_new = false;
            let state = regions.entry((file, region)).or_insert_with(|| {
                is_new = true;
                Region::default()
            });
            state.writers_count += 1;
            state.quiet_rounds = 0;
            for disk in missed {
                if let Err(place) = state.stale_disks.binary_search(disk) {
                    state.stale_disks.insert(place, *disk);
                    is_new = true;
                }
            }
            if is_new {
                let record = DirtyRecord {
                    stale_disks: state.stale_disks.clone(),
                };
                let mut edit = Edit::default();
                edit.put(Table::DirtyRegion, key(file, region), record.encode());
                state.recorded = apply(edit);
            }
            needed = needed.max(state.recorded);
        }
        needed
    }

    /// The write that [`DirtyRegions::begin_write`] announced has been answered by every disk.
    pub fn end_write(&self, file: FileId, touched: std::ops::RangeInclusive<u32>) {
        let mut regions = self.regions.lock();
        for region in touched {
            // A file can be removed only when nobody writes to it, so the region is there.
            let state = regions
                .get_mut(&(file, region))
                .expect("a region stays while somebody writes to it");
            state.writers_count -= 1;
        }
    }

    /// One cleaning round: the rows of regions that have been quiet go with `edit`. True where a
    /// further round could clean more.
    pub fn round(&self, edit: &mut Edit) -> bool {
        let mut more = false;
        self.regions.lock().retain(|(file, region), state| {
            if state.writers_count > 0 || state.doubtful || !state.stale_disks.is_empty() {
                return true;
            }
            state.quiet_rounds += 1;
            let quiet = state.quiet_rounds > QUIET_ROUNDS;
            if quiet {
                edit.delete(Table::DirtyRegion, key(*file, *region));
            }
            more |= !quiet;
            !quiet
        });
        more
    }

    /// The file is being removed, and its rows with it.
    pub fn forget_file(&self, file: FileId, edit: &mut Edit) {
        let mut regions = self.regions.lock();
        let gone: Vec<u32> = regions
            .range((file, 0)..=(file, u32::MAX))
            .map(|((_, region), _)| *region)
            .collect();
        for region in gone {
            let state = regions.remove(&(file, region));
            assert!(
                state.is_none_or(|state| state.writers_count == 0),
                "a file is removed only when nobody writes to it"
            );
            edit.delete(Table::DirtyRegion, key(file, region));
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.regions.lock().len()
    }
}

#[cfg(test)]
mod tests;
