//! Daemons that are killed while a disk loses what no flush had covered: whoever takes over tells
//! it, and shows nothing from before.

mod blinking;
mod left_out;
mod owed;

use std::sync::{Arc, Mutex, Weak};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{Edit, Table};
use spindle_device::{
    AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Disks, Judge, Operation, Request,
    SharedMemory, SimulatedDisks, Work,
};
use spindle_group::{Attended, File, Group, GroupError, KeptJournal};

use crate::one_copy::{
    FOUR, LENGTH, assert_shows_nothing_removed, disk_of, fill_and_remove, tells_once,
};
use crate::scene::{
    EXTERNAL, MIB, NORMAL, Scene, assert_copies_equal, assert_sound, create, opener, pattern, read,
    resync,
};

/// Requests to a disk within a takeover, and more.
const REQUESTS_MOST: u64 = 80;

/// Opens it as the daemon of a mount that a keeper holds, whose memory this is.
pub fn open_kept(scene: &Scene, journal: &KeptJournal) -> Group {
    let group = take_over(scene, journal, Arc::clone(&scene.disks) as Arc<dyn Disks>).unwrap();
    group.begin_journal().unwrap();
    group
}

/// The same by way of these disks, and not to its end: nothing of the journal is taken yet.
pub fn take_over(
    scene: &Scene,
    journal: &KeptJournal,
    disks: Arc<dyn Disks>,
) -> Result<Group, GroupError> {
    take_over_of(scene, journal, disks, &slots(scene).collect::<Vec<_>>())
}

/// As [`take_over`], of these disks alone: where that is not all of them, the others hang and are left
/// out.
pub fn take_over_of(
    scene: &Scene,
    journal: &KeptJournal,
    disks: Arc<dyn Disks>,
    slots: &[DiskSlot],
) -> Result<Group, GroupError> {
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    let memory = SharedMemory::from_descriptor(memory).unwrap();
    let attended = Attended {
        journal: Some(Arc::new(KeptJournal::new(memory).unwrap())),
        former_lingers: slots.len() < scene.disks.disk_count(),
        ..Attended::default()
    };
    let nobody_lives = |_| false;
    Group::open_attended(
        disks,
        slots,
        &scene.name,
        &opener(),
        &nobody_lives,
        attended,
    )
}

/// The memory of a keeper as it is now.
pub fn copy_of(memory: &SharedMemory) -> KeptJournal {
    let words = memory.words();
    let copy = SharedMemory::create("journal", words.len() as u64 * 8).unwrap();
    for (to, from) in copy.words().iter().zip(words) {
        let bits = from.load(std::sync::atomic::Ordering::Acquire);
        if bits != 0 {
            to.store(bits, std::sync::atomic::Ordering::Release);
        }
    }
    KeptJournal::new(copy).unwrap()
}

fn slots(scene: &Scene) -> impl Iterator<Item = DiskSlot> {
    (0..u16::try_from(scene.disks.disk_count()).unwrap()).map(DiskSlot)
}

/// A file on the disk, with bytes that no flush covered when the daemon is killed, and one that has
/// nothing there.
fn killed_with_unflushed_writes(
    scene: &Scene,
    journal: &KeptJournal,
    slot: DiskSlot,
) -> (FileId, FileId) {
    let group = open_kept(scene, journal);
    // Extents of whole AUs: small ones share theirs with those of other files.
    let at = 8 << 20;
    for id in 10..40 {
        let file = create(&group, id, EXTERNAL);
        group.write(&file, at, &pattern(id, 4096)).unwrap();
    }
    group.sync().unwrap();
    let is_there = |id: &u64| disk_of(&group, &group.file(FileId(*id)).unwrap()) == slot;
    let id = (10..40).find(is_there).unwrap();
    let other = (10..40).find(|id| !is_there(id)).unwrap();
    let file = group.file(FileId(id)).unwrap();
    group.write(&file, at, &pattern(2, 4096)).unwrap();
    std::mem::forget((group, file));
    (FileId(id), FileId(other))
}

