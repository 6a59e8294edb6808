//! Questions about what is stale: of one disk, of a file's copies, of all.

use std::collections::BTreeSet;

use spindle_base::{DiskNumber, FileId};
use spindle_extent::map::Extent;
use spindle_extent::plan::Staleness;
use spindle_format::DIRTY_REGION_BLOCKS;
use spindle_sync::atomic::Ordering;
use spindle_sync::level::MutexGuard;

use crate::core::dirty::region::Region;
use crate::core::dirty::{DirtyRegions, REGION_BLOCKS, RegionKey, StaleRegion, State, parts};
use crate::core::file::File;
use crate::levels;

impl DirtyRegions {
    /// What is stale of the file on disks that may be online; `None` where nothing is, which
    /// costs one or two loads. Holds the lock of all regions: look, and let go.
    pub fn view(&self, file: &File) -> Option<StaleView<'_>> {
        if !file.may_be_stale.load(Ordering::Acquire) || !self.is_resyncing() {
            return None;
        }
        Some(self.look(file))
    }

    /// What is stale of the file on any disk, be it here or away. As [`Self::view`], to be let go
    /// soon.
    pub fn look(&self, file: &File) -> StaleView<'_> {
        StaleView {
            state: self.state.lock(),
            file: file.id,
        }
    }

    /// Whether any of the file's blocks `[first, end)` is stale on the disk.
    pub fn is_stale(&self, file: &File, disk: DiskNumber, first: u64, end: u64) -> bool {
        if !file.may_be_stale.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        parts(first, end).any(|(number, first, end)| {
            let region = state.regions.get(&(file.id, number));
            region
                .and_then(|region| region.stale_of(disk))
                .is_some_and(|blocks| blocks.touches(first, end))
        })
    }

    /// Whether open rows that name only what is stale call any of the file's blocks `[first, end)` stale
    /// on the disk.
    pub fn is_stale_after_a_stop(
        &self,
        file: &File,
        disk: DiskNumber,
        (first, end): (u64, u64),
    ) -> bool {
        if !file.may_be_stale.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        parts(first, end).any(|(number, first, end)| {
            let region = state.regions.get(&(file.id, number));
            region.is_some_and(|region| region.lists(disk, (first, end), state.open_rows))
        })
    }

    /// Calls `done` where the disk lacks nothing that is noted, but what is lost, and no disk is on its way
    /// back, whose outage may not be noted yet; nobody notes anything before it has ended. `is_lost` is
    /// asked with a region and the blocks of the file that are stale there, run by run.
    pub fn if_it_lacks_only(
        &self,
        disk: DiskNumber,
        is_lost: &dyn Fn(RegionKey, (u64, u64)) -> bool,
        done: impl FnOnce(),
    ) {
        let state = self.state.lock();
        let lacks = |(key, region): (&RegionKey, &Region)| {
            let start = u64::from(key.1) * REGION_BLOCKS;
            let mut from = 0;
            let blocks = region.stale_of(disk);
            while let Some((first, end)) = blocks.and_then(|blocks| blocks.run_from(from)) {
                if !is_lost(*key, (start + u64::from(first), start + u64::from(end))) {
                    return true;
                }
                from = end;
            }
            region.is_suspect(disk)
        };
        if state.returns_count == 0 && !state.regions.iter().any(lacks) {
            done();
        }
    }

    /// Files of which a region is dirty.
    pub fn files(&self) -> BTreeSet<FileId> {
        let state = self.state.lock();
        state.regions.keys().map(|(file, _)| *file).collect()
    }

    /// Every region of which a disk that `is_wanted` missed something.
    pub fn stale_regions(&self, is_wanted: &dyn Fn(DiskNumber) -> bool) -> Vec<StaleRegion> {
        let state = self.state.lock();
        let mut found = Vec::new();
        for ((file, number), region) in &state.regions {
            for stale in region.stale.iter().filter(|stale| is_wanted(stale.disk)) {
                found.push(StaleRegion {
                    file: *file,
                    region: *number,
                    disk: stale.disk,
                    blocks: stale.blocks.count(),
                    wanted: region.wanted,
                });
            }
        }
        found
    }

    /// The first run at or above block `from` of the file, in its blocks, that is stale in that
    /// region on the disk.
    pub fn stale_run(&self, of: &StaleRegion, from: u64) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let region = state.regions.get(&(of.file, of.region))?;
        let start = u64::from(of.region) * REGION_BLOCKS;
        let within = u32::try_from(from.saturating_sub(start)).ok()?;
        if within >= u32::from(DIRTY_REGION_BLOCKS) {
            return None;
        }
        let (first, end) = region.stale_of(of.disk)?.run_from(within)?;
        Some((start + u64::from(first), start + u64::from(end)))
    }
}

/// A look at what is stale of one file.
#[derive(Debug)]
pub struct StaleView<'a> {
    pub(super) state: MutexGuard<'a, State, levels::Dirty>,
    file: FileId,
}

impl Staleness for StaleView<'_> {
    fn stale_copies(&mut self, extent: &Extent, block: u64, end: u64) -> (u8, u64) {
        let Some((number, first, to)) = parts(block, end).next() else {
            return (0, end);
        };
        let start = block - u64::from(first);
        let mut until = to;
        let mut stale = 0_u8;
        if let Some(region) = self.state.regions.get_mut(&(self.file, number)) {
            for (index, copy) in extent.copies().iter().enumerate() {
                if !copy.is_present() {
                    continue;
                }
                if let Some(blocks) = region.stale_of(copy.disk()) {
                    stale |= u8::from(blocks.contains(first)) << index;
                    until = until.min(blocks.same_until(first, to));
                }
            }
            region.wanted += u64::from(stale != 0);
        }
        (stale, start + u64::from(until))
    }
}
