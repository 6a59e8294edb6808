//! Takeovers of what a process left that was killed within a change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{Edit, KeptJournal, Table, file_key};
use spindle_device::{
    AlignedBuffer, DeviceErrorKind, DiskSlot, Disks, FaultyOperation, Request, SharedMemory, Work,
};
use spindle_format::{FileRecord, OPENER_BYTES, OPENER_PLACE};

use super::Unflushed;
use crate::core::takeover;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, create, opener, pattern, read, resync,
};
use crate::{Group, Moment};

const LENGTH: usize = 64 << 10;
/// The disk that goes.
const DISK: DiskNumber = DiskNumber(1);

fn open_kept(scene: &Scene, journal: &KeptJournal) -> Group {
    let group = take_over(scene, journal);
    group.begin_journal().unwrap();
    group
}

/// The same, not to its end: nothing of the journal is taken yet.
fn take_over(scene: &Scene, journal: &KeptJournal) -> Group {
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    let journal = KeptJournal::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap();
    let slots: Vec<DiskSlot> = (0..u16::try_from(scene.disks.disk_count()).unwrap())
        .map(DiskSlot)
        .collect();
    Group::open_kept(
        Arc::clone(&scene.disks) as Arc<dyn Disks>,
        &slots,
        &scene.name,
        &opener(),
        &|_| false,
        Some(Arc::new(journal)),
    )
    .unwrap()
}

#[test]
fn what_was_written_within_a_first_change_of_redundancy_is_there_though_a_kill_cuts_the_change_off()
{
    for (seed, before, after) in [
        (1, EXTERNAL, Redundancy::Normal),
        (2, NORMAL, Redundancy::External),
    ] {
        let scene = Scene::mirrored(seed);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        let old = create(&group, 10, before);
        group.write(&old, 0, &pattern(10, LENGTH)).unwrap();
        let empty = create(&group, 11, before);
        group.sync().unwrap();
        // Its thread holds the change for good.
        let convert = || {
            let change = group.change();
            for file in [&old, &empty] {
                let mut map = file.map.write(&change);
                map.set_wanted(after.copies());
                file.follow(&map);
                let record = FileRecord {
                    redundancy: after,
                    striping: file.striping,
                    rows_vary: true,
                };
                let mut edit = Edit::default();
                edit.put(Table::File, file_key(file.id), record.encode());
                group.apply(&change, edit);
            }
            std::mem::forget(change);
        };
        let write = || {
            let behind = LENGTH as u64;
            group.write(&old, behind, &pattern(11, 4 << 20)).unwrap();
            group.write(&empty, 0, &pattern(12, LENGTH)).unwrap();
        };
        // The maps are free then, and the change has not ended.
        thread::scope(|scope| scope.spawn(convert).join().unwrap());
        thread::scope(|scope| scope.spawn(write).join().unwrap());
        std::mem::forget((group, old, empty));
        for _ in 0..2 {
            let group = open_kept(&scene, &journal);
            assert_eq!(group.check().unwrap(), Vec::<String>::new());
            let [old, empty] = [10, 11].map(|id| group.file(FileId(id)).unwrap());
            assert_eq!(old.layout().redundancy, before.redundancy, "it was cut off");
            let all = [pattern(10, LENGTH), pattern(11, 4 << 20)].concat();
            assert!(read(&group, &old, 0, all.len()) == all);
            assert!(read(&group, &empty, 0, LENGTH) == pattern(12, LENGTH));
            std::mem::forget((group, old, empty));
        }
        let group = open_kept(&scene, &journal);
        let [old, empty] = [10, 11].map(|id| group.file(FileId(id)).unwrap());
        let wanted = [(old.id, Redundancy::Normal), (empty.id, Redundancy::Normal)];
        group.convert_files(&wanted).unwrap();
        resync(&group);
        for file in [&old, &empty] {
            let is_whole = |extent: &crate::ExtentView| extent.copies.iter().flatten().count() == 2;
            assert!(group.map(file).iter().all(is_whole));
            assert_copies_equal(&scene, &group, file, "after it");
        }
        group.close().unwrap();
    }
}

