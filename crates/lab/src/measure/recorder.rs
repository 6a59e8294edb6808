//! A recorder below any contender: disks whose every write and every flush is kept in order, so that
//! they can be put together again as at any moment ([`history`]).
//!
//! A process of its own serves a FUSE file system with one file a disk ([`server`]); the lab's loop
//! devices lie over these files, and the loop driver turns each flush and each forced write into an
//! fsync of the file. It is another process because a lab that is killed while it waits for such a
//! disk would hold its own server open for ever; killed by itself, the server's connection ends and
//! whoever waits gets an error. The file `sequence` tells how much is recorded: who reads it after
//! an acknowledgement knows that everything which that one rests on lies before.
//!
//! Everything is in the journal in the order in which it must be undone: the loop devices, the
//! mount, the server, the directory.

pub mod history;
pub mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use spindle_testbed::interrupt;

use self::history::History;
use super::device::{Leaf, attach};
use super::journal::{Journal, Made, Undo};
use super::place::is_mounted;
use super::process::Identity;
use super::program::Service;

const MOUNT_AT_MOST: Duration = Duration::from_secs(10);

/// What the disks of a recorder are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disks {
    /// How many.
    pub count: u32,
    /// Of each.
    pub size_bytes: u64,
    /// They answer flushes and forget them: disks that lie.
    pub swallow_flushes: bool,
}

/// Disks that are recorded; a drop takes them away and leaves the record.
#[derive(Debug)]
pub struct Recorder {
    /// The disks.
    pub leaves: Vec<Leaf>,
    parts: Vec<Made>,
    service: Service,
    point: PathBuf,
    record: PathBuf,
}

impl Recorder {
    /// Starts one in `directory`, which is there; `program` is the lab's own command.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(
        journal: &Journal,
        program: &Path,
        directory: &Path,
        disks: Disks,
    ) -> Result<Self> {
        let point = directory.join("recorder");
        let record = directory.join("record");
        fs::create_dir(&point).with_context(|| format!("cannot make {}", point.display()))?;
        let mut command = Command::new(program);
        command.arg("recorder").arg(&point).arg(&record);
        command.args([disks.count.to_string(), disks.size_bytes.to_string()]);
        if disks.swallow_flushes {
            command.arg("--swallow-flushes");
        }
        let mut parts = vec![journal.intend(Undo::Mount(point.clone()))?];
        let mut service = Service::start("the recorder", &mut command, &directory.join("log"))?;
        parts.insert(0, journal.intend(Undo::Process(service.identity()))?);
        interrupt::wait_for("the recorder", MOUNT_AT_MOST, || {
            service.check_alive()?;
            Ok(is_mounted(&point)?.then_some(()))
        })?;
        let mut recorder = Self {
            leaves: Vec::new(),
            parts,
            service,
            point,
            record,
        };
        for index in 0..disks.count {
            let file = recorder.point.join(server::disk_name(index));
            recorder
                .parts
                .push(journal.intend(Undo::LoopOver(file.clone()))?);
            recorder.leaves.push(attach(&file)?);
        }
        Ok(recorder)
    }

    /// The process that serves it.
    #[must_use]
    pub fn server(&self) -> Identity {
        self.service.identity()
    }

    /// The file that tells how much is recorded.
    #[must_use]
    pub fn sequence_file(&self) -> PathBuf {
        self.point.join(server::SEQUENCE)
    }

    /// Takes the disks away and gives what was recorded.
    ///
    /// # Errors
    /// Where a part stays, or the record cannot be read.
    pub fn finish(mut self) -> Result<History> {
        while let Some(part) = self.parts.pop() {
            part.remove()?;
        }
        History::open(&self.record)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        while let Some(part) = self.parts.pop() {
            drop(part);
        }
    }
}
