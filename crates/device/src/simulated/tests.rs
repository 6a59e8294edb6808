use std::collections::BTreeSet;

use super::{FaultyOperation, SimulatedDisks};
use crate::request::{DeviceErrorKind, DiskSlot, Request, Work};
use crate::{DeviceError, Disks};

const MIB: u64 = 1 << 20;
const D0: DiskSlot = DiskSlot(0);
const D1: DiskSlot = DiskSlot(1);

fn one(disks: &SimulatedDisks, slot: DiskSlot, at: u64, work: Work<'_>) -> Result<(), DeviceError> {
    let mut batch = [Request::new(slot, at, work)];
    disks.run(&mut batch);
    let [request] = batch;
    request.result
}

fn write(disks: &SimulatedDisks, slot: DiskSlot, at: u64, byte: u8, length_bytes: usize) {
    one(disks, slot, at, Work::Write(&vec![byte; length_bytes])).unwrap();
}

fn flush(disks: &SimulatedDisks, slot: DiskSlot) {
    one(disks, slot, 0, Work::Flush).unwrap();
}

fn kind(result: Result<(), DeviceError>) -> DeviceErrorKind {
    result.unwrap_err().kind
}

#[test]
fn a_read_sees_what_was_written_and_zeros_elsewhere() {
    let disks = SimulatedDisks::new(1, &[MIB, MIB]);
    write(&disks, D0, 4096, 7, 8192);
    let mut memory = vec![1; 16384];
    one(&disks, D0, 0, Work::Read(&mut memory)).unwrap();
    assert!(memory[..4096].iter().all(|&byte| byte == 0));
    assert!(memory[4096..12288].iter().all(|&byte| byte == 7));
    assert!(memory[12288..].iter().all(|&byte| byte == 0));
    assert_eq!(disks.bytes(D1, 4096, 10), vec![0; 10]);
}

#[test]
fn a_request_off_the_blocks_or_beyond_the_end_is_our_mistake() {
    let disks = SimulatedDisks::new(1, &[MIB]);
    let blocks = vec![0; 8192];
    for (at, length_bytes) in [(512, 4096), (0, 512), (MIB, 4096), (MIB - 4096, 8192)] {
        let result = one(&disks, D0, at, Work::Write(&blocks[..length_bytes]));
        assert_eq!(kind(result), DeviceErrorKind::Misaligned, "{at}");
    }
}

#[test]
fn what_a_flush_covered_survives_every_power_cut() {
    for seed in 0..200 {
        let disks = SimulatedDisks::new(seed, &[MIB]);
        write(&disks, D0, 0, 1, 8192);
        flush(&disks, D0);
        write(&disks, D0, 8192, 2, 4096);
        disks.crash();
        disks.restart();
        assert_eq!(disks.bytes(D0, 0, 8192), vec![1; 8192]);
    }
}

#[test]
fn unsynced_writes_are_kept_lost_and_torn_at_sectors_over_the_seeds() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let disks = SimulatedDisks::new(seed, &[MIB]);
        write(&disks, D0, 0, 1, 4096);
        flush(&disks, D0);
        write(&disks, D0, 0, 2, 4096);
        write(&disks, D0, 0, 3, 4096);
        disks.crash();
        let bytes = disks.bytes(D0, 0, 4096);
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|&byte| byte == sector[0]));
        }
        seen.insert(
            bytes
                .chunks(512)
                .map(|sector| sector[0])
                .collect::<Vec<_>>(),
        );
    }
    for whole in 1..=3 {
        assert!(seen.contains(&vec![whole; 8]), "never whole: {whole}");
    }
    assert!(seen.len() > 50, "tearing is rare: {} outcomes", seen.len());
}

#[test]
fn a_durable_write_is_never_undone_by_an_older_unsynced_one() {
    for seed in 0..200 {
        let disks = SimulatedDisks::new(seed, &[MIB]);
        write(&disks, D0, 0, 1, 12288);
        one(&disks, D0, 4096, Work::WriteDurable(&[2; 4096])).unwrap();
        disks.crash();
        assert_eq!(disks.bytes(D0, 4096, 4096), vec![2; 4096], "seed {seed}");
    }
}

