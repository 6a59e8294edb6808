//! Disks go away for a while and come back: they get what they missed, and no more.

use std::sync::Arc;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DeviceErrorKind, DiskSlot, FaultyOperation};
use spindle_group::{Event, EventKind, File, Group, ReadTotals, RepairTime};

use crate::scene::{
    EXTERNAL, FINE, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read,
    resync, write_file,
};

const FOUR: &[(u8, u64)] = &[(0, 64), (0, 64), (1, 64), (1, 64)];

fn come_back(scene: &Scene, group: &Group, slot: u16) {
    scene.disks.bring_back(DiskSlot(slot));
    let back = group.return_disks(&[DiskSlot(slot)]).unwrap();
    assert_eq!(back, [spindle_base::DiskNumber(slot)]);
}

fn written_bytes(group: &Group, disk: usize) -> u64 {
    group.view().disks[disk].written_bytes
}

/// A file, what it should hold, and writes of any length at any place in it.
struct Story {
    file: Arc<File>,
    model: Vec<u8>,
    step: u64,
}

impl Story {
    fn new(group: &Group, id: u64, length: usize) -> Self {
        let file = create(group, id, NORMAL);
        let model = pattern(id, length);
        group.write(&file, 0, &model).unwrap();
        group.sync().unwrap();
        Self {
            file,
            model,
            step: 0,
        }
    }

    fn write(&mut self, group: &Group, at: usize, length: usize) {
        self.step += 1;
        let data = pattern(self.step * 1000 + at as u64, length);
        self.model.resize(self.model.len().max(at + length), 0);
        group.write(&self.file, at as u64, &data).unwrap();
        self.model[at..at + length].copy_from_slice(&data);
    }

    fn assert_reads(&self, group: &Group, what: &str) {
        let found = read(group, &self.file, 0, self.model.len());
        assert!(found == self.model, "{what}");
    }
}

#[test]
fn a_disk_that_returns_gets_what_it_missed_and_hardly_more() {
    let scene = Scene::new(1, Redundancy::Normal, FOUR);
    let group = scene.open();
    let mut story = Story::new(&group, 10, 40 << 20);
    resync(&group);
    scene.disks.vanish(DiskSlot(1));
    let mut missed_bytes = 0;
    for number in 0..50_usize {
        let at = number * 799 % 10_000 * 4096;
        story.write(&group, at, 8192);
        let extents = group.map(&story.file);
        let is_there = |block: usize| {
            let byte = block as u64;
            extents.iter().any(|extent| {
                let inside = extent.offset_bytes..extent.offset_bytes + extent.length_bytes;
                let on_it = |copy: &Option<(spindle_base::DiskNumber, u64)>| {
                    copy.is_some_and(|(disk, _)| disk.0 == 1)
                };
                inside.contains(&byte) && extent.copies.iter().any(on_it)
            })
        };
        missed_bytes += [at, at + 4096]
            .into_iter()
            .filter(|byte| is_there(*byte))
            .count() as u64
            * 4096;
    }
    group.sync().unwrap();
    assert!(missed_bytes > 20 * 4096);
    let before = written_bytes(&group, 1);
    come_back(&scene, &group, 1);
    // At once, before anything was copied, and in the middle of it.
    story.assert_reads(&group, "returned");
    assert!(group.work(0).unwrap().did_something);
    story.assert_reads(&group, "under way");
    resync(&group);
    let copied = written_bytes(&group, 1) - before;
    assert!(copied >= missed_bytes, "{copied} of {missed_bytes}");
    assert!(
        copied * 10 <= missed_bytes * 11,
        "{copied} of {missed_bytes}"
    );
    assert_copies_equal(&scene, &group, &story.file, "resynced");
    let kinds: Vec<EventKind> = group.take_events().iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::DiskOnline) && kinds.contains(&EventKind::ResyncEnded));
    assert_sound(&group);
    // The other half of the copies is not needed any more.
    scene.disks.vanish(DiskSlot(2));
    story.assert_reads(&group, "without another");
    story.write(&group, 0, 4096);
    come_back(&scene, &group, 2);
    scene.disks.vanish(DiskSlot(1));
    resync(&group);
    group.close().unwrap();
}

