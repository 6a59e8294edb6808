//! How much of a group was used when, and when it will be full.
//!
//! A size is noted every ten minutes and kept for a week, so the memory is bounded. The rate is the
//! median of the slopes between all pairs of sizes (Theil and Sen): a large file that comes and goes,
//! or is loaded once, does not change it, and what grows in steps, as by a batch each night, does.
//!
//! The sizes stand on a time axis of their own. Within one boot of the machine the distance between
//! two of them is that of the clock that nobody sets; between two boots it can only be that of the
//! calendar, and where that went backwards what lies before is forgotten. So a clock that is set
//! neither makes up growth nor hides it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::api::forecast::{ForecastReport, ForecastState};

/// How often a size is noted.
const SAMPLE_INTERVAL_S: u64 = 600;
/// How long it is kept.
const WINDOW_S: u64 = 7 * DAY_S;
/// As many as that makes.
const SAMPLES_MOST: usize = (WINDOW_S / SAMPLE_INTERVAL_S) as usize + 1;
/// Fewer say nothing.
const SAMPLES_LEAST: usize = 6;
/// Shorter says nothing.
const KNOWN_LEAST_S: u64 = 3600;
/// Slopes are taken between so many of the sizes at most, spread evenly: 8,128 pairs.
const POINTS_MOST: usize = 128;
/// Slower is steady: no plan reaches that far.
const FILLING_MOST_S: f64 = 10.0 * 365.0 * DAY_S as f64;
const DAY_S: u64 = 86_400;

/// When something was noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    /// The boot of the machine.
    pub(super) boot: String,
    /// Seconds since then, with the time that the machine was suspended.
    pub(super) booted_s: u64,
    /// Seconds since 1970.
    pub(super) time_s: u64,
}

impl Stamp {
    /// Seconds from `earlier` to this; `None` where that cannot be.
    fn since(&self, earlier: &Self) -> Option<u64> {
        match self.boot == earlier.boot {
            true => self.booted_s.checked_sub(earlier.booted_s),
            false => self.time_s.checked_sub(earlier.time_s),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    at_s: u64,
    used_bytes: u64,
}

/// The sizes of a week.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpaceHistory {
    /// When the newest was noted.
    last: Option<Stamp>,
    samples: VecDeque<Sample>,
    /// Made of them whenever there is a new one; it takes longer than being asked should.
    #[serde(skip)]
    growth_bytes_per_s: Option<f64>,
}

impl SpaceHistory {
    /// One that was read from a file; one that cannot be is empty.
    pub(super) fn checked(mut self) -> Self {
        let ascending = self.samples.iter().zip(self.samples.iter().skip(1));
        let is_right = self.samples.len() <= SAMPLES_MOST
            && self.last.is_some() != self.samples.is_empty()
            && ascending
                .into_iter()
                .all(|(one, next)| one.at_s < next.at_s);
        if !is_right {
            return Self::default();
        }
        self.growth_bytes_per_s = self.growth();
        self
    }

    /// Notes what is used where it is time for that; whether it was.
    pub(super) fn note(&mut self, now: Stamp, used_bytes: u64) -> bool {
        let passed_s = self.last.as_ref().map(|last| now.since(last));
        let at_s = match (passed_s, self.samples.back()) {
            (Some(Some(passed_s)), Some(_)) if passed_s < SAMPLE_INTERVAL_S => return false,
            (Some(Some(passed_s)), Some(newest)) => newest.at_s.saturating_add(passed_s),
            _ => {
                self.samples.clear();
                0
            }
        };
        self.samples.push_back(Sample { at_s, used_bytes });
        let is_old = |sample: &Sample| at_s - sample.at_s > WINDOW_S;
        while self.samples.front().is_some_and(is_old) || self.samples.len() > SAMPLES_MOST {
            self.samples.pop_front();
        }
        self.last = Some(now);
        self.growth_bytes_per_s = self.growth();
        true
    }

    fn window_s(&self) -> u64 {
        match (self.samples.front(), self.samples.back()) {
            (Some(first), Some(last)) => last.at_s - first.at_s,
            _ => 0,
        }
    }

    /// The median slope; `None` while too little was seen.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a forecast needs no more than six digits"
    )]
    fn growth(&self) -> Option<f64> {
        if self.samples.len() < SAMPLES_LEAST || self.window_s() < KNOWN_LEAST_S {
            return None;
        }
        let step = self.samples.len().div_ceil(POINTS_MOST);
        // From the newest on: what is now has to be one of them.
        let points: Vec<Sample> = self.samples.iter().rev().step_by(step).copied().collect();
        let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len() / 2);
        for (index, late) in points.iter().enumerate() {
            for early in &points[index + 1..] {
                let bytes = late.used_bytes as f64 - early.used_bytes as f64;
                slopes.push(bytes / (late.at_s - early.at_s) as f64);
            }
        }
        let middle = slopes.len() / 2;
        let (_, median, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
        Some(*median)
    }

    /// When the group will be full that has so much usable for files of so many copies.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a forecast needs no more than six digits, and what is cast is bounded"
    )]
    pub(super) fn forecast(&self, group: &str, usable_bytes: i64, copies: u64) -> ForecastReport {
        let growth = self.growth_bytes_per_s;
        let left_s = growth.map(|growth| usable_bytes as f64 * copies as f64 / growth);
        let (state, full_in_s) = match left_s {
            _ if usable_bytes <= 0 => (ForecastState::Full, Some(0)),
            None => (ForecastState::Unknown, None),
            Some(left_s) if growth > Some(0.0) && left_s <= FILLING_MOST_S => {
                (ForecastState::Filling, Some(left_s as u64))
            }
            Some(_) => (ForecastState::Steady, None),
        };
        ForecastReport {
            group: group.to_owned(),
            state,
            full_in_s,
            growth_bytes_per_day: growth.map(|growth| (growth * DAY_S as f64) as i64),
            window_s: self.window_s(),
        }
    }
}

#[cfg(test)]
mod tests;
