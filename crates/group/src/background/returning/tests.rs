//! Disks that were cut off and are back, and files of which they had the only copy.

use std::sync::Arc;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;

use crate::Group;
use crate::core::file::File;
use crate::scene::{EXTERNAL, MIB, Scene, assert_sound, create, pattern, read, resync};

const LENGTH: usize = 8 << 20;
const BLOCK: usize = 4096;

/// A file of one copy, whose disk was cut off and is back, and its bytes.
fn file_of_a_disk_that_was_cut_off(scene: &Scene, group: &Group) -> (Arc<File>, Vec<u8>) {
    let file = create(group, 10, EXTERNAL);
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let extent = group.map(&file).pop().unwrap();
    let (disk, at) = extent.copies[0].unwrap();
    let slot = DiskSlot(disk.0);
    scene.disks.resize(slot, at / MIB * MIB);
    group.heartbeat(20).unwrap();
    scene.disks.resize(slot, 64 * MIB);
    assert_eq!(group.return_disks(&[slot]).unwrap().len(), 1);
    (file, data)
}

/// The blocks that can be read, each of which has what the file is to have there.
fn readable(group: &Group, file: &File, data: &[u8]) -> Vec<usize> {
    let mut found = vec![0; BLOCK];
    let mut is_there = |block: &usize| {
        let at = block * BLOCK;
        let is_read = group.read(file, at as u64, &mut found).is_ok();
        assert!(!is_read || found == data[at..at + BLOCK], "block {block}");
        is_read
    };
    (0..LENGTH / BLOCK)
        .filter(|block| is_there(block))
        .collect()
}

#[test]
fn what_was_lost_behind_a_cut_of_the_only_copy_stays_lost_after_a_power_cut_and_what_is_synced_there_does_not()
 {
    for is_quiet in [false, true] {
        let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
        let scene = Scene::new(4, Redundancy::Normal, &disks);
        let group = scene.open();
        let (file, mut data) = file_of_a_disk_that_was_cut_off(&scene, &group);
        if is_quiet {
            resync(&group);
        }
        let before = readable(&group, &file, &data);
        let lost: Vec<usize> = (0..LENGTH / BLOCK)
            .filter(|block| !before.contains(block))
            .collect();
        assert!(lost.len() > 2 && !before.is_empty());
        drop((group, file));
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert_eq!(
            readable(&group, &file, &data),
            before,
            "zeros are no answer"
        );
        // One of them is written again.
        let at = lost[1] * BLOCK;
        let new = pattern(2, BLOCK);
        data[at..at + BLOCK].copy_from_slice(&new);
        group.write(&file, at as u64, &new).unwrap();
        group.sync_file(&file, false).unwrap();
        drop((group, file));
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        let mut now = before.clone();
        now.push(lost[1]);
        now.sort_unstable();
        assert_eq!(readable(&group, &file, &data), now, "it is synced");
        assert!(read(&group, &file, at as u64, BLOCK) == new);
        assert_sound(&group);
    }
}

#[test]
fn a_disk_that_a_person_took_offline_stays_so_after_a_power_cut() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let (disk, slot) = (DiskNumber(1), DiskSlot(1));
    group.offline_disks(&[disk]).unwrap();
    assert_eq!(group.return_by_itself(disk, slot).unwrap(), None);
    drop(group);
    scene.crash();
    let group = scene.open();
    assert!(group.is_by_hand(disk));
    assert_eq!(group.return_by_itself(disk, slot).unwrap(), None);
    assert_eq!(group.return_disks(&[slot]).unwrap(), [disk]);
}
