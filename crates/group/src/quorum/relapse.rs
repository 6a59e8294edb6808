//! Disks that serve and show an older image of themselves: a snapshot or a backup that was written
//! back below the open group, or a disk that said "durable" of what it then dropped.
//!
//! What proves it is whole, the group's own, and older than what the disk has taken durably since:
//! - an earlier mark of this very opening in a voter's opener record, at which each beat and each new
//!   state looks before it is written over. A mark of another opening proves nothing: who is delayed on
//!   its way to a disk may write one over ours, see `contest.rs`;
//! - two of three: the states in both slots, and the opener record, of whichever opening. Whoever is
//!   delayed writes over one.
//!
//! A disk that lost this may have lost anything, so nothing that it holds is relied on. It goes offline,
//! and the same state says that it lost all of it; as one that was found so at an opening (`set_back.rs`)
//! it does not come back while this opening lasts.
//!
//! Where the group cannot do without it, it serves on, because nobody else can, and this is told once;
//! it goes as soon as the others bear that, and whatever takes it offline before has lost all of it too.
//! It is remembered by this process alone. The next process knows of it where nothing was written since
//! over what shows it, and leaves it out then, or is refused where the group cannot do without it.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_format::{GroupState, Lost, OPENER_BYTES, OPENER_PLACE, OpenerRecord};

use crate::error::GroupError;
use crate::event::EventKind;
use crate::quorum::claim::is_same_opening;
use crate::quorum::look::{DiskLook, SlotFound, look};
use crate::quorum::publish::{Quorum, set_offline};
use crate::quorum::set_back::NEVER_AGAIN;
use crate::quorum::{Inner, Membership};

/// A disk that was set back while it served.
#[derive(Debug)]
pub(super) struct SetBack {
    /// What shows it.
    why: String,
    /// The group could not do without it, and this was told.
    is_told: bool,
}

impl Inner {
    /// Every voter that serves has taken the opener record as it is.
    pub(super) fn hear_all(&mut self) {
        let mark = (self.opener.sequence, self.opener.heartbeats_count);
        let voters = (self.state.voters()).filter(|number| self.members.contains_key(number));
        self.heard.extend(voters.map(|number| (number, mark)));
    }

    /// Whether the voter's record is of this group and older than what it has taken durably, whoever
    /// wrote it.
    fn is_older_mark(&self, number: DiskNumber, found: &OpenerRecord) -> bool {
        let heard = self.heard.get(&number);
        found.group_uuid == self.opener.group_uuid
            && heard.is_some_and(|heard| (found.sequence, found.heartbeats_count) < *heard)
    }

    /// What shows that the disk was set back.
    pub(super) fn shows_relapse(&self, number: DiskNumber, look: &DiskLook) -> Option<String> {
        let member = self.members.get(&number)?;
        let older = |slot: usize, held: u64| match &look.states[slot] {
            SlotFound::State(state) if state.epoch < held => Some(format!(
                "its group state is of epoch {}, and it had taken that of epoch {held}",
                state.epoch
            )),
            _ => None,
        };
        let mark = (look.opener.as_ref()).filter(|found| self.is_older_mark(number, found));
        let older_mark = "its opener record is an older one than it had taken";
        if mark.is_some_and(|found| is_same_opening(found, &self.opener)) {
            return Some(older_mark.to_owned());
        }
        let shown = [
            older(member.held_slot, member.held_epoch),
            older(1 - member.held_slot, member.spare_epoch),
            mark.map(|_| older_mark.to_owned()),
        ];
        let shown: Vec<String> = shown.into_iter().flatten().collect();
        (shown.len() > 1).then(|| shown.join(", and "))
    }

    /// Disks that were set back and do not serve by `next` have lost all that they held.
    pub(super) fn lose_set_back(&self, next: &mut GroupState) {
        for number in self.set_back.keys() {
            let disk = next.disk_mut(*number);
            if let Some(disk) = disk.filter(|disk| !disk.status.is_served()) {
                disk.lost = Lost::EVERYTHING;
            }
        }
    }

