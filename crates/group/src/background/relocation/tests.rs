//! Moves across the outage of a disk with a copy.

mod bad_places;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_extent::map::Extent;
use spindle_format::ExtentCopy;
use spindle_sync::level::Unshown;

use super::Step;
use crate::Group;
use crate::background::planner::Move;
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::file::File;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};
use crate::waiting_disks::{OneBatchWaits, has_write};

#[test]
fn what_was_read_from_a_source_before_its_outage_was_known_is_not_entered() {
    for seed in 1..6 {
        let scene = Scene::new(seed, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(seed, 4 << 20)).unwrap();
        group.sync().unwrap();
        resync(&group);
        let (index, extent) = {
            let map = file.map.read();
            let index = map.end_index() - 1;
            (index, map.extent(index).unwrap())
        };
        // The copy with number 0 is read, the other one is to go to the third disk.
        let [source, from] = extent.copies() else {
            panic!("a mirrored file has two copies");
        };
        let used = [source.disk().0, from.disk().0];
        let to = (0..3).map(DiskNumber).find(|disk| !used.contains(&disk.0));
        let moved = Move {
            file: file.id,
            index,
            copy_number: 1,
            from: *from,
            to: to.unwrap(),
            blocks: from.blocks(),
        };
        group.write(&file, 3 << 20, &pattern(99, 1 << 20)).unwrap();
        let mut relocation = group.begin_relocation(&moved).unwrap();
        // The source loses that, and is asked for it before anybody knows.
        let slot = DiskSlot(source.disk().0);
        scene.disks.vanish(slot);
        scene.disks.bring_back(slot);
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        let step = group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap();
        assert!(matches!(step, Step::Copied(_)), "seed {seed}: {step:?}");
        group
            .take_offline(&[source.disk()], "it failed a write")
            .unwrap();
        group.return_disks(&[slot]).unwrap();
        let step = group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap();
        assert_eq!(step, Step::Abandoned, "seed {seed}");
        resync(&group);
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
        assert_sound(&group);
    }
}

#[test]
fn a_copy_that_moved_while_the_other_was_stale_outlives_an_outage_of_its_new_disk() {
    for seed in 1..6 {
        let scene = Scene::new(seed, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(seed, 4 << 20)).unwrap();
        group.sync().unwrap();
        resync(&group);
        let (index, extent) = {
            let map = file.map.read();
            let index = map.end_index() - 1;
            (index, map.extent(index).unwrap())
        };
        let [from, stale] = extent.copies() else {
            panic!("a mirrored file has two copies");
        };
        let stale_slot = DiskSlot(stale.disk().0);
        group.take_offline(&[stale.disk()], "it failed").unwrap();
        let first = file.map.read().schedule().first_block(index);
        let new = pattern(99, 64 << 10);
        group.write(&file, first * BLOCK_SIZE_BYTES, &new).unwrap();
        group.sync().unwrap();
        // Until nothing was written lately.
        resync(&group);
        group.return_disks(&[stale_slot]).unwrap();
        let used = [from.disk(), stale.disk()];
        let to = (0..3).map(DiskNumber).find(|disk| !used.contains(disk));
        let to = to.unwrap();
        let moved = Move {
            file: file.id,
            index,
            copy_number: 0,
            from: *from,
            to,
            blocks: from.blocks(),
        };
        let mut relocation = group.begin_relocation(&moved).unwrap();
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        let mut step = || {
            group
                .step_relocation(&mut relocation, 256, &mut buffer)
                .unwrap()
        };
        while matches!(step(), Step::Copied(_)) {}
        let map_has = file.map.read().extent(index).unwrap();
        assert!(map_has.present().any(|copy| copy.disk() == to));
        let slot = DiskSlot(to.0);
        scene.disks.vanish(slot);
        scene.disks.bring_back(slot);
        group.take_offline(&[to], "it failed a write").unwrap();
        group.return_disks(&[slot]).unwrap();
        let mut found = vec![0; new.len()];
        let answer = group.read(&file, first * BLOCK_SIZE_BYTES, &mut found);
        answer.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(found == new, "seed {seed}");
        resync(&group);
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
        assert_sound(&group);
    }
}

