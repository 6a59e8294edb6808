//! What a voter shows after a mark of an opening, which is no other host's where it may have been there.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DeviceErrorKind, DiskSlot, Disks, FaultyOperation, SimulatedDisks};
use spindle_format::{CLAIM_PLACE, OPENER_BYTES, OPENER_PLACE, STATE_PLACES};

use super::contests::Delayed;
use super::ownership::taken;
use super::{forced, make, name, online, open, open_as, opener, present};
use crate::quorum::Membership;
use crate::{GroupError, GroupErrorKind};

const SECOND: DiskSlot = DiskSlot(1);

/// A group that was opened and closed, so that every voter has marks.
fn closed(letters: &str) -> Arc<SimulatedDisks> {
    let disks = make(letters, Redundancy::Normal);
    open(&disks).unwrap().close().unwrap();
    disks
}

fn fail_reads(disks: &SimulatedDisks, slot: DiskSlot, place: u64, count: u64) {
    let (read, medium) = (FaultyOperation::Read, DeviceErrorKind::Medium);
    disks.fail(slot, read, place..place + 4096, count, medium);
}

fn fail_write(disks: &SimulatedDisks, slot: DiskSlot, place: u64) {
    let (write, medium) = (FaultyOperation::Write, DeviceErrorKind::Medium);
    disks.fail(slot, write, place..place + 4096, 1, medium);
}

fn open_through(
    disks: &Arc<SimulatedDisks>,
    way: Arc<dyn Disks>,
) -> Result<Membership, GroupError> {
    Membership::open(way, &present(disks), &name("data"), &opener(), &|_| false)
}

#[test]
fn a_mark_that_could_not_be_read_when_the_group_was_found_free_tells_of_nobody() {
    for place in [OPENER_PLACE, CLAIM_PLACE] {
        for fails_to_write in [false, true] {
            let disks = closed("ab");
            // Nobody else shows it.
            disks.overwrite(DiskSlot(0), place, &[0; OPENER_BYTES]);
            fail_reads(&disks, SECOND, place, 1);
            let (same, before) = (Arc::clone(&disks), disks.bytes(SECOND, place, OPENER_BYTES));
            if fails_to_write {
                fail_write(&disks, SECOND, place);
            }
            let way = Delayed::after(&disks, OPENER_PLACE, move || {
                if fails_to_write {
                    same.overwrite(SECOND, place, &before);
                }
            });
            let membership = open_through(&disks, way);
            let membership = membership.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(membership.is_online(DiskNumber(1)), !fails_to_write);
        }
    }
}

#[test]
fn a_state_that_could_not_be_read_when_the_group_was_found_free_tells_of_nobody() {
    for place in STATE_PLACES {
        let disks = make("abc", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        let others = [DiskSlot(0), DiskSlot(2)];
        let before = others.map(|slot| disks.bytes(slot, 0, 1 << 20));
        membership.change_state(|_| {}).unwrap();
        drop(membership);
        // The power failed when one disk had the newest state alone.
        for (slot, bytes) in others.into_iter().zip(&before) {
            disks.overwrite(slot, 0, bytes);
        }
        disks.crash();
        disks.restart();
        // It is asked twice.
        fail_reads(&disks, SECOND, place, 2);
        let membership = open(&disks).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(online(&membership), [0, 1, 2]);
    }
}

#[test]
fn a_state_that_no_disk_gives_is_not_passed_over_for_an_older_one() {
    // Closed, and then open when the power failed.
    let scene = || {
        let disks = closed("ab");
        drop(open(&disks).unwrap());
        disks.crash();
        disks.restart();
        disks
    };
    for place in STATE_PLACES {
        let fail = |disks: &SimulatedDisks, count| {
            let slots = present(disks).into_iter();
            slots.for_each(|slot| fail_reads(disks, slot, place, count));
        };
        let disks = scene();
        // For a moment.
        fail(&disks, 1);
        let membership = open(&disks).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(!membership.was_clean(), "{place}");
        // Longer than is waited for.
        let disks = scene();
        fail(&disks, u64::MAX);
        let refusal = open(&disks).unwrap_err();
        assert_eq!(refusal.kind, GroupErrorKind::NoMajority, "{refusal}");
        for word in [
            "of simulated-0 and",
            "of simulated-1",
            "Try again",
            "--force",
        ] {
            assert!(refusal.message.contains(word), "{word}: {refusal}");
        }
        // What an older state says of a clean end is not believed by force either.
        let membership = open_as(&disks, &forced()).unwrap();
        assert!(!membership.was_clean(), "{place}");
    }
}

#[test]
fn a_closed_mirror_opens_though_a_disk_does_not_give_a_slot_of_its_state() {
    for place in STATE_PLACES {
        let disks = closed("ab");
        fail_reads(&disks, SECOND, place, u64::MAX);
        let membership = open(&disks).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(online(&membership), [0, 1]);
        // Not one that was open: the disk may have gone on without the other.
        drop(membership);
        disks.crash();
        disks.restart();
        let refusal = open(&disks).unwrap_err();
        assert_eq!(refusal.kind, GroupErrorKind::NoMajority, "{refusal}");
        // Nor one that was closed without the other.
        let disks = make("ab", Redundancy::Normal);
        let older = disks.bytes(DiskSlot(0), 0, 1 << 20);
        open(&disks).unwrap().close().unwrap();
        disks.overwrite(DiskSlot(0), 0, &older);
        fail_reads(&disks, SECOND, place, u64::MAX);
        if let Ok(membership) = open(&disks) {
            assert_eq!(online(&membership), [1], "{place}");
        }
    }
}

#[test]
fn a_mark_that_was_damaged_and_is_back_where_ours_failed_tells_of_nobody() {
    for place in [OPENER_PLACE, CLAIM_PLACE] {
        let disks = closed("ab");
        let before = disks.bytes(SECOND, place, OPENER_BYTES);
        disks.overwrite(SECOND, place, &[0x55; OPENER_BYTES]);
        fail_write(&disks, SECOND, place);
        let same = Arc::clone(&disks);
        let way = Delayed::after(&disks, OPENER_PLACE, move || {
            same.overwrite(SECOND, place, &before);
        });
        let membership = open_through(&disks, way).unwrap();
        assert_eq!(online(&membership), [0]);
    }
}

#[test]
fn a_group_opens_where_most_voters_have_bad_blocks_in_the_record_s_place() {
    let disks = closed("abc");
    for slot in [DiskSlot(0), DiskSlot(2)] {
        fail_reads(&disks, slot, OPENER_PLACE, u64::MAX);
    }
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1, 2]);
}

#[test]
fn another_s_record_where_ours_was_taken_is_another_s_though_nothing_was_read_there_before() {
    let disks = closed("ab");
    fail_reads(&disks, SECOND, OPENER_PLACE, 1);
    let same = Arc::clone(&disks);
    let way = Delayed::after(&disks, OPENER_PLACE, move || {
        let ours = same.bytes(SECOND, OPENER_PLACE, OPENER_BYTES);
        same.overwrite(SECOND, OPENER_PLACE, &taken(&ours));
    });
    let error = open_through(&disks, way).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Contended, "{error}");
    assert!(error.message.contains("host beta"), "{error}");
}
