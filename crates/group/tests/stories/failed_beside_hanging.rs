//! A disk fails beside one that hangs, or two fail at once: what nobody else has is waited for, and of
//! two that the group cannot do without together one goes.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FailureGroupName, FileId};
use spindle_device::{DeviceErrorKind, DiskSlot, Disks, FaultyOperation, Request, Work};
use spindle_format::{STATE_PLACES, STATE_SLOT_BYTES};
use spindle_group::{File, Group, Opener, Pass};

use crate::hanging::{DEADLINE, EVERYWHERE, LENGTH, mode, waits_until_released};
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, opener, pattern, read, resync,
};
use crate::waiting_disks::{OneBatchWaits, has_write};

const HANGS: DiskSlot = DiskSlot(0);
const FAILS: DiskSlot = DiskSlot(1);
/// Where the group state stands.
const STATES: Range<u64> = STATE_PLACES[0]..STATE_PLACES[1] + STATE_SLOT_BYTES as u64;

/// Where the file's first extent lies on the disk.
fn place_on(group: &Group, file: &File, slot: DiskSlot) -> Range<u64> {
    let map = group.map(file);
    let mut copies = map[0].copies.iter().flatten();
    let (_, start) = copies.find(|(disk, _)| disk.0 == slot.0).unwrap();
    *start..start + map[0].length_bytes
}

/// A mirrored group with a file that is synced; disks that hang are given up soon.
fn mirrored(seed: u64) -> (Scene, Group, Arc<File>) {
    let scene = Scene::mirrored(seed);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    (scene, group, file)
}

/// The failed disk is offline, the other one serves and has everything; so has the first one when it
/// is back.
fn assert_one_went(scene: &Scene, group: Group, file: &File, data: &[u8]) {
    assert_eq!(mode(&group, usize::from(FAILS.0)), "offline");
    assert_eq!(mode(&group, usize::from(HANGS.0)), "online");
    assert!(read(&group, file, 0, data.len()) == data);
    scene.disks.clear_faults(FAILS);
    scene.disks.bring_back(FAILS);
    let back = group.return_disks(&[FAILS]).unwrap();
    assert_eq!(back, [DiskNumber(FAILS.0)]);
    resync(&group);
    assert_copies_equal(scene, &group, file, "both are there");
    assert!(read(&group, file, 0, data.len()) == data);
    assert_sound(&group);
    group.close().unwrap();
}

#[test]
fn a_disk_that_hangs_is_waited_for_where_the_other_one_vanishes_in_the_same_batch() {
    for (seed, operation) in [(1, FaultyOperation::Write), (2, FaultyOperation::Flush)] {
        let (scene, group, file) = mirrored(seed);
        scene.disks.hang(HANGS, operation, EVERYWHERE);
        scene.disks.vanish(FAILS);
        let newer = pattern(2, LENGTH);
        assert!(waits_until_released(&scene, &[HANGS.0], || {
            group.write(&file, 0, &newer).unwrap();
            group.sync_file(&file, true).unwrap();
        }));
        assert_one_went(&scene, group, &file, &newer);
    }
}

/// The state without the failed disk is what the other one hangs at.
#[test]
fn a_disk_that_hangs_at_the_state_without_the_other_one_is_waited_for() {
    for (seed, is_gone) in [(3, true), (8, false)] {
        let (scene, group, file) = mirrored(seed);
        (scene.disks).hang(HANGS, FaultyOperation::Write, STATES);
        match is_gone {
            true => scene.disks.vanish(FAILS),
            false => (scene.disks).fail_writes(FAILS, place_on(&group, &file, FAILS), 1),
        }
        let newer = pattern(2, LENGTH);
        assert!(waits_until_released(&scene, &[HANGS.0], || {
            group.write(&file, 0, &newer).unwrap();
            group.sync_file(&file, true).unwrap();
        }));
        assert_one_went(&scene, group, &file, &newer);
    }
}

#[test]
fn a_disk_that_hangs_is_waited_for_where_the_other_one_has_a_bad_place_for_the_same_blocks() {
    let (scene, group, file) = mirrored(4);
    let good = place_on(&group, &file, HANGS);
    let bad = place_on(&group, &file, FAILS);
    (scene.disks).hang(HANGS, FaultyOperation::Write, good);
    scene.disks.fail_writes(FAILS, bad, 1);
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        group.write(&file, 0, &newer).unwrap();
        group.sync_file(&file, true).unwrap();
    }));
    assert_one_went(&scene, group, &file, &newer);
}

