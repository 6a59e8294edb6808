//! Scrubs: which copy is right is proven or nothing is touched.

use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::{
    File, FindingKind, Group, GroupErrorKind, Known, PageJudge, ScrubScope, ScrubState, ScrubStep,
    ScrubView, ScrubWish,
};
use spindle_pages::PageFile;
use spindle_pages::postgresql::{Checksums, Cluster, PAGE_BYTES, checksum};

use crate::scene::{
    MIB, NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

const PAGE: usize = PAGE_BYTES;

/// Every file is PostgreSQL's but those of an id above 100; those above 50 lie in a tablespace,
/// whose cluster is not known.
#[derive(Debug)]
pub struct Judge;

impl PageJudge for Judge {
    fn look(&self, file: FileId) -> Known {
        Known {
            title: format!("/file{file}"),
            pages: (file.0 <= 100).then_some(PageFile::PostgreSql {
                segment: 0,
                cluster: Cluster::usual(if file.0 <= 50 {
                    Checksums::On
                } else {
                    Checksums::NotKnown
                }),
            }),
        }
    }
}

/// Pages as PostgreSQL would seal them.
pub fn pages(seed: u64, count: u32) -> Vec<u8> {
    let mut bytes = pattern(seed, PAGE * count as usize);
    for (number, page) in (0_u32..).zip(bytes.chunks_mut(PAGE)) {
        page[14..16].copy_from_slice(&8000_u16.to_le_bytes());
        page[18..20].copy_from_slice(&0x2004_u16.to_le_bytes());
        let sum = checksum(page, number);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Where each copy of a byte of the file lies.
pub fn places(group: &Group, file: &File, offset_bytes: u64) -> Vec<(DiskSlot, u64)> {
    let extents = group.map(file);
    let extent = extents
        .iter()
        .rev()
        .find(|extent| extent.offset_bytes <= offset_bytes)
        .unwrap();
    let copies = extent.copies.iter().flatten();
    copies
        .map(|(disk, start)| (DiskSlot(disk.0), start + offset_bytes - extent.offset_bytes))
        .collect()
}

pub fn damage(scene: &Scene, place: (DiskSlot, u64)) {
    let mut bytes = scene.disks.bytes(place.0, place.1, 16);
    bytes[3] ^= 0x40;
    scene.disks.overwrite(place.0, place.1, &bytes);
}

pub fn wish(scope: ScrubScope, repair: bool) -> ScrubWish {
    ScrubWish {
        scope,
        title: "DATA".to_owned(),
        repair,
        power: 1024,
        distrust: None,
    }
}

/// Works until the scrub has ended; the clock stands still but where it waits.
pub fn finish(group: &Group) -> ScrubView {
    let mut now_ms = 1000;
    for _ in 0..10_000 {
        match group.scrub_unit(now_ms).unwrap() {
            ScrubStep::Did => {}
            ScrubStep::Waiting => now_ms += 10_000,
            ScrubStep::Idle => return group.scrub_view().unwrap(),
        }
    }
    panic!("the scrub does not end");
}

pub fn scrub(group: &Group, repair: bool) -> ScrubView {
    group.start_scrub(wish(ScrubScope::Group, repair)).unwrap();
    finish(group)
}

pub struct Stage {
    pub scene: Scene,
    pub group: Group,
    pub file: Arc<File>,
    pub bytes: Vec<u8>,
}

/// A file of pages on a mirrored group of four disks.
pub fn stage(seed: u64, id: u64, pages_count: u32) -> Stage {
    let scene = Scene::new(
        seed,
        Redundancy::Normal,
        &[(0, 32), (0, 32), (1, 32), (1, 32)],
    );
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let file = create(&group, id, NORMAL);
    let bytes = pages(seed, pages_count);
    group.write(&file, 0, &bytes).unwrap();
    group.sync().unwrap();
    group.take_events();
    Stage {
        scene,
        group,
        file,
        bytes,
    }
}

pub fn kinds(view: &ScrubView) -> Vec<FindingKind> {
    view.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_scrub_of_sound_copies_finds_nothing_and_reads_all_of_them() {
    let stage = stage(1, 10, 700);
    let view = scrub(&stage.group, true);
    assert_eq!(view.state, ScrubState::Done);
    assert_eq!((view.findings_count, view.judged_pages_count), (0, 700));
    assert_eq!(view.done_bytes, 700 * PAGE as u64);
    assert_eq!(view.total_bytes, view.done_bytes);
    assert_eq!(view.read_bytes, 2 * view.done_bytes);
}

#[test]
fn the_copy_whose_page_is_bad_is_mended_from_the_other_whichever_it_is() {
    // Pages in the short extents of the head, and in the body.
    for page in [0_u64, 1, 3, 100, 130, 699] {
        for copy in [0, 1] {
            let stage = stage(2, 10, 700);
            let at = page * PAGE as u64 + 4096 + 200;
            let place = places(&stage.group, &stage.file, at)[copy];
            damage(&stage.scene, place);
            let damaged = stage.scene.disks.bytes(place.0, place.1, 16);

            let view = scrub(&stage.group, false);
            assert_eq!(kinds(&view), [FindingKind::Repairable]);
            assert_eq!(stage.scene.disks.bytes(place.0, place.1, 16), damaged);

            let view = scrub(&stage.group, true);
            assert_eq!(kinds(&view), [FindingKind::Repaired], "page {page}");
            assert_eq!(view.findings[0].page, Some(page));
            assert_eq!(view.findings[0].disks, [format!("D{}", place.0.0)]);
            let start = usize::try_from(at).unwrap();
            let right = &stage.bytes[start..start + 16];
            assert_eq!(stage.scene.disks.bytes(place.0, place.1, 16), right);
            assert_eq!(scrub(&stage.group, true).findings_count, 0);
            assert!(read(&stage.group, &stage.file, 0, stage.bytes.len()) == stage.bytes);
        }
    }
}

#[test]
fn where_nothing_tells_which_copy_is_right_it_says_so_and_touches_nothing() {
    let stage = stage(3, 101, 100);
    let at = 50 * PAGE as u64;
    let places = places(&stage.group, &stage.file, at);
    damage(&stage.scene, places[1]);
    let before: Vec<_> = places
        .iter()
        .map(|place| stage.scene.disks.bytes(place.0, place.1, 4096))
        .collect();
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::CopiesDiffer]);
    let finding = &view.findings[0];
    assert_eq!(
        (finding.offset_bytes, finding.length_bytes),
        (at, BLOCK_SIZE_BYTES)
    );
    assert_eq!(finding.disks.len(), 2);
    assert_eq!(view.repaired_count, 0);
    let after: Vec<_> = places
        .iter()
        .map(|place| stage.scene.disks.bytes(place.0, place.1, 4096))
        .collect();
    assert!(before == after);
    let events = stage.group.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.message.contains("/file101"))
    );
}

