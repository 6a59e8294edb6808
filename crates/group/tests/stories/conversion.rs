//! Files and groups get another number of copies while they are read and written: never fewer
//! than before until the new ones are whole, and a crash at any request leaves what goes on by
//! itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::{Group, GroupError, GroupErrorKind, Layout, OperationState, Pass, Power};

use crate::scene::{EXTERNAL, FINE, MIB, NORMAL, Scene, assert_sound, create, pattern, read};

const THREE: [(u8, u64); 3] = [(0, 64), (1, 64), (2, 64)];

fn work(group: &Group) -> Result<(), GroupError> {
    for now_ms in 0..100_000 {
        if !group.work(now_ms * 10)?.did_something {
            return Ok(());
        }
    }
    panic!("the work does not end");
}

fn write_file(group: &Group, id: u64, layout: Layout, bytes: u64) -> Vec<u8> {
    let data = pattern(id, usize::try_from(bytes).unwrap());
    let file = create(group, id, layout);
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    data
}

/// Every extent has exactly so many copies, in different failure groups, with the same bytes.
#[track_caller]
fn assert_copies(group: &Group, scene: &Scene, id: u64, copies: usize, when: &str) {
    let file = group.file(FileId(id)).unwrap();
    assert_eq!(group.layout(&file).redundancy.copies(), copies, "{when}");
    for extent in group.map(&file) {
        let there: Vec<_> = extent.copies.iter().flatten().collect();
        assert_eq!(
            (there.len(), extent.copies.len()),
            (copies, copies),
            "{when}: extent {} of file {id}",
            extent.index
        );
        assert_agree(scene, &extent, id, when);
    }
}

#[track_caller]
fn assert_agree(scene: &Scene, extent: &spindle_group::ExtentView, id: u64, when: &str) {
    let length = usize::try_from(extent.initialised_bytes).unwrap();
    let bytes: Vec<Vec<u8>> = (extent.copies.iter().flatten())
        .map(|(disk, at)| scene.disks.bytes(DiskSlot(disk.0), *at, length))
        .collect();
    assert!(
        bytes.windows(2).all(|pair| pair[0] == pair[1]),
        "{when}: the copies of extent {} of file {id} differ",
        extent.index
    );
}

/// The fewest and the most copies that any extent of the file has.
fn fewest_and_most(group: &Group, id: u64) -> (usize, usize) {
    let file = group.file(FileId(id)).unwrap();
    let counts: BTreeSet<usize> = (group.map(&file).iter())
        .map(|extent| extent.copies.iter().flatten().count())
        .collect();
    let first = counts.first().copied().unwrap_or(0);
    (first, counts.last().copied().unwrap_or(0))
}

#[test]
fn a_file_gets_copies_and_gives_them_back_while_it_is_written() {
    for layout in [NORMAL, FINE, EXTERNAL] {
        let scene = Scene::new(1, Redundancy::Normal, &THREE);
        let group = scene.open();
        let mut data = write_file(&group, 1, layout, 9 * MIB + 5000);
        let small: Vec<Vec<u8>> = (2..12)
            .map(|id| write_file(&group, id, layout, id * 3000))
            .collect();
        let mut had = layout.redundancy.copies();
        for wanted in [Redundancy::High, Redundancy::External, Redundancy::Normal] {
            let all: Vec<(FileId, Redundancy)> = (1..12).map(|id| (FileId(id), wanted)).collect();
            assert_eq!(group.convert_files(&all).unwrap(), 11);
            let file = group.file(FileId(1)).unwrap();
            let mut round = 0_usize;
            while group.work(round as u64).unwrap().did_something {
                round += 1;
                let least = had.min(wanted.copies());
                assert!(fewest_and_most(&group, 1).0 >= least, "round {round}");
                if round.is_multiple_of(3) && round < 120 {
                    let at = round * 70_001 % (data.len() - 9000);
                    let bytes = pattern(round as u64, 9000);
                    group.write(&file, at as u64, &bytes).unwrap();
                    data[at..at + 9000].copy_from_slice(&bytes);
                }
                if round == 40 {
                    let bytes = pattern(99, 700_000);
                    group.write(&file, data.len() as u64, &bytes).unwrap();
                    data.extend(bytes);
                }
                if round.is_multiple_of(11) {
                    assert!(read(&group, &file, 0, data.len()) == data, "round {round}");
                    assert_sound(&group);
                }
            }
            assert!(read(&group, &file, 0, data.len()) == data);
            group.sync().unwrap();
            for id in 1..12 {
                assert_copies(&group, &scene, id, wanted.copies(), "when all is done");
            }
            assert_eq!(group.operations(), []);
            assert_sound(&group);
            had = wanted.copies();
        }
        group.close().unwrap();
        let group = scene.open();
        for (id, small) in (2..).zip(&small) {
            let file = group.file(FileId(id)).unwrap();
            assert!(&read(&group, &file, 0, small.len()) == small);
            assert_copies(&group, &scene, id, 2, "after another opening");
        }
        assert_sound(&group);
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        // Space comes back to the last block.
        for id in 1..12 {
            let file = group.file(FileId(id)).unwrap();
            group.remove_file(&group.change(), &file).unwrap();
        }
        group.sync().unwrap();
        assert_sound(&group);
    }
}

