//! One run: make the contender, restore the data, start the database, drive the load, check that it
//! was real, take everything away.
//!
//! Whatever goes wrong here makes this run failed and nothing else. Values are dropped in the
//! reverse order of their making, so that the next run finds the devices as this one did. A run that
//! hangs in the kernel is left behind by the [`Attendant`].

mod attendant;
mod cache;
mod image;
mod layers;
mod one_run;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

pub use self::attendant::Attendant;
use self::image::{Images, Order};
use self::one_run::OneRun;
use super::companion::{Lap, backup};
use super::contender::{self, Contender, Place, Site, Standing};
use super::control_group::ControlGroup;
use super::database::{self, Installation};
use super::device::DeviceSet;
use super::durability;
use super::journal::{Journal, Made, Undo};
use super::patience::Watch;
use super::preparation::log_bytes;
use super::process::Identity;
use super::program::tail;
use super::workload;
use crate::experiment::{Companion, Experiment, Workload};
use crate::record::{Layout, Measured, Outcome, PlannedRun, Run, SCHEMA};

/// Everything that the runs of an experiment share.
pub struct Bench {
    experiment: Experiment,
    journal: Journal,
    installation: Option<Box<dyn Installation>>,
    images: Images,
    work: PathBuf,
    watch: Watch,
    /// The group of the run that is under way.
    group: Mutex<Option<Arc<ControlGroup>>>,
    _made: Made,
}

/// Where the database lies in a contender's directory.
const DATA: &str = "data";

/// An hour, for what has its own limit.
const LONG: Duration = Duration::from_secs(3600);

impl Bench {
    /// Makes the directory that runs work in.
    ///
    /// # Errors
    /// Where it cannot be made, or the database is not there.
    pub fn new(experiment: &Experiment, journal: &Journal) -> Result<Self> {
        let work = experiment
            .devices
            .directory
            .join(format!("spindle-lab-work-{}", std::process::id()));
        let made = journal.intend(Undo::Directory(work.clone()))?;
        fs::create_dir(&work).with_context(|| format!("cannot make {}", work.display()))?;
        let needs_database = experiment
            .workloads
            .iter()
            .any(|workload| workload.kind.needs_database());
        let installation = needs_database
            .then(|| database::installation(&experiment.database))
            .transpose()?;
        Ok(Self {
            experiment: experiment.clone(),
            journal: journal.clone(),
            installation,
            images: Images::new(&work),
            work,
            watch: Watch::new(experiment.patience),
            group: Mutex::new(None),
            _made: made,
        })
    }

    /// Where a run mounts and works.
    fn scratch(&self, planned: &PlannedRun) -> PathBuf {
        self.work.join(format!("run-{}", planned.number))
    }

