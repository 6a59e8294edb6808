//! Section 4: pgbench on an external group of four loop disks, beside btrfs striped over four
//! such disks, and XFS and ext4 on one disk of the same make; in two regimes.
//!
//! - **cached**: the database fits into the page cache.
//! - **twice**: the database is twice the memory that server and page cache are given, by a
//!   memory control group around the server. Spindle's daemon is outside of it: the kernel may
//!   wait for a group's own dirty pages, and these wait for the daemon. Its memory is told.
//!
//! The storages take turns within each round, each with a server of its own that runs only while
//! it is measured.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::pgbench::{Load, Plan, Rate, fill};
use spindle_testbed::postgres::{Cluster, Installation, Server};
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;

use super::Bench;
use super::device::{ControlGroup, KernelMount, Loop, filled_file, four_loops};
use super::figure::{Aim, Figure};
use super::ground::{Ground, Group, GroupPlan};

const SECTION: &str = "pgbench";
const CLIENT_COUNT: u32 = 8;
const RIVALS: [&str; 3] = ["btrfs", "xfs", "ext4"];
const GIB: u64 = 1 << 30;

/// A regime: how large the database is, and what the server gets.
struct Regime {
    name: &'static str,
    scale: u32,
    settings: &'static [&'static str],
    memory_bytes: Option<u64>,
}

/// A scale is 15 MiB of database.
const REGIMES: [Regime; 2] = [
    Regime {
        name: "cached",
        scale: 20,
        settings: &["shared_buffers=128MB", "max_wal_size=1GB"],
        memory_bytes: None,
    },
    Regime {
        name: "twice",
        scale: 40,
        settings: &["shared_buffers=64MB", "max_wal_size=1GB"],
        memory_bytes: Some(300 << 20),
    },
];

/// What a storage reached in one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    loads_per_second: f64,
    tpcb_per_second: f64,
    selects_per_second: f64,
}

/// Measures both regimes.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let installation = Installation::find()?;
    let mut figures = Vec::new();
    for regime in &REGIMES {
        figures.extend(measure_regime(bench, &installation, regime)?);
    }
    Ok(figures)
}

fn measure_regime(
    bench: &Bench,
    installation: &Installation,
    regime: &Regime,
) -> Result<Vec<Figure>> {
    let scene = bench.scene("pgbench")?;
    let limits = regime.memory_bytes.map(ControlGroup::memory).transpose()?;
    let mut grounds = vec![("spindle", spindle(&scene)?)];
    for kind in RIVALS {
        grounds.push((kind, rival(&scene, kind)?));
    }
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); grounds.len()];
    for round in 0..bench.rounds() {
        for (index, (name, ground)) in grounds.iter().enumerate() {
            let step = Step::begin(&format!("pgbench, {}, {name}", regime.name), 0);
            let place = ground.point().join(format!("pgdata-{round}"));
            let reached = one_round(bench, &scene, installation, regime, limits.as_ref(), &place)
                .with_context(|| format!("pgbench on {name}, {}", regime.name))?;
            step.done(&format!(
                "load {:.2} s, TPC-B-like {:.0}/s, select only {:.0}/s",
                1.0 / reached.loads_per_second,
                reached.tpcb_per_second,
                reached.selects_per_second
            ));
            rounds[index].push(reached);
        }
    }
    let mut figures = Vec::new();
    for (name, unit, value, target) in MEASURES {
        figures.push(against_best(regime, &rounds, name, unit, value, target)?);
    }
    Ok(figures)
}

type Measure = (&'static str, &'static str, fn(&Round) -> f64, f64);

const MEASURES: [Measure; 3] = [
    ("select only", "/s", |round| round.selects_per_second, 0.95),
    ("TPC-B-like", "/s", |round| round.tpcb_per_second, 0.85),
    ("load", "/s", |round| round.loads_per_second, 0.5),
];

