//! Which disks lack what a killed process had written and the journal brings in.
//!
//! The commit that makes the marks over it durable says so too: after a power cut before the next
//! commit nothing else tells that a disk which went, or lost what no flush had covered, has there what
//! an earlier file left.

use std::collections::BTreeMap;

use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{CatalogError, Edit, Table, file_key};
use spindle_extent::schedule::Schedule;
use spindle_format::{DirtyRecord, Feature, StaleDisk};

use crate::core::dirty::{BlockSet, REGION_BLOCKS};
use crate::core::takeover::Scene;
use crate::core::takeover::unflushed::Unflushed;
use crate::error::GroupError;

/// What each disk lacks, by file and region.
#[derive(Debug, Default)]
pub(super) struct Lacking(BTreeMap<(FileId, u32), BTreeMap<DiskNumber, BlockSet>>);

impl Lacking {
    /// These disks lack the first `blocks` of an extent, of which another copy counts.
    pub(super) fn add(
        &mut self,
        file: FileId,
        (schedule, index): (Schedule, u32),
        blocks: u32,
        disks: &[DiskNumber],
    ) {
        if disks.is_empty() {
            return;
        }
        let (first, end) = schedule.envelope(index);
        if end - first == schedule.length_blocks(index) {
            self.add_blocks(file, (first, first + u64::from(blocks)), disks);
        } else {
            // Stripes of other extents lie between its own.
            for inside in 0..u64::from(blocks) {
                let block = schedule.file_block(index, inside);
                self.add_blocks(file, (block, block + 1), disks);
            }
        }
    }

    fn add_blocks(&mut self, file: FileId, (first, end): (u64, u64), disks: &[DiskNumber]) {
        let mut at = first;
        while at < end {
            let region = at / REGION_BLOCKS;
            let start = region * REGION_BLOCKS;
            let to = end.min(start + REGION_BLOCKS);
            let within = |block: u64| u32::try_from(block - start).expect("it has 16,384 blocks");
            let region = u32::try_from(region).expect("a file ends below the last region number");
            let by_disk = self.0.entry((file, region)).or_default();
            for disk in disks {
                by_disk
                    .entry(*disk)
                    .or_default()
                    .insert(within(at), within(to));
            }
            at = to;
        }
    }

    /// Puts it into the rows of the regions, which are committed with the marks.
    pub(super) fn put(&self, scene: &Scene<'_>, unflushed: &Unflushed) -> Result<(), GroupError> {
        let features = scene.membership.state().features;
        let lists_blocks = features.contains(Feature::ListedRegions);
        for ((file, region), by_disk) in &self.0 {
            let mut key = file_key(*file);
            key.extend_from_slice(&region.to_be_bytes());
            let mut record = match scene.catalog.get(Table::DirtyRegion, &key)? {
                Some(bytes) => DirtyRecord::parse(&bytes).map_err(|error| {
                    CatalogError::Damaged(format!("file {file}, dirty region {region}: {error}"))
                })?,
                None => DirtyRecord {
                    open: false,
                    stale: Vec::new(),
                },
            };
            if record.open && !lists_blocks {
                // It counts as stale in all of the region on who is offline. Of those that serve it
                // can name one, and two would have nothing left between them.
                if let (Some(disk), true) = (unflushed.only_doubtful(), record.stale.is_empty())
                    && by_disk.contains_key(&disk)
                {
                    record.stale.push(StaleDisk {
                        disk,
                        runs: Vec::new(),
                    });
                }
            } else {
                for (disk, blocks) in by_disk {
                    add_stale(&mut record, *disk, blocks);
                }
            }
            let mut edit = Edit::default();
            edit.put(Table::DirtyRegion, key, record.encode());
            scene.catalog.apply(edit);
        }
        Ok(())
    }
}

fn add_stale(record: &mut DirtyRecord, disk: DiskNumber, blocks: &BlockSet) {
    match record.stale.binary_search_by_key(&disk, |stale| stale.disk) {
        // All of the region is.
        Ok(place) if record.stale[place].runs.is_empty() => {}
        Ok(place) => {
            let mut all = BlockSet::of(&record.stale[place].runs);
            all.insert_all(blocks);
            record.stale[place].runs = all.runs();
        }
        Err(place) => {
            let runs = blocks.runs();
            record.stale.insert(place, StaleDisk { disk, runs });
        }
    }
}
