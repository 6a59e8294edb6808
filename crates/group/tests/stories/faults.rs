//! Failing, vanishing and lying disks under a running group.

use std::error::Error;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DeviceError, DiskSlot};
use spindle_group::{EventKind, GroupErrorKind, Operation, Subject};

use crate::scene::{
    EXTERNAL, MIB, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

#[test]
fn a_disk_that_vanishes_in_mid_write_costs_nobody_an_error() {
    let mut vanished_count = 0;
    for after in 1..40 {
        let scene = Scene::new(
            after,
            Redundancy::Normal,
            &[(0, 32), (0, 32), (1, 32), (1, 32)],
        );
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, 2 << 20)).unwrap();
        group.sync_file(&file, true).unwrap();
        scene.disks.vanish_after(DiskSlot(2), after);
        let mut model = pattern(1, 8 << 20);
        model[2 << 20..].fill(0);
        for step in 0..12_usize {
            let at = step * 400_000;
            let data = pattern(step as u64 + 50, 300_000);
            group.write(&file, at as u64, &data).unwrap();
            model[at..at + 300_000].copy_from_slice(&data);
            group.sync_file(&file, step % 2 == 0).unwrap();
        }
        assert!(
            read(&group, &file, 0, 8 << 20) == model,
            "vanished after {after}"
        );
        let view = group.view();
        if scene.disks.is_vanished(DiskSlot(2)) {
            vanished_count += 1;
            assert_eq!(view.disks[2].mode, "offline");
            assert!(
                group
                    .take_events()
                    .iter()
                    .any(|event| event.kind == EventKind::DiskOffline)
            );
        }
        assert_sound(&group);
        drop(group);
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(
            read(&group, &file, 0, 8 << 20) == model,
            "restarted, after {after}"
        );
        assert_sound(&group);
        group.close().unwrap();
    }
    assert!(vanished_count > 20, "{vanished_count} of 39");
}

#[test]
fn the_disk_that_was_left_behind_is_not_believed_when_it_comes_back() {
    let scene = Scene::new(3, Redundancy::Normal, &[(0, 32), (0, 32), (1, 32), (1, 32)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 4 << 20)).unwrap();
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(0));
    let newer = pattern(2, 4 << 20);
    group.write(&file, 0, &newer).unwrap();
    group.sync_file(&file, false).unwrap();
    drop(group);
    scene.disks.crash();
    scene.disks.bring_back(DiskSlot(0));
    scene.disks.restart();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 4 << 20) == newer);
    assert_eq!(group.view().offline_disks_count, 1);
    assert_sound(&group);
}

#[test]
fn a_bad_block_is_read_from_the_other_copy_and_written_again() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 3 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let size = 64 * MIB;
    let errors_count = || -> u64 {
        (group.view().disks.iter())
            .map(|disk| disk.read_errors_count)
            .sum()
    };
    for (slot, so_far) in [(DiskSlot(0), 0), (DiskSlot(1), 1)] {
        scene.disks.fail_reads(slot, MIB..size, 1);
        // The least busy copy is read, and which that is changes: until this disk's turn comes.
        for _ in 0..100 {
            assert!(read(&group, &file, 0, 3 << 20) == data);
            if errors_count() > so_far {
                break;
            }
        }
        assert_eq!(errors_count(), so_far + 1);
        assert!(read(&group, &file, 0, 3 << 20) == data);
    }
    let events = group.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::BlockRepaired),
        "{events:?}"
    );
    assert_eq!(group.view().offline_disks_count, 0);
}

