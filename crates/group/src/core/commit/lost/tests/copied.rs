//! Moves and resyncs beside a disk that loses what no flush has covered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, Work};
use spindle_format::ExtentCopy;
use spindle_sync::level::Unshown;

use crate::Group;
use crate::background::planner::Move;
use crate::background::relocation::{Relocation, Step};
use crate::core::dirty::Returning;
use crate::core::file::File;
use crate::scene::{
    HIGH, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

const MIB: usize = 1 << 20;

fn step(group: &Group, relocation: &mut Relocation) -> Step {
    let mut buffer = AlignedBuffer::zeroed(MIB);
    group.step_relocation(relocation, 256, &mut buffer).unwrap()
}

/// A file of which no disk has anything that no flush has covered, and a move of the copy 1 of its
/// last extent to the disk that has none.
fn file_and_move(group: &Group, seed: u64) -> (Arc<File>, Move, [ExtentCopy; 2]) {
    let file = create(group, 10, NORMAL);
    group.write(&file, 0, &pattern(seed, 4 * MIB)).unwrap();
    group.sync().unwrap();
    resync(group);
    let map = file.map.read();
    let index = map.end_index() - 1;
    let extent = map.extent(index).unwrap();
    drop(map);
    let copies: [ExtentCopy; 2] = extent.copies().try_into().unwrap();
    let used = copies.map(ExtentCopy::disk);
    let to = (0..3).map(DiskNumber).find(|disk| !used.contains(disk));
    let moved = Move {
        file: file.id,
        index,
        copy_number: 1,
        from: copies[1],
        to: to.unwrap(),
        blocks: copies[1].blocks(),
    };
    (file, moved, copies)
}

/// The disk loses what no flush has covered, and nobody knows.
fn drop_unflushed(scene: &Scene, disk: DiskNumber) {
    let slot = DiskSlot(disk.0);
    scene.disks.drop_at_flushes(slot, 1);
    let mut batch = [Request::new(slot, 0, Work::Flush)];
    scene.disks.run(&mut batch);
}

/// As after a failed flush of a disk that nobody can do without: it loses what no flush has covered,
/// and serves on. Until that is noted readers look, as long as what is given lives.
fn begin_anew<'a>(scene: &Scene, group: &'a Group, disk: DiskNumber) -> Returning<'a> {
    drop_unflushed(scene, disk);
    fails_a_flush(group, disk)
}

fn fails_a_flush(group: &Group, disk: DiskNumber) -> Returning<'_> {
    let life = group.disks.get(disk).unwrap().life();
    let returning = group.dirty.begin_resync();
    group.membership.begin_anew(life);
    returning
}

