//! Which disks vote, and which hold replicas of the catalog.
//!
//! Voters: the loss of any one failure group, in one moment, must leave at least half of the
//! votes, else a running group would stop. So no failure group has more votes than all others
//! together:
//!
//! | failure groups | voters |
//! |---|---|
//! | 1 | 1, 2, 3 or 5 of its disks |
//! | 2 | 1 or 2 of each, as many of one as of the other |
//! | 3 or 4 | 1 of three of them |
//! | 5 and more | 1 of five of them |
//!
//! With two failure groups the number is even: at rest, when each half may believe the other to
//! be gone, neither mounts by itself. A quorum disk in a third failure group breaks that tie.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_format::{DiskState, DiskStatus, GroupState, VOTERS_MAX};

/// Groups with more disks than this have five replicas of the catalog.
const DISKS_OF_SMALL_GROUP: usize = 64;

/// Gives the votes to disks that are online, those that had them first.
pub(super) fn appoint(state: &mut GroupState) {
    let mut groups: BTreeMap<u16, Vec<&DiskState>> = BTreeMap::new();
    for disk in &state.disks {
        if disk.status == DiskStatus::Online {
            groups.entry(disk.failure_group).or_default().push(disk);
        }
    }
    let mut groups: Vec<Vec<&DiskState>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|disk| (!disk.voter, disk.number));
    }
    groups.sort_by_key(|group| (!group[0].voter, group[0].failure_group));
    let odd = |count: usize| match count {
        0..=3 => count,
        4 => 3,
        _ => VOTERS_MAX,
    };
    let voters: Vec<DiskNumber> = match groups.as_slice() {
        [] => Vec::new(),
        [only] => (only.iter().take(odd(only.len())))
            .map(|disk| disk.number)
            .collect(),
        [left, right] => {
            let each = left.len().min(right.len()).min(2);
            (left.iter().take(each).chain(right.iter().take(each)))
                .map(|disk| disk.number)
                .collect()
        }
        many => (many.iter().take(odd(many.len())))
            .map(|group| group[0].number)
            .collect(),
    };
    for disk in &mut state.disks {
        disk.voter = voters.contains(&disk.number);
    }
}

/// The disks that hold the catalog of a new group: from as many failure groups as possible.
pub(super) fn replica_disks(disks: &[DiskState]) -> Vec<DiskNumber> {
    let wanted = replicas_wanted(disks.len());
    let mut chosen: Vec<&DiskState> = Vec::new();
    while chosen.len() < wanted {
        let Some(next) = replica_candidates(disks, &chosen).first().copied() else {
            break;
        };
        chosen.push(next);
    }
    chosen.iter().map(|disk| disk.number).collect()
}

pub(super) const fn replicas_wanted(disks: usize) -> usize {
    if disks > DISKS_OF_SMALL_GROUP { 5 } else { 3 }
}

/// The disks that could hold a further replica, the best first: those in the failure groups with
/// the fewest so far.
pub(super) fn replica_candidates<'a>(
    disks: &'a [DiskState],
    chosen: &[&DiskState],
) -> Vec<&'a DiskState> {
    let mut candidates: Vec<&DiskState> = (disks.iter())
        .filter(|disk| disk.status == DiskStatus::Online && !disk.quorum_only)
        .filter(|disk| chosen.iter().all(|other| other.number != disk.number))
        .collect();
    candidates.sort_by_key(|disk| (count_in(disk.failure_group, chosen), disk.number));
    candidates
}

/// How many of the disks are in the failure group.
pub(super) fn count_in(failure_group: u16, disks: &[&DiskState]) -> usize {
    (disks.iter())
        .filter(|disk| disk.failure_group == failure_group)
        .count()
}

/// How many failure groups the disks are in.
pub(super) fn spread(disks: &[&DiskState]) -> usize {
    let groups: BTreeSet<u16> = disks.iter().map(|disk| disk.failure_group).collect();
    groups.len()
}
