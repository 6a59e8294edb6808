//! One client's thread.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};

use super::arrivals::Arrivals;
use super::settling::Course;
use super::{Client, Meter, Shape, empty_histogram, record};

pub(super) struct Worker {
    pub client: Box<dyn Client>,
    pub random: fastrand::Rng,
    pub shape: Shape,
    pub arrivals: Option<Arc<Mutex<Arrivals>>>,
    pub course: Arc<Course>,
    /// When a client of a closed load had nothing under way any more, from the beginning on.
    pub free_at: Instant,
    pub stop: Arc<AtomicBool>,
    pub meter: Meter,
}

/// What a client has to tell.
pub(super) struct Report {
    pub latencies: Histogram<u64>,
    /// The same by kind.
    pub kinds: Vec<Histogram<u64>>,
    pub acknowledged: u64,
    /// See [`super::Driven::latency_s`].
    pub latency_s: f64,
    /// See [`super::Driven::under_way_s`].
    pub under_way_s: f64,
    /// See [`super::Driven::between_s`].
    pub between_s: f64,
    pub processor_s: f64,
}

/// Longer waits look at the wish to stop in between.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Worker {
    pub fn work(mut self) -> Result<Report> {
        // The kernel may wake a sleeper 50 µs late by default; that would stand in the latencies.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut report = Report {
            latencies: empty_histogram(),
            kinds: Vec::new(),
            acknowledged: 0,
            latency_s: 0.0,
            under_way_s: 0.0,
            between_s: 0.0,
            processor_s: 0.0,
        };
        let mut used_before = None;
        while let Some(intended) = self.next_start(&mut report.between_s) {
            if used_before.is_none() && Instant::now() >= self.course.from() {
                used_before = Some(processor_time());
            }
            self.client.operate(&mut self.random)?;
            let ended = Instant::now();
            self.free_at = ended;
            self.meter.count();
            report.acknowledged += 1;
            // A closed load counts what ended in the measured time, so that clients = rate x
            // latency; an open one what was to begin in it.
            let counts_at = match self.shape {
                Shape::Closed { .. } => ended,
                Shape::Open { .. } => intended,
            };
            let counts = self.course.counts(counts_at);
            if counts {
                let latency = ended.saturating_duration_since(intended);
                record(&mut report.latencies, latency);
                if let Some(kind) = self.client.kind() {
                    while report.kinds.len() <= kind {
                        report.kinds.push(empty_histogram());
                    }
                    record(&mut report.kinds[kind], latency);
                }
                report.latency_s += latency.as_secs_f64();
            }
            report.under_way_s += self.under_way_s(intended, ended, counts);
        }
        if let Some(before) = used_before {
            report.processor_s = processor_time().saturating_sub(before).as_secs_f64();
        }
        Ok(report)
    }

    /// What an operation adds to [`Report::under_way_s`].
    fn under_way_s(&self, began: Instant, ended: Instant, counts: bool) -> f64 {
        let Shape::Closed { .. } = self.shape else {
            return 0.0;
        };
        if counts {
            return -self
                .course
                .from()
                .saturating_duration_since(began)
                .as_secs_f64();
        }
        self.measured_s(began, ended)
    }

    /// How much of this lies in the measured time.
    fn measured_s(&self, from: Instant, until: Instant) -> f64 {
        let within = until.min(self.course.until());
        within
            .saturating_duration_since(from.max(self.course.from()))
            .as_secs_f64()
    }

    /// Waits for the next operation's start; `None` at the end. What a client of a closed load was
    /// late goes into `between_s`.
    fn next_start(&mut self, between_s: &mut f64) -> Option<Instant> {
        match (&self.arrivals, self.shape) {
            (Some(arrivals), _) => {
                if Instant::now() >= self.course.drained() {
                    return None;
                }
                let moment = arrivals
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .next_before(self.course.until())?;
                self.wait_until(moment).then_some(moment)
            }
            (None, Shape::Closed { think_time }) => {
                let pause = match self.client.pause(&mut self.random) {
                    Some(pause) => pause,
                    None if think_time.is_zero() => Duration::ZERO,
                    // Drawn, so that clients do not march in step.
                    None => think_time.mul_f64(2.0 * self.random.f64()),
                };
                let due = self.free_at + pause;
                if !pause.is_zero() && !self.wait_until(due) {
                    return None;
                }
                let now = Instant::now();
                *between_s += self.measured_s(due, now);
                let goes_on = now < self.course.until() && !self.stop.load(Ordering::Relaxed);
                goes_on.then_some(now)
            }
            (None, Shape::Open { .. }) => None,
        }
    }

    /// Whether the moment came before the wish to stop.
    fn wait_until(&self, moment: Instant) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// Processor time of this thread.
pub(super) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
