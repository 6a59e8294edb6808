//! Disks that fail a flush and serve on: what is lost by that, and what is not.

mod before_the_state;
mod copied;
mod outlived;

use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;

use crate::Group;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

const WAIT_MOST: Duration = Duration::from_secs(30);

#[test]
fn what_is_written_and_synced_while_an_earlier_failed_flush_is_being_told_is_not_told_as_lost() {
    let scene = Scene::new(1, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let [lost, kept] = [10, 11].map(|id| create(&group, id, EXTERNAL));
    for file in [&lost, &kept] {
        group.write(file, 0, &pattern(1, 4096)).unwrap();
    }
    group.sync().unwrap();
    group.write(&lost, 0, &pattern(2, 4096)).unwrap();
    let life = || group.disks.get(DiskNumber(0)).unwrap().life();
    let before = life();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    thread::scope(|scope| {
        // Whoever tells the failure waits for this map.
        let held = lost.map.read();
        let telling = scope.spawn(|| group.sync_file(&lost, false));
        let begun = Instant::now();
        while life() == before {
            assert!(begun.elapsed() < WAIT_MOST, "the disk begins anew");
            thread::yield_now();
        }
        let syncing = scope.spawn(|| {
            group.write(&kept, 0, &pattern(3, 4096)).unwrap();
            group.sync_file(&kept, false)
        });
        let begun = Instant::now();
        while !syncing.is_finished() && begun.elapsed() < Duration::from_secs(2) {
            thread::yield_now();
        }
        assert!(!telling.is_finished(), "the failure is being told");
        drop(held);
        syncing.join().unwrap().unwrap();
        telling.join().unwrap().unwrap_err();
    });
    group.sync_file(&lost, false).unwrap();
    group.sync().unwrap();
    scene.disks.crash();
    drop((lost, kept, group));
    scene.disks.restart();
    let group = scene.open();
    let kept = group.file(FileId(11)).unwrap();
    assert!(read(&group, &kept, 0, 4096) == pattern(3, 4096));
}

/// Behind the marks that go back for what the file lost lies what is written in the new life.
#[test]
fn what_is_written_while_the_loss_of_its_own_file_is_being_noted_is_there_or_told() {
    for at in [4096, 3 * 4096] {
        let scene = Scene::new(1, Redundancy::External, &[(0, 64)]);
        let group = scene.open();
        let [first, file] = [10, 11].map(|id| create(&group, id, EXTERNAL));
        for file in [&first, &file] {
            group.write(file, 0, &pattern(1, 4096)).unwrap();
        }
        group.sync().unwrap();
        for file in [&first, &file] {
            group.write(file, 0, &pattern(2, 3 * 4096)).unwrap();
        }
        let life = || group.disks.get(DiskNumber(0)).unwrap().life();
        let before = life();
        scene.disks.drop_at_flushes(DiskSlot(0), 1);
        let written = thread::scope(|scope| {
            // Whoever notes what was lost waits for this map.
            let held = first.map.read();
            let telling = scope.spawn(|| group.sync_file(&file, false));
            let begun = Instant::now();
            while life() == before {
                assert!(begun.elapsed() < WAIT_MOST, "the disk begins anew");
                thread::yield_now();
            }
            let writing = scope.spawn(|| group.write(&file, at, &pattern(3, 4096)));
            let begun = Instant::now();
            while !writing.is_finished() && begun.elapsed() < Duration::from_secs(1) {
                thread::yield_now();
            }
            drop(held);
            telling.join().unwrap().unwrap_err();
            writing.join().unwrap()
        });
        let is_synced = written.is_ok() && group.sync_file(&file, false).is_ok();
        assert!(!is_synced || read(&group, &file, at, 4096) == pattern(3, 4096));
        let _ = group.sync_file(&file, false);
        group.sync_file(&file, false).unwrap();
        assert_sound(&group);
    }
}

#[test]
fn a_disk_that_fails_a_flush_while_its_partner_is_away_serves_on_and_what_it_alone_lost_is_told() {
    let disks = [(0, 64), (1, 64), (2, 64), (3, 64)];
    let scene = Scene::new(15, Redundancy::Normal, &disks);
    let group = scene.open();
    let (disk, partner) = (DiskNumber(0), DiskNumber(1));
    let mut files: Vec<_> = (10..40).map(|id| create(&group, id, NORMAL)).collect();
    for seed in [1, 2] {
        for file in &files {
            group.write(file, 0, &pattern(seed, 64 << 10)).unwrap();
        }
        group.sync().unwrap();
    }
    scene.disks.vanish(DiskSlot(partner.0));
    group.take_offline(&[partner], "it is gone").unwrap();
    group.sync().unwrap();
    let mut take_one = |is_alone: bool| {
        let wanted = files.iter().position(|file| {
            let copies = &group.map(file)[0].copies;
            let has = |disk| copies.iter().flatten().any(|copy| copy.0 == disk);
            has(disk) && has(partner) == is_alone
        });
        files.remove(wanted.unwrap())
    };
    let [alone, beside] = [true, false].map(&mut take_one);
    for file in [&alone, &beside] {
        group.write(file, 0, &pattern(3, 4096)).unwrap();
    }
    scene.disks.drop_at_flushes(DiskSlot(disk.0), 1);
    group.sync_file(&beside, false).unwrap();
    assert!(
        group.membership.is_online(disk),
        "nobody else has what it has"
    );
    group.sync_file(&alone, false).unwrap_err();
    group.sync_file(&alone, false).unwrap();
    let assert_all_read = |group: &Group, when: &str| {
        for file in &files {
            let found = read(group, file, 0, 64 << 10);
            assert!(found == pattern(2, 64 << 10), "{when}, file {}", file.id);
        }
        for _ in 0..4 {
            let found = read(group, &beside, 0, 4096);
            assert!(found == pattern(3, 4096), "{when}, the other copy counts");
        }
        read(group, &alone, 0, 64 << 10);
    };
    assert_all_read(&group, "at once");
    scene.disks.bring_back(DiskSlot(partner.0));
    group.return_disks(&[DiskSlot(partner.0)]).unwrap();
    assert_all_read(&group, "with its partner back");
    resync(&group);
    assert_all_read(&group, "up to date");
    assert_sound(&group);
    for file in files.iter().chain([&alone, &beside]) {
        assert_copies_equal(&scene, &group, file, "up to date");
    }
}

#[test]
fn the_last_disk_of_a_mirror_serves_on_after_a_failed_flush_and_goes_where_it_fails_the_next_too() {
    for failing_count in [1, 2] {
        let scene = Scene::mirrored(16);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, 64 << 10)).unwrap();
        group.sync().unwrap();
        scene.disks.vanish(DiskSlot(1));
        group.take_offline(&[DiskNumber(1)], "it is gone").unwrap();
        group.write(&file, 0, &pattern(2, 4096)).unwrap();
        scene.disks.drop_at_flushes(DiskSlot(0), failing_count);
        group.sync_file(&file, false).unwrap_err();
        let serves = failing_count == 1;
        assert_eq!(group.check_serves().is_ok(), serves);
        if serves {
            group.sync_file(&file, false).unwrap();
            group.write(&file, 0, &pattern(3, 4096)).unwrap();
            group.sync().unwrap();
            assert!(read(&group, &file, 0, 4096) == pattern(3, 4096));
            group.close().unwrap();
        }
    }
}

