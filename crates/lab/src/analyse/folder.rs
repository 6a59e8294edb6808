//! The folder of an experiment, read whole.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

use crate::experiment::Experiment;
use crate::record::history::fingerprint;
use crate::record::{
    Cuts, Environment, History, Peaks, Plan, Run, SCHEMA, SCRIPTS, Samples, read_json,
};

/// What lies in it.
#[derive(Debug, Clone)]
pub struct Folder {
    /// As it was asked for.
    pub experiment: Experiment,
    /// The same in the words of its file.
    pub text: String,
    /// In which order.
    pub plan: Plan,
    /// On which machine.
    pub environment: Environment,
    /// What happened so far, in order.
    pub runs: Vec<RunWithSamples>,
    /// What open loads are a share of, where there are such.
    pub peaks: Option<Peaks>,
    /// What each contender had after losses of power.
    pub cuts: Cuts,
    /// What was tried.
    pub history: History,
}

/// A run and its samples.
#[derive(Debug, Clone)]
pub struct RunWithSamples {
    /// The run.
    pub run: Run,
    /// Its samples; none where it failed early.
    pub samples: Samples,
    /// The fingerprint of its `run.json`, which the history knows.
    pub record: String,
}

impl RunWithSamples {
    /// The seconds in which a checkpoint began or ended, as far as the database counts them.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<f64> {
        self.samples
            .rates("database_checkpoints")
            .into_iter()
            .filter(|(_, grown)| *grown > 0.0)
            .map(|(second, _)| second)
            .collect()
    }

    /// What was worked on a second, within the measured time or with the warm-up: operations, or
    /// megabytes of the devices where the lab does not see the operations, or hardly one a sample.
    #[must_use]
    pub fn pace(&self, with_warm_up: bool) -> Vec<(f64, f64)> {
        let Some(measured) = self.run.measured() else {
            return Vec::new();
        };
        let operations = self.samples.rates("operations");
        let is_seen = operations.iter().any(|(_, rate)| *rate > 0.0);
        let are_many = usize::try_from(measured.operations).is_ok_and(|n| n > operations.len());
        let points = if is_seen && are_many {
            operations
        } else {
            let written = self.samples.rates("device_written_bytes");
            self.samples
                .rates("device_read_bytes")
                .into_iter()
                .zip(written)
                .map(|((second, read), (_, written))| (second, (read + written) / 1e6))
                .collect()
        };
        let until = measured.warm_up_s + measured.duration_s;
        points
            .into_iter()
            .filter(|(second, _)| {
                *second < until && (with_warm_up || *second >= measured.warm_up_s)
            })
            .collect()
    }
}

/// Reads a folder.
///
/// # Errors
/// Where it is none of the lab's, or another version's.
pub fn read(folder: &Path) -> Result<Folder> {
    let file = folder.join("experiment.toml");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("{} is no folder of an experiment", folder.display()))?;
    let mut experiment =
        Experiment::parse(&text).map_err(|mistake| anyhow!("{}: {mistake}", file.display()))?;
    // A folder that was moved in part is still told of, but for what its scripts were.
    let _ = experiment.read_scripts(|script| folder.join(SCRIPTS).join(script.stored_name()));
    let plan: Plan = read_json(&folder.join("plan.json"))?;
    ensure!(
        plan.schema == SCHEMA,
        "{} was written by another version (schema {}, this one reads {SCHEMA})",
        folder.display(),
        plan.schema
    );
    let mut runs = Vec::new();
    for planned in &plan.runs {
        let place = folder.join("runs").join(planned.folder());
        if !place.join("run.json").exists() {
            continue;
        }
        let samples = fs::read_to_string(place.join("samples.csv"))
            .map(|text| Samples::from_csv(&text))
            .unwrap_or_default();
        runs.push(RunWithSamples {
            run: read_json(&place.join("run.json"))?,
            samples,
            record: fingerprint(&fs::read_to_string(place.join("run.json"))?),
        });
    }
    let environment = read_json(&folder.join("environment.json")).unwrap_or_default();
    Ok(Folder {
        experiment,
        text,
        plan,
        environment,
        runs,
        peaks: read_json(&folder.join("peaks.json")).ok(),
        cuts: read_json(&folder.join("cuts.json")).unwrap_or_default(),
        history: History::read(folder)?,
    })
}

#[cfg(test)]
mod tests {
    use crate::analyse::sample::{experiment, folder, measured};
    use crate::record::{Outcome, Samples};

    #[test]
    fn what_is_hardly_one_operation_has_the_pace_of_its_devices() {
        let mut folder = folder(experiment(5), |_| measured(1000.0));
        let run = &mut folder.runs[0];
        let of_operations = run.pace(false);
        assert!(
            of_operations
                .iter()
                .all(|(_, rate)| (890.0..1110.0).contains(rate))
        );
        let Outcome::Measured(scan) = &mut run.run.outcome else {
            unreachable!("it is measured");
        };
        scan.operations = 1;
        let columns = [
            "seconds",
            "operations",
            "device_read_bytes",
            "device_written_bytes",
        ];
        run.samples = Samples {
            columns: columns.map(str::to_owned).to_vec(),
            rows: (0..=22)
                .map(f64::from)
                .map(|second| {
                    let ended = f64::from(u8::from(second > 20.0));
                    vec![second, ended, second * 40e6, second * 2e6]
                })
                .collect(),
        };
        let pace = run.pace(false);
        assert_eq!(pace.len(), 20, "{pace:?}");
        assert!(
            pace.iter().all(|(_, rate)| (rate - 42.0).abs() < 1e-9),
            "{pace:?}"
        );
    }
}
