//! Taking a group that was found free: of several hosts that found it so, at most one goes on.
//!
//! None of them can look and write in one step, and a write may reach a disk long after whoever
//! sent it looked. So each makes two marks on every voter and looks after each of them:
//!
//! 1. the opener record;
//! 2. look: every record is its own, and neither a claim nor a group state is there that was not
//!    there when it found the group free;
//! 3. the claim, the same record in a place of its own;
//! 4. look: every record still is its own;
//! 5. the first group state, and everything else.
//!
//! Whoever finds something else lets go, and writes nothing any more. Of two that both come to 5, one
//! was the first whose record reached a voter that both read. It read that record in 4 before the
//! other's reached it, and its claim was there before; the other, which looked for claims after its
//! own record, met it in 2. This holds for every order of requests and for any number of hosts where
//! the hosts can read a voter in common, its places included; what one of them cannot read tells it
//! nothing, see [`voice`]. No clock is asked. Both may let go: then the record that counts says who
//! may try again, see [`CLAIM_PAUSE_MS`].
//!
//! What the one that lets go has written stands in the two places alone, where it may be in place of
//! what the other wrote. The other then stops at its next look at the records, if it did not write
//! its own again before: a record of the same number or a higher one is that of somebody who has
//! taken the group. Until then it has the group, whoever the record names: see `contest.rs`.
//!
//! Where a disk was put back to an older image, the records of the opening before may be all that
//! proves it, see `set_back.rs`: the state that leaves it out comes before the record. The first mark
//! is an intent then, the same record at a third place, and the record is written when that state is
//! relied on. Whoever looks for the first marks of others looks at both places, so that the above holds
//! whichever each makes; who looks later finds the intent, which is as good as the record.
//!
//! A program that knows no claims is met by its record and its group state, unless those come after 4.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DeviceError, DiskSlot};
use spindle_format::{
    CLAIM_PLACE, GroupState, INTENT_PLACE, Label, OPENER_BYTES, OPENER_PLACE, OpenerRecord,
    STATE_PLACES,
};

use crate::error::{GroupError, GroupErrorKind};
use crate::event::EventKind;
use crate::quorum::cut_off::CutOff;
use crate::quorum::look::{DiskLook, SlotFound, look};
use crate::quorum::open::{check_nobody_is_missing, oldest_shown};
use crate::quorum::ownership::taken_by;
use crate::quorum::publish::{Quorum, set_offline};
use crate::quorum::{Inner, Membership, refused, set_back, whole_blocks};

/// How long whoever let go of a group waits before it tries again, at least: longer than anybody
/// relies on a reading of the owner records, so that whoever went on has stopped by then or written
/// its own record again.
pub const CLAIM_PAUSE_MS: u64 = 3000;

const _: () = assert!(CLAIM_PAUSE_MS > super::ownership::TRUSTED_MS);

/// How often the voters are looked at after a mark, where fewer than half of them can be read.
const LOOKS_MOST: u32 = 5;

/// The members that were found, as they looked when the group was found free.
pub(super) type Found<'a> = BTreeMap<DiskNumber, (&'a DiskLook, &'a Label)>;

/// Disks as they looked when nobody had the group.
type Free = BTreeMap<DiskNumber, DiskLook>;

/// What an opening makes of the disks that it found.
pub(super) struct Findings<'a> {
    pub(super) members: &'a Found<'a>,
    pub(super) missing: BTreeSet<DiskNumber>,
    pub(super) set_back: &'a BTreeSet<DiskNumber>,
    pub(super) cut_off: &'a [CutOff],
    /// The process before was killed, and the missing may hang with its requests.
    pub(super) former_lingers: bool,
}

/// The first mark of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Record,
    /// In its place, where what the records say is still needed.
    Intent,
}

impl First {
    const fn place(self) -> u64 {
        match self {
            Self::Record => OPENER_PLACE,
            Self::Intent => INTENT_PLACE,
        }
    }

