//! What a start finds on the disks, and what it makes of it.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy, Uuid};
use spindle_device::{DeviceErrorKind, DiskSlot, Disks, FaultyOperation, SimulatedDisks};
use spindle_format::{DiskStatus, GroupState, LABEL_PLACES, Origin, STATE_PLACES, end_label_place};

use super::returns::place_of_newest;
use super::{
    DISK_BYTES, create, forced, joining_last, make, name, new_group, online, open, open_as,
    open_of, opener, present, voters,
};
use crate::quorum::{LabelFound, Membership, SlotFound, look};
use crate::{GroupErrorKind, Opener};

#[test]
fn all_voters_seen_mounts() {
    let disks = make("aabb", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    assert!(membership.was_clean());
    assert_eq!(online(&membership), [0, 1, 2, 3]);
    assert_eq!(voters(&membership), [0, 1, 2, 3]);
    assert!(membership.take_events().is_empty());
    membership.close().unwrap();
    assert!(open(&disks).unwrap().was_clean());
    assert!(!open(&disks).unwrap().was_clean());
}

#[test]
fn a_majority_of_voters_mounts() {
    let disks = make("abc", Redundancy::Normal);
    disks.vanish(DiskSlot(1));
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 2]);
    assert_eq!(membership.status(DiskNumber(1)), Some(DiskStatus::Offline));
    assert_eq!(voters(&membership), [0, 2]);
    disks.bring_back(DiskSlot(1));
    membership.close().unwrap();
    let membership = open(&disks).unwrap();
    assert_eq!(
        online(&membership),
        [0, 2],
        "what it missed is not made good"
    );
}

#[test]
fn half_of_the_voters_at_rest_is_refused() {
    for failure_groups in ["ab", "aabb"] {
        let disks = make(failure_groups, Redundancy::Normal);
        let half = present(&disks).len() / 2;
        for slot in present(&disks).into_iter().take(half) {
            disks.vanish(slot);
        }
        let error = open(&disks).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::NoMajority);
        assert!(error.message.contains("--force"), "{error}");
        assert_eq!(online(&open_as(&disks, &forced()).unwrap()).len(), half);
    }
}

#[test]
fn more_missing_failure_groups_than_the_redundancy_bears_are_refused() {
    let disks = make("abcde", Redundancy::Normal);
    disks.vanish(DiskSlot(0));
    disks.vanish(DiskSlot(3));
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough, "{error}");
    assert!(error.message.contains("0, 3"), "{error}");
    assert_eq!(online(&open_as(&disks, &forced()).unwrap()), [1, 2, 4]);
}

#[test]
fn looking_never_writes() {
    let disks = make("ab", Redundancy::Normal);
    disks.flip_bits(DiskSlot(0), 100..200, 1);
    let before = disks.counts();
    let looks = look(&*disks, &present(&disks));
    assert_eq!(disks.counts().writes, before.writes);
    assert_eq!(disks.counts().flushes, before.flushes);
    assert!(matches!(&looks[0].label, LabelFound::Good { repairs, .. } if repairs.len() == 1));
}

#[test]
fn a_damaged_label_is_repaired_from_the_other_copy_by_opening_alone() {
    for place in LABEL_PLACES {
        let disks = make("ab", Redundancy::Normal);
        let whole = disks.bytes(DiskSlot(0), place, 4096);
        disks.flip_bits(DiskSlot(0), place..place + 192, 1);
        let membership = open(&disks).unwrap();
        assert_eq!(disks.durable_bytes(DiskSlot(0), place, 4096), whole);
        let events = membership.take_events();
        assert!(
            events[0]
                .message
                .contains("written again from another copy"),
            "{events:?}"
        );
    }
}

#[test]
fn a_disk_with_every_label_damaged_counts_as_missing() {
    let disks = make("abc", Redundancy::Normal);
    for place in LABEL_PLACES
        .into_iter()
        .chain([end_label_place(DISK_BYTES)])
    {
        disks.flip_bits(DiskSlot(2), place + 32..place + 192, 1);
    }
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    let events = membership.take_events();
    assert!(
        events[0].message.contains("no copy of its label counts"),
        "{events:?}"
    );
}