#[test]
fn an_older_good_page_is_not_chosen_and_not_overwritten() {
    let stage = stage(4, 10, 300);
    let older = pages(99, 300);
    let at = 200 * PAGE;
    let place = places(&stage.group, &stage.file, at as u64)[0];
    stage
        .scene
        .disks
        .overwrite(place.0, place.1, &older[at..at + PAGE]);
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::CopiesDiffer]);
    let kept = stage.scene.disks.bytes(place.0, place.1, PAGE);
    assert!(kept == older[at..at + PAGE]);
}

/// A page without a right checksum, as a server writes it whose checksums were switched off.
fn without_checksum(mut page: Vec<u8>, position: u64) -> Vec<u8> {
    page[..8].copy_from_slice(&position.rotate_left(32).to_le_bytes());
    page[8..10].fill(0);
    page
}

#[test]
fn a_page_that_may_be_newer_is_not_written_over_by_an_older_one_that_is_good() {
    // In a cluster that has checksums, and in one that nobody knows.
    for id in [10, 60] {
        for copy in [0, 1] {
            let stage = stage(4, id, 300);
            let number = 200;
            let at = number * PAGE;
            let mut older = stage.bytes[at..at + PAGE].to_vec();
            older[..8].copy_from_slice(&100_u64.rotate_left(32).to_le_bytes());
            let sum = checksum(&older, u32::try_from(number).unwrap());
            older[8..10].copy_from_slice(&sum.to_le_bytes());
            let newer = without_checksum(pattern(7, PAGE), 200);
            let newer = {
                let mut page = newer;
                page[14..20].copy_from_slice(&older[14..20]);
                page
            };
            stage.group.write(&stage.file, at as u64, &newer).unwrap();
            stage.group.sync().unwrap();
            // One disk answered that write and did not make it.
            let places = places(&stage.group, &stage.file, at as u64);
            let (lost, kept) = (places[copy], places[1 - copy]);
            stage.scene.disks.overwrite(lost.0, lost.1, &older);
            let view = scrub(&stage.group, true);
            assert_eq!(kinds(&view), [FindingKind::CopiesDiffer], "{view:?}");
            assert!(view.findings[0].message.contains("may be newer"));
            assert!(stage.scene.disks.bytes(kept.0, kept.1, PAGE) == newer);
            assert!(stage.scene.disks.bytes(lost.0, lost.1, PAGE) == older);
        }
    }
}

