//! The disks of an open group change: what each change does, what it refuses, and what a crash
//! at any request of it leaves.

use std::sync::Arc;

use spindle_base::{DiskName, DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_format::LabelStatus;
use spindle_group::{DiskChanges, Group, GroupError, GroupErrorKind, LabelFound, NewDisk, look};

use crate::scene::{
    HIGH, MIB, NORMAL, Scene, assert_sound, copies_on, create, named, numbers, pattern, read,
    remove, spare, status, write_file,
};

/// The label behind the last AU.
const LABEL_BYTES: u64 = 4096;

fn label_status(scene: &Scene, slot: u16) -> Option<LabelStatus> {
    let looks = look(&*scene.disks, &[DiskSlot(slot)]);
    match &looks[0].label {
        LabelFound::Good { label, .. } => Some(label.status),
        _ => None,
    }
}

fn refused(answer: Result<impl Sized, GroupError>, kind: GroupErrorKind, word: &str) {
    let Err(error) = answer else {
        panic!("it was not refused: {word}");
    };
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(word), "{error}");
}

#[test]
fn an_added_disk_takes_new_extents_at_once_and_after_a_reopening() {
    let scene = Scene::mirrored(1);
    let new = spare(&scene.disks, 2, 64);
    let group = scene.open();
    let before = write_file(&group, 1, 8);
    let epoch = group.view().epoch;
    assert_eq!(group.add_disks(&[new]).unwrap(), [DiskNumber(2)]);
    assert_eq!(group.view().epoch, epoch + 1);
    let after = write_file(&group, 2, 12);
    assert!(copies_on(&group, 2, 2) >= 6);
    assert_sound(&group);
    group.close().unwrap();
    let group = scene.open();
    for (id, data) in [(1, before), (2, after)] {
        let file = group.file(FileId(id)).unwrap();
        assert_eq!(read(&group, &file, 0, data.len()), data);
    }
    assert_eq!(numbers(&group), [0, 1, 2]);
    assert_eq!(status(&group, 2).unwrap(), "normal");
    // The third failure group votes and holds the catalog now.
    group.step(0).unwrap();
    group.step(10_000).unwrap();
    let view = group.view();
    assert!(view.disks[2].voter && view.disks[2].catalog_replica);
    assert_sound(&group);
}

