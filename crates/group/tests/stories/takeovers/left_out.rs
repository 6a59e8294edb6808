//! Half of a mirror is left out by whoever takes over: it hangs with requests of the killed process,
//! which reach it whenever it likes.

use std::sync::Arc;

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::KeptJournal;
use spindle_device::{DiskSlot, Disks};
use spindle_group::{Group, GroupError, GroupErrorKind};

use super::blinking::killed_with_a_write_on_one_copy;
use super::{copy_of, open_kept, take_over, take_over_of};
use crate::failed_beside_hanging::catch_up;
use crate::one_copy::fill_and_remove;
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

/// Takes over with the first disk alone.
fn take_over_half(scene: &Scene, journal: &KeptJournal) -> Result<Group, GroupError> {
    let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    take_over_of(scene, journal, disks, &[DiskSlot(0)])
}

fn mode_of_the_other(group: &Group) -> String {
    group.view().disks[1].mode.clone()
}

#[track_caller]
fn is_refused(scene: &Scene, journal: &KeptJournal) {
    // Not printed where it is a group: that has all that the simulated disks hold.
    let refused = take_over_half(scene, journal).err();
    let refused = refused.expect("half of the votes does not suffice");
    assert_eq!(refused.kind, GroupErrorKind::NoMajority, "{refused}");
}

/// A process is killed when one copy has a write and the other one has not. What the disk that hangs
/// was asked for lands there at once, or when it is back for good.
#[test]
fn half_of_a_mirror_goes_on_after_a_killed_daemon_and_takes_the_other_half_back() {
    for has_it in [0, 1] {
        let scene = Scene::mirrored(51);
        let kept = killed_with_a_write_on_one_copy(&scene, DiskSlot(has_it));
        let journal = copy_of(kept.memory());

        let group = take_over_half(&scene, &journal).unwrap();
        group.begin_journal().unwrap();
        assert_eq!(mode_of_the_other(&group), "offline");
        let file = group.file(FileId(10)).unwrap();
        let head = if has_it == 0 { 3 } else { 2 };
        assert!(
            read(&group, &file, 0, 4096) == pattern(head, 4096),
            "{has_it}"
        );
        let rest = read(&group, &file, 4096, (1 << 20) - 4096);
        assert!(rest == pattern(2, 1 << 20)[4096..], "{has_it}");
        group.write(&file, 1 << 19, &pattern(4, 4096)).unwrap();
        group.sync().unwrap();
        // And once more, before anybody has the disk back.
        std::mem::forget((group, file));
        let group = take_over_half(&scene, &journal).unwrap();
        group.begin_journal().unwrap();
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        let file = group.file(FileId(10)).unwrap();
        assert_copies_equal(&scene, &group, &file, "after the return");
        assert!(
            read(&group, &file, 1 << 19, 4096) == pattern(4, 4096),
            "{has_it}"
        );
        assert_sound(&group);
        group.close().unwrap();
        drop(group);
        let group = open_kept(&scene, &journal);
        assert_eq!(mode_of_the_other(&group), "online");
    }
}

#[test]
fn half_of_a_mirror_that_was_left_behind_does_not_go_on_for_the_half_that_hangs() {
    let scene = Scene::mirrored(52);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(0));
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    group.sync().unwrap();
    std::mem::forget((group, file));
    scene.disks.bring_back(DiskSlot(0));
    is_refused(&scene, &journal);
    let group = open_kept(&scene, &journal);
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 1 << 20) == pattern(2, 1 << 20));
}

#[test]
fn half_of_a_mirror_that_lacks_something_does_not_go_on_for_the_half_that_hangs() {
    let scene = Scene::mirrored(53);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.offline_disks(&[DiskNumber(0)]).unwrap();
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(0)]).unwrap();
    // It serves, and nobody has copied yet what it missed.
    std::mem::forget((group, file));
    is_refused(&scene, &journal);
    let group = open_kept(&scene, &journal);
    resync(&group);
    std::mem::forget(group);
    let group = take_over_half(&scene, &journal).unwrap();
    group.begin_journal().unwrap();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 1 << 20) == pattern(2, 1 << 20));
}

