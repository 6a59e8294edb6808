//! Events that no disk may have taken.
//!
//! The log of events lies in the group, and what is told while no disk takes anything, which is when
//! a group stops, has no other place. As long as a keeper lives its memory has it for the next
//! process. Where nobody is left, a file in the runtime directory has it for the next process that
//! serves the group on this host: written when the group stops and when its close fails, and gone
//! with the next close in order. What the log has already is not taken again, so that no crash
//! between the two tells anything twice.

use std::collections::VecDeque;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spindle_group::EventKind;

use super::Daemon;
use crate::api::view::EventReport;
use crate::machine::runtime_directory::file_of;

/// The newest events that are remembered.
const EVENTS_MOST: usize = 512;

/// What this process has told.
#[derive(Debug, Default)]
pub(super) struct Unkept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    newest: VecDeque<EventReport>,
    group_stopped: bool,
}

/// What the file has.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    group_uuid: String,
    events: VecDeque<EventReport>,
}

impl State {
    fn note(&mut self, events: &[EventReport]) {
        self.newest.extend(events.iter().cloned());
        let surplus = self.newest.len().saturating_sub(EVENTS_MOST);
        self.newest.drain(..surplus);
        let stopped = EventKind::GroupFenced.name();
        self.group_stopped |= events.iter().any(|event| event.kind == stopped);
    }
}

impl Daemon {
    fn unkept_path(&self) -> PathBuf {
        file_of(
            &self.settings.runtime_directory,
            self.group_name(),
            "events",
        )
    }

    fn group_uuid(&self) -> String {
        self.opened.group().view().uuid.to_string()
    }

    /// Takes what a former process left into the log. The file stays until this process has closed
    /// the group: a kill before the next commit must not lose it.
    pub(super) fn take_unkept(&self) {
        let Ok(bytes) = std::fs::read(self.unkept_path()) else {
            return;
        };
        let left = serde_json::from_slice::<Left>(&bytes).ok();
        let Some(mut left) = left.filter(|left| left.group_uuid == self.group_uuid()) else {
            return;
        };
        if let Err(error) = self
            .opened
            .keep_former_events(left.events.make_contiguous())
        {
            tracing::error!(
                error = error.message(),
                "what the process before told is not in the log"
            );
        }
        self.unkept.0.lock().newest = left.events;
    }

    /// Remembers what was told, and leaves it at once where the group has stopped: a kill may follow.
    pub(super) fn note_unkept(&self, events: &[EventReport]) {
        if events.is_empty() {
            return;
        }
        let stopped = {
            let mut state = self.unkept.0.lock();
            state.note(events);
            state.group_stopped
        };
        if stopped {
            self.leave_unkept(false);
        }
    }

    /// Leaves what was told to the next process, or nothing where the log has it all.
    pub(super) fn leave_unkept(&self, is_kept: bool) {
        let path = self.unkept_path();
        if is_kept {
            let _ = std::fs::remove_file(path);
            return;
        }
        let left = Left {
            group_uuid: self.group_uuid(),
            events: self.unkept.0.lock().newest.clone(),
        };
        let bytes = serde_json::to_vec(&left).unwrap_or_default();
        // In whole or not at all: a kill may come in between.
        let new = path.with_extension("events.new");
        let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::error!(%error, "what was told and no disk took is in this log alone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS_MOST, State};
    use crate::api::view::EventReport;

    fn event(number: u64, kind: &str) -> EventReport {
        EventReport {
            number,
            time_s: 0,
            time_ms: number,
            host: "host".to_owned(),
            group: "data".to_owned(),
            severity: "info".to_owned(),
            kind: kind.to_owned(),
            disk: None,
            disk_name: None,
            file: None,
            path: None,
            text: "text".to_owned(),
        }
    }

    #[test]
    fn the_newest_events_are_remembered_and_a_stop_is_noticed() {
        let mut state = State::default();
        for number in 0..EVENTS_MOST as u64 + 7 {
            state.note(&[event(number, "block_repaired")]);
        }
        assert_eq!(state.newest.len(), EVENTS_MOST);
        assert_eq!(state.newest.front().map(|event| event.number), Some(7));
        assert!(!state.group_stopped);
        state.note(&[event(9999, "group_fenced")]);
        state.note(&[event(10_000, "block_repaired")]);
        assert!(state.group_stopped);
    }
}
