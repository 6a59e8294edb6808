//! Copies given back beside outages of the disks whose copies stay.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::DiskSlot;

use crate::Group;
use crate::background::operations::{OperationView, Pass};
use crate::core::file::File;
use crate::scene::{
    HIGH, NORMAL, Scene, assert_copies_equal, create, pattern, read, resync,
    set_back_beside_an_outage,
};

/// Background work until there is none.
fn work(group: &Group) {
    for tick in 0..10_000 {
        if !group.work(tick).unwrap().did_something {
            return;
        }
    }
    panic!("there is always more to do");
}

const LENGTH: usize = 24 << 20;

/// A mirrored file that was written anew while disk 1 was away, and those bytes. Nothing was written
/// lately, the closed row lists what the disk missed, and the disk is back.
fn back_with_a_closed_row(group: &Group) -> (Arc<File>, Vec<u8>) {
    let file = create(group, 10, NORMAL);
    group.write(&file, 0, &pattern(14, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(group);
    group.take_offline(&[DiskNumber(1)], "it failed").unwrap();
    let new = pattern(99, LENGTH);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    resync(group);
    group.return_disks(&[DiskSlot(1)]).unwrap();
    (file, new)
}

/// Background work until each extent has one copy, and no longer.
fn give_second_copies_back(group: &Group, file: &File) {
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    for tick in 0..10_000 {
        if !file.map.read().has_surplus() {
            return;
        }
        group.work(tick).unwrap();
    }
    panic!("surplus copies are never given back");
}

#[test]
fn after_a_crash_copies_that_have_just_caught_up_are_enough_where_the_others_were_given_back() {
    let disks: Vec<(u8, u64)> = (0..5).map(|group| (group, 96)).collect();
    let scene = Scene::new(13, Redundancy::High, &disks);
    let group = scene.open();
    let file = create(&group, 10, HIGH);
    let length = 24 << 20;
    group.write(&file, 0, &pattern(13, length)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let away = [DiskNumber(1), DiskNumber(2)];
    group.take_offline(&away, "they lost their power").unwrap();
    let new = pattern(99, length);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1), DiskSlot(2)]).unwrap();
    while group.resync_unit(1 << 20).unwrap().is_some() {}
    assert!(!group.dirty.is_resyncing(), "both have everything");
    group
        .convert_files(&[(file.id, Redundancy::Normal)])
        .unwrap();
    work(&group);
    group.sync().unwrap();
    let id = file.id;
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert!(read(&group, &file, 0, length) == new);
}

#[test]
fn the_copy_that_stays_is_one_that_is_good_after_a_crash_too() {
    for lacking in [DiskNumber(0), DiskNumber(1)] {
        let scene = Scene::mirrored(16);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(16, 8 << 20)).unwrap();
        group.sync().unwrap();
        let (first, end) = file.map.read().schedule().envelope(0);
        let extent = file.map.read().extent(0).unwrap();
        // Of the same region, which an open row names as a whole.
        let apply = &mut |edit| group.catalog.apply(edit);
        let elsewhere = [(end + 100, end + 101)];
        (group.dirty).missed_by(&file, &elsewhere, &[lacking], apply);
        let kept = group.copies_to_keep(&file, &extent, 1, (first, end));
        assert_eq!(kept.len(), 1);
        assert_ne!(kept[0].disk(), lacking);
    }
}

#[test]
fn a_copy_that_has_just_caught_up_is_durable_before_the_one_it_came_from_is_given_back() {
    let scene = Scene::mirrored(14);
    let group = scene.open();
    let (file, new) = back_with_a_closed_row(&group);
    // No longer: what comes after commits, and a commit flushes.
    give_second_copies_back(&group, &file);
    let (disk, slot) = (DiskNumber(1), DiskSlot(1));
    scene.disks.vanish(slot);
    scene.disks.bring_back(slot);
    group.take_offline(&[disk], "it blinks").unwrap();
    group.return_disks(&[slot]).unwrap();
    resync(&group);
    assert!(read(&group, &file, 0, LENGTH) == new);
}