#[test]
fn an_older_page_that_is_damaged_is_mended_from_the_newer_one() {
    let stage = stage(4, 10, 300);
    let at = 200 * PAGE;
    let mut older = stage.bytes[at..at + PAGE].to_vec();
    older[..8].fill(0);
    let place = places(&stage.group, &stage.file, at as u64)[0];
    stage.scene.disks.overwrite(place.0, place.1, &older);
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::Repaired]);
    let right = &stage.bytes[at..at + PAGE];
    assert!(stage.scene.disks.bytes(place.0, place.1, PAGE) == right);
}

/// Says that the cluster has checksums, and from the second question on that it has none.
#[derive(Debug, Default)]
struct SwitchedOff(std::sync::atomic::AtomicU32);

impl PageJudge for SwitchedOff {
    fn look(&self, file: FileId) -> Known {
        let before = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut known = Judge.look(file);
        known.pages = known.pages.filter(|_| before == 0);
        known
    }
}

#[test]
fn what_a_file_is_is_asked_again_before_anything_is_written() {
    let stage = stage(4, 10, 3000);
    let judge = Arc::new(SwitchedOff::default());
    stage.group.set_page_judge(judge);
    // In the last stretch, when the file has been known for long.
    let place = places(&stage.group, &stage.file, 2900 * PAGE as u64)[0];
    damage(&stage.scene, place);
    let damaged = stage.scene.disks.bytes(place.0, place.1, PAGE);
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::CopiesDiffer]);
    assert!(stage.scene.disks.bytes(place.0, place.1, PAGE) == damaged);
}

#[test]
fn a_page_that_is_bad_in_every_copy_is_told_only_when_it_stays_so() {
    let stage = stage(5, 10, 300);
    let at = 200 * PAGE as u64 + 100;
    for place in places(&stage.group, &stage.file, at) {
        damage(&stage.scene, place);
    }
    stage
        .group
        .start_scrub(wish(ScrubScope::Group, true))
        .unwrap();
    while stage.group.scrub_unit(1000).unwrap() == ScrubStep::Did {}
    let view = stage.group.scrub_view().unwrap();
    assert_eq!(
        (view.state, view.findings_count),
        (ScrubState::LookingAgain, 0)
    );
    assert_eq!(stage.group.scrub_unit(20_000).unwrap(), ScrubStep::Waiting);
    assert_eq!(stage.group.scrub_unit(50_000).unwrap(), ScrubStep::Did);
    let view = finish(&stage.group);
    assert_eq!(kinds(&view), [FindingKind::BadPage]);
    assert_eq!(view.findings[0].page, Some(200));
}