#[test]
fn a_disk_being_dropped_gets_nothing_new_and_is_forgotten_when_it_is_empty() {
    let scene = Scene::new(2, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    write_file(&group, 1, 9);
    assert!(copies_on(&group, 1, 0) > 0);
    group.drop_disks(&[DiskNumber(0)], false).unwrap();
    write_file(&group, 2, 9);
    assert_eq!(copies_on(&group, 2, 0), 0);
    assert_eq!(group.forget_empty_disks().unwrap(), []);
    assert_eq!(status(&group, 0).unwrap(), "dropping");
    remove(&group, 1);
    assert_eq!(group.forget_empty_disks().unwrap(), [DiskNumber(0)]);
    assert_eq!(numbers(&group), [1, 2]);
    assert_eq!(label_status(&scene, 0), Some(LabelStatus::Former));
    assert_sound(&group);
    // Its number is not given again.
    let new = spare(&scene.disks, 0, 64);
    assert_eq!(group.add_disks(&[new]).unwrap(), [DiskNumber(3)]);
    group.close().unwrap();
    scene.disks.vanish(DiskSlot(0));
    let group = scene.open();
    assert_eq!(numbers(&group), [1, 2, 3]);
    let file = group.file(FileId(2)).unwrap();
    assert_eq!(read(&group, &file, 0, 4096), pattern(2, 4096));
    assert_sound(&group);
}

#[test]
fn the_catalog_and_the_vote_leave_a_dropped_disk_before_the_disk_does() {
    let scene = Scene::new(3, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    let group = scene.open();
    write_file(&group, 1, 6);
    let holds = |disk: usize| group.view().disks[disk].catalog_replica;
    assert!(holds(0) && holds(1) && holds(2) && !holds(3));
    group.drop_disks(&[DiskNumber(1)], false).unwrap();
    assert!(!group.view().disks[1].voter);
    group.step(0).unwrap();
    group.step(10_000).unwrap();
    assert!(holds(0) && !holds(1) && holds(2) && holds(3));
    group.undrop_disks(&[DiskNumber(1)]).unwrap();
    assert_sound(&group);
    // And with no step in between, forgetting does it.
    remove(&group, 1);
    group.drop_disks(&[DiskNumber(0)], false).unwrap();
    assert_eq!(group.forget_empty_disks().unwrap(), [DiskNumber(0)]);
    let replicas = |group: &Group| {
        let disks = group.view().disks;
        disks.iter().filter(|disk| disk.catalog_replica).count()
    };
    assert_eq!(replicas(&group), 3);
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(replicas(&group), 3);
    assert_sound(&group);
}

#[test]
fn a_drop_that_would_lose_redundancy_or_room_is_refused_with_figures() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    let drop = |disks: &[u16], force| {
        let disks: Vec<DiskNumber> = disks.iter().copied().map(DiskNumber).collect();
        group.drop_disks(&disks, force)
    };
    refused(
        drop(&[1], false),
        GroupErrorKind::NotEnough,
        "failure groups",
    );
    refused(drop(&[1, 1], false), GroupErrorKind::Invalid, "twice");
    refused(drop(&[9], false), GroupErrorKind::NotFound, "no disk 9");
    let third = spare(&scene.disks, 2, 16);
    group.add_disks(&[third]).unwrap();
    write_file(&group, 1, 40);
    // The small third failure group cannot hold what the first one does.
    refused(drop(&[0], false), GroupErrorKind::NotEnough, "MiB of room");
    assert_eq!(status(&group, 0).unwrap(), "normal");
    drop(&[2], false).unwrap();
    refused(drop(&[2], false), GroupErrorKind::Invalid, "already");
    refused(
        group.undrop_disks(&[DiskNumber(0)]),
        GroupErrorKind::Invalid,
        "not being dropped",
    );
    group.undrop_disks(&[DiskNumber(2)]).unwrap();
    assert_eq!(status(&group, 2).unwrap(), "normal");
    assert_sound(&group);
}

#[test]
fn an_add_that_cannot_be_is_refused_and_leaves_the_disk_as_it_was() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    let epoch = group.view().epoch;
    let mut taken = spare(&scene.disks, 2, 64);
    taken.name = DiskName::new("d1").unwrap();
    refused(
        group.add_disks(&[taken.clone()]),
        GroupErrorKind::Invalid,
        "d1",
    );
    let member = NewDisk {
        name: DiskName::new("other").unwrap(),
        ..named(DiskSlot(1), 2)
    };
    refused(
        group.add_disks(&[member]),
        GroupErrorKind::Invalid,
        "already",
    );
    let fresh = named(taken.slot, 2);
    let again = NewDisk {
        name: DiskName::new("twin").unwrap(),
        ..fresh.clone()
    };
    refused(
        group.add_disks(&[fresh.clone(), again]),
        GroupErrorKind::Invalid,
        "twice",
    );
    let small = spare(&scene.disks, 2, 4);
    refused(
        group.add_disks(&[small]),
        GroupErrorKind::NotEnough,
        "at least",
    );
    scene.disks.vanish(fresh.slot);
    refused(
        group.add_disks(&[fresh]),
        GroupErrorKind::Io,
        "nothing was changed",
    );
    assert_eq!(group.view().epoch, epoch);
    assert_eq!(numbers(&group), [0, 1]);
    assert_sound(&group);
}

