//! Disks leave although something is in the way: no room for the catalog, a target that fails, a
//! label that cannot be written, the leaving disk itself.

use std::ops::Range;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::{EventKind, Group, GroupErrorKind, LabelFound, OperationState, Power, look};

use crate::scene::{
    MIB, NORMAL, Scene, assert_sound, copies_on, create, numbers, pattern, read, remove, resync,
    set_back_beside_an_outage, spare, status, write_file,
};

const LABELS: [Range<u64>; 2] = [0..4096, 512 << 10..516 << 10];

/// Does all the work that there is, and the lazy rounds that come with it.
fn work(group: &Group, from_ms: u64) {
    let mut now_ms = from_ms;
    for _ in 0..3 {
        while group.work(now_ms).unwrap().did_something {
            now_ms += 10;
        }
        now_ms += 6000;
        while group.step(now_ms).unwrap() {}
    }
}

fn holders(group: &Group) -> Vec<u16> {
    (group.view().disks.iter())
        .filter(|disk| disk.catalog_replica && disk.mode == "online")
        .map(|disk| disk.number.0)
        .collect()
}

fn events(group: &Group) -> Vec<(EventKind, String)> {
    (group.take_events().into_iter())
        .map(|event| (event.kind, event.message))
        .collect()
}

fn labelled_bytes(scene: &Scene, slot: u16) -> u64 {
    let looks = look(&*scene.disks, &[DiskSlot(slot)]);
    match &looks[0].label {
        LabelFound::Good { label, .. } => label.size_bytes,
        other => panic!("no good label: {other:?}"),
    }
}

/// Writes files of a mebibyte until there is no room; the id of the first that failed.
fn fill(group: &Group, from: u64) -> u64 {
    let data = pattern(from, usize::try_from(MIB).unwrap());
    for id in from.. {
        let file = create(group, id, NORMAL);
        if group.write(&file, 0, &data).is_err() {
            group.sync().unwrap();
            return id;
        }
    }
    unreachable!("disks are full one day")
}

#[test]
fn a_replica_of_the_catalog_goes_to_the_next_disk_where_the_best_is_full() {
    // Disks so small that nothing is kept free for the catalog.
    let scene = Scene::new(
        41,
        Redundancy::Normal,
        &[(0, 24), (1, 24), (2, 24), (3, 24)],
    );
    let group = scene.open();
    assert_eq!(holders(&group), [0, 1, 2]);
    group.set_power(Power::PAUSED).unwrap();
    let end = fill(&group, 1);
    for id in (1..=end).filter(|id| *id == end || copies_on(&group, *id, 2) > 0) {
        remove(&group, id);
    }
    group.drop_disks(&[DiskNumber(2)], false).unwrap();
    fill(&group, 1000);
    // Disk 3 is the best for the replica, in a failure group that has none, and full.
    group.add_disks(&[spare(&scene.disks, 0, 24)]).unwrap();
    assert_eq!(group.forget_empty_disks().unwrap(), [DiskNumber(2)]);
    assert_eq!(holders(&group), [0, 1, 4]);
    assert_sound(&group);
}

#[test]
fn a_disk_that_no_other_can_take_the_catalog_from_stays_and_operations_say_why() {
    let scene = Scene::new(42, Redundancy::Normal, &[(0, 64), (1, 64)]);
    let group = scene.open();
    group.set_power(Power::MAX).unwrap();
    write_file(&group, 1, 20);
    write_file(&group, 2, 1);
    // It takes the data of disk 1, and the catalog does not fit any more.
    group.add_disks(&[spare(&scene.disks, 1, 23)]).unwrap();
    let end_block = group.end_block(DiskNumber(1));
    group.drop_disks(&[DiskNumber(1)], false).unwrap();
    work(&group, 0);
    assert_eq!(status(&group, 1).as_deref(), Some("dropping"));
    // The catalog that grows finds room there as elsewhere.
    assert_eq!(group.end_block(DiskNumber(1)), end_block);
    let operations = group.operations();
    assert_eq!(operations.len(), 1, "{operations:?}");
    assert_eq!(operations[0].state, OperationState::Errors);
    let why = operations[0].error.clone().unwrap();
    assert!(why.contains("replica of the catalog"), "{why}");
    let told = events(&group);
    let stopped = (told.iter()).filter(|(kind, _)| *kind == EventKind::RebalanceStopped);
    assert_eq!(stopped.count(), 1, "{told:?}");
    assert_sound(&group);
    remove(&group, 1);
    work(&group, 100_000);
    assert_eq!(numbers(&group), [0, 2]);
    assert_eq!(holders(&group), [0, 2]);
    assert!(group.operations().is_empty(), "{:?}", group.operations());
    assert_sound(&group);
}

