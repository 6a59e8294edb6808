//! Many files that owe an error after a takeover, by rows that tell of several.

use std::thread;

use spindle_base::{FileId, Redundancy};
use spindle_catalog::Wish;
use spindle_device::DiskSlot;
use spindle_group::{Group, KeptJournal};

use crate::one_copy::tells_once;
use crate::scene::{EXTERNAL, Scene, assert_sound, create};
use crate::takeovers::open_kept;

const DISK: DiskSlot = DiskSlot(0);

/// The daemon is killed, and its disk loses its power for a moment.
fn killed(scene: &Scene, journal: &KeptJournal, group: Group) -> Group {
    std::mem::forget(group);
    scene.disks.vanish(DISK);
    scene.disks.bring_back(DISK);
    open_kept(scene, journal)
}

/// Killed once more, and nothing is lost by that.
fn killed_alone(scene: &Scene, journal: &KeptJournal, group: Group) -> Group {
    std::mem::forget(group);
    open_kept(scene, journal)
}

#[test]
fn a_group_whose_catalog_is_full_is_taken_over_though_every_file_owes_an_error() {
    let scene = Scene::new(25, Redundancy::External, &[(0, 256)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let filler = create(&group, 9, EXTERNAL);
    let mut ids: Vec<u64> = Vec::new();
    for id in 10.. {
        if group.make_room(Wish::More).is_err() {
            break;
        }
        let file = create(&group, id, EXTERNAL);
        if group.write(&file, 0, &[1; 4096]).is_err() {
            break;
        }
        ids.push(id);
    }
    // The catalog cannot grow any more.
    let mut at = 0;
    for length in [16 << 20, 1 << 20, 64 << 10, 4096] {
        while group.write(&filler, at, &vec![2; length]).is_ok() {
            at += length as u64;
        }
    }
    drop(filler);
    let _ = group.make_durable();
    let group = killed(&scene, &journal, group);
    assert_sound(&group);
    for id in [ids[0], ids[ids.len() / 2], ids[ids.len() - 1]] {
        tells_once(&group, &group.file(FileId(id)).unwrap());
    }
}

#[test]
fn a_file_that_told_what_it_owed_together_with_others_owes_it_no_more() {
    let scene = Scene::new(26, Redundancy::External, &[(0, 256)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    for id in 1000..1060 {
        let file = create(&group, id, EXTERNAL);
        group.write(&file, 0, &[1; 4096]).unwrap();
    }
    group.sync().unwrap();
    let mut group = killed(&scene, &journal, group);
    let owes = |group: &Group, id: u64| {
        let file = group.file(FileId(id)).unwrap();
        group.sync_file(&file, false).is_err()
    };
    for id in 1000..1060 {
        match id % 3 {
            0 => tells_once(&group, &group.file(FileId(id)).unwrap()),
            1 => {
                let file = group.file(FileId(id)).unwrap();
                group.remove_file(&group.change(), &file).unwrap();
                // Of that number, and of nothing that was lost.
                create(&group, id, EXTERNAL);
            }
            // Told, and nobody knows whether the answer was heard.
            _ if id % 2 == 0 => assert!(owes(&group, id)),
            _ => {}
        }
    }
    for _ in 0..2 {
        group = killed_alone(&scene, &journal, group);
    }
    for id in 1000..1060 {
        assert_eq!(owes(&group, id), id % 3 == 2, "file {id}");
        assert!(!owes(&group, id), "file {id}");
    }
    group = killed_alone(&scene, &journal, group);
    assert!(!(1000..1060).any(|id| owes(&group, id)));
    // What they owe of another loss is told again; and after it nobody else takes over.
    group = killed(&scene, &journal, group);
    assert!(owes(&group, 1001));
    group.close().unwrap();
    drop(group);
    let group = scene.open();
    group.close().unwrap();
    drop(group);
    let group = open_kept(&scene, &journal);
    assert!(!(1000..1060).any(|id| owes(&group, id)));
}

#[test]
fn a_file_owes_its_error_though_another_left_their_row_within_a_removal_that_a_kill_cut_off() {
    let scene = Scene::new(27, Redundancy::External, &[(0, 256)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    for id in 1000..1003 {
        let file = create(&group, id, EXTERNAL);
        group.write(&file, 0, &[1; 4096]).unwrap();
    }
    group.sync().unwrap();
    let group = killed(&scene, &journal, group);
    let file = |group: &Group, id: u64| group.file(FileId(id)).unwrap();
    // So that no sync below waits for a commit, which would wait for the change.
    group.make_durable().unwrap();
    // Its thread holds the change for good.
    let remove = || {
        let change = group.change();
        group.remove_file(&change, &file(&group, 1000)).unwrap();
        std::mem::forget(change);
    };
    thread::scope(|scope| scope.spawn(remove).join().unwrap());
    let other = file(&group, 1001);
    group.sync_file(&other, false).unwrap_err();
    group.sync_file(&other, false).unwrap();
    drop(other);
    let group = killed_alone(&scene, &journal, group);
    for (id, owes) in [(1000, true), (1001, false), (1002, true)] {
        let file = file(&group, id);
        assert_eq!(group.sync_file(&file, false).is_err(), owes, "file {id}");
    }
}
