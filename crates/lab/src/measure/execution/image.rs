//! Golden images: a database, filled once and stopped, that every run gets a fresh copy of. No run
//! so inherits what the last one left in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::measure::control_group::ControlGroup;
use crate::measure::journal::Journal;
use crate::measure::postgresql::{Installation, Server, ServerPlan, initialise};
use crate::measure::program::{command, run_within, tail};
use crate::measure::workload::Load;

/// The images of an experiment, made when they are first asked for.
#[derive(Debug)]
pub struct Images {
    directory: PathBuf,
}

const COPY_AT_MOST: Duration = Duration::from_secs(3600);

impl Images {
    /// Below the experiment's working directory, with which they end.
    pub fn new(work: &Path) -> Self {
        Self {
            directory: work.join("images"),
        }
    }

    /// The image of a load.
    pub fn get(
        &self,
        load: &dyn Load,
        installation: &Installation,
        journal: &Journal,
    ) -> Result<PathBuf> {
        let place = self.directory.join(load.image());
        if place.exists() {
            return Ok(place);
        }
        self.make(load, &place, installation, journal)
            .context("the database cannot be filled")?;
        Ok(place)
    }

    fn make(
        &self,
        load: &dyn Load,
        place: &Path,
        installation: &Installation,
        journal: &Journal,
    ) -> Result<()> {
        let growing = self.directory.join("growing");
        let runtime = self.directory.join("runtime");
        for directory in [&self.directory, &growing, &runtime] {
            // What an attempt before this one left is of no use.
            if directory != &self.directory && directory.exists() {
                fs::remove_dir_all(directory)?;
            }
            if !directory.exists() && directory != &growing {
                fs::create_dir(directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
            }
        }
        initialise(installation, &growing)?;
        let name = format!("spindle-lab-image-{}", std::process::id());
        let group = ControlGroup::make(journal, &name, None)?;
        // Nothing but the result of this is ever measured: it may be quick.
        let settings: BTreeMap<String, String> = [
            ("fsync", "off"),
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
            ("max_wal_size", "1GB"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let server = Server::start(
            &ServerPlan {
                installation,
                data: &growing,
                runtime: &runtime,
                settings: &settings,
                memory_bytes: None,
                users: 4,
            },
            &group,
            journal,
        )?;
        load.fill(&server)?;
        server.connect()?.batch_execute("CHECKPOINT")?;
        server.stop()?;
        fs::rename(&growing, place)?;
        Ok(())
    }
}

/// Copies an image, on the account of the group.
pub fn restore(image: &Path, data: &Path, group: &ControlGroup) -> Result<()> {
    let mut copy = command("cp");
    copy.args(["--archive", "--reflink=never", "--no-target-directory"]);
    let ended = run_within(&mut group.wrap(copy.arg(image).arg(data)), COPY_AT_MOST)?;
    if !ended.status.success() {
        bail!("the data cannot be restored: {}", tail(&ended.stderr, 4));
    }
    Ok(())
}
