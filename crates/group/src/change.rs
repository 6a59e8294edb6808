//! Floor 6 of 7, above `background` and below `front`: the disks of an open group change. Added,
//! dropped, kept after all, replaced, resized, renamed, taken offline.
//!
//! What a person asks for in one go is judged whole, and refused before anything is written. Then
//! come, in this order: labels of disks that join; the catalog (records of the disks, and that a
//! rebalance is wanted); one group state; labels of disks that got smaller. A crash in between
//! leaves the group as it was or as it was asked to be; what is ahead of the state by then is put
//! right by the next opening ([`records`]), and asking again begins anew. A label that cannot be
//! made smaller is told of and written again later: the state counts.
//!
//! Moving data is not done here: the rebalance empties disks that are being dropped or end
//! earlier, and `front` calls [`Group::forget_empty_disks`] when it has.

pub(crate) mod estimate;
pub(crate) mod foresight;
pub(crate) mod forgetting;
pub(crate) mod judgement;
pub(crate) mod offline;
pub(crate) mod overdue;
pub(crate) mod records;
pub(crate) mod redundancy;
pub(crate) mod rename;

pub use estimate::{DiskAfter, Estimate, Flow, PlannedChange, TimeAtPower};
pub(crate) use estimate::{DiskThen, Flows, Foreseen, foresee, stuck_blocks};

use spindle_base::{DiskNumber, Uuid};
use spindle_catalog::{Edit, Table};
use spindle_device::DiskSlot;
use spindle_format::DiskStatus;
use spindle_sync::level::{Holds, Unshown};

use crate::background::Group;
use crate::core::disks::NewDiskState;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::{Event, EventKind};
use crate::levels;
use crate::quorum::NewDisk;
use crate::quorum::{Joining, Standings};
use judgement::Judged;

/// Changes that become one group state and want one rebalance.
#[derive(Debug, Clone, Default)]
pub struct DiskChanges {
    /// Disks that join.
    pub add: Vec<NewDisk>,
    /// Disks that leave: what they hold is moved away first.
    pub drop: Vec<DiskNumber>,
    /// Disks of `drop` that are offline are given up, and what they hold is copied from others.
    pub force: bool,
    /// Disks that others take the place of, in the same failure group; those that are offline
    /// are given up.
    pub replace: Vec<(DiskNumber, NewDisk)>,
    /// Disks that are being dropped and are kept after all.
    pub undrop: Vec<DiskNumber>,
    /// Disks of which the group uses more or less from now on, in bytes.
    pub resize: Vec<(DiskNumber, u64)>,
}

impl DiskChanges {
    /// Whether they may concern disks that are away, and mean that these are.
    fn concern_disks_away(&self) -> bool {
        self.force || !self.replace.is_empty() || !self.undrop.is_empty()
    }
}

impl Group {
    /// Makes the changes, durably; the numbers of the disks that joined: those of `add`, then
    /// those of `replace`.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] for a disk named twice, a name in use, a disk that is not in
    /// the standing that the change needs; [`GroupErrorKind::NotFound`] for a disk that is not
    /// there; [`GroupErrorKind::NotEnough`] where what remains cannot hold the data or its
    /// redundancy, with what is missing; [`GroupErrorKind::Io`] where a disk that joins cannot be
    /// written. Nothing has changed then.
    pub fn change_disks(&self, changes: &DiskChanges) -> Result<Vec<DiskNumber>, GroupError> {
        let one = self.disk_changes.lock(Unshown);
        // What is judged as away stays so: a disk that came back in between would be given up with
        // what was written to it since.
        let _no_return = changes
            .concern_disks_away()
            .then(|| self.returning.lock(&one));
        self.check_fence()?;
        let judged = self.judge_changes(changes)?;
        self.end_shrinking(&judged)?;
        (self.membership.label_joining(&judged.joining))
            .inspect_err(|_| self.restore_ends(&judged))?;
        let labels = judged
            .grown()
            .try_for_each(|(disk, size_bytes)| self.membership.label_size(disk, size_bytes));
        let _change = self.background.begin_change();
        let recorded = labels.and_then(|()| self.record_wish(&judged));
        if let Err(error) = recorded {
            self.membership.unlabel(&judged.joining);
            // A commit that failed may have left it applied, and the next one would make it durable.
            self.unrecord_disks(&judged);
            self.restore_ends(&judged);
            return Err(error);
        }
        let standings = Standings {
            joining: judged.joining.clone(),
            statuses: judged.statuses.clone(),
            sizes_aus: judged.final_sizes(&self.space),
        };
        if let Err(error) = self.change_standings(&judged, &standings, &one) {
            if self.membership.check().is_ok() {
                self.membership.unlabel(&judged.joining);
            }
            self.unrecord_disks(&judged);
            self.restore_ends(&judged);
            return Err(error);
        }
        self.follow_changes(&judged, &standings);
        // Again, because a rebalance may have looked at the state before it was this one. The change
        // stands, also where the catalog cannot be written now: the next commit tells that.
        let _ = self.rebalance();
        self.membership.bring_labels_up_to_date();
        Ok(judged.joining.iter().map(|disk| disk.number).collect())
    }