#[test]
fn a_disk_that_hangs_is_waited_for_by_everybody_while_somebody_cannot_take_a_vanished_one_offline()
{
    let (scene, group, file) = mirrored(5);
    for operation in [FaultyOperation::Write, FaultyOperation::Read] {
        scene.disks.hang(HANGS, operation, EVERYWHERE);
    }
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        thread::scope(|scope| {
            // Asks the disk that hangs before the other one is gone, and waits beside nobody's failure.
            scope.spawn(|| {
                let other = create(&group, 11, NORMAL);
                group.write(&other, 0, &pattern(3, 4096)).unwrap();
                assert!(read(&group, &other, 0, 4096) == pattern(3, 4096));
            });
            thread::sleep(DEADLINE / 2);
            scene.disks.vanish(FAILS);
            group.write(&file, 0, &newer).unwrap();
        });
    }));
    group.sync().unwrap();
    assert_one_went(&scene, group, &file, &newer);
}

/// As [`mirrored`], with a disk that is asked first for what is read, and where the file lies there and
/// on the other one.
fn mirrored_with_one_asked_first(seed: u64) -> (Scene, Group, Arc<File>, [Range<u64>; 2]) {
    let scene = Scene::mirrored(seed);
    scene.disks.set_deadline(DEADLINE);
    let first = FailureGroupName::new(format!("F{}", FAILS.0)).unwrap();
    let opener = Opener {
        preferred_failure_group: Some(first),
        ..opener()
    };
    let slots = [HANGS, FAILS];
    let backend = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    let group = Group::open(backend, &slots, &scene.name, &opener).unwrap();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let places = [FAILS, HANGS].map(|slot| place_on(&group, &file, slot));
    (scene, group, file, places)
}

#[test]
fn the_last_copy_that_can_be_read_is_waited_for_where_the_other_one_has_a_bad_place() {
    let (scene, group, file, [bad, good]) = mirrored_with_one_asked_first(6);
    scene.disks.fail_reads(FAILS, bad, u64::MAX);
    (scene.disks).hang(HANGS, FaultyOperation::Read, good);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        assert!(read(&group, &file, 0, LENGTH) == pattern(1, LENGTH));
    }));
    assert_eq!(group.view().offline_disks_count, 0);
    assert_copies_equal(&scene, &group, &file, "the bad place was left");
    group.close().unwrap();
}

/// It counts as gone for a minute at most, and then the other one is given up.
#[test]
fn a_read_that_a_disk_left_unanswered_is_answered_by_it_where_the_other_one_hangs_for_good() {
    let (scene, group, file, [unanswered, good]) = mirrored_with_one_asked_first(9);
    let gone = DeviceErrorKind::Gone;
    (scene.disks).fail(FAILS, FaultyOperation::Read, unanswered, 1, gone);
    (scene.disks).hang(HANGS, FaultyOperation::Read, good);
    let is_answered = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&group, &file, 0, LENGTH));
        let begun = Instant::now();
        let mut now_ms = 0;
        while !reader.is_finished() && begun.elapsed() < Duration::from_secs(20) {
            while group.step(now_ms).unwrap() {}
            now_ms += 6_000;
            thread::sleep(Duration::from_millis(20));
        }
        let is_answered = reader.is_finished();
        scene.disks.release(HANGS);
        assert!(reader.join().unwrap() == pattern(1, LENGTH));
        is_answered
    });
    assert!(is_answered, "it waits for the disk that hangs");
    while group.step(1_000_000).unwrap() {}
    assert_eq!(mode(&group, usize::from(HANGS.0)), "offline");
    assert!(read(&group, &file, 0, LENGTH) == pattern(1, LENGTH));
}

const OF_ONE: u8 = 0xb1;
const OF_OTHER: u8 = 0xb2;

fn writes(batch: &[Request<'_>], byte: u8) -> bool {
    let is_of = |request: &Request<'_>| match &request.work {
        Work::Write(bytes) => bytes.starts_with(&[byte; 64]),
        Work::WritePart(part) => part.bytes().starts_with(&[byte; 64]),
        _ => false,
    };
    has_write(batch) && batch.iter().any(is_of)
}

fn writes_state(batch: &[Request<'_>]) -> bool {
    let is_state = |request: &Request<'_>| {
        matches!(request.work, Work::WriteDurable(_)) && STATES.contains(&request.offset_bytes)
    };
    batch.iter().any(is_state)
}