#[test]
fn files_that_grow_shrink_and_are_punched_meanwhile_are_right_when_the_disk_is_back() {
    for seed in 0..6_u64 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let mut story = Story::new(&group, 10, 6 << 20);
        let mut other = Story::new(&group, 11, 3 << 20);
        let fine = create(&group, 12, FINE);
        group.write(&fine, 0, &pattern(9, 5 << 20)).unwrap();
        group.sync().unwrap();
        scene.disks.vanish(DiskSlot((seed % 4).try_into().unwrap()));
        story.write(&group, 7 << 20, 300_000);
        story.write(&group, 100, 5000);
        group.punch(&story.file, 1 << 20, 2 << 20).unwrap();
        story.model[1 << 20..3 << 20].fill(0);
        group.punch(&story.file, 4_000_000, 50_000).unwrap();
        story.model[4_000_000..4_050_000].fill(0);
        group.truncate(&other.file, 500_000).unwrap();
        other.model.truncate(500_000);
        other.write(&group, 900_000, 700_000);
        let tail = pattern(33, 700_000);
        group.write(&fine, 3 << 20, &tail).unwrap();
        group.sync().unwrap();
        story.write(&group, 1 << 20, 40_000);
        come_back(&scene, &group, (seed % 4).try_into().unwrap());
        story.assert_reads(&group, "returned");
        other.assert_reads(&group, "returned");
        story.write(&group, 1_500_000, 100_000);
        other.write(&group, 3 << 20, 1 << 20);
        group.truncate(&story.file, 5 << 20).unwrap();
        story.model.truncate(5 << 20);
        resync(&group);
        for (file, model) in [(&story.file, &story.model), (&other.file, &other.model)] {
            assert!(read(&group, file, 0, model.len()) == *model, "seed {seed}");
            assert_copies_equal(&scene, &group, file, "resynced");
        }
        assert!(read(&group, &fine, 3 << 20, tail.len()) == tail);
        assert_copies_equal(&scene, &group, &fine, "resynced, fine");
        assert_sound(&group);
        group.close().unwrap();
    }
}

#[test]
fn a_crash_at_any_request_of_outage_return_and_resync_leaves_more_to_copy_and_no_stale_byte() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 32), (0, 32), (1, 32), (1, 32)]);
    let group = scene.open();
    let mut story = Story::new(&group, 10, 5 << 20);
    group.close().unwrap();
    for cut in (1..400).step_by(7) {
        let scene = scene.copy(cut);
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        story.file = file;
        let original = story.model.clone();
        scene.disks.vanish(DiskSlot(1));
        scene.disks.power_fails_after(cut);
        let mut synced = original.clone();
        let mut maybe = original.clone();
        let mut run = || -> Result<(), spindle_group::GroupError> {
            for number in 0..12_usize {
                if number == 5 {
                    scene.disks.bring_back(DiskSlot(1));
                    group.return_disks(&[DiskSlot(1)])?;
                }
                let at = number * 397_000;
                let data = pattern(cut + number as u64, 9000);
                maybe[at..at + 9000].copy_from_slice(&data);
                group.write(&story.file, at as u64, &data)?;
                group.sync_file(&story.file, number % 3 == 0)?;
                synced.clone_from(&maybe);
                group.step(number as u64 * 3000)?;
            }
            Ok(())
        };
        let ended = run().is_ok();
        drop(group);
        scene.crash();
        scene.disks.bring_back(DiskSlot(1));
        let group = scene.open();
        story.file = group.file(FileId(10)).unwrap();
        let check = |what: &str| {
            let found = read(&group, &story.file, 0, synced.len());
            for (sector, bytes) in found.chunks(512).enumerate() {
                let range = sector * 512..(sector + 1) * 512;
                let is_old = *bytes == synced[range.clone()];
                let is_new = *bytes == maybe[range];
                assert!(is_old || is_new, "cut {cut}, {what}: sector {sector}");
            }
        };
        check("opened");
        let offline = group.view().disks[1].mode == "offline";
        if offline {
            come_back(&scene, &group, 1);
            check("returned");
        }
        resync(&group);
        check("resynced");
        assert_copies_equal(&scene, &group, &story.file, &format!("cut {cut}"));
        assert_sound(&group);
        assert_eq!(group.view().offline_disks_count, 0);
        group.close().unwrap();
        story.model = original;
        if ended {
            return;
        }
    }
}

