//! The disks of this process: the engine that moves the bytes, and what is wrapped around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spindle_device::{DiskSlot, Disks, SimulatedDisks};

use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::read_only_disks::ReadOnlyDisks;
use crate::settings::Settings;
use crate::view::Counters;

/// Disks that are open, and the engine below them.
#[derive(Debug)]
pub struct Engine {
    disks: Arc<dyn Disks>,
}

impl Engine {
    /// No disk yet.
    pub fn new(_settings: &Settings) -> Self {
        Self {
            disks: Arc::new(SimulatedDisks::new(0, &[])),
        }
    }
    /// Opens a disk exclusively.
    pub fn attach_to_own(&mut self, path: &Path) -> ControlResult<DiskSlot> {
        Err(unavailable(path))
    }
    /// Opens a disk for reading.
    pub fn attach_to_look(&mut self, path: &Path) -> ControlResult<DiskSlot> {
        Err(unavailable(path))
    }
    /// Records every write.
    pub fn record(&mut self, file: &Path, _slots: &[(DiskSlot, PathBuf)]) -> ControlResult<()> {
        Err(unavailable(file))
    }
    /// Keeps writes in memory from now on.
    pub fn withhold_writes(&mut self) {
        self.disks = Arc::new(ReadOnlyDisks::new(self.disks.clone()));
    }
    /// The disks as a group uses them.
    pub fn disks(&self) -> Arc<dyn Disks> {
        self.disks.clone()
    }
    /// Pulls a disk's cable, or plugs it in.
    pub fn set_pulled(&self, _slot: DiskSlot, _pulled: bool) {}
    /// What a disk has done.
    pub fn counters(&self, _slot: DiskSlot) -> Counters {
        Counters::default()
    }
}

/// Makes a plain file to be used as a disk.
pub fn make_file_disk(path: &Path, _size_bytes: u64) -> ControlResult<()> {
    Err(unavailable(path))
}

fn unavailable(path: &Path) -> ControlError {
    ControlError::new(
        ControlErrorKind::Io,
        format!("{}: this build opens no disks yet", path.display()),
    )
}
