//! A partition for a disk of a group: one that fills the device, in a GPT, with a type of our own. Tools
//! and installers that know no label of ours see that the device is taken.

mod within;

use std::error::Error;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::{OperatingSystem, Type};
use rustix::fs::OFlags;
use rustix::io::Errno;
use spindle_format::{Label, SIGNATURE_END_BYTES, SIGNATURE_START_BYTES};
use uuid::Uuid;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::probe::Probe;
use crate::machine::settings::Settings;
use crate::opened::create::refuse_what_stands_there;

/// The type of a partition that is a disk of a group (docs/format/label.md).
const TYPE: Uuid = Uuid::from_u128(0x9c49_4429_0806_4a04_b54d_bed9_fc04_0125);
/// Where it begins.
const START_BYTES: u64 = 1 << 20;
/// Its length is a multiple of this.
const BLOCK_BYTES: u64 = 4096;
const NUMBER: u32 = 1;
/// How long the partition's device is waited for, which udev may have to make.
const DEVICE_MOST: Duration = Duration::from_secs(10);

/// Whether [`make_partition`] would begin: asked of each disk before the first is written.
///
/// # Errors
/// Where it would write nothing, but for what is only seen when the device is opened.
pub fn check_partition(settings: &Settings, path: &Path, overwrite: bool) -> ControlResult<()> {
    look(settings, path, overwrite).map(|_| ())
}

/// Makes a partition table on a whole block device with one partition in it, and gives the path of the
/// partition's device. What stood there before is lost, as it is on a disk that joins a group.
///
/// # Errors
/// Where it is no whole block device, takes no partitions, is in use, is a member, or holds something and
/// `overwrite` does not say that this may be lost; nothing has been written then. Where it cannot be
/// written, or the partition does not appear.
pub fn make_partition(settings: &Settings, path: &Path, overwrite: bool) -> ControlResult<PathBuf> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| ControlError::io(&what, path.display(), &error)
    };
    look(settings, path, overwrite)?;
    let exclusive = (OFlags::EXCL | OFlags::CLOEXEC).bits();
    let mut device = File::options()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(exclusive).unwrap_or(0))
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => in_use(path),
            _ => ControlError::io("open", path.display(), &error),
        })?;
    // Again, now that nobody else can take it: a group may have been made of it meanwhile.
    let known = look(settings, path, overwrite)?;
    // Before anything is written: a loop device may say only here that it takes none.
    spindle_device::read_partitions_anew(&device).map_err(|error| match error {
        Errno::INVAL => takes_none(path),
        Errno::BUSY => in_use(path),
        error => failed("have the kernel read the partitions of")(error.into()),
    })?;
    let size_bytes = device.seek(SeekFrom::End(0)).map_err(failed("measure"))?;
    let sector_bytes = rustix::fs::ioctl_blksszget(&device)
        .map_err(std::io::Error::from)
        .map_err(failed("measure"))?;
    zero_ends(&mut device, size_bytes).map_err(failed("write"))?;
    let length_bytes = write_table(&mut device, path, size_bytes, u64::from(sector_bytes))?;
    device.sync_all().map_err(failed("write"))?;
    let told = spindle_device::read_partitions_anew(&device);
    told.map_err(std::io::Error::from)
        .map_err(failed("have the kernel read the partitions of"))?;
    match spindle_device::add_partition(&device, NUMBER, START_BYTES, length_bytes) {
        // The kernel has read it in the table.
        Ok(()) | Err(Errno::BUSY) => {}
        Err(error) => return Err(failed("tell the kernel of the partition of")(error.into())),
    }
    drop(device);
    device_of(&known, path)
}

/// The kernel's directory of the device, of which all that stands on it may be lost.
fn look(settings: &Settings, path: &Path, overwrite: bool) -> ControlResult<PathBuf> {
    let probe = Probe::look(path, &settings.servers);
    if let Some(label) = probe.member() {
        return Err(is_member(path, "", label));
    }
    if probe.failure().is_some() {
        refuse_what_stands_there(&probe, true)?;
    }
    let known = sysfs_of(path)?;
    // Before the table is spoken of, which --force may take: not that of a group.
    if let Some(member) = within::find_member(&settings.servers, path, &known)? {
        let partition = format!(" cannot be taken: {}", member.partition);
        return Err(is_member(path, &partition, &member.label));
    }
    refuse_what_stands_there(&probe, overwrite)?;
    Ok(known)
}

