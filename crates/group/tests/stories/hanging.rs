//! Disks that do not answer: whoever has a mirror goes on by the deadline, and nobody trusts the
//! disk before its late requests have come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DiskSlot, Disks, FaultyOperation};
use spindle_group::{EventKind, Group, KeptJournal};

use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};
use crate::takeovers::{copy_of, open_kept};

pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// Nobody waits longer, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(8);
pub(crate) const EVERYWHERE: std::ops::Range<u64> = 0..u64::MAX;
pub(crate) const LENGTH: usize = 1 << 20;

pub(crate) fn mode(group: &Group, disk: usize) -> String {
    group.view().disks[disk].mode.to_string()
}

/// What a thread does again and again while a disk hangs.
type Work<'a> = dyn Fn(&Group, usize) + Sync + 'a;

/// Lets four threads work while disk 0 keeps silent about such requests; each goes on by the
/// deadline, the disk is offline, and newcomers are served.
fn goes_on_without(operation: FaultyOperation, work: &Work<'_>) {
    let scene = Scene::mirrored(1);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let model = pattern(10, LENGTH);
    group.write(&file, 0, &model).unwrap();
    group.sync().unwrap();
    scene.disks.hang(DiskSlot(0), operation, EVERYWHERE);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let group = &group;
            scope.spawn(move || {
                while mode(group, 0) != "offline" {
                    assert!(
                        begun.elapsed() < LONGEST,
                        "{operation:?}: it is not offline"
                    );
                    let before = Instant::now();
                    work(group, thread);
                    assert!(before.elapsed() < LONGEST, "{:?}", before.elapsed());
                }
            });
        }
    });
    // Somebody who comes now does not wait at all.
    let newcomer = create(&group, 11, NORMAL);
    let data = pattern(11, LENGTH);
    let before = Instant::now();
    group.write(&newcomer, 0, &data).unwrap();
    group.sync_file(&newcomer, true).unwrap();
    assert!(before.elapsed() < LONGEST);
    assert!(read(&group, &newcomer, 0, LENGTH) == data);
    // While a request is out the disk is not taken back, whoever asks.
    assert!(scene.disks.is_fenced(DiskSlot(0)));
    assert!(group.return_answering().unwrap().is_empty());
    assert!(group.return_disks(&[DiskSlot(0)]).is_err());
    scene.disks.release(DiskSlot(0));
    assert_eq!(group.return_answering().unwrap(), [DiskNumber(0)]);
    resync(&group);
    for file in [&file, &newcomer] {
        assert_copies_equal(&scene, &group, file, "back again");
    }
    assert!(read(&group, &newcomer, 0, LENGTH) == data);
    assert_sound(&group);
    group.close().unwrap();
}

#[test]
fn a_disk_whose_writes_hang_goes_offline_and_writers_go_on() {
    goes_on_without(FaultyOperation::Write, &|group, thread| {
        let file = group.file(spindle_base::FileId(10)).unwrap();
        let data = pattern(thread as u64, 8192);
        group.write(&file, (thread * 8192) as u64, &data).unwrap();
        group.sync_file(&file, false).unwrap();
    });
}

#[test]
fn a_disk_whose_flushes_hang_goes_offline_and_syncs_are_answered() {
    goes_on_without(FaultyOperation::Flush, &|group, thread| {
        let file = group.file(spindle_base::FileId(10)).unwrap();
        let data = pattern(thread as u64, 8192);
        group.write(&file, (thread * 8192) as u64, &data).unwrap();
        group.sync_file(&file, true).unwrap();
    });
}

#[test]
fn a_disk_whose_reads_hang_goes_offline_and_readers_get_the_other_copy() {
    let model = pattern(10, LENGTH);
    goes_on_without(FaultyOperation::Read, &|group, thread| {
        let file = group.file(spindle_base::FileId(10)).unwrap();
        let at = thread * 65_536;
        let found = read(group, &file, at as u64, 65_536);
        assert!(found == model[at..at + 65_536]);
    });
}

#[test]
fn a_disk_that_hangs_at_the_heartbeat_goes_offline() {
    for operation in [FaultyOperation::Write, FaultyOperation::Read] {
        let beats = std::sync::atomic::AtomicU64::new(100);
        goes_on_without(operation, &|group, _| {
            let now_s = beats.fetch_add(1, Ordering::Relaxed);
            group.heartbeat(now_s).unwrap();
            group.step(now_s * 1000).unwrap();
        });
    }
}

#[test]
fn a_disk_that_hangs_is_offline_for_the_next_process_too() {
    let scene = Scene::mirrored(2);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    scene
        .disks
        .hang(DiskSlot(0), FaultyOperation::Write, EVERYWHERE);
    let newer = pattern(2, LENGTH);
    group.write(&file, 0, &newer).unwrap();
    group.sync_file(&file, true).unwrap();
    assert_eq!(mode(&group, 0), "offline");
    // Killed; its late writes reach the disk only now.
    drop((group, file));
    scene.disks.release(DiskSlot(0));
    let group = scene.open();
    assert_eq!(mode(&group, 0), "offline");
    let file = group.file(spindle_base::FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == newer);
}