/// What no flush had covered is on the half that hangs alone, where the other one dropped it.
#[test]
fn half_of_a_mirror_that_may_have_dropped_something_does_not_go_on_for_the_half_that_hangs() {
    let blinks = |scene: &Scene| {
        scene.disks.vanish(DiskSlot(0));
        scene.disks.bring_back(DiskSlot(0));
    };
    let fails_a_flush = |scene: &Scene| scene.disks.drop_at_flushes(DiskSlot(0), 1);
    let troubles: [&dyn Fn(&Scene); 2] = [&blinks, &fails_a_flush];
    for (seed, trouble) in (55..).zip(troubles) {
        let scene = Scene::mirrored(seed);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
        group.sync().unwrap();
        group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
        std::mem::forget((group, file));
        trouble(&scene);
        let refused = take_over_half(&scene, &journal).map(drop).unwrap_err();
        assert_eq!(refused.kind, GroupErrorKind::NotEnough, "{refused}");
        let group = open_kept(&scene, &journal);
        let file = group.file(FileId(10)).unwrap();
        assert!(read(&group, &file, 0, 1 << 20) == pattern(2, 1 << 20));
        group.sync_file(&file, true).unwrap();
    }
}

/// What is on a disk that is offline counts for nothing, whatever it may have dropped.
#[test]
fn a_disk_that_was_offline_and_came_back_another_keeps_nobody_from_going_on() {
    let scene = Scene::new(58, Redundancy::Normal, &[(0, 64), (0, 64), (1, 64)]);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    group.offline_disks(&[DiskNumber(1)]).unwrap();
    scene.disks.vanish(DiskSlot(1));
    scene.disks.bring_back(DiskSlot(1));
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    std::mem::forget((group, file));
    let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    let group = take_over_of(&scene, &journal, disks, &[DiskSlot(1), DiskSlot(2)]).unwrap();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, 1 << 20) == pattern(2, 1 << 20));
}

/// Extents were made while it was away. It lacks nothing of all others any more, and their second copies
/// are not made yet.
#[test]
fn half_of_a_mirror_that_has_no_copy_of_some_extents_does_not_go_on_for_the_half_that_hangs() {
    let scene = Scene::mirrored(57);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    group.offline_disks(&[DiskNumber(0)]).unwrap();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 30 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    group.return_disks(&[DiskSlot(0)]).unwrap();
    catch_up(&group);
    std::mem::forget((group, file));
    is_refused(&scene, &journal);
    let group = open_kept(&scene, &journal);
    resync(&group);
    std::mem::forget(group);
    let group = take_over_half(&scene, &journal).unwrap();
    group.begin_journal().unwrap();
    let file = group.file(FileId(10)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
}

#[test]
fn half_of_a_mirror_at_rest_or_of_another_journal_does_not_go_on() {
    let scene = Scene::mirrored(54);
    let journal = KeptJournal::create().unwrap();
    let group = open_kept(&scene, &journal);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    std::mem::forget((group, file));
    is_refused(&scene, &KeptJournal::create().unwrap());
    // Somebody who keeps no such journal has had the group since.
    let between = scene.open();
    between.close().unwrap();
    drop(between);
    is_refused(&scene, &journal);
    let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    take_over(&scene, &journal, disks).unwrap();
}

/// The commit that takes over what the killed process had written makes the marks over it durable. A
/// power cut right after it takes the keeper's memory along.
#[test]
fn a_power_cut_after_a_takeover_leaves_known_what_the_disk_that_hung_lacks() {
    for seed in 60..70 {
        let scene = Scene::mirrored(seed);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        fill_and_remove(&group, FileId(9));
        let file = create(&group, 10, NORMAL);
        let length = 3 << 20;
        group.write(&file, 0, &pattern(seed, length)).unwrap();
        std::mem::forget((group, file));
        // With what no flush had covered.
        scene.disks.vanish(DiskSlot(1));
        std::mem::forget(take_over_half(&scene, &journal).unwrap());
        scene.crash();
        scene.disks.bring_back(DiskSlot(1));
        let group = scene.open();
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        let file = group.file(FileId(10)).unwrap();
        assert_copies_equal(&scene, &group, &file, "after the return");
        assert_sound(&group);
    }
}
