//! Copies that are moved off bad places: beside a flush, and across an outage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};

use crate::background::resync::tests::resync_after_a_pause;
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::file::File;
use crate::io::mend::Mended;
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, opener, pattern, read, resync,
};
use crate::{ExtentView, Group};

/// The disk whose copies are bad.
const DISK: DiskSlot = DiskSlot(1);

/// Is told where a batch writes to [`DISK`].
type Act = Box<dyn FnMut(u64) + Send>;

/// Disks beside which something happens whenever a batch that writes to [`DISK`] is on its way.
struct BesideWrites {
    inner: Arc<SimulatedDisks>,
    /// Locked while it happens.
    act: Mutex<Option<Act>>,
}

impl BesideWrites {
    /// A group on them; nothing happens yet.
    fn open(scene: &Scene) -> (Arc<Self>, Arc<Group>) {
        let disks = Arc::new(Self {
            inner: Arc::clone(&scene.disks),
            act: Mutex::new(None),
        });
        let backend = Arc::clone(&disks) as Arc<dyn Disks>;
        let slots = [DiskSlot(0), DISK];
        let group = Group::open(backend, &slots, &scene.name, &opener()).unwrap();
        (disks, Arc::new(group))
    }
}

impl std::fmt::Debug for BesideWrites {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BesideWrites")
    }
}

