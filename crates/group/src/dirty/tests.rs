use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence};
use spindle_format::DirtyRecord;

use super::{DirtyRegions, DoubtfulRegion, REGION_BLOCKS, regions};

const FILE: FileId = FileId(7);

/// Collects the edits that a group would give to its catalog, numbered from 1.
#[derive(Default)]
struct Applied(Vec<Edit>);

impl Applied {
    fn begin(&mut self, dirty: &DirtyRegions, region: u32, missed: &[DiskNumber]) -> Sequence {
        dirty.begin_write(FILE, region..=region, true, missed, &mut |edit| {
            self.0.push(edit);
            Sequence(self.0.len() as u64)
        })
    }
}

fn rounds_until_clean(dirty: &DirtyRegions) -> usize {
    for round in 1..10 {
        let mut edit = Edit::default();
        dirty.round(&mut edit);
        if !edit.is_empty() {
            return round;
        }
    }
    panic!("never cleaned");
}

#[test]
fn a_range_touches_the_regions_of_its_first_and_last_block() {
    assert_eq!(regions(0, 1), 0..=0);
    assert_eq!(regions(REGION_BLOCKS - 1, REGION_BLOCKS), 0..=0);
    assert_eq!(regions(REGION_BLOCKS - 1, REGION_BLOCKS + 1), 0..=1);
    assert_eq!(regions(3 * REGION_BLOCKS, 3 * REGION_BLOCKS), 3..=3);
}

#[test]
fn the_first_write_records_the_region_and_later_ones_wait_for_the_same_commit() {
    let dirty = DirtyRegions::default();
    let mut applied = Applied::default();
    assert_eq!(applied.begin(&dirty, 0, &[]), Sequence(1));
    assert_eq!(applied.begin(&dirty, 0, &[]), Sequence(1));
    assert_eq!(applied.begin(&dirty, 1, &[]), Sequence(2));
    assert_eq!(applied.0.len(), 2, "one row a region");
}

#[test]
fn a_region_is_cleaned_after_quiet_rounds_and_not_while_somebody_writes() {
    let dirty = DirtyRegions::default();
    let mut applied = Applied::default();
    applied.begin(&dirty, 0, &[]);
    for _ in 0..5 {
        let mut edit = Edit::default();
        dirty.round(&mut edit);
        assert!(edit.is_empty(), "a writer is at work");
    }
    dirty.end_write(FILE, 0..=0);
    assert_eq!(rounds_until_clean(&dirty), 3);
    assert_eq!(dirty.count(), 0);
    assert_eq!(applied.begin(&dirty, 0, &[]), Sequence(2), "recorded anew");
}

#[test]
fn a_disk_that_misses_a_write_is_named_once_and_keeps_the_row() {
    let dirty = DirtyRegions::default();
    let mut applied = Applied::default();
    applied.begin(&dirty, 0, &[]);
    let missed = [DiskNumber(3)];
    assert_eq!(applied.begin(&dirty, 0, &missed), Sequence(2));
    assert_eq!(applied.begin(&dirty, 0, &missed), Sequence(2));
    for _ in 0..3 {
        dirty.end_write(FILE, 0..=0);
    }
    for _ in 0..5 {
        let mut edit = Edit::default();
        assert!(!dirty.round(&mut edit));
        assert!(edit.is_empty(), "only a resync may clean it");
    }
    let row = applied.0[1].changes[0].2.clone().unwrap();
    assert_eq!(DirtyRecord::parse(&row).unwrap().stale_disks, missed);
}

#[test]
fn regions_found_at_opening_are_doubtful_until_settled_and_stale_ones_stay() {
    let dirty = DirtyRegions::default();
    dirty.load(FILE, 0, DirtyRecord::default());
    let stale_disks = vec![DiskNumber(1)];
    dirty.load(
        FILE,
        4,
        DirtyRecord {
            stale_disks: stale_disks.clone(),
        },
    );
    assert_eq!(
        dirty.doubtful(),
        [
            DoubtfulRegion {
                file: FILE,
                region: 0,
                stale_disks: Vec::new()
            },
            DoubtfulRegion {
                file: FILE,
                region: 4,
                stale_disks
            },
        ]
    );
    let mut edit = Edit::default();
    dirty.settle(&mut edit);
    assert_eq!(
        edit.changes.len(),
        1,
        "only the row without a stale disk goes"
    );
    assert!(dirty.doubtful().is_empty());
    assert_eq!(dirty.count(), 1);
}

#[test]
fn a_removed_file_takes_its_rows_with_it_and_leaves_its_neighbours() {
    let dirty = DirtyRegions::default();
    dirty.load(FILE, 0, DirtyRecord::default());
    dirty.load(FILE, 9, DirtyRecord::default());
    dirty.load(FileId(8), 0, DirtyRecord::default());
    let mut edit = Edit::default();
    dirty.forget_file(FILE, &mut edit);
    assert_eq!(edit.changes.len(), 2);
    assert_eq!(dirty.count(), 1);
}