#[test]
fn a_disk_that_cannot_take_the_repair_goes_offline() {
    let scene = Scene::new(5, Redundancy::Normal, &[(0, 32), (0, 32), (1, 32), (1, 32)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 3 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    scene.disks.fail_reads(DiskSlot(1), MIB..32 * MIB, u64::MAX);
    scene
        .disks
        .fail_writes(DiskSlot(1), 5 * MIB..32 * MIB, u64::MAX);
    for _ in 0..3 {
        assert!(read(&group, &file, 0, 3 << 20) == data);
    }
    assert_eq!(group.view().disks[1].mode, "offline");
}

#[test]
fn an_error_of_a_disk_tells_in_fields_which_file_extent_place_and_disk_it_was() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 32), (0, 32)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 3 << 20)).unwrap();
    group.sync().unwrap();
    let map = group.map(&file);
    let extent = map.iter().find(|extent| extent.offset_bytes == MIB);
    let extent = extent.unwrap();
    let (disk, _) = extent.copies[0].unwrap();
    let slot = DiskSlot(disk.0);
    let subject = Subject {
        operation: Some(Operation::Write),
        file: Some(FileId(10)),
        extent: Some(extent.index),
        offset_bytes: Some(MIB),
        disk: Some(disk),
    };
    scene.disks.fail_writes(slot, 5 * MIB..32 * MIB, u64::MAX);
    // It begins in an extent that the other disk takes.
    let at = MIB - 8192;
    let failed = group.write(&file, at, &pattern(2, 16_384)).unwrap_err();
    assert_eq!(failed.subject, subject, "{failed:#}");
    let cause = failed.source().unwrap().downcast_ref::<DeviceError>();
    let told = format!("{}: {}", failed.message, cause.unwrap());
    assert_eq!(failed.report(), told);
    scene.disks.clear_faults(slot);
    let owed = group.sync_file(&file, false).unwrap_err();
    assert_eq!(owed.subject, subject, "{owed:#}");
    assert_eq!(owed.report(), failed.report());

    scene.disks.fail_reads(slot, 5 * MIB..32 * MIB, u64::MAX);
    let mut out = vec![0; 16_384];
    let failed = group.read(&file, at, &mut out).unwrap_err();
    let operation = Some(Operation::Read);
    assert_eq!(
        failed.subject,
        Subject {
            operation,
            ..subject
        }
    );
    scene.disks.clear_faults(slot);

    group.write(&file, at, &pattern(3, 16_384)).unwrap();
    scene.disks.fail_flushes(slot, 1);
    let failed = group.sync_file(&file, false).unwrap_err();
    let flushed = Subject {
        operation: Some(Operation::Flush),
        file: Some(FileId(10)),
        disk: Some(disk),
        ..Subject::default()
    };
    assert_eq!(failed.subject, flushed, "{failed:#}");
}

#[test]
fn of_the_disks_that_fail_one_write_the_one_without_another_copy_is_told() {
    let disks = [(0, 32), (0, 32), (1, 32), (1, 32)];
    let scene = Scene::new(8, Redundancy::Normal, &disks);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 8 << 20)).unwrap();
    group.sync().unwrap();
    let map = group.map(&file);
    let places_of = |extent: usize| -> Vec<(DiskNumber, u64)> {
        map[extent].copies.iter().flatten().copied().collect()
    };
    let disks_of = |extent: usize| -> Vec<DiskNumber> {
        places_of(extent).iter().map(|(disk, _)| *disk).collect()
    };
    let is_apart = |extent: &usize| {
        let after = disks_of(extent + 1);
        disks_of(*extent).iter().all(|disk| !after.contains(disk))
    };
    let first = (0..7).find(is_apart).unwrap();
    let both = disks_of(first + 1);
    // The extent before keeps one of its copies.
    let failing = [&places_of(first)[..1], &places_of(first + 1)].concat();
    for (disk, start_bytes) in failing {
        let all = start_bytes..start_bytes + MIB;
        scene.disks.fail_writes(DiskSlot(disk.0), all, u64::MAX);
    }
    let at = map[first + 1].offset_bytes - 8192;
    let failed = group.write(&file, at, &pattern(2, 16_384)).unwrap_err();
    assert_eq!(failed.subject.extent, u32::try_from(first + 1).ok());
    assert!(both.contains(&failed.subject.disk.unwrap()), "{failed:#}");
}

