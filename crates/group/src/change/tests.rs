//! Changes of the disks beside disks that come back.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId, Redundancy};
use spindle_catalog::Region;
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};

use crate::Group;
use crate::background::planner::Move;
use crate::background::relocation::Step;
use crate::change::DiskChanges;
use crate::error::GroupErrorKind;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_sound, copies_on, create, numbers, pattern, read, resync, spare,
};
use crate::waiting_disks::OneBatchWaits;

/// One that holds no replica of the catalog.
const AWAY: DiskNumber = DiskNumber(4);

/// A durable write to the disk that joins.
fn labels_the_new_disk(batch: &[Request<'_>]) -> bool {
    let is_it = |request: &Request<'_>| {
        request.slot == DiskSlot(5) && matches!(request.work, Work::WriteDurable(_))
    };
    batch.iter().any(is_it)
}

/// Takes the disk back, and writes a file of one copy there, durably; its id.
fn return_and_write(group: &Group) -> Option<u64> {
    let back = group.return_disks(&[DiskSlot(AWAY.0)]).ok()?;
    assert_eq!(back, [AWAY]);
    (10..30).find(|id| {
        let file = create(group, *id, EXTERNAL);
        group.write(&file, 0, &pattern(*id, 1 << 20)).unwrap();
        group.sync_file(&file, true).unwrap();
        copies_on(group, *id, AWAY.0) > 0
    })
}

#[test]
fn a_disk_that_comes_back_while_it_is_given_up_keeps_what_it_alone_has() {
    let scene = Scene::new(
        51,
        Redundancy::Normal,
        &[0, 1, 2, 3, 4].map(|group| (group, 64)),
    );
    let disks = OneBatchWaits::of(&scene);
    let group = disks.open(&scene, 5);
    let new = spare(&scene.disks, 4, 64);
    group.take_offline(&[AWAY], "it failed").unwrap();
    let (has_come, go_on) = disks.wait(true, labels_the_new_disk);
    let written = thread::scope(|scope| {
        let change = scope.spawn(|| group.replace_disk(AWAY, &new));
        has_come.recv().unwrap();
        let (tell, told) = channel();
        let group = &group;
        let returned = scope.spawn(move || {
            let written = return_and_write(group);
            // Nobody hears it where it comes later.
            let _ = tell.send(());
            written
        });
        // It waits for the change, or is in its midst.
        let _ = told.recv_timeout(Duration::from_secs(3));
        go_on.send(()).unwrap();
        let _ = change.join().unwrap();
        returned.join().unwrap()
    });
    if let Some(id) = written {
        let file = group.file(FileId(id)).unwrap();
        assert!(read(&group, &file, 0, 1 << 20) == pattern(id, 1 << 20));
    }
    let is_given_up =
        (group.view().disks.iter()).any(|disk| disk.number == AWAY && disk.state == "absent");
    assert!(is_given_up != written.is_some(), "one of the two");
}

/// The other copy was moved just now, and its disk drops it at the flush that the change itself asks for.
#[test]
fn the_last_good_copy_is_not_given_up_where_the_other_one_is_lost_while_the_change_is_made() {
    let scene = Scene::new(
        52,
        Redundancy::Normal,
        &[0, 1, 2, 3].map(|group| (group, 64)),
    );
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let data = pattern(1, 4 << 20);
    group.write(&file, 0, &data).unwrap();
    group.sync().unwrap();
    resync(&group);
    let index = file.map.read().end_index() - 1;
    let extent = file.map.read().extent(index).unwrap();
    let [stays, from] = [extent.copies()[0], extent.copies()[1]];
    let used = [stays.disk(), from.disk()];
    let to = (0..4)
        .map(DiskNumber)
        .find(|disk| !used.contains(disk))
        .unwrap();
    let moved = Move {
        file: file.id,
        index,
        copy_number: 1,
        from,
        to,
        blocks: from.blocks(),
    };
    let mut relocation = group.begin_relocation(&moved).unwrap();
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    loop {
        match group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap()
        {
            Step::Copied(_) => {}
            ended => break assert_eq!(ended, Step::Finished),
        }
    }
    group.take_offline(&[stays.disk()], "it failed").unwrap();
    scene.disks.drop_at_flushes(DiskSlot(to.0), 1);
    let answer = group.drop_disks(&[stays.disk()], true);
    answer.expect_err("it has the last good copy");
    group.return_disks(&[DiskSlot(stays.disk().0)]).unwrap();
    resync(&group);
    assert!(read(&group, &file, 0, data.len()) == data);
}

