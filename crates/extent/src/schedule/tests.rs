use proptest::prelude::*;
use spindle_base::{AuSize, Striping};

use super::{EXTENT_OF_4_AUS_FIRST, EXTENT_OF_16_AUS_FIRST, Schedule};

fn schedules() -> impl Strategy<Value = Schedule> {
    (
        prop_oneof![Just(Striping::Coarse), Just(Striping::Fine)],
        20_u8..=26,
    )
        .prop_map(|(striping, log2)| {
            Schedule::new(striping, AuSize::from_bytes(1 << log2).unwrap())
        })
}

proptest! {
    #[test]
    fn a_file_block_goes_to_an_extent_and_back(schedule in schedules(), block in 0_u64..(1 << 34)) {
        let place = schedule.locate(block).unwrap();
        prop_assert!(place.inside_blocks < schedule.length_blocks(place.index));
        prop_assert_eq!(schedule.file_block(place.index, place.inside_blocks), block);
        let (first, end) = schedule.envelope(place.index);
        prop_assert!(first <= block && block < end);
        let (low, high) = schedule.extents(block, block + 1).unwrap();
        prop_assert!(low <= place.index && place.index < high);
    }

    #[test]
    fn a_block_of_an_extent_goes_to_the_file_and_back(
        schedule in schedules(),
        index in 0_u32..60_000,
        inside in any::<u64>(),
    ) {
        let inside = inside % schedule.length_blocks(index);
        let place = schedule.locate(schedule.file_block(index, inside)).unwrap();
        prop_assert_eq!((place.index, place.inside_blocks), (index, inside));
    }

    #[test]
    fn what_is_called_contiguous_is(schedule in schedules(), block in 0_u64..(1 << 34)) {
        let place = schedule.locate(block).unwrap();
        let last = place.contiguous_blocks - 1;
        let other = schedule.locate(block + last).unwrap();
        prop_assert_eq!(other.index, place.index);
        prop_assert_eq!(other.inside_blocks, place.inside_blocks + last);
    }
}

#[test]
fn the_head_has_runs_of_4_4_8_16_kib_up_to_half_an_au_and_fills_one_au() {
    let schedule = Schedule::new(Striping::Coarse, AuSize::DEFAULT);
    let lengths: Vec<u64> = (0..10).map(|i| schedule.length_blocks(i)).collect();
    assert_eq!(lengths, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
    assert_eq!(schedule.first_block(9), 256);
}

#[test]
fn coarse_extents_cover_the_file_without_gap_or_overlap_and_grow_at_the_two_thresholds() {
    let schedule = Schedule::new(Striping::Coarse, AuSize::DEFAULT);
    let mut next = 0;
    for index in 0..EXTENT_OF_16_AUS_FIRST + 100 {
        assert_eq!(schedule.first_block(index), next, "extent {index}");
        next += schedule.length_blocks(index);
    }
    assert_eq!(schedule.length_blocks(EXTENT_OF_4_AUS_FIRST - 1), 256);
    assert_eq!(schedule.length_blocks(EXTENT_OF_4_AUS_FIRST), 4 * 256);
    assert_eq!(schedule.length_blocks(EXTENT_OF_16_AUS_FIRST - 1), 4 * 256);
    assert_eq!(schedule.length_blocks(EXTENT_OF_16_AUS_FIRST), 16 * 256);
}

#[test]
fn fine_chunks_of_128_kib_take_turns_over_eight_extents() {
    let schedule = Schedule::new(Striping::Fine, AuSize::DEFAULT);
    let indices: Vec<u32> = (0..17)
        .map(|chunk| schedule.locate(256 + chunk * 32).unwrap().index)
        .collect();
    assert_eq!(
        indices,
        [
            9, 10, 11, 12, 13, 14, 15, 16, 9, 10, 11, 12, 13, 14, 15, 16, 9
        ]
    );
    assert_eq!(schedule.locate(256 + 8 * 256).unwrap().index, 17);
}
