//! What a process leaves of its exports to the next one that serves the group.
//!
//! One small file per group in the runtime directory, written whenever an export comes or goes, before
//! the command that asked for it is answered. A process that closes the group takes it away; one that
//! dies, or hands over, leaves it, and the next process that its keeper starts exports the same again.
//! A process that was started by anybody else finds a file of a group that was left long ago, and
//! takes it away, and a keeper that nobody follows does so. With the file go the sockets that it names,
//! where they are still those.
//!
//! A crash in the midst of writing leaves the former list whole. Where it cannot be written the exports
//! go on, and end with their process.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::socket::{SocketIdentity, remove_left};
use crate::api::volume::ExportReport;
use crate::machine::runtime_directory::file_of;

/// One export.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftExport {
    pub(super) report: ExportReport,
    /// Which socket it was: only that one's owner and mode are believed.
    pub(super) socket: SocketIdentity,
}

/// The list of a group.
#[derive(Debug)]
pub(super) struct LeftExports {
    path: PathBuf,
    /// Lists are written one after the other.
    writing: Mutex<()>,
}

impl LeftExports {
    pub(super) fn new(runtime_directory: &Path, group: &str) -> Self {
        Self {
            path: file_of(runtime_directory, group, "exports"),
            writing: Mutex::new(()),
        }
    }

    /// Writes what `list` says, asked when nobody else writes.
    pub(super) fn write(&self, list: impl FnOnce() -> Vec<LeftExport>) {
        let _writing = self.writing.lock();
        let bytes = serde_json::to_vec(&list()).unwrap_or_default();
        let new = self.path.with_extension("exports-new");
        let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = written {
            tracing::warn!(%error, "exports will end with this process, whatever a keeper does");
        }
    }

    /// What a former process left; nothing where it left none.
    #[must_use]
    pub(super) fn read(&self) -> Vec<LeftExport> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Nobody is to export it again, and whoever looks for a socket of it finds none.
    pub(super) fn clear(&self) {
        for LeftExport { report, socket } in self.read() {
            remove_left(Path::new(&report.socket), socket);
        }
        let _writing = self.writing.lock();
        let _ = std::fs::remove_file(&self.path);
    }
}
