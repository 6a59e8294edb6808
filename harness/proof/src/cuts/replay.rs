//! The disks as a power cut could have left them, by the recorder's counterpart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use spindle_device::{DiskSlot, RecordLog, Replayer};

use super::recording::Recording;

/// A recording that can be cut. Cuts in ascending order are cheap: each record is applied once.
pub struct Rebuilder {
    replayer: Mutex<Replayer>,
    slots: BTreeMap<&'static str, DiskSlot>,
}

impl Rebuilder {
    /// Reads the recording; its images at work go to `work_folder`, which is made.
    pub fn new(recording: &Recording, work_folder: &Path) -> Result<Self> {
        fs::create_dir_all(work_folder)?;
        let log = RecordLog::open(&recording.requests())?;
        if let Some(reason) = log.truncation() {
            // The daemon ended as it should: a log that breaks off is the recorder's fault.
            bail!("the recording breaks off: {reason}");
        }
        let mut slots = BTreeMap::new();
        for disk in recording.disks() {
            let recorded = log
                .disks()
                .iter()
                .find(|recorded| Path::new(&recorded.path).ends_with(disk))
                .with_context(|| format!("the recording does not tell of {disk}"))?;
            slots.insert(disk, recorded.slot);
        }
        let bases = slots
            .iter()
            .filter_map(|(disk, slot)| Some((*slot, recording.base(disk)?)))
            .collect();
        Ok(Self {
            replayer: Mutex::new(Replayer::new(log, bases, work_folder)?),
            slots,
        })
    }

    /// Makes the disks of `lost_disk`'s absence in `directory`: what a flush covered up to
    /// `cut_ns`, and of the rest what `seed` decides.
    pub fn rebuild(
        &self,
        cut_ns: u64,
        seed: u64,
        lost_disk: Option<&str>,
        directory: &Path,
    ) -> Result<String> {
        let targets: BTreeMap<DiskSlot, PathBuf> = self
            .slots
            .iter()
            .filter(|(disk, _)| lost_disk != Some(**disk))
            .map(|(disk, slot)| (*slot, directory.join(disk)))
            .collect();
        let mut replayer = self.replayer.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = replayer.log().cut_at_time(cut_ns);
        let summary = replayer.rebuild(cut, seed, &targets)?;
        Ok(format!("after {cut} records, {summary:?}"))
    }
}
