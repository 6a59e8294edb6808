//! Files of one copy whose disk goes away with something that no flush had covered: they say so
//! at the next sync, whatever becomes of them until then, and show nothing from before.

use std::sync::{Arc, Mutex, Weak};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::{DiskSlot, Disks, Judge, Operation, Request, SimulatedDisks};
use spindle_group::{File, Group, GroupErrorKind, KeptJournal};

use crate::scene::{
    EXTERNAL, MIB, NORMAL, Scene, copies_on, create, opener, pattern, read, resync, spare,
};
use crate::takeovers::open_kept;

const KIB: u64 = 1 << 10;
pub const LENGTH: usize = 1 << 20;
pub const FOUR: &[(u8, u64)] = &[(0, 64), (0, 64), (1, 64), (1, 64)];

pub fn disk_of(group: &Group, file: &File) -> DiskSlot {
    let map = group.map(file);
    let mut copies = map.iter().flat_map(|extent| &extent.copies).flatten();
    DiskSlot(copies.next().unwrap().0.0)
}

/// The disk loses its power and what no flush covered; a write of another file finds that out,
/// and the disk is back at once.
fn blink(scene: &Scene, group: &Group, slot: DiskSlot) {
    scene.disks.vanish(slot);
    let other = match group.file(FileId(99)) {
        Some(other) => other,
        None => create(group, 99, NORMAL),
    };
    group.write(&other, 0, &pattern(77, 8 << 20)).unwrap();
    group.sync_file(&other, true).unwrap();
    scene.disks.bring_back(slot);
    let back = group.return_disks(&[slot]).unwrap();
    assert_eq!(back, [DiskNumber(slot.0)]);
}

#[test]
fn a_hole_that_was_synced_stays_when_the_disk_loses_what_was_written_behind_it() {
    for seed in 1..17 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(seed, 8 << 20)).unwrap();
        group.sync().unwrap();
        // In the midst of a large extent, so that its mark goes back and it stays where it is.
        let extent = group.map(&file).pop().unwrap();
        assert!(extent.initialised_bytes >= MIB);
        let at = extent.offset_bytes;
        let (hole, behind) = (at + 256 * KIB, at + 512 * KIB);
        group.punch(&file, hole, (8 << 20) - hole).unwrap();
        group.sync_file(&file, true).unwrap();
        // What lies between is zeroed along with it, and is lost along with it.
        let new = pattern(seed + 100, 16 << 10);
        group.write(&file, behind, &new).unwrap();
        let (disk, _) = extent.copies[0].unwrap();
        blink(&scene, &group, DiskSlot(disk.0));
        let is_hole = |group: &Group, file: &File, when: &str| {
            let found = read(group, file, hole, 256 << 10);
            assert!(found == vec![0; 256 << 10], "{when}, seed {seed}");
        };
        // Before it is told nobody is shown zeros that might have been an answer.
        let mut out = vec![0; 4096];
        assert!(group.read(&file, hole, &mut out).is_err(), "seed {seed}");
        tells_once(&group, &file);
        is_hole(&group, &file, "synced again");
        drop((file, group));
        scene.crash();
        let group = scene.open();
        is_hole(&group, &group.file(FileId(10)).unwrap(), "opened again");
    }
}

#[test]
fn what_was_lost_shows_nothing_of_an_earlier_file() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        fill_and_remove(&group, FileId(10));
        let file = create(&group, 11, EXTERNAL);
        group.write(&file, 0, &pattern(seed, LENGTH)).unwrap();
        blink(&scene, &group, disk_of(&group, &file));
        assert_hides_until_told(&scene, group, &file);
    }
}

#[test]
fn what_a_disk_dropped_that_failed_a_flush_and_serves_on_shows_nothing_of_an_earlier_file() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::External, FOUR);
        let group = scene.open();
        fill_and_remove(&group, FileId(10));
        let file = create(&group, 11, EXTERNAL);
        group.write(&file, 0, &pattern(seed, LENGTH)).unwrap();
        scene.disks.drop_at_flushes(disk_of(&group, &file), 1);
        group.make_durable().unwrap_err();
        // The disk answers the next one well.
        group.make_durable().unwrap();
        assert_hides_until_told(&scene, group, &file);
    }
}

/// Leaves bytes of a removed file wherever another one will be.
pub fn fill_and_remove(group: &Group, id: FileId) {
    let filler = create(group, id.0, EXTERNAL);
    group.write(&filler, 0, &vec![0xa5; 100 << 20]).unwrap();
    group.sync().unwrap();
    group.remove_file(&group.change(), &filler).unwrap();
    group.sync().unwrap();
}

pub fn assert_shows_nothing_removed(group: &Group, file: &File, when: &str) {
    let found = read(group, file, 0, LENGTH);
    assert!(!found.windows(64).any(|at| at == [0xa5; 64]), "{when}");
}

