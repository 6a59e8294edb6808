//! Every figure side by side with that of a rival, in one run on one machine.
//!
//! Pairs are measured in turn, so that what the machine does besides falls on both; what counts
//! is the middle of the ratios. A measurement that fails is told and makes the run fail; it never
//! stands in the table as zero. A target that is not reached is told too, and is no failure of
//! the run: the figures are its result.

mod databases;
pub mod device;
mod engine;
mod extents;
mod figure;
mod files;
mod fio;
mod ground;
mod load;
mod mount;
mod outage;
mod planning;
mod rebalance;
mod record;
mod scrub;
mod stand;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::json;
use spindle_testbed::interrupt;
use spindle_testbed::process::run_well;
use spindle_testbed::scene::Scene;

use self::figure::{Figure, heads};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only the sections whose name holds this word: engine, spindles, memory, pgbench, files,
    /// extents, rebalance, load, resync, record, planning, scrub.
    #[arg(long)]
    only: Option<String>,

    /// Shorter runs, one round: to see whether all of it works.
    #[arg(long)]
    quick: bool,

    /// Where the disks are made: memory.
    #[arg(long, default_value_os_t = crate::memory_directory())]
    dir: PathBuf,

    /// Where the results go.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// A run of the benchmarks.
pub struct Bench {
    directory: PathBuf,
    quick: bool,
}

impl Bench {
    /// A directory for a section, gone when it ends.
    fn scene(&self, name: &str) -> Result<Scene> {
        Scene::make(&self.directory, &format!("spindle-bench-{name}"))
    }

    /// How often each pair is measured.
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { 3 }
    }
}

type Section = (&'static str, fn(&Bench) -> Result<Vec<Figure>>);

const SECTIONS: [Section; 12] = [
    ("engine", engine::measure),
    ("spindles", mount::spindles),
    ("memory", mount::memory),
    ("pgbench", databases::measure),
    ("files", files::measure),
    ("extents", extents::measure),
    ("rebalance", rebalance::measure),
    ("load", load::measure),
    ("resync", outage::measure),
    ("record", record::measure),
    ("planning", planning::measure),
    ("scrub", scrub::measure),
];

/// Measures, prints the table, writes the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bench = Bench {
        directory: arguments.dir.clone(),
        quick: arguments.quick,
    };
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    for (name, measure) in SECTIONS {
        if arguments
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        println!("---- {name}");
        match measure(&bench) {
            Ok(measured) => {
                for figure in &measured {
                    println!("{}", figure.line());
                }
                figures.extend(measured);
            }
            Err(error) => {
                interrupt::check()?;
                println!("FAILED {name}: {error:#}");
                failures.push(format!("{name}: {error:#}"));
            }
        }
    }
    if figures.is_empty() && failures.is_empty() {
        bail!("no section of that name");
    }
    println!("\n{}", heads());
    for figure in &figures {
        println!("{}", figure.line());
    }
    let reached_count = figures.iter().filter(|figure| figure.is_reached()).count();
    println!("{reached_count} of {} targets reached", figures.len());
    let path = write_results(arguments, &figures, &failures)?;
    println!("results: {}", path.display());
    if !failures.is_empty() {
        bail!("{} sections could not be measured", failures.len());
    }
    Ok(())
}

fn write_results(
    arguments: &Arguments,
    figures: &[Figure],
    failures: &[String],
) -> Result<PathBuf> {
    fs::create_dir_all(&arguments.results)?;
    let second = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let path = arguments.results.join(format!("{second}.json"));
    let results = json!({
        "schema": 1,
        "unix_time_s": second,
        "quick": arguments.quick,
        "machine": machine(&arguments.dir),
        "figures": figures,
        "failures": failures,
    });
    fs::write(&path, serde_json::to_string_pretty(&results)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// What a reader must know of the machine to judge the figures.
fn machine(directory: &Path) -> serde_json::Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let first = |text: &str, key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let said = |program: &str, words: &[&str]| {
        run_well(Command::new(program).args(words))
            .ok()
            .map(|text| text.trim().to_owned())
    };
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "processor": first(&read("/proc/cpuinfo"), "model name"),
        "core_count": std::thread::available_parallelism().ok(),
        "memory": first(&read("/proc/meminfo"), "MemTotal"),
        "load_before": read("/proc/loadavg").trim(),
        "disks_in": directory,
        "commit": said("git", &["rev-parse", "HEAD"]),
        "fio": said("fio", &["--version"]),
    })
}
