//! Resyncs beside blocks that cannot be read or written.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DeviceError, DeviceErrorKind, DiskSlot, FaultyOperation, Request, Work};

use crate::Group;
use crate::background::operations::{OperationState, OperationView, Pass};
use crate::core::file::File;
use crate::event::EventKind;
use crate::scene::{HIGH, NORMAL, Scene, assert_copies_equal, create, pattern, read, resync};
use crate::waiting_disks::OneBatchWaits;

const LENGTH: usize = 8 << 20;
const BLOCK: u64 = 4096;

/// As [`resync`], for so long that what was passed over has been tried again: ten minutes at most.
pub(crate) fn resync_after_a_pause(group: &Group) {
    for _ in 0..14 {
        resync(group);
    }
}

/// A mirrored file, all of which was written anew while disk 1 was away; that disk is back.
fn back_and_stale(scene: &Scene) -> (Group, Arc<File>, Vec<u8>) {
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    let new = pattern(2, LENGTH);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    (group, file, new)
}

/// Where on the disk the file's block `at` lies.
fn place_of(group: &Group, file: &File, disk: DiskNumber, at: u64) -> Range<u64> {
    let extent = (group.map(file).into_iter())
        .find(|extent| {
            let end = extent.offset_bytes + extent.initialised_bytes;
            (extent.offset_bytes..end).contains(&(at * BLOCK))
        })
        .unwrap();
    let (_, start) = (extent.copies.iter().flatten())
        .find(|(on, _)| *on == disk)
        .unwrap();
    let from = start + at * BLOCK - extent.offset_bytes;
    from..from + 1
}

/// Blocks that disk 1 lacks.
fn stale_blocks(group: &Group) -> u32 {
    let stale = group.dirty.stale_regions(&|disk| disk == DiskNumber(1));
    stale.iter().map(|stale| stale.blocks).sum()
}

fn resync_line(group: &Group) -> Option<OperationView> {
    let is_resync = |view: &OperationView| view.pass == Pass::Resync;
    group.operations().into_iter().find(is_resync)
}

