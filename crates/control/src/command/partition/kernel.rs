//! What the kernel knows of a device and its partitions.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{NUMBER, START_BYTES, refused, takes_none, written_and_not_read};
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

/// The device of the partition that was made, when it is there.
///
/// # Errors
/// Where the kernel shows another partition, or it does not appear.
pub(super) fn device_of(known: &Path, path: &Path, length_bytes: u64) -> ControlResult<PathBuf> {
    let begun = Instant::now();
    loop {
        if let Some(device) = partition_of(known, path, length_bytes)? {
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

/// The device of the partition that was made. A kernel that does not read such a table may go on
/// with partitions that it has from elsewhere: one of them could have the same number and lie where
/// the table is.
fn partition_of(known: &Path, path: &Path, length_bytes: u64) -> ControlResult<Option<PathBuf>> {
    let mut made = None;
    for directory in directories(known) {
        let (Some(number), Some(span)) = (number_of(&directory), span_of(&directory)) else {
            // It goes in this moment.
            continue;
        };
        if (number, span) != (u64::from(NUMBER), (START_BYTES, length_bytes)) {
            let shown = format!("it shows a partition {number} that was not made");
            return Err(written_and_not_read(path, &shown));
        }
        made = node_of(&directory);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as the kernel has it, of a device with these partitions: number, first sector and
    /// sectors of each. In /dev each is /dev/null.
    struct Known(PathBuf);

    impl Known {
        fn new(name: &str, partitions: &[[u64; 3]]) -> Self {
            let name = format!("spindle-known-{name}-{}", std::process::id());
            let known = Self(std::env::temp_dir().join(name));
            for [number, start, size] in partitions {
                let directory = known.0.join(format!("sda{number}"));
                std::fs::create_dir_all(&directory).unwrap();
                let write = |name: &str, text: String| {
                    std::fs::write(directory.join(name), text + "\n").unwrap();
                };
                write("partition", number.to_string());
                write("start", start.to_string());
                write("size", size.to_string());
                write("uevent", "DEVNAME=null".to_owned());
                write("dev", "1:3".to_owned());
            }
            known
        }

        fn partition(&self) -> ControlResult<Option<PathBuf>> {
            partition_of(&self.0, Path::new("/dev/sda"), 64 << 20)
        }
    }

    impl Drop for Known {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const MADE: [u64; 3] = [1, 2048, 131_072];

    #[test]
    fn the_partition_that_was_made_is_found() {
        let known = Known::new("made", &[MADE]);
        assert_eq!(known.partition(), Ok(Some("/dev/null".into())));
        let known = Known::new("none", &[]);
        assert_eq!(known.partition(), Ok(None));
    }

    #[test]
    fn another_partition_than_the_one_that_was_made_is_not_taken_for_it() {
        let others: [&[[u64; 3]]; 4] = [
            &[[1, 0, 131_072]],
            &[[1, 2048, 2048]],
            &[[2, 2048, 131_072]],
            &[MADE, [3, 200_000, 8]],
        ];
        for (index, partitions) in others.iter().enumerate() {
            let known = Known::new(&format!("other-{index}"), partitions);
            let refused = known.partition().unwrap_err().message();
            for wanted in ["/dev/sda", "was written", "partprobe", "that was not made"] {
                assert!(refused.contains(wanted), "{wanted}: {refused}");
            }
        }
    }
}
