//! Planning a rebalance of 1,000 disks and 10,000,000 extents: how long, and how much memory.
//!
//! The measuring is an example of the group crate (`planning`): real maps in memory, a disk
//! added and another dropped, and the plan asked for every move. Memory is what the process grew
//! by for maps and plan, at its highest.

use anyhow::{Context, Result};
use serde_json::Value;
use spindle_testbed::process::run_well;
use spindle_testbed::progress::Step;

use super::Bench;
use super::figure::{Aim, Figure};
use super::record::example;

const SECTION: &str = "planning";

/// Measures it; a tenth of the extents where it has to be quick.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let extents_count: u64 = if bench.quick { 1_000_000 } else { 10_000_000 };
    let (mut seconds, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let step = Step::begin("planning", 0);
        let text = run_well(example("planning")?.arg(extents_count.to_string()))?;
        let told: Value = serde_json::from_str(&text)?;
        let number = |name: &str| {
            told[name]
                .as_f64()
                .with_context(|| format!("planning tells no {name}: {told}"))
        };
        step.done(text.trim());
        seconds.push(number("seconds")?);
        bytes.push(number("bytes_an_extent")?);
    }
    let title = format!("1,000 disks, {} million extents", extents_count / 1_000_000);
    Ok(vec![
        Figure::value(
            SECTION,
            format!("{title}: plan"),
            "s",
            &seconds,
            (Aim::AtMost, 5.0),
        )?,
        Figure::value(
            SECTION,
            format!("{title}: memory an extent"),
            "B",
            &bytes,
            (Aim::AtMost, 32.0),
        )?,
    ])
}
