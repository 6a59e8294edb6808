//! The interval of a ratio, from few blocks.
//!
//! The unit is the log ratio of two contenders within one block, and what the interval is of is the
//! **middle block**: the ratio that half of all blocks exceed. A block lies above that middle as
//! often as below it, whatever the noise looks like, so that the count of blocks on either side is
//! that of a fair coin. The ends are therefore single blocks, counted from the outside, and no
//! symmetry is assumed: a contender that stalls now and then moves the middle by little, and the
//! interval holds it as often as it says. What the stalls cost is another question, which no interval
//! of twelve blocks answers; `summary::Ratio` tells it beside.
//!
//! Counting gives a few values of coverage only (at twelve blocks 96.1 % and 85.4 %). Between the two
//! that surround 95 % the ends are interpolated (Hettmansperger and Sheather 1986), which hardly
//! depends on the noise either.
//!
//! An experiment makes many comparisons, and what is said of all of them is to hold together. So each
//! interval is as wide as [`Comparisons`] asks for: one of so many may be wrong that all of them are
//! right in 95 of 100 experiments (Bonferroni).
//!
//! Why no signed ranks and no bootstrap: `docs/decisions/lab-interval.md` has the figures, and the
//! tests repeat them.

use super::series::median;
use crate::quantity::as_float;

/// Below this no interval of about 95 % exists: four blocks give at most 87.5 %.
pub const BLOCKS_AT_LEAST: usize = 5;

/// Below this nothing is claimed. From here on two disturbed blocks on one side move no end beyond
/// the blocks that were not disturbed.
pub const BLOCKS_FOR_A_CLAIM: usize = 12;

/// How often all that is said together is to be right.
const CONFIDENCE: f64 = 0.95;

/// How many comparisons are to be right together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparisons(usize);

impl Comparisons {
    /// A comparison that stands for itself.
    pub const ONE: Self = Self(1);

    /// So many; none is as one.
    #[must_use]
    pub fn of(count: usize) -> Self {
        Self(count.max(1))
    }

    /// How many.
    #[must_use]
    pub fn count(self) -> usize {
        self.0
    }

    /// How often the interval of each must hold the truth, so that those of all do in 95 of 100,
    /// however they hang together.
    #[must_use]
    pub fn confidence(self) -> f64 {
        1.0 - (1.0 - CONFIDENCE) / as_float(self.0 as u64)
    }

    /// Fewer blocks give no interval that holds so often, and no claim.
    #[must_use]
    pub fn blocks_for_a_claim(self) -> usize {
        let mut blocks = BLOCKS_FOR_A_CLAIM;
        while coverage(blocks, 0) < self.confidence() {
            blocks += 1;
        }
        blocks
    }
}

/// An interval, in the unit of what it was made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The best single value: the middle one.
    pub centre: f64,
    /// The upper end.
    pub high: f64,
    /// How often such an interval holds the truth.
    pub confidence: f64,
}

impl Interval {
    /// The interval of `exp` of the values: from log ratios to ratios.
    #[must_use]
    pub fn exp(self) -> Self {
        Self {
            low: self.low.exp(),
            centre: self.centre.exp(),
            high: self.high.exp(),
            confidence: self.confidence,
        }
    }

    /// The interval of one over the values: of latencies, where less is better.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self {
            low: 1.0 / self.high,
            centre: 1.0 / self.centre,
            high: 1.0 / self.low,
            confidence: self.confidence,
        }
    }
}

/// The interval of `one` less `other`, two middles that were measured apart: the distances of their
/// ends add up as those of independent errors do (Zou and Donner 2008). It holds the truth at least
/// as often as either of the two holds its own.
#[must_use]
pub fn difference(one: Interval, other: Interval) -> Interval {
    let below = (one.centre - one.low).hypot(other.high - other.centre);
    let above = (one.high - one.centre).hypot(other.centre - other.low);
    let centre = one.centre - other.centre;
    Interval {
        low: centre - below,
        centre,
        high: centre + above,
        confidence: one.confidence.min(other.confidence),
    }
}