#[test]
fn a_page_whose_other_half_comes_later_is_not_told() {
    let stage = stage(6, 10, 300);
    let newer = pages(60, 300);
    let at = 200 * PAGE;
    // As a kernel writes back: one half now, the other later.
    stage
        .group
        .write(&stage.file, at as u64, &newer[at..at + 4096])
        .unwrap();
    stage
        .group
        .start_scrub(wish(ScrubScope::Group, true))
        .unwrap();
    while stage.group.scrub_unit(1000).unwrap() == ScrubStep::Did {}
    stage
        .group
        .write(&stage.file, at as u64 + 4096, &newer[at + 4096..at + PAGE])
        .unwrap();
    let view = finish(&stage.group);
    assert_eq!((view.state, view.findings_count), (ScrubState::Done, 0));
}

#[test]
fn without_a_second_copy_a_bad_page_is_told() {
    let scene = Scene::new(7, Redundancy::External, &[(0, 32), (0, 32)]);
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let file = create(&group, 10, crate::scene::EXTERNAL);
    group.write(&file, 0, &pages(7, 200)).unwrap();
    damage(&scene, places(&group, &file, 100 * PAGE as u64)[0]);
    let view = scrub(&group, true);
    assert_eq!(kinds(&view), [FindingKind::BadPage]);
}

#[test]
fn an_unreadable_block_is_written_again_from_the_copy_that_can_be_read() {
    for id in [10, 101] {
        let stage = stage(8, id, 300);
        let place = places(&stage.group, &stage.file, 200 * PAGE as u64)[1];
        let range = place.1..place.1 + 4096;
        // The piece fails, then the block alone; then it is readable again.
        stage.scene.disks.fail_reads(place.0, range, 2);
        let view = scrub(&stage.group, true);
        assert_eq!(kinds(&view), [FindingKind::Repaired]);
        assert_eq!(scrub(&stage.group, true).findings_count, 0);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_left_and_never_used_again() {
    let stage = stage(9, 10, 300);
    let at = 200 * PAGE as u64;
    let place = places(&stage.group, &stage.file, at)[1];
    damage(&stage.scene, place);
    let range = place.1..place.1 + 4096;
    stage.scene.disks.fail_writes(place.0, range, u64::MAX);
    let free_bytes = |group: &Group| group.view().disks[usize::from(place.0.0)].free_bytes;
    let before_bytes = free_bytes(&stage.group);
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::Moved]);
    let now = places(&stage.group, &stage.file, at)[1];
    assert_eq!(now.0, place.0, "on the same disk");
    assert_ne!(now.1, place.1);
    assert_eq!(free_bytes(&stage.group), before_bytes - MIB);
    assert_sound(&stage.group);
    assert!(read(&stage.group, &stage.file, 0, stage.bytes.len()) == stage.bytes);
    stage.group.sync().unwrap();
    let scene = stage.scene;
    drop(stage.group);
    scene.crash();
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    assert_eq!(free_bytes(&group), before_bytes - MIB);
    assert_sound(&group);
    let file = group.file(FileId(10)).unwrap();
    assert_eq!(places(&group, &file, at)[1], now);
    assert_eq!(scrub(&group, true).findings_count, 0);
    // The disk is filled to its end, and the bad place is not touched.
    let filler = create(&group, 20, NORMAL);
    let mut offset = 0;
    while group.write(&filler, offset, &pattern(1, 1 << 20)).is_ok() {
        offset += MIB;
    }
    assert_eq!(group.view().offline_disks_count, 0);
}

