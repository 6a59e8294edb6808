//! Copies on their way: a disk that joins is filled, one that leaves is emptied, one that is given
//! up is replaced, and whoever reads and writes meanwhile never notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use spindle_base::{DiskName, DiskNumber, FailureGroupName, FileId, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks};
use spindle_group::{
    Group, GroupError, Layout, NewDisk, OperationState, OperationView, Pass, Power, ScrubScope,
    ScrubState, ScrubWish,
};

use crate::scene::{
    EXTERNAL, FINE, MIB, NORMAL, Scene, assert_sound, create, opener, pattern, read,
};

fn spare(disks: &SimulatedDisks, failure_group: u8, size_mib: u64) -> NewDisk {
    let slot = disks.attach(size_mib * MIB);
    NewDisk {
        slot,
        name: DiskName::new(format!("D{}", slot.0)).unwrap(),
        failure_group: FailureGroupName::new(format!("F{failure_group}")).unwrap(),
        uuid: Uuid([u8::try_from(slot.0).unwrap() + 1; 16]),
    }
}

/// Works until nothing is left.
fn work(group: &Group) -> Result<(), GroupError> {
    for now_ms in 0..100_000 {
        if !group.work(now_ms * 10)?.did_something {
            return Ok(());
        }
    }
    panic!("the work does not end");
}

/// Bytes of extents on each disk, by number.
fn held_mib(group: &Group) -> Vec<(u16, u64)> {
    let mut held: Vec<(u16, u64)> = (group.view().disks.iter())
        .map(|disk| (disk.number.0, 0))
        .collect();
    for id in 1..20 {
        let Some(file) = group.file(FileId(id)) else {
            continue;
        };
        for extent in group.map(&file) {
            for (disk, _) in extent.copies.iter().flatten() {
                let entry = held.iter_mut().find(|(number, _)| *number == disk.0);
                entry.unwrap().1 += extent.length_bytes;
            }
        }
    }
    held.iter()
        .map(|(disk, bytes)| (*disk, bytes / MIB))
        .collect()
}

fn assert_copies_agree(group: &Group, scene: &Scene, when: &str) {
    for id in 1..20 {
        let Some(file) = group.file(FileId(id)) else {
            continue;
        };
        for extent in group.map(&file) {
            let length = usize::try_from(extent.initialised_bytes).unwrap();
            let copies: Vec<Vec<u8>> = (extent.copies.iter().flatten())
                .map(|(disk, at)| scene.disks.bytes(DiskSlot(disk.0), *at, length))
                .collect();
            assert!(
                copies.windows(2).all(|pair| pair[0] == pair[1]),
                "{when}: the copies of extent {} of file {id} differ",
                extent.index
            );
        }
    }
}

fn assert_whole(group: &Group, when: &str) {
    for id in 1..20 {
        if let Some(file) = group.file(FileId(id)) {
            let whole = (group.map(&file).iter()).all(|extent| !extent.copies.contains(&None));
            assert!(whole, "{when}: a copy of file {id} is missing");
        }
    }
}

fn write_file(group: &Group, id: u64, layout: Layout, mib: u64) -> Vec<u8> {
    let data = pattern(id, usize::try_from(mib * MIB).unwrap());
    let file = create(group, id, layout);
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    data
}

#[test]
fn a_disk_that_joins_gets_its_share_and_nothing_else_moves() {
    for layout in [NORMAL, FINE, EXTERNAL] {
        let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
        let scene = Scene::new(1, layout.redundancy, &disks);
        let group = scene.open();
        let data = write_file(&group, 1, layout, 40);
        let before = held_mib(&group);
        let new = spare(&scene.disks, 0, 64);
        let other = spare(&scene.disks, 1, 64);
        group.add_disks(&[new, other]).unwrap();
        work(&group).unwrap();
        assert_sound(&group);
        assert_copies_agree(&group, &scene, "after the rebalance");
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        let after = held_mib(&group);
        let sum: u64 = after.iter().map(|(_, held)| held).sum();
        for (disk, held) in &after {
            assert!(
                held.abs_diff(sum / 6) <= 2,
                "disk {disk} holds {held} of {sum}"
            );
        }
        for ((_, before), (disk, after)) in before.iter().zip(&after) {
            assert!(after <= &(before + 1), "disk {disk} got more");
        }
        assert_eq!(group.operations(), []);
        group.close().unwrap();
        let group = scene.open();
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_eq!(held_mib(&group), after);
        assert_eq!(group.work(0).unwrap().copied_bytes, 0);
    }
}