#[test]
fn two_disks_away_in_turn_and_one_that_flaps_lose_nothing() {
    for seed in 0..4_u64 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let mut story = Story::new(&group, 10, 12 << 20);
        for round in 0..14_usize {
            let slot = [0, 0, 2, 1, 1, 3, 0][round % 7];
            scene
                .disks
                .vanish_after(DiskSlot(slot), round as u64 % 5 + 1);
            for number in 0..5 {
                let at = (round * 5 + number) * 173_000 % (11 << 20);
                story.write(&group, at, 30_000);
                if number % 2 == 1 {
                    group.sync_file(&story.file, number == 3).unwrap();
                }
            }
            group.sync().unwrap();
            if !scene.disks.is_vanished(DiskSlot(slot)) {
                scene.disks.clear_faults(DiskSlot(slot));
                continue;
            }
            if group.view().disks[usize::from(slot)].mode == "offline" {
                come_back(&scene, &group, slot);
            } else {
                scene.disks.bring_back(DiskSlot(slot));
            }
            story.assert_reads(&group, "returned");
            // The next disk goes only when nothing depends on it alone any more.
            resync(&group);
            story.assert_reads(&group, "resynced");
        }
        assert_copies_equal(&scene, &group, &story.file, "at the end");
        assert_sound(&group);
        group.close().unwrap();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, story.model.len()) == story.model);
        group.close().unwrap();
    }
}

#[test]
fn a_disk_away_over_a_clean_stop_gets_what_it_missed_and_hardly_more() {
    let scene = Scene::new(3, Redundancy::Normal, FOUR);
    let group = scene.open();
    let mut story = Story::new(&group, 10, 20 << 20);
    resync(&group);
    scene.disks.vanish(DiskSlot(3));
    for number in 0..20 {
        story.write(&group, number << 20, 4096);
    }
    group.close().unwrap();
    scene.disks.bring_back(DiskSlot(3));
    let group = scene.open();
    story.file = group.file(FileId(10)).unwrap();
    story.assert_reads(&group, "opened");
    group.return_disks(&[DiskSlot(3)]).unwrap();
    story.assert_reads(&group, "returned");
    resync(&group);
    assert!(
        written_bytes(&group, 3) <= 20 * 4096 * 11 / 10,
        "{}",
        written_bytes(&group, 3)
    );
    assert_copies_equal(&scene, &group, &story.file, "resynced");
    group.close().unwrap();
}

#[test]
fn a_disk_that_answers_again_comes_back_by_itself_but_not_for_ever() {
    let scene = Scene::new(4, Redundancy::Normal, FOUR);
    let group = scene.open();
    let mut story = Story::new(&group, 10, 4 << 20);
    for round in 0..4_u64 {
        group.heartbeat(100 + round * 60).unwrap();
        scene.disks.vanish(DiskSlot(0));
        story.write(&group, 0, 3 << 20);
        assert_eq!(group.view().disks[0].mode, "offline");
        assert!(group.return_answering().unwrap().is_empty(), "it is gone");
        scene.disks.bring_back(DiskSlot(0));
        let back = group.return_answering().unwrap();
        assert_eq!(back.len(), usize::from(round < 3), "round {round}");
        story.assert_reads(&group, "back");
        resync(&group);
    }
    assert!(group.return_answering().unwrap().is_empty());
    let events = group.take_events();
    let refusals = events
        .iter()
        .filter(|event| event.message.contains("disk online"))
        .count();
    assert_eq!(refusals, 1, "told once: {events:?}");
    // A person may bring it back at any time, and after an hour it is trusted again.
    group.return_disks(&[DiskSlot(0)]).unwrap();
    resync(&group);
    scene.disks.vanish(DiskSlot(0));
    story.write(&group, 0, 3 << 20);
    scene.disks.bring_back(DiskSlot(0));
    group.heartbeat(10_000).unwrap();
    assert_eq!(group.return_answering().unwrap().len(), 1);
    // One that a person took offline is left alone.
    resync(&group);
    group.offline_disks(&[spindle_base::DiskNumber(2)]).unwrap();
    assert!(group.return_answering().unwrap().is_empty());
    story.write(&group, 1 << 20, 1 << 20);
    come_back(&scene, &group, 2);
    resync(&group);
    assert_copies_equal(&scene, &group, &story.file, "at the end");
    group.close().unwrap();
}

