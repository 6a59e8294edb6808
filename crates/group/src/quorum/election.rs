//! Which of the group states that disks hold is the one to go on from.
//!
//! The invariants that the election relies on, kept by `publish.rs`:
//! 1. Nothing relies on a state before every voter that it names holds it durably.
//! 2. A state replaces another only where at least half of the other's voters hold it; those
//!    that do not can never be a majority of the other's.
//! 3. A disk keeps its last relied-on state in one slot while the other slot is written.
//!
//! From 1: a voter that is seen, whose two slots are readable, and neither of which is the
//! state, proves that nothing ever relied on it: a crash interrupted its writing. It is put
//! aside. From 2: the newest state that is left is the newest that anything relied on, if all or
//! a majority of its voters are seen; and if a newer one could not lie unseen in a slot that cannot
//! be read: by 2 that would lie on half of its voters at least, so more than half of them have to
//! give all that their slots hold. A slot that was read and is damaged hides nothing: its writing was
//! cut off, or it rotted, and the same holds for the other slot as before.
//!
//! | case | newest state that is left | seen of its voters | mount | test |
//! |---|---|---|---|---|
//! | 1 | one | all | yes | `all_voters_seen_mounts` |
//! | 2 | one | a majority | yes, the others go offline | `a_majority_of_voters_mounts` |
//! | 3 | one | at most half | no | `half_of_the_voters_at_rest_is_refused` |
//! | 4 | one, on the survivor of a mirror | all: the survivor alone | yes | `the_half_of_a_mirror_that_outlived_the_other_mounts_by_itself` |
//! | 5 | older, on the half that was left behind | half of the old voters | no | `the_half_that_was_left_behind_does_not_mount` |
//! | 6 | the older: a crash interrupted the newer, a voter lacks it | as 1 to 3, of the older | as 1 to 3 | `a_state_that_a_crash_interrupted_is_put_aside` |
//! | 7 | the newer: the voters that may lack it are not seen | at most half | no | `a_newer_state_that_may_have_been_relied_on_blocks_the_older` |
//! | 8 | the newer: a voter's slot is damaged and may have held it | as 1 to 3 | as 1 to 3 | `a_damaged_slot_proves_nothing` |
//! | 9 | two of one epoch that differ, one with a majority | | the one with it | `of_two_histories_the_one_with_a_majority_is_elected` |
//! | 10 | two of one epoch that differ, both or none with a majority | | no | `two_histories_of_equal_right_are_refused` |
//! | 11 | none on any disk | | no | `disks_without_any_state_are_refused` |
//! | 12 | one, and half of its voters do not give a slot of theirs | | no | `a_state_that_may_have_a_successor_in_a_slot_that_is_unread_is_refused` |
//! | 13 | one, known to be in force, or a newer one beside it | half | yes, the other half goes offline | `half_of_the_voters_of_the_state_that_is_known_to_be_in_force_suffice` |
//!
//! Case 13 is that of a process that follows a killed one while a disk hangs: the keeper's memory has
//! the epoch that was in force, so that no newer state can have been relied on, and at least half of
//! its voters can be made to hold the next one, as a running group's can.
//!
//! `force` mounts in the cases 3, 5, 7, 10 and 12: it takes the state with the most voters seen. It
//! risks that writes acknowledged through the disks that are not seen are lost for good.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_catalog::Standing;
use spindle_format::{GroupState, OpenerRecord};

use crate::quorum::look::SlotFound;

/// A disk that is seen, and what its slots hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder<'a> {
    pub(super) number: DiskNumber,
    /// Of its identity: a disk that a crash kept from joining may have the number of another.
    pub(super) uuid_start: [u8; 8],
    pub(super) states: &'a [SlotFound; 2],
    /// A slot of it was not given, and may hold any state.
    pub(super) is_unread: bool,
    /// Who had the group open, as the disk knows it.
    pub(super) opener: Option<&'a OpenerRecord>,
}

impl Holder<'_> {
    const fn identity(&self) -> (DiskNumber, [u8; 8]) {
        (self.number, self.uuid_start)
    }
}

/// Why no state is elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotElected {
    /// No disk holds any state.
    NoState,
    /// Too few voters of the newest state are seen.
    NoMajority {
        epoch: u64,
        seen: usize,
        voters: usize,
        /// The voters that are not seen.
        unseen: Vec<DiskNumber>,
    },
    /// A newer state than the newest seen may lie in slots that could not be read.
    Unread {
        epoch: u64,
        /// The voters that did not give a slot.
        unread: Vec<DiskNumber>,
    },
    /// Two states of one epoch have equal right.
    Diverged { epoch: u64 },
}

/// A state that is left, and how many of its voters are seen.
struct Candidate<'a> {
    state: &'a GroupState,
    voters: usize,
    seen: usize,
    /// Of those that are seen, who did not give all that its slots hold.
    unread: Vec<DiskNumber>,
}

impl Candidate<'_> {
    fn has_majority(&self) -> bool {
        self.seen * 2 > self.voters
    }

    /// Whether a state that came after it would be seen.
    fn is_last(&self) -> bool {
        self.unread.is_empty() || (self.seen - self.unread.len()) * 2 > self.voters
    }
}

