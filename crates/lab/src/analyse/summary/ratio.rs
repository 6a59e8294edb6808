//! A ratio over the blocks: its interval, and what the interval does not hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analyse::doubt::Doubt;
use crate::analyse::interval::{Comparisons, Interval, centre, interval_among};
use crate::analyse::series::median;
use crate::analyse::verdict::{Verdict, judge};

/// A ratio of two contenders, and its interval over the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The lower end; none for too few blocks.
    pub low: Option<f64>,
    /// That of the middle block.
    pub centre: f64,
    /// The upper end.
    pub high: Option<f64>,
    /// How often such an interval holds that of the middle of all blocks there could be.
    pub confidence: Option<f64>,
    /// How many intervals are made so wide that all of them hold together in 95 of 100 experiments;
    /// one in records from before that was done.
    #[serde(default = "alone")]
    pub comparisons: usize,
    /// Whole blocks that it rests on.
    pub blocks: usize,
    /// Of all blocks together: the sum of the one over the sum of the other.
    pub together: f64,
    /// Blocks whose ratio lies far below that of the middle one.
    pub far_below: usize,
    /// Blocks whose ratio lies far above that of the middle one.
    pub far_above: usize,
}

fn alone() -> usize {
    Comparisons::ONE.count()
}

/// What one and the other reached, by block.
pub(super) type Pairs = BTreeMap<u32, (f64, f64)>;

/// The two where a block has both.
pub(super) fn of_pairs(one: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> Pairs {
    one.iter()
        .filter_map(|(block, value)| Some((*block, (*value, *other.get(block)?))))
        .collect()
}

/// Nearer to the middle than this no block is far from it.
const FAR_AT_LEAST: f64 = 0.10;

/// So many deviations from the middle is far; the deviation is that of a normal distribution with
/// the same median distance, which few far blocks do not move.
const FAR_DEVIATIONS: f64 = 3.0 * 1.4826;

/// The ratio of the first of each pair to the second, as one of so many comparisons; `None` for no
/// pairs.
pub(super) fn ratio(pairs: &[(f64, f64)], comparisons: Comparisons) -> Option<Ratio> {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(one, other)| (one / other).ln())
        .collect();
    let middle = centre(&logs)?;
    let found = interval_among(&logs, comparisons).map(Interval::exp);
    let distances: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let far = (FAR_DEVIATIONS * median(&distances)?).max(FAR_AT_LEAST);
    let (one, other) = pairs
        .iter()
        .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    Some(Ratio {
        low: found.map(|found| found.low),
        centre: middle.exp(),
        high: found.map(|found| found.high),
        confidence: found.map(|found| found.confidence),
        comparisons: comparisons.count(),
        blocks: logs.len(),
        together: one / other,
        far_below: logs.iter().filter(|log| *log - middle < -far).count(),
        far_above: logs.iter().filter(|log| *log - middle > far).count(),
    })
}

impl Ratio {
    pub(super) fn interval(&self) -> Option<Interval> {
        Some(Interval {
            low: self.low?,
            centre: self.centre,
            high: self.high?,
            confidence: self.confidence?,
        })
    }

    /// Fewer blocks give no claim that holds together with the others.
    #[must_use]
    pub fn blocks_for_a_claim(&self) -> usize {
        Comparisons::of(self.comparisons).blocks_for_a_claim()
    }

    /// The same with ends that lie further out by this share.
    pub(super) fn widened(self, share: f64) -> Self {
        Self {
            low: self.low.map(|low| low / (1.0 + share)),
            high: self.high.map(|high| high * (1.0 + share)),
            ..self
        }
    }

    /// How far it may lie from one, either way.
    pub(super) fn reach(&self) -> f64 {
        let ends = [
            self.low.unwrap_or(self.centre),
            self.high.unwrap_or(self.centre),
        ];
        ends.map(|end| end.ln().abs())
            .into_iter()
            .fold(0.0, f64::max)
            .exp_m1()
    }

    /// Whether it lies apart from one, beyond chance and beyond what matters: of the baseline and
    /// its second name that is a machine which nothing can be measured on.
    pub(super) fn differs(&self) -> bool {
        self.interval().is_some_and(|noise| {
            (noise.low > 1.0 || noise.high < 1.0) && (noise.centre - 1.0).abs() > 0.01
        })
    }

    /// What may be said of it, where more is better, and what forbids to say it.
    pub(super) fn judged(&self, margin: f64, floor: f64) -> (Verdict, Option<Doubt>) {
        self.judged_by(self.interval(), self.together, margin, floor)
    }

    /// The same where less is better: faster is what takes less time.
    pub(super) fn judged_as_time(&self, margin: f64, floor: f64) -> (Verdict, Option<Doubt>) {
        let interval = self.interval().map(Interval::inverse);
        self.judged_by(interval, 1.0 / self.together, margin, floor)
    }

    fn judged_by(
        &self,
        interval: Option<Interval>,
        together: f64,
        margin: f64,
        floor: f64,
    ) -> (Verdict, Option<Doubt>) {
        if interval.is_some() && self.blocks < self.blocks_for_a_claim() {
            return (Verdict::Look, None);
        }
        let verdict = judge(interval, margin, floor);
        let agrees = match verdict {
            Verdict::Faster => together > 1.0,
            Verdict::Slower => together < 1.0,
            Verdict::Equivalent => (1.0 - margin..=1.0 + margin).contains(&together),
            Verdict::Inconclusive | Verdict::Look => true,
        };
        if agrees {
            return (verdict, None);
        }
        let doubt = Doubt::StallsDecide {
            middle: self.centre,
            together: self.together,
        };
        (Verdict::Inconclusive, Some(doubt))
    }
}

#[cfg(test)]
mod tests;
