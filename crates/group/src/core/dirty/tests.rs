mod rows;
mod writers;

use std::thread;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use spindle_base::{AuSize, DiskNumber, FileId, Redundancy, Striping};
use spindle_catalog::{Edit, Sequence};
use spindle_extent::map::Extent;
use spindle_format::{BlockRun, DirtyRecord, ExtentCopy, StaleDisk};
use spindle_sync::atomic::Ordering;

use super::{DirtyRegions, DoubtfulRegion, Lately, REGION_BLOCKS, Writer, WrittenLately, parts};
use crate::core::disks::Target;
use crate::core::file::{File, Layout};
use crate::incarnation::{Incarnation, Life};

const LAYOUT: Layout = Layout {
    redundancy: Redundancy::Normal,
    striping: Striping::Coarse,
};
const AWAY: DiskNumber = DiskNumber(3);
/// The disk as it was at the opening.
const LIFE: Life = Life {
    disk: AWAY,
    incarnation: Incarnation::of_number(1),
};

fn file() -> File {
    File::new(
        FileId(7),
        LAYOUT,
        AuSize::DEFAULT,
        &std::sync::Arc::default(),
    )
}

/// Collects the edits that a group would give to its catalog, numbered from 1.
#[derive(Default)]
struct Applied(Vec<Edit>);

impl Applied {
    fn apply(&mut self) -> impl FnMut(Edit) -> Sequence {
        |edit| {
            self.0.push(edit);
            Sequence(self.0.len() as u64)
        }
    }

    /// An overwrite of a few blocks of a region.
    fn begin(
        &mut self,
        dirty: &DirtyRegions,
        file: &File,
        region: u64,
        missed: &[DiskNumber],
    ) -> (Writer, Sequence) {
        let first = region * REGION_BLOCKS + 5;
        dirty.begin_write(file, &[(first, first + 2)], true, missed, &mut self.apply())
    }

    fn newest(&self) -> DirtyRecord {
        record(self.0.last().unwrap())
    }
}

fn record(edit: &Edit) -> DirtyRecord {
    DirtyRecord::parse(edit.changes[0].2.as_ref().unwrap()).unwrap()
}

fn round(dirty: &DirtyRegions) -> (Edit, bool) {
    let mut edit = Edit::default();
    let more = dirty.begin_round().end(&mut edit);
    (edit, more)
}

/// The number of the round whose edit was not empty, and the edit.
fn rounds_until_an_edit(dirty: &DirtyRegions) -> (usize, Edit) {
    for number in 1..10 {
        let (edit, _) = round(dirty);
        if !edit.is_empty() {
            return (number, edit);
        }
    }
    panic!("never cleaned");
}

fn run(first_block: u16, blocks: u16) -> BlockRun {
    BlockRun {
        first_block,
        blocks,
    }
}

fn open(disks: &[DiskNumber]) -> DirtyRecord {
    let stale = |disk: &DiskNumber| StaleDisk {
        disk: *disk,
        runs: Vec::new(),
    };
    DirtyRecord {
        open: true,
        stale: disks.iter().map(stale).collect(),
    }
}

/// What its caller of `went_offline` has asked for.
fn lately(dirty: &DirtyRegions, held: &[WrittenLately]) -> Lately {
    Lately {
        written: dirty.written_lately(),
        held: held.to_vec(),
    }
}

/// A write of that life of a disk.
const fn target(life: Life) -> Target {
    Target { life, number: 7 }
}

#[test]
fn a_range_falls_into_the_regions_that_it_touches() {
    let all = |first, end| parts(first, end).collect::<Vec<_>>();
    assert_eq!(all(0, 1), [(0, 0, 1)]);
    assert_eq!(
        all(REGION_BLOCKS - 1, REGION_BLOCKS + 1),
        [(0, 16_383, 16_384), (1, 0, 1)]
    );
    assert_eq!(all(3 * REGION_BLOCKS, 3 * REGION_BLOCKS), []);
}

#[test]
fn the_first_write_opens_the_region_and_later_ones_wait_for_the_same_commit() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    assert_eq!(applied.begin(&dirty, &file, 0, &[]).1, Sequence(1));
    assert_eq!(applied.begin(&dirty, &file, 0, &[]).1, Sequence(1));
    assert_eq!(applied.begin(&dirty, &file, 1, &[]).1, Sequence(2));
    assert_eq!(applied.0.len(), 2, "one row a region");
    assert_eq!(applied.newest(), open(&[]));
}

