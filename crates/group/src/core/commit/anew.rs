//! What a disk lacks that lost what no flush had covered, and serves on.
//!
//! Nobody knows which of the blocks written lately a flush had covered. Where another copy counts,
//! the disk lacks all of them, and gets them from there. Where none does, its copy stays what is
//! read: what is lost is owed by the file, see `lost.rs`, and what was flushed is there. Called stale, it
//! would be lost too, for good, because nothing could bring it up to date. Of several such copies
//! the first stays, and the others are made equal to it. The same holds for a disk that goes away:
//! what was durable there before counts when it is back, where every other copy is stale.
//!
//! What was only copied to the disk, by a resync or a move, is another matter: its source had it
//! before, and has it still where it is away by now. So the disk lacks it wherever any other copy is
//! not stale, be it here or away, and nobody reads meanwhile what it had before. Where all others
//! are stale nobody has it, and the file owes its next sync the error: whoever looks at its writes
//! finds none that went to this disk.

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_extent::map::Extent;
use spindle_extent::plan::{self, Segment, Serving, Staleness, TooFar};
use spindle_format::{DiskStatus, ExtentCopy};

use crate::core::Core;
use crate::core::dirty::{Lately, WrittenLately};
use crate::core::disks::{Fate, Target};
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

/// The extents of these blocks, with which of them each holds.
fn segments_of(file: &File, (first, end): (u64, u64)) -> Vec<(Segment, Extent)> {
    let mut segments: Vec<(Segment, Extent)> = Vec::new();
    // The last region may end beyond what extents can reach.
    let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
        segments.extend(segment.extent.map(|extent| (*segment, extent)));
        Ok(())
    });
    segments
}