    /// Publishes the change. What a disk lost since it was judged, at the flush of the commit that
    /// recorded the wish, say, is noted and looked at once more, so that no last good copy is given up.
    fn change_standings(
        &self,
        judged: &Judged,
        standings: &Standings,
        one: &impl Holds<Level = levels::DiskChanges>,
    ) -> Result<(), GroupError> {
        let given_up = judged.given_up();
        if given_up.is_empty() {
            return self.membership.change_standings(standings);
        }
        self.notice_offline();
        // Alone, so that nothing is noted or comes to lie only there between the look and the state.
        let _alone = self.change.write(one);
        self.refuse_last_copies(&given_up, "be given up")?;
        self.membership.change_standings(standings)
    }

    /// Whether the changes could be made now: refuses what [`Group::change_disks`] refuses before
    /// it writes anything. Nothing changes.
    ///
    /// # Errors
    /// As [`Group::change_disks`].
    pub fn judge_disk_changes(&self, changes: &DiskChanges) -> Result<(), GroupError> {
        self.check_fence()?;
        self.judge_changes(changes).map(drop)
    }

    /// Adds disks; their numbers. The rebalance fills them.
    ///
    /// # Errors
    /// As [`Group::change_disks`].
    pub fn add_disks(&self, disks: &[NewDisk]) -> Result<Vec<DiskNumber>, GroupError> {
        self.change_disks(&DiskChanges {
            add: disks.to_vec(),
            ..DiskChanges::default()
        })
    }

    /// Drops disks: nothing new goes there, the rebalance empties them, and then the group
    /// forgets them. `force` gives up those that are offline.
    ///
    /// # Errors
    /// As [`Group::change_disks`].
    pub fn drop_disks(&self, disks: &[DiskNumber], force: bool) -> Result<(), GroupError> {
        let changes = DiskChanges {
            drop: disks.to_vec(),
            force,
            ..DiskChanges::default()
        };
        self.change_disks(&changes).map(drop)
    }

    /// Keeps disks that are being dropped.
    ///
    /// # Errors
    /// As [`Group::change_disks`].
    pub fn undrop_disks(&self, disks: &[DiskNumber]) -> Result<(), GroupError> {
        let changes = DiskChanges {
            undrop: disks.to_vec(),
            ..DiskChanges::default()
        };
        self.change_disks(&changes).map(drop)
    }

    /// Puts a new disk in the place of one that is here or away, in the same failure group; its
    /// number. One rebalance moves or restores what the old one holds.
    ///
    /// # Errors
    /// As [`Group::change_disks`], and [`GroupErrorKind::NotEnough`] for a smaller disk.
    pub fn replace_disk(&self, old: DiskNumber, new: &NewDisk) -> Result<DiskNumber, GroupError> {
        let numbers = self.change_disks(&DiskChanges {
            replace: vec![(old, new.clone())],
            ..DiskChanges::default()
        })?;
        Ok(numbers[0])
    }

    /// Uses `size_bytes` of the disk from now on: more, where the disk has grown, or less. What
    /// lies behind a smaller end is moved by the rebalance first, and the disk counts as smaller
    /// when [`Group::forget_empty_disks`] has found it so.
    ///
    /// # Errors
    /// As [`Group::change_disks`].
    pub fn resize_disk(&self, disk: DiskNumber, size_bytes: u64) -> Result<(), GroupError> {
        let changes = DiskChanges {
            resize: vec![(disk, size_bytes)],
            ..DiskChanges::default()
        };
        self.change_disks(&changes).map(drop)
    }

    /// The disk of this identity, if the group has one: here, away or on its way out.
    #[must_use]
    pub fn disk_of_uuid(&self, uuid: Uuid) -> Option<DiskNumber> {
        (self.membership.state().disks.iter())
            .find(|disk| uuid.0.starts_with(&disk.uuid_start))
            .map(|disk| disk.number)
    }

    /// How large the device of a disk is now, in bytes.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotFound`] where the disk is not there or not open,
    /// [`GroupErrorKind::Io`] where it does not tell.
    pub fn device_bytes(&self, disk: DiskNumber) -> Result<u64, GroupError> {
        let known = self.known_disk(disk)?;
        let Some(slot) = known.slot() else {
            return Err(refusal(
                GroupErrorKind::NotFound,
                format!("disk {} was not found", known.name()),
            ));
        };
        self.membership.disks().measure(slot).map_err(|error| {
            let title = self.disks.describe(disk);
            refusal(
                GroupErrorKind::Io,
                format!("{title} does not tell its size"),
            )
            .during(Operation::Measure)
            .on_disk(disk)
            .because(error)
        })
    }