/// A group of which a disk was away, long enough for that to be noted, and a file that lies there
/// alone. The disk is back by what `give_back` does, and gets bytes that no flush covers.
fn killed_after_a_return(give_back: impl Fn(&Group)) -> (Scene, KeptJournal, FileId) {
    let scene = Scene::new(3, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let files: Vec<_> = (10..20).map(|id| create(&group, id, EXTERNAL)).collect();
    for file in &files {
        group.write(file, 8 << 20, &pattern(1, LENGTH)).unwrap();
    }
    group.sync().unwrap();
    let mut there = files.iter().filter(|file| {
        let (disk, _) = group.map(file)[0].copies[0].unwrap();
        disk == DISK
    });
    let file = Arc::clone(there.next().unwrap());
    scene.disks.vanish(DiskSlot(DISK.0));
    group.take_offline(&[DISK], "it is gone").unwrap();
    group.note_away();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(DISK.0));
    give_back(&group);
    group.write(&file, 8 << 20, &pattern(2, LENGTH)).unwrap();
    let id = file.id;
    std::mem::forget((group, files, file));
    (scene, journal, id)
}

#[test]
fn what_was_only_copied_to_a_disk_is_missing_there_if_it_loses_that_beside_a_kill() {
    let scene = Scene::mirrored(5);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    let length = 8 << 20;
    group.write(&file, 0, &pattern(1, length)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let slot = DiskSlot(DISK.0);
    group.take_offline(&[DISK], "it failed").unwrap();
    let new = pattern(2, length);
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    // Until the rows are closed, and list the blocks.
    resync(&group);
    group.return_disks(&[slot]).unwrap();
    while group.resync_unit(1 << 20).unwrap().is_some() {}
    // As a move of an extent does it. No flush has covered what was copied.
    group.name_only_stale(&file);
    let id = file.id;
    std::mem::forget((group, file));
    scene.disks.vanish(slot);
    scene.disks.bring_back(slot);
    let group = open_kept(&scene, &journal);
    let file = group.file(id).unwrap();
    // The flush that it failed took it offline.
    group.return_disks(&[slot]).unwrap();
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the takeover");
    assert!(read(&group, &file, 0, length) == new);
}

#[test]
fn a_disk_that_goes_again_before_its_return_is_noted_counts_as_gone() {
    let whole = |group: &Group| {
        assert_eq!(group.return_disks(&[DiskSlot(DISK.0)]).unwrap(), [DISK]);
    };
    // As far as it comes before the row of the outage goes.
    let cut_off = |group: &Group| {
        let held = group.held_epochs();
        let slots = [DiskSlot(DISK.0)];
        let returning = group.membership.judge_return(&slots, &held).unwrap();
        group.notice_offline();
        group.commit_everything().unwrap();
        group.region.forget_offline();
        group.membership.return_disks(&returning).unwrap();
    };
    for give_back in [&whole as &dyn Fn(&Group), &cut_off] {
        let (scene, journal, id) = killed_after_a_return(give_back);
        scene.disks.vanish(DiskSlot(DISK.0));
        let group = open_kept(&scene, &journal);
        let file = group.file(id).unwrap();
        group.sync_file(&file, false).unwrap_err();
        group.sync_file(&file, false).unwrap();
        // Since when it is away now is noted anew, and is no news to the next one.
        assert!(group.away(DISK).is_none());
        group.note_away();
        assert!(group.away(DISK).is_some());
        group.make_durable().unwrap();
        std::mem::forget((group, file));
        let group = open_kept(&scene, &journal);
        let file = group.file(id).unwrap();
        group.sync_file(&file, false).unwrap();
    }
}

#[test]
fn a_copy_of_which_the_journal_alone_says_that_it_is_stale_is_no_other_copy() {
    let scene = Scene::mirrored(4);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    // As by a write that met the disk away, and hears of its return afterwards.
    {
        let _change = group.change_inside();
        let apply = &mut |edit| group.catalog.apply(edit);
        (group.dirty).missed_by(&file, &[(0, 16)], &[DISK], apply);
    }
    std::mem::forget((group, file));
    scene.disks.fail_flushes(DiskSlot(0), 1);
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    group.sync_file(&file, false).unwrap_err();
    group.sync_file(&file, false).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == pattern(1, LENGTH));
}