#[test]
fn after_a_crash_a_copy_that_caught_up_is_good_where_a_closed_row_listed_what_it_missed() {
    let scene = Scene::mirrored(17);
    let group = scene.open();
    let (file, new) = back_with_a_closed_row(&group);
    while group.resync_unit(1 << 20).unwrap().is_some() {}
    assert!(!group.dirty.is_resyncing(), "the disk has everything");
    give_second_copies_back(&group, &file);
    let holders: Vec<DiskNumber> = {
        let map = file.map.read();
        let extents = (0..map.end_index()).filter_map(|index| map.extent(index));
        let copies = extents.flat_map(|extent| extent.present().collect::<Vec<_>>());
        copies.map(|copy| copy.disk()).collect()
    };
    assert!(
        holders.contains(&DiskNumber(1)),
        "it keeps the only copy of some"
    );
    group.sync().unwrap();
    let id = file.id;
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == new);
}

#[test]
fn what_was_flushed_is_not_stale_where_a_conversion_left_the_only_copy_of_it() {
    let scene = Scene::mirrored(15);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(15, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    work(&group);
    group.sync().unwrap();
    for disk in [0, 1] {
        // All is on the disks: nothing is lost.
        group
            .take_offline(&[DiskNumber(disk)], "it blinks")
            .unwrap();
        group.return_disks(&[DiskSlot(disk)]).unwrap();
    }
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
}

/// A group of three disks in as many failure groups, of which disk 0 lacks the first half of a
/// file, and disk 1, which is away, a block of each of its extents.
fn half_here_and_half_away() -> (Scene, Group, Arc<File>) {
    let scene = Scene::new(18, Redundancy::Normal, &[(0, 96), (1, 96), (2, 96)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(0)], "it failed").unwrap();
    group.write(&file, 0, &pattern(2, LENGTH / 2)).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.return_disks(&[DiskSlot(0)]).unwrap();
    let id = file.id;
    drop((group, file));
    // Before anything is copied, and disk 1 does not come back from that.
    scene.crash();
    scene.disks.vanish(DiskSlot(1));
    let group = scene.open();
    let file = group.file(id).unwrap();
    for extent in group.map(&file) {
        let last = extent.offset_bytes + extent.initialised_bytes - 4096;
        group.write(&file, last, &pattern(3, 4096)).unwrap();
    }
    group.sync().unwrap();
    (scene, group, file)
}

/// Blocks of the file that cannot be read; what can be is what was written there last.
fn unreadable_count(group: &Group, file: &File) -> usize {
    let last_of: Vec<usize> = (group.map(file).iter())
        .map(|extent| usize::try_from(extent.offset_bytes + extent.initialised_bytes).unwrap())
        .map(|end| end - 4096)
        .collect();
    let (half, older) = (pattern(2, LENGTH / 2), pattern(1, LENGTH));
    let mut unreadable_count = 0;
    for at in (0..LENGTH).step_by(4096) {
        let newest = if last_of.contains(&at) {
            pattern(3, 4096)
        } else {
            half.get(at..at + 4096)
                .unwrap_or(&older[at..at + 4096])
                .to_vec()
        };
        let mut found = vec![0; 4096];
        match group.read(file, at as u64, &mut found) {
            Err(_) => unreadable_count += 1,
            Ok(()) => assert!(found == newest, "older bytes at {at}"),
        }
    }
    unreadable_count
}

#[test]
fn a_conversion_gives_back_no_copy_that_alone_has_some_of_the_blocks() {
    let (scene, group, file) = half_here_and_half_away();
    let before = unreadable_count(&group, &file);
    assert!(before > 0, "disk 1 alone has some");
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    work(&group);
    assert_eq!(unreadable_count(&group, &file), before);
    let converts = |view: &OperationView| view.pass == Pass::Convert;
    let told = group.operations().into_iter().find(converts).unwrap();
    assert!(told.error.unwrap().contains("1 files keep more copies"));
    scene.disks.bring_back(DiskSlot(1));
    group.return_disks(&[DiskSlot(1)]).unwrap();
    assert_eq!(unreadable_count(&group, &file), 0, "as soon as it is back");
    resync(&group);
    assert!(!file.map.read().has_surplus(), "it goes on by itself");
    let id = file.id;
    drop((group, file));
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert_eq!(unreadable_count(&group, &file), 0);
}

#[test]
fn a_stale_copy_whose_partner_is_away_is_not_read_as_good_after_a_conversion_and_a_crash() {
    let (scene, group, file) = half_here_and_half_away();
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    work(&group);
    group.sync().unwrap();
    let id = file.id;
    drop((group, file));
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert!(unreadable_count(&group, &file) > 0);
}

#[test]
fn a_copy_that_serves_is_not_given_back_for_one_that_is_away() {
    let scene = Scene::new(21, Redundancy::Normal, &[(0, 96), (1, 96), (2, 96)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let mut data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&[DiskNumber(0)], "it failed").unwrap();
    let first_bytes: Vec<u64> = (group.map(&file).iter())
        .map(|extent| extent.offset_bytes)
        .collect();
    for at in &first_bytes {
        group.write(&file, *at, &pattern(2, 4096)).unwrap();
        let at = usize::try_from(*at).unwrap();
        data[at..at + 4096].copy_from_slice(&pattern(2, 4096));
    }
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(0)]).unwrap();
    let id = file.id;
    group.close().unwrap();
    drop((group, file));
    scene.disks.vanish(DiskSlot(1));
    let group = scene.open();
    let file = group.file(id).unwrap();
    let unreadable = |group: &Group, file: &File| {
        (0..LENGTH as u64)
            .step_by(4096)
            .filter(|at| group.read(file, *at, &mut [0; 4096]).is_err())
            .collect::<Vec<_>>()
    };
    let before = unreadable(&group, &file);
    assert!(!before.is_empty() && before.len() <= first_bytes.len());
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    work(&group);
    assert_eq!(unreadable(&group, &file), before, "the others have copies");
    scene.disks.bring_back(DiskSlot(1));
    group.return_disks(&[DiskSlot(1)]).unwrap();
    resync(&group);
    assert!(!file.map.read().has_surplus(), "it goes on by itself");
    assert!(read(&group, &file, 0, LENGTH) == data);
}

