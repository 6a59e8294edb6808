//! Disks that come back: which may, and the state that names them online again.
//!
//! A disk that was away must be the one that went: its label, its identity, and the last state
//! that it held while it served. What may come back is decided before anything is written, and
//! the state that names it online counts only when every voter and the disk itself hold it; a
//! crash before leaves the disk offline.
//!
//! | found on the disk | done | test |
//! |---|---|---|
//! | another format where a copy of our label was | refused | `a_disk_that_another_format_overwrote_does_not_come_back` |
//! | our label, and the last state from before it went | it is online again | `a_disk_that_went_offline_comes_back` |
//! | our label, and no state was ever written to it: it went while it joined | it is online again | `a_disk_that_goes_at_any_request_of_its_joining_comes_back` |
//! | no label, or that of another group or disk | refused | `a_stranger_does_not_come_back` |
//! | the group has forgotten it, or given it up | refused: add it anew | `a_disk_that_was_given_up_does_not_come_back` |
//! | the group gives it up when it was looked at already | it stays away | `a_disk_that_is_given_up_between_its_look_and_its_return_stays_away` |
//! | a state from after it went, of voters that we do not have | refused: it went on without us | `the_half_that_went_on_by_itself_does_not_come_back` |
//! | a state from after it went, that a crash kept us from relying on | it is online again | `a_crash_at_any_request_of_a_return_leaves_a_disk_that_comes_back` |
//! | anything that a newer program wrote | refused | `a_disk_that_a_newer_program_wrote_does_not_come_back` |
//! | only states older than the last it held | refused: it was set back | `a_disk_that_was_set_back_does_not_come_back` |
//! | an older mark of this opening than it has taken as a voter; or any, beside an older state | refused: it was set back | `a_disk_that_was_set_back_to_an_image_of_the_same_state_does_not_come_back` |

use spindle_base::DiskNumber;
use spindle_device::DiskSlot;
use spindle_format::{DiskStatus, GroupState, Label, LabelStatus, Lost};

use crate::error::{GroupError, GroupErrorKind};
use crate::quorum::create::is_same_disk;
use crate::quorum::look::{DiskLook, LabelFound, SlotFound, look};
use crate::quorum::open::member;
use crate::quorum::publish::Quorum;
use crate::quorum::set_back::NEVER_AGAIN;
use crate::quorum::{Inner, Membership, refused};

/// A disk that may come back, and what was found on it.
#[derive(Debug)]
pub(crate) struct Returning {
    pub(crate) number: DiskNumber,
    pub(crate) slot: DiskSlot,
    /// What it lost while it was away.
    pub(crate) lost: Lost,
    look: DiskLook,
}

impl Membership {
    /// Judges the disks in `slots`; nothing is changed. `held_epoch` knows the epoch of the last
    /// state that a disk held before it went, where that was noted.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] where one of them may not come back: one line that says why.
    pub(crate) fn judge_return(
        &self,
        slots: &[DiskSlot],
        held_epoch: &dyn Fn(DiskNumber) -> Option<u64>,
    ) -> Result<Vec<Returning>, GroupError> {
        let looks = look(&*self.disks, slots);
        let inner = self.inner.lock();
        let mut returning: Vec<Returning> = Vec::new();
        for look in looks {
            let number = self
                .judge(&inner, &look, held_epoch)
                .map_err(|why| refused(GroupErrorKind::Invalid, format!("{} {why}", look.path)))?;
            if returning.iter().any(|other| other.number == number) {
                return Err(refused(
                    GroupErrorKind::Invalid,
                    format!("{} is disk {number} a second time", look.path),
                ));
            }
            returning.push(Returning {
                number,
                slot: look.slot,
                lost: (inner.state.disk(number)).map_or(Lost::NOTHING, |disk| disk.lost),
                look,
            });
        }
        Ok(returning)
    }

    /// The number of a disk that was looked at, or why it may not come back; see
    /// [`Self::judge_return`].
    pub(crate) fn judge_found(
        &self,
        look: &DiskLook,
        held_epoch: &dyn Fn(DiskNumber) -> Option<u64>,
    ) -> Result<DiskNumber, String> {
        let inner = self.inner.lock();
        self.judge(&inner, look, held_epoch)
            .map_err(|why| format!("{} {why}", look.path))
    }

