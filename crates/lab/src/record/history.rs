//! What happened in the folder of an experiment: `history.jsonl`, a line an event, only ever added to.
//!
//! Runs that were measured stay; runs that failed are done again; a run whose folder somebody removed
//! is measured again; more blocks go on where fewer were. Each of these may be how a figure was
//! chosen, so each is noted before it counts. Every line holds a fingerprint of the line before it,
//! and of the record of its run, so that a line that is gone or was changed shows, and a record that
//! is not the one that was measured.
//!
//! A crash may leave half a line, which is no event and holds nothing up. The fingerprints are no
//! secret: whoever rewrites all lines from the first changed one on leaves a history that agrees with
//! itself, and whoever measures in two folders and shows one leaves no trace in it
//! (`docs/lab/README.md` says so).

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Its name in the folder.
pub const FILE: &str = "history.jsonl";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// `run` was started.
    Started {
        /// Seconds since 1970.
        at_unix_s: u64,
        /// Measured runs that were there.
        measured: usize,
    },
    /// So many blocks are to be run from here on.
    Planned {
        /// Seconds since 1970.
        at_unix_s: u64,
        /// How many.
        blocks: u32,
        /// In how many there were figures to be compared by then.
        seen: u32,
    },
    /// The power of a contender was cut.
    Cut {
        /// Seconds since 1970.
        at_unix_s: u64,
        /// Whose.
        contender: String,
        /// At how many moments.
        moments: u32,
        /// After how many of them something was lost.
        lost: usize,
    },
    /// A run begins.
    Began {
        /// Seconds since 1970.
        at_unix_s: u64,
        /// The name of its folder.
        run: String,
        /// From 1.
        attempt: usize,
    },
    /// It ended; one that has no such line was stopped.
    Ended {
        /// Seconds since 1970.
        at_unix_s: u64,
        /// The name of its folder.
        run: String,
        /// As it began.
        attempt: usize,
        /// What it reached; none where it failed.
        rate: Option<f64>,
        /// Why it failed.
        reason: Option<String>,
        /// Of its `run.json`.
        record: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    event: Event,
    /// Of the line before it.
    after: String,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// In their order; empty where there is no such file.
    pub events: Vec<Event>,
    /// Whether each line follows the one that it was written after.
    pub is_whole: bool,
}

impl History {
    /// Reads that of a folder; one without the file has no events.
    ///
    /// # Errors
    /// Where it is there and cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        Ok(parse(&text(folder)?).0)
    }

    /// Adds an event to that of a folder, durably.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn append(folder: &Path, event: Event) -> Result<()> {
        let there = text(folder)?;
        let line = Line {
            event,
            after: parse(&there).1,
        };
        let mut added = String::new();
        if !there.is_empty() && !there.ends_with('\n') {
            // Half a line of a crash.
            added.push('\n');
        }
        added.push_str(&serde_json::to_string(&line)?);
        added.push('\n');
        let path = folder.join(FILE);
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.write_all(added.as_bytes())
            .and_then(|()| file.sync_data())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// How often a run has begun.
    #[must_use]
    pub fn attempts(&self, name: &str) -> usize {
        let is_it = |event: &&Event| matches!(event, Event::Began { run, .. } if run == name);
        self.events.iter().filter(is_it).count()
    }
}

/// The events, and the fingerprint of the last line.
fn parse(text: &str) -> (History, String) {
    let mut history = History {
        events: Vec::new(),
        is_whole: true,
    };
    let mut last = fingerprint("");
    for line in text.lines() {
        let Ok(read) = serde_json::from_str::<Line>(line) else {
            continue;
        };
        history.is_whole &= read.after == last;
        last = fingerprint(line);
        history.events.push(read.event);
    }
    (history, last)
}

fn text(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Tells one text from another; it is no secret and no proof (FNV-1a, 64 bits).
#[must_use]
pub fn fingerprint(text: &str) -> String {
    let digest = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(name: &str) -> Event {
        Event::Began {
            at_unix_s: 1,
            run: name.to_owned(),
            attempt: 1,
        }
    }

    #[test]
    fn what_is_added_is_read_in_its_order_and_half_a_line_of_a_crash_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        assert_eq!(History::read(here).unwrap().events, []);
        History::append(here, began("0001-ext4")).unwrap();
        let path = here.join(FILE);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{{\"event\":\"began\",\"at_u")).unwrap();
        History::append(here, began("0002-xfs")).unwrap();
        History::append(here, began("0002-xfs")).unwrap();
        let history = History::read(here).unwrap();
        assert_eq!(
            history.events,
            [began("0001-ext4"), began("0002-xfs"), began("0002-xfs")]
        );
        assert!(history.is_whole);
        assert_eq!(history.attempts("0002-xfs"), 2);
    }

    #[test]
    fn a_line_that_is_gone_or_was_changed_or_added_shows() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        for name in ["one", "two", "three"] {
            History::append(here, began(name)).unwrap();
        }
        let path = here.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let is_whole = |lines: &[&str]| {
            fs::write(&path, lines.join("\n") + "\n").unwrap();
            History::read(here).unwrap().is_whole
        };
        assert!(is_whole(&lines));
        assert!(!is_whole(&[lines[0], lines[2]]), "one is gone");
        assert!(!is_whole(&lines[1..]), "the first is gone");
        let changed = lines[1].replace("two", "2");
        assert!(!is_whole(&[lines[0], &changed, lines[2]]));
        assert!(!is_whole(&[lines[0], lines[1], lines[1], lines[2]]));
        // The end has nothing after it that would miss it: the records of the runs do.
        assert!(is_whole(&lines[..2]));
    }
}