#[test]
fn the_label_at_the_end_stands_in_for_those_that_were_damaged() {
    let disks = make("abc", Redundancy::Normal);
    let whole = LABEL_PLACES.map(|place| disks.bytes(DiskSlot(2), place, 4096));
    for place in LABEL_PLACES {
        disks.flip_bits(DiskSlot(2), place + 32..place + 192, 1);
    }
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
    let again = LABEL_PLACES.map(|place| disks.durable_bytes(DiskSlot(2), place, 4096));
    assert_eq!(again, whole);
    // And the other way round.
    let end = end_label_place(DISK_BYTES);
    let whole = disks.bytes(DiskSlot(1), end, 4096);
    disks.overwrite(DiskSlot(1), end, &[0; 4096]);
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
    assert_eq!(disks.durable_bytes(DiskSlot(1), end, 4096), whole);
}

/// As `pvcreate` leaves the beginning of a disk.
pub(super) fn make_physical_volume(disks: &SimulatedDisks, slot: DiskSlot) {
    let mut block = vec![0; 4096];
    block[512..520].copy_from_slice(b"LABELONE");
    block[536..544].copy_from_slice(b"LVM2 001");
    disks.overwrite(slot, 0, &block);
}

/// As `mkfs.xfs -K` leaves the very beginning of a disk.
fn make_xfs(disks: &SimulatedDisks, slot: DiskSlot) {
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(b"XFSB");
    disks.overwrite(slot, 0, &block);
}

/// As `mdadm --create` leaves the beginning of a disk: no copy of the label is touched.
fn make_raid_member(disks: &SimulatedDisks, slot: DiskSlot) {
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    disks.overwrite(slot, 4096, &block);
}

#[test]
fn a_member_that_another_format_overwrote_is_named_and_left_as_it_is() {
    type Overwrite = fn(&SimulatedDisks, DiskSlot);
    let formats: [(Overwrite, &str); 3] = [
        (make_physical_volume, "an LVM physical volume"),
        (make_xfs, "an XFS file system"),
        (make_raid_member, "a Linux RAID member (md)"),
    ];
    let slot = DiskSlot(1);
    for (overwrite, format) in formats {
        // All else, the second copy of the label, or that and the states.
        for left in 0..3 {
            let disks = make("abc", Redundancy::Normal);
            open(&disks).unwrap().close().unwrap();
            overwrite(&disks, slot);
            if left > 0 {
                disks.overwrite(slot, LABEL_PLACES[1], &[0; 4096]);
            }
            for place in STATE_PLACES.into_iter().filter(|_| left > 1) {
                disks.overwrite(slot, place, &[0; 4096]);
            }
            let before = disks.bytes(slot, 0, 1 << 20);
            let membership = open(&disks).unwrap();
            assert_eq!(online(&membership), [0, 2], "{left}");
            let told = membership.take_events();
            let names = |message: &str| {
                message.contains(&disks.path(slot))
                    && message.contains(format)
                    && message.contains("disk DATA_0001 of group DATA")
            };
            assert!(told.iter().any(|event| names(&event.message)), "{told:?}");
            let error = membership.judge_return(&[slot], &|_| None).unwrap_err();
            assert!(names(&error.message), "{error}");
            membership.verify_structures(true);
            membership.close().unwrap();
            assert!(disks.bytes(slot, 0, 1 << 20) == before);
        }
        // Where the others do not suffice the refusal names it, and so where it was alone.
        for failure_groups in ["ab", "aaa"] {
            let redundancy = match failure_groups {
                "ab" => Redundancy::Normal,
                _ => Redundancy::External,
            };
            let disks = make(failure_groups, redundancy);
            overwrite(&disks, slot);
            let error = open(&disks).unwrap_err();
            assert!(error.message.contains(format), "{error}");
            let others: Vec<DiskSlot> = vec![slot];
            let error = open_of(&disks, &opener(), &others).unwrap_err();
            assert_eq!(error.kind, GroupErrorKind::NotFound);
            assert!(error.message.contains(format), "{error}");
            let force = open_as(&disks, &forced()).unwrap();
            assert!(!online(&force).contains(&1));
        }
    }
}

