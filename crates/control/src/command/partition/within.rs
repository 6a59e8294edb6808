//! Disks of groups in the partitions of a device. The device itself shows a partition table then, as
//! it does with partitions of anybody else's.
//!
//! Two are asked: the kernel, which may know partitions of a table that is not read here, and the
//! GPT, which the kernel does not read where it was built without that. Looking never writes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use spindle_device::{DiskSlot, Disks};
use spindle_format::{
    DiskEnds, LABEL_BYTES, LABEL_PLACES, Label, LabelStatus, ParsedLabel, SIGNATURE_END_BYTES,
    SIGNATURE_START_BYTES, end_label_place, foreign_signatures,
};

use crate::api::error::ControlResult;
use crate::machine::nfs::NfsServers;
use crate::machine::probe::{Probe, disks_to_look_at, read_at};

/// What sysfs counts places and lengths in, whatever the sectors of the device are.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// A disk of a group, and the partition that it is.
pub(super) struct Member {
    pub(super) partition: String,
    pub(super) label: Label,
}

/// Where a partition lies, and what it is called.
struct Extent {
    title: String,
    start_bytes: u64,
    length_bytes: u64,
}

/// The first member of any group among the partitions of a device, of which `known` is the kernel's
/// directory.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn find_member(
    servers: &NfsServers,
    path: &Path,
    known: &Path,
) -> ControlResult<Option<Member>> {
    let mut extents = Vec::new();
    for directory in directories(known) {
        let node = node_of(&directory);
        if let Some(node) = &node
            && let Some(label) = Probe::look(node, servers).member()
        {
            return Ok(Some(Member {
                partition: node.display().to_string(),
                label: label.clone(),
            }));
        }
        // Also where there is a device: it may be one that cannot be opened.
        extents.extend(extent_of(&directory, path, node.as_deref()));
    }
    extents.extend(extents_of_table(path));
    let disks = disks_to_look_at();
    let slot = servers.attach_to_look(&disks, path)?;
    for extent in extents {
        if let Some(label) = label_at(&disks, slot, extent.start_bytes, extent.length_bytes)? {
            return Ok(Some(Member {
                partition: extent.title,
                label,
            }));
        }
    }
    Ok(None)
}

/// What was found of a disk that fills these bytes of a device: a member's label, or the marks of other
/// formats.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn found_at(
    servers: &NfsServers,
    path: &Path,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<Option<String>> {
    let disks = disks_to_look_at();
    let slot = servers.attach_to_look(&disks, path)?;
    if let Some(label) = label_at(&disks, slot, start_bytes, length_bytes)? {
        let (disk, group) = (label.disk_name, label.group_name);
        return Ok(Some(format!("disk {disk} of the group {group}")));
    }
    let end = length_bytes.saturating_sub(SIGNATURE_END_BYTES as u64);
    let foreign = foreign_signatures(DiskEnds {
        size_bytes: length_bytes,
        start: &read_at(&disks, slot, start_bytes, SIGNATURE_START_BYTES)?,
        end: &read_at(&disks, slot, start_bytes + end, SIGNATURE_END_BYTES)?,
    });
    let names: Vec<&str> = foreign.iter().map(|mark| mark.format.name()).collect();
    Ok((!names.is_empty()).then(|| names.join(", ")))
}

/// The newest label of a disk that fills these bytes of a device, where it says that the disk is a
/// member.
fn label_at(
    disks: &dyn Disks,
    slot: DiskSlot,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<Option<Label>> {
    let mut newest: Option<Label> = None;
    for place in LABEL_PLACES
        .into_iter()
        .chain([end_label_place(length_bytes)])
    {
        let Some(at) = start_bytes.checked_add(place) else {
            continue;
        };
        if at >= disks.size_bytes(slot) {
            continue;
        }
        let bytes = read_at(disks, slot, at, LABEL_BYTES)?;
        if let Ok(parsed) = ParsedLabel::parse(&bytes, place) {
            let label = parsed.contents();
            if (newest.as_ref()).is_none_or(|newest| newest.sequence < label.sequence) {
                newest = Some(label.clone());
            }
        }
    }
    Ok(newest.filter(|label| label.status == LabelStatus::Member))
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

fn extent_of(directory: &Path, path: &Path, node: Option<&Path>) -> Option<Extent> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    let bytes = |name: &str| {
        let sectors: u64 = read(name)?.trim().parse().ok()?;
        sectors.checked_mul(SYSFS_SECTOR_BYTES)
    };
    let number = read("partition").unwrap_or_default();
    Some(Extent {
        title: node.map_or_else(
            || title_of(number.trim(), path),
            |node| node.display().to_string(),
        ),
        start_bytes: bytes("start")?,
        length_bytes: bytes("size")?,
    })
}

fn title_of(number: &str, path: &Path) -> String {
    format!("partition {number} of {}", path.display())
}

/// What a GPT says, where there is one.
fn extents_of_table(path: &Path) -> Vec<Extent> {
    let read = |sector: LogicalBlockSize| {
        let device = File::open(path).ok()?;
        let config = GptConfig::new().writable(false).logical_block_size(sector);
        let table = config.open_from_device(device).ok()?;
        let sector_bytes = sector.as_u64();
        let extent = |(number, partition): (&u32, &gpt::partition::Partition)| {
            let sectors = (partition.last_lba).checked_sub(partition.first_lba)?;
            Some(Extent {
                title: title_of(&number.to_string(), path),
                start_bytes: partition.first_lba.checked_mul(sector_bytes)?,
                length_bytes: sectors.checked_add(1)?.checked_mul(sector_bytes)?,
            })
        };
        let found: Vec<Extent> = table.partitions().iter().filter_map(extent).collect();
        Some(found)
    };
    // An image keeps its table when a device over it has sectors of the other size.
    let sizes = [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096];
    sizes.into_iter().filter_map(read).flatten().collect()
}
