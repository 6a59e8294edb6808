//! What is left for whoever asked for a close that failed: the process that knows why has ended
//! by the time that the command has waited for it.
//!
//! One small file per group in the runtime directory, written only where the close failed, and
//! removed when the group is served next. It names the process that wrote it: whoever waited for
//! another one is not told of this end.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::settings::Settings;

#[derive(Debug, Serialize, Deserialize)]
struct Unclosed {
    process_id: u32,
    why: String,
}

/// Names of groups are unique whatever their case, and a command may have written it otherwise.
fn path(runtime_directory: &Path, group: &str) -> PathBuf {
    runtime_directory.join(format!("{}.unclosed", group.to_lowercase()))
}

/// Forgets how an earlier process ended.
pub(super) fn forget(runtime_directory: &Path, group: &str) {
    let _ = std::fs::remove_file(path(runtime_directory, group));
}

/// This process ends, and the group is not closed.
pub(super) fn leave(runtime_directory: &Path, group: &str, why: &str) {
    let left = Unclosed {
        process_id: std::process::id(),
        why: why.to_owned(),
    };
    let bytes = serde_json::to_vec(&left).unwrap_or_default();
    if let Err(error) = std::fs::write(path(runtime_directory, group), bytes) {
        tracing::error!(%error, "whoever asked for the close is not told that it failed");
    }
}

/// What one of these processes, which have ended, left.
///
/// # Errors
/// Where it did not close the group: why, and what is lost.
pub(crate) fn refuse_if_left(
    settings: &Settings,
    group: &str,
    process_ids: &[u32],
) -> ControlResult<()> {
    let bytes = std::fs::read(path(&settings.runtime_directory, group)).unwrap_or_default();
    match serde_json::from_slice::<Unclosed>(&bytes) {
        Ok(left) if process_ids.contains(&left.process_id) => Err(ControlError::new(
            ControlErrorKind::Io,
            format!("{group} is not closed: {}", left.why),
        )),
        // Nothing is left, or it is of another end.
        Ok(_) | Err(_) => Ok(()),
    }
}
