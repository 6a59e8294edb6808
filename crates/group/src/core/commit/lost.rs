//! What becomes of data whose disk loses it before a flush has covered it.
//!
//! An outage ends an incarnation of a disk, and so does a failed flush of one that serves on because
//! the group cannot do without it: it may have dropped what it held, and answer the next flush well. A
//! mark that became durable then would show what an earlier file left. What was written in that
//! incarnation and not flushed is lost there:
//! it is noted as missed before anything durable relies on the disk again ([`Core::notice_offline`]),
//! and the next sync of each file that had written to it looks whether another copy has it, else
//! it answers with an error, once. Nobody ever takes it for flushed.
//!
//! Where no other copy of an extent counts, because it is stale or away, its file owes its next sync
//! the error from the outage on: nobody may be left to ask what became of it, if the process is
//! killed before that sync.
//!
//! An extent whose only copy lay there has it nowhere. So its file owes its next sync the error
//! from the outage on, wherever the extent moves and however many copies it gets until then; and
//! the extent's mark goes back to where it is durably, because what lies beyond it are bytes from
//! before: of a hole that was punched there, or of an earlier file. Until the error is told nobody
//! reads zeros there, which would look like an answer.

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_device::DeviceErrorKind;
use spindle_extent::map::{Extent, Map};
use spindle_extent::plan::{self, Serving, TooFar};
use spindle_format::ExtentCopy;
use spindle_sync::atomic::Ordering;

use crate::core::Core;
use crate::core::commit::Change;
use crate::core::commit::anew::Others;
use crate::core::dirty::REGION_BLOCKS;
use crate::core::disks::{DiskState, FailedFlush, Fate, Target};
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::{Event, EventKind};
use crate::incarnation::Life;

impl Core {
    /// Data written to a disk that lost it before a flush covered it is lost where no other copy has
    /// it; where one has it, that one is made durable.
    pub(crate) fn keep_what_disks_lost(
        &self,
        file: &File,
        targets: &[Target],
    ) -> Result<(), GroupError> {
        let is_lost =
            |target: &&Target| self.disks.flushes.fate(&self.disks, **target) == Fate::Lost;
        let lost: Vec<DiskNumber> = (targets.iter().filter(is_lost))
            .map(|target| target.life.disk)
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        loop {
            // What another copy has it may have from a resync, which no sync of a file asks for.
            let turns_count = self.membership.turns_count();
            self.notice_offline();
            self.flush_written()?;
            self.check_copies(file, &lost)?;
            // A copy that was brought up to date counts after a crash only where no row names it.
            let rows = {
                let _change = self.change_inside();
                self.name_only_stale(file);
                // Such as an outage has put since are among them.
                self.catalog.applied()
            };
            self.commit_through(rows)?;
            if self.membership.turns_count() == turns_count {
                return Ok(());
            }
        }
    }

    /// The sync that asks tells what became of those of its writes that are lost.
    pub(super) fn forget_lost(&self, file: &File, targets: &[Target]) {
        let is_lost =
            |target: &&Target| self.disks.flushes.fate(&self.disks, **target) == Fate::Lost;
        let lost: SmallVec<[&Target; 4]> = targets.iter().filter(is_lost).collect();
        (file.written.lock()).retain(|target| !lost.contains(&&*target));
    }

    /// Refuses where an extent with a copy on one of these disks, which lost some of it, has no
    /// copy that is online and up to date, and counts after a crash.
    fn check_copies(&self, file: &File, lost: &[DiskNumber]) -> Result<(), GroupError> {
        let map = file.map.read();
        let mut without_copy = None;
        map.for_each(0, u32::MAX, |index, extent| {
            let has_it = |copy: ExtentCopy| {
                // Of a file of one copy nothing tells where it is stale.
                (file.is_mirrored() || !lost.contains(&copy.disk()))
                    && self.disks.slot_of(copy).is_some()
                    && !self.is_stale_after_a_stop(file, copy, map.schedule().envelope(index))
            };
            if extent.present().any(|copy| lost.contains(&copy.disk()))
                && !extent.present().any(has_it)
            {
                without_copy = without_copy.or(Some(index));
            }
        });
        match without_copy {
            None => Ok(()),
            Some(index) => Err(GroupError::new(
                GroupErrorKind::Io,
                format!(
                    "extent {index} of file {} was written to a disk that went away or failed a flush \
                     before it was flushed, and has no other copy: what was written since the last \
                     sync may be lost",
                    file.id
                ),
            )
            .during(Operation::Flush)
            .of_file(file.id)
            .in_extent(index)),
        }
    }

