//! What a sync has told as lost, or would have, and why nothing more can be asked of it.
//!
//! A sync that answers with an error says: of what was written to the file since its last good
//! sync some may be lost. POSIX promises no more ("if the fsync() function fails, outstanding I/O
//! operations are not guaranteed to have been completed"), and does not say what. So each sector
//! that was written since then shows what it held at the last good sync, with any of those writes
//! or holes or without it, until it is written again; a later sync that is good speaks of what is
//! written after the error only. A disk that failed and kept its cache, and one that lost it, cannot
//! be told apart, so both answers are right for both.
//!
//! The same holds where the process or the power ends before a sync could tell: nobody asked for what
//! was written since the last good one. Only where faults may have taken a file's only copy is so
//! little asked; elsewhere data come before the names that speak of them.
//!
//! A database does not ask for more either. PostgreSQL ends with a panic at the first such error and
//! replays its log from the last checkpoint, whose syncs were good; InnoDB ends and recovers from its
//! log and the doublewrite buffer; SQLite rolls its journal back. All of them write what they need
//! again, and believe no block of which a sync told an error.
//!
//! Everything else stays as exact as ever: files that have their copies, what a file held at its last
//! good sync where nothing was written since, and whatever is written from here on. And no sector
//! shows anything but what was once written to it.

use std::collections::BTreeMap;

use super::{Event, SECTOR_BYTES, index};

/// A sector.
type Bytes = Vec<u8>;

/// Sectors of a file that may show one of several states, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Undecided {
    /// The operation whose states these are.
    since: u64,
    sectors: BTreeMap<u64, Vec<Bytes>>,
}

impl Undecided {
    pub(super) fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// A sync told of a loss. `certain` are the bytes at the last good sync, `lost` what came since.
    pub(super) fn tell(&mut self, operation: u64, certain: &[u8], lost: &[Event], length: usize) {
        let sectors = length.div_ceil(SECTOR_BYTES) as u64;
        for number in 0..sectors {
            let start = number * SECTOR_BYTES as u64;
            let touches = |event: &&Event| {
                event.offset_bytes < start + SECTOR_BYTES as u64 && event.end_bytes() > start
            };
            let touching: Vec<&Event> = lost.iter().filter(touches).collect();
            if touching.is_empty() && !self.sectors.contains_key(&number) {
                continue;
            }
            let mut states = self.sectors.remove(&number).unwrap_or_default();
            let mut held = vec![0; SECTOR_BYTES];
            let from = index(start).min(certain.len());
            let to = (from + SECTOR_BYTES).min(certain.len());
            held[..to - from].copy_from_slice(&certain[from..to]);
            add(&mut states, held);
            for event in touching {
                for mut state in states.clone() {
                    event.apply_within(start, &mut state);
                    add(&mut states, state);
                }
            }
            self.sectors.insert(number, states);
        }
        self.since = operation;
    }

    /// Everything in `events` has become certain; `current` are the bytes with it.
    pub(super) fn settle(&mut self, operation: u64, events: &[Event], current: &[u8]) {
        let since = self.since;
        self.sectors.retain(|number, states| {
            let start = number * SECTOR_BYTES as u64;
            let mut settled = Vec::new();
            for mut state in std::mem::take(states) {
                for event in events.iter().filter(|event| event.operation > since) {
                    event.apply_within(start, &mut state);
                }
                add(&mut settled, state);
            }
            *states = settled;
            let from = index(start).min(current.len());
            let to = (from + SECTOR_BYTES).min(current.len());
            let is_as_known = |state: &Bytes| state[..to - from] == current[from..to];
            from < to && !states.iter().all(is_as_known)
        });
        self.since = operation;
    }

    /// Whether the sector at `start`, or the part of it that was found, may show this, where
    /// everything up to `certain` has happened and anything later may have.
    pub(super) fn may_show(
        &self,
        start: u64,
        found: &[u8],
        events: &[Event],
        certain: u64,
    ) -> bool {
        let sector_start = start - start % SECTOR_BYTES as u64;
        let skip = index(start - sector_start);
        let Some(states) = self.sectors.get(&(sector_start / SECTOR_BYTES as u64)) else {
            return false;
        };
        let after: Vec<&Event> = (events.iter())
            .filter(|event| event.operation > self.since)
            .collect();
        states.iter().any(|state| {
            let mut state = state.clone();
            let mut is_shown = false;
            let mut is_certain = true;
            for event in &after {
                if is_certain && event.operation > certain {
                    is_certain = false;
                    is_shown |= state[skip..skip + found.len()] == *found;
                }
                event.apply_within(sector_start, &mut state);
                is_shown |= !is_certain && state[skip..skip + found.len()] == *found;
            }
            is_shown || state[skip..skip + found.len()] == *found
        })
    }
}

fn add(states: &mut Vec<Bytes>, state: Bytes) {
    if !states.contains(&state) {
        states.push(state);
    }
}