#[test]
fn a_replacement_is_in_the_same_failure_group_and_no_smaller() {
    let scene = Scene::mirrored(6);
    let group = scene.open();
    let data = write_file(&group, 1, 4);
    let elsewhere = spare(&scene.disks, 2, 64);
    let small = spare(&scene.disks, 1, 32);
    let good = spare(&scene.disks, 1, 64);
    let old = DiskNumber(1);
    refused(
        group.replace_disk(old, &elsewhere),
        GroupErrorKind::Invalid,
        "failure group",
    );
    refused(
        group.replace_disk(old, &small),
        GroupErrorKind::NotEnough,
        "too small",
    );
    // Dead, and replaced: given up in the same state in which the new one joins.
    scene.disks.vanish(DiskSlot(1));
    let file = group.file(FileId(1)).unwrap();
    group.write(&file, 0, &data[..4096]).unwrap();
    let epoch = group.view().epoch;
    let new = group.replace_disk(old, &good).unwrap();
    assert_eq!(group.view().epoch, epoch + 1);
    assert_eq!(status(&group, 1).unwrap(), "absent");
    assert_eq!(status(&group, new.0).unwrap(), "normal");
    assert_eq!(read(&group, &file, 0, data.len()), data);
    assert_eq!(group.forget_empty_disks().unwrap(), []);
    remove(&group, 1);
    assert_eq!(group.forget_empty_disks().unwrap(), [old]);
    group.close().unwrap();
    // The dead disk comes back, and is passed over.
    scene.disks.bring_back(DiskSlot(1));
    let group = scene.open();
    assert_eq!(numbers(&group), [0, new.0]);
    assert_sound(&group);
}

#[test]
fn an_offline_disk_is_given_up_only_where_it_has_no_last_copy() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, 6);
    refused(
        group.offline_disks(&[DiskNumber(0), DiskNumber(1)]),
        GroupErrorKind::NotEnough,
        "last good copy",
    );
    refused(
        group.offline_disks(&[DiskNumber(0), DiskNumber(0)]),
        GroupErrorKind::Invalid,
        "twice",
    );
    group.offline_disks(&[DiskNumber(0)]).unwrap();
    refused(
        group.offline_disks(&[DiskNumber(0)]),
        GroupErrorKind::Invalid,
        "offline already",
    );
    refused(
        group.offline_disks(&[DiskNumber(1)]),
        GroupErrorKind::NotEnough,
        "last good copy",
    );
    refused(
        group.drop_disks(&[DiskNumber(0)], false),
        GroupErrorKind::Invalid,
        "--force",
    );
    refused(
        group.rename_disk(DiskNumber(0), &DiskName::new("x").unwrap()),
        GroupErrorKind::Invalid,
        "away",
    );
    group.drop_disks(&[DiskNumber(0)], true).unwrap();
    assert_eq!(status(&group, 0).unwrap(), "absent");
    let file = group.file(FileId(1)).unwrap();
    assert_eq!(read(&group, &file, 0, data.len()), data);
    refused(
        group.undrop_disks(&[DiskNumber(0)]),
        GroupErrorKind::Invalid,
        "not being dropped",
    );
    assert_sound(&group);
}

#[test]
fn a_renamed_disk_keeps_its_name_and_a_name_in_use_is_refused() {
    let scene = Scene::mirrored(8);
    let group = scene.open();
    let name = |text: &str| DiskName::new(text).unwrap();
    refused(
        group.rename_disk(DiskNumber(0), &name("d1")),
        GroupErrorKind::Invalid,
        "d1",
    );
    group.rename_disk(DiskNumber(0), &name("first")).unwrap();
    assert_eq!(group.view().disks[0].name, name("first"));
    group.close().unwrap();
    assert_eq!(scene.open().view().disks[0].name, name("first"));
    // Where the disk is away the catalog has its name.
    scene.disks.vanish(DiskSlot(0));
    let slots = [DiskSlot(1)];
    let group = Group::open(
        Arc::clone(&scene.disks) as Arc<dyn spindle_device::Disks>,
        &slots,
        &scene.name,
        &spindle_group::Opener {
            force: true,
            ..crate::scene::opener()
        },
    );
    assert_eq!(group.unwrap().view().disks[0].name, name("first"));
}

