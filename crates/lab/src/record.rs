//! What lies in the folder of an experiment: written by `measure`, read by `analyse` and `render`.
//!
//! ```text
//! DIR/experiment.toml     the experiment as it was asked for
//! DIR/plan.json           every run in its order, with the seeds ([`Plan`])
//! DIR/scripts/           the scripts of the loads, as they were run
//! DIR/history.jsonl       what was tried, in its order, only ever added to ([`History`])
//! DIR/environment.json    the machine ([`Environment`])
//! DIR/cuts.json           what was left after losses of power, by contender ([`Cuts`])
//! DIR/peaks.json          what open loads are a share of ([`Peaks`])
//! DIR/runs/0007-ext4/run.json      one run ([`Run`]), written last: what has none did not happen
//! DIR/runs/0007-ext4/samples.csv   counters at 1 Hz, raw ([`Samples`])
//! DIR/runs/0007-ext4/waits.csv     sessions by what they waited for, at 1 Hz
//! DIR/runs/0007-ext4/log.txt       what the programs said
//! DIR/summary.json        what the analysis found
//! DIR/report.html         what a person reads
//! ```
//!
//! Every other file is written beside its place and renamed, so that a crash leaves the old one or the
//! new one.

mod durability;
pub mod history;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use durability::{Cut, Cuts, Durability, DurabilityClass, Gate, JournalCommits, WayCount};
pub use history::{Event, History};

/// The number of this layout; `compare` and `report` refuse others.
pub const SCHEMA: u32 = 1;

/// The end of the name under which the baseline runs a second time.
pub const AGAIN: &str = " (A/A)";

/// The directory of the scripts that were run.
pub const SCRIPTS: &str = "scripts";

/// Every run of an experiment, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What every order and every load is drawn from.
    pub seed: u64,
    /// The runs.
    pub runs: Vec<PlannedRun>,
    /// What was asked for and cannot run here, with the reason.
    pub not_run: BTreeMap<String, String>,
}

/// One run that is to happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// From 1, in the order of running.
    pub number: u32,
    /// From 1; each block runs every contender once.
    pub block: u32,
    /// The name in the report: the contender's, or the baseline's second name.
    pub label: String,
    /// The contender.
    pub contender: String,
    /// Index of the workload in the experiment.
    pub workload: usize,
    /// What the load of this run is drawn from; the same for all contenders of a block.
    pub seed: u64,
}

impl PlannedRun {
    /// The name of its folder.
    #[must_use]
    pub fn folder(&self) -> String {
        let label: String = self
            .label
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() || letter == '-' {
                    letter
                } else {
                    '_'
                }
            })
            .collect();
        format!("{:04}-{label}", self.number)
    }
}

/// The peaks that open loads are a share of: `peaks.json`, written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// [`SCHEMA`].
    pub schema: u32,
    /// One for each `[[workload]]` with open loads.
    pub peaks: Vec<Peak>,
}

/// The slowest contender's best closed rate in the first block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Which `[[workload]]`, from 0.
    pub family: usize,
    /// Whose peak it is.
    pub contender: String,
    /// With how many users.
    pub users: u32,
    /// Operations a second.
    pub operations_per_s: f64,
}

/// One run that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// As planned.
    pub planned: PlannedRun,
    /// Seconds since 1970 when it began.
    pub began_unix_s: u64,
    /// From the making of the contender to its removal.
    pub elapsed_s: f64,
    /// What the contender is.
    pub layout: Option<Layout>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was measured, and every check passed.
    Measured(Box<Measured>),
    /// It was not: never a zero.
    Failed {
        /// In a line.
        reason: String,
        /// The end of the log.
        log_tail: String,
    },
}

impl Run {
    /// What was measured, where it was.
    #[must_use]
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        }
    }
}

