//! Disks that were put back to an older image: a backup of the raw device, a snapshot. They must
//! not vote, and what they hold must not be trusted, though label and identity are right.
//!
//! # What proves it
//! Let N be the newest state that is seen, and L the newest that a majority of L's voters hold and
//! one of them holds beside N, in its other slot. A disk keeps the last relied-on state there while
//! it takes the next one, so L was relied on. A disk that L and N name as serving, with no change of
//! its standing in between, held L durably: a state is relied on when every disk that serves in it
//! has taken it, and an opening hands the elected state on to those that a crash kept from it, and
//! flushes those that show it, which may have it from a process that was killed in the midst; where
//! one fails that, it is written there anew.
//! Where a voter of N that holds L proves that nothing relied on N (see `election.rs`), what N says
//! of a disk never counted, and L alone is asked, of disks that served before L. So such a disk was
//! put back where
//! - both of its slots are readable, and hold nothing as new as L; or
//! - it votes in L and N, N is not clean, and its opener record says that the group is closed:
//!   every voter that was there was told of the opening before the first state of that opening was
//!   written. Where N takes a disk offline, that may be since it was missing and was not told: this
//!   proves nothing of it, though L alone is asked otherwise; or
//! - it votes in L and N, and its opener record is two heartbeats or more behind another voter's:
//!   a heartbeat that a voter cannot take takes the voter offline before the next one.
//!
//! Where a state between L and N is seen in which a disk does not vote, its opener record proves
//! nothing: it got none of the heartbeats since. L is older than that state where those that hold
//! it beside N were away from it.
//!
//! What is newer than that cannot be told: an image of the same moment is as good as the disk.
//!
//! # What follows
//! The disk is as good as missing, in the election and in the group: it goes offline, and does not
//! come back while this opening lasts, nor later where that was noted. The state that takes it
//! offline says that it lost what it held, because a later opening sees no proof any more and has
//! the disk's own word: where it comes back then, all that it holds is copied again. That state is
//! published before the opening writes its own records, which would hide the heartbeats that prove
//! it; what it claims the group with lies beside them, and a crash before the state is relied on leaves
//! the proof. The others mount where they have a majority
//! of N's voters; then nothing can have gone on without them. Half of the voters is no majority here
//! either: two halves that were put back or left behind are refused as before.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_format::{GroupState, Lost, OpenerRecord};

use crate::quorum::election::{Holder, is_put_aside};
use crate::quorum::look::SlotFound;

/// In place of the epoch that a disk held: no state that it shows makes it good again.
pub(super) const NEVER_AGAIN: u64 = u64::MAX;

/// What the states that are seen prove.
#[derive(Debug, Clone, Copy)]
struct Proof<'a> {
    /// N.
    newest: &'a GroupState,
    /// L.
    relied_on: &'a GroupState,
    /// The newest that may have been relied on: N, or L where nothing relied on N.
    counts: &'a GroupState,
}

/// What the states and openers that are seen say of the past.
#[derive(Debug, Default)]
pub(super) struct Past<'a> {
    proof: Option<Proof<'a>>,
    /// States between the two that may have been relied on.
    between: Vec<&'a GroupState>,
    /// The newest opener record of a disk that votes in all of them.
    opener: Option<&'a OpenerRecord>,
}