/// An error that a sync told is owed to whoever takes over, until that sync was answered.
fn is_owed_until_answered(scene: &Scene, journal: &KeptJournal, group: Group, id: FileId) {
    let file = group.file(id).unwrap();
    let told = group.sync_file(&file, false).unwrap_err();
    // Of another program, while the first one has no answer yet.
    group.sync_file(&file, false).unwrap();
    std::mem::forget((group, file));
    let group = open_kept(scene, journal);
    let file = group.file(id).unwrap();
    let told_again = group.sync_file(&file, false).unwrap_err();
    drop((told, told_again));
    group.sync_file(&file, false).unwrap();
    std::mem::forget((group, file));
    let group = open_kept(scene, journal);
    let file = group.file(id).unwrap();
    group.sync_file(&file, false).unwrap();
}

#[test]
fn an_error_is_owed_until_the_sync_that_told_it_was_answered() {
    let scene = Scene::mirrored(5);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.sync().unwrap();
    group.owe(&file, "block 7 is lost");
    drop(file);
    is_owed_until_answered(&scene, &journal, group, FileId(10));
}

#[test]
fn an_error_that_files_owe_together_is_owed_until_the_sync_that_told_it_was_answered() {
    let scene = Scene::new(6, Redundancy::External, &[(0, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    std::mem::forget((group, file));
    scene.disks.vanish(DiskSlot(0));
    scene.disks.bring_back(DiskSlot(0));
    let group = open_kept(&scene, &journal);
    is_owed_until_answered(&scene, &journal, group, FileId(10));
}

/// A mirrored file of which one copy is stale, since its disk was away, and the good one lies on a
/// disk that goes with a write that no flush had covered: long enough for that to be no news to the
/// next process.
fn killed_with_the_good_copy_gone(scene: &Scene, journal: &KeptJournal, is_back: bool) -> Group {
    let group = open_kept(scene, journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let [first, second] = [0, 1].map(|copy| group.map(&file)[0].copies[copy].unwrap().0);
    scene.disks.vanish(DiskSlot(first.0));
    group.take_offline(&[first], "it is gone").unwrap();
    group.write(&file, 32 << 10, &pattern(2, 4096)).unwrap();
    group.sync().unwrap();
    if is_back {
        scene.disks.bring_back(DiskSlot(first.0));
        group.return_disks(&[DiskSlot(first.0)]).unwrap();
    }
    group.write(&file, 0, &pattern(3, 4096)).unwrap();
    scene.disks.vanish(DiskSlot(second.0));
    group.take_offline(&[second], "it is gone").unwrap();
    group.note_away();
    group.make_durable().unwrap();
    group
}

#[test]
fn an_error_that_a_sync_finds_itself_is_owed_until_it_was_answered() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = killed_with_the_good_copy_gone(&scene, &journal, true);
    is_owed_until_answered(&scene, &journal, group, FileId(10));
}

#[test]
fn what_went_with_the_good_copy_is_owed_though_the_daemon_is_killed_before_a_sync_asks() {
    for is_back in [true, false] {
        let scene = Scene::new(8, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let journal = KeptJournal::create().unwrap();
        let group = killed_with_the_good_copy_gone(&scene, &journal, is_back);
        std::mem::forget(group);
        let group = open_kept(&scene, &journal);
        is_owed_until_answered(&scene, &journal, group, FileId(10));
    }
}

#[test]
fn a_write_that_is_counted_when_its_disk_was_noted_as_gone_is_owed_though_the_daemon_is_killed() {
    let scene = Scene::new(10, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let [(first, at), (second, _)] = [0, 1].map(|copy| group.map(&file)[0].copies[copy].unwrap());
    scene.disks.vanish(DiskSlot(first.0));
    group.take_offline(&[first], "it is gone").unwrap();
    group.write(&file, 32 << 10, &pattern(2, 4096)).unwrap();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(first.0));
    group.return_disks(&[DiskSlot(first.0)]).unwrap();
    group.sync().unwrap();
    let place = at..at + 4096;
    scene.disks.set_deadline(Duration::from_secs(60));
    (scene.disks).hang(DiskSlot(first.0), FaultyOperation::Write, place);
    thread::scope(|scope| {
        let writer = scope.spawn(|| group.write(&file, 0, &pattern(3, 4096)));
        let begun = Instant::now();
        while scene.disks.unsynced_count(DiskSlot(second.0)) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it gets there");
            thread::yield_now();
        }
        scene.disks.vanish(DiskSlot(second.0));
        group.take_offline(&[second], "it is gone").unwrap();
        scene.disks.release(DiskSlot(first.0));
        writer.join().unwrap().unwrap();
    });
    group.note_away();
    group.make_durable().unwrap();
    drop(file);
    std::mem::forget(group);
    let group = open_kept(&scene, &journal);
    is_owed_until_answered(&scene, &journal, group, FileId(10));
}

#[test]
fn nothing_is_owed_where_the_good_copy_that_went_had_been_flushed() {
    let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let [first, second] = [0, 1].map(|copy| group.map(&file)[0].copies[copy].unwrap().0);
    scene.disks.vanish(DiskSlot(first.0));
    group.take_offline(&[first], "it is gone").unwrap();
    group.write(&file, 32 << 10, &pattern(2, 4096)).unwrap();
    group.sync_file(&file, true).unwrap();
    scene.disks.vanish(DiskSlot(second.0));
    group.take_offline(&[second], "it is gone").unwrap();
    group.note_away();
    group.make_durable().unwrap();
    std::mem::forget((group, file));
    let group = open_kept(&scene, &journal);
    group
        .sync_file(&group.file(FileId(10)).unwrap(), true)
        .unwrap();
}

#[test]
fn what_a_disk_lost_by_a_failed_flush_that_it_outlived_is_owed_though_the_daemon_is_killed() {
    let scene = Scene::mirrored(10);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let [file, other] = [10, 11].map(|id| create(&group, id, NORMAL));
    for file in [&file, &other] {
        group.write(file, 0, &pattern(1, LENGTH)).unwrap();
    }
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(DISK.0));
    group.take_offline(&[DISK], "it is gone").unwrap();
    group.note_away();
    group.sync().unwrap();
    for file in [&file, &other] {
        group.write(file, 0, &pattern(2, 4096)).unwrap();
    }
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    group.sync_file(&other, false).unwrap_err();
    std::mem::forget((group, file, other));
    let group = open_kept(&scene, &journal);
    is_owed_until_answered(&scene, &journal, group, FileId(10));
}

/// Where extents are large.
const AT: u64 = 8 << 20;

/// A group of high redundancy, of which two disks may be away, and a mirrored file on just these two;
/// what was synced of it, its number and the disks.
fn mirrored_on_two_that_may_go(
    scene: &Scene,
    journal: &KeptJournal,
) -> (Group, FileId, [DiskNumber; 2]) {
    let group = open_kept(scene, journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, AT, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let disks = [0, 1].map(|copy| group.map(&file)[0].copies[copy].unwrap().0);
    (group, FileId(10), disks)
}

fn five_of_high_redundancy(seed: u64) -> Scene {
    let disks: Vec<(u8, u64)> = (0..5).map(|number| (number, 64)).collect();
    Scene::new(seed, Redundancy::High, &disks)
}

#[test]
fn of_copies_that_are_all_away_at_an_opening_one_counts_when_they_are_back() {
    for is_killed in [false, true] {
        let scene = five_of_high_redundancy(11);
        let journal = KeptJournal::create().unwrap();
        let (group, id, disks) = mirrored_on_two_that_may_go(&scene, &journal);
        // Its region is open.
        let file = group.file(id).unwrap();
        group.write(&file, AT, &pattern(2, 4096)).unwrap();
        group.sync().unwrap();
        drop(file);
        if is_killed {
            std::mem::forget(group);
        } else {
            drop(group);
            scene.crash();
        }
        for disk in disks {
            scene.disks.vanish(DiskSlot(disk.0));
        }
        let group = match is_killed {
            true => open_kept(&scene, &journal),
            false => scene.open(),
        };
        for disk in disks {
            scene.disks.bring_back(DiskSlot(disk.0));
            group.return_disks(&[DiskSlot(disk.0)]).unwrap();
        }
        resync(&group);
        let file = group.file(id).unwrap();
        let found = read(&group, &file, AT, LENGTH);
        assert!(found[4096..] == pattern(1, LENGTH)[4096..], "{is_killed}");
        assert!(found[..4096] == pattern(2, 4096), "{is_killed}");
        assert_copies_equal(&scene, &group, &file, "with both back");
    }
}

/// One dies, then the other one goes for a moment, and nothing was committed since when the power fails.
#[test]
fn of_two_disks_that_are_away_at_an_opening_the_one_that_went_last_has_what_was_synced() {
    for dead in [0, 1] {
        let scene = five_of_high_redundancy(14);
        let journal = KeptJournal::create().unwrap();
        let (group, id, disks) = mirrored_on_two_that_may_go(&scene, &journal);
        let file = group.file(id).unwrap();
        group.write(&file, AT, &pattern(2, 4096)).unwrap();
        group.sync().unwrap();
        for disk in [disks[dead], disks[1 - dead]] {
            scene.disks.vanish(DiskSlot(disk.0));
            group.take_offline(&[disk], "it is gone").unwrap();
        }
        drop((file, group));
        scene.crash();
        let group = scene.open();
        let back = DiskSlot(disks[1 - dead].0);
        scene.disks.bring_back(back);
        group.return_disks(&[back]).unwrap();
        let file = group.file(id).unwrap();
        let found = read(&group, &file, AT, LENGTH);
        assert!(found[4096..] == pattern(1, LENGTH)[4096..], "{dead}");
        assert!(found[..4096] == pattern(2, 4096), "{dead}");
    }
}

#[test]
fn what_was_synced_to_a_disk_while_its_partner_was_away_is_there_when_both_were() {
    let scene = five_of_high_redundancy(12);
    let journal = KeptJournal::create().unwrap();
    let (group, id, [first, second]) = mirrored_on_two_that_may_go(&scene, &journal);
    let file = group.file(id).unwrap();
    scene.disks.vanish(DiskSlot(first.0));
    group.take_offline(&[first], "it is gone").unwrap();
    group.write(&file, AT, &pattern(2, 4096)).unwrap();
    group.sync().unwrap();
    // Beyond what is durable, so that the disk may hold anything there.
    let grown = AT + LENGTH as u64 + 4096;
    group.write(&file, grown, &pattern(3, 4096)).unwrap();
    scene.disks.vanish(DiskSlot(second.0));
    group.take_offline(&[second], "it is gone").unwrap();
    group.sync_file(&file, true).unwrap_err();
    for disk in [second, first] {
        scene.disks.bring_back(DiskSlot(disk.0));
        group.return_disks(&[DiskSlot(disk.0)]).unwrap();
        if disk == second {
            assert!(read(&group, &file, AT, 4096) == pattern(2, 4096));
            let mut found = vec![0; 4096];
            assert!(group.read(&file, grown, &mut found).is_err(), "it is lost");
        }
    }
    resync(&group);
    assert!(read(&group, &file, AT, 4096) == pattern(2, 4096));
    let rest = pattern(1, LENGTH);
    assert!(read(&group, &file, AT + 4096, LENGTH - 4096) == rest[4096..]);
}

#[test]
fn a_disk_that_goes_beside_a_write_lacks_it_where_the_other_copy_was_stale_until_then() {
    let scene = five_of_high_redundancy(13);
    let journal = KeptJournal::create().unwrap();
    let (group, id, [first, second]) = mirrored_on_two_that_may_go(&scene, &journal);
    let file = group.file(id).unwrap();
    scene.disks.vanish(DiskSlot(first.0));
    group.take_offline(&[first], "it is gone").unwrap();
    group.write(&file, AT, &pattern(2, 4096)).unwrap();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(first.0));
    group.return_disks(&[DiskSlot(first.0)]).unwrap();
    group.sync().unwrap();
    let (_, at) = group.map(&file)[0].copies[0].unwrap();
    scene.disks.set_deadline(Duration::from_secs(60));
    (scene.disks).hang(DiskSlot(first.0), FaultyOperation::Write, at..at + 4096);
    thread::scope(|scope| {
        let writer = scope.spawn(|| group.write(&file, AT, &pattern(3, 4096)));
        let begun = Instant::now();
        while scene.disks.unsynced_count(DiskSlot(second.0)) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it gets there");
            thread::yield_now();
        }
        scene.disks.vanish(DiskSlot(second.0));
        group.take_offline(&[second], "it is gone").unwrap();
        scene.disks.release(DiskSlot(first.0));
        writer.join().unwrap().unwrap();
    });
    scene.disks.bring_back(DiskSlot(second.0));
    group.return_disks(&[DiskSlot(second.0)]).unwrap();
    for _ in 0..8 {
        assert!(read(&group, &file, AT, 4096) == pattern(3, 4096));
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "with both back");
}

/// An extent was made while the other disk was away. That is back and lacks nothing of all others, and the
/// second copy is not made yet.
#[test]
fn a_disk_that_alone_has_an_extent_serves_on_at_a_takeover_though_it_failed_a_flush() {
    let scene = Scene::mirrored(15);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    group.take_offline(&[DISK], "it failed").unwrap();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    return_and_catch_up(&group);
    assert_eq!(group.map(&file)[0].copies.iter().flatten().count(), 1);
    std::mem::forget((group, file));
    scene.disks.fail_flushes(DiskSlot(0), 1);
    let group = open_kept(&scene, &journal);
    assert!(group.membership.is_online(DiskNumber(0)), "it went");
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == data);
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "with a second copy");
    assert_eq!(group.map(&file)[0].copies.iter().flatten().count(), 2);
}

