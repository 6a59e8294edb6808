//! Files that are cut while disks fail, while the log is full, and before a power cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use spindle_base::Redundancy;
use spindle_device::{DiskSlot, FaultyOperation, Operation};
use spindle_fs::{AttributeChange, FileSystem, FsResult, Handle};

use crate::fixture::{Fixture, ROOT, name};

const BLOCK: usize = 4096;

fn kept(redundancy: Redundancy) -> Fixture {
    let mut fixture = Fixture::new("plain", redundancy);
    fixture.keep();
    fixture
}

fn behind(fixture: &Fixture, handle: &Handle, data: &[u8]) {
    let written = (fixture.fs()).write_behind(handle, 0, data.into(), fixture.now());
    written.unwrap();
}

fn set_size(fixture: &Fixture, handle: &Handle, size_bytes: u64) -> FsResult<()> {
    let change = AttributeChange {
        size_bytes: Some(size_bytes),
        ..AttributeChange::default()
    };
    let set = (fixture.fs()).set_attributes(handle.id(), &change, fixture.now());
    set.map(drop)
}

fn reopened(fixture: &Fixture, text: &str) -> Vec<u8> {
    let handle = fixture.fs().open_file(fixture.find(text).id).unwrap();
    fixture.contents(&handle)
}

const ALL_DISKS: [DiskSlot; 4] = [DiskSlot(0), DiskSlot(1), DiskSlot(2), DiskSlot(3)];

#[test]
fn a_cut_that_a_stopped_group_refuses_takes_nothing_of_what_waits() {
    let mut fixture = kept(Redundancy::External);
    let file = fixture.make(ROOT, "file");
    fixture.fs().sync().unwrap();
    behind(&fixture, &file, &[7; 3 * BLOCK]);
    for slot in ALL_DISKS {
        fixture.disks.vanish(slot);
    }
    fixture.fs().group().heartbeat(2).unwrap_err();
    fixture.fs().group().check_serves().unwrap_err();
    set_size(&fixture, &file, 0).unwrap_err();
    std::mem::forget(file);
    fixture.die();
    for slot in ALL_DISKS {
        fixture.disks.bring_back(slot);
    }
    fixture.open(true);
    assert!(reopened(&fixture, "/file") == vec![7; 3 * BLOCK]);
}

#[test]
fn a_cut_within_a_block_that_no_disk_takes_leaves_what_is_before_the_end() {
    let mut fixture = kept(Redundancy::External);
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; 3 * BLOCK]);
    fixture.fs().sync().unwrap();
    behind(&fixture, &file, &[2; 3 * BLOCK]);
    let data = 1 << 20..u64::MAX;
    for slot in ALL_DISKS {
        fixture.disks.fail_writes(slot, data.clone(), u64::MAX);
    }
    set_size(&fixture, &file, 5000).unwrap();
    assert!(fixture.contents(&file) == vec![2; 5000]);
    std::mem::forget(file);
    fixture.die();
    for slot in ALL_DISKS {
        fixture.disks.clear_faults(slot);
    }
    fixture.open(true);
    assert!(reopened(&fixture, "/file") == vec![2; 5000]);
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    set_size(&fixture, &file, 3 * BLOCK as u64).unwrap();
    let expected = [vec![2; 5000], vec![0; 3 * BLOCK - 5000]].concat();
    assert!(fixture.contents(&file) == expected);
    fixture.check();
}

/// What a power cut leaves of a file of synced bytes is what it was before the cut or after it.
#[test]
fn a_power_cut_leaves_no_zeros_below_an_end_that_was_moved_back_and_not_synced() {
    for sizes in [&[100][..], &[100, 9000], &[100, 0, 5000]] {
        let fixture = Fixture::new("plain", Redundancy::External);
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[7; 2 * BLOCK]);
        fixture.fs().sync().unwrap();
        for size_bytes in sizes {
            set_size(&fixture, &file, *size_bytes).unwrap();
        }
        for seed in 0..16 {
            let after = FileSystem::open(fixture.after_power_cut(seed)).unwrap();
            let found = after.open_file(file.id()).unwrap();
            let mut bytes = vec![0; 3 * BLOCK];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            let sevens = bytes.iter().take_while(|byte| **byte == 7).count();
            assert!(
                length != 2 * BLOCK || sevens == length,
                "{sizes:?} seed {seed}: {sevens} of {length}"
            );
        }
    }
}

