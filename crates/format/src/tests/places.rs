//! The structures at fixed places: round trips, damage, and bytes of other places.

use proptest::prelude::*;
use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};

use crate::{
    AuRun, CHECKSUM_BLOCK_BYTES, ChecksumBlock, DISKS_MAX, DiskState, DiskStatus, Features,
    FormatErrorKind, GroupState, JOURNAL_PLACE, JournalChange, JournalRecord, LABEL_PLACES, Label,
    LabelStatus, Lost, OPENER_PLACE, OpenerRecord, Origin, ParsedGroupState, ParsedLabel,
    REPLICAS_MAX, RUNS_MAX, Replica, STATE_PLACES, STATE_SLOT_BYTES, SUMS_PER_BLOCK, block_sum,
    labelled_bytes, may_have_aus, resized_aus, run_checksum_pairs, run_data_blocks, usable_aus,
};

pub(super) fn label() -> Label {
    Label {
        sequence: 0x0102_0304_0506_0708,
        group_uuid: Uuid([0x11; 16]),
        disk_uuid: Uuid([0x22; 16]),
        group_name: GroupName::new("DATA").unwrap(),
        disk_name: DiskName::new("DATA_0003").unwrap(),
        failure_group: FailureGroupName::new("Cabinet-B").unwrap(),
        number: DiskNumber(0x0304),
        au_size: AuSize::DEFAULT,
        redundancy: Redundancy::High,
        status: LabelStatus::Former,
        size_bytes: 0x0000_1234_5678_9000,
        created_s: 0x6789_abcd,
    }
}

pub(super) fn opener() -> OpenerRecord {
    OpenerRecord {
        sequence: 0x0102_0304_0506_0708,
        group_uuid: Uuid([0x11; 16]),
        disk_uuid: Uuid([0x22; 16]),
        boot: Uuid([0x33; 16]),
        host: "db-07.example".to_owned(),
        origin: None,
        process_id: 0x0001_2345,
        open: true,
        heartbeats_count: 0x0a0b_0c0d,
        heartbeat_s: 0x6789_abce,
        opened_s: 0x6789_abcd,
    }
}