/// Where the disk has a copy that is not stale: whether another one is not stale either, these disks
/// left aside.
fn fresh_beside(
    extent: &Extent,
    stale: u8,
    disk: DiskNumber,
    given_up: &[DiskNumber],
) -> Option<bool> {
    let copies = extent.copies().iter().enumerate();
    let is_fresh =
        |(index, copy): &(usize, &ExtentCopy)| copy.is_present() && stale >> *index & 1 == 0;
    let fresh: SmallVec<[DiskNumber; 3]> =
        (copies.filter(is_fresh).map(|(_, copy)| copy.disk())).collect();
    let counts = |other: &DiskNumber| *other != disk && !given_up.contains(other);
    fresh.contains(&disk).then(|| fresh.iter().any(counts))
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
    /// ended: a copy that was stale when that was noted has it by now.
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
        // One that serves has perhaps been taken for one that lacks nothing since it was noted.
        if !ended.is_empty() {
            let disks = ended.iter().map(|life| life.disk);
            (self.membership).begin_catching_up(disks.filter(|disk| self.disks.is_online(*disk)));
            drop(self.dirty.begin_resync());
        }
    }

    /// These disks lack the blocks where another copy counts.
    fn miss_range(
        &self,
        file: &File,
        (first, end): (u64, u64),
        disks: &[DiskNumber],
        others: &Others<'_>,
    ) {
        let lacking = |extent: &Extent, stale| self.missing(extent, stale, disks, others);
        self.miss_where(file, (first, end), &lacking);
    }

    /// Notes as missed what `lacking` says of the extents of the range and their stale copies.
    fn miss_where(
        &self,
        file: &File,
        range: (u64, u64),
        lacking: &dyn Fn(&Extent, u8) -> SmallVec<[DiskNumber; 2]>,
    ) {
        for (segment, extent) in segments_of(file, range) {
            let mut at = segment.at_block;
            let end = at + segment.blocks;
            while at < end {
                let lacking = |stale| lacking(&extent, stale);
                let apply = &mut |edit| self.catalog.apply(edit);
                at = (self.dirty).missed_where(file, &extent, (at, end), &lacking, apply);
            }
        }
    }

    /// Whether a flush of its disk has covered it.
    pub(crate) fn has_flushed(&self, target: Target) -> bool {
        self.disks.flushes.fate(&self.disks, target) == Fate::Flushed
    }

    /// What was copied to the disk and no flush has covered.
    fn copied_lately(&self, disk: DiskNumber) -> Vec<(FileId, (u64, u64))> {
        let has_flushed = |target| self.has_flushed(target);
        self.dirty.copied_lately(disk, &has_flushed)
    }

    /// Disks that do not come back: what they hold counts for nothing.
    fn not_coming_back(&self) -> SmallVec<[DiskNumber; 2]> {
        let is_given_up = |disk: &DiskNumber| {
            !self.disks.is_online(*disk)
                && self.membership.status(*disk) != Some(DiskStatus::Offline)
        };
        let disks = self.disks.iter().map(|disk| disk.number);
        disks.filter(is_given_up).collect()
    }

    /// The disk, which serves, lacks what was copied to it before this life where another copy has
    /// it, be that one here or away. The caller keeps commits away until it is noted.
    pub(super) fn miss_what_was_copied(&self, disk: DiskNumber) {
        let copied = self.copied_lately(disk);
        if copied.is_empty() {
            return;
        }
        let given_up = self.not_coming_back();
        let lacking = |extent: &Extent, stale| match fresh_beside(extent, stale, disk, &given_up) {
            Some(true) => SmallVec::from_slice(&[disk]),
            Some(false) | None => SmallVec::new(),
        };
        for (id, range) in copied {
            if let Some(file) = self.file(id) {
                self.miss_where(&file, range, &lacking);
            }
        }
    }

    /// Files of which the disk lost what was copied to it, and nobody has it any more, owe the error.
    /// Before it is noted what the disk lacks.
    pub(super) fn note_lost_copies(&self, gone: Life) {
        let disk = gone.disk;
        let copied = self.copied_lately(disk);
        if copied.is_empty() {
            return;
        }
        let given_up = self.not_coming_back();
        for (id, range) in copied {
            let Some(file) = self.file(id) else {
                continue;
            };
            let is_lost = segments_of(&file, range)
                .into_iter()
                .any(|(segment, extent)| {
                    let mut at = segment.at_block;
                    let end = at + segment.blocks;
                    let mut is_lost = false;
                    while at < end && !is_lost {
                        let (stale, until) = self.dirty.look(&file).stale_copies(&extent, at, end);
                        is_lost = fresh_beside(&extent, stale, disk, &given_up) == Some(false);
                        at = until;
                    }
                    is_lost
                });
            if is_lost && !file.is_removed() {
                self.owe_error(&file, &self.lost_with(gone, &file));
            }
        }
    }

    /// What was written lately, and what of that and of what was copied to the disk it has a copy of, as
    /// far as it was there before: where it goes away, what was flushed of that stays there. Where a
    /// flush has covered all that was written there of a file, that is all below its marks; else what
    /// lies beyond the durable mark of an extent with other copies may be from before the file.
    pub(super) fn written_lately_beside(&self, disk: DiskNumber) -> Lately {
        let written = self.dirty.written_lately();
        let mut held = Vec::new();
        let committed = self.catalog.committed();
        let lately = written.iter().copied().chain(self.copied_lately(disk));
        for (id, (first, end)) in lately {
            let Some(file) = self.file(id) else {
                continue;
            };
            let map = file.map.read();
            // Under the map's lock: what a mark covers is among these before the mark moves.
            let targets = file.written.lock().clone();
            let is_flushed = (targets.iter())
                .filter(|target| target.life.disk == disk)
                .all(|target| self.has_flushed(*target));
            // The last region may end beyond what extents can reach.
            let _ = plan::segments::<TooFar>(&map, first, end, |segment| {
                let Some(extent) = segment.extent else {
                    return Ok(());
                };
                let others: SmallVec<[DiskNumber; 2]> = (extent.present())
                    .map(ExtentCopy::disk)
                    .filter(|other| *other != disk)
                    .collect();
                let is_there = extent.present().any(|copy| copy.disk() == disk);
                // A cut that is not durable yet has set it back.
                let durable = map.durable_mark(segment.index, &extent, committed);
                let mark = match is_flushed {
                    true => extent.mark_blocks.max(durable),
                    false => durable,
                };
                let below = u64::from(mark).saturating_sub(segment.inside_blocks);
                let blocks = match others.is_empty() {
                    // Its mark goes back.
                    true => segment.blocks,
                    false => below.min(segment.blocks),
                };
                if is_there && blocks > 0 {
                    held.push(WrittenLately {
                        file: id,
                        blocks: (segment.at_block, segment.at_block + blocks),
                        others,
                    });
                }
                Ok(())
            });
        }
        Lately { written, held }
    }

    /// Those of the disks that lack blocks of which these copies are stale, be they here or away.
    fn missing(
        &self,
        extent: &Extent,
        stale: u8,
        disks: &[DiskNumber],
        others: &Others<'_>,
    ) -> SmallVec<[DiskNumber; 2]> {
        let mut fresh: SmallVec<[ExtentCopy; 3]> = SmallVec::new();
        let mut away: SmallVec<[ExtentCopy; 3]> = SmallVec::new();
        for (index, copy) in extent.copies().iter().enumerate() {
            if copy.is_present() && stale >> index & 1 == 0 {
                match self.disks.slot_of(*copy) {
                    Some(_) => fresh.push(*copy),
                    None => away.push(*copy),
                }
            }
        }
        let stays = match fresh.iter().any(|copy| others.count(*copy)) {
            true => None,
            false => fresh.first().or(away.first()).map(|copy| copy.disk()),
        };
        (fresh.iter().chain(&away).map(|copy| copy.disk()))
            .filter(|disk| disks.contains(disk) && Some(*disk) != stays)
            .collect()
    }
}
