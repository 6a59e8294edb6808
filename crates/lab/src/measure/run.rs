//! A whole experiment: from its file to its folder, resumed where it was interrupted.
//!
//! A run counts once its `run.json` is there, which is written last. Runs that are missing or failed
//! are done (again), in the planned order; runs that were measured stay as they are. What was tried is
//! noted in the folder's history before it counts ([`crate::record::history`]). The folder belongs to one experiment: another file, or another machine's abilities, is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::interrupt;

use super::agreement;
use super::cuts;
use super::database;
use super::device::{DeviceSet, precondition};
use super::environment;
use super::execution::{Attendant, Bench, unix_now_s};
use super::guest::CONSOLE;
use super::guest::inside::is_guest;
use super::journal::{self, Journal};
use super::peak;
use super::plan;
use super::preparation;
use super::sameness;
use crate::experiment::{DeviceKind, Experiment, Workload};
use crate::quantity::show_number;
use crate::record::history::fingerprint;
use crate::record::{
    COPIED, Environment, Event, History, Outcome, PRECONDITIONED, Plan, PlannedRun, Run, SCRIPTS,
    json_text, read_json, write_json, write_whole,
};

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
    /// A contender keeps the devices, and it was asked to end then: runs are missing.
    pub is_stuck: bool,
}

/// What differs where another start takes care of the rest, as it does around a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manner {
    /// Runs that failed in this second or later are not repeated.
    pub failures_stay_since_unix_s: Option<u64>,
    /// Whether to end once a contender hangs in the kernel and keeps the devices.
    pub ends_when_stuck: bool,
    /// The devices are named, and the lab made them all the same: for a guest.
    pub devices_are_the_labs: bool,
}

/// Runs an experiment into `folder`, which is made or continued. After a contender that hangs the
/// others go on, on devices of their own where the lab makes these.
///
/// # Errors
/// A line; what was measured so far stays.
pub fn run(
    text: &str,
    experiment: &Experiment,
    folder: &Path,
    erase: &[PathBuf],
    manner: &Manner,
    listener: &mut dyn Listener,
) -> Result<Finished> {
    let not_run = preparation::check(experiment, erase)?;
    let plan = plan::make(experiment, &not_run);
    claim(folder, text, experiment, &plan)?;
    note_start(folder, &plan)?;
    for (name, reason) in &not_run {
        listener.tell(&format!("not run: {name}: {reason}"));
    }
    let left: Vec<_> = plan
        .runs
        .iter()
        .filter(|planned| !is_done(&folder.join("runs").join(planned.folder()), manner))
        .collect();
    if left.len() < plan.runs.len() && !left.is_empty() {
        listener.tell(&format!(
            "{} of {} runs are there already",
            plan.runs.len() - left.len(),
            plan.runs.len()
        ));
    }
    if !left.is_empty() {
        let installation = database::installation(&experiment.database).ok();
        let version = (installation.as_ref()).and_then(|found| found.version().ok());
        let before = environment_before(folder, &plan)?;
        if let Some(before) = &before {
            let now = environment::look(&[], version.as_deref());
            sameness::check(folder, before, &now, experiment)?;
        }
        let journal = Journal::begin(&journal::directory())?;
        let are_the_labs =
            experiment.devices.kind != DeviceKind::Block || manner.devices_are_the_labs;
        cuts::make(folder, experiment, &plan, are_the_labs, &journal, listener)?;
        listener.tell("making the devices");
        let devices = Arc::new(DeviceSet::make(&journal, &experiment.devices, erase)?);
        let mut environment = environment::look(&devices.leaves, version.as_deref());
        if let Some(before) = &before {
            sameness::check(folder, before, &environment, experiment)?;
        }
        if let Some(original) = (installation.as_ref()).and_then(|found| found.original().ok()?) {
            let name = COPIED.to_owned();
            environment.facts.insert(name, original.described);
        }
        prepare(experiment, &devices, &mut environment, listener)?;
        write_json(&folder.join("environment.json"), &environment)?;
        let bench = Bench::new(experiment, &journal)?;
        let mut attendant = Attendant::new(bench, devices);
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
            let run = attempt(folder, &plan, planned, &mut attendant, arrivals)?;
            let done = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let rest = u32::try_from(left.len() - index - 1).unwrap_or(0);
            listener.end(&run, Some(began.elapsed() / done * rest));
            if attendant.is_stuck() && rest > 0 {
                if manner.ends_when_stuck {
                    return Ok(Finished {
                        measured: 0,
                        failed: 0,
                        is_stuck: true,
                    });
                }
                if experiment.devices.kind != DeviceKind::Block {
                    listener.tell("a contender keeps the devices: making others");
                    let others = DeviceSet::make(&journal, &experiment.devices, erase)?;
                    attendant.go_on_with(Arc::new(others));
                }
            }
        }
    }
    count(folder, &plan)
}

