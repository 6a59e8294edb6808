//! What a change would cost is told beforehand: nothing changes by it, the bytes are those that
//! are moved then, and what the change would be refused with it is refused with.

use spindle_base::{DiskName, DiskNumber, FailureGroupName, FileId, Redundancy, Uuid};
use spindle_device::{DiskSlot, SimulatedDisks};
use spindle_group::{
    DiskChanges, Estimate, EventKind, Group, GroupErrorKind, NewDisk, PlannedChange,
};

use crate::scene::{EXTERNAL, FINE, MIB, NORMAL, Scene, assert_sound, create, pattern};

fn spare(disks: &SimulatedDisks, failure_group: u8, size_mib: u64) -> NewDisk {
    let slot = disks.attach(size_mib * MIB);
    NewDisk {
        slot,
        name: DiskName::new(format!("D{}", slot.0)).unwrap(),
        failure_group: FailureGroupName::new(format!("F{failure_group}")).unwrap(),
        uuid: Uuid([u8::try_from(slot.0).unwrap() + 1; 16]),
    }
}

fn work(group: &Group) {
    for now_ms in 0..100_000 {
        if !group.work(now_ms * 10).unwrap().did_something {
            return;
        }
    }
    panic!("the work does not end");
}

/// Every byte of every disk, in one number each.
fn prints(scene: &Scene) -> Vec<u32> {
    (0..u16::try_from(scene.disks.disk_count()).unwrap())
        .map(|slot| {
            use spindle_device::Disks;
            let size = usize::try_from(scene.disks.size_bytes(DiskSlot(slot))).unwrap();
            let bytes = scene.disks.bytes(DiskSlot(slot), 0, size);
            spindle_base::crc32c(&bytes)
        })
        .collect()
}

fn fill(group: &Group, layout: spindle_group::Layout) {
    for (id, mib) in [(1, 30_u64), (2, 9), (3, 1)] {
        let data = pattern(id, usize::try_from(mib * MIB).unwrap());
        let file = create(group, id, layout);
        group.write(&file, 0, &data).unwrap();
        group.sync_file(&file, true).unwrap();
    }
}

/// Tells, and sees to it that telling changed nothing.
fn told(scene: &Scene, group: &Group, change: &PlannedChange) -> Estimate {
    group.sync().unwrap();
    let (before, epoch) = (prints(scene), group.view().epoch);
    let estimate = group.estimate(change).unwrap();
    assert_eq!(group.view().epoch, epoch);
    assert!(prints(scene) == before, "telling wrote to a disk");
    assert_eq!(group.operations(), []);
    estimate
}

/// Makes the change; the bytes that were moved then, as the group tells it.
fn made(group: &Group, changes: &DiskChanges) -> u64 {
    group.take_events();
    group.change_disks(changes).unwrap();
    work(group);
    let ended = [EventKind::RebalanceEnded, EventKind::RestoreEnded];
    (group.take_events().iter())
        .filter(|event| ended.contains(&event.kind))
        .map(|event| {
            let words = event.message.split(' ').next().unwrap();
            words.parse::<u64>().unwrap()
        })
        .sum()
}

#[track_caller]
fn assert_near(told: u64, found: u64) {
    assert!(
        told.abs_diff(found) * 50 <= told.max(1),
        "{told} bytes were told and {found} moved"
    );
}

#[test]
fn the_bytes_told_are_the_bytes_moved() {
    for layout in [NORMAL, FINE, EXTERNAL] {
        let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
        let build = || {
            let scene = Scene::new(1, layout.redundancy, &disks);
            let group = scene.open();
            fill(&group, layout);
            (scene, group)
        };
        let (scene, group) = build();
        let changes = DiskChanges {
            add: vec![spare(&scene.disks, 0, 64), spare(&scene.disks, 1, 64)],
            ..DiskChanges::default()
        };
        let estimate = told(&scene, &group, &PlannedChange::Disks(changes.clone()));
        assert!(estimate.moved_bytes > 10 * MIB, "{estimate:?}");
        assert_near(estimate.moved_bytes, made(&group, &changes));
        let (scene, group) = build();
        let changes = DiskChanges {
            add: vec![spare(&scene.disks, 0, 96)],
            drop: vec![DiskNumber(1)],
            ..DiskChanges::default()
        };
        let estimate = told(&scene, &group, &PlannedChange::Disks(changes.clone()));
        let flows: u64 = estimate.flows.iter().map(|flow| flow.bytes).sum();
        assert_eq!(flows, estimate.moved_bytes);
        assert!(
            !estimate
                .disks
                .iter()
                .any(|disk| disk.number == DiskNumber(1))
        );
        group.change_disks(&changes).unwrap();
        work(&group);
        let after = group.view();
        for (then, found) in estimate.disks.iter().zip(&after.disks) {
            assert_eq!(then.number, found.number);
            // The catalog's replica goes elsewhere, and is not counted.
            assert!(
                then.free_bytes.abs_diff(found.free_bytes) <= 6 * MIB,
                "disk {}: {} free was told, {} is",
                then.number,
                then.free_bytes,
                found.free_bytes
            );
        }
        assert_sound(&group);
    }
}

