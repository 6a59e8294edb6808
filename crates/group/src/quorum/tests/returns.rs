//! Disks that come back while the group is open.

use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, Redundancy, Uuid};
use spindle_device::{DiskSlot, SimulatedDisks};
use spindle_format::{DiskStatus, Lost, STATE_PLACES};

use super::{create, forced, make, new_group, online, open, open_of, voters};
use crate::error::{GroupError, GroupErrorKind};
use crate::quorum::{Membership, Standings, look};

const AWAY: DiskNumber = DiskNumber(3);
const SLOT: DiskSlot = DiskSlot(3);
/// Labels and group states lie in it.
const HEAD_BYTES: usize = 1 << 20;

fn come_back(membership: &Membership, slot: DiskSlot) -> Result<Vec<DiskNumber>, GroupError> {
    let returning = membership.judge_return(&[slot], &|_| None)?;
    membership.return_disks(&returning)
}

/// Where the newest group state of the disk stands.
pub(super) fn place_of_newest(disks: &SimulatedDisks, slot: DiskSlot) -> u64 {
    let found = look(disks, &[slot]).pop().unwrap();
    let newest = found.newest_state().unwrap();
    let mut places = STATE_PLACES.into_iter().zip(&found.states);
    places
        .find(|(_, state)| state.state() == Some(newest))
        .unwrap()
        .0
}

/// What the disk may not come back for; nothing has changed.
fn refuse(membership: &Membership, slot: DiskSlot) -> String {
    let before = membership.state();
    let error = come_back(membership, slot).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Invalid, "{error}");
    assert!(!error.message.contains('\n'), "one line: {error}");
    assert_eq!(membership.state(), before);
    error.message
}

fn away() -> (Arc<SimulatedDisks>, Membership) {
    let disks = make("aabb", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[AWAY], "test").unwrap();
    (disks, membership)
}

#[test]
fn a_disk_that_went_offline_comes_back() {
    let (disks, membership) = away();
    assert_eq!(online(&membership), [0, 1, 2]);
    assert_eq!(come_back(&membership, SLOT).unwrap(), [AWAY]);
    assert_eq!(online(&membership), [0, 1, 2, 3]);
    assert_eq!(voters(&membership).len(), 4);
    assert!(
        refuse(&membership, SLOT).contains("online already"),
        "not twice"
    );
    // The state that names it counts after a crash too.
    drop(membership);
    disks.crash();
    disks.restart();
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2, 3]);
}

#[test]
fn a_stranger_does_not_come_back() {
    let (disks, membership) = away();
    let blank = disks.attach(super::DISK_BYTES);
    assert!(refuse(&membership, blank).contains("bears no label"));
    let others = Arc::new(SimulatedDisks::new(2, &[super::DISK_BYTES; 4]));
    let mut other = new_group("aabb", Redundancy::Normal);
    other.uuid = Uuid([8; 16]);
    create(&others, &other).unwrap();
    disks.overwrite(blank, 0, &others.bytes(SLOT, 0, HEAD_BYTES));
    assert!(refuse(&membership, blank).contains("is a disk of group DATA"));
    other.uuid = Uuid([9; 16]);
    other.disks[3].uuid = Uuid([77; 16]);
    create(&others, &other).unwrap();
    disks.overwrite(blank, 0, &others.bytes(SLOT, 0, HEAD_BYTES));
    assert!(refuse(&membership, blank).contains("another identity"));
}

#[test]
fn a_disk_that_another_format_overwrote_does_not_come_back() {
    let (disks, membership) = away();
    super::starts::make_physical_volume(&disks, SLOT);
    let before = disks.bytes(SLOT, 0, HEAD_BYTES);
    let why = refuse(&membership, SLOT);
    assert!(why.contains("an LVM physical volume"), "{why}");
    assert!(disks.bytes(SLOT, 0, HEAD_BYTES) == before);
}

#[test]
fn a_disk_that_was_given_up_does_not_come_back() {
    let (_disks, membership) = away();
    membership
        .change_state(|state| state.disk_mut(AWAY).unwrap().status = DiskStatus::Absent)
        .unwrap();
    assert!(refuse(&membership, SLOT).contains("given up"));
    membership
        .change_state(|state| state.disks.retain(|disk| disk.number != AWAY))
        .unwrap();
    assert!(refuse(&membership, SLOT).contains("dropped since"));
}

