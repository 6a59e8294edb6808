//! What a reader must know of the machine to judge the figures, and to repeat them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::device::{Leaf, is_direct};
use super::program::{command, find, run};
use super::sameness::SPINDLE_DIGEST;
use crate::quantity::{as_float, show_size};
use crate::record::{Environment, SCHEMA};

/// What the kernel says that programs may still take.
#[must_use]
pub fn memory_available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, "MemAvailable")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kib << 10)
}

/// Looks at the machine.
#[must_use]
pub fn look(leaves: &[Leaf], database_version: Option<&str>) -> Environment {
    let mut facts = BTreeMap::new();
    let mut tell = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|value| value.trim().to_owned())
            && !value.is_empty()
        {
            facts.insert(name.to_owned(), value);
        }
    };
    let read = |path: &str| fs::read_to_string(path).ok();
    tell("kernel", read("/proc/sys/kernel/osrelease"));
    tell("kernel command line", read("/proc/cmdline"));
    tell(
        "processor",
        field(&read("/proc/cpuinfo").unwrap_or_default(), "model name"),
    );
    tell(
        "processors",
        std::thread::available_parallelism()
            .ok()
            .map(|count| count.to_string()),
    );
    tell(
        "memory",
        field(&read("/proc/meminfo").unwrap_or_default(), "MemTotal"),
    );
    tell(
        "swap",
        field(&read("/proc/meminfo").unwrap_or_default(), "SwapTotal"),
    );
    tell("load before", read("/proc/loadavg"));
    for name in [
        "dirty_bytes",
        "dirty_ratio",
        "dirty_background_bytes",
        "dirty_background_ratio",
        "dirty_expire_centisecs",
        "dirty_writeback_centisecs",
        "swappiness",
    ] {
        tell(&format!("vm.{name}"), read(&format!("/proc/sys/vm/{name}")));
    }
    tell(
        "transparent huge pages",
        read("/sys/kernel/mm/transparent_hugepage/enabled"),
    );
    tell(
        "frequency governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    tell(
        "distribution",
        field(&read("/etc/os-release").unwrap_or_default(), "PRETTY_NAME")
            .map(|name| name.trim_matches('"').to_owned()),
    );
    for (index, leaf) in leaves.iter().enumerate() {
        tell(&format!("device {}", index + 1), Some(device(leaf)));
    }
    tell("database", database_version.map(str::to_owned));
    for (name, words) in [
        ("fio", ["--version"]),
        ("mkfs.xfs", ["-V"]),
        ("mkfs.btrfs", ["--version"]),
    ] {
        if find(name).is_some() {
            tell(name, run(command(name).args(words)).ok());
        }
    }
    if let Some(program) = super::contender::spindle_program() {
        let mut version = std::process::Command::new(&program);
        tell("spindle", run(version.arg("--version")).ok());
        tell(SPINDLE_DIGEST, digest(&program));
    }
    for (name, value) in super::guest::inside::facts() {
        tell(&name, Some(value));
    }
    tell("spindle-lab", Some(env!("CARGO_PKG_VERSION").to_owned()));
    Environment {
        schema: SCHEMA,
        facts,
    }
}

/// Tells two builds of one version apart: they are two contenders.
fn digest(program: &Path) -> Option<String> {
    let line = run(command("sha256sum").arg(program)).ok()?;
    Some(line.split_whitespace().next()?.to_owned())
}

/// What the kernel says of a device, in a line.
fn device(leaf: &Leaf) -> String {
    let name = leaf.kernel_name();
    let read = |what: &str| {
        fs::read_to_string(format!("/sys/block/{name}/{what}"))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let mut line = format!(
        "{}, {}, scheduler {}, read-ahead {} KiB, {}, rotational {}",
        leaf.path.display(),
        show_size(as_float(leaf.size_bytes)),
        read("queue/scheduler"),
        read("queue/read_ahead_kb"),
        read("queue/write_cache"),
        read("queue/rotational"),
    );
    if name.starts_with("loop") {
        line.push_str(if is_direct(leaf) {
            ", direct I/O below"
        } else {
            ", through the page cache below"
        });
    }
    let model = read("device/model");
    if !model.is_empty() {
        line.push_str(", ");
        line.push_str(&model);
    }
    line
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        Some(
            rest.trim_start_matches([' ', '\t', ':', '='])
                .trim()
                .to_owned(),
        )
    })
}
