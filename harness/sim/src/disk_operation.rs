//! What a run does to the disks and the copies on them. Disks are named by a number that is
//! reduced to those that are there when the operation runs.

use spindle_device::SeededRandom;

use crate::operation::skewed;

/// One change, or some background work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DiskOperation {
    /// A disk joins: a new one, or one that the group has forgotten.
    Add {
        size_mib: u64,
        failure_group: u64,
        again: bool,
    },
    Drop {
        disk: u64,
        force: bool,
    },
    Undrop {
        disk: u64,
    },
    Replace {
        disk: u64,
        size_mib: u64,
    },
    /// The device grows where it is too small, unless the refusal is wanted.
    Resize {
        disk: u64,
        size_mib: u64,
        device_grows: bool,
    },
    Offline {
        disk: u64,
    },
    /// A disk that is away answers again, and is taken back or found by itself.
    Return {
        disk: u64,
        by_itself: bool,
    },
    /// Units of background copying.
    Work {
        units: u64,
    },
    Power {
        number: u16,
    },
    Rebalance,
    /// A file, a directory or the group gets another redundancy.
    Convert {
        file: u64,
        number: u64,
    },
    /// Begins a scrub, or goes on with one.
    Scrub {
        units: u64,
        repair: bool,
    },
    /// A bit of one copy flips; a scrub must find it and prove nothing.
    FlipCopy {
        file: u64,
        place: u64,
    },
    /// Disks that are away are given up after so long.
    RepairTime {
        seconds: u64,
    },
    /// A disk takes far longer than its peers for each read, or not any more.
    Slow {
        disk: u64,
    },
}

impl DiskOperation {
    pub(crate) fn random(random: &mut SeededRandom) -> Self {
        let disk = random.next_u64() >> 16;
        let other = random.next_u64() >> 16;
        let is_even = other.is_multiple_of(2);
        let size_mib = 16 + random.below(81);
        match random.below(40) {
            0..=4 => Self::Add {
                size_mib,
                failure_group: disk,
                again: other.is_multiple_of(3),
            },
            5..=8 => Self::Drop {
                disk,
                force: is_even,
            },
            9 => Self::Undrop { disk },
            10..=11 => Self::Replace { disk, size_mib },
            12..=13 => Self::Resize {
                disk,
                size_mib,
                device_grows: !other.is_multiple_of(4),
            },
            14..=15 => Self::Offline { disk },
            16..=19 => Self::Return {
                disk,
                by_itself: other.is_multiple_of(4),
            },
            // As many numbers are drawn as for work, so that the rest of a run is the same.
            20..=32 => match skewed(random, 400) {
                _ if other.is_multiple_of(5) => Self::Convert {
                    file: disk,
                    number: other / 5,
                },
                units => Self::Work { units: 1 + units },
            },
            33..=34 => Self::Power {
                number: [0, 1, 1, 7, 11, 64, 300, 1024][random.index(8)],
            },
            35 => Self::Rebalance,
            36..=37 => Self::Scrub {
                units: 1 + skewed(random, 60),
                repair: is_even,
            },
            38 => Self::FlipCopy {
                file: disk,
                place: other,
            },
            _ if other.is_multiple_of(3) => Self::Slow { disk },
            _ => Self::RepairTime {
                seconds: [0, 30, 120, 12 * 3600][random.index(4)],
            },
        }
    }
}
