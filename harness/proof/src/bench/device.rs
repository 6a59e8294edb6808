//! What is measured on: files in memory, loop devices over them, and "spindles", which are loop
//! devices held to the speed of a hard disk by the block control group.
//!
//! Each value undoes itself when dropped; nothing stays behind but what a SIGKILL leaves.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::interrupt;
use spindle_testbed::process::{family, run, run_well};

const BLOCK_GROUPS: &str = "/sys/fs/cgroup/blkio";
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";
/// The unit of the kernel's counters, whatever a device's own sectors are.
const SECTOR_BYTES: u64 = 512;

/// A file of `size_bytes`, all hole.
pub fn sparse_file(path: &Path, size_bytes: u64) -> Result<()> {
    File::create(path)
        .and_then(|file| file.set_len(size_bytes))
        .with_context(|| format!("cannot make {}", path.display()))
}

/// A file of `size_bytes` whose memory is taken now: what fills it later charges nobody else.
pub fn filled_file(path: &Path, size_bytes: u64) -> Result<()> {
    let size = size_bytes.to_string();
    run_well(Command::new("fallocate").args(["-l", &size]).arg(path))
        .map(drop)
        .with_context(|| format!("cannot make {}", path.display()))
}

/// A loop device over a file.
#[derive(Debug)]
pub struct Loop {
    /// `/dev/loopN`.
    pub device: PathBuf,
}

impl Loop {
    /// Over `file`, past the page cache where the file system below allows it.
    pub fn over(file: &Path) -> Result<Self> {
        let attach = |direct: &str| {
            run_well(
                Command::new("losetup")
                    .args(["--find", "--show", direct])
                    .arg(file),
            )
        };
        let device = attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?;
        Ok(Self {
            device: PathBuf::from(device.trim()),
        })
    }

    /// The kernel's numbers of it: `major:minor`.
    pub fn numbers(&self) -> Result<String> {
        let metadata = fs::metadata(&self.device)?;
        if !metadata.file_type().is_block_device() {
            bail!("{} is no block device", self.device.display());
        }
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Ok(format!("{major}:{minor}"))
    }

    /// What the kernel has counted of it since it was made.
    pub fn traffic(&self) -> Result<Traffic> {
        let name = self.device.file_name().context("a device has a name")?;
        let path = Path::new("/sys/class/block").join(name).join("stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sectors = |field: usize| -> Result<u64> {
            let word = text.split_whitespace().nth(field);
            let word = word.with_context(|| format!("{} is short", path.display()))?;
            Ok(word.parse::<u64>()?)
        };
        Ok(Traffic {
            read_bytes: sectors(2)? * SECTOR_BYTES,
            written_bytes: sectors(6)? * SECTOR_BYTES,
        })
    }
}

/// Bytes that went from a device and to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From it.
    pub read_bytes: u64,
    /// To it.
    pub written_bytes: u64,
}

impl Traffic {
    /// Of all these devices together.
    pub fn of(devices: &[Loop]) -> Result<Self> {
        let mut sum = Self::default();
        for device in devices {
            let traffic = device.traffic()?;
            sum.read_bytes += traffic.read_bytes;
            sum.written_bytes += traffic.written_bytes;
        }
        Ok(sum)
    }

    /// What came since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        interrupt::clean_up(|| {
            let detached = run_well(Command::new("losetup").arg("--detach").arg(&self.device));
            if let Err(error) = detached {
                eprintln!("{} stays: {error:#}", self.device.display());
            }
        });
    }
}

/// Four loop devices over new files `NAME.0` to `NAME.3` in `directory`.
pub fn four_loops(directory: &Path, name: &str, size_bytes: u64) -> Result<Vec<Loop>> {
    loops(directory, name, 4, size_bytes)
}

/// So many loop devices over new files `NAME.0`, `NAME.1`, ... in `directory`.
pub fn loops(directory: &Path, name: &str, count: usize, size_bytes: u64) -> Result<Vec<Loop>> {
    (0..count)
        .map(|index| {
            let file = directory.join(format!("{name}.{index}"));
            filled_file(&file, size_bytes)?;
            Loop::over(&file)
        })
        .collect()
}

