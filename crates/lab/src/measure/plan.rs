//! The order of the runs: randomised blocks.
//!
//! Each block runs every contender once under every workload; within a block and a workload the
//! order is random, so that drift falls on each alike. The baseline runs twice, under two names.
//! All contenders of a block get the same load, drawn from the same seed. The same experiment gives
//! the same plan on every machine that can run the same contenders.

use std::collections::BTreeMap;

use crate::experiment::Experiment;
use crate::record::{AGAIN, Plan, PlannedRun, SCHEMA};

/// Makes the plan. `not_run` names what this machine cannot run; those get no runs.
#[must_use]
pub fn make(experiment: &Experiment, not_run: &BTreeMap<String, String>) -> Plan {
    let mut random = fastrand::Rng::with_seed(experiment.seed);
    let mut runs = Vec::new();
    let mut number = 0;
    for block in 1..=experiment.blocks {
        for (workload, asked) in experiment.workloads.iter().enumerate() {
            let seed = random.u64(..);
            let mut labels: Vec<(String, String)> = experiment
                .contenders
                .iter()
                .filter(|name| {
                    !not_run.contains_key(*name) && !not_run.contains_key(&on(name, &asked.title()))
                })
                .map(|name| (name.clone(), name.clone()))
                .collect();
            let baseline = experiment.baseline.clone();
            labels.push((format!("{baseline}{AGAIN}"), baseline));
            random.shuffle(&mut labels);
            for (label, contender) in labels {
                number += 1;
                runs.push(PlannedRun {
                    number,
                    block,
                    label,
                    contender,
                    workload,
                    seed,
                });
            }
        }
    }
    Plan {
        schema: SCHEMA,
        seed: experiment.seed,
        runs,
        not_run: not_run.clone(),
    }
}

/// How a contender is named that cannot run under one of the workloads.
#[must_use]
pub fn on(contender: &str, workload: &str) -> String {
    format!("{contender} under {workload}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn experiment() -> Experiment {
        Experiment::parse(
            "contenders = [\"ext4\", \"xfs\", \"raw\", \"zfs\"]\nblocks = 6\n
             [devices]\nkind = \"loop\"\n
             [[workload]]\nkind = \"block\"\n[[workload]]\nkind = \"tpcb\"\n",
        )
        .unwrap()
    }

    #[test]
    fn a_block_runs_everyone_once_and_the_baseline_twice_in_an_order_of_its_own() {
        let experiment = experiment();
        let raw = on("raw", &experiment.workloads[1].title());
        let not_run = [("zfs".to_owned(), "no".to_owned()), (raw, "no".to_owned())].into();
        let plan = make(&experiment, &not_run);
        assert_eq!(
            plan,
            make(&experiment, &not_run),
            "the same seed, the same plan"
        );
        assert_eq!(plan.runs.len(), 6 * (4 + 3));
        let mut orders = BTreeSet::new();
        for block in 1..=6 {
            let of_block: Vec<_> = plan
                .runs
                .iter()
                .filter(|run| run.block == block && run.workload == 0)
                .collect();
            let labels: BTreeSet<_> = of_block.iter().map(|run| run.label.as_str()).collect();
            assert_eq!(labels, BTreeSet::from(["ext4", "ext4 (A/A)", "raw", "xfs"]));
            let seeds: BTreeSet<_> = of_block.iter().map(|run| run.seed).collect();
            assert_eq!(seeds.len(), 1, "one load for all of a block");
            orders.insert(
                of_block
                    .iter()
                    .map(|run| run.label.clone())
                    .collect::<Vec<_>>(),
            );
        }
        assert!(orders.len() >= 3, "{orders:?}");
    }
}