#[test]
fn the_half_that_went_on_by_itself_does_not_come_back() {
    for failure_groups in ["ab", "aabb"] {
        let disks = make(failure_groups, Redundancy::Normal);
        let half = u16::try_from(failure_groups.len() / 2).unwrap();
        let left: Vec<DiskSlot> = (half..2 * half).map(DiskSlot).collect();
        let fork = Arc::new(disks.fork(5));
        let membership = open(&disks).unwrap();
        let lost: Vec<DiskNumber> = left.iter().map(|slot| DiskNumber(slot.0)).collect();
        membership.take_offline(&lost, "split").unwrap();
        // A person forces the other half, which writes states of its own.
        let other = open_of(&fork, &forced(), &left).unwrap();
        other.change_state(|_| {}).unwrap();
        for slot in left {
            disks.overwrite(slot, 0, &fork.bytes(slot, 0, HEAD_BYTES));
            let why = refuse(&membership, slot);
            assert!(why.contains("went on without"), "{failure_groups}: {why}");
        }
    }
}

#[test]
fn a_disk_that_was_set_back_does_not_come_back() {
    let disks = make("aabb", Redundancy::Normal);
    let old = disks.bytes(SLOT, 0, HEAD_BYTES);
    let membership = open(&disks).unwrap();
    for _ in 0..3 {
        membership.change_state(|_| {}).unwrap();
    }
    membership.take_offline(&[AWAY], "test").unwrap();
    let held = membership.held_epoch(AWAY).unwrap();
    let good = disks.bytes(SLOT, 0, HEAD_BYTES);
    disks.overwrite(SLOT, 0, &old);
    let error = (membership.judge_return(&[SLOT], &|_| Some(held))).unwrap_err();
    assert!(error.message.contains("was set back"), "{error}");
    disks.overwrite(SLOT, 0, &good);
    let returning = membership.judge_return(&[SLOT], &|_| Some(held)).unwrap();
    assert_eq!(membership.return_disks(&returning).unwrap(), [AWAY]);
}

#[test]
fn a_disk_whose_newest_state_cannot_be_read_is_not_said_to_be_an_older_image() {
    let (disks, membership) = away();
    let held = membership.held_epoch(AWAY).unwrap();
    // The newest state is in one of the two slots; without the other one it comes back.
    let refusals: Vec<String> = STATE_PLACES
        .into_iter()
        .filter_map(|place| {
            let length = usize::try_from(BLOCK_SIZE_BYTES).unwrap();
            let good = disks.bytes(SLOT, place, length);
            disks.overwrite(SLOT, place, &vec![0xa5; length]);
            let answer = membership.judge_return(&[SLOT], &|_| Some(held));
            disks.overwrite(SLOT, place, &good);
            Some(answer.err()?.message)
        })
        .collect();
    let [refusal] = &refusals[..] else {
        panic!("one of the two slots matters: {refusals:?}");
    };
    assert!(refusal.contains("looked at again"), "{refusal}");
    assert!(!refusal.contains("older image"), "{refusal}");
}

#[test]
fn a_crash_at_any_request_of_a_return_leaves_a_disk_that_comes_back() {
    for cut in 1.. {
        let (disks, membership) = away();
        disks.power_fails_after(cut);
        let answer = come_back(&membership, SLOT);
        drop(membership);
        disks.crash();
        disks.restart();
        // The disk is found late: the group opens without it first, or with it.
        for seen in [3, 4] {
            let disks = Arc::new(disks.fork(cut));
            let slots: Vec<DiskSlot> = (0..seen).map(DiskSlot).collect();
            let membership = open_of(&disks, &super::opener(), &slots).unwrap();
            if online(&membership).len() < 4 {
                assert_eq!(come_back(&membership, SLOT).unwrap(), [AWAY], "cut {cut}");
            }
            assert_eq!(online(&membership), [0, 1, 2, 3]);
        }
        if answer.is_ok() {
            assert!(cut > 5, "the cuts meet the return");
            break;
        }
    }
}