/// The journal alone has the extent when the process is killed.
#[test]
fn a_disk_that_alone_has_an_extent_which_a_takeover_brought_in_is_not_given_up() {
    let scene = Scene::mirrored(16);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    group.take_offline(&[DISK], "it failed").unwrap();
    group.note_away();
    let file = create(&group, 10, NORMAL);
    group.sync().unwrap();
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    std::mem::forget((group, file));
    let group = open_kept(&scene, &journal);
    return_and_catch_up(&group);
    let goes = || (group.membership).take_offline_if_borne(&[DiskNumber(0)], "it failed");
    assert!(!goes().unwrap(), "it has the only copy");
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == data);
    resync(&group);
    assert!(goes().unwrap(), "there is another one");
    assert!(read(&group, &file, 0, LENGTH) == data);
}

/// The disk is back, and gets all that it missed of extents that it has; the restore has not begun.
fn return_and_catch_up(group: &Group) {
    assert_eq!(group.return_disks(&[DiskSlot(DISK.0)]).unwrap(), [DISK]);
    for now_ms in (0..60_000).step_by(6_000) {
        while group.resync_unit(1 << 20).unwrap().is_some() {}
        while group.step(now_ms).unwrap() {}
    }
    assert!(group.membership.catching_up().is_empty());
}

