//! What only the machine can tell of an experiment, asked before anything is touched.
//!
//! A contender that this machine cannot run is left out with its reason, and the report says so. A
//! mistake that would spoil the experiment is one line, and nothing happens.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail, ensure};

use super::contender::{self, Contender};
use super::control_group::{lacks_limits, version};
use super::database::{self, Original, direct_cache_bytes, memory_bytes_at_least};
use super::device;
use super::plan::on;
use super::program::lacking;
use super::workload;
use crate::experiment::{Database, DeviceKind, Devices, Experiment, Kind, Regime, Workload};
use crate::quantity::{as_float, show_size};

/// For the sampler and the checks.
const CONNECTIONS_OF_THE_LAB: u32 = 2;

/// Data that no cache may hold is at least so many times the memory.
pub const TIMES_MEMORY: u64 = 5;

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
    if let (Some(asked), Some(there)) = (experiment.database.memory_bytes, machine_memory_bytes()) {
        ensure!(
            asked <= there,
            "[database] memory is {}, this machine has {}",
            show_size(as_float(asked)),
            show_size(as_float(there))
        );
    }
    check_workloads(experiment)?;
    let mut not_run = unfit(experiment)?;
    for name in &experiment.contenders {
        let contender = found(experiment, name)?;
        if let Some(reason) = contender.lacks() {
            ensure!(
                *name != experiment.baseline,
                "the baseline `{name}` cannot run here: {reason}"
            );
            // One reason for all loads.
            not_run.retain(|other, _| !other.starts_with(&on(name, "")));
            not_run.insert(name.clone(), reason);
        }
    }
    device::check(devices, erase)?;
    Ok(not_run)
}

/// All the memory there is.
#[must_use]
pub fn machine_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Checks what an experiment asks for as far as that shows without a machine: everything goes
/// together, and its baseline can run.
///
/// # Errors
/// One line.
pub fn check_agreement(experiment: &Experiment) -> Result<()> {
    check_each_workload(experiment)?;
    unfit(experiment).map(drop)
}

/// The storage behind the name of a contender.
pub(super) fn found(experiment: &Experiment, name: &str) -> Result<Box<dyn Contender>> {
    contender::find(&experiment.asked(name).storage).map_err(anyhow::Error::msg)
}

/// The database as each contender has it, whose the settings are where they are its own.
fn databases(experiment: &Experiment) -> Vec<(Option<&str>, Database)> {
    let mut all: Vec<(Option<&str>, Database)> = vec![(None, experiment.database.clone())];
    for name in &experiment.contenders {
        let own = experiment.database_of(name);
        if all.iter().all(|(_, other)| *other != own) {
            all.push((Some(name), own));
        }
    }
    all
}

/// What cannot run on so many devices of such a size, or under one of the loads, with the reason.
fn unfit(experiment: &Experiment) -> Result<BTreeMap<String, String>> {
    let mut not_run = BTreeMap::new();
    for name in &experiment.contenders {
        let contender = found(experiment, name)?;
        if let Some(reason) = lacks_devices(contender.as_ref(), &experiment.devices) {
            ensure!(
                *name != experiment.baseline,
                "the baseline `{name}` cannot run here: {reason}"
            );
            not_run.insert(name.clone(), reason);
            continue;
        }
        for workload in &experiment.workloads {
            let devices = experiment.devices.count;
            if let Some(reason) = unfit_for(contender.as_ref(), devices, workload) {
                ensure!(
                    *name != experiment.baseline,
                    "the baseline `{name}` cannot run `{}`: {reason}",
                    workload.title()
                );
                not_run.insert(on(name, &workload.title()), reason);
            }
        }
    }
    Ok(not_run)
}

/// Why a contender on so many devices cannot run under a load, where it cannot.
fn unfit_for(contender: &dyn Contender, devices: u32, workload: &Workload) -> Option<String> {
    if contender.is_device() && workload.kind.needs_database() {
        return Some("a database needs a directory".to_owned());
    }
    match contender.accompanies(workload.beside?) {
        Ok(needed) if devices < needed => Some(format!(
            "it needs {needed} devices for that, there are {devices}"
        )),
        Ok(_) => None,
        Err(reason) => Some(reason.to_owned()),
    }
}

fn lacks_devices(contender: &dyn Contender, devices: &Devices) -> Option<String> {
    let needed = contender.devices_at_least();
    if devices.count < needed {
        return Some(format!(
            "it needs {needed} devices, there are {}",
            devices.count
        ));
    }
    let needed = contender.device_bytes_at_least();
    (devices.kind != DeviceKind::Block && devices.size_bytes < needed).then(|| {
        format!(
            "it needs devices of at least {}",
            show_size(as_float(needed))
        )
    })
}

/// Checks the workloads, and that what they need is installed.
///
/// # Errors
/// One line.
pub(super) fn check_workloads(experiment: &Experiment) -> Result<()> {
    let kinds = || experiment.workloads.iter().map(|workload| workload.kind);
    if kinds().any(Kind::needs_database) {
        check_installation(experiment)?;
    }
    if kinds().any(|kind| !kind.needs_database())
        && let Some(line) = lacking("fio")
    {
        bail!("{line}");
    }
    check_each_workload(experiment)
}