    /// The disk's number, or why it may not come back.
    fn judge(
        &self,
        inner: &Inner,
        look: &DiskLook,
        held_epoch: &dyn Fn(DiskNumber) -> Option<u64>,
    ) -> Result<DiskNumber, String> {
        if let Some(why) = look.newer(self.uuid) {
            return Err(format!(
                "was written by a newer program ({why}): use that program"
            ));
        }
        let label = self.judge_label(inner, look)?;
        let (number, name) = (label.number, &inner.state.group_name);
        let Some(entry) = inner.state.disk(number) else {
            return Err(format!(
                "is disk {number}, which group {name} has dropped since: add it as a new disk"
            ));
        };
        if !is_same_disk(entry, label) {
            return Err(format!(
                "has another identity than disk {number} of group {name}"
            ));
        }
        match entry.status {
            DiskStatus::Offline => {}
            DiskStatus::Absent => {
                return Err(format!(
                    "is disk {number}, which group {name} has given up while it was away: add it \
                     as a new disk when its copies are made anew"
                ));
            }
            DiskStatus::Online | DiskStatus::Adding | DiskStatus::Dropping => {
                return Err(format!(
                    "is disk {number} of group {name}, which is online already"
                ));
            }
        }
        Self::judge_mark(inner, look, number)?;
        let held = held_epoch(number).max(inner.held_epoch(number));
        let Some(newest) = look.newest_state() else {
            let is_blank = |slot: &SlotFound| matches!(slot, SlotFound::Blank);
            if look.states.iter().all(is_blank) && held.is_none_or(|epoch| epoch == 0) {
                // It went between its label and the first state that names it: what has no state
                // was never opened without us.
                return Ok(number);
            }
            return Err(format!(
                "has no readable group state: nothing tells when disk {number} went away"
            ));
        };
        let shares_voter = |state: &GroupState| {
            (state.voters()).any(|voter| voter != number && self.is_online(voter))
        };
        if newest.epoch >= entry.status_epoch && !shares_voter(newest) {
            return Err(format!(
                "went on without the disks that are here (it holds epoch {}, and went away before \
                 epoch {}): its writes and theirs cannot be brought together",
                newest.epoch, entry.status_epoch
            ));
        }
        if let Some(held) = held
            && newest.epoch < held
        {
            let held = match held {
                NEVER_AGAIN => "was newer when the group was opened".to_owned(),
                held => format!("held {held} when it went away"),
            };
            // The state that it held may stand where nothing could be read.
            let unread = look.states.iter().find_map(|slot| match slot {
                SlotFound::Damaged(why) => Some(why),
                SlotFound::Blank | SlotFound::State(_) | SlotFound::Newer(_) => None,
            });
            if let Some(why) = unread {
                return Err(format!(
                    "shows one of its two group states only ({why}); the other is of epoch {}, \
                     and {held}: it is looked at again",
                    newest.epoch
                ));
            }
            return Err(format!(
                "was set back to an older image: it holds epoch {}, and {held}; drop disk \
                 {number} with --force and add it as a new disk",
                newest.epoch
            ));
        }
        Ok(number)
    }

    /// Refuses one that shows that it was set back, by its mark too: a state may be in force for weeks, a
    /// mark is not.
    fn judge_mark(inner: &Inner, look: &DiskLook, number: DiskNumber) -> Result<(), String> {
        match inner.shows_relapse(number, look) {
            None => Ok(()),
            Some(why) => Err(format!(
                "was set back to an older image: {why}; drop disk {number} with --force and add it as \
                 a new disk"
            )),
        }
    }

    fn judge_label<'a>(&self, inner: &Inner, look: &'a DiskLook) -> Result<&'a Label, String> {
        let name = &inner.state.group_name;
        let label = match &look.label {
            LabelFound::Good { label, .. } => label,
            LabelFound::None => return Err(format!("bears no label of group {name}")),
            LabelFound::Damaged(why) => {
                return Err(format!("has no copy of its label that is good: {why}"));
            }
            LabelFound::Overwritten(found) => return Err(format!("was overwritten: {found}")),
            LabelFound::Newer { why, .. } => {
                return Err(format!("was labelled by a newer program: {why}"));
            }
            LabelFound::Truncated { label } => {
                return Err(format!(
                    "is cut off: its label says {} bytes, and it has {}",
                    label.size_bytes, look.size_bytes
                ));
            }
        };
        if label.group_uuid != self.uuid {
            return Err(format!(
                "is a disk of group {} ({}), not of group {name}",
                label.group_name, label.group_uuid
            ));
        }
        if label.status != LabelStatus::Member {
            return Err(format!(
                "is no member of group {name} any more: add it as a new disk"
            ));
        }
        Ok(label)
    }

    /// Makes these disks online again, durably; gives those that are. A disk that cannot take the
    /// group state stays offline. What it missed, and what it lost, must be known, durably,
    /// before.
    ///
    /// # Errors
    /// Where too few voters take the state: the group stops.
    pub(crate) fn return_disks(
        &self,
        returning: &[Returning],
    ) -> Result<Vec<DiskNumber>, GroupError> {
        let mut inner = self.inner.lock();
        let mut next = inner.state.clone();
        for disk in returning {
            let Some(label) = disk.look.member() else {
                continue;
            };
            let entry = inner.state.disk(disk.number);
            if entry.is_none_or(|entry| entry.status != DiskStatus::Offline) {
                // It was given up or forgotten since it was judged.
                continue;
            }
            if entry.is_none_or(|entry| entry.lost != disk.lost) {
                // It was seen cut off since it was judged.
                continue;
            }
            let mut found = member(&disk.look, label, &inner.state);
            // What it shows beyond what is known may be left of a return that failed, and was never
            // durable there; one that shows less was refused.
            let known = inner.held_epoch(disk.number);
            found.held_epoch = known.unwrap_or(found.held_epoch);
            inner.members.insert(disk.number, found);
            self.come(disk.number, disk.slot);
            if let Some(entry) = next.disk_mut(disk.number) {
                entry.lost = Lost::NOTHING;
                entry.status = if std::mem::take(&mut entry.leaves) {
                    DiskStatus::Dropping
                } else {
                    DiskStatus::Online
                };
            }
        }
        self.begin_catching_up(returning.iter().map(|disk| disk.number));
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)?;
        drop(inner);
        // The group may have got another name, or use less of the disk, since it went.
        self.bring_labels_up_to_date();
        Ok((returning.iter().map(|disk| disk.number))
            .filter(|number| self.is_online(*number))
            .collect())
    }

    /// The epoch of the newest state that the disk held as far as we know.
    pub(crate) fn held_epoch(&self, number: DiskNumber) -> Option<u64> {
        self.inner.lock().held_epoch(number)
    }
}

impl Inner {
    fn held_epoch(&self, number: DiskNumber) -> Option<u64> {
        let member = self.members.get(&number).map(|member| member.held_epoch);
        member.or_else(|| self.away_held.get(&number).copied())
    }
}
