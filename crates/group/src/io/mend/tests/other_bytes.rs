//! Places that give back other bytes once they were written again.

use super::*;

/// Disks of which one cannot read a place, and gives back other bytes once that was written again;
/// from that moment on something else goes on.
struct GivesOtherBytes {
    inner: Arc<SimulatedDisks>,
    place: Mutex<Option<u64>>,
    is_written: AtomicBool,
    /// How many more reads it gives other bytes.
    lies: AtomicU64,
    meanwhile: Mutex<Option<Meanwhile>>,
    under_way: Mutex<Option<JoinHandle<()>>>,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

impl GivesOtherBytes {
    /// Reads until somebody has written the place again, and what goes on beside that has ended.
    fn mend_by(&self, mut read: impl FnMut()) {
        while self.under_way.lock().unwrap().is_none() {
            read();
        }
        let under_way = self.under_way.lock().unwrap().take();
        under_way.unwrap().join().unwrap();
    }
}

impl std::fmt::Debug for GivesOtherBytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("GivesOtherBytes")
    }
}

impl Disks for GivesOtherBytes {
    fn run(&self, batch: &mut [Request<'_>]) {
        self.inner.run(batch);
        let Some(place) = *self.place.lock().unwrap() else {
            return;
        };
        for request in batch.iter_mut() {
            if request.slot != DISK || request.offset_bytes != place || request.result.is_err() {
                continue;
            }
            match &mut request.work {
                Work::Write(_) => {
                    self.inner.clear_faults(DISK);
                    self.is_written.store(true, Ordering::SeqCst);
                }
                Work::Read(memory) if self.is_written.load(Ordering::SeqCst) => {
                    let less = |lies: u64| lies.checked_sub(1);
                    let lies = (self.lies).fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
                    memory[0] ^= u8::from(lies.is_ok());
                }
                _ => {}
            }
        }
        if self.is_written.load(Ordering::SeqCst) {
            let meanwhile = self.meanwhile.lock().unwrap().take();
            if let Some(meanwhile) = meanwhile {
                *self.under_way.lock().unwrap() = Some(thread::spawn(meanwhile));
                // For as long as it takes, where nothing keeps it from that.
                thread::sleep(Duration::from_millis(500));
            }
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
}

/// A group whose file has an extent of which the first block cannot be read on [`DISK`], that extent,
/// and the file's bytes.
fn with_a_place_that_gives_other_bytes(
    scene: &Scene,
    is_it: impl Fn(&ExtentView) -> bool,
) -> (
    Arc<GivesOtherBytes>,
    Arc<Group>,
    Arc<File>,
    ExtentView,
    Vec<u8>,
) {
    let disks = Arc::new(GivesOtherBytes {
        inner: Arc::clone(&scene.disks),
        place: Mutex::new(None),
        is_written: AtomicBool::new(false),
        lies: AtomicU64::new(u64::MAX),
        meanwhile: Mutex::new(None),
        under_way: Mutex::new(None),
    });
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    let slots_count = u16::try_from(scene.disks.disk_count()).unwrap();
    let slots: Vec<DiskSlot> = (0..slots_count).map(DiskSlot).collect();
    let group = Arc::new(Group::open(backend, &slots, &scene.name, &opener()).unwrap());
    let mut layout = NORMAL;
    if slots_count > 2 {
        layout.redundancy = Redundancy::High;
    }
    let file = create(&group, 10, layout);
    let data = pattern(1, 1 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    // Until nothing was written lately.
    resync(&group);
    let extent = group.map(&file).into_iter().rfind(is_it).unwrap();
    let place = place_on(&extent, DISK);
    scene.disks.fail_reads(DISK, place..place + 4096, u64::MAX);
    *disks.place.lock().unwrap() = Some(place);
    (disks, group, file, extent, data)
}

#[test]
fn nobody_reads_a_place_that_was_written_again_and_gives_back_other_bytes() {
    for by_scrub in [false, true] {
        let scene = Scene::mirrored(6);
        let (disks, group, file, extent, data) =
            with_a_place_that_gives_other_bytes(&scene, |_| true);
        let place = place_on(&extent, DISK);
        let offset_bytes = extent.offset_bytes;
        let begin = usize::try_from(offset_bytes).unwrap();
        let right = data[begin..begin + 4096].to_vec();
        let (their_group, their_file) = (Arc::clone(&group), Arc::clone(&file));
        let theirs = right.clone();
        *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
            for _ in 0..100 {
                let found = read(&their_group, &their_file, offset_bytes, 4096);
                assert!(found == theirs, "another reader was given other bytes");
            }
        }));
        if by_scrub {
            let end_bytes = offset_bytes + extent.initialised_bytes;
            assert!(group.mend_pages(&file, offset_bytes, end_bytes).unwrap());
        } else {
            for _ in 0..100 {
                assert!(read(&group, &file, offset_bytes, 4096) == right);
            }
        }
        let reads = disks.under_way.lock().unwrap().take();
        reads.expect("the place is written again").join().unwrap();
        let now = place_on(&group.map(&file).pop().unwrap(), DISK);
        assert_ne!(now, place, "the copy has left the place");
    }
}

/// Of a file with a place that gives other bytes: its disks, the group, the file, the extent, and what
/// its first block holds, which was written lately or long ago. The other disk has gone while the place
/// was written again.
fn left_on_a_bad_place(
    scene: &Scene,
    is_new: bool,
) -> (
    Arc<GivesOtherBytes>,
    Arc<Group>,
    Arc<File>,
    ExtentView,
    Vec<u8>,
) {
    let (disks, group, file, extent, data) = with_a_place_that_gives_other_bytes(scene, |_| true);
    let offset_bytes = extent.offset_bytes;
    let begin = usize::try_from(offset_bytes).unwrap();
    let mut right = data[begin..begin + 4096].to_vec();
    if is_new {
        right = pattern(8, 4096);
        write_beside_the_place(&disks, &group, &file, offset_bytes, &right);
        group.sync().unwrap();
    }
    let theirs = Arc::clone(&group);
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        theirs.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
    }));
    let mut found = vec![0; 4096];
    disks.mend_by(|| {
        group.read(&file, offset_bytes, &mut found).unwrap();
        assert!(found == right);
    });
    assert!(group.membership.is_online(DiskNumber(DISK.0)), "it serves");
    group.read(&file, offset_bytes, &mut found).unwrap_err();
    (disks, group, file, extent, right)
}

