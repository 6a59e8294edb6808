//! Disks that the rebalance has emptied are forgotten, and disks that end earlier become smaller.
//!
//! Before the state forgets a disk, everything that moved its extents away is durable, and its
//! replica of the catalog has gone elsewhere. A crash in between leaves a disk that is still
//! being dropped, and empty: the next call forgets it.

use spindle_base::DiskNumber;
use spindle_catalog::{Edit, Table};
use spindle_format::DiskStatus;
use spindle_sync::level::Unshown;

use crate::background::Group;
use crate::change::refusal;
use crate::core::disks::DiskState;
use crate::core::disks::disk_key;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::quorum::Standings;

impl Group {
    /// Forgets the disks that are being dropped or were given up and hold nothing any more, and
    /// cuts the disks that are to be smaller and have nothing behind their end; labels follow.
    /// Returns those that were forgotten. `front` calls it when a pass of the rebalance has ended;
    /// cheap where there is nothing to do.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where a step cannot be made durable; the next call goes on.
    pub fn forget_empty_disks(&self) -> Result<Vec<DiskNumber>, GroupError> {
        let _one = self.disk_changes.lock(Unshown);
        self.check_fence()?;
        self.finish_resizes()?;
        self.membership.bring_labels_up_to_date();
        let leaving = self.leaving_disks();
        if leaving.is_empty() {
            self.tell_of_kept(None);
            return Ok(Vec::new());
        }
        // What was moved away is free only when that is durable.
        if leaving.iter().any(|disk| self.holds_only_quarantine(*disk)) {
            self.commit_everything()?;
        }
        let mut empty: Vec<DiskNumber> = Vec::new();
        let mut kept = None;
        for disk in leaving {
            if self.extent_blocks(disk) > 0 {
                continue;
            }
            // Whoever still has a placement from before the drop finds no room there now.
            self.space.end_disk(disk, 0);
            if self.extent_blocks(disk) > 0 {
                self.restore_end(disk);
                continue;
            }
            if self.catalog_aus()(disk) > 0
                && let Err(why) = self.clear_replica(disk)
            {
                self.keep_fence(self.membership.check())?;
                // It serves on, and the catalog that grows needs room on it as on the others.
                self.restore_end(disk);
                kept = Some(format!(
                    "{} is empty and cannot leave yet: it holds a replica of the catalog \
                     that no other disk can have ({why}); remove files or add a disk",
                    self.disks.describe(disk)
                ));
                continue;
            }
            self.assert_unnamed(disk)?;
            self.forget_bad_runs(disk);
            empty.push(disk);
        }
        self.tell_of_kept(kept);
        if !empty.is_empty() {
            self.forget_disks(&empty)?;
        }
        Ok(empty)
    }

    /// Why an empty disk cannot leave stands in the listing of operations; it is an event when it
    /// is new.
    fn tell_of_kept(&self, why: Option<String>) {
        let told = self.background.set_kept_for(why.clone());
        if let Some(why) = why.filter(|why| told.as_ref() != Some(why)) {
            self.event(Event::new(EventKind::RebalanceStopped, why));
        }
    }

    /// Disks that are on their way out.
    fn leaving_disks(&self) -> Vec<DiskNumber> {
        let state = self.membership.state();
        (state.disks.iter())
            .filter(|disk| matches!(disk.status, DiskStatus::Dropping | DiskStatus::Absent))
            .map(|disk| disk.number)
            .collect()
    }

    /// Bad runs behind the disk's end need not be kept from anybody any more.
    pub(crate) fn forget_bad_runs(&self, disk: DiskNumber) {
        let _change = self.change();
        let from_block = self.space.end_block(disk);
        let runs = self.bad_runs.forget(disk, from_block, |edit| {
            self.catalog.apply(edit);
        });
        for run in runs {
            self.space.give_back(run);
        }
    }