#[test]
fn a_region_is_cleaned_after_quiet_rounds_and_not_while_somebody_writes() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let (writer, _) = applied.begin(&dirty, &file, 0, &[]);
    for _ in 0..5 {
        assert!(round(&dirty).0.is_empty(), "a writer is at work");
    }
    dirty.end_write(file.id, &writer);
    assert_eq!(rounds_until_an_edit(&dirty).0, 3);
    assert_eq!(dirty.count(), 0);
    let (_, sequence) = applied.begin(&dirty, &file, 0, &[]);
    assert_eq!(sequence, Sequence(2), "recorded anew");
}

#[test]
fn what_a_disk_missed_is_an_open_row_at_once_and_an_exact_one_when_it_is_quiet() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    applied.begin(&dirty, &file, 0, &[]);
    let (_, sequence) = applied.begin(&dirty, &file, 0, &[AWAY]);
    assert_eq!(sequence, Sequence(2));
    assert_eq!(applied.begin(&dirty, &file, 0, &[AWAY]).1, Sequence(2));
    assert_eq!(applied.newest(), open(&[AWAY]));
    assert!(dirty.is_stale(&file, AWAY, 6, 7));
    assert!(!dirty.is_stale(&file, AWAY, 7, 900));
    assert!(!dirty.is_stale(&file, DiskNumber(1), 0, 900));
    let writer = Writer {
        joined: [(0, 0)].into_iter().collect(),
        number: 1,
    };
    for _ in 0..3 {
        dirty.end_write(file.id, &writer);
    }
    let (_, edit) = rounds_until_an_edit(&dirty);
    let exact = DirtyRecord {
        open: false,
        stale: vec![StaleDisk {
            disk: AWAY,
            runs: vec![run(5, 2)],
        }],
    };
    assert_eq!(record(&edit), exact);
    let (edit, more) = round(&dirty);
    assert!(edit.is_empty() && !more, "only a resync may clean it");
    // Writing on opens it again, durably, before any data goes out.
    let (_, sequence) = applied.begin(&dirty, &file, 0, &[]);
    assert_eq!(sequence, Sequence(3));
    assert_eq!(applied.newest(), open(&[AWAY]));
}

#[test]
fn a_disk_that_has_caught_up_leaves_the_row_and_the_last_one_takes_it_away() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let record = DirtyRecord {
        open: false,
        stale: vec![
            StaleDisk {
                disk: AWAY,
                runs: vec![run(0, 10), run(20, 1)],
            },
            StaleDisk {
                disk: DiskNumber(9),
                runs: vec![run(3, 1)],
            },
        ],
    };
    dirty.load(file.id, 2, &record, &|_| true);
    assert!(dirty.doubtful().is_empty(), "its copies agree");
    file.may_be_stale
        .store(true, spindle_sync::atomic::Ordering::Relaxed);
    let start = 2 * REGION_BLOCKS;
    let mut applied = Applied::default();
    dirty.caught_up(&file, (start, start + 15), &[target(LIFE)], &[]);
    let found = dirty.stale_regions(&|disk| disk == AWAY);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].blocks, 1);
    assert_eq!(
        dirty.stale_run(&found[0], start),
        Some((start + 20, start + 21))
    );
    assert_eq!(dirty.stale_run(&found[0], start + 21), None);
    let gone = Life {
        incarnation: LIFE.incarnation.next(),
        ..LIFE
    };
    dirty.went_offline(
        gone,
        &lately(&dirty, &[]),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    for lost in [LIFE, gone] {
        dirty.caught_up(&file, (start, start + 100), &[target(lost)], &[]);
        assert!(
            dirty.is_stale(&file, AWAY, start, start + 100),
            "it went offline since that was written, or was away"
        );
    }
    let back = Life {
        incarnation: gone.incarnation.next(),
        ..LIFE
    };
    dirty.caught_up(&file, (start, start + 100), &[target(back)], &[]);
    let (_, edit) = rounds_until_an_edit(&dirty);
    assert_eq!(self::record(&edit).stale.len(), 1);
    dirty.forget_disk(DiskNumber(9));
    let (_, edit) = rounds_until_an_edit(&dirty);
    assert_eq!(self::record(&edit), open(&[]), "the outage opened it");
    let (_, edit) = rounds_until_an_edit(&dirty);
    assert!(edit.changes[0].2.is_none(), "the row goes");
    assert_eq!(dirty.count(), 0);
}

