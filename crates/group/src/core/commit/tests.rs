//! Commits beside a disk that goes, and syncs beside a flush that failed.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskName, DiskNumber, FileId, GroupName, Redundancy};
use spindle_catalog::{Edit, Region, Sequence, Table};
use spindle_device::{DiskSlot, Disks, FaultyOperation, Operation, Request, SimulatedDisks, Work};
use spindle_extent::map::Books;
use spindle_format::{
    JOURNAL_BYTES, JOURNAL_PLACE, LABEL_PLACES, ParsedGroupState, STATE_PLACES, identities,
};

use crate::Group;
use crate::core::disks::Target;
use crate::core::file::File;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, assert_sound, create, opener, pattern, read,
    resync,
};

/// Waits for another thread to come to a place; a test that waits in vain fails.
fn wait_until(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        thread::yield_now();
    }
}

#[test]
fn nothing_is_acknowledged_once_the_disks_may_hold_a_state_that_this_process_gave_up() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &[1; 4096]).unwrap();
    group.sync().unwrap();
    let slots = || (0..scene.disks.disk_count()).map(|slot| DiskSlot(u16::try_from(slot).unwrap()));
    for slot in slots() {
        let states = STATE_PLACES[0]..STATE_PLACES[1] + (128 << 10);
        scene.disks.fail_writes(slot, states, u64::MAX);
    }
    let other = GroupName::new("OTHER").unwrap();
    group.rename(&other).unwrap_err();
    slots().for_each(|slot| scene.disks.clear_faults(slot));
    // The next heartbeat is to come yet.
    assert!(group.write(&file, 0, &[2; 4096]).is_err());
    assert!(group.sync_file(&file, true).is_err());
    assert!(group.sync().is_err());
}

#[test]
fn a_commit_under_way_when_the_group_has_to_stop_is_not_acknowledged() {
    let journal = JOURNAL_PLACE..JOURNAL_PLACE + JOURNAL_BYTES as u64;
    // It is not at the region yet, or its record is under way. Before either it has asked whether
    // the group goes on.
    for (has_data, operation, places) in [
        (true, FaultyOperation::Flush, 0..u64::MAX),
        (false, FaultyOperation::Write, journal),
    ] {
        let scene = Scene::new(18, Redundancy::External, &[(0, 64)]);
        let group = scene.open();
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &[1; 4096]).unwrap();
        group.sync().unwrap();
        create(&group, 11, EXTERNAL);
        if has_data {
            group.write(&file, 0, &[2; 4096]).unwrap();
        }
        let commits_count = group.catalog.commits_count();
        thread::scope(|scope| {
            scene.disks.hang(DiskSlot(0), operation, places);
            let requests = scene.disks.counts().requests;
            let committer = scope.spawn(|| group.commit_everything());
            wait_until("the disk is asked", || {
                scene.disks.counts().requests > requests
            });
            // A state that nobody could go on from is not tried: the group stops.
            let stopped = group
                .membership
                .change_state(|state| state.replicas.clear());
            stopped.unwrap_err();
            scene.disks.release(DiskSlot(0));
            assert!(committer.join().unwrap().is_err(), "{operation:?}");
        });
        if has_data {
            // Nothing was sent any more, and no other commit is told that it was.
            assert_eq!(group.catalog.commits_count(), commits_count);
        }
    }
}

#[test]
fn what_a_disk_missed_that_goes_during_a_seal_is_durable_before_the_marks_are() {
    for seed in 1..6 {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let sealed_first = create(&group, 9, NORMAL);
        let file = create(&group, 10, NORMAL);
        group.sync().unwrap();
        group.allocate(&sealed_first, 0, 4096).unwrap();
        let data = pattern(seed, 4 << 20);
        group.write(&file, 0, &data).unwrap();
        thread::scope(|scope| {
            // The seal waits for this map, with the change lock held alone.
            let held = file.map.read();
            let committer = scope.spawn(|| group.commit_everything());
            wait_until("the commit seals", || {
                !group.dirty_maps.lock().contains(sealed_first.id)
            });
            scene.disks.vanish(DiskSlot(1));
            let finder = scope.spawn(|| group.take_offline(&[DiskNumber(1)], "it is gone"));
            wait_until("the disk is offline", || {
                !group.membership.is_online(DiskNumber(1))
            });
            thread::sleep(Duration::from_millis(20));
            drop(held);
            finder.join().unwrap().unwrap();
            committer.join().unwrap().unwrap();
        });
        scene.disks.crash();
        drop((file, sealed_first, group));
        scene.disks.restart();
        let group: Group = scene.open();
        scene.disks.bring_back(DiskSlot(1));
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, 4 << 20) == data, "seed {seed}");
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
    }
}

