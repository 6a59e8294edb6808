//! The event log: the newest events of each severity, in the group itself.
//!
//! Rows of the catalog, so the log travels with the disks and needs no file beside them. They
//! join the lazy batch: keeping an event does no I/O and waits for none. A crash loses at most
//! the events since the last commit; a critical one makes the next step commit at once, and a
//! close in order loses nothing.
//!
//! The log is bounded twice. Each severity has a ring of its own, so that a storm of repaired
//! blocks does not push out that a disk was lost. And of each kind only so many are kept at one
//! time, the rest is summed up in a line: a disk that fails every request must not fill the
//! batch with the news of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Catalog, CatalogError, Edit, Table};
use spindle_format::{EventRecord, Severity};
use spindle_sync::level::LeafMutex;

use crate::core::Core;
use crate::error::GroupError;
use crate::event::{Event, EventKind};

/// The most events of one severity that are kept.
const RING_EVENTS_MOST: usize = 2048;
/// How many events of one kind are kept at once before the rest is summed up.
const BURST_EVENTS: u32 = 32;
/// After a burst one more of the kind is kept each time this has passed.
const REFILL_MS: u64 = 1000;
/// How often a storm that goes on is summed up.
const SUMMARY_MS: u64 = 10_000;
/// How often what a dead disk costs is told after the first time: each request fails, and one line
/// with the counts says more than a line for each.
const DEAD_DISK_MS: u64 = 60_000;
/// How many files a line names.
const NAMED_FILES_MOST: usize = 16;

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEvent {
    /// Its number: it grows with each event of the group.
    pub number: u64,
    /// What happened, when, and on which host.
    pub record: EventRecord,
}

/// What the log remembers in memory: which rows there are, and how fast events come.
#[derive(Debug, Default)]
pub(crate) struct EventLog(LeafMutex<State>);

#[derive(Debug, Default)]
struct State {
    newest_number: u64,
    /// The numbers of the rows of each severity, the oldest first.
    rings: [VecDeque<u64>; Severity::ALL.len()],
    floods: BTreeMap<Source, Flood>,
}

/// What the events of a flood have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    kind: &'static str,
    /// The disk whose requests fail; `None` for kinds of which a storm is one, whatever the disk.
    failing: Option<DiskNumber>,
}

/// How many events of a kind are kept, and how fast.
#[derive(Debug, Clone, Copy)]
struct Pace {
    burst: u32,
    refill_ms: u64,
    summary_ms: u64,
}

impl Pace {
    fn of(kind: EventKind) -> Self {
        if is_of_dead_disk(kind) {
            return Self {
                burst: 1,
                refill_ms: DEAD_DISK_MS,
                summary_ms: DEAD_DISK_MS,
            };
        }
        Self {
            burst: BURST_EVENTS,
            refill_ms: REFILL_MS,
            summary_ms: SUMMARY_MS,
        }
    }
}

/// Whether a disk that is dead makes an event of the kind with each request.
const fn is_of_dead_disk(kind: EventKind) -> bool {
    matches!(kind, EventKind::WriteFailed | EventKind::FlushFailed)
}

/// How fast the events of one kind come.
#[derive(Debug)]
struct Flood {
    tokens: u32,
    refilled_ms: u64,
    left_out_count: u64,
    severity: Severity,
    summed_up_ms: u64,
    pace: Pace,
    /// The files that those left out concern.
    files: BTreeSet<FileId>,
}

fn key(severity: Severity, number: u64) -> Vec<u8> {
    let mut key = vec![severity.code()];
    key.extend(number.to_be_bytes());
    key
}

fn parse_key(key: &[u8]) -> Option<(Severity, u64)> {
    let (code, number) = key.split_first()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    Some((Severity::from_code(*code)?, number))
}

const fn ring_of(severity: Severity) -> usize {
    match severity {
        Severity::Info => 0,
        Severity::Warning => 1,
        Severity::Critical => 2,
    }
}

impl EventLog {
    /// Finds the rows that there are.
    pub(crate) fn open(catalog: &Catalog) -> Result<Self, CatalogError> {
        let mut state = State::default();
        catalog.scan(Table::Event, &mut |bytes, _| {
            // A row that is none is left alone: the log is for people, no group fails for it.
            if let Some((severity, number)) = parse_key(bytes) {
                state.rings[ring_of(severity)].push_back(number);
                state.newest_number = state.newest_number.max(number);
            }
            Ok(())
        })?;
        Ok(Self(LeafMutex::new(state)))
    }
}