#[test]
fn a_conversion_is_shown_paused_and_goes_on_after_a_crash() {
    let scene = Scene::new(2, Redundancy::Normal, &THREE);
    let group = scene.open();
    let data = write_file(&group, 1, NORMAL, 12 * MIB);
    group.set_power(Power::PAUSED).unwrap();
    group
        .convert_files(&[(FileId(1), Redundancy::High)])
        .unwrap();
    assert!(!group.work(0).unwrap().did_something);
    // Asked for is durable: nobody has to ask again.
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(fewest_and_most(&group, 1), (2, 2));
    group.set_power(Power::new(64).unwrap()).unwrap();
    assert!(group.work(0).unwrap().did_something);
    let shown = group.operations();
    assert_eq!(
        (shown[0].pass, shown[0].state),
        (Pass::Restore, OperationState::Run)
    );
    assert_eq!(shown[0].left_bytes, 12 * MIB);
    work(&group).unwrap();
    assert_copies(&group, &scene, 1, 3, "after the crash");
    group
        .convert_files(&[(FileId(1), Redundancy::External)])
        .unwrap();
    let shown = group.operations();
    assert_eq!(shown[0].pass, Pass::Convert);
    assert_eq!(shown[0].left_bytes, 24 * MIB);
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(group.operations()[0].pass, Pass::Convert);
    work(&group).unwrap();
    assert_copies(&group, &scene, 1, 1, "after the second crash");
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
}

#[test]
fn a_crash_at_any_request_of_a_conversion_loses_no_copy_and_no_byte() {
    let template = Scene::new(3, Redundancy::Normal, &[(0, 32), (1, 32), (2, 32)]);
    {
        let group = template.open();
        write_file(&group, 1, NORMAL, 3 * MIB);
        write_file(&group, 2, EXTERNAL, MIB + 9000);
        group.close().unwrap();
    }
    let (data, other) = (
        pattern(1, usize::try_from(3 * MIB).unwrap()),
        pattern(2, usize::try_from(MIB).unwrap() + 9000),
    );
    let newer = pattern(77, 300_000);
    let mut cut = 1;
    loop {
        let scene = template.copy(cut);
        let (mut synced, mut narrowed) = (false, false);
        let finished = {
            let group = scene.open();
            scene.disks.power_fails_after(cut);
            let mut script = || -> Result<(), GroupError> {
                let file = group.file(FileId(1)).unwrap();
                group.convert_files(&[
                    (FileId(1), Redundancy::High),
                    (FileId(2), Redundancy::Normal),
                ])?;
                for now_ms in 0..12 {
                    group.work(now_ms)?;
                }
                group.write(&file, 1 << 20, &newer)?;
                group.work(20)?;
                group.sync_file(&file, false)?;
                synced = true;
                work(&group)?;
                group.step(0)?;
                narrowed = true;
                group.convert_files(&[(FileId(1), Redundancy::External)])?;
                work(&group)?;
                group.sync()
            };
            script().is_ok() && scene.disks.is_powered()
        };
        scene.crash();
        let when = format!("cut at request {cut}");
        let group = scene.open();
        assert_sound(&group);
        if !narrowed {
            assert!(fewest_and_most(&group, 1).0 >= 2, "{when}");
        }
        work(&group).unwrap();
        let file = group.file(FileId(1)).unwrap();
        let found = read(&group, &file, 0, data.len());
        let (from, to) = (1 << 20, (1 << 20) + newer.len());
        assert!(
            found[..from] == data[..from] && found[to..] == data[to..],
            "{when}"
        );
        if synced {
            assert!(found[from..to] == newer, "{when}");
        }
        let second = group.file(FileId(2)).unwrap();
        assert!(read(&group, &second, 0, other.len()) == other, "{when}");
        for id in 1..3 {
            let file = group.file(FileId(id)).unwrap();
            let copies = group.layout(&file).redundancy.copies();
            assert_copies(&group, &scene, id, copies, &when);
        }
        assert_sound(&group);
        group.close().unwrap();
        if finished {
            assert!(cut > 60, "the script has many requests");
            return;
        }
        cut += 2;
    }
}

