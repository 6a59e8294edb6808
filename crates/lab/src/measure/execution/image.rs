//! Golden images: a database, filled once and stopped, that every run gets a fresh copy of. No run
//! so inherits what the last one left in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::measure::control_group::ControlGroup;
use crate::measure::database::{Installation, Purpose, ServerPlan, Settings};
use crate::measure::journal::Journal;
use crate::measure::program::{command, run_within, tail};
use crate::measure::workload::Load;
use crate::record::history::fingerprint;

/// The images of an experiment, made when they are first asked for.
#[derive(Debug)]
pub struct Images {
    directory: PathBuf,
}

/// By what an image is made.
pub struct Order<'a> {
    /// The database.
    pub installation: &'a dyn Installation,
    /// The experiment's; those that cannot be changed later are heeded.
    pub settings: &'a Settings,
    /// What the write-ahead log will take.
    pub log_bytes: u64,
    /// Who undoes what is left.
    pub journal: &'a Journal,
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
    pub fn get(&self, load: &dyn Load, order: &Order<'_>) -> Result<PathBuf> {
        // What cannot be changed later is part of the image.
        let lasting = order.installation.lasting();
        let own: String = (order.settings.iter())
            .filter(|(name, _)| lasting.contains(&name.as_str()))
            .map(|(name, value)| format!("-{name}-{}", fingerprint(value)))
            .collect();
        let place = self.directory.join(load.image() + &own);
        if place.exists() {
            return Ok(place);
        }
        self.make(load, &place, order)
            .context("the database cannot be filled")?;
        Ok(place)
    }

    fn make(&self, load: &dyn Load, place: &Path, order: &Order<'_>) -> Result<()> {
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
        order.installation.initialise(&growing, order.settings)?;
        let name = format!("spindle-lab-image-{}", std::process::id());
        let group = ControlGroup::make(order.journal, &name, None)?;
        let server = order.installation.start(&ServerPlan {
            data: &growing,
            runtime: &runtime,
            purpose: Purpose::Fill,
            settings: order.settings,
            memory_bytes: None,
            log_bytes: order.log_bytes,
            users: 4,
            group: &group,
            journal: order.journal,
        })?;
        load.fill(server.as_ref()).map_err(|error| {
            let log = server.log_tail();
            if log.is_empty() {
                return error;
            }
            error.context(format!("the server's last words: {log}"))
        })?;
        server.stop()?;
        fs::rename(&growing, place)?;
        Ok(())
    }
}

/// Copies an image: on nobody's account, because a small group that copies much may be out of memory
/// for what is not written yet.
pub fn restore(image: &Path, data: &Path) -> Result<()> {
    let mut copy = command("cp");
    copy.args(["--archive", "--reflink=never", "--no-target-directory"]);
    let ended = run_within(copy.arg(image).arg(data), COPY_AT_MOST)?;
    if !ended.status.success() {
        bail!("the data cannot be restored: {}", tail(&ended.stderr, 4));
    }
    Ok(())
}