#[test]
fn a_commit_that_waits_for_a_change_does_not_take_the_half_that_a_panic_leaves() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let commits_count = group.catalog.commits_count();
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let change = group.change();
            let mut half = Edit::default();
            half.put(Table::Attribute, b"half".to_vec(), b"of two".to_vec());
            group.apply(&change, half);
            // The commit is at the change lock by then.
            thread::sleep(Duration::from_millis(200));
            panic!("half way, as the test wants it");
        });
        wait_until("the half is there", || {
            (group.catalog.get(Table::Attribute, b"half"))
                .unwrap()
                .is_some()
        });
        assert!(group.commit_everything().is_err());
        panics.join().unwrap_err();
    });
    assert_eq!(group.catalog.commits_count(), commits_count);
}

#[test]
fn a_sync_after_a_flush_that_failed_and_was_not_told_yet_does_not_hide_it() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let [first, untouched, second] = [10, 11, 12].map(|id| create(&group, id, EXTERNAL));
    group.sync().unwrap();
    group.write(&first, 0, &pattern(1, 4096)).unwrap();
    group.write(&untouched, 0, &pattern(1, 4096)).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    // Whoever syncs the first file has its answer, and has told nobody yet.
    let targets: Vec<Target> = first.written.lock().to_vec();
    let failed = group.disks.flushes.cover(&group.disks, &targets);
    assert_eq!(failed.len(), 1);
    group.write(&second, 0, &pattern(1, 4096)).unwrap();
    group.sync_file(&second, false).unwrap_err();
    for file in [first, untouched] {
        group.sync_file(&file, false).unwrap_err();
        group.sync_file(&file, false).unwrap();
    }
    group.sync_file(&second, false).unwrap();
}

