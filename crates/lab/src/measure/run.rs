//! A whole experiment: from its file to its folder, resumed where it was interrupted.
//!
//! A run counts once its `run.json` is there, which is written last. Runs that are missing or failed
//! are done (again), in the planned order; runs that were measured stay as they are. The folder
//! belongs to one experiment: another file, or another machine's abilities, is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spindle_rig::interrupt;

use super::agreement;
use super::database;
use super::device::DeviceSet;
use super::environment;
use super::execution::Bench;
use super::journal::{self, Journal};
use super::peak;
use super::plan;
use super::preparation;
use crate::experiment::Experiment;
use crate::quantity::show_number;
use crate::record::{Outcome, Plan, Run, read_json, write_json, write_whole};

/// Where each kind of news goes.
pub trait Listener {
    /// A line about the whole.
    fn tell(&mut self, line: &str);
    /// A run begins: its place in what is left to do.
    fn begin(&mut self, run: &crate::record::PlannedRun, title: &str, index: usize, of: usize);
    /// A run ended; how long the rest will take, as far as one can say.
    fn end(&mut self, run: &Run, left: Option<Duration>);
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Runs that were measured, earlier ones included.
    pub measured: usize,
    /// Runs that failed.
    pub failed: usize,
}

/// Runs an experiment into `folder`, which is made or continued.
///
/// # Errors
/// A line; what was measured so far stays.
pub fn run(
    text: &str,
    experiment: &Experiment,
    folder: &Path,
    erase: &[PathBuf],
    listener: &mut dyn Listener,
) -> Result<Finished> {
    let not_run = preparation::check(experiment, erase)?;
    let plan = plan::make(experiment, &not_run);
    claim(folder, text, &plan)?;
    for (name, reason) in &not_run {
        listener.tell(&format!("not run: {name}: {reason}"));
    }
    let left: Vec<_> = plan
        .runs
        .iter()
        .filter(|planned| !is_measured(&folder.join("runs").join(planned.folder())))
        .collect();
    if left.len() < plan.runs.len() && !left.is_empty() {
        listener.tell(&format!(
            "{} of {} runs are there already",
            plan.runs.len() - left.len(),
            plan.runs.len()
        ));
    }
    if !left.is_empty() {
        let journal = Journal::begin(&journal::directory())?;
        listener.tell("making the devices");
        let devices = DeviceSet::make(&journal, &experiment.devices, erase)?;
        let asked = &experiment.database;
        let version = database::find(asked.kind, asked.directory.as_deref())
            .and_then(|installation| installation.version())
            .ok();
        let environment = environment::look(&devices.leaves, version.as_deref());
        write_json(&folder.join("environment.json"), &environment)?;
        let mut bench = Bench::new(experiment, &journal, &devices)?;
        let began = Instant::now();
        for (index, planned) in left.iter().enumerate() {
            interrupt::check()?;
            let title = experiment.workloads[planned.workload].title();
            let arrivals = peak::arrivals_per_s(folder, experiment, &plan, planned);
            let title = match &arrivals {
                Ok(Some(per_s)) => format!("{title} ({}/s)", show_number(*per_s)),
                _ => title,
            };
            listener.begin(planned, &title, index + 1, left.len());
            let place = folder.join("runs").join(planned.folder());
            if place.exists() {
                fs::remove_dir_all(&place)?;
            }
            fs::create_dir_all(&place)
                .with_context(|| format!("cannot make {}", place.display()))?;
            let run = bench.execute(planned, &place, arrivals);
            let run = agreement::checked(run, &plan, folder);
            // A run that was stopped half way did not fail: it did not happen.
            interrupt::check()?;
            write_json(&place.join("run.json"), &run)?;
            let done = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let rest = u32::try_from(left.len() - index - 1).unwrap_or(0);
            listener.end(&run, Some(began.elapsed() / done * rest));
        }
    }
    count(folder, &plan)
}

/// Makes the folder this experiment's own, or sees that it is.
fn claim(folder: &Path, text: &str, plan: &Plan) -> Result<()> {
    let file = folder.join("experiment.toml");
    if !file.exists() {
        let is_empty = !folder.exists()
            || fs::read_dir(folder)
                .with_context(|| format!("cannot read {}", folder.display()))?
                .next()
                .is_none();
        ensure!(
            is_empty,
            "{} is not empty and holds no experiment",
            folder.display()
        );
        fs::create_dir_all(folder.join("runs"))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        write_json(&folder.join("plan.json"), plan)?;
        return write_whole(&file, text);
    }
    let before = fs::read_to_string(&file)?;
    if before != text {
        // More blocks of the same are a continuation; whatever else differs is another experiment.
        let same = |text: &str| {
            let mut experiment = Experiment::parse(text).ok()?;
            experiment.blocks = 0;
            Some(experiment)
        };
        if same(&before) != same(text) {
            bail!(
                "{} holds another experiment; give another folder by --output",
                folder.display()
            );
        }
    }
    let there: Plan = read_json(&folder.join("plan.json"))?;
    let common = there.runs.len().min(plan.runs.len());
    ensure!(
        there.schema == plan.schema && there.runs[..common] == plan.runs[..common],
        "{} was planned where other contenders could run; give another folder by --output",
        folder.display()
    );
    if plan.runs.len() > there.runs.len() {
        write_json(&folder.join("plan.json"), plan)?;
        write_whole(&file, text)?;
    }
    Ok(())
}

fn is_measured(place: &Path) -> bool {
    read_json::<Run>(&place.join("run.json")).is_ok_and(|run| run.measured().is_some())
}

fn count(folder: &Path, plan: &Plan) -> Result<Finished> {
    let mut finished = Finished {
        measured: 0,
        failed: 0,
    };
    for planned in &plan.runs {
        let run: Run = read_json(&folder.join("runs").join(planned.folder()).join("run.json"))?;
        match run.outcome {
            Outcome::Measured(_) => finished.measured += 1,
            Outcome::Failed { .. } => finished.failed += 1,
        }
    }
    Ok(finished)
}

/// What a run reached, in a few words.
#[must_use]
pub fn outcome_line(run: &Run) -> String {
    match &run.outcome {
        Outcome::Measured(measured) => {
            format!("{} {}", show_number(measured.rate), measured.unit)
        }
        Outcome::Failed { reason, .. } => format!("FAILED: {reason}"),
    }
}