/// Also by force: it may be one of the very group that the disk is to join, which is found out when
/// its ends are zeros.
fn is_member(path: &Path, partition: &str, label: &Label) -> ControlError {
    ControlError::invalid(format!(
        "{}{partition} is disk {} of the group {}: destroy that group first; with --partition not \
         even --force takes a member",
        path.display(),
        label.disk_name,
        label.group_name
    ))
}

fn refused(path: &Path, what: &str) -> ControlError {
    let path = path.display();
    ControlError::invalid(format!(
        "{path} {what}: leave --partition away to use it as it is"
    ))
}

fn takes_none(path: &Path) -> ControlError {
    refused(path, "takes no partitions")
}

fn in_use(path: &Path) -> ControlError {
    let message = format!("{} is in use: release it first", path.display());
    ControlError::new(ControlErrorKind::Busy, message)
}

/// The kernel's directory of a whole block device that takes partitions.
fn sysfs_of(path: &Path) -> ControlResult<PathBuf> {
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
    let most = std::fs::read_to_string(known.join("ext_range"));
    let takes_some = most.is_ok_and(|most| most.trim().parse().is_ok_and(|most: u32| most > 1));
    if !takes_some {
        return Err(takes_none(path));
    }
    Ok(known)
}

/// Of labels, file systems and other tables that stood there nothing is found any more.
fn zero_ends(device: &mut File, size_bytes: u64) -> std::io::Result<()> {
    let end = size_bytes.saturating_sub(SIGNATURE_END_BYTES as u64);
    for (from, length) in [(0, SIGNATURE_START_BYTES), (end, SIGNATURE_END_BYTES)] {
        device.seek(SeekFrom::Start(from))?;
        let there = usize::try_from(size_bytes - from).unwrap_or(length);
        device.write_all(&vec![0; length.min(there)])?;
    }
    Ok(())
}

/// The length of the partition in bytes.
fn write_table(
    device: &mut File,
    path: &Path,
    size_bytes: u64,
    sector_bytes: u64,
) -> ControlResult<u64> {
    let sector = match sector_bytes {
        512 => LogicalBlockSize::Lb512,
        _ => LogicalBlockSize::Lb4096,
    };
    let sectors = (size_bytes / sector_bytes).saturating_sub(1);
    let protective = ProtectiveMBR::with_lb_size(u32::try_from(sectors).unwrap_or(u32::MAX));
    protective
        .overwrite_lba0(device)
        .map_err(|error| cannot_write(path, error))?;
    let mut table = GptConfig::new()
        .writable(true)
        .logical_block_size(sector)
        .create_from_device(&mut *device, None)
        .map_err(|error| cannot_write(path, error))?;
    let end = table.header().last_usable.saturating_add(1) * sector_bytes;
    let length_bytes = end.saturating_sub(START_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
    if length_bytes == 0 {
        return Err(ControlError::invalid(format!(
            "{} is too small for a partition",
            path.display()
        )));
    }
    let kind = Type {
        guid: TYPE,
        os: OperatingSystem::Custom("spindle".to_owned()),
    };
    let (first, count) = (START_BYTES / sector_bytes, length_bytes / sector_bytes);
    table
        .add_partition_at("spindle", NUMBER, first, count, kind, 0)
        .map_err(|error| cannot_write(path, error))?;
    table
        .write_inplace()
        .map_err(|error| cannot_write(path, error))?;
    Ok(length_bytes)
}

fn cannot_write(path: &Path, error: impl Error + Send + Sync + 'static) -> ControlError {
    let message = format!("cannot write a partition table to {}", path.display());
    ControlError::new(ControlErrorKind::Io, message).because(error)
}

/// The device of the partition, when it is there.
fn device_of(known: &Path, path: &Path) -> ControlResult<PathBuf> {
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
    let directory = within::directories(known).into_iter().find(|directory| {
        let number = std::fs::read_to_string(directory.join("partition"));
        number.is_ok_and(|number| number.trim() == NUMBER.to_string())
    })?;
    within::node_of(&directory)
}