#[test]
fn a_disk_given_up_costs_what_its_copies_hold_read_from_the_others() {
    let scene = Scene::new(2, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    let group = scene.open();
    fill(&group, NORMAL);
    group.offline_disks(&[DiskNumber(3)]).unwrap();
    let changes = DiskChanges {
        drop: vec![DiskNumber(3)],
        force: true,
        ..DiskChanges::default()
    };
    let estimate = told(&scene, &group, &PlannedChange::Disks(changes.clone()));
    assert!(estimate.restored_bytes > 10 * MIB);
    assert_eq!(estimate.stuck_bytes, 0);
    assert!(estimate.flows.iter().all(|flow| flow.from != DiskNumber(3)));
    let found = made(&group, &changes);
    assert_near(estimate.restored_bytes + estimate.moved_bytes, found);
}

#[test]
fn a_smaller_disk_costs_what_lies_behind_its_end_and_a_balanced_group_nothing() {
    let scene = Scene::new(3, Redundancy::Normal, &[(0, 64), (0, 64), (1, 64), (1, 64)]);
    let group = scene.open();
    fill(&group, NORMAL);
    group.rebalance().unwrap();
    work(&group);
    let estimate = told(&scene, &group, &PlannedChange::Rebalance);
    let changes = DiskChanges {
        resize: vec![(DiskNumber(1), 25 * MIB)],
        ..DiskChanges::default()
    };
    assert!(estimate.moved_bytes < MIB, "{estimate:?}");
    assert_eq!(estimate.usable_bytes, group.view().usable_bytes);
    assert_eq!(estimate.free_bytes, group.view().free_bytes);
    let estimate = told(&scene, &group, &PlannedChange::Disks(changes.clone()));
    let found = made(&group, &changes);
    assert_near(estimate.moved_bytes, found);
    assert!(found > 0);
}

#[test]
fn a_disk_that_comes_back_costs_what_it_missed() {
    let scene = Scene::new(4, Redundancy::Normal, &[(0, 64), (1, 64)]);
    let group = scene.open();
    fill(&group, NORMAL);
    let offline = told(&scene, &group, &PlannedChange::Offline(vec![DiskNumber(1)]));
    assert_eq!(offline.moved_bytes + offline.restored_bytes, 0);
    group.offline_disks(&[DiskNumber(1)]).unwrap();
    let file = group.file(FileId(1)).unwrap();
    group.write(&file, 3 * MIB, &[7; 1 << 20]).unwrap();
    let online = told(&scene, &group, &PlannedChange::Online(vec![DiskSlot(1)]));
    // What it took since the last round of cleaning counts too.
    assert!(online.resynced_bytes >= MIB);
    assert_eq!(online.flows.len(), 1);
    assert_eq!(
        (online.flows[0].from, online.flows[0].to),
        (DiskNumber(0), DiskNumber(1))
    );
    group.return_disks(&[DiskSlot(1)]).unwrap();
    assert_eq!(online.resynced_bytes, group.view().resync_left_bytes);
}

#[test]
fn telling_refuses_what_the_change_would_be_refused_with() {
    let scene = Scene::new(5, Redundancy::Normal, &[(0, 64), (1, 64), (1, 64)]);
    let group = scene.open();
    fill(&group, NORMAL);
    let wrong = [
        DiskChanges {
            drop: vec![DiskNumber(0)],
            ..DiskChanges::default()
        },
        DiskChanges {
            drop: vec![DiskNumber(1), DiskNumber(1)],
            ..DiskChanges::default()
        },
        DiskChanges {
            drop: vec![DiskNumber(9)],
            ..DiskChanges::default()
        },
        DiskChanges {
            undrop: vec![DiskNumber(1)],
            ..DiskChanges::default()
        },
        DiskChanges {
            replace: vec![(DiskNumber(1), spare(&scene.disks, 1, 32))],
            ..DiskChanges::default()
        },
        DiskChanges {
            resize: vec![(DiskNumber(1), 640 * MIB)],
            ..DiskChanges::default()
        },
        DiskChanges {
            resize: vec![(DiskNumber(0), 24 * MIB)],
            ..DiskChanges::default()
        },
        DiskChanges {
            add: vec![NewDisk {
                name: DiskName::new("D0").unwrap(),
                ..spare(&scene.disks, 1, 64)
            }],
            ..DiskChanges::default()
        },
    ];
    for changes in wrong {
        let told = (group.estimate(&PlannedChange::Disks(changes.clone()))).unwrap_err();
        let real = group.change_disks(&changes).unwrap_err();
        assert_eq!((told.kind, told.message), (real.kind, real.message));
    }
    let all: Vec<DiskNumber> = (0..3).map(DiskNumber).collect();
    for disks in [vec![DiskNumber(0), DiskNumber(0)], all] {
        let told = (group.estimate(&PlannedChange::Offline(disks.clone()))).unwrap_err();
        let real = group.offline_disks(&disks).unwrap_err();
        assert_eq!((told.kind, told.message), (real.kind, real.message));
    }
    let told = group.estimate(&PlannedChange::Online(vec![DiskSlot(1)]));
    let real = group.return_disks(&[DiskSlot(1)]).unwrap_err();
    assert_eq!(told.unwrap_err().message, real.message);
    assert_eq!(real.kind, GroupErrorKind::Invalid);
}

#[test]
fn that_a_disk_stays_which_is_away_moves_nothing_to_it_or_from_it() {
    let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    let group = scene.open();
    fill(&group, NORMAL);
    let away = DiskNumber(2);
    group.drop_disks(&[away], false).unwrap();
    group.offline_disks(&[away]).unwrap();
    let stays = DiskChanges {
        undrop: vec![away],
        ..DiskChanges::default()
    };
    let estimate = group.estimate(&PlannedChange::Disks(stays)).unwrap();
    let of_it = |flow: &&spindle_group::Flow| flow.from == away || flow.to == away;
    assert_eq!(estimate.flows.iter().find(of_it), None);
    assert!(
        estimate.disks.iter().any(|disk| disk.number == away),
        "{estimate:?}"
    );
}
