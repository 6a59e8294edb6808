//! Everything that may be said of an experiment: `summary.json`, and what the report draws.
//!
//! The published form is `docs/lab/summary.md`; a test holds the two together.

mod beside;
mod class;
mod curve;
mod differing;
mod doubts;
mod family;
mod headline;
mod latency;
mod load;
mod overall;
mod past;
mod power;
mod quiet;
mod ratio;
mod reference;
mod regime;
mod scripts;
mod steady;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::beside::{BesideFound, LapFound};
pub use self::class::{Found as FoundClass, title as class_title};
pub use self::curve::{ContenderCurve, Curve, CurvePoint, Knee, OpenPoint};
pub use self::headline::map_title;
pub use self::latency::LatencyFound;
pub(super) use self::latency::{JUDGED, by_block};
pub(super) use self::load::pairs;
use self::load::pairs_of;
pub use self::overall::Overall;
pub use self::ratio::Ratio;
pub use self::scripts::ScriptFound;
use super::doubt::Doubt;
use super::extract::{Extract, extract};
use super::folder::{Folder, RunWithSamples};
use super::latency::{QUANTILES, mean_us, merged, quantile_us};
use super::series::{mean, median};
use super::verdict::Verdict;
use crate::experiment::BlockPoint;
use crate::quantity::as_float;
use crate::record::{AGAIN, Layout, Measured, Outcome, SCHEMA};

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of this form.
    pub schema: u32,
    /// The experiment's name.
    pub name: String,
    /// The verdicts in sentences, most important first.
    pub headline: Vec<String>,
    /// What the others are compared with.
    pub baseline: String,
    /// A ratio within one plus or minus this is called equivalent.
    pub margin: f64,
    /// What all chance was drawn from.
    pub seed: u64,
    /// Runs that were planned.
    pub runs_planned: usize,
    /// Runs that were measured.
    pub runs_measured: usize,
    /// Under each load.
    pub workloads: Vec<WorkloadSummary>,
    /// Over the loads of one `[[workload]]` with several numbers of users.
    pub curves: Vec<Curve>,
    /// Over all loads, where there are several: the geometric mean of the ratios.
    pub overall: Vec<Overall>,
    /// What this machine could not run, with the reason.
    pub not_run: BTreeMap<String, String>,
    /// Runs that failed.
    pub failed: Vec<FailedRun>,
    /// Runs that were measured and are in no ratio, because what they are compared with failed in
    /// their block.
    pub excluded: Vec<FailedRun>,
    /// The machine, its kernel and its devices, by the names of their facts.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What was tried before this came out, in sentences.
    #[serde(default)]
    pub history: Vec<String>,
    /// Doubts about all of it.
    pub doubts: Vec<Told>,
}

/// A doubt in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// What raised it.
    pub doubt: Doubt,
    /// In a sentence.
    pub what: String,
    /// In a sentence.
    pub what_to_do: String,
}

impl From<Doubt> for Told {
    fn from(doubt: Doubt) -> Self {
        Self {
            what: doubt.what(),
            what_to_do: doubt.what_to_do().to_owned(),
            doubt,
        }
    }
}

/// Whether these loads of one `[[workload]]` are points of a map, and not of a curve.
#[must_use]
pub fn are_a_map(loads: &[WorkloadSummary]) -> bool {
    let differs = |load: &WorkloadSummary| load.point != loads[0].point;
    loads.iter().any(differs)
}

impl WorkloadSummary {
    /// Whether something else went on beside it.
    #[must_use]
    pub fn has_company(&self) -> bool {
        self.contenders.iter().any(|one| one.beside.is_some())
    }

    /// Every doubt about it with whose it is; one that several share stands once.
    #[must_use]
    pub fn all_doubts(&self) -> Vec<(String, &Told)> {
        let mut all: Vec<(String, &Told)> = Vec::new();
        for told in &self.doubts {
            all.push((String::new(), told));
        }
        for contender in &self.contenders {
            for told in &contender.doubts {
                match all.iter_mut().find(|(_, other)| other.what == told.what) {
                    Some((names, _)) => {
                        names.push_str(", ");
                        names.push_str(&contender.name);
                    }
                    None => all.push((contender.name.clone(), told)),
                }
            }
        }
        all
    }
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Its folder.
    pub folder: String,
    /// Whose it was.
    pub contender: String,
    /// Under which load.
    pub workload: String,
    /// In a line.
    pub reason: String,
    /// The end of its log.
    pub log_tail: String,
}

