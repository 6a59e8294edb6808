//! A folder as `measure` would have left it, for the tests of what reads it.

use std::collections::BTreeMap;

use super::folder::{Folder, RunWithSamples};
use crate::experiment::{CUTS, Experiment};
use crate::measure::plan;
use crate::record::{
    Cut, Cuts, DeviceActivity, Durability, DurabilityClass, Environment, Event, Gate, History,
    JournalCommits, Latency, Layer, Layout, Measured, ObjectActivity, Outcome, Peak, Peaks,
    PlannedRun, Processor, Run, SCHEMA, SETTLED, Samples, WaitEvent, Waits,
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

/// One load of several users, with open ones: a scaling curve.
pub(crate) fn curve(blocks: u32) -> Experiment {
    Experiment::parse(&format!(
        "name = \"curve\"\ncontenders = [\"ext4\", \"xfs\", \"spindle-normal\", \"btrfs-raid1\"]\nblocks = {blocks}\n\
         warm_up = \"2 s\"\nduration = \"20 s\"\n\n[devices]\nkind = \"loop\"\n\n\
         [[workload]]\nkind = \"tpcb\"\nusers = [1, 2, 4, 8, 16]\nopen = [50, 70, 90]\n"
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
    let runs: Vec<RunWithSamples> = plan
        .runs
        .iter()
        .map(|planned| {
            let outcome = reach(planned);
            let rate = match &outcome {
                Outcome::Measured(measured) => measured.rate,
                Outcome::Failed { .. } => 0.0,
            };
            let copies = match planned.contender.as_str() {
                "spindle-normal" | "btrfs-raid1" => 2,
                _ => 1,
            };
            RunWithSamples {
                record: format!("record of {}", planned.number),
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
                        mount: None,
                    }),
                    outcome,
                },
            }
        })
        .collect();
    let history = history(experiment.blocks, &runs);
    let contenders = experiment.contenders.iter();
    let cuts = Cuts {
        schema: SCHEMA,
        contenders: contenders
            .map(|name| (name.clone(), cut_at(CUTS)))
            .collect(),
    };
    Folder {
        environment: Environment {
            schema: SCHEMA,
            facts: [("kernel", "6.1"), ("processor", "a <fast> one")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        },
        experiment,
        text: "contenders = [\"ext4\", \"xfs\"]\n".to_owned(),
        plan,
        runs,
        cuts,
        history,
        peaks: Some(Peaks {
            schema: SCHEMA,
            peaks: vec![Peak {
                family: 0,
                contender: "ext4".to_owned(),
                users: 4,
                operations_per_s: 1000.0,
            }],
        }),
    }
}

/// That of an experiment which ran through at its first start.
fn history(blocks: u32, runs: &[RunWithSamples]) -> History {
    let at_unix_s = 1;
    let mut events = vec![
        Event::Started {
            at_unix_s,
            measured: 0,
        },
        Event::Planned {
            at_unix_s,
            blocks,
            seen: 0,
        },
    ];
    for run in runs {
        let rate = run.run.measured().map(|measured| measured.rate);
        events.extend(attempt(&run.run.planned.folder(), rate, &run.record));
    }
    History {
        events,
        is_whole: true,
    }
}

fn attempt(name: &str, rate: Option<f64>, record: &str) -> [Event; 2] {
    let (at_unix_s, attempt) = (1, 1);
    [
        Event::Began {
            at_unix_s,
            run: name.to_owned(),
            attempt,
        },
        Event::Ended {
            at_unix_s,
            run: name.to_owned(),
            attempt,
            rate,
            reason: rate.is_none().then(|| "no room left".to_owned()),
            record: record.to_owned(),
        },
    ]
}

/// Notes an earlier attempt at a run, which measured so much or failed, before this event.
pub(crate) fn noted(folder: &mut Folder, at: usize, name: &str, rate: Option<f64>) {
    let events = attempt(name, rate, "an earlier record");
    folder.history.events.splice(at..at, events);
}

/// Its power was cut at so many moments, and nothing was lost.
pub(crate) fn cut_at(moments: u32) -> Cut {
    Cut::Made {
        moments,
        acknowledged: 400,
        lost: Vec::new(),
        commits: JournalCommits::default(),
        seed: 1,
        elapsed_s: 20.0,
    }
}

fn samples(rate: f64, seed: u64) -> Samples {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut operations = 0.0;
    let rows = (0..=22)
        .map(|second| {
            operations += rate * (0.9 + 0.2 * random.f64());
            let checkpoints = f64::from(second / 9);
            vec![f64::from(second), operations, checkpoints]
        })
        .collect();
    Samples {
        columns: ["seconds", "operations", "database_checkpoints"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    }
}

/// ext4, xfs and spindle-normal, each of its class; xfs is twice as fast.
pub(crate) fn classed(of: impl Fn(&PlannedRun) -> Option<DurabilityClass>) -> Folder {
    let mut folder = folder(experiment(12), |planned| {
        let speed = if planned.contender == "xfs" { 2.0 } else { 1.0 };
        let mut outcome = measured(1000.0 * speed + f64::from(planned.number % 3));
        if let Outcome::Measured(run) = &mut outcome
            && let Some(durability) = &mut run.durability
        {
            durability.gate = of(planned).map(|class| Gate {
                class,
                reason: format!("fdatasync by 1 writer: 48 of {}", planned.contender),
                ways: Vec::new(),
            });
        }
        outcome
    });
    // As many copies: what keeps them apart is the class.
    for run in &mut folder.runs {
        if let Some(layout) = &mut run.run.layout {
            layout.copies = 1;
        }
    }
    folder
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
            ..Processor::default()
        },
        layers: vec![
            layer("database", 8e6),
            layer("file system", 6e6),
            // Next to nothing is read where the data is cached, and what is written lies on disks.
            Layer {
                read_bytes: 0.9e6,
                written_bytes: 6e6,
                ..layer("devices", 0.0)
            },
        ],
        checks: Vec::new(),
        durability: Some(Durability {
            fdatasyncs_per_s: 900.0,
            gate: None,
        }),
        unserved: 0,
        settings: BTreeMap::new(),
        scripts: Vec::new(),
        beside: Vec::new(),
        answers: BTreeMap::new(),
        facts: facts(),
        devices: vec![DeviceActivity {
            name: "loop0".to_owned(),
            reads: 200.0,
            read_bytes: 7e6,
            read_ms: 400.0,
            writes: 100.0,
            written_bytes: 3.5e6,
            write_ms: 300.0,
            flushes: 40.0,
            busy_ms: 10_000.0,
            queue_ms: 12_000.0,
            limit_share: None,
        }],
        waits: Some(Waits {
            samples: 20,
            events: [
                ("IO", "WALSync", 30),
                ("CPU", "CPU", 15),
                ("Lock", "tuple", 5),
            ]
            .map(|(class, event, sessions)| WaitEvent {
                class: class.to_owned(),
                event: event.to_owned(),
                sessions,
            })
            .to_vec(),
        }),
        objects: vec![ObjectActivity {
            name: "accounts <main>".to_owned(),
            read_bytes: 6e6,
            written_bytes: None,
            hit_share: Some(0.8),
        }],
    }))
}

fn facts() -> BTreeMap<String, f64> {
    [
        ("database_commits", 1000.0),
        ("database_blocks_read", 1000.0),
        ("database_blocks_hit", 9000.0),
        ("database_blocks_written", 500.0),
        ("database_log_bytes", 2e6),
        ("database_log_writes", 600.0),
        ("database_log_syncs", 500.0),
        ("database_log_sync_ms", 1000.0),
        ("database_active_ms", 50_000.0),
        ("database_processor_s", 9.0),
        ("database_checkpoints", 2.0),
        ("arrivals_per_s", 700.0),
        (SETTLED, 1.0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
