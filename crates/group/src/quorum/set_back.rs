//! Disks that were put back to an older image: a backup of the raw device, a snapshot. They must
//! not vote, and what they hold must not be trusted, though label and identity are right.
//!
//! # What proves it
//! Let N be the newest state that is seen, and L the one that a majority of L's voters hold beside
//! N, each of them in its other slot. A disk keeps the last relied-on state there while it takes
//! the next one, so L was relied on. A disk that L and N name as serving, with no change of its
//! standing in between, held L durably: a state is relied on when every disk that serves in it has
//! taken it, and an opening hands the elected state on to those that a crash kept from it. So such
//! a disk was put back where
//! - both of its slots are readable, and hold nothing as new as L; or
//! - it votes in L and N, N is not clean, and its opener record says that the group is closed:
//!   every voter was told of the opening before the first state of that opening was written; or
//! - it votes in L and N, and its opener record is two heartbeats or more behind another voter's:
//!   a heartbeat that a voter cannot take takes the voter offline before the next one.
//!
//! What is newer than that cannot be told: an image of the same moment is as good as the disk.
//!
//! # What follows
//! The disk is as good as missing, in the election and in the group: it goes offline, and does not
//! come back while this opening lasts, nor later where that was noted. The state that takes it
//! offline says that it lost what it held, because a later opening sees no proof any more and has
//! the disk's own word: where it comes back then, all that it holds is copied again. The others mount where they have a majority of N's voters; then nothing can have
//! gone on without them. Half of the voters is no majority here either: two halves that were put
//! back or left behind are refused as before.

use std::collections::BTreeMap;

use spindle_base::DiskNumber;
use spindle_format::{GroupState, Lost, OpenerRecord};

use crate::quorum::election::Holder;
use crate::quorum::look::SlotFound;

/// In place of the epoch that a disk held: no state that it shows makes it good again.
pub(super) const NEVER_AGAIN: u64 = u64::MAX;

/// What the states and openers that are seen say of the past.
#[derive(Debug, Default)]
pub(super) struct Past<'a> {
    /// N and L.
    proof: Option<(&'a GroupState, &'a GroupState)>,
    /// The newest opener record of a disk that votes in both.
    opener: Option<&'a OpenerRecord>,
}

impl<'a> Past<'a> {
    pub(super) fn of(holders: &[Holder<'a>]) -> Self {
        let mut past = Self {
            proof: proof(holders),
            opener: None,
        };
        past.opener = (holders.iter())
            .filter(|holder| past.votes_in_both(holder))
            .filter_map(|holder| holder.opener)
            .max_by_key(|opener| (opener.sequence, opener.heartbeats_count));
        past
    }

    /// Whether the disk was put back to an older image.
    pub(super) fn is_set_back(&self, holder: &Holder<'a>) -> bool {
        let Some((newest, relied_on)) = self.proof else {
            return false;
        };
        if !self.held_both(holder.number, holder.uuid_start) {
            return false;
        }
        let is_older = |slot: &SlotFound| match slot {
            SlotFound::Blank => true,
            SlotFound::State(state) => state.epoch < relied_on.epoch,
            SlotFound::Damaged(_) | SlotFound::Newer(_) => false,
        };
        let knows_of_opening = |opener: &OpenerRecord| {
            let is_told = newest.clean || opener.open;
            is_told
                && self
                    .opener
                    .is_none_or(|newest| !is_far_behind(opener, newest))
        };
        holder.states.iter().all(is_older)
            || (self.votes_in_both(holder)
                && holder
                    .opener
                    .is_some_and(|opener| !knows_of_opening(opener)))
    }

    /// The epoch of a state that a disk which is not seen surely held.
    pub(super) fn held_epoch(&self, number: DiskNumber) -> u64 {
        let Some((newest, relied_on)) = self.proof else {
            return 0;
        };
        match newest.disk(number) {
            Some(disk) if self.held_both(number, disk.uuid_start) => relied_on.epoch,
            _ => 0,
        }
    }

    /// Whether the disk serves in both states, and in all between.
    fn held_both(&self, number: DiskNumber, uuid_start: [u8; 8]) -> bool {
        self.proof.is_some_and(|(newest, relied_on)| {
            [newest, relied_on].into_iter().all(|state| {
                state.disk(number).is_some_and(|disk| {
                    disk.uuid_start == uuid_start
                        && disk.status.is_served()
                        && disk.status_epoch <= relied_on.epoch
                })
            })
        })
    }

    fn votes_in_both(&self, holder: &Holder<'_>) -> bool {
        let votes = |state: &GroupState| state.disk(holder.number).is_some_and(|disk| disk.voter);
        self.held_both(holder.number, holder.uuid_start)
            && (self.proof).is_some_and(|(newest, relied_on)| votes(newest) && votes(relied_on))
    }
}

/// Says in the state that a disk which was put back has nothing of what it held, where it does
/// not serve there.
pub(super) fn note(state: &mut GroupState, number: DiskNumber) {
    if let Some(disk) = (state.disk_mut(number)).filter(|disk| !disk.status.is_served()) {
        disk.lost = Lost::EVERYTHING;
    }
}

/// A record that a voter cannot have any more when another one has `newest`.
const fn is_far_behind(opener: &OpenerRecord, newest: &OpenerRecord) -> bool {
    // The first heartbeat comes when every voter knows of the opening; a closing counts anew.
    newest.open
        && newest.heartbeats_count > 0
        && (opener.sequence < newest.sequence
            || (opener.sequence == newest.sequence
                && opener.heartbeats_count + 1 < newest.heartbeats_count))
}

/// N and L, where there is exactly one newest state and the holders of N agree on an L.
fn proof<'a>(holders: &[Holder<'a>]) -> Option<(&'a GroupState, &'a GroupState)> {
    let states =
        || (holders.iter()).flat_map(|holder| holder.states.iter().filter_map(SlotFound::state));
    let newest = states().max_by_key(|state| state.epoch)?;
    if states().any(|state| state.epoch == newest.epoch && state != newest) {
        return None;
    }
    let mut support: BTreeMap<u64, (&GroupState, usize)> = BTreeMap::new();
    for holder in holders {
        let [Some(left), Some(right)] = holder.states.each_ref().map(SlotFound::state) else {
            continue;
        };
        let older = match (left == newest, right == newest) {
            (true, false) => right,
            (false, true) => left,
            _ => continue,
        };
        let votes = (older.disk(holder.number))
            .is_some_and(|disk| disk.voter && disk.uuid_start == holder.uuid_start);
        if votes {
            let entry = support.entry(older.epoch).or_insert((older, 0));
            entry.1 += usize::from(entry.0 == older);
        }
    }
    (support.into_values())
        .find(|(state, count)| count * 2 > state.voters().count())
        .map(|(relied_on, _)| (newest, relied_on))
}