    /// The rows of the file name only what is stale; where it has one copy, by its blocks, which are
    /// lost. Whoever takes a copy away calls it in the same
    /// change: a crash after that commit has to find the other copies good, and the commit flushes
    /// them first.
    pub(crate) fn name_only_stale(&self, file: &File) {
        let apply = &mut |edit| self.catalog.apply(edit);
        self.dirty
            .name_only_stale(file.id, file.is_mirrored(), apply);
    }

    /// As [`Self::name_only_stale`], for all files.
    pub(crate) fn name_only_stale_everywhere(&self) {
        for file in self.dirty.files() {
            if let Some(file) = self.file(file) {
                let _change = self.change_inside();
                self.name_only_stale(&file);
            }
        }
    }

    /// Whether a crash finds any of these blocks stale on the copy's disk, once the rows name only what
    /// is stale. Where they cannot list blocks it does wherever anything of their regions is.
    fn is_stale_after_a_stop(
        &self,
        file: &File,
        copy: ExtentCopy,
        (first, end): (u64, u64),
    ) -> bool {
        (self.dirty).is_stale_after_a_stop(file, copy.disk(), (first, end))
    }

    /// Whether nothing is stale on the copy's disk in the regions of these blocks: whatever is announced
    /// there meanwhile, a crash finds it good.
    pub(crate) fn has_regions(
        &self,
        file: &File,
        copy: ExtentCopy,
        (first, end): (u64, u64),
    ) -> bool {
        let first = first - first % REGION_BLOCKS;
        let end = end.next_multiple_of(REGION_BLOCKS);
        !self.dirty.is_stale(file, copy.disk(), first, end)
    }

    /// As [`Self::keep_what_disks_lost`], for every file; the next sync of one that lost something
    /// tells it again. The first error.
    pub(crate) fn keep_what_all_disks_lost(&self) -> Result<(), GroupError> {
        let turns_count = self.membership.turns_count();
        if self.looked_for_lost_at.load(Ordering::Acquire) == turns_count {
            return Ok(());
        }
        self.notice_offline();
        let mut answer = Ok(());
        for file in self.all_files() {
            let untold = file.owed.lock().untold();
            if let Some(error) = untold {
                answer = answer.and(Err(error));
                continue;
            }
            let targets = file.written.lock().clone();
            if targets.is_empty() {
                continue;
            }
            if let Err(error) = self.keep_what_disks_lost(&file, &targets) {
                self.check_fence()?;
                self.owe_error(&file, &error);
                file.written
                    .lock()
                    .retain(|target| !targets.contains(target));
                answer = answer.and(Err(error));
            }
        }
        if answer.is_err() {
            self.note_told();
        }
        self.looked_for_lost_at
            .store(turns_count, Ordering::Release);
        answer
    }

    /// Takes disks offline, durably, before anybody is answered. Where that cannot be made
    /// durable the group stops: nothing is acknowledged any more.
    pub(crate) fn take_offline(
        &self,
        disks: &[DiskNumber],
        reason: &str,
    ) -> Result<(), GroupError> {
        if let Err(error) = self.membership.take_offline(disks, reason) {
            self.stop_for(&error);
            return Err(error);
        }
        self.notice_offline();
        Ok(())
    }

    /// As [`Self::take_offline`], where the group can do without all of them, see
    /// [`Membership::take_offline_if_borne`](crate::quorum::Membership::take_offline_if_borne).
    pub(crate) fn take_offline_if_borne(
        &self,
        disks: &[DiskNumber],
        reason: &str,
    ) -> Result<bool, GroupError> {
        let went = (self.membership.take_offline_if_borne(disks, reason))
            .inspect_err(|error| self.stop_for(error))?;
        if went {
            self.notice_offline();
        }
        Ok(went)
    }

