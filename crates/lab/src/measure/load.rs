//! The load generator: clients that operate, and when.
//!
//! - **Closed**: each client begins its next operation when the last one has ended (and the think
//!   time is over). It finds the most that a storage carries.
//! - **Open**: operations arrive by chance (Poisson) at a stated rate, whether or not the storage
//!   keeps up. Clients take arrivals in their order, and the latency counts from the moment at which
//!   an operation was to begin. A storage that stalls for a second so pays for every operation that
//!   would have come in that second, not only for the one it held ("coordinated omission").
//!
//! Arrivals that are never served are counted, and stand in the latencies with the time they waited.
//! Each client has a thread and a histogram of its own; nothing is shared while it is measured but
//! the order of arrivals. The processor time of these threads is the harness's own share.
//!
//! Work that has an end of its own, such as a suite of queries, is driven by [`drive_to_end`].

pub mod arrivals;
mod law;
mod sequence;
mod settling;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;
use spindle_testbed::interrupt;

use self::arrivals::Arrivals;
pub use self::law::littles_law;
pub use self::sequence::drive_to_end;
use self::settling::{Course, Gate};
pub use self::settling::{Settling, is_steady};
use self::worker::{Report, Worker};
use crate::quantity::as_float;
use crate::record::Latency;

/// Someone who works on the storage or the database.
pub trait Client: Send {
    /// One operation, from its beginning to its acknowledgement.
    ///
    /// # Errors
    /// Where it failed: that fails the run.
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()>;

    /// Of which kind the last operation was, where several are told by themselves; else its latency
    /// would be recorded a second time for nobody.
    fn kind(&self) -> Option<usize> {
        None
    }

    /// How long its user waits before the next operation of a closed load, where that is the
    /// client's own to say; else the plan does.
    fn pause(&mut self, _random: &mut fastrand::Rng) -> Option<Duration> {
        None
    }
}

/// When clients operate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// One after the other, with a pause between.
    Closed {
        /// The pause.
        think_time: Duration,
    },
    /// By chance, so many a second on average.
    Open {
        /// Arrivals a second.
        rate: f64,
    },
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPlan {
    /// When clients operate.
    pub shape: Shape,
    /// Not counted.
    pub warm_up: Duration,
    /// Where the warm-up lasts until the rate holds still.
    pub settling: Option<Settling>,
    /// Counted.
    pub duration: Duration,
    /// What all chance is drawn from.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Driven {
    /// Operations that count: acknowledged within the measured time (closed), or intended for it
    /// and served (open).
    pub operations: u64,
    /// Every acknowledged operation, warm-up and drain included.
    pub acknowledged: u64,
    /// The measured time.
    pub duration_s: f64,
    /// What the load had run before it.
    pub warm_up_s: f64,
    /// Whether the rate held still when it began; none where nobody waited for that.
    pub is_settled: Option<bool>,
    /// Of the operations that count.
    pub latency: Latency,
    /// The same by their kind; none where no kinds are told.
    pub kinds: Vec<Latency>,
    /// The latencies of the operations that count, all together, as the clock gave them.
    pub latency_s: f64,
    /// Client time, in seconds, by which the operations that count miss the measured time of a
    /// closed load: of those under way at its end more, of those under way at its beginning less.
    pub under_way_s: f64,
    /// Client time, in seconds, that lies in the measured time of a closed load between an
    /// operation's end (or that of the pause after it) and the next one's beginning: the harness's
    /// own, and what the scheduler took from a client just there.
    pub between_s: f64,
    /// Arrivals of the measured time that were never served.
    pub unserved: u64,
    /// Processor time of the clients' threads within the measured time.
    pub harness_s: f64,
}

impl Driven {
    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        as_float(self.operations) / self.duration_s
    }
}

/// What a sampler may read while the load runs.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    operations: Arc<AtomicU64>,
}

