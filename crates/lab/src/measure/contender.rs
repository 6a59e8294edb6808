//! The contenders: how each is made on the devices, and what it is. One more is one more file here
//! with its line in [`all`].
//!
//! A contender is made anew for every run, on the same devices as every other, and removed after
//! it. What it made is in the journal before it is made, so that a failure half way leaves nothing.

mod array;
mod btrfs;
mod choice;
mod directory;
mod kernel_filesystem;
mod nfs;
mod raw;
mod spindle;
mod volume;
mod zfs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use spindle_testbed::interrupt;

use super::companion::Lap;
use super::control_group::ControlGroup;
use super::device::Leaf;
use super::journal::{Journal, Made, Undo};
use super::patience::Watch;
use super::process::Identity;
use super::program::{Service, as_typed, run};
use crate::experiment::Companion;
use crate::nearness::hint;
use crate::record::Layout;

pub use choice::{Choice, Options, refuses};
pub use spindle::program as spindle_program;

/// A storage that can be compared.
pub trait Contender {
    /// As it is written in the experiment.
    fn name(&self) -> String;

    /// Why this machine cannot run it, where it cannot: a program or a part of the kernel that is
    /// missing, in one line.
    fn lacks(&self) -> Option<String>;

    /// How many devices it needs.
    fn devices_at_least(&self) -> u32 {
        1
    }

    /// How large each of them is at least.
    fn device_bytes_at_least(&self) -> u64 {
        128 << 20
    }

    /// Whether it is a device and no directory: only `block` and `validate` run on it.
    fn is_device(&self) -> bool {
        false
    }

    /// In what contenders on it may differ.
    fn choices(&self) -> &'static [Choice] {
        &[]
    }

    /// On how many devices it can do this beside a load.
    ///
    /// # Errors
    /// Why it cannot, or why the lab cannot have it done, in a clause.
    fn accompanies(&self, companion: Companion) -> Result<u32, &'static str> {
        match companion {
            Companion::Backup => Ok(self.devices_at_least()),
            Companion::Rebalance => Err("nothing in it moves data from one device to others"),
            Companion::Resync => Err("no device of it goes, comes back and gets what it missed"),
        }
    }

    /// What it does then, lap after lap; empty where it cannot. A backup is nobody's own.
    fn laps(&self, _site: &Site<'_>, _standing: &Standing, _companion: Companion) -> Vec<Lap> {
        Vec::new()
    }

    /// Makes it.
    ///
    /// # Errors
    /// Where that fails; what was made is gone then.
    fn make(&self, site: &Site<'_>) -> Result<Standing>;

    /// Whether the lab knows how it is started again.
    fn starts_again(&self) -> bool {
        false
    }

    /// Starts it on devices that hold it already, as after a loss of power.
    ///
    /// # Errors
    /// Where that fails, or where the lab does not know how.
    fn start_again(&self, _site: &Site<'_>) -> Result<Standing> {
        bail!(
            "how {} is started again is not known to the lab yet",
            self.name()
        )
    }
}

/// Where a contender is made.
pub struct Site<'a> {
    /// What it makes is recorded here.
    pub journal: &'a Journal,
    /// The devices, all its own.
    pub leaves: &'a [Leaf],
    /// What its daemon belongs to.
    pub group: &'a ControlGroup,
    /// A directory for mount points and sockets; it ends with the run.
    pub scratch: &'a Path,
    /// Where its programs may speak.
    pub log: &'a Path,
    /// The name of the database that is to live on it.
    pub profile: &'a str,
    /// How it is made and mounted, where that is not as usual: each is one of its choices.
    pub options: &'a Options,
    /// Told of what takes long by its nature.
    pub watch: &'a Watch,
}

/// What the data is put on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A block device.
    Device(PathBuf),
}

/// A contender that was made. Its parts are removed in the reverse order of their making.
#[derive(Debug)]
pub struct Standing {
    /// What the data is put on.
    pub place: Place,
    /// What it is.
    pub layout: Layout,
    parts: Vec<Made>,
    /// The polite way to end it, tried before the parts are taken away.
    farewell: Option<Command>,
    /// What serves it from user space; it ends by the farewell, or is killed.
    daemon: Option<Service>,
    /// Prints its own counters, a document a second.
    iostat: Option<Command>,
    /// What serves it besides, and ends with the parts.
    servers: Vec<Service>,
    /// Groups of servers that do not share the run's own.
    pub groups: Vec<ControlGroup>,
    /// Where the data lies on a file system below, whose pages are cached there, too.
    pub below: Option<PathBuf>,
}

/// A storage daemon has this long to end after it was asked to.
const END_AT_MOST: Duration = Duration::from_secs(60);

impl Standing {
    /// The processes that serve it from user space.
    #[must_use]
    pub fn servers(&self) -> Vec<Identity> {
        self.daemon
            .iter()
            .chain(&self.servers)
            .map(Service::identity)
            .collect()
    }

    /// What prints its own counters, a document a second; to be asked for once.
    pub fn iostat(&mut self) -> Option<Command> {
        self.iostat.take()
    }

