//! A group on spindles whose disks are changed, beside raw spindles of the same make; and a look
//! at what `spindle operations` tells meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spindle_testbed::interrupt;
use spindle_testbed::scene::Scene;

use super::Bench;
use super::device::{ControlGroup, Loop, Traffic, loops};
use super::fio;
use super::ground::{Group, GroupPlan};
use super::mount::{SPINDLE_BYTES_PER_SECOND, raw_stream};

/// The size of a disk.
pub const DISK_BYTES: u64 = 768 << 20;
/// What a raw stream reads or writes needs no more.
const RAW_BYTES: u64 = 256 << 20;
/// How often is looked whether an operation has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Longer than any of these operations takes on any machine.
const OPERATION_AT_MOST: Duration = Duration::from_secs(600);
/// The time that is left is held against what came when so much of the work is done.
const FIRST_PART: f64 = 0.1;
/// Below this the moment at which somebody looks decides, and how many copies are under way.
const LEFT_LEAST: Duration = Duration::from_secs(2);

/// A mounted group of spindles. Its parts end in this order.
#[derive(Debug)]
pub struct Stand {
    pub group: Group,
    raw: Vec<Loop>,
    limits: ControlGroup,
    _scene: Scene,
}

/// How a stand is made.
#[derive(Debug, Clone, Copy)]
pub struct StandPlan<'a> {
    /// The group's name.
    pub name: &'a str,
    /// `external` or `normal`.
    pub redundancy: &'a str,
    /// Disks that are in the group from the beginning.
    pub members_count: usize,
    /// Disks that can be added.
    pub spares_count: usize,
    /// Raw spindles beside it.
    pub raws_count: usize,
}

impl Stand {
    /// Makes the group and fills its file `data` with so many bytes, at the machine's own speed;
    /// from then on its disks are spindles.
    pub fn make(bench: &Bench, plan: StandPlan<'_>, data_bytes: u64) -> Result<Self> {
        let scene = bench.scene(plan.name)?;
        let raw = loops(scene.path(), "raw", plan.raws_count, RAW_BYTES)?;
        let disks_count = plan.members_count + plan.spares_count;
        let mut all = loops(scene.path(), "disk", disks_count, DISK_BYTES)?;
        all.extend(raw);
        let limits = ControlGroup::spindles(&all, SPINDLE_BYTES_PER_SECOND)?;
        let raw = all.split_off(disks_count);
        let group_plan = GroupPlan {
            name: plan.name,
            redundancy: plan.redundancy,
            two_sides: false,
            profile: "plain",
            options: &[],
        };
        let group = Group::over_some_devices(&scene, group_plan, all, plan.members_count)?;
        let file = group.point().join("data");
        let size = format!("--size={data_bytes}");
        let fill = ["--ioengine=psync", "--bs=1M", "--end_fsync=1", &size];
        fio::measure(&[&file], "write", &fill, &[])?;
        group.limit(&limits)?;
        Ok(Self {
            group,
            raw,
            limits,
            _scene: scene,
        })
    }

    /// Bytes a second that one raw spindle gives (`read`) or takes (`write`).
    pub fn raw_rate(&self, mode: &str) -> Result<f64> {
        let one = self.raw.first().context("the stand has a raw spindle")?;
        raw_stream(&[&one.device], mode, &self.limits)
    }

    /// Bytes a second that all raw spindles give together.
    pub fn raw_rate_of_all(&self, mode: &str) -> Result<f64> {
        let devices: Vec<_> = self.raw.iter().map(|raw| raw.device.as_path()).collect();
        raw_stream(&devices, mode, &self.limits)
    }

    /// What the kernel has counted of the group's devices.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::of(self.group.devices())
    }
}

/// A look at an operation that runs.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Since its beginning.
    at: Duration,
    done_bytes: u64,
    left_bytes: u64,
    rate_bytes_per_s: u64,
}

/// An operation from its command to the moment at which nothing is left to do.
#[derive(Debug)]
pub struct Watched {
    /// How long it took.
    pub took: Duration,
    looks: Vec<Look>,
}

impl Watched {
    /// By how much of it the time left was told wrong, at worst, after the first tenth; `None`
    /// where all of it was too short to tell.
    pub fn worst_error(&self) -> Option<f64> {
        let error = |look: &Look| {
            let left = self.took.checked_sub(look.at)?;
            let whole = real(look.done_bytes + look.left_bytes);
            let is_early = whole <= 0.0 || real(look.done_bytes) < whole * FIRST_PART;
            if left < LEFT_LEAST || is_early {
                return None;
            }
            let told = real(look.left_bytes) / real(look.rate_bytes_per_s.max(1));
            Some((told - left.as_secs_f64()).abs() / left.as_secs_f64())
        };
        self.looks.iter().filter_map(error).max_by(f64::total_cmp)
    }
}

/// Waits until `pass` has nothing left to do; `began` is the moment of the command.
pub fn watch(group: &Group, pass: &str, began: Instant) -> Result<Watched> {
    let mut looks = Vec::new();
    loop {
        interrupt::check()?;
        let at = began.elapsed();
        let Some(line) = operation(group, pass)? else {
            return Ok(Watched { took: at, looks });
        };
        if let Some(error) = line["error"].as_str() {
            bail!("the {pass} of {} cannot go on: {error}", group.name());
        }
        let number = |name: &str| {
            line[name]
                .as_u64()
                .with_context(|| format!("an operation without {name}: {line}"))
        };
        looks.push(Look {
            at,
            done_bytes: number("done_bytes")?,
            left_bytes: number("left_bytes")?,
            rate_bytes_per_s: number("rate_bytes_per_s")?,
        });
        ensure!(at < OPERATION_AT_MOST, "the {pass} does not end: {line}");
        interrupt::sleep(LOOK_INTERVAL)?;
    }
}

/// The line of a pass in `spindle operations`, while it has something to do.
pub fn operation(group: &Group, pass: &str) -> Result<Option<Value>> {
    let reports = group.ask(&["operations", group.name()])?;
    let lines = reports[0]["operations"]
        .as_array()
        .with_context(|| format!("no operations in {reports}"))?;
    Ok(lines.iter().find(|line| line["pass"] == pass).cloned())
}

/// A number of bytes to calculate with.
pub const fn real(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "bytes here are far below 2^52")]
    let real = bytes as f64;
    real
}
