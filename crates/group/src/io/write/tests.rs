//! Writes that are announced and refused: nobody has missed them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId, Redundancy};
use spindle_device::{DeviceErrorKind, DiskSlot, FaultyOperation};
use spindle_sync::level::Unshown;

use crate::Group;
use crate::core::file::File;
use crate::io::write::{Attempt, Payload};
use crate::scene::{EXTERNAL, HIGH, NORMAL, Scene, assert_sound, create, pattern, read, resync};

const LENGTH: usize = 4 << 20;

/// Groups of which the loss of two disks at once leaves a majority of voters.
const FIVE: &[(u8, u64)] = &[(0, 64), (1, 64), (2, 64), (3, 64), (4, 64)];

/// A file of which nothing was written lately, where one of its extents begins, and the disks that
/// have that one: both with a replica of the catalog, so that a commit finds out that they are gone.
fn quiet_file(group: &Group) -> (Arc<File>, Vec<u8>, u64, [DiskSlot; 2]) {
    let file = create(group, 10, NORMAL);
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(group);
    let replicas = group.membership.catalog_runs();
    let has_replica = |slot: &DiskSlot| replicas.iter().any(|run| run.disk.0 == slot.0);
    let (at, disks) = (group.map(&file).into_iter())
        .filter(|extent| extent.initialised_bytes >= 16 << 10)
        .map(|extent| {
            let on = |copy: usize| DiskSlot(extent.copies[copy].unwrap().0.0);
            (extent.offset_bytes, [on(0), on(1)])
        })
        .find(|(_, disks)| disks.iter().all(has_replica))
        .expect("many extents");
    (file, data, at, disks)
}

fn take_offline(group: &Group, slot: DiskSlot) {
    (group.take_offline(&[DiskNumber(slot.0)], "a test says so")).unwrap();
}

/// Where the disk has the first block of the extent that begins there.
fn block_on(group: &Group, file: &Arc<File>, slot: DiskSlot, at: u64) -> Range<u64> {
    let extents = group.map(file);
    let extent = extents.iter().find(|extent| extent.offset_bytes == at);
    let copies = &extent.unwrap().copies;
    let own = copies.iter().flatten().find(|copy| copy.0.0 == slot.0);
    let (_, start_bytes) = *own.unwrap();
    start_bytes..start_bytes + 4096
}

fn assert_has_it(group: &Group, file: &File, data: &[u8], at: u64, when: &str) {
    let begin = usize::try_from(at).unwrap();
    let mut found = vec![0; 16 << 10];
    let answer = group.read(file, at, &mut found);
    answer.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(found == data[begin..begin + (16 << 10)], "{when}");
}

/// Of a write that failed a disk may have some sectors.
fn assert_is_of(found: &[u8], before: &[u8], new: &[u8]) {
    let sectors = (found.chunks(512)).zip(before.chunks(512).zip(new.chunks(512)));
    for (found, (before, new)) in sectors {
        assert!(found == before || found == new, "neither of the two");
    }
}

/// The disk that was away has all that it had, although a write had named it; and so it has after a
/// power cut, with the other disk away.
#[test]
fn a_disk_that_is_away_has_not_missed_a_write_that_is_refused() {
    for punches in [false, true] {
        let scene = Scene::new(1, Redundancy::Normal, FIVE);
        let group = scene.open();
        let (file, data, at, [first, second]) = quiet_file(&group);
        scene.disks.vanish(second);
        take_offline(&group, second);
        // The record of the write finds out that this one is gone, too.
        scene.disks.vanish(first);
        let refused = match punches {
            true => group.punch(&file, at, 4096),
            false => group.write(&file, at, &pattern(2, 4096)),
        };
        refused.unwrap_err();
        assert!(!group.membership.is_online(DiskNumber(first.0)));
        scene.disks.bring_back(second);
        assert_eq!(group.return_disks(&[second]).unwrap().len(), 1);
        assert_has_it(&group, &file, &data, at, "it is back");
        resync(&group);
        assert_sound(&group);
        drop((group, file));
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert_has_it(&group, &file, &data, at, "after the power cut");
        scene.disks.bring_back(first);
        group.return_disks(&[first]).unwrap();
        resync(&group);
        assert!(read(&group, &file, 0, LENGTH) == data);
    }
}

#[test]
fn of_two_disks_that_go_before_a_write_goes_out_each_has_what_it_had() {
    for back in [0, 1] {
        let scene = Scene::new(2, Redundancy::Normal, FIVE);
        let group = scene.open();
        let (file, data, at, disks) = quiet_file(&group);
        disks.iter().for_each(|disk| scene.disks.vanish(*disk));
        (group.write(&file, at, &pattern(2, 4096))).unwrap_err();
        let slot = disks[back];
        scene.disks.bring_back(slot);
        assert_eq!(group.return_disks(&[slot]).unwrap().len(), 1);
        assert_has_it(&group, &file, &data, at, "one is back");
    }
}