#[test]
fn a_block_that_cannot_be_read_for_a_while_is_copied_later() {
    let scene = Scene::mirrored(41);
    let (group, file, new) = back_and_stale(&scene);
    let bad = place_of(&group, &file, DiskNumber(0), 100);
    scene.disks.fail_reads(DiskSlot(0), bad, 40);
    resync(&group);
    scene.disks.clear_faults(DiskSlot(0));
    resync_after_a_pause(&group);
    assert_eq!(stale_blocks(&group), 0);
    assert!(read(&group, &file, 0, LENGTH) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

#[test]
fn of_a_region_only_the_block_that_cannot_be_read_is_not_copied() {
    let scene = Scene::mirrored(42);
    let (group, file, _) = back_and_stale(&scene);
    for at in [100, 101, 700] {
        let bad = place_of(&group, &file, DiskNumber(0), at);
        scene.disks.fail_reads(DiskSlot(0), bad, u64::MAX);
    }
    resync(&group);
    assert_eq!(stale_blocks(&group), 3);
    let line = resync_line(&group).unwrap();
    assert_eq!(line.state, OperationState::Errors);
    assert_eq!(line.left_bytes, 3 * BLOCK);
    let error = line.error.unwrap();
    assert!(error.contains("12288 bytes"), "{error}");
    let told = (group.take_events().iter())
        .filter(|event| event.kind == EventKind::BlocksUnreadable)
        .count();
    assert_eq!(told, 1, "of one region once");
    for at in 0..(LENGTH as u64 / BLOCK) {
        let mut found = vec![0; 4096];
        let answer = group.read(&file, at * BLOCK, &mut found);
        assert_eq!(answer.is_err(), [100, 101, 700].contains(&at), "block {at}");
    }
    // The blocks are written anew: nothing is left to be copied.
    let newer = pattern(3, LENGTH);
    group.write(&file, 0, &newer).unwrap();
    resync(&group);
    assert_eq!(stale_blocks(&group), 0);
    assert_eq!(resync_line(&group), None);
}

/// What a disk lacks and no other one can give keeps nobody waiting for a third one that hangs.
#[test]
fn a_block_that_can_be_had_nowhere_keeps_no_other_disk_from_being_given_up() {
    let scene = Scene::new(48, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    scene.disks.set_deadline(Duration::from_millis(200));
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    group.sync().unwrap();
    let on = |wanted: [u16; 2]| {
        let extents = group.map(&file);
        let extent = extents.iter().find(|extent| {
            let mut disks = extent.copies.iter().flatten().map(|copy| copy.0.0);
            wanted
                .iter()
                .all(|wanted| disks.any(|disk| disk == *wanted))
        });
        extent.unwrap().offset_bytes / BLOCK
    };
    let bad = place_of(&group, &file, DiskNumber(0), on([0, 1]));
    scene.disks.fail_reads(DiskSlot(0), bad, u64::MAX);
    group.return_disks(&[DiskSlot(1)]).unwrap();
    resync(&group);
    assert_eq!(stale_blocks(&group), 1);
    let elsewhere = on([0, 2]);
    for operation in [FaultyOperation::Write, FaultyOperation::Flush] {
        scene.disks.hang(DiskSlot(2), operation, 0..u64::MAX);
    }
    // A test that waits for ever shows nothing.
    let is_over = AtomicBool::new(false);
    let was_waiting = std::thread::scope(|within| {
        let releaser = within.spawn(|| {
            let begun = Instant::now();
            while !is_over.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            scene.disks.release(DiskSlot(2));
            begun.elapsed() >= Duration::from_secs(20)
        });
        group.write(&file, elsewhere * BLOCK, &[5; 4096]).unwrap();
        group.sync_file(&file, true).unwrap();
        is_over.store(true, Ordering::Release);
        releaser.join().unwrap()
    });
    assert!(!was_waiting);
    assert!(!group.disks.is_online(DiskNumber(2)));
}

/// One block was lost, and is written anew; then the disk misses another block of the region, which can be
/// had.
#[test]
fn a_disk_has_not_caught_up_because_it_lacks_as_many_blocks_as_were_lost_once() {
    let scene = Scene::mirrored(49);
    let (group, file, _) = back_and_stale(&scene);
    let bad = place_of(&group, &file, DiskNumber(0), 100);
    scene.disks.fail_reads(DiskSlot(0), bad, u64::MAX);
    resync(&group);
    assert_eq!(stale_blocks(&group), 1);
    group.note_caught_up().unwrap();
    assert_eq!(group.membership.catching_up(), [], "nobody has that block");
    scene.disks.clear_faults(DiskSlot(0));
    group.write(&file, 100 * BLOCK, &[5; 4096]).unwrap();
    for _ in 0..3 {
        group.clean_round().unwrap();
    }
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    group.write(&file, 200 * BLOCK, &[6; 4096]).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    assert_eq!(stale_blocks(&group), 1);
    group.note_caught_up().unwrap();
    assert_eq!(group.membership.catching_up(), [DiskNumber(1)]);
}

/// What both disks of a copy lack is lost, and neither is waited for because of it.
#[test]
fn a_block_that_every_copy_lacks_keeps_no_disk_from_counting() {
    let scene = Scene::mirrored(50);
    let (group, file, _) = back_and_stale(&scene);
    let both = [DiskNumber(0), DiskNumber(1)];
    {
        let _change = group.change_inside();
        let apply = &mut |edit| group.catalog.apply(edit);
        group.dirty.missed_by(&file, &[(100, 101)], &both, apply);
    }
    resync(&group);
    assert_eq!(stale_blocks(&group), 1);
    group.note_caught_up().unwrap();
    assert_eq!(group.membership.catching_up(), []);
    // What stands beside it was copied.
    let mut found = [0; 4096];
    group.read(&file, 101 * BLOCK, &mut found).unwrap();
    group.read(&file, 100 * BLOCK, &mut found).unwrap_err();
}

/// A flush of a disk that is away is answered late, as failed: nobody tells that any more.
#[test]
fn a_failure_of_a_disk_that_is_away_keeps_no_other_one_from_catching_up() {
    let scene = Scene::new(51, Redundancy::High, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    let group = scene.open();
    let file = create(&group, 10, HIGH);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    group.take_offline(&[DiskNumber(2)], "it failed").unwrap();
    let late = DeviceError {
        path: "simulated-2".to_owned(),
        operation: "flush",
        offset_bytes: 0,
        length_bytes: 0,
        kind: DeviceErrorKind::Gone,
        errno: None,
    };
    (group.membership.failed_flushes()).note(DiskNumber(2), &late);
    for _ in 0..1000 {
        group.resync_unit(1 << 20).unwrap();
    }
    assert_eq!(stale_blocks(&group), 0);
}

/// Copies are made equal, and the disk that everything is copied from does not take a block of that.
#[test]
fn a_block_that_the_source_of_a_resync_does_not_take_from_its_copy_costs_nothing_either() {
    let scene = Scene::mirrored(52);
    let (group, file, data) = back_and_stale(&scene);
    let (source, back) = (DiskNumber(0), DiskNumber(1));
    let extents = group.map(&file);
    let read_first = |disk| {
        extents
            .iter()
            .find(move |extent| extent.copies[0].unwrap().0 == disk)
    };
    let at = read_first(back).unwrap().offset_bytes / BLOCK;
    let begin = usize::try_from(at * BLOCK).unwrap();
    // Both have it by now, and then the source something else.
    group
        .write(&file, at * BLOCK, &data[begin..begin + 4096])
        .unwrap();
    group.sync().unwrap();
    let place = place_of(&group, &file, source, at);
    scene.disks.overwrite(DiskSlot(0), place.start, &[9; 4096]);
    scene.disks.fail_writes(DiskSlot(0), place, u64::MAX);
    {
        let _held = file.range_lock.exclusive(at, at + 1);
        group.make_equal(&file, at, at + 1).unwrap();
    }
    assert!(
        group.disks.is_online(source),
        "the other one lacks the rest"
    );
    assert!(read(&group, &file, 0, LENGTH) == data);
    scene.disks.clear_faults(DiskSlot(0));
    resync_after_a_pause(&group);
    assert_copies_equal(&scene, &group, &file, "it takes the block now");
}

/// The disk that everything is copied from does not take one block of a write that the other one takes.
#[test]
fn a_block_that_the_source_of_a_resync_does_not_take_costs_nothing_that_it_alone_has() {
    for is_cut in [false, true] {
        let scene = Scene::mirrored(47);
        let (mut group, mut file, mut data) = back_and_stale(&scene);
        let bad = place_of(&group, &file, DiskNumber(0), 100);
        scene.disks.fail_writes(DiskSlot(0), bad, u64::MAX);
        let written = pattern(3, 3 * 4096);
        data[99 * 4096..102 * 4096].copy_from_slice(&written);
        group.write(&file, 99 * BLOCK, &written).unwrap();
        group.sync_file(&file, false).unwrap();
        assert!(read(&group, &file, 0, LENGTH) == data);
        if is_cut {
            drop((group, file));
            scene.crash();
            group = scene.open();
            file = group.file(spindle_base::FileId(10)).unwrap();
            assert!(
                read(&group, &file, 0, LENGTH) == data,
                "after the power cut"
            );
        }
        scene.disks.clear_faults(DiskSlot(0));
        resync_after_a_pause(&group);
        assert_eq!(group.view().offline_disks_count, 0);
        assert!(read(&group, &file, 0, LENGTH) == data);
        assert_copies_equal(&scene, &group, &file, "it takes the block now");
    }
}

#[test]
fn a_block_that_a_resync_cannot_write_costs_no_disk_that_the_group_cannot_do_without() {
    let scene = Scene::new(43, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let mut data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    // Of an extent that disk 2 does not have.
    let extent = (group.map(&file).into_iter())
        .find(|extent| {
            let has = |disk| extent.copies.iter().flatten().any(|(on, _)| on.0 == disk);
            has(1) && !has(2) && extent.initialised_bytes >= 1 << 20
        })
        .unwrap();
    let new = pattern(2, 1 << 20);
    group.write(&file, extent.offset_bytes, &new).unwrap();
    let at = usize::try_from(extent.offset_bytes).unwrap();
    data[at..at + new.len()].copy_from_slice(&new);
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    group.take_offline(&[DiskNumber(2)], "it failed").unwrap();
    let bad = place_of(
        &group,
        &file,
        DiskNumber(1),
        extent.offset_bytes / BLOCK + 77,
    );
    scene.disks.fail_writes(DiskSlot(1), bad, u64::MAX);
    resync(&group);
    assert!(group.is_online(DiskNumber(1)), "disk 2 is away already");
    assert_eq!(stale_blocks(&group), 1);
    assert!(read(&group, &file, 0, LENGTH) == data);
    scene.disks.clear_faults(DiskSlot(1));
    group.return_disks(&[DiskSlot(2)]).unwrap();
    resync(&group);
    assert_eq!(stale_blocks(&group), 0);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// A mirrored file over three disks, all of which was written anew while disk 1 was away; that one is back,
/// and disk 2 is gone.
fn back_and_another_gone(group: &Group) -> (Arc<File>, Vec<u8>) {
    let file = create(group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    let new = pattern(2, LENGTH);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    group.take_offline(&[DiskNumber(2)], "it died").unwrap();
    (file, new)
}

fn three_disks() -> Scene {
    Scene::new(47, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)])
}

/// A run goes over extents with copies on several pairs of disks.
#[test]
fn an_extent_whose_source_is_away_holds_up_none_that_stands_beside_it() {
    let scene = three_disks();
    let group = scene.open();
    let (file, new) = back_and_another_gone(&group);
    resync(&group);
    let mut left_count = 0;
    for extent in group.map(&file) {
        let disks: Vec<u16> = (extent.copies.iter().flatten())
            .map(|(disk, _)| disk.0)
            .collect();
        let first = extent.offset_bytes / BLOCK;
        let end = first + extent.initialised_bytes / BLOCK;
        let is_stale = group.dirty.is_stale(&file, DiskNumber(1), first, end);
        if disks.contains(&1) {
            assert_eq!(is_stale, disks.contains(&2), "{extent:?}");
            left_count += u32::from(is_stale);
        }
    }
    assert!(left_count > 0);
    group.return_disks(&[DiskSlot(2)]).unwrap();
    resync(&group);
    assert_eq!(stale_blocks(&group), 0);
    assert!(read(&group, &file, 0, LENGTH) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// A run's fourth copy, which has an extent before it that cannot be read.
fn is_fourth_copy_to_disk_1(batch: &[Request<'_>]) -> bool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let is_copy = |one: &Request<'_>| one.slot == DiskSlot(1) && matches!(one.work, Work::Write(_));
    batch.iter().any(is_copy) && COUNT.fetch_add(1, Ordering::Relaxed) == 3
}

/// What was found before the disk came back is told after it.
#[test]
fn a_region_that_waited_for_a_disk_which_is_back_does_not_wait_for_ever() {
    let scene = three_disks();
    let disks = OneBatchWaits::of(&scene);
    let group = disks.open(&scene, 3);
    let (file, new) = back_and_another_gone(&group);
    let (has_come, go_on) = disks.wait(true, is_fourth_copy_to_disk_1);
    std::thread::scope(|scope| {
        let resyncing = scope.spawn(|| while group.resync_unit(16 << 20).unwrap().is_some() {});
        has_come.recv().unwrap();
        group.return_disks(&[DiskSlot(2)]).unwrap();
        group.note_caught_up().unwrap();
        go_on.send(()).unwrap();
        resyncing.join().unwrap();
    });
    resync(&group);
    assert_eq!(stale_blocks(&group), 0);
    assert!(read(&group, &file, 0, LENGTH) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// The region waits for a disk that is away, and lacks something else by now.
#[test]
fn what_a_region_that_waits_for_a_disk_lacks_beside_it_is_copied_after_a_while() {
    let scene = three_disks();
    let group = scene.open();
    let (file, _) = back_and_another_gone(&group);
    resync(&group);
    let on_both = (group.map(&file).into_iter())
        .find(|extent| {
            let mut disks = extent.copies.iter().flatten();
            disks.all(|(disk, _)| disk.0 != 2)
        })
        .unwrap();
    let at = on_both.offset_bytes / BLOCK;
    let bad = place_of(&group, &file, DiskNumber(1), at);
    scene.disks.fail_writes(DiskSlot(1), bad, 1);
    let new = pattern(3, 4096);
    group.write(&file, at * BLOCK, &new).unwrap();
    let lacks_it = || group.dirty.is_stale(&file, DiskNumber(1), at, at + 1);
    assert!(lacks_it(), "it serves on");
    resync_after_a_pause(&group);
    assert!(!lacks_it());
    assert!(read(&group, &file, at * BLOCK, 4096) == new);
}