#[test]
fn a_mark_that_is_taken_away_again_gives_the_disk_back() {
    let disks = make("abc", Redundancy::Normal);
    open(&disks).unwrap().close().unwrap();
    let whole = disks.bytes(DiskSlot(1), 0, 4096);
    make_physical_volume(&disks, DiskSlot(1));
    let found = look(&*disks, &present(&disks));
    assert!(matches!(found[1].label, LabelFound::Overwritten(_)));
    disks.overwrite(DiskSlot(1), 0, &[0; 4096]);
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
    assert_eq!(disks.durable_bytes(DiskSlot(1), 0, 4096), whole);
    // And one that no copy of the label had to give way to.
    make_raid_member(&disks, DiskSlot(2));
    let found = look(&*disks, &present(&disks));
    assert!(matches!(found[2].label, LabelFound::Overwritten(_)));
    disks.overwrite(DiskSlot(2), 4096, &[0; 4096]);
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
}

#[test]
fn a_mark_behind_a_bad_block_is_seen_and_a_block_that_cannot_be_read_is_none() {
    let disks = make("abc", Redundancy::Normal);
    make_physical_volume(&disks, DiskSlot(1));
    let (read, medium) = (FaultyOperation::Read, DeviceErrorKind::Medium);
    disks.fail(DiskSlot(1), read, 8192..12_288, u64::MAX, medium);
    disks.fail(DiskSlot(2), read, 0..4096, u64::MAX, medium);
    let found = look(&*disks, &present(&disks));
    assert!(matches!(found[1].label, LabelFound::Overwritten(_)));
    assert!(matches!(&found[2].label, LabelFound::Good { repairs, .. } if repairs.len() == 1));
}

#[test]
fn what_data_looks_like_behind_the_structures_is_no_mark() {
    let disks = make("abc", Redundancy::Normal);
    disks.flip_bits(DiskSlot(1), 32..192, 1);
    // Remains that nobody claims.
    disks.overwrite(DiskSlot(2), 4096, &[0xa5; 4096]);
    // A file may hold the image of another disk: a VMFS, a backup of a GPT, an md superblock.
    disks.overwrite(
        DiskSlot(1),
        1 << 20,
        &0xc001_d00d_u32.to_le_bytes().repeat(1024),
    );
    disks.overwrite(DiskSlot(1), DISK_BYTES - 8192, &b"EFI PART".repeat(512));
    disks.overwrite(
        DiskSlot(1),
        DISK_BYTES - 65_536,
        &0xa92b_4efc_u32.to_le_bytes().repeat(1024),
    );
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
}

#[test]
fn a_copied_image_is_refused_and_both_paths_are_named() {
    let disks = make("ab", Redundancy::Normal);
    let copy = disks.attach(DISK_BYTES);
    let image = disks.bytes(DiskSlot(1), 0, 1 << 20);
    disks.overwrite(copy, 0, &image);
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Invalid);
    for slot in [DiskSlot(1), copy] {
        assert!(error.message.contains(&disks.path(slot)), "{error}");
    }
}

#[test]
fn a_truncated_image_is_refused_by_name() {
    let disks = make("ab", Redundancy::External);
    let short = disks.attach(DISK_BYTES / 2);
    let image = disks.bytes(DiskSlot(1), 0, 1 << 20);
    disks.overwrite(short, 0, &image);
    let writes = disks.counts().writes;
    let error = open_of(&disks, &opener(), &[DiskSlot(0), short]).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough);
    assert!(error.message.contains(&disks.path(short)), "{error}");
    assert!(error.message.contains("cut off"), "{error}");
    assert_eq!(disks.counts().writes, writes);
}