/// A control group (version 1): programs that are started in it are held to its limits.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Holds each of `devices` to `bytes_per_second`, for reads and for writes.
    pub fn spindles(devices: &[Loop], bytes_per_second: u64) -> Result<Self> {
        let group = Self::make(BLOCK_GROUPS, "blkio")?;
        for device in devices {
            let limit = format!("{} {bytes_per_second}", device.numbers()?);
            for direction in ["read", "write"] {
                group.set(&format!("blkio.throttle.{direction}_bps_device"), &limit)?;
            }
        }
        Ok(group)
    }

    /// Gives `bytes` of memory, page cache included, to the programs in it.
    pub fn memory(bytes: u64) -> Result<Self> {
        let group = Self::make(MEMORY_GROUPS, "memory")?;
        group.set("memory.limit_in_bytes", &bytes.to_string())?;
        Ok(group)
    }

    fn make(hierarchy: &str, controller: &str) -> Result<Self> {
        if !Path::new(hierarchy).join("cgroup.procs").exists() {
            bail!("no {controller} cgroup (version 1) at {hierarchy}: limits cannot be set");
        }
        let path = Path::new(hierarchy).join(format!("spindle-bench-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).with_context(|| format!("cannot set {}", path.display()))
    }

    /// Moves a running program and its children here.
    pub fn adopt(&self, process: u32) -> Result<()> {
        self.set("cgroup.procs", &process.to_string())?;
        // Whatever it starts from here on is a member by birth; what it had started may have
        // ended meanwhile.
        for member in family(process) {
            let written = fs::write(self.path.join("cgroup.procs"), member.to_string());
            if let Err(error) = written {
                let has_ended = !Path::new(&format!("/proc/{member}")).exists();
                ensure!(has_ended, "cannot move process {member}: {error}");
            }
        }
        Ok(())
    }

    /// The words that come before a command so that it runs in this group: a shell that moves
    /// itself there and becomes the command, with the same process id.
    #[must_use]
    pub fn prefix(&self) -> Vec<String> {
        let members = self.path.join("cgroup.procs").display().to_string();
        ["sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", &members]
            .map(str::to_owned)
            .to_vec()
    }
}

/// Devices held to a speed for everybody who is in no control group of its own: programs, and
/// the kernel's own threads, which write back and rebalance for file systems.
#[derive(Debug)]
pub struct SlowForAll {
    numbers: Vec<String>,
}

impl SlowForAll {
    /// Holds each of `devices` to `bytes_per_second`, for reads and for writes.
    pub fn spindles(devices: &[&Loop], bytes_per_second: u64) -> Result<Self> {
        let mut all = Self {
            numbers: Vec::new(),
        };
        for device in devices {
            let numbers = device.numbers()?;
            all.numbers.push(numbers.clone());
            Self::set(&numbers, bytes_per_second)?;
        }
        Ok(all)
    }

    fn set(numbers: &str, bytes_per_second: u64) -> Result<()> {
        for direction in ["read", "write"] {
            let name = format!("blkio.throttle.{direction}_bps_device");
            let path = Path::new(BLOCK_GROUPS).join(name);
            fs::write(&path, format!("{numbers} {bytes_per_second}"))
                .with_context(|| format!("cannot set {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for SlowForAll {
    fn drop(&mut self) {
        for numbers in &self.numbers {
            if let Err(error) = Self::set(numbers, 0) {
                eprintln!("device {numbers} stays slow: {error:#}");
            }
        }
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel lets go of a group a moment after its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} stays", self.path.display());
    }
}

/// A file system of the kernel's, mounted.
#[derive(Debug)]
pub struct KernelMount {
    point: PathBuf,
    // Detached after the unmount: fields are dropped after the value's own drop.
    devices: Vec<Loop>,
}

impl KernelMount {
    /// Makes a file system over `devices` and mounts it at `point`, which is made.
    pub fn make(kind: &str, devices: Vec<Loop>, point: &Path) -> Result<Self> {
        fs::create_dir_all(point)?;
        let paths = devices.iter().map(|device| device.device.as_path());
        let mut make = Command::new(format!("mkfs.{kind}"));
        let options = match kind {
            // The rival at its best: striped, and data in place, as its users set it for databases.
            "btrfs" => {
                make.args(["-q", "-f", "-d", "raid0", "-m", "raid0"]);
                "nodatacow"
            }
            "xfs" => {
                make.args(["-q", "-f"]);
                "defaults"
            }
            "ext4" => {
                // Its lazy initialisation would run beside the measurement.
                make.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
                "defaults"
            }
            _ => bail!("no file system {kind}"),
        };
        run_well(make.args(paths))?;
        if kind == "btrfs" {
            run_well(Command::new("btrfs").args(["device", "scan"]))?;
        }
        let first = &devices
            .first()
            .context("a file system needs a device")?
            .device;
        run_well(
            Command::new("mount")
                .args(["-t", kind, "-o", options])
                .arg(first)
                .arg(point),
        )?;
        Ok(Self {
            point: point.to_owned(),
            devices,
        })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The devices that it was made over.
    #[must_use]
    pub fn devices(&self) -> &[Loop] {
        &self.devices
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        interrupt::clean_up(|| {
            for options in [&[][..], &["--lazy"][..]] {
                let outcome = run(Command::new("umount").args(options).arg(&self.point));
                if outcome.is_ok_and(|outcome| outcome.status.success()) {
                    return;
                }
            }
            eprintln!("{} stays mounted", self.point.display());
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use spindle_testbed::scene::Scene;

    use super::*;

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!("skipped: loop devices need root");
        }
        is_root
    }

    #[test]
    fn a_spindle_is_held_to_its_speed() {
        if !is_root() {
            return;
        }
        let scene = Scene::make(&crate::memory_directory(), "spindle-device-test").unwrap();
        let file = scene.join("disk");
        filled_file(&file, 32 << 20).unwrap();
        let device = vec![Loop::over(&file).unwrap()];
        let limits = match ControlGroup::spindles(&device, 32_000_000) {
            Ok(limits) => limits,
            Err(error) => {
                println!("skipped: no cgroup to limit a disk with: {error:#}");
                return;
            }
        };
        let mut words = limits.prefix();
        let input = format!("if={}", device[0].device.display());
        words.extend(["dd", &input, "of=/dev/null", "bs=1M", "iflag=direct"].map(str::to_owned));
        let began = Instant::now();
        run_well(Command::new(&words[0]).args(&words[1..])).unwrap();
        // 33.5 MB at 32 MB/s take a second; memory alone would take some milliseconds.
        let seconds = began.elapsed().as_secs_f64();
        assert!((0.7..3.0).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn a_rival_is_mounted_and_leaves_nothing_behind() {
        if !is_root() {
            return;
        }
        let scene = Scene::make(&crate::memory_directory(), "spindle-rival-test").unwrap();
        let file = scene.join("disk");
        filled_file(&file, 64 << 20).unwrap();
        let point = scene.join("mount");
        let devices = vec![Loop::over(&file).unwrap()];
        let mount = KernelMount::make("ext4", devices, &point).unwrap();
        fs::write(mount.point().join("a file"), "text").unwrap();
        drop(mount);
        assert!(!point.join("a file").exists());
        let attached = run_well(&mut Command::new("losetup")).unwrap();
        assert!(!attached.contains("spindle-rival-test"), "{attached}");
    }
}
