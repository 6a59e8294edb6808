//! What a scrub could not look at is told, come back to, and does not count as done; and a person's
//! word on a disk.

use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::{
    Distrust, File, FindingKind, Group, LeftOutReason, Power, ScrubScope, ScrubState, ScrubStep,
    ScrubView, ScrubWish,
};

use crate::scene::{NORMAL, Scene, create, pattern, read};
use crate::scrub::{Judge, damage, finish, kinds, pages, places, scrub, stage, wish};

const PAGES_COUNT: u32 = 1024;
const PAGE: u64 = 8192;

struct Returned {
    scene: Scene,
    group: Group,
    file: Arc<File>,
    bytes: Vec<u8>,
}

fn work(group: &Group, now_ms: &mut u64) {
    for _ in 0..8 {
        *now_ms += 6000;
        while group.step(*now_ms).unwrap() {}
        for _ in 0..10_000 {
            *now_ms += 1;
            if !group.work(*now_ms).unwrap().did_something {
                break;
            }
        }
    }
}

/// A mirrored file of 8 MiB. Disk 1 was away while block 1280, at 5 MiB, was written, has come
/// back, and waits to be given it: the power of the group is 0.
fn with_one_stale_block() -> Returned {
    let scene = Scene::new(1, Redundancy::Normal, &[(0, 64), (1, 64)]);
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let file = create(&group, 10, NORMAL);
    let bytes = pages(1, PAGES_COUNT);
    group.write(&file, 0, &bytes).unwrap();
    group.sync().unwrap();
    // What was written long ago is not doubted because of an outage.
    work(&group, &mut 0);
    group.set_power(Power::new(0).unwrap()).unwrap();
    scene.disks.vanish(DiskSlot(1));
    let at = 5 << 20;
    group.write(&file, at, &bytes[5 << 20..][..4096]).unwrap();
    group.sync().unwrap();
    scene.disks.bring_back(DiskSlot(1));
    group.return_disks(&[DiskSlot(1)]).unwrap();
    group.take_events();
    Returned {
        scene,
        group,
        file,
        bytes,
    }
}

fn on_disk_1(returned: &Returned, offset_bytes: u64) -> (DiskSlot, u64) {
    let places = places(&returned.group, &returned.file, offset_bytes);
    places.into_iter().find(|(disk, _)| disk.0 == 1).unwrap()
}

#[test]
fn a_stale_block_takes_nothing_else_of_its_stretch_out_of_a_scrub() {
    let returned = with_one_stale_block();
    let group = &returned.group;
    // In the same 4 MiB, and what it did not miss.
    let damaged = on_disk_1(&returned, 4 << 20);
    damage(&returned.scene, damaged);
    let view = scrub(group, true);
    assert_eq!(kinds(&view), [FindingKind::Repaired], "{view:?}");
    assert_eq!(view.findings[0].offset_bytes, 4 << 20);
    let right = &returned.bytes[4 << 20..][..16];
    assert!(returned.scene.disks.bytes(damaged.0, damaged.1, 16) == right);

    // The stale block itself is told, and is not done.
    let [left_out] = &view.left_out[..] else {
        panic!("{view:?}");
    };
    assert_eq!(
        (left_out.offset_bytes, left_out.length_bytes),
        (5 << 20, BLOCK_SIZE_BYTES)
    );
    assert_eq!(
        (&left_out.disk[..], left_out.reason),
        ("D1", LeftOutReason::Stale)
    );
    assert_eq!(left_out.title, "/file10");
    assert_eq!(view.left_out_bytes, BLOCK_SIZE_BYTES);
    assert_eq!(view.total_bytes - view.done_bytes, BLOCK_SIZE_BYTES);
    let events = group.take_events();
    let told = |word: &str| events.iter().any(|event| event.message.contains(word));
    assert!(told("left out 4096 bytes on D1"), "{events:?}");
    assert!(!told("every copy is as it should be"));
}