#[test]
fn of_two_disks_that_have_a_bad_place_each_at_one_moment_one_goes() {
    let scene = Scene::mirrored(7);
    let disks = OneBatchWaits::of(&scene);
    let group = disks.open(&scene, 2);
    let [one, other] = [10, 11].map(|id| {
        let file = create(&group, id, NORMAL);
        group.write(&file, 0, &pattern(id, 64 << 10)).unwrap();
        file
    });
    group.sync().unwrap();
    let limit = Duration::from_secs(20);
    let bad = [(&one, FAILS), (&other, HANGS)];
    for (file, slot) in bad {
        let place = place_on(&group, file, slot);
        scene.disks.fail_writes(slot, place, 1);
    }
    let (one_failed, one_goes_on) = disks.wait(false, |batch| writes(batch, OF_ONE));
    let (other_failed, other_goes_on) = disks.wait(false, |batch| writes(batch, OF_OTHER));
    let answers = thread::scope(|scope| {
        let threads = [(&one, OF_ONE), (&other, OF_OTHER)].map(|(file, byte)| {
            let group = &group;
            scope.spawn(move || group.write(file, 0, &[byte; 4096]))
        });
        one_failed.recv_timeout(limit).unwrap();
        other_failed.recv_timeout(limit).unwrap();
        let (first_goes, goes_on) = disks.wait(true, writes_state);
        one_goes_on.send(()).unwrap();
        first_goes.recv_timeout(limit).unwrap();
        // Decides while the first disk is on its way.
        other_goes_on.send(()).unwrap();
        thread::sleep(Duration::from_millis(300));
        goes_on.send(()).unwrap();
        threads.map(|thread| thread.join().unwrap())
    });
    answers[0].as_ref().unwrap();
    assert_eq!(group.view().offline_disks_count, 1);
    assert_eq!(mode(&group, usize::from(FAILS.0)), "offline");
    // What the second one was to have, the first one had alone, and it went.
    answers[1].as_ref().unwrap_err();
    assert!(read(&group, &one, 0, 4096) == [OF_ONE; 4096]);
    assert!(read(&group, &one, 4096, 4096) == pattern(10, 64 << 10)[4096..8192]);
    group.sync_file(&other, false).unwrap_err();
    group.write(&other, 0, &[OF_OTHER; 4096]).unwrap();
    group.sync().unwrap();
    assert_eq!(group.return_disks(&[FAILS]).unwrap().len(), 1);
    resync(&group);
    for file in [&one, &other] {
        assert_copies_equal(&scene, &group, file, "both are there");
    }
    assert_sound(&group);
}

/// Works until what a disk had missed that came back is there; a restore has hardly begun by then.
pub(crate) fn catch_up(group: &Group) {
    let is_resynced = || {
        let operations = group.operations().into_iter();
        !operations
            .map(|operation| operation.pass)
            .any(|pass| pass == Pass::Resync)
    };
    let mut now_ms = 0;
    while !is_resynced() {
        group.work(now_ms).unwrap();
        now_ms += 1;
    }
    for _ in 0..3 {
        now_ms += 6_000;
        while group.step(now_ms).unwrap() {}
    }
}

/// Extents that were made while the other disk was away have one copy until a restore has made the
/// second one, also where that disk lacks nothing of all others any more.
#[test]
fn a_disk_with_extents_whose_second_copies_are_not_made_yet_serves_on() {
    for reopens in [false, true] {
        let (scene, mut group, mut file) = mirrored(20);
        scene.disks.vanish(FAILS);
        group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
        group.sync().unwrap();
        let alone = create(&group, 11, NORMAL);
        let data = pattern(3, 30 << 20);
        group.write(&alone, 0, &data).unwrap();
        group.sync().unwrap();
        scene.disks.bring_back(FAILS);
        group.return_disks(&[FAILS]).unwrap();
        catch_up(&group);
        if reopens {
            group.close().unwrap();
            drop((group, file));
            group = scene.open();
            file = group.file(FileId(10)).unwrap();
        }
        let alone = group.file(FileId(11)).unwrap();
        let fail_one_write = || {
            let bad = place_on(&group, &file, HANGS);
            scene.disks.fail_writes(HANGS, bad, 1);
            group.write(&file, 0, &pattern(4, LENGTH)).unwrap();
            group.sync().unwrap();
        };
        fail_one_write();
        assert_eq!(mode(&group, usize::from(HANGS.0)), "online");
        assert!(read(&group, &alone, 0, data.len()) == data);
        resync(&group);
        fail_one_write();
        assert_eq!(mode(&group, usize::from(HANGS.0)), "offline");
        assert!(read(&group, &alone, 0, data.len()) == data);
    }
}