#[test]
fn a_flush_does_not_cover_writes_of_its_own_batch() {
    let mut lost = 0;
    for seed in 0..100 {
        let disks = SimulatedDisks::new(seed, &[MIB]);
        write(&disks, D0, 0, 1, 4096);
        let new = [2; 4096];
        let mut batch = [
            Request::new(D0, 4096, Work::Write(&new)),
            Request::new(D0, 0, Work::Flush),
            Request::new(D0, 0, Work::Write(&new)),
        ];
        disks.run(&mut batch);
        assert_eq!(disks.unsynced_count(D0), 2);
        assert_eq!(disks.durable_bytes(D0, 0, 4096), vec![1; 4096]);
        disks.crash();
        assert!(
            disks
                .bytes(D0, 0, 4096)
                .iter()
                .all(|&byte| byte == 1 || byte == 2)
        );
        lost += u32::from(disks.bytes(D0, 4096, 4096) == vec![0; 4096]);
    }
    assert!(lost > 10);
}

#[test]
fn power_fails_inside_a_batch_and_nothing_is_answered_until_the_restart() {
    let (mut reached, mut answered_first) = (0, 0);
    for seed in 0..200 {
        let disks = SimulatedDisks::new(seed, &[MIB, MIB]);
        let new = [9; 4096];
        let mut batch: Vec<_> = (0..6)
            .map(|index| {
                Request::new(
                    DiskSlot(index % 2),
                    u64::from(index) * 4096,
                    Work::Write(&new),
                )
            })
            .collect();
        disks.power_fails_after(3);
        disks.run(&mut batch);
        let answered = batch
            .iter()
            .filter(|request| request.result.is_ok())
            .count();
        assert_eq!(answered, 2);
        answered_first += u32::from(batch[0].result.is_ok());
        for (index, request) in (0_u64..).zip(&batch) {
            if request.result.is_err() {
                let bytes = disks.bytes(request.slot, index * 4096, 4096);
                reached += u32::from(bytes == vec![9; 4096]);
            }
        }
        assert_eq!(
            kind(one(&disks, D0, 0, Work::Flush)),
            DeviceErrorKind::PowerLost
        );
        disks.restart();
        flush(&disks, D0);
    }
    assert!(reached > 50, "requests cut off never reach a disk");
    assert!((20..180).contains(&answered_first), "the order is fixed");
}

#[test]
fn a_vanished_disk_loses_its_unsynced_writes_and_returns_with_the_rest() {
    let mut lost = 0;
    for seed in 0..50 {
        let disks = SimulatedDisks::new(seed, &[MIB, MIB]);
        write(&disks, D0, 0, 1, 4096);
        flush(&disks, D0);
        write(&disks, D0, 4096, 2, 4096);
        disks.vanish_after(D0, 2);
        let mut memory = [0; 4096];
        one(&disks, D0, 0, Work::Read(&mut memory)).unwrap();
        assert_eq!(kind(one(&disks, D0, 0, Work::Flush)), DeviceErrorKind::Gone);
        flush(&disks, D1);
        disks.bring_back(D0);
        one(&disks, D0, 0, Work::Read(&mut memory)).unwrap();
        assert_eq!(memory, [1; 4096]);
        lost += u32::from(disks.bytes(D0, 4096, 4096) != vec![2; 4096]);
    }
    assert!(lost > 5);
}

#[test]
fn set_faults_meet_the_next_requests_in_their_range_only() {
    let disks = SimulatedDisks::new(5, &[MIB]);
    write(&disks, D0, 0, 1, 8192);
    disks.fail_reads(D0, 4096..4097, 2);
    disks.fail(
        D0,
        FaultyOperation::Write,
        0..MIB,
        1,
        DeviceErrorKind::NoSpace,
    );
    disks.fail_flushes(D0, 1);
    let mut memory = vec![0; 4096];
    one(&disks, D0, 0, Work::Read(&mut memory)).unwrap();
    for _ in 0..2 {
        let result = one(&disks, D0, 4096, Work::Read(&mut memory));
        assert_eq!(kind(result), DeviceErrorKind::Medium);
    }
    one(&disks, D0, 4096, Work::Read(&mut memory)).unwrap();
    let result = one(&disks, D0, 0, Work::Write(&[3; 4096]));
    assert_eq!(kind(result), DeviceErrorKind::NoSpace);
    assert_eq!(
        kind(one(&disks, D0, 0, Work::Flush)),
        DeviceErrorKind::Medium
    );
    assert!(disks.unsynced_count(D0) > 0);
    flush(&disks, D0);
    assert_eq!(disks.unsynced_count(D0), 0);
}