/// Disks that hold one write up, before any of it is written, while others go on.
#[derive(Debug)]
struct SlowWrite {
    disks: Arc<SimulatedDisks>,
    is_armed: AtomicBool,
    reached: Barrier,
}

impl Disks for SlowWrite {
    fn run(&self, batch: &mut [Request<'_>]) {
        let marked = |request: &Request<'_>| {
            (request.work.written()).is_some_and(|bytes| bytes.starts_with(MARK))
        };
        if batch.iter().any(marked) && self.is_armed.swap(false, Ordering::AcqRel) {
            self.reached.wait();
            std::thread::sleep(Duration::from_millis(30));
        }
        self.disks.run(batch);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.disks.measure(slot)
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
}

const MARK: &[u8] = b"this write is slow";

/// Whatever the mover has done of an extent when a write to it begins, and however long the disks
/// take for the write.
#[test]
fn a_slow_write_to_extents_that_are_being_copied_is_on_every_copy() {
    for steps_before in 0..24 {
        let scene = Scene::new(1, Redundancy::Normal, &[(0, 64), (1, 64)]);
        let slow = Arc::new(SlowWrite {
            disks: Arc::clone(&scene.disks),
            is_armed: AtomicBool::new(false),
            reached: Barrier::new(2),
        });
        let slots = [DiskSlot(0), DiskSlot(1)];
        let disks = Arc::clone(&slow) as Arc<dyn Disks>;
        let group = Group::open(disks, &slots, &scene.name, &opener()).unwrap();
        let mut data = write_file(&group, 1, NORMAL, 6);
        let others = [spare(&scene.disks, 0, 64), spare(&scene.disks, 1, 64)];
        group.add_disks(&others).unwrap();
        for step in 0..steps_before {
            group.work(step).unwrap();
        }
        for piece in data.chunks_mut(1 << 20) {
            piece[..MARK.len()].copy_from_slice(MARK);
            piece[MARK.len()..].fill(0xd7);
        }
        slow.is_armed.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            let (group, data) = (&group, &data);
            let writer = scope.spawn(move || {
                let file = group.file(FileId(1)).unwrap();
                group.write(&file, 0, data).unwrap();
            });
            slow.reached.wait();
            work(group).unwrap();
            writer.join().unwrap();
        });
        work(&group).unwrap();
        let when = format!("{steps_before} steps before the write");
        assert_copies_agree(&group, &scene, &when);
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data, "{when}");
        assert_sound(&group);
        group.close().unwrap();
    }
}