/// The files, named as far as a line bears it.
fn of_files(files: &BTreeSet<FileId>) -> String {
    if files.is_empty() {
        return String::new();
    }
    let named: Vec<String> = (files.iter().take(NAMED_FILES_MOST))
        .map(ToString::to_string)
        .collect();
    let more = match files.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more files"),
    };
    format!(", of files {}{more},", named.join(", "))
}

impl State {
    /// Whether one more event of the kind is kept now.
    fn admits(&mut self, event: &Event, now_ms: u64) -> bool {
        let source = Source {
            kind: event.kind.name(),
            failing: event.disk.filter(|_| is_of_dead_disk(event.kind)),
        };
        let pace = Pace::of(event.kind);
        let flood = self.floods.entry(source).or_insert(Flood {
            tokens: pace.burst,
            refilled_ms: now_ms,
            left_out_count: 0,
            severity: event.severity,
            summed_up_ms: now_ms,
            pace,
            files: BTreeSet::new(),
        });
        // A clock that was set back must not hold events back.
        if now_ms < flood.refilled_ms {
            flood.refilled_ms = now_ms;
        }
        let refill = (now_ms - flood.refilled_ms) / pace.refill_ms;
        flood.refilled_ms += refill * pace.refill_ms;
        let refill = u32::try_from(refill).unwrap_or(pace.burst);
        flood.tokens = flood.tokens.saturating_add(refill).min(pace.burst);
        if flood.tokens == 0 {
            if flood.left_out_count == 0 {
                flood.summed_up_ms = now_ms;
            }
            flood.left_out_count += 1;
            flood.severity = flood.severity.max(event.severity);
            flood.files.extend(event.file);
            return false;
        }
        flood.tokens -= 1;
        true
    }

    /// Lines for what was left out, of storms that are due to be summed up.
    fn summaries(&mut self, now_ms: u64, all: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (source, flood) in &mut self.floods {
            let due = all || now_ms.abs_diff(flood.summed_up_ms) >= flood.pace.summary_ms;
            if flood.left_out_count == 0 || !due {
                continue;
            }
            let message = format!(
                "{} further events of the kind {}{} came faster than they are kept; the log of \
                 the process has them",
                flood.left_out_count,
                source.kind,
                of_files(&std::mem::take(&mut flood.files)),
            );
            let mut event = Event::new(EventKind::EventsLeftOut, message).severity(flood.severity);
            event.disk = source.failing;
            events.push(event);
            flood.left_out_count = 0;
            flood.summed_up_ms = now_ms;
        }
        events
    }

    fn keep(&mut self, event: Event, now_ms: u64, host: &str, edit: &mut Edit) -> KeptEvent {
        let record = EventRecord {
            severity: event.severity,
            disk: event.disk,
            time_ms: now_ms,
            file: event.file,
            kind: event.kind.name().to_owned(),
            host: host.to_owned(),
            message: event.message,
        };
        self.enter(record, edit)
    }

    fn enter(&mut self, record: EventRecord, edit: &mut Edit) -> KeptEvent {
        self.newest_number += 1;
        let number = self.newest_number;
        edit.put(Table::Event, key(record.severity, number), record.encode());
        let ring = &mut self.rings[ring_of(record.severity)];
        ring.push_back(number);
        while ring.len() > RING_EVENTS_MOST {
            if let Some(oldest) = ring.pop_front() {
                edit.delete(Table::Event, key(record.severity, oldest));
            }
        }
        KeptEvent { number, record }
    }
}

impl Core {
    /// Takes what happened since the last call into the log, as of `now_ms` (since 1970) on
    /// `host`, and gives back what was kept of it. Without I/O: the rows join the batch, and
    /// where one is critical the next step commits it. To be called often, also where nothing
    /// happened: a storm is summed up by it, at once where `closing`.
    pub fn keep_events(&self, now_ms: u64, host: &str, closing: bool) -> Vec<KeptEvent> {
        let events = self.take_events();
        let mut edit = Edit::default();
        let mut kept = Vec::new();
        {
            let mut state = self.event_log.0.lock();
            for event in events {
                if state.admits(&event, now_ms) {
                    kept.push(state.keep(event, now_ms, host, &mut edit));
                }
            }
            for event in state.summaries(now_ms, closing) {
                kept.push(state.keep(event, now_ms, host, &mut edit));
            }
        }
        if edit.is_empty() {
            return kept;
        }
        let change = self.change_inside();
        self.apply(&change, edit);
        drop(change);
        if (kept.iter()).any(|event| event.record.severity == Severity::Critical) {
            self.commit_soon();
        }
        kept
    }