/// What a contender is, for the box on fairness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Copies of each byte.
    pub copies: u32,
    /// Over how many devices one file is spread.
    pub devices: u32,
    /// Whether user data carries checksums.
    pub data_checksums: bool,
    /// Whether the kernel's page cache is used.
    pub page_cache: bool,
    /// The commands that made it.
    pub made_by: Vec<String>,
    /// What it lies on is mounted as: the file system and its options.
    #[serde(default)]
    pub mount: Option<String>,
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What is compared, such as `transactions/s`; more is better.
    pub unit: String,
    /// How much of it.
    pub rate: f64,
    /// Operations within the measured time.
    pub operations: u64,
    /// The measured time.
    pub duration_s: f64,
    /// How much of `samples.csv` is warming up.
    pub warm_up_s: f64,
    /// Of the operations, from their intended start.
    pub latency: Latency,
    /// Where the processor's time went while it was measured.
    pub processor: Processor,
    /// Bytes at each layer while it was measured.
    pub layers: Vec<Layer>,
    /// The checks; all passed, or the run had failed.
    pub checks: Vec<Check>,
    /// How fast and how durably its place and its database acknowledge.
    pub durability: Option<Durability>,
    /// Arrivals of an open load that were not served in time.
    pub unserved: u64,
    /// What the database was started with.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Each of several scripts by itself.
    #[serde(default)]
    pub scripts: Vec<ScriptActivity>,
    /// What went on beside the load, lap after lap.
    #[serde(default)]
    pub beside: Vec<LapRun>,
    /// Digests of what was answered, by question: the same for all contenders of a block.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
    /// Everything else worth telling, by name: what the database's counters grew by is here under
    /// the counter's name.
    pub facts: BTreeMap<String, f64>,
    /// Each leaf device while it was measured.
    #[serde(default)]
    pub devices: Vec<DeviceActivity>,
    /// What the database's sessions waited for, by samples of a second.
    #[serde(default)]
    pub waits: Option<Waits>,
    /// What the storage counted by file, or the database by table and index; the busiest.
    #[serde(default)]
    pub objects: Vec<ObjectActivity>,
}

/// Runs of one script of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptActivity {
    /// Its file.
    pub name: String,
    /// Runs within the measured time.
    pub operations: u64,
    /// Of these.
    pub latency: Latency,
}

/// The lap in which a device of a mirror is away; how long is the lab's own choice.
pub const LAP_AWAY: &str = "away";

/// A lap of what went on beside a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LapRun {
    /// Such as `backup`.
    pub name: String,
    /// When it began, in seconds since the beginning of the measured time.
    pub from_s: f64,
    /// When it was done; none where it was under way at the end of the measured time.
    pub until_s: Option<f64>,
    /// Bytes that a backup read.
    pub bytes: Option<u64>,
}

/// What the kernel counted of a leaf device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceActivity {
    /// Such as `loop3`.
    pub name: String,
    /// Requests.
    pub reads: f64,
    /// Bytes.
    pub read_bytes: f64,
    /// Milliseconds that reads took, queue included, all together.
    pub read_ms: f64,
    /// Requests.
    pub writes: f64,
    /// Bytes.
    pub written_bytes: f64,
    /// Milliseconds that writes took, queue included, all together.
    pub write_ms: f64,
    /// Flushes.
    pub flushes: f64,
    /// Milliseconds in which something was under way.
    pub busy_ms: f64,
    /// Milliseconds times requests under way: over time it gives the mean length of the queue.
    pub queue_ms: f64,
    /// Of a device that is held to a limit: how much of what it is allowed it carried (0.86 for
    /// 86 %), by what came nearest to its limit of bytes and requests, read and written.
    #[serde(default)]
    pub limit_share: Option<f64>,
}

/// Samples of the database's active sessions, as an active session history counts them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// How often was looked, a second apart.
    pub samples: u64,
    /// What was seen.
    pub events: Vec<WaitEvent>,
}

/// One thing that sessions waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitEvent {
    /// Such as `IO`, or `CPU` where a session did not wait.
    pub class: String,
    /// Such as `WALSync`.
    pub event: String,
    /// Sessions seen so, over all samples: each stands for a second.
    pub sessions: u64,
}

/// What was read and written of a file, or of a table or index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectActivity {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub read_bytes: f64,
    /// Bytes; none where they are not counted by object.
    pub written_bytes: Option<f64>,
    /// The share of what was asked of it that was in the database's memory, where that is counted.
    pub hit_share: Option<f64>,
}

/// The fact that holds the seconds between the readings of the counters at either end of a run.
pub const COUNTED_S: &str = "counted_s";

/// The fact that is 1 where the rate held still when the measured time began, and 0 where that was
/// waited for in vain; a run that waited for nothing has none.
pub const SETTLED: &str = "settled";

impl Measured {
    /// Whether the counters cover the measured time. On a machine with no processor to spare the
    /// reading at its beginning may come late, and they are too small then; rates and latencies are
    /// the clients' own.
    #[must_use]
    pub fn is_counted_whole(&self) -> bool {
        self.facts
            .get(COUNTED_S)
            .is_none_or(|counted_s| *counted_s >= 0.9 * self.duration_s)
    }
}

/// Latencies as counts of values: exact enough (three digits), and small.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// (microseconds, how many), ascending.
    pub counts: Vec<(u64, u64)>,
}

