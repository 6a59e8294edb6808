//! Commits beside a disk that goes, and syncs beside a flush that failed.

use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{Edit, Region, Table};
use spindle_device::DiskSlot;

use crate::Group;
use crate::core::disks::Target;
use crate::scene::{EXTERNAL, NORMAL, Scene, assert_copies_equal, create, pattern, read, resync};

/// Waits for another thread to come to a place; a test that waits in vain fails.
fn wait_until(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        thread::yield_now();
    }
}

#[test]
fn what_a_disk_missed_that_goes_during_a_seal_is_durable_before_the_marks_are() {
    for seed in 1..6 {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let sealed_first = create(&group, 9, NORMAL);
        let file = create(&group, 10, NORMAL);
        group.sync().unwrap();
        group.allocate(&sealed_first, 0, 4096).unwrap();
        let data = pattern(seed, 4 << 20);
        group.write(&file, 0, &data).unwrap();
        thread::scope(|scope| {
            // The seal waits for this map, with the change lock held alone.
            let held = file.map.read();
            let committer = scope.spawn(|| group.commit_everything());
            wait_until("the commit seals", || {
                !group.dirty_maps.lock().contains(sealed_first.id)
            });
            scene.disks.vanish(DiskSlot(1));
            let finder = scope.spawn(|| group.take_offline(&[DiskNumber(1)], "it is gone"));
            wait_until("the disk is offline", || {
                !group.membership.is_online(DiskNumber(1))
            });
            thread::sleep(Duration::from_millis(20));
            drop(held);
            finder.join().unwrap().unwrap();
            committer.join().unwrap().unwrap();
        });
        scene.disks.crash();
        drop((file, sealed_first, group));
        scene.disks.restart();
        let group: Group = scene.open();
        scene.disks.bring_back(DiskSlot(1));
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, 4 << 20) == data, "seed {seed}");
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
    }
}

#[test]
fn a_commit_that_waits_for_a_change_does_not_take_the_half_that_a_panic_leaves() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let commits_count = group.catalog.commits_count();
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let change = group.change();
            let mut half = Edit::default();
            half.put(Table::Attribute, b"half".to_vec(), b"of two".to_vec());
            group.apply(&change, half);
            // The commit is at the change lock by then.
            thread::sleep(Duration::from_millis(200));
            panic!("half way, as the test wants it");
        });
        wait_until("the half is there", || {
            (group.catalog.get(Table::Attribute, b"half"))
                .unwrap()
                .is_some()
        });
        assert!(group.commit_everything().is_err());
        panics.join().unwrap_err();
    });
    assert_eq!(group.catalog.commits_count(), commits_count);
}

#[test]
fn a_sync_after_a_flush_that_failed_and_was_not_told_yet_does_not_hide_it() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let [first, untouched, second] = [10, 11, 12].map(|id| create(&group, id, EXTERNAL));
    group.sync().unwrap();
    group.write(&first, 0, &pattern(1, 4096)).unwrap();
    group.write(&untouched, 0, &pattern(1, 4096)).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    // Whoever syncs the first file has its answer, and has told nobody yet.
    let targets: Vec<Target> = first.written.lock().to_vec();
    let failed = group.disks.flushes.cover(&group.disks, &targets);
    assert_eq!(failed.len(), 1);
    group.write(&second, 0, &pattern(1, 4096)).unwrap();
    group.sync_file(&second, false).unwrap_err();
    for file in [first, untouched] {
        group.sync_file(&file, false).unwrap_err();
        group.sync_file(&file, false).unwrap();
    }
    group.sync_file(&second, false).unwrap();
}

#[test]
fn a_flush_of_the_catalog_that_fails_is_told_to_who_had_written_to_the_disk() {
    let scene = Scene::new(8, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    let mut block = vec![0; 4096];
    group.region.read(0, &mut block).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    (group.region.write_durably(&[(0, &block)])).unwrap_err();
    group.sync_file(&file, false).unwrap_err();
    group.sync_file(&file, false).unwrap();
}

#[test]
fn where_several_disks_fail_a_flush_each_file_is_told_of_the_one_that_it_lies_on() {
    let scene = Scene::new(9, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let files: Vec<_> = (10..20).map(|id| create(&group, id, EXTERNAL)).collect();
    for file in &files {
        group.write(file, 0, &pattern(1, 4096)).unwrap();
    }
    group.sync().unwrap();
    for file in &files {
        group.write(file, 0, &pattern(2, 4096)).unwrap();
    }
    scene.disks.fail_flushes(DiskSlot(0), 1);
    scene.disks.fail_flushes(DiskSlot(1), 1);
    group.sync().unwrap_err();
    let mut on_disk = [0, 0];
    for file in &files {
        let (disk, _) = group.map(file)[0].copies[0].unwrap();
        on_disk[usize::from(disk.0)] += 1;
        let error = group.sync_file(file, false).unwrap_err();
        let path = format!("(simulated-{disk})");
        assert!(error.message.contains(&path), "on disk {disk}: {error}");
        group.sync_file(file, false).unwrap();
    }
    assert!(on_disk.iter().all(|count| *count > 0), "{on_disk:?}");
}
