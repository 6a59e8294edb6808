//! Disks of groups in the partitions of a device. The device itself shows a partition table then, as
//! it does with partitions of anybody else's.
//!
//! Two are asked: the kernel, which may know partitions of a table that is not read here, and the
//! GPT, which the kernel does not read where it was built without that. Looking never writes.

use std::path::{Path, PathBuf};

use spindle_device::{DiskSlot, Disks};
use spindle_format::{
    DiskEnds, FormatError, LABEL_BYTES, LABEL_PLACES, Label, LabelStatus, ParsedLabel,
    SIGNATURE_END_BYTES, SIGNATURE_START_BYTES, end_label_place, foreign_signatures,
};

use super::kernel;
use super::table::Entry;
use crate::api::error::ControlResult;
use crate::machine::nfs::NfsServers;
use crate::machine::probe::{Probe, disks_to_look_at, read_at};

/// Why a disk may be one of a group.
pub(super) enum Claim {
    Member(Box<Label>),
    /// A newer program wrote its label: whether it is a member is not known here.
    Newer(FormatError),
}

/// A disk of a group, and the partition that it is.
pub(super) struct Member {
    pub(super) partition: String,
    pub(super) claim: Claim,
}

/// Where a partition lies, and what it is called.
pub(super) struct Extent {
    pub(super) title: String,
    pub(super) start_bytes: u64,
    pub(super) length_bytes: u64,
    /// The kernel's device of it.
    node: Option<PathBuf>,
}

impl Claim {
    /// What a disk that was looked at says of itself.
    pub(super) fn of(probe: &Probe) -> Option<Self> {
        let newer = || probe.newer_label().copied().map(Self::Newer);
        let member = probe.member().cloned().map(Box::new).map(Self::Member);
        member.or_else(newer)
    }
}

/// The partitions that the kernel knows of a device, of which `known` is its directory, and those
/// that tables list beside them.
pub(super) fn extents_of(path: &Path, known: &Path, tables: &[Vec<Entry>]) -> Vec<Extent> {
    let titled = |number: String| format!("partition {number} of {}", path.display());
    let of_kernel = |directory: &PathBuf| {
        let node = kernel::node_of(directory);
        let number = kernel::number_of(directory).unwrap_or_default();
        // Where it is not told, a partition is still there, and its device tells what it holds.
        let (start_bytes, length_bytes) = kernel::span_of(directory).unwrap_or_default();
        let shown = node.as_ref().map(|node| node.display().to_string());
        Extent {
            title: shown.unwrap_or_else(|| titled(number.to_string())),
            start_bytes,
            length_bytes,
            node,
        }
    };
    let mut extents: Vec<Extent> = (kernel::directories(known).iter()).map(of_kernel).collect();
    for entry in tables.iter().flatten() {
        let span = (entry.start_bytes, entry.length_bytes);
        if !(extents.iter()).any(|extent| (extent.start_bytes, extent.length_bytes) == span) {
            extents.push(Extent {
                title: titled(entry.number.to_string()),
                start_bytes: entry.start_bytes,
                length_bytes: entry.length_bytes,
                node: None,
            });
        }
    }
    extents
}

/// The first member of any group among the partitions of a device.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn find_member(
    servers: &NfsServers,
    path: &Path,
    extents: &[Extent],
) -> ControlResult<Option<Member>> {
    let in_device = |extent: &Extent| {
        let node = extent.node.as_ref()?;
        Claim::of(&Probe::look(node, servers))
    };
    for extent in extents {
        // Also where there is a device: it may be one that cannot be opened.
        let claim = match in_device(extent) {
            Some(claim) => Some(claim),
            None => claim_at(servers, path, extent.start_bytes, extent.length_bytes)?,
        };
        if let Some(claim) = claim {
            return Ok(Some(Member {
                partition: extent.title.clone(),
                claim,
            }));
        }
    }
    Ok(None)
}

/// What a label says that was found of a disk that fills these bytes of a device.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn claim_at(
    servers: &NfsServers,
    path: &Path,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<Option<Claim>> {
    let disks = disks_to_look_at();
    let slot = servers.attach_to_look(&disks, path)?;
    label_at(&disks, slot, start_bytes, length_bytes)
}

/// The marks of other formats on a disk that fills these bytes of a device.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn marks_at(
    servers: &NfsServers,
    path: &Path,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<Option<String>> {
    let of_ends = |ends: DiskEnds<'_>| {
        let foreign = foreign_signatures(ends);
        let names: Vec<&str> = foreign.iter().map(|mark| mark.format.name()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    judge_ends(servers, path, start_bytes, length_bytes, of_ends)
}

/// Whether a disk that fills these bytes of a device holds nothing, as far as labels and marks are
/// looked for.
///
/// # Errors
/// Where the device cannot be read.
pub(super) fn is_blank(
    servers: &NfsServers,
    path: &Path,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<bool> {
    let of_ends = |ends: DiskEnds<'_>| ends.is_blank();
    judge_ends(servers, path, start_bytes, length_bytes, of_ends)
}

fn judge_ends<T>(
    servers: &NfsServers,
    path: &Path,
    start_bytes: u64,
    length_bytes: u64,
    judge: impl FnOnce(DiskEnds<'_>) -> T,
) -> ControlResult<T> {
    let disks = disks_to_look_at();
    let slot = servers.attach_to_look(&disks, path)?;
    let end = length_bytes.saturating_sub(SIGNATURE_END_BYTES as u64);
    Ok(judge(DiskEnds {
        size_bytes: length_bytes,
        start: &read_at(&disks, slot, start_bytes, SIGNATURE_START_BYTES)?,
        end: &read_at(&disks, slot, start_bytes + end, SIGNATURE_END_BYTES)?,
    }))
}

/// What the newest label says of a disk that fills these bytes of a device.
fn label_at(
    disks: &dyn Disks,
    slot: DiskSlot,
    start_bytes: u64,
    length_bytes: u64,
) -> ControlResult<Option<Claim>> {
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
        match ParsedLabel::parse(&bytes, place) {
            Ok(parsed) => {
                let label = parsed.contents();
                if (newest.as_ref()).is_none_or(|newest| newest.sequence < label.sequence) {
                    newest = Some(label.clone());
                }
            }
            Err(why) if why.kind.is_newer() => return Ok(Some(Claim::Newer(why))),
            Err(_) => {}
        }
    }
    let member = newest.filter(|label| label.status == LabelStatus::Member);
    Ok(member.map(Box::new).map(Claim::Member))
}