impl<'a> Past<'a> {
    pub(super) fn of(holders: &[Holder<'a>]) -> Self {
        let proof = proof(holders);
        let between = (proof.iter())
            .flat_map(|proof| {
                let epochs = proof.relied_on.epoch + 1..proof.newest.epoch;
                (holders.iter())
                    .flat_map(|holder| holder.states.iter().filter_map(SlotFound::state))
                    .filter(move |state| epochs.contains(&state.epoch))
            })
            .collect();
        let mut past = Self {
            proof,
            between,
            opener: None,
        };
        past.opener = (holders.iter())
            .filter(|holder| past.votes_throughout(holder))
            .filter_map(|holder| holder.opener)
            .max_by_key(|opener| (opener.sequence, opener.heartbeats_count));
        past
    }

    /// Whether the disk was put back to an older image.
    pub(super) fn is_set_back(&self, holder: &Holder<'a>) -> bool {
        let Some(Proof {
            newest, relied_on, ..
        }) = self.proof
        else {
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
            // One that N takes offline may have been missing when the voters were told.
            let was_there = serves_since(newest, holder.number, holder.uuid_start, relied_on.epoch);
            let is_told = newest.clean || opener.open || !was_there;
            is_told
                && self
                    .opener
                    .is_none_or(|newest| !is_far_behind(opener, newest))
        };
        holder.states.iter().all(is_older)
            || (self.votes_throughout(holder)
                && holder
                    .opener
                    .is_some_and(|opener| !knows_of_opening(opener)))
    }

    /// Takes those out that were put back to an older image; gives their numbers.
    pub(super) fn take_set_back(&self, holders: &mut Vec<Holder<'a>>) -> BTreeSet<DiskNumber> {
        let set_back = holders.iter().filter(|holder| self.is_set_back(holder));
        let numbers = set_back.map(|holder| holder.number).collect();
        holders.retain(|holder| !self.is_set_back(holder));
        numbers
    }

    /// The epoch of a state that a disk which is not seen surely held.
    pub(super) fn held_epoch(&self, number: DiskNumber) -> u64 {
        let Some(proof) = self.proof else {
            return 0;
        };
        match proof.counts.disk(number) {
            Some(disk) if self.held_both(number, disk.uuid_start) => proof.relied_on.epoch,
            _ => 0,
        }
    }

    /// Whether the disk serves in both states, and in all between.
    fn held_both(&self, number: DiskNumber, uuid_start: [u8; 8]) -> bool {
        self.proof.is_some_and(|proof| {
            // Where nothing relied on N, that may be of an opening which missed a disk that serves since
            // L: a power cut kept L from it, and the opening was broken off before it could say so.
            let is_aside = proof.counts.epoch == proof.relied_on.epoch;
            let since = proof.relied_on.epoch - u64::from(is_aside);
            [proof.counts, proof.relied_on]
                .into_iter()
                .all(|state| serves_since(state, number, uuid_start, since))
        })
    }

    fn votes_throughout(&self, holder: &Holder<'_>) -> bool {
        let votes = |state: &GroupState| state.disk(holder.number).is_some_and(|disk| disk.voter);
        self.held_both(holder.number, holder.uuid_start)
            && (self.proof).is_some_and(|proof| votes(proof.counts) && votes(proof.relied_on))
            && self.between.iter().all(|state| votes(state))
    }
}

/// Whether the disk serves in the state, with no change of its standing since that epoch.
fn serves_since(state: &GroupState, number: DiskNumber, uuid_start: [u8; 8], epoch: u64) -> bool {
    state.disk(number).is_some_and(|disk| {
        disk.uuid_start == uuid_start && disk.status.is_served() && disk.status_epoch <= epoch
    })
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

/// N and L, where there is exactly one newest state and the holders agree on an L.
fn proof<'a>(holders: &[Holder<'a>]) -> Option<Proof<'a>> {
    let states =
        || (holders.iter()).flat_map(|holder| holder.states.iter().filter_map(SlotFound::state));
    let newest = states().max_by_key(|state| state.epoch)?;
    if states().any(|state| state.epoch == newest.epoch && state != newest) {
        return None;
    }
    let mut support: BTreeMap<u64, Support<'a>> = BTreeMap::new();
    for holder in holders {
        let found = holder.states.each_ref().map(SlotFound::state);
        for (state, other) in [(found[0], found[1]), (found[1], found[0])] {
            let Some(state) = state.filter(|state| state.epoch < newest.epoch) else {
                continue;
            };
            let votes = (state.disk(holder.number))
                .is_some_and(|disk| disk.voter && disk.uuid_start == holder.uuid_start);
            if votes {
                let entry = (support.entry(state.epoch)).or_insert_with(|| Support::of(state));
                if entry.state == state {
                    entry.count += 1;
                    entry.is_beside_newest |= other == Some(newest);
                }
            }
        }
    }
    let relied_on = (support.into_values().rev())
        .find(|support| {
            support.is_beside_newest && support.count * 2 > support.state.voters().count()
        })?
        .state;
    // One that lacks L too was put back itself, or is not what it says: it proves nothing of N.
    let with_relied_on: Vec<Holder<'a>> = (holders.iter())
        .filter(|holder| {
            let mut states = holder.states.iter().filter_map(SlotFound::state);
            states.any(|state| state == relied_on)
        })
        .copied()
        .collect();
    let counts = match is_put_aside(newest, &with_relied_on) {
        true => relied_on,
        false => newest,
    };
    Some(Proof {
        newest,
        relied_on,
        counts,
    })
}

/// The voters of a state that hold it.
struct Support<'a> {
    state: &'a GroupState,
    count: usize,
    is_beside_newest: bool,
}

impl<'a> Support<'a> {
    const fn of(state: &'a GroupState) -> Self {
        Self {
            state,
            count: 0,
            is_beside_newest: false,
        }
    }
}
