//! The devices that all contenders use in turn: made by the lab, or named by a person.
//!
//! What the lab makes is written once from end to end before the experiment and never discarded
//! afterwards, so that the first contender does not pay for allocation that the second finds done.
//! A block device is touched only where it was named, nothing uses it, and nothing stands on it, or
//! its very name was given to `--erase`.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::OFlags;
use spindle_testbed::interrupt;

use super::journal::{Journal, Made, Undo};
use super::place::mounts;
use super::program::{command, lacking, run, run_within};
use crate::experiment::{DeviceKind, Devices};
use crate::quantity::{as_float, show_size};

/// A device that a contender may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Such as `/dev/loop3`.
    pub path: PathBuf,
    /// The kernel's numbers of it: `major:minor`.
    pub numbers: String,
    /// Bytes.
    pub size_bytes: u64,
}

impl Leaf {
    /// What the kernel says of a block device.
    ///
    /// # Errors
    /// Where it is none.
    pub fn of(path: &Path) -> Result<Self> {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        ensure!(
            metadata.file_type().is_block_device(),
            "{} is no block device",
            path.display()
        );
        let number = metadata.rdev();
        let numbers = format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        );
        let sectors = fs::read_to_string(format!("/sys/dev/block/{numbers}/size"))
            .with_context(|| format!("the kernel does not tell the size of {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            size_bytes: sectors.trim().parse::<u64>()? * 512,
            numbers,
        })
    }

    /// Its name in the kernel's counters, such as `loop3`.
    #[must_use]
    pub fn kernel_name(&self) -> String {
        fs::canonicalize(format!("/sys/dev/block/{}", self.numbers))
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default()
    }
}

/// The devices of an experiment; a drop removes what was made.
#[derive(Debug)]
pub struct DeviceSet {
    /// In order.
    pub leaves: Vec<Leaf>,
    _made: Vec<Made>,
}

/// Why these devices cannot be used, where they cannot; nothing is touched.
///
/// # Errors
/// Then.
pub fn check(devices: &Devices, erase: &[PathBuf]) -> Result<()> {
    if let Some(stray) = erase.iter().find(|name| !devices.names.contains(name)) {
        bail!(
            "--erase {}: the experiment does not name it",
            stray.display()
        );
    }
    match devices.kind {
        DeviceKind::Loop => {
            ensure!(
                rustix::process::geteuid().is_root(),
                "loop devices are made by root: run it with sudo"
            );
            if let Some(line) = lacking("losetup") {
                bail!("{line}");
            }
            check_room(devices)
        }
        DeviceKind::Zram => {
            ensure!(
                Path::new("/sys/class/zram-control").exists(),
                "this kernel has no zram (modprobe zram)"
            );
            ensure!(
                rustix::process::geteuid().is_root(),
                "zram devices are made by root: run it with sudo"
            );
            Ok(())
        }
        DeviceKind::Block => {
            let mut numbers = Vec::new();
            for name in &devices.names {
                check_block(name, erase.contains(name))?;
                let leaf = Leaf::of(name)?;
                ensure!(
                    !numbers.contains(&leaf.numbers),
                    "{} is a device that another of the `names` names, too",
                    name.display()
                );
                numbers.push(leaf.numbers);
            }
            Ok(())
        }
    }
}

fn check_room(devices: &Devices) -> Result<()> {
    let place = &devices.directory;
    let room = rustix::fs::statvfs(place)
        .with_context(|| format!("cannot use the directory {}", place.display()))?;
    let free = room.f_bavail * room.f_frsize;
    let needed = devices.size_bytes * u64::from(devices.count);
    ensure!(
        free > needed + needed / 20,
        "{} has {} free; {} devices of {} need {}",
        place.display(),
        show_size(as_float(free)),
        devices.count,
        show_size(as_float(devices.size_bytes)),
        show_size(as_float(needed))
    );
    Ok(())
}

fn check_block(name: &Path, may_erase: bool) -> Result<()> {
    let leaf = Leaf::of(name)?;
    let real = fs::canonicalize(name)?;
    let kernel_name = leaf.kernel_name();
    let user = mounts()?.into_iter().find(|(_, source)| {
        fs::canonicalize(source).is_ok_and(|source| {
            source == real
                || source
                    .file_name()
                    .is_some_and(|part| is_part_of(&part.to_string_lossy(), &kernel_name))
        })
    });
    if let Some((place, _)) = user {
        bail!(
            "{} is in use: mounted at {}",
            name.display(),
            place.display()
        );
    }
    // Exclusively opened, a block device refuses while a file system, a volume or a program has it.
    let exclusive = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    if let Err(error) = rustix::fs::open(&real, exclusive, rustix::fs::Mode::empty()) {
        bail!("{} is in use: {error}", name.display());
    }
    if may_erase {
        return Ok(());
    }
    let looked = run_within(
        command("blkid").arg("--probe").arg(name),
        Duration::from_secs(30),
    )?;
    // blkid ends with 2 where it finds nothing.
    ensure!(
        looked.status.code() == Some(2),
        "{} is not empty ({}); to lose what is on it: --erase {}",
        name.display(),
        looked
            .stdout
            .trim()
            .split_once(": ")
            .map_or("unreadable", |(_, found)| found),
        name.display()
    );
    Ok(())
}

