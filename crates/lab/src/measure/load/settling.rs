//! When the clock runs: the measured time begins once the rate holds still.
//!
//! The measure is that of SNIA's Performance Test Specification: of the last five rounds the best
//! straight line rises or falls by at most a tenth of their mean, and they lie at most a fifth of it
//! apart. The warm-up is the first window; it goes on, a round at a time, until that holds, up to a
//! longest time. What has not settled by then is measured all the same, and told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{DRAIN_AT_MOST, LoadPlan};
use crate::analyse::series::{SLOPE_AT_MOST, SPREAD_AT_MOST, rounds, slope, spread};

/// Rounds of a window.
const ROUNDS: usize = 5;
/// In less a round is noise.
const ROUND_AT_LEAST: Duration = Duration::from_secs(1);
/// The beginning is told to all clients before it comes.
const AHEAD: Duration = Duration::from_millis(20);

/// How long is waited for a steady rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settling {
    /// A fifth of the window that is looked at.
    pub round: Duration,
    /// From the beginning of the load; then it is measured as it is.
    pub at_most: Duration,
}

impl Settling {
    /// With a window as long as the warm-up.
    #[must_use]
    pub fn new(warm_up: Duration, at_most: Duration) -> Self {
        Self {
            round: ROUND_AT_LEAST.max(warm_up / 5),
            at_most,
        }
    }
}

/// Whether the last rounds hold still.
#[must_use]
pub fn is_steady(rates: &[f64]) -> bool {
    let window = rates.len().checked_sub(ROUNDS).map(|from| &rates[from..]);
    window.and_then(rounds).is_some_and(|window| {
        slope(&window).abs() <= SLOPE_AT_MOST && spread(&window) <= SPREAD_AT_MOST
    })
}

/// What holds the measured time back until the rate holds still.
#[derive(Debug)]
pub(super) struct Gate<'a> {
    course: &'a Course,
    warm_up: Duration,
    /// None where it does not wait, or no longer.
    watcher: Option<Watcher>,
    /// See [`super::Driven::is_settled`].
    pub is_settled: Option<bool>,
}

impl<'a> Gate<'a> {
    /// One that is passed at the end of the warm-up where the plan does not settle.
    pub fn before(course: &'a Course, plan: &LoadPlan) -> Self {
        if plan.settling.is_none() {
            course.begin_at(plan.warm_up);
        }
        Self {
            course,
            warm_up: plan.warm_up,
            watcher: plan
                .settling
                .map(|settling| Watcher::new(settling, course.began)),
            is_settled: None,
        }
    }

    /// To be called often, with the operations so far.
    pub fn look(&mut self, now: Instant, operations: u64) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let found = watcher.look(now, self.course.began, self.warm_up, operations);
        if found.is_some() {
            self.is_settled = found;
            self.watcher = None;
            self.course.begin_at(self.course.began.elapsed() + AHEAD);
        }
    }
}

/// The rate of each round so far.
#[derive(Debug)]
struct Watcher {
    settling: Settling,
    round_began: Instant,
    operations: u64,
    rates: Vec<f64>,
}

impl Watcher {
    fn new(settling: Settling, began: Instant) -> Self {
        Self {
            settling,
            round_began: began,
            operations: 0,
            rates: Vec::new(),
        }
    }

    /// Whether the clock may run: steady or not; none while nobody knows and there is time.
    fn look(
        &mut self,
        now: Instant,
        began: Instant,
        warm_up: Duration,
        operations: u64,
    ) -> Option<bool> {
        let length = now.saturating_duration_since(self.round_began);
        if length < self.settling.round {
            return None;
        }
        let grown = crate::quantity::as_float(operations - self.operations);
        self.rates.push(grown / length.as_secs_f64());
        self.round_began = now;
        self.operations = operations;
        let elapsed = now.saturating_duration_since(began);
        if elapsed >= warm_up && is_steady(&self.rates) {
            Some(true)
        } else {
            (elapsed >= self.settling.at_most.max(warm_up)).then_some(false)
        }
    }
}

/// The measured time, which all clients know once it is set.
#[derive(Debug)]
pub(super) struct Course {
    began: Instant,
    duration: Duration,
    /// Nanoseconds after `began`.
    from: AtomicU64,
}

/// Longer than any load: it has not been set.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Course {
    pub fn new(began: Instant, duration: Duration) -> Self {
        Self {
            began,
            duration,
            from: AtomicU64::new(nanoseconds(NEVER)),
        }
    }

    /// Sets the beginning, so long after that of the load.
    pub fn begin_at(&self, after: Duration) {
        self.from.store(nanoseconds(after), Ordering::SeqCst);
    }

    pub fn from(&self) -> Instant {
        self.began + self.warm_up()
    }

    /// From the beginning of the load to that of the measured time.
    pub fn warm_up(&self) -> Duration {
        Duration::from_nanos(self.from.load(Ordering::SeqCst))
    }

    pub fn until(&self) -> Instant {
        self.from() + self.duration
    }

    /// What arrived in time may be served until then.
    pub fn drained(&self) -> Instant {
        self.until() + self.duration.min(DRAIN_AT_MOST)
    }

    pub fn counts(&self, moment: Instant) -> bool {
        let from = self.from();
        moment >= from && moment < from + self.duration
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_rounds_that_hold_still_are_steady_and_none_that_rise_or_break_in() {
        assert!(is_steady(&[100.0, 104.0, 97.0, 102.0, 99.0]));
        assert!(
            !is_steady(&[100.0, 104.0, 97.0, 102.0]),
            "four are no window"
        );
        assert!(!is_steady(&[100.0, 103.0, 106.0, 109.0, 112.0]), "it rises");
        assert!(
            !is_steady(&[100.0, 100.0, 75.0, 100.0, 100.0]),
            "it breaks in"
        );
        assert!(!is_steady(&[0.0; 5]), "nothing is done");
        // Only the last five count.
        assert!(is_steady(&[10.0, 50.0, 100.0, 104.0, 97.0, 102.0, 99.0]));
    }

    /// When the clock runs, and whether it held still, for the rates of rounds of a second.
    fn begins(rate: impl Fn(u32) -> f64, warm_up_s: u64, at_most_s: u64) -> (u64, bool) {
        let began = Instant::now();
        let settling = Settling {
            round: Duration::from_secs(1),
            at_most: Duration::from_secs(at_most_s),
        };
        let mut watcher = Watcher::new(settling, began);
        let mut operations = 0.0;
        for second in 1..1000_u32 {
            operations += rate(second);
            let now = began + Duration::from_secs(u64::from(second));
            let count = crate::quantity::whole(operations).unwrap();
            let warm_up = Duration::from_secs(warm_up_s);
            if let Some(is_steady) = watcher.look(now, began, warm_up, count) {
                return (u64::from(second), is_steady);
            }
        }
        panic!("it never begins");
    }

    #[test]
    fn the_clock_waits_for_a_steady_rate_no_shorter_than_the_warm_up_and_no_longer_than_the_longest_time()
     {
        assert_eq!(begins(|_| 1000.0, 10, 60), (10, true));
        // Rising for twenty seconds, steady then.
        let (at, is_steady) = begins(|second| f64::from(second.min(20)) * 100.0, 10, 60);
        assert!(is_steady && (21..=25).contains(&at), "{at}");
        // Twice as fast every other second.
        assert_eq!(
            begins(|second| f64::from(1 + second % 2) * 500.0, 10, 60),
            (60, false)
        );
        // A longest time below the warm-up is the warm-up.
        assert_eq!(
            begins(|second| f64::from(second * second), 10, 5),
            (10, false)
        );
    }
}
