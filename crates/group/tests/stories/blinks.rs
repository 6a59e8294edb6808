//! Disks that go away for a moment and lose what no flush had covered: what was under way across
//! that moment is lost or begun anew, never taken for done.

use std::sync::Arc;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::{File, Group, GroupErrorKind, Layout};

use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
    spare,
};

const LENGTH: usize = 1 << 20;
const FOUR: &[(u8, u64)] = &[(0, 64), (0, 64), (1, 64), (1, 64)];

/// The disk loses its power and what no flush covered; a write of another file finds that out,
/// and the disk is back at once.
fn blink(scene: &Scene, group: &Group, other: &File, slot: DiskSlot) {
    scene.disks.vanish(slot);
    group.write(other, 0, &pattern(77, 8 << 20)).unwrap();
    group.sync_file(other, true).unwrap();
    scene.disks.bring_back(slot);
    let back = group.return_disks(&[slot]).unwrap();
    assert_eq!(back, [DiskNumber(slot.0)]);
}

fn disk_of(group: &Group, file: &File) -> DiskSlot {
    let map = group.map(file);
    let (disk, _) = map
        .iter()
        .flat_map(|extent| &extent.copies)
        .flatten()
        .next()
        .unwrap();
    DiskSlot(disk.0)
}

#[test]
fn a_sync_of_a_file_of_one_copy_tells_what_its_disk_lost_between_write_and_sync() {
    let scene = Scene::new(1, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let other = create(&group, 11, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    group.sync_file(&file, true).unwrap();
    let new = pattern(2, LENGTH);
    group.write(&file, 0, &new).unwrap();
    blink(&scene, &group, &other, disk_of(&group, &file));
    let error = group.sync_file(&file, true).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Io);
    assert!(
        error
            .message
            .contains("went away before what was written to file 10 was flushed"),
        "{error}"
    );
    // Told once; what is written after that is as good as any.
    group.write(&file, 0, &new).unwrap();
    group.sync_file(&file, true).unwrap();
    drop((file, other, group));
    scene.crash();
    let group = scene.open();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == new);
}