    /// The slots of disks that were forgotten since the last call: nobody uses them any more.
    pub fn take_free_slots(&self) -> Vec<DiskSlot> {
        std::mem::take(&mut *self.free_slots.lock())
    }

    /// Where the disk ends or is about to end: what lies at this block or behind it is to be moved away.
    #[must_use]
    pub fn end_block(&self, disk: DiskNumber) -> u64 {
        self.space.end_block(disk)
    }

    /// Takes a disk's record and the wish into the catalog, durably.
    fn record_wish(&self, judged: &Judged) -> Result<(), GroupError> {
        let mut edit = Edit::default();
        for joining in &judged.joining {
            let disk = &joining.disk;
            let record = records::of_new(disk, joining.size_aus);
            edit.put(
                Table::Disk,
                crate::core::disks::disk_key(joining.number),
                record.encode(),
            );
        }
        for (disk, size_aus) in &judged.sizes_aus {
            self.record_size(&mut edit, *disk, *size_aus)?;
        }
        self.commit_wish(edit, None)
    }

    /// The state was refused: the records of disks that did not join go with the next commit.
    fn unrecord_disks(&self, judged: &Judged) {
        let mut edit = Edit::default();
        for joining in &judged.joining {
            edit.delete(Table::Disk, crate::core::disks::disk_key(joining.number));
        }
        let au_bytes = self.membership.au_size().bytes();
        for (disk, _) in &judged.sizes_aus {
            // Not the size of the state, which one that is about to get smaller has still.
            let known = self.disks.get(*disk);
            let size_aus =
                known.and_then(|known| u32::try_from(known.total_bytes() / au_bytes).ok());
            if let Some(size_aus) = size_aus {
                // What cannot be read now is put right by the next opening.
                let _ = self.record_size(&mut edit, *disk, size_aus);
            }
        }
        let _change = self.change();
        self.catalog.apply(edit);
    }

    /// The state has changed: memory follows.
    fn follow_changes(&self, judged: &Judged, standings: &Standings) {
        let au_bytes = self.membership.au_size().bytes();
        for joining in &judged.joining {
            let size_bytes = u64::from(joining.size_aus) * au_bytes;
            self.space.add_disk(joining.number, size_bytes);
            self.disks.add(entry(joining, size_bytes));
        }
        for (disk, size_aus) in &judged.sizes_aus {
            let size_bytes = u64::from(*size_aus) * au_bytes;
            self.disks.set_total_bytes(*disk, size_bytes);
            if standings.sizes_aus.iter().any(|(other, _)| other == disk) {
                self.space.resize_disk(*disk, size_bytes);
            }
        }
        for (disk, status) in &judged.statuses {
            if matches!(status, DiskStatus::Online | DiskStatus::Offline) {
                self.restore_end(*disk);
            }
        }
        self.rebuild_placement();
        self.tell_changes(judged);
    }

    fn tell_changes(&self, judged: &Judged) {
        let tell = |kind, disk, what: &str| {
            let title = self.disks.describe(disk);
            self.event(Event::new(kind, format!("{title} {what}")).disk(disk));
        };
        for joining in &judged.joining {
            tell(EventKind::DiskAdded, joining.number, "was added");
        }
        for (disk, status) in &judged.statuses {
            match status {
                DiskStatus::Dropping => tell(
                    EventKind::DiskDropping,
                    *disk,
                    "is being dropped: what it holds is moved away first",
                ),
                DiskStatus::Absent => tell(
                    EventKind::DiskAbsent,
                    *disk,
                    "is given up: what it held is copied from the other copies",
                ),
                _ => tell(EventKind::DiskUndropped, *disk, "is kept after all"),
            }
        }
        for (disk, size_aus) in &judged.sizes_aus {
            tell(
                EventKind::DiskResized,
                *disk,
                &format!("has {size_aus} AUs of {}", self.membership.au_size()),
            );
        }
    }
}

fn entry(joining: &Joining, total_bytes: u64) -> NewDiskState {
    NewDiskState {
        number: joining.number,
        name: joining.disk.name.clone(),
        failure_group: joining.disk.failure_group.clone(),
        group_index: joining.failure_group,
        slot: Some(joining.disk.slot),
        total_bytes,
        holds_data: true,
    }
}

/// A refusal: nothing has changed.
fn refusal(kind: GroupErrorKind, message: impl Into<String>) -> GroupError {
    GroupError::new(kind, message)
}

#[cfg(test)]
mod tests;