/// The write before had gone out, and the disk that was away has missed it.
#[test]
fn what_a_disk_missed_before_a_write_that_is_refused_stays_missed() {
    let scene = Scene::new(3, Redundancy::Normal, FIVE);
    let group = scene.open();
    let (file, _, at, [first, second]) = quiet_file(&group);
    scene.disks.vanish(second);
    take_offline(&group, second);
    let new = pattern(3, 8192);
    group.write(&file, at, &new).unwrap();
    group.sync().unwrap();
    // The row is closed, so that the next write waits for one.
    resync(&group);
    scene.disks.vanish(first);
    (group.write(&file, at + 4096, &pattern(2, 8192))).unwrap_err();
    scene.disks.bring_back(second);
    group.return_disks(&[second]).unwrap();
    let mut found = vec![0; 4096];
    (group.read(&file, at, &mut found)).expect_err("it has the bytes of before");
    (group.read(&file, at + 4096, &mut found)).expect_err("it has the bytes of before");
    group.read(&file, at + 8192, &mut found).unwrap();
    scene.disks.bring_back(first);
    group.return_disks(&[first]).unwrap();
    assert!(read(&group, &file, at, new.len()) == new);
}

/// The disk that serves lacks these blocks and fails their write, while the one that has them is away.
#[test]
fn a_disk_that_is_away_has_not_missed_a_write_that_failed_where_only_a_stale_copy_was() {
    let kinds = [DeviceErrorKind::Medium, DeviceErrorKind::NoSpace];
    for (kind, stops) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let scene = Scene::new(1, Redundancy::Normal, FIVE);
        let group = scene.open();
        let (file, mut data, at, [stale, good]) = quiet_file(&group);
        take_offline(&group, stale);
        let begin = usize::try_from(at).unwrap();
        data[begin..begin + (16 << 10)].copy_from_slice(&pattern(2, 16 << 10));
        (group.write(&file, at, &data[begin..begin + (16 << 10)])).unwrap();
        group.sync().unwrap();
        assert_eq!(group.return_disks(&[stale]).unwrap().len(), 1);
        scene.disks.vanish(good);
        take_offline(&group, good);
        let place = block_on(&group, &file, stale, at);
        (scene.disks).fail(stale, FaultyOperation::Write, place, 1, kind);
        (group.write(&file, at, &pattern(3, 16 << 10))).unwrap_err();
        let (file, group) = if stops {
            group.commit_everything().unwrap();
            drop((file, group));
            scene.crash();
            let group = scene.open();
            (group.file(FileId(10)).unwrap(), group)
        } else {
            (file, group)
        };
        scene.disks.bring_back(good);
        assert_eq!(group.return_disks(&[good]).unwrap().len(), 1);
        assert_has_it(&group, &file, &data, at, "it is back");
        resync(&group);
        assert_sound(&group);
        take_offline(&group, good);
        assert_has_it(&group, &file, &data, at, "the other one has it again");
    }
}

/// A write has missed the disk and does not get to note it; meanwhile the disk comes back, lacks nothing,
/// and readers have ceased to look. Then it lacks what the write notes, and that is brought to it.
#[test]
fn a_disk_that_is_back_before_it_is_noted_to_have_missed_a_write_gets_it() {
    let scene = Scene::new(3, Redundancy::Normal, FIVE);
    let group = scene.open();
    let (file, mut data, at, [_, away]) = quiet_file(&group);
    let number = DiskNumber(away.0);
    take_offline(&group, away);
    let first = at / BLOCK_SIZE_BYTES;
    let missed = [(first, first + 1)];
    std::thread::scope(|scope| {
        let alone = group.change.write(Unshown);
        let writer = scope.spawn(|| group.note_missed(&file, &missed, &[number]));
        // It waits for its turn by now; if not, this test shows less.
        std::thread::sleep(Duration::from_millis(200));
        let held = group.held_epochs();
        let returning = group.membership.judge_return(&[away], &held).unwrap();
        group.disks.set_slot(number, away);
        let coming = group.dirty.begin_resync();
        assert_eq!(group.membership.return_disks(&returning).unwrap(), [number]);
        drop(coming);
        assert!((group.dirty).end_resync(&|disk| group.disks.is_online(disk), &|| {}));
        group.membership.caught_up(number);
        drop(alone);
        writer.join().unwrap();
    });
    assert!(
        group.dirty.is_resyncing(),
        "a reader takes what the disk lacks"
    );
    assert_eq!(group.membership.catching_up(), [number]);
    resync(&group);
    assert_has_it(&group, &file, &data, at, "it is copied again");
    data[usize::try_from(at).unwrap()] ^= 1;
    group
        .write(&file, at, &data[usize::try_from(at).unwrap()..][..4096])
        .unwrap();
    group.sync().unwrap();
    assert_sound(&group);
}