/// A run that makes missing copies ends, having found none, just as somebody asks for a second copy of all.
#[test]
fn a_group_has_no_redundancy_before_its_copies_are_made() {
    let scene = Scene::new(52, Redundancy::External, &[(0, 64), (1, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    let files = [(file.id, Redundancy::Normal)];
    group.convert_group(Redundancy::Normal, &files).unwrap();
    group.finish_raised_redundancy().unwrap();
    assert_eq!(group.view().redundancy, Redundancy::External);
    resync(&group);
    assert_eq!(group.view().redundancy, Redundancy::Normal);
    assert!(read(&group, &file, 0, 1 << 20) == pattern(1, 1 << 20));
}

#[test]
fn a_disk_does_not_shrink_over_what_the_catalog_took_after_it_was_judged() {
    let scene = Scene::mirrored(52);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 20 << 20)).unwrap();
    group.sync().unwrap();
    let disk = DiskNumber(0);
    let end_block = group.space.end_block(disk);
    // A few AUs behind the last one that is in use: what comes next reaches beyond.
    let au_blocks = (1 << 20) / BLOCK_SIZE_BYTES;
    let is_used = |au: &u64| group.space.is_used_behind(disk, au * au_blocks);
    let used_aus = (0..end_block / au_blocks).take_while(is_used).count() as u64;
    let changes = DiskChanges {
        resize: vec![(disk, (used_aus + 4) << 20)],
        ..DiskChanges::default()
    };
    let judged = group.judge_changes(&changes).unwrap();
    let more_bytes = group.region.capacity_bytes() + (8 << 20);
    group.region.set_aside(more_bytes).unwrap();
    let refused = group.end_shrinking(&judged).unwrap_err();
    assert_eq!(refused.kind, GroupErrorKind::NotEnough, "{refused}");
    assert!(refused.to_string().contains("replica of the catalog"));
    assert_eq!(group.space.end_block(disk), end_block, "as before");
    group.sync().unwrap();
    assert!(read(&group, &file, 0, 20 << 20) == pattern(1, 20 << 20));
}

/// It goes at each request in turn: at its label, or at the group state that has it.
#[test]
fn a_replacement_that_fails_as_it_joins_begins_no_new_outage() {
    let scene = Scene::mirrored(70);
    let away = DiskNumber(1);
    let new = spare(&scene.disks, 1, 64);
    {
        let group = scene.open();
        group.offline_disks(&[away]).unwrap();
        group.close().unwrap();
    }
    let changes = DiskChanges {
        replace: vec![(away, new.clone())],
        ..DiskChanges::default()
    };
    for request in 1.. {
        let scene = scene.copy(request);
        // From here on the row of the outage alone says that a person wanted it.
        let group = scene.open();
        assert!(group.is_by_hand(away));
        scene.disks.vanish_after(new.slot, request);
        if group.change_disks(&changes).is_ok() {
            assert!(request >= 8, "labels, and the state");
            return;
        }
        assert!(group.is_by_hand(away), "gone at request {request}");
    }
}

/// A group of one disk that has data, and a change by which it gets smaller and another one joins.
fn smaller_with_another(seed: u64) -> (Scene, Group, DiskChanges) {
    let scene = Scene::new(seed, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 4 << 20)).unwrap();
    group.sync().unwrap();
    let changes = DiskChanges {
        add: vec![spare(&scene.disks, 1, 64)],
        resize: vec![(SHRINKS, 32 << 20)],
        ..DiskChanges::default()
    };
    (scene, group, changes)
}

const SHRINKS: DiskNumber = DiskNumber(0);

/// It goes at each request in turn: at its label, or at the group state, when the catalog has the change.
#[test]
fn a_disk_that_was_to_get_smaller_stays_whole_where_another_one_fails_as_it_joins() {
    for request in 1.. {
        let (scene, group, changes) = smaller_with_another(71);
        let end_block = group.space.end_block(SHRINKS);
        let new = changes.add[0].slot;
        scene.disks.vanish_after(new, request);
        if group.change_disks(&changes).is_ok() {
            assert!(request >= 8, "labels, and the state");
            return;
        }
        let when = format!("gone at request {request}");
        assert_eq!(group.space.end_block(SHRINKS), end_block, "{when}");
        group.sync().unwrap();
        drop(group);
        scene.crash();
        let group = scene.open();
        assert_eq!(group.space.end_block(SHRINKS), end_block, "{when}");
        assert_eq!(numbers(&group), [SHRINKS.0], "{when}");
        scene.disks.bring_back(new);
        group.change_disks(&changes).unwrap();
        assert!(group.space.end_block(SHRINKS) < end_block, "{when}");
    }
}

/// A commit that failed has applied its rows, and the next one takes them along.
#[test]
fn a_change_whose_commit_failed_is_not_made_by_the_next_commit() {
    let (scene, group, changes) = smaller_with_another(72);
    let end_block = group.space.end_block(SHRINKS);
    scene.disks.drop_at_flushes(DiskSlot(SHRINKS.0), 1);
    group.change_disks(&changes).unwrap_err();
    assert_eq!(group.space.end_block(SHRINKS), end_block);
    // What the flush should have covered is told once.
    let _ = group.sync();
    group.sync().unwrap();
    group.disk_record(DiskNumber(1)).unwrap_err();
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(
        group.space.end_block(SHRINKS),
        end_block,
        "at the next start"
    );
    assert_eq!(numbers(&group), [SHRINKS.0]);
    assert_sound(&group);
    group.change_disks(&changes).unwrap();
    assert_eq!(numbers(&group), [SHRINKS.0, 1]);
}

/// Something lies behind the end that was asked for first, so the group state does not have it yet.
#[test]
fn a_disk_that_is_about_to_get_smaller_is_so_still_where_another_size_was_refused() {
    let scene = Scene::new(73, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let file = create(&group, 10, EXTERNAL);
    group.write(&file, 0, &pattern(1, 40 << 20)).unwrap();
    group.sync().unwrap();
    group.remove_file(&group.change(), &file).unwrap();
    let file = create(&group, 11, EXTERNAL);
    group.write(&file, 0, &pattern(2, 8 << 20)).unwrap();
    group.sync().unwrap();
    group.resize_disk(SHRINKS, 40 << 20).unwrap();
    let end_block = group.space.end_block(SHRINKS);
    assert!(group.space.is_used_behind_end(SHRINKS));
    scene.disks.drop_at_flushes(DiskSlot(SHRINKS.0), 1);
    group.resize_disk(SHRINKS, 32 << 20).unwrap_err();
    assert_eq!(group.space.end_block(SHRINKS), end_block);
    let _ = group.sync();
    group.sync().unwrap();
    drop((group, file));
    scene.crash();
    let group = scene.open();
    assert_eq!(
        group.space.end_block(SHRINKS),
        end_block,
        "at the next start"
    );
}
