//! What a disk has done so far, counted so cheaply that it is never switched off.
//!
//! Counters are relaxed atomics: each is exact, a snapshot of several is not of one instant.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Buckets of a [`LatencyHistogram`].
pub const LATENCY_BUCKETS: usize = 128;

const FIRST_OCTAVE: u32 = 8;

/// Latencies by size. Bucket 0 holds what took less than 256 ns; then each doubling has four
/// buckets, so a bucket's bounds are at most 25 % apart, up to 9 minutes, where the last bucket
/// takes the rest. 128 counters of 8 bytes are 1 KiB a histogram.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LatencyHistogram {
    /// How many requests each bucket holds; [`LATENCY_BUCKETS`] of them.
    pub counts: Vec<u64>,
    /// The sum of all latencies in nanoseconds.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// The lowest latency that belongs into `bucket`, in nanoseconds.
    #[must_use]
    pub const fn lower_bound_ns(bucket: usize) -> u64 {
        if bucket == 0 {
            return 0;
        }
        let octave = (bucket - 1) / 4;
        let quarter = ((bucket - 1) % 4) as u64;
        (4 + quarter) << (octave + FIRST_OCTAVE as usize - 2)
    }

    /// How many requests there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean latency in nanoseconds; none where there is no request.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The latency that `percent` of the requests did not exceed, as the upper bound of its
    /// bucket (so at most 25 % too high); none where there is no request.
    #[must_use]
    pub fn percentile_ns(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        let rank = (count * percent).div_ceil(100).max(1);
        let mut passed = 0;
        let bucket = self.counts.iter().position(|bucket| {
            passed += bucket;
            passed >= rank
        })?;
        Some(Self::lower_bound_ns(bucket + 1))
    }
}

fn bucket_of(latency_ns: u64) -> usize {
    let Some(octave) = latency_ns
        .checked_ilog2()
        .and_then(|log2| log2.checked_sub(FIRST_OCTAVE))
    else {
        return 0;
    };
    let quarter = (latency_ns >> (octave + FIRST_OCTAVE - 2)) & 3;
    let bucket = u64::from(octave) * 4 + quarter + 1;
    usize::try_from(bucket).map_or(LATENCY_BUCKETS - 1, |bucket| {
        bucket.min(LATENCY_BUCKETS - 1)
    })
}

/// A snapshot of what one disk has done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DiskCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded, durable ones too.
    pub writes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Requests that failed, for whatever reason.
    pub errors: u64,
    /// Requests under way now.
    pub in_flight: u32,
    /// Latencies of reads: each request has that of its whole batch.
    pub read_latency: LatencyHistogram,
    /// Latencies of writes, likewise.
    pub write_latency: LatencyHistogram,
}

/// One direction's counters. The number of requests is the sum of the buckets.
#[derive(Debug)]
struct Direction {
    bytes: AtomicU64,
    sum_ns: AtomicU64,
    buckets: [AtomicU64; LATENCY_BUCKETS],
}

impl Direction {
    const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            sum_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }

    fn add(&self, bytes: u64, latency: Latency) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.sum_ns.fetch_add(latency.ns, Relaxed);
        self.buckets[latency.bucket].fetch_add(1, Relaxed);
    }

    fn histogram(&self) -> LatencyHistogram {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        LatencyHistogram {
            counts: counts.collect(),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

/// A latency and its bucket, found once for a whole batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    ns: u64,
    bucket: usize,
}

impl From<std::time::Duration> for Latency {
    fn from(duration: std::time::Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            ns,
            bucket: bucket_of(ns),
        }
    }
}

/// What counts as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Read,
    Written,
    Flushed,
    Failed,
}

/// The live counters of one disk, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LiveCounters {
    in_flight: AtomicU32,
    flushes: AtomicU64,
    errors: AtomicU64,
    read: Direction,
    write: Direction,
}

impl LiveCounters {
    pub(crate) const fn new() -> Self {
        Self {
            in_flight: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            read: Direction::new(),
            write: Direction::new(),
        }
    }

    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn end(&self, outcome: Outcome, bytes: u64, latency: Latency) {
        self.in_flight.fetch_sub(1, Relaxed);
        match outcome {
            Outcome::Read => self.read.add(bytes, latency),
            Outcome::Written => self.write.add(bytes, latency),
            Outcome::Flushed => drop(self.flushes.fetch_add(1, Relaxed)),
            Outcome::Failed => drop(self.errors.fetch_add(1, Relaxed)),
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    pub(crate) fn snapshot(&self) -> DiskCounters {
        let read_latency = self.read.histogram();
        let write_latency = self.write.histogram();
        DiskCounters {
            reads: read_latency.count(),
            writes: write_latency.count(),
            flushes: self.flushes.load(Relaxed),
            read_bytes: self.read.bytes.load(Relaxed),
            write_bytes: self.write.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight(),
            read_latency,
            write_latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_between_the_bounds_of_its_bucket() {
        for latency_ns in (0..2000).chain((0..50).map(|shift| 3_u64 << shift)) {
            let bucket = bucket_of(latency_ns);
            assert!(LatencyHistogram::lower_bound_ns(bucket) <= latency_ns);
            assert!(
                bucket == LATENCY_BUCKETS - 1
                    || latency_ns < LatencyHistogram::lower_bound_ns(bucket + 1),
                "{latency_ns} in {bucket}"
            );
        }
    }

    #[test]
    fn percentiles_come_from_the_bucket_that_holds_the_rank() {
        let counters = LiveCounters::new();
        for latency_us in [10, 10, 10, 1000] {
            counters.begin();
            let latency = std::time::Duration::from_micros(latency_us).into();
            counters.end(Outcome::Read, 4096, latency);
        }
        let snapshot = counters.snapshot();
        assert_eq!((snapshot.reads, snapshot.read_bytes), (4, 16384));
        assert_eq!(snapshot.in_flight, 0);
        let median_ns = snapshot.read_latency.percentile_ns(50).unwrap();
        assert!((10_000..12_500).contains(&median_ns), "{median_ns}");
        assert!(snapshot.read_latency.percentile_ns(99).unwrap() >= 1_000_000);
        assert_eq!(snapshot.read_latency.mean_ns(), Some(257_500));
        assert_eq!(snapshot.write_latency.percentile_ns(50), None);
    }
}