impl Disks for BesideWrites {
    fn run(&self, batch: &mut [Request<'_>]) {
        let writes =
            |request: &Request<'_>| request.slot == DISK && matches!(request.work, Work::Write(_));
        if let Some(write) = batch.iter().find(|request| writes(request))
            && let Ok(mut act) = self.act.try_lock()
            && let Some(act) = act.as_mut()
        {
            act(write.offset_bytes);
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

fn place_on(extent: &ExtentView, disk: DiskSlot) -> u64 {
    let mut copies = extent.copies.iter().flatten();
    let copy = copies.find(|(number, _)| number.0 == disk.0);
    copy.unwrap().1
}

#[test]
fn a_copy_that_was_moved_off_a_bad_place_is_flushed_before_the_map_that_names_it_is_durable() {
    let scene = Scene::mirrored(3);
    let (disks, group) = BesideWrites::open(&scene);
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 1 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let extent = group.map(&file).pop().unwrap();
    let (old, length) = (place_on(&extent, DISK), extent.initialised_bytes);
    scene.disks.fail_reads(DISK, old..old + length, u64::MAX);
    scene.disks.fail_writes(DISK, old..old + length, u64::MAX);
    let theirs = Arc::downgrade(&group);
    *disks.act.lock().unwrap() = Some(Box::new(move |_| {
        theirs.upgrade().unwrap().flush_written().unwrap();
    }));
    let mut now = old;
    for _ in 0..100 {
        let length = usize::try_from(length).unwrap();
        read(&group, &file, extent.offset_bytes, length);
        now = place_on(&group.map(&file).pop().unwrap(), DISK);
        if now != old {
            break;
        }
    }
    assert_ne!(now, old, "the copy was never moved");
    *disks.act.lock().unwrap() = None;
    group.sync().unwrap();
    let length = usize::try_from(length).unwrap();
    let begin = usize::try_from(extent.offset_bytes).unwrap();
    let durable = scene.disks.durable_bytes(DISK, now, length);
    assert!(
        durable == data[begin..begin + length],
        "the durable map names a place that does not have it"
    );
}

#[test]
fn a_bad_place_that_was_found_before_an_outage_is_looked_for_again_after_it() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (index, extent) = {
        let map = file.map.read();
        let index = map.end_index() - 1;
        (index, map.extent(index).unwrap())
    };
    let on = |disk: u16| extent.present().find(|copy| copy.disk().0 == disk);
    let (source, copy) = (on(0).unwrap(), on(DISK.0).unwrap());
    // The source has more than the bad copy is to get, and loses it before the copy is moved.
    let end = group.map(&file).pop().unwrap();
    let length = usize::try_from(end.initialised_bytes).unwrap();
    let new = pattern(2, length);
    group.write(&file, end.offset_bytes, &new).unwrap();
    group.note_bad_place(BadPlace {
        file: Arc::clone(&file),
        index,
        copy,
        bad: vec![BadBlocks {
            inside_blocks: 0,
            blocks: length as u64 / 4096,
            source,
        }],
        lives: group.disks.lives(extent.present()),
        reason: "a test says so".to_owned(),
    });
    scene.disks.vanish(DiskSlot(0));
    group.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
    scene.disks.bring_back(DiskSlot(0));
    group.return_disks(&[DiskSlot(0)]).unwrap();
    group.move_bad_places().unwrap();
    resync(&group);
    assert!(read(&group, &file, end.offset_bytes, length) == new);
    assert_copies_equal(&scene, &group, &file, "after the outage");
    assert_sound(&group);
}

#[test]
fn a_bad_place_is_not_mended_from_a_disk_that_goes_and_comes_back_in_the_midst() {
    let scene = Scene::mirrored(8);
    let (disks, group) = BesideWrites::open(&scene);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (index, extent) = {
        let map = file.map.read();
        let index = map.end_index() - 1;
        (index, map.extent(index).unwrap())
    };
    let on = |disk: u16| extent.present().find(|copy| copy.disk().0 == disk);
    let (source, copy) = (on(0).unwrap(), on(DISK.0).unwrap());
    let end = group.map(&file).pop().unwrap();
    let bad = |inside_blocks| BadBlocks {
        inside_blocks,
        blocks: 1,
        source,
    };
    let place = BadPlace {
        file: Arc::clone(&file),
        index,
        copy,
        bad: vec![bad(0), bad(24)],
        lives: group.disks.lives(extent.present()),
        reason: "a test says so".to_owned(),
    };
    let mending = group.announce_mending(&place).unwrap().unwrap();
    // By a writer that comes before the mend has the range, so that no flush covers it: where the
    // source goes, the other disk has it.
    let new = pattern(2, 128 << 10);
    group.write(&file, end.offset_bytes, &new).unwrap();
    let theirs = (Arc::downgrade(&group), Arc::clone(&scene.disks));
    let mut theirs = Some(theirs);
    let first = copy.start_bytes();
    *disks.act.lock().unwrap() = Some(Box::new(move |at| {
        let Some((group, disks)) = theirs.take_if(|_| at == first) else {
            return;
        };
        let goes_and_returns = move || {
            let group = group.upgrade().unwrap();
            disks.vanish(DiskSlot(0));
            group.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
            disks.bring_back(DiskSlot(0));
            group.return_disks(&[DiskSlot(0)]).unwrap();
        };
        thread::spawn(goes_and_returns).join().unwrap();
    }));
    {
        let (low, high) = file.map.read().schedule().envelope(index);
        let _held = file.range_lock.exclusive(low, high);
        assert_eq!(group.mend_announced(&place).unwrap(), Mended::Gone);
    }
    drop(mending);
    *disks.act.lock().unwrap() = None;
    resync(&group);
    group.sync().unwrap();
    assert!(read(&group, &file, end.offset_bytes, new.len()) == new);
    assert_copies_equal(&scene, &group, &file, "after the mend");
    assert_sound(&group);
}

#[test]
fn a_copy_moved_off_a_bad_place_while_the_other_is_stale_outlives_an_outage_of_its_disk() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let (index, extent) = {
        let map = file.map.read();
        let index = map.end_index() - 1;
        (index, map.extent(index).unwrap())
    };
    let on = |disk: u16| extent.present().find(|copy| copy.disk().0 == disk);
    let (stale, copy) = (on(0).unwrap(), on(DISK.0).unwrap());
    group.take_offline(&[stale.disk()], "it failed").unwrap();
    let offset_bytes = group.map(&file).pop().unwrap().offset_bytes;
    let new = pattern(2, 32 << 10);
    group.write(&file, offset_bytes, &new).unwrap();
    group.sync().unwrap();
    // Until nothing was written lately.
    resync(&group);
    group.return_disks(&[DiskSlot(0)]).unwrap();
    let place = copy.start_bytes()..copy.start_bytes() + copy.length_bytes();
    scene.disks.fail_writes(DISK, place, u64::MAX);
    // Behind what it lacks the disk that came back has everything.
    group.note_bad_place(BadPlace {
        file: Arc::clone(&file),
        index,
        copy,
        bad: vec![BadBlocks {
            inside_blocks: 16,
            blocks: 1,
            source: stale,
        }],
        lives: group.disks.lives(extent.present()),
        reason: "a test says so".to_owned(),
    });
    group.move_bad_places().unwrap();
    assert_ne!(
        place_on(&group.map(&file).pop().unwrap(), DISK),
        copy.start_bytes()
    );
    scene.disks.vanish(DISK);
    scene.disks.bring_back(DISK);
    group
        .take_offline(&[DiskNumber(DISK.0)], "it blinks")
        .unwrap();
    group.return_disks(&[DISK]).unwrap();
    resync(&group);
    let mut found = vec![0; new.len()];
    group.read(&file, offset_bytes, &mut found).unwrap();
    assert!(found == new);
    assert_copies_equal(&scene, &group, &file, "after the outage");
}

/// Disks of which one cannot read a place, and gives back other bytes once that was written again;
/// from that moment on something else goes on.
struct GivesOtherBytes {
    inner: Arc<SimulatedDisks>,
    place: Mutex<Option<u64>>,
    is_written: AtomicBool,
    meanwhile: Mutex<Option<Meanwhile>>,
    under_way: Mutex<Option<JoinHandle<()>>>,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

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
                Work::Read(memory) if self.is_written.load(Ordering::SeqCst) => memory[0] ^= 1,
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
        meanwhile: Mutex::new(None),
        under_way: Mutex::new(None),
    });
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    let slots = [DiskSlot(0), DISK];
    let group = Arc::new(Group::open(backend, &slots, &scene.name, &opener()).unwrap());
    let file = create(&group, 10, NORMAL);
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
/// its first block holds. The other disk has gone while the place was written again.
fn left_on_a_bad_place(
    scene: &Scene,
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
    let right = data[begin..begin + 4096].to_vec();
    let theirs = Arc::clone(&group);
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        theirs.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
    }));
    let mut found = vec![0; 4096];
    while disks.under_way.lock().unwrap().is_none() {
        group.read(&file, offset_bytes, &mut found).unwrap();
        assert!(found == right);
    }
    let under_way = disks.under_way.lock().unwrap().take();
    under_way.unwrap().join().unwrap();
    assert!(group.membership.is_online(DiskNumber(DISK.0)), "it serves");
    group.read(&file, offset_bytes, &mut found).unwrap_err();
    (disks, group, file, extent, right)
}