#[test]
fn a_host_of_the_same_name_is_another_host() {
    let disks = make("ab", Redundancy::Normal);
    let first = open_as(&disks, &on_machine(1, 7)).unwrap();
    first.heartbeat(2_010).unwrap();
    let twin = Opener {
        boot: Uuid([0xb2; 16]),
        ..on_machine(2, 7)
    };
    let error = open_as(&disks, &twin).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("host alpha"), "{error}");
    // An image of a machine has its machine id too: what tells is the heartbeat.
    let image = Opener {
        boot: Uuid([0xb2; 16]),
        booted_s: Some(2_005),
        ..on_machine(1, 7)
    };
    assert_eq!(
        open_as(&disks, &image).unwrap_err().kind,
        GroupErrorKind::Busy
    );
    let booted_since = |machine| Opener {
        boot: Uuid([0xb2; 16]),
        booted_s: Some(2_011),
        ..on_machine(machine, 7)
    };
    open_as(&disks, &booted_since(2)).unwrap_err();
    // One without an id has its name alone.
    open_as(&disks, &booted_since(0)).unwrap();
}

#[test]
fn a_process_of_another_namespace_that_lives_keeps_the_group() {
    let disks = make("ab", Redundancy::Normal);
    let first = open_as(&disks, &on_machine(1, 7)).unwrap();
    first.heartbeat(2_010).unwrap();
    let container = Opener {
        now_s: 2_012,
        ..on_machine(1, 8)
    };
    let error = open_as(&disks, &container).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("namespace"), "{error}");
    let later = Opener {
        now_s: 2_026,
        ..container
    };
    open_as(&disks, &later).unwrap();
}

fn on_machine(machine: u8, process_namespace: u64) -> Opener {
    let origin = Origin {
        machine: Uuid([machine; 16]),
        process_namespace,
    };
    Opener {
        origin: Some(origin),
        ..opener()
    }
}

#[test]
fn a_disk_that_the_group_does_not_know_is_passed_over() {
    let disks = make("ab", Redundancy::Normal);
    let stranger = Arc::new(SimulatedDisks::new(2, &[DISK_BYTES; 3]));
    let mut other = new_group("abc", Redundancy::Normal);
    for disk in &mut other.disks {
        disk.uuid = Uuid([disk.uuid.0[0] + 100; 16]);
    }
    create(&stranger, &other).unwrap();
    let slot = disks.attach(DISK_BYTES);
    disks.overwrite(slot, 0, &stranger.bytes(DiskSlot(2), 0, 1 << 20));
    // Its own states would be a candidate: a disk of another history has none.
    for place in STATE_PLACES {
        disks.overwrite(slot, place, &[0; 4096]);
    }
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    let event = membership.take_events().remove(0);
    assert!(event.message.contains("does not know it"), "{event}");
}

#[test]
fn a_group_that_is_open_here_is_refused() {
    let disks = make("ab", Redundancy::Normal);
    let _membership = open(&disks).unwrap();
    let shared: Arc<dyn Disks> = disks.clone();
    let slots = present(&disks);
    let again = Membership::open(shared, &slots, &name("DATA"), &opener(), &|id| id == 100);
    let error = again.unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("process 100"), "{error}");
}

#[test]
fn a_state_slot_that_reads_as_zeros_proves_nothing_where_states_were_written() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[DiskNumber(2)], "test").unwrap();
    drop(membership);
    disks.crash();
    disks.restart();
    let place = place_of_newest(&disks, DiskSlot(1));
    disks.overwrite(DiskSlot(1), place, &[0; 4096]);
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    membership.close().unwrap();
    let looks = look(&*disks, &present(&disks)[..2]);
    assert!(
        looks
            .iter()
            .all(|found| found.states.iter().all(|slot| slot.state().is_some()))
    );
}

#[test]
fn a_slot_that_was_never_written_proves_that_its_disk_took_no_second_state() {
    // A joining disk has taken one state, and a power cut keeps the next one from it.
    let disks = make("ab", Redundancy::Normal);
    let slot = disks.attach(DISK_BYTES);
    let membership = open(&disks).unwrap();
    let join = joining_last(&membership, "abc");
    membership.change_standings(&join).unwrap();
    let head = disks.bytes(slot, 0, 1 << 20);
    membership.take_offline(&[DiskNumber(1)], "test").unwrap();
    drop(membership);
    disks.overwrite(slot, 0, &head);
    let looked = look(&*disks, &[slot]).pop().unwrap();
    assert!(looked.states.contains(&SlotFound::Blank));
    assert_eq!(online(&open(&disks).unwrap()), [0, 1, 2]);
}

