//! A disk has failed a flush and dropped what it held, and no state that says so is published yet:
//! another disk of that flush keeps silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot, FaultyOperation, Request, Work};

use crate::Group;
use crate::background::planner::Move;
use crate::background::relocation::Step;
use crate::core::file::File;
use crate::scene::{NORMAL, Scene, create, pattern, read, resync};

/// The first copy of the file lies there, which is read first.
const DROPS: DiskNumber = DiskNumber(0);
/// The other copy.
const GOOD: DiskNumber = DiskNumber(1);
/// It has nothing of the file.
const SILENT: DiskNumber = DiskNumber(2);

const OLD: [u8; 4096] = [1; 4096];

/// A synced file of one block with its copies on the first two disks, and another one with a copy on the
/// third. What says that both are written to is durable.
fn scene_and_files(seed: u64) -> (Scene, Group, [Arc<File>; 2]) {
    let disks = [(0, 64), (1, 64), (2, 64), (3, 64)];
    let scene = Scene::new(seed, Redundancy::Normal, &disks);
    let group = scene.open();
    let files: Vec<_> = (10..60).map(|id| create(&group, id, NORMAL)).collect();
    for file in &files {
        group.write(file, 0, &OLD).unwrap();
    }
    group.sync().unwrap();
    let disks_of = |file: &Arc<File>| {
        let extent = &group.map(file)[0];
        [0, 1].map(|copy| extent.copies[copy].unwrap().0)
    };
    let place = files
        .iter()
        .position(|file| disks_of(file) == [DROPS, GOOD]);
    let file = Arc::clone(&files[place.expect("one of so many")]);
    let elsewhere = |file: &&Arc<File>| {
        let disks = disks_of(file);
        disks.contains(&SILENT) && !disks.contains(&DROPS)
    };
    let other = files.iter().find(elsewhere).expect("one of so many");
    for file in [&file, other] {
        group.write(file, 0, &OLD).unwrap();
    }
    group.sync().unwrap();
    // Read last.
    let good = group.disks.get(GOOD).unwrap();
    good.is_slow.store(true, Ordering::Relaxed);
    let files = [file, Arc::clone(other)];
    (scene, group, files)
}

/// Runs `meanwhile` after the disk has failed a flush, which the process knows, and before the flush of
/// the silent one is answered.
fn before_the_state(scene: &Scene, group: &Group, other: &File, meanwhile: impl FnOnce()) {
    while_a_flush_is_silent(scene, group, other, meanwhile);
    assert!(!group.disks.is_online(DROPS), "it failed a flush");
}