#[test]
fn a_target_that_fails_under_the_catalog_goes_offline_and_the_work_goes_on() {
    let sizes = [(0, 64), (1, 64), (2, 64), (3, 64), (4, 64)];
    let scene = Scene::new(43, Redundancy::Normal, &sizes);
    let group = scene.open();
    (scene.disks).fail_writes(DiskSlot(3), MIB..64 * MIB, u64::MAX);
    group.drop_disks(&[DiskNumber(1)], false).unwrap();
    work(&group, 0);
    assert_eq!(numbers(&group), [0, 2, 3, 4]);
    assert_eq!(holders(&group), [0, 2, 4]);
    let told = events(&group);
    let went = |(kind, message): &(EventKind, String)| {
        *kind == EventKind::DiskOffline && message.contains("disk 3")
    };
    assert!(told.iter().any(went), "{told:?}");
    assert_sound(&group);
}

#[test]
fn a_replica_of_the_catalog_goes_back_to_a_failure_group_that_was_away() {
    let scene = Scene::new(
        44,
        Redundancy::Normal,
        &[(0, 64), (1, 64), (0, 64), (0, 64)],
    );
    let group = scene.open();
    assert_eq!(holders(&group), [0, 1, 2]);
    group.offline_disks(&[DiskNumber(1)]).unwrap();
    work(&group, 0);
    assert_eq!(holders(&group), [0, 2, 3]);
    group.return_disks(&[DiskSlot(1)]).unwrap();
    work(&group, 100_000);
    assert!(holders(&group).contains(&1), "{:?}", holders(&group));
    assert_eq!(holders(&group).len(), 3);
    // The loss of the one failure group, all at once, does not cost the catalog.
    let data = write_file(&group, 1, 2);
    drop(group);
    scene.crash();
    for slot in [0, 2, 3] {
        scene.disks.vanish(DiskSlot(slot));
    }
    let group = scene.open_by_force();
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
}

#[test]
fn a_smaller_size_whose_label_cannot_be_written_holds_and_the_label_follows() {
    let scene = Scene::new(45, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, 4);
    work(&group, 0);
    for place in LABELS {
        scene.disks.fail_writes(DiskSlot(1), place, 2);
    }
    events(&group);
    group.resize_disk(DiskNumber(1), 40 * MIB).unwrap();
    work(&group, 100_000);
    // Whoever asks for 40 MiB has 39 AUs of a MiB, and the label behind them.
    assert_eq!(labelled_bytes(&scene, 1), 39 * MIB + 4096);
    let told = events(&group);
    let count = |wanted| told.iter().filter(|(kind, _)| *kind == wanted).count();
    assert_eq!(count(EventKind::LabelLate), 1, "{told:?}");
    assert_eq!(count(EventKind::LabelWritten), 1, "{told:?}");
    // Where it cannot be written before the end, the group opens all the same.
    for place in LABELS {
        scene.disks.fail_writes(DiskSlot(1), place, u64::MAX);
    }
    group.resize_disk(DiskNumber(1), 32 * MIB).unwrap();
    drop(group);
    scene.crash();
    for place in LABELS {
        scene.disks.fail_writes(DiskSlot(1), place, u64::MAX);
    }
    let group = scene.open();
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
}

#[test]
fn a_name_whose_label_cannot_be_written_is_refused_and_stays_what_it_was() {
    let scene = Scene::mirrored(46);
    let group = scene.open();
    scene.disks.fail_writes(DiskSlot(1), LABELS[1].clone(), 1);
    let name = spindle_base::DiskName::new("other").unwrap();
    group.rename_disk(DiskNumber(1), &name).unwrap_err();
    work(&group, 0);
    group.close().unwrap();
    assert_eq!(scene.open().view().disks[1].name.as_str(), "D1");
}

#[test]
fn a_disk_that_fails_while_it_is_dropped_is_dropped_all_the_same() {
    let scene = Scene::new(
        47,
        Redundancy::Normal,
        &[(0, 64), (1, 64), (2, 64), (3, 64)],
    );
    let group = scene.open();
    let data = write_file(&group, 1, 20);
    group.heartbeat(1000).unwrap();
    group.drop_disks(&[DiskNumber(1)], false).unwrap();
    for now_ms in 0..10 {
        group.work(now_ms).unwrap();
    }
    scene.disks.vanish(DiskSlot(1));
    let file = group.file(FileId(1)).unwrap();
    group.write(&file, 0, &data).unwrap();
    work(&group, 0);
    let view = group.view();
    assert_eq!(
        (&*view.disks[1].mode, &*view.disks[1].state),
        ("offline", "dropping")
    );
    // A path that blinks would be back by now. What the disk held is made from the other copies.
    group.heartbeat(1100).unwrap();
    work(&group, 100_000);
    group.heartbeat(1200).unwrap();
    work(&group, 200_000);
    assert_eq!(numbers(&group), [0, 2, 3]);
    let whole = |extent: &spindle_group::ExtentView| !extent.copies.contains(&None);
    assert!(group.map(&file).iter().all(whole));
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
}