pub(super) fn journal() -> JournalRecord {
    let change = |table, key: &[u8], value: Option<&[u8]>| JournalChange {
        table,
        key: key.to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    JournalRecord {
        group_uuid: Uuid([0x11; 16]),
        generation: 0x0a0b_0c0d_0e0f,
        number: 0x0102_0304_0506_0708,
        changes: vec![change(6, b"key", Some(b"value")), change(2, b"row", None)],
    }
}

pub(super) fn state() -> GroupState {
    let disk = |number: u16, status, voter| DiskState {
        number: DiskNumber(number),
        failure_group: number + 0x100,
        size_aus: 0x0001_0000 + u32::from(number),
        uuid_start: [u8::try_from(number).unwrap(); 8],
        status_epoch: 0x0506 + u64::from(number),
        status,
        voter,
        quorum_only: number == 9,
        leaves: false,
        lost: Lost::NOTHING,
    };
    let run = |start_au, aus| AuRun { start_au, aus };
    GroupState {
        epoch: 0x0102_0304_0506_0708,
        group_uuid: Uuid([0x11; 16]),
        group_name: GroupName::new("DATA").unwrap(),
        clean: true,
        redundancy: Redundancy::Normal,
        au_size: AuSize::DEFAULT,
        next_disk_number: 0x0a0b,
        region_size_bytes: 0x0020_3000,
        features: Features::default(),
        disks: vec![
            disk(2, DiskStatus::Online, true),
            disk(3, DiskStatus::Offline, false),
            disk(5, DiskStatus::Dropping, false),
            disk(9, DiskStatus::Online, true),
        ],
        replicas: vec![
            Replica {
                disk: DiskNumber(5),
                runs: vec![run(1, 4), run(0x77, 2)],
            },
            Replica {
                disk: DiskNumber(2),
                runs: vec![run(0x55, 4), run(0x40, 2)],
            },
        ],
    }
}

pub(super) fn checksum_block() -> ChecksumBlock {
    let mut sums = Box::new([0; SUMS_PER_BLOCK]);
    for (sum, number) in sums.iter_mut().zip(1_u32..) {
        *sum = number.wrapping_mul(0x9e37_79b9);
    }
    ChecksumBlock {
        sequence: 0x0102_0304_0506_0708,
        group_uuid: Uuid([0x11; 16]),
        disk_uuid: Uuid([0x22; 16]),
        first_block: 0x0033_4455,
        sums,
    }
}

const SUMS_PLACE: u64 = 0x0012_3000;

/// Flips each of the bits in turn and asks `accepts` whether nobody noticed.
fn every_flip_is_noticed(bytes: &[u8], accepts: impl Fn(&[u8]) -> bool) {
    assert!(accepts(bytes), "the undamaged bytes are good");
    let mut flipped = bytes.to_vec();
    for byte in 0..bytes.len() {
        for bit in 0..8 {
            flipped[byte] ^= 1 << bit;
            assert!(!accepts(&flipped), "bit {bit} of byte {byte}");
            flipped[byte] ^= 1 << bit;
        }
    }
}

#[test]
fn every_flipped_bit_of_a_label_is_noticed() {
    let place = LABEL_PLACES[1];
    every_flip_is_noticed(&label().encode(place), |bytes| {
        ParsedLabel::parse(bytes, place).is_ok()
    });
}

#[test]
fn every_flipped_bit_of_an_opener_is_noticed() {
    every_flip_is_noticed(&opener().encode(OPENER_PLACE), |bytes| {
        OpenerRecord::parse(bytes, OPENER_PLACE).is_ok()
    });
}

#[test]
fn a_host_s_name_of_any_length_and_its_origin_come_back() {
    let origin = Origin {
        machine: Uuid([0x0c; 16]),
        process_namespace: 0xf000_0ffc,
    };
    for host in ["db-07", "", "a/b", &"x".repeat(200)] {
        for origin in [None, Some(origin)] {
            let host = host.to_owned();
            let written = OpenerRecord {
                host,
                origin,
                ..opener()
            };
            let bytes = written.encode(OPENER_PLACE);
            let read = OpenerRecord::parse(&bytes, OPENER_PLACE).unwrap();
            assert_eq!(read.origin, origin);
            assert!(written.host.starts_with(&read.host));
            assert!(read.host == written.host || read.host.len() > 70);
            assert_eq!(read.encode(OPENER_PLACE), bytes);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_journal_record_is_noticed() {
    let bytes = journal().encode(JOURNAL_PLACE);
    assert_eq!(JournalRecord::parse(&bytes, JOURNAL_PLACE), Ok(journal()));
    assert_eq!(journal().blocks(), 1);
    // The used bytes: what follows them to the end of the block is nobody's.
    every_flip_is_noticed(&bytes[..91], |bytes| {
        JournalRecord::parse(bytes, JOURNAL_PLACE).is_ok()
    });
}

#[test]
fn every_flipped_bit_of_a_group_state_is_noticed() {
    let place = STATE_PLACES[0];
    every_flip_is_noticed(&state().encode(place, Uuid([7; 16])), |bytes| {
        ParsedGroupState::parse(bytes, place).is_ok()
    });
}

#[test]
fn every_flipped_bit_of_a_checksum_block_is_noticed() {
    every_flip_is_noticed(&checksum_block().encode(SUMS_PLACE), |bytes| {
        ChecksumBlock::parse(bytes, SUMS_PLACE).is_ok()
    });
}

#[test]
fn bytes_of_another_place_are_told_from_damage() {
    let elsewhere = label().encode(LABEL_PLACES[0]);
    let error = ParsedLabel::parse(&elsewhere, LABEL_PLACES[1]).unwrap_err();
    assert_eq!(
        (error.kind, error.offset_bytes),
        (FormatErrorKind::Place, 16)
    );
    let elsewhere = checksum_block().encode(SUMS_PLACE);
    let error = ChecksumBlock::parse(&elsewhere, SUMS_PLACE + 4096).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Place);
}

#[test]
fn a_state_of_another_disk_or_group_does_not_pass_the_check() {
    let bytes = state().encode(STATE_PLACES[0], Uuid([7; 16]));
    let parsed = ParsedGroupState::parse(&bytes, STATE_PLACES[0]).unwrap();
    assert!(parsed.clone().check(Uuid([8; 16]), Uuid([7; 16])).is_err());
    assert!(
        parsed
            .clone()
            .check(Uuid([0x11; 16]), Uuid([8; 16]))
            .is_err()
    );
    assert_eq!(parsed.check(Uuid([0x11; 16]), Uuid([7; 16])), Ok(state()));
}

#[test]
fn what_a_disk_lost_is_rounded_down_and_never_up() {
    for size_aus in [8, 9, 1000, 65_534, 65_535, 4_000_000_000] {
        for au in [0, 1, 7, u64::from(size_aus / 3), u64::from(size_aus)] {
            let start = Lost::from_au(au, size_aus).start_au(size_aus).unwrap();
            assert!(start <= au && au - start <= u64::from(size_aus) / 65_534 + 1);
        }
    }
    assert_eq!(Lost::NOTHING.start_au(100), None);
    assert_eq!(Lost::EVERYTHING.start_au(100), Some(0));
    let half = Lost::from_au(50, 100);
    assert_eq!(half.and(Lost::NOTHING), half);
    assert_eq!(Lost::EVERYTHING.and(half), Lost::EVERYTHING);
}

#[test]
fn a_disk_smaller_than_its_label_says_does_not_pass_the_check() {
    let bytes = label().encode(0);
    let parsed = ParsedLabel::parse(&bytes, 0).unwrap();
    let size_bytes = label().size_bytes;
    assert_eq!(parsed.clone().check(size_bytes).unwrap(), label());
    let truncated = parsed.check(size_bytes - 1).unwrap_err();
    assert_eq!(truncated.labelled_bytes, size_bytes);
}

#[test]
fn the_largest_group_fits_its_slot() {
    let run = |start_au| AuRun { start_au, aus: 1 };
    let mut state = state();
    state.next_disk_number = u16::try_from(DISKS_MAX).unwrap();
    state.disks = (0..state.next_disk_number)
        .map(|number| DiskState {
            number: DiskNumber(number),
            failure_group: number,
            size_aus: 100,
            uuid_start: [1; 8],
            status_epoch: 1,
            status: DiskStatus::Online,
            voter: number < 5,
            quorum_only: false,
            leaves: false,
            lost: Lost::NOTHING,
        })
        .collect();
    state.replicas = (0..REPLICAS_MAX)
        .map(|disk| Replica {
            disk: DiskNumber(u16::try_from(disk).unwrap()),
            runs: (1..=RUNS_MAX)
                .map(|start| run(u32::try_from(start).unwrap()))
                .collect(),
        })
        .collect();
    let bytes = state.encode(STATE_PLACES[1], Uuid([7; 16]));
    assert!(bytes.len() <= STATE_SLOT_BYTES);
    // As read from a disk: with what an earlier, longer state left behind it.
    let slot = [&bytes[..], &vec![0xaa; STATE_SLOT_BYTES - bytes.len()]].concat();
    let parsed = ParsedGroupState::parse(&slot, STATE_PLACES[1]).unwrap();
    assert_eq!(*parsed.contents(), state);
}

type StateChange = fn(&mut GroupState);

#[test]
fn the_slot_of_another_disk_tells_a_state_only_where_it_is_whole_and_for_this_disk() {
    let state = state();
    let (ours, theirs) = (Uuid([2; 16]), Uuid([7; 16]));
    let [place, other_place] = STATE_PLACES;
    let known = state.encode(other_place, theirs);
    let mut slot = state.encode(place, ours);
    // What follows the used bytes counts in neither.
    slot.resize(STATE_SLOT_BYTES, 0xAA);
    let is_it = |slot: &[u8], place| ParsedGroupState::is_state_of(slot, place, ours, &known);
    assert!(is_it(&slot, place));
    assert!(!is_it(&slot, other_place));
    assert!(!ParsedGroupState::is_state_of(&slot, place, theirs, &known));
    assert!(!is_it(&slot[..known.len() - 1], place));
    for bit in 0..known.len() * 8 {
        slot[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_it(&slot, place), "bit {bit}");
        slot[bit / 8] ^= 1 << (bit % 8);
    }
    let mut next = state;
    next.epoch += 1;
    assert!(!is_it(&next.encode(place, ours), place));
}

#[test]
fn bytes_that_go_from_disk_to_disk_are_those_that_each_is_encoded_for() {
    let state = state();
    let mut bytes = state.encode_for_some_disk();
    for (place, disk) in STATE_PLACES.into_iter().zip([Uuid([2; 16]), Uuid([7; 16])]) {
        assert_eq!(bytes.address(place, disk), state.encode(place, disk));
    }
}

#[test]
fn a_state_that_contradicts_itself_is_named() {
    let cases: &[(&str, StateChange)] = &[
        ("the number of voters", |state| {
            state.disks.iter_mut().for_each(|d| d.voter = false)
        }),
        ("a voter that is not online", |state| {
            state.disks[1].voter = true
        }),
        ("the next disk number", |state| state.next_disk_number = 9),
        ("a replica's disk", |state| {
            state.replicas[0].disk = DiskNumber(4)
        }),
        ("a replica's disk", |state| {
            state.replicas[0].disk = DiskNumber(3)
        }),
        ("a replica's disk", |state| {
            state.replicas[0].disk = DiskNumber(9)
        }),
        ("a replica's disk", |state| {
            state.replicas[0].disk = DiskNumber(2)
        }),
        ("a replica's runs", |state| {
            state.replicas[1].runs[0].start_au = 0
        }),
        ("a replica's runs", |state| {
            state.replicas[1].runs[0].start_au = u32::MAX
        }),
        ("a replica's runs", |state| {
            state.replicas[1].runs[1].start_au = 0x56
        }),
        ("a replica's runs", |state| {
            state.replicas[1].runs[1].aus = 3
        }),
        ("the region's size", |state| state.region_size_bytes += 1),
        ("the region's size", |state| {
            state.region_size_bytes = 6 << 20
        }),
    ];
    assert_eq!(state().contradiction(), None);
    for (what, change) in cases {
        let mut state = state();
        change(&mut state);
        assert_eq!(state.contradiction(), Some(*what));
    }
}

#[test]
fn a_host_name_that_is_too_long_is_cut_between_characters() {
    let mut record = opener();
    record.host = "ü".repeat(100);
    let read = OpenerRecord::parse(&record.encode(OPENER_PLACE), OPENER_PLACE).unwrap();
    assert_eq!(read.host, "ü".repeat(63));
}

#[test]
fn a_run_has_room_for_its_checksums() {
    for aus in [1, 2, 3, 4, 7, 100, 1000, 65_536] {
        for log2 in 20..=26 {
            let au_size = AuSize::from_bytes(1 << log2).unwrap();
            let data = run_data_blocks(aus, au_size);
            let pairs = run_checksum_pairs(aus, au_size);
            assert_eq!(data + 2 * pairs, u64::from(aus) * au_size.blocks());
            assert!(pairs * SUMS_PER_BLOCK as u64 >= data);
            assert!((pairs - 1) * (SUMS_PER_BLOCK as u64 + 2) < data + 2 * pairs);
        }
    }
}

#[test]
fn a_sum_is_of_its_block_alone_and_never_zero() {
    let bytes = [7; CHECKSUM_BLOCK_BYTES];
    assert_ne!(block_sum(1, &bytes), block_sum(2, &bytes));
    assert_ne!(block_sum(0, &[0; CHECKSUM_BLOCK_BYTES]), 0);
}

proptest! {
    #[test]
    fn a_label_reads_back_as_it_was_written(
        sequence in any::<u64>(), uuids in any::<[[u8; 16]; 2]>(), number in 0..u16::MAX,
        name in "[A-Za-z][A-Za-z0-9_$#-]{0,29}", log2 in 20_u32..=26, aus in 2_u64..1 << 30,
        created_s in any::<u64>(), member in any::<bool>(),
    ) {
        let label = Label {
            sequence,
            group_uuid: Uuid(uuids[0]),
            disk_uuid: Uuid(uuids[1]),
            group_name: GroupName::new(name.clone()).unwrap(),
            disk_name: DiskName::new(name.clone()).unwrap(),
            failure_group: FailureGroupName::new(name).unwrap(),
            number: DiskNumber(number),
            au_size: AuSize::from_bytes(1 << log2).unwrap(),
            redundancy: Redundancy::External,
            status: if member { LabelStatus::Member } else { LabelStatus::Former },
            size_bytes: aus << log2,
            created_s,
        };
        for place in LABEL_PLACES {
            let parsed = ParsedLabel::parse(&label.encode(place), place).unwrap();
            prop_assert_eq!(parsed.contents(), &label);
        }
    }

    #[test]
    fn an_opener_reads_back_as_it_was_written(
        numbers in any::<[u64; 4]>(), uuids in any::<[[u8; 16]; 3]>(), process_id in any::<u32>(),
        open in any::<bool>(), host in "[a-zä-ö.-]{0,60}",
    ) {
        let record = OpenerRecord {
            sequence: numbers[0],
            group_uuid: Uuid(uuids[0]),
            disk_uuid: Uuid(uuids[1]),
            boot: Uuid(uuids[2]),
            host,
            origin: None,
            process_id,
            open,
            heartbeats_count: numbers[1],
            heartbeat_s: numbers[2],
            opened_s: numbers[3],
        };
        let bytes = record.encode(OPENER_PLACE);
        prop_assert_eq!(OpenerRecord::parse(&bytes, OPENER_PLACE).unwrap(), record);
    }

    #[test]
    fn a_group_state_reads_back_as_it_was_written(
        epoch in any::<u64>(), statuses in prop::collection::vec(0_usize..5, 1..80),
        clean in any::<bool>(), blocks in 0_u64..1000,
    ) {
        let mut state = state();
        state.epoch = epoch;
        state.clean = clean;
        state.features = Features::known();
        state.region_size_bytes = blocks * 4096;
        for (number, status) in (10..).zip(statuses) {
            state.disks.push(DiskState {
                number: DiskNumber(number),
                failure_group: number % 7,
                size_aus: u32::from(number) * 1000,
                uuid_start: [9; 8],
                status_epoch: epoch,
                status: [
                    DiskStatus::Online,
                    DiskStatus::Offline,
                    DiskStatus::Adding,
                    DiskStatus::Dropping,
                    DiskStatus::Absent,
                ][status],
                voter: false,
                quorum_only: number % 3 == 0,
                leaves: status == 1 && number % 2 == 0,
                lost: match status {
                    1 | 4 => Lost::from_au(number.into(), u32::from(number) * 1000),
                    _ => Lost::NOTHING,
                },
            });
        }
        let bytes = state.encode(STATE_PLACES[1], Uuid([7; 16]));
        let parsed = ParsedGroupState::parse(&bytes, STATE_PLACES[1]).unwrap();
        prop_assert_eq!(parsed.contents(), &state);
    }
}

#[test]
fn a_disk_leaves_its_last_block_to_the_label_unless_it_joined_before_that_was_thought_of() {
    let au_size = AuSize::DEFAULT;
    let au_bytes = au_size.bytes();
    let size_bytes = 16 * au_bytes;
    assert_eq!(usable_aus(size_bytes, au_size), 15);
    assert_eq!(usable_aus(size_bytes + 4096, au_size), 16);
    for (aus, may) in [(14, false), (15, true), (16, true), (17, false)] {
        assert_eq!(may_have_aus(size_bytes, au_size, aus), may, "{aus}");
    }
    // One that has 16 keeps them at that size, and gets 15 like any other where it grows into it.
    for (before, after) in [(16, 16), (15, 15), (12, 15), (20, 15)] {
        assert_eq!(resized_aus(size_bytes, au_size, before), after, "{before}");
    }
    for (found_bytes, says) in [
        (size_bytes, size_bytes),
        (size_bytes + 4096, size_bytes + 4096),
        (2 * size_bytes, size_bytes + 4096),
    ] {
        let labelled = labelled_bytes(16, au_size, found_bytes);
        assert_eq!(labelled, says);
        assert!(may_have_aus(labelled, au_size, 16));
    }
}