/// Writes, and the place does not take it for its being written again.
fn write_beside_the_place(
    disks: &GivesOtherBytes,
    group: &Group,
    file: &File,
    offset_bytes: u64,
    bytes: &[u8],
) {
    let place = disks.place.lock().unwrap().take();
    group.write(file, offset_bytes, bytes).unwrap();
    *disks.place.lock().unwrap() = place;
}

/// No disk gives back what is written there: the write is refused, and what the other one has counts.
#[test]
fn a_write_to_a_place_that_gives_back_other_bytes_is_refused_while_no_other_copy_serves() {
    for is_new in [false, true] {
        writes_to_a_place_that_gives_back_other_bytes_are_refused(is_new);
    }
}

fn writes_to_a_place_that_gives_back_other_bytes_are_refused(is_new: bool) {
    let scene = Scene::mirrored(7);
    let (_disks, group, file, extent, former) = left_on_a_bad_place(&scene, is_new);
    let offset_bytes = extent.offset_bytes;
    let new = pattern(9, 4096);
    let mut found = vec![0; 4096];
    let error = group.write(&file, offset_bytes, &new).unwrap_err();
    assert!(
        error.to_string().contains("gives back other bytes"),
        "{error}"
    );
    group
        .write(&file, offset_bytes + 512, &new[..512])
        .unwrap_err();
    group.write(&file, offset_bytes, &new).unwrap_err();
    group.sync_file(&file, true).unwrap_err();
    group.read(&file, offset_bytes, &mut found).unwrap_err();
    group.return_disks(&[DiskSlot(0)]).unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == former);
    }
    resync(&group);
    assert!(read(&group, &file, offset_bytes, 4096) == former);
    group.write(&file, offset_bytes, &new).unwrap();
    group.sync().unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == new);
    }
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// A place that recovers by itself counts as soon as it has given back a write.
#[test]
fn a_write_that_a_place_gives_back_counts_while_no_other_copy_serves() {
    let scene = Scene::mirrored(7);
    let (disks, group, file, extent, _) = left_on_a_bad_place(&scene, false);
    let offset_bytes = extent.offset_bytes;
    *disks.place.lock().unwrap() = None;
    let new = pattern(9, 4096);
    group.write(&file, offset_bytes, &new).unwrap();
    group.sync_file(&file, true).unwrap();
    assert!(read(&group, &file, offset_bytes, 4096) == new);
    group.return_disks(&[DiskSlot(0)]).unwrap();
    resync(&group);
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == new);
    }
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// What its file gives up there nobody else gets.
#[test]
fn a_place_that_gives_back_other_bytes_is_not_used_again_once_its_file_is_gone() {
    let scene = Scene::mirrored(7);
    let (_disks, group, file, extent, _) = left_on_a_bad_place(&scene, false);
    let start_bytes = place_on(&extent, DISK);
    group.remove_file(&group.change(), &file).unwrap();
    group.sync().unwrap();
    let noted = group.bad_runs.all().into_iter();
    let mut noted = noted.map(|run| (DiskSlot(run.disk.0), run.start_block * 4096));
    assert!(
        noted.any(|run| run == (DISK, start_bytes)),
        "it is noted as bad"
    );
}