impl Meter {
    /// Acknowledged operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a client may stay in one operation after the end before it counts as hanging.
const HANGING_AFTER: Duration = Duration::from_secs(60);

/// How long an open load may go on serving what arrived in time, at most.
const DRAIN_AT_MOST: Duration = Duration::from_secs(10);

/// Drives `clients` to the end of the plan. `at_start` is called once when the measured time begins
/// and `at_end` once when it ends.
///
/// # Errors
/// Where an operation failed or hangs, or we were asked to stop.
pub fn drive(
    clients: Vec<Box<dyn Client>>,
    plan: &LoadPlan,
    meter: &Meter,
    mut at_start: impl FnMut(),
    mut at_end: impl FnMut(),
) -> Result<Driven> {
    let began = Instant::now();
    let course = Arc::new(Course::new(began, plan.duration));
    let mut gate = Gate::before(&course, plan);
    let stop = Arc::new(AtomicBool::new(false));
    let arrivals = match plan.shape {
        Shape::Closed { .. } => None,
        Shape::Open { rate } => Some(Arc::new(Mutex::new(Arrivals::new(began, rate, plan.seed)))),
    };
    let (sender, reports) = mpsc::channel();
    let client_count = clients.len();
    for (index, client) in clients.into_iter().enumerate() {
        let worker = Worker {
            client,
            random: fastrand::Rng::with_seed(plan.seed ^ ((index as u64 + 1) << 32)),
            shape: plan.shape,
            arrivals: arrivals.clone(),
            course: Arc::clone(&course),
            free_at: began,
            stop: Arc::clone(&stop),
            meter: meter.clone(),
        };
        let sender = sender.clone();
        thread::Builder::new()
            .name(format!("client-{index}"))
            .spawn(move || {
                // The receiver is gone only where the run has failed already.
                let _ = sender.send(worker.work());
            })?;
    }
    drop(sender);
    let mut marks: Vec<&mut dyn FnMut()> = vec![&mut at_end, &mut at_start];
    let mut gathered: Vec<Report> = Vec::new();
    // The clients may all have ended a moment before the end is noticed here.
    while gathered.len() < client_count || !marks.is_empty() {
        let now = Instant::now();
        gate.look(now, meter.operations());
        let next = if marks.len() == 2 {
            course.from()
        } else {
            course.until()
        };
        if let Some(mark) = marks.pop_if(|_| now >= next) {
            mark();
        }
        if interrupt::is_asked() {
            stop.store(true, Ordering::Relaxed);
            interrupt::check()?;
        }
        if now > course.drained() + HANGING_AFTER {
            stop.store(true, Ordering::Relaxed);
            bail!(
                "{} of {client_count} clients hang: an operation has no answer after {} s",
                client_count - gathered.len(),
                HANGING_AFTER.as_secs()
            );
        }
        match reports.recv_timeout(Duration::from_millis(5)) {
            Ok(Ok(report)) => gathered.push(report),
            Ok(Err(error)) => {
                stop.store(true, Ordering::Relaxed);
                return Err(error.context("an operation failed"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if gathered.len() < client_count => {
                return Err(anyhow!("a client ended without a word"));
            }
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(1)),
        }
    }
    interrupt::check()?;
    let driven = gather(plan, &gathered, arrivals.as_ref(), &course)?;
    let is_settled = gate.is_settled;
    Ok(Driven {
        is_settled,
        ..driven
    })
}

fn gather(
    plan: &LoadPlan,
    reports: &[Report],
    arrivals: Option<&Arc<Mutex<Arrivals>>>,
    course: &Course,
) -> Result<Driven> {
    let (until, drained) = (course.until(), course.drained());
    let mut all = empty_histogram();
    for report in reports {
        all.add(&report.latencies)
            .map_err(|error| anyhow!("latencies cannot be added: {error}"))?;
    }
    let operations = all.len();
    let mut unserved = 0;
    if let Some(arrivals) = arrivals {
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(intended) = arrivals.next_before(until) {
            // It waited at least until now; leaving it out would flatter the storage.
            record(&mut all, drained.saturating_duration_since(intended));
            unserved += 1;
        }
    }
    Ok(Driven {
        operations,
        acknowledged: reports.iter().map(|report| report.acknowledged).sum(),
        duration_s: plan.duration.as_secs_f64(),
        warm_up_s: course.warm_up().as_secs_f64(),
        is_settled: None,
        latency: latency_of(&all),
        kinds: by_kind(reports)?,
        latency_s: reports.iter().map(|report| report.latency_s).sum(),
        under_way_s: reports.iter().map(|report| report.under_way_s).sum(),
        between_s: reports.iter().map(|report| report.between_s).sum(),
        unserved,
        harness_s: reports.iter().map(|report| report.processor_s).sum(),
    })
}

fn by_kind(reports: &[Report]) -> Result<Vec<Latency>> {
    let count = reports.iter().map(|report| report.kinds.len()).max();
    (0..count.unwrap_or(0))
        .map(|kind| {
            let mut all = empty_histogram();
            for own in reports.iter().filter_map(|report| report.kinds.get(kind)) {
                all.add(own)
                    .map_err(|error| anyhow!("latencies cannot be added: {error}"))?;
            }
            Ok(latency_of(&all))
        })
        .collect()
}

fn latency_of(histogram: &Histogram<u64>) -> Latency {
    Latency {
        counts: histogram
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect(),
    }
}

/// Three digits from a microsecond to an hour.
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are those of the library")
}

/// In microseconds, to the nearest.
fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    let us = (latency.as_nanos() + 500) / 1000;
    histogram.saturating_record(u64::try_from(us).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests;