#[test]
fn a_disk_that_goes_offline_missed_what_was_not_flushed_and_what_is_under_way() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    // Flushed by the two rounds that follow.
    let (writer, _) = applied.begin(&dirty, &file, 0, &[]);
    dirty.end_write(file.id, &writer);
    // Not at its end when the rounds come.
    applied.begin(&dirty, &file, 1, &[]);
    round(&dirty);
    round(&dirty);
    // Between the last two rounds: the flush may have come before.
    let (writer, _) = applied.begin(&dirty, &file, 2, &[]);
    dirty.end_write(file.id, &writer);
    round(&dirty);
    let told = std::cell::RefCell::new(Vec::new());
    let tell = |file: FileId| told.borrow_mut().push(file);
    let gone = Life {
        incarnation: LIFE.incarnation.next(),
        ..LIFE
    };
    dirty.went_offline(
        gone,
        &lately(&dirty, &[]),
        &|_| false,
        &tell,
        &mut applied.apply(),
    );
    let noted_count = told.borrow().len();
    dirty.went_offline(
        gone,
        &lately(&dirty, &[]),
        &|_| false,
        &tell,
        &mut applied.apply(),
    );
    assert_eq!(told.borrow().len(), noted_count, "noted once");
    let regions: Vec<(u32, u32)> = (dirty.stale_regions(&|_| true).iter())
        .map(|stale| (stale.region, stale.blocks))
        .collect();
    assert_eq!(regions, [(1, 2), (2, 2)]);
    assert_eq!(told.take(), [file.id, file.id]);
}

#[test]
fn of_two_disks_that_are_found_to_lack_the_same_blocks_at_once_one_keeps_them() {
    let dirty = DirtyRegions::default();
    let file = file();
    let disks = [DiskNumber(0), DiskNumber(1)];
    let extent = Extent::new(&disks.map(|disk| ExtentCopy::new(disk, 256, 8)), 256);
    let give_up = |own: usize| {
        let lacking = |stale: u8| -> SmallVec<[DiskNumber; 2]> {
            // So that the other one decides meanwhile, where it can.
            thread::sleep(Duration::from_millis(50));
            match stale >> (1 - own) & 1 {
                0 => smallvec![disks[own]],
                _ => SmallVec::new(),
            }
        };
        let until = dirty.missed_where(&file, &extent, (0, 256), &lacking, &mut |_| Sequence(1));
        assert_eq!(until, 256);
    };
    thread::scope(|scope| {
        scope.spawn(|| give_up(0));
        give_up(1);
    });
    let stale = disks.map(|disk| dirty.is_stale(&file, disk, 0, 256));
    assert_eq!(stale.iter().filter(|stale| **stale).count(), 1, "{stale:?}");
}

#[test]
fn regions_found_at_opening_are_doubtful_until_settled_and_stale_ones_stay() {
    let (dirty, file) = (DirtyRegions::default(), file());
    dirty.load(file.id, 0, &open(&[]), &|_| true);
    dirty.load(file.id, 4, &open(&[AWAY]), &|_| true);
    let doubtful = |region, stale_disks| DoubtfulRegion {
        file: file.id,
        region,
        stale_disks,
    };
    assert_eq!(
        dirty.doubtful(),
        [doubtful(0, Vec::new()), doubtful(4, vec![AWAY])]
    );
    let mut edit = Edit::default();
    dirty.settle(&mut edit);
    assert_eq!(
        edit.changes.len(),
        1,
        "only the row without a stale disk goes"
    );
    assert!(dirty.doubtful().is_empty());
    let (_, edit) = rounds_until_an_edit(&dirty);
    assert_eq!(record(&edit).stale[0].runs, [run(0, 16_384)]);
    assert_eq!(dirty.count(), 1);
}

