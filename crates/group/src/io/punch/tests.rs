//! Holes in files some of whose extents are away.

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::DiskSlot;

use crate::core::file::File;
use crate::scene::{FINE, MIB, Scene, assert_copies_equal, create, pattern, read, resync};

/// The disks of each extent of the first set of columns, behind the nine extents of the head.
fn columns(file: &File) -> Vec<Vec<DiskNumber>> {
    let map = file.map.read();
    let mut columns = Vec::new();
    map.for_each(9, 17, |_, extent| {
        columns.push(extent.present().map(|copy| copy.disk()).collect());
    });
    columns
}

#[test]
fn a_hole_that_is_refused_in_one_extent_leaves_the_copies_of_all_as_good_as_they_were() {
    let disks: Vec<(u8, u64)> = (0..6).map(|group| (group, 64)).collect();
    let scene = Scene::new(1, Redundancy::Normal, &disks);
    let group = scene.open();
    let whole = 9 * MIB;
    let data = pattern(1, usize::try_from(whole).unwrap());
    // One extent has both its copies on two disks, and others have one on either.
    let is_wanted = |file: &File| {
        let columns = columns(file);
        let away = (columns.iter()).find(|away| {
            let has_one = |disk| {
                let beside = |other: &&Vec<DiskNumber>| other != away && other.contains(disk);
                columns.iter().any(|other| beside(&other))
            };
            away.iter().all(has_one)
        });
        away.cloned()
    };
    let (file, away) = (10..30)
        .find_map(|id| {
            let file = create(&group, id, FINE);
            group.write(&file, 0, &data).unwrap();
            let away = is_wanted(&file);
            if away.is_none() {
                group.remove_file(&group.change(), &file).unwrap();
                group.sync().unwrap();
            }
            Some((file, away?))
        })
        .expect("disks are drawn");
    group.sync().unwrap();
    resync(&group);
    group.take_offline(&away, "they are gone").unwrap();
    // A chunk of each column.
    group.punch(&file, 2 * MIB, MIB).unwrap_err();
    group.sync_file(&file, false).unwrap_err();
    let slots: Vec<DiskSlot> = away.iter().map(|disk| DiskSlot(disk.0)).collect();
    group.return_disks(&slots).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the return");
    group.punch(&file, 2 * MIB, MIB).unwrap();
}
