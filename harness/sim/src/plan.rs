//! What follows from a seed: the disks, the group on them, the operations.

use std::collections::BTreeSet;

use spindle_base::{Redundancy, Striping};
use spindle_device::SeededRandom;
use spindle_fs::{Template, TemplateCaching};

use crate::disk_operation::DiskOperation;
use crate::operation::Operation;

const MIB: u64 = 1 << 20;

/// A disk of the simulated group.
#[derive(Debug, Clone)]
pub(crate) struct PlannedDisk {
    pub(crate) size_bytes: u64,
    pub(crate) failure_group: u64,
    /// Whether faults may meet it.
    pub(crate) may_fail: bool,
}

/// Everything a run is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What the plan follows from.
    pub seed: u64,
    pub(crate) redundancy: Redundancy,
    pub(crate) profile: &'static str,
    pub(crate) disks: Vec<PlannedDisk>,
    /// More failure groups may fail than the redundancy bears: then errors are no violation,
    /// wrong bytes still are.
    pub(crate) is_beyond_redundancy: bool,
    /// Disks come and go, and what is on them moves.
    pub(crate) disks_change: bool,
    pub(crate) operations: Vec<Operation>,
}

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed.wrapping_mul(0x9E37_79B9_97F4_A7C1));
        let disk_count = 2 + random.below(5);
        let redundancy = match random.below(10) {
            0..=1 => Redundancy::External,
            2..=6 => Redundancy::Normal,
            _ if disk_count >= 3 => Redundancy::High,
            _ => Redundancy::Normal,
        };
        let copies = redundancy.copies() as u64;
        // Each disk its own failure group, or as few as the copies need.
        let failure_groups = if random.chance(1, 2) {
            disk_count
        } else {
            copies
        };
        let is_beyond_redundancy = random.chance(1, 12);
        let bearable = copies - 1;
        let failing = if is_beyond_redundancy {
            1 + random.below(failure_groups)
        } else {
            random.below(bearable + 1)
        };
        let first_failing = random.below(failure_groups);
        let disks = (0..disk_count)
            .map(|number| {
                let failure_group = number % failure_groups;
                let distance = (failure_group + failure_groups - first_failing) % failure_groups;
                PlannedDisk {
                    size_bytes: (32 + random.below(65)) * MIB,
                    failure_group,
                    may_fail: distance < failing,
                }
            })
            .collect();
        let profile = ["plain", "postgresql", "mariadb", "sqlite"][random.index(4)];
        let operation_count = 30 + random.below(31);
        let disks_change = random.chance(2, 3);
        let operations = (0..operation_count)
            .map(|_| {
                if disks_change && random.chance(1, 4) {
                    Operation::Disks(DiskOperation::random(&mut random))
                } else {
                    Operation::random(&mut random, failing > 0)
                }
            })
            .collect();
        Self {
            seed,
            redundancy,
            profile,
            disks,
            is_beyond_redundancy,
            disks_change,
            operations,
        }
    }

    /// Whether the failure groups that may fail can be half of the voters or more: with fewer
    /// than five failure groups, one disk of three of them votes.
    pub(crate) fn may_lose_majority(&self) -> bool {
        let count = |wanted: fn(&PlannedDisk) -> bool| {
            let groups: BTreeSet<u64> = (self.disks.iter())
                .filter(|disk| wanted(disk))
                .map(|disk| disk.failure_group)
                .collect();
            groups.len()
        };
        count(|disk| disk.may_fail) >= 2 && (self.disks_change || count(|_| true) < 5)
    }

    /// Half of the names are striped finely, and one has a copy more where that can be.
    pub(crate) fn templates(&self) -> Vec<Template> {
        let failure_groups: BTreeSet<u64> =
            (self.disks.iter()).map(|disk| disk.failure_group).collect();
        (0..8)
            .map(|name| Template {
                name: format!("t{name}"),
                pattern: format!("**/n{name}"),
                redundancy: (name == 4
                    && self.redundancy == Redundancy::Normal
                    && failure_groups.len() >= 3)
                    .then_some(Redundancy::High),
                striping: if name < 4 {
                    Striping::Fine
                } else {
                    Striping::Coarse
                },
                caching: TemplateCaching::Auto,
            })
            .collect()
    }

    /// How many operations it has.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.operations.len()
    }
}
