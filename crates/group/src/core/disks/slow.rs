//! Disks that are slow, not dead: found by comparing them with their peers.
//!
//! Whoever has a clock and counters brings the running totals of each disk every few seconds.
//! A disk is slow when its reads took far longer than those of its peers, for requests of about
//! the same size, window after window; it is fast again when that has ended for as long. Windows
//! with few reads say nothing. All of it is memory.

use std::collections::BTreeMap;

use spindle_base::DiskNumber;

/// Windows in a row after which a disk counts as slow, or as fast again.
const WINDOWS: u32 = 4;
/// Reads in a window that say something.
const READS_LEAST: u64 = 2;
/// So many times the median of its peers is slow.
const SLOW_FACTOR: u64 = 8;
/// Below that many times it is not.
const FAST_FACTOR: u64 = 3;
/// A mean below that is never slow, in microseconds: a seek and a full queue take as long.
const SLOW_LEAST_US: u64 = 30_000;
/// Requests whose mean sizes differ by more than this factor are not compared.
const SIZE_FACTOR: u64 = 4;

/// Reads of which the mean size is at least this tell what a disk carries.
const RATED_BYTES_LEAST: u64 = 128 << 10;
/// So many of them at least.
const RATED_READS_LEAST: u64 = 64;

/// What a disk has read since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTotals {
    /// The disk.
    pub disk: DiskNumber,
    /// Reads that were answered.
    pub reads_count: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// The sum of their latencies, in microseconds.
    pub read_time_us: u64,
}

/// What changed, with the mean latencies that say so, in microseconds: the disk's and its peers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Slow { mean_us: u64, peers_us: u64 },
    Fast { mean_us: u64, peers_us: u64 },
}

#[derive(Debug, Default, Clone, Copy)]
struct Mean {
    latency_us: u64,
    size_bytes: u64,
}

#[derive(Debug, Default)]
struct Watched {
    totals: Option<ReadTotals>,
    is_slow: bool,
    /// Windows in a row that speak for the other state.
    against: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SlowDisks {
    watched: BTreeMap<DiskNumber, Watched>,
}

impl SlowDisks {
    /// Takes in the totals of a window's end; what changed by it.
    pub fn observe(&mut self, totals: &[ReadTotals]) -> Vec<(DiskNumber, Verdict)> {
        let mut means: BTreeMap<DiskNumber, Mean> = BTreeMap::new();
        for now in totals {
            let watched = self.watched.entry(now.disk).or_default();
            let before = watched.totals.replace(*now);
            if let Some(mean) = before.and_then(|before| mean(&before, now)) {
                means.insert(now.disk, mean);
            }
        }
        let mut verdicts = Vec::new();
        for (disk, mean) in &means {
            let Some(peers_us) = median_of_peers(&means, *disk, *mean) else {
                continue;
            };
            let watched = self.watched.entry(*disk).or_default();
            let mean_us = mean.latency_us;
            let speaks_against = if watched.is_slow {
                mean_us <= peers_us * FAST_FACTOR || mean_us < SLOW_LEAST_US / 2
            } else {
                mean_us >= SLOW_LEAST_US && mean_us >= peers_us * SLOW_FACTOR
            };
            watched.against = if speaks_against {
                watched.against + 1
            } else {
                0
            };
            if watched.against >= WINDOWS {
                watched.against = 0;
                watched.is_slow = !watched.is_slow;
                let verdict = if watched.is_slow {
                    Verdict::Slow { mean_us, peers_us }
                } else {
                    Verdict::Fast { mean_us, peers_us }
                };
                verdicts.push((*disk, verdict));
            }
        }
        verdicts
    }

    /// The disks that are slow now.
    pub fn slow(&self) -> impl Iterator<Item = DiskNumber> + '_ {
        (self.watched.iter())
            .filter(|(_, watched)| watched.is_slow)
            .map(|(disk, _)| *disk)
    }

    /// What disks carry, in bytes a second, as their large reads tell it. Reads that overlap
    /// count their times twice, so it is rather too low than too high.
    pub fn rates(&self) -> BTreeMap<DiskNumber, u64> {
        let rate = |totals: &ReadTotals| {
            let mean_bytes = totals.read_bytes.checked_div(totals.reads_count)?;
            if totals.reads_count < RATED_READS_LEAST || mean_bytes < RATED_BYTES_LEAST {
                return None;
            }
            let bytes = u128::from(totals.read_bytes) * 1_000_000;
            u64::try_from(bytes.checked_div(u128::from(totals.read_time_us))?).ok()
        };
        (self.watched.iter())
            .filter_map(|(disk, watched)| Some((*disk, rate(watched.totals.as_ref()?)?)))
            .collect()
    }

