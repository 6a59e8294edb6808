//! fio: one job, its result.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spindle_testbed::process::{as_typed, run};

/// What one run of fio reached.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Requests a second.
    pub requests_per_second: f64,
}

/// A job: `mode` is fio's `rw`, the rest are its options as it takes them.
pub fn measure(
    files: &[&Path],
    mode: &str,
    options: &[&str],
    prefix: &[String],
) -> Result<Reached> {
    let mut words = prefix.to_vec();
    words.push("fio".to_owned());
    words.extend(["--name=bench", "--output-format=json", "--group_reporting"].map(str::to_owned));
    words.push(format!("--rw={mode}"));
    for file in files {
        // A colon would part two names for fio.
        ensure!(!file.to_string_lossy().contains(':'), "a colon in a name");
    }
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    words.push(format!("--filename={}", names.join(":")));
    words.extend(options.iter().map(|&option| option.to_owned()));
    let mut command = Command::new(&words[0]);
    // fio keeps notes of its own in the working directory.
    command.current_dir("/tmp").args(&words[1..]);
    let outcome = run(&mut command)?;
    if !outcome.status.success() {
        bail!(
            "{} failed: {} {}",
            as_typed(&command),
            outcome.stderr.trim(),
            outcome.stdout.trim()
        );
    }
    // Warnings may stand before the JSON.
    let start = outcome.stdout.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&outcome.stdout[start..])?;
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio met an error: {}", job["error"]);
    let direction = if mode.contains("write") {
        "write"
    } else {
        "read"
    };
    let number = |value: &Value, what: &str| {
        value
            .as_f64()
            .filter(|value| *value > 0.0)
            .with_context(|| format!("fio measured no {what}"))
    };
    Ok(Reached {
        bytes_per_second: number(&job[direction]["bw_bytes"], "bandwidth")?,
        requests_per_second: number(&job[direction]["iops"], "requests")?,
    })
}
