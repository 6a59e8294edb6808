//! The moments at which operations of an open load are to begin.

use std::time::{Duration, Instant};

/// Poisson arrivals: the times between two are exponentially distributed. The same seed gives the
/// same moments, however the storage does.
#[derive(Debug)]
pub struct Arrivals {
    next: Instant,
    mean_gap_s: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    /// From `began` on, `rate` a second on average.
    #[must_use]
    pub fn new(began: Instant, rate: f64, seed: u64) -> Self {
        let mut arrivals = Self {
            next: began,
            mean_gap_s: 1.0 / rate,
            random: fastrand::Rng::with_seed(seed),
        };
        arrivals.step();
        arrivals
    }

    /// The next one, where it is before `until`; each is given out once.
    pub fn next_before(&mut self, until: Instant) -> Option<Instant> {
        if self.next >= until {
            return None;
        }
        let moment = self.next;
        self.step();
        Some(moment)
    }

    fn step(&mut self) {
        // `f64` gives zero but never one: the logarithm is finite.
        let gap_s = -(1.0 - self.random.f64()).ln() * self.mean_gap_s;
        self.next += Duration::from_secs_f64(gap_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_and_by_chance() {
        let began = Instant::now();
        let until = began + Duration::from_secs(100);
        let mut arrivals = Arrivals::new(began, 500.0, 3);
        let mut moments = Vec::new();
        while let Some(moment) = arrivals.next_before(until) {
            moments.push(moment.duration_since(began).as_secs_f64());
        }
        // 50,000 expected; the deviation of a Poisson count is its root, 224.
        let count = moments.len();
        assert!((49_000..=51_000).contains(&count), "{count}");
        let gaps: Vec<f64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Of an exponential distribution a share of 1/e exceeds its mean.
        let long = gaps.iter().filter(|gap| **gap > 0.002).count() * 1000 / gaps.len();
        assert!((358..=378).contains(&long), "{long}");
    }
}