#[test]
fn what_failure_groups_or_room_cannot_hold_is_refused_and_nothing_changes() {
    let scene = Scene::new(4, Redundancy::Normal, &[(0, 32), (1, 32)]);
    let group = scene.open();
    write_file(&group, 1, EXTERNAL, 10 * MIB);
    let refused = |group: &Group, wanted, kind: GroupErrorKind, words: &[&str]| {
        group.sync().unwrap();
        let epoch = group.view().epoch;
        let error = group.convert_files(&[(FileId(1), wanted)]).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        for word in words {
            assert!(error.message.contains(word), "{error}");
        }
        assert_eq!(group.view().epoch, epoch);
        assert_eq!(group.operations(), []);
    };
    refused(
        &group,
        Redundancy::High,
        GroupErrorKind::NotEnough,
        &["3 copies", "2 only", "1 more"],
    );
    let error = group.convert_group(Redundancy::High, &[]).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough);
    let other = create(&group, 2, EXTERNAL);
    let mut end = 0;
    while group.allocate(&other, end, 2 * MIB).is_ok() {
        end += 2 * MIB;
    }
    refused(
        &group,
        Redundancy::Normal,
        GroupErrorKind::NotEnough,
        &["10 MiB", "lacks"],
    );
    let bare = Scene::new(5, Redundancy::External, &[(0, 32), (1, 32)]);
    let group = bare.open();
    write_file(&group, 1, EXTERNAL, MIB);
    refused(
        &group,
        Redundancy::Normal,
        GroupErrorKind::Invalid,
        &["no redundancy", "group convert"],
    );
    let mirrored = Scene::new(6, Redundancy::Normal, &[(0, 32), (1, 32)]);
    let group = mirrored.open();
    write_file(&group, 1, NORMAL, MIB);
    group.offline_disks(&[DiskNumber(1)]).unwrap();
    let error = group.convert_group(Redundancy::External, &[]).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Invalid);
    assert!(error.message.contains("offline"), "{error}");
}

#[test]
fn a_group_is_raised_when_every_copy_is_there_and_lowered_at_once() {
    let scene = Scene::new(7, Redundancy::External, &THREE);
    let group = scene.open();
    let data = write_file(&group, 1, EXTERNAL, 5 * MIB);
    group
        .convert_group(Redundancy::Normal, &[(FileId(1), Redundancy::Normal)])
        .unwrap();
    assert_eq!(group.redundancy(), Redundancy::Normal);
    assert_eq!(group.view().redundancy, Redundancy::External);
    group.work(0).unwrap();
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(group.redundancy(), Redundancy::Normal);
    assert_eq!(group.view().redundancy, Redundancy::External);
    work(&group).unwrap();
    assert_eq!(group.view().redundancy, Redundancy::Normal);
    assert_copies(&group, &scene, 1, 2, "when it is raised");
    group
        .convert_group(Redundancy::High, &[(FileId(1), Redundancy::High)])
        .unwrap();
    work(&group).unwrap();
    assert_eq!(group.view().redundancy, Redundancy::High);
    // Now the group goes on without any two.
    group.close().unwrap();
    let group = scene.open();
    assert_eq!(group.view().redundancy, Redundancy::High);
    group.offline_disks(&[DiskNumber(2)]).unwrap();
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    group.return_disks(&[DiskSlot(2)]).unwrap();
    work(&group).unwrap();
    group.convert_group(Redundancy::External, &[]).unwrap();
    assert_eq!(group.view().redundancy, Redundancy::External);
    work(&group).unwrap();
    assert_copies(&group, &scene, 1, 1, "without redundancy");
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
    group.close().unwrap();
    assert_eq!(scene.open().view().redundancy, Redundancy::External);
}

