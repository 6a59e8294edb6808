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
//! - Regions written lately are remembered even where nothing initialised was overwritten and no
//!   row is needed: when a disk goes offline, what it had not flushed yet is stale as well.
//!
//! Rows are recorded by the sequence of their edit: a row is durable once the catalog has
//! committed that sequence. Committing is the caller's business.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence, Table};
use spindle_format::DirtyRecord;

use crate::file::File;

/// The bytes of a file that share one mark.
pub const REGION_BYTES: u64 = 64 << 20;
/// The same in blocks.
pub const REGION_BLOCKS: u64 = REGION_BYTES / spindle_base::BLOCK_SIZE_BYTES;

/// Rounds without a write after which a region counts as quiet.
const QUIET_ROUNDS: u8 = 2;

/// The regions that `[first, end)` touches, in blocks of the file.
pub fn regions(first: u64, end: u64) -> std::ops::RangeInclusive<u32> {
    // A file ends where extent numbers do, far below the last region number.
    let region = |block: u64| u32::try_from(block / REGION_BLOCKS).unwrap_or(u32::MAX);
    region(first)..=region(end.max(first + 1) - 1)
}

fn key(file: FileId, region: u32) -> Vec<u8> {
    let mut key = file.0.to_be_bytes().to_vec();
    key.extend_from_slice(&region.to_be_bytes());
    key
}

#[derive(Debug, Default)]
struct Region {
    /// The edit that last put the row; `None` where there is none.
    recorded: Option<Sequence>,
    /// Disks the row names, ascending.
    stale_disks: Vec<DiskNumber>,
    writers_count: u32,
    quiet_rounds: u8,
    /// Found at opening and not compared yet, or a write failed on every copy: only the
    /// comparison of the next opening makes them equal.
    doubtful: bool,
}

impl Region {
    /// Gives the row to `apply` unless it is there and names all of `disks`; the edit that put it.
    fn record(
        &mut self,
        (file, number): (FileId, u32),
        disks: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        let mut changed = false;
        for disk in disks {
            if let Err(place) = self.stale_disks.binary_search(disk) {
                self.stale_disks.insert(place, *disk);
                changed = true;
            }
        }
        if let Some(sequence) = self.recorded
            && !changed
        {
            return sequence;
        }
        let record = DirtyRecord {
            stale_disks: self.stale_disks.clone(),
        };
        let mut edit = Edit::default();
        edit.put(Table::DirtyRegion, key(file, number), record.encode());
        let sequence = apply(edit);
        self.recorded = Some(sequence);
        sequence
    }
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
            recorded: Some(Sequence(0)),
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

    /// Disks whose copies of this region are stale: they are not compared, and prove nothing.
    pub fn stale_disks(&self, file: FileId, region: u32) -> Vec<DiskNumber> {
        let regions = self.regions.lock();
        regions
            .get(&(file, region))
            .map_or_else(Vec::new, |state| state.stale_disks.clone())
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
    /// that it will not reach. `overwrites` says whether it overwrites initialised blocks.
    /// Returns the sequence that must be durable before the data goes to any disk.
    ///
    /// Rows that are not there yet, or do not name all of `missed`, are given to `apply`.
    /// Each call is ended by [`DirtyRegions::end_write`] with the same regions.
    pub fn begin_write(
        &self,
        file: FileId,
        touched: std::ops::RangeInclusive<u32>,
        overwrites: bool,
        missed: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        let mut needed = Sequence(0);
        let mut regions = self.regions.lock();
        for number in touched {
            let region = regions.entry((file, number)).or_default();
            region.writers_count += 1;
            region.quiet_rounds = 0;
            if overwrites || !missed.is_empty() {
                needed = needed.max(region.record((file, number), missed, apply));
            }
        }
        needed
    }

    /// A disk failed during an announced write: the rows name it before the marks move and
    /// before the write is answered. Nothing has to be durable yet that the marks are not.
    pub fn missed_by(
        &self,
        file: FileId,
        touched: std::ops::RangeInclusive<u32>,
        disks: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut regions = self.regions.lock();
        for number in touched {
            let region = regions.entry((file, number)).or_default();
            region.record((file, number), disks, apply);
        }
    }

    /// A disk went offline: it may lack what was written lately to any file.
    pub fn went_offline(&self, disk: DiskNumber, apply: &mut dyn FnMut(Edit) -> Sequence) {
        for (key, region) in self.regions.lock().iter_mut() {
            region.record(*key, &[disk], apply);
        }
    }

    /// A write failed on every copy: these regions stay recorded until an opening compares them.
    pub fn doubt(
        &self,
        file: FileId,
        touched: std::ops::RangeInclusive<u32>,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut regions = self.regions.lock();
        for number in touched {
            let region = regions.entry((file, number)).or_default();
            region.record((file, number), &[], apply);
            region.doubtful = true;
        }
    }

    /// The write that [`DirtyRegions::begin_write`] announced has been answered by every disk.
    pub fn end_write(&self, file: FileId, touched: std::ops::RangeInclusive<u32>) {
        let mut regions = self.regions.lock();
        for region in touched {
            // A file may have been removed while its writer still waited for it.
            if let Some(state) = regions.get_mut(&(file, region)) {
                state.writers_count = state.writers_count.saturating_sub(1);
            }
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
            if quiet && state.recorded.is_some() {
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
            regions.remove(&(file, region));
            edit.delete(Table::DirtyRegion, key(file, region));
        }
    }

    /// The group has forgotten the disk: nothing of it is stale any more. Rows follow with the
    /// rounds.
    pub fn forget_disk(&self, disk: DiskNumber) {
        for region in self.regions.lock().values_mut() {
            region.stale_disks.retain(|stale| *stale != disk);
        }
    }

    /// Whether any of the file's blocks `[first, end)` is stale on the disk.
    pub fn is_stale(&self, file: &File, disk: DiskNumber, first: u64, end: u64) -> bool {
        let state = self.regions.lock();
        regions(first, end).any(|number| {
            (state.get(&(file.id, number))).is_some_and(|region| region.stale_disks.contains(&disk))
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.regions.lock().len()
    }
}

#[cfg(test)]
mod tests;
