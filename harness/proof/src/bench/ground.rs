//! The storages that are compared: a Spindle group on a mount, or a file system of the kernel's.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use spindle_testbed::scene::Scene;
use spindle_testbed::spindle::{Mount, Spindle};

use super::device::{ControlGroup, KernelMount, Loop};

/// A mounted group. Its parts end in this order: mount, then devices.
#[derive(Debug)]
pub struct Group {
    spindle: Spindle,
    name: String,
    point: PathBuf,
    mount: Option<Mount>,
    devices: Vec<Loop>,
}

/// How a group is made.
#[derive(Debug, Clone, Copy)]
pub struct GroupPlan<'a> {
    /// Its name.
    pub name: &'a str,
    /// `external` or `normal`.
    pub redundancy: &'a str,
    /// Every second disk is in the other of two failure groups; else each is one of its own.
    pub two_sides: bool,
    /// The profile.
    pub profile: &'a str,
    /// What `spindle mount` gets besides.
    pub options: &'a [&'a str],
}

impl Group {
    /// Over block devices that are ours.
    pub fn over_devices(scene: &Scene, plan: GroupPlan<'_>, devices: Vec<Loop>) -> Result<Self> {
        let members_count = devices.len();
        Self::over_some_devices(scene, plan, devices, members_count)
    }

    /// Over the first of these devices; the others are found on the search path, to be added.
    pub fn over_some_devices(
        scene: &Scene,
        plan: GroupPlan<'_>,
        devices: Vec<Loop>,
        members_count: usize,
    ) -> Result<Self> {
        let disks: Vec<PathBuf> = devices.iter().map(|loop_| loop_.device.clone()).collect();
        Self::make(scene, plan, &disks, members_count, devices)
    }

    /// Over all these devices, beside one of somebody else's that is found on the search path.
    pub fn with_spare(
        scene: &Scene,
        plan: GroupPlan<'_>,
        devices: Vec<Loop>,
        spare: &Loop,
    ) -> Result<Self> {
        let mut disks: Vec<PathBuf> = devices.iter().map(|loop_| loop_.device.clone()).collect();
        disks.push(spare.device.clone());
        Self::make(scene, plan, &disks, devices.len(), devices)
    }

    /// Over plain files that are there.
    pub fn over_files(scene: &Scene, plan: GroupPlan<'_>, files: &[PathBuf]) -> Result<Self> {
        Self::make(scene, plan, files, files.len(), Vec::new())
    }

    fn make(
        scene: &Scene,
        plan: GroupPlan<'_>,
        disks: &[PathBuf],
        members_count: usize,
        devices: Vec<Loop>,
    ) -> Result<Self> {
        let disks: Vec<String> = disks
            .iter()
            .map(|disk| disk.display().to_string())
            .collect();
        let members = &disks[..members_count];
        let runtime = scene.join(&format!("{}-run", plan.name));
        let spindle = Spindle::find(&disks.join(","), &runtime)?;
        let mut words = ["group", "create", plan.name].map(str::to_owned).to_vec();
        words.extend(
            ["--redundancy", plan.redundancy, "--profile", plan.profile].map(str::to_owned),
        );
        if plan.two_sides {
            for (index, side) in ["left", "right"].into_iter().enumerate() {
                let members: Vec<String> = members.iter().skip(index).step_by(2).cloned().collect();
                let members = members.join(",");
                words.extend(["--failgroup".to_owned(), format!("{side}={members}")]);
            }
        } else {
            for disk in members {
                words.extend(["--disk".to_owned(), disk.clone()]);
            }
        }
        spindle.tell(words.iter().map(String::as_str))?;
        let point = scene.directory(&format!("{}-mount", plan.name))?;
        let mount = spindle.mount(plan.name, &point, plan.options)?;
        Ok(Self {
            spindle,
            name: plan.name.to_owned(),
            point,
            mount: Some(mount),
            devices,
        })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The devices that it was made with, those to be added included.
    pub fn devices(&self) -> &[Loop] {
        &self.devices
    }

    /// Runs a command that has to succeed.
    pub fn tell(&self, words: &[&str]) -> Result<String> {
        self.spindle.tell(words.iter().copied())
    }

    /// What a listing says with `--json`.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        self.spindle.ask(words.iter().copied())
    }

    /// What `spindle group show --json` says.
    pub fn show(&self) -> Result<Value> {
        self.spindle.ask(["group", "show", &self.name])
    }

    /// The daemon's process id.
    pub fn daemon_id(&self) -> Result<u32> {
        self.mount
            .as_ref()
            .and_then(Mount::daemon_id)
            .context("the group is not mounted")
    }

    /// Holds the daemon to the limits of `limits`.
    pub fn limit(&self, limits: &ControlGroup) -> Result<()> {
        limits.adopt(self.daemon_id()?)
    }

    /// Unmounts and mounts again: nothing is cached then. Gives how long the mount took.
    pub fn remount(&mut self, options: &[&str]) -> Result<Duration> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        let began = Instant::now();
        self.mount = Some(self.spindle.mount(&self.name, &self.point, options)?);
        Ok(began.elapsed())
    }
}

/// One of the storages that a database is put on.
#[derive(Debug)]
pub enum Ground {
    /// Spindle.
    Spindle(Box<Group>),
    /// A rival.
    Kernel(KernelMount),
}

impl Ground {
    /// Where files go.
    pub fn point(&self) -> &Path {
        match self {
            Self::Spindle(group) => group.point(),
            Self::Kernel(mount) => mount.point(),
        }
    }

    /// The bytes that are taken, as `df` tells them.
    pub fn used_bytes(&self) -> Result<u64> {
        let told = rustix::fs::statvfs(self.point())?;
        Ok((told.f_blocks - told.f_bfree) * told.f_frsize)
    }
}

/// A process's memory, in bytes: what `key` (`VmRSS`, `VmHWM`) of its status says.
pub fn memory_bytes(process: u32, key: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    status
        .lines()
        .find_map(|line| {
            let rest = line.strip_prefix(key)?.strip_prefix(':')?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map(|kibibytes| kibibytes * 1024)
        .with_context(|| format!("process {process} tells no {key}"))
}