#[test]
fn what_a_killed_daemon_had_not_flushed_is_told_where_its_disk_is_gone_at_the_takeover() {
    let scene = Scene::new(11, Redundancy::Normal, FOUR);
    let journal = KeptJournal::create().unwrap();
    let slot = DiskSlot(3);
    let (id, other) = killed_with_unflushed_writes(&scene, &journal, slot);
    scene.disks.vanish(slot);
    // The first is killed as soon as it has the group, the second before it is asked.
    for _ in 0..2 {
        let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
        std::mem::forget(take_over(&scene, &journal, disks).unwrap());
    }
    let group = open_kept(&scene, &journal);
    tells_once(&group, &group.file(id).unwrap());
    let other = group.file(other).unwrap();
    group.sync_file(&other, true).unwrap();
    // Since when it is away is noted: it is no news to the next one.
    for now_ms in [0, 6_000] {
        while group.step(now_ms).unwrap() {}
    }
    std::mem::forget((group, other));
    let group = open_kept(&scene, &journal);
    group.sync_file(&group.file(id).unwrap(), true).unwrap();
}

#[test]
fn a_disk_that_was_away_for_a_moment_when_the_daemon_was_killed_counts_as_one_that_failed_a_flush()
{
    let scene = Scene::new(23, Redundancy::Normal, FOUR);
    let journal = KeptJournal::create().unwrap();
    let slot = DiskSlot(3);
    let (id, other) = killed_with_unflushed_writes(&scene, &journal, slot);
    scene.disks.vanish(slot);
    scene.disks.bring_back(slot);
    let group = open_kept(&scene, &journal);
    let standing = |group: &Group| group.view().disks[usize::from(slot.0)].mode.clone();
    assert_eq!(standing(&group), "offline");
    tells_once(&group, &group.file(id).unwrap());
    group.sync_file(&group.file(other).unwrap(), true).unwrap();
    group.return_disks(&[slot]).unwrap();
    resync(&group);
    // What comes now is known by its new appearance.
    let mirrored = create(&group, 50, NORMAL);
    group.write(&mirrored, 0, &pattern(3, 64 << 10)).unwrap();
    std::mem::forget((group, mirrored));
    let group = open_kept(&scene, &journal);
    assert_eq!(standing(&group), "online");
    // First writes, which no record of the journal names.
    let mirrored = create(&group, 51, NORMAL);
    group.write(&mirrored, 0, &pattern(4, 16 << 20)).unwrap();
    std::mem::forget((group, mirrored));
    scene.disks.vanish(slot);
    scene.disks.bring_back(slot);
    let group = open_kept(&scene, &journal);
    group.return_disks(&[slot]).unwrap();
    resync(&group);
    let mirrored = group.file(FileId(51)).unwrap();
    assert_copies_equal(&scene, &group, &mirrored, "after the return");
    assert_sound(&group);
}

#[test]
fn a_copy_that_is_stale_is_no_other_copy_at_a_takeover() {
    let scene = Scene::new(14, Redundancy::Normal, FOUR);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    // One that has no replica of the catalog, so that nobody else asks it for a flush.
    let slot = DiskSlot(3);
    let mut pair = None;
    for id in 10..40 {
        let file = create(&group, id, NORMAL);
        group.write(&file, 8 * MIB, &pattern(1, 64 << 10)).unwrap();
        let copies = group.map(&file)[0].copies.clone();
        let disks: Vec<DiskNumber> = copies.iter().flatten().map(|(disk, _)| *disk).collect();
        let other = disks.iter().find(|disk| disk.0 != slot.0);
        if disks.contains(&DiskNumber(slot.0)) && pair.is_none() {
            pair = Some((id, *other.unwrap()));
        }
    }
    let (id, other) = pair.unwrap();
    let file = group.file(FileId(id)).unwrap();
    group.sync().unwrap();
    group.offline_disks(&[other]).unwrap();
    group.write(&file, 8 * MIB, &pattern(2, 64 << 10)).unwrap();
    group.sync().unwrap();
    for now_ms in [0, 6_000] {
        while group.step(now_ms).unwrap() {}
    }
    group.return_disks(&[DiskSlot(other.0)]).unwrap();
    // Of the same region, in space that is there; nobody has copied what the other disk missed.
    group.write(&file, 8 * MIB, &pattern(3, 4096)).unwrap();
    std::mem::forget((group, file));
    scene.disks.fail_flushes(slot, 1);
    let group = open_kept(&scene, &journal);
    assert_all_serve(&group);
    let file = group.file(FileId(id)).unwrap();
    tells_once(&group, &file);
    let mut wanted = pattern(2, 64 << 10);
    wanted[..4096].copy_from_slice(&pattern(3, 4096));
    assert!(read(&group, &file, 8 * MIB, wanted.len()) == wanted);
}