/// What was found under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSummary {
    /// Its name.
    pub title: String,
    /// Which `[[workload]]` of the file it came from, from 0.
    pub family: usize,
    /// Clients at once.
    pub users: u32,
    /// Of an open load: its arrivals as a share of a hundred of the slowest contender's peak.
    pub open_percent: Option<u32>,
    /// What may have held the data.
    pub regime: String,
    /// Of a `block` load: its requests.
    #[serde(default)]
    pub point: Option<BlockPoint>,
    /// What is compared.
    pub unit: String,
    /// What the database was started with.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The ratio of the baseline to itself.
    pub noise: Option<Ratio>,
    /// How far that may lie from one (0.02 for 2 %): no smaller difference is claimed.
    pub noise_floor: f64,
    /// The baseline first, its second name second, the others as they were named.
    pub contenders: Vec<ContenderSummary>,
    /// Doubts about this load.
    pub doubts: Vec<Told>,
}

/// What was found of one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContenderSummary {
    /// Its name.
    pub name: String,
    /// The storage behind it, by its name among all that there are.
    #[serde(default)]
    pub storage: String,
    /// What it had of everything in which some contender is asked to differ beside the storage.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What it is.
    pub layout: Option<Layout>,
    /// The middle of its runs.
    pub rate: Option<f64>,
    /// Of each measured run.
    pub rates: Vec<f64>,
    /// Runs that failed.
    pub failed: usize,
    /// Against what its ratio is: the baseline, or the first contender of as many copies where
    /// the baseline keeps another number.
    pub against: Option<String>,
    /// Against that; none for the baseline itself.
    pub ratio: Option<Ratio>,
    /// What may be said.
    pub verdict: Option<Verdict>,
    /// Microseconds: p50, p90, p99, p99.9, the longest; over all runs.
    pub latency_us: Vec<Option<u64>>,
    /// Microseconds on average.
    pub latency_mean_us: Option<f64>,
    /// Its slow operations against those of what it is compared with.
    pub latencies: Vec<LatencyFound>,
    /// Each script by itself, where the load is of scripts.
    #[serde(default)]
    pub scripts: Vec<ScriptFound>,
    /// Where something else goes on beside the load.
    #[serde(default)]
    pub beside: Option<BesideFound>,
    /// Microseconds of processor time an operation: of its database and its storage's daemon; in
    /// records from before that was counted, of the whole machine less the lab's.
    pub processor_us: Option<f64>,
    /// The lab's own share of all processor time there was (0.1 for 10 %).
    pub harness_share: Option<f64>,
    /// What it does with what it acknowledges; none where that was not looked at.
    pub durability: Option<FoundClass>,
    /// Durable writes a second, one after the other, on the empty contender.
    pub fdatasyncs_per_s: Option<f64>,
    /// Bytes an operation at each layer: (layer, read, written).
    pub layers: Vec<(String, f64, f64)>,
    /// What its database and its devices did; none where no run was counted whole.
    pub extract: Option<Extract>,
    /// Why its figures may not be what they seem.
    pub doubts: Vec<Told>,
}

/// Analyses a folder.
#[must_use]
pub fn summarise(folder: &Folder) -> Summary {
    let workloads: Vec<WorkloadSummary> = (0..folder.experiment.workloads.len())
        .map(|index| load::summary(folder, index))
        .collect();
    let mut summary = Summary {
        schema: SCHEMA,
        name: folder.experiment.name.clone(),
        headline: Vec::new(),
        baseline: folder.experiment.baseline.clone(),
        margin: folder.experiment.margin,
        seed: folder.plan.seed,
        runs_planned: folder.plan.runs.len(),
        runs_measured: folder
            .runs
            .iter()
            .filter(|run| run.run.measured().is_some())
            .count(),
        overall: overall::overall(folder, &workloads),
        workloads,
        curves: curve::curves(folder, &labels(folder)),
        not_run: folder.plan.not_run.clone(),
        failed: failed(folder),
        excluded: reference::excluded(folder),
        environment: folder.environment.facts.clone(),
        history: past::told(folder),
        doubts: doubts::of_the_machine(folder)
            .into_iter()
            .chain(quiet::doubts(folder))
            .map(Told::from)
            .collect(),
    };
    summary.headline = headline::sentences(&summary);
    summary
}

