//! Disks that fail as an opening writes to them, and are not given up where the redundancy does not
//! bear it.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy, Uuid};
use spindle_device::{DeviceErrorKind, DiskSlot, FaultyOperation, SimulatedDisks};
use spindle_format::{CLAIM_PLACE, INTENT_PLACE, OPENER_BYTES, OPENER_PLACE, STATE_PLACES};

use super::claims::with_a_disk_put_back;
use super::{forced, make, online, open, open_as, opener, present};
use crate::{GroupErrorKind, Opener};

/// Two disks of two failure groups.
const FAILING: [DiskSlot; 2] = [DiskSlot(0), DiskSlot(3)];
const STATES: (u64, u64) = (STATE_PLACES[0], 2 * (STATE_PLACES[1] - STATE_PLACES[0]));

fn fail_writes(disks: &SimulatedDisks, slot: DiskSlot, (place, length): (u64, u64), count: u64) {
    let (write, medium) = (FaultyOperation::Write, DeviceErrorKind::Medium);
    disks.fail(slot, write, place..place + length, count, medium);
}

fn clear(disks: &SimulatedDisks) {
    present(disks)
        .into_iter()
        .for_each(|slot| disks.clear_faults(slot));
}

fn on_host_beta() -> Opener {
    Opener {
        host: "beta".to_owned(),
        boot: Uuid([0xb2; 16]),
        ..opener()
    }
}

/// A group that was closed, or that a dead process left open.
fn left(is_closed: bool) -> Arc<SimulatedDisks> {
    let disks = make("abcde", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.heartbeat(2_001).unwrap();
    if is_closed {
        membership.close().unwrap();
    }
    disks
}

/// Refuses, and names the disks and what to do.
fn refuse(disks: &Arc<SimulatedDisks>) {
    let error = open(disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough, "{error}");
    for word in ["simulated-0", "simulated-3", "normal", "--force"] {
        assert!(error.message.contains(word), "{word}: {error}");
    }
}

#[test]
fn where_two_failure_groups_take_no_mark_of_an_opening_it_is_refused_and_leaves_none() {
    for place in [OPENER_PLACE, CLAIM_PLACE] {
        for (is_closed, count) in [(true, 1), (true, u64::MAX), (false, 1), (false, u64::MAX)] {
            let disks = left(is_closed);
            for slot in FAILING {
                fail_writes(&disks, slot, (place, 4096), count);
            }
            let records = || -> Vec<Vec<u8>> {
                let slots = present(&disks).into_iter();
                (slots.map(|slot| disks.bytes(slot, OPENER_PLACE, OPENER_BYTES))).collect()
            };
            let before = records();
            refuse(&disks);
            // A write that failed may have come to a disk which then takes no other one.
            let is_taken_back = count == 1 || place != OPENER_PLACE;
            let is_as_before = records() == before;
            assert!(!is_taken_back || is_as_before, "{place}, {count}");
            clear(&disks);
            let next = match is_closed && is_as_before {
                true => on_host_beta(),
                false => opener(),
            };
            let membership = open_as(&disks, &next).unwrap();
            assert_eq!(online(&membership), [0, 1, 2, 3, 4], "{place}, {count}");
            let is_clean = is_closed && is_as_before;
            assert_eq!(membership.was_clean(), is_clean, "{place}, {count}");
        }
    }
}

#[test]
fn where_two_failure_groups_do_not_take_the_first_state_of_an_opening_none_of_them_goes_offline() {
    for is_closed in [true, false] {
        let disks = left(is_closed);
        for slot in FAILING {
            fail_writes(&disks, slot, STATES, u64::MAX);
        }
        refuse(&disks);
        clear(&disks);
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership), [0, 1, 2, 3, 4]);
        assert!(membership.take_events().is_empty());
    }
}

#[test]
fn a_person_opens_a_group_without_the_disks_that_take_no_mark() {
    let disks = left(true);
    for slot in FAILING {
        fail_writes(&disks, slot, (OPENER_PLACE, 4096), u64::MAX);
    }
    let membership = open_as(&disks, &forced()).unwrap();
    assert_eq!(online(&membership), [1, 2, 4]);
}

#[test]
fn an_opening_that_leaves_out_a_disk_and_is_refused_takes_its_intent_back() {
    for is_closed in [true, false] {
        let disks = with_a_disk_put_back("abcde", is_closed);
        fail_writes(&disks, DiskSlot(3), (INTENT_PLACE, 4096), 1);
        let error = open(&disks).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::NotEnough, "{error}");
        assert!(error.message.contains("simulated-3"), "{error}");
        for slot in present(&disks) {
            assert_eq!(disks.bytes(slot, INTENT_PLACE, 16), [0; 16]);
        }
        let next = if is_closed { on_host_beta() } else { opener() };
        let membership = open_as(&disks, &next).unwrap();
        assert_eq!(online(&membership), [0, 2, 3, 4]);
        assert!(!membership.is_online(DiskNumber(1)));
    }
}
