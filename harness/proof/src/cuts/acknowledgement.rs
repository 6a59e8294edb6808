//! What a client was told, when; and what must therefore be there after a cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Something that a client asked for or was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A client's commit of this number was acknowledged.
    Committed {
        /// Which client.
        client: u32,
        /// Its commits are numbered 1, 2, 3, ...
        number: u64,
    },
    /// A table was made and filled, acknowledged.
    Created(u64),
    /// The removal of a table was about to be asked for: from here on it may be gone.
    DropAsked(u64),
    /// Its removal was acknowledged.
    Dropped(u64),
}

/// An event and its time by CLOCK_MONOTONIC, which is the recorder's clock too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds.
    pub at_ns: u64,
    /// What.
    pub event: Event,
}

/// The recorder's clock.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
    // The clock counts from the start of the machine: neither part is ever negative.
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

/// The log as text, a line an entry.
pub fn to_text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for Entry { at_ns, event } in entries {
        // Writing to a string cannot fail.
        let _ = match event {
            Event::Committed { client, number } => {
                writeln!(text, "{at_ns} committed {client} {number}")
            }
            Event::Created(round) => writeln!(text, "{at_ns} created {round} 0"),
            Event::DropAsked(round) => writeln!(text, "{at_ns} drop-asked {round} 0"),
            Event::Dropped(round) => writeln!(text, "{at_ns} dropped {round} 0"),
        };
    }
    text
}

/// The log from its text.
pub fn from_text(text: &str) -> Result<Vec<Entry>> {
    text.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [at_ns, kind, first, second] = fields[..] else {
                bail!("not a line of the log: {line}");
            };
            let first: u64 = first.parse().context("not a number")?;
            let event = match kind {
                "committed" => Event::Committed {
                    client: u32::try_from(first)?,
                    number: second.parse()?,
                },
                "created" => Event::Created(first),
                "drop-asked" => Event::DropAsked(first),
                "dropped" => Event::Dropped(first),
                _ => bail!("not a line of the log: {line}"),
            };
            Ok(Entry {
                at_ns: at_ns.parse()?,
                event,
            })
        })
        .collect()
}

/// What must be there after a cut.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The last acknowledged commit of each client.
    pub commits: BTreeMap<u32, u64>,
    /// Tables that must be there.
    pub tables: BTreeSet<u64>,
    /// Tables that must not be there.
    pub gone: BTreeSet<u64>,
}

impl Expected {
    /// From what had happened up to `cut_ns`.
    pub fn at(entries: &[Entry], cut_ns: u64) -> Self {
        let mut expected = Self::default();
        for entry in entries.iter().filter(|entry| entry.at_ns <= cut_ns) {
            match entry.event {
                Event::Committed { client, number } => {
                    expected.commits.insert(client, number);
                }
                Event::Created(round) => {
                    expected.tables.insert(round);
                }
                Event::DropAsked(round) => {
                    expected.tables.remove(&round);
                }
                Event::Dropped(round) => {
                    expected.gone.insert(round);
                }
            }
        }
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Vec<Entry> {
        let events = [
            Event::Committed {
                client: 2,
                number: 1,
            },
            Event::Created(7),
            Event::Committed {
                client: 2,
                number: 2,
            },
            Event::DropAsked(7),
            Event::Dropped(7),
        ];
        (10..)
            .step_by(10)
            .zip(events)
            .map(|(at_ns, event)| Entry { at_ns, event })
            .collect()
    }

    #[test]
    fn the_log_comes_back_from_its_text() {
        assert_eq!(from_text(&to_text(&log())).unwrap(), log());
        assert!(from_text("10 committed 2").is_err());
        assert!(from_text("10 heard 2 1").is_err());
    }

    #[test]
    fn what_was_told_before_the_cut_is_expected_and_nothing_later() {
        let before = Expected::at(&log(), 29);
        assert_eq!(before.commits, BTreeMap::from([(2, 1)]));
        assert_eq!(before.tables, BTreeSet::from([7]));
        assert!(before.gone.is_empty());
    }

    #[test]
    fn a_table_whose_removal_was_asked_for_may_be_there_or_not() {
        let asked = Expected::at(&log(), 40);
        assert!(asked.tables.is_empty());
        assert!(asked.gone.is_empty());
        assert_eq!(Expected::at(&log(), 50).gone, BTreeSet::from([7]));
    }
}
