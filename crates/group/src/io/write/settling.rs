//! What becomes of a write that some disks failed: who goes offline, who serves on and has missed it,
//! and where it has failed.

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, Redundancy};
use spindle_device::{DeviceError, DeviceErrorKind};
use spindle_extent::plan::{self, Segment, TooFar, WritePlan};
use spindle_format::ExtentCopy;

use crate::core::Core;
use crate::core::dirty::Ranges;
use crate::core::disks::Written;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::{Event, EventKind};
use crate::io::recovery::Part;

impl Core {
    /// Disks that failed go offline, durably, where every extent still has a copy. One that the group
    /// cannot do without, and that failed these blocks alone, serves on and has missed them: offline it
    /// would take with it what another disk, which came back, does not have yet. Where an extent has no
    /// copy the write failed, and no disk is given up for it: what the copies hold now is made
    /// equal, so that two reads never see two answers. The last of `ranges` is what was to be
    /// written, the others are gaps. What the disks that failed have missed is still to be noted, by
    /// [`Self::note_failed`].
    pub(super) fn settle_failed_writes(
        &self,
        file: &File,
        plan: &WritePlan,
        ranges: &[(u64, u64)],
        written: &Written,
        failed: &[(DiskNumber, DeviceError)],
    ) -> Result<(), GroupError> {
        let (first, end) = ranges[ranges.len() - 1];
        // One that went meanwhile, and may be back, or serves on after a failed flush, has lost the write.
        self.notice_offline();
        let on: SmallVec<[DiskNumber; 4]> = (written.lives())
            .filter(|life| !plan.missed.contains(&life.disk) && self.disks.is_current(*life))
            .map(|life| life.disk)
            .collect();
        let lost = self.without_copy(file, &file.map.read(), (first, end), &on)?;
        if let Some(segment) = lost {
            if file.is_mirrored() {
                let _change = self.change_inside();
                let apply = &mut |edit| self.catalog.apply(edit);
                self.dirty.doubt(file.id, ranges, apply);
                if let Some(journal) = self.journal() {
                    journal.compare_everything();
                }
            }
            let equal = self.make_equal(file, first, end);
            if !file.moving.is_empty() {
                // Whoever copies extents elsewhere was told before their copies changed again.
                self.note_moving(file, first, end);
            }
            equal?;
            let error = self.refuse_failed(file, &segment, failed);
            self.take_removed_offline(failed)?;
            return Err(error);
        }
        self.take_failed_offline(failed)
    }

    /// Of a write that failed the blocks that only disks were to take which lack what was there before
    /// (`missed` were not here): what these hold now counts for nobody.
    pub(super) fn without_counting_copy(
        &self,
        file: &File,
        (first, end): (u64, u64),
        missed: &[DiskNumber],
    ) -> Ranges {
        let counts_nowhere =
            |part: &Part| (part.counting.iter()).all(|copy| missed.contains(&copy.disk()));
        let parts = self.parts_of_copies(file, first, end).into_iter();
        parts
            .filter(counts_nowhere)
            .map(|part| part.blocks())
            .collect()
    }

    /// Disks that failed a write have missed it, be they offline or not. Noted after what others took of
    /// it counts there, so that no row, and no disk that loses it in between, leaves the blocks on none
    /// that counts. The resync brings it to those that serve on when they take it.
    pub(super) fn note_failed(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        failed: &[(DiskNumber, DeviceError)],
    ) -> Result<(), GroupError> {
        let disks: SmallVec<[DiskNumber; 2]> = failed.iter().map(|(disk, _)| *disk).collect();
        self.note_missed(file, ranges, &disks);
        if !file.moving.is_empty() {
            // Whoever copies extents elsewhere was told before that, and took perhaps what was there.
            for (first, end) in ranges {
                self.note_moving(file, *first, *end);
            }
        }
        match self.keep_where_lost(file, ranges, failed)? {
            Some(segment) => Err(self.refuse_failed(file, &segment, failed)),
            None => Ok(()),
        }
    }

    /// The write has failed: the next sync tells it, too.
    fn refuse_failed(
        &self,
        file: &File,
        segment: &Segment,
        failed: &[(DiskNumber, DeviceError)],
    ) -> GroupError {
        let index = segment.index;
        let (disk, reason) = failure_of(segment, failed);
        let message = format!("no copy of extent {index} of file {} took a write", file.id);
        let error = GroupError::new(GroupErrorKind::Io, message)
            .during(Operation::Write)
            .of_file(file.id)
            .in_extent(index)
            .at_offset(segment.at_block * BLOCK_SIZE_BYTES)
            .on_disk(*disk)
            .because(reason.clone());
        self.owe_error(file, &error);
        let event = Event::new(EventKind::WriteFailed, error.report()).file(file.id);
        self.event(event.disk(*disk));
        error
    }

