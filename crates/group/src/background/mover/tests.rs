//! What a rebalance tells at its end.

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DiskSlot, Request, Work};

use crate::scene::{
    EXTERNAL, MIB, NORMAL, Scene, create, pattern, read, resync, set_back_beside_an_outage, spare,
};
use crate::{DiskChanges, EventKind, Group};

/// The third label, behind the last AU.
const LABEL_BYTES: u64 = 4096;

fn told(group: &Group) -> Vec<String> {
    let events = group.take_events();
    let stops = events
        .iter()
        .filter(|event| event.kind == EventKind::RebalanceStopped);
    stops.map(|event| event.message.clone()).collect()
}

#[test]
fn a_disk_that_got_smaller_and_has_nothing_behind_its_end_is_no_copy_without_room() {
    let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
    let scene = Scene::new(30, Redundancy::Normal, &disks);
    let group = scene.open();
    // Small files, of which many share an AU.
    for id in 1..200_u64 {
        let file = create(&group, id, NORMAL);
        let blocks = usize::try_from(id * 7919 % 60 + 1).unwrap();
        group.write(&file, 0, &pattern(id, blocks * 4096)).unwrap();
    }
    group.sync().unwrap();
    resync(&group);
    told(&group);
    for mib in (8..24).rev() {
        (group.resize_disk(DiskNumber(1), mib * MIB + LABEL_BYTES)).unwrap();
        // No commit comes between but those of the rebalance.
        let mut now_ms = 0;
        while group.work(now_ms).unwrap().did_something {
            now_ms += 1;
        }
        assert_eq!(told(&group), Vec::<String>::new(), "{mib} MiB");
        assert_eq!(group.view().disks[1].total_bytes, mib * MIB);
    }
}

/// A flush of the catalog's, say, fails, and nobody asks for what it was to flush.
#[test]
fn a_rebalance_tells_the_failed_flush_that_holds_its_moves_up() {
    let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
    let scene = Scene::new(31, Redundancy::Normal, &disks);
    let group = scene.open();
    for id in 1..20_u64 {
        let file = create(&group, id, NORMAL);
        group.write(&file, 0, &pattern(id, 1 << 20)).unwrap();
    }
    group.sync().unwrap();
    resync(&group);
    told(&group);
    group.drop_disks(&[DiskNumber(0)], false).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    let mut batch = [Request::new(DiskSlot(0), 0, Work::Flush)];
    group.membership.run(&mut batch);
    batch[0].result.as_ref().unwrap_err();
    for now_ms in 0..200 {
        group.work(now_ms).unwrap();
    }
    assert_eq!(told(&group), Vec::<String>::new());
    assert_eq!(group.leaving_copies_count(), 0);
}

/// The power fails at each request of what ends an earlier run.
#[test]
fn a_wish_for_a_rebalance_that_was_answered_outlives_a_power_cut_as_the_run_before_it_ends() {
    for requests in 1.. {
        let scene = Scene::mirrored(32);
        let group = scene.open();
        let (_, of_the_run_before) = group.background.looked_at(&group);
        group.rebalance().unwrap();
        scene.disks.power_fails_after(requests);
        let _ = group.rebalance_ended(of_the_run_before);
        let has_ended = scene.disks.is_powered();
        drop(group);
        scene.crash();
        let group = scene.open();
        assert!(group.is_rebalance_wanted(), "power failed at {requests}");
        if has_ended {
            return;
        }
    }
}

#[test]
fn no_run_fulfils_the_wish_of_a_change_that_is_not_in_the_group_state_yet() {
    let scene = Scene::mirrored(33);
    let group = scene.open();
    let change = group.background.begin_change();
    group.rebalance().unwrap();
    let wishes_count = || group.background.looked_at(&group).1;
    group.rebalance_ended(wishes_count()).unwrap();
    assert!(group.is_rebalance_wanted());
    let before = wishes_count();
    drop(change);
    assert_ne!(wishes_count(), before, "nobody would look again");
    group.rebalance_ended(wishes_count()).unwrap();
    assert!(!group.is_rebalance_wanted());
}