#[test]
fn a_dropped_disk_is_emptied_and_forgotten() {
    for layout in [NORMAL, FINE] {
        let scene = Scene::new(2, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
        let group = scene.open();
        let data = write_file(&group, 1, layout, 40);
        group.drop_disks(&[DiskNumber(1)], false).unwrap();
        work(&group).unwrap();
        assert!(!group.view().disks.iter().any(|disk| disk.number.0 == 1));
        assert_whole(&group, "after the drop");
        assert_sound(&group);
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        let events = group.take_events();
        assert!(
            events
                .iter()
                .any(|event| event.message.contains("nothing is left to do")),
            "{events:?}"
        );
        group.close().unwrap();
    }
}

#[test]
fn copies_of_a_disk_that_was_given_up_are_made_from_the_others() {
    let scene = Scene::new(3, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, NORMAL, 30);
    scene.disks.vanish(DiskSlot(2));
    let file = group.file(FileId(1)).unwrap();
    group.write(&file, 0, &data[..4 << 20]).unwrap();
    group.sync().unwrap();
    group.drop_disks(&[DiskNumber(2)], true).unwrap();
    work(&group).unwrap();
    assert_whole(&group, "after the restore");
    assert!(!group.view().disks.iter().any(|disk| disk.number.0 == 2));
    assert_sound(&group);
    assert_copies_agree(&group, &scene, "after the restore");
    assert!(read(&group, &file, 0, data.len()) == data);
}

#[test]
fn copies_that_a_rebalance_has_half_way_are_restored_when_a_disk_is_given_up() {
    for (lost, steps) in (0..4).flat_map(|lost| [9, 14, 22].map(|steps| (lost, steps))) {
        let scene = Scene::new(5, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
        let group = scene.open();
        let data = write_file(&group, 1, NORMAL, 40);
        group.add_disks(&[spare(&scene.disks, 4, 64)]).unwrap();
        // A piece is an eighth of an extent: one is half way then.
        for step in 0..steps {
            group.work(step).unwrap();
        }
        scene.disks.vanish(DiskSlot(lost));
        let file = group.file(FileId(1)).unwrap();
        group.write(&file, 0, &data).unwrap();
        group.sync().unwrap();
        group.drop_disks(&[DiskNumber(lost)], true).unwrap();
        let is_told = (group.operations().iter()).any(|line| line.pass == Pass::Restore);
        assert!(
            is_told,
            "what is missing shows at once: {:?}",
            group.operations()
        );
        work(&group).unwrap();
        assert_whole(&group, "after the restore");
        assert_sound(&group);
        assert_copies_agree(&group, &scene, "after the restore");
        assert!(read(&group, &file, 0, data.len()) == data);
        let stopped =
            (group.take_events().iter()).any(|event| event.message.contains("are still missing"));
        assert!(!stopped, "disk {lost} after {steps} steps");
    }
}

#[test]
fn writers_readers_and_punches_in_the_midst_of_a_move_lose_nothing() {
    for (seed, layout) in [(1, NORMAL), (2, FINE), (3, EXTERNAL), (4, NORMAL)] {
        let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
        let scene = Scene::new(seed, layout.redundancy, &disks);
        let group = scene.open();
        let mut model = write_file(&group, 1, layout, 24);
        let file = group.file(FileId(1)).unwrap();
        let gone = write_file(&group, 2, layout, 4);
        assert_eq!(gone.len(), 4 << 20);
        let joining = [spare(&scene.disks, 0, 64), spare(&scene.disks, 1, 64)];
        group.add_disks(&joining).unwrap();
        group.drop_disks(&[DiskNumber(0)], false).unwrap();
        let mut state = seed;
        for step in 0..400_u64 {
            group.work(step).unwrap();
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = usize::try_from((state >> 33) % (model.len() as u64 - 70_000)).unwrap();
            let length = 1 + usize::try_from((state >> 20) % 60_000).unwrap();
            match step % 10 {
                0 => {
                    group.punch(&file, at as u64, length as u64).unwrap();
                    model[at..at + length].fill(0);
                }
                1 if step == 51 => {
                    let keep = model.len() - (3 << 20);
                    group.truncate(&file, keep as u64).unwrap();
                    model[keep..].fill(0);
                }
                2 if step == 92 => {
                    let other = group.file(FileId(2)).unwrap();
                    group.remove_file(&group.change(), &other).unwrap();
                }
                3 => group.sync_file(&file, step % 20 == 3).unwrap(),
                _ => {
                    let data = pattern(state, length);
                    group.write(&file, at as u64, &data).unwrap();
                    model[at..at + length].copy_from_slice(&data);
                }
            }
        }
        work(&group).unwrap();
        assert!(read(&group, &file, 0, model.len()) == model, "seed {seed}");
        assert_copies_agree(&group, &scene, "after the work");
        assert_sound(&group);
        assert!(!group.view().disks.iter().any(|disk| disk.number.0 == 0));
        group.close().unwrap();
        let group = scene.open();
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, model.len()) == model, "seed {seed}");
    }
}

