//! Section 1: the engine in process, beside raw io_uring on the same four devices.
//!
//! The measuring itself is an example of the device crate (`engine_rate`), which has both paths
//! in one process and lets them take turns; here its devices are made and its figures are read.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spindle_testbed::process::run_well;

use super::Bench;
use super::device::{filled_file, four_loops};
use super::figure::{Aim, Figure};

const SECTION: &str = "engine";
const DISK_BYTES: u64 = 256 << 20;

/// Measures on files in memory and on loop devices over such files.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let scene = bench.scene("engine")?;
    let files: Vec<PathBuf> = (0..4)
        .map(|index| scene.join(&format!("disk.{index}")))
        .collect();
    for file in &files {
        filled_file(file, DISK_BYTES)?;
    }
    let loops = four_loops(scene.path(), "loop", DISK_BYTES)?;
    let devices: Vec<PathBuf> = loops.iter().map(|loop_| loop_.device.clone()).collect();
    let mut figures = on_disks(bench, "files in memory", &files)?;
    figures.extend(on_disks(bench, "loop devices", &devices)?);
    Ok(figures)
}

fn on_disks(bench: &Bench, what: &str, disks: &[PathBuf]) -> Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("examples/engine_rate");
    ensure!(
        program.exists(),
        "{} is not there; build it: cargo build --release -p spindle-device --examples",
        program.display()
    );
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds() {
        let mut command = Command::new(&program);
        let seconds = bench.seconds(4).as_secs().to_string();
        let text = run_well(command.args(["--seconds", &seconds]).args(disks))?;
        rounds.push(serde_json::from_str::<Value>(&text)?);
    }
    let pairs = |workload: &str, unit: &str| -> Result<Vec<(f64, f64)>> {
        let number = |round: &Value, side: &str| {
            round[workload][format!("{side}_{unit}")]
                .as_f64()
                .with_context(|| format!("engine_rate tells no {side}_{unit} of {workload}"))
        };
        rounds
            .iter()
            .map(|round| Ok((number(round, "engine")?, number(round, "raw")?)))
            .collect()
    };
    let rival = "raw io_uring";
    Ok(vec![
        Figure::ratio(
            SECTION,
            format!("{what}: 8 KiB random reads, depth 32"),
            "/s",
            rival,
            &pairs("random_8k_depth_32", "per_second")?,
            (Aim::AtLeast, 0.90),
        )?,
        Figure::difference(
            SECTION,
            format!("{what}: 8 KiB random reads, depth 1, more by"),
            "µs",
            rival,
            &pairs("random_8k_depth_1", "us")?,
            (Aim::AtMost, 3.0),
        )?,
        Figure::ratio(
            SECTION,
            format!("{what}: 1 MiB sequential reads"),
            "/s",
            rival,
            &pairs("sequential_1m_depth_4", "per_second")?,
            (Aim::AtLeast, 0.95),
        )?,
    ])
}