#[test]
fn a_flush_of_the_catalog_that_fails_is_told_to_who_had_written_to_the_disk() {
    let scene = Scene::new(8, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    let mut block = vec![0; 4096];
    group.region.read(0, &mut block).unwrap();
    scene.disks.fail_flushes(DiskSlot(0), 1);
    (group.region.write_durably(&[(0, &block)])).unwrap_err();
    group.sync_file(&file, false).unwrap_err();
    group.sync_file(&file, false).unwrap();
}

#[test]
fn a_durable_write_of_the_catalog_that_fails_is_told_to_who_had_written_to_the_disk() {
    let scene = Scene::new(12, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    create(&group, 11, EXTERNAL);
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    // The rows of the new file, which go to the journal alone.
    group.catalog.commit(Sequence(u64::MAX)).unwrap_err();
    group.sync_file(&file, false).unwrap_err();
    group.sync_file(&file, false).unwrap();
}

#[test]
fn a_label_that_cannot_be_written_is_no_flush_that_failed() {
    let scene = Scene::new(13, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    let labels = LABEL_PLACES[1]..LABEL_PLACES[1] + 4096;
    scene.disks.fail_writes(DiskSlot(0), labels, 1);
    let name = DiskName::new("OTHER").unwrap();
    group.rename_disk(DiskNumber(0), &name).unwrap_err();
    group.sync_file(&file, false).unwrap();
    // A flush that fails with it is one.
    group.write(&file, 0, &pattern(2, 4096)).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    group.rename_disk(DiskNumber(0), &name).unwrap_err();
    group.sync_file(&file, false).unwrap_err();
}

#[test]
fn where_several_disks_fail_a_flush_each_file_is_told_of_the_one_that_it_lies_on() {
    let scene = Scene::new(9, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let files: Vec<_> = (10..20).map(|id| create(&group, id, EXTERNAL)).collect();
    for file in &files {
        group.write(file, 0, &pattern(1, 4096)).unwrap();
    }
    group.sync().unwrap();
    for file in &files {
        group.write(file, 0, &pattern(2, 4096)).unwrap();
    }
    scene.disks.fail_flushes(DiskSlot(0), 1);
    scene.disks.fail_flushes(DiskSlot(1), 1);
    group.sync().unwrap_err();
    let mut on_disk = [0, 0];
    for file in &files {
        let (disk, _) = group.map(file)[0].copies[0].unwrap();
        on_disk[usize::from(disk.0)] += 1;
        let error = group.sync_file(file, false).unwrap_err();
        let path = format!("(simulated-{disk})");
        assert!(error.message.contains(&path), "on disk {disk}: {error}");
        group.sync_file(file, false).unwrap();
    }
    assert!(on_disk.iter().all(|count| *count > 0), "{on_disk:?}");
}

/// Disks of which one drops what it holds when somebody else asks it for a flush, which it fails,
/// just before the next one that it is asked for, or between the write and the flush that a durable
/// write is.
#[derive(Default)]
struct DroppedBefore {
    inner: OnceLock<Arc<SimulatedDisks>>,
    group: OnceLock<Weak<Group>>,
    drops: Mutex<Option<DiskSlot>>,
    /// In the midst of so many of the next durable writes there.
    drops_within: Mutex<Option<(Range<u64>, u32)>>,
}

impl std::fmt::Debug for DroppedBefore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("DroppedBefore")
    }
}

impl DroppedBefore {
    fn open(scene: &Scene) -> (Arc<Self>, Arc<Group>) {
        let disks = Arc::new(Self::default());
        disks.inner.set(Arc::clone(&scene.disks)).unwrap();
        let backend = Arc::clone(&disks) as Arc<dyn Disks>;
        let count = u16::try_from(scene.disks.disk_count()).unwrap();
        let slots: Vec<DiskSlot> = (0..count).map(DiskSlot).collect();
        let group = Arc::new(Group::open(backend, &slots, &scene.name, &opener()).unwrap());
        disks.group.set(Arc::downgrade(&group)).unwrap();
        (disks, group)
    }

    fn drop_before_next(&self, slot: DiskSlot) {
        *self.drops.lock().unwrap() = Some(slot);
    }

    fn drop_within(&self, places: Range<u64>, count: u32) {
        *self.drops_within.lock().unwrap() = Some((places, count));
    }

    /// Somebody else's flush, which drops what the disk holds.
    fn drop_now(&self, slot: DiskSlot) {
        self.inner().drop_at_flushes(slot, 1);
        let group = self.group.get().and_then(Weak::upgrade).unwrap();
        let mut flush = [Request::new(slot, 0, Work::Flush)];
        group.membership.run(&mut flush);
        assert!(flush[0].result.is_err());
    }

    /// Whether this durable write is one to drop; one less is left then.
    fn is_dropped(&self, request: &Request<'_>) -> bool {
        let mut within = self.drops_within.lock().unwrap();
        match &mut *within {
            Some((places, left)) if *left > 0 && places.contains(&request.offset_bytes) => {
                let is_durable = request.work.operation() == Operation::WriteDurable;
                *left -= u32::from(is_durable);
                is_durable
            }
            _ => false,
        }
    }

    fn inner(&self) -> &SimulatedDisks {
        self.inner.get().unwrap()
    }
}

impl Disks for DroppedBefore {
    fn run(&self, batch: &mut [Request<'_>]) {
        let is_flushed = |slot: &mut DiskSlot| {
            let mut flushes = batch
                .iter()
                .filter(|request| request.work.operation() == Operation::Flush);
            flushes.any(|request| request.slot == *slot)
        };
        let slot = self.drops.lock().unwrap().take_if(is_flushed);
        if let Some(slot) = slot {
            self.drop_now(slot);
        }
        let Some(place) = batch.iter().position(|request| self.is_dropped(request)) else {
            return self.inner().run(batch);
        };
        let Request {
            slot, offset_bytes, ..
        } = batch[place];
        let bytes = batch[place].work.written().unwrap();
        let mut write = [Request::new(slot, offset_bytes, Work::Write(bytes))];
        self.inner().run(&mut write);
        self.drop_now(slot);
        let mut flush = [Request::new(slot, 0, Work::Flush)];
        self.inner().run(&mut flush);
        assert!(write[0].result.is_ok() && flush[0].result.is_ok());
        let (before, rest) = batch.split_at_mut(place);
        self.inner().run(before);
        self.inner().run(&mut rest[1..]);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner().size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.inner().path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.inner().in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.inner().appearance(slot)
    }
}

#[test]
fn what_the_catalog_wrote_is_not_committed_where_the_disk_dropped_it_at_somebody_elses_flush() {
    let scene = Scene::new(10, Redundancy::External, &[(0, 64)]);
    let (disks, group) = DroppedBefore::open(&scene);
    for id in 10..40 {
        create(&group, id, EXTERNAL);
    }
    group.sync().unwrap();
    disks.drop_before_next(DiskSlot(0));
    group.catalog.settle().unwrap_err();
    group.catalog.settle().unwrap();
    assert_sound(&group);
    drop(group);
    scene.crash();
    let group = scene.open();
    assert!((10..40).all(|id| group.file(FileId(id)).is_some()));
    assert_sound(&group);
}

#[test]
fn a_record_of_the_journal_that_the_disk_dropped_at_somebody_elses_flush_is_written_again() {
    // Twice, and for as long as it is tried.
    for count in [2, u32::MAX] {
        let scene = Scene::new(15, Redundancy::External, &[(0, 64)]);
        let (disks, group) = DroppedBefore::open(&scene);
        group.sync().unwrap();
        let file = create(&group, 10, EXTERNAL);
        let journal = JOURNAL_PLACE..JOURNAL_PLACE + JOURNAL_BYTES as u64;
        disks.drop_within(journal, count);
        let answer = group.sync_file(&file, true);
        assert_eq!(answer.is_ok(), count == 2, "{answer:?}");
        drop((file, group));
        scene.crash();
        let group = scene.open();
        assert!(answer.is_err() || group.file(FileId(10)).is_some());
        assert_sound(&group);
    }
}

#[test]
fn a_group_state_that_the_disk_dropped_at_somebody_elses_flush_is_written_again() {
    let scene = Scene::new(16, Redundancy::External, &[(0, 64)]);
    let (disks, group) = DroppedBefore::open(&scene);
    group.sync().unwrap();
    let states = STATE_PLACES[0].min(STATE_PLACES[1])..STATE_PLACES[0].max(STATE_PLACES[1]) + 1;
    disks.drop_within(states, 1);
    group.membership.change_state(|_| {}).unwrap();
    let epoch = group.membership.state().epoch;
    let is_there = |place: &u64| {
        let bytes = scene.disks.durable_bytes(DiskSlot(0), *place, 64 << 10);
        let parsed = ParsedGroupState::parse(&bytes, *place).unwrap();
        let (group, disk) = identities(&bytes).unwrap();
        parsed.check(group, disk).unwrap().epoch == epoch
    };
    assert!(STATE_PLACES.iter().any(is_there));
}

#[test]
fn a_flush_that_failed_is_known_while_another_disk_keeps_its_batch_waiting() {
    let scene = Scene::new(17, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let files: Vec<_> = (10..40).map(|id| create(&group, id, EXTERNAL)).collect();
    for file in &files {
        group.write(file, 0, &pattern(1, 4096)).unwrap();
    }
    group.sync().unwrap();
    let [drops, hangs] = [DiskNumber(0), DiskNumber(1)];
    let is_there = |file: &&Arc<File>| group.map(file)[0].copies[0].unwrap().0 == drops;
    let file = files.iter().find(is_there).unwrap();
    group.write(file, 0, &pattern(2, 4096)).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(drops.0), 1);
    (scene.disks).hang(DiskSlot(hangs.0), FaultyOperation::Flush, 0..u64::MAX);
    thread::scope(|scope| {
        let committer = scope.spawn(|| group.catalog.settle());
        wait_until("the disk drops it", || {
            scene.disks.unsynced_count(DiskSlot(drops.0)) == 0
        });
        // It may be told a moment later.
        thread::sleep(Duration::from_millis(300));
        let syncer = scope.spawn(|| group.sync_file(file, false));
        let begun = Instant::now();
        while !syncer.is_finished() && begun.elapsed() < Duration::from_secs(2) {
            thread::yield_now();
        }
        let was_answered = syncer.is_finished();
        scene.disks.release(DiskSlot(hangs.0));
        syncer.join().unwrap().unwrap_err();
        assert!(was_answered);
        // Whatever the catalog makes of it.
        let _ = committer.join().unwrap();
    });
    group.sync_file(file, false).unwrap();
    assert_sound(&group);
}

#[test]
fn a_replica_that_its_disk_dropped_in_part_at_somebody_elses_flush_is_not_recorded() {
    let disk = DiskNumber(2);
    let scene = Scene::new(11, Redundancy::External, &[(0, 64), (1, 64), (2, 64)]);
    let (disks, group) = DroppedBefore::open(&scene);
    create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    group.catalog.settle().unwrap();
    group.region.remove_replica(disk).unwrap();
    disks.drop_before_next(DiskSlot(disk.0));
    group.region.add_replica(disk).unwrap_err();
    assert!(!group.membership.holds_replica(disk));
    group.region.add_replica(disk).unwrap();
    assert!(group.membership.holds_replica(disk));
}

#[test]
fn a_disk_with_the_only_copies_that_fails_the_catalog_serves_on_without_a_replica() {
    for is_flush in [true, false] {
        let scene = Scene::new(14, Redundancy::External, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let files: Vec<_> = (10..20).map(|id| create(&group, id, EXTERNAL)).collect();
        for file in &files {
            group.write(file, 0, &pattern(1, 4096)).unwrap();
        }
        group.sync().unwrap();
        let disk = DiskNumber(1);
        let is_there = |file: &&Arc<File>| group.map(file)[0].copies[0].unwrap().0 == disk;
        let file = files.iter().find(is_there).unwrap();
        group.write(file, 0, &pattern(2, 4096)).unwrap();
        match is_flush {
            true => scene.disks.drop_at_flushes(DiskSlot(disk.0), 1),
            false => scene.disks.fail_writes(DiskSlot(disk.0), 0..64 << 20, 1),
        }
        group.catalog.settle().unwrap();
        assert!(group.membership.is_online(disk));
        assert!(!group.membership.holds_replica(disk));
        assert_eq!(group.sync_file(file, false).is_err(), is_flush);
        group.sync_file(file, false).unwrap();
        // It gets another one.
        resync(&group);
        assert!(group.membership.holds_replica(disk));
        assert_sound(&group);
        drop(group);
        scene.crash();
        assert_sound(&scene.open());
    }
}

/// Disks that call somebody before the first durable write of a commit.
struct BeforeCommit {
    inner: Arc<SimulatedDisks>,
    call: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for BeforeCommit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BeforeCommit")
    }
}

impl Disks for BeforeCommit {
    fn run(&self, batch: &mut [Request<'_>]) {
        let is_of_journal = |request: &Request<'_>| {
            let journal = JOURNAL_PLACE..JOURNAL_PLACE + JOURNAL_BYTES as u64;
            request.work.operation() != Operation::Read && journal.contains(&request.offset_bytes)
        };
        if batch.iter().any(is_of_journal) {
            let call = self.call.lock().unwrap().take();
            if let Some(call) = call {
                call();
            }
        }
        self.inner.run(batch);
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
}

/// What a sync, of everything or of the file, answers in whose commit another one, of everything or
/// of the file, is told that the file lost something; and whether the first one's bytes are there.
fn answer_beside_a_loss(is_of_everything: bool, is_other_of_everything: bool) -> (bool, bool) {
    let sync = |group: &Group, file: &File, is_of_everything| match is_of_everything {
        true => group.sync(),
        false => group.sync_file(file, false),
    };
    let scene = Scene::new(16, Redundancy::External, &[(0, 64)]);
    let disks = Arc::new(BeforeCommit {
        inner: Arc::clone(&scene.disks),
        call: Mutex::default(),
    });
    let access = Arc::clone(&disks) as Arc<dyn Disks>;
    let group = Group::open(access, &[DiskSlot(0)], &scene.name, &opener()).unwrap();
    let group = Arc::new(group);
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 8 << 20)).unwrap();
    group.sync().unwrap();
    // In the midst of a large extent.
    let hole = (8 << 20) - (512 << 10);
    group.punch(&file, hole, 512 << 10).unwrap();
    group.sync().unwrap();
    let new = pattern(2, 64 << 10);
    group.write(&file, hole, &new).unwrap();
    let (beside, of, simulated) = (
        Arc::clone(&group),
        Arc::clone(&file),
        Arc::clone(&scene.disks),
    );
    let other = Arc::new(Mutex::new(None));
    let started = Arc::clone(&other);
    *disks.call.lock().unwrap() = Some(Box::new(move || {
        let has_looked = {
            let group = Arc::clone(&beside);
            let looked_at = group.looked_for_lost_at.load(Ordering::Acquire);
            move || group.looked_for_lost_at.load(Ordering::Acquire) != looked_at
        };
        let other = thread::spawn(move || {
            let behind = hole + (64 << 10);
            beside.write(&of, behind, &pattern(3, 64 << 10)).unwrap();
            simulated.drop_at_flushes(DiskSlot(0), 1);
            sync(&beside, &of, is_other_of_everything).unwrap_err();
        });
        // One of everything waits for this commit once it has looked.
        wait_until("the other sync is told", || {
            has_looked() || other.is_finished()
        });
        *started.lock().unwrap() = Some(other);
    }));
    let answer = sync(&group, &file, is_of_everything);
    other.lock().unwrap().take().unwrap().join().unwrap();
    let mut found = vec![0; new.len()];
    let is_there = group.read(&file, hole, &mut found).is_ok() && found == new;
    let is_told = answer.is_err();
    // Told is told.
    if !(is_other_of_everything || is_of_everything) {
        group.sync_file(&file, false).unwrap();
    }
    group.sync().unwrap();
    (is_told, is_there)
}

#[test]
fn a_sync_whose_bytes_are_hidden_by_what_a_sync_beside_it_was_told_tells_it_too() {
    for is_of_everything in [false, true] {
        for is_other_of_everything in [false, true] {
            let (is_told, is_there) =
                answer_beside_a_loss(is_of_everything, is_other_of_everything);
            assert!(
                is_told || is_there,
                "of everything: {is_of_everything}, the other: {is_other_of_everything}"
            );
        }
    }
}

#[test]
fn a_sync_that_began_before_another_one_told_an_error_tells_it_too_and_the_next_one_does_not() {
    let scene = Scene::mirrored(18);
    let group = scene.open();
    let [file, other] = [10, 11].map(|id| create(&group, id, NORMAL));
    group.sync().unwrap();
    let (before, before_other, before_all) =
        (group.told_of(&file), group.told_of(&other), group.told());
    group.owe(&file, "block 7 is lost");
    group.sync_file(&file, false).unwrap_err();
    let error = group.sync_file_since(&file, false, before).unwrap_err();
    assert_eq!(error.message, "block 7 is lost");
    group.sync_since(before_all).unwrap_err();
    group.sync_file_since(&other, false, before_other).unwrap();
    group.sync_file(&file, false).unwrap();
    group.sync().unwrap();
}

/// Somebody who looks at a map while its rows are sealed finds it dirty, or the number of the edit that has
/// its rows: else a sync would wait for an older one.
#[test]
fn a_map_that_is_being_sealed_is_dirty_or_has_the_number_of_its_edit() {
    let scene = Scene::new(1, Redundancy::External, &[(0, 4096)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    for round in 0..100 {
        group.allocate(&file, round << 24, 1 << 24).unwrap();
        assert!(matches!(file.map.read().books(), Books::Open));
        let seen: Vec<Sequence> = thread::scope(|scope| {
            let commit = scope.spawn(|| group.sync().unwrap());
            let mut seen = Vec::new();
            while !commit.is_finished() {
                if let Books::Sealed(sequence) = file.map.read().books() {
                    seen.push(sequence);
                }
            }
            seen
        });
        let Books::Sealed(last) = file.map.read().books() else {
            panic!("nothing is dirty after the commit");
        };
        assert!(
            seen.iter().all(|sequence| *sequence == last),
            "round {round}"
        );
    }
}