#[test]
fn a_disk_that_came_back_often_while_the_clock_was_ahead_comes_back_again_an_hour_later() {
    const YEAR_S: u64 = 365 * 24 * 3600;
    let scene = Scene::new(5, Redundancy::Normal, FOUR);
    let group = scene.open();
    let mut story = Story::new(&group, 10, 4 << 20);
    let mut blink = |now_s: u64| {
        group.heartbeat(now_s).unwrap();
        scene.disks.vanish(DiskSlot(0));
        story.write(&group, 0, 1 << 20);
        scene.disks.bring_back(DiskSlot(0));
        let back = group.return_answering().unwrap();
        resync(&group);
        !back.is_empty()
    };
    for round in 0..3 {
        assert!(blink(YEAR_S + round), "round {round}");
    }
    // The clock is right again.
    assert!(!blink(100), "it counts as now");
    group.heartbeat(100 + 3600).unwrap();
    assert_eq!(group.return_answering().unwrap().len(), 1);
    resync(&group);
    story.assert_reads(&group, "at the end");
}

#[test]
fn a_disk_that_is_away_longer_than_its_repair_time_is_given_up() {
    let scene = Scene::new(5, Redundancy::Normal, FOUR);
    let group = scene.open();
    let story = Story::new(&group, 10, 4 << 20);
    assert_eq!(group.repair_time(RepairTime::Disk), 12 * 3600);
    assert_eq!(group.repair_time(RepairTime::FailureGroup), 24 * 3600);
    group.set_repair_time(RepairTime::Disk, 300).unwrap();
    assert!(group.set_repair_time(RepairTime::Disk, u64::MAX).is_err());
    let disk = spindle_base::DiskNumber(1);
    let wait = |group: &Group, from_s: u64, seconds: u64| {
        for now_s in (from_s..=from_s + seconds).step_by(20) {
            group.heartbeat(now_s).unwrap();
            // Without the work, which would restore what it held and forget it.
            while group.step(now_s * 1000).unwrap() {}
        }
    };
    wait(&group, 1000, 20);
    scene.disks.vanish(DiskSlot(1));
    group.write(&story.file, 0, &story.model).unwrap();
    assert_eq!(group.view().disks[1].mode, "offline");
    wait(&group, 1020, 700);
    assert!(group.repair_time_left(disk).is_none());
    assert_eq!(group.view().disks[1].state, "absent");
    let events = group.take_events();
    assert!(
        (events.iter()).any(|event| event.kind == EventKind::RepairTimeOver),
        "{events:?}"
    );
    scene.disks.bring_back(DiskSlot(1));
    let error = group.return_disks(&[DiskSlot(1)]).unwrap_err();
    assert!(error.message.contains("given up"), "{error}");
    story.assert_reads(&group, "given up");
    group.close().unwrap();
}

#[test]
fn the_time_that_a_group_was_closed_does_not_count() {
    let scene = Scene::new(6, Redundancy::Normal, FOUR);
    let group = scene.open();
    let disk = spindle_base::DiskNumber(1);
    group.set_repair_time(RepairTime::Disk, 1000).unwrap();
    let tick = |group: &Group, now_s: u64| {
        group.heartbeat(now_s).unwrap();
        resync(group);
    };
    tick(&group, 100);
    group.offline_disks(&[disk]).unwrap();
    for now_s in (100..=800).step_by(50) {
        tick(&group, now_s);
    }
    assert_eq!(group.repair_time_left(disk), Some(300));
    // A clock that jumps counts a minute at most.
    tick(&group, 1_000_000);
    assert_eq!(group.repair_time_left(disk), Some(240));
    group.close().unwrap();
    let group = scene.open();
    tick(&group, 2_000_000);
    let left = group.repair_time_left(disk).unwrap();
    assert!((240..=400).contains(&left), "{left}");
    group.close().unwrap();
}

