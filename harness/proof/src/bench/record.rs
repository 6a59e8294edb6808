//! What the record of dirty regions costs: 8 KiB random writes at depth 16 to a mirrored file,
//! beside a group that keeps none.
//!
//! The measuring is an example of the group crate (`dirty_record_cost`): two groups in one
//! process, over devices of the same make, which take turns of a fraction of a second, so that
//! both meet the same machine. Leaving the record out is a call that only that example makes; no
//! command and no setting reaches it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spindle_testbed::process::run_well;
use spindle_testbed::progress::Step;

use super::Bench;
use super::device::loops;
use super::figure::{Aim, Figure};

const SECTION: &str = "record";
const DISK_BYTES: u64 = 512 << 20;

/// Measures it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let scene = bench.scene("record")?;
    let devices = loops(scene.path(), "disk", 8, DISK_BYTES)?;
    let paths: Vec<PathBuf> = devices.iter().map(|one| one.device.clone()).collect();
    let mut pairs = Vec::new();
    let step = Step::begin("writes with a record and without", 0);
    for _ in 0..bench.rounds() {
        let seconds = bench.seconds(12).as_secs().to_string();
        let mut command = example("dirty_record_cost")?;
        let text = run_well(command.args(["--seconds", &seconds]).args(&paths))?;
        let told: Value = serde_json::from_str(&text)?;
        let number = |name: &str| {
            told[name]
                .as_f64()
                .with_context(|| format!("dirty_record_cost tells no {name}: {told}"))
        };
        pairs.push((number("with_per_second")?, number("without_per_second")?));
    }
    step.done("");
    Ok(vec![Figure::ratio(
        SECTION,
        "8 KiB random writes, depth 16, normal redundancy",
        "/s",
        "without a record",
        &pairs,
        (Aim::AtLeast, 0.95),
    )?])
}

/// An example program that was built beside this one.
pub fn example(name: &str) -> Result<Command> {
    let program = std::env::current_exe()?.with_file_name(format!("examples/{name}"));
    ensure!(
        program.exists(),
        "{} is not there; build it: cargo build --release -p spindle-group --examples",
        program.display()
    );
    Ok(Command::new(program))
}
