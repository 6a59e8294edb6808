//! What becomes of data whose disk goes before a flush has covered it.
//!
//! An outage ends an incarnation of a disk. What was written in it and not flushed is lost there:
//! it is noted as missed before anything durable relies on the disk again ([`Group::notice_offline`]),
//! and the next sync of each file that had written to it looks whether another copy has it, else
//! it answers with an error, once. Nobody ever takes it for flushed.

use spindle_base::{DiskNumber, FileId};
use spindle_extent::plan::Serving;
use spindle_format::ExtentCopy;
use spindle_sync::atomic::Ordering;

use crate::dirty::REGION_BLOCKS;
use crate::disks::{DiskState, Fate, Target};
use crate::error::{GroupError, GroupErrorKind};
use crate::file::File;
use crate::group::Group;
use crate::incarnation::Life;

impl Group {
    /// Data written to a disk that went away before a flush covered it is lost where no other copy
    /// has it; where one has it, that one is made durable.
    pub(super) fn keep_what_disks_lost(
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
                let apply = &mut |edit| self.catalog.apply(edit);
                self.dirty.name_only_stale(file.id, apply);
                // Such as an outage has put since are among them.
                self.catalog.applied()
            };
            self.commit_through(rows)?;
            if self.membership.turns_count() == turns_count {
                return Ok(());
            }
        }
    }

    /// Refuses where an extent with a copy on one of these disks, which lost some of it, has no
    /// copy that is online and up to date. After a crash a disk that a row names is stale in all of
    /// its region, so that a copy counts only where nothing of its regions is.
    fn check_copies(&self, file: &File, lost: &[DiskNumber]) -> Result<(), GroupError> {
        let map = file.map.read();
        let mut without_copy = None;
        map.for_each(0, u32::MAX, |index, extent| {
            let has_it = |copy: ExtentCopy| {
                let (first, end) = map.schedule().envelope(index);
                let first = first - first % REGION_BLOCKS;
                let end = end.next_multiple_of(REGION_BLOCKS);
                let disk = copy.disk();
                // Of a file of one copy nothing tells where it is stale.
                (file.is_mirrored() || !lost.contains(&disk))
                    && self.disks.slot_of(copy).is_some()
                    && !self.dirty.is_stale(file, disk, first, end)
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
                    "extent {index} of file {} was written to a disk that went away before it was \
                     flushed, and has no other copy: what was written since the last sync may be \
                     lost",
                    file.id
                ),
            )),
        }
    }

    /// As [`Self::keep_what_disks_lost`], for every file; the next sync of one that lost something
    /// tells it again. The first error.
    pub(super) fn keep_what_all_disks_lost(&self) -> Result<(), GroupError> {
        let turns_count = self.membership.turns_count();
        if self.looked_for_lost_at.load(Ordering::Acquire) == turns_count {
            return Ok(());
        }
        let mut answer = Ok(());
        for file in self.all_files() {
            let targets = file.written.lock().clone();
            if targets.is_empty() {
                continue;
            }
            if let Err(error) = self.keep_what_disks_lost(&file, &targets) {
                self.check_fence()?;
                *file.error.lock() = Some(error.message.clone());
                file.written
                    .lock()
                    .retain(|target| !targets.contains(target));
                answer = answer.and(Err(error));
            }
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
        let _change = self.change_inside();
        let is_stale = |file: FileId| {
            if let Some(file) = self.file(file) {
                file.may_be_stale.store(true, Ordering::Release);
            }
        };
        for life in gone {
            let apply = &mut |edit| self.catalog.apply(edit);
            self.dirty.went_offline(life, &is_stale, apply);
            if let Some(disk) = self.disks.get(life.disk) {
                disk.set_noted(life.incarnation);
            }
        }
    }
}
