//! How much may be written and not be on the disks yet: in Spindle's memory, and of shared mappings in
//! the kernel's page cache.
//!
//! Enough that writers and disks work side by side, and that a page which is written again soon
//! is written to the disks once; little enough that the disks begin soon and no sync waits long.
//! Both depend on the disks: the limit is what they write in [`HELD_MS`], by what they did
//! of late, and never less than [`BYTES_PER_DISK`] for each.
//!
//! What a disk does is seen from outside: bytes over the time that its writes took. Where several
//! are under way at once that is less than what it could do, so that a limit is rather too low
//! than too high; a disk of 60 MB/s never raises it. Nothing of it is kept: after a takeover the
//! lowest limit holds until the disks have shown what they can do.

use spindle_base::DiskNumber;

/// For each disk at least. Of 24, 32, 48 and 64 MiB the first two gave one writer most on four
/// disks of 60 MB/s.
const BYTES_PER_DISK: u64 = 32 << 20;
/// For a mount at least: a group of one disk has writers, too.
const BYTES_AT_LEAST: u64 = 128 << 20;
/// How long the disks may have to write what waits.
const HELD_MS: u64 = 500;
/// A disk that wrote less since the last look has not shown what it can do.
const SHOWN_BYTES: u64 = 1 << 20;
/// At most this part of the memory, unless the lowest limit is more: as much as the kernel lets file
/// systems have before it begins to write.
const MEMORY_SHARE: u64 = 10;

/// What a disk has written since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// Which.
    pub disk: DiskNumber,
    /// Bytes.
    pub bytes: u64,
    /// The sum of its writes' times.
    pub time_us: u64,
}

/// The limit of a group, which follows its disks.
#[derive(Debug, Default)]
pub(super) struct WriteLimit {
    seen: Vec<Written>,
    /// What the disks have shown of data without its copies.
    bytes_per_second: u64,
}

/// The limit for a group of so many disks that have shown nothing yet.
#[must_use]
pub(super) fn lowest(disks_count: usize) -> u64 {
    (disks_count as u64 * BYTES_PER_DISK).max(BYTES_AT_LEAST)
}

impl WriteLimit {
    /// Looks at what every disk has written, where each byte is kept in so many copies. The limit
    /// in bytes, on a machine of this much memory.
    pub(super) fn look(&mut self, now: &[Written], copies_count: usize, memory_bytes: u64) -> u64 {
        let (mut bytes, mut time_us) = (0, 0);
        for written in now {
            let Some(before) = self.seen.iter().find(|seen| seen.disk == written.disk) else {
                continue;
            };
            // A disk that was opened anew counts from nothing.
            let more = written.bytes.saturating_sub(before.bytes);
            if more >= SHOWN_BYTES {
                bytes += more;
                time_us += written.time_us.saturating_sub(before.time_us);
            }
        }
        self.seen = now.to_vec();
        if let Some(of_one) = bytes.saturating_mul(1_000_000).checked_div(time_us) {
            let shown = of_one.saturating_mul(now.len() as u64) / copies_count.max(1) as u64;
            // What was shown once can be done; what has become slower is believed by and by.
            let slower = self.bytes_per_second - self.bytes_per_second / 4 + shown / 4;
            self.bytes_per_second = shown.max(slower);
        }
        let wanted = self.bytes_per_second.saturating_mul(HELD_MS) / 1000;
        wanted
            .min(memory_bytes / MEMORY_SHARE)
            .max(lowest(now.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMORY: u64 = 40 << 30;

    /// Four disks that each wrote so much in so long.
    fn disks(mebibytes: u64, time_us: u64) -> Vec<Written> {
        let written = |number| Written {
            disk: DiskNumber(number),
            bytes: mebibytes * MIB,
            time_us,
        };
        (0..4).map(written).collect()
    }

    #[test]
    fn disks_that_have_shown_nothing_and_slow_ones_hold_the_lowest_limit() {
        let mut limit = WriteLimit::default();
        assert_eq!(limit.look(&disks(0, 0), 1, MEMORY), 128 * MIB);
        // 60 MiB in a second each, one after the other.
        let slow = disks(60, 1_000_000);
        assert_eq!(limit.look(&slow, 1, MEMORY), 128 * MIB);
        assert_eq!(lowest(1), 128 * MIB);
        assert_eq!(lowest(40), 40 * 32 * MIB);
    }

    #[test]
    fn fast_disks_may_be_ahead_by_half_a_second_and_copies_count() {
        // 100 MiB in a tenth of a second: 1,000 MiB a second each.
        let fast = disks(100, 100_000);
        let mut limit = WriteLimit::default();
        limit.look(&disks(0, 0), 1, MEMORY);
        assert_eq!(limit.look(&fast, 1, MEMORY), 2000 * MIB);
        let mut mirrored = WriteLimit::default();
        mirrored.look(&disks(0, 0), 2, MEMORY);
        assert_eq!(mirrored.look(&fast, 2, MEMORY), 1000 * MIB);
    }

    #[test]
    fn disks_that_become_slow_are_held_to_it_by_and_by() {
        let mut limit = WriteLimit::default();
        limit.look(&disks(0, 0), 1, MEMORY);
        let mut limits = vec![limit.look(&disks(100, 100_000), 1, MEMORY)];
        for second in 1..30 {
            let written = disks(100 + 60 * second, 100_000 + 1_000_000 * second);
            limits.push(limit.look(&written, 1, MEMORY));
        }
        assert!(limits.is_sorted_by(|one, next| one >= next), "{limits:?}");
        assert_eq!(limits.last(), Some(&(128 * MIB)), "{limits:?}");
    }

    #[test]
    fn the_limit_stays_below_what_the_memory_allows() {
        let mut limit = WriteLimit::default();
        limit.look(&disks(0, 0), 1, 3000 * MIB);
        let held = limit.look(&disks(100, 100_000), 1, 3000 * MIB);
        assert_eq!(held, 300 * MIB);
    }

    #[test]
    fn little_writing_and_counters_that_began_again_show_nothing() {
        let mut limit = WriteLimit::default();
        let lowest = limit.look(&disks(10, 5_000), 1, MEMORY);
        assert_eq!(limit.look(&disks(10, 5_001), 1, MEMORY), lowest);
        assert_eq!(limit.look(&disks(0, 0), 1, MEMORY), lowest);
    }
}