#[test]
fn a_late_write_never_damages_what_was_written_after_it() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    scene
        .disks
        .hang(DiskSlot(0), FaultyOperation::Write, EVERYWHERE);
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    assert!(scene.disks.late_count(DiskSlot(0)) > 0);
    let newest = pattern(3, LENGTH);
    group.write(&file, 0, &newest).unwrap();
    group.sync_file(&file, true).unwrap();
    // What has freed its place since is somebody else's when the late writes come.
    scene.disks.release(DiskSlot(0));
    assert_eq!(scene.disks.late_count(DiskSlot(0)), 0);
    assert!(read(&group, &file, 0, LENGTH) == newest);
    assert_eq!(group.return_answering().unwrap(), [DiskNumber(0)]);
    assert!(read(&group, &file, 0, LENGTH) == newest);
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the late writes");
    assert!(read(&group, &file, 0, LENGTH) == newest);
    group.close().unwrap();
}

/// Runs `work` while somebody else releases these disks after some deadlines; whether it was still
/// waiting then.
pub(crate) fn waits_until_released(
    scene: &Scene,
    slots: &[u16],
    work: impl FnOnce() + Send,
) -> bool {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            work();
            is_done.store(true, Ordering::Release);
        });
        std::thread::sleep(5 * DEADLINE);
        let was_waiting = !is_done.load(Ordering::Acquire);
        for slot in slots {
            scene.disks.release(DiskSlot(*slot));
        }
        worker.join().unwrap();
        was_waiting
    })
}

#[test]
fn a_disk_that_came_back_counts_as_a_copy_only_when_a_power_cut_would_leave_it_one() {
    let scene = Scene::mirrored(5);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(0));
    let newer = pattern(2, LENGTH);
    group.write(&file, 0, &newer).unwrap();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(0));
    assert_eq!(group.return_disks(&[DiskSlot(0)]).unwrap(), [DiskNumber(0)]);
    group.step(0).unwrap();
    while group.work(0).unwrap().did_something {}
    // From when on its partner may be given up is for the group to say; from then on nothing may
    // depend on the partner.
    let mut now_ms = 0;
    while mode(&group, 1) != "offline" {
        now_ms += 6000;
        assert!(now_ms < 100_000, "it never counts as a copy");
        group.step(now_ms).unwrap();
        (scene.disks).hang(DiskSlot(1), FaultyOperation::Read, EVERYWHERE);
        let was_waiting = waits_until_released(&scene, &[1], || {
            for _ in 0..8 {
                assert!(read(&group, &file, 0, LENGTH) == newer);
            }
        });
        assert!(was_waiting || mode(&group, 1) == "offline");
    }
    drop((group, file));
    scene.crash();
    scene.disks.vanish(DiskSlot(1));
    let group = scene.open();
    let file = group.file(spindle_base::FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == newer);
}

/// Nothing in the catalog says yet that the disk which came back has everything again when the other one,
/// which gave it all, ceases to answer.
#[test]
fn a_disk_that_hangs_when_the_other_one_has_caught_up_is_not_waited_for() {
    use FaultyOperation::{Flush, Read, Write};
    // What is still answered while the resync reads.
    for (during, after) in [
        (&[Write][..], &[][..]),
        (&[Flush], &[]),
        (&[Write, Flush], &[Read]),
        (&[], &[Read, Write, Flush]),
    ] {
        let scene = Scene::mirrored(6);
        scene.disks.set_deadline(DEADLINE);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
        group.sync().unwrap();
        let [back, source] = [DiskSlot(0), DiskSlot(1)];
        scene.disks.vanish(back);
        let mut newer = pattern(2, LENGTH);
        group.write(&file, 0, &newer).unwrap();
        group.sync().unwrap();
        scene.disks.bring_back(back);
        assert_eq!(group.return_disks(&[back]).unwrap(), [DiskNumber(0)]);
        for operation in during {
            scene.disks.hang(source, *operation, EVERYWHERE);
        }
        newer[..8192].copy_from_slice(&pattern(3, 8192));
        let was_waiting = waits_until_released(&scene, &[1], || {
            while group.work(0).unwrap().did_something {}
            for operation in after {
                scene.disks.hang(source, *operation, EVERYWHERE);
            }
            group.write(&file, 0, &newer[..8192]).unwrap();
            group.sync_file(&file, true).unwrap();
            for _ in 0..8 {
                assert!(read(&group, &file, 0, LENGTH) == newer);
            }
        });
        assert!(!was_waiting, "{during:?} {after:?}");
        assert_eq!(mode(&group, 1), "offline", "{during:?} {after:?}");
        drop((group, file));
        scene.crash();
        scene.disks.vanish(source);
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(
            read(&group, &file, 0, LENGTH) == newer,
            "{during:?} {after:?}"
        );
    }
}