    /// What is found there, and whether it cannot be read.
    const fn found(self, look: &DiskLook) -> (Option<&OpenerRecord>, bool) {
        match self {
            Self::Record => (look.opener.as_ref(), look.unread.opener),
            Self::Intent => (look.intent.as_ref(), look.unread.intent),
        }
    }

    /// What others may make instead.
    const fn other(self) -> Self {
        match self {
            Self::Record => Self::Intent,
            Self::Intent => Self::Record,
        }
    }
}

/// After which of the two marks the voters are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    First,
    Claim,
}

/// What a voter says of who takes the group.
enum Voice {
    Ours,
    /// It cannot be read, or could not be written.
    Silent,
    /// Somebody else, as a message names it.
    Other(String),
}

impl Membership {
    /// Takes the group, then writes the state that says so: not clean, the missing offline. Disks
    /// that a crash kept the elected state from are given it first, and so are those that failed a
    /// flush of it: see `set_back.rs`.
    ///
    /// # Errors
    /// [`GroupErrorKind::Contended`] where somebody else takes it in the same moment; else where too
    /// few voters can be read or written.
    pub(super) fn claim(&self, findings: Findings<'_>, quorum: Quorum) -> Result<(), GroupError> {
        let Findings {
            members,
            mut missing,
            set_back,
            cut_off,
            former_lingers,
        } = findings;
        let mut inner = self.inner.lock();
        let lacking = lacking(members, &inner.state);
        let unflushed = self.flush_and_note();
        if former_lingers && quorum != Quorum::Forced && self.may_have_dropped(&unflushed) {
            check_nobody_is_missing(&inner.state.group_name, &missing)?;
        }
        for number in &unflushed {
            if let (Some(member), Some((look, _))) =
                (inner.members.get_mut(number), members.get(number))
            {
                member.held_epoch = oldest_shown(look);
            }
        }
        let free: Free = (members.iter())
            .map(|(number, (look, _))| (*number, (*look).clone()))
            .collect();
        let first = match set_back.is_empty() {
            true => First::Record,
            false => First::Intent,
        };
        let mut unable = self.contend(&inner, &free, first, quorum)?;
        // From here on whoever slept reads whose the group is before it writes.
        self.own_record(&inner);
        unable.extend(self.hand_on_state(&mut inner, &lacking, &unflushed));
        // What another host's taking it has done is no fault of the disks.
        self.disks.check()?;
        self.tell_of_unable(&mut missing, unable);
        if quorum == Quorum::Opening {
            let next = self.without(&inner.state, &missing, set_back, cut_off);
            (self.check_bearable(&inner.state, &next))
                .inspect_err(|_| self.take_mark_back(&inner, &free, first))?;
        }
        if first == First::Intent {
            let next = self.without(&inner.state, &missing, set_back, cut_off);
            self.publish(&mut inner, next, quorum)?;
            let unable = self.write_record(&inner, OPENER_PLACE, |_| true);
            self.disks.check()?;
            self.tell_of_unable(&mut missing, unable);
        }
        self.own_record(&inner);
        let told: BTreeSet<DiskNumber> = inner.state.voters().collect();
        let mut next = self.without(&inner.state, &missing, set_back, cut_off);
        next.clean = false;
        self.publish(&mut inner, next, quorum)?;
        // As a rule they are the voters that have been told.
        let has_new_voters = inner.state.voters().any(|voter| !told.contains(&voter));
        if has_new_voters {
            return self.claim_voters(&mut inner, quorum);
        }
        let voters = inner.voters_here();
        inner.hear(voters.into_iter());
        self.own_record(&inner);
        Ok(())
    }

    /// Whether a disk that is here may have dropped what the process before had written and no flush
    /// covered: it failed the first one, or was away for a moment.
    fn may_have_dropped(&self, unflushed: &[DiskNumber]) -> bool {
        let journal = self.failed_flushes().journal();
        let is_another = |(disk, appearance): (DiskNumber, Option<u64>)| {
            appearance.is_some_and(|appearance| {
                journal.is_some_and(|journal| journal.served_another(disk, appearance))
            })
        };
        let mut online = (self.appearances()).filter(|(disk, _)| self.is_online(*disk));
        !unflushed.is_empty() || online.any(is_another)
    }

