//! How each thing that the lab makes is taken away again. Each way looks first: what is not there
//! is gone, which is what was wanted.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use spindle_testbed::interrupt;

use crate::measure::place::{mounts_below, unmount};
use crate::measure::process::{self, Identity};
use crate::measure::program::{command, run};
use crate::measure::stacking::{lvm, mdadm};

/// Something to be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    /// A file.
    File(PathBuf),
    /// A directory of ours with all that is in it.
    Directory(PathBuf),
    /// Whatever loop device lies over this file.
    LoopOver(PathBuf),
    /// A zram device, by its number.
    Zram(u32),
    /// What is mounted here, and whatever serves it.
    Mount(PathBuf),
    /// What the lab's contenders left on a block device that a person named.
    Content(PathBuf),
    /// A control group and every process in it.
    ControlGroup(PathBuf),
    /// A limit of a block device: the file of the limits, and `major:minor`.
    Limit(PathBuf, String),
    /// A process and what it started.
    Process(Identity),
    /// A PostgreSQL server, by the file with its number.
    PostgreSql(PathBuf),
    /// A setting of the kernel, and its value before.
    Setting(PathBuf, String),
    /// An LVM volume group.
    VolumeGroup(String),
    /// An md array.
    Array(PathBuf),
    /// A ZFS pool.
    Pool(String),
}

impl fmt::Display for Undo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(formatter, "the file {}", path.display()),
            Self::Directory(path) => write!(formatter, "the directory {}", path.display()),
            Self::LoopOver(path) => write!(formatter, "the loop device over {}", path.display()),
            Self::Zram(number) => write!(formatter, "/dev/zram{number}"),
            Self::Mount(path) => write!(formatter, "the mount at {}", path.display()),
            Self::Content(path) => write!(formatter, "what was put on {}", path.display()),
            Self::ControlGroup(path) => write!(formatter, "the cgroup {}", path.display()),
            Self::Limit(_, device) => write!(formatter, "the limit of the device {device}"),
            Self::Process(identity) => write!(formatter, "the process {}", identity.id),
            Self::PostgreSql(path) => write!(formatter, "the server of {}", path.display()),
            Self::Setting(path, _) => write!(formatter, "the setting {}", path.display()),
            Self::VolumeGroup(name) => write!(formatter, "the volume group {name}"),
            Self::Array(path) => write!(formatter, "the array {}", path.display()),
            Self::Pool(name) => write!(formatter, "the pool {name}"),
        }
    }
}

impl Undo {
    /// Whether it is still there after the machine was restarted.
    #[must_use]
    pub fn outlives_a_restart(&self) -> bool {
        matches!(
            self,
            Self::File(_) | Self::Directory(_) | Self::VolumeGroup(_) | Self::Pool(_)
        )
    }

    /// Takes it away.
    ///
    /// # Errors
    /// Where it is there and stays.
    pub fn carry_out(&self) -> Result<()> {
        interrupt::clean_up(|| self.take_away())
    }

    fn take_away(&self) -> Result<()> {
        match self {
            Self::File(path) => missing_is_fine(fs::remove_file(path))
                .with_context(|| format!("cannot remove {}", path.display())),
            Self::Directory(path) => remove_directory(path),
            Self::LoopOver(file) => detach(file),
            Self::Zram(number) => remove_zram(*number),
            Self::Mount(path) => unmount(path),
            Self::Content(device) => wipe(device),
            Self::ControlGroup(path) => remove_group(path),
            Self::Limit(file, device) => missing_is_fine(fs::write(file, lifted(file, device)))
                .with_context(|| format!("cannot lift the limit of {device}")),
            Self::Process(identity) => {
                identity.kill_family();
                Ok(())
            }
            Self::PostgreSql(path) => {
                end_postgresql(path);
                Ok(())
            }
            Self::Setting(path, value) => fs::write(path, value)
                .with_context(|| format!("cannot set {} back", path.display())),
            Self::VolumeGroup(name) => {
                if run(lvm("vgs").arg(name)).is_ok() {
                    run(lvm("vgremove").args(["--force", "--yes", name]))?;
                }
                Ok(())
            }
            Self::Array(path) => {
                if path.exists() {
                    run(mdadm().arg("--stop").arg(path))?;
                }
                // Without a daemon for device nodes the name stays behind.
                missing_is_fine(fs::remove_file(path)).context("cannot remove its name")
            }
            Self::Pool(name) => {
                if run(command("zpool").args(["list", name])).is_ok() {
                    run(command("zpool").args(["destroy", "-f", name]))?;
                }
                Ok(())
            }
        }
    }
}

