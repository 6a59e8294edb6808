//! The rate of an open load that is asked for as a share of the slowest contender's closed peak.
//!
//! The peaks are those of the first block: each contender ran there once with each number of users,
//! and its best is its peak. The slowest of these peaks is written to `peaks.json` when the first
//! open run needs it, and every contender of every block then gets the same arrivals a second,
//! whatever is measured later or repeated after an interruption.

use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::Experiment;
use crate::quantity::as_float;
use crate::record::{Peak, Peaks, Plan, PlannedRun, Run, SCHEMA, read_json, write_json};

/// Arrivals a second of a planned run; none for a load that is not open by a share of a peak.
///
/// # Errors
/// Where no closed run of the first block was measured, or the folder cannot be written.
pub fn arrivals_per_s(
    folder: &Path,
    experiment: &Experiment,
    plan: &Plan,
    planned: &PlannedRun,
) -> Result<Option<f64>> {
    let asked = &experiment.workloads[planned.workload];
    let Some(percent) = asked.open_percent else {
        return Ok(None);
    };
    let file = folder.join("peaks.json");
    let mut known: Peaks = if file.exists() {
        read_json(&file)?
    } else {
        Peaks {
            schema: SCHEMA,
            peaks: Vec::new(),
        }
    };
    let there = known.peaks.iter().find(|peak| peak.family == asked.family);
    let peak_per_s = match there {
        Some(peak) => peak.operations_per_s,
        None => {
            let peak = slowest(folder, experiment, plan, asked.family)
                .context("no closed run of the first block was measured: there is no peak to take a share of")?;
            let found = peak.operations_per_s;
            known.peaks.push(peak);
            write_json(&file, &known)?;
            found
        }
    };
    Ok(Some(peak_per_s * f64::from(percent) / 100.0))
}

/// The slowest contender's best closed rate in the first block.
fn slowest(folder: &Path, experiment: &Experiment, plan: &Plan, family: usize) -> Option<Peak> {
    let mut best: Vec<Peak> = Vec::new();
    for planned in plan.runs.iter().filter(|planned| planned.block == 1) {
        let asked = &experiment.workloads[planned.workload];
        if asked.family != family || asked.is_open() {
            continue;
        }
        let place = folder.join("runs").join(planned.folder()).join("run.json");
        let Ok(run) = read_json::<Run>(&place) else {
            continue;
        };
        let Some(measured) = run.measured() else {
            continue;
        };
        let operations_per_s = as_float(measured.operations) / measured.duration_s;
        let found = Peak {
            family,
            contender: planned.label.clone(),
            users: asked.users,
            operations_per_s,
        };
        match best
            .iter_mut()
            .find(|peak| peak.contender == found.contender)
        {
            Some(peak) if peak.operations_per_s < operations_per_s => *peak = found,
            Some(_) => {}
            None => best.push(found),
        }
    }
    best.into_iter()
        .min_by(|one, other| one.operations_per_s.total_cmp(&other.operations_per_s))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyse::sample::measured;
    use crate::measure::plan;
    use crate::record::Outcome;

    #[test]
    fn all_contenders_get_a_share_of_the_slowest_peak_of_the_first_block_for_good() {
        let experiment = Experiment::parse(
            "contenders = [\"ext4\", \"xfs\"]\nblocks = 5\n[devices]\nkind = \"loop\"\n
             [[workload]]\nkind = \"tpcb\"\nusers = [1, 4]\nopen = [50]\n",
        )
        .unwrap();
        let plan = plan::make(&experiment, &BTreeMap::new());
        let folder = tempfile::tempdir().unwrap();
        let is_open = |planned: &&PlannedRun| experiment.workloads[planned.workload].is_open();
        let open: Vec<&PlannedRun> = plan.runs.iter().filter(is_open).collect();
        let rate =
            |planned: &PlannedRun| arrivals_per_s(folder.path(), &experiment, &plan, planned);
        let error = rate(open[0]).unwrap_err().to_string();
        assert!(error.contains("no peak"), "{error}");
        for planned in plan.runs.iter().filter(|planned| !is_open(planned)) {
            // xfs peaks with four users, ext4 with one; the second block is slower.
            let asked = &experiment.workloads[planned.workload];
            let per_s = match (planned.contender.as_str(), asked.users) {
                ("xfs", 4) => 300.0,
                ("xfs", _) => 200.0,
                (_, 4) => 350.0,
                (_, _) => 400.0,
            };
            let Outcome::Measured(mut measured) = measured(per_s) else {
                panic!("it is measured");
            };
            measured.operations = 1000;
            measured.duration_s = 1000.0 / (per_s / f64::from(planned.block));
            let place = folder.path().join("runs").join(planned.folder());
            std::fs::create_dir_all(&place).unwrap();
            let run = Run {
                schema: SCHEMA,
                planned: planned.clone(),
                began_unix_s: 0,
                elapsed_s: 1.0,
                layout: None,
                outcome: Outcome::Measured(measured),
            };
            write_json(&place.join("run.json"), &run).unwrap();
        }
        for planned in &open {
            let found = rate(planned).unwrap().unwrap();
            assert!((found - 150.0).abs() < 1e-6, "{found}");
        }
        // What is repeated later does not move it.
        std::fs::remove_dir_all(folder.path().join("runs")).unwrap();
        assert!(rate(open[0]).unwrap().is_some());
        let closed = plan.runs.iter().find(|run| !is_open(run)).unwrap();
        assert_eq!(rate(closed).unwrap(), None);
    }
}
