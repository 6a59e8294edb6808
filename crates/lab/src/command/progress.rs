//! Progress on the terminal: a line a run, with what is left.

use std::io::Write as _;
use std::time::Duration;

use crate::measure::run::{Listener, outcome_line};
use crate::record::{PlannedRun, Run};

/// Prints.
#[derive(Debug, Default)]
pub(super) struct Progress;

impl Listener for Progress {
    fn tell(&mut self, line: &str) {
        println!("{line}");
    }

    fn begin(&mut self, run: &PlannedRun, title: &str, index: usize, of: usize) {
        print!(
            "[{index}/{of}] block {}, {title}: {} ... ",
            run.block, run.label
        );
        // Whoever watches wants to see what runs now, not what ran.
        let _ = std::io::stdout().flush();
    }

    fn end(&mut self, run: &Run, left: Option<Duration>) {
        let left = left.map_or(String::new(), |left| format!("  ({} left)", show(left)));
        println!("{}{left}", outcome_line(run));
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