fn is_measured(folder: &Path, planned: &PlannedRun) -> bool {
    let place = folder.join("runs").join(planned.folder());
    read_json::<Run>(&place.join("run.json")).is_ok_and(|run| run.measured().is_some())
}

/// The machine on which runs of the folder were measured; none where none was.
fn environment_before(folder: &Path, plan: &Plan) -> Result<Option<Environment>> {
    if !plan.runs.iter().any(|planned| is_measured(folder, planned)) {
        return Ok(None);
    }
    read_json(&folder.join("environment.json"))
        .context(
            "the runs of the folder were measured nobody knows where; give another one by --output",
        )
        .map(Some)
}

/// Makes the folder this experiment's own, or sees that it is.
fn claim(folder: &Path, text: &str, experiment: &Experiment, plan: &Plan) -> Result<()> {
    let file = folder.join("experiment.toml");
    if !file.exists() {
        // The console of a guest begins before its experiment does.
        let is_empty = !folder.exists()
            || fs::read_dir(folder)
                .with_context(|| format!("cannot read {}", folder.display()))?
                .all(|entry| entry.is_ok_and(|entry| entry.file_name() == CONSOLE));
        ensure!(
            is_empty,
            "{} is not empty and holds no experiment",
            folder.display()
        );
        fs::create_dir_all(folder.join("runs"))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        note_plan(folder, experiment.blocks, None)?;
        write_json(&folder.join("plan.json"), plan)?;
        store_scripts(folder, experiment)?;
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
                "{} holds another experiment; remove it, or give another folder",
                folder.display()
            );
        }
    }
    for (path, text) in scripts(folder, experiment) {
        ensure!(
            fs::read_to_string(&path).is_ok_and(|there| there == text),
            "{} is not the script that the runs in {} were measured with; give another folder by --output",
            path.file_name().unwrap_or_default().display(),
            folder.display()
        );
    }
    let there: Plan = read_json(&folder.join("plan.json"))?;
    let common = there.runs.len().min(plan.runs.len());
    ensure!(
        there.schema == plan.schema && there.runs[..common] == plan.runs[..common],
        "{} was planned where other contenders could run; remove it, or give another folder",
        folder.display()
    );
    if plan.runs.len() > there.runs.len() {
        note_plan(folder, experiment.blocks, Some(&there))?;
        write_json(&folder.join("plan.json"), plan)?;
        write_whole(&file, text)?;
    }
    Ok(())
}

/// The scripts of all loads with their places in the folder: it has to show what was run.
fn scripts<'a>(
    folder: &'a Path,
    experiment: &'a Experiment,
) -> impl Iterator<Item = (PathBuf, &'a str)> {
    (experiment.workloads.iter())
        .flat_map(|workload| workload.scripts.texts())
        .map(|(file, text)| (folder.join(SCRIPTS).join(file.stored_name()), text))
}

fn store_scripts(folder: &Path, experiment: &Experiment) -> Result<()> {
    for (path, text) in scripts(folder, experiment) {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        write_whole(&path, text)?;
    }
    Ok(())
}