    /// Makes the two marks and looks after each; gives the disks that could not take them.
    fn contend(
        &self,
        inner: &Inner,
        free: &Free,
        first: First,
        quorum: Quorum,
    ) -> Result<Vec<(DiskNumber, DeviceError)>, GroupError> {
        let mut unable = self.write_record(inner, first.place(), |_| true);
        self.check_alone(inner, free, (first, Mark::First), &unable, quorum)?;
        unable.extend(self.write_record(inner, CLAIM_PLACE, |_| true));
        self.check_alone(inner, free, (first, Mark::Claim), &unable, quorum)?;
        Ok(unable)
    }

    /// Puts back what stood in the place of the first mark, of an opening that is refused before it
    /// wrote a state: whoever comes next, on whatever host, finds the group as it was. The claim
    /// stays, for which another host waits once. What could not be read before stays too.
    fn take_mark_back(&self, inner: &Inner, free: &Free, first: First) {
        let pages: Vec<(DiskNumber, AlignedBuffer)> = (inner.state.voters())
            .filter_map(|number| {
                let (before, was_unread) = first.found(free.get(&number)?);
                let mut page = AlignedBuffer::zeroed(OPENER_BYTES);
                if let Some(before) = before {
                    page.copy_from_slice(&before.encode(first.place()));
                }
                (!was_unread).then_some((number, page))
            })
            .collect();
        let writes = (pages.iter()).map(|(number, page)| (*number, first.place(), &page[..]));
        for (disk, why) in self.write_durably(writes) {
            tracing::debug!(disk = disk.0, %why, "the mark of an opening that was refused stays");
        }
    }

    /// Refuses where a voter shows that somebody else takes the group, or where fewer than half of
    /// those that took the mark say that it is ours.
    fn check_alone(
        &self,
        inner: &Inner,
        free: &Free,
        marks: (First, Mark),
        unable: &[(DiskNumber, DeviceError)],
        quorum: Quorum,
    ) -> Result<(), GroupError> {
        let mut looks_count = 0;
        loop {
            looks_count += 1;
            let (mut ours_count, mut able_count) = (0, 0);
            for (number, now) in self.looks_at(inner, |_| true) {
                let Some(before) = free.get(&number) else {
                    continue;
                };
                let took_record = unable.iter().all(|(other, _)| *other != number);
                // A bad block is one for every host: what all can read decides. A path may be one
                // host's alone.
                let (_, is_mark_unread) = marks.0.found(&now);
                let is_bad = !now.unread.disk && (is_mark_unread || now.member().is_none());
                able_count += usize::from(took_record && !is_bad);
                match voice(free, (before, &now), marks, &inner.opener, took_record) {
                    Voice::Ours => ours_count += 1,
                    Voice::Silent => {}
                    Voice::Other(who) => return Err(contended(&inner.state, &who)),
                }
            }
            if quorum == Quorum::Forced || (ours_count > 0 && ours_count * 2 >= able_count) {
                return Ok(());
            }
            // A path that blinks gives the same bytes a moment later.
            if looks_count == LOOKS_MOST {
                return Err(refused(
                    GroupErrorKind::NoMajority,
                    format!(
                        "only {ours_count} of the {able_count} disks of group {} that vote can be \
                         read again: nobody can tell whether another host opens it too; see to the \
                         disks and mount it again",
                        inner.state.group_name
                    ),
                ));
            }
        }
    }

