//! Groups that are made, and those that cannot be.

use std::sync::Arc;

use spindle_base::Redundancy;
use spindle_device::{DiskSlot, Disks, SimulatedDisks};

use super::{DISK_BYTES, create, make, new_group, open, voters};
use crate::GroupErrorKind;

#[test]
fn votes_and_replicas_spread_over_failure_groups() {
    let cases: &[(&str, Redundancy, &[u16], &[u16])] = &[
        ("a", Redundancy::External, &[0], &[0]),
        ("ab", Redundancy::Normal, &[0, 1], &[0, 1]),
        ("aab", Redundancy::Normal, &[0, 2], &[0, 1, 2]),
        ("aaabbb", Redundancy::Normal, &[0, 1, 3, 4], &[0, 1, 3]),
        ("abc", Redundancy::High, &[0, 1, 2], &[0, 1, 2]),
        ("abcd", Redundancy::Normal, &[0, 1, 2], &[0, 1, 2]),
        ("abcdef", Redundancy::High, &[0, 1, 2, 3, 4], &[0, 1, 2]),
        ("aaaa", Redundancy::External, &[0, 1, 2], &[0, 1, 2]),
    ];
    for (failure_groups, redundancy, expected, replicas) in cases {
        let membership = open(&make(failure_groups, *redundancy)).unwrap();
        assert_eq!(voters(&membership), *expected, "{failure_groups}");
        let mut holders: Vec<u16> = (membership.catalog_runs().iter())
            .map(|replica| replica.disk.0)
            .collect();
        holders.sort_unstable();
        assert_eq!(holders, *replicas, "{failure_groups}");
    }
}

#[test]
fn a_group_that_cannot_be_is_not_made() {
    let disks = Arc::new(SimulatedDisks::new(3, &[DISK_BYTES; 2]));
    let error = create(&disks, &new_group("aa", Redundancy::Normal)).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough);
    let mut twice = new_group("ab", Redundancy::Normal);
    twice.disks[1].name = twice.disks[0].name.clone();
    assert_eq!(
        create(&disks, &twice).unwrap_err().kind,
        GroupErrorKind::Invalid
    );
    let small = Arc::new(SimulatedDisks::new(3, &[DISK_BYTES, 4 << 20]));
    let error = create(&small, &new_group("ab", Redundancy::Normal)).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NotEnough);
    assert!(error.message.contains(&small.path(DiskSlot(1))), "{error}");
    assert_eq!(disks.counts().writes + small.counts().writes, 0);
}
