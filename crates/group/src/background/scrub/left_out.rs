//! What a scrub could not look at, and comes back to.
//!
//! A copy that a disk has yet to be given again, or whose disk is offline, is not compared. It is
//! noted block by block, so that it takes nothing else with it: not the rest of its stretch, and
//! not the other copies of its blocks. When everything else is done it is come back to a few times;
//! what is out of reach even then is told, and the scrub does not count it as done.

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};

/// Entries that are kept; of what is beyond them the bytes are counted.
const ENTRIES_MOST: usize = 1000;

struct Patience {
    wait_ms: u64,
    looks_most: u8,
}

/// Why a copy was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// The disk missed writes and has not been given them again.
    Stale,
    /// The disk is offline.
    Offline,
}

impl LeftOutReason {
    /// As rows and reports have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Offline => "offline",
        }
    }

    /// How long it waits before it is come back to, and how often it is. A disk that lacks writes is
    /// being given them; one that is offline is only waited for as long as a cable may be loose.
    const fn patience(self) -> Patience {
        match self {
            Self::Stale => Patience {
                wait_ms: 40_000,
                looks_most: 3,
            },
            Self::Offline => Patience {
                wait_ms: 5_000,
                looks_most: 1,
            },
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Stale, Self::Offline]
            .into_iter()
            .find(|reason| reason.name() == name)
    }

    /// In words, of the disk.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Stale => "it missed writes there and has not been given them again yet",
            Self::Offline => "it is offline",
        }
    }
}

/// A copy of a range of a file that a scrub did not look at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The file.
    pub file: FileId,
    /// What a person calls it.
    pub title: String,
    /// Where in the file, in bytes.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// The name of the disk whose copy it is.
    pub disk: String,
    /// Why.
    pub reason: LeftOutReason,
}

/// The same by numbers: blocks `[first, end)` of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missed {
    pub file: FileId,
    pub first: u64,
    pub end: u64,
    pub disk: DiskNumber,
    pub reason: LeftOutReason,
}

impl Missed {
    const fn bytes(&self) -> u64 {
        (self.end - self.first) * BLOCK_SIZE_BYTES
    }

    /// Whether the two can be told as one.
    fn joins(&self, other: &Self) -> bool {
        (self.file, self.disk, self.reason) == (other.file, other.disk, other.reason)
            && (self.end == other.first || other.end == self.first)
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    missed: Missed,
    since_ms: u64,
    looks_count: u8,
}

/// A look at what was left out; [`LeftOuts::finish`] ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    pub missed: Missed,
    looks_count: u8,
}

/// All that a run left out.
#[derive(Debug, Default)]
pub struct LeftOuts {
    waiting: Vec<Waiting>,
    looked_at: Vec<Again>,
    /// Come back to often enough.
    given_up: Vec<Missed>,
    beyond_bytes: u64,
}

impl LeftOuts {
    /// As a row has it: it is come back to from the start.
    pub fn of(entries: Vec<Missed>, beyond_bytes: u64) -> Self {
        let waiting = entries.into_iter().map(|missed| Waiting {
            missed,
            since_ms: 0,
            looks_count: 0,
        });
        Self {
            waiting: waiting.collect(),
            beyond_bytes,
            ..Self::default()
        }
    }

    /// Notes what a stretch could not look at.
    pub fn note(&mut self, missed: &[Missed], now_ms: u64) {
        for one in missed {
            let has_room = self.waiting.len() + self.given_up.len() < ENTRIES_MOST;
            let found = (self.waiting.iter_mut())
                .find(|other| other.looks_count == 0 && other.missed.joins(one));
            match found {
                Some(other) => {
                    other.missed.first = other.missed.first.min(one.first);
                    other.missed.end = other.missed.end.max(one.end);
                    other.since_ms = now_ms;
                }
                None if has_room => {
                    self.waiting.push(Waiting {
                        missed: *one,
                        since_ms: now_ms,
                        looks_count: 0,
                    });
                }
                None => self.beyond_bytes += one.bytes(),
            }
        }
    }

