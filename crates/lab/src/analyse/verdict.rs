//! The one word: faster, slower, equivalent, or nothing that may be said.

use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// What may be said of a contender against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Verdict {
    /// The whole interval is above one and above the noise floor.
    Faster,
    /// The whole interval is below one and below the noise floor.
    Slower,
    /// The whole interval is inside the margin that was declared before.
    Equivalent,
    /// None of these.
    Inconclusive,
    /// There are too few blocks for any of these, or other programs had the machine: the figures are
    /// there to be looked at.
    Look,
}

impl Verdict {
    /// All of them, in the order in which a sentence names them.
    pub const ALL: [Self; 5] = [
        Self::Faster,
        Self::Slower,
        Self::Equivalent,
        Self::Inconclusive,
        Self::Look,
    ];

    /// As the report writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Equivalent => "EQUIVALENT",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Look => "LOOK",
        }
    }
}

impl Verdict {
    /// What is left of it where the figures may be looked at, and nothing be claimed.
    #[must_use]
    pub fn at_most_a_look(self) -> Self {
        match self {
            Self::Faster | Self::Slower | Self::Equivalent | Self::Look => Self::Look,
            Self::Inconclusive => Self::Inconclusive,
        }
    }

    /// What is left of it where something hides a difference, and makes none.
    #[must_use]
    pub fn without_equivalence(self) -> Self {
        match self {
            Self::Equivalent => Self::Look,
            other => other,
        }
    }
}

/// Judges the interval of a ratio. `margin` is 0.05 for 0.95 to 1.05; `floor` is how far the same
/// contender under two names lay apart (0.02 for 2 %): what of the interval is within it is no
/// difference.
#[must_use]
pub fn judge(ratio: Option<Interval>, margin: f64, floor: f64) -> Verdict {
    let Some(ratio) = ratio else {
        return Verdict::Inconclusive;
    };
    if ratio.low >= 1.0 - margin && ratio.high <= 1.0 + margin {
        Verdict::Equivalent
    } else if ratio.low > 1.0 + floor {
        Verdict::Faster
    } else if ratio.high < 1.0 / (1.0 + floor) {
        Verdict::Slower
    } else {
        Verdict::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(low: f64, centre: f64, high: f64) -> Option<Interval> {
        Some(Interval {
            low,
            centre,
            high,
            confidence: 0.95,
        })
    }

    #[test]
    fn each_verdict_has_its_interval() {
        assert_eq!(judge(ratio(1.1, 1.2, 1.3), 0.05, 0.01), Verdict::Faster);
        assert_eq!(judge(ratio(0.7, 0.8, 0.9), 0.05, 0.01), Verdict::Slower);
        assert_eq!(
            judge(ratio(0.98, 1.0, 1.02), 0.05, 0.01),
            Verdict::Equivalent
        );
        assert_eq!(
            judge(ratio(0.9, 1.05, 1.2), 0.05, 0.01),
            Verdict::Inconclusive
        );
        assert_eq!(judge(None, 0.05, 0.01), Verdict::Inconclusive);
    }

    #[test]
    fn a_certain_difference_inside_the_margin_is_equivalent() {
        assert_eq!(
            judge(ratio(1.01, 1.02, 1.03), 0.05, 0.0),
            Verdict::Equivalent
        );
    }

    #[test]
    fn no_difference_is_claimed_that_the_same_contender_shows_against_itself() {
        assert_eq!(
            judge(ratio(1.02, 1.08, 1.14), 0.05, 0.10),
            Verdict::Inconclusive
        );
        assert_eq!(
            judge(ratio(0.85, 0.93, 0.99), 0.05, 0.10),
            Verdict::Inconclusive
        );
    }

    #[test]
    fn an_interval_that_reaches_into_the_noise_floor_is_no_claim_though_its_centre_lies_beyond() {
        assert_eq!(
            judge(ratio(1.03, 1.2, 1.4), 0.05, 0.05),
            Verdict::Inconclusive
        );
        assert_eq!(
            judge(ratio(0.7, 0.8, 0.97), 0.05, 0.05),
            Verdict::Inconclusive
        );
        assert_eq!(judge(ratio(1.06, 1.2, 1.4), 0.05, 0.05), Verdict::Faster);
        assert_eq!(judge(ratio(0.7, 0.8, 0.94), 0.05, 0.05), Verdict::Slower);
    }
}