#[test]
fn copies_that_have_no_place_while_a_disk_is_away_are_made_when_it_returns() {
    let scene = Scene::new(8, Redundancy::Normal, &THREE);
    let group = scene.open();
    let mut data = write_file(&group, 1, NORMAL, 6 * MIB);
    group
        .convert_files(&[(FileId(1), Redundancy::High)])
        .unwrap();
    for now_ms in 0..5 {
        group.work(now_ms).unwrap();
    }
    group.offline_disks(&[DiskNumber(2)]).unwrap();
    let file = group.file(FileId(1)).unwrap();
    let bytes = pattern(5, 100_000);
    group.write(&file, MIB, &bytes).unwrap();
    data[1 << 20..(1 << 20) + bytes.len()].copy_from_slice(&bytes);
    work(&group).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    group.return_disks(&[DiskSlot(2)]).unwrap();
    work(&group).unwrap();
    assert_copies(&group, &scene, 1, 3, "when the disk is back");
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
    // Of the copies that differ in age the newer ones stay.
    group.offline_disks(&[DiskNumber(0)]).unwrap();
    group.write(&file, 2 * MIB, &bytes).unwrap();
    data[2 << 20..(2 << 20) + bytes.len()].copy_from_slice(&bytes);
    group
        .convert_files(&[(FileId(1), Redundancy::Normal)])
        .unwrap();
    work(&group).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    let kept_away = (group.map(&file).iter())
        .any(|extent| (extent.copies.iter().flatten()).any(|(disk, _)| disk.0 == 0));
    assert!(
        !kept_away,
        "a copy on the disk that is away was kept before others"
    );
    group.return_disks(&[DiskSlot(0)]).unwrap();
    work(&group).unwrap();
    assert_copies(&group, &scene, 1, 2, "at the end");
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_sound(&group);
}

#[test]
fn many_threads_write_while_redundancy_goes_up_and_down() {
    const WRITERS: usize = 4;
    const PART: usize = 700_000;
    let scene = Scene::new(9, Redundancy::Normal, &THREE);
    let group = scene.open();
    group.set_power(Power::MAX).unwrap();
    write_file(&group, 1, NORMAL, (WRITERS * PART) as u64);
    let is_over = AtomicBool::new(false);
    let file = group.file(FileId(1)).unwrap();
    let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    if !group.work(0).unwrap().did_something {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (group, file, is_over) = (&group, &file, &is_over);
                scope.spawn(move || {
                    let mut part = vec![0; PART];
                    group.write(file, (writer * PART) as u64, &part).unwrap();
                    let mut round = 0_usize;
                    while !is_over.load(Ordering::Acquire) {
                        let at = round * 7919 % (PART - 6000);
                        let bytes = pattern(round as u64, 6000);
                        let offset = (writer * PART + at) as u64;
                        group.write(file, offset, &bytes).unwrap();
                        part[at..at + 6000].copy_from_slice(&bytes);
                        if round.is_multiple_of(17) {
                            group.sync_file(file, false).unwrap();
                        }
                        round += 1;
                    }
                    part
                })
            })
            .collect();
        let ways = [Redundancy::High, Redundancy::External, Redundancy::Normal];
        for wanted in ways.into_iter().cycle().take(9) {
            group.convert_files(&[(FileId(1), wanted)]).unwrap();
            while !group.operations().is_empty() {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Release);
        writers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    work(&group).unwrap();
    for (writer, part) in parts.iter().enumerate() {
        let found = read(&group, &file, (writer * PART) as u64, PART);
        assert!(&found == part, "the bytes of writer {writer} differ");
    }
    assert_copies(&group, &scene, 1, 2, "at the end");
    assert_sound(&group);
}

/// A group without redundancy whose file is to get a second copy and has none yet; its first block
/// was overwritten since, and that was synced.
fn overwritten_before_its_second_copy(seed: u64) -> (Scene, Group, Vec<u8>) {
    let scene = Scene::new(seed, Redundancy::External, &THREE);
    let group = scene.open();
    write_file(&group, 1, EXTERNAL, 5 * MIB);
    let wanted = [(FileId(1), Redundancy::Normal)];
    group.convert_group(Redundancy::Normal, &wanted).unwrap();
    let file = group.file(FileId(1)).unwrap();
    let new = pattern(100, 64 << 10);
    group.write(&file, 0, &new).unwrap();
    group.sync_file(&file, false).unwrap();
    (scene, group, new)
}

#[test]
fn what_was_synced_before_its_second_copy_is_made_is_read_after_its_disk_failed_another_flush() {
    for crashes in [false, true] {
        let (scene, group, new) = overwritten_before_its_second_copy(31);
        let file = group.file(FileId(1)).unwrap();
        let disk = group.map(&file)[0]
            .copies
            .iter()
            .flatten()
            .next()
            .unwrap()
            .0;
        // It has something to flush.
        let other = create(&group, 2, EXTERNAL);
        group.write(&other, 0, &pattern(3, 32 << 20)).unwrap();
        scene.disks.drop_at_flushes(DiskSlot(disk.0), 1);
        group.make_durable().unwrap_err();
        group.make_durable().unwrap();
        assert!(read(&group, &file, 0, 64 << 10) == new, "at once");
        drop((file, other));
        let group = if crashes {
            drop(group);
            scene.crash();
            scene.open()
        } else {
            group
        };
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, 64 << 10) == new, "{crashes}");
        work(&group).unwrap();
        assert_eq!(group.view().redundancy, Redundancy::Normal);
        assert!(read(&group, &file, 0, 64 << 10) == new, "with two copies");
    }
}

