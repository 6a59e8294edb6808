//! `block` and `validate`: fio on a file of the contender, or on its device.
//!
//! The file is written in full before, so that nothing is allocated while it is measured, and what
//! the caches may hold of it is dropped. Direct I/O where the contender takes it; where the page
//! cache is what it is about (`cached`), buffered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::experiment::{Kind, Pattern, Regime, Workload};
use crate::measure::contender::Place;
use crate::measure::control_group::ControlGroup;
use crate::measure::program::{command, run_within, tail};
use crate::quantity::{as_float, whole};
use crate::record::Latency;

/// What fio reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Reached {
    /// What is compared.
    pub unit: &'static str,
    /// How much of it.
    pub rate: f64,
    /// Requests.
    pub operations: u64,
    /// The measured time.
    pub duration_s: f64,
    /// Of the requests, from their submission.
    pub latency: Latency,
    /// Bytes that fio read.
    pub read_bytes: f64,
    /// Bytes that fio wrote.
    pub written_bytes: f64,
    /// Processor time of fio itself. What the kernel needs for its requests is the contender's.
    pub harness_s: f64,
}

/// Preparing and removing take this much longer than the measured time at most.
const EXTRA_AT_MOST: Duration = Duration::from_secs(600);

/// Writes the file that is worked on; a device needs none.
///
/// # Errors
/// Where it cannot be written.
pub fn prepare(place: &Place, size_bytes: u64, group: &ControlGroup) -> Result<PathBuf> {
    let path = match place {
        Place::Device(device) => return Ok(device.clone()),
        Place::Directory(directory) => directory.join("work"),
    };
    let mut fill = command("fio");
    fill.args([
        "--name=fill",
        "--rw=write",
        "--bs=1M",
        "--end_fsync=1",
        "--randrepeat=1",
    ]);
    fill.arg(format!("--filename={}", path.display()));
    fill.arg(format!("--size={size_bytes}")).current_dir("/");
    let ended = run_within(&mut group.wrap(&fill), EXTRA_AT_MOST)?;
    if !ended.status.success() {
        bail!(
            "the file to work on cannot be written: {}",
            tail(&format!("{}\n{}", ended.stdout, ended.stderr), 6)
        );
    }
    Ok(path)
}

/// The command of a workload.
///
/// # Errors
/// Where the path cannot be said to fio.
pub fn job(
    workload: &Workload,
    path: &Path,
    warm_up: Duration,
    duration: Duration,
    seed: u64,
) -> Result<std::process::Command> {
    // A colon would part two names for fio.
    ensure!(
        !path.to_string_lossy().contains(':'),
        "{} has a colon in its name, which fio cannot take",
        path.display()
    );
    let mut job = command("fio");
    job.args(["--name=lab", "--output-format=json+", "--group_reporting"]);
    job.arg(format!("--filename={}", path.display()));
    job.arg(format!("--size={}", workload.size_bytes));
    // fio takes no more than 31 bits.
    job.arg(format!("--randseed={}", seed >> 33));
    job.arg("--percentile_list=50:90:99:99.9").current_dir("/");
    if workload.kind == Kind::Validate {
        job.args([
            "--rw=read",
            "--bs=1M",
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
        ]);
        return Ok(job);
    }
    let mode = match workload.pattern {
        Pattern::RandomRead => "randread",
        Pattern::RandomWrite => "randwrite",
        Pattern::RandomMixed => "randrw",
        Pattern::SequentialRead => "read",
        Pattern::SequentialWrite | Pattern::Log => "write",
    };
    let point = workload.point;
    job.arg(format!("--rw={mode}"));
    job.arg(format!("--bs={}", point.request_bytes));
    job.arg(format!("--rwmixread={}", point.read_percent));
    job.args(["--time_based", "--norandommap"]);
    job.arg(format!("--runtime={}ms", duration.as_millis()));
    job.arg(format!("--ramp_time={}ms", warm_up.as_millis()));
    job.arg(format!("--numjobs={}", workload.users));
    if workload.pattern == Pattern::Log {
        job.args(["--ioengine=psync", "--fdatasync=1"]);
    } else if workload.regime == Regime::Cached {
        job.args(["--ioengine=psync", "--direct=0"]);
    } else {
        job.args(["--ioengine=libaio", "--direct=1"]);
        job.arg(format!("--iodepth={}", point.depth));
    }
    Ok(job)
}