#[test]
fn a_write_that_no_copy_took_is_an_error_now_and_at_the_next_sync_only() {
    let scene = Scene::new(6, Redundancy::External, &[(0, 32), (0, 32)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    for slot in [DiskSlot(0), DiskSlot(1)] {
        scene.disks.fail_writes(slot, 5 * MIB..32 * MIB, u64::MAX);
    }
    let again = pattern(2, 1 << 20);
    assert_eq!(
        group.write(&file, 0, &again).unwrap_err().kind,
        GroupErrorKind::Io
    );
    for slot in [DiskSlot(0), DiskSlot(1)] {
        scene.disks.clear_faults(slot);
    }
    assert_eq!(
        group.sync_file(&file, false).unwrap_err().kind,
        GroupErrorKind::Io
    );
    group.sync_file(&file, false).unwrap();
    group.write(&file, 0, &again).unwrap();
    assert!(read(&group, &file, 0, 1 << 20) == again);
    group.close().unwrap();
}

#[test]
fn a_failed_flush_takes_the_disk_offline_before_the_sync_is_answered() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 32), (0, 32), (1, 32), (1, 32)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 4 << 20)).unwrap();
    group.sync().unwrap();
    let data = pattern(2, 4 << 20);
    group.write(&file, 0, &data).unwrap();
    scene.disks.fail_flushes(DiskSlot(3), 1);
    group.sync_file(&file, false).unwrap();
    assert_eq!(group.view().disks[3].mode, "offline");
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 4 << 20) == data);
}

#[test]
fn with_one_failure_group_left_writes_go_on_with_one_copy() {
    let scene = Scene::new(8, Redundancy::Normal, &[(0, 32), (1, 32)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 2 << 20)).unwrap();
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(1));
    let data = pattern(2, 6 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    let missing = group
        .map(&file)
        .iter()
        .filter(|extent| extent.copies.contains(&None))
        .count();
    assert!(missing > 0, "the later extents have one copy");
    assert_sound(&group);
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 6 << 20) == data);
    group.close().unwrap();
}

#[test]
fn a_lost_replica_of_the_catalog_is_replaced_and_the_new_one_carries_the_group() {
    let scene = Scene::new(5, Redundancy::Normal, &[(0, 32), (0, 32), (1, 32), (1, 32)]);
    let replicas = |group: &spindle_group::Group| -> Vec<u16> {
        (group.view().disks.iter())
            .filter(|disk| disk.catalog_replica)
            .map(|disk| disk.number.0)
            .collect()
    };
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let contents = pattern(1, 3 << 20);
    group.write(&file, 0, &contents).unwrap();
    group.sync_file(&file, true).unwrap();
    let before = replicas(&group);
    let spare = (0..4).find(|disk| !before.contains(disk)).unwrap();
    scene.disks.vanish(DiskSlot(before[0]));
    group.write(&file, 0, &contents).unwrap();
    group.sync().unwrap();
    for now_ms in [0, 10_000, 20_000] {
        group.step(now_ms).unwrap();
    }
    assert_eq!(replicas(&group).len(), before.len());
    assert!(replicas(&group).contains(&spare), "{:?}", replicas(&group));
    let events = group.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::CatalogReplicaAdded),
        "{events:?}"
    );
    drop(group);
    // The neighbour that also held the catalog in the beginning goes too, while the group runs:
    // its failure group is gone then, and the new replica with it or not, the rest must do.
    scene.crash();
    let group = scene.open();
    let neighbour = before[0] ^ 1;
    scene.disks.vanish(DiskSlot(neighbour));
    let file = group.file(FileId(10)).unwrap();
    let newer = pattern(2, 3 << 20);
    group.write(&file, 0, &newer).unwrap();
    group.sync_file(&file, true).unwrap();
    assert!(read(&group, &file, 0, 3 << 20) == newer);
    assert_sound(&group);
}

/// The failure is told once; but the sync that then succeeds must have flushed what it failed on.
#[test]
fn without_redundancy_a_sync_after_a_failed_flush_flushes_again() {
    for seed in 0..20 {
        let scene = Scene::new(seed, Redundancy::External, &[(0, 64)]);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        let data = pattern(1, 20_000);
        group.write(&file, 0, &data).unwrap();
        scene.disks.fail_flushes(DiskSlot(0), 1);
        assert!(group.sync().is_err());
        assert!(group.sync_file(&file, true).is_err());
        // What was to be flushed is lost, and whoever has heard of it writes it again.
        assert!(read(&group, &file, 0, 20_000) == vec![0; 20_000]);
        group.write(&file, 0, &data).unwrap();
        group.sync_file(&file, true).unwrap();
        drop(group);
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, 20_000) == data, "seed {seed}");
        group.close().unwrap();
    }
}

