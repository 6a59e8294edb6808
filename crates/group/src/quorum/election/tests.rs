//! The rows of the election's table that disks alone do not easily show.

use std::sync::Arc;

use spindle_base::{AuSize, DiskNumber, GroupName, Redundancy, Uuid};
use spindle_catalog::Standing;
use spindle_format::{AuRun, DiskState, DiskStatus, Features, GroupState, Lost, Replica};

use super::{Holder, NotElected, elect};
use crate::quorum::SlotFound;

/// A state of a group of five disks; `mark` tells histories of one epoch apart.
fn state(epoch: u64, voters: &[u16], mark: &str) -> GroupState {
    GroupState {
        epoch,
        group_uuid: Uuid([1; 16]),
        group_name: GroupName::new(mark).unwrap(),
        clean: false,
        redundancy: Redundancy::Normal,
        au_size: AuSize::DEFAULT,
        next_disk_number: 5,
        region_size_bytes: 0,
        features: Features::default(),
        disks: (0..5)
            .map(|number| DiskState {
                number: DiskNumber(number),
                failure_group: number,
                size_aus: 100,
                uuid_start: [0; 8],
                status_epoch: 1,
                status: DiskStatus::Online,
                voter: voters.contains(&number),
                quorum_only: false,
                leaves: false,
                lost: Lost::NOTHING,
            })
            .collect(),
        replicas: vec![Replica {
            disk: DiskNumber(0),
            runs: vec![AuRun {
                start_au: 1,
                aus: 4,
            }],
        }],
    }
}

fn found(state: &GroupState) -> SlotFound {
    SlotFound::State(Arc::new(state.clone()))
}

fn damaged() -> SlotFound {
    SlotFound::Damaged("test".to_owned())
}

fn elected(disks: &[(u16, [SlotFound; 2])], force: bool) -> Result<GroupState, NotElected> {
    elected_without(disks, &[], force)
}

/// Of the disks in `unread` a slot could not be read.
fn elected_without(
    disks: &[(u16, [SlotFound; 2])],
    unread: &[u16],
    force: bool,
) -> Result<GroupState, NotElected> {
    elected_knowing(disks, unread, None, force)
}

/// The epoch that is in force is known.
fn elected_knowing(
    disks: &[(u16, [SlotFound; 2])],
    unread: &[u16],
    known: Option<(u64, u64)>,
    force: bool,
) -> Result<GroupState, NotElected> {
    let holders: Vec<Holder<'_>> = (disks.iter())
        .map(|(number, states)| Holder {
            number: DiskNumber(*number),
            uuid_start: [0; 8],
            states,
            is_unread: unread.contains(number),
            opener: None,
        })
        .collect();
    let known = known.map(|(epoch_in_force, epoch_tried)| Standing {
        epoch_tried,
        epoch_in_force,
        all_is_equal: true,
    });
    elect(&holders, known, force).cloned()
}

#[test]
fn a_state_that_a_crash_interrupted_is_put_aside() {
    let old = state(4, &[0, 1, 2], "a");
    let new = state(5, &[0, 1, 2], "b");
    let disks = [
        (0, [found(&old), found(&new)]),
        (1, [found(&old), SlotFound::Blank]),
    ];
    assert_eq!(elected(&disks, false), Ok(old));
}

#[test]
fn a_state_that_may_have_a_successor_in_a_slot_that_is_unread_is_refused() {
    let old = state(4, &[0, 1, 2], "a");
    let disks: Vec<(u16, [SlotFound; 2])> = (0..3)
        .map(|number| (number, [found(&old), damaged()]))
        .collect();
    // What was read and is damaged is a writing that was cut off.
    assert_eq!(elected(&disks, false), Ok(old.clone()));
    // The newer state would lie on two of three at least.
    assert_eq!(elected_without(&disks, &[1], false), Ok(old.clone()));
    let refusal = NotElected::Unread {
        epoch: 4,
        unread: vec![DiskNumber(0), DiskNumber(2)],
    };
    assert_eq!(elected_without(&disks, &[0, 2], false), Err(refusal));
    assert_eq!(elected_without(&disks, &[0, 2], true), Ok(old.clone()));
    // A disk that has no voice proves nothing and hides nothing.
    let mut with_another = disks.clone();
    with_another.push((4, [found(&old), damaged()]));
    assert_eq!(elected_without(&with_another, &[4], false), Ok(old));
}