    /// Whatever they show from now on, those that do not serve stay away.
    pub(super) fn keep_set_back_away(&mut self) {
        for number in self.set_back.keys() {
            let serves = (self.state.disk(*number)).is_some_and(|disk| disk.status.is_served());
            if let Some(member) = self.members.get_mut(number).filter(|_| !serves) {
                member.held_epoch = NEVER_AGAIN;
            }
        }
    }
}

impl Membership {
    /// Notes voters that answer and were set back, where their opener record shows something of it:
    /// whoever writes a state or a mark over what shows it looks first.
    pub(super) fn note_older_marks(&self, inner: &mut Inner) {
        let voters: Vec<(DiskNumber, DiskSlot)> = (inner.state.voters())
            .filter(|number| inner.heard.contains_key(number) && !self.is_silent(*number))
            .filter_map(|number| Some((number, self.slot(number)?)))
            .collect();
        let mut pages: Vec<AlignedBuffer> = (voters.iter())
            .map(|_| AlignedBuffer::zeroed(OPENER_BYTES))
            .collect();
        let mut batch: Vec<Request<'_>> = (voters.iter().zip(&mut pages))
            .map(|((_, slot), page)| Request::new(*slot, OPENER_PLACE, Work::Read(page)))
            .collect();
        self.run(&mut batch);
        let is_read: Vec<bool> = (batch.iter())
            .map(|request| request.result.is_ok())
            .collect();
        drop(batch);
        let read = (voters.iter().zip(&pages).zip(is_read)).filter(|(_, is_read)| *is_read);
        let older: Vec<(DiskNumber, DiskSlot)> = read
            .filter(|((voter, page), _)| {
                let found = OpenerRecord::parse(page, OPENER_PLACE);
                found.is_ok_and(|found| inner.is_older_mark(voter.0, &found))
            })
            .map(|((voter, _), _)| *voter)
            .collect();
        for (number, slot) in older {
            let looks = look(&*self.disks, &[slot]);
            let why = looks
                .first()
                .and_then(|look| inner.shows_relapse(number, look));
            if let Some(why) = why {
                self.note_set_back(inner, number, why);
            }
        }
    }

    /// Whether the disk was set back, and serves until the group can do without it. Cheap.
    pub(crate) fn is_set_back(&self, number: DiskNumber) -> bool {
        self.hanging.is_set_back(number)
    }

    /// The disk was set back, as `why` shows: it goes by the next heartbeat.
    pub(super) fn note_set_back(&self, inner: &mut Inner, number: DiskNumber, why: String) {
        self.hanging.note_set_back(number);
        (inner.set_back.entry(number)).or_insert(SetBack {
            why,
            is_told: false,
        });
    }

    /// Takes disks offline that were set back while they served, where the group can do without them.
    ///
    /// # Errors
    /// As [`Membership::take_offline`].
    pub(crate) fn give_up_set_back(&self) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let numbers: Vec<DiskNumber> = (inner.set_back.keys().copied())
            .filter(|number| self.is_online(*number))
            .collect();
        for number in numbers {
            self.refuse_stopped(inner)?;
            let disks = BTreeSet::from([number]);
            let going = self.hanging.reserve_set_back(number);
            let title = format!(
                "group {}: disk {}",
                inner.state.group_name,
                self.disk_title(number)
            );
            let Some(found) = inner.set_back.get_mut(&number) else {
                continue;
            };
            let why = &found.why;
            let Some(_going) = going else {
                if !std::mem::replace(&mut found.is_told, true) {
                    let message = format!(
                        "{title} was set back to an older image while it served: {why}. The group \
                         cannot do without it now, so what is read there may be old; it goes offline \
                         as soon as the other disks have all that it should hold"
                    );
                    self.disk_event(EventKind::DamageFound, number, message);
                }
                continue;
            };
            let message = format!(
                "{title} goes offline: it was set back to an older image while it served: {why}; drop \
                 it with --force and add it as a new disk"
            );
            self.disk_event(EventKind::DiskOffline, number, message);
            let mut next = inner.state.clone();
            set_offline(&mut next, &disks);
            self.publish(inner, next, Quorum::Half)?;
            self.claim_new_voters(inner)?;
        }
        Ok(())
    }
}