#[test]
fn an_error_that_came_of_a_disk_has_that_of_the_disk_below_it() {
    let scene = Scene::new(5, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    group.sync().unwrap();
    scene.disks.fail_writes(DiskSlot(0), 0..64 * MIB, 1);
    let error = group.write(&file, 0, &pattern(2, 4096)).unwrap_err();
    let below = std::error::Error::source(&error).unwrap();
    let below = below.downcast_ref::<DeviceError>().unwrap();
    assert_eq!((below.operation, below.length_bytes), ("write", 4096));
    assert_eq!(error.report(), format!("{}: {below}", error.message));
    // The flush of a sync too.
    group.write(&file, 0, &pattern(2, 4096)).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    let error = group.sync_file(&file, false).unwrap_err();
    let below = std::error::Error::source(&error).unwrap();
    assert_eq!(
        below.downcast_ref::<DeviceError>().unwrap().operation,
        "flush"
    );
}

#[test]
fn after_a_crash_copies_with_bad_blocks_in_different_places_are_made_equal() {
    let scene = Scene::mirrored(31);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    // Overwritten and not synced: what the crash left of it may differ.
    group
        .write(&file, 512 << 10, &pattern(2, 64 << 10))
        .unwrap();
    let extent = &group.map(&file)[8];
    assert_eq!(extent.offset_bytes, 512 << 10);
    let places: Vec<(DiskSlot, u64)> = (extent.copies.iter().flatten())
        .map(|(disk, at)| (DiskSlot(disk.0), *at))
        .collect();
    scene.disks.crash();
    drop((file, group));
    scene.disks.restart();
    let [(first, first_at), (second, second_at)] = places[..] else {
        panic!("two copies: {places:?}");
    };
    (scene.disks).overwrite(first, first_at + (32 << 10), &pattern(3, 4096));
    let block_of = |at: u64, block: u64| at + block * 4096..at + (block + 1) * 4096;
    (scene.disks).fail_reads(first, block_of(first_at, 3), u64::MAX);
    (scene.disks).fail_reads(second, block_of(second_at, 12), u64::MAX);
    let group = scene.open();
    let events = group.take_events();
    assert!(
        !(events.iter()).any(|event| event.kind == EventKind::BlocksUnreadable),
        "{events:?}"
    );
    scene.disks.clear_faults(first);
    scene.disks.clear_faults(second);
    let file = group.file(FileId(10)).unwrap();
    assert_copies_equal(&scene, &group, &file, "after the opening");
}

/// Beside a block that a disk lacks, what it took of a write that failed and what it did not take.
#[test]
fn a_write_that_failed_leaves_equal_copies_beside_what_one_disk_lacks() {
    let scene = Scene::mirrored(31);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    // No disk has the two extents beside each other.
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    let between = create(&group, 11, NORMAL);
    group.write(&between, 0, &pattern(1, 1 << 20)).unwrap();
    group.write(&file, 1 << 20, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let map = group.map(&file);
    let second = map.last().unwrap();
    let first = &map[map.len() - 2];
    let border_bytes = second.offset_bytes;
    assert_eq!(first.offset_bytes + first.initialised_bytes, border_bytes);
    group.offline_disks(&[DiskNumber(1)]).unwrap();
    let lacked = pattern(2, 4096);
    group.write(&file, border_bytes + 4096, &lacked).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    // No disk takes the end of the first extent, and one the beginning of the second.
    for (disk, start_bytes) in first.copies.iter().flatten() {
        let end_bytes = start_bytes + first.initialised_bytes;
        let fails = end_bytes - 4096..end_bytes;
        scene.disks.fail_writes(DiskSlot(disk.0), fails, 1);
    }
    let zeroth = (second.copies.iter().flatten()).find(|(disk, _)| disk.0 == 0);
    let start_bytes = zeroth.unwrap().1;
    let fails = start_bytes..start_bytes + 3 * 4096;
    scene.disks.fail_writes(DiskSlot(0), fails, 1);
    let new = pattern(3, 4 * 4096);
    group.write(&file, border_bytes - 4096, &new).unwrap_err();
    let began = read(&group, &file, border_bytes, 4096);
    for _ in 0..20 {
        assert!(read(&group, &file, border_bytes, 4096) == began);
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the write that failed");
}