/// The one disk takes a write, goes and comes back without it, and the other one does not take it. What
/// was there before is on no disk as it was, and one that has it as well as any counts.
#[test]
fn a_write_that_one_disk_lost_and_the_other_did_not_take_leaves_a_copy_that_counts() {
    for blocks in [1, 3] {
        let scene = Scene::new(9, Redundancy::Normal, FIVE);
        let group = scene.open();
        let (file, data, at, [first, second]) = quiet_file(&group);
        let new = pattern(5, blocks * 4096);
        let place = block_on(&group, &file, second, at);
        scene.disks.set_deadline(Duration::from_secs(60));
        (scene.disks).hang(second, FaultyOperation::Write, place.clone());
        std::thread::scope(|within| {
            let writer = within.spawn(|| group.write(&file, at, &new));
            // It waits for the disk by now; if not, this test shows less.
            std::thread::sleep(Duration::from_millis(300));
            scene.disks.vanish(first);
            take_offline(&group, first);
            scene.disks.bring_back(first);
            assert_eq!(group.return_disks(&[first]).unwrap().len(), 1);
            let medium = DeviceErrorKind::Medium;
            (scene.disks).fail(second, FaultyOperation::Write, place, 1, medium);
            scene.disks.release(second);
            writer.join().unwrap().unwrap_err();
        });
        if !group.disks.is_online(DiskNumber(second.0)) {
            group.return_disks(&[second]).unwrap();
        }
        resync(&group);
        let at = usize::try_from(at).unwrap();
        let found = read(&group, &file, 0, data.len());
        assert!(found[..at] == data[..at] && found[at + new.len()..] == data[at + new.len()..]);
        for block in 0..blocks {
            let own = block * 4096..(block + 1) * 4096;
            assert_is_of(
                &found[at..][own.clone()],
                &data[at..][own.clone()],
                &new[own],
            );
        }
        assert_sound(&group);
    }
}

/// The only disk that is written to does not take the write; the other one, which was away, comes back
/// while that is under way. It has what was there before, and counts for no copy of the write.
#[test]
fn a_disk_that_comes_back_during_a_write_is_no_copy_of_what_the_other_one_did_not_take() {
    let scene = Scene::new(4, Redundancy::Normal, FIVE);
    let group = scene.open();
    let (file, data, at, [first, away]) = quiet_file(&group);
    take_offline(&group, away);
    let place = block_on(&group, &file, first, at);
    scene.disks.set_deadline(Duration::from_secs(60));
    scene
        .disks
        .hang(first, FaultyOperation::Write, place.clone());
    let answer = std::thread::scope(|scope| {
        let writer = scope.spawn(|| group.write(&file, at, &pattern(5, 4096)));
        // It waits for the disk by now; if not, this test shows less.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(group.return_disks(&[away]).unwrap(), [DiskNumber(away.0)]);
        let medium = DeviceErrorKind::Medium;
        (scene.disks).fail(first, FaultyOperation::Write, place, 1, medium);
        scene.disks.release(first);
        writer.join().unwrap()
    });
    answer.expect_err("no disk took it");
    resync(&group);
    assert!(
        group.disks.is_online(DiskNumber(first.0)),
        "it has the only copy"
    );
    let found = read(&group, &file, at, 16 << 10);
    let data = &data[usize::try_from(at).unwrap()..][..16 << 10];
    assert_is_of(&found[..4096], &data[..4096], &pattern(5, 4096));
    assert!(found[4096..] == data[4096..]);
    assert_sound(&group);
}

