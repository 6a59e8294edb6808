//! Disks that a newer program wrote: a version or a feature that is not known here.

use spindle_base::{DiskNumber, Redundancy, crc32c};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};
use spindle_format::{
    HEADER_CHECKSUM_OFFSET, LABEL_BYTES, LABEL_PLACES, OPENER_PLACE, STATE_FEATURES_OFFSET,
    STATE_LENGTH_OFFSET, STATE_PLACES, end_label_place,
};

use super::{DISK_BYTES, forced, make, online, open, open_as, opener};
use crate::event::Event;
use crate::quorum::{LabelFound, look};
use crate::{GroupErrorKind, Opener};

const VERSION_OFFSET: usize = 8;
const LABEL_FEATURES_OFFSET: usize = 168;

/// Writes a field of a structure as a newer program would: the rest as it is, the sum right.
fn rewrite(disks: &SimulatedDisks, slot: DiskSlot, place: u64, offset: usize, value: u32) {
    let mut bytes = disks.bytes(slot, place, LABEL_BYTES);
    let summed = if STATE_PLACES.contains(&place) {
        let length = bytes[STATE_LENGTH_OFFSET..].first_chunk().unwrap();
        usize::try_from(u32::from_le_bytes(*length)).unwrap()
    } else {
        LABEL_BYTES
    };
    let sum = HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4;
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    bytes[sum.clone()].fill(0);
    let new = crc32c(&bytes[..summed]);
    bytes[sum].copy_from_slice(&new.to_le_bytes());
    disks.overwrite(slot, place, &bytes);
}

/// The slot of the newest state on the disk.
fn newest_place(disks: &SimulatedDisks, slot: DiskSlot) -> u64 {
    let looks = look(disks, &[slot]);
    let epoch = |index: usize| looks[0].states[index].state().map(|state| state.epoch);
    STATE_PLACES[usize::from(epoch(1) > epoch(0))]
}

#[test]
fn what_a_newer_program_wrote_is_refused_and_stays_as_it_is() {
    let structures = [
        (LABEL_PLACES[0], VERSION_OFFSET),
        (LABEL_PLACES[1], VERSION_OFFSET),
        (LABEL_PLACES[1], LABEL_FEATURES_OFFSET),
        (end_label_place(DISK_BYTES), VERSION_OFFSET),
        (end_label_place(DISK_BYTES), LABEL_FEATURES_OFFSET),
        (OPENER_PLACE, VERSION_OFFSET),
        (STATE_PLACES[0], VERSION_OFFSET),
        (STATE_PLACES[1], VERSION_OFFSET),
        (STATE_PLACES[0], STATE_FEATURES_OFFSET),
        (STATE_PLACES[1], STATE_FEATURES_OFFSET),
    ];
    for (place, offset) in structures {
        let disks = make("abc", Redundancy::Normal);
        open(&disks).unwrap().close().unwrap();
        let before = disks.bytes(DiskSlot(1), place, LABEL_BYTES);
        rewrite(&disks, DiskSlot(1), place, offset, 1 << 31);
        let writes = disks.counts().writes;
        for who in [opener(), forced()] {
            let error = open_as(&disks, &who).unwrap_err();
            assert_eq!(error.kind, GroupErrorKind::Invalid, "{place}: {error}");
            assert!(error.message.contains(&disks.path(DiskSlot(1))), "{error}");
            assert!(error.message.contains("newer"), "{error}");
        }
        assert_eq!(disks.counts().writes, writes, "nothing was written");
        disks.overwrite(DiskSlot(1), place, &before);
        assert!(
            open(&disks).unwrap().was_clean(),
            "the newer program goes on"
        );
    }
}