    /// A part of at most `blocks_most` blocks of something that has waited long enough.
    pub fn due(&mut self, now_ms: u64, blocks_most: u64) -> Option<Again> {
        let is_due = |one: &Waiting| {
            now_ms.saturating_sub(one.since_ms) >= one.missed.reason.patience().wait_ms
        };
        let place = self.waiting.iter().position(is_due)?;
        let entry = &mut self.waiting[place];
        let mut missed = entry.missed;
        let looks_count = entry.looks_count;
        let cut = (missed.first / blocks_most + 1) * blocks_most;
        if cut < missed.end {
            missed.end = cut;
            entry.missed.first = cut;
        } else {
            self.waiting.swap_remove(place);
        }
        let again = Again {
            missed,
            looks_count,
        };
        self.looked_at.push(again);
        Some(again)
    }

    /// Ends a look: `still` is what of it is still out of reach.
    pub fn finish(&mut self, again: &Again, still: &[Missed], now_ms: u64) {
        self.looked_at.retain(|one| one != again);
        let looks_count = again.looks_count + 1;
        for one in still {
            if looks_count < one.reason.patience().looks_most {
                self.waiting.push(Waiting {
                    missed: *one,
                    since_ms: now_ms,
                    looks_count,
                });
            } else if let Some(other) = self.given_up.iter_mut().find(|other| other.joins(one)) {
                other.first = other.first.min(one.first);
                other.end = other.end.max(one.end);
            } else {
                self.given_up.push(*one);
            }
        }
    }

    /// Whether something is still to be come back to.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.looked_at.is_empty()
    }

    /// All that is left out as things are, in the order of files.
    pub fn all(&self) -> Vec<Missed> {
        let waiting = self.waiting.iter().map(|one| one.missed);
        let looked_at = self.looked_at.iter().map(|one| one.missed);
        let mut all: Vec<Missed> = waiting
            .chain(looked_at)
            .chain(self.given_up.clone())
            .collect();
        all.sort_unstable();
        all
    }

    /// What is beyond the entries that are kept.
    pub const fn beyond_bytes(&self) -> u64 {
        self.beyond_bytes
    }

    /// Bytes of files of which a copy was left out, each byte counted once.
    pub fn bytes(&self) -> u64 {
        let mut bytes = self.beyond_bytes;
        let mut covered = (FileId(0), 0);
        for one in self.all() {
            let from = if one.file == covered.0 {
                one.first.max(covered.1)
            } else {
                one.first
            };
            bytes += one.end.saturating_sub(from) * BLOCK_SIZE_BYTES;
            covered = (one.file, one.end.max(from));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn missed(reason: LeftOutReason) -> Missed {
        Missed {
            file: FileId(7),
            first: 0,
            end: 8,
            disk: DiskNumber(1),
            reason,
        }
    }

    /// When nothing is waited for any more, if each look finds what it says.
    fn ends_ms(first: LeftOutReason, later: LeftOutReason) -> u64 {
        let mut left_outs = LeftOuts::default();
        left_outs.note(&[missed(first)], 0);
        let mut now_ms = 0;
        while left_outs.is_waiting() {
            now_ms += 1_000;
            if let Some(again) = left_outs.due(now_ms, 1024) {
                left_outs.finish(&again, &[missed(later)], now_ms);
            }
        }
        assert_eq!(left_outs.all(), [missed(later)]);
        now_ms
    }

    #[test]
    fn an_offline_disk_holds_a_scrub_up_for_seconds_one_that_catches_up_for_longer() {
        use LeftOutReason::{Offline, Stale};
        assert_eq!(ends_ms(Offline, Offline), 5_000);
        assert_eq!(ends_ms(Stale, Stale), 120_000);
        // It is back at the first look, and being given what it lacks.
        assert_eq!(ends_ms(Offline, Stale), 85_000);
    }
}
