//! What the folder's history says against its figures.

use super::{Doubt, NAMES_AT_MOST};

impl Doubt {
    /// What was tried, in a sentence.
    pub(super) fn of_the_past(&self) -> String {
        match self {
            Self::RunsGone { whose, runs } => format!(
                "Measured runs of {whose} are gone ({}): what stands in their place, or does not, was chosen.",
                names(runs)
            ),
            Self::RecordsAltered { whose, runs } => format!(
                "The record of {} of {whose} is not the one that the lab wrote when it was measured ({}).",
                if runs.len() == 1 { "a run" } else { "runs" },
                names(runs)
            ),
            Self::RunsRepeated {
                whose,
                runs,
                of,
                failed,
                stopped,
                ..
            } => format!(
                "{runs} of {of} runs of {whose} were done more than once: {failed} attempts failed and {stopped} were stopped before their end."
            ),
            Self::NotFinished { runs, of } => format!(
                "The experiment is not finished, with {runs} of {of} runs: who ends where it looks well has chosen the end."
            ),
            Self::HistoryBroken { reason } => {
                format!("The folder's history does not tell what was tried: {reason}.")
            }
            Self::BlocksRaised { from, to, seen } => format!(
                "`blocks` was raised from {from} to {to} when {seen} blocks had figures: a verdict was there to be seen, and this is another chance."
            ),
            _ => String::new(),
        }
    }
}

fn names(runs: &[String]) -> String {
    let told = &runs[..runs.len().min(NAMES_AT_MOST)];
    let more = match runs.len() - told.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", told.join(", "))
}