#[test]
fn a_sync_of_the_group_tells_it_too_and_the_file_again() {
    let scene = Scene::new(2, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let other = create(&group, 11, NORMAL);
    group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
    blink(&scene, &group, &other, disk_of(&group, &file));
    assert_eq!(group.sync().unwrap_err().kind, GroupErrorKind::Io);
    group.sync().unwrap();
    assert_eq!(
        group.sync_file(&file, false).unwrap_err().kind,
        GroupErrorKind::Io
    );
    group.sync_file(&file, false).unwrap();
    group.close().unwrap();
}

#[test]
fn what_a_file_of_one_copy_had_flushed_before_its_disk_blinked_is_not_told_as_lost() {
    let scene = Scene::new(3, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let other = create(&group, 11, NORMAL);
    let data = pattern(1, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    blink(&scene, &group, &other, disk_of(&group, &file));
    group.sync_file(&file, true).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == data);
}

#[test]
fn a_sync_relies_on_the_other_copy_where_one_disk_lost_its_own_and_makes_it_durable() {
    for seed in 1..9 {
        let scene = Scene::new(seed, Redundancy::Normal, FOUR);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        let other = create(&group, 11, NORMAL);
        group.write(&file, 0, &pattern(1, LENGTH)).unwrap();
        group.sync().unwrap();
        let new = pattern(2, LENGTH);
        group.write(&file, 0, &new).unwrap();
        let disks: Vec<DiskSlot> = {
            let map = group.map(&file);
            let copies = map[0].copies.iter().flatten();
            copies.map(|(disk, _)| DiskSlot(disk.0)).collect()
        };
        // The first blinks and is brought up to date from the second; then the second blinks: what
        // the sync relies on is what the resync copied, which nobody flushed.
        blink(&scene, &group, &other, disks[0]);
        while group.work(1).unwrap().did_something {}
        scene.disks.vanish(disks[1]);
        group.write(&other, 0, &pattern(3, 8 << 20)).unwrap();
        let answer = group.sync_file(&file, false);
        drop((file, other, group));
        scene.disks.crash();
        scene.disks.restart();
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        assert!(answer.is_ok(), "seed {seed}: {answer:?}");
        assert!(read(&group, &file, 0, LENGTH) == new, "seed {seed}");
    }
}

/// A file that a new disk gets copies of, and the disk blinks between two pieces of the first.
fn the_target_of_a_move_blinks(layout: Layout, seed: u64) {
    let scene = Scene::new(seed, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, layout);
    let data = pattern(seed, 24 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    group.add_disks(&[spare(&scene.disks, 0, 64)]).unwrap();
    let target = DiskSlot(4);
    let mut now_ms = 1_000_000;
    while scene.disks.unsynced_count(target) == 0 {
        now_ms += 1;
        assert!(now_ms < 1_001_000, "nothing is copied to the new disk");
        group.work(now_ms).unwrap();
    }
    // It loses its power for a moment; a flush finds that out.
    scene.disks.vanish(target);
    group.sync().unwrap();
    let is_offline = |disk: &spindle_group::DiskView| disk.number.0 == 4 && disk.mode == "offline";
    assert!(group.view().disks.iter().any(is_offline));
    scene.disks.bring_back(target);
    group.return_disks(&[target]).unwrap();
    resync(&group);
    let on_target = |copy: &Option<(DiskNumber, u64)>| copy.is_some_and(|(disk, _)| disk.0 == 4);
    let map = group.map(&file);
    assert!(
        map.iter().any(|extent| extent.copies.iter().any(on_target)),
        "seed {seed}: the rebalance goes on when the disk is back"
    );
    assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
    assert!(read(&group, &file, 0, data.len()) == data, "seed {seed}");
    assert_sound(&group);
}

#[test]
fn a_move_whose_target_blinks_between_two_pieces_is_begun_anew() {
    for seed in 1..9 {
        the_target_of_a_move_blinks(NORMAL, seed);
    }
}

#[test]
fn a_move_of_an_only_copy_whose_target_blinks_between_two_pieces_is_begun_anew() {
    for seed in 1..9 {
        the_target_of_a_move_blinks(EXTERNAL, seed);
    }
}

/// Adds a disk that loses its power after some requests, and all disks lose theirs after some more;
/// whether the disk is a member then that was taken for away, and had to come back.
fn goes_while_it_joins(own_requests: u64, all_requests: u64) -> bool {
    let scene = Scene::new(7, Redundancy::Normal, FOUR);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(10, LENGTH);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    drop(file);
    let new = spare(&scene.disks, 1, 64);
    let slot = new.slot;
    scene.disks.vanish_after(slot, own_requests);
    scene.disks.power_fails_after(all_requests);
    let _ = group.add_disks(&[new]);
    scene.disks.power_stays();
    drop(group);
    scene.crash();
    let group = scene.open();
    scene.disks.bring_back(slot);
    let mut disks = group.view().disks.into_iter();
    let is_away = disks.any(|disk| disk.number.0 == slot.0 && disk.mode == "offline");
    if is_away {
        let back = group.return_disks(&[slot]);
        assert_eq!(
            back.unwrap(),
            [DiskNumber(slot.0)],
            "after {own_requests} and {all_requests} requests"
        );
    }
    resync(&group);
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, LENGTH) == data);
    assert_copies_equal(&scene, &group, &file, "back");
    assert_sound(&group);
    is_away
}

#[test]
fn a_disk_that_goes_at_any_request_of_its_joining_comes_back() {
    let mut came_back = 0;
    for own_requests in 1..25 {
        // The state that names it first looks at the four disks that serve.
        for all_requests in 37..87 {
            came_back += u32::from(goes_while_it_joins(own_requests, all_requests));
        }
    }
    assert!(came_back > 10, "{came_back}");
}

#[test]
fn zeros_before_a_write_to_a_new_extent_are_had_by_a_disk_that_lacked_what_was_cut_off_there() {
    let scene = Scene::new(12, Redundancy::Normal, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let other = create(&group, 11, NORMAL);
    group.write(&file, 0, &pattern(1, 2 * LENGTH)).unwrap();
    group.sync().unwrap();
    // The second disk misses something at the beginning of an extent, which is cut off before
    // it gets that.
    let start = LENGTH as u64;
    scene.disks.vanish(DiskSlot(1));
    group.write(&file, start, &pattern(2, 64 << 10)).unwrap();
    group.sync_file(&file, true).unwrap();
    scene.disks.bring_back(DiskSlot(1));
    group.return_disks(&[DiskSlot(1)]).unwrap();
    group.truncate(&file, start).unwrap();
    // The first disk goes, and the file grows again, behind a gap.
    scene.disks.vanish(DiskSlot(0));
    group.write(&other, 0, &pattern(3, 4096)).unwrap();
    group.sync_file(&other, true).unwrap();
    let data = pattern(4, 4096);
    group.write(&file, start + (256 << 10), &data).unwrap();
    group.sync_file(&file, true).unwrap();
    assert!(read(&group, &file, start, 256 << 10) == vec![0; 256 << 10]);
    assert!(read(&group, &file, start + (256 << 10), data.len()) == data);
}

/// A mirrored file of which the first disk, which is back, lacks blocks of one region.
struct HalfLacking {
    scene: Scene,
    group: Group,
    file: Arc<File>,
    /// What the file holds.
    data: Vec<u8>,
}

impl HalfLacking {
    /// The first disk lacks two blocks at each of these places.
    fn new(seed: u64, places: &[usize]) -> Self {
        let scene = Scene::mirrored(seed);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        let data = pattern(1, 4 * LENGTH);
        group.write(&file, 0, &data).unwrap();
        group.sync().unwrap();
        resync(&group);
        let mut own = Self {
            scene,
            group,
            file,
            data,
        };
        own.group.offline_disks(&[DiskNumber(0)]).unwrap();
        for at in places {
            own.overwrite(*at, 2);
        }
        own.group.sync().unwrap();
        // Rounds of cleaning, but nothing is copied.
        for round in 0..6 {
            while own.group.step(1_000_000_000 + round * 6000).unwrap() {}
        }
        own.group.return_disks(&[DiskSlot(0)]).unwrap();
        own
    }

    fn overwrite(&mut self, at: usize, seed: u64) {
        let new = pattern(seed, 8192);
        self.group.write(&self.file, at as u64, &new).unwrap();
        self.data[at..at + 8192].copy_from_slice(&new);
    }

    /// The power is cut, and both disks are there when it comes back: all can be read, and the copies
    /// become equal.
    fn outlives_a_power_cut(self) {
        let Self {
            scene, group, data, ..
        } = self;
        drop(group);
        scene.crash();
        let was_away = scene.disks.is_vanished(DiskSlot(1));
        if was_away {
            scene.disks.bring_back(DiskSlot(1));
        }
        let group = scene.open();
        let file = group.file(FileId(10)).unwrap();
        if was_away {
            group.return_disks(&[DiskSlot(1)]).unwrap();
        }
        assert!(read(&group, &file, 0, data.len()) == data);
        resync(&group);
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_copies_equal(&scene, &group, &file, "after the power cut");
        assert_sound(&group);
    }
}

/// Each of the two lacks a few blocks of one region, which the other one has: after a power cut all of it
/// can be read.
#[test]
fn what_two_disks_lack_of_one_region_is_all_that_they_lack_after_a_power_cut() {
    let mut half = HalfLacking::new(17, &[40_960]);
    // What the first one lacks the second one has, which is written by both before the second one goes.
    half.overwrite(2 * LENGTH, 3);
    half.scene.disks.vanish(DiskSlot(1));
    half.overwrite(3 * LENGTH, 4);
    half.scene.disks.bring_back(DiskSlot(1));
    half.group.return_disks(&[DiskSlot(1)]).unwrap();
    // The file owes an error once: which blocks of an extent no flush had covered is not known.
    half.group.sync().unwrap_err();
    half.group.sync().unwrap();
    half.outlives_a_power_cut();
}

/// It lacked them, and the other disk, which has them as they were, is away: a sync that was answered
/// outlives the power.
#[test]
fn a_write_to_blocks_that_its_only_disk_lacked_counts_after_a_power_cut() {
    let mut half = HalfLacking::new(18, &[40_960, 106_496]);
    half.scene.disks.vanish(DiskSlot(1));
    half.overwrite(40_960, 3);
    half.group.sync().unwrap();
    half.overwrite(2 * LENGTH, 4);
    half.group.sync().unwrap();
    half.outlives_a_power_cut();
}
