//! Disks that fail while the group is open.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::DiskSlot;
use spindle_format::{DiskStatus, Replica, STATE_PLACES};

use super::{
    DISK_BYTES, forced, joining_last, make, online, open, open_as, open_of, opener, present, voters,
};
use crate::GroupErrorKind;
use crate::quorum::{Standings, look};

#[test]
fn the_half_of_a_mirror_that_outlived_the_other_mounts_by_itself() {
    for failure_groups in ["ab", "aabb"] {
        let disks = make(failure_groups, Redundancy::Normal);
        let membership = open(&disks).unwrap();
        let half = online(&membership).len() / 2;
        let lost: Vec<DiskNumber> = (half..2 * half)
            .map(|number| DiskNumber(u16::try_from(number).unwrap()))
            .collect();
        for disk in &lost {
            disks.vanish(DiskSlot(disk.0));
        }
        membership
            .take_offline(&lost, "a cabinet lost its power")
            .unwrap();
        disks.crash();
        disks.restart();
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership).len(), half, "{failure_groups}");
    }
}

#[test]
fn the_half_that_was_left_behind_does_not_mount() {
    for failure_groups in ["ab", "aabb"] {
        let disks = make(failure_groups, Redundancy::Normal);
        let membership = open(&disks).unwrap();
        let half = u16::try_from(online(&membership).len() / 2).unwrap();
        let lost: Vec<DiskNumber> = (half..2 * half).map(DiskNumber).collect();
        membership.take_offline(&lost, "test").unwrap();
        drop(membership);
        let left: Vec<DiskSlot> = (half..2 * half).map(DiskSlot).collect();
        let error = open_of(&disks, &opener(), &left).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::NoMajority, "{error}");
        // With the survivors in sight it is their state that counts.
        assert_eq!(
            online(&open(&disks).unwrap()),
            (0..half).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_survivor_that_goes_while_it_is_looked_at_does_not_vote_for_the_half_left_behind() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[DiskNumber(0)], "test").unwrap();
    drop(membership);
    let mut refused_count = 0;
    for requests in 1..=10 {
        let disks = Arc::new(disks.fork(requests));
        disks.vanish_after(DiskSlot(1), requests);
        match open(&disks) {
            Ok(membership) => assert_eq!(online(&membership), [1], "after {requests} requests"),
            Err(_) => refused_count += 1,
        }
    }
    assert!(refused_count >= 7, "{refused_count}");
}

#[test]
fn a_lost_voter_is_replaced_at_once() {
    let disks = make("abcd", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    assert_eq!(voters(&membership), [0, 1, 2]);
    disks.vanish(DiskSlot(0));
    membership.take_offline(&[DiskNumber(0)], "test").unwrap();
    assert_eq!(voters(&membership), [1, 2, 3]);
    // One after the other, so that each time the votes were given anew.
    disks.vanish(DiskSlot(1));
    membership.take_offline(&[DiskNumber(1)], "test").unwrap();
    assert_eq!(voters(&membership), [2, 3]);
}

#[test]
fn a_disk_that_goes_offline_before_its_drop_is_published_is_not_brought_back_by_that() {
    for (status, leaves) in [(DiskStatus::Dropping, true), (DiskStatus::Online, false)] {
        let disks = make("aabb", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        membership.take_offline(&[DiskNumber(1)], "test").unwrap();
        // As it was judged while the disk served.
        let change = Standings {
            statuses: vec![(DiskNumber(1), status)],
            ..Standings::default()
        };
        membership.change_standings(&change).unwrap();
        assert_eq!(online(&membership), [0, 2, 3]);
        assert_eq!(membership.status(DiskNumber(1)), Some(DiskStatus::Offline));
        assert_eq!(membership.leaves(DiskNumber(1)), leaves);
    }
}

#[test]
fn a_disk_that_fails_beside_one_that_joins_and_fails_went_when_it_failed() {
    let disks = make("abc", Redundancy::Normal);
    let joining = disks.attach(DISK_BYTES);
    let membership = open(&disks).unwrap();
    let join = joining_last(&membership, "abcd");
    let epoch = membership.epoch();
    let states = STATE_PLACES[0]..STATE_PLACES[1] + (128 << 10);
    for slot in [DiskSlot(2), joining] {
        disks.fail_writes(slot, states.clone(), u64::MAX);
    }
    membership.change_standings(&join).unwrap_err();
    assert_eq!(online(&membership), [0, 1]);
    assert!(membership.offline_epoch(DiskNumber(2)).unwrap() > epoch);
}

#[test]
fn a_disk_that_cannot_take_the_new_state_goes_offline_too() {
    let disks = make("aabb", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.fail_writes(
        DiskSlot(1),
        STATE_PLACES[0]..STATE_PLACES[1] + (128 << 10),
        u64::MAX,
    );
    membership
        .take_offline(&[DiskNumber(0)], "a write failed")
        .unwrap();
    assert_eq!(online(&membership), [2, 3]);
    let events = membership.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.message.contains("could not take the group state"))
    );
    drop(membership);
    assert_eq!(online(&open(&disks).unwrap()), [2, 3]);
}

#[test]
fn a_group_that_loses_most_voters_at_once_stops_and_stays_stopped() {
    let disks = make("abc", Redundancy::High);
    let membership = open(&disks).unwrap();
    disks.vanish(DiskSlot(0));
    disks.vanish(DiskSlot(1));
    let lost = [DiskNumber(0), DiskNumber(1)];
    let error = membership.take_offline(&lost, "test").unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Io);
    assert!(error.message.contains("stops"), "{error}");
    assert!(membership.take_offline(&[DiskNumber(2)], "test").is_err());
    assert!(membership.close().is_err());
    drop(membership);
    // The survivor cannot know whether the others went on without it.
    assert_eq!(open(&disks).unwrap_err().kind, GroupErrorKind::NoMajority);
    assert_eq!(online(&open_as(&disks, &forced()).unwrap()), [2]);
}