/// Nobody knows whose the group is when the disks are asked for the first flush, so none is.
#[test]
fn a_takeover_that_leaves_a_disk_out_has_a_flush_of_every_other_one() {
    let scene = five_of_high_redundancy(17);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let milliseconds = Arc::new(AtomicU64::new(0));
    let clock = {
        let milliseconds = Arc::clone(&milliseconds);
        move || {
            let now_ms = milliseconds.load(Ordering::Relaxed);
            Moment {
                awake_ms: now_ms,
                booted_ms: now_ms,
            }
        }
    };
    let apart = |work| {
        thread::spawn(work);
        Ok(())
    };
    (group.membership).watch_clock(Box::new(clock), Box::new(apart));
    for id in 10..20 {
        let file = create(&group, id, NORMAL);
        group.write(&file, AT, &pattern(id, LENGTH)).unwrap();
    }
    let others = || (0..5).map(DiskSlot).filter(|slot| slot.0 != DISK.0);
    assert!(others().all(|slot| scene.disks.unsynced_count(slot) > 0));
    journal.note_failed_flush(DISK);
    milliseconds.store(60_000, Ordering::Relaxed);
    for slot in (0..5).map(DiskSlot) {
        let records = OPENER_PLACE..OPENER_PLACE + OPENER_BYTES as u64;
        scene.disks.fail_reads(slot, records, 1);
    }
    let files = BTreeMap::new();
    let takeover = takeover::Scene {
        membership: &group.membership,
        catalog: &group.catalog,
        disks: &group.disks,
        files: &files,
        space: &group.space,
        au_size: group.membership.au_size(),
    };
    Unflushed::flush(&takeover, &journal).unwrap();
    assert!(!group.membership.is_online(DISK));
    for slot in others() {
        assert_eq!(scene.disks.unsynced_count(slot), 0, "disk {slot:?}");
    }
}