#[test]
fn a_place_that_gives_back_other_bytes_is_not_read_where_the_good_copy_goes_before_it_is_moved() {
    let scene = Scene::mirrored(7);
    let (_disks, group, file, extent, right) = left_on_a_bad_place(&scene, false);
    let offset_bytes = extent.offset_bytes;
    group.return_disks(&[DiskSlot(0)]).unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == right);
    }
    // Written by a program, it is not read before a resync has read it back.
    let right = pattern(9, 4096);
    group.write(&file, offset_bytes, &right).unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == right);
    }
    // Written again by the resync, it gives back other bytes again.
    resync(&group);
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == right);
    }
    let now = place_on(&group.map(&file).pop().unwrap(), DISK);
    assert_ne!(now, place_on(&extent, DISK), "the copy has left the place");
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

#[test]
fn a_power_cut_while_a_place_that_gives_other_bytes_is_mended_leaves_equal_copies_that_are_right() {
    // Whichever copy a comparison would take.
    for (seed, is_first) in [(9, false), (10, true)] {
        let scene = Scene::mirrored(seed);
        let is_it = |extent: &ExtentView| {
            let (disk, _) = extent.copies[0].unwrap();
            (disk.0 == DISK.0) == is_first
        };
        let (disks, group, file, extent, data) = with_a_place_that_gives_other_bytes(&scene, is_it);
        let place = place_on(&extent, DISK);
        let at_the_cut = Arc::new(OnceLock::new());
        let (cut, theirs) = (Arc::clone(&at_the_cut), scene.copy(seed));
        let (inner, name) = (Arc::clone(&scene.disks), theirs.name);
        *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
            let disks = Arc::new(inner.fork(seed));
            assert!(cut.set(Scene { disks, name }).is_ok());
        }));
        disks.mend_by(|| {
            read(&group, &file, extent.offset_bytes, 4096);
        });
        let scene = at_the_cut.get().unwrap();
        scene.crash();
        scene.disks.overwrite(DISK, place, &pattern(seed, 4096));
        let group = scene.open();
        let file = group.file(file.id).unwrap();
        resync(&group);
        assert_copies_equal(scene, &group, &file, "after the power cut");
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_sound(&group);
    }
}