/// Each of the two disks could be done without, and not both.
#[test]
fn two_disks_that_fail_blocks_of_one_write_do_not_both_go_where_the_group_would_stop() {
    let scene = Scene::new(12, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let (file, ..) = quiet_file(&group);
    let mut extents = group.map(&file);
    extents.retain(|extent| extent.initialised_bytes >= 16 << 10);
    extents.sort_by_key(|extent| extent.offset_bytes);
    let disks_of = |index: usize| extents[index].copies.iter().flatten().map(|copy| copy.0.0);
    let apart = (0..extents.len() - 1)
        .find(|index| disks_of(*index).any(|disk| !disks_of(index + 1).any(|next| next == disk)));
    let index = apart.expect("neighbours that share one disk");
    let boundary = extents[index + 1].offset_bytes;
    for (own, other) in [(index, index + 1), (index + 1, index)] {
        let alone = disks_of(own).find(|disk| !disks_of(other).any(|next| next == *disk));
        let slot = DiskSlot(alone.unwrap());
        let start = block_on(&group, &file, slot, extents[own].offset_bytes).start;
        scene.disks.fail_writes(slot, start..start + (1 << 20), 1);
    }
    let new = pattern(5, 16_384);
    group.write(&file, boundary - 8192, &new).unwrap();
    group.sync_file(&file, true).unwrap();
    assert_eq!(group.view().offline_disks_count, 1);
    assert!(read(&group, &file, boundary - 8192, new.len()) == new);
    resync(&group);
    assert_sound(&group);
}

/// Of three copies the first one fails a block and serves on, because the two others lack something; these
/// go while that is settled. The first one has what was there before, and is no copy of the write.
#[test]
fn a_disk_that_serves_on_is_no_copy_of_what_it_did_not_take() {
    let scene = Scene::new(13, Redundancy::High, FIVE);
    let group = scene.open();
    let file = create(&group, 10, HIGH);
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let extents = group.map(&file);
    let disks_of = |index: usize| -> Vec<u16> {
        extents[index]
            .copies
            .iter()
            .flatten()
            .map(|copy| copy.0.0)
            .collect()
    };
    // Another extent on the two, where they miss something.
    let pairs =
        (0..extents.len()).flat_map(|own| (0..extents.len()).map(move |other| (own, other)));
    let (own, other) = pairs
        .filter(|(own, other)| own != other)
        .find(|(own, other)| {
            disks_of(*own)[1..]
                .iter()
                .all(|disk| disks_of(*other).contains(disk))
        })
        .expect("one of so many");
    let [first, second, third] = [0, 1, 2].map(|copy| DiskSlot(disks_of(own)[copy]));
    for (round, away) in [second, third].into_iter().enumerate() {
        take_offline(&group, away);
        let at = extents[other].offset_bytes + round as u64 * 8192;
        group.write(&file, at, &pattern(7, 4096)).unwrap();
        group.sync().unwrap();
        assert_eq!(group.return_disks(&[away]).unwrap().len(), 1);
    }
    let at = extents[own].offset_bytes;
    let place = |slot| block_on(&group, &file, slot, at);
    let gone = DeviceErrorKind::Gone;
    scene.disks.fail_writes(first, place(first), 1);
    (scene.disks).fail(second, FaultyOperation::Write, place(second), 1, gone);
    // It does not take the state that says so either.
    let states = 128 << 10..384 << 10;
    (scene.disks).fail(third, FaultyOperation::Write, states, u64::MAX, gone);
    let written = group.write(&file, at, &pattern(5, 4096));
    let synced = group.sync_file(&file, false);
    let begin = usize::try_from(at).unwrap();
    let is_old = read(&group, &file, at, 4096) == data[begin..begin + 4096];
    assert!(
        written.is_err() || synced.is_err() || !is_old,
        "an answered and synced write is on no disk"
    );
    written.unwrap_err();
}

/// Behind marks that went back lie blocks that it does not hold, and what it read of its own block to
/// keep the rest of it is from before.
#[test]
fn a_write_that_was_prepared_by_marks_that_went_back_since_is_prepared_anew() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    let slot = DiskSlot(group.map(&file)[0].copies[0].unwrap().0.0);
    let new = pattern(2, 4096);
    let mut attempts = Vec::new();
    let answer = group.write_range(&file, 200, 201, |core, intent, announced| {
        if attempts.is_empty() {
            // It has looked, and holds its range. What it relied on is lost, and is told.
            let lose = || {
                scene.disks.vanish(slot);
                take_offline(&group, slot);
                scene.disks.bring_back(slot);
                group.return_disks(&[slot]).unwrap();
                group.sync_file(&file, false).unwrap_err();
            };
            std::thread::scope(|scope| scope.spawn(lose).join().unwrap());
        }
        let payload = Payload::Data((&new[..]).into());
        let attempt = core.write_blocks(&file, (200, 201), payload, intent, announced);
        attempts.extend(attempt.as_ref().ok().copied());
        attempt
    });
    answer.unwrap();
    assert_eq!(attempts, [Attempt::Outdated, Attempt::Written]);
    group.sync_file(&file, false).unwrap();
    assert!(read(&group, &file, 200 * BLOCK_SIZE_BYTES, 4096) == new);
}