#[test]
fn a_flush_that_drops_loses_what_none_had_covered_and_the_next_one_is_answered_well() {
    for durable in [false, true] {
        let disks = SimulatedDisks::new(5, &[MIB, MIB]);
        write(&disks, D0, 0, 1, 8192);
        flush(&disks, D0);
        write(&disks, D0, 4096, 2, 8192);
        disks.drop_at_flushes(D0, 1);
        flush(&disks, D1);
        let result = match durable {
            true => one(&disks, D0, 65536, Work::WriteDurable(&[3; 4096])),
            false => one(&disks, D0, 0, Work::Flush),
        };
        assert_eq!(kind(result), DeviceErrorKind::Medium);
        flush(&disks, D0);
        one(&disks, D0, 65536, Work::WriteDurable(&[3; 4096])).unwrap();
        let left = [[1; 8192], [0; 8192]].concat();
        assert_eq!(disks.bytes(D0, 0, 16384), left);
        assert_eq!(disks.durable_bytes(D0, 0, 16384), left);
    }
}

#[test]
fn flipped_bits_are_silent_and_survive_a_power_cut() {
    let disks = SimulatedDisks::new(5, &[MIB]);
    write(&disks, D0, 0, 0, 4096);
    disks.flip_bits(D0, 100..101, 1);
    assert_eq!(disks.bytes(D0, 100, 1)[0].count_ones(), 1);
    disks.crash();
    disks.restart();
    assert_eq!(disks.bytes(D0, 100, 1)[0].count_ones(), 1);
    disks.overwrite(D0, 4090, b"across pages");
    assert_eq!(disks.bytes(D0, 4090, 12), b"across pages");
}

#[test]
fn the_same_seed_and_calls_give_the_same_bytes_and_a_fork_goes_its_own_way() {
    let story = |seed| {
        let disks = SimulatedDisks::new(seed, &[MIB]);
        for index in 0..40_u8 {
            write(&disks, D0, u64::from(index % 8) * 4096, index + 1, 8192);
        }
        let fork = disks.fork(99);
        disks.crash();
        assert_eq!(fork.bytes(D0, 7 * 4096, 4096), vec![40; 4096]);
        disks.bytes(D0, 0, 65536)
    };
    assert_eq!(story(11), story(11));
    assert_ne!(story(11), story(12));
}

#[test]
fn four_fresh_disks_cost_microseconds() {
    let start = std::time::Instant::now();
    for seed in 0..1000 {
        let disks = SimulatedDisks::new(seed, &[64 * MIB; 4]);
        write(&disks, D0, 0, 1, 4096);
    }
    let each_us = start.elapsed().as_micros() / 1000;
    assert!(each_us < 500, "{each_us} us for one set of disks");
}

#[test]
fn a_write_that_hangs_is_given_up_and_reaches_its_disk_when_that_is_released() {
    let disks = SimulatedDisks::new(1, &[1 << 20, 1 << 20]);
    disks.hang(DiskSlot(0), FaultyOperation::Write, 0..4096);
    let data = [7; 4096];
    let write = |slot, at| {
        let mut batch = [Request::new(DiskSlot(slot), at, Work::Write(&data))];
        disks.run(&mut batch);
        batch[0].result.clone().map_err(|error| error.kind)
    };
    // Elsewhere on the disk it answers until it is given up.
    assert_eq!(write(0, 4096), Ok(()));
    assert_eq!(write(0, 0), Err(DeviceErrorKind::TimedOut));
    assert_eq!(write(0, 4096), Err(DeviceErrorKind::TimedOut));
    assert_eq!(write(1, 0), Ok(()));
    assert!(disks.is_fenced(DiskSlot(0)) && !disks.is_fenced(DiskSlot(1)));
    assert_eq!(disks.late_count(DiskSlot(0)), 1);
    assert_eq!(disks.bytes(DiskSlot(0), 0, 4096), [0; 4096]);
    disks.release(DiskSlot(0));
    assert_eq!(disks.bytes(DiskSlot(0), 0, 4096), data);
    assert!(!disks.is_fenced(DiskSlot(0)));
    assert_eq!(write(0, 0), Ok(()));
}