#[test]
fn a_move_that_waits_for_the_map_while_it_is_noted_what_its_target_lost_is_given_up() {
    let scene = Scene::new(21, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let (file, moved, _) = file_and_move(&group, 21);
    let mut relocation = group.begin_relocation(&moved).unwrap();
    for _ in 0..moved.blocks.div_ceil(256) {
        assert!(matches!(step(&group, &mut relocation), Step::Copied(_)));
    }
    let last = thread::scope(|scope| {
        // Whoever wants to change a map waits.
        let alone = group.change.write(Unshown);
        let (group, relocation) = (&group, &mut relocation);
        let mover = scope.spawn(move || step(group, relocation));
        thread::sleep(Duration::from_millis(300));
        let _returning = begin_anew(&scene, group, moved.to);
        let life = group.disks.get(moved.to).unwrap().life();
        group.miss_what_others_have(life, &group.others_beside(&[life]));
        group
            .disks
            .get(moved.to)
            .unwrap()
            .set_noted(life.incarnation);
        drop(alone);
        mover.join().unwrap()
    });
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the move");
    assert_eq!(last, Step::Abandoned);
    assert_sound(&group);
}

#[test]
fn a_move_that_begins_before_it_is_noted_what_its_source_lost_does_not_copy_that() {
    let scene = Scene::new(22, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let (file, moved, [source, other]) = file_and_move(&group, 22);
    let first = file.map.read().schedule().first_block(moved.index);
    let offset_bytes = first * spindle_base::BLOCK_SIZE_BYTES;
    let new = pattern(99, 64 << 10);
    group.write(&file, offset_bytes, &new).unwrap();
    // Read last.
    let other = group.disks.get(other.disk()).unwrap();
    other.is_slow.store(true, Ordering::Relaxed);
    let returning = begin_anew(&scene, &group, source.disk());
    let mut relocation = group.begin_relocation(&moved).unwrap();
    while matches!(step(&group, &mut relocation), Step::Copied(_)) {}
    group.notice_offline();
    drop(returning);
    resync(&group);
    assert!(read(&group, &file, offset_bytes, new.len()) == new);
    assert_copies_equal(&scene, &group, &file, "after the move");
    assert_sound(&group);
}

struct Copied {
    file: Arc<File>,
    data: Vec<u8>,
    source: DiskNumber,
    target: DiskNumber,
}

/// A mirrored file of which an extent was written while one disk of it was away, and synced or not.
/// That one has come back, and has what it missed; the flush that follows a resync was not there yet.
fn copied_to_the_target(group: &Group, is_synced: bool) -> Copied {
    let file = create(group, 10, NORMAL);
    let mut data = pattern(1, 4 * MIB);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(group);
    let extent = group.map(&file).pop().unwrap();
    let [source, target] = [0, 1].map(|copy| extent.copies[copy].unwrap().0);
    group.take_offline(&[target], "it failed").unwrap();
    let new = pattern(99, 64 << 10);
    group.write(&file, extent.offset_bytes, &new).unwrap();
    let at = usize::try_from(extent.offset_bytes).unwrap();
    data[at..at + new.len()].copy_from_slice(&new);
    if is_synced {
        group.sync().unwrap();
        // Until nothing was written lately.
        resync(group);
    }
    group.return_disks(&[DiskSlot(target.0)]).unwrap();
    while !(group.dirty.stale_regions(&|disk| disk == target)).is_empty() {
        group.resync_unit(1 << 20).unwrap();
    }
    let is_online = |disk| group.disks.is_online(disk);
    let nothing_is_stale = || file.may_be_stale.store(false, Ordering::Release);
    assert!(group.dirty.end_resync(&is_online, &nothing_is_stale));
    Copied {
        file,
        data,
        source,
        target,
    }
}

#[test]
fn what_was_only_copied_to_a_disk_that_drops_it_is_read_from_its_source_when_that_is_back() {
    let scene = Scene::mirrored(23);
    let group = scene.open();
    let Copied {
        file,
        data,
        source,
        target,
    } = copied_to_the_target(&group, true);
    drop_unflushed(&scene, target);
    group.take_offline(&[source], "it is gone").unwrap();
    let returning = fails_a_flush(&group, target);
    group.notice_offline();
    drop(returning);
    let mut found = vec![0; data.len()];
    for _ in 0..4 {
        let answer = group.read(&file, 0, &mut found);
        assert!(answer.is_err() || found == data, "old bytes are no answer");
    }
    // Nothing is lost.
    group.sync_file(&file, false).unwrap();
    group.return_disks(&[DiskSlot(source.0)]).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the return");
    assert_sound(&group);
}

const FIVE: [(u8, u64); 5] = [(0, 64), (1, 64), (2, 64), (3, 64), (4, 64)];

#[test]
fn what_a_source_lost_and_its_copy_too_is_told() {
    for serves in [true, false] {
        let scene = Scene::new(24, Redundancy::Normal, &FIVE);
        let group = scene.open();
        let Copied {
            file,
            source,
            target,
            ..
        } = copied_to_the_target(&group, false);
        for disk in [source, target] {
            drop_unflushed(&scene, disk);
        }
        group.take_offline(&[source], "it is gone").unwrap();
        if serves {
            let returning = fails_a_flush(&group, target);
            group.notice_offline();
            drop(returning);
        } else {
            group.take_offline(&[target], "it is gone").unwrap();
        }
        assert!(file.owed.lock().untold().is_some(), "a kill tells it too");
        group.sync_file(&file, false).unwrap_err();
        group.sync_file(&file, false).unwrap();
    }
}

#[test]
fn what_was_copied_and_flushed_is_read_though_the_source_is_gone() {
    for serves in [true, false] {
        let scene = Scene::mirrored(25);
        let group = scene.open();
        let Copied {
            file,
            data,
            source,
            target,
        } = copied_to_the_target(&group, true);
        group.make_durable().unwrap();
        group.take_offline(&[source], "it is gone").unwrap();
        if serves {
            let returning = begin_anew(&scene, &group, target);
            group.notice_offline();
            drop(returning);
        }
        assert!(read(&group, &file, 0, data.len()) == data);
        group.sync_file(&file, false).unwrap();
        group.return_disks(&[DiskSlot(source.0)]).unwrap();
        resync(&group);
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_copies_equal(&scene, &group, &file, "after the return");
    }
}

#[test]
fn a_copy_that_was_moved_to_a_disk_that_drops_it_leaves_the_other_one_good() {
    let scene = Scene::new(26, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let (file, moved, [other, _]) = file_and_move(&group, 26);
    let data = pattern(26, 4 * MIB);
    let mut relocation = group.begin_relocation(&moved).unwrap();
    while matches!(step(&group, &mut relocation), Step::Copied(_)) {}
    let extent = file.map.read().extent(moved.index).unwrap();
    assert!(extent.present().any(|copy| copy.disk() == moved.to));
    drop_unflushed(&scene, moved.to);
    group.take_offline(&[other.disk()], "it is gone").unwrap();
    let returning = fails_a_flush(&group, moved.to);
    group.notice_offline();
    drop(returning);
    group.return_disks(&[DiskSlot(other.disk().0)]).unwrap();
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the return");
    assert_sound(&group);
}

#[test]
fn what_was_flushed_beyond_the_durable_mark_is_read_when_its_disk_is_back() {
    let scene = Scene::new(27, Redundancy::Normal, &FIVE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(27, 8 * MIB + MIB / 2 + (64 << 10));
    // The extents there are of a MiB.
    let end = 8 * MIB + MIB / 2;
    group.write(&file, 0, &data[..end]).unwrap();
    group.sync().unwrap();
    resync(&group);
    let extent = group.map(&file).pop().unwrap();
    let [first, second] = [0, 1].map(|copy| extent.copies[copy].unwrap().0);
    group.take_offline(&[second], "it is away").unwrap();
    group.write(&file, end as u64, &data[end..]).unwrap();
    // As a sync does, before its commit.
    let targets = file.written.lock().clone();
    group.cover(&targets).unwrap();
    (file.written.lock()).retain(|target| !targets.contains(target));
    group.take_offline(&[first], "it goes too").unwrap();
    group.sync_file(&file, false).unwrap();
    let slots = [first, second].map(|disk| DiskSlot(disk.0));
    group.return_disks(&slots).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the return");
    assert_sound(&group);
}

#[test]
fn a_resync_does_not_copy_what_its_source_lost_before_that_is_noted() {
    let scene = Scene::new(28, Redundancy::High, &FIVE);
    let group = scene.open();
    let file = create(&group, 10, HIGH);
    let data = pattern(28, 4 * MIB);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let extent = group.map(&file).pop().unwrap();
    let [source, target, other] = [0, 1, 2].map(|copy| extent.copies[copy].unwrap().0);
    group.take_offline(&[target], "it is away").unwrap();
    let new = pattern(99, 64 << 10);
    group.write(&file, extent.offset_bytes, &new).unwrap();
    group.return_disks(&[DiskSlot(target.0)]).unwrap();
    // Read last.
    let other = group.disks.get(other).unwrap();
    other.is_slow.store(true, Ordering::Relaxed);
    let returning = begin_anew(&scene, &group, source);
    while group.resync_unit(1 << 20).unwrap().is_some() {}
    group.notice_offline();
    drop(returning);
    resync(&group);
    assert!(read(&group, &file, extent.offset_bytes, new.len()) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert_sound(&group);
}
