//! A partition for a disk of a group: one that fills the device, in a GPT, with a type of our own. Tools
//! and installers that know no label of ours see that the device is taken.

mod device;
mod kernel;
mod table;
mod within;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use gpt::disk::LogicalBlockSize;
use spindle_base::{AuSize, size_text};
use spindle_format::ForeignFormat;
use spindle_group::disk_bytes_min;
use uuid::Uuid;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::nfs::is_remote;
use crate::machine::probe::Probe;
use crate::machine::settings::Settings;
use crate::opened::create::refuse_what_stands_there;

use device::WholeDevice;
use table::Entry;
use within::{Claim, Extent};

/// The type of a partition that is a disk of a group (docs/format/label.md).
const TYPE: Uuid = Uuid::from_u128(0x9c49_4429_0806_4a04_b54d_bed9_fc04_0125);
/// Where it begins.
const START_BYTES: u64 = 1 << 20;
/// Its length is a multiple of this.
const BLOCK_BYTES: u64 = 4096;
/// What the entries of a table take, of which there are 128.
const ENTRIES_BYTES: u64 = 128 * 128;
const NUMBER: u32 = 1;

/// A partition that was made. As long as this lives, udev and whoever locks devices as it does leave
/// the disk alone: one that read the table again would take the partition away for a moment.
#[derive(Debug)]
pub struct MadePartition {
    /// The path of its device.
    pub path: PathBuf,
    _lock: File,
}

/// What is known of a device before it is written.
struct Plan {
    /// The kernel's directory of it.
    known: PathBuf,
    size_bytes: u64,
    sector: LogicalBlockSize,
    /// Of the partition.
    length_bytes: u64,
}

/// What was found on a device.
struct Found<'a> {
    probe: &'a Probe,
    /// What each header of a GPT lists.
    tables: &'a [Vec<Entry>],
    extents: &'a [Extent],
}

/// Whether [`make_partition`] would begin: asked of each disk before the first is written.
///
/// # Errors
/// Where it would write nothing, but for what is only seen when the device is opened.
pub fn check_partition(
    settings: &Settings,
    path: &Path,
    overwrite: bool,
    au_size: AuSize,
) -> ControlResult<()> {
    look(settings, path, overwrite, au_size).map(|_| ())
}

/// Whether a file can be made as a disk by a command that makes partitions.
///
/// # Errors
/// Where it lies on a server. The command is rehearsed before the first partition is written, and a
/// file that is made there for that stays, as our client removes none.
pub fn check_file_beside(path: &Path) -> ControlResult<()> {
    if is_remote(path) {
        return Err(ControlError::invalid(format!(
            "{} cannot be made by a command with --partition: make it by one of its own",
            path.display()
        )));
    }
    Ok(())
}

/// Makes a partition table on a whole block device with one partition in it, and gives the path of the
/// partition's device. What stood there before is lost, as it is on a disk that joins a group, whose
/// AUs have this size. It is to be kept until the partition has joined.
///
/// # Errors
/// Where it is no whole block device, takes no partitions, cannot be written, is in use or too small,
/// is a member or has one in a partition, or has partitions or holds something and `overwrite` does
/// not say that this may be lost; nothing has been written then. Where the table cannot be written, or
/// the kernel does not show the partition.
pub fn make_partition(
    settings: &Settings,
    path: &Path,
    overwrite: bool,
    au_size: AuSize,
) -> ControlResult<MadePartition> {
    look(settings, path, overwrite, au_size)?;
    let mut device = WholeDevice::take(path)?;
    // Again, now that nobody else can take it: a group may have been made of it meanwhile.
    look(settings, path, overwrite, au_size)?;
    device.try_partitions()?;
    // And now that the kernel shows every partition that it finds in a table of another kind.
    let plan = look(settings, path, overwrite, au_size)?;
    device.write(&plan)?;
    let lock = device.into_lock();
    Ok(MadePartition {
        path: kernel::device_of(&plan.known, path, plan.length_bytes)?,
        _lock: lock,
    })
}

/// What is to be made of a device, of which all that stands on it may be lost.
fn look(settings: &Settings, path: &Path, overwrite: bool, au_size: AuSize) -> ControlResult<Plan> {
    let probe = Probe::look(path, &settings.servers);
    if let Some(claim) = Claim::of(&probe) {
        return Err(is_member(path, "", &claim));
    }
    if probe.failure().is_some() {
        refuse_what_stands_there(&probe, true)?;
    }
    let known = kernel::sysfs_of(path)?;
    let tables = table::tables_of(path);
    let extents = within::extents_of(path, &known, &tables);
    // Before the table is spoken of, which --force may take: not that of a group.
    if let Some(member) = within::find_member(&settings.servers, path, &extents)? {
        let partition = format!(" cannot be taken: {}", member.partition);
        return Err(is_member(path, &partition, &member.claim));
    }
    let plan = plan_of(path, known, au_size)?;
    let found = Found {
        probe: &probe,
        tables: &tables,
        extents: &extents,
    };
    let overwrite = overwrite || is_left_over(settings, path, &found, &plan)?;
    if !overwrite && let Some(extent) = extents.first() {
        return Err(has_partitions(path, &extent.title));
    }
    refuse_what_stands_there(&probe, overwrite)?;
    refuse_what_begins_within(settings, path, overwrite, plan.length_bytes)?;
    Ok(plan)
}