#[test]
fn a_flush_that_the_target_of_a_move_fails_is_told_to_others_that_had_written_there() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let on = |disk: u16| {
        let created = (10 + 100 * u64::from(disk)..).map(|id| create(&group, id, EXTERNAL));
        let mut files = created.take(20).inspect(|file| {
            group.write(file, 8 << 20, &pattern(1, 4096)).unwrap();
        });
        let lies_there = |file: &Arc<File>| group.map(file)[0].copies[0].unwrap().0.0 == disk;
        files.find(lies_there).unwrap()
    };
    let (moving, other) = (on(0), on(1));
    group.sync().unwrap();
    group.write(&other, 8 << 20, &pattern(2, 4096)).unwrap();
    let index = group.map(&moving)[0].index;
    let from = moving.map.read().extent(index).unwrap().copies()[0];
    let moved = Move {
        file: moving.id,
        index,
        copy_number: 0,
        from,
        to: DiskNumber(1),
        blocks: from.blocks(),
    };
    let mut relocation = group.begin_relocation(&moved).unwrap();
    scene.disks.fail_flushes(DiskSlot(1), 1);
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut step = || {
        group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap()
    };
    let end = std::iter::repeat_with(&mut step).find(|step| !matches!(step, Step::Copied(_)));
    assert_eq!(end, Some(Step::Abandoned));
    group.sync_file(&other, false).unwrap_err();
    group.sync_file(&other, false).unwrap();
    group.sync_file(&moving, false).unwrap();
}

