//! Disks that serve and show an older image of themselves: a snapshot or a backup that was written
//! back below the open group, or a disk that said "durable" of what it then dropped.
//!
//! What proves it is whole, the group's own, and older than what the disk has taken durably since:
//! - an earlier mark of this very opening in a voter's opener record. A mark of another opening proves
//!   nothing: who is delayed on its way to a disk may write one over ours, see `contest.rs`;
//! - two of three: the states in both slots, and the opener record, of whichever opening. Whoever is
//!   delayed writes over one.
//!
//! So what is written over was looked at before, where it can be read: a new state looks at all disks that serve by it,
//! a beat at the marks of the voters. What cannot be read is written unseen, where that counts, and so is
//! what goes to a disk that owes an answer.
//!
//! A disk that lost this may have lost anything, so nothing that it holds is relied on. It goes offline
//! by the very state, or before the very mark, at which it was seen: that is not written to it, so whoever
//! follows a kill sees what we saw. The same state says that it lost all of it; as one that was found so
//! at an opening (`set_back.rs`) it does not come back while this opening lasts.
//!
//! Where the group cannot do without it, it serves on, because nobody else can, and this is told once;
//! it goes as soon as the others bear that, and whatever takes it offline before has lost all of it too.
//! It is remembered by this process alone. The next process knows of it where nothing was written since
//! over what shows it, and leaves it out then, or is refused where the group cannot do without it.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Request, Work};
use spindle_format::{
    GroupState, Lost, OPENER_BYTES, OPENER_PLACE, OpenerRecord, ParsedGroupState, STATE_PLACES,
};

use crate::error::GroupError;
use crate::event::EventKind;
use crate::quorum::claim::is_same_opening;
use crate::quorum::hanging::Going;
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

/// Voters whose marks may be written over: [`Membership::look_at_marks`] alone makes them.
#[derive(Debug)]
pub(super) struct LookedAt {
    pub(super) voters: BTreeSet<DiskNumber>,
    /// Those whose mark could not be read, but for bad sectors.
    pub(super) unread: BTreeSet<DiskNumber>,
}

/// What was read in the opener's place.
type Marks = Vec<(DiskNumber, AlignedBuffer)>;
/// Disks that failed, and why.
type Failures = Vec<(DiskNumber, DeviceError)>;

/// Something that a disk has taken durably.
#[derive(Debug, Clone, Copy)]
enum Taken {
    /// The group state of that epoch, in that slot.
    State(usize, u64),
    /// The mark of that opening and beat.
    Mark(u64, u64),
}

impl Taken {
    const fn place(self) -> u64 {
        match self {
            Self::State(slot, _) => STATE_PLACES[slot],
            Self::Mark(..) => OPENER_PLACE,
        }
    }

    /// Whether these are the first bytes of it, as far as they can tell.
    fn is_shown_by(self, page: &[u8]) -> bool {
        match self {
            Self::State(_, epoch) => ParsedGroupState::likely_epoch(page) == Some(epoch),
            Self::Mark(sequence, heartbeats_count) => OpenerRecord::parse(page, OPENER_PLACE)
                .is_ok_and(|found| {
                    (found.sequence, found.heartbeats_count) == (sequence, heartbeats_count)
                }),
        }
    }
}

impl Inner {
    /// What the disk has taken durably and can show.
    fn taken(&self, number: DiskNumber) -> Vec<Taken> {
        let member = self.members.get(&number).map(|member| {
            let spare = (member.spare_epoch > 0)
                .then_some(Taken::State(1 - member.held_slot, member.spare_epoch));
            (Taken::State(member.held_slot, member.held_epoch), spare)
        });
        let (held, spare) = member.unzip();
        let mark = self
            .heard
            .get(&number)
            .map(|(sequence, beats)| Taken::Mark(*sequence, *beats));
        held.into_iter()
            .chain(spare.flatten())
            .chain(mark)
            .collect()
    }

    /// The voters that are here.
    pub(super) fn voters_here(&self) -> BTreeSet<DiskNumber> {
        (self.state.voters())
            .filter(|number| self.members.contains_key(number))
            .collect()
    }

