//! What the kernel knows of a device and its partitions.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{NUMBER, refused, takes_none};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// What sysfs counts places and lengths in, whatever the sectors of the device are.
const SYSFS_SECTOR_BYTES: u64 = 512;
/// How long the partition's device is waited for, which udev may have to make.
const DEVICE_MOST: Duration = Duration::from_secs(10);

/// The kernel's directory of a whole block device that takes partitions and can be written.
pub(super) fn sysfs_of(path: &Path) -> ControlResult<PathBuf> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| ControlError::io("look at", path.display(), &error))?;
    if !metadata.file_type().is_block_device() {
        return Err(refused(path, "is no block device, and has no partitions"));
    }
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let known = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if known.join("partition").exists() {
        return Err(refused(path, "is a partition already"));
    }
    let takes_some = number_in(&known, "ext_range").is_some_and(|most| most > 1);
    if !takes_some {
        return Err(takes_none(path));
    }
    if number_in(&known, "ro") == Some(1) {
        return Err(ControlError::invalid(format!(
            "{0} is read-only: make it writable first (`blockdev --setrw {0}`), where it can be",
            path.display()
        )));
    }
    Ok(known)
}

/// The kernel's directories of the partitions that it knows of a device.
pub(super) fn directories(known: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(known).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|entry| entry.join("partition").exists())
        .collect();
    found.sort();
    found
}

/// The device in /dev of which the kernel has this directory.
pub(super) fn node_of(directory: &Path) -> Option<PathBuf> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    let properties = read("uevent")?;
    let name = (properties.lines()).find_map(|line| line.strip_prefix("DEVNAME="))?;
    let number = read("dev")?;
    let device = Path::new("/dev").join(name);
    let rdev = std::fs::metadata(&device).ok()?.rdev();
    let found = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (found == number.trim()).then_some(device)
}

/// The number of a partition.
pub(super) fn number_of(directory: &Path) -> Option<u64> {
    number_in(directory, "partition")
}

/// Where a partition begins and how long it is, in bytes.
pub(super) fn span_of(directory: &Path) -> Option<(u64, u64)> {
    let bytes = |name| number_in(directory, name)?.checked_mul(SYSFS_SECTOR_BYTES);
    Some((bytes("start")?, bytes("size")?))
}

fn number_in(directory: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join(name)).ok()?;
    text.trim().parse().ok()
}

/// The device of the partition, when it is there.
pub(super) fn device_of(known: &Path, path: &Path) -> ControlResult<PathBuf> {
    let begun = Instant::now();
    loop {
        if let Some(device) = partition_of(known) {
            return Ok(device);
        }
        if begun.elapsed() > DEVICE_MOST {
            return Err(ControlError::new(
                ControlErrorKind::Io,
                format!(
                    "a partition was made on {}, and its device does not appear in /dev: add that \
                     when it is there, without --partition",
                    path.display()
                ),
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn partition_of(known: &Path) -> Option<PathBuf> {
    let is_it = |directory: &PathBuf| number_of(directory) == Some(u64::from(NUMBER));
    node_of(&directories(known).into_iter().find(is_it)?)
}