#[test]
fn a_write_to_blocks_whose_copies_are_all_away_leaves_what_was_synced_there() {
    let disks = [(0, 64), (1, 64), (2, 64), (3, 64)];
    let scene = Scene::new(17, Redundancy::Normal, &disks);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 64 << 10)).unwrap();
    group.sync().unwrap();
    // Nothing was written lately.
    resync(&group);
    let extents = group.map(&file);
    let extent = (extents.iter()).find(|extent| extent.length_bytes == 16 << 10);
    let extent = extent.unwrap();
    let slots: Vec<DiskSlot> = (extent.copies.iter().flatten())
        .map(|(disk, _)| DiskSlot(disk.0))
        .collect();
    assert_eq!(slots.len(), 2);
    for slot in &slots {
        scene.disks.vanish(*slot);
        let disk = DiskNumber(slot.0);
        group.take_offline(&[disk], "it is gone").unwrap();
    }
    let at = extent.offset_bytes;
    group.write(&file, at, &pattern(2, 4096)).unwrap_err();
    group.write(&file, 0, &pattern(2, 64 << 10)).unwrap_err();
    group.punch(&file, at, 4096).unwrap_err();
    for slot in &slots {
        scene.disks.bring_back(*slot);
    }
    assert_eq!(group.return_disks(&slots).unwrap().len(), 2);
    assert!(read(&group, &file, 0, 64 << 10) == pattern(1, 64 << 10));
    group.sync_file(&file, false).unwrap_err();
    resync(&group);
    group.sync_file(&file, false).unwrap();
    assert!(read(&group, &file, 0, 64 << 10) == pattern(1, 64 << 10));
    assert_copies_equal(&scene, &group, &file, "up to date");
}