    /// Disks that failed a flush and serve on, because nobody else has what they hold: each has lost
    /// what no flush had covered, as if it had been away for a moment.
    pub(super) fn outlive_failed_flushes(&self, failed: &[FailedFlush]) {
        for flush in failed {
            let message = format!("a flush failed: {}", flush.error);
            self.event(Event::new(EventKind::FlushFailed, message).disk(flush.life.disk));
        }
        let failures = self.membership.failed_flushes();
        // Whoever told one meanwhile has told it to everybody.
        let is_untold =
            |flush: &&FailedFlush| failures.of(flush.life.disk).told_count < flush.failures_count;
        let untold: Vec<&FailedFlush> = failed.iter().filter(is_untold).collect();
        // Of files that get a second copy the disks lack something from here on: readers look.
        let _returning = self.dirty.begin_resync();
        let disks = untold.iter().map(|flush| flush.life.disk);
        self.membership.begin_catching_up(disks);
        // All that had failed by then are told by this.
        let told: Vec<(DiskNumber, u64)> = (untold.iter())
            .map(|flush| {
                let begun = self.membership.begin_anew(flush.life);
                (flush.life.disk, begun.unwrap_or(flush.failures_count))
            })
            .collect();
        self.notice_offline();
        for (disk, count) in told {
            failures.forget(disk, count);
        }
    }

    /// As [`Self::outlive_failed_flushes`], where all of these disks still answer: what is written to
    /// them from then on may be flushed well. Gives those that fail that too, or all.
    pub(super) fn ask_again(&self, failed: Vec<FailedFlush>) -> Vec<FailedFlush> {
        let answers = |flush: &FailedFlush| {
            use DeviceErrorKind::{Medium, NoSpace};
            matches!(flush.error.kind, Medium | NoSpace)
        };
        if !failed.iter().all(answers) {
            // Of one that does not nothing can be read either.
            return failed;
        }
        self.outlive_failed_flushes(&failed);
        let disks = failed
            .iter()
            .filter_map(|flush| self.disks.get(flush.life.disk));
        let flushes = &self.disks.flushes;
        let targets: Vec<Target> = disks.map(|disk| flushes.newest(disk.life())).collect();
        flushes.cover(&self.disks, &targets)
    }

    /// Follows the membership: disks that went offline, whoever took them, get nothing new, and
    /// what was written lately is noted as missing there. When it returns all that is noted of
    /// every outage before the call, whoever noted it.
    pub(crate) fn notice_offline(&self) {
        let gone: Vec<Life> = (self.disks.iter())
            .filter_map(DiskState::outage_to_note)
            .collect();
        if gone.is_empty() {
            return;
        }
        self.disks.flushes.wake();
        self.rebuild_placement();
        let others = self.others_beside(&gone);
        let change = self.change_inside();
        let is_stale = |file: FileId| {
            if let Some(file) = self.file(file) {
                file.may_be_stale.store(true, Ordering::Release);
            }
        };
        let has_flushed = |target| self.has_flushed(target);
        for life in gone {
            self.note_lost_alone(&change, life, &others);
            self.note_lost_copies(life);
            if life.incarnation.serves() {
                // Somebody else noted it first, perhaps, and it has everything again: what is noted late is
                // copied again.
                let _returning = self.dirty.begin_resync();
                self.membership
                    .begin_catching_up(std::iter::once(life.disk));
                self.miss_what_others_have(life, &others);
                self.miss_what_was_copied(life.disk);
            } else {
                let lately = self.written_lately_beside(life.disk);
                let apply = &mut |edit| self.catalog.apply(edit);
                (self.dirty).went_offline(life, &lately, &has_flushed, &is_stale, apply);
            }
            if let Some(disk) = self.disks.get(life.disk) {
                disk.set_noted(life.incarnation);
            }
        }
    }