#[test]
fn a_group_left_open_by_a_dead_process_opens() {
    let disks = make("ab", Redundancy::Normal);
    let _killed = open(&disks).unwrap();
    let membership = open(&disks).unwrap();
    assert!(!membership.was_clean());
    let booted = Opener {
        boot: Uuid([0xb1; 16]),
        ..opener()
    };
    open_as(&disks, &booted).unwrap();
}

#[test]
fn a_group_open_on_another_host_is_refused_unless_forced() {
    let disks = make("ab", Redundancy::Normal);
    let first = open(&disks).unwrap();
    first.heartbeat(2_010).unwrap();
    let other = Opener {
        host: "beta".to_owned(),
        boot: Uuid([0xb2; 16]),
        now_s: 2_030,
        ..opener()
    };
    let error = open_as(&disks, &other).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("host alpha"), "{error}");
    assert!(error.message.contains("20 seconds"), "{error}");
    let taken = Opener {
        force: true,
        ..other
    };
    let second = open_as(&disks, &taken).unwrap();
    let error = first.heartbeat(2_040).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("host beta"), "{error}");
    assert!(first.take_offline(&[DiskNumber(1)], "test").is_err());
    second.heartbeat(2_041).unwrap();
    second.close().unwrap();
    open(&disks).unwrap();
}

#[test]
fn an_unknown_name_is_refused_and_the_known_ones_are_named() {
    let disks = make("ab", Redundancy::Normal);
    let shared: Arc<dyn Disks> = disks.clone();
    let slots = present(&disks);
    let error = Membership::open(shared, &slots, &name("LOGS"), &opener(), &|_| false).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotFound);
    assert!(error.message.contains("DATA"), "{error}");
}

#[test]
fn a_renamed_group_is_found_by_its_new_name_alone() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.rename(&name("OTHER")).unwrap();
    membership.close().unwrap();
    assert_eq!(open(&disks).unwrap_err().kind, GroupErrorKind::NotFound);
    let shared: Arc<dyn Disks> = disks.clone();
    let slots = present(&disks);
    let membership =
        Membership::open(shared, &slots, &name("other"), &opener(), &|_| false).unwrap();
    assert_eq!(membership.name().as_str(), "OTHER");
    assert!(membership.take_events().is_empty());
}

#[test]
fn a_destroyed_group_leaves_former_members() {
    let disks = make("ab", Redundancy::Normal);
    open(&disks).unwrap().destroy().unwrap();
    assert_eq!(open(&disks).unwrap_err().kind, GroupErrorKind::NotFound);
    create(&disks, &new_group("ab", Redundancy::Normal)).unwrap();
    open(&disks).unwrap();
}

#[test]
fn disks_that_hold_one_state_share_it_and_of_a_long_one_the_end_counts_on_each_disk() {
    // Longer than what is read of a slot at first.
    let sides = "a".repeat(150) + &"b".repeat(150);
    let disks = make(&sides, Redundancy::Normal);
    let slots = present(&disks);
    let newest: Vec<_> = (look(&*disks, &slots).iter())
        .map(|found| found.newest_state().unwrap().epoch)
        .collect();
    let end = STATE_PLACES.map(|place| place + 8192);
    let damaged = DiskSlot(77);
    for place in end {
        disks.overwrite(damaged, place, &[0x55; 4096]);
    }
    let looks = look(&*disks, &slots);
    let mut different: Vec<*const GroupState> = Vec::new();
    for found in &looks {
        if found.slot == damaged {
            assert!(found.newest_state().is_none());
            continue;
        }
        let state = found.newest_state().unwrap();
        assert_eq!(state.epoch, newest[usize::from(found.slot.0)]);
        assert_eq!(state.disks.len(), 300);
        different.extend(
            found
                .states
                .iter()
                .filter_map(SlotFound::state)
                .map(std::ptr::from_ref),
        );
    }
    different.sort_unstable();
    different.dedup();
    assert!(different.len() <= 2, "{} states in memory", different.len());
}