/// As `dd if=/dev/zero of=DISK bs=1M count=8` does to a member of a group that nobody has open.
fn overwrite_beginning(scene: &Scene, slot: u16) {
    (scene.disks).overwrite(DiskSlot(slot), 0, &vec![0; 8 << 20]);
}

#[test]
fn a_disk_whose_beginning_was_overwritten_is_named_by_its_end_and_nothing_else() {
    for closed in [true, false] {
        let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let data = write_file(&group, 1, 30);
        if closed {
            group.close().unwrap();
        } else {
            drop(group);
            scene.crash();
        }
        overwrite_beginning(&scene, 1);
        let before = scene.disks.bytes(DiskSlot(1), 0, 8 << 20);
        let group = scene.open();
        let told = group.take_events();
        let named = |event: &Event| {
            let words = "the one at its end says that it is disk D1 of group DATA";
            event.kind == EventKind::DiskPassedOver && event.message.contains(words)
        };
        assert!(told.iter().any(named), "{told:?}");
        assert_eq!(group.view().disks[1].mode, "offline");
        assert!(group.return_disks(&[DiskSlot(1)]).is_err());
        resync(&group);
        let file = group.file(FileId(1)).unwrap();
        for _ in 0..4 {
            assert!(read(&group, &file, 0, data.len()) == data);
        }
        assert_sound(&group);
        assert!(scene.disks.bytes(DiskSlot(1), 0, 8 << 20) == before);
    }
}

/// As `dd if=OLD of=NEW` and then `dd if=/dev/zero of=OLD bs=1M count=8` leave it.
#[test]
fn what_is_left_of_a_disk_that_was_copied_does_not_stand_in_the_way_of_the_copy() {
    let scene = Scene::new(15, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, 10);
    group.close().unwrap();
    let copy = scene.disks.attach(64 << 20);
    let image = scene.disks.bytes(DiskSlot(1), 0, 64 << 20);
    scene.disks.overwrite(copy, 0, &image);
    overwrite_beginning(&scene, 1);
    for _ in 0..2 {
        let group = scene.open();
        assert_eq!(group.view().offline_disks_count, 0);
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_sound(&group);
        group.close().unwrap();
    }
}

#[test]
fn one_read_of_many_extents_that_is_left_unanswered_counts_once() {
    let mut blinked_count = 0;
    for seed in 0..12 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let story = Story::new(&group, 10, 8 << 20);
        for slot in 0..4 {
            let gone = DeviceErrorKind::Gone;
            let data = 1 << 20..32 << 20;
            (scene.disks).fail(DiskSlot(slot), FaultyOperation::Read, data, 1, gone);
        }
        for _ in 0..6 {
            story.assert_reads(&group, "blinking");
        }
        let events = group.take_events();
        let blinked = |event: &Event| event.kind == EventKind::DiskBlinked;
        blinked_count += events.iter().filter(|event| blinked(event)).count();
        assert_eq!(group.view().offline_disks_count, 0, "{seed}: {events:?}");
    }
    assert!(blinked_count > 0);
}

#[test]
fn a_path_that_blinks_costs_neither_the_read_nor_the_disk() {
    let scene = Scene::new(8, Redundancy::Normal, FOUR);
    let group = scene.open();
    let story = Story::new(&group, 10, 8 << 20);
    for slot in 0..4 {
        let gone = DeviceErrorKind::Gone;
        let slot = DiskSlot(slot);
        (scene.disks).fail(slot, FaultyOperation::Read, 1 << 20..64 << 20, 1, gone);
    }
    for _ in 0..6 {
        story.assert_reads(&group, "blinking");
    }
    assert_eq!(group.view().offline_disks_count, 0);
    let events = group.take_events();
    assert!(
        (events.iter()).any(|event| event.kind == EventKind::DiskBlinked),
        "{events:?}"
    );
    assert!((events.iter()).all(|event| event.kind != EventKind::BlockRepaired));
    // One that never answers is gone, whether anybody writes or not.
    let gone = DeviceErrorKind::Gone;
    (scene.disks).fail(
        DiskSlot(1),
        FaultyOperation::Read,
        1 << 20..64 << 20,
        u64::MAX,
        gone,
    );
    for _ in 0..20 {
        story.assert_reads(&group, "gone");
    }
    assert_eq!(group.view().disks[1].mode, "offline");
    scene.disks.clear_faults(DiskSlot(1));
    assert_eq!(group.return_answering().unwrap().len(), 1);
    resync(&group);
    story.assert_reads(&group, "back");
    group.close().unwrap();
}

