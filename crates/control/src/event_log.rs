//! What happened in a group, kept beside its socket so that it can be read after the process
//! that served the group has ended.
//!
//! A line of JSON each; a line that a crash tore is passed over when the file is read. Two
//! files of at most 4 MiB each: an old one makes room when the new one is full.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::{ControlError, ControlResult};
use crate::settings::Settings;
use crate::sockets;
use crate::view::EventReport;

const FILE_BYTES_MAX: u64 = 4 << 20;
const RECENT_MAX: usize = 1000;

/// The events of one group.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    group: String,
    recent: Mutex<VecDeque<EventReport>>,
}

/// Where the events of a group lie.
#[must_use]
pub fn events_path(runtime_directory: &Path, group: &str) -> PathBuf {
    runtime_directory.join(format!("{group}.events"))
}

impl EventLog {
    /// For `group`, in the runtime directory.
    #[must_use]
    pub fn new(runtime_directory: &Path, group: &str) -> Self {
        Self {
            path: events_path(runtime_directory, group),
            group: group.to_owned(),
            recent: Mutex::default(),
        }
    }

    /// Notes an event: in the file, in the log, and for whoever asks the process.
    pub fn note(&self, text: impl Into<String>) {
        let event = EventReport {
            time_s: u64::try_from(crate::files::now().seconds).unwrap_or(0),
            group: self.group.clone(),
            text: text.into(),
        };
        tracing::info!(group = %self.group, "{}", event.text);
        // Serving the group goes on where its events cannot be written.
        if let Err(error) = self.append(&event) {
            tracing::warn!(path = %self.path.display(), %error, "cannot note an event");
        }
        let mut recent = self.recent.lock();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(event);
    }

    /// The newest events, the oldest of them first.
    #[must_use]
    pub fn recent(&self) -> Vec<EventReport> {
        self.recent.lock().iter().cloned().collect()
    }

    fn append(&self, event: &EventReport) -> std::io::Result<()> {
        if std::fs::metadata(&self.path).is_ok_and(|file| file.len() > FILE_BYTES_MAX) {
            std::fs::rename(&self.path, older(&self.path))?;
        }
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?
            .write_all(line.as_bytes())
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("events.old")
}

/// The events of `group`, or of every group where `None`, the oldest first.
///
/// # Errors
/// Where a file is there and cannot be read.
pub fn read_events(settings: &Settings, group: Option<&str>) -> ControlResult<Vec<EventReport>> {
    let runtime_directory = &settings.runtime_directory;
    for client in sockets::living(settings) {
        if group.is_none_or(|group| group.eq_ignore_ascii_case(client.group_name())) {
            // Asked, a process notes what it has not noted yet; the file has it then.
            let _ = client.get::<Vec<EventReport>>("/events");
        }
    }
    let mut events = Vec::new();
    let Ok(entries) = std::fs::read_dir(runtime_directory) else {
        return Ok(events);
    };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(stem) = name
            .strip_suffix(".events")
            .or_else(|| name.strip_suffix(".events.old"))
        else {
            continue;
        };
        if group.is_some_and(|group| !group.eq_ignore_ascii_case(stem)) {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ControlError::io("read", path.display(), &error))?;
        events.extend(
            text.lines()
                .filter_map(|line| serde_json::from_str::<EventReport>(line).ok()),
        );
    }
    events.sort_by_key(|event| event.time_s);
    Ok(events)
}