#[test]
fn a_disk_that_grew_gives_its_room_and_one_that_did_not_is_refused() {
    let scene = Scene::mirrored(9);
    let group = scene.open();
    let resize = |disk: u16, mib: u64| group.resize_disk(DiskNumber(disk), mib * MIB);
    refused(resize(0, 128), GroupErrorKind::Invalid, "enlarge");
    for slot in [0, 1] {
        scene.disks.resize(DiskSlot(slot), 128 * MIB);
        resize(slot, 128).unwrap();
    }
    // The last block is the label's, and the AU that it lies in with it.
    assert_eq!(group.view().total_bytes, 2 * 127 * MIB);
    let data = write_file(&group, 1, 100);
    assert_sound(&group);
    group.close().unwrap();
    let group = scene.open();
    let file = group.file(FileId(1)).unwrap();
    assert_eq!(read(&group, &file, 0, data.len()), data);
    assert_sound(&group);
    refused(
        group.resize_disk(DiskNumber(0), 32 * MIB),
        GroupErrorKind::NotEnough,
        "MiB of room",
    );
}

#[test]
fn a_disk_gets_smaller_when_nothing_lies_behind_its_new_end() {
    let scene = Scene::mirrored(10);
    let group = scene.open();
    let total_bytes = |group: &Group| group.view().disks[0].total_bytes;
    write_file(&group, 1, 20);
    write_file(&group, 2, 10);
    remove(&group, 1);
    // File 2 lies up there: the end is set, and the disk is cut when the file has gone.
    group
        .resize_disk(DiskNumber(0), 24 * MIB + LABEL_BYTES)
        .unwrap();
    assert_eq!(total_bytes(&group), 24 * MIB);
    assert_eq!(group.end_block(DiskNumber(0)), 24 * 256);
    group.forget_empty_disks().unwrap();
    group.close().unwrap();
    let group = scene.open();
    assert_eq!(group.end_block(DiskNumber(0)), 24 * 256);
    let state_aus = || {
        let looks = look(&*scene.disks, &[DiskSlot(0)]);
        looks[0].newest_state().unwrap().disks[0].size_aus
    };
    assert_eq!(state_aus(), 63);
    write_file(&group, 3, 8);
    assert_sound(&group);
    remove(&group, 2);
    group.forget_empty_disks().unwrap();
    assert_eq!(state_aus(), 24);
    assert_sound(&group);
    group.close().unwrap();
    scene.disks.resize(DiskSlot(0), 24 * MIB + LABEL_BYTES);
    let group = scene.open();
    let file = group.file(FileId(3)).unwrap();
    assert_eq!(read(&group, &file, 0, 4096), pattern(3, 4096));
    assert_sound(&group);
}

#[test]
fn several_changes_in_one_go_are_one_state() {
    let scene = Scene::mirrored(11);
    let group = scene.open();
    let data = write_file(&group, 1, 6);
    let epoch = group.view().epoch;
    let add = vec![spare(&scene.disks, 0, 64), spare(&scene.disks, 1, 64)];
    let changes = DiskChanges {
        add,
        drop: vec![DiskNumber(0), DiskNumber(1)],
        ..DiskChanges::default()
    };
    assert_eq!(
        group.change_disks(&changes).unwrap(),
        [DiskNumber(2), DiskNumber(3)]
    );
    assert_eq!(group.view().epoch, epoch + 1);
    let wish = group.get(spindle_catalog::Table::Attribute, b"rebalance");
    assert!(wish.unwrap().is_some());
    drop(group);
    scene.crash();
    let group = scene.open();
    let statuses: Vec<Option<String>> = (0..4).map(|disk| status(&group, disk)).collect();
    let expected = ["dropping", "dropping", "normal", "normal"];
    assert!(
        statuses
            .iter()
            .zip(expected)
            .all(|(found, expected)| found.as_deref() == Some(expected))
    );
    let file = group.file(FileId(1)).unwrap();
    assert_eq!(read(&group, &file, 0, data.len()), data);
    assert_sound(&group);
}

/// What is done to a group in one go.
type Step = fn(&Group, &Scene) -> Result<(), GroupError>;

fn add(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.add_disks(&[named(DiskSlot(3), 3)]).map(drop)
}

fn leave(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.drop_disks(&[DiskNumber(2)], false)?;
    group.forget_empty_disks().map(drop)
}

fn replace(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.replace_disk(DiskNumber(1), &named(DiskSlot(3), 1))?;
    group.forget_empty_disks().map(drop)
}

fn grow(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.resize_disk(DiskNumber(0), 96 * MIB)
}

