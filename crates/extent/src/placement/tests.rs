use spindle_base::{AuSize, DiskNumber, FileId};

use super::{Candidate, Placement};
use crate::space::{Run, Space};

const CLASS: u8 = 8;

fn placement(disks: &[(u16, u64)]) -> (Placement, Space) {
    let candidates = (0..)
        .zip(disks)
        .map(|(number, (group_index, aus))| Candidate {
            number: DiskNumber(number),
            group_index: *group_index,
            weight_aus: *aus,
        })
        .collect();
    let sizes: Vec<(DiskNumber, u64)> = (0..)
        .map(DiskNumber)
        .zip(disks.iter().map(|(_, aus)| (aus + 1) << 20))
        .collect();
    (
        Placement::over(candidates),
        Space::new(AuSize::DEFAULT, &sizes),
    )
}

/// AUs of each disk after so many extents of one file.
fn spread(disks: &[(u16, u64)], copies: usize, extents: u32) -> Vec<u64> {
    let (placement, space) = placement(disks);
    let mut aus = vec![0; disks.len()];
    for index in 0..extents {
        let extent = placement
            .allocate(&space, FileId(77), index, copies, CLASS, &|_| 0)
            .unwrap();
        let mut groups: Vec<u16> = extent
            .present()
            .map(|copy| disks[usize::from(copy.disk().0)].0)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(
            groups.len(),
            copies,
            "copies lie in different failure groups"
        );
        for copy in extent.present() {
            aus[usize::from(copy.disk().0)] += 1;
        }
    }
    aus
}

fn assert_even(disks: &[(u16, u64)], copies: usize, extents: u32) {
    let aus = spread(disks, copies, extents);
    let total: u64 = disks.iter().map(|(_, aus)| aus).sum();
    for (used, (_, size)) in aus.iter().zip(disks) {
        let ideal = (u64::from(extents) * copies as u64 * size) as f64 / total as f64;
        let off = (*used as f64 - ideal).abs() / ideal;
        assert!(off < 0.01, "{used} of {ideal} AUs: {aus:?}");
    }
}

#[test]
fn a_big_file_fills_unequal_disks_in_proportion_to_their_sizes() {
    assert_even(&[(0, 10_000), (0, 17_000), (0, 5_300)], 1, 20_000);
    assert_even(
        &[(0, 10_000), (1, 17_000), (2, 12_300), (3, 4_000)],
        2,
        15_000,
    );
    assert_even(
        &[(0, 9_000), (0, 11_000), (1, 6_000), (1, 14_000)],
        2,
        15_000,
    );
}

#[test]
fn copies_of_high_redundancy_are_even_over_equal_disks() {
    assert_even(
        &[(0, 9000), (1, 9000), (2, 9000), (3, 9000), (4, 9000)],
        3,
        12_000,
    );
}

#[test]
fn neighbouring_extents_lie_on_different_disks() {
    let (placement, space) = placement(&[(0, 1000), (0, 1000), (1, 1000), (1, 1000)]);
    let mut last = None;
    for index in 0..64 {
        let extent = placement
            .allocate(&space, FileId(3), index, 1, CLASS, &|_| 0)
            .unwrap();
        let disk = extent.copies()[0].disk();
        assert_ne!(last, Some(disk));
        last = Some(disk);
    }
}

#[test]
fn unequal_failure_groups_are_filled_until_no_pair_of_aus_is_left() {
    for (disks, copies, best) in [
        (vec![(0, 10), (1, 10), (2, 4)], 2, 12),
        (vec![(0, 100), (1, 30), (2, 25), (2, 35)], 2, 90),
        (vec![(0, 50), (0, 50), (1, 40), (2, 40), (3, 10)], 2, 90),
        (vec![(0, 40), (1, 20), (2, 20), (3, 20)], 3, 30),
    ] {
        let (placement, space) = placement(&disks);
        let mut extents = 0;
        while placement
            .allocate(&space, FileId(1), extents, copies, CLASS, &|_| 0)
            .is_some()
        {
            extents += 1;
        }
        assert!(
            extents + 2 >= best && extents <= best,
            "{extents} of {best}: {disks:?}"
        );
    }
}

#[test]
fn with_one_failure_group_left_the_other_copies_are_entered_as_missing() {
    let (placement, space) = placement(&[(0, 10), (0, 10)]);
    let extent = placement
        .allocate(&space, FileId(1), 0, 2, CLASS, &|_| 0)
        .unwrap();
    assert!(extent.copies()[0].is_present() && extent.copies()[1].is_missing());
}

#[test]
fn a_small_extent_finds_room_in_shared_aus_where_no_disk_has_a_free_one() {
    let (placement, space) = placement(&[(0, 10), (1, 10), (2, 10)]);
    for disk in (0..3).map(DiskNumber) {
        let last = u64::from(disk.0 < 2);
        for _ in last..10 {
            space.allocate(disk, CLASS, 0).unwrap();
        }
        if disk.0 < 2 {
            space.allocate(disk, 0, 0).unwrap();
        }
    }
    let extent = placement.allocate(&space, FileId(1), 0, 2, 0, &|_| 0);
    let disks = extent.map(|extent| extent.present().map(|copy| copy.disk().0).sum());
    assert_eq!(disks, Some(1), "on disks 0 and 1");
}

#[test]
fn the_failure_group_with_the_most_room_is_done_without_where_nothing_there_fits() {
    let (placement, space) = placement(&[(0, 40), (1, 4), (2, 4)]);
    let first = DiskNumber(0);
    let aus: Vec<u64> = std::iter::from_fn(|| space.allocate(first, CLASS, 0)).collect();
    for start_block in aus.into_iter().step_by(2) {
        space.give_back(Run {
            disk: first,
            start_block,
            class: CLASS,
        });
    }
    let extent = placement.allocate(&space, FileId(1), 0, 2, CLASS + 2, &|_| 0);
    let disks = extent.map(|extent| extent.present().map(|copy| copy.disk().0).sum());
    assert_eq!(disks, Some(3), "on disks 1 and 2");
}

#[test]
fn no_disk_has_more_than_eight_partners_and_none_has_none() {
    let disks: Vec<(u16, u64)> = (0..40).map(|disk| (disk / 10, 100)).collect();
    let (placement, _) = placement(&disks);
    for rotation in &placement.others {
        assert!((1..=8).contains(&rotation.get().len_u64()));
    }
}