#[test]
fn a_crash_before_the_commit_finds_the_copy_at_its_old_place() {
    let stage = stage(10, 10, 300);
    let at = 200 * PAGE as u64;
    let place = places(&stage.group, &stage.file, at)[0];
    damage(&stage.scene, place);
    let range = place.1..place.1 + 4096;
    stage.scene.disks.fail_writes(place.0, range, 1);
    assert_eq!(kinds(&scrub(&stage.group, true)), [FindingKind::Moved]);
    let scene = stage.scene;
    drop(stage.group);
    scene.crash();
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let file = group.file(FileId(10)).unwrap();
    assert_eq!(places(&group, &file, at)[0], place);
    assert_sound(&group);
    // The write that failed may have gone through in part: it is damaged again. A row names its disk,
    // so that nobody reads it there, and it is made equal to the other copy.
    scene.disks.overwrite(place.0, place.1, &[0xaa; 4096]);
    for _ in 0..8 {
        assert!(read(&group, &file, 0, stage.bytes.len()) == stage.bytes);
    }
    resync(&group);
    assert_copies_equal(&scene, &group, &file, "after the resync");
    assert!(read(&group, &file, 0, stage.bytes.len()) == stage.bytes);
}

#[test]
fn a_disk_that_takes_the_copy_nowhere_goes_offline() {
    let stage = stage(11, 10, 300);
    let place = places(&stage.group, &stage.file, 200 * PAGE as u64)[0];
    damage(&stage.scene, place);
    let all = 2 * MIB..32 * MIB;
    stage.scene.disks.fail_writes(place.0, all, u64::MAX);
    let view = scrub(&stage.group, true);
    assert_eq!(kinds(&view), [FindingKind::DiskOffline]);
    let disk = &stage.group.view().disks[usize::from(place.0.0)];
    assert_eq!(disk.mode, "offline");
    assert!(read(&stage.group, &stage.file, 0, stage.bytes.len()) == stage.bytes);
}

#[test]
fn after_a_crash_a_scrub_goes_on_from_where_it_was_saved() {
    let stage = stage(12, 10, 1500);
    stage
        .group
        .start_scrub(wish(ScrubScope::Group, true))
        .unwrap();
    stage.group.set_scrub_power(4).unwrap();
    let mut now_ms = 0;
    for _ in 0..8 {
        now_ms += 2000;
        assert_eq!(stage.group.scrub_unit(now_ms).unwrap(), ScrubStep::Did);
    }
    stage.group.sync().unwrap();
    let done_bytes = stage.group.scrub_view().unwrap().done_bytes;
    let scene = stage.scene;
    drop(stage.group);
    scene.crash();
    let group = scene.open();
    group.set_page_judge(Arc::new(Judge));
    let refused = group.start_scrub(wish(ScrubScope::Group, true));
    assert_eq!(refused.unwrap_err().kind, GroupErrorKind::Busy);
    assert_eq!(group.scrub_workers_count(), 1);
    let view = finish(&group);
    assert_eq!(view.state, ScrubState::Done);
    assert!(view.repair && view.power == 4);
    let again_bytes = view.read_bytes / 2;
    assert!(
        done_bytes > 0 && again_bytes < 1500 * PAGE as u64 + done_bytes,
        "{view:?}"
    );
    assert!(view.done_bytes >= 1500 * PAGE as u64);
    group.sync().unwrap();
    drop(group);
    scene.crash();
    assert_eq!(scene.open().scrub_workers_count(), 0, "it had ended");
}

