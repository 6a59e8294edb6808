use spindle_base::{AuSize, DiskNumber, Striping};
use spindle_format::{ExtentCopy, ExtentRow};

use super::{Extent, Map};
use crate::schedule::Schedule;

fn schedule() -> Schedule {
    Schedule::new(Striping::Coarse, AuSize::DEFAULT)
}

fn extent(index: u32, mark_blocks: u32) -> Extent {
    let class = schedule().class(index);
    let start = u64::from(index + 1) * 256;
    Extent::new(
        &[
            ExtentCopy::new(DiskNumber(0), start, class),
            ExtentCopy::new(DiskNumber(1), start, class),
        ],
        mark_blocks,
    )
}

#[test]
fn dirty_rows_written_and_loaded_give_the_same_map() {
    let mut map = Map::new(schedule(), 2);
    for index in (0..300).filter(|index| index % 3 != 1) {
        map.insert(index, &extent(index, index % 2));
    }
    let mut loaded = Map::new(schedule(), 2);
    let rows = map.take_dirty_rows();
    assert_eq!(rows.len(), 3);
    assert!(!map.is_dirty());
    for (number, bytes) in &rows {
        let bytes = bytes.as_ref().unwrap();
        loaded
            .load_row(*number, &ExtentRow::parse(bytes).unwrap(), |_, _| Ok(()))
            .unwrap();
    }
    for index in 0..400 {
        assert_eq!(map.extent(index), loaded.extent(index), "extent {index}");
    }
    assert_eq!(map.allocated_blocks(), loaded.allocated_blocks());
    assert_eq!(map.extents_count(), loaded.extents_count());
}

#[test]
fn a_row_without_extents_is_removed_from_the_catalog_and_only_if_it_was_there() {
    let mut map = Map::new(schedule(), 2);
    map.insert(5, &extent(5, 0));
    map.remove(5);
    assert_eq!(map.take_dirty_rows(), []);
    map.insert(5, &extent(5, 0));
    map.take_dirty_rows();
    map.remove(5);
    assert_eq!(map.take_dirty_rows(), [(0, None)]);
    assert_eq!(map.allocated_blocks(), 0);
}

#[test]
fn a_sparse_map_takes_memory_for_what_it_holds_only() {
    let mut map = Map::new(schedule(), 2);
    map.insert(10_000_000, &extent(10_000_000, 0));
    assert!(map.memory_bytes() < 8 << 20);
    let mut seen = Vec::new();
    map.for_each(0, u32::MAX, |index, _| seen.push(index));
    assert_eq!(seen, [10_000_000]);
}

#[test]
fn a_row_of_another_layout_is_refused() {
    let mut map = Map::new(schedule(), 2);
    map.insert(5, &extent(5, 0));
    let bytes = map.encode_row(0).unwrap();
    let row = ExtentRow::parse(&bytes).unwrap();
    assert!(
        Map::new(schedule(), 3)
            .load_row(0, &row, |_, _| Ok(()))
            .is_err()
    );
    assert!(
        Map::new(schedule(), 2)
            .load_row(1, &row, |_, _| Ok(()))
            .is_err()
    );
}