/// The state to go on from; `force` takes one where the voters do not suffice. What the process before
/// relied on is `known` where a keeper's memory tells it.
pub(super) fn elect<'a>(
    holders: &[Holder<'a>],
    known: Option<Standing>,
    force: bool,
) -> Result<&'a GroupState, NotElected> {
    elect_by_votes(holders, force).or_else(|why| match why {
        NotElected::NoMajority { .. } => known
            .and_then(|known| half_of_it(holders, known))
            .ok_or(why),
        why => Err(why),
    })
}

/// Every state that a disk shows, once.
fn states_of<'a>(holders: &[Holder<'a>]) -> Vec<&'a GroupState> {
    let mut states: Vec<&'a GroupState> = Vec::new();
    for holder in holders {
        for state in holder.states.iter().filter_map(SlotFound::state) {
            if !states.contains(&state) {
                states.push(state);
            }
        }
    }
    states
}

fn identities_of(holders: &[Holder<'_>]) -> BTreeSet<(DiskNumber, [u8; 8])> {
    holders.iter().map(Holder::identity).collect()
}

/// The state that is in force, where half of its voters are seen. A later one that was tried must be seen
/// too, where those that are not seen could elect it alone.
fn half_of_it<'a>(holders: &[Holder<'a>], known: Standing) -> Option<&'a GroupState> {
    let states = states_of(holders);
    let of_epoch = |epoch| (states.iter().copied()).filter(move |state| state.epoch == epoch);
    let mut in_force = of_epoch(known.epoch_in_force);
    let (state, None) = (in_force.next()?, in_force.next()) else {
        return None;
    };
    let seen = identities_of(holders);
    let has_half = |state: &&GroupState| {
        let seen_count = voters_of(state)
            .filter(|voter| seen.contains(voter))
            .count();
        seen_count * 2 >= state.voters().count()
    };
    let is_last = known.epoch_tried == known.epoch_in_force
        || of_epoch(known.epoch_tried).any(|tried| has_half(&tried));
    (is_last && has_half(&state)).then_some(state)
}

fn elect_by_votes<'a>(holders: &[Holder<'a>], force: bool) -> Result<&'a GroupState, NotElected> {
    let mut states = states_of(holders);
    let numbers = identities_of(holders);
    states.retain(|state| !is_put_aside(state, holders));
    let Some(epoch) = states.iter().map(|state| state.epoch).max() else {
        return Err(NotElected::NoState);
    };
    let mut candidates: Vec<Candidate<'a>> = (states.into_iter())
        .filter(|state| state.epoch == epoch)
        .map(|state| Candidate {
            state,
            voters: state.voters().count(),
            seen: (voters_of(state))
                .filter(|voter| numbers.contains(voter))
                .count(),
            unread: (holders.iter())
                .filter(|holder| holder.is_unread)
                .filter(|holder| voters_of(state).any(|voter| voter == holder.identity()))
                .map(|holder| holder.number)
                .collect(),
        })
        .collect();
    // Stable: among equals the state of the lowest disk is first.
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.seen));
    let mut with_majority = candidates
        .iter()
        .filter(|candidate| candidate.has_majority());
    match (with_majority.next(), with_majority.next()) {
        (Some(candidate), None) if candidate.is_last() => return Ok(candidate.state),
        _ if force => return Ok(candidates[0].state),
        (Some(candidate), None) => {
            let unread = candidate.unread.clone();
            return Err(NotElected::Unread { epoch, unread });
        }
        (Some(_), Some(_)) => return Err(NotElected::Diverged { epoch }),
        (None, _) => {}
    }
    if candidates.len() > 1 {
        return Err(NotElected::Diverged { epoch });
    }
    let Candidate {
        state,
        voters,
        seen,
        ..
    } = candidates[0];
    Err(NotElected::NoMajority {
        epoch,
        seen,
        voters,
        unseen: (voters_of(state))
            .filter(|voter| !numbers.contains(voter))
            .map(|(number, _)| number)
            .collect(),
    })
}

fn voters_of(state: &GroupState) -> impl Iterator<Item = (DiskNumber, [u8; 8])> {
    (state.disks.iter())
        .filter(|disk| disk.voter)
        .map(|disk| (disk.number, disk.uuid_start))
}

/// Whether a voter that is seen proves that nothing ever relied on the state.
///
/// A later state in a voter's slot proves it too: where that later state is itself relied on, the
/// election takes it and never asks for this one; where it was put aside, it overwrote nothing
/// that was relied on.
pub(super) fn is_put_aside(state: &GroupState, holders: &[Holder<'_>]) -> bool {
    holders.iter().any(|holder| {
        voters_of(state).any(|voter| voter == holder.identity())
            && holder.states.iter().all(|slot| match slot {
                SlotFound::Blank => true,
                SlotFound::State(other) => **other != *state,
                SlotFound::Damaged(_) | SlotFound::Newer(_) => false,
            })
    })
}

#[cfg(test)]
mod tests;