#[test]
fn the_last_replica_of_the_catalog_is_never_given_up() {
    let disks = make("aab", Redundancy::External);
    let membership = open(&disks).unwrap();
    for disk in [0, 1] {
        membership
            .take_offline(&[DiskNumber(disk)], "test")
            .unwrap();
    }
    assert_eq!(membership.catalog_runs().len(), 1);
    assert!(membership.take_offline(&[DiskNumber(2)], "test").is_err());
}

#[test]
fn taking_a_disk_offline_twice_is_one_step() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[DiskNumber(2)], "test").unwrap();
    let epoch = membership.epoch();
    membership.take_offline(&[DiskNumber(2)], "test").unwrap();
    assert_eq!(membership.epoch(), epoch);
}

#[test]
fn a_voter_that_cannot_take_a_heartbeat_goes_offline() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.vanish(DiskSlot(1));
    membership.heartbeat(2_010).unwrap();
    assert_eq!(online(&membership), [0, 2]);
}

#[test]
fn the_last_relied_on_state_stays_while_the_next_one_is_written() {
    let disks = make("aabb", Redundancy::Normal);
    let check = |epoch: u64| {
        for look in look(&*disks, &present(&disks)) {
            let mut epochs = look.states.map(|slot| slot.state().unwrap().epoch);
            epochs.sort_unstable();
            assert_eq!(epochs, [epoch - 1, epoch], "{}", look.path);
        }
    };
    for _ in 0..2 {
        let membership = open(&disks).unwrap();
        check(membership.epoch());
        membership.change_state(|_| {}).unwrap();
        check(membership.epoch());
    }
}

#[test]
fn a_replica_on_a_disk_that_went_while_it_was_made_is_not_recorded_be_the_disk_back_or_not() {
    let disks = make("abcd", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let state = membership.state();
    let held = |disk: &DiskNumber| state.replicas.iter().any(|replica| replica.disk == *disk);
    let free = (0..4).map(DiskNumber).find(|disk| !held(disk)).unwrap();
    let made = Replica {
        disk: free,
        runs: state.replicas[0].runs.clone(),
    };
    let made_in = membership.incarnation(free);
    membership.take_offline(&[free], "it was pulled").unwrap();
    let refused = || {
        let error = membership.record_replica(&made, made_in, None).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Io, "{error}");
    };
    refused();
    let slots = [DiskSlot(free.0)];
    let returning = membership.judge_return(&slots, &|_| None).unwrap();
    assert_eq!(membership.return_disks(&returning).unwrap(), [free]);
    refused();
    let named: Vec<DiskNumber> = (membership.state().replicas.iter())
        .map(|replica| replica.disk)
        .collect();
    assert!(!named.contains(&free), "{named:?}");
    membership.change_state(|_| {}).unwrap();
}