#[test]
fn a_slow_disk_is_named_and_read_around_until_it_has_recovered() {
    let scene = Scene::new(9, Redundancy::Normal, FOUR);
    let group = scene.open();
    let story = Story::new(&group, 10, 8 << 20);
    let mut totals: Vec<ReadTotals> = (0..4)
        .map(|number| ReadTotals {
            disk: spindle_base::DiskNumber(number),
            reads_count: 0,
            read_bytes: 0,
            read_time_us: 0,
        })
        .collect();
    let mut windows = |latency_us: u64| {
        for _ in 0..12 {
            for (number, disk) in totals.iter_mut().enumerate() {
                disk.reads_count += 10;
                disk.read_bytes += 10 * 8192;
                disk.read_time_us += 10 * if number == 2 { latency_us } else { 4000 };
            }
            group.note_read_totals(&totals);
        }
    };
    let reads_of_it = || {
        let before = group.view().disks[2].reads_count;
        for _ in 0..20 {
            story.assert_reads(&group, "slow or not");
        }
        group.view().disks[2].reads_count - before
    };
    assert!(reads_of_it() > 0);
    windows(500_000);
    assert_eq!(reads_of_it(), 0, "there is another copy of everything");
    let slow = || group.view().disks.iter().map(|disk| disk.slow).collect();
    let listed: Vec<bool> = slow();
    assert_eq!(listed, [false, false, true, false]);
    windows(4000);
    assert!(reads_of_it() > 0);
    let listed: Vec<bool> = slow();
    assert_eq!(listed, [false; 4]);
    let kinds: Vec<EventKind> = group.take_events().iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::DiskSlow) && kinds.contains(&EventKind::DiskFast));
    group.close().unwrap();
}

#[test]
fn a_state_that_a_disk_showed_and_lost_again_does_not_keep_it_away() {
    for seed in 0..16 {
        let sizes = [(0, 64), (1, 64), (2, 64), (3, 64)];
        let scene = Scene::new(seed, Redundancy::Normal, &sizes);
        let group = scene.open();
        let states = 128 << 10..512 << 10;
        scene.disks.fail_writes(DiskSlot(3), states, 1);
        group.offline_disks(&[DiskNumber(2)]).unwrap();
        // The process dies, and the next one sees what the failed write left in the disk's cache.
        drop(group);
        let group = scene.open();
        for round in 0..4 {
            group.step(round * 6000).unwrap();
        }
        scene.disks.vanish(DiskSlot(3));
        scene.disks.bring_back(DiskSlot(3));
        let back = group.return_disks(&[DiskSlot(3)]).unwrap();
        assert_eq!(back, [DiskNumber(3)], "seed {seed}");
    }
}

#[test]
fn a_disk_that_was_cut_off_gets_everything_again_before_it_is_read() {
    let scene = Scene::mirrored(50);
    let group = scene.open();
    let story = Story::new(&group, 1, 20 << 20);
    // Until nothing counts as written lately, which would be copied again anyway.
    resync(&group);
    // Longer again, with zeros where data was: nobody looked but the heartbeat.
    scene.disks.resize(DiskSlot(1), 3 << 20);
    group.heartbeat(11).unwrap();
    assert_eq!(group.away_disks(), [DiskNumber(1)]);
    scene.disks.resize(DiskSlot(1), 64 << 20);
    scene
        .disks
        .overwrite(DiskSlot(1), 3 << 20, &vec![0; 61 << 20]);
    assert_eq!(group.return_answering().unwrap(), [DiskNumber(1)]);
    for _ in 0..8 {
        assert!(read(&group, &story.file, 0, story.model.len()) == story.model);
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &story.file, "after the resync");
    // It is as good as the other one by then.
    scene.disks.vanish(DiskSlot(0));
    assert!(read(&group, &story.file, 0, story.model.len()) == story.model);
}

