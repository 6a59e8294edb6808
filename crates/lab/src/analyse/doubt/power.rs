//! What is said of cutting its power.

use super::Doubt;

impl Doubt {
    /// What was not seen of its durability, in a sentence.
    pub(super) fn of_the_power(&self) -> String {
        match self {
            Self::NotCut {
                whose,
                reason,
                by_choice,
            } => {
                let then = if *by_choice {
                    "; nothing is claimed of what could have been tried"
                } else {
                    ""
                };
                format!("The power of {whose} was not cut before it was measured: {reason}{then}.")
            }
            Self::CutAtFew {
                whose,
                moments,
                needed,
                by_choice,
            } => {
                let why = if *by_choice {
                    "the file asks for no more"
                } else {
                    "there was no time for more"
                };
                format!(
                    "The power of {whose} was cut at {moments} moments, where {needed} are usual: {why}. What loses something at fewer than {:.0} of 100 moments may not have been met.",
                    rarest(*moments) * 100.0
                )
            }
            _ => String::new(),
        }
    }
}

/// What happens more often than this is met in so many moments with a chance of 95 of 100.
fn rarest(moments: u32) -> f64 {
    1.0 - 0.05_f64.powf(1.0 / f64::from(moments.max(1)))
}