#[test]
fn a_row_of_a_disk_that_left_meanwhile_goes_with_a_round_or_with_its_file() {
    let closed = |disks: &[DiskNumber]| DirtyRecord {
        open: false,
        stale: (disks.iter())
            .map(|disk| StaleDisk {
                disk: *disk,
                runs: vec![run(5, 2)],
            })
            .collect(),
    };
    let left = DiskNumber(2);
    let load = || {
        let dirty = DirtyRegions::default();
        dirty.load(FileId(7), 0, &closed(&[left]), &|disk| disk != left);
        dirty.load(FileId(8), 0, &closed(&[left, AWAY]), &|disk| disk != left);
        dirty
    };
    let dirty = load();
    let (_, edit) = rounds_until_an_edit(&dirty);
    let [(_, _, gone), (_, _, rest)] = &edit.changes[..] else {
        panic!("{edit:?}");
    };
    assert!(gone.is_none(), "nobody else missed anything");
    let rest = DirtyRecord::parse(rest.as_ref().unwrap()).unwrap();
    assert_eq!(rest, closed(&[AWAY]));
    assert_eq!(dirty.count(), 1);

    let mut edit = Edit::default();
    load().forget_file(FileId(7), &mut edit);
    assert_eq!(edit.changes.len(), 1);
    assert!(edit.changes[0].2.is_none());
}

#[test]
fn a_removed_file_takes_its_rows_with_it_and_leaves_its_neighbours() {
    let dirty = DirtyRegions::default();
    dirty.load(FileId(7), 0, &open(&[]), &|_| true);
    dirty.load(FileId(7), 9, &open(&[]), &|_| true);
    dirty.load(FileId(8), 0, &open(&[]), &|_| true);
    let mut edit = Edit::default();
    dirty.forget_file(FileId(7), &mut edit);
    assert_eq!(edit.changes.len(), 2);
    assert_eq!(dirty.count(), 1);
}

#[test]
fn a_resync_does_not_end_while_a_disk_is_on_its_way_back() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY]);
    dirty.end_write(file.id, &writer);
    let returning = dirty.begin_resync();
    // Not online yet: somebody looks, and finds nothing that could be copied.
    assert!(!dirty.end_resync(&|_| false, &|| panic!("it is stale")));
    assert!(dirty.view(&file).is_some(), "readers go on looking");
    drop(returning);
    assert!(!dirty.end_resync(&|_| true, &|| panic!("it is stale")));
    dirty.caught_up(&file, (0, REGION_BLOCKS), &[target(LIFE)], &[]);
    assert!(dirty.end_resync(&|_| true, &|| {}));
    assert!(!dirty.is_resyncing());
}

#[test]
fn a_disk_that_has_caught_up_is_not_named_any_more_once_another_goes_offline() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let other = DiskNumber(9);
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY, other]);
    dirty.end_write(file.id, &writer);
    assert_eq!(applied.newest(), open(&[AWAY, other]));
    let theirs = Life {
        disk: other,
        ..LIFE
    };
    dirty.caught_up(
        &file,
        (0, REGION_BLOCKS),
        &[target(LIFE), target(theirs)],
        &[],
    );
    let gone = Life {
        incarnation: LIFE.incarnation.next(),
        ..LIFE
    };
    dirty.went_offline(
        gone,
        &lately(&dirty, &[]),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    assert_eq!(applied.newest(), open(&[AWAY]));
}