    /// An error where one of its daemons has ended by itself.
    ///
    /// # Errors
    /// Then.
    pub fn check_alive(&mut self) -> Result<()> {
        self.daemon
            .iter_mut()
            .chain(&mut self.servers)
            .try_for_each(Service::check_alive)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// Where a part stays.
    pub fn remove(mut self) -> Result<()> {
        let farewell = self.farewell.take().map_or(Ok(()), |mut command| {
            interrupt::clean_up(|| run(&mut command).map(drop))
        });
        if farewell.is_ok()
            && let Some(daemon) = &mut self.daemon
        {
            daemon.wait(END_AT_MOST)?;
        }
        while let Some(part) = self.parts.pop() {
            part.remove()?;
        }
        farewell.context("it could not be ended in the polite way")
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(mut command) = self.farewell.take() {
            // The parts are taken away by force where this fails.
            let _ = interrupt::clean_up(|| run(&mut command));
        }
        drop(self.daemon.take());
        while let Some(part) = self.parts.pop() {
            drop(part);
        }
    }
}

/// Every contender but a directory, which a person names.
#[must_use]
pub fn all() -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    all.extend(raw::offers());
    all.extend(kernel_filesystem::offers());
    all.extend(btrfs::offers());
    all.extend(volume::offers());
    all.extend(array::offers());
    all.extend(nfs::offers());
    all.extend(zfs::offers());
    all.extend(spindle::offers());
    all
}

/// The contender of this name.
///
/// # Errors
/// A line with the nearest names.
pub fn find(name: &str) -> Result<Box<dyn Contender>, String> {
    if let Some(path) = name.strip_prefix("directory:") {
        return directory::named(path);
    }
    let mut all = all();
    if let Some(index) = all.iter().position(|contender| contender.name() == name) {
        return Ok(all.swap_remove(index));
    }
    let names: Vec<String> = all.iter().map(|contender| contender.name()).collect();
    let near = hint(name, names.iter().map(String::as_str));
    Err(format!(
        "no contender `{name}`{near} (`spindle-lab doctor` lists all; `directory:PATH` is any directory)"
    ))
}

/// Makes a contender step by step, keeping what is to be undone and the commands as typed.
struct Maker<'a> {
    site: &'a Site<'a>,
    parts: Vec<Made>,
    made_by: Vec<String>,
}

impl<'a> Maker<'a> {
    fn new(site: &'a Site<'a>) -> Self {
        Self {
            site,
            parts: Vec::new(),
            made_by: Vec::new(),
        }
    }

    /// Records what is made next.
    fn intend(&mut self, undo: Undo) -> Result<()> {
        self.parts.push(self.site.journal.intend(undo)?);
        Ok(())
    }

    /// Notes a command that makes a part of it. The directory of the run, which nobody else has, is
    /// `$RUN` in it.
    fn note(&mut self, command: &Command) {
        let scratch = self.site.scratch.to_string_lossy();
        self.made_by
            .push(as_typed(command).replace(&*scratch, "$RUN"));
    }

    /// Runs a command that makes a part of it.
    fn run(&mut self, command: &mut Command) -> Result<String> {
        self.note(command);
        run(command)
    }

    /// Makes a file system of the kernel's on `devices` and mounts it.
    fn filesystem(&mut self, kind: &str, devices: &[&Path]) -> Result<PathBuf> {
        self.make_filesystem(kind, devices)?;
        let first = devices.first().context("a file system needs a device")?;
        self.mount(kind, "", first)
    }

    fn make_filesystem(&mut self, kind: &str, devices: &[&Path]) -> Result<()> {
        let mut make = super::program::command(&format!("mkfs.{kind}"));
        // No discard: the devices were written once, alike for all, and stay so. Lazy
        // initialisation would run beside the measurement.
        match kind {
            "xfs" => make.args(["-q", "-f", "-K"]),
            "ext3" => make.args(["-q", "-F", "-E", "lazy_itable_init=0,nodiscard"]),
            _ => make.args([
                "-q",
                "-F",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            ]),
        };
        self.run(make.args(devices)).map(drop)
    }

    /// Mounts it at a directory of the run's.
    fn mount(&mut self, kind: &str, options: &str, device: &Path) -> Result<PathBuf> {
        let point = self.mount_point()?;
        self.mount_at(kind, options, device, &point)?;
        Ok(point)
    }

    fn mount_at(&mut self, kind: &str, options: &str, device: &Path, point: &Path) -> Result<()> {
        self.intend(Undo::Mount(point.to_owned()))?;
        let mut mount = super::program::command("mount");
        mount.args(["-t", kind]);
        let of_the_file = self.site.options.get(choice::MOUNT.name);
        let options: Vec<&str> = [Some(options), of_the_file.map(String::as_str)]
            .into_iter()
            .flatten()
            .filter(|options| !options.is_empty())
            .collect();
        if !options.is_empty() {
            mount.args(["-o", &options.join(",")]);
        }
        self.run(mount.arg(device).arg(point))?;
        Ok(())
    }

    fn mount_point(&mut self) -> Result<PathBuf> {
        let point = self.site.scratch.join("mount");
        std::fs::create_dir(&point).with_context(|| format!("cannot make {}", point.display()))?;
        Ok(point)
    }

    fn standing(self, place: Place, layout: Layout) -> Standing {
        Standing {
            place,
            layout: Layout {
                made_by: self.made_by,
                ..layout
            },
            parts: self.parts,
            farewell: None,
            daemon: None,
            iostat: None,
            servers: Vec::new(),
            groups: Vec::new(),
            below: None,
        }
    }
}

/// Whether the running kernel has a file system, or may load it.
fn kernel_lacks(filesystem: &str) -> Option<String> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(filesystem));
    if is_known {
        return None;
    }
    let probe = super::program::run(super::program::command("modprobe").arg(filesystem));
    probe.is_err().then(|| no_kernel_part(filesystem))
}

/// A part of the kernel is missing, which another kernel may have.
fn no_kernel_part(part: &str) -> String {
    format!("the running kernel has no {part} (`run --guest` runs one that has)")
}

/// Making any of these takes root.
fn lacks_root() -> Option<String> {
    (!rustix::process::geteuid().is_root())
        .then(|| "it is made by root: run it with sudo".to_owned())
}

#[cfg(test)]
mod tests;