#[test]
fn a_disk_that_cannot_take_the_state_stays_away() {
    let (disks, membership) = away();
    disks.fail_writes(SLOT, 0..u64::MAX, u64::MAX);
    assert_eq!(come_back(&membership, SLOT).unwrap(), []);
    assert_eq!(online(&membership), [0, 1, 2]);
    disks.clear_faults(SLOT);
    assert_eq!(come_back(&membership, SLOT).unwrap(), [AWAY]);
}

#[test]
fn a_disk_that_tears_a_state_that_did_not_count_as_it_goes_comes_back() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let heads = [0, 1].map(|slot| disks.bytes(DiskSlot(slot), 0, HEAD_BYTES));
    membership.change_state(|_| {}).unwrap();
    drop(membership);
    // A power cut left the state on the third disk alone: it is put aside.
    for (slot, head) in (0..).map(DiskSlot).zip(heads) {
        disks.overwrite(slot, 0, &head);
    }
    let slot = DiskSlot(2);
    let place = place_of_newest(&disks, slot);
    let length = usize::try_from(BLOCK_SIZE_BYTES).unwrap();
    disks.fail_writes(slot, place..place + BLOCK_SIZE_BYTES, u64::MAX);
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    disks.overwrite(slot, place, &vec![0xa5; length]);
    disks.clear_faults(slot);
    assert_eq!(come_back(&membership, slot).unwrap(), [DiskNumber(2)]);
}

#[test]
fn a_return_that_fails_changes_nothing_of_the_outage() {
    let (disks, membership) = away();
    membership
        .change_state(|state| state.disk_mut(AWAY).unwrap().lost = Lost::EVERYTHING)
        .unwrap();
    let before = membership.state().disk(AWAY).cloned();
    for _ in 0..3 {
        disks.fail_writes(SLOT, 0..u64::MAX, u64::MAX);
        assert_eq!(come_back(&membership, SLOT).unwrap(), []);
        assert_eq!(membership.state().disk(AWAY).cloned(), before);
        disks.clear_faults(SLOT);
    }
    assert_eq!(come_back(&membership, SLOT).unwrap(), [AWAY]);
    let state = membership.state();
    assert_eq!(state.disk(AWAY).unwrap().lost, Lost::NOTHING);
}

#[test]
fn a_return_that_a_power_cut_left_on_a_disk_without_a_vote_alone_is_put_aside() {
    // Disk 2 has no vote while disk 3 is away, and is in another failure group.
    for beats in 0..3 {
        let disks = make("abac", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        membership.take_offline(&[AWAY], "test").unwrap();
        for beat in 0..beats {
            membership.heartbeat(3_000 + beat).unwrap();
        }
        assert_eq!(voters(&membership), [0, 1]);
        let before: Vec<Vec<u8>> = (0..4)
            .map(|slot| disks.bytes(DiskSlot(slot), 0, HEAD_BYTES))
            .collect();
        come_back(&membership, SLOT).unwrap();
        drop(membership);
        for (slot, head) in [(0, &before[0]), (1, &before[1]), (3, &before[3])] {
            disks.overwrite(DiskSlot(slot), 0, head);
        }
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership), [0, 1, 2], "{beats}");
        come_back(&membership, SLOT).unwrap();
        membership.close().unwrap();
        assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2, 3]);
    }
}

#[test]
fn a_disk_that_is_given_up_between_its_look_and_its_return_stays_away() {
    let (_disks, membership) = away();
    let returning = membership.judge_return(&[SLOT], &|_| None).unwrap();
    let give_up = Standings {
        statuses: vec![(AWAY, DiskStatus::Absent)],
        ..Standings::default()
    };
    membership.change_standings(&give_up).unwrap();
    assert_eq!(membership.return_disks(&returning).unwrap(), []);
    assert_eq!(membership.status(AWAY), Some(DiskStatus::Absent));
    assert_eq!(online(&membership), [0, 1, 2]);
}

#[test]
fn a_disk_that_has_come_back_is_not_given_up() {
    let (_disks, membership) = away();
    assert_eq!(come_back(&membership, SLOT).unwrap(), [AWAY]);
    let before = membership.state();
    let give_up = Standings {
        statuses: vec![(AWAY, DiskStatus::Absent)],
        ..Standings::default()
    };
    let error = membership.change_standings(&give_up).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Invalid, "{error}");
    assert_eq!(membership.state(), before);
}