/// Nothing that a pass looks at tells that files were removed.
#[test]
fn copies_that_found_no_room_are_made_when_there_is_room() {
    let disks = [(0, 128), (1, 64), (1, 64)];
    let scene = Scene::new(34, Redundancy::Normal, &disks);
    let group = scene.open();
    let write = |ids: std::ops::RangeInclusive<u64>| {
        for id in ids {
            let file = create(&group, id, NORMAL);
            group.write(&file, 0, &pattern(id, 1 << 20)).unwrap();
        }
        group.sync().unwrap();
    };
    write(1..=50);
    let away = DiskNumber(2);
    group.offline_disks(&[away]).unwrap();
    group
        .change_disks(&DiskChanges {
            drop: vec![away],
            force: true,
            ..DiskChanges::default()
        })
        .unwrap();
    // What comes meanwhile takes the room.
    write(51..=74);
    let work_until_idle = |mut now_ms: u64| {
        while group.work(now_ms).unwrap().did_something {
            now_ms += 1;
        }
        now_ms
    };
    let stops_count = || {
        let events = group.take_events();
        let stops = events
            .iter()
            .filter(|event| event.kind == EventKind::RestoreStopped);
        stops.count()
    };
    let now_ms = work_until_idle(0);
    assert!(group.lost_copies_count() > 0);
    assert_eq!(stops_count(), 1);
    // Tried again in vain, it is not told again.
    let now_ms = work_until_idle(now_ms + 40_000);
    assert_eq!(stops_count(), 0);
    for id in 1..=40 {
        let file = group.file(FileId(id)).unwrap();
        group.remove_file(&group.change(), &file).unwrap();
    }
    group.sync().unwrap();
    work_until_idle(now_ms + 40_000);
    assert_eq!(group.lost_copies_count(), 0);
    assert_eq!(stops_count(), 0);
}

/// A disk has joined and gets its share, until no rebalance is wanted any more, or up to the unit of the
/// work within which a flush fails; the number of the last unit.
fn rebalance_until(fails_at: Option<u64>) -> (Scene, Group, u64) {
    let scene = Scene::new(35, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    for id in 1..8_u64 {
        let file = create(&group, id, EXTERNAL);
        group.write(&file, 0, &pattern(id, 1 << 20)).unwrap();
    }
    group.sync().unwrap();
    group.add_disks(&[spare(&scene.disks, 1, 64)]).unwrap();
    for unit in 0.. {
        if fails_at == Some(unit) {
            scene.disks.drop_at_flushes(DiskSlot(0), 1);
            group.work(unit).unwrap_err();
            return (scene, group, unit);
        }
        assert!(group.work(unit).unwrap().did_something);
        if !group.is_rebalance_wanted() {
            return (scene, group, unit);
        }
    }
    unreachable!("it ends one day")
}

#[test]
fn a_rebalance_whose_last_commit_failed_is_not_over_and_is_tried_again() {
    let (_, _, last_unit) = rebalance_until(None);
    let (_scene, group, _) = rebalance_until(Some(last_unit));
    let is_over = || {
        let events = group.take_events();
        (events.iter()).any(|event| event.kind == EventKind::RebalanceEnded)
            || !group.is_rebalance_wanted()
    };
    assert!(!is_over());
    let work_until_idle = |mut now_ms: u64| {
        while group.work(now_ms).unwrap().did_something {
            now_ms += 1;
        }
    };
    work_until_idle(last_unit + 1);
    assert!(!is_over(), "its end was not durable");
    work_until_idle(last_unit + 40_000);
    assert!(!group.is_rebalance_wanted(), "nobody tries it again");
    for id in 1..8 {
        let file = group.file(FileId(id)).unwrap();
        assert!(read(&group, &file, 0, 1 << 20) == pattern(id, 1 << 20));
    }
}

/// Found by reading: the bytes of a disk that was set back came to one that nobody distrusted.
#[test]
fn nothing_is_moved_from_a_disk_that_was_set_back_while_a_better_copy_is_away() {
    let scene = Scene::new(36, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = set_back_beside_an_outage(&scene, &group);
    let away = DiskNumber(2);
    group.add_disks(&[spare(&scene.disks, 1, 64)]).unwrap();
    for now_ms in 0.. {
        if !group.work(now_ms).unwrap().did_something {
            break;
        }
    }
    let data = pattern(2, 8 << 20);
    let mut moved_count = 0;
    for extent in group.map(&file) {
        let joined = (extent.copies.iter().flatten()).find(|(disk, _)| disk.0 == 3);
        let Some((disk, offset)) = joined else {
            continue;
        };
        let length = usize::try_from(extent.initialised_bytes).unwrap();
        let at = usize::try_from(extent.offset_bytes).unwrap();
        let found = scene.disks.bytes(DiskSlot(disk.0), *offset, length);
        assert!(found == data[at..at + length], "extent {}", extent.index);
        moved_count += 1;
    }
    assert!(moved_count > 0, "what has a good copy that serves is moved");
    group.return_disks(&[DiskSlot(away.0)]).unwrap();
    resync(&group);
    group.heartbeat(2_007).unwrap();
    group.heartbeat(2_009).unwrap();
    assert!(read(&group, &file, 0, 8 << 20) == data);
}
