//! How long disks are away, and what becomes of those that stay away too long.
//!
//! Since when a disk is away, the last group state that it held, and whether a person took it
//! offline stand in the catalog, an attribute for each such disk. Its repair time counts while
//! the group is open: a group that was closed for a week gives its disks the time that was left.
//! A disk that was being dropped when it went has a minute: long enough for a path that blinks.
//! When it is over the disk is given up: the group state calls it absent, and what it held is
//! copied from the other copies. The time is written back every ten minutes, so a crash gives a
//! disk that much more at most.

use spindle_sync::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_catalog::{Edit, Table};
use spindle_format::DiskStatus;

use crate::background::Group;
use crate::core::disks::{Away, away_key};
use crate::error::{GroupError, GroupErrorKind};

/// The longest repair time of a disk that was being dropped when it went, in seconds.
const LEAVING_REPAIR_S: u64 = 60;
/// Repair time of a disk where nothing else was set, in seconds.
const DISK_REPAIR_S: u64 = 12 * 3600;
/// The same of a whole failure group.
const FAILURE_GROUP_REPAIR_S: u64 = 24 * 3600;
/// The longest that can be set: ten years.
const REPAIR_MOST_S: u64 = 10 * 365 * 86_400;
/// Time between two looks counts at most this much: clocks are set, machines sleep.
const TICK_MOST_S: u64 = 60;
/// How often the time that a disk was away is written back.
const WRITE_BACK_S: u64 = 600;

/// Whose repair time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairTime {
    /// That of a disk whose neighbours in its failure group are here.
    Disk,
    /// That of a failure group of which no disk is here.
    FailureGroup,
}

impl RepairTime {
    const fn key(self) -> &'static [u8] {
        match self {
            Self::Disk => b"disk_repair_time",
            Self::FailureGroup => b"failgroup_repair_time",
        }
    }
}

/// What is remembered of disks that are away, beyond what is written.
#[derive(Debug, Default)]
pub struct AwayClock {
    last_s: Option<u64>,
    counted_s: BTreeMap<DiskNumber, u64>,
    /// Disks that a person takes offline, or took: whoever notes the outage notes that.
    by_hand: BTreeSet<DiskNumber>,
    /// Disks that could not be given up, and why: told once.
    pub(crate) told: BTreeMap<DiskNumber, String>,
}

impl Group {
    /// How long a disk, or a whole failure group, may be away before it is given up, in seconds.
    pub fn repair_time(&self, of: RepairTime) -> u64 {
        let row = self.catalog.get(Table::Attribute, of.key()).ok().flatten();
        let text = row.and_then(|bytes| String::from_utf8(bytes).ok());
        let set = text.and_then(|text| text.parse().ok());
        set.unwrap_or(match of {
            RepairTime::Disk => DISK_REPAIR_S,
            RepairTime::FailureGroup => FAILURE_GROUP_REPAIR_S,
        })
    }