/// Spindle beside the best rival of the same round.
fn against_best(
    regime: &Regime,
    rounds: &[Vec<Round>],
    name: &str,
    unit: &'static str,
    value: fn(&Round) -> f64,
    target: f64,
) -> Result<Figure> {
    let (ours, rivals) = rounds.split_first().context("no storage was measured")?;
    let mut pairs = Vec::new();
    let mut best_name = "";
    for (index, round) in ours.iter().enumerate() {
        let (rival, best) = RIVALS
            .iter()
            .zip(rivals)
            .map(|(rival, rounds)| (*rival, value(&rounds[index])))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .context("no rival was measured")?;
        best_name = rival;
        pairs.push((value(round), best));
    }
    Figure::ratio(
        SECTION,
        format!("{}: {name}", regime.name),
        unit,
        format!("best ({best_name})"),
        &pairs,
        (Aim::AtLeast, target),
    )
}

fn spindle(scene: &Scene) -> Result<Ground> {
    let devices = four_loops(scene.path(), "spindle", GIB)?;
    let plan = GroupPlan {
        name: "pgbench",
        redundancy: "external",
        two_sides: false,
        profile: "postgresql",
        options: &[],
    };
    let group = Group::over_devices(scene, plan, devices)?;
    Ok(Ground::Spindle(Box::new(group)))
}

fn rival(scene: &Scene, kind: &str) -> Result<Ground> {
    let devices = if kind == "btrfs" {
        four_loops(scene.path(), kind, GIB)?
    } else {
        let file = scene.join(&format!("{kind}.0"));
        filled_file(&file, 4 * GIB)?;
        vec![Loop::over(&file)?]
    };
    let point = scene.join(&format!("{kind}-mount"));
    Ok(Ground::Kernel(KernelMount::make(kind, devices, &point)?))
}

/// A new cluster, its load, then both kinds of transactions; the cluster is removed afterwards.
fn one_round(
    bench: &Bench,
    scene: &Scene,
    installation: &Installation,
    regime: &Regime,
    limits: Option<&ControlGroup>,
    place: &Path,
) -> Result<Round> {
    let runtime = scene.directory("server")?;
    let logs = scene.directory("client")?;
    let cluster = Cluster::new(installation, place, &runtime, regime.settings)?;
    cluster.init(&[])?;
    let server = cluster.start()?;
    if let Some(limits) = limits {
        limits.adopt(server.id())?;
    }
    let load = fill(&cluster, regime.scale)?;
    server.connect("postgres")?.query("CHECKPOINT")?;
    let tpcb_per_second = rate(bench, &server, &logs, regime.scale, &[])?;
    let selects_per_second = rate(bench, &server, &logs, regime.scale, &["--select-only"])?;
    server.stop()?;
    std::fs::remove_dir_all(place)?;
    Ok(Round {
        loads_per_second: 1.0 / load.as_secs_f64(),
        tpcb_per_second,
        selects_per_second,
    })
}

fn rate(bench: &Bench, server: &Server, logs: &Path, scale: u32, options: &[&str]) -> Result<f64> {
    let duration = bench.seconds(12);
    let plan = Plan {
        scale,
        client_count: CLIENT_COUNT,
        duration,
        script: None,
        options,
    };
    let began_us = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let finished = Load::start(server.cluster(), &plan, logs, "bench")?.finish(duration * 4)?;
    if let Some((_, error)) = finished.errors.first() {
        bail!("pgbench: {error}");
    }
    // The first quarter warms the caches up.
    let length_us = u64::try_from(duration.as_micros())?;
    let from_us = began_us + length_us / 4;
    let rate = Rate::between(&finished.log, from_us, began_us + length_us)?;
    ensure!(rate.per_second > 0.0, "pgbench reached nothing");
    // The logs of all rounds together would fill the memory that the disks are in.
    for entry in std::fs::read_dir(logs)? {
        std::fs::remove_file(entry?.path())?;
    }
    Ok(rate.per_second)
}