#[test]
fn many_threads_move_while_many_threads_write() {
    let disks = [(0, 96), (0, 96), (1, 96), (1, 96)];
    let scene = Scene::new(9, Redundancy::Normal, &disks);
    let group = scene.open();
    let length = 24_usize << 20;
    for id in [1, 2] {
        write_file(&group, id, if id == 1 { NORMAL } else { FINE }, 24);
    }
    let joining = [spare(&scene.disks, 0, 96), spare(&scene.disks, 1, 96)];
    group.set_power(Power::MAX).unwrap();
    group.add_disks(&joining).unwrap();
    group.drop_disks(&[DiskNumber(3)], false).unwrap();
    let over = AtomicBool::new(false);
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for now_ms in 0..100_000 {
                    if !group.work(now_ms).unwrap().did_something {
                        if group.operations().is_empty() {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
                over.store(true, Ordering::Release);
            });
        }
        let writers: Vec<_> = [1_u64, 2]
            .into_iter()
            .map(|id| {
                let (group, over) = (&group, &over);
                scope.spawn(move || {
                    let file = group.file(FileId(id)).unwrap();
                    let mut model = pattern(id, length);
                    let mut state = id;
                    while !over.load(Ordering::Acquire) {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let at = usize::try_from((state >> 33) % (length as u64 - 9000)).unwrap();
                        let data = pattern(state, 8192);
                        group.write(&file, at as u64, &data).unwrap();
                        model[at..at + 8192].copy_from_slice(&data);
                        assert!(read(group, &file, at as u64, 8192) == data);
                        if state >> 40 & 15 == 0 {
                            group.sync_file(&file, false).unwrap();
                        }
                    }
                    model
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    work(&group).unwrap();
    for (id, model) in (1..).zip(&models) {
        let file = group.file(FileId(id)).unwrap();
        assert!(read(&group, &file, 0, length) == *model, "file {id}");
    }
    assert_sound(&group);
    assert_copies_agree(&group, &scene, "in the end");
    assert!(!group.view().disks.iter().any(|disk| disk.number.0 == 3));
}

/// The state of the disks is looked at again after each crash: nobody asks for the work again.
#[test]
fn a_crash_at_any_request_loses_nothing_and_the_work_goes_on_by_itself() {
    let disks = [(0, 32), (1, 32), (2, 32)];
    let template = Scene::new(4, Redundancy::Normal, &disks);
    let spare = spare(&template.disks, 3, 32);
    let group = template.open();
    let data = write_file(&group, 1, NORMAL, 6);
    group.close().unwrap();
    let mut cut = 1;
    loop {
        let scene = template.copy(cut);
        let newer = pattern(77, 300_000);
        let mut synced = false;
        let mut changed = false;
        let finished = {
            let group = scene.open();
            scene.disks.power_fails_after(cut);
            let mut script = || -> Result<(), GroupError> {
                group.add_disks(std::slice::from_ref(&spare))?;
                group.drop_disks(&[DiskNumber(0)], false)?;
                changed = true;
                let file = group.file(FileId(1)).unwrap();
                for now_ms in 0..20 {
                    group.work(now_ms)?;
                }
                group.write(&file, 1 << 20, &newer)?;
                group.work(20)?;
                group.sync_file(&file, false)?;
                synced = true;
                group.step(0)?;
                work(&group)?;
                group.sync()
            };
            script().is_ok() && scene.disks.is_powered()
        };
        scene.crash();
        let when = format!("cut at request {cut}");
        let group = scene.open();
        assert_sound(&group);
        assert_whole(&group, &when);
        assert_copies_agree(&group, &scene, &when);
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
        assert_sound(&group);
        assert_copies_agree(&group, &scene, &when);
        if changed {
            let numbers: Vec<u16> = group.view().disks.iter().map(|d| d.number.0).collect();
            assert_eq!(numbers, [1, 2, 3], "{when}");
        }
        group.close().unwrap();
        if finished {
            assert!(cut > 60, "the script has many requests");
            return;
        }
        cut += 3;
    }
}

#[test]
fn a_target_that_fails_goes_offline_and_the_work_goes_around_it() {
    for after in [1, 7, 30] {
        let disks = [(0, 64), (1, 64), (2, 64)];
        let scene = Scene::new(after, Redundancy::Normal, &disks);
        let group = scene.open();
        let data = write_file(&group, 1, NORMAL, 24);
        let joining = [spare(&scene.disks, 3, 64), spare(&scene.disks, 4, 64)];
        group.add_disks(&joining).unwrap();
        scene.disks.vanish_after(DiskSlot(3), after);
        work(&group).unwrap();
        let file = group.file(FileId(1)).unwrap();
        assert!(read(&group, &file, 0, data.len()) == data);
        assert_eq!(group.view().offline_disks_count, 1);
        assert_sound(&group);
        group.drop_disks(&[DiskNumber(3)], true).unwrap();
        work(&group).unwrap();
        assert_whole(&group, "after the restore");
        assert_copies_agree(&group, &scene, "after the restore");
        assert_sound(&group);
    }
}

#[test]
fn a_source_that_cannot_be_read_is_read_from_the_other_copy() {
    let scene = Scene::new(6, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, NORMAL, 24);
    scene
        .disks
        .fail_reads(DiskSlot(0), 8 * MIB..64 * MIB, u64::MAX);
    let joining = spare(&scene.disks, 3, 64);
    group.add_disks(&[joining]).unwrap();
    group.drop_disks(&[DiskNumber(0)], false).unwrap();
    work(&group).unwrap();
    assert!(!group.view().disks.iter().any(|disk| disk.number.0 == 0));
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    assert_whole(&group, "after the drop");
    assert_sound(&group);
}

#[test]
fn power_zero_pauses_and_another_power_goes_on() {
    let scene = Scene::new(7, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    write_file(&group, 1, NORMAL, 24);
    let joining = spare(&scene.disks, 3, 64);
    group.set_power(Power::PAUSED).unwrap();
    group.add_disks(&[joining]).unwrap();
    assert!(!group.work(0).unwrap().did_something);
    assert_eq!(group.workers_wanted().count, 0);
    let paused = group.operations();
    assert_eq!(paused[0].state, OperationState::Paused);
    assert_eq!(paused[0].pass, Pass::Rebalance);
    drop(group);
    // The wish and the power outlive a crash.
    scene.crash();
    let group = scene.open();
    assert_eq!(group.power(), Power::PAUSED);
    group.rebalance_at(Power::new(32).unwrap()).unwrap();
    while group.operations()[0].left_bytes == 0 {
        assert!(group.work(0).unwrap().did_something);
    }
    let running = group.operations();
    assert_eq!(running[0].state, OperationState::Run);
    work(&group).unwrap();
    assert_eq!(group.operations(), []);
    assert_eq!(group.power(), Power::PAUSED, "the run's power goes with it");
    assert!(held_mib(&group)[3].1 >= 10);
}

#[test]
fn a_disk_that_gets_smaller_has_what_lies_behind_its_end_moved_first() {
    let scene = Scene::new(8, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let data = write_file(&group, 1, NORMAL, 50);
    group.resize_disk(DiskNumber(1), 40 * MIB).unwrap();
    work(&group).unwrap();
    let view = group.view();
    assert_eq!(view.disks[1].total_bytes, 39 * MIB);
    let file = group.file(FileId(1)).unwrap();
    assert!(read(&group, &file, 0, data.len()) == data);
    for extent in group.map(&file) {
        for (disk, at) in extent.copies.iter().flatten() {
            assert!(disk.0 != 1 || at + extent.length_bytes <= 39 * MIB);
        }
    }
    assert_sound(&group);
    group.close().unwrap();
    let group = scene.open();
    assert_eq!(group.view().disks[1].total_bytes, 39 * MIB);
}

#[test]
fn a_check_in_the_midst_of_a_move_finds_nothing() {
    let scene = Scene::new(21, Redundancy::Normal, &[(0, 64), (1, 64)]);
    let group = scene.open();
    write_file(&group, 1, NORMAL, 8);
    let joining = [spare(&scene.disks, 0, 64), spare(&scene.disks, 1, 64)];
    group.add_disks(&joining).unwrap();
    let mut now_ms = 0;
    while group.work(now_ms).unwrap().did_something {
        now_ms += 10;
        if now_ms % 70 == 0 {
            assert_sound(&group);
        }
    }
    assert_sound(&group);
}

/// The line of a pass.
fn operation(group: &Group, pass: Pass) -> Option<OperationView> {
    (group.operations().into_iter()).find(|operation| operation.pass == pass)
}

#[test]
fn a_scrub_waits_for_what_copies_and_shows_how_far_it_is() {
    let scene = Scene::new(10, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    write_file(&group, 1, NORMAL, 24);
    let wish = ScrubWish {
        scope: ScrubScope::Group,
        title: "DATA".to_owned(),
        repair: false,
        power: 4,
        distrust: None,
    };
    group.start_scrub(wish).unwrap();
    assert_eq!(group.workers_wanted().count, 1);
    group.set_power(Power::MAX).unwrap();
    group.add_disks(&[spare(&scene.disks, 3, 64)]).unwrap();
    let mut now_ms = 0;
    while operation(&group, Pass::Rebalance).is_some() {
        now_ms += 10;
        assert!(group.work(now_ms).unwrap().did_something);
        let scrub = operation(&group, Pass::Scrub).unwrap();
        assert_eq!((scrub.state, scrub.done_bytes), (OperationState::Wait, 0));
        assert!(group.workers_wanted().count > 1, "as many as copying wants");
    }
    let is_begun = || operation(&group, Pass::Scrub).is_some_and(|scrub| scrub.done_bytes > 0);
    while !is_begun() {
        now_ms += 10;
        assert!(group.work(now_ms).unwrap().did_something);
    }
    assert_eq!(
        group.workers_wanted().count,
        1,
        "as many as the scrub wants"
    );
    // Its power is its own: nothing is copied, and it goes on.
    group.set_power(Power::PAUSED).unwrap();
    let whole_bytes = 24 * MIB;
    for step in 1..=4 {
        now_ms += 10;
        let worked = group.work(now_ms).unwrap();
        assert!(worked.did_something && worked.pause_percent > 0);
        let scrub = operation(&group, Pass::Scrub).unwrap();
        assert_eq!(scrub.state, OperationState::Run);
        assert_eq!(scrub.done_bytes + scrub.left_bytes, whole_bytes);
        if step > 1 {
            // Half a mebibyte every ten milliseconds.
            let told_s = scrub.left_bytes as f64 / scrub.rate_bytes_per_s as f64;
            let left_s = (scrub.left_bytes / (512 << 10)) as f64 / 100.0;
            assert!(
                (told_s - left_s).abs() <= left_s * 0.2,
                "{told_s} s, {left_s} s"
            );
            assert_eq!(scrub.left_s, Some(1));
        }
    }
    group.set_scrub_power(0).unwrap();
    assert!(!group.work(now_ms).unwrap().did_something);
    let paused = operation(&group, Pass::Scrub).unwrap();
    assert_eq!(paused.state, OperationState::Paused);
    group.set_scrub_power(1024).unwrap();
    assert_eq!(group.workers_wanted().count, 16);
    work(&group).unwrap();
    assert_eq!(operation(&group, Pass::Scrub), None);
    let view = group.scrub_view().unwrap();
    assert_eq!((view.state, view.findings_count), (ScrubState::Done, 0));
}
