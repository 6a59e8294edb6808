//! Progress on the terminal: a line a run, with its rate each second while it is measured, and with what
//! is left.

mod live;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::live::Live;

use crate::measure::run::{Listener, outcome_line};
use crate::outlet::put;
use crate::record::{PlannedRun, Run};
use crate::say;

/// Prints.
#[derive(Debug)]
pub(super) struct Progress {
    /// Of the results.
    folder: PathBuf,
    /// While a run is under way, and a person watches.
    live: Option<Live>,
}

impl Progress {
    /// Of the experiment in this folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            live: None,
        }
    }
}

impl Listener for Progress {
    fn tell(&mut self, line: &str) {
        self.live = None;
        say!("{line}");
    }

    fn begin(&mut self, run: &PlannedRun, title: &str, index: usize, of: usize) {
        let head = format!(
            "[{index}/{of}] block {}, {title}: {} ... ",
            run.block, run.label
        );
        put(format_args!("{head}"));
        let place = self.folder.join("runs").join(run.folder());
        self.live = io::stdout().is_terminal().then(|| Live::of(place, head));
    }

    fn end(&mut self, run: &Run, left: Option<Duration>) {
        self.live = None;
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