#[test]
fn a_newer_state_on_every_disk_does_not_let_the_older_one_be_elected() {
    let disks = make("abc", Redundancy::Normal);
    open(&disks).unwrap().close().unwrap();
    for slot in [DiskSlot(0), DiskSlot(1), DiskSlot(2)] {
        let place = newest_place(&disks, slot);
        rewrite(&disks, slot, place, VERSION_OFFSET, 2);
    }
    let writes = disks.counts().writes;
    let error = open_as(&disks, &forced()).unwrap_err();
    assert!(error.message.contains("version 2"), "{error}");
    assert_eq!(disks.counts().writes, writes);
}

#[test]
fn where_every_label_is_a_newer_programs_the_refusal_says_so() {
    let disks = make("ab", Redundancy::Normal);
    for slot in [DiskSlot(0), DiskSlot(1)] {
        for place in LABEL_PLACES {
            rewrite(&disks, slot, place, VERSION_OFFSET, 7);
        }
    }
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotFound);
    assert!(error.message.contains("version 7"), "{error}");
    let looks = look(&*disks, &[DiskSlot(0)]);
    assert!(matches!(looks[0].label, LabelFound::Newer { .. }));
}

#[test]
fn a_disk_that_a_newer_program_wrote_does_not_come_back() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[DiskNumber(2)], "test").unwrap();
    let slot = DiskSlot(2);
    let place = newest_place(&disks, slot);
    rewrite(&disks, slot, place, STATE_FEATURES_OFFSET, 1 << 30);
    let error = membership.judge_return(&[slot], &|_| None).unwrap_err();
    assert!(error.message.contains("newer program"), "{error}");
}

#[test]
fn a_newer_structure_that_is_damaged_is_damage() {
    let disks = make("abc", Redundancy::Normal);
    open(&disks).unwrap().close().unwrap();
    rewrite(&disks, DiskSlot(1), STATE_PLACES[0], VERSION_OFFSET, 2);
    disks.flip_bits(DiskSlot(1), STATE_PLACES[0] + 40..STATE_PLACES[0] + 41, 1);
    let other = Opener {
        process_id: 101,
        ..opener()
    };
    open_as(&disks, &other).unwrap();
}

#[test]
fn a_newer_label_at_the_end_counts_beside_a_group_state_and_alone_it_is_only_told() {
    let end = end_label_place(DISK_BYTES);
    for has_state in [true, false] {
        let disks = make("abc", Redundancy::Normal);
        open(&disks).unwrap().close().unwrap();
        let slot = DiskSlot(1);
        rewrite(&disks, slot, end, VERSION_OFFSET, 7);
        let newer = disks.bytes(slot, end, LABEL_BYTES);
        for place in LABEL_PLACES {
            disks.overwrite(slot, place, &[0; LABEL_BYTES]);
        }
        if !has_state {
            for place in STATE_PLACES {
                disks.overwrite(slot, place, &[0; LABEL_BYTES]);
            }
        }
        let answer = open(&disks);
        if has_state {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, GroupErrorKind::Invalid, "{error}");
            assert!(error.message.contains("version 7"), "{error}");
            assert!(error.message.contains(&disks.path(slot)), "{error}");
        } else {
            let membership = answer.unwrap();
            assert_eq!(online(&membership), [0, 2]);
            let told = membership.take_events();
            let named = |event: &Event| event.message.contains("version 7");
            assert!(told.iter().any(named), "{told:?}");
        }
        assert!(disks.bytes(slot, end, LABEL_BYTES) == newer);
    }
}

#[test]
fn what_lies_at_the_end_and_is_another_disks_is_no_newer_label_of_this_one() {
    let disks = make("abc", Redundancy::Normal);
    open(&disks).unwrap().close().unwrap();
    let end = end_label_place(DISK_BYTES);
    rewrite(&disks, DiskSlot(2), end, VERSION_OFFSET, 7);
    let other = disks.bytes(DiskSlot(2), end, LABEL_BYTES);
    disks.overwrite(DiskSlot(1), end, &other);
    rewrite(&disks, DiskSlot(2), end, VERSION_OFFSET, 1);
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
}