    /// The processes of the run that is under way: database and storage.
    fn members(&self) -> Vec<Identity> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let members = group
            .as_ref()
            .map(|group| group.members())
            .unwrap_or_default();
        members
            .into_iter()
            // A database that is a library lives in this process.
            .filter(|id| *id != std::process::id())
            .filter_map(Identity::of)
            .collect()
    }

    /// Does a planned run; its samples and its log go to `folder`. `arrivals_per_s` is the rate of
    /// a load that is open by a share of a peak, or why there is no peak.
    fn execute(
        &self,
        devices: &DeviceSet,
        planned: &PlannedRun,
        folder: &Path,
        arrivals_per_s: Result<Option<f64>>,
    ) -> Run {
        let began = Instant::now();
        let began_unix_s = unix_now_s();
        let mut layout = None;
        let result = arrivals_per_s.and_then(|arrivals_per_s| {
            let asked = &self.experiment.workloads[planned.workload];
            let asked = Workload {
                rate: asked.rate.or(arrivals_per_s),
                ..asked.clone()
            };
            self.attempt(devices, planned, &asked, folder, &mut layout)
        });
        let outcome = match result {
            Ok(measured) => match measured.checks.iter().find(|check| !check.passed) {
                None => Outcome::Measured(Box::new(measured)),
                Some(check) => Outcome::Failed {
                    reason: format!("a check failed: {}: {}", check.name, check.detail),
                    log_tail: String::new(),
                },
            },
            Err(error) => failed(folder, &format!("{error:#}")),
        };
        Run {
            schema: SCHEMA,
            planned: planned.clone(),
            began_unix_s,
            elapsed_s: began.elapsed().as_secs_f64(),
            layout,
            outcome,
        }
    }

    fn attempt(
        &self,
        devices: &DeviceSet,
        planned: &PlannedRun,
        asked: &Workload,
        folder: &Path,
        layout: &mut Option<Layout>,
    ) -> Result<Measured> {
        let experiment = &self.experiment;
        let asked_for = experiment.asked(&planned.contender);
        let database = experiment.database_of(&planned.contender);
        let load = workload::load(asked);
        // Filled row by row it takes what it takes; no contender is part of it.
        self.watch
            .begin("filling the database", asked.size_bytes, 6 * LONG)?;
        // The image is made before the contender: its making is nobody's time.
        let image = match (&load, &self.installation) {
            (Some(load), Some(installation)) => {
                let order = Order {
                    installation: installation.as_ref(),
                    settings: &database.settings,
                    log_bytes: log_bytes(asked),
                    journal: &self.journal,
                };
                Some(self.images.get(load.as_ref(), &order)?)
            }
            _ => None,
        };
        let scratch = self.scratch(planned);
        let _scratch = self.journal.intend(Undo::Directory(scratch.clone()))?;
        fs::create_dir(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        // A run that hung may have left its own.
        let name = format!("spindle-lab-{}-{}", std::process::id(), planned.number);
        let memory_bytes = experiment.database.memory_bytes;
        let group = Arc::new(ControlGroup::make(&self.journal, &name, memory_bytes)?);
        let _known = Known::new(self, &group);
        let contender = contender::find(&asked_for.storage).map_err(anyhow::Error::msg)?;
        let site = Site {
            journal: &self.journal,
            leaves: &devices.leaves,
            group: &group,
            scratch: &scratch,
            log: &folder.join("log.txt"),
            profile: database.kind.name(),
            options: &asked_for.options,
            watch: &self.watch,
        };
        self.watch.begin("making it", 0, Duration::ZERO)?;
        let mut standing = contender.make(&site).context("it could not be made")?;
        standing.layout.mount = durability::mounted(&standing.place);
        *layout = Some(standing.layout.clone());
        let run = OneRun {
            bench: self,
            devices,
            planned,
            asked,
            database: &database,
            folder,
            scratch: &scratch,
            group: &group,
        };
        let measured = match (load, image) {
            (Some(load), Some(image)) => {
                let laps = laps(contender.as_ref(), &site, &standing, asked)?;
                run.in_database(&mut standing, load.as_ref(), &image, laps)
            }
            _ => run.below_database(&mut standing),
        };
        let measured = measured
            // Why the storage failed is rather in its own words than in the database's.
            .or_else(|error| standing.check_alive().and(Err(error)))
            .map_err(|error| {
                if group.ran_out_of_memory() {
                    error.context("all memory of the run was used up, and the kernel ended a process of it: raise `memory`")
                } else {
                    error
                }
            })?;
        // Of few operations none may be of the kind that counts, such as a New-Order.
        ensure!(
            measured.rate > 0.0,
            "nothing that counts was done in the measured time: raise `duration`, or `size` where the load has an end of its own"
        );
        self.watch
            .begin("removing it", asked.size_bytes, Duration::ZERO)?;
        standing.remove().context("it could not be removed")?;
        Ok(measured)
    }
}

/// What is to go on beside a load.
fn laps(
    contender: &dyn Contender,
    site: &Site<'_>,
    standing: &Standing,
    asked: &Workload,
) -> Result<Vec<Lap>> {
    let laps = match (asked.beside, &standing.place) {
        (None, _) => return Ok(Vec::new()),
        (Some(Companion::Backup), Place::Directory(directory)) => {
            vec![backup(&directory.join(DATA))]
        }
        (Some(companion), _) => contender.laps(site, standing, companion),
    };
    ensure!(
        !laps.is_empty(),
        "the lab does not know how it is to go on beside the load"
    );
    Ok(laps)
}

/// Adds a line to the run's log; a log that cannot be written must not hide the reason.
fn note(folder: &Path, line: &str) {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log.txt"));
    if let Ok(mut log) = log {
        let _ = writeln!(log, "{line}");
    }
}

/// A run that failed for this reason, of which a record keeps the first line and the log all.
fn failed(folder: &Path, reason: &str) -> Outcome {
    note(folder, reason);
    let log = fs::read_to_string(folder.join("log.txt")).unwrap_or_default();
    Outcome::Failed {
        reason: reason.lines().next().unwrap_or_default().to_owned(),
        log_tail: tail(&log, 20),
    }
}

/// Seconds since 1970.
pub(super) fn unix_now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Makes the group of a run known to whoever may have to end its members, for as long as it runs.
struct Known<'a> {
    bench: &'a Bench,
    group: Arc<ControlGroup>,
}

impl<'a> Known<'a> {
    fn new(bench: &'a Bench, group: &Arc<ControlGroup>) -> Self {
        *bench.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(group));
        Self {
            bench,
            group: Arc::clone(group),
        }
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        let mut known = self
            .bench
            .group
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A run that was left behind and comes back finds that of another.
        if known
            .as_ref()
            .is_some_and(|group| Arc::ptr_eq(group, &self.group))
        {
            *known = None;
        }
    }
}
