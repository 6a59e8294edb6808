use spindle_base::{AuSize, DiskNumber, Sequence, Striping};
use spindle_format::{ExtentCopy, ExtentRow};

use super::{Books, Extent, Map, RowChange};
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

/// What a seal that takes everything gives to the edit of this number.
fn seal(map: &mut Map, number: u64) -> Vec<RowChange> {
    let mut sealed = Vec::new();
    map.seal(Sequence(0), usize::MAX, |rows| {
        sealed = rows;
        Sequence(number)
    });
    sealed
}

#[test]
fn a_map_is_open_until_its_last_row_has_the_number_of_an_edit() {
    let mut map = Map::new(schedule(), 2);
    assert_eq!(map.books(), Books::Sealed(Sequence(0)));
    for index in [5, 200, 300] {
        map.insert(index, &extent(index, 1));
    }
    assert_eq!(map.books(), Books::Open);
    map.seal(Sequence(0), 2, |rows| {
        assert_eq!(rows.len(), 2);
        Sequence(7)
    });
    assert_eq!(map.books(), Books::Open, "row 2 has no number yet");
    let (sealed, dirty) = (map.extent(200).unwrap(), map.extent(300).unwrap());
    assert_eq!(map.sealed_mark(200, &sealed), 1);
    assert_eq!(
        map.sealed_mark(300, &dirty),
        0,
        "a crash finds no mark here"
    );
    assert_eq!(seal(&mut map, 8).len(), 1);
    assert_eq!(map.books(), Books::Sealed(Sequence(8)));
    assert_eq!(seal(&mut map, 9), []);
    assert_eq!(map.books(), Books::Sealed(Sequence(8)), "nothing was in 9");
}

#[test]
fn a_row_whose_removal_no_commit_may_have_is_still_known() {
    let mut map = Map::new(schedule(), 2);
    map.insert(5, &extent(5, 1));
    map.insert(200, &extent(200, 1));
    assert_eq!(map.rows_ever_stored().count(), 0);
    seal(&mut map, 7);
    map.remove(5);
    assert_eq!(seal(&mut map, 8), [(0, None)]);
    assert_eq!(map.stored_rows().collect::<Vec<_>>(), [1]);
    assert_eq!(map.rows_ever_stored().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn dirty_rows_written_and_loaded_give_the_same_map() {
    let mut map = Map::new(schedule(), 2);
    for index in (0..300).filter(|index| index % 3 != 1) {
        map.insert(index, &extent(index, index % 2));
    }
    let mut loaded = Map::new(schedule(), 2);
    let rows = seal(&mut map, 1);
    assert_eq!(rows.len(), 3);
    assert_eq!(map.books(), Books::Sealed(Sequence(1)));
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
    assert_eq!(seal(&mut map, 1), []);
    map.insert(5, &extent(5, 0));
    seal(&mut map, 2);
    map.remove(5);
    assert_eq!(seal(&mut map, 3), [(0, None)]);
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
fn an_extent_that_is_filled_whole_takes_eight_bytes_a_copy() {
    let mut map = Map::new(schedule(), 2);
    let extents = 10_000_u32;
    let whole = |index| u32::try_from(schedule().length_blocks(index)).unwrap();
    for index in 0..extents {
        map.insert(index, &extent(index, 0));
    }
    assert!(map.memory_bytes() < 21 * extents as usize);
    for index in 0..extents {
        map.set_mark(index, whole(index));
    }
    let rows = seal(&mut map, 1);
    assert!(map.memory_bytes() < 17 * extents as usize);
    let mut loaded = Map::new(schedule(), 2);
    for (number, bytes) in &rows {
        let bytes = bytes.as_ref().unwrap();
        let row = ExtentRow::parse(bytes).unwrap();
        loaded.load_row(*number, &row, |_, _| Ok(())).unwrap();
    }
    assert!(loaded.memory_bytes() < 17 * extents as usize);
    map.set_mark(77, 1);
    assert_eq!(map.extent(77).unwrap().mark_blocks, 1);
    assert_eq!(map.extent(78).unwrap().mark_blocks, whole(78));
}

#[test]
fn marks_are_what_was_put_whatever_was_sealed_loaded_or_widened_between() {
    use std::collections::BTreeMap;
    let mut state = 7_u64;
    let mut draw = |below: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from((state >> 33) % u64::from(below)).unwrap()
    };
    for round in 0..200_u64 {
        let mut map = Map::new(schedule(), 2);
        map.let_rows_vary();
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        let mut stored: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for step in 0..120 {
            let index = draw(300);
            let whole = u32::try_from(schedule().length_blocks(index)).unwrap();
            let mark = [0, 1, whole / 2, whole, whole, whole][draw(6) as usize];
            match draw(12) {
                0..=5 if !model.contains_key(&index) => {
                    map.put_back(index, &extent(index, mark));
                    model.insert(index, mark);
                }
                0..=7 if model.contains_key(&index) => {
                    map.set_mark(index, mark);
                    model.insert(index, mark);
                }
                8 => {
                    map.remove(index);
                    model.remove(&index);
                }
                9 => map.set_wanted(2 + draw(2) as usize),
                _ => {
                    for (number, bytes) in seal(&mut map, step + 1) {
                        match bytes {
                            Some(bytes) => stored.insert(number, bytes),
                            None => stored.remove(&number),
                        };
                    }
                }
            }
            if draw(30) == 0 {
                for (number, bytes) in seal(&mut map, step + 1) {
                    match bytes {
                        Some(bytes) => stored.insert(number, bytes),
                        None => stored.remove(&number),
                    };
                }
                let copies = map.copies();
                map = Map::new(schedule(), copies);
                map.let_rows_vary();
                for (number, bytes) in &stored {
                    let row = ExtentRow::parse(bytes).unwrap();
                    map.load_row(*number, &row, |_, _| Ok(())).unwrap();
                }
            }
            let mut found = BTreeMap::new();
            map.for_each(0, u32::MAX, |index, extent| {
                found.insert(index, extent.mark_blocks);
            });
            assert_eq!(found, model, "round {round}, step {step}");
        }
    }
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