#[test]
fn a_scrub_is_of_a_file_or_of_a_disk_where_that_is_asked() {
    let stage = stage(13, 10, 300);
    let other = create(&stage.group, 11, NORMAL);
    stage.group.write(&other, 0, &pages(5, 300)).unwrap();
    damage(&stage.scene, places(&stage.group, &other, 9 * MIB / 8)[0]);
    stage
        .group
        .start_scrub(wish(ScrubScope::Files(vec![FileId(10)]), true))
        .unwrap();
    let view = finish(&stage.group);
    assert_eq!((view.findings_count, view.judged_pages_count), (0, 300));
    stage
        .group
        .start_scrub(wish(ScrubScope::Files(vec![FileId(11)]), true))
        .unwrap();
    assert_eq!(finish(&stage.group).repaired_count, 1);

    let mut judged_count = 0;
    for disk in 0..4 {
        let at = DiskNumber(disk);
        let scope = ScrubScope::Disks(vec![at]);
        stage.group.start_scrub(wish(scope, false)).unwrap();
        let view = finish(&stage.group);
        assert_eq!(view.findings_count, 0);
        assert!(view.judged_pages_count < 600, "not all of both files");
        judged_count += view.judged_pages_count;
    }
    assert!(judged_count >= 1200, "each page on two disks");
}

#[test]
fn a_second_scrub_a_power_out_of_range_and_nothing_to_stop_are_refused() {
    let stage = stage(14, 10, 300);
    let refused = stage.group.stop_scrub().unwrap_err();
    assert_eq!(refused.kind, GroupErrorKind::NotFound);
    let mut beyond = wish(ScrubScope::Group, false);
    beyond.power = 1025;
    let refused = stage.group.start_scrub(beyond).unwrap_err();
    assert_eq!(refused.kind, GroupErrorKind::Invalid);
    let nothing = wish(ScrubScope::Files(Vec::new()), false);
    let refused = stage.group.start_scrub(nothing).unwrap_err();
    assert_eq!(refused.kind, GroupErrorKind::Invalid);
    let mut paused = wish(ScrubScope::Group, false);
    paused.power = 0;
    stage.group.start_scrub(paused).unwrap();
    assert_eq!(stage.group.scrub_workers_count(), 0);
    assert_eq!(stage.group.scrub_unit(1).unwrap(), ScrubStep::Idle);
    assert_eq!(stage.group.scrub_view().unwrap().state, ScrubState::Paused);
    let refused = stage.group.start_scrub(wish(ScrubScope::Group, false));
    assert_eq!(refused.unwrap_err().kind, GroupErrorKind::Busy);
    assert_eq!(stage.group.stop_scrub().unwrap().state, ScrubState::Stopped);
    assert_eq!(scrub(&stage.group, false).state, ScrubState::Done);
}

#[test]
fn a_schedule_begins_a_scrub_when_its_time_has_come_and_outlives_a_crash() {
    let stage = stage(15, 10, 10);
    stage.group.scrub_on_schedule(1_000_000).unwrap();
    assert_eq!(stage.group.scrub_workers_count(), 0);
    stage.group.set_scrub_interval_s(3600);
    stage.group.scrub_on_schedule(1_000_000).unwrap();
    stage.group.scrub_on_schedule(1_003_599).unwrap();
    assert_eq!(stage.group.scrub_workers_count(), 0);
    stage.group.sync().unwrap();
    let scene = stage.scene;
    drop(stage.group);
    scene.crash();
    let group = scene.open();
    assert_eq!(group.scrub_interval_s(), 3600);
    group.scrub_on_schedule(1_003_600).unwrap();
    assert_eq!(finish(&group).state, ScrubState::Done);
    group.scrub_on_schedule(1_003_601).unwrap();
    assert_eq!(group.scrub_workers_count(), 0);
}

#[test]
fn a_clock_that_was_a_year_ahead_for_a_while_does_not_end_the_schedule() {
    const YEAR_S: u64 = 365 * 24 * 3600;
    let stage = stage(18, 10, 10);
    let group = &stage.group;
    group.set_scrub_interval_s(3600);
    group.scrub_on_schedule(1_000_000 + YEAR_S).unwrap();
    // The clock is right again.
    group.scrub_on_schedule(1_000_000).unwrap();
    group.scrub_on_schedule(1_003_599).unwrap();
    assert_eq!(group.scrub_workers_count(), 0);
    group.sync().unwrap();
    let scene = stage.scene;
    drop(stage.group);
    scene.crash();
    let group = scene.open();
    group.scrub_on_schedule(1_003_600).unwrap();
    assert_eq!(finish(&group).state, ScrubState::Done);
}