#[test]
fn after_a_power_cut_copies_are_equal_that_were_given_back_in_memory_alone() {
    let scene = Scene::mirrored(19);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(19, 8 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    assert_eq!(group.dirty.count(), 0, "no region is doubtful");
    group
        .convert_files(&[(file.id, Redundancy::External)])
        .unwrap();
    for tick in 0..10_000 {
        if !file.is_mirrored() {
            break;
        }
        group.work(tick).unwrap();
    }
    assert!(!file.is_mirrored(), "all second copies are given back");
    group.write(&file, 0, &pattern(99, 8 << 20)).unwrap();
    // On the disks, and no commit has made a map durable since.
    group.flush_written().unwrap();
    let id = file.id;
    drop((group, file));
    scene.crash();
    let group = scene.open();
    let file = group.file(id).unwrap();
    assert_copies_equal(&scene, &group, &file, "after the power cut");
}

/// Found by reading: a disk that was set back and serves came before one that is away.
#[test]
fn a_copy_on_a_disk_that_was_set_back_is_not_kept_for_one_that_is_away() {
    let scene = Scene::new(23, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = set_back_beside_an_outage(&scene, &group);
    let map = file.map.read();
    let mut judged_count = 0;
    map.for_each(0, u32::MAX, |index, extent| {
        let disks: Vec<u16> = extent.present().map(|copy| copy.disk().0).collect();
        if disks.contains(&0) {
            return;
        }
        let kept = group.copies_to_keep(&file, extent, 1, map.schedule().envelope(index));
        assert_eq!(kept[0].disk(), DiskNumber(2), "extent {index}");
        judged_count += 1;
    });
    assert!(judged_count > 0);
}
