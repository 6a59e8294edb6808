//! What is owed to who had written, told by whichever daemon comes next, wherever the kills fall.

use super::*;

/// Disks of a process that is killed as soon as one has failed a flush.
#[derive(Debug)]
struct KilledAtAFailedFlush(KilledBefore);

impl Disks for KilledAtAFailedFlush {
    fn run(&self, batch: &mut [Request<'_>]) {
        self.0.run(batch);
        let is_failed_flush = |request: &Request<'_>| {
            request.result.is_err() && request.work.operation() == Operation::Flush
        };
        if batch.iter().any(is_failed_flush) {
            *self.0.left.lock().unwrap() = Some(0);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.0.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.0.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.0.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.0.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.0.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.0.set_judge(judge);
    }
}

#[test]
fn a_flush_that_failed_is_told_though_the_one_that_took_over_was_killed_before_anything_was_durable()
 {
    let scene = Scene::new(18, Redundancy::External, FOUR);
    let journal = KeptJournal::create().unwrap();
    let slot = DiskSlot(3);
    let (id, other) = killed_with_unflushed_writes(&scene, &journal, slot);
    scene.disks.fail_flushes(slot, 1);
    let disks = Arc::new(KilledAtAFailedFlush(KilledBefore::new(&scene, &journal)));
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    take_over(&scene, &journal, backend).unwrap_err();
    let journal = disks.0.kept();
    let group = open_kept(&scene, &journal);
    tells_once(&group, &group.file(id).unwrap());
    group.sync_file(&group.file(other).unwrap(), true).unwrap();
    // Told and synced, it is no news to the next one.
    std::mem::forget(group);
    let group = open_kept(&scene, &journal);
    group.sync_file(&group.file(id).unwrap(), true).unwrap();
}

#[test]
fn a_heartbeat_that_the_last_voter_fails_is_told_by_the_next_daemon_to_who_had_written_there() {
    let scene = Scene::new(24, Redundancy::External, &[(0, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, EXTERNAL);
    group.sync().unwrap();
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    group.heartbeat(20).unwrap_err();
    std::mem::forget((group, file));
    let group = open_kept(&scene, &journal);
    tells_once(&group, &group.file(FileId(10)).unwrap());
}

#[test]
fn what_is_owed_anew_stays_owed_though_the_journal_has_the_end_of_an_earlier_one() {
    let scene = Scene::new(19, Redundancy::External, FOUR);
    let journal = KeptJournal::create().unwrap();
    let slot = DiskSlot(3);
    let (id, _) = killed_with_unflushed_writes(&scene, &journal, slot);
    let group = open_kept(&scene, &journal);
    let file = group.file(id).unwrap();
    scene.disks.fail_writes(slot, 0..64 * MIB, 1);
    group.write(&file, 8 * MIB, &pattern(3, 4096)).unwrap_err();
    // Told, and forgotten by the next sync; that is in the journal alone.
    tells_once(&group, &file);
    group.write(&file, 8 * MIB, &pattern(4, 4096)).unwrap();
    std::mem::forget((group, file));
    scene.disks.fail_flushes(slot, 1);
    let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    std::mem::forget(take_over(&scene, &journal, disks).unwrap());
    let group = open_kept(&scene, &journal);
    tells_once(&group, &group.file(id).unwrap());
}

#[test]
fn a_file_removed_while_a_commit_empties_its_rows_leaves_none_of_them_after_a_kill() {
    let scene = Scene::mirrored(23);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 4096)).unwrap();
    group.sync().unwrap();
    group.truncate(&file, 0).unwrap();
    // Killed before the commit that has the empty row is durable.
    scene.disks.power_fails_after(1);
    group.sync().unwrap_err();
    group.remove_file(&group.change(), &file).unwrap();
    std::mem::forget((group, file));
    scene.disks.restart();
    let group = open_kept(&scene, &journal);
    assert!(group.file(FileId(10)).is_none());
    assert_sound(&group);
}

#[test]
fn errors_that_are_owed_by_many_files_take_no_space_that_the_journal_alone_names() {
    // One that has no replica of the catalog, and most of the files.
    let disks = &[(0, 64), (0, 64), (1, 64), (1, 2048)];
    let scene = Scene::new(21, Redundancy::External, disks);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    for id in 100..12_100 {
        let file = create(&group, id, EXTERNAL);
        group.write(&file, 0, &pattern(id, 4096)).unwrap();
    }
    group.sync().unwrap();
    let file = create(&group, 10, EXTERNAL);
    let data = pattern(10, 100 << 20);
    group.write(&file, 0, &data).unwrap();
    std::mem::forget((group, file));
    scene.disks.fail_flushes(DiskSlot(3), 1);
    let group = open_kept(&scene, &journal);
    assert_sound(&group);
    let file = group.file(FileId(10)).unwrap();
    tells_once(&group, &file);
    // It reads as zeros from there on; where it was nobody else has written.
    for extent in group.map(&file) {
        let (disk, at) = extent.copies[0].unwrap();
        let length = usize::try_from(
            extent
                .length_bytes
                .min(data.len() as u64 - extent.offset_bytes),
        )
        .unwrap();
        let from = usize::try_from(extent.offset_bytes).unwrap();
        let bytes = scene.disks.bytes(DiskSlot(disk.0), at, length);
        assert!(
            bytes == data[from..from + length],
            "extent {}",
            extent.index
        );
    }
}

#[test]
fn a_file_that_was_written_anew_shows_nothing_of_an_earlier_one_by_the_marks_that_it_had() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        let filler = create(&group, 10, EXTERNAL);
        group.write(&filler, 0, &vec![0xa5; 100 << 20]).unwrap();
        group.sync().unwrap();
        group.remove_file(&group.change(), &filler).unwrap();
        group.sync().unwrap();
        let file = create(&group, 11, EXTERNAL);
        group.write(&file, 0, &pattern(seed, LENGTH)).unwrap();
        group.sync().unwrap();
        group.truncate(&file, 0).unwrap();
        group.write(&file, 0, &pattern(seed + 100, LENGTH)).unwrap();
        let slot = disk_of(&group, &file);
        std::mem::forget((group, file));
        scene.disks.vanish(slot);
        let group = open_kept(&scene, &journal);
        scene.disks.bring_back(slot);
        group.return_disks(&[slot]).unwrap();
        let file = group.file(FileId(11)).unwrap();
        tells_once(&group, &file);
        let found = read(&group, &file, 0, LENGTH);
        assert!(!found.windows(64).any(|at| at == [0xa5; 64]), "seed {seed}");
    }
}

