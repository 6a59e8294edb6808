//! The judge against distributions that are known: it lets pass what had to be moved, twice where
//! failure groups leave no other way, and nothing beyond.

use std::collections::BTreeMap;

use spindle_base::{DiskNumber, FileId};
use spindle_group::ExtentView;

use super::{Held, judge, least, moved_bytes};

const MIB: u64 = 1 << 20;

/// One file of extents of a MiB, each on the disks that are named; `groups` has the failure group of
/// each disk.
fn held(groups: &[u8], extents: &[Vec<u16>]) -> Held {
    let view = |(index, disks): (u32, &Vec<u16>)| ExtentView {
        index,
        offset_bytes: u64::from(index) * MIB,
        length_bytes: MIB,
        initialised_bytes: MIB,
        copies: (disks.iter())
            .map(|disk| Some((DiskNumber(*disk), u64::from(index) * MIB)))
            .collect(),
    };
    let extents: Vec<ExtentView> = (0..).zip(extents).map(view).collect();
    let numbers = (0..).map(DiskNumber);
    Held {
        maps: BTreeMap::from([(FileId(1), extents)]),
        ends: BTreeMap::new(),
        groups: (numbers.zip(groups))
            .map(|(number, group)| (number, group.to_string()))
            .collect(),
    }
}

/// So many extents on each pair of disks.
fn pairs(counts: &[(u16, u16, usize)]) -> Vec<Vec<u16>> {
    let of_pair = |&(first, second, count): &(u16, u16, usize)| vec![vec![first, second]; count];
    counts.iter().flat_map(of_pair).collect()
}

#[test]
fn what_is_moved_to_and_fro_is_noticed() {
    let groups = [0, 1, 2];
    let before = held(&groups, &pairs(&[(0, 1, 40), (0, 2, 20)]));
    let good = held(&groups, &pairs(&[(0, 1, 20), (2, 1, 20), (0, 2, 20)]));
    assert_eq!(least(&before, &good).bytes(), 20 * MIB);
    assert_eq!(judge(&before, &good), Ok(()));
    // As much lies on each disk, but two disks changed ten extents for nothing.
    let wasteful = [(0, 1, 10), (2, 1, 20), (0, 2, 10), (0, 1, 10), (0, 2, 10)];
    let wasteful = held(&groups, &pairs(&wasteful));
    assert_eq!(least(&before, &wasteful).bytes(), 20 * MIB);
    let excess = judge(&before, &wasteful).unwrap_err();
    assert!(
        excess.starts_with("41943040 bytes were moved where 20971520 had to be"),
        "{excess}"
    );
}

/// Disk 0 leaves, disk 3 joined the failure group in which everything on disk 0 has its other copy:
/// nothing can go from the one to the other.
#[test]
fn what_a_failure_group_cannot_take_directly_may_be_moved_twice_and_no_more() {
    let groups = [0, 1, 2, 1, 3];
    let before = held(&groups, &pairs(&[(0, 1, 20), (2, 4, 40)]));
    let around = pairs(&[(2, 1, 20), (3, 4, 20), (2, 4, 20)]);
    let around = held(&groups, &around);
    assert_eq!(least(&before, &around).bytes(), 40 * MIB);
    assert_eq!(judge(&before, &around), Ok(()));
    // Disks 1 and 3 changed ten extents for nothing.
    let wasteful = [(2, 3, 10), (2, 1, 10), (3, 4, 10), (1, 4, 10), (2, 4, 20)];
    let wasteful = held(&groups, &pairs(&wasteful));
    assert_eq!(least(&before, &wasteful).bytes(), 40 * MIB);
    assert!(judge(&before, &wasteful).is_err());
}

/// What disk 3 could have taken from disk 0 went another way.
#[test]
fn what_a_failure_group_can_take_directly_may_be_moved_once() {
    let groups = [0, 1, 2, 1, 3];
    let before = held(&groups, &pairs(&[(0, 1, 20), (0, 2, 20), (2, 4, 20)]));
    let direct = held(&groups, &pairs(&[(4, 1, 20), (3, 2, 20), (2, 4, 20)]));
    assert_eq!(least(&before, &direct).bytes(), 40 * MIB);
    assert_eq!(judge(&before, &direct), Ok(()));
    let around = held(&groups, &pairs(&[(2, 1, 20), (4, 2, 20), (3, 4, 20)]));
    assert_eq!(least(&before, &around).bytes(), 40 * MIB);
    assert!(judge(&before, &around).is_err());
}

/// Any two distributions of a few extents: what is called the least is never more than what was
/// moved.
#[test]
fn the_least_is_never_more_than_what_any_way_moves() {
    let groups = [0, 0, 1, 1, 2, 3];
    let mut random = 1_u64;
    let mut pick = |end: u64| -> u16 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        u16::try_from((random >> 11) % end).unwrap()
    };
    let mut place = |count: u64| {
        let mut extents = Vec::new();
        for _ in 0..count {
            let (first, second) = loop {
                let (first, second) = (pick(6), pick(6));
                if groups[usize::from(first)] != groups[usize::from(second)] {
                    break (first, second);
                }
            };
            extents.push(vec![first, second]);
        }
        held(&groups, &extents)
    };
    let mut tight_count = 0;
    for case in 0..20_000 {
        let (before, after) = (place(1 + case % 6), place(1 + case % 6));
        let (moved, _) = moved_bytes(&before, &after).unwrap();
        let least = least(&before, &after).bytes();
        assert!(least <= moved, "{least} for {moved}");
        tight_count += u32::from(least == moved);
    }
    // The bound is worth something: for many there is no better one.
    assert!(
        tight_count > 5000,
        "{tight_count} of 20000 move what is called the least"
    );
}
