//! Moves of extents that have bad places, or that lie where a copy has no good one.

use spindle_base::{BLOCK_SIZE_BYTES, Redundancy};
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot};
use spindle_format::ExtentCopy;

use super::{block_of, last_step, move_of};
use crate::Group;
use crate::background::relocation::Step;
use crate::background::resync::tests::resync_after_a_pause;
use crate::core::file::File;
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

#[test]
fn what_is_bad_on_one_copy_and_good_on_the_other_does_not_keep_an_extent_from_moving() {
    let scene = Scene::new(8, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(8, 4 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (_, extent, moved) = move_of(&file, 1);
    for (inside, copy) in (20..).zip(extent.present()) {
        let bad = block_of(copy, inside);
        scene
            .disks
            .fail_reads(DiskSlot(copy.disk().0), bad, u64::MAX);
    }
    assert_eq!(last_step(&group, &moved), Step::Finished);
    for slot in (0..3).map(DiskSlot) {
        scene.disks.clear_faults(slot);
    }
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the move");
}

#[test]
fn a_place_that_takes_no_copy_costs_no_disk_that_the_group_cannot_do_without() {
    let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(9, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (_, _, moved) = move_of(&file, 1);
    let target = DiskSlot(moved.to.0);
    // What this disk has, the target has, and nobody else.
    let away = moved.from.disk();
    group.take_offline(&[away], "it failed").unwrap();
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let run = relocation.run;
    let place = ExtentCopy::new(run.disk, run.start_block, run.class);
    scene
        .disks
        .fail_writes(target, block_of(place, 33), u64::MAX);
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let step = group.step_relocation(&mut relocation, 256, &mut buffer);
    assert_eq!(step.unwrap(), Step::Abandoned);
    assert!(group.membership.is_online(moved.to), "another one is away");
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_eq!(
        last_step(&group, &moved),
        Step::Finished,
        "at another place"
    );
    assert_sound(&group);
    group.sync().unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
}

#[test]
fn a_place_that_takes_no_copy_and_lies_behind_a_disks_new_end_is_given_back_once() {
    let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(9, 8 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (_, _, moved) = move_of(&file, 1);
    group
        .take_offline(&[moved.from.disk()], "it failed")
        .unwrap();
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let run = relocation.run;
    let error = DeviceError {
        path: String::new(),
        operation: "write",
        offset_bytes: 0,
        length_bytes: 4096,
        kind: DeviceErrorKind::Medium,
        errno: None,
    };
    group.target_failed(&mut relocation, &error).unwrap();
    assert_eq!(group.bad_runs.all(), [run]);
    // Before the mover has given up, the disk is to end before that place.
    let end_bytes = run.start_block * BLOCK_SIZE_BYTES;
    group.space.end_disk(run.disk, end_bytes);
    group.forget_bad_runs(run.disk);
    group.abandon_relocation(&relocation);
    group.restore_end(run.disk);
    assert_sound(&group);
}

#[test]
fn a_copy_that_is_missing_is_made_but_for_a_block_that_cannot_be_read() {
    let scene = Scene::new(10, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(10, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (index, extent, moved) = move_of(&file, 1);
    let source = extent.copies()[0];
    let slot = DiskSlot(source.disk().0);
    scene.disks.fail_reads(slot, block_of(source, 33), u64::MAX);
    group
        .take_offline(&[moved.from.disk()], "it failed")
        .unwrap();
    group.drop_disks(&[moved.from.disk()], true).unwrap();
    resync(&group);
    let given_up = group.membership.status(moved.from.disk());
    assert_eq!(given_up, None, "all that it had others have");
    let at = file.map.read().schedule().file_block(index, 33);
    let readable = |group: &Group, file: &File, block: u64| {
        let mut found = vec![0; 4096];
        let answer = group.read(file, block * BLOCK_SIZE_BYTES, &mut found);
        let from = usize::try_from(block * BLOCK_SIZE_BYTES).unwrap();
        answer
            .is_ok()
            .then(|| assert!(found == data[from..from + 4096], "block {block}"))
    };
    for block in 0..(data.len() as u64 / BLOCK_SIZE_BYTES) {
        let is_bad = readable(&group, &file, block).is_none();
        assert_eq!(is_bad, block == at, "block {block}");
    }
    assert_sound(&group);
    group.sync().unwrap();
    // A power cut forgets nothing of it.
    let id = file.id;
    drop((group, file));
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert_eq!(readable(&group, &file, at), None);
    scene.disks.clear_faults(slot);
    resync_after_a_pause(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert_sound(&group);
}

#[test]
fn a_disk_that_is_dropped_is_emptied_of_a_copy_that_lacks_what_cannot_be_read() {
    let scene = Scene::new(11, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(11, 8 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (index, extent, moved) = move_of(&file, 1);
    let (source, leaving) = (extent.copies()[0], moved.from.disk());
    let slot = DiskSlot(source.disk().0);
    group.take_offline(&[leaving], "it failed").unwrap();
    let new = pattern(12, 8 << 20);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    scene.disks.fail_reads(slot, block_of(source, 33), u64::MAX);
    group.return_disks(&[DiskSlot(leaving.0)]).unwrap();
    resync(&group);
    group.drop_disks(&[leaving], false).unwrap();
    resync(&group);
    assert_eq!(group.membership.status(leaving), None, "it was emptied");
    let at = file.map.read().schedule().file_block(index, 33) * BLOCK_SIZE_BYTES;
    group.read(&file, at, &mut [0; 4096]).unwrap_err();
    scene.disks.clear_faults(slot);
    resync_after_a_pause(&group);
    assert!(read(&group, &file, 0, new.len()) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert_sound(&group);
}