/// It serves on because the group cannot do without it beside one that is away.
#[test]
fn a_power_cut_after_a_takeover_leaves_known_what_a_disk_dropped_that_serves_on() {
    for was_written in [false, true] {
        let scene = Scene::new(18, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        let away = DiskNumber(2);
        group.take_offline(&[away], "it failed").unwrap();
        group.note_away();
        let file = create(&group, 10, NORMAL);
        if was_written {
            // The row of its region is open then.
            group.write(&file, AT, &pattern(1, LENGTH)).unwrap();
        }
        group.sync().unwrap();
        let data = pattern(2, LENGTH);
        group.write(&file, 2 * AT, &data).unwrap();
        std::mem::forget((group, file));
        scene.disks.drop_at_flushes(DiskSlot(0), 1);
        let group = take_over(&scene, &journal);
        assert!(group.membership.is_online(DiskNumber(0)));
        std::mem::forget(group);
        scene.crash();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        for _ in 0..4 {
            assert!(read(&group, &file, 2 * AT, LENGTH) == data, "{was_written}");
        }
        resync(&group);
        assert_copies_equal(&scene, &group, &file, "after the power cut");
        assert!(read(&group, &file, 2 * AT, LENGTH) == data, "{was_written}");
    }
}

/// A disk failed something beside one that has just said it is gone: nothing notes yet what it lacks when
/// the process is killed.
#[test]
fn a_disk_that_was_refused_to_go_is_known_as_unequal_by_whoever_takes_over() {
    let scene = Scene::mirrored(19);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let is_equal = || journal.standing().unwrap().all_is_equal;
    assert!(is_equal());
    let (reads, gone) = (FaultyOperation::Read, DeviceErrorKind::Gone);
    (scene.disks).fail(DiskSlot(DISK.0), reads, 0..4096, 1, gone);
    let mut page = AlignedBuffer::zeroed(4096);
    let mut batch = [Request::new(DiskSlot(DISK.0), 0, Work::Read(&mut page))];
    group.membership.run(&mut batch);
    batch[0].result.as_ref().unwrap_err();
    assert!(is_equal(), "it may have blinked");
    let goes = (group.membership).take_offline_if_borne(&[DiskNumber(0)], "it failed");
    assert!(!goes.unwrap());
    assert!(!is_equal());
}