/// Writers and scrubbing threads at once: whatever a scrub sees between two writes is whole.
#[test]
fn under_writers_a_scrub_neither_finds_nor_breaks_anything() {
    let stage = stage(16, 10, 600);
    let group = &stage.group;
    group.start_scrub(wish(ScrubScope::Group, true)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let file = &stage.file;
            scope.spawn(move || {
                let newer = pages(thread + 70, 600);
                for page in 0..600 {
                    let at = (page * 7 + usize::try_from(thread).unwrap() * 300) % 600 * PAGE;
                    group.write(file, at as u64, &newer[at..at + PAGE]).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                for round in 0..30 {
                    while group.scrub_unit(round * 1000).unwrap() == ScrubStep::Did {}
                    let _ = group.start_scrub(wish(ScrubScope::Group, true));
                }
            });
        }
    });
    let view = finish(group);
    assert_eq!(view.findings_count, 0, "{view:?}");
    assert_sound(group);
}

#[test]
fn a_copy_that_missed_writes_is_not_compared_before_it_has_them() {
    let stage = stage(17, 10, 600);
    let (scene, group, file) = (&stage.scene, &stage.group, &stage.file);
    scene.disks.vanish(DiskSlot(2));
    let newer = pages(80, 600);
    group.write(file, 0, &newer).unwrap();
    group.sync_file(file, true).unwrap();
    scene.disks.bring_back(DiskSlot(2));
    let back = group.return_disks(&[DiskSlot(2)]).unwrap();
    assert_eq!(back, [DiskNumber(2)]);
    // Both versions of each page are good by themselves: compared, they would differ.
    let view = scrub(group, true);
    assert_eq!(view.findings_count, 0, "{view:?}");
    // What the disk missed is told, and is not done.
    assert!(view.left_out_bytes > 0 && view.left_out.iter().all(|one| one.disk == "D2"));
    assert_eq!(view.done_bytes + view.left_out_bytes, 600 * PAGE as u64);
    assert_eq!(view.read_bytes, 2 * view.done_bytes + view.left_out_bytes);
    assert!(read(group, file, 0, newer.len()) == newer);
    for round in 0..8 {
        while group.step(round * 6000).unwrap() {}
        while group.work(round * 6000).unwrap().did_something {}
    }
    let view = scrub(group, true);
    assert_eq!(
        (view.findings_count, view.left_out_bytes),
        (0, 0),
        "{view:?}"
    );
    assert_eq!(view.done_bytes, 600 * PAGE as u64);
    assert_eq!(view.read_bytes, 2 * view.done_bytes);
}

#[test]
fn a_block_that_a_read_cannot_mend_in_place_is_moved_before_the_read_is_answered() {
    for number in [0, 1] {
        let stage = stage(18, 10, 300);
        let (scene, group, file) = (&stage.scene, &stage.group, &stage.file);
        let at = 200 * PAGE as u64;
        let place = places(group, file, at)[number];
        let range = place.1..place.1 + 4096;
        scene.disks.fail_reads(place.0, range.clone(), u64::MAX);
        scene.disks.fail_writes(place.0, range, u64::MAX);
        // The least busy copy is read, and which that is changes.
        for _ in 0..200 {
            assert!(read(group, file, 0, stage.bytes.len()) == stage.bytes);
            if places(group, file, at)[number] != place {
                break;
            }
        }
        let now = places(group, file, at)[number];
        assert!(now.0 == place.0 && now.1 != place.1, "moved on its disk");
        assert_eq!(group.view().offline_disks_count, 0);
        assert_sound(group);
        assert_eq!(scrub(group, true).findings_count, 0);
        let events = group.take_events();
        assert!(events.iter().any(|event| event.message.contains("moved")));
    }
}