    /// The disk went away: what it was says nothing of what it will be.
    pub fn forget(&mut self, disk: DiskNumber) {
        self.watched.remove(&disk);
    }
}

fn mean(before: &ReadTotals, now: &ReadTotals) -> Option<Mean> {
    let reads_count = now.reads_count.checked_sub(before.reads_count)?;
    if reads_count < READS_LEAST {
        return None;
    }
    Some(Mean {
        latency_us: now.read_time_us.checked_sub(before.read_time_us)? / reads_count,
        size_bytes: now.read_bytes.checked_sub(before.read_bytes)? / reads_count,
    })
}

fn median_of_peers(means: &BTreeMap<DiskNumber, Mean>, disk: DiskNumber, of: Mean) -> Option<u64> {
    let is_alike = |size: u64| {
        size <= of.size_bytes.saturating_mul(SIZE_FACTOR)
            && of.size_bytes <= size.saturating_mul(SIZE_FACTOR)
    };
    let mut peers: Vec<u64> = (means.iter())
        .filter(|(other, mean)| **other != disk && is_alike(mean.size_bytes))
        .map(|(_, mean)| mean.latency_us)
        .collect();
    peers.sort_unstable();
    // The lower one of two: the slow disk may be one of few.
    peers.get(peers.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{ReadTotals, SlowDisks, Verdict};
    use spindle_base::DiskNumber;

    /// Windows in which each disk did ten reads with these latencies.
    struct Windows {
        totals: Vec<ReadTotals>,
        slow: SlowDisks,
    }

    impl Windows {
        fn new(disks: u16) -> Self {
            let totals = (0..disks).map(|number| ReadTotals {
                disk: DiskNumber(number),
                reads_count: 0,
                read_bytes: 0,
                read_time_us: 0,
            });
            let mut windows = Self {
                totals: totals.collect(),
                slow: SlowDisks::default(),
            };
            windows.slow.observe(&windows.totals);
            windows
        }

        fn pass(&mut self, latencies_us: &[u64], bytes: &[u64]) -> Vec<(DiskNumber, Verdict)> {
            for ((totals, latency_us), bytes) in self.totals.iter_mut().zip(latencies_us).zip(bytes)
            {
                totals.reads_count += 10;
                totals.read_bytes += 10 * bytes;
                totals.read_time_us += 10 * latency_us;
            }
            self.slow.observe(&self.totals)
        }
    }

    #[test]
    fn a_disk_that_is_slow_for_a_while_is_named_once_and_again_when_it_is_fast() {
        let mut windows = Windows::new(4);
        let even = [8192; 4];
        let mut told = Vec::new();
        for _ in 0..10 {
            told.extend(windows.pass(&[5000, 6000, 400_000, 4000], &even));
        }
        let slow = Verdict::Slow {
            mean_us: 400_000,
            peers_us: 5000,
        };
        assert_eq!(told, [(DiskNumber(2), slow)]);
        assert_eq!(windows.slow.slow().collect::<Vec<_>>(), [DiskNumber(2)]);
        let mut told = Vec::new();
        for _ in 0..10 {
            told.extend(windows.pass(&[5000, 6000, 7000, 4000], &even));
        }
        assert_eq!(told.len(), 1);
        assert!(matches!(told[0].1, Verdict::Fast { .. }));
        assert_eq!(windows.slow.slow().count(), 0);
    }

    #[test]
    fn moments_large_requests_and_common_load_make_no_disk_slow() {
        let mut windows = Windows::new(4);
        for round in 0..20 {
            let moment = if round % 3 == 0 { 900_000 } else { 5000 };
            assert!(
                windows
                    .pass(&[5000, 6000, moment, 4000], &[8192; 4])
                    .is_empty()
            );
        }
        for _ in 0..20 {
            let sizes = [8192, 8192, 1 << 20, 8192];
            assert!(windows.pass(&[5000, 6000, 90_000, 4000], &sizes).is_empty());
        }
        for _ in 0..20 {
            let latencies = [900_000, 700_000, 950_000, 800_000];
            assert!(windows.pass(&latencies, &[8192; 4]).is_empty());
        }
        for _ in 0..20 {
            assert!(windows.pass(&[100, 100, 9000, 100], &[8192; 4]).is_empty());
        }
    }
}