#[test]
fn what_was_copied_to_a_disk_is_in_doubt_there_alone_until_a_flush_has_covered_it() {
    let target = Target {
        life: LIFE,
        number: 7,
    };
    for (has_ended, is_flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (dirty, file) = (DirtyRegions::default(), file());
        let has_flushed = |other: Target| {
            assert_eq!(other, target);
            is_flushed
        };
        let writer = dirty.begin_copy(&file, &[(10, 20), (30, 40)], LIFE.disk, &has_flushed);
        if has_ended {
            dirty.end_copy(file.id, &writer, target);
        }
        let is_in_doubt = !(has_ended && is_flushed);
        let copied = dirty.copied_lately(LIFE.disk, &has_flushed);
        let wanted = [(file.id, (10, 20)), (file.id, (30, 40))];
        assert_eq!(copied, wanted[..if is_in_doubt { 2 } else { 0 }]);
        assert!(dirty.written_lately().is_empty());
        let source = Life {
            disk: DiskNumber(5),
            ..LIFE
        };
        for life in [source, LIFE] {
            let gone = Life {
                incarnation: life.incarnation.next(),
                ..life
            };
            let is_stale = |_| file.may_be_stale.store(true, Ordering::Release);
            dirty.went_offline(
                gone,
                &lately(&dirty, &[]),
                &has_flushed,
                &is_stale,
                &mut Applied::default().apply(),
            );
        }
        assert!(!dirty.is_stale(&file, source.disk, 0, 100));
        assert_eq!(dirty.is_stale(&file, LIFE.disk, 15, 35), is_in_doubt);
        assert!(!dirty.is_stale(&file, LIFE.disk, 20, 30));
        // Two rounds flush every disk.
        if has_ended {
            round(&dirty);
            round(&dirty);
            assert!(dirty.copied_lately(LIFE.disk, &|_| false).is_empty());
        }
    }
}

#[test]
fn a_disk_that_goes_keeps_what_is_stale_elsewhere_and_what_is_copied_from_it_then_proves_nothing() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    // Written while the disk was away, to the other one, which no flush has covered there.
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY]);
    dirty.end_write(file.id, &writer);
    let source = Life {
        disk: DiskNumber(9),
        ..LIFE
    };
    let gone = Life {
        incarnation: source.incarnation.next(),
        ..source
    };
    let held = |block: u64, others: &[DiskNumber]| WrittenLately {
        file: file.id,
        blocks: (block, block + 1),
        others: others.iter().copied().collect(),
    };
    let third = DiskNumber(11);
    let held = [held(5, &[AWAY]), held(6, &[AWAY, third])];
    dirty.went_offline(
        gone,
        &lately(&dirty, &held),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    assert!(!dirty.is_stale(&file, gone.disk, 5, 6), "only there");
    assert!(
        dirty.is_stale(&file, gone.disk, 6, 7),
        "a third disk has it"
    );
    dirty.caught_up(&file, (5, 6), &[target(LIFE)], &[source]);
    assert!(dirty.is_stale(&file, AWAY, 5, 6), "the source has gone");
    dirty.caught_up(&file, (5, 6), &[target(LIFE)], &[gone]);
    assert!(!dirty.is_stale(&file, AWAY, 5, 6));
}