    /// Those that have not taken the opener record as it is.
    pub(super) fn unaware_voters(&self) -> BTreeSet<DiskNumber> {
        let mut voters = self.voters_here();
        let mark = (self.opener.sequence, self.opener.heartbeats_count);
        voters.retain(|number| self.heard.get(number) != Some(&mark));
        voters
    }

    /// The voters have taken the opener record as it is.
    pub(super) fn hear(&mut self, voters: impl Iterator<Item = DiskNumber>) {
        let mark = (self.opener.sequence, self.opener.heartbeats_count);
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
    /// Looks at the disks that a state is about to be written to, and notes those that were set back. Of
    /// one without a vote its two states are all that can show it. Those that hang are written to unseen:
    /// nobody waits for them twice.
    pub(super) fn look_at_structures(&self, inner: &mut Inner, next: &GroupState) {
        let seen: Vec<(DiskNumber, DiskSlot)> = (inner.members.iter())
            .filter(|(number, member)| {
                // One that joins, or that has taken one state of this opening, shows too little.
                let may_show = member.spare_epoch > 0 || inner.heard.contains_key(number);
                may_show && self.serves(next, **number) && !self.hangs(**number)
            })
            .filter_map(|(number, _)| Some((*number, self.slot(*number)?)))
            .collect();
        let changed = self.differ(inner, &seen);
        let slots: Vec<DiskSlot> = changed.iter().map(|(_, slot)| *slot).collect();
        let looks = look(&*self.disks, &slots);
        for ((number, _), look) in changed.into_iter().zip(&looks) {
            if let Some(why) = inner.shows_relapse(number, look) {
                self.note_set_back(inner, number, why);
            }
        }
    }

    /// Those of the disks whose states or mark are not by their first bytes what they have taken, or
    /// lie on bad sectors. A whole state has an entry for each disk of the group. Whoever does not answer
    /// shows nothing, and is not asked for more: its size may be asked for without a deadline.
    fn differ(
        &self,
        inner: &Inner,
        disks: &[(DiskNumber, DiskSlot)],
    ) -> Vec<(DiskNumber, DiskSlot)> {
        let mut pages: Vec<(usize, Taken, AlignedBuffer)> = Vec::new();
        for (at, (number, _)) in disks.iter().enumerate() {
            let taken = inner.taken(*number).into_iter();
            pages.extend(taken.map(|taken| (at, taken, AlignedBuffer::zeroed(OPENER_BYTES))));
        }
        let mut batch: Vec<Request<'_>> = (pages.iter_mut())
            .map(|(at, taken, page)| Request::new(disks[*at].1, taken.place(), Work::Read(page)))
            .collect();
        self.run(&mut batch);
        let answers: Vec<_> = batch.into_iter().map(|request| request.result).collect();
        let changed: BTreeSet<usize> = (pages.iter().zip(answers))
            .filter(|((_, taken, page), answer)| match answer {
                Ok(()) => !taken.is_shown_by(page),
                Err(error) => error.kind == DeviceErrorKind::Medium,
            })
            .map(|((at, ..), _)| *at)
            .collect();
        changed.into_iter().map(|at| disks[at]).collect()
    }

    /// Whether the disk was set back, and serves until the group can do without it. Cheap.
    pub(crate) fn is_set_back(&self, number: DiskNumber) -> bool {
        self.hanging.is_set_back(number)
    }

    /// Reads the opener records of `asked` that are about to be written over, and notes disks that were
    /// set back. One that cannot be read is read again: a path that blinks gives the same bytes a moment
    /// later. What cannot be read then shows nothing; whether the disk is well, the write decides. Those
    /// that owe an answer are not asked: no heartbeat that counts comes to them.
    pub(super) fn look_at_marks(&self, inner: &mut Inner, asked: BTreeSet<DiskNumber>) -> LookedAt {
        let heard = (asked.iter())
            .filter(|number| inner.heard.contains_key(number) && !self.is_silent(**number));
        let (read, failed) = self.read_marks(heard.copied());
        // One that was given up answers at once.
        let (read_again, unread) = self.read_marks(failed.iter().map(|(number, _)| *number));
        for (number, page) in read.into_iter().chain(read_again) {
            let found = OpenerRecord::parse(&page, OPENER_PLACE);
            let slot = (self.slot(number))
                .filter(|_| found.is_ok_and(|found| inner.is_older_mark(number, &found)));
            let looks = slot.map_or_else(Vec::new, |slot| look(&*self.disks, &[slot]));
            let why = (looks.first()).and_then(|look| inner.shows_relapse(number, look));
            if let Some(why) = why {
                self.note_set_back(inner, number, why);
            }
        }
        let is_other = |(_, why): &&(DiskNumber, DeviceError)| why.kind != DeviceErrorKind::Medium;
        let unread = unread.iter().filter(is_other);
        LookedAt {
            unread: unread.map(|(number, _)| *number).collect(),
            voters: asked,
        }
    }

    /// The opener records of those that can be read, and why others cannot.
    fn read_marks(&self, numbers: impl Iterator<Item = DiskNumber>) -> (Marks, Failures) {
        let mut pages: Marks = numbers
            .map(|number| (number, AlignedBuffer::zeroed(OPENER_BYTES)))
            .collect();
        if pages.is_empty() {
            return (pages, Vec::new());
        }
        let requests = (pages.iter_mut())
            .map(|(number, page)| (*number, OPENER_PLACE, Work::Read(&mut page[..])));
        let failed = self.run_at_members(requests);
        pages.retain(|(number, _)| failed.iter().all(|(other, _)| other != number));
        (pages, failed)
    }

    /// The disk was set back, as `why` shows: it goes by the next state or heartbeat.
    pub(super) fn note_set_back(&self, inner: &mut Inner, number: DiskNumber, why: String) {
        self.hanging.note_set_back(number);
        self.keep_clients_off();
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
        let is_served = |number: &DiskNumber| self.is_online(*number);
        if !inner.set_back.keys().any(is_served) {
            return Ok(());
        }
        self.refuse_stopped(&mut inner)?;
        match self.publish_without_set_back(&mut inner, Quorum::Half)? {
            true => self.claim_new_voters(&mut inner),
            false => Ok(()),
        }
    }

    /// Publishes a state without the disks that were set back, where there are any that can go: whether
    /// there were.
    pub(super) fn publish_without_set_back(
        &self,
        inner: &mut Inner,
        quorum: Quorum,
    ) -> Result<bool, GroupError> {
        let mut next = inner.state.clone();
        let going = self.leave_out_set_back(inner, &mut next);
        if going.is_empty() {
            return Ok(false);
        }
        self.publish(inner, next, quorum)?;
        Ok(true)
    }

    /// Takes disks that were set back out of a state that is to be tried, where the group can do without
    /// them: the state that tells of it is not written there, and a kill leaves what shows it. They go as
    /// long as the answer lives.
    pub(super) fn leave_out_set_back(
        &self,
        inner: &mut Inner,
        next: &mut GroupState,
    ) -> Vec<Going<'_>> {
        let mut all_going = Vec::new();
        for (number, found) in &mut inner.set_back {
            if !self.serves(next, *number) {
                continue;
            }
            let title = format!(
                "group {}: disk {}",
                next.group_name,
                self.disk_title(*number)
            );
            let why = &found.why;
            let going = self.hanging.reserve_set_back(*number);
            if going.is_none() && self.is_online(*number) {
                if !std::mem::replace(&mut found.is_told, true) {
                    let message = format!(
                        "{title} was set back to an older image while it served: {why}. The group \
                         cannot do without it now, so what is read there may be old; it goes offline \
                         as soon as the other disks have all that it should hold"
                    );
                    self.disk_event(EventKind::DamageFound, *number, message);
                }
                continue;
            }
            if going.is_some() && next.replicas.iter().all(|replica| replica.disk == *number) {
                // The state takes the other replicas away: it goes by the next one.
                continue;
            }
            let message = format!(
                "{title} goes offline: it was set back to an older image while it served: {why}; drop \
                 it with --force and add it as a new disk"
            );
            self.disk_event(EventKind::DiskOffline, *number, message);
            set_offline(next, &BTreeSet::from([*number]));
            all_going.extend(going);
        }
        all_going
    }
}
