//! The devices of a scenario: loop and zram devices where root may make them, on a shelf of
//! symbolic links. What is pulled off the shelf is not found by the next process either, as a
//! disk that was taken out.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use spindle_device::AlignedBuffer;
use spindle_testbed::interrupt;
use spindle_testbed::scene::Scene;

use crate::bench::device::{Loop, sparse_file};

const ZRAM_CONTROL: &str = "/sys/class/zram-control";

/// Bytes of each device.
pub const DEVICE_BYTES: u64 = 512 << 20;

/// What direct I/O reads and writes at once here.
pub const BLOCK_BYTES: usize = 4096;

/// A device and its place on the shelf.
#[derive(Debug)]
pub struct Device {
    /// Its name on the shelf.
    pub name: String,
    target: PathBuf,
    _made: Made,
}

/// What a drop undoes. The file below a loop device goes with the scene.
#[derive(Debug)]
enum Made {
    Loop { _device: Loop },
    Zram { _device: Zram },
    File,
}

/// A compressed disk in memory.
#[derive(Debug)]
struct Zram {
    number: u32,
}

impl Zram {
    fn make(size_bytes: u64) -> Result<Self> {
        let number = fs::read_to_string(format!("{ZRAM_CONTROL}/hot_add"))
            .context("cannot make a zram device")?
            .trim()
            .parse()?;
        let device = Self { number };
        fs::write(
            format!("/sys/block/zram{number}/disksize"),
            size_bytes.to_string(),
        )
        .context("cannot give the zram device its size")?;
        let path = device.path();
        interrupt::wait_for("the zram device", Duration::from_secs(5), || {
            Ok(path.exists().then_some(()))
        })?;
        Ok(device)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let number = self.number;
        // The process that had it open may have ended a moment ago.
        for _ in 0..100 {
            let _ = fs::write(format!("/sys/block/zram{number}/reset"), "1");
            if fs::write(format!("{ZRAM_CONTROL}/hot_remove"), number.to_string()).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("/dev/zram{number} stays");
    }
}

/// All devices, in the group or spare.
#[derive(Debug)]
pub struct Shelf {
    directory: PathBuf,
    devices: Vec<Device>,
}

impl Shelf {
    /// `count` devices, every second one another kind, all plugged in.
    pub fn make(scene: &Scene, count: usize) -> Result<Self> {
        let directory = scene.directory("disks")?;
        let files = scene.directory("files")?;
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!(
                "skipped: only root makes loop and zram devices; plain files take their place"
            );
        }
        let has_zram = is_root && Path::new(ZRAM_CONTROL).join("hot_add").exists();
        if is_root && !has_zram {
            println!("skipped: this kernel has no zram; other devices take its place");
        }
        let mut shelf = Self {
            directory,
            devices: Vec::new(),
        };
        for index in 0..count {
            let (kind, target, made) = if has_zram && index % 2 == 1 {
                let device = Zram::make(DEVICE_BYTES)?;
                ("zram", device.path(), Made::Zram { _device: device })
            } else {
                let file = files.join(format!("file{index}"));
                sparse_file(&file, DEVICE_BYTES)?;
                if is_root {
                    let device = Loop::over(&file)?;
                    let target = device.device.clone();
                    ("loop", target, Made::Loop { _device: device })
                } else {
                    ("file", file, Made::File)
                }
            };
            let name = format!("{kind}-{index}");
            symlink(&target, shelf.directory.join(&name))?;
            shelf.devices.push(Device {
                name,
                target,
                _made: made,
            });
        }
        Ok(shelf)
    }

    /// The search path for `spindle`.
    pub fn search_path(&self) -> String {
        format!("{}/*", self.directory.display())
    }

    /// Where a device is while it is plugged in.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The names of all devices.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.name.as_str())
    }

    /// Nobody finds it any more; who has it open, has it.
    pub fn unplug(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        fs::remove_file(&path).with_context(|| format!("cannot take {} away", path.display()))
    }

    /// It is where it was.
    pub fn plug(&self, name: &str) -> Result<()> {
        let device = self.device(name)?;
        symlink(&device.target, self.path(name))
            .with_context(|| format!("cannot put {name} back on its shelf"))
    }

    /// The device that a path leads to, by its place on the shelf or by its own.
    pub fn device_at(&self, path: &Path) -> Option<String> {
        let is_it = |device: &&Device| device.target == path || self.path(&device.name) == path;
        Some(self.devices.iter().find(is_it)?.name.clone())
    }

    fn device(&self, name: &str) -> Result<&Device> {
        let found = self.devices.iter().find(|device| device.name == name);
        found.with_context(|| format!("there is no device {name}"))
    }

    /// The block that lies there, past every cache.
    pub fn read_block(&self, name: &str, offset_bytes: u64) -> Result<AlignedBuffer> {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        let file = self.open(name)?;
        file.read_exact_at(&mut block, offset_bytes)?;
        Ok(block)
    }

    /// Writes a block, past everything that should know of it.
    pub fn write_block(&self, name: &str, offset_bytes: u64, block: &AlignedBuffer) -> Result<()> {
        let file = self.open(name)?;
        file.write_all_at(block, offset_bytes)?;
        Ok(file.sync_all()?)
    }

    fn open(&self, name: &str) -> Result<File> {
        let device = self.device(name)?;
        let flags = i32::try_from(OFlags::DIRECT.bits())?;
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&device.target)
            .with_context(|| format!("cannot open {}", device.target.display()))
    }

    /// Makes it as new: nothing on it tells that it was ever in a group.
    pub fn wipe(&self, name: &str) -> Result<()> {
        let zeros = AlignedBuffer::zeroed(1 << 20);
        let file = self.open(name)?;
        for offset_bytes in [0, DEVICE_BYTES - (1 << 20)] {
            file.write_all_at(&zeros, offset_bytes)?;
        }
        ensure!(file.sync_all().is_ok(), "{name} cannot be wiped");
        Ok(())
    }
}