#[test]
fn a_failed_flush_of_which_a_full_log_has_no_room_to_tell_is_told_after_a_kill() {
    for commits in [false, true] {
        let scene = Scene::new(22, Redundancy::External, FOUR);
        let length_bytes = KeptJournal::length_bytes(1 << 10);
        let memory = SharedMemory::create("journal", length_bytes).unwrap();
        let journal = KeptJournal::new(memory).unwrap();
        let group = open_kept(&scene, &journal);
        // One that has no replica of the catalog, so that nobody else asks it for a flush.
        let slot = DiskSlot(3);
        let files = (10..40).map(|id| {
            let file = create(&group, id, EXTERNAL);
            group.write(&file, 8 * MIB, &pattern(id, 4096)).unwrap();
            (FileId(id), file)
        });
        let on_disk: Vec<(FileId, Arc<File>)> = files
            .filter(|(_, file)| disk_of(&group, file) == slot)
            .take(2)
            .collect();
        let [(_, first), (id, second)] = &on_disk[..] else {
            panic!("thirty files lie on four disks");
        };
        let id = *id;
        group.sync().unwrap();
        for file in [first, second] {
            group.write(file, 8 * MIB, &pattern(1, 4096)).unwrap();
        }
        let mut edit = Edit::default();
        edit.put(Table::Attribute, b"large".to_vec(), vec![7; 2048]);
        group.apply(&group.change(), edit);
        assert!(journal.is_overflowed());
        scene.disks.fail_flushes(slot, 1);
        group.sync_file(first, false).unwrap_err();
        if commits {
            group.sync_file(second, false).unwrap_err();
            group.sync_file(second, false).unwrap();
            group.sync().unwrap();
            group.sync().unwrap();
        }
        std::mem::forget((group, on_disk));
        let group = open_kept(&scene, &journal);
        let file = group.file(id).unwrap();
        if commits {
            group.sync_file(&file, true).unwrap();
        } else {
            tells_once(&group, &file);
        }
    }
}