    /// Takes events into the log that a former process told while no disk took anything, with the
    /// times and hosts that they had; those that the log has already are passed over. As
    /// [`Core::keep_events`], without I/O beyond the look into the log.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub fn keep_former_events(&self, records: Vec<EventRecord>) -> Result<(), GroupError> {
        let known = self.kept_events(0, Severity::Info)?;
        let mut edit = Edit::default();
        {
            let mut state = self.event_log.0.lock();
            for record in records {
                if known.iter().all(|event| event.record != record) {
                    state.enter(record, &mut edit);
                }
            }
        }
        if !edit.is_empty() {
            let change = self.change_inside();
            self.apply(&change, edit);
            drop(change);
            self.commit_soon();
        }
        Ok(())
    }

    /// The events of the log with a number beyond `after`, of at least that severity, the oldest
    /// first. A row that cannot be understood is passed over.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub fn kept_events(&self, after: u64, least: Severity) -> Result<Vec<KeptEvent>, GroupError> {
        let mut events = Vec::new();
        for severity in Severity::ALL.into_iter().filter(|each| *each >= least) {
            let from = key(severity, after.saturating_add(1));
            let to = [severity.code() + 1];
            let rows = self.range(Table::Event, &from, &to, 2 * RING_EVENTS_MOST)?;
            events.extend(rows.iter().filter_map(|(key, value)| {
                let (_, number) = parse_key(key)?;
                let record = EventRecord::parse(value).ok()?;
                Some(KeptEvent { number, record })
            }));
        }
        events.sort_by_key(|event| event.number);
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use spindle_catalog::Edit;
    use spindle_format::Severity;

    use spindle_base::{DiskNumber, FileId};

    use super::{BURST_EVENTS, RING_EVENTS_MOST, State};
    use crate::event::{Event, EventKind};

    #[test]
    fn a_dead_disk_is_one_event_and_then_counted_with_the_files_that_it_cost() {
        let mut state = State::default();
        let failed = |disk, file| {
            Event::new(EventKind::WriteFailed, "no copy took a write")
                .disk(DiskNumber(disk))
                .file(FileId(file))
        };
        let mut kept_count = 0;
        for round in 0..1000 {
            let event = failed(1, 7 + round % 3);
            kept_count += usize::from(state.admits(&event, 5000 + round));
        }
        assert_eq!(kept_count, 1, "one for the disk");
        assert!(state.admits(&failed(2, 7), 6000), "of each disk");
        assert!(state.summaries(30_000, false).is_empty(), "not yet");
        let summary = state.summaries(70_000, false).remove(0);
        assert_eq!(summary.kind, EventKind::EventsLeftOut);
        assert_eq!(summary.severity, Severity::Critical);
        assert_eq!(summary.disk, Some(DiskNumber(1)));
        assert!(summary.message.starts_with("999 further"), "{summary}");
        assert!(summary.message.contains("of files 7, 8, 9"), "{summary}");
        for file in 0..100 {
            state.admits(&failed(2, file), 6000);
        }
        let summary = state.summaries(70_000, true).remove(0);
        assert!(summary.message.contains("and 84 more files"), "{summary}");
    }

    #[test]
    fn a_storm_is_kept_in_part_and_summed_up() {
        let mut state = State::default();
        let kind = EventKind::BlockRepaired;
        let admitted = (0..1000)
            .filter(|_| state.admits(&Event::new(kind, "a block"), 5000))
            .count();
        assert_eq!(admitted, BURST_EVENTS as usize);
        assert!(
            state.admits(&Event::new(EventKind::DiskOffline, "disk 1"), 5000),
            "another kind is not held back"
        );
        assert!(state.summaries(6000, false).is_empty(), "not yet");
        let summary = state.summaries(20_000, false).remove(0);
        assert!(summary.message.starts_with("968 further"), "{summary}");
        assert_eq!(summary.severity, Severity::Warning);
        assert!(state.summaries(60_000, true).is_empty(), "told once");
        assert!(
            state.admits(&Event::new(kind, "a block"), 60_000),
            "after a pause all is as before"
        );
        assert!(
            state.admits(&Event::new(kind, "a block"), 10),
            "a clock set back"
        );
    }

    #[test]
    fn each_severity_makes_room_among_its_own() {
        let mut state = State::default();
        let mut edit = Edit::default();
        let lost = Event::new(EventKind::DiskOffline, "disk 1 goes offline");
        let first = state.keep(lost, 0, "host", &mut edit);
        for _ in 0..RING_EVENTS_MOST + 5 {
            let event = Event::new(EventKind::BlockRepaired, "a block");
            state.keep(event, 0, "host", &mut edit);
        }
        let removed = edit
            .changes
            .iter()
            .filter(|(_, _, value)| value.is_none())
            .count();
        assert_eq!(removed, 5);
        assert_eq!(state.rings[2], [first.number]);
        assert_eq!(state.rings[1].len(), RING_EVENTS_MOST);
    }
}