    /// Of files with extents that have no copy that counts but on a disk which lost unflushed writes
    /// of theirs: they owe the error. The marks go back where no other copy could have any of it.
    /// Noted twice it does no more.
    fn note_lost_alone(&self, change: &Change<'_>, gone: Life, others: &Others<'_>) {
        let lost_there = |target: &Target| {
            target.life.disk == gone.disk
                && target.life.incarnation < gone.incarnation
                && self.disks.flushes.fate(&self.disks, *target) == Fate::Lost
        };
        for file in self.all_files() {
            let targets = file.written.lock().clone();
            if !targets.iter().any(lost_there) {
                continue;
            }
            let mut map = file.map.write(change);
            // Its rows are gone, and its number may be another file's soon.
            if file.is_removed() {
                continue;
            }
            let blocks_of = map.schedule();
            let is_there = |copy: ExtentCopy| copy.disk() == gone.disk;
            let mut is_owed = false;
            map.for_each(0, u32::MAX, |index, extent| {
                is_owed |= extent.present().any(is_there)
                    && !self.counts_elsewhere(&file, &map, (index, extent), others);
            });
            if !is_owed {
                continue;
            }
            let is_lost = |index: u32, extent: &Extent| {
                let mut copies = extent.present();
                let is_alone = copies.next().is_some_and(is_there) && copies.next().is_none();
                // Where one is away, what copies missed is known block by block: nobody reads that.
                is_alone
                    || (gone.incarnation.serves()
                        && extent.present().any(is_there)
                        && !(extent.present()).any(|copy| {
                            let (first, end) = blocks_of.envelope(index);
                            others.count(copy)
                                && !self.dirty.is_stale(&file, copy.disk(), first, end)
                        }))
            };
            // Under the map's lock: what is durable after this look is not set back.
            let committed = self.catalog.committed();
            let back = map.marks_beyond_durable(committed, is_lost);
            // Owed before the marks move: a kill between the two leaves too much told, not zeros
            // that nobody tells of.
            self.owe_for(&file, &self.lost_with(gone, &file), !back.is_empty());
            if back.is_empty() {
                continue;
            }
            // Whoever has planned a write by the marks of before starts from a gap of old bytes.
            file.set_back_count.fetch_add(1, Ordering::AcqRel);
            for (index, mark_blocks) in &back {
                map.set_mark(*index, *mark_blocks);
            }
            self.note_dirty_map(&file, &map);
        }
    }

    /// These writes were counted after the outage that took them had perhaps been noted: then nobody has
    /// asked which of their other copies count. The file owes an error for each of `ranges` of which no
    /// copy does.
    #[cold]
    pub(crate) fn owe_what_was_counted_late(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        targets: &[Target],
    ) {
        let is_lost =
            |target: &&Target| self.disks.flushes.fate(&self.disks, **target) == Fate::Lost;
        let gone: SmallVec<[Life; 2]> = (targets.iter().filter(is_lost))
            .filter_map(|target| Some(self.disks.get(target.life.disk)?.life()))
            .collect();
        let others = self.others_beside(&gone);
        let _change = self.change_inside();
        let map = file.map.read();
        for life in gone {
            let mut is_owed = false;
            for (first, end) in ranges {
                // What extents cannot reach nobody has written.
                let _ = plan::segments::<TooFar>(&map, *first, *end, |segment| {
                    is_owed |= segment.extent.is_some_and(|extent| {
                        let mut copies = extent.present();
                        copies.any(|copy| copy.disk() == life.disk)
                            && !self.counts_elsewhere(file, &map, (segment.index, &extent), &others)
                    });
                    Ok(())
                });
            }
            if is_owed {
                self.owe_error(file, &self.lost_with(life, file));
            }
        }
        drop(map);
        // What has caught up since counts for whoever takes over, too.
        self.name_only_stale(file);
    }

    /// Whether a daemon that is killed now leaves a copy of the extent that counts.
    fn counts_elsewhere(
        &self,
        file: &File,
        map: &Map,
        (index, extent): (u32, &Extent),
        others: &Others<'_>,
    ) -> bool {
        let blocks = map.schedule().envelope(index);
        let counts = |copy: ExtentCopy| {
            others.count(copy) && !self.is_stale_after_a_stop(file, copy, blocks)
        };
        extent.present().any(counts)
    }

    /// What a file owes that had something on the disk alone.
    pub(crate) fn lost_with(&self, gone: Life, file: &File) -> GroupError {
        let what = match gone.incarnation.serves() {
            true => "failed a flush",
            false => "went away",
        };
        let message = format!(
            "{} {what} before what was written to file {} was flushed, and no other copy is up to \
             date: what was written since the last sync may be lost",
            self.disks.describe(gone.disk),
            file.id
        );
        GroupError::new(GroupErrorKind::Io, message)
            .during(Operation::Flush)
            .of_file(file.id)
            .on_disk(gone.disk)
    }
}

#[cfg(test)]
mod tests;