fn assert_hides_until_told(scene: &Scene, group: Group, file: &File) {
    let mut out = vec![0; LENGTH];
    assert!(group.read(file, 0, &mut out).is_err(), "nothing is told");
    // Whoever finds a hole there reads nothing, and hears of nothing.
    let (end, data, hole) = (LENGTH as u64, false, true);
    assert_eq!(group.seek_shown(file, 4096, end, data), Some(4096));
    assert_eq!(group.seek_shown(file, 0, end, hole), None);
    tells_once(&group, file);
    assert_shows_nothing_removed(&group, file, "it is told");
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(11)).unwrap();
    assert_shows_nothing_removed(&group, &file, "opened again");
}

/// A file of which the newest write is lost with its disk's cache, and the disk is back.
fn with_a_lost_write(seed: u64) -> (Scene, Group, Arc<File>) {
    let scene = Scene::new(seed, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    blink(&scene, &group, disk_of(&group, &file));
    (scene, group, file)
}

pub fn tells_once(group: &Group, file: &File) {
    // The error is owed until it is gone, as whoever answers the sync lets go of it.
    let kind = group.sync_file(file, true).unwrap_err().kind;
    assert_eq!(kind, GroupErrorKind::Io);
    group.sync_file(file, true).unwrap();
}

#[test]
fn a_loss_is_told_though_the_extents_have_moved_to_another_disk_since() {
    let (scene, group, file) = with_a_lost_write(1);
    let disk = disk_of(&group, &file).0;
    let failure_group = u8::from(disk >= 2);
    (group.add_disks(&[spare(&scene.disks, failure_group, 64)])).unwrap();
    group.drop_disks(&[DiskNumber(disk)], false).unwrap();
    resync(&group);
    assert_eq!(copies_on(&group, 10, disk), 0);
    tells_once(&group, &file);
}

#[test]
fn a_loss_is_told_though_the_file_has_two_copies_by_now() {
    let (_scene, group, file) = with_a_lost_write(2);
    let wanted = [(FileId(10), Redundancy::Normal)];
    assert_eq!(group.convert_files(&wanted).unwrap(), 1);
    resync(&group);
    let map = group.map(&file);
    assert!(
        map.iter()
            .all(|extent| extent.copies.iter().all(Option::is_some))
    );
    tells_once(&group, &file);
}

#[test]
fn a_disk_that_was_removed_is_offline_for_files_of_one_copy_too() {
    let scene = Scene::new(4, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let other = create(&group, 11, EXTERNAL);
    let mut at = 0;
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    let slot = disk_of(&group, &file);
    // Until it has an extent on the same disk.
    loop {
        group.write(&other, at, &pattern(2, LENGTH)).unwrap();
        if copies_on(&group, 11, slot.0) > 0 {
            break;
        }
        at += MIB;
    }
    group.sync().unwrap();
    group.write(&other, at, &pattern(3, LENGTH)).unwrap();
    scene.disks.vanish(slot);
    assert!(group.write(&file, 0, &pattern(4, LENGTH)).is_err());
    // It answers again before anybody else has asked it.
    scene.disks.bring_back(slot);
    let is_offline =
        |disk: &spindle_group::DiskView| disk.number.0 == slot.0 && disk.mode == "offline";
    assert!(group.view().disks.iter().any(is_offline));
    tells_once(&group, &other);
}

#[test]
fn a_loss_is_told_though_the_daemon_was_killed_in_between() {
    let scene = Scene::new(8, Redundancy::Normal, FOUR);
    let mut journal = KeptJournal::create().unwrap();
    let next = |journal: &KeptJournal, group: Group, file: Arc<File>| {
        // Nothing of a killed process runs any more, no drop either.
        std::mem::forget((group, file));
        let group = open_kept(&scene, journal);
        let file = group.file(FileId(10)).unwrap();
        (group, file)
    };
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    blink(&scene, &group, disk_of(&group, &file));
    let (group, file) = next(&journal, group, file);
    let mut out = vec![0; LENGTH];
    assert!(group.read(&file, 0, &mut out).is_err());
    // The second is killed before its answer has reached anybody.
    assert!(group.sync_file(&file, false).is_err());
    let (group, file) = next(&journal, group, file);
    tells_once(&group, &file);
    let (group, file) = next(&journal, group, file);
    group.sync_file(&file, true).unwrap();
    assert!(group.read(&file, 0, &mut out).is_ok());
    // After a power cut nobody waits for a sync any more.
    group.write(&file, 0, &pattern(2, LENGTH)).unwrap();
    blink(&scene, &group, disk_of(&group, &file));
    group.make_durable().unwrap();
    drop((group, file));
    scene.crash();
    journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    group.sync_file(&file, true).unwrap();
    let (group, file) = next(&journal, group, file);
    group.sync_file(&file, true).unwrap();
}

#[test]
fn a_loss_is_told_though_the_group_was_handed_over_in_between_and_by_a_sync_of_everything() {
    let scene = Scene::new(10, Redundancy::Normal, FOUR);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    blink(&scene, &group, disk_of(&group, &file));
    group.close().unwrap();
    drop((group, file));
    let group = open_kept(&scene, &journal);
    assert!(group.sync().is_err(), "a sync of everything tells it too");
    let file = group.file(FileId(10)).unwrap();
    tells_once(&group, &file);
    group.sync().unwrap();
    group.close().unwrap();
    drop((group, file));
    // Somebody else had the group since.
    let group = scene.open();
    group.close().unwrap();
    drop(group);
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    group.sync_file(&file, true).unwrap();
}

#[test]
fn a_write_that_failed_is_told_though_the_daemon_was_killed_in_between() {
    let scene = Scene::new(9, Redundancy::External, FOUR);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync().unwrap();
    let disk = disk_of(&group, &file);
    scene.disks.fail_writes(disk, 0..64 * MIB, 1);
    assert!(group.write(&file, 0, &pattern(2, 4096)).is_err());
    std::mem::forget((group, file));
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    tells_once(&group, &file);
    // Removed, it takes along what it owed.
    scene.disks.fail_writes(disk, 0..64 * MIB, 1);
    assert!(group.write(&file, 0, &pattern(2, 4096)).is_err());
    group.remove_file(&group.change(), &file).unwrap();
    create(&group, 10, EXTERNAL);
    std::mem::forget((group, file));
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    group.sync_file(&file, true).unwrap();
}

type Hook = Box<dyn FnOnce() + Send>;

/// Simulated disks that call somebody before a write goes to a disk, or between it and its answer.
struct Hooked {
    inner: Arc<SimulatedDisks>,
    is_before: bool,
    at_write: Mutex<Option<(DiskSlot, Hook)>>,
}

impl Hooked {
    fn open(scene: &Scene, is_before: bool) -> (Arc<Self>, Arc<Group>) {
        let hooked = Arc::new(Self {
            inner: Arc::clone(&scene.disks),
            is_before,
            at_write: Mutex::new(None),
        });
        let slots: Vec<DiskSlot> = (0..4).map(DiskSlot).collect();
        let access = Arc::clone(&hooked) as Arc<dyn Disks>;
        let group = Group::open(access, &slots, &scene.name, &opener()).unwrap();
        (hooked, Arc::new(group))
    }

    fn call(&self, batch: &[Request<'_>]) {
        let is_met = |slot: DiskSlot| {
            let mut writes = (batch.iter()).filter(|request| request.slot == slot);
            writes.any(|request| request.work.operation() == Operation::Write)
        };
        let hook = {
            let mut at_write = self.at_write.lock().unwrap();
            match &*at_write {
                Some((slot, _)) if is_met(*slot) => at_write.take(),
                _ => None,
            }
        };
        if let Some((_, hook)) = hook {
            // Of another thread: this one holds what a request is sent under.
            std::thread::spawn(hook).join().unwrap();
        }
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Disks for Hooked {
    fn run(&self, batch: &mut [Request<'_>]) {
        if self.is_before {
            self.call(batch);
        }
        self.inner.run(batch);
        if !self.is_before {
            self.call(batch);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.inner.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.inner.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.inner.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.inner.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.inner.set_judge(judge);
    }
}

/// The disk blinks when the next write goes to it, and everything is synced; whether that met a
/// write is asked of the answer.
fn blinks_at_the_next_write(
    hooked: &Hooked,
    scene: &Arc<Scene>,
    group: &Arc<Group>,
    slot: DiskSlot,
) {
    let (scene, group) = (Arc::clone(scene), Arc::clone(group));
    let hook: Hook = Box::new(move || {
        blink(&scene, &group, slot);
        // What was lost before is told here.
        let _ = group.sync();
    });
    *hooked.at_write.lock().unwrap() = Some((slot, hook));
}

#[test]
fn a_write_whose_disk_blinks_before_its_writer_hears_of_it_is_told_as_lost() {
    for at in [0, LENGTH / 2] {
        let scene = Arc::new(Scene::new(5, Redundancy::Normal, FOUR));
        let (hooked, group) = Hooked::open(&scene, false);
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(1, LENGTH / 2)).unwrap();
        group.sync().unwrap();
        blinks_at_the_next_write(&hooked, &scene, &group, disk_of(&group, &file));
        let new = pattern(2, LENGTH / 4);
        let answer = group.write(&file, at as u64, &new);
        assert!(hooked.at_write.lock().unwrap().is_none());
        let synced = answer.and_then(|()| group.sync());
        let mut found = vec![0; new.len()];
        let answer = group.read(&file, at as u64, &mut found);
        assert!(
            synced.is_err() || (answer.is_ok() && found == new),
            "it was answered and synced, and is not there"
        );
    }
}

/// The disk drops what it holds when the next write has reached it, and whoever asked for the flush
/// that failed has told it before that write's own caller hears of it.
fn drops_at_the_next_write(hooked: &Hooked, scene: &Scene, group: &Arc<Group>, slot: DiskSlot) {
    let (disks, group) = (Arc::clone(&scene.disks), Arc::clone(group));
    let hook: Hook = Box::new(move || {
        // It has something to flush.
        let other = create(&group, 12, EXTERNAL);
        group.write(&other, 0, &pattern(3, 32 << 20)).unwrap();
        assert!(copies_on(&group, 12, slot.0) > 0);
        disks.drop_at_flushes(slot, 1);
        group.make_durable().unwrap_err();
        group.make_durable().unwrap();
    });
    *hooked.at_write.lock().unwrap() = Some((slot, hook));
}

#[test]
fn a_write_whose_disk_fails_a_flush_before_its_writer_hears_of_it_is_told_as_lost() {
    for at in [0, LENGTH / 2] {
        let scene = Scene::new(6, Redundancy::External, FOUR);
        let (hooked, group) = Hooked::open(&scene, false);
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(1, LENGTH / 2)).unwrap();
        group.sync().unwrap();
        let slot = disk_of(&group, &file);
        drops_at_the_next_write(&hooked, &scene, &group, slot);
        let new = pattern(2, LENGTH / 4);
        let answer = group.write(&file, at as u64, &new);
        assert!(hooked.at_write.lock().unwrap().is_none());
        let synced = answer.and_then(|()| group.sync_file(&file, false));
        let mut found = vec![0; new.len()];
        let answer = group.read(&file, at as u64, &mut found);
        assert!(
            synced.is_err() || (answer.is_ok() && found == new),
            "it was answered and synced, and is not there"
        );
    }
}

#[test]
fn a_write_on_its_way_to_a_disk_that_blinks_moves_no_mark_over_what_was_lost() {
    for seed in 1..17 {
        let scene = Arc::new(Scene::new(seed, Redundancy::Normal, FOUR));
        let (hooked, group) = Hooked::open(&scene, true);
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &vec![0xa5; 8 << 20]).unwrap();
        group.sync().unwrap();
        let extent = group.map(&file).pop().unwrap();
        let hole = extent.offset_bytes + 256 * KIB;
        group.punch(&file, hole, (8 << 20) - hole).unwrap();
        group.sync().unwrap();
        group.write(&file, hole, &vec![1; 128 << 10]).unwrap();
        let (disk, _) = extent.copies[0].unwrap();
        blinks_at_the_next_write(&hooked, &scene, &group, DiskSlot(disk.0));
        let answer = group.write(&file, hole + 256 * KIB, &vec![2; 128 << 10]);
        assert!(hooked.at_write.lock().unwrap().is_none());
        let _ = group.sync_file(&file, true);
        let found = read(&group, &file, hole, 512 << 10);
        assert!(!found.contains(&0xa5), "seed {seed}: {answer:?}");
    }
}

#[test]
fn a_write_behind_what_was_lost_puts_no_zeros_there_that_are_read_before_it_is_told() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(seed, 8 << 20)).unwrap();
        let extent = group.map(&file).pop().unwrap();
        let hole = extent.offset_bytes + 256 * KIB;
        group.punch(&file, hole, (8 << 20) - hole).unwrap();
        group.sync().unwrap();
        group.write(&file, hole, &pattern(1, 128 << 10)).unwrap();
        let (disk, _) = extent.copies[0].unwrap();
        blink(&scene, &group, DiskSlot(disk.0));
        // As an appending program goes on.
        let (behind, new) = (hole + 128 * KIB, pattern(2, 16 << 10));
        let answer = group.write(&file, behind, &new);
        let mut out = vec![0; 4096];
        assert!(group.read(&file, hole, &mut out).is_err(), "seed {seed}");
        assert_eq!(answer.unwrap_err().kind, GroupErrorKind::Io);
        // Nothing is lost before it, nor where there was a hole.
        group.write(&file, 0, &new).unwrap();
        group.write(&file, hole, &new).unwrap();
        group.write(&file, 32 * MIB + 64 * KIB, &new).unwrap();
        tells_once(&group, &file);
        group.write(&file, behind, &new).unwrap();
        assert!(read(&group, &file, hole, 16 << 10) == new);
        assert!(read(&group, &file, hole + 64 * KIB, 4096) == vec![0; 4096]);
        assert!(read(&group, &file, behind, 16 << 10) == new);
    }
}