/// Whether all that stands on a device is what is made here, and its partition holds nothing: a
/// command that failed behind it may be given again, without the force that gives up all of its
/// disks.
fn is_left_over(
    settings: &Settings,
    path: &Path,
    found: &Found<'_>,
    plan: &Plan,
) -> ControlResult<bool> {
    let span = (START_BYTES, plan.length_bytes);
    let is_ours =
        |entry: &Entry| entry.kind == TYPE && (entry.start_bytes, entry.length_bytes) == span;
    let lists_ours = |table: &Vec<Entry>| matches!(&table[..], [entry] if is_ours(entry));
    let mut marks = found.probe.foreign.iter();
    let mut extents = found.extents.iter();
    let is_table_alone = found.probe.is_without_label()
        && marks.all(|mark| mark.format == ForeignFormat::GptPartitions)
        && !found.tables.is_empty()
        && found.tables.iter().all(lists_ours)
        && extents.all(|extent| (extent.start_bytes, extent.length_bytes) == span);
    Ok(
        is_table_alone
            && within::is_blank(&settings.servers, path, START_BYTES, plan.length_bytes)?,
    )
}

fn plan_of(path: &Path, known: PathBuf, au_size: AuSize) -> ControlResult<Plan> {
    let failed = |error: std::io::Error| ControlError::io("measure", path.display(), &error);
    let mut device = File::open(path).map_err(failed)?;
    let size_bytes = device.seek(SeekFrom::End(0)).map_err(failed)?;
    let sector_bytes = rustix::fs::ioctl_blksszget(&device)
        .map_err(std::io::Error::from)
        .map_err(failed)?;
    let sector = match sector_bytes {
        512 => LogicalBlockSize::Lb512,
        4096 => LogicalBlockSize::Lb4096,
        _ => {
            return Err(ControlError::invalid(format!(
                "{} has sectors of {sector_bytes} bytes: a partition is made on disks with sectors \
                 of 512 or 4096 bytes only; make one by another program, or give the disk whole",
                path.display()
            )));
        }
    };
    let sector_bytes = sector.as_u64();
    // The table's copy ends the device: its entries, and a header in the last sector.
    let end = (size_bytes / sector_bytes * sector_bytes)
        .saturating_sub(ENTRIES_BYTES.next_multiple_of(sector_bytes) + sector_bytes);
    let length_bytes = end.saturating_sub(START_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
    let least_bytes = disk_bytes_min(au_size);
    if length_bytes < least_bytes {
        return Err(ControlError::new(
            ControlErrorKind::NotEnough,
            format!(
                "{} has {}, of which a partition gets {}; a disk of a group with AUs of {au_size} has \
                 at least {}",
                path.display(),
                size_text(size_bytes),
                size_text(length_bytes),
                size_text(least_bytes)
            ),
        ));
    }
    Ok(Plan {
        known,
        size_bytes,
        sector,
        length_bytes,
    })
}

/// Of a table that somebody has wiped, what its first partition held is still there. Marks of others
/// the group refuses as well, when the partition is made.
fn refuse_what_begins_within(
    settings: &Settings,
    path: &Path,
    overwrite: bool,
    length_bytes: u64,
) -> ControlResult<()> {
    let servers = &settings.servers;
    if let Some(claim) = within::claim_at(servers, path, START_BYTES, length_bytes)? {
        let place = format!(
            " cannot be taken: what begins at byte {START_BYTES}, where a partition was whose table \
             is gone,"
        );
        return Err(is_member(path, &place, &claim));
    }
    if overwrite {
        return Ok(());
    }
    match within::marks_at(servers, path, START_BYTES, length_bytes)? {
        None => Ok(()),
        Some(found) => Err(ControlError::new(
            ControlErrorKind::Exists,
            format!(
                "{} holds {found} from byte {START_BYTES} on, where the partition would begin: give \
                 --force to use it and lose that",
                path.display()
            ),
        )),
    }
}

/// Also by force: it may be one of the very group that the disk is to join, which is found out when
/// its ends are zeros.
fn is_member(path: &Path, partition: &str, claim: &Claim) -> ControlError {
    let path = path.display();
    ControlError::invalid(match claim {
        Claim::Member(label) => format!(
            "{path}{partition} is disk {} of the group {}: drop that disk from its group first, or \
             destroy the group; with --partition not even --force takes a member",
            label.disk_name, label.group_name
        ),
        Claim::Newer(why) => format!(
            "{path}{partition} may be a disk of a group: {why}; with --partition not even --force \
             takes it"
        ),
    })
}

/// Whoever made them is not asked: of most tables nothing is known here, and the kernel may have
/// partitions that no table lists.
fn has_partitions(path: &Path, title: &str) -> ControlError {
    ControlError::new(
        ControlErrorKind::Exists,
        format!(
            "{} has partitions ({title}): give --force to use the whole and lose them, or give one \
             of the partitions without --partition",
            path.display()
        ),
    )
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

/// The table stands, and the kernel goes by something else, because of which a partition that it
/// shows may lie anywhere.
fn written_and_not_read(path: &Path, why: &str) -> ControlError {
    let path = path.display();
    ControlError::new(
        ControlErrorKind::Io,
        format!(
            "a partition table was written to {path}, and the kernel does not go by it ({why}): run \
             `partprobe {path}` or restart this machine, and do not use its partitions before; then \
             the command can be given again"
        ),
    )
}