/// Found by seed 2187 of the simulator.
#[test]
fn a_power_cut_that_brings_a_former_end_back_shows_nothing_there_that_was_written_after_the_cut() {
    for offset_bytes in [60, 100] {
        let fixture = Fixture::new("plain", Redundancy::External);
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[7; 2 * BLOCK]);
        fixture.fs().sync().unwrap();
        set_size(&fixture, &file, 100).unwrap();
        fixture.write(&file, offset_bytes, &[9; 50]);
        for seed in 0..16 {
            let after = FileSystem::open(fixture.after_power_cut(seed)).unwrap();
            let found = after.open_file(file.id()).unwrap();
            let mut bytes = vec![0; 3 * BLOCK];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            assert!(
                length != 2 * BLOCK || bytes[100..length].iter().all(|byte| *byte == 7),
                "at {offset_bytes}, seed {seed}"
            );
        }
    }
}

/// Found by seed 9789 of the simulator.
#[test]
fn a_power_cut_that_takes_a_cut_back_takes_back_what_changed_its_sector_after_it() {
    const PUNCH: u32 = 0x03;
    const ZERO_RANGE: u32 = 0x11;
    let punched = [(Some(PUNCH), 10), (Some(PUNCH), 60)];
    let zeroed = [(Some(ZERO_RANGE), 10), (Some(ZERO_RANGE), 60)];
    for (mode, length_bytes) in [punched, zeroed, [(None, 10), (None, 30)]].concat() {
        let fixture = Fixture::new("plain", Redundancy::External);
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[7; 2 * BLOCK]);
        fixture.fs().sync().unwrap();
        set_size(&fixture, &file, 55).unwrap();
        match mode {
            Some(mode) => (fixture.fs())
                .allocate(&file, 25, length_bytes, mode, fixture.now())
                .unwrap(),
            None => fixture.write(&file, 25, &vec![9; usize::try_from(length_bytes).unwrap()]),
        }
        for seed in 0..16 {
            let after = FileSystem::open(fixture.after_power_cut(seed)).unwrap();
            let found = after.open_file(file.id()).unwrap();
            let mut bytes = vec![0; 3 * BLOCK];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            let sevens = bytes.iter().filter(|byte| **byte == 7).count();
            assert!(
                length != 2 * BLOCK || sevens == length,
                "mode {mode:?}, {length_bytes} bytes, seed {seed}: {sevens} of {length} bytes"
            );
        }
    }
}

/// What goes behind the end of a cut that took a part of an extent is written to that extent.
#[test]
fn a_power_cut_that_takes_a_cut_between_blocks_back_shows_nothing_that_was_written_behind_it() {
    // Of the extent of the blocks four to seven.
    let end = 5 * BLOCK as u64;
    let far = 7 * BLOCK as u64;
    // Behind the end at once, behind zeros, and behind zeros that the end has moved over before.
    for (offset_bytes, longer_bytes) in [(end, None), (far, None), (far, Some(far))] {
        let fixture = Fixture::new("plain", Redundancy::External);
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[7; 8 * BLOCK]);
        fixture.fs().sync().unwrap();
        set_size(&fixture, &file, end).unwrap();
        if let Some(longer_bytes) = longer_bytes {
            set_size(&fixture, &file, longer_bytes).unwrap();
        }
        fixture.write(&file, offset_bytes, &[9; 10]);
        for seed in 0..16 {
            let after = FileSystem::open(fixture.after_power_cut(seed)).unwrap();
            let found = after.open_file(file.id()).unwrap();
            let mut bytes = vec![0; 9 * BLOCK];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            let sevens = bytes.iter().filter(|byte| **byte == 7).count();
            assert!(
                length != 8 * BLOCK || sevens == length,
                "at {offset_bytes}, {longer_bytes:?}, seed {seed}: {sevens} of {length} bytes"
            );
        }
    }
}

#[test]
fn a_cut_that_took_whole_extents_lets_no_write_wait_for_a_disk() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    let flushes_count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&flushes_count);
    fixture.reopen_asked(move |batch| {
        let flushes = (batch.iter()).filter(|one| one.work.operation() == Operation::Flush);
        counted.fetch_add(flushes.count(), Ordering::Relaxed);
    });
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[7; 8 * BLOCK]);
    fixture.fs().sync().unwrap();
    let before = flushes_count.load(Ordering::Relaxed);
    // The block of the end of the second cut goes with its extent.
    for sizes in [&[4 * BLOCK as u64][..], &[100, 0]] {
        for size_bytes in sizes {
            set_size(&fixture, &file, *size_bytes).unwrap();
        }
        let end = sizes[sizes.len() - 1];
        fixture.write(&file, end, &[9; 10]);
    }
    assert_eq!(flushes_count.load(Ordering::Relaxed), before);
    set_size(&fixture, &file, 5).unwrap();
    fixture.write(&file, 0, &[8; 5]);
    assert!(flushes_count.load(Ordering::Relaxed) > before);
}

