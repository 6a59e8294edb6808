//! What a process that was to close a group leaves for whoever asked for that: by the time that the
//! command has waited for it, nobody is left who could be asked.
//!
//! One small file per group in the runtime directory. It says that the group is closed, or why it is
//! not, and names the process that wrote it: whoever waited for another one is told nothing by it.
//! Where there is no word (the process was killed, or the directory is full) nothing is known, and
//! the group's disks have to be asked.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::runtime_directory::file_of;
use crate::machine::settings::Settings;

/// Whether a group was closed; why not, and what is lost, where it was not.
pub(crate) type Closed = Result<(), String>;

#[derive(Debug, Serialize, Deserialize)]
struct LastWord {
    process_id: u32,
    /// Why the group is not closed; `None` where it is.
    not_closed: Option<String>,
}

fn path(runtime_directory: &Path, group: &str) -> PathBuf {
    file_of(runtime_directory, group, "ended")
}

fn read(runtime_directory: &Path, group: &str) -> Option<LastWord> {
    let bytes = std::fs::read(path(runtime_directory, group)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Takes away the word of a former process that had this process's number: it would pass for this
/// one's. That of another process stays, since somebody may be about to read it.
pub(super) fn forget_namesake(runtime_directory: &Path, group: &str) {
    let is_own = |word: LastWord| word.process_id == std::process::id();
    if read(runtime_directory, group).is_some_and(is_own) {
        let _ = std::fs::remove_file(path(runtime_directory, group));
    }
}

/// This process ends, and this is what became of the group.
pub(super) fn leave(runtime_directory: &Path, group: &str, closed: &Closed) {
    let word = LastWord {
        process_id: std::process::id(),
        not_closed: closed.as_ref().err().cloned(),
    };
    let bytes = serde_json::to_vec(&word).unwrap_or_default();
    if let Err(error) = std::fs::write(path(runtime_directory, group), bytes) {
        tracing::error!(%error, "whoever asked for the close has to look at the disks");
    }
}

/// What one of these processes, which have ended, left; `None` where none left a word.
pub(crate) fn of(settings: &Settings, group: &str, process_ids: &[u32]) -> Option<Closed> {
    let word = read(&settings.runtime_directory, group)?;
    let is_theirs = process_ids.contains(&word.process_id);
    is_theirs.then(|| word.not_closed.map_or(Ok(()), Err))
}