    /// Sets it, durably; disks that are away already are judged by it too.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] beyond ten years; as [`Core::sync`](crate::core::Core::sync).
    pub fn set_repair_time(&self, of: RepairTime, seconds: u64) -> Result<(), GroupError> {
        if seconds > REPAIR_MOST_S {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                "a repair time is at most ten years",
            ));
        }
        self.check_fence()?;
        let mut edit = Edit::default();
        let value = seconds.to_string().into_bytes();
        edit.put(Table::Attribute, of.key().to_vec(), value);
        let sequence = {
            let _change = self.change_inside();
            self.catalog.apply(edit)
        };
        self.commit_through(sequence)
    }

    /// The disk's outage as it is recorded; `None` where the disk is online or nothing is recorded yet.
    pub(crate) fn away(&self, disk: DiskNumber) -> Option<Away> {
        let offline_epoch = self.membership.offline_epoch(disk)?;
        Away::of_outage(&self.catalog, disk, offline_epoch).ok()?
    }

    /// Which group state each disk that is away held last before it went, by its epoch, where that was
    /// noted.
    pub(crate) fn held_epochs(&self) -> impl Fn(DiskNumber) -> Option<u64> {
        let away = self.away_disks().into_iter();
        let held: BTreeMap<DiskNumber, u64> = away
            .filter_map(|disk| Some((disk, self.away(disk)?.held_epoch)))
            .collect();
        move |disk| held.get(&disk).copied()
    }

    /// How much of its repair time a disk that is away has left, in seconds.
    pub fn repair_time_left(&self, disk: DiskNumber) -> Option<u64> {
        if self.membership.status(disk) != Some(DiskStatus::Offline) {
            return None;
        }
        let written_s = self.away(disk).map_or(0, |away| away.counted_s);
        let known_s = self.away_clock.lock().counted_s.get(&disk).copied();
        let counted_s = known_s.unwrap_or(written_s);
        Some(self.repair_limit(disk).saturating_sub(counted_s))
    }

    fn repair_limit(&self, disk: DiskNumber) -> u64 {
        let group = self.disks.get(disk).map(|disk| disk.group_index);
        let is_alone = (self.disks.iter())
            .filter(|other| Some(other.group_index) == group && other.holds_data)
            .all(|other| !other.is_online());
        let limit_s = self.repair_time(if is_alone {
            RepairTime::FailureGroup
        } else {
            RepairTime::Disk
        });
        if self.membership.leaves(disk) {
            limit_s.min(LEAVING_REPAIR_S)
        } else {
            limit_s
        }
    }

    /// A person takes these disks offline: they do not come back by themselves. Said before they go.
    pub(crate) fn begin_by_hand(&self, disks: &[DiskNumber]) {
        self.away_clock.lock().by_hand.extend(disks);
    }

    /// They did not go by a person's wish. One that went by itself meanwhile comes back by itself.
    pub(crate) fn end_by_hand(&self, disks: &[DiskNumber]) {
        (self.away_clock.lock().by_hand).retain(|disk| !disks.contains(disk));
        let mut edit = Edit::default();
        for disk in disks {
            if let Some(mut away) = self.away(*disk).filter(|away| away.by_hand) {
                away.by_hand = false;
                edit.put(Table::Attribute, away_key(*disk), away.encode());
            }
        }
        if !edit.is_empty() {
            let _change = self.change_inside();
            self.catalog.apply(edit);
        }
    }

    /// Notes that a person took these disks offline.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where that could not be noted; they are offline all the same.
    pub(crate) fn note_by_hand(&self, disks: &[DiskNumber]) -> Result<(), GroupError> {
        self.note_away();
        for disk in disks {
            if self.away(*disk).is_none_or(|away| !away.by_hand) {
                return Err(GroupError::new(
                    GroupErrorKind::Io,
                    format!(
                        "{} is offline, and that it was taken offline by hand could not be noted: \
                         the next process may take it back by itself",
                        self.disks.describe(*disk)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether a person took the disk offline.
    pub(crate) fn is_by_hand(&self, disk: DiskNumber) -> bool {
        self.away_clock.lock().by_hand.contains(&disk)
            || self.away(disk).is_some_and(|away| away.by_hand)
    }

    /// The disk is online again.
    pub(crate) fn forget_away(&self, disk: DiskNumber) {
        {
            let mut clock = self.away_clock.lock();
            clock.counted_s.remove(&disk);
            clock.by_hand.remove(&disk);
        }
        let mut edit = Edit::default();
        edit.delete(Table::Attribute, away_key(disk));
        let _change = self.change_inside();
        self.catalog.apply(edit);
    }

    /// Notes since when disks are away, counts their time, and forgets it of those that are not.
    /// Not before it is noted what they missed: whoever takes over from a process that was killed
    /// takes the row for a word that it was.
    pub(crate) fn note_away(&self) {
        let now_s = self.now_s.load(Ordering::Relaxed);
        let mut edit = Edit::default();
        let mut clock = self.away_clock.lock();
        let tick_s = now_s
            .saturating_sub(clock.last_s.unwrap_or(now_s))
            .min(TICK_MOST_S);
        clock.last_s = Some(now_s);
        for state in self.disks.iter() {
            let disk = state.number;
            let Some(offline_epoch) = self.membership.offline_epoch(disk) else {
                let row = self.catalog.get(Table::Attribute, &away_key(disk));
                if row.is_ok_and(|row| row.is_some()) {
                    clock.counted_s.remove(&disk);
                    clock.told.remove(&disk);
                    edit.delete(Table::Attribute, away_key(disk));
                }
                continue;
            };
            let away = Away::of_outage(&self.catalog, disk, offline_epoch);
            match away.ok().flatten() {
                None if state.outage_to_note().is_some() => {}
                None => {
                    clock.counted_s.insert(disk, 0);
                    let away = Away {
                        since_s: now_s,
                        counted_s: 0,
                        held_epoch: self.membership.held_epoch(disk).unwrap_or(0),
                        by_hand: clock.by_hand.contains(&disk),
                        offline_epoch: Some(offline_epoch),
                    };
                    edit.put(Table::Attribute, away_key(disk), away.encode());
                }
                Some(mut away) => {
                    // Read before the note of a person's wish came into the row.
                    away.by_hand |= clock.by_hand.contains(&disk);
                    let counted_s = clock.counted_s.entry(disk).or_insert(away.counted_s);
                    *counted_s += tick_s;
                    let held_epoch = self.membership.held_epoch(disk).unwrap_or(0);
                    if *counted_s >= away.counted_s + WRITE_BACK_S || held_epoch > away.held_epoch {
                        away.counted_s = *counted_s;
                        away.held_epoch = away.held_epoch.max(held_epoch);
                        away.offline_epoch = Some(offline_epoch);
                        edit.put(Table::Attribute, away_key(disk), away.encode());
                    }
                }
            }
        }
        drop(clock);
        if !edit.is_empty() {
            let _change = self.change_inside();
            self.catalog.apply(edit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use spindle_base::DiskNumber;
    use spindle_device::DiskSlot;

    use crate::scene::Scene;

    #[test]
    fn since_when_a_disk_is_away_is_noted_after_what_it_missed() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let disk = DiskNumber(1);
        // By somebody who has not come to note it.
        let membership = &group.membership;
        membership.take_offline(&[disk], "it failed").unwrap();
        group.note_away();
        assert!(group.away(disk).is_none());
        group.notice_offline();
        group.note_away();
        assert!(group.away(disk).is_some());
    }

    #[test]
    fn whoever_notes_an_outage_notes_that_a_person_wanted_it() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let disk = DiskNumber(1);
        group.begin_by_hand(&[disk]);
        (group.membership).take_offline(&[disk], "by hand").unwrap();
        assert!(group.is_by_hand(disk), "before it is noted");
        group.notice_offline();
        // The daemon's round comes before whoever took it offline.
        group.note_away();
        assert!(group.away(disk).unwrap().by_hand);
        group.note_by_hand(&[disk]).unwrap();
        group.forget_away(disk);
        assert!(!group.is_by_hand(disk));
    }

    #[test]
    fn a_disk_that_went_by_itself_while_a_person_was_refused_is_not_offline_by_hand() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let disk = DiskNumber(1);
        group.begin_by_hand(&[disk]);
        (group.membership)
            .take_offline(&[disk], "it failed")
            .unwrap();
        group.notice_offline();
        group.note_away();
        group.end_by_hand(&[disk]);
        assert!(!group.is_by_hand(disk));
    }

    #[test]
    fn a_return_that_fails_begins_no_new_outage() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let (disk, slot) = (DiskNumber(1), DiskSlot(1));
        let membership = &group.membership;
        membership.take_offline(&[disk], "it failed").unwrap();
        group.notice_offline();
        group.begin_by_hand(&[disk]);
        group.note_by_hand(&[disk]).unwrap();
        group.now_s.fetch_add(30, Ordering::Relaxed);
        group.note_away();
        let noted = || {
            (
                membership.offline_epoch(disk),
                group.repair_time_left(disk),
                group.away(disk),
            )
        };
        let before = noted();
        assert!(before.2.unwrap().by_hand);
        for _ in 0..3 {
            scene.disks.fail_writes(slot, 0..u64::MAX, u64::MAX);
            assert_eq!(group.return_disks(&[slot]).unwrap(), []);
            group.note_away();
            assert_eq!(noted(), before);
            scene.disks.clear_faults(slot);
        }
        assert_eq!(group.return_disks(&[slot]).unwrap(), [disk]);
    }
}