    /// Refuses a closing where another host has taken the group by force and has its intent in place
    /// of the record yet, which is all that others look at: see [`First`]. One that let go of the group
    /// before this process had it has made no claim as new as this process's.
    pub(super) fn refuse_taken(&self, inner: &Inner) -> Result<(), GroupError> {
        let ours = &inner.opener;
        let looks = self.looks_at(inner, |number| !self.is_silent(number));
        let claims = (looks.values()).filter_map(|look| look.claim.as_ref());
        let mut others = claims.filter(|claim| {
            let is_new = claim.sequence >= ours.sequence && !is_same_opening(claim, ours);
            let mut intents = looks.values().filter_map(|look| look.intent.as_ref());
            is_new && intents.any(|intent| is_same_opening(intent, claim))
        });
        if let Some(other) = others.next() {
            self.disks.lose(&taken_by(other));
        }
        self.disks.lost().map_or(Ok(()), Err)
    }

    /// How the voters look that `wanted` picks.
    fn looks_at(&self, inner: &Inner, wanted: impl Fn(DiskNumber) -> bool) -> Free {
        let (numbers, slots): (Vec<DiskNumber>, Vec<DiskSlot>) = (inner.state.voters())
            .filter(|number| wanted(*number))
            .filter_map(|number| Some((number, self.slot(number)?)))
            .unzip();
        numbers
            .into_iter()
            .zip(look(self.disks.beneath(), &slots))
            .collect()
    }

    /// Disks that could not be written are missing too.
    fn tell_of_unable(
        &self,
        missing: &mut BTreeSet<DiskNumber>,
        unable: Vec<(DiskNumber, DeviceError)>,
    ) {
        for (number, why) in unable {
            if !missing.insert(number) {
                // It failed more than one write.
                continue;
            }
            let title = self.disk_title(number);
            let message = format!("disk {title} goes offline: it cannot be written: {why}");
            self.disk_event(EventKind::DiskOffline, number, message);
        }
    }

    /// The state with the missing offline, and what they lost.
    fn without(
        &self,
        state: &GroupState,
        missing: &BTreeSet<DiskNumber>,
        set_back: &BTreeSet<DiskNumber>,
        cut_off: &[CutOff],
    ) -> GroupState {
        let mut next = state.clone();
        set_offline(&mut next, missing);
        for disk in cut_off {
            disk.note(&mut next, self.au_size);
        }
        for number in set_back {
            set_back::note(&mut next, *number);
        }
        next
    }

    /// Writes the state that is relied on to disks that lack it, and once more over itself to those
    /// that show it and failed a flush; gives those that did not take it.
    fn hand_on_state(
        &self,
        inner: &mut Inner,
        lacking: &[DiskNumber],
        unflushed: &[DiskNumber],
    ) -> Vec<(DiskNumber, DeviceError)> {
        let wants = |number| lacking.contains(number) || unflushed.contains(number);
        let pages: Vec<(DiskNumber, usize, AlignedBuffer)> = (inner.members.iter())
            .filter(|(number, _)| wants(number) && self.serves(&inner.state, **number))
            .map(|(number, member)| {
                let slot = match lacking.contains(number) {
                    true => 1 - member.held_slot,
                    false => member.held_slot,
                };
                let bytes = (inner.state).encode(STATE_PLACES[slot], member.label.disk_uuid);
                (*number, slot, whole_blocks(&bytes))
            })
            .collect();
        let writes =
            (pages.iter()).map(|(number, slot, page)| (*number, STATE_PLACES[*slot], &page[..]));
        let unable = self.write_durably(writes);
        for (number, slot, _) in &pages {
            if let Some(member) = inner.members.get_mut(number)
                && unable.iter().all(|(other, _)| other != number)
            {
                member.held_slot = *slot;
                member.held_epoch = inner.state.epoch;
            }
        }
        unable
    }
}

pub(super) fn contended(state: &GroupState, who: &str) -> GroupError {
    refused(
        GroupErrorKind::Contended,
        format!(
            "group {} is being opened by {who} in the same moment, and was left to it; try again \
             in some seconds",
            state.group_name
        ),
    )
}