/// As [`before_the_state`], whether the disk goes then or not.
fn while_a_flush_is_silent(scene: &Scene, group: &Group, other: &File, meanwhile: impl FnOnce()) {
    group.write(other, 0, &[7; 4096]).unwrap();
    scene.disks.set_deadline(Duration::from_secs(60));
    scene.disks.drop_at_flushes(DiskSlot(DROPS.0), 1);
    (scene.disks).hang(DiskSlot(SILENT.0), FaultyOperation::Flush, 0..u64::MAX);
    thread::scope(|scope| {
        let syncer = scope.spawn(|| group.make_durable());
        let begun = Instant::now();
        while !group.membership.failed_flushes().of(DROPS).stand() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no flush failed");
            thread::yield_now();
        }
        assert!(group.disks.is_online(DROPS));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        scene.disks.release(DiskSlot(SILENT.0));
        syncer.join().unwrap().unwrap();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn what_a_disk_dropped_is_not_read_there_before_the_state_says_that_it_went() {
    let (scene, group, [file, other]) = scene_and_files(61);
    group.write(&file, 0, &[2; 4096]).unwrap();
    before_the_state(&scene, &group, &other, || {
        assert!(
            read(&group, &file, 0, 4096) == [2; 4096],
            "bytes from before an answered write"
        );
    });
}

#[test]
fn a_write_of_a_part_of_a_block_takes_the_rest_from_no_disk_that_dropped_it() {
    let (scene, group, [file, other]) = scene_and_files(62);
    group.write(&file, 0, &[2; 512]).unwrap();
    before_the_state(&scene, &group, &other, || {
        group.write(&file, 512, &[3; 512]).unwrap()
    });
    group.sync_file(&file, true).unwrap();
    assert!(read(&group, &file, 512, 512) == [3; 512]);
    assert!(
        read(&group, &file, 0, 512) == [2; 512],
        "an answered and synced write is on no disk"
    );
}

/// A disk that the group cannot do without has dropped what it held and serves on, in a new life. What it
/// lacks from there on is not noted yet: that waits for the map of another file.
#[test]
fn what_a_disk_dropped_that_serves_on_is_not_read_there_before_it_is_noted() {
    let (scene, group, [file, _]) = scene_and_files(64);
    let earlier: Vec<_> = (1..9).map(|id| create(&group, id, NORMAL)).collect();
    for file in &earlier {
        group.write(file, 0, &OLD).unwrap();
    }
    group.sync().unwrap();
    let held = (earlier.iter()).find(|file| {
        let copies = &group.map(file)[0].copies;
        copies.iter().flatten().any(|(disk, _)| *disk == DROPS)
    });
    let held = held.expect("one of so many");
    group.take_offline(&[DiskNumber(3)], "it is gone").unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &[2; 512]).unwrap();
    group.write(held, 0, &[7; 4096]).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(DROPS.0), 1);
    let life = || group.disks.get(DROPS).unwrap().life();
    let before = life();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let keeps_waiting = scope.spawn(|| {
            let map = held.map.read();
            while !is_done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(map);
        });
        let syncer = scope.spawn(|| group.sync_file(held, false));
        let begun = Instant::now();
        while life() == before {
            assert!(begun.elapsed() < Duration::from_secs(30), "no new life");
            thread::yield_now();
        }
        let found = read(&group, &file, 0, 512);
        group.write(&file, 512, &[3; 512]).unwrap();
        is_done.store(true, Ordering::Release);
        keeps_waiting.join().unwrap();
        // The other copy has what was written to it.
        syncer.join().unwrap().unwrap();
        assert!(found == [2; 512], "bytes from before an answered write");
    });
    assert!(group.disks.is_online(DROPS), "nobody can do without it");
    group.sync_file(&file, true).unwrap();
    assert!(
        read(&group, &file, 0, 512) == [2; 512],
        "an answered and synced write is on no disk"
    );
}

/// The good copy cannot be read once, and is not mended from one that dropped the newest bytes.
#[test]
fn a_bad_place_is_not_written_again_from_a_disk_that_dropped_what_is_there() {
    let (scene, group, [file, other]) = scene_and_files(65);
    group.take_offline(&[DiskNumber(3)], "it is gone").unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &[2; 4096]).unwrap();
    let copies = &group.map(&file)[0].copies;
    let (_, start) = copies
        .iter()
        .flatten()
        .find(|(disk, _)| *disk == GOOD)
        .unwrap();
    let place = *start..*start + 4096;
    while_a_flush_is_silent(&scene, &group, &other, || {
        scene.disks.fail_reads(DiskSlot(GOOD.0), place, 1);
        let mut found = [0; 4096];
        // It may give what was there before, or nothing.
        let _ = group.read(&file, 0, &mut found);
    });
    assert!(group.disks.is_online(DROPS), "nobody can do without it");
    group.sync_file(&file, true).unwrap();
    assert!(
        read(&group, &file, 0, 4096) == [2; 4096],
        "an answered and synced write is on no disk"
    );
}