#[test]
fn what_a_scrub_left_out_is_looked_at_when_the_disk_has_it_again() {
    let returned = with_one_stale_block();
    let group = &returned.group;
    group.start_scrub(wish(ScrubScope::Group, true)).unwrap();
    while group.scrub_unit(1000).unwrap() == ScrubStep::Did {}
    let view = group.scrub_view().unwrap();
    assert_eq!(view.left_out_bytes, BLOCK_SIZE_BYTES);
    assert_ne!(view.state, ScrubState::Done);
    group.set_power(Power::MAX).unwrap();
    // The resync; the scrub waits for its moment.
    while group.work(1000).unwrap().did_something {}
    // What the disk was given has gone bad since.
    damage(&returned.scene, on_disk_1(&returned, 5 << 20));
    let view = finish(group);
    assert_eq!(kinds(&view), [FindingKind::Repaired]);
    assert_eq!((view.left_out.len(), view.left_out_bytes), (0, 0));
    assert_eq!(view.done_bytes, view.total_bytes);
    let length = returned.bytes.len();
    assert!(read(group, &returned.file, 0, length) == returned.bytes);
}

#[test]
fn the_copies_of_a_disk_that_is_offline_are_told_and_do_not_count_as_done() {
    let stage = stage(3, 10, 300);
    let at = 200 * PAGE;
    let gone = places(&stage.group, &stage.file, at)[0].0;
    stage.scene.disks.vanish(gone);
    stage
        .group
        .write(&stage.file, at, &stage.bytes[200 * 8192..][..8192])
        .unwrap();
    // The page is bad in the only copy that is left to look at.
    damage(&stage.scene, places(&stage.group, &stage.file, at)[1]);
    let view = scrub(&stage.group, true);
    assert!(view.left_out_bytes > 0);
    assert!(
        view.left_out
            .iter()
            .all(|one| one.reason == LeftOutReason::Offline)
    );
    assert_eq!(view.done_bytes + view.left_out_bytes, view.total_bytes);
    assert_eq!(kinds(&view), [FindingKind::BadPage]);
    assert!(view.findings[0].message.contains("that could be looked at"));
}

#[test]
fn what_was_left_out_is_known_after_a_crash() {
    let returned = with_one_stale_block();
    returned
        .group
        .start_scrub(wish(ScrubScope::Group, true))
        .unwrap();
    while returned.group.scrub_unit(1000).unwrap() == ScrubStep::Did {}
    returned.group.scrub_unit(9000).unwrap();
    returned.group.sync().unwrap();
    let Returned { scene, group, .. } = returned;
    drop(group);
    scene.crash();
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let view = finish_from(&group, 100_000);
    assert_eq!(view.state, ScrubState::Done);
    assert_eq!(view.done_bytes + view.left_out_bytes, view.total_bytes);
}

fn finish_from(group: &Group, mut now_ms: u64) -> ScrubView {
    for _ in 0..10_000 {
        match group.scrub_unit(now_ms).unwrap() {
            ScrubStep::Did => {}
            ScrubStep::Waiting => now_ms += 10_000,
            ScrubStep::Idle => return group.scrub_view().unwrap(),
        }
    }
    panic!("the scrub does not end");
}

fn distrust(disk: DiskSlot, repair: bool) -> ScrubWish {
    ScrubWish {
        distrust: Some(Distrust {
            disk: DiskNumber(disk.0),
            by: "alice".to_owned(),
        }),
        ..wish(ScrubScope::Disks(vec![DiskNumber(disk.0)]), repair)
    }
}