/// The same in a group with redundancy, with the disk that has the first block alone.
fn overwritten_on_one_disk(seed: u64) -> (Scene, Group, DiskSlot, Vec<u8>) {
    let scene = Scene::new(seed, Redundancy::Normal, &THREE);
    let group = scene.open();
    write_file(&group, 1, EXTERNAL, 5 * MIB);
    let wanted = [(FileId(1), Redundancy::Normal)];
    group.convert_files(&wanted).unwrap();
    let file = group.file(FileId(1)).unwrap();
    let new = pattern(100, 64 << 10);
    group.write(&file, 0, &new).unwrap();
    group.sync_file(&file, false).unwrap();
    let copies = group.map(&file)[0].copies.clone();
    let [(disk, _)] = copies.iter().flatten().collect::<Vec<_>>()[..] else {
        panic!("its second copy is not made yet");
    };
    (scene, group, DiskSlot(disk.0), new)
}

#[test]
fn what_was_synced_before_its_second_copy_is_made_is_read_after_its_disk_was_away() {
    for crashes in [true, false] {
        let (scene, group, slot, new) = overwritten_on_one_disk(33);
        scene.disks.vanish(slot);
        let group = if crashes {
            drop(group);
            scene.crash();
            scene.open()
        } else {
            // Somebody finds out.
            let other = create(&group, 2, NORMAL);
            group.write(&other, 0, &pattern(3, 16 << 20)).unwrap();
            group.sync().unwrap();
            group
        };
        scene.disks.bring_back(slot);
        assert_eq!(group.return_disks(&[slot]).unwrap(), [DiskNumber(slot.0)]);
        let file = group.file(FileId(1)).unwrap();
        let mut found = vec![0; 64 << 10];
        let answer = group.read(&file, 0, &mut found);
        assert!(answer.is_ok() && found == new, "{crashes}: {answer:?}");
        work(&group).unwrap();
        assert!(
            read(&group, &file, 0, 64 << 10) == new,
            "{crashes}, with two copies"
        );
        assert_copies(&group, &scene, 1, 2, "at the end");
    }
}

#[test]
fn what_was_synced_is_read_after_both_disks_that_have_it_failed_a_flush_together() {
    for crashes in [false, true] {
        let scene = Scene::new(32, Redundancy::External, &THREE);
        let group = scene.open();
        write_file(&group, 1, EXTERNAL, MIB);
        // Many extents, of which the first gets its copy first.
        write_file(&group, 3, EXTERNAL, 24 * MIB);
        let wanted = [
            (FileId(1), Redundancy::Normal),
            (FileId(3), Redundancy::Normal),
        ];
        group.convert_group(Redundancy::Normal, &wanted).unwrap();
        let file = group.file(FileId(1)).unwrap();
        let disks = |group: &Group| -> Vec<u16> {
            let map = group.map(&group.file(FileId(1)).unwrap());
            let copies = map[0].copies.iter().flatten();
            copies.map(|(disk, _)| disk.0).collect()
        };
        let mut now_ms = 0;
        while disks(&group).len() < 2 {
            group.work(now_ms).unwrap();
            now_ms += 10;
        }
        assert_eq!(group.view().redundancy, Redundancy::External);
        let new = pattern(100, 64 << 10);
        group.write(&file, 0, &new).unwrap();
        group.sync_file(&file, false).unwrap();
        let other = create(&group, 2, EXTERNAL);
        group.write(&other, 0, &pattern(3, 32 << 20)).unwrap();
        for disk in disks(&group) {
            scene.disks.drop_at_flushes(DiskSlot(disk), 1);
        }
        group.make_durable().unwrap_err();
        group.make_durable().unwrap();
        assert!(read(&group, &file, 0, 64 << 10) == new, "at once");
        drop((file, other));
        let group = if crashes {
            drop(group);
            scene.crash();
            scene.open()
        } else {
            group
        };
        work(&group).unwrap();
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, 64 << 10) == new, "with two copies");
        assert_copies(&group, &scene, 1, 2, "in the end");
    }
}