#[test]
fn a_copy_that_is_stale_elsewhere_in_its_region_is_another_copy_at_a_takeover() {
    let scene = Scene::new(20, Redundancy::Normal, FOUR);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let slot = DiskSlot(3);
    let file = create(&group, 10, NORMAL);
    let length = 24 * MIB;
    let data = pattern(1, usize::try_from(length).unwrap());
    group.write(&file, 8 * MIB, &data).unwrap();
    group.sync().unwrap();
    let has = |copies: &[Option<(DiskNumber, u64)>], slot: DiskSlot| {
        (copies.iter().flatten()).any(|(disk, _)| disk.0 == slot.0)
    };
    // A disk that has an extent beside the one that will be gone, and one without it.
    let map = group.map(&file);
    let (other, at) = (0..3)
        .map(DiskSlot)
        .filter(|other| {
            map.iter()
                .any(|extent| has(&extent.copies, slot) && has(&extent.copies, *other))
        })
        .find_map(|other| {
            let alone = |extent: &&spindle_group::ExtentView| {
                has(&extent.copies, other) && !has(&extent.copies, slot)
            };
            Some((other, map.iter().find(alone)?.offset_bytes))
        })
        .unwrap();
    group.offline_disks(&[DiskNumber(other.0)]).unwrap();
    group.write(&file, at, &pattern(2, 4096)).unwrap();
    // Until the region is quiet and its row says which blocks.
    for round in 0..8 {
        while group.step(round * 6_000).unwrap() {}
    }
    group.return_disks(&[other]).unwrap();
    std::mem::forget((group, file));
    scene.disks.fail_flushes(slot, 1);
    let group = open_kept(&scene, &journal);
    assert_all_serve(&group);
    let file = group.file(FileId(10)).unwrap();
    group.sync_file(&file, true).unwrap();
    let from = usize::try_from(at - 8 * MIB).unwrap();
    let mut wanted = data;
    wanted[from..from + 4096].copy_from_slice(&pattern(2, 4096));
    assert!(read(&group, &file, 8 * MIB, wanted.len()) == wanted);
}

#[test]
fn what_a_killed_daemon_had_not_flushed_shows_nothing_of_an_earlier_file() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        fill_and_remove(&group, FileId(10));
        let file = create(&group, 11, EXTERNAL);
        group.write(&file, 0, &pattern(seed, LENGTH)).unwrap();
        let slot = disk_of(&group, &file);
        std::mem::forget((group, file));
        scene.disks.vanish(slot);
        let group = open_kept(&scene, &journal);
        scene.disks.bring_back(slot);
        group.return_disks(&[slot]).unwrap();
        let file = group.file(FileId(11)).unwrap();
        let mut out = vec![0; LENGTH];
        assert!(group.read(&file, 0, &mut out).is_err(), "seed {seed}");
        tells_once(&group, &file);
        assert_shows_nothing_removed(&group, &file, &format!("seed {seed}"));
    }
}

#[test]
fn what_a_disk_dropped_that_fails_the_first_flush_shows_nothing_of_an_earlier_file() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::External, FOUR);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        fill_and_remove(&group, FileId(10));
        let file = create(&group, 11, EXTERNAL);
        group.write(&file, 0, &pattern(seed, LENGTH)).unwrap();
        let slot = disk_of(&group, &file);
        std::mem::forget((group, file));
        scene.disks.drop_at_flushes(slot, 1);
        let group = open_kept(&scene, &journal);
        let file = group.file(FileId(11)).unwrap();
        let mut out = vec![0; LENGTH];
        assert!(group.read(&file, 0, &mut out).is_err(), "seed {seed}");
        tells_once(&group, &file);
        assert_shows_nothing_removed(&group, &file, &format!("seed {seed}"));
    }
}