/// No disk gives back what is written there: the write is refused, and what the other one has counts.
#[test]
fn a_write_to_a_place_that_gives_back_other_bytes_is_refused_while_no_other_copy_serves() {
    let scene = Scene::mirrored(7);
    let (_disks, group, file, extent, former) = left_on_a_bad_place(&scene);
    let offset_bytes = extent.offset_bytes;
    let new = pattern(9, 4096);
    let mut found = vec![0; 4096];
    let error = group.write(&file, offset_bytes, &new).unwrap_err();
    assert!(
        error.to_string().contains("gives back other bytes"),
        "{error}"
    );
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
    let (disks, group, file, extent, _) = left_on_a_bad_place(&scene);
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
    let (_disks, group, file, extent, _) = left_on_a_bad_place(&scene);
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
    let (_disks, group, file, extent, right) = left_on_a_bad_place(&scene);
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

/// The copy cannot leave its bad place while some of its blocks can be read nowhere: its disk is not
/// to blame, and the blocks can be read later.
#[test]
fn a_disk_with_a_bad_place_stays_where_other_blocks_of_the_copy_can_be_read_nowhere() {
    let scene = Scene::new(11, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let extent = (group.map(&file).into_iter())
        .rfind(|extent| {
            let mut copies = extent.copies.iter().flatten();
            extent.initialised_bytes >= 1 << 20 && copies.any(|(disk, _)| disk.0 == DISK.0)
        })
        .unwrap();
    let copies: Vec<(DiskSlot, u64)> = (extent.copies.iter().flatten())
        .map(|(disk, place)| (DiskSlot(disk.0), *place))
        .collect();
    let place = place_on(&extent, DISK);
    // What each of them cannot read the other one can, but for one block.
    for (number, (slot, start)) in (0..).zip(&copies) {
        let own = start + (20 + number) * 4096;
        let both = start + 30 * 4096;
        scene.disks.fail_reads(*slot, own..own + 4096, u64::MAX);
        scene.disks.fail_reads(*slot, both..both + 4096, u64::MAX);
    }
    scene.disks.fail_reads(DISK, place..place + 4096, u64::MAX);
    scene.disks.fail_writes(DISK, place..place + 4096, u64::MAX);
    let at = extent.offset_bytes;
    let begin = usize::try_from(at).unwrap();
    let is_online = || group.membership.is_online(DiskNumber(DISK.0));
    for _ in 0..40 {
        assert!(read(&group, &file, at, 4096) == data[begin..begin + 4096]);
    }
    resync(&group);
    assert!(is_online(), "another copy's blocks cannot be read");
    assert_eq!(
        place_on(&group.map(&file)[extent.index as usize], DISK),
        place
    );
    let mut found = vec![0; 4096];
    group.read(&file, at + 30 * 4096, &mut found).unwrap_err();
    let (other, _) = copies.iter().find(|(slot, _)| *slot != DISK).unwrap();
    scene.disks.clear_faults(*other);
    // Whatever was tried in vain is tried again after a while.
    resync_after_a_pause(&group);
    assert!(is_online());
    assert_ne!(
        place_on(&group.map(&file)[extent.index as usize], DISK),
        place
    );
    scene.disks.clear_faults(DISK);
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert_sound(&group);
}

#[test]
fn a_bad_place_is_not_mended_from_a_copy_of_which_nobody_knows_any_more_what_it_has() {
    let scene = Scene::mirrored(8);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 1 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let index = file.map.read().end_index() - 1;
    let extent = file.map.read().extent(index).unwrap();
    let on = |disk: u16| extent.present().find(|copy| copy.disk().0 == disk);
    let (source, copy) = (on(0).unwrap(), on(DISK.0).unwrap());
    let place = BadPlace {
        file: Arc::clone(&file),
        index,
        copy,
        bad: vec![BadBlocks {
            inside_blocks: 3,
            blocks: 1,
            source,
        }],
        lives: group.disks.lives(extent.present()),
        reason: "a test says so".to_owned(),
    };
    // As where the source was a bad place itself, and gives back other bytes since.
    let first = file.map.read().schedule().first_block(index) + 3;
    let at = source.start_bytes() + 3 * 4096;
    scene.disks.overwrite(DiskSlot(0), at, &pattern(2, 4096));
    let returning = group.dirty.begin_resync();
    let mut apply = |edit| group.catalog.apply(edit);
    (group.dirty).missed_by(&file, &[(first, first + 1)], &[source.disk()], &mut apply);
    drop(returning);
    group.note_bad_place(place);
    group.move_bad_places().unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_copies_equal(&scene, &group, &file, "after the resync");
}

/// The power is cut when the place was written again and the copy has not left it: the durable map
/// names a place that can be read by then, and gives other bytes.
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
        while disks.under_way.lock().unwrap().is_none() {
            read(&group, &file, extent.offset_bytes, 4096);
        }
        let under_way = disks.under_way.lock().unwrap().take();
        under_way.unwrap().join().unwrap();
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
    let place = disks.place.lock().unwrap().take();
    group.write(&file, offset_bytes, &pattern(9, 4096)).unwrap();
    *disks.place.lock().unwrap() = place;
    let (theirs, inner) = (Arc::clone(&group), Arc::clone(&scene.disks));
    *disks.meanwhile.lock().unwrap() = Some(Box::new(move || {
        inner.vanish(DiskSlot(0));
        theirs.take_offline(&[DiskNumber(0)], "it is gone").unwrap();
        inner.bring_back(DiskSlot(0));
    }));
    let mut found = vec![0; 4096];
    while disks.under_way.lock().unwrap().is_none() {
        let _ = group.read(&file, offset_bytes, &mut found);
    }
    let under_way = disks.under_way.lock().unwrap().take();
    under_way.unwrap().join().unwrap();
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
