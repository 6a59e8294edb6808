//! Looking for space beside others who take what is found.

use crate::background::planner::Move;
use crate::background::relocation::Step;
use crate::error::{GroupError, GroupErrorKind};
use crate::io::allocate::SpaceSearch;
use crate::io::write::Payload;
use crate::scene::{
    EXTERNAL, MIB, NORMAL, Scene, assert_copies_equal, create, pattern, read, resync,
};
use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot};

#[test]
fn a_request_is_refused_only_where_nothing_was_left_to_be_found() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let wanting = create(&group, 9, NORMAL);
    let mut search = SpaceSearch::default();
    let mut go_on = || search.go_on(&group, &wanting, (0, 1), GroupError::no_space());
    for number in 10..14 {
        let freed = create(&group, number, NORMAL);
        group.allocate(&freed, 0, MIB).unwrap();
        group.remove_file(&group.change(), &freed).unwrap();
        // Somebody else takes it before the request has its turn.
        assert!(group.space.has_quarantine());
        go_on().unwrap();
        assert!(!group.space.has_quarantine());
    }
    assert_eq!(go_on().unwrap_err().kind, GroupErrorKind::NoSpace);
}

#[test]
fn what_a_seal_adds_is_counted_by_rows_and_not_by_files() {
    let scene = Scene::mirrored(2);
    let group = scene.open();
    let file = create(&group, 9, NORMAL);
    // Extents 0, 128 and 256 lie in three rows.
    for extent in [0, 128, 256] {
        group.allocate(&file, extent * MIB, 1).unwrap();
    }
    assert_eq!(group.dirty_rows().count, 3);
    group.commit_everything().unwrap();
    assert_eq!(group.dirty_rows().count, 0);
    let other = create(&group, 10, NORMAL);
    group.allocate(&other, 0, 1).unwrap();
    for extent in [0, 256] {
        group.write(&file, extent * MIB, b"a mark moves").unwrap();
    }
    let rows = group.dirty_rows();
    assert_eq!(rows.count, 3);
    assert!((2048..3 * 4096).contains(&rows.bytes), "{rows:?}");
    group.remove_file(&group.change(), &file).unwrap();
    assert_eq!(group.dirty_rows().count, 1);
    let few_bytes = group.dirty_rows().bytes;
    assert!(few_bytes < 100, "one extent takes {few_bytes} bytes");
}

#[test]
fn a_write_to_space_on_a_disk_that_has_gone_is_copied_to_it_when_it_is_back() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let before = group.placement();
    scene.disks.vanish(DiskSlot(1));
    group
        .write(&create(&group, 9, NORMAL), 0, b"noticed")
        .unwrap();
    group.sync().unwrap();
    assert_eq!(group.view().disks[1].mode, "offline");
    let file = create(&group, 10, NORMAL);
    // Somebody has put the disks of a moment ago in the place of those of now.
    group.set_placement(before);
    let data = pattern(10, 65_536);
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    assert_eq!(group.map(&file)[0].copies.iter().flatten().count(), 2);
    scene.disks.bring_back(DiskSlot(1));
    group.return_disks(&[DiskSlot(1)]).unwrap();
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "back again");
    assert_eq!(read(&group, &file, 0, data.len()), data);
}

#[test]
fn a_write_beside_a_conversion_is_known_as_written_lately() {
    for seed in 1..5 {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        let data = pattern(7, 1 << 20);
        group
            .write_range(&file, 512, 768, |core, intent, announced| {
                // The writer has looked, and holds its range. The file becomes mirrored.
                std::thread::scope(|scope| {
                    let convert = || group.convert_files(&[(file.id, Redundancy::Normal)]);
                    scope.spawn(convert).join().unwrap().unwrap();
                });
                let payload = Payload::Data((&data[..]).into());
                core.write_blocks(&file, (512, 768), payload, intent, announced)
            })
            .unwrap();
        let copies = group.map(&file)[0].copies.iter().flatten().count();
        let slot = DiskSlot(1);
        scene.disks.vanish(slot);
        scene.disks.bring_back(slot);
        group.take_offline(&[DiskNumber(1)], "it blinks").unwrap();
        group.return_disks(&[slot]).unwrap();
        resync(&group);
        // One that is missing is made by another pass.
        assert_eq!(copies, 2);
        assert_copies_equal(&scene, &group, &file, "after the blink");
        assert!(read(&group, &file, 2 << 20, data.len()) == data);
    }
}

/// The extent gets its second copy from a disk that has not flushed the write, fails the flush that comes
/// then, and is back.
#[test]
fn what_a_conversion_found_unflushed_is_the_same_on_both_copies_when_its_disk_has_dropped_it() {
    for seed in 1..9 {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(1, 4096)).unwrap();
        group.sync().unwrap();
        let new = pattern(2, 4096);
        group
            .write_range(&file, 0, 1, |core, intent, announced| {
                // The writer has looked, and holds its range. The file becomes mirrored.
                std::thread::scope(|scope| {
                    let convert = || group.convert_files(&[(file.id, Redundancy::Normal)]);
                    scope.spawn(convert).join().unwrap().unwrap();
                });
                let payload = Payload::Data((&new[..]).into());
                core.write_blocks(&file, (0, 1), payload, intent, announced)
            })
            .unwrap();
        let extent = file.map.read().extent(0).unwrap();
        let first = extent.copies()[0].disk();
        let from = spindle_format::ExtentCopy::MISSING;
        let to = DiskNumber(u16::from(first == DiskNumber(0)));
        let moved = Move {
            file: file.id,
            index: 0,
            copy_number: 1,
            from,
            to,
            blocks: extent.copies()[0].blocks(),
        };
        let mut relocation = group.begin_relocation(&moved).unwrap();
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        let step = loop {
            let step = group.step_relocation(&mut relocation, 256, &mut buffer);
            match step.unwrap() {
                Step::Copied(_) => {}
                step => break step,
            }
        };
        assert_eq!(step, Step::Finished);
        let slot = DiskSlot(first.0);
        scene.disks.vanish(slot);
        scene.disks.bring_back(slot);
        group
            .take_offline(&[first], "it dropped what it had")
            .unwrap();
        group.sync_file(&file, true).unwrap();
        group.return_disks(&[slot]).unwrap();
        resync(&group);
        assert_copies_equal(&scene, &group, &file, "after the blink");
        assert!(read(&group, &file, 0, new.len()) == new);
    }
}