#[test]
fn a_newer_state_that_may_have_been_relied_on_blocks_the_older() {
    let old = state(4, &[0, 1, 2], "a");
    let new = state(5, &[0, 1], "b");
    let disks = [
        (1, [found(&old), found(&new)]),
        (2, [found(&old), SlotFound::Blank]),
    ];
    let refusal = NotElected::NoMajority {
        epoch: 5,
        seen: 1,
        voters: 2,
        unseen: vec![DiskNumber(0)],
    };
    assert_eq!(elected(&disks, false), Err(refusal));
    assert_eq!(elected(&disks, true), Ok(new));
}

#[test]
fn a_damaged_slot_proves_nothing() {
    let old = state(4, &[0, 1, 2], "a");
    let new = state(5, &[0, 1], "b");
    let disks = [
        (0, [found(&old), found(&new)]),
        (1, [found(&old), damaged()]),
        (2, [found(&old), SlotFound::Blank]),
    ];
    assert_eq!(elected(&disks, false), Ok(new));
}

#[test]
fn of_two_histories_the_one_with_a_majority_is_elected() {
    let lonely = state(5, &[0, 1], "a");
    let others = state(5, &[1, 2, 3], "b");
    let disks = [
        (0, [found(&lonely), damaged()]),
        (2, [found(&others), SlotFound::Blank]),
        (3, [found(&others), SlotFound::Blank]),
    ];
    assert_eq!(elected(&disks, false), Ok(others));
}

#[test]
fn two_histories_of_equal_right_are_refused() {
    let left = state(5, &[0], "a");
    let right = state(5, &[1], "b");
    let disks = [
        (0, [found(&left), SlotFound::Blank]),
        (1, [found(&right), SlotFound::Blank]),
    ];
    assert_eq!(
        elected(&disks, false),
        Err(NotElected::Diverged { epoch: 5 })
    );
    assert_eq!(elected(&disks, true), Ok(left));
}

#[test]
fn disks_without_any_state_are_refused() {
    let disks = [(0, [SlotFound::Blank, damaged()])];
    assert_eq!(elected(&disks, true), Err(NotElected::NoState));
}

#[test]
fn a_disk_that_was_ahead_alone_does_not_drag_the_others_along() {
    // Disk 0 was written three times by starts that power cuts ended; the others went on.
    let first = state(6, &[0, 1, 2], "a");
    let second = state(7, &[0, 1, 2], "a");
    let others_before = state(5, &[1, 2, 3], "b");
    let others = state(6, &[1, 2, 3], "b");
    let both = || [found(&others_before), found(&others)];
    let disks = [
        (0, [found(&first), found(&second)]),
        (1, both()),
        (2, both()),
        (3, both()),
    ];
    assert_eq!(elected(&disks, false), Ok(others));
}

#[test]
fn half_of_the_voters_of_the_state_that_is_known_to_be_in_force_suffice() {
    let in_force = state(4, &[0, 1], "a");
    let tried = state(5, &[0, 1], "b");
    let elected = |slots: [SlotFound; 2], known| elected_knowing(&[(0, slots)], &[], known, false);
    let blank = || SlotFound::Blank;
    let only = || [found(&in_force), blank()];
    let both = || [found(&in_force), found(&tried)];
    assert_eq!(elected(only(), Some((4, 4))).unwrap(), in_force);
    // What was tried after it nothing has relied on.
    assert_eq!(elected(both(), Some((4, 5))).unwrap(), in_force);
    for (slots, known) in [
        (only(), None),
        // This half was left behind.
        (only(), Some((5, 5))),
        (only(), Some((3, 3))),
        // The other half may have what was tried, and be all that it names.
        (only(), Some((4, 5))),
        (both(), Some((4, 6))),
    ] {
        let refused = elected(slots, known).unwrap_err();
        assert!(
            matches!(refused, NotElected::NoMajority { .. }),
            "{refused:?}"
        );
    }
    let fewer = state(4, &[0, 1, 2], "a");
    elected([found(&fewer), blank()], Some((4, 4))).unwrap_err();
}
