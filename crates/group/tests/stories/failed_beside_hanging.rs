//! A disk fails beside one that hangs: what nobody else has is waited for.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, FaultyOperation};
use spindle_group::{File, Group};

use crate::hanging::{DEADLINE, EVERYWHERE, LENGTH, mode, waits_until_released};
use crate::scene::{
    MIB, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

const HANGS: DiskSlot = DiskSlot(0);
const FAILS: DiskSlot = DiskSlot(1);
/// Labels, group states and opener records.
const STRUCTURES: Range<u64> = 0..MIB;

/// Where the file's first extent lies on the disk.
fn place_on(group: &Group, file: &File, slot: DiskSlot) -> Range<u64> {
    let map = group.map(file);
    let mut copies = map[0].copies.iter().flatten();
    let (_, start) = copies.find(|(disk, _)| disk.0 == slot.0).unwrap();
    *start..start + map[0].length_bytes
}

/// A mirrored group with a file that is synced; disks that hang are given up soon.
fn mirrored(seed: u64) -> (Scene, Group, Arc<File>) {
    let scene = Scene::mirrored(seed);
    scene.disks.set_deadline(DEADLINE);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    (scene, group, file)
}

/// The failed disk is offline, the other one serves and has everything; so has the first one when it
/// is back.
fn assert_one_went(scene: &Scene, group: Group, file: &File, data: &[u8]) {
    assert_eq!(mode(&group, usize::from(FAILS.0)), "offline");
    assert_eq!(mode(&group, usize::from(HANGS.0)), "online");
    assert!(read(&group, file, 0, data.len()) == data);
    scene.disks.clear_faults(FAILS);
    scene.disks.bring_back(FAILS);
    let back = group.return_disks(&[FAILS]).unwrap();
    assert_eq!(back, [DiskNumber(FAILS.0)]);
    resync(&group);
    assert_copies_equal(scene, &group, file, "both are there");
    assert!(read(&group, file, 0, data.len()) == data);
    assert_sound(&group);
    group.close().unwrap();
}

#[test]
fn a_disk_that_hangs_is_waited_for_where_the_other_one_vanishes_in_the_same_batch() {
    for (seed, operation) in [(1, FaultyOperation::Write), (2, FaultyOperation::Flush)] {
        let (scene, group, file) = mirrored(seed);
        scene.disks.hang(HANGS, operation, EVERYWHERE);
        scene.disks.vanish(FAILS);
        let newer = pattern(2, LENGTH);
        assert!(waits_until_released(&scene, &[HANGS.0], || {
            group.write(&file, 0, &newer).unwrap();
            group.sync_file(&file, true).unwrap();
        }));
        assert_one_went(&scene, group, &file, &newer);
    }
}

/// The state without the failed disk is what the other one hangs at.
#[test]
fn a_disk_that_hangs_at_the_state_without_the_other_one_is_waited_for() {
    let (scene, group, file) = mirrored(3);
    (scene.disks).hang(HANGS, FaultyOperation::Write, STRUCTURES);
    scene.disks.vanish(FAILS);
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        group.write(&file, 0, &newer).unwrap();
        group.sync_file(&file, true).unwrap();
    }));
    assert_one_went(&scene, group, &file, &newer);
}

#[test]
fn a_disk_that_hangs_is_waited_for_where_the_other_one_has_a_bad_place_for_the_same_blocks() {
    let (scene, group, file) = mirrored(4);
    let good = place_on(&group, &file, HANGS);
    let bad = place_on(&group, &file, FAILS);
    (scene.disks).hang(HANGS, FaultyOperation::Write, good);
    scene.disks.fail_writes(FAILS, bad, 1);
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        group.write(&file, 0, &newer).unwrap();
        group.sync_file(&file, true).unwrap();
    }));
    assert_one_went(&scene, group, &file, &newer);
}

#[test]
fn a_disk_that_hangs_is_waited_for_by_everybody_while_somebody_cannot_take_a_vanished_one_offline()
{
    let (scene, group, file) = mirrored(5);
    for operation in [FaultyOperation::Write, FaultyOperation::Read] {
        scene.disks.hang(HANGS, operation, EVERYWHERE);
    }
    let newer = pattern(2, LENGTH);
    assert!(waits_until_released(&scene, &[HANGS.0], || {
        thread::scope(|scope| {
            // Asks the disk that hangs before the other one is gone, and waits beside nobody's failure.
            scope.spawn(|| {
                let other = create(&group, 11, NORMAL);
                group.write(&other, 0, &pattern(3, 4096)).unwrap();
                assert!(read(&group, &other, 0, 4096) == pattern(3, 4096));
            });
            thread::sleep(DEADLINE / 2);
            scene.disks.vanish(FAILS);
            group.write(&file, 0, &newer).unwrap();
        });
    }));
    group.sync().unwrap();
    assert_one_went(&scene, group, &file, &newer);
}
