//! What a disk lacks that lost what no flush had covered, and serves on.
//!
//! Nobody knows which of the blocks written lately a flush had covered. Where another copy counts,
//! the disk lacks all of them, and gets them from there. Where none does, its copy stays what is
//! read: what is lost is owed by the file, see `lost.rs`, and what was flushed is there. Called stale, it
//! would be lost too, for good, because nothing could bring it up to date. Of several such copies
//! the first stays, and the others are made equal to it.

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_extent::map::Extent;
use spindle_extent::plan::{self, Segment, Serving, TooFar};
use spindle_format::ExtentCopy;

use crate::core::Core;
use crate::core::file::File;
use crate::incarnation::Life;

/// Which disks' copies count beside those that lost something.
pub(super) struct Others<'a> {
    core: &'a Core,
    suspect: SmallVec<[DiskNumber; 2]>,
}

impl Others<'_> {
    pub(super) fn count(&self, copy: ExtentCopy) -> bool {
        let disk = copy.disk();
        self.core.disks.slot_of(copy).is_some()
            && !self.suspect.contains(&disk)
            && !self.core.membership.failed_flushes().of(disk).stand()
    }
}

impl Core {
    /// Beside these, and beside all that failed a flush which was not told yet.
    pub(super) fn others_beside(&self, lives: &[Life]) -> Others<'_> {
        Others {
            core: self,
            suspect: lives.iter().map(|life| life.disk).collect(),
        }
    }

    /// The disk, which serves, lacks what was written lately before this life, where others have it.
    /// The caller keeps commits away until it is noted.
    pub(super) fn miss_what_others_have(&self, now: Life, others: &Others<'_>) {
        for (id, range) in self.dirty.began_anew(now) {
            if let Some(file) = self.file(id) {
                self.miss_range(&file, range, &[now.disk], others);
            }
        }
    }

    /// As for a disk that began anew, for a write that went out to some of these lives before they
    /// ended.
    #[cold]
    pub(crate) fn miss_what_began_anew(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        lives: impl Iterator<Item = Life>,
    ) {
        let ended: SmallVec<[Life; 2]> =
            lives.filter(|life| !self.disks.is_current(*life)).collect();
        let others = self.others_beside(&ended);
        let _change = self.change_inside();
        for range in ranges {
            self.miss_range(file, *range, &others.suspect, &others);
        }
    }

    /// Of these disks those that are online lack the blocks where another copy counts.
    fn miss_range(
        &self,
        file: &File,
        (first, end): (u64, u64),
        disks: &[DiskNumber],
        others: &Others<'_>,
    ) {
        let mut segments: Vec<(Segment, Extent)> = Vec::new();
        // The last region may end beyond what extents can reach.
        let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            segments.extend(segment.extent.map(|extent| (*segment, extent)));
            Ok(())
        });
        for (segment, extent) in segments {
            let mut at = segment.at_block;
            let end = at + segment.blocks;
            while at < end {
                let lacking = |stale| self.missing(&extent, stale, disks, others);
                let apply = &mut |edit| self.catalog.apply(edit);
                at = (self.dirty).missed_where(file, &extent, (at, end), &lacking, apply);
            }
        }
    }

    /// Blocks written lately of which the disk has the only copy, and lacks nothing of: where it goes
    /// away it has all that was flushed, and no other could have the rest.
    pub(super) fn only_copies_written_lately(&self, disk: DiskNumber) -> Vec<(FileId, (u64, u64))> {
        let mut only = Vec::new();
        for (id, (first, end)) in self.dirty.written_lately() {
            let Some(file) = self.file(id) else {
                continue;
            };
            let mut found: SmallVec<[(u64, u64); 4]> = SmallVec::new();
            // The last region may end beyond what extents can reach.
            let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
                let mut copies = segment.extent.iter().flat_map(Extent::present);
                if copies.next().is_some_and(|copy| copy.disk() == disk) && copies.next().is_none()
                {
                    found.push((segment.at_block, segment.at_block + segment.blocks));
                }
                Ok(())
            });
            found.retain(|(first, end)| !self.dirty.is_stale(&file, disk, *first, *end));
            only.extend(found.into_iter().map(|blocks| (id, blocks)));
        }
        only
    }

    /// Those of the disks that lack blocks of which these copies are stale.
    fn missing(
        &self,
        extent: &Extent,
        stale: u8,
        disks: &[DiskNumber],
        others: &Others<'_>,
    ) -> SmallVec<[DiskNumber; 2]> {
        let mut fresh: SmallVec<[ExtentCopy; 3]> = SmallVec::new();
        for (index, copy) in extent.copies().iter().enumerate() {
            if stale >> index & 1 == 0 && self.disks.slot_of(*copy).is_some() {
                fresh.push(*copy);
            }
        }
        let stays = match fresh.iter().any(|copy| others.count(*copy)) {
            true => None,
            false => fresh.first().map(|copy| copy.disk()),
        };
        (fresh.iter().map(|copy| copy.disk()))
            .filter(|disk| disks.contains(disk) && Some(*disk) != stays)
            .collect()
    }
}
