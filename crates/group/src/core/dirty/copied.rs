//! What was copied to one disk, by a resync or a move, and no flush has covered there yet.
//!
//! Kept apart from what was written. A disk that goes lacks what was written lately, because every
//! copy was to have it; what was only copied the others had before. Where the disk that it was
//! copied to loses it, that one lacks it, and nobody else; where its source goes meanwhile, that
//! one still has it, and is perhaps the only one.

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};

use crate::core::dirty::block_set::BlockSet;
use crate::core::dirty::{DirtyRegions, REGION_BLOCKS, Writer, parts};
use crate::core::disks::Target;
use crate::core::file::File;

/// Whether a flush of its disk has covered it.
pub type HasFlushed<'a> = &'a dyn Fn(Target) -> bool;

/// What was copied to one disk.
#[derive(Debug)]
struct Copied {
    disk: DiskNumber,
    blocks: BlockSet,
    /// Those who copy now.
    under_way_count: u32,
    /// Of those who have ended: a flush that covers it covers all of theirs.
    newest: Option<Target>,
}

impl Copied {
    fn is_flushed(&self, has_flushed: HasFlushed<'_>) -> bool {
        self.under_way_count == 0 && self.newest.is_none_or(has_flushed)
    }
}

/// What was copied to disks, within one region.
#[derive(Debug, Default)]
pub(crate) struct CopiedBlocks(SmallVec<[Copied; 1]>);

impl CopiedBlocks {
    pub(crate) fn begin(
        &mut self,
        disk: DiskNumber,
        (first, end): (u32, u32),
        has_flushed: HasFlushed<'_>,
    ) {
        self.0.retain(|copied| !copied.is_flushed(has_flushed));
        let place = self.0.iter().position(|copied| copied.disk == disk);
        let place = place.unwrap_or_else(|| {
            self.0.push(Copied {
                disk,
                blocks: BlockSet::default(),
                under_way_count: 0,
                newest: None,
            });
            self.0.len() - 1
        });
        let copied = &mut self.0[place];
        copied.blocks.insert(first, end);
        copied.under_way_count += 1;
    }

    pub(crate) fn end(&mut self, newest: Target) {
        let disk = newest.life.disk;
        if let Some(copied) = self.0.iter_mut().find(|copied| copied.disk == disk) {
            copied.under_way_count = copied.under_way_count.saturating_sub(1);
            // Numbers rise through all incarnations of a disk.
            if copied
                .newest
                .is_none_or(|other| other.number <= newest.number)
            {
                copied.newest = Some(newest);
            }
        }
    }

    /// Adds what was copied to the disk.
    pub(crate) fn add_to(
        &self,
        blocks: &mut BlockSet,
        disk: DiskNumber,
        has_flushed: HasFlushed<'_>,
    ) {
        let of_disk = self.0.iter().filter(|copied| copied.disk == disk);
        for copied in of_disk.filter(|copied| !copied.is_flushed(has_flushed)) {
            blocks.insert_all(&copied.blocks);
        }
    }
}

impl DirtyRegions {
    /// Announces that these ranges of a file are copied to the disk. Ended by
    /// [`DirtyRegions::end_copy`].
    pub fn begin_copy(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        disk: DiskNumber,
        has_flushed: HasFlushed<'_>,
    ) -> Writer {
        let mut writer = Writer::default();
        let mut state = self.state.lock();
        for (number, first, end) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = state.regions.entry((file.id, number)).or_default();
            let generation = region.begin_copy(disk, (first, end), has_flushed);
            writer.joined.push((number, generation));
        }
        writer
    }

    /// What [`DirtyRegions::begin_copy`] announced has come to its end; a flush that covers `newest`
    /// covers all that was copied.
    pub fn end_copy(&self, file: FileId, writer: &Writer, newest: Target) {
        let mut state = self.state.lock();
        for (number, generation) in &writer.joined {
            if let Some(region) = state.regions.get_mut(&(file, *number)) {
                region.end_copy(*generation, newest);
            }
        }
    }

    /// What was copied to the disk and no flush has covered, ranges of blocks by file.
    pub fn copied_lately(
        &self,
        disk: DiskNumber,
        has_flushed: HasFlushed<'_>,
    ) -> Vec<(FileId, (u64, u64))> {
        let mut found = Vec::new();
        for ((file, number), region) in &self.state.lock().regions {
            let copied = region.copied_lately(disk, has_flushed);
            copied.add_runs(*file, u64::from(*number) * REGION_BLOCKS, &mut found);
        }
        found
    }
}