/// Seconds of processor time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// How many processors there are.
    pub count: u32,
    /// Of the whole machine, in user space.
    pub user_s: f64,
    /// Of the whole machine, in the kernel.
    pub system_s: f64,
    /// Waiting for disks.
    pub waiting_s: f64,
    /// Taken by the host of this virtual machine.
    pub stolen_s: f64,
    /// Of the lab itself.
    pub harness_s: f64,
    /// Of the contender: its database and the storage's daemon. This and what follows is none in a
    /// record from before it was counted.
    #[serde(default)]
    pub own_s: Option<f64>,
    /// Of the kernel's own threads and of interrupts, for whoever asked.
    #[serde(default)]
    pub kernel_s: Option<f64>,
    /// Of everything else that ran on the machine.
    #[serde(default)]
    pub others_s: Option<f64>,
}

/// What one layer counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Such as `database` or `devices`.
    pub name: String,
    /// Bytes.
    pub read_bytes: f64,
    /// Bytes.
    pub written_bytes: f64,
    /// Requests, where the layer counts them.
    pub reads: f64,
    /// Requests, where the layer counts them.
    pub writes: f64,
}

/// A check that the work was real.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// Whether it did.
    pub passed: bool,
    /// The figures.
    pub detail: String,
}

/// The fact on the machine that says how its devices were written before.
pub const PRECONDITIONED: &str = "written before";

/// The fact on the database that the contenders got copies of, and what it lies on.
pub const COPIED: &str = "copied database";

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// [`SCHEMA`].
    pub schema: u32,
    /// By name, in the order of names.
    pub facts: BTreeMap<String, String>,
}

/// A table of samples: a column of seconds since the run's load began, then a column a counter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// The names of the columns, `seconds` first.
    pub columns: Vec<String>,
    /// The rows; counters as the kernel gives them, ever growing.
    pub rows: Vec<Vec<f64>>,
}

impl Samples {
    /// As CSV.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = self.columns.join(",");
        text.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(f64::to_string).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    /// From CSV; a row that is not whole (a crash in the middle of it) is left out.
    #[must_use]
    pub fn from_csv(text: &str) -> Self {
        let mut lines = text.lines();
        let columns: Vec<String> = lines
            .next()
            .unwrap_or_default()
            .split(',')
            .map(str::to_owned)
            .collect();
        let rows = lines
            .map(|line| {
                line.split(',')
                    .filter_map(|cell| cell.parse().ok())
                    .collect()
            })
            .filter(|row: &Vec<f64>| row.len() == columns.len())
            .collect();
        Self { columns, rows }
    }

    /// One column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<Vec<f64>> {
        let index = self.columns.iter().position(|column| column == name)?;
        Some(self.rows.iter().map(|row| row[index]).collect())
    }

    /// (middle of the interval in seconds, growth a second) between each two rows.
    #[must_use]
    pub fn rates(&self, name: &str) -> Vec<(f64, f64)> {
        let (Some(seconds), Some(values)) = (self.column("seconds"), self.column(name)) else {
            return Vec::new();
        };
        seconds
            .windows(2)
            .zip(values.windows(2))
            .filter(|(time, _)| time[1] > time[0])
            .map(|(time, value)| {
                (
                    f64::midpoint(time[0], time[1]),
                    (value[1] - value[0]) / (time[1] - time[0]),
                )
            })
            .collect()
    }
}

/// Writes `value` as JSON, whole or not at all.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    write_whole(path, &json_text(value)?)
}

/// What [`write_json`] writes.
///
/// # Errors
/// Where the value has no such form.
pub fn json_text(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

/// Writes a text, whole or not at all.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    let written = fs::File::create(&beside).and_then(|mut file| {
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()
    });
    written
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads what [`write_json`] wrote.
///
/// # Errors
/// Where it is not there or is something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what the lab writes", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_the_way_through_csv_and_a_torn_last_row() {
        let samples = Samples {
            columns: vec!["seconds".to_owned(), "operations".to_owned()],
            rows: vec![vec![0.0, 0.0], vec![1.0, 50.0], vec![3.0, 250.0]],
        };
        let mut text = samples.to_csv();
        assert_eq!(Samples::from_csv(&text), samples);
        text.push_str("4.0,");
        assert_eq!(Samples::from_csv(&text), samples);
        assert_eq!(samples.rates("operations"), [(0.5, 50.0), (2.0, 100.0)]);
        assert!(samples.rates("nothing").is_empty());
    }
}
