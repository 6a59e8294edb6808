//! Progress on the terminal: a line a run, with what is left.

use std::time::Duration;

use crate::measure::run::{Listener, outcome_line};
use crate::outlet::put;
use crate::record::{PlannedRun, Run};
use crate::say;

/// Prints.
#[derive(Debug, Default)]
pub(super) struct Progress;

impl Listener for Progress {
    fn tell(&mut self, line: &str) {
        say!("{line}");
    }

    fn begin(&mut self, run: &PlannedRun, title: &str, index: usize, of: usize) {
        put(format_args!(
            "[{index}/{of}] block {}, {title}: {} ... ",
            run.block, run.label
        ));
    }

    fn end(&mut self, run: &Run, left: Option<Duration>) {
        let left = left.map_or(String::new(), |left| format!("  ({} left)", show(left)));
        say!("{}{left}", outcome_line(run));
    }
}

/// A length of time for a person.
pub(super) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 90 {
        format!("{seconds} s")
    } else if seconds < 5400 {
        format!("{} min", (seconds + 30) / 60)
    } else {
        format!("{} h {} min", seconds / 3600, seconds % 3600 / 60)
    }
}