/// Whether its requests go past the page cache.
#[must_use]
pub fn is_direct(workload: &Workload) -> bool {
    let is_log = workload.kind == Kind::Block && workload.pattern == Pattern::Log;
    workload.kind == Kind::Validate || !(is_log || workload.regime == Regime::Cached)
}

/// Runs the job as a member of the group.
///
/// # Errors
/// What fio says.
pub fn measure(
    job: &std::process::Command,
    group: &ControlGroup,
    workload: &Workload,
    expected: Duration,
) -> Result<Reached> {
    let ended = run_within(&mut group.wrap(job), expected + EXTRA_AT_MOST)?;
    if !ended.status.success() {
        bail!(
            "fio failed: {}",
            tail(&format!("{}\n{}", ended.stderr, ended.stdout), 6)
        );
    }
    read(&ended.stdout, workload)
}

fn read(output: &str, workload: &Workload) -> Result<Reached> {
    // Warnings may stand before the JSON.
    let start = output.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&output[start..]).context("fio's JSON is cut off")?;
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio met the error {}", job["error"]);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (read, write) = (&job["read"], &job["write"]);
    let operations = number(&read["total_ios"]) + number(&write["total_ios"]);
    ensure!(operations > 0.0, "fio did nothing in the time it had");
    let duration_s = number(&read["runtime"]).max(number(&write["runtime"])) / 1000.0;
    let bytes = [number(&read["io_bytes"]), number(&write["io_bytes"])];
    let is_stream = workload.kind == Kind::Validate
        || matches!(
            workload.pattern,
            Pattern::SequentialRead | Pattern::SequentialWrite
        );
    let (unit, rate) = if is_stream {
        (
            "MB/s",
            (number(&read["bw_bytes"]) + number(&write["bw_bytes"])) / 1e6,
        )
    } else {
        ("requests/s", number(&read["iops"]) + number(&write["iops"]))
    };
    let share = number(&job["usr_cpu"]) / 100.0;
    Ok(Reached {
        unit,
        rate,
        operations: whole(operations).unwrap_or(0),
        duration_s,
        // What a log waits for is the flush, not the write before it.
        latency: if workload.pattern == Pattern::Log && workload.kind == Kind::Block {
            latency(&[&job["sync"]["lat_ns"]])
        } else {
            latency(&[&read["clat_ns"], &write["clat_ns"]])
        },
        read_bytes: bytes[0],
        written_bytes: bytes[1],
        harness_s: share * duration_s * as_float(u64::from(workload.users)),
    })
}

/// fio's bins of latencies, in nanoseconds, together.
fn latency(kinds: &[&Value]) -> Latency {
    let mut counts = std::collections::BTreeMap::new();
    for kind in kinds {
        let bins = kind["bins"].as_object();
        for (nanoseconds, count) in bins.into_iter().flatten() {
            let us = nanoseconds.parse::<u64>().unwrap_or(0).div_ceil(1000);
            *counts.entry(us).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    Latency {
        counts: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_prints_is_read() {
        let experiment = crate::experiment::Experiment::parse(
            "contenders = [\"raw\"]\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"block\"\n",
        )
        .unwrap();
        let output = r#"fio: a warning
            {"jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 20.0,
             "read": {"total_ios": 100, "runtime": 2000, "io_bytes": 819200, "iops": 50.0,
                      "bw_bytes": 409600, "clat_ns": {"bins": {"1500": 60, "9000": 40}}},
             "write": {"total_ios": 0, "runtime": 0, "io_bytes": 0, "iops": 0, "bw_bytes": 0}}]}"#;
        let reached = read(output, &experiment.workloads[0]).unwrap();
        assert_eq!(reached.unit, "requests/s");
        assert_eq!(reached.operations, 100);
        assert_eq!(reached.latency.counts, [(2, 60), (9, 40)]);
        assert!((reached.harness_s - 0.2).abs() < 1e-9);
    }
}