#[test]
fn what_a_killed_daemon_had_not_flushed_is_told_where_its_disk_fails_the_first_flush() {
    for redundancy in [Redundancy::Normal, Redundancy::External] {
        let scene = Scene::new(12, redundancy, FOUR);
        let journal = KeptJournal::create().unwrap();
        // One that has no replica of the catalog, so that nobody else asks it for a flush.
        let slot = DiskSlot(3);
        let (id, other) = killed_with_unflushed_writes(&scene, &journal, slot);
        scene.disks.fail_flushes(slot, 1);
        let group = open_kept(&scene, &journal);
        let is_offline = group.view().disks[3].mode == "offline";
        assert_eq!(is_offline, redundancy == Redundancy::Normal);
        tells_once(&group, &group.file(id).unwrap());
        group.sync_file(&group.file(other).unwrap(), true).unwrap();
    }
}

/// A mirror of which one disk is away, long enough for that to be no news, and a file with bytes
/// that no flush covered.
fn half_a_mirror(scene: &Scene, journal: &KeptJournal) -> (Group, Arc<File>, Arc<File>) {
    let group = open_kept(scene, journal);
    let file = create(&group, 10, NORMAL);
    let other = create(&group, 11, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.write(&other, 0, &pattern(1, LENGTH)).unwrap();
    scene.disks.vanish(DiskSlot(1));
    group.sync().unwrap();
    for now_ms in [0, 6_000] {
        while group.step(now_ms).unwrap() {}
    }
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    (group, file, other)
}

/// Whoever keeps the mount begins daemons until one serves.
pub fn open_kept_at_last(scene: &Scene, journal: &KeptJournal) -> Group {
    for _ in 0..3 {
        let group = take_over(scene, journal, Arc::clone(&scene.disks) as Arc<dyn Disks>);
        if let Ok(group) = group {
            group.begin_journal().unwrap();
            return group;
        }
    }
    panic!("no daemon serves");
}

#[test]
fn a_flush_that_the_last_disk_of_a_mirror_fails_at_a_takeover_is_told() {
    let scene = Scene::mirrored(15);
    let journal = KeptJournal::create().unwrap();
    let (group, file, other) = half_a_mirror(&scene, &journal);
    std::mem::forget((group, file, other));
    scene.disks.fail_flushes(DiskSlot(0), 1);
    let group = open_kept_at_last(&scene, &journal);
    tells_once(&group, &group.file(FileId(10)).unwrap());
}

#[test]
fn a_flush_that_the_last_disk_of_a_mirror_fails_before_its_daemon_ends_is_told_by_the_next() {
    let scene = Scene::mirrored(16);
    let journal = KeptJournal::create().unwrap();
    let (group, file, other) = half_a_mirror(&scene, &journal);
    // With the row that says what the disk misses that is away, for which a commit flushes.
    group.write(&other, 0, &pattern(2, 4096)).unwrap();
    group.write(&file, 0, &pattern(2, 4096)).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    group.write(&other, 0, &pattern(2, 4096)).unwrap();
    group.sync_file(&other, false).unwrap_err();
    std::mem::forget((group, file, other));
    let group = open_kept_at_last(&scene, &journal);
    tells_once(&group, &group.file(FileId(10)).unwrap());
    group.close().unwrap();
}

/// A killed process after which two of three disks have failed a flush: the first file lies on both,
/// and the first disk has dropped what was written last; the second one lies on the first disk, where
/// the same is so, and on the third, which has all of it.
fn two_of_three_failed_a_flush(
    journal: &KeptJournal,
    old: &[u8],
    new: &[u8],
) -> (Scene, [FileId; 2]) {
    let scene = Scene::new(17, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = open_kept(&scene, journal);
    let mut found = [None, None];
    for id in 10..60 {
        let file = create(&group, id, NORMAL);
        group.write(&file, 8 * MIB, old).unwrap();
        let copies = group.map(&file)[0].copies.clone();
        let mut disks: Vec<u16> = copies.iter().flatten().map(|(disk, _)| disk.0).collect();
        disks.sort_unstable();
        match disks[..] {
            [0, 1] => found[0] = Some(id),
            [0, 2] => found[1] = Some(id),
            _ => {}
        }
    }
    let [lost, kept] = found.map(|id| FileId(id.unwrap()));
    group.sync().unwrap();
    // The regions are open then: what follows is flushed by nobody else.
    for id in [lost, kept] {
        let file = group.file(id).unwrap();
        group.write(&file, 8 * MIB, old).unwrap();
    }
    group.sync().unwrap();
    for id in [lost, kept] {
        let file = group.file(id).unwrap();
        group.write(&file, 8 * MIB, new).unwrap();
        // The first disk has dropped it when it fails its flush.
        let copies = group.map(&file)[0].copies.clone();
        let (_, at) = copies
            .into_iter()
            .flatten()
            .find(|copy| copy.0.0 == 0)
            .unwrap();
        let mut memory = AlignedBuffer::zeroed(old.len());
        memory.copy_from_slice(old);
        let mut batch = [Request::new(DiskSlot(0), at, Work::Write(&memory))];
        scene.disks.run(&mut batch);
    }
    scene.disks.fail_flushes(DiskSlot(0), 1);
    scene.disks.fail_flushes(DiskSlot(1), 1);
    group.sync().unwrap_err();
    std::mem::forget(group);
    (scene, [lost, kept])
}

#[test]
fn of_disks_that_the_group_cannot_do_without_one_that_failed_a_flush_counts_after_the_others() {
    let journal = KeptJournal::create().unwrap();
    let (old, new) = (pattern(1, 64 << 10), pattern(2, 64 << 10));
    let (scene, [lost, kept]) = two_of_three_failed_a_flush(&journal, &old, &new);
    let group = open_kept_at_last(&scene, &journal);
    let [lost, kept] = [lost, kept].map(|id| group.file(id).unwrap());
    group.sync_file(&kept, true).unwrap();
    for _ in 0..4 {
        assert!(read(&group, &kept, 8 * MIB, new.len()) == new);
    }
    tells_once(&group, &lost);
    assert_copies_equal(&scene, &group, &lost, "no copy counts more than the other");
    resync(&group);
    assert_copies_equal(&scene, &group, &kept, "the other copy counts");
    assert!(read(&group, &kept, 8 * MIB, new.len()) == new);
    assert_all_serve(&group);
}

#[test]
fn what_only_a_disk_has_that_goes_in_the_midst_of_a_takeover_is_told_as_lost_or_refused() {
    let (old, new) = (pattern(1, 64 << 10), pattern(2, 64 << 10));
    let mut went_count = 0;
    for requests in 1..=REQUESTS_MOST {
        let journal = KeptJournal::create().unwrap();
        let (scene, [_, kept]) = two_of_three_failed_a_flush(&journal, &old, &new);
        scene.disks.vanish_after(DiskSlot(2), requests);
        let group = open_kept_at_last(&scene, &journal);
        went_count += u64::from(scene.disks.is_vanished(DiskSlot(2)));
        let file = group.file(kept).unwrap();
        let is_told = group.sync_file(&file, true).is_err();
        let mut found = vec![0; new.len()];
        // It may be refused while the only disk that has it is away.
        let is_shown = group.read(&file, 8 * MIB, &mut found).is_ok();
        assert!(
            is_told || !is_shown || found == new,
            "gone at request {requests}"
        );
    }
    assert!(went_count > 0, "it goes before the takeover has ended");
}

fn assert_all_serve(group: &Group) {
    let serves = |disk: &spindle_group::DiskView| disk.mode == "online";
    assert!(group.view().disks.iter().all(serves));
}

/// Four disks in two failure groups, one after the other, so that two of one vote with one of the
/// other; files on every pair of disks, synced, of which every region has been written to lately.
fn two_by_two(seed: u64, journal: &KeptJournal) -> (Scene, Vec<FileId>) {
    let scene = Scene::new(
        seed,
        Redundancy::Normal,
        &[(0, 64), (1, 64), (0, 64), (1, 64)],
    );
    let group = open_kept(&scene, journal);
    let files: Vec<FileId> = (10..40).map(FileId).collect();
    for _ in 0..2 {
        for id in &files {
            let file = (group.file(*id)).unwrap_or_else(|| create(&group, id.0, NORMAL));
            let data = pattern(id.0, 64 << 10);
            group.write(&file, 8 * MIB, &data).unwrap();
        }
        group.sync().unwrap();
    }
    std::mem::forget(group);
    (scene, files)
}

pub fn assert_all_read(group: &Group, files: &[FileId]) {
    for id in files {
        let file = group.file(*id).unwrap();
        let data = pattern(id.0, 64 << 10);
        assert!(read(group, &file, 8 * MIB, data.len()) == data, "{id}");
    }
}

#[test]
fn of_a_group_that_lacks_a_disk_already_none_of_another_failure_group_goes_at_a_takeover() {
    for fails_before in [false, true] {
        let journal = KeptJournal::create().unwrap();
        let (scene, files) = two_by_two(22, &journal);
        let group = open_kept(&scene, &journal);
        scene.disks.vanish(DiskSlot(1));
        group.sync().unwrap();
        for now_ms in [0, 6_000] {
            while group.step(now_ms).unwrap() {}
        }
        for id in &files {
            let file = group.file(*id).unwrap();
            let data = pattern(id.0, 64 << 10);
            group.write(&file, 8 * MIB, &data).unwrap();
        }
        group.sync().unwrap();
        std::mem::forget(group);
        scene.disks.fail_flushes(DiskSlot(0), 1);
        if fails_before {
            journal.note_failed_flush(DiskNumber(0));
            scene.disks.clear_faults(DiskSlot(0));
        }
        let group = open_kept_at_last(&scene, &journal);
        let offline = |group: &Group| {
            let view = group.view();
            let away = view.disks.iter().filter(|disk| disk.mode == "offline");
            away.map(|disk| disk.number.0).collect::<Vec<u16>>()
        };
        assert_eq!(offline(&group), [1]);
        assert_all_read(&group, &files);
        assert!(group.sync().is_err(), "what only that disk has is told");
        // Killed once more before anything is quiet: what was noted then counts.
        std::mem::forget(group);
        let group = open_kept(&scene, &journal);
        scene.disks.bring_back(DiskSlot(1));
        group.return_disks(&[DiskSlot(1)]).unwrap();
        assert_all_read(&group, &files);
        resync(&group);
        assert_all_serve(&group);
        assert_all_read(&group, &files);
        for id in &files {
            let file = group.file(*id).unwrap();
            assert_copies_equal(&scene, &group, &file, "after the resync");
        }
    }
}

#[test]
fn of_disks_in_two_failure_groups_that_failed_a_flush_none_goes_at_a_takeover() {
    let journal = KeptJournal::create().unwrap();
    let (scene, files) = two_by_two(23, &journal);
    scene.disks.fail_flushes(DiskSlot(0), 1);
    scene.disks.fail_flushes(DiskSlot(1), 1);
    let group = open_kept_at_last(&scene, &journal);
    assert_all_serve(&group);
    assert_all_read(&group, &files);
    assert!(group.sync().is_err(), "what only those two have is told");
    resync(&group);
    assert_all_read(&group, &files);
}

#[test]
fn disks_of_one_failure_group_that_failed_a_flush_go_together_at_a_takeover() {
    let journal = KeptJournal::create().unwrap();
    let (scene, files) = two_by_two(24, &journal);
    scene.disks.fail_flushes(DiskSlot(0), 1);
    scene.disks.fail_flushes(DiskSlot(2), 1);
    let group = open_kept_at_last(&scene, &journal);
    let modes: Vec<String> = (group.view().disks.iter())
        .map(|disk| disk.mode.to_string())
        .collect();
    assert_eq!(modes, ["offline", "online", "offline", "online"]);
    assert_all_read(&group, &files);
    group.sync().unwrap();
}