/// The one disk is back and gets what it missed from the other one, which has dropped it: that is no copy
/// of what was answered.
#[test]
fn a_resync_takes_nothing_for_good_from_a_disk_that_dropped_it() {
    let (scene, group, [file, other]) = scene_and_files(66);
    group.take_offline(&[GOOD], "it failed").unwrap();
    // What says that it misses this is durable, and the write itself is not.
    group.write(&file, 0, &OLD).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &[2; 4096]).unwrap();
    let back = group.return_disks(&[DiskSlot(GOOD.0)]).unwrap();
    assert_eq!(back, [GOOD]);
    let unflushed = scene.disks.unsynced_count(DiskSlot(DROPS.0));
    while_a_flush_is_silent(&scene, &group, &other, || {
        let lacks_it = || {
            let stale = group.dirty.stale_regions(&|disk| disk == GOOD);
            stale.iter().any(|stale| stale.file == file.id)
        };
        for _ in (0..60).take_while(|_| lacks_it()) {
            group.resync_unit(1 << 20).unwrap();
        }
    });
    let answer = group.sync_file(&file, true);
    resync(&group);
    let is_there = read(&group, &file, 0, 4096) == [2; 4096];
    assert!(
        answer.is_err() || is_there,
        "an answered and synced write is on no disk ({unflushed} were unflushed)"
    );
}

#[test]
fn a_move_copies_nothing_that_its_source_dropped_before_the_state_says_so() {
    let (scene, group, [file, other]) = scene_and_files(63);
    let new = pattern(9, 4096);
    group.write(&file, 0, &new).unwrap();
    let extent = file.map.read().extent(0).unwrap();
    let from = extent.copies()[0];
    assert_eq!(from.disk(), DROPS);
    let moved = Move {
        file: file.id,
        index: 0,
        copy_number: 0,
        from,
        to: DiskNumber(3),
        blocks: from.blocks(),
    };
    let mut last = None;
    before_the_state(&scene, &group, &other, || {
        let Ok(mut relocation) = group.begin_relocation(&moved) else {
            return;
        };
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        loop {
            let step = group
                .step_relocation(&mut relocation, 256, &mut buffer)
                .unwrap();
            if !matches!(step, Step::Copied(_)) {
                last = Some(step);
                return;
            }
        }
    });
    group.sync_file(&file, true).unwrap();
    assert!(
        read(&group, &file, 0, 4096) == new,
        "{last:?}: a copy that was moved shows what was before a synced write"
    );
}

fn stands(group: &Group) -> bool {
    group.membership.failed_flushes().of(DROPS).stand()
}

/// A flush of the catalog's fails after that of the files' data: nobody has anything more to flush there.
fn fail_a_flush_that_nobody_asks_for(scene: &Scene, group: &Group) {
    let slot = DiskSlot(DROPS.0);
    scene.disks.drop_at_flushes(slot, 1);
    let mut batch = [Request::new(slot, 0, Work::Flush)];
    group.membership.run(&mut batch);
    batch[0].result.as_ref().unwrap_err();
    assert!(stands(group));
}

#[test]
fn a_failed_flush_that_nobody_asks_for_is_told_by_a_round() {
    let scene = Scene::mirrored(67);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &OLD).unwrap();
    group.sync().unwrap();
    fail_a_flush_that_nobody_asks_for(&scene, &group);
    for now_ms in [0, 6000, 12_000] {
        while group.step(now_ms).unwrap() {}
    }
    assert!(!stands(&group));
    assert!(read(&group, &file, 0, 4096) == OLD);
}

/// Nothing is copied from there as long as the failure stands.
#[test]
fn a_resync_tells_the_failed_flush_that_holds_it_up() {
    let scene = Scene::mirrored(68);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &OLD).unwrap();
    group.sync().unwrap();
    group.take_offline(&[GOOD], "it failed").unwrap();
    group.write(&file, 0, &[2; 4096]).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(GOOD.0)]).unwrap();
    fail_a_flush_that_nobody_asks_for(&scene, &group);
    let group = Arc::new(group);
    let (ended, has_ended) = std::sync::mpsc::channel();
    let (resyncing, copied) = (Arc::clone(&group), Arc::clone(&file));
    thread::spawn(move || {
        while resyncing.resync_unit(1 << 20).unwrap().is_some() {}
        let _ = ended.send(read(&resyncing, &copied, 0, 4096));
    });
    let answer = has_ended.recv_timeout(Duration::from_secs(30));
    assert!(answer.expect("the resync has no end") == [2; 4096]);
    assert!(!stands(&group));
    let is_good = |disk| disk == GOOD;
    assert!(group.dirty.stale_regions(&is_good).is_empty());
}