/// A comparison writes it again, and nobody reads it before it has given that back.
#[test]
fn a_copy_that_could_not_be_read_after_a_stop_is_read_back_before_it_counts() {
    let scene = Scene::mirrored(12);
    let (disks, group, file, extent, mut data) =
        with_a_place_that_gives_other_bytes(&scene, |extent| extent.offset_bytes > 0);
    // One region is open.
    let new = pattern(2, 4096);
    group.write(&file, 0, &new).unwrap();
    data[..4096].copy_from_slice(&new);
    group.sync_file(&file, true).unwrap();
    drop(group);
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    let slots = [DiskSlot(0), DISK];
    let group = Group::open(backend, &slots, &scene.name, &opener()).unwrap();
    let file = group.file(file.id).unwrap();
    assert!(
        disks.is_written.load(Ordering::SeqCst),
        "the comparison wrote it again"
    );
    for _ in 0..20 {
        assert!(read(&group, &file, 0, data.len()) == data);
    }
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
    let now = place_on(&group.map(&file)[extent.index as usize], DISK);
    assert_ne!(now, place_on(&extent, DISK), "the copy has left the place");
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// What the source lost was called good on the place that turned out bad: no better copy is left than
/// the source's, and the file owes what is lost.
#[test]
fn a_source_that_loses_its_last_write_beside_a_place_that_gives_other_bytes_counts_and_the_loss_is_told()
 {
    let scene = Scene::mirrored(13);
    let (disks, group, file, extent, _) = with_a_place_that_gives_other_bytes(&scene, |_| true);
    let offset_bytes = extent.offset_bytes;
    write_beside_the_place(&disks, &group, &file, offset_bytes, &pattern(9, 4096));
    let (theirs, inner) = (Arc::clone(&group), Arc::clone(&scene.disks));
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        inner.vanish(DiskSlot(0));
        theirs.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
        inner.bring_back(DiskSlot(0));
    }));
    let mut found = vec![0; 4096];
    disks.mend_by(|| {
        let _ = group.read(&file, offset_bytes, &mut found);
    });
    group.return_disks(&[DiskSlot(0)]).unwrap();
    // What the disk kept of the write, if anything.
    let kept = read(&group, &file, offset_bytes, 4096);
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == kept);
    }
    group.sync_file(&file, true).unwrap_err();
    resync(&group);
    assert!(read(&group, &file, offset_bytes, 4096) == kept);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// The write was announced while the other disk was away, and goes out when the copy on the place has
/// been left: the disk has missed it.
#[test]
fn a_write_that_waits_for_a_place_to_be_mended_is_missed_by_the_disk_that_is_away() {
    let scene = Scene::mirrored(14);
    let (disks, group, file, extent, _) = with_a_place_that_gives_other_bytes(&scene, |_| true);
    let offset_bytes = extent.offset_bytes;
    let new = pattern(9, 4096);
    disks.lies.store(1, Ordering::SeqCst);
    let (theirs, their_file, their_bytes) = (Arc::clone(&group), Arc::clone(&file), new.clone());
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        theirs.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
        theirs
            .write(&their_file, offset_bytes, &their_bytes)
            .unwrap();
    }));
    let mut found = vec![0; 4096];
    disks.mend_by(|| {
        let _ = group.read(&file, offset_bytes, &mut found);
    });
    group.return_disks(&[DiskSlot(0)]).unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == new);
    }
    resync(&group);
    assert!(read(&group, &file, offset_bytes, 4096) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// A third copy has what the source lost.
#[test]
fn a_source_that_loses_its_last_write_does_not_count_beside_a_third_copy() {
    let scene = Scene::new(
        15,
        Redundancy::High,
        &[(0, 64), (1, 64), (2, 64), (3, 64), (4, 64)],
    );
    let is_it = |extent: &ExtentView| {
        let disks: Vec<u16> = extent
            .copies
            .iter()
            .flatten()
            .map(|(disk, _)| disk.0)
            .collect();
        disks.contains(&DISK.0)
    };
    let (disks, group, file, extent, _) = with_a_place_that_gives_other_bytes(&scene, is_it);
    let offset_bytes = extent.offset_bytes;
    let new = pattern(9, 4096);
    write_beside_the_place(&disks, &group, &file, offset_bytes, &new);
    let others = extent
        .copies
        .iter()
        .flatten()
        .map(|(disk, _)| DiskSlot(disk.0));
    let others: Vec<DiskSlot> = others.filter(|slot| *slot != DISK).collect();
    let (theirs, inner, goes) = (Arc::clone(&group), Arc::clone(&scene.disks), others[0]);
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        inner.vanish(goes);
        theirs
            .take_offline(&[DiskNumber(goes.0)], "it is gone")
            .unwrap();
        inner.bring_back(goes);
    }));
    let mut found = vec![0; 4096];
    disks.mend_by(|| {
        group.read(&file, offset_bytes, &mut found).unwrap();
        assert!(found == new);
    });
    group.return_disks(&[goes]).unwrap();
    for _ in 0..20 {
        assert!(read(&group, &file, offset_bytes, 4096) == new);
    }
    group.sync_file(&file, true).unwrap();
    resync(&group);
    assert!(read(&group, &file, offset_bytes, 4096) == new);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}