/// Two disks came back and have everything; one of them ceases to answer before anybody has flushed it.
#[test]
fn of_two_disks_that_caught_up_one_that_hangs_is_not_waited_for() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    // Each misses an extent of which the other one has nothing.
    let extents = group.map(&file);
    for (own, other) in [(1, 2), (2, 1)] {
        let extent = extents.iter().find(|extent| {
            let on = |wanted| {
                extent
                    .copies
                    .iter()
                    .flatten()
                    .any(|(disk, _)| disk.0 == wanted)
            };
            extent.initialised_bytes >= 8192 && on(own) && !on(other)
        });
        group.offline_disks(&[DiskNumber(own)]).unwrap();
        let at = extent.unwrap().offset_bytes;
        group.write(&file, at, &pattern(2, 8192)).unwrap();
        group.sync().unwrap();
        assert_eq!(group.return_disks(&[DiskSlot(own)]).unwrap().len(), 1);
    }
    (scene.disks).hang(DiskSlot(1), FaultyOperation::Flush, EVERYWHERE);
    let is_over = AtomicBool::new(false);
    let was_waiting = waits_until_released(&scene, &[1], || {
        thread::scope(|scope| {
            scope.spawn(|| {
                while group.work(0).unwrap().did_something {}
                is_over.store(true, Ordering::Release);
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    group.step(0).unwrap();
                    thread::sleep(Duration::from_millis(5));
                }
            });
        });
        group.sync().unwrap();
    });
    assert!(!was_waiting);
    assert_eq!(mode(&group, 1), "offline");
}

#[test]
fn of_two_copies_that_hang_one_is_given_up_and_the_other_is_waited_for() {
    let scene = Scene::mirrored(4);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    for slot in [0, 1] {
        scene
            .disks
            .hang(DiskSlot(slot), FaultyOperation::Write, EVERYWHERE);
    }
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[0, 1], || {
        group.write(&file, 0, &newer).unwrap();
        group.sync_file(&file, true).unwrap();
    }));
    assert_eq!(group.view().offline_disks_count, 1);
    assert!(read(&group, &file, 0, LENGTH) == newer);
    group.step(0).unwrap();
    let kinds: Vec<EventKind> = group.take_events().iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::DiskHangs), "{kinds:?}");
    assert_eq!(group.return_answering().unwrap().len(), 1);
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "both answer");
    group.close().unwrap();
}

#[test]
fn the_only_disk_is_waited_for_however_long_it_hangs() {
    let scene = Scene::new(5, Redundancy::External, &[(0, 64)]);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, crate::scene::EXTERNAL);
    for operation in [FaultyOperation::Write, FaultyOperation::Flush] {
        let newer = pattern(operation as u64, LENGTH);
        scene.disks.hang(DiskSlot(0), operation, EVERYWHERE);
        assert!(waits_until_released(&scene, &[0], || {
            group.write(&file, 0, &newer).unwrap();
            group.sync_file(&file, true).unwrap();
        }));
        assert!(read(&group, &file, 0, LENGTH) == newer);
    }
    assert_eq!(group.view().offline_disks_count, 0);
    group.close().unwrap();
}

#[test]
fn a_flush_that_failed_is_noted_for_the_next_daemon_while_another_disk_keeps_its_batch_waiting() {
    let scene = Scene::mirrored(21);
    let journal = KeptJournal::create().unwrap();
    let group = Arc::new(open_kept(&scene, &journal));
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 64 << 10)).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &pattern(2, 64 << 10)).unwrap();
    let [drops, hangs] = [DiskSlot(0), DiskSlot(1)];
    scene.disks.drop_at_flushes(drops, 1);
    scene.disks.set_deadline(Duration::from_secs(3600));
    scene.disks.hang(hangs, FaultyOperation::Flush, EVERYWHERE);
    let killed = {
        let group = Arc::clone(&group);
        thread::spawn(move || group.sync())
    };
    let begun = Instant::now();
    while scene.disks.unsynced_count(drops) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(5));
    }
    // It may be noted a moment later.
    thread::sleep(Duration::from_millis(300));
    // Killed there: what the disks have is served by the next one.
    let next = scene.copy(22);
    next.disks.release(hangs);
    let kept = copy_of(journal.memory());
    let taken = open_kept(&next, &kept);
    // The disk does not count any more until it has what it dropped.
    assert_eq!(taken.view().offline_disks_count, 1);
    taken.return_disks(&[drops]).unwrap();
    resync(&taken);
    taken.sync().unwrap();
    assert_copies_equal(
        &next,
        &taken,
        &taken.file(FileId(10)).unwrap(),
        "after a kill",
    );
    scene.disks.release(hangs);
    killed.join().unwrap().unwrap();
}