#[test]
fn a_write_that_waits_for_a_cut_is_not_refused_for_what_another_file_lost() {
    let fixture = Fixture::new("plain", Redundancy::External);
    let (file, other) = (fixture.make(ROOT, "file"), fixture.make(ROOT, "other"));
    fixture.write(&file, 0, &[7; 2 * BLOCK]);
    fixture.fs().sync().unwrap();
    set_size(&fixture, &file, 55).unwrap();
    fixture.write(&other, 0, &[1; BLOCK]);
    let (slot, _) = fixture.places(&other, 0)[0];
    fixture.disks.fail_flushes(slot, 1);
    fixture.write(&file, 25, &[9; 30]);
    fixture.fs().sync_file(&other, false).unwrap_err();
    fixture.fs().sync_file(&file, false).unwrap();
    assert!(fixture.contents(&file) == [[7; 25].as_slice(), &[9; 30]].concat());
}

#[test]
fn a_disk_that_keeps_a_cut_waiting_keeps_nobody_from_reading_the_file() {
    const LONG: Duration = Duration::from_secs(20);
    let fixture = Fixture::new("plain", Redundancy::External);
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[7; 2 * BLOCK]);
    fixture.fs().sync().unwrap();
    set_size(&fixture, &file, 55).unwrap();
    let other = fixture.make(ROOT, "other");
    fixture.write(&other, 0, &[1; BLOCK]);
    let (slot, _) = fixture.places(&other, 0)[0];
    fixture.disks.set_deadline(3 * LONG);
    fixture
        .disks
        .hang(slot, FaultyOperation::Flush, 0..u64::MAX);
    let (fs, now) = (fixture.fs(), fixture.now());
    let (sender, read) = channel();
    let (is_writing, is_read) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write(&file, 25, &[9; 30], false, now).unwrap());
        // The writer is at the disk's flush by then.
        std::thread::sleep(Duration::from_millis(200));
        let reader = scope.spawn(|| {
            let length = fs.read(&file, 0, &mut [0; BLOCK]).unwrap();
            sender.send(length).unwrap();
        });
        let length = read.recv_timeout(LONG);
        let is_writing = !writer.is_finished();
        fixture.disks.release(slot);
        writer.join().unwrap();
        reader.join().unwrap();
        (is_writing, length == Ok(55))
    });
    assert!(is_writing, "the disk keeps it waiting");
    assert!(is_read, "who reads does not wait for it");
}

#[test]
fn a_removal_that_fell_out_of_a_full_log_keeps_what_waits_until_it_is_committed() {
    let mut fixture = with_a_full_log("goes");
    (fixture.fs())
        .unlink(ROOT, name("goes"), fixture.now())
        .unwrap();
    fixture.kill();
    if fixture.exists("/goes") {
        assert!(reopened(&fixture, "/goes") == vec![7; 3 * BLOCK]);
    }
    fixture.check();
}

#[test]
fn a_cut_that_fell_out_of_a_full_log_keeps_what_waits_until_it_is_committed() {
    let mut fixture = with_a_full_log("cut");
    let file = fixture.fs().open_file(fixture.find("/cut").id).unwrap();
    set_size(&fixture, &file, 0).unwrap();
    std::mem::forget(file);
    fixture.kill();
    let left = reopened(&fixture, "/cut");
    assert!(left.is_empty() || left == vec![7; 3 * BLOCK]);
    fixture.check();
}

#[test]
fn a_hole_that_fell_out_of_a_full_log_keeps_what_waits_until_it_is_committed() {
    const PUNCH: u32 = 2;
    const KEEP_SIZE: u32 = 1;
    let mut fixture = Fixture::plain();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; 8 * BLOCK]);
    drop(file);
    fixture.make(ROOT, "fills");
    fixture.keep_with_log_of(1 << 10);
    let file = fixture.fs().open_file(fixture.find("file").id).unwrap();
    behind(&fixture, &file, &[7; 8 * BLOCK]);
    fixture.fill_log("/fills");
    let (fs, now) = (fixture.fs(), fixture.now());
    fs.allocate(&file, 0, 1 << 20, PUNCH | KEEP_SIZE, now)
        .unwrap();
    std::mem::forget(file);
    fixture.kill();
    let left = reopened(&fixture, "/file");
    assert!(left == vec![0; 8 * BLOCK] || left == vec![7; 8 * BLOCK]);
    fixture.check();
}