    /// Disks that failed a write go offline, but for those that failed these blocks alone, and that the
    /// group cannot do without beside all of them that go. Those that go whatever that costs go first:
    /// the others are judged beside them.
    fn take_failed_offline(&self, failed: &[(DiskNumber, DeviceError)]) -> Result<(), GroupError> {
        let (of_place, others): (Vec<_>, Vec<_>) =
            (failed.iter()).partition(|(_, error)| is_of_place(error));
        if let Some((_, reason)) = others.first() {
            let gone: SmallVec<[DiskNumber; 2]> = others.iter().map(|(disk, _)| *disk).collect();
            self.take_offline(&gone, &reason.to_string())?;
        }
        for (disk, error) in of_place {
            self.take_offline_for_blocks(*disk, error)?;
        }
        Ok(())
    }

    /// As [`Self::take_offline_for_copy`], of a disk that lacks these blocks from now on where it serves
    /// on.
    pub(in crate::io) fn take_offline_for_blocks(
        &self,
        disk: DiskNumber,
        error: &DeviceError,
    ) -> Result<bool, GroupError> {
        if self.take_offline_for_copy(disk, error)? {
            return Ok(true);
        }
        let goes = !self.may_miss_blocks();
        if goes {
            self.take_offline(&[disk], &error.to_string())?;
        }
        Ok(goes)
    }

    /// Whether a disk may miss blocks and serve on beside others that lack something of a region: rows
    /// that cannot list blocks would call all of it stale on each of them.
    fn may_miss_blocks(&self) -> bool {
        self.have_rows_list().is_ok()
    }

    /// A disk that did not take some blocks goes offline; whether it did. It serves on where its others
    /// are well, and what they hold the group may have nowhere else.
    pub(crate) fn take_offline_for_copy(
        &self,
        disk: DiskNumber,
        error: &DeviceError,
    ) -> Result<bool, GroupError> {
        let reason = error.to_string();
        if is_of_place(error) {
            return self.take_offline_if_borne(&[disk], &reason);
        }
        self.take_offline(&[disk], &reason)?;
        Ok(true)
    }

    /// A disk that took the write has lost it since, or is said to have lost it by somebody who notes late
    /// what it lost before: these copies, which have failed the write, were good ones then. Where no copy
    /// is better theirs count, as they were; a part of which that is so, where there is one.
    #[cold]
    fn keep_where_lost(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        failed: &[(DiskNumber, DeviceError)],
    ) -> Result<Option<Segment>, GroupError> {
        self.notice_offline();
        let mut kept = None;
        let _change = self.change_inside();
        let map = file.map.read();
        for (first, end) in ranges {
            plan::segments::<TooFar>(&map, *first, *end, |segment| {
                let blocks = (segment.at_block, segment.at_block + segment.blocks);
                let copies = segment.extent.iter().flat_map(|extent| extent.present());
                let disks: SmallVec<[DiskNumber; 4]> = copies.map(ExtentCopy::disk).collect();
                for (own, _) in failed.iter().filter(|(own, _)| disks.contains(own)) {
                    let others: SmallVec<[DiskNumber; 4]> =
                        disks.iter().copied().filter(|disk| disk != own).collect();
                    if self.dirty.keep_least_stale(file.id, blocks, *own, &others) {
                        kept = Some(*segment);
                    }
                }
                Ok(())
            })
            .map_err(|TooFar| GroupError::too_far())?;
        }
        drop(map);
        self.name_only_stale(file);
        Ok(kept)
    }

    /// Disks that were removed go offline where the group can do without, though nobody else has
    /// what was to be written: what they held and no flush had covered, of whatever file, is lost
    /// for certain, and only an outage tells it.
    fn take_removed_offline(&self, failed: &[(DiskNumber, DeviceError)]) -> Result<(), GroupError> {
        if self.membership.redundancy() == Redundancy::External {
            return Ok(());
        }
        for (disk, error) in failed {
            if error.kind == DeviceErrorKind::Gone {
                self.take_offline_if_borne(&[*disk], &error.to_string())?;
            }
        }
        Ok(())
    }
}

/// Whether a disk's other blocks are well.
const fn is_of_place(error: &DeviceError) -> bool {
    matches!(
        error.kind,
        DeviceErrorKind::Medium | DeviceErrorKind::NoSpace
    )
}

/// Which disk failed the write of these blocks, and how: one that has a copy of them, because a
/// write of many extents may have failed elsewhere first.
fn failure_of<'a>(
    segment: &Segment,
    failed: &'a [(DiskNumber, DeviceError)],
) -> &'a (DiskNumber, DeviceError) {
    let has_copy = |disk: DiskNumber| {
        let extent = segment.extent.as_ref();
        extent.is_some_and(|extent| extent.present().any(|copy| copy.disk() == disk))
    };
    let own = failed.iter().find(|(disk, _)| has_copy(*disk));
    own.unwrap_or(&failed[0])
}