/// The middle one. `None` for no value.
#[must_use]
pub fn centre(values: &[f64]) -> Option<f64> {
    median(values)
}

/// The interval of the middle of what `values` were drawn from, which stands for itself; `None` for
/// fewer than [`BLOCKS_AT_LEAST`].
#[must_use]
pub fn interval(values: &[f64]) -> Option<Interval> {
    interval_among(values, Comparisons::ONE)
}

/// The same as one of several: all of them hold together as often as one alone does. Where so few
/// values give no such interval, it is the widest, and tells its own confidence.
#[must_use]
pub fn interval_among(values: &[f64], comparisons: Comparisons) -> Option<Interval> {
    if values.len() < BLOCKS_AT_LEAST {
        return None;
    }
    let mut ordered = values.to_vec();
    ordered.sort_by(f64::total_cmp);
    let ends = Ends::of(ordered.len(), comparisons.confidence());
    let last = ordered.len() - 1;
    let (outer, inner) = (ends.left_out, ends.left_out + 1);
    let between = |outer: f64, inner: f64| outer + ends.inwards * (inner - outer);
    Some(Interval {
        low: between(ordered[outer], ordered[inner]),
        centre: centre(&ordered)?,
        high: between(ordered[last - outer], ordered[last - inner]),
        confidence: ends.confidence,
    })
}

/// Where the ends of an interval lie.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ends {
    /// How many of the outermost values lie outside, on each side.
    left_out: usize,
    /// How far each end lies from the outermost that is left to the next one, from 0 to 1.
    inwards: f64,
    confidence: f64,
}

impl Ends {
    fn of(count: usize, aim: f64) -> Self {
        let wide = |left_out| Self {
            left_out,
            inwards: 0.0,
            confidence: coverage(count, left_out),
        };
        let mut best = wide(0);
        for left_out in 1..count.div_ceil(2) {
            let next = wide(left_out);
            if next.confidence < aim {
                return best.interpolated(count, next.confidence, aim);
            }
            best = next;
        }
        best
    }

    /// Between itself and the interval that leaves out one more, where it covers too much.
    fn interpolated(self, count: usize, next: f64, aim: f64) -> Self {
        if self.confidence <= aim {
            return self;
        }
        let share = (self.confidence - aim) / (self.confidence - next);
        // The rank of the end, from 1, and how many values lie beyond it on the other side.
        let rank = as_float(self.left_out as u64 + 1);
        let others = as_float(count as u64) - rank;
        Self {
            inwards: others * share / (rank + (others - rank) * share),
            confidence: aim,
            ..self
        }
    }
}

/// How often the middle lies within, where so many values are left out on each side: a fair coin
/// that is thrown `count` times must show each of its sides more often than that.
fn coverage(count: usize, left_out: usize) -> f64 {
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for heads in 0..=left_out {
        tail += chance;
        chance *= as_float((count - heads) as u64) / as_float(heads as u64 + 1);
    }
    1.0 - 2.0 * tail
}

/// A confidence in percent, with as many digits as keep it from being rounded to certainty.
#[must_use]
pub fn percent(confidence: f64) -> String {
    let missed = 1.0 - confidence;
    let digits = if missed > 0.0015 {
        1
    } else if missed > 0.000_15 {
        2
    } else {
        4
    };
    format!("{:.digits$} %", confidence * 100.0)
}

/// How often something must happen (a share of all runs) so that it is seen in `blocks` runs with
/// a chance of 95 %. What is rarer may not have been met.
#[must_use]
pub fn rarest_seen(blocks: usize) -> f64 {
    let blocks = as_float(blocks as u64);
    1.0 - (1.0 - CONFIDENCE).powf(1.0 / blocks.max(1.0))
}

#[cfg(test)]
mod tests;
