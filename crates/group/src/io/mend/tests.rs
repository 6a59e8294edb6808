//! Copies that are moved off bad places: beside a flush, and across an outage.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};

use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, opener, pattern, read, resync,
};
use crate::{ExtentView, Group};

/// The disk whose copies are bad.
const DISK: DiskSlot = DiskSlot(1);

/// Disks of which somebody flushes one whenever a batch that writes to it is on its way.
struct FlushedMeanwhile {
    inner: Arc<SimulatedDisks>,
    group: OnceLock<Weak<Group>>,
    /// Whether it does so now; taken while it does.
    is_on: Mutex<bool>,
}

impl std::fmt::Debug for FlushedMeanwhile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FlushedMeanwhile")
    }
}

impl Disks for FlushedMeanwhile {
    fn run(&self, batch: &mut [Request<'_>]) {
        let writes =
            |request: &Request<'_>| request.slot == DISK && matches!(request.work, Work::Write(_));
        if batch.iter().any(writes)
            && let Ok(is_on) = self.is_on.try_lock()
            && *is_on
        {
            let group = self.group.get().and_then(Weak::upgrade).unwrap();
            group.flush_written().unwrap();
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
    let disks = Arc::new(FlushedMeanwhile {
        inner: Arc::clone(&scene.disks),
        group: OnceLock::new(),
        is_on: Mutex::new(false),
    });
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    let slots = [DiskSlot(0), DISK];
    let group = Arc::new(Group::open(backend, &slots, &scene.name, &opener()).unwrap());
    disks.group.set(Arc::downgrade(&group)).unwrap();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 1 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let extent = group.map(&file).pop().unwrap();
    let (old, length) = (place_on(&extent, DISK), extent.initialised_bytes);
    scene.disks.fail_reads(DISK, old..old + length, u64::MAX);
    scene.disks.fail_writes(DISK, old..old + length, u64::MAX);
    *disks.is_on.lock().unwrap() = true;
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
    *disks.is_on.lock().unwrap() = false;
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