/// What a voter says that looked so `before`, when the group was found `free`. What could not be read
/// then may have been there, and what cannot be read now may be as it was: neither tells of anybody. A
/// place that is bad for good must not keep the group from being opened. Nor does what another disk
/// showed then, where our record was not taken: a write that failed may have brought it back where it
/// was damaged. Where it was taken, another's record came after it.
fn voice(
    free: &Free,
    (before, now): (&DiskLook, &DiskLook),
    (first, mark): (First, Mark),
    ours: &OpenerRecord,
    took_record: bool,
) -> Voice {
    if now.member().is_none() {
        return Voice::Silent;
    }
    let is_new = |slot: &SlotFound| match slot {
        SlotFound::State(_) => {
            let mut shown = free.values().flat_map(|look| &look.states);
            !before.unread.has_state() && shown.all(|other| other != slot)
        }
        SlotFound::Newer(_) => true,
        SlotFound::Blank | SlotFound::Damaged(_) => false,
    };
    if now.newer_opener.is_some() || now.states.iter().any(is_new) {
        return Voice::Other("another host".to_owned());
    }
    // Whoever made one after it had looked here has met our record and lets go.
    if mark == Mark::First && has_new_claim(free, before, now, ours) {
        return Voice::Other(named(now.claim.as_ref()));
    }
    if let (Some(record), _) = first.other().found(now)
        && !was_shown(free, first.other(), record)
        && (!first.other().found(before).1 || record.sequence >= ours.sequence)
    {
        return Voice::Other(named(Some(record)));
    }
    let (_, was_unread) = first.found(before);
    match first.found(now).0 {
        Some(record) if is_same_opening(record, ours) => Voice::Ours,
        // It came after ours, which the disk has taken.
        Some(record) if took_record => Voice::Other(named(Some(record))),
        Some(record) if !was_unread && !was_shown(free, first, record) => {
            Voice::Other(named(Some(record)))
        }
        _ => Voice::Silent,
    }
}

/// Whether a disk showed the record there when the group was found `free`, or the claim of its opening.
fn was_shown(free: &Free, first: First, record: &OpenerRecord) -> bool {
    let mut shown = free.values().filter_map(|look| first.found(look).0);
    shown.any(|other| is_same_opening(record, other)) || was_claimed(free, record)
}

/// Whether a disk showed the claim when the group was found `free`.
fn was_claimed(free: &Free, claim: &OpenerRecord) -> bool {
    let mut shown = free.values().filter_map(|look| look.claim.as_ref());
    shown.any(|other| is_same_opening(claim, other))
}

/// Whether the disk has a claim that was nowhere when the group was found `free`. One that could not be
/// read then is new where its number is not below ours, which is above all that was read.
fn has_new_claim(free: &Free, before: &DiskLook, now: &DiskLook, ours: &OpenerRecord) -> bool {
    match &now.claim {
        Some(claim) if now.claim == before.claim || was_claimed(free, claim) => false,
        Some(claim) => !before.unread.claim || claim.sequence >= ours.sequence,
        None => before.claim.is_some() && !now.unread.claim,
    }
}

/// Whether both are of one opening, whatever disk they lie on and whenever it beat.
pub(super) fn is_same_opening(record: &OpenerRecord, ours: &OpenerRecord) -> bool {
    let identity = |record: &OpenerRecord| {
        let opened = (record.sequence, record.opened_s, record.open);
        (opened, record.boot, record.origin, record.process_id)
    };
    identity(record) == identity(ours)
}

pub(super) fn named(record: Option<&OpenerRecord>) -> String {
    record.map_or_else(
        || "another host".to_owned(),
        |record| format!("process {} on host {}", record.process_id, record.host),
    )
}

/// The members that do not hold the state.
fn lacking(members: &Found<'_>, state: &GroupState) -> Vec<DiskNumber> {
    (members.iter())
        .filter(|(_, (look, _))| look.states.iter().all(|slot| slot.state() != Some(state)))
        .map(|(number, _)| *number)
        .collect()
}
