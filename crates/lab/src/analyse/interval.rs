//! The interval of a ratio, from few blocks.
//!
//! The unit is the log ratio of two contenders within one block. Because each block runs in random
//! order, whatever disturbs the machine (drift, an outlier) falls on either of the two with equal
//! chance: the differences lie symmetrically around the true log ratio, whatever their
//! distribution. That symmetry is all that this interval assumes. It is the set of ratios which the
//! exact signed-rank distribution (Wilcoxon 1945) does not reject: its ends are order statistics
//! of the averages of all pairs (Walsh), its centre their median (Hodges and Lehmann 1963).
//!
//! Why no bootstrap: resampling five blocks gives intervals that hold the true ratio in four of
//! five experiments, not in nineteen of twenty; `docs/decisions/lab-interval.md` has the figures,
//! and the tests repeat them.

/// Below this no interval of about 95 % exists: four blocks give at most 87.5 %.
pub const BLOCKS_AT_LEAST: usize = 5;

/// The coverage that is aimed at.
const CONFIDENCE: f64 = 0.95;

/// An interval, in the unit of what it was made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The best single value.
    pub centre: f64,
    /// The upper end.
    pub high: f64,
    /// How often such an interval holds the truth, exactly.
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
}

/// The median of the averages of all pairs: as steady as the mean, and not moved by an outlier.
/// `None` for no value.
#[must_use]
pub fn centre(differences: &[f64]) -> Option<f64> {
    let averages = walsh_averages(differences);
    let middle = averages.len() / 2;
    match averages.len() {
        0 => None,
        count if count % 2 == 1 => Some(averages[middle]),
        _ => Some(f64::midpoint(averages[middle - 1], averages[middle])),
    }
}

/// The interval of the centre of `differences`; `None` for fewer than [`BLOCKS_AT_LEAST`].
#[must_use]
pub fn interval(differences: &[f64]) -> Option<Interval> {
    let count = differences.len();
    if count < BLOCKS_AT_LEAST {
        return None;
    }
    let averages = walsh_averages(differences);
    let (cut, confidence) = cut(count);
    Some(Interval {
        low: averages[cut],
        centre: centre(differences)?,
        high: averages[averages.len() - 1 - cut],
        confidence,
    })
}

/// The averages of all pairs, each value with itself included, in order.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, one) in values.iter().enumerate() {
        averages.extend(
            values[index..]
                .iter()
                .map(|other| f64::midpoint(*one, *other)),
        );
    }
    averages.sort_by(f64::total_cmp);
    averages
}

/// How many averages to leave out at each end, and the coverage that is left: the narrowest
/// interval of at least 95 %, or the widest there is.
fn cut(count: usize) -> (usize, f64) {
    let chances = signed_rank_chances(count);
    let mut best = (0, 1.0 - 2.0 * chances[0]);
    let mut tail = 0.0;
    for (index, chance) in chances.iter().enumerate() {
        tail += chance;
        let confidence = 1.0 - 2.0 * tail;
        if confidence < CONFIDENCE {
            break;
        }
        best = (index, confidence);
    }
    best
}

/// The chance of each value of the signed-rank sum of `count` differences: each rank from 1 to
/// `count` is in the sum or not, by a fair coin.
fn signed_rank_chances(count: usize) -> Vec<f64> {
    let largest = count * (count + 1) / 2;
    let mut chances = vec![0.0; largest + 1];
    chances[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..=largest).rev() {
            let with_rank = if sum >= rank {
                chances[sum - rank]
            } else {
                0.0
            };
            chances[sum] = f64::midpoint(chances[sum], with_rank);
        }
    }
    chances
}

#[cfg(test)]
mod tests;
