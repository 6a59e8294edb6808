//! Copies that are moved off bad places: beside a flush, and across an outage.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// The copy can leave its bad place nowhere, and the other disk lacks what this one alone has.
#[test]
fn a_disk_with_a_bad_place_and_no_room_stays_where_another_one_lacks_what_it_has() {
    let scene = Scene::mirrored(12);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let own = DiskNumber(DISK.0);
    let other = DiskNumber(1 - DISK.0);
    group.take_offline(&[other], "it failed").unwrap();
    let new = pattern(2, data.len());
    group.write(&file, 0, &new).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(other.0)]).unwrap();
    let extent = (group.map(&file).into_iter())
        .find(|extent| extent.initialised_bytes > 0)
        .unwrap();
    // This block both have.
    let at = extent.offset_bytes;
    let block = &new[usize::try_from(at).unwrap()..][..4096];
    group.write(&file, at, block).unwrap();
    group.sync().unwrap();
    while group.space.allocate(own, 0, 0).is_some() {}
    let place = place_on(&extent, DISK);
    scene.disks.fail_reads(DISK, place..place + 4096, u64::MAX);
    scene.disks.fail_writes(DISK, place..place + 4096, u64::MAX);
    let is_slow = |disk, slow| {
        let disk = group.disks.get(disk).unwrap();
        disk.is_slow.store(slow, Ordering::Relaxed);
    };
    is_slow(other, true);
    assert!(read(&group, &file, at, 4096) == block);
    is_slow(other, false);
    assert!(
        group.membership.is_online(own),
        "the other one lacks nearly all"
    );
    assert!(read(&group, &file, 0, new.len()) == new);
    // When the other one has everything the disk may go.
    resync(&group);
    assert!(read(&group, &file, 0, new.len()) == new);
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
mod other_bytes;