#[test]
fn where_nothing_is_proven_the_copy_on_a_distrusted_disk_loses_and_only_that() {
    let at = 200 * PAGE;
    let start = usize::try_from(at).unwrap();
    let older = &pages(99, 300)[start..start + 8192];
    // Of a file without pages, of pages of which both are good, and of a page of zeros, which a
    // lost write leaves, beside a good one.
    for (id, older) in [(101, older), (10, older), (10, &[0; 8192])] {
        let stage = stage(6, id, 300);
        let places = places(&stage.group, &stage.file, at);
        let (wrong, right) = (places[0], places[1]);
        stage.scene.disks.overwrite(wrong.0, wrong.1, older);
        stage.group.take_events();

        stage.group.start_scrub(distrust(wrong.0, false)).unwrap();
        let view = finish(&stage.group);
        assert!(
            kinds(&view)
                .iter()
                .all(|kind| *kind == FindingKind::Repairable)
        );
        assert!(
            stage.scene.disks.bytes(wrong.0, wrong.1, 8192) == older,
            "only told"
        );
        let events = stage.group.take_events();
        let told = |word: &str| events.iter().any(|event| event.message.contains(word));
        assert!(told("alice") && told("distrusted"), "{events:?}");

        stage.group.start_scrub(distrust(wrong.0, true)).unwrap();
        let view = finish(&stage.group);
        assert_eq!(view.distrust, Some(DiskNumber(wrong.0.0)));
        assert!(view.repaired_count > 0);
        assert_eq!(view.repaired_count, view.findings_count);
        let page = &stage.bytes[start..start + 8192];
        assert!(stage.scene.disks.bytes(wrong.0, wrong.1, 8192) == page);
        assert!(stage.scene.disks.bytes(right.0, right.1, 8192) == page);
        assert_eq!(scrub(&stage.group, true).findings_count, 0);
    }
}

#[test]
fn a_word_against_the_disk_with_the_good_page_does_not_bring_in_one_that_is_proven_bad() {
    let stage = stage(8, 10, 300);
    let at = 200 * PAGE;
    let places = places(&stage.group, &stage.file, at);
    let (bad, good) = (places[0], places[1]);
    // Its checksum is wrong, and by its position it may be the newer one.
    let mut damaged = stage.scene.disks.bytes(bad.0, bad.1, 8192);
    damaged[..8].fill(0xff);
    damaged[5000] ^= 1;
    stage.scene.disks.overwrite(bad.0, bad.1, &damaged);
    let start = usize::try_from(at).unwrap();
    let page = &stage.bytes[start..start + 8192];

    stage.group.start_scrub(distrust(good.0, true)).unwrap();
    let view = finish(&stage.group);
    assert_eq!(kinds(&view), [FindingKind::CopiesDiffer]);
    assert!(stage.scene.disks.bytes(good.0, good.1, 8192) == page);
    assert!(stage.scene.disks.bytes(bad.0, bad.1, 8192) == damaged);

    stage.group.start_scrub(distrust(bad.0, true)).unwrap();
    let view = finish(&stage.group);
    assert!(view.repaired_count > 0);
    assert!(stage.scene.disks.bytes(bad.0, bad.1, 8192) == page);
}

#[test]
fn a_page_that_is_proven_right_does_not_lose_on_anybodys_word() {
    let stage = stage(7, 10, 300);
    let at = 200 * PAGE;
    let places = places(&stage.group, &stage.file, at);
    damage(&stage.scene, places[0]);
    stage
        .group
        .start_scrub(distrust(places[1].0, true))
        .unwrap();
    let view = finish(&stage.group);
    assert_eq!(kinds(&view), [FindingKind::Repaired]);
    assert_eq!(view.findings[0].disks, [format!("D{}", places[0].0.0)]);
    let start = usize::try_from(at).unwrap();
    for place in places {
        let page = stage.scene.disks.bytes(place.0, place.1, 8192);
        assert!(page == stage.bytes[start..start + 8192]);
    }
}

#[test]
fn a_files_first_bytes_are_told_from_the_copies_that_are_there() {
    // The head of a file lies on many disks: with any of them away some copy lacks a part of it.
    for away in 0..6 {
        let disks = [(0, 64), (0, 64), (1, 64), (1, 64), (2, 64), (2, 64)];
        let scene = Scene::new(31, Redundancy::Normal, &disks);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        let bytes = pattern(1, 1 << 20);
        group.write(&file, 0, &bytes).unwrap();
        group.sync().unwrap();
        group.offline_disks(&[DiskNumber(away)]).unwrap();
        let head = group.read_each_copy(&file, 64 << 10);
        assert!(
            head == [&bytes[..64 << 10]],
            "without disk {away}: {}",
            head.len()
        );
    }
}
