//! What only the machine can tell of an experiment, asked before anything is touched.
//!
//! A contender that this machine cannot run is left out with its reason, and the report says so. A
//! mistake that would spoil the experiment is one line, and nothing happens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use super::contender;
use super::control_group::{lacks_limits, version};
use super::database::{self, Installation};
use super::device;
use super::plan::on;
use super::program::lacking;
use super::workload;
use crate::experiment::{DeviceKind, Experiment, Kind, Regime, Workload};
use crate::quantity::{as_float, show_size};

/// For the sampler and the checks.
const CONNECTIONS_OF_THE_LAB: u32 = 2;

/// Data that no cache may hold is at least so many times the memory.
const TIMES_MEMORY: u64 = 5;

/// Checks an experiment against this machine; gives what is not run, with the reason.
///
/// # Errors
/// One line; nothing was touched.
pub fn check(experiment: &Experiment, erase: &[PathBuf]) -> Result<BTreeMap<String, String>> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "control groups, devices and mounts are made by root: run it with sudo"
    );
    ensure!(
        version("memory").is_some(),
        "this machine has no memory cgroup, so that memory cannot be made equal"
    );
    let devices = &experiment.devices;
    if (devices.bandwidth.is_some() || devices.requests.is_some())
        && let Some(reason) = lacks_limits()
    {
        bail!("{reason}");
    }
    check_workloads(experiment)?;
    let mut not_run = BTreeMap::new();
    for name in &experiment.contenders {
        let contender = contender::find(name).map_err(anyhow::Error::msg)?;
        let reason = contender.lacks().or_else(|| {
            let needed = contender.devices_at_least();
            (devices.count < needed)
                .then(|| format!("it needs {needed} devices, there are {}", devices.count))
        });
        let reason = reason.or_else(|| {
            let needed = contender.device_bytes_at_least();
            (devices.kind != DeviceKind::Block && devices.size_bytes < needed).then(|| {
                format!(
                    "it needs devices of at least {}",
                    show_size(as_float(needed))
                )
            })
        });
        if let Some(reason) = reason {
            if *name == experiment.baseline {
                bail!("the baseline `{name}` cannot run here: {reason}");
            }
            not_run.insert(name.clone(), reason);
            continue;
        }
        for workload in &experiment.workloads {
            if contender.is_device() && workload.kind.needs_database() {
                let reason = "a database needs a directory";
                if *name == experiment.baseline {
                    bail!(
                        "the baseline `{name}` cannot run `{}`: {reason}",
                        workload.kind.name()
                    );
                }
                not_run.insert(on(name, &workload.title()), reason.to_owned());
            }
        }
    }
    device::check(devices, erase)?;
    Ok(not_run)
}

/// Checks what the workloads need besides their contenders.
///
/// # Errors
/// One line.
pub(super) fn check_workloads(experiment: &Experiment) -> Result<()> {
    let mut installation = None;
    for workload in &experiment.workloads {
        if workload.kind.needs_database() && installation.is_none() {
            installation = Some(check_database(experiment)?);
        }
        check_workload(experiment, workload, installation.as_deref())?;
    }
    Ok(())
}

/// The database is there, can be run by its user, and has the memory that it needs.
fn check_database(experiment: &Experiment) -> Result<Box<dyn Installation>> {
    let asked = &experiment.database;
    let installation = database::find(asked.kind, asked.directory.as_deref())?;
    for program in ["setpriv", "cp"] {
        if let Some(line) = lacking(program) {
            bail!("{line}");
        }
    }
    installation.version()?;
    if let Some(memory) = asked.memory_bytes {
        let needed = installation.memory_bytes_at_least();
        ensure!(
            memory >= needed,
            "[database] memory is {}; {} needs at least {}",
            show_size(as_float(memory)),
            asked.kind,
            show_size(as_float(needed))
        );
    }
    Ok(installation)
}

/// What of a workload depends on the database.
fn check_in_database(
    experiment: &Experiment,
    workload: &Workload,
    installation: &dyn Installation,
) -> Result<()> {
    let asked = &experiment.database;
    let title = workload.title();
    if let Some(reason) = workload::load(workload).and_then(|load| load.refuses(asked.kind)) {
        bail!("`{title}` cannot run: {reason}");
    }
    if let Some(given) = asked.settings.get("max_connections") {
        let clients = match workload.kind {
            Kind::Scan | Kind::Growth => 1,
            _ => workload.users,
        };
        let needed = clients + CONNECTIONS_OF_THE_LAB;
        ensure!(
            given.parse().is_ok_and(|given: u32| given >= needed),
            "`{title}` needs {needed} connections with those of the lab, [database] settings give max_connections = {given}"
        );
    }
    // A server that reads past the page cache caches nothing beyond its own memory.
    if workload.regime == Regime::Cached
        && workload.kind != Kind::Growth
        && let Some(cache) = installation.direct_cache_bytes(asked.memory_bytes, &asked.settings)
    {
        ensure!(
            workload.size_bytes <= cache,
            "`{title}`: {} of data do not fit into {}'s buffers of {}, and it reads past the page cache; raise `memory` (they get a quarter) or choose another regime",
            show_size(as_float(workload.size_bytes)),
            asked.kind,
            show_size(as_float(cache))
        );
    }
    Ok(())
}

fn check_workload(
    experiment: &Experiment,
    workload: &Workload,
    installation: Option<&dyn Installation>,
) -> Result<()> {
    let title = workload.title();
    if let Some(installation) = installation.filter(|_| workload.kind.needs_database()) {
        check_in_database(experiment, workload, installation)?;
    } else if let Some(line) = lacking("fio") {
        bail!("{line}");
    }
    if workload.regime == Regime::StorageBound && workload.kind.needs_database() {
        let Some(memory) = experiment.database.memory_bytes else {
            bail!(
                "`{title}` needs `memory` in [database]: storage-bound means {TIMES_MEMORY} times that"
            );
        };
        ensure!(
            workload.size_bytes >= TIMES_MEMORY * memory,
            "`{title}`: {} of data are not {TIMES_MEMORY} times the memory of {}; raise `size` or lower `memory`",
            show_size(as_float(workload.size_bytes)),
            show_size(as_float(memory))
        );
    }
    if experiment.devices.kind != DeviceKind::Block {
        let needed = needed_bytes(workload);
        ensure!(
            experiment.devices.size_bytes >= needed,
            "`{title}` needs devices of {} (one of them may have to hold all of it), these have {}",
            show_size(as_float(needed)),
            show_size(as_float(experiment.devices.size_bytes))
        );
    }
    Ok(())
}

/// What the data, its log and its growth may take.
fn needed_bytes(workload: &Workload) -> u64 {
    let data = workload.size_bytes;
    match workload.kind {
        Kind::Block | Kind::Validate => data + data / 8 + (32 << 20),
        Kind::Scan => data + data / 8 + log_bytes(workload) + (96 << 20),
        // Sorts and hashes that do not fit the memory, of each stream.
        Kind::Tpch => {
            data + data / 4 * u64::from(workload.users + 1) + log_bytes(workload) + (96 << 20)
        }
        _ => data + data / 2 + log_bytes(workload) + (96 << 20),
    }
}

/// What the write-ahead log may take: a setting of the server, in proportion to the data.
#[must_use]
pub fn log_bytes(workload: &Workload) -> u64 {
    (workload.size_bytes / 2).clamp(96 << 20, 4 << 30)
}