#[test]
fn a_disk_that_comes_back_while_it_is_dropped_goes_on_leaving_unless_it_is_kept() {
    for is_kept in [false, true] {
        let scene = Scene::new(
            48,
            Redundancy::Normal,
            &[(0, 64), (1, 64), (2, 64), (3, 64)],
        );
        let group = scene.open();
        let data = write_file(&group, 1, 20);
        group.drop_disks(&[DiskNumber(1)], false).unwrap();
        scene.disks.vanish(DiskSlot(1));
        let file = group.file(FileId(1)).unwrap();
        group.write(&file, 0, &data).unwrap();
        drop(group);
        scene.crash();
        scene.disks.bring_back(DiskSlot(1));
        let group = scene.open();
        assert_eq!(status(&group, 1).as_deref(), Some("dropping"));
        if is_kept {
            group.undrop_disks(&[DiskNumber(1)]).unwrap();
        }
        group.return_disks(&[DiskSlot(1)]).unwrap();
        work(&group, 0);
        assert_eq!(numbers(&group).contains(&1), is_kept);
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_sound(&group);
    }
}

#[test]
fn what_had_no_place_but_a_leaving_disk_is_told_and_gets_its_second_copies_where_that_is_kept() {
    let scene = Scene::new(
        49,
        Redundancy::Normal,
        &[(0, 64), (0, 64), (1, 64), (1, 64)],
    );
    let group = scene.open();
    write_file(&group, 1, 6);
    group.drop_disks(&[DiskNumber(2)], false).unwrap();
    group.offline_disks(&[DiskNumber(3)]).unwrap();
    let data = write_file(&group, 2, 6);
    let file = group.file(FileId(2)).unwrap();
    let lacks = |extent: &spindle_group::ExtentView| extent.copies.contains(&None);
    assert!(group.map(&file).iter().all(lacks));
    work(&group, 0);
    assert!(group.map(&file).iter().all(lacks));
    let told = events(&group);
    let is_told = |(kind, message): &(EventKind, String)| {
        *kind == EventKind::RestoreStopped && message.contains("still missing")
    };
    assert!(told.iter().any(is_told), "{told:?}");
    group.undrop_disks(&[DiskNumber(2)]).unwrap();
    work(&group, 100_000);
    assert!(!group.map(&file).iter().any(lacks));
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
}

#[test]
fn a_disk_that_fails_in_the_moment_it_is_forgotten_leaves_nothing_to_give_back() {
    let sizes = [(0, 69), (1, 72), (2, 35), (3, 50)];
    let mut forgotten_count = 0;
    for (vanishing, failing) in [(1, 2), (2, 1)] {
        for requests in 1..24 {
            let scene = Scene::new(47, Redundancy::High, &sizes);
            let group = scene.open();
            group.drop_disks(&[DiskNumber(1)], false).unwrap();
            create(&group, 2, NORMAL);
            scene.disks.vanish_after(DiskSlot(vanishing), requests);
            scene.disks.fail_writes(DiskSlot(failing), 0..32 * MIB, 2);
            work(&group, 0);
            forgotten_count += u64::from(!numbers(&group).contains(&1));
            assert_sound(&group);
        }
    }
    assert!(
        forgotten_count > 0,
        "in none of them the disk was forgotten"
    );
}

/// Found by reading: the disk that serves counted as one that has a good copy.
#[test]
fn the_last_good_copy_is_not_given_up_where_the_other_one_was_set_back() {
    let scene = Scene::new(51, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = set_back_beside_an_outage(&scene, &group);
    let [set_back, away] = [1, 2].map(DiskNumber);
    let refused = group.drop_disks(&[away], true).unwrap_err();
    assert_eq!(refused.kind, GroupErrorKind::NotEnough, "{refused}");
    assert!(refused.message.contains("last good copy"), "{refused}");
    assert!(
        refused.message.contains("mount the group anew"),
        "{refused}"
    );
    // What it has is there when it is back, and the other one has gone.
    group.return_disks(&[DiskSlot(away.0)]).unwrap();
    resync(&group);
    group.heartbeat(2_007).unwrap();
    group.heartbeat(2_009).unwrap();
    let view = group.view();
    let view = view
        .disks
        .iter()
        .find(|disk| disk.number == set_back)
        .unwrap();
    assert_ne!(view.mode, "online");
    assert!(read(&group, &file, 0, 8 << 20) == pattern(2, 8 << 20));
}