#[test]
fn a_disk_that_goes_keeps_nothing_that_it_has_from_after_the_last_flush_alone() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let other = Life {
        disk: DiskNumber(9),
        ..LIFE
    };
    let next = |life: Life| Life {
        incarnation: life.incarnation.next(),
        ..life
    };
    let held = |others: &[DiskNumber]| {
        [WrittenLately {
            file: file.id,
            blocks: (0, REGION_BLOCKS),
            others: others.iter().copied().collect(),
        }]
    };
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY]);
    dirty.end_write(file.id, &writer);
    // It is back, and gets some of that by a write, which no flush covers.
    dirty.caught_up(&file, (5, 6), &[target(LIFE)], &[]);
    dirty.went_offline(
        next(other),
        &lately(&dirty, &held(&[AWAY])),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    assert!(
        dirty.is_stale(&file, other.disk, 5, 6),
        "the other one has it"
    );
    dirty.went_offline(
        next(LIFE),
        &lately(&dirty, &held(&[other.disk])),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    assert!(
        dirty.is_stale(&file, AWAY, 5, 6),
        "it has older bytes there"
    );
    // Once flushes have covered it, it has it for good.
    let back = |life: Life| next(next(life));
    dirty.caught_up(&file, (5, 7), &[target(back(LIFE))], &[]);
    let (writer, _) = applied.begin(&dirty, &file, 0, &[other.disk]);
    dirty.end_write(file.id, &writer);
    round(&dirty);
    round(&dirty);
    let (writer, _) = applied.begin(&dirty, &file, 0, &[]);
    dirty.end_write(file.id, &writer);
    let gone = next(back(LIFE));
    dirty.went_offline(
        gone,
        &lately(&dirty, &held(&[other.disk])),
        &|_| false,
        &|_| {},
        &mut applied.apply(),
    );
    assert!(!dirty.is_stale(&file, AWAY, 5, 7), "nothing is staler");
}

#[test]
fn a_disk_that_goes_keeps_what_a_flush_has_covered_and_nothing_that_it_has_only_got() {
    let other = Life {
        disk: DiskNumber(9),
        ..LIFE
    };
    let next = |life: Life| Life {
        incarnation: life.incarnation.next(),
        ..life
    };
    // Got by a write or a copy where it was stale, or by a move, which no other copy has any more.
    for (is_moved, is_flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (dirty, file) = (DirtyRegions::default(), file());
        let mut applied = Applied::default();
        let has_flushed = |_| is_flushed;
        let before = if is_moved { &[][..] } else { &[LIFE.disk] };
        let (writer, _) = applied.begin(&dirty, &file, 0, before);
        dirty.end_write(file.id, &writer);
        if is_moved {
            let writer = dirty.begin_copy(&file, &[(0, 10)], LIFE.disk, &has_flushed);
            dirty.end_copy(file.id, &writer, target(LIFE));
        } else {
            dirty.caught_up(&file, (0, 10), &[target(LIFE)], &[]);
        }
        let mut go = |life: Life, others: DiskNumber| {
            let held = WrittenLately {
                file: file.id,
                blocks: (0, 10),
                others: [others].into_iter().collect(),
            };
            let is_stale = |_| file.may_be_stale.store(true, Ordering::Release);
            dirty.went_offline(
                next(life),
                &lately(&dirty, &[held]),
                &has_flushed,
                &is_stale,
                &mut applied.apply(),
            );
        };
        go(other, LIFE.disk);
        go(LIFE, other.disk);
        assert!(dirty.is_stale(&file, other.disk, 5, 6));
        assert_eq!(
            dirty.is_stale(&file, LIFE.disk, 5, 6),
            !is_flushed,
            "moved: {is_moved}"
        );
    }
}

#[test]
fn a_write_that_is_announced_when_its_disk_has_gone_makes_nothing_stale_there() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let found = lately(&dirty, &[]);
    // It is refused: no disk that serves has a copy.
    let (writer, _) = applied.begin(&dirty, &file, 0, &[]);
    dirty.end_write(file.id, &writer);
    let gone = Life {
        incarnation: LIFE.incarnation.next(),
        ..LIFE
    };
    let is_stale = |_| file.may_be_stale.store(true, Ordering::Release);
    dirty.went_offline(gone, &found, &|_| false, &is_stale, &mut applied.apply());
    assert!(!dirty.is_stale(&file, LIFE.disk, 0, 10));
}

#[test]
fn what_a_flush_has_covered_is_kept_though_an_earlier_outage_took_what_was_got_before() {
    let other = Life {
        disk: DiskNumber(9),
        ..LIFE
    };
    let next = |life: Life| Life {
        incarnation: life.incarnation.next(),
        ..life
    };
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let again = next(next(LIFE));
    // A flush counts for the writes of its own life alone.
    let has_flushed = |target: Target| target.life == again;
    let (writer, _) = applied.begin(&dirty, &file, 0, &[LIFE.disk]);
    dirty.end_write(file.id, &writer);
    let mut go = |life: Life, others: DiskNumber| {
        let held = WrittenLately {
            file: file.id,
            blocks: (0, 10),
            others: [others].into_iter().collect(),
        };
        let is_stale = |_| file.may_be_stale.store(true, Ordering::Release);
        dirty.went_offline(
            next(life),
            &lately(&dirty, &[held]),
            &has_flushed,
            &is_stale,
            &mut applied.apply(),
        );
    };
    dirty.caught_up(&file, (0, 10), &[target(LIFE)], &[]);
    // It blinks before a flush, and gets it again.
    go(LIFE, other.disk);
    assert!(dirty.is_stale(&file, LIFE.disk, 5, 6));
    dirty.caught_up(&file, (0, 10), &[target(again)], &[]);
    go(other, LIFE.disk);
    go(again, other.disk);
    assert!(dirty.is_stale(&file, other.disk, 5, 6));
    assert!(
        !dirty.is_stale(&file, LIFE.disk, 5, 6),
        "a flush has covered it"
    );
}