#[test]
fn a_cut_that_cannot_be_kept_yet_is_made_and_takes_nothing_of_what_waits() {
    let mut fixture = with_a_full_log("cut");
    let file = fixture.fs().open_file(fixture.find("/cut").id).unwrap();
    fail_to_keep(&fixture);
    set_size(&fixture, &file, 0).unwrap();
    assert_eq!(fixture.find("/cut").size_bytes, 0);
    // What makes it longer forgets what waits beyond the end, and must keep the cut first.
    for slot in ALL_DISKS {
        fixture.disks.fail_writes(slot, 0..u64::MAX, u64::MAX);
    }
    set_size(&fixture, &file, 2 * BLOCK as u64).unwrap_err();
    assert_eq!(fixture.find("/cut").size_bytes, 0);
    assert_eq!(fixture.fs().unwritten_bytes(), 3 * BLOCK as u64);
    std::mem::forget(file);
    fixture.die();
    for slot in ALL_DISKS {
        fixture.disks.clear_faults(slot);
    }
    fixture.open(true);
    let left = reopened(&fixture, "/cut");
    assert!(left.is_empty() || left == vec![7; 3 * BLOCK]);
    fixture.check();
}

#[test]
fn what_waits_beyond_an_end_whose_cut_is_kept_late_does_not_come_back() {
    let fixture = with_a_full_log("cut");
    let file = fixture.fs().open_file(fixture.find("/cut").id).unwrap();
    fail_to_keep(&fixture);
    set_size(&fixture, &file, 0).unwrap();
    set_size(&fixture, &file, 2 * BLOCK as u64).unwrap();
    assert!(fixture.contents(&file) == vec![0; 2 * BLOCK]);
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    fixture.check();
}

/// Nobody can write the blocks of a file that is gone, and nobody has to.
#[test]
fn a_removal_that_cannot_be_kept_yet_leaves_nothing_that_syncs_trip_over() {
    let fixture = with_a_full_log("goes");
    remove_without_keeping(&fixture);
    // It tells of the flush that failed.
    fixture.fs().sync().unwrap_err();
    fixture.fs().sync().unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    fixture.check();
}

#[test]
fn a_removal_that_cannot_be_kept_yet_leaves_nothing_that_is_written_behind() {
    let fixture = with_a_full_log("goes");
    remove_without_keeping(&fixture);
    fixture.fs().hurry_writes();
    while fixture.fs().write_due() {}
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    fixture.check();
}

#[test]
fn a_removal_that_cannot_be_kept_yet_takes_nothing_of_what_waits() {
    let mut fixture = with_a_full_log("goes");
    remove_without_keeping(&fixture);
    fixture.kill();
    assert!(reopened(&fixture, "/goes") == vec![7; 3 * BLOCK]);
    fixture.check();
}

fn remove_without_keeping(fixture: &Fixture) {
    fail_to_keep(fixture);
    (fixture.fs())
        .unlink(ROOT, name("goes"), fixture.now())
        .unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 3 * BLOCK as u64);
}

/// The next commit fails, because a disk fails a flush; the one after it does not.
fn fail_to_keep(fixture: &Fixture) {
    let file = fixture.fs().open_file(fixture.find("/fills").id).unwrap();
    fixture.write(&file, 0, &[1; BLOCK]);
    let (slot, _) = fixture.places(&file, 0)[0];
    fixture.disks.fail_flushes(slot, 1);
}

/// A file with blocks that wait, and a log in which nothing more finds room.
fn with_a_full_log(text: &str) -> Fixture {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.make(ROOT, text);
    let fills = fixture.make(ROOT, "fills");
    fixture.write(&fills, 0, &[1; BLOCK]);
    drop(fills);
    fixture.keep_with_log_of(1 << 10);
    let file = fixture.fs().open_file(fixture.find(text).id).unwrap();
    behind(&fixture, &file, &[7; 3 * BLOCK]);
    drop(file);
    fixture.fill_log("/fills");
    fixture
}