fn shrink(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.resize_disk(DiskNumber(1), 32 * MIB)
}

fn rename(group: &Group, _: &Scene) -> Result<(), GroupError> {
    group.rename_disk(DiskNumber(0), &DiskName::new("first").unwrap())
}

/// The group has come to what the step wants.
fn is_done(group: &Group, step: usize) -> bool {
    let view = group.view();
    let find = |number: u16| view.disks.iter().find(|disk| disk.number.0 == number);
    match step {
        0 => find(3).is_some(),
        1 => find(2).is_none(),
        2 => find(1).is_none() && find(3).is_some(),
        3 => find(0).unwrap().total_bytes == 95 * MIB,
        4 => find(1).unwrap().total_bytes == 31 * MIB,
        _ => find(0).unwrap().name.as_str() == "first",
    }
}

#[test]
fn a_crash_at_any_request_of_a_change_leaves_the_group_before_or_after_it() {
    let empty = Scene::new(12, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    empty.disks.attach(64 * MIB);
    empty.disks.resize(DiskSlot(0), 96 * MIB);
    empty.open().close().unwrap();
    let used = empty.copy(12);
    let group = used.open();
    let data = write_file(&group, 1, 3);
    group.close().unwrap();
    let steps: [Step; 6] = [add, leave, replace, grow, shrink, rename];
    for (number, step) in steps.into_iter().enumerate() {
        // A disk is forgotten only when it is empty, and nobody empties one here.
        let original = if number == 1 || number == 2 {
            &empty
        } else {
            &used
        };
        for request in 1.. {
            let scene = original.copy(request);
            let group = scene.open();
            scene.disks.power_fails_after(request);
            let answer = step(&group, &scene);
            drop(group);
            scene.crash();
            let group = scene
                .try_open()
                .unwrap_or_else(|error| panic!("step {number}, request {request}: {error}"));
            let when = format!("step {number}, request {request}");
            if let Some(file) = group.file(FileId(1)) {
                assert_eq!(read(&group, &file, 0, data.len()), data, "{when}");
            }
            assert_eq!(group.check().unwrap(), Vec::<String>::new(), "{when}");
            assert!(
                group.view().disks.iter().all(|disk| disk.mode == "online"),
                "{when}"
            );
            if answer.is_ok() {
                assert!(is_done(&group, number), "{when}");
                break;
            }
            // What was cut off can be done now, if it was not done already.
            finish(&group, &scene, number, step, &when);
            assert!(is_done(&group, number), "{when}");
            assert_eq!(group.check().unwrap(), Vec::<String>::new(), "{when}");
            group.close().unwrap();
            scene.open();
        }
    }
}

#[test]
fn a_change_is_refused_or_made_wherever_the_last_replica_of_the_catalog_goes() {
    let original = Scene::new(12, Redundancy::Normal, &[(0, 64), (1, 64)]);
    original.disks.attach(64 * MIB);
    original.disks.resize(DiskSlot(0), 96 * MIB);
    original.open().close().unwrap();
    let add_third: Step = |group, _| group.add_disks(&[named(DiskSlot(2), 2)]).map(drop);
    let has_third: fn(&Group) -> bool = |group| group.view().disks.len() == 3;
    let has_grown: fn(&Group) -> bool = |group| is_done(group, 3);
    let is_renamed: fn(&Group) -> bool = |group| is_done(group, 5);
    for (step, is_made) in [
        (add_third, has_third),
        (grow, has_grown),
        (rename, is_renamed),
    ] {
        let mut refused_count = 0;
        for request in 1.. {
            let scene = original.copy(request);
            let group = scene.open();
            group.offline_disks(&[DiskNumber(1)]).unwrap();
            scene.disks.vanish_after(DiskSlot(0), request);
            let answer = step(&group, &scene);
            assert_eq!(
                answer.is_ok(),
                is_made(&group),
                "request {request}: {answer:?}"
            );
            refused_count += u64::from(answer.is_err());
            if !scene.disks.is_vanished(DiskSlot(0)) {
                break;
            }
        }
        assert!(refused_count > 0);
    }
}

/// Does what a crash cut off.
fn finish(group: &Group, scene: &Scene, number: usize, step: Step, when: &str) {
    let leaving = group
        .view()
        .disks
        .iter()
        .any(|disk| disk.state == "dropping");
    if leaving {
        group.forget_empty_disks().unwrap();
    } else if !is_done(group, number) {
        step(group, scene).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
}

#[test]
fn a_disk_that_fails_while_it_joins_is_not_taken_in() {
    // The disk answers while it is labelled, and goes at each of the requests that follow.
    let original = Scene::mirrored(13);
    original.disks.attach(64 * MIB);
    let mut refusals = 0;
    for request in 1.. {
        let scene = original.copy(request);
        let group = scene.open();
        scene.disks.vanish_after(DiskSlot(2), request);
        match group.add_disks(&[named(DiskSlot(2), 2)]) {
            Err(error) => {
                assert_eq!(error.kind, GroupErrorKind::Io, "{error}");
                refusals += 1;
            }
            Ok(_) => break,
        }
        assert_eq!(numbers(&group), [0, 1]);
        let file = create(&group, 5, NORMAL);
        group.write(&file, 0, &pattern(5, 65536)).unwrap();
        group.sync().unwrap();
        assert_sound(&group);
        group.close().unwrap();
        scene.open();
    }
    assert!(refusals >= 8, "labels, and the state");
}

#[test]
fn writers_go_on_while_disks_come_and_go() {
    let scene = Scene::new(14, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let spares: Vec<NewDisk> = (0..3).map(|group| spare(&scene.disks, group, 64)).collect();
    let group = scene.open();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let group = &group;
                scope.spawn(move || {
                    for round in 0..12_u64 {
                        let id = 100 + writer * 100 + round;
                        let data = pattern(id, 1 << 20);
                        let file = create(group, id, NORMAL);
                        group.write(&file, 0, &data).unwrap();
                        group.sync_file(&file, true).unwrap();
                        assert_eq!(read(group, &file, 0, data.len()), data);
                        group.remove_file(&group.change(), &file).unwrap();
                    }
                })
            })
            .collect();
        for (number, spare) in (0_u16..).zip(&spares) {
            let new = group.replace_disk(DiskNumber(number), spare).unwrap();
            assert_eq!(new, DiskNumber(number + 3));
            group.step(u64::from(number) * 10_000).unwrap();
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
    group.sync().unwrap();
    // Some went with a step already.
    group.forget_empty_disks().unwrap();
    assert_eq!(numbers(&group), [3, 4, 5]);
    assert_sound(&group);
    group.close().unwrap();
    assert_eq!(numbers(&scene.open()), [3, 4, 5]);
}

#[test]
fn lost_replicas_of_the_catalog_are_made_again_before_a_disk_with_one_is_forgotten() {
    let sizes = [(0, 64), (1, 64), (2, 64), (3, 64), (4, 64)];
    let scene = Scene::new(31, Redundancy::Normal, &sizes);
    let group = scene.open();
    let with_replica = |group: &Group| -> Vec<DiskNumber> {
        (group.view().disks.iter())
            .filter(|disk| disk.catalog_replica && disk.mode == "online")
            .map(|disk| disk.number)
            .collect()
    };
    let before = with_replica(&group);
    assert_eq!(before.len(), 3);
    group.offline_disks(&[before[0]]).unwrap();
    write_file(&group, 1, 2);
    group.drop_disks(&[before[1]], false).unwrap();
    let mut now_ms = 0;
    while group.work(now_ms).unwrap().did_something {
        now_ms += 10;
    }
    assert!(!numbers(&group).contains(&before[1].0));
    assert_eq!(with_replica(&group).len(), 3);
    assert_sound(&group);
}

#[test]
fn a_file_that_is_empty_still_keeps_its_failure_groups() {
    let scene = Scene::new(32, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 1, HIGH);
    let error = group.drop_disks(&[DiskNumber(0)], false).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough, "{error}");
    group.remove_file(&group.change(), &file).unwrap();
    group.drop_disks(&[DiskNumber(0)], false).unwrap();
}
