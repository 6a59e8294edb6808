//! What a sync asks of the disks, and no more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spindle_base::{FileId, Redundancy};
use spindle_group::{File, Group, GroupError};

use crate::scene::{EXTERNAL, FINE, NORMAL, Scene, create, pattern, read};

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

/// Something that is asked for while another thread's commit seals.
type Sync<'a> = &'a dyn Fn(&Group, &File) -> Result<(), GroupError>;

/// A file whose map has some 800 rows for the next seal; so it takes a while.
fn with_a_long_seal(seed: u64) -> (Scene, Group, std::sync::Arc<File>, Vec<u8>) {
    let sizes_mib = [(0, 300 << 10), (1, 300 << 10)];
    let scene = Scene::new(seed, Redundancy::Normal, &sizes_mib);
    let group = scene.open();
    let file = create(&group, 10, FINE);
    group.sync().unwrap();
    group.allocate(&file, 0, 100 << 30).unwrap();
    let data = pattern(seed, 4096);
    group.write(&file, 0, &data).unwrap();
    group.step(0).unwrap();
    (scene, group, file, data)
}

/// One thread commits; meanwhile this one calls `beside`.
fn beside_a_commit<T>(group: &Group, beside: impl FnOnce(Instant) -> T) -> T {
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.store(true, Ordering::Release);
            // It fails where the power is cut in it.
            let _ = group.step(5001);
        });
        while !begun.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        beside(Instant::now())
    })
}

/// When the seal of a commit takes the map of the file, since the beginning of the commit; seen
/// from outside as the longest time for which the map cannot be looked at.
fn time_of_the_seal() -> (Duration, Duration) {
    let (_scene, group, file, _) = with_a_long_seal(1);
    beside_a_commit(&group, |begun| {
        let mut longest = (Duration::ZERO, Duration::ZERO);
        while begun.elapsed() < Duration::from_millis(200) {
            let from = begun.elapsed();
            group.allocated_bytes(&file);
            let to = begun.elapsed();
            if to - from > longest.1 - longest.0 {
                longest = (from, to);
            }
        }
        longest
    })
}

/// A sync `after` the beginning of another's commit, and the power is cut right after its
/// answer. Whether what was written before is there.
fn survives_beside_a_seal(seed: u64, after: Duration, sync: Sync<'_>) -> bool {
    let (scene, group, file, data) = with_a_long_seal(seed);
    beside_a_commit(&group, |begun| {
        while begun.elapsed() < after {
            std::hint::spin_loop();
        }
        sync(&group, &file).unwrap();
        scene.disks.crash();
    });
    drop((file, group));
    scene.disks.restart();
    let again = scene.open();
    let file = again.file(FileId(10)).unwrap();
    read(&again, &file, 0, data.len()) == data
}

fn check_beside_a_seal(sync: Sync<'_>) {
    const ROUNDS: u32 = 40;
    let (from, to) = time_of_the_seal();
    let lost = (0..ROUNDS)
        .map(|round| from + (to - from) * round / ROUNDS)
        .filter(|after| !survives_beside_a_seal(2, *after, sync))
        .count();
    assert_eq!(lost, 0, "of {ROUNDS} syncs that were answered");
}

#[test]
fn a_sync_of_a_file_that_another_commit_seals_just_now_waits_for_that_commit() {
    check_beside_a_seal(&|group, file| group.sync_file(file, true));
}

#[test]
fn a_sync_of_everything_beside_a_seal_waits_for_what_is_being_sealed() {
    check_beside_a_seal(&|group, _| group.sync());
}