fn is_part_of(part: &str, whole: &str) -> bool {
    !whole.is_empty() && Path::new("/sys/block").join(whole).join(part).exists()
}

impl DeviceSet {
    /// Makes them, or takes those that are named.
    ///
    /// # Errors
    /// Where they cannot be had.
    pub fn make(journal: &Journal, devices: &Devices, erase: &[PathBuf]) -> Result<Self> {
        check(devices, erase)?;
        let mut set = Self {
            leaves: Vec::new(),
            _made: Vec::new(),
        };
        match devices.kind {
            DeviceKind::Block => {
                for name in &devices.names {
                    let made = journal.intend(Undo::Content(name.clone()))?;
                    set._made.push(made);
                    set.leaves.push(Leaf::of(name)?);
                }
            }
            DeviceKind::Loop => {
                let directory = new_directory(&devices.directory);
                set._made
                    .push(journal.intend(Undo::Directory(directory.clone()))?);
                fs::create_dir(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                for index in 0..devices.count {
                    let file = directory.join(format!("disk-{index}"));
                    fill(&file, devices.size_bytes)?;
                    set._made
                        .push(journal.intend(Undo::LoopOver(file.clone()))?);
                    set.leaves.push(attach(&file)?);
                }
            }
            DeviceKind::Zram => {
                for _ in 0..devices.count {
                    let number: u32 = fs::read_to_string("/sys/class/zram-control/hot_add")
                        .context("cannot make a zram device")?
                        .trim()
                        .parse()?;
                    set._made.push(journal.intend(Undo::Zram(number))?);
                    fs::write(
                        format!("/sys/block/zram{number}/disksize"),
                        devices.size_bytes.to_string(),
                    )
                    .context("cannot give the zram device its size")?;
                    let path = PathBuf::from(format!("/dev/zram{number}"));
                    interrupt::wait_for("the zram device", Duration::from_secs(5), || {
                        Ok(path.exists().then_some(()))
                    })?;
                    set.leaves.push(Leaf::of(&path)?);
                }
            }
        }
        Ok(set)
    }
}

/// Another one for each set: those of a contender that hangs stay while others are made.
fn new_directory(parent: &Path) -> PathBuf {
    let mut number = 1;
    loop {
        let directory = parent.join(format!("spindle-lab-disks-{}-{number}", std::process::id()));
        if !directory.exists() {
            return directory;
        }
        number += 1;
    }
}

/// Undone in the reverse order of making; a vector drops its first element first.
impl Drop for DeviceSet {
    fn drop(&mut self) {
        while let Some(made) = self._made.pop() {
            drop(made);
        }
    }
}

/// Whether every loop device goes past the page cache of what lies below.
#[must_use]
pub fn is_direct(leaf: &Leaf) -> bool {
    fs::read_to_string(format!("/sys/block/{}/loop/dio", leaf.kernel_name()))
        .is_ok_and(|text| text.trim() == "1")
}

/// A loop device over a file, past the page cache where the file system below has that.
///
/// # Errors
/// What `losetup` says.
pub(super) fn attach(file: &Path) -> Result<Leaf> {
    // A file system below that has no direct I/O (some kinds of memory) still gives a device; the
    // environment says which.
    let attach = |direct: &str| {
        run(command("losetup")
            .args(["--find", "--show", direct])
            .arg(file))
    };
    let device = attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?;
    Leaf::of(Path::new(device.trim()))
}

/// Writes a file from end to end, past the page cache's limits, durably. What is written is no
/// zeros: some file systems and disks keep these as nothing.
///
/// # Errors
/// Where there is such a file, or it cannot be written.
pub fn fill(path: &Path, size_bytes: u64) -> Result<()> {
    File::create_new(path)
        .map_err(anyhow::Error::from)
        .and_then(|file| write_whole(file, size_bytes))
        .with_context(|| format!("cannot fill {}", path.display()))
}

/// Writes every block of a device once: what was never written, or discarded, is faster to write at
/// random than what the disk has to move first. What stands on it is lost.
///
/// # Errors
/// Where it cannot be written.
pub fn precondition(leaf: &Leaf) -> Result<()> {
    File::options()
        .write(true)
        // Of a block device: refused where anything uses it.
        .custom_flags(i32::from_ne_bytes(OFlags::EXCL.bits().to_ne_bytes()))
        .open(&leaf.path)
        .map_err(anyhow::Error::from)
        .and_then(|device| write_whole(device, leaf.size_bytes))
        .with_context(|| format!("cannot write {}", leaf.path.display()))
}

fn write_whole(mut file: File, size_bytes: u64) -> Result<()> {
    const PIECE: usize = 4 << 20;
    let mut random = fastrand::Rng::with_seed(size_bytes);
    let piece: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(PIECE)
        .collect();
    let mut left = size_bytes;
    while left > 0 {
        interrupt::check()?;
        let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        file.write_all(&piece[..length])?;
        left -= length as u64;
    }
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests;