fn failed(folder: &Folder) -> Vec<FailedRun> {
    folder
        .runs
        .iter()
        .filter_map(|run| match &run.run.outcome {
            Outcome::Measured(_) => None,
            Outcome::Failed { reason, log_tail } => Some(FailedRun {
                folder: run.run.planned.folder(),
                contender: run.run.planned.label.clone(),
                workload: folder.experiment.workloads[run.run.planned.workload].title(),
                reason: reason.clone(),
                log_tail: log_tail.clone(),
            }),
        })
        .collect()
}

/// The runs of one contender under one load.
fn runs_of<'a>(folder: &'a Folder, workload: usize, label: &str) -> Vec<&'a RunWithSamples> {
    folder
        .runs
        .iter()
        .filter(|run| run.run.planned.workload == workload && run.run.planned.label == label)
        .collect()
}

/// Everyone that runs, as the report lists them: the baseline, its second name, the others.
fn labels(folder: &Folder) -> Vec<String> {
    let baseline = &folder.experiment.baseline;
    let mut labels = vec![baseline.clone(), format!("{baseline}{AGAIN}")];
    labels.extend(
        folder
            .experiment
            .contenders
            .iter()
            .filter(|name| *name != baseline && !folder.plan.not_run.contains_key(*name))
            .cloned(),
    );
    labels
}

fn contender(label: &str, runs: &[&RunWithSamples]) -> ContenderSummary {
    let measured: Vec<&Measured> = runs.iter().filter_map(|run| run.run.measured()).collect();
    let rates: Vec<f64> = measured.iter().map(|measured| measured.rate).collect();
    let latency = merged(measured.iter().map(|measured| &measured.latency));
    let counted: Vec<&Measured> = measured
        .iter()
        .copied()
        .filter(|run| run.is_counted_whole())
        .collect();
    let average = |of: &dyn Fn(&Measured) -> f64| {
        mean(&counted.iter().map(|run| of(run)).collect::<Vec<_>>())
    };
    let mut layers = Vec::new();
    if let Some(first) = counted.first() {
        for (index, layer) in first.layers.iter().enumerate() {
            let each = |of: &dyn Fn(&Measured) -> f64| average(of).unwrap_or(0.0);
            let operations = |run: &Measured| as_float(run.operations).max(1.0);
            layers.push((
                layer.name.clone(),
                each(&|run| {
                    run.layers.get(index).map_or(0.0, |layer| layer.read_bytes) / operations(run)
                }),
                each(&|run| {
                    run.layers
                        .get(index)
                        .map_or(0.0, |layer| layer.written_bytes)
                        / operations(run)
                }),
            ));
        }
    }
    ContenderSummary {
        name: label.to_owned(),
        storage: String::new(),
        settings: BTreeMap::new(),
        layout: runs.iter().find_map(|run| run.run.layout.clone()),
        rate: median(&rates),
        failed: runs.len() - rates.len(),
        rates,
        against: None,
        ratio: None,
        verdict: None,
        latency_us: QUANTILES
            .iter()
            .map(|quantile| quantile_us(&latency, *quantile))
            .collect(),
        latency_mean_us: mean_us(&latency),
        latencies: Vec::new(),
        scripts: scripts::found(&measured),
        beside: None,
        processor_us: average(&|run| {
            let processor = &run.processor;
            let used = processor
                .own_s
                .unwrap_or(processor.user_s + processor.system_s - processor.harness_s);
            used * 1e6 / as_float(run.operations).max(1.0)
        }),
        harness_share: average(&|run| {
            run.processor.harness_s / (f64::from(run.processor.count) * run.duration_s)
        }),
        durability: None,
        fdatasyncs_per_s: median(
            &measured
                .iter()
                .filter_map(|run| Some(run.durability.as_ref()?.fdatasyncs_per_s))
                .collect::<Vec<_>>(),
        ),
        layers,
        extract: extract(&counted),
        doubts: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