/// Under each database that some contender has.
fn check_each_workload(experiment: &Experiment) -> Result<()> {
    for (whose, database) in databases(experiment) {
        for workload in &experiment.workloads {
            check_workload(experiment, &database, workload).map_err(|error| match whose {
                Some(name) => anyhow!("`{name}`: {error:#}"),
                None => error,
            })?;
        }
    }
    Ok(())
}

/// The database is there, can be run by its user, and takes all settings.
fn check_installation(experiment: &Experiment) -> Result<()> {
    let asked = &experiment.database;
    let installation = database::installation(asked)?;
    for program in ["setpriv", "cp"] {
        if let Some(line) = lacking(program) {
            bail!("{line}");
        }
    }
    installation.version()?;
    if let Some(original) = installation.original()? {
        check_copies(experiment, &original)?;
    }
    for (whose, database) in databases(experiment) {
        if let Some(reason) = installation.refuses(&database.settings)? {
            bail!(
                "{}: {reason}",
                match whose {
                    Some(name) => format!("settings of `{name}`"),
                    None => "[database] settings".to_owned(),
                }
            );
        }
    }
    Ok(())
}

/// A copy holds what the original does: loads with tables of their own have no place in it, and the
/// devices and the memory are judged by its size.
fn check_copies(experiment: &Experiment, original: &Original) -> Result<()> {
    for workload in (experiment.workloads.iter()).filter(|load| load.kind.needs_database()) {
        ensure!(
            workload.kind == Kind::Script,
            "`{}` makes tables of its own; a copy of a database (`copy_of`) is measured by loads of kind `script`",
            workload.title()
        );
        let (said, there) = (as_float(workload.size_bytes), as_float(original.size_bytes));
        ensure!(
            (there..=there * SAID_TIMES_MOST).contains(&said),
            "`{}`: the database of `copy_of` has {}, and `size` says {}: write `size = \"{} MiB\"`",
            workload.title(),
            show_size(there),
            show_size(said),
            (original.size_bytes >> 20) + (original.size_bytes >> 24) + 1
        );
    }
    Ok(())
}

/// What is called larger than this is called storage-bound although it is not.
const SAID_TIMES_MOST: f64 = 1.5;

/// What of a workload depends on the database.
fn check_in_database(asked: &Database, workload: &Workload) -> Result<()> {
    let title = workload.title();
    if let Some(memory) = asked.memory_bytes {
        let needed = memory_bytes_at_least(asked.kind);
        ensure!(
            memory >= needed,
            "[database] memory is {}; {} needs at least {}",
            show_size(as_float(memory)),
            asked.kind,
            show_size(as_float(needed))
        );
    }
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
            "`{title}` needs {needed} connections with those of the lab, its settings give max_connections = {given}"
        );
    }
    if workload.regime == Regime::StorageBound {
        let Some(memory) = asked.memory_bytes else {
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
    Ok(())
}

/// What of this memory can hold data: a quarter is the database's own for other things.
#[must_use]
pub fn caching_bytes(memory_bytes: u64) -> u64 {
    memory_bytes - memory_bytes / 4
}

/// What is to be cached fits into what caches it.
fn check_cached(asked: &Database, workload: &Workload) -> Result<()> {
    // Growth begins with nothing.
    if workload.regime != Regime::Cached || workload.kind == Kind::Growth {
        return Ok(());
    }
    let title = workload.title();
    let size = show_size(as_float(workload.size_bytes));
    // A server that reads past the page cache caches nothing beyond its own memory.
    if workload.kind.needs_database()
        && let Some(cache) = direct_cache_bytes(asked)
    {
        ensure!(
            workload.size_bytes <= cache,
            "`{title}`: {size} of data do not fit into {}'s buffers of {}, and it reads past the page cache; raise `memory` (they get a quarter) or choose another regime",
            asked.kind,
            show_size(as_float(cache))
        );
    } else if let Some(memory) = asked.memory_bytes {
        ensure!(
            workload.size_bytes <= caching_bytes(memory),
            "`{title}`: {size} of data are not cached by a memory of {}, of which three quarters hold data; raise `memory` or choose another regime",
            show_size(as_float(memory))
        );
    }
    Ok(())
}

fn check_workload(experiment: &Experiment, asked: &Database, workload: &Workload) -> Result<()> {
    if workload.kind.needs_database() {
        check_in_database(asked, workload)?;
    }
    check_cached(asked, workload)?;
    if experiment.devices.kind != DeviceKind::Block {
        let needed = needed_bytes(workload);
        ensure!(
            experiment.devices.size_bytes >= needed,
            "`{}` needs devices of {} (one of them may have to hold all of it), these have {}",
            workload.title(),
            show_size(as_float(needed)),
            show_size(as_float(experiment.devices.size_bytes))
        );
    }
    Ok(())
}

/// What the data, its log and its growth may take.
#[must_use]
pub fn needed_bytes(workload: &Workload) -> u64 {
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