#[test]
fn a_crash_after_a_disk_was_cut_off_does_not_make_its_zeros_good() {
    let scene = Scene::mirrored(51);
    let group = scene.open();
    let story = Story::new(&group, 1, 20 << 20);
    scene.disks.resize(DiskSlot(1), 3 << 20);
    group.heartbeat(11).unwrap();
    drop(group);
    scene.crash();
    scene.disks.resize(DiskSlot(1), 64 << 20);
    scene
        .disks
        .overwrite(DiskSlot(1), 3 << 20, &vec![0; 61 << 20]);
    let group = scene.open();
    group.return_disks(&[DiskSlot(1)]).unwrap();
    let file = group.file(FileId(1)).unwrap();
    for _ in 0..8 {
        assert!(read(&group, &file, 0, story.model.len()) == story.model);
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

#[test]
fn a_disk_put_back_to_an_older_image_is_never_read_though_the_opening_that_saw_it_ended_at_once() {
    let scene = Scene::new(53, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 1, NORMAL);
    group.write(&file, 0, &pattern(1, 20 << 20)).unwrap();
    group.close().unwrap();
    let older = scene.disks.bytes(DiskSlot(2), 0, 64 << 20);
    let group = scene.open();
    let file = group.file(FileId(1)).unwrap();
    let model = pattern(2, 20 << 20);
    group.write(&file, 0, &model).unwrap();
    // Until nothing counts as written lately, which would be copied again anyway.
    resync(&group);
    group.close().unwrap();
    scene.disks.overwrite(DiskSlot(2), 0, &older);
    drop(scene.open());
    scene.crash();
    let group = scene.open();
    assert_eq!(group.away_disks(), [DiskNumber(2)]);
    group.return_disks(&[DiskSlot(2)]).unwrap();
    let file = group.file(FileId(1)).unwrap();
    for _ in 0..8 {
        assert!(read(&group, &file, 0, model.len()) == model);
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert_sound(&group);
}

#[test]
fn what_only_a_cut_off_disk_had_is_an_error_behind_its_end_and_there_before_it() {
    let scene = Scene::new(52, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let file = create(&group, 1, EXTERNAL);
    let model = pattern(1, 40 << 20);
    group.write(&file, 0, &model).unwrap();
    group.sync().unwrap();
    let end = 16 << 20;
    scene.disks.resize(DiskSlot(1), end);
    group.heartbeat(11).unwrap();
    scene.disks.resize(DiskSlot(1), 64 << 20);
    let zeros = vec![0; (64 << 20) - usize::try_from(end).unwrap()];
    scene.disks.overwrite(DiskSlot(1), end, &zeros);
    assert_eq!(group.return_answering().unwrap(), [DiskNumber(1)]);
    let (mut kept, mut gone) = (0, 0);
    for block in (0..model.len()).step_by(1 << 20) {
        let mut out = vec![0; 4096];
        match group.read(&file, block as u64, &mut out) {
            Ok(()) => {
                assert!(out == model[block..block + 4096], "block at {block}");
                kept += 1;
            }
            Err(error) => {
                assert!(error.message.contains("no copy"), "{error}");
                gone += 1;
            }
        }
    }
    assert!(kept > 20 && gone > 3, "{kept} kept, {gone} gone");
}

#[test]
fn a_disk_that_was_only_looked_at_is_told_to_be_welcome_or_why_it_is_not() {
    let scene = Scene::new(31, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    let look = |slot: u16| spindle_group::look(&*scene.disks, &[DiskSlot(slot)]).remove(0);
    let disk = DiskNumber(2);
    assert!(!group.is_welcome(disk, &look(2)), "it is online");
    scene.disks.vanish(DiskSlot(2));
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(2));
    assert!(group.is_welcome(disk, &look(2)));
    assert!(!group.is_welcome(disk, &look(3)), "another disk");
    let stranger = scene.disks.attach(64 << 20);
    group.take_events();
    assert!(!group.is_welcome(disk, &look(stranger.0)));
    let told = group.take_events();
    assert!(
        told.iter().any(|event| event.message.contains("no label")),
        "{told:?}"
    );
    come_back(&scene, &group, 2);
    group.offline_disks(&[disk]).unwrap();
    assert!(!group.is_welcome(disk, &look(2)), "a person took it");
}
