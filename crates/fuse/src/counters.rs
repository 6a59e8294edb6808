//! How many requests of each kind were answered and how long that took.
//!
//! Each worker counts into lines of its own, so that counting costs no traffic between cores;
//! a reader adds them up. Figures start at zero with each mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::Opcode;

const OPCODES_COUNT: usize = 64;

/// What one worker has done.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    requests: [AtomicU64; OPCODES_COUNT],
    nanoseconds: [AtomicU64; OPCODES_COUNT],
    panics: AtomicU64,
}

impl WorkerCounters {
    fn new() -> Self {
        Self {
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            nanoseconds: std::array::from_fn(|_| AtomicU64::new(0)),
            panics: AtomicU64::new(0),
        }
    }

    /// Counts a request before it is answered: who has the answer finds it counted.
    pub(crate) fn count(&self, opcode: u32) {
        if let Some(index) = index_of(opcode) {
            add(&self.requests[index], 1);
        }
    }

    /// Adds what its answer took.
    pub(crate) fn add_time(&self, opcode: u32, elapsed: Duration) {
        if let Some(index) = index_of(opcode) {
            let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            add(&self.nanoseconds[index], elapsed_ns);
        }
    }

    pub(crate) fn count_panic(&self) {
        add(&self.panics, 1);
    }
}

fn index_of(opcode: u32) -> Option<usize> {
    let index = usize::try_from(opcode).ok();
    index.filter(|index| *index < OPCODES_COUNT)
}

/// Only the worker that owns the line writes, so a load and a store do.
fn add(counter: &AtomicU64, more: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
    counter.store(sum, Ordering::Relaxed);
}

/// The sums of one kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCount {
    /// What was asked.
    pub opcode: Opcode,
    /// How often.
    pub count: u64,
    /// How long the answers took together, from request read to answer sent.
    pub total_us: u64,
}

/// The counters of a mount; they outlive it.
#[derive(Debug, Clone)]
pub struct Counters {
    workers: Arc<[WorkerCounters]>,
}

impl Counters {
    pub(crate) fn new(workers_count: usize) -> Self {
        Self {
            workers: (0..workers_count).map(|_| WorkerCounters::new()).collect(),
        }
    }

    pub(crate) fn worker(&self, index: usize) -> &WorkerCounters {
        &self.workers[index]
    }

    /// Every kind of request that has been asked at least once.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestCount> {
        Opcode::ALL
            .iter()
            .map(|opcode| self.request(*opcode))
            .filter(|request| request.count > 0)
            .collect()
    }

    /// The sums of one kind.
    #[must_use]
    pub fn request(&self, opcode: Opcode) -> RequestCount {
        let index = opcode as usize;
        let sum = |of: fn(&WorkerCounters) -> &[AtomicU64; OPCODES_COUNT]| -> u64 {
            let workers = self.workers.iter();
            workers
                .map(|worker| of(worker)[index].load(Ordering::Relaxed))
                .sum()
        };
        RequestCount {
            opcode,
            count: sum(|worker| &worker.requests),
            total_us: sum(|worker| &worker.nanoseconds) / 1000,
        }
    }

    /// Requests whose answer was a panic: each was answered `EIO`.
    #[must_use]
    pub fn panics_count(&self) -> u64 {
        let workers = self.workers.iter();
        workers
            .map(|worker| worker.panics.load(Ordering::Relaxed))
            .sum()
    }
}