fn missing_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// No limit, in the words of either version of the control groups.
fn lifted(file: &Path, device: &str) -> String {
    if file.ends_with("io.max") {
        format!("{device} rbps=max wbps=max riops=max wiops=max")
    } else {
        format!("{device} 0")
    }
}

fn remove_directory(path: &Path) -> Result<()> {
    // A mount below would be emptied along with it.
    let mounted = mounts_below(path)?;
    ensure!(
        mounted.is_empty(),
        "{} is still mounted",
        mounted
            .first()
            .map(|at| at.display().to_string())
            .unwrap_or_default()
    );
    missing_is_fine(fs::remove_dir_all(path))
        .with_context(|| format!("cannot remove {}", path.display()))
}

/// Who looks at all devices has one open for milliseconds.
const LET_GO_AT_MOST: Duration = Duration::from_secs(5);

fn detach(file: &Path) -> Result<()> {
    for device in loops_over(file)? {
        run(command("losetup").arg("--detach").arg(device))?;
    }
    // The kernel lets go of the file when the last one closes the device, and who looks at all
    // devices, as mkfs.btrfs does, has each of them open for a moment.
    let what = format!("the loop device over {} to be let go of", file.display());
    interrupt::wait_for(&what, LET_GO_AT_MOST, || {
        Ok(loops_over(file)?.is_empty().then_some(()))
    })
}

fn loops_over(file: &Path) -> Result<Vec<String>> {
    let listed = run(command("losetup")
        .args(["--noheadings", "--output", "NAME", "--associated"])
        .arg(file))?;
    Ok(listed.split_whitespace().map(str::to_owned).collect())
}

/// The signatures go, so that the device is as empty as it was given; the start is zeroed for what
/// `wipefs` does not know.
fn wipe(device: &Path) -> Result<()> {
    run(command("wipefs").args(["--all", "--quiet"]).arg(device))?;
    fs::OpenOptions::new()
        .write(true)
        .open(device)
        .and_then(|file| {
            file.write_all_at(&vec![0; 1 << 20], 0)?;
            file.sync_all()
        })
        .with_context(|| format!("cannot clear {}", device.display()))
}

fn remove_zram(number: u32) -> Result<()> {
    if !Path::new(&format!("/sys/block/zram{number}")).exists() {
        return Ok(());
    }
    // A device that was just let go of may be busy for a moment.
    let mut result = Ok(());
    for _ in 0..50 {
        result = fs::write(format!("/sys/block/zram{number}/reset"), "1")
            .and_then(|()| fs::write("/sys/class/zram-control/hot_remove", number.to_string()));
        if result.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    result.with_context(|| format!("cannot remove /dev/zram{number}"))
}

fn remove_group(path: &Path) -> Result<()> {
    for _ in 0..250 {
        if !path.exists() {
            return Ok(());
        }
        let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        let members: Vec<Identity> = members
            .lines()
            .filter_map(|line| Identity::of(line.parse().ok()?))
            .collect();
        let (own, others): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|member| member.id == std::process::id());
        process::end(&others);
        if !own.is_empty()
            && let Some(parent) = path.parent()
        {
            // We are in it where a run with an embedded database was given up.
            let _ = fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
        }
        if fs::remove_dir(path).is_ok() {
            return Ok(());
        }
        // The kernel lets go of a group a moment after its last process has ended.
        thread::sleep(Duration::from_millis(20));
    }
    bail!("{} is busy", path.display())
}

/// An immediate shutdown: nothing is flushed, but the shared memory goes along.
fn end_postgresql(id_file: &Path) {
    let Some(id) = fs::read_to_string(id_file)
        .ok()
        .and_then(|text| text.lines().next()?.trim().parse().ok())
    else {
        return;
    };
    let is_server = fs::read_to_string(format!("/proc/{id}/comm"))
        .is_ok_and(|name| name.trim().starts_with("postgres"));
    let Some(identity) = Identity::of(id).filter(|_| is_server) else {
        return;
    };
    let family = identity.family();
    identity.send(Signal::QUIT);
    for _ in 0..500 {
        if !identity.is_alive() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    process::end(&family);
}