/// Disks of a process that is killed before a request: from there on they take none, and what the
/// journal had then is what is left of it.
#[derive(Debug)]
pub(super) struct KilledBefore {
    disks: Arc<SimulatedDisks>,
    journal: SharedMemory,
    left: Mutex<Option<u64>>,
    /// Or after the next write to this one.
    last_write: Mutex<Option<DiskSlot>>,
    kept: Mutex<Option<KeptJournal>>,
}

impl KilledBefore {
    /// A group over them, which serves with a journal that is copied quickly.
    pub(super) fn open(scene: &Scene) -> (Arc<Self>, Group) {
        let length_bytes = KeptJournal::length_bytes(1 << 20);
        let memory = SharedMemory::create("journal", length_bytes).unwrap();
        let journal = KeptJournal::new(memory).unwrap();
        let disks = Arc::new(Self::new(scene, &journal));
        let group = take_over(scene, &journal, Arc::clone(&disks) as Arc<dyn Disks>).unwrap();
        group.begin_journal().unwrap();
        (disks, group)
    }

    fn new(scene: &Scene, journal: &KeptJournal) -> Self {
        let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
        Self {
            disks: Arc::clone(&scene.disks),
            journal: SharedMemory::from_descriptor(memory).unwrap(),
            left: Mutex::new(None),
            last_write: Mutex::new(None),
            kept: Mutex::new(None),
        }
    }

    /// Of the next batch with a write to that disk this one alone is done.
    pub(super) fn kill_after_write_to(&self, slot: DiskSlot) {
        *self.last_write.lock().unwrap() = Some(slot);
    }

    fn is_last_write(&self, request: &Request<'_>) -> bool {
        let slot = *self.last_write.lock().unwrap();
        slot == Some(request.slot) && request.work.operation() == Operation::Write
    }

    fn lives(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        match &mut *left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// The journal as the kill left it.
    pub(super) fn kept(&self) -> KeptJournal {
        let mut kept = self.kept.lock().unwrap();
        kept.take().unwrap_or_else(|| copy_of(&self.journal))
    }
}

impl Disks for KilledBefore {
    fn run(&self, batch: &mut [Request<'_>]) {
        if let Some(last) = batch.iter_mut().find(|request| self.is_last_write(request)) {
            self.disks.run(std::slice::from_mut(last));
            *self.left.lock().unwrap() = Some(0);
        }
        for request in batch {
            if self.lives() {
                self.disks.run(std::slice::from_mut(request));
                continue;
            }
            let mut kept = self.kept.lock().unwrap();
            kept.get_or_insert_with(|| copy_of(&self.journal));
            request.result = Err(DeviceError {
                path: "killed".to_owned(),
                operation: "none",
                offset_bytes: request.offset_bytes,
                length_bytes: 0,
                kind: DeviceErrorKind::PowerLost,
                errno: None,
            });
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.disks.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.disks.set_judge(judge);
    }
}

#[test]
fn what_is_owed_when_a_group_is_handed_over_is_told_wherever_a_kill_ends_that() {
    for requests in 0.. {
        let scene = Scene::new(23, Redundancy::External, FOUR);
        let (disks, group) = KilledBefore::open(&scene);
        let file = create(&group, 10, EXTERNAL);
        group.write(&file, 0, &pattern(1, 4096)).unwrap();
        group.sync().unwrap();
        let slot = disk_of(&group, &file);
        scene.disks.fail_writes(slot, 0..64 * MIB, 1);
        group.write(&file, 0, &pattern(2, 4096)).unwrap_err();
        *disks.left.lock().unwrap() = Some(requests);
        let has_ended = group.close().is_ok();
        std::mem::forget((group, file));
        let group = open_kept(&scene, &disks.kept());
        let file = group.file(FileId(10)).unwrap();
        let error = group.sync_file(&file, true);
        assert!(
            error.is_err(),
            "killed before request {requests} of a close"
        );
        group.sync_file(&file, true).unwrap();
        if has_ended {
            break;
        }
    }
}
