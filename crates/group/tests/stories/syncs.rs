//! What a sync asks of the disks, and no more.

use spindle_base::{FileId, Redundancy};

use crate::scene::{EXTERNAL, NORMAL, Scene, create, pattern, read};

#[test]
fn a_sync_with_nothing_to_do_asks_nothing_of_any_disk() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 100_000)).unwrap();
    group.sync_file(&file, true).unwrap();
    let before = scene.disks.counts();
    group.sync_file(&file, true).unwrap();
    group.sync_file(&file, false).unwrap();
    group.sync().unwrap();
    assert_eq!(scene.disks.counts(), before);
}

#[test]
fn a_sync_of_an_overwrite_flushes_the_disks_of_that_file_and_commits_nothing() {
    let scene = Scene::new(
        2,
        Redundancy::External,
        &[(0, 32), (0, 32), (0, 32), (0, 32)],
    );
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 4 << 20)).unwrap();
    group.sync().unwrap();
    group.write(&file, 2 << 20, &pattern(2, 8192)).unwrap();
    let before = scene.disks.counts();
    group.sync_file(&file, false).unwrap();
    let after = scene.disks.counts();
    assert_eq!(after.flushes - before.flushes, 1);
    assert_eq!(after.writes, before.writes);
}

#[test]
fn an_overwrite_of_a_dirty_region_costs_one_request_a_copy() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 4 << 20)).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &pattern(2, 8192)).unwrap();
    let before = scene.disks.counts();
    group.write(&file, 2 << 20, &pattern(3, 8192)).unwrap();
    let after = scene.disks.counts();
    assert_eq!(after.requests - before.requests, 2);
}

#[test]
fn quiet_regions_are_cleaned_and_a_crash_compares_nothing_then() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 20 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &data[..8192]).unwrap();
    for round in 0..8 {
        while group.step(round * 5000).unwrap() {}
    }
    group.sync().unwrap();
    drop(group);
    scene.crash();
    let before = scene.disks.counts();
    let group = scene.open();
    let reads = scene.disks.counts().reads - before.reads;
    let file = group.file(FileId(10)).unwrap();
    assert!(reads < 100, "{reads} reads at the opening");
    assert!(read(&group, &file, 0, 20 << 20) == data);
}

#[test]
fn an_aged_batch_is_committed_by_the_steps_alone() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 5 << 20);
    group.write(&file, 0, &data).unwrap();
    for round in 0..8 {
        while group.step(round * 1000).unwrap() {}
    }
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 5 << 20) == data);
}

#[test]
fn space_freed_by_a_batch_that_a_crash_took_back_was_not_given_to_others() {
    for seed in 0..20 {
        let scene = Scene::new(seed, Redundancy::Normal, &[(0, 32), (1, 32)]);
        let group = scene.open();
        let old = create(&group, 10, NORMAL);
        let kept = pattern(seed, 6 << 20);
        group.write(&old, 0, &kept).unwrap();
        group.sync().unwrap();
        group.remove_file(&group.change(), &old).unwrap();
        let new = create(&group, 11, NORMAL);
        group.write(&new, 0, &pattern(seed + 100, 6 << 20)).unwrap();
        drop(group);
        scene.crash();
        let group = scene.open();
        let old = group
            .file(FileId(10))
            .expect("its removal was never committed");
        assert!(read(&group, &old, 0, 6 << 20) == kept, "seed {seed}");
    }
}

#[test]
fn a_block_whose_mark_is_not_sealed_yet_is_overwritten_without_a_commit() {
    let scene = Scene::mirrored(6);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 100)).unwrap();
    let before = scene.disks.counts();
    group.write(&file, 100, &pattern(2, 100)).unwrap();
    let after = scene.disks.counts();
    assert_eq!(after.writes - before.writes, 2);
    assert_eq!(after.flushes, before.flushes);
    group.sync_file(&file, true).unwrap();
    group.write(&file, 200, &pattern(3, 100)).unwrap();
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 100) == pattern(1, 100));
    assert!(read(&group, &file, 100, 100) == pattern(2, 100));
}

#[test]
fn a_failed_flush_without_redundancy_is_told_once_and_the_group_goes_on() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 32)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let other = create(&group, 11, EXTERNAL);
    group.sync().unwrap();
    group.write(&file, 0, &pattern(1, 100_000)).unwrap();
    group.write(&other, 0, &pattern(1, 100_000)).unwrap();
    scene.disks.fail_flushes(spindle_device::DiskSlot(0), 1);
    assert!(group.sync_file(&file, false).is_err());
    assert!(
        group.sync_file(&other, false).is_err(),
        "it had written there too"
    );
    group.sync_file(&file, false).unwrap();
    group.sync_file(&other, false).unwrap();
    group.close().unwrap();
}

#[test]
fn what_a_killed_process_wrote_is_durable_when_the_next_one_has_opened() {
    for seed in 0..20 {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, 100_000)).unwrap();
        group.sync().unwrap();
        group.write(&file, 0, &pattern(2, 100_000)).unwrap();
        drop(group);
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        let found = read(&group, &file, 0, 100_000);
        group.sync_file(&file, false).unwrap();
        drop(group);
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, 100_000) == found, "seed {seed}");
    }
}