/// Does a run, and puts down what came of it.
fn attempt(
    folder: &Path,
    plan: &Plan,
    planned: &PlannedRun,
    attendant: &mut Attendant,
    arrivals: Result<Option<f64>>,
) -> Result<Run> {
    let place = folder.join("runs").join(planned.folder());
    let attempt = note_beginning(folder, planned)?;
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let run = attendant.execute(planned, &place, arrivals);
    let run = agreement::checked(run, plan, folder);
    // A run that was stopped half way did not fail: it did not happen.
    interrupt::check()?;
    note_end(folder, &run, attempt)?;
    write_json(&place.join("run.json"), &run)?;
    Ok(run)
}

/// Writes every block of named devices once, before loads that write here and there. What the lab
/// makes itself it has written, but memory, which is full then.
fn prepare(
    experiment: &Experiment,
    devices: &DeviceSet,
    environment: &mut Environment,
    listener: &mut dyn Listener,
) -> Result<()> {
    let is_needed = experiment.workloads.iter().any(Workload::writes_at_random);
    if experiment.devices.kind == DeviceKind::Block && is_needed && !is_guest() {
        listener.tell("writing every block of the devices once");
        devices.leaves.iter().try_for_each(precondition)?;
        let fact = "every block once, before the first run of this start".to_owned();
        environment.facts.insert(PRECONDITIONED.to_owned(), fact);
    }
    Ok(())
}

fn note_start(folder: &Path, plan: &Plan) -> Result<()> {
    let measured = |planned: &&PlannedRun| is_measured(folder, planned);
    let event = Event::Started {
        at_unix_s: unix_now_s(),
        measured: plan.runs.iter().filter(measured).count(),
    };
    History::append(folder, event)
}

/// Notes that a run begins before anything of an earlier attempt at it is removed.
fn note_beginning(folder: &Path, planned: &PlannedRun) -> Result<usize> {
    let name = planned.folder();
    let attempt = History::read(folder)?.attempts(&name) + 1;
    let event = Event::Began {
        at_unix_s: unix_now_s(),
        run: name,
        attempt,
    };
    History::append(folder, event)?;
    Ok(attempt)
}

/// Notes what came of it before its record is there: a record that the history does not know is
/// nobody's, and one that a crash kept from being written was measured all the same.
fn note_end(folder: &Path, run: &Run, attempt: usize) -> Result<()> {
    let reason = match &run.outcome {
        Outcome::Measured(_) => None,
        Outcome::Failed { reason, .. } => Some(reason.clone()),
    };
    let event = Event::Ended {
        at_unix_s: unix_now_s(),
        run: run.planned.folder(),
        attempt,
        rate: run.measured().map(|measured| measured.rate),
        reason,
        record: fingerprint(&json_text(run)?),
    };
    History::append(folder, event)
}

/// Notes how many blocks there are to be, and in how many there is something to be seen by now.
fn note_plan(folder: &Path, blocks: u32, there: Option<&Plan>) -> Result<()> {
    let mut by_block: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for planned in there.iter().flat_map(|plan| &plan.runs) {
        if is_measured(folder, planned) {
            let labels = by_block.entry(planned.block).or_default();
            labels.insert(&planned.contender);
        }
    }
    // One contender alone is compared with nothing.
    let seen = by_block.values().filter(|labels| labels.len() > 1).count();
    let event = Event::Planned {
        at_unix_s: unix_now_s(),
        blocks,
        seen: u32::try_from(seen).unwrap_or(u32::MAX),
    };
    History::append(folder, event)
}

fn is_done(place: &Path, manner: &Manner) -> bool {
    read_json::<Run>(&place.join("run.json")).is_ok_and(|run| {
        run.measured().is_some()
            || manner
                .failures_stay_since_unix_s
                .is_some_and(|since| run.began_unix_s >= since)
    })
}

/// Counts what is in a folder where every run has happened.
pub(super) fn count(folder: &Path, plan: &Plan) -> Result<Finished> {
    let mut finished = Finished {
        measured: 0,
        failed: 0,
        is_stuck: false,
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
