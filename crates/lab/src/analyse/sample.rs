//! A folder as `measure` would have left it, for the tests of what reads it.

use std::collections::BTreeMap;

use super::folder::{Folder, RunWithSamples};
use crate::experiment::Experiment;
use crate::measure::plan;
use crate::record::{
    Durability, Environment, Latency, Layer, Layout, Measured, Outcome, PlannedRun, Processor, Run,
    SCHEMA, Samples,
};

/// Two loads, three contenders, so many blocks.
pub(crate) fn experiment(blocks: u32) -> Experiment {
    Experiment::parse(&format!(
        "name = \"sample\"\ncontenders = [\"ext4\", \"xfs\", \"spindle-normal\"]\nblocks = {blocks}\n\
         warm_up = \"2 s\"\nduration = \"20 s\"\n\n[devices]\nkind = \"loop\"\n\n\
         [[workload]]\nkind = \"tpcb\"\nusers = 4\n\n[[workload]]\nkind = \"random\"\nregime = \"storage-bound\"\n"
    ))
    .unwrap()
}

/// Every planned run, with the outcome that `reach` gives.
pub(crate) fn folder(
    experiment: Experiment,
    mut reach: impl FnMut(&PlannedRun) -> Outcome,
) -> Folder {
    let not_run: BTreeMap<String, String> =
        [("zfs".to_owned(), "the running kernel has no zfs".to_owned())].into();
    let plan = plan::make(&experiment, &not_run);
    let runs = plan
        .runs
        .iter()
        .map(|planned| {
            let outcome = reach(planned);
            let rate = match &outcome {
                Outcome::Measured(measured) => measured.rate,
                Outcome::Failed { .. } => 0.0,
            };
            let copies = if planned.contender == "spindle-normal" {
                2
            } else {
                1
            };
            RunWithSamples {
                samples: samples(rate, planned.seed),
                run: Run {
                    schema: SCHEMA,
                    planned: planned.clone(),
                    began_unix_s: 1,
                    elapsed_s: 30.0,
                    layout: Some(Layout {
                        copies,
                        devices: copies * 2,
                        data_checksums: false,
                        page_cache: true,
                        made_by: vec![format!("mkfs.{} /dev/loop0", planned.contender)],
                    }),
                    outcome,
                },
            }
        })
        .collect();
    Folder {
        environment: Environment {
            schema: SCHEMA,
            facts: [("kernel", "6.1"), ("processor", "a <fast> one")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        },
        experiment,
        plan,
        runs,
    }
}

fn samples(rate: f64, seed: u64) -> Samples {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut operations = 0.0;
    let rows = (0..=22)
        .map(|second| {
            operations += rate * (0.9 + 0.2 * random.f64());
            vec![f64::from(second), operations]
        })
        .collect();
    Samples {
        columns: vec!["seconds".to_owned(), "operations".to_owned()],
        rows,
    }
}

/// A run that reached this.
pub(crate) fn measured(rate: f64) -> Outcome {
    let layer = |name: &str, bytes: f64| Layer {
        name: name.to_owned(),
        read_bytes: bytes,
        written_bytes: bytes / 2.0,
        reads: 10.0,
        writes: 5.0,
    };
    Outcome::Measured(Box::new(Measured {
        unit: "operations/s".to_owned(),
        rate,
        operations: 1000,
        duration_s: 20.0,
        warm_up_s: 2.0,
        latency: Latency {
            counts: (1..=200).map(|step| (step * step, 5)).collect(),
        },
        processor: Processor {
            count: 2,
            user_s: 10.0,
            system_s: 8.0,
            waiting_s: 1.0,
            stolen_s: 0.0,
            harness_s: 2.0,
        },
        layers: vec![layer("database", 8e6), layer("devices", 7e6)],
        checks: Vec::new(),
        durability: Some(Durability {
            fdatasyncs_per_s: 900.0,
        }),
        unserved: 0,
        facts: BTreeMap::new(),
    }))
}
