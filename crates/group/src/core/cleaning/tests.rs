//! Rounds of cleaning beside each other.

use std::time::Duration;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DiskSlot, Request, Work};

use crate::scene::{NORMAL, Scene, assert_copies_equal, create, pattern, read, resync};
use crate::waiting_disks::{OneBatchWaits, has_write};

fn flushes_second(batch: &[Request<'_>]) -> bool {
    let is_flush =
        |request: &Request<'_>| request.slot == DiskSlot(1) && matches!(request.work, Work::Flush);
    batch.iter().any(is_flush)
}

#[test]
fn what_one_round_did_not_flush_another_that_began_later_does_not_forget() {
    for seed in 1..5 {
        let scene = Scene::mirrored(seed);
        let disks = OneBatchWaits::of(&scene);
        let group = disks.open(&scene, 2);
        let file = create(&group, 10, NORMAL);
        let other = create(&group, 11, NORMAL);
        group.write(&file, 0, &pattern(seed, 4 << 20)).unwrap();
        group.sync().unwrap();
        resync(&group);
        std::thread::scope(|scope| {
            let group = &group;
            let (write_came, write_goes) = disks.wait(true, has_write);
            let file = &file;
            let writer = scope.spawn(move || {
                group.write(file, 2 << 20, &pattern(99, 1 << 20)).unwrap();
            });
            write_came.recv().unwrap();
            // The writer is of the older generation from here on.
            group.clean_round().unwrap();
            group.write(&other, 0, &pattern(7, 1 << 20)).unwrap();
            let (one_flushed, one_goes) = disks.wait(false, flushes_second);
            let one = scope.spawn(move || group.clean_round().unwrap());
            one_flushed.recv().unwrap();
            // Its bytes reach the disks after that flush.
            write_goes.send(()).unwrap();
            writer.join().unwrap();
            // Another round begins, as `disk offline` asks for one.
            let (another_came, another_goes) = disks.wait(true, flushes_second);
            let another = scope.spawn(move || group.clean_round());
            std::thread::sleep(Duration::from_millis(300));
            one_goes.send(()).unwrap();
            one.join().unwrap();
            let has_come = another_came.recv_timeout(Duration::from_secs(2));
            scene.disks.vanish(DiskSlot(1));
            scene.disks.bring_back(DiskSlot(1));
            group.take_offline(&[DiskNumber(1)], "it blinks").unwrap();
            if has_come.is_ok() {
                another_goes.send(()).unwrap();
            }
            drop(another_goes);
            let _ = another.join().unwrap();
        });
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
    }
}

/// As the comparison of an opening finds it whose disks answer some reads only: a place that cannot be
/// mended on one disk, and another disk that was away for a moment.
#[test]
fn two_disks_that_lack_different_blocks_after_an_unclean_stop_keep_what_each_has() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 1 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &data[..4096]).unwrap();
    group.sync().unwrap();
    drop((file, group));
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    group.write(&file, 0, &data[..4096]).unwrap();
    for (blocks, disk) in [((0, 1), DiskNumber(0)), ((8, 9), DiskNumber(1))] {
        let apply = &mut |edit| group.catalog.apply(edit);
        group.dirty.missed_by(&file, &[blocks], &[disk], apply);
    }
    group.commit_everything().unwrap();
    drop((file, group));
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 4096, 7 * 4096) == data[4096..8 * 4096]);
}

/// One failure group is away for good when the group is opened after an unclean stop, and another disk
/// vanishes at any moment of that opening and comes back.
///
/// `least` is how many requests to that disk an opening takes at least.
fn vanish_everywhere_in_an_opening(
    scene: &Scene,
    dead: &[u16],
    slot: DiskSlot,
    by_force: bool,
    least: u64,
) {
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 4 << 20);
    for _ in 0..2 {
        group.write(&file, 0, &data).unwrap();
        group.sync().unwrap();
    }
    drop((file, group));
    scene.crash();
    for dead in dead {
        scene.disks.vanish(DiskSlot(*dead));
    }
    let open = |scene: &Scene| match by_force {
        true => scene.try_open_by_force(),
        false => scene.try_open(),
    };
    for requests in 1.. {
        let mut has_ended = true;
        for cuts_again in [false, true] {
            let scene = scene.copy(2);
            scene.disks.vanish_after(slot, requests);
            let opened = open(&scene);
            has_ended &= opened.is_ok() && !scene.disks.is_vanished(slot);
            let group = match opened {
                // Where it went before it was seen nobody knows which of the two went last.
                Ok(group) if group.membership.slot(DiskNumber(slot.0)).is_none() => continue,
                Ok(group) if !cuts_again => {
                    scene.disks.bring_back(slot);
                    group
                }
                opened => {
                    drop(opened);
                    scene.crash();
                    scene.disks.bring_back(slot);
                    open(&scene).unwrap()
                }
            };
            if !group.membership.is_online(DiskNumber(slot.0)) {
                assert_eq!(group.return_disks(&[slot]).unwrap().len(), 1);
            }
            let file = group.file(FileId(10)).unwrap();
            let mut found = vec![0; data.len()];
            let answer = group.read(&file, 0, &mut found);
            let what = format!("after {requests} requests, cut again: {cuts_again}");
            answer.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(found == data, "{what}");
        }
        if has_ended {
            assert!(requests > least, "{requests} requests");
            break;
        }
    }
}

#[test]
fn a_disk_that_vanishes_during_an_opening_after_an_unclean_stop_has_what_it_had() {
    let scene = Scene::new(1, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    vanish_everywhere_in_an_opening(&scene, &[0], DiskSlot(1), false, 50);
}

#[test]
fn a_disk_that_vanishes_during_an_opening_has_what_it_had_of_files_with_fewer_copies() {
    let disks: Vec<(u8, u64)> = (0..5).map(|number| (number, 64)).collect();
    let scene = Scene::new(1, Redundancy::High, &disks);
    vanish_everywhere_in_an_opening(&scene, &[0], DiskSlot(1), false, 50);
}

#[test]
fn a_disk_that_vanishes_during_an_opening_by_force_has_what_it_had() {
    let disks = [(0, 64), (1, 64), (0, 64), (1, 64), (0, 64), (1, 64)];
    let scene = Scene::new(1, Redundancy::Normal, &disks);
    vanish_everywhere_in_an_opening(&scene, &[0, 2, 4], DiskSlot(5), true, 15);
}