#[test]
fn a_copy_that_its_disk_dropped_by_a_failed_flush_takes_the_place_of_none() {
    let scene = Scene::new(5, Redundancy::External, &[(0, 64), (0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    let data = pattern(5, 8 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    let (index, extent) = {
        let map = file.map.read();
        let index = map.end_index() - 1;
        (index, map.extent(index).unwrap())
    };
    let from = extent.copies()[0];
    let moved = Move {
        file: file.id,
        index,
        copy_number: 0,
        from,
        to: DiskNumber(1 - from.disk().0),
        blocks: from.blocks(),
    };
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut step = || {
        group
            .step_relocation(&mut relocation, 64, &mut buffer)
            .unwrap()
    };
    assert!(matches!(step(), Step::Copied(_)));
    // Somebody else's flush fails, is told, and the next one is answered well.
    scene.disks.drop_at_flushes(DiskSlot(moved.to.0), 1);
    group.make_durable().unwrap_err();
    group.make_durable().unwrap();
    let last = loop {
        match step() {
            Step::Copied(_) => {}
            last => break last,
        }
    };
    assert_eq!(last, Step::Abandoned);
    assert!(read(&group, &file, 0, data.len()) == data);
}

/// The last extent of the file, its number, and a move of the copy of that number to the disk that
/// has none.
fn move_of(file: &File, copy_number: u8) -> (u32, Extent, Move) {
    let map = file.map.read();
    let index = map.end_index() - 1;
    let extent = map.extent(index).unwrap();
    let used: Vec<DiskNumber> = extent.present().map(ExtentCopy::disk).collect();
    let to = (0..3).map(DiskNumber).find(|disk| !used.contains(disk));
    let from = extent.copies()[usize::from(copy_number)];
    let moved = Move {
        file: file.id,
        index,
        copy_number,
        from,
        to: to.unwrap(),
        blocks: from.blocks(),
    };
    (index, extent, moved)
}

#[test]
fn what_grows_again_over_what_a_move_had_copied_before_it_was_cut_off_is_copied_again() {
    let scene = Scene::new(8, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let disks = OneBatchWaits::of(&scene);
    let group = disks.open(&scene, 3);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(8, 4 << 20)).unwrap();
    group.sync().unwrap();
    let (index, _, moved) = move_of(&file, 1);
    let first = file.map.read().schedule().first_block(index);
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mark = u64::from(file.map.read().extent(index).unwrap().mark_blocks);
    while relocation.done_blocks < mark {
        let step = group.step_relocation(&mut relocation, 256, &mut buffer);
        assert!(matches!(step, Ok(Step::Copied(_))));
    }
    // All is copied. Then the file is cut, and grows again.
    group
        .truncate(&file, (first + 8) * BLOCK_SIZE_BYTES)
        .unwrap();
    let new = pattern(99, 64 * usize::try_from(BLOCK_SIZE_BYTES).unwrap());
    let (has_come, go_on) = disks.wait(false, has_write);
    std::thread::scope(|scope| {
        let (group, file, new) = (&group, &file, &new);
        let writer = scope.spawn(move || {
            let at = (first + 8) * BLOCK_SIZE_BYTES;
            group.write(file, at, new).unwrap();
        });
        has_come.recv().unwrap();
        // Its bytes are out, it tells the mover of them, and waits to move the mark.
        let (held, is_held) = channel();
        let (let_go, lets_go) = channel::<()>();
        let sealer = scope.spawn(move || {
            let alone = group.change.write(Unshown);
            held.send(()).unwrap();
            lets_go.recv().unwrap();
            drop(alone);
        });
        is_held.recv().unwrap();
        go_on.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let step = group.step_relocation(&mut relocation, 256, &mut buffer);
        assert!(matches!(step, Ok(Step::Copied(_))), "{step:?}");
        let_go.send(()).unwrap();
        writer.join().unwrap();
        sealer.join().unwrap();
    });
    let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
    while matches!(step().unwrap(), Step::Copied(_)) {}
    let extent = file.map.read().extent(index).unwrap();
    assert!(extent.present().any(|copy| copy.disk() == moved.to));
    assert_copies_equal(&scene, &group, &file, "after the move");
}

#[test]
fn after_a_crash_a_move_between_disks_that_have_just_caught_up_has_lost_nothing() {
    let disks: Vec<(u8, u64)> = (0..5).map(|group| (group, 64)).collect();
    let scene = Scene::new(12, Redundancy::Normal, &disks);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(12, 24 << 20)).unwrap();
    group.sync().unwrap();
    resync(&group);
    let map_of = |index: u32| file.map.read().extent(index).unwrap();
    let on = |index: u32| {
        map_of(index)
            .copies()
            .iter()
            .map(|copy| copy.disk())
            .collect::<Vec<_>>()
    };
    let end = file.map.read().end_index();
    let index = end - 1;
    let away = on(index)[1];
    // Another extent of the region, and a disk of it that goes away too.
    let (second, to) = (11..index)
        .flat_map(|other| on(other).into_iter().map(move |disk| (other, disk)))
        .find(|(other, disk)| {
            !on(index).contains(disk) && on(*other).iter().all(|disk| *disk != away)
        })
        .unwrap();
    group
        .take_offline(&[away, to], "they lost their power")
        .unwrap();
    let offset_of = |index: u32| file.map.read().schedule().first_block(index) * BLOCK_SIZE_BYTES;
    let new = pattern(99, 64 << 10);
    for index in [index, second] {
        group.write(&file, offset_of(index), &new).unwrap();
    }
    group.sync().unwrap();
    group
        .return_disks(&[DiskSlot(away.0), DiskSlot(to.0)])
        .unwrap();
    while group.resync_unit(1 << 20).unwrap().is_some() {}
    assert!(!group.dirty.is_resyncing(), "both have everything");
    let from = map_of(index).copies()[0];
    let moved = Move {
        file: file.id,
        index,
        copy_number: 0,
        from,
        to,
        blocks: from.blocks(),
    };
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
    while matches!(step().unwrap(), Step::Copied(_)) {}
    assert!(on(index).contains(&to));
    group.sync().unwrap();
    let offset_bytes = offset_of(index);
    drop(group);
    scene.crash();
    let group = scene.open();
    let file = group.file(file.id).unwrap();
    let mut found = vec![0; new.len()];
    group.read(&file, offset_bytes, &mut found).unwrap();
    assert!(found == new);
}

#[test]
fn a_bad_place_is_not_mended_from_a_copy_that_has_moved_since_it_was_found() {
    let scene = Scene::new(9, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(9, 4 << 20)).unwrap();
    group.sync().unwrap();
    let (index, extent, moved) = move_of(&file, 1);
    // A reader found copy 0 bad, took the bytes from copy 1, and has let go of its range.
    let place = BadPlace {
        file: Arc::clone(&file),
        index,
        copy: extent.copies()[0],
        bad: vec![BadBlocks {
            inside_blocks: 0,
            blocks: 16,
            source: extent.copies()[1],
        }],
        lives: group.disks.lives(extent.present()),
        reason: "a test says so".to_owned(),
    };
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
    while matches!(step().unwrap(), Step::Copied(_)) {}
    let first = file.map.read().schedule().first_block(index);
    let new = pattern(99, 64 << 10);
    group.write(&file, first * BLOCK_SIZE_BYTES, &new).unwrap();
    group.note_bad_place(place);
    group.move_bad_places().unwrap();
    assert_copies_equal(&scene, &group, &file, "after both moves");
    assert!(read(&group, &file, first * BLOCK_SIZE_BYTES, new.len()) == new);
    assert_sound(&group);
}

#[test]
fn a_new_copy_on_a_disk_that_lacks_something_there_is_not_stale() {
    let scene = Scene::new(10, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(10, 4 << 20)).unwrap();
    group.sync().unwrap();
    let (index, extent, moved) = move_of(&file, 0);
    // A disk without a copy blinks: it lacks what was written lately, wherever that lies.
    let to = DiskSlot(moved.to.0);
    group.take_offline(&[moved.to], "it blinks").unwrap();
    group.return_disks(&[to]).unwrap();
    // The other copy is away, and misses something.
    let other = extent.copies()[1].disk();
    group.take_offline(&[other], "it failed").unwrap();
    let first = file.map.read().schedule().first_block(index);
    let new = pattern(99, 64 << 10);
    group.write(&file, first * BLOCK_SIZE_BYTES, &new).unwrap();
    group.sync().unwrap();
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
    while matches!(step().unwrap(), Step::Copied(_)) {}
    let extent = file.map.read().extent(index).unwrap();
    assert!(extent.present().any(|copy| copy.disk() == moved.to));
    group.return_disks(&[DiskSlot(other.0)]).unwrap();
    resync(&group);
    let mut found = vec![0; new.len()];
    group
        .read(&file, first * BLOCK_SIZE_BYTES, &mut found)
        .unwrap();
    assert!(found == new);
}

fn reads_two(batch: &[Request<'_>]) -> bool {
    batch.len() == 2 && batch.iter().all(|one| matches!(one.work, Work::Read(_)))
}

#[test]
fn what_a_failed_write_left_and_was_made_equal_is_copied_again_by_a_move() {
    for swapped in [false, true] {
        let scene = Scene::new(11, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let disks = OneBatchWaits::of(&scene);
        let group = disks.open(&scene, 3);
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(11, 24 << 20)).unwrap();
        group.sync().unwrap();
        // Two extents that follow each other and have copies on the same disks.
        let disks_of = |extent: &Extent| {
            let mut disks: Vec<u16> = extent.present().map(|copy| copy.disk().0).collect();
            disks.sort_unstable();
            disks
        };
        let (index, extent, next) = {
            let map = file.map.read();
            (11..map.end_index() - 1)
                .map(|index| {
                    (
                        index,
                        map.extent(index).unwrap(),
                        map.extent(index + 1).unwrap(),
                    )
                })
                .find(|(_, one, other)| disks_of(one) == disks_of(other))
                .unwrap()
        };
        let to = (0..3)
            .find(|disk| !disks_of(&extent).contains(disk))
            .unwrap();
        let from = extent.copies()[1];
        let moved = Move {
            file: file.id,
            index,
            copy_number: 1,
            from,
            to: DiskNumber(to),
            blocks: from.blocks(),
        };
        let mut relocation = group.begin_relocation(&moved).unwrap();
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        while relocation.done_blocks < from.blocks() {
            let step = group.step_relocation(&mut relocation, 256, &mut buffer);
            assert!(matches!(step, Ok(Step::Copied(_))));
        }
        // One disk takes the first half of a write, the other the second.
        let takes_first = extent.copies()[usize::from(swapped)].disk();
        for copy in extent.present().chain(next.present()) {
            let is_first = extent.present().any(|one| one == copy);
            if is_first != (copy.disk() == takes_first) {
                let bytes = copy.start_bytes()..copy.start_bytes() + copy.length_bytes();
                scene.disks.fail_writes(DiskSlot(copy.disk().0), bytes, 1);
            }
        }
        let end = file.map.read().schedule().first_block(index + 1);
        let new = pattern(99, 128 * usize::try_from(BLOCK_SIZE_BYTES).unwrap());
        let (has_come, go_on) = disks.wait(true, reads_two);
        std::thread::scope(|scope| {
            let (group, file, new) = (&group, &file, &new);
            let writer = scope.spawn(move || {
                let at = (end - 64) * BLOCK_SIZE_BYTES;
                group.write(file, at, new).unwrap_err();
            });
            // It has told the mover, and is about to make the copies equal.
            has_come.recv().unwrap();
            let step = group.step_relocation(&mut relocation, 256, &mut buffer);
            assert!(matches!(step, Ok(Step::Copied(_))), "{step:?}");
            go_on.send(()).unwrap();
            writer.join().unwrap();
        });
        let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
        while matches!(step().unwrap(), Step::Copied(_)) {}
        let extent = file.map.read().extent(index).unwrap();
        assert!(extent.present().any(|copy| copy.disk() == moved.to));
        assert_copies_equal(&scene, &group, &file, &format!("swapped {swapped}"));
    }
}

fn is_durable_write(batch: &[Request<'_>]) -> bool {
    (batch.iter()).any(|one| matches!(one.work, Work::WriteDurable(_)))
}

/// The disk fails a write and serves on, because another one is away. Before it is known to lack the
/// blocks a state is written.
#[test]
fn a_move_takes_nothing_for_good_from_a_disk_that_has_just_failed_a_write() {
    let disks = [(0, 64), (1, 64), (2, 64), (3, 64)];
    let scene = Scene::new(12, Redundancy::Normal, &disks);
    let disks = OneBatchWaits::of(&scene);
    let group = disks.open(&scene, 4);
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(11, 24 << 20)).unwrap();
    group.sync().unwrap();
    let away = DiskNumber(3);
    group.take_offline(&[away], "it failed").unwrap();
    let (index, extent) = {
        let map = file.map.read();
        (11..map.end_index())
            .map(|index| (index, map.extent(index).unwrap()))
            .find(|(_, extent)| extent.present().all(|copy| copy.disk() != away))
            .unwrap()
    };
    let [fails, from] = [extent.copies()[0], extent.copies()[1]];
    let to = (0..3)
        .map(DiskNumber)
        .find(|disk| *disk != fails.disk() && *disk != from.disk())
        .unwrap();
    let moved = Move {
        file: file.id,
        index,
        copy_number: 1,
        from,
        to,
        blocks: from.blocks(),
    };
    let first = file.map.read().schedule().first_block(index);
    let new = pattern(99, 64 * usize::try_from(BLOCK_SIZE_BYTES).unwrap());
    // What says that these blocks are written to is durable.
    let old = pattern(98, new.len());
    (group.write(&file, first * BLOCK_SIZE_BYTES, &old)).unwrap();
    group.sync().unwrap();
    // Read last.
    let other = group.disks.get(from.disk()).unwrap();
    other.is_slow.store(true, Ordering::Relaxed);
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    while relocation.done_blocks < from.blocks() {
        let step = group.step_relocation(&mut relocation, 256, &mut buffer);
        assert!(matches!(step, Ok(Step::Copied(_))));
    }
    let bytes = fails.start_bytes()..fails.start_bytes() + fails.length_bytes();
    (scene.disks).fail_writes(DiskSlot(fails.disk().0), bytes, 1);
    let (has_come, go_on) = disks.wait(true, is_durable_write);
    std::thread::scope(|scope| {
        let (group, file, new) = (&group, &file, &new);
        let writer = scope.spawn(move || {
            (group.write(file, first * BLOCK_SIZE_BYTES, new)).unwrap();
        });
        has_come.recv().unwrap();
        let step = group.step_relocation(&mut relocation, 256, &mut buffer);
        go_on.send(()).unwrap();
        writer.join().unwrap();
        assert!(matches!(step, Ok(Step::Copied(_))), "{step:?}");
    });
    group.sync_file(&file, true).unwrap();
    let mut step = || group.step_relocation(&mut relocation, 256, &mut buffer);
    while matches!(step().unwrap(), Step::Copied(_)) {}
    let mut found = vec![0; new.len()];
    (group.read(&file, first * BLOCK_SIZE_BYTES, &mut found)).unwrap();
    assert!(found == new, "an answered and synced write is on no disk");
}

/// The byte at which block `inside` of the copy begins, and nothing more.
fn block_of(copy: ExtentCopy, inside: u64) -> std::ops::Range<u64> {
    let at = copy.start_bytes() + inside * BLOCK_SIZE_BYTES;
    at..at + 1
}

fn last_step(group: &Group, moved: &Move) -> Step {
    let mut relocation = group.begin_relocation(moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    loop {
        let step = group.step_relocation(&mut relocation, 256, &mut buffer);
        match step.unwrap() {
            Step::Copied(_) => {}
            step => return step,
        }
    }
}

#[test]
fn an_extent_that_waits_for_its_second_copy_is_not_done_without_wherever_it_lies() {
    let scene = Scene::new(8, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(8, 4096)).unwrap();
    group.sync().unwrap();
    let wanted = [(file.id, Redundancy::Normal)];
    assert_eq!(group.convert_files(&wanted).unwrap(), 1);
    let (_, _, moved) = move_of(&file, 0);
    let goes = |disk| {
        let goes = group.membership.take_offline_if_borne(&[disk], "test");
        // Else it counts as lacking from then on.
        group.membership.caught_up(disk);
        goes.unwrap()
    };
    assert!(!goes(moved.from.disk()));
    assert_eq!(last_step(&group, &moved), Step::Finished);
    assert!(!goes(moved.to));
    resync(&group);
    assert!(goes(moved.to));
    assert!(read(&group, &file, 0, 4096) == pattern(8, 4096));
}