    /// Blocks of the disk that extents take, or took until a batch that is not durable yet.
    fn extent_blocks(&self, disk: DiskNumber) -> u64 {
        let bad: u64 = (self.bad_runs.all().iter())
            .filter(|run| run.disk == disk)
            .map(|run| 1_u64 << run.class)
            .sum();
        let used = self.space.used_blocks(disk);
        let catalog = self.catalog_aus()(disk) * self.membership.au_size().blocks();
        used.saturating_sub(catalog + bad)
    }

    fn holds_only_quarantine(&self, disk: DiskNumber) -> bool {
        let quarantined = self.space.quarantined_blocks(disk);
        quarantined > 0 && self.extent_blocks(disk) <= quarantined
    }

    /// Blocks of the disk that maps name.
    fn named_blocks(&self, disk: DiskNumber) -> u64 {
        let mut blocks = 0;
        for file in self.all_files() {
            let map = file.map.read();
            map.for_each(0, u32::MAX, |_, extent| {
                for copy in extent.present().filter(|copy| copy.disk() == disk) {
                    blocks += 1_u64 << copy.class();
                }
            });
        }
        blocks
    }

    /// Free space and maps agree that nothing lies there: else data would be lost.
    fn assert_unnamed(&self, disk: DiskNumber) -> Result<(), GroupError> {
        let blocks = self.named_blocks(disk);
        if blocks == 0 {
            return Ok(());
        }
        Err(refusal(
            GroupErrorKind::Corrupt,
            format!(
                "disk {disk} counts as empty, and maps name {blocks} blocks of it: it is not \
                 dropped; check the group"
            ),
        )
        .on_disk(disk))
    }

    fn forget_disks(&self, empty: &[DiskNumber]) -> Result<(), GroupError> {
        let titles: Vec<String> = empty
            .iter()
            .map(|disk| self.disks.describe(*disk))
            .collect();
        self.membership.forget(empty)?;
        // A replica that a failing disk lost in the state just now is given back while the disk's
        // space is there to take it.
        self.region.forget_offline();
        let mut edit = Edit::default();
        for (disk, title) in empty.iter().zip(titles) {
            let slot = self.disks.get(*disk).and_then(DiskState::slot);
            self.free_slots.lock().extend(slot);
            self.disks.forget(*disk);
            self.space.forget_disk(*disk);
            self.dirty.forget_disk(*disk);
            edit.delete(Table::Disk, disk_key(*disk));
            self.event(
                Event::new(
                    EventKind::DiskDropped,
                    format!("{title} holds nothing any more and was dropped"),
                )
                .disk(*disk),
            );
        }
        self.rebuild_placement();
        self.commit_edit(edit)
    }

    /// Disks that are to be smaller and have nothing behind their end any more become so.
    fn finish_resizes(&self) -> Result<(), GroupError> {
        let au_bytes = self.membership.au_size().bytes();
        let pending = |number: DiskNumber, size_aus: u32| {
            let end_bytes = self.disks.get(number)?.total_bytes();
            let end_aus = u32::try_from(end_bytes / au_bytes).ok()?;
            (end_aus < size_aus).then_some((number, end_aus))
        };
        let state = self.membership.state();
        let pending: Vec<(DiskNumber, u32)> = (state.disks.iter())
            .filter(|disk| disk.status == DiskStatus::Online)
            .filter_map(|disk| pending(disk.number, disk.size_aus))
            .collect();
        if pending.is_empty() {
            return Ok(());
        }
        // What was moved away from there is free only when that is durable.
        self.commit_everything()?;
        for (disk, _) in &pending {
            self.forget_bad_runs(*disk);
        }
        let sizes_aus: Vec<(DiskNumber, u32)> = (pending.into_iter())
            .filter(|(disk, _)| !self.space.is_used_behind_end(*disk))
            .collect();
        if sizes_aus.is_empty() {
            return Ok(());
        }
        self.membership.change_standings(&Standings {
            sizes_aus: sizes_aus.clone(),
            ..Standings::default()
        })?;
        for (disk, size_aus) in sizes_aus {
            let size_bytes = u64::from(size_aus) * au_bytes;
            self.space.resize_disk(disk, size_bytes);
        }
        Ok(())
    }
}
