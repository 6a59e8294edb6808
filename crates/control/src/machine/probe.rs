//! What stands on disks. Looking never locks, never writes, and never waits for a pipe.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use spindle_base::Uuid;
use spindle_device::{
    AlignedBuffer, DEADLINE_DEFAULT, DiskSlot, Disks, Engine, MixedDisks, PlainDisks, Request, Work,
};
use spindle_format::{
    DiskEnds, FormatError, GroupState, LABEL_PLACES, Label, LabelStatus, OpenerRecord,
    SIGNATURE_END_BYTES, SIGNATURE_START_BYTES, Signature, foreign_signatures,
};
use spindle_group::{DiskLook, LabelFound, Overwritten};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::{DiskStatus, FoundDisk};
use crate::machine::held;
use crate::machine::nfs::{NfsServers, is_remote};
use crate::machine::unknown_data;
use crate::machine::unknown_data::Contents;

/// Longer than anybody has a device who only asks whether it is free.
const MOMENT: Duration = Duration::from_millis(20);

/// A disk that was looked at.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its path.
    pub path: PathBuf,
    /// What lies in the places of our structures; `None` where it cannot be opened.
    look: Option<DiskLook>,
    /// Marks of somebody else's format; of a member only where it is to be used anew.
    pub foreign: Vec<Signature>,
    /// What a plain file without any mark holds, once somebody asked.
    contents: Option<Contents>,
    /// Why it cannot be opened or read.
    failure: Option<ControlError>,
}

/// Looks at all of these disks, many at a time.
#[must_use]
pub(crate) fn look_at_all(paths: &[PathBuf], servers: &NfsServers) -> Vec<Probe> {
    let disks = disks_to_look_at();
    let opened = servers.attach_all_to_look(&disks, paths);
    let slots: Vec<DiskSlot> = opened.iter().filter_map(|slot| slot.clone().ok()).collect();
    let mut looks = spindle_group::look(&disks, &slots).into_iter();
    (paths.iter().zip(opened))
        .map(|(path, opened)| {
            let mut probe = Probe {
                path: path.clone(),
                look: None,
                foreign: Vec::new(),
                contents: None,
                failure: None,
            };
            match opened {
                Err(error) => probe.failure = Some(error),
                Ok(slot) => {
                    probe.look = looks.next();
                    // They change nothing of what a member is, and a thousand of them are looked
                    // at while programs wait for the next daemon.
                    if probe.status() != DiskStatus::Member {
                        probe.look_for_marks(&disks, slot);
                    }
                }
            }
            probe
        })
        .collect()
}

/// None yet. Whoever only looks needs no fast engine.
#[must_use]
pub(crate) fn disks_to_look_at() -> MixedDisks {
    MixedDisks::new(Engine::Plain(PlainDisks::new()), DEADLINE_DEFAULT)
}

/// The marks of other formats at both ends of the disk.
fn foreign_marks(disks: &dyn Disks, slot: DiskSlot) -> ControlResult<Vec<Signature>> {
    let size_bytes = disks.size_bytes(slot);
    let end = size_bytes.saturating_sub(SIGNATURE_END_BYTES as u64);
    Ok(foreign_signatures(DiskEnds {
        size_bytes,
        start: &read_at(disks, slot, 0, SIGNATURE_START_BYTES)?,
        end: &read_at(disks, slot, end, SIGNATURE_END_BYTES)?,
    }))
}

/// What lies there; fewer bytes where the disk ends before.
///
/// # Errors
/// Where the disk cannot be read.
pub(crate) fn read_at(
    disks: &dyn Disks,
    slot: DiskSlot,
    offset_bytes: u64,
    length_bytes: usize,
) -> ControlResult<Vec<u8>> {
    let length = length_bytes as u64;
    let start = offset_bytes / 4096 * 4096;
    let end = (offset_bytes + length).next_multiple_of(4096);
    let end = end.min(disks.size_bytes(slot));
    let Some(span) = end.checked_sub(start).filter(|span| *span > 0) else {
        return Ok(Vec::new());
    };
    let mut blocks = AlignedBuffer::zeroed(usize::try_from(span).unwrap_or(0));
    let mut batch = [Request::new(slot, start, Work::Read(&mut blocks))];
    disks.run(&mut batch);
    let [request] = batch;
    if let Err(error) = request.result {
        return Err(error.into());
    }
    let within = usize::try_from(offset_bytes - start).unwrap_or(0);
    let until = blocks.len().min(within + length_bytes);
    Ok(blocks.get(within..until).unwrap_or_default().to_vec())
}

impl Probe {
    /// Looks at one disk that is to be used: a plain file that seems to be free is read to its
    /// end, unless something is found in it before.
    #[must_use]
    pub(crate) fn look(path: &Path, servers: &NfsServers) -> Self {
        let mut probes = look_at_all(&[path.to_owned()], servers);
        let mut probe = probes.remove(0);
        if probe.status() == DiskStatus::Member {
            probe.look_at_marks_of_member(servers);
        }
        probe.look_for_data(u64::MAX, servers);
        probe
    }

    /// Looks again at a disk that nobody else can take any more: since it was looked at, for which a plain
    /// file is read to its end, another group may have been made of it, or another format.
    ///
    /// # Errors
    /// Where something else stands on it than was judged.
    pub(crate) fn confirm(&self, servers: &NfsServers) -> ControlResult<()> {
        let mut probes = look_at_all(std::slice::from_ref(&self.path), servers);
        let again = probes.remove(0);
        let Some(look) = &again.look else {
            return Err(again.failure.unwrap_or_else(|| {
                ControlError::new(
                    ControlErrorKind::Io,
                    format!("{} cannot be read any more", again.path.display()),
                )
            }));
        };
        // What a label that is damaged lacks may differ from one look to the next.
        let has_same_label = self.look.as_ref().is_some_and(|before| {
            std::mem::discriminant(&before.label) == std::mem::discriminant(&look.label)
        }) && self.identity() == again.identity();
        // One that was just leaving its group has left it by now.
        let joined = self.member().is_none() && again.member().is_some();
        // Beside the label of a member nobody looked for other marks where many were looked at.
        let has_same_marks = self.member().is_some() || self.foreign == again.foreign;
        if has_same_label && !joined && has_same_marks {
            return Ok(());
        }
        Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "{} is another disk than a moment ago: {} by now, and nothing was written to it",
                self.path.display(),
                again.found()
            ),
        ))
    }

    /// The group and the disk of its label, or of what is left of one.
    fn identity(&self) -> Option<(Uuid, Uuid)> {
        let left = self.overwritten().map(|overwritten| &*overwritten.label);
        let label = self.label().or(left)?;
        Some((label.group_uuid, label.disk_uuid))
    }

    /// One that is used anew is to bear no marks that were there beside our structures.
    fn look_at_marks_of_member(&mut self, servers: &NfsServers) {
        let disks = disks_to_look_at();
        match servers.attach_to_look(&disks, &self.path) {
            Ok(slot) => self.look_for_marks(&disks, slot),
            Err(error) => self.failure = Some(error),
        }
    }

    fn look_for_marks(&mut self, disks: &dyn Disks, slot: DiskSlot) {
        match foreign_marks(disks, slot) {
            Ok(foreign) => self.foreign = foreign,
            Err(error) => self.failure = Some(error),
        }
    }

    /// Reads so much of a plain file that seems to be free, to tell what it holds.
    pub(crate) fn look_for_data(&mut self, most_bytes: u64, servers: &NfsServers) {
        if self.status() != DiskStatus::Candidate {
            return;
        }
        let contents = match is_remote(&self.path) {
            false => unknown_data::look_for_data(&self.path, most_bytes),
            true => {
                let disks = disks_to_look_at();
                let slot = servers.attach_to_look(&disks, &self.path);
                slot.and_then(|slot| unknown_data::look_on_disk(&disks, slot, most_bytes))
            }
        };
        match contents {
            Ok(contents) => self.contents = Some(contents),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Why it cannot be opened or read.
    #[must_use]
    pub const fn failure(&self) -> Option<&ControlError> {
        self.failure.as_ref()
    }

    /// Its size; `None` where it cannot be opened.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        self.look.as_ref().map(|look| look.size_bytes)
    }

    /// What lies in the places of our structures; `None` where it cannot be opened.
    #[must_use]
    pub const fn structures(&self) -> Option<&DiskLook> {
        self.look.as_ref()
    }

    /// Who has or had its group open.
    #[must_use]
    pub fn opener(&self) -> Option<&OpenerRecord> {
        self.look.as_ref()?.opener.as_ref()
    }

    /// Its label, whatever the disk is worth.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        match &self.look.as_ref()?.label {
            LabelFound::Good { label, .. } | LabelFound::Truncated { label } => Some(label),
            LabelFound::None
            | LabelFound::Damaged(_)
            | LabelFound::Overwritten(_)
            | LabelFound::Newer { .. } => None,
        }
    }

    /// The member that it was before its beginning was overwritten.
    #[must_use]
    pub fn overwritten(&self) -> Option<&Overwritten> {
        match &self.look.as_ref()?.label {
            LabelFound::Overwritten(overwritten) => Some(overwritten),
            _ => None,
        }
    }

    /// Where its label's copy of this number stands or should stand.
    #[must_use]
    pub fn label_place(&self, copy: usize) -> Option<u64> {
        let end = self.look.as_ref()?.end_label_place;
        LABEL_PLACES.get(copy).copied().or(end)
    }

    /// Whether it is a member that is smaller than its label says.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        let look = self.look.as_ref();
        self.failure.is_none()
            && look.is_some_and(|look| matches!(look.label, LabelFound::Truncated { .. }))
            && self.member().is_some()
    }

    /// What is not known here of its label, which a newer program wrote.
    #[must_use]
    pub fn newer_label(&self) -> Option<&FormatError> {
        match &self.look.as_ref()?.label {
            LabelFound::Newer { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Whether no label of ours was found on it, nor what is left of one.
    #[must_use]
    pub fn is_without_label(&self) -> bool {
        let look = self.look.as_ref();
        look.is_some_and(|look| matches!(look.label, LabelFound::None))
    }

    /// What of this disk a newer program wrote for the group.
    #[must_use]
    pub fn newer(&self, group: Uuid) -> Option<FormatError> {
        self.look.as_ref()?.newer(group)
    }

    /// The newest group state on this disk.
    #[must_use]
    pub fn state(&self) -> Option<&GroupState> {
        self.look.as_ref()?.newest_state()
    }

    /// The label, where the disk is a member; one that is cut off included, so that it is named.
    #[must_use]
    pub fn member(&self) -> Option<&Label> {
        self.label()
            .filter(|label| label.status == LabelStatus::Member)
    }

    /// Refuses a disk of a group that a keeper holds, before it is opened.
    ///
    /// # Errors
    /// Where it is one.
    pub(crate) fn refuse_held(&self) -> ControlResult<()> {
        (self.member()).map_or(Ok(()), |label| held::refuse(label.group_uuid, &self.path))
    }

    /// As [`Probe::refuse_held`], when it is open: its daemon may have died meanwhile.
    ///
    /// # Errors
    /// Where it is one.
    pub(crate) fn refuse_held_and_free(&self) -> ControlResult<()> {
        (self.member()).map_or(Ok(()), |label| {
            held::refuse_free(label.group_uuid, &self.path)
        })
    }

    /// What stands on it. A conflict can only be seen beside other disks.
    #[must_use]
    pub fn status(&self) -> DiskStatus {
        let Some(look) = self.look.as_ref().filter(|_| self.failure.is_none()) else {
            return DiskStatus::Unusable;
        };
        let member = self.member().is_some();
        match &look.label {
            LabelFound::Truncated { .. } if member => DiskStatus::Unusable,
            LabelFound::Good { .. } if member => DiskStatus::Member,
            LabelFound::Overwritten(found) if !found.by.is_empty() => DiskStatus::Foreign,
            _ if !self.foreign.is_empty() => DiskStatus::Foreign,
            LabelFound::Good { .. } | LabelFound::Truncated { .. } => DiskStatus::Former,
            LabelFound::Damaged(_) | LabelFound::Overwritten(_) | LabelFound::Newer { .. } => {
                DiskStatus::Unusable
            }
            LabelFound::None => match self.contents {
                Some(Contents::Data { .. }) => DiskStatus::Foreign,
                _ => DiskStatus::Candidate,
            },
        }
    }

    /// What was found, in words.
    #[must_use]
    pub fn found(&self) -> String {
        if let Some(failure) = &self.failure {
            return failure.message();
        }
        let Some(look) = &self.look else {
            return "unreadable".to_owned();
        };
        if let Some(Contents::Data { offset_bytes }) = self.contents {
            return format!("unknown data (from byte {offset_bytes} on)");
        }
        if let Some(found) = self.overwritten().filter(|found| !found.by.is_empty()) {
            let Overwritten { label, .. } = found;
            let (formats, disk, group) = (found.formats(), &label.disk_name, &label.group_name);
            return format!("{formats}, where the label of disk {disk} of group {group} was");
        }
        if self.status() == DiskStatus::Foreign {
            let names: Vec<&str> = self.foreign.iter().map(|mark| mark.format.name()).collect();
            return names.join(", ");
        }
        match &look.label {
            LabelFound::None => match self.contents {
                Some(Contents::Zeros { whole: false }) => {
                    "zeros, as far as it was looked at".to_owned()
                }
                _ => "nothing".to_owned(),
            },
            LabelFound::Damaged(why) => format!("its labels are damaged: {why}"),
            LabelFound::Overwritten(found) => format!("its labels are damaged: {found}"),
            LabelFound::Newer { why, .. } => format!("a disk of a newer program: {why}"),
            LabelFound::Truncated { label } => format!(
                "cut off: its label says {} bytes, it has {}",
                label.size_bytes, look.size_bytes
            ),
            LabelFound::Good { repairs, .. } if let [(place, why), ..] = &repairs[..] => format!(
                "its label at byte {place} is damaged ({why}); opening the group repairs it"
            ),
            LabelFound::Good { label, .. } if self.member().is_some() => {
                format!(
                    "disk {} of {}",
                    label.number,
                    self.group_name().unwrap_or_default()
                )
            }
            LabelFound::Good { label, .. } => format!("was in {}", label.group_name),
        }
    }

    /// The group's name: the group state has the newer one.
    #[must_use]
    pub fn group_name(&self) -> Option<String> {
        match (self.state(), self.label()) {
            (Some(state), _) => Some(state.group_name.to_string()),
            (None, Some(label)) => Some(label.group_name.to_string()),
            (None, None) => None,
        }
    }

    /// The probe as a listing shows it, with what [`which_are_in_use`] says of it.
    #[must_use]
    pub fn report(&self, in_use: bool) -> FoundDisk {
        let label = self.label();
        FoundDisk {
            path: self.path.display().to_string(),
            size_bytes: self.size_bytes(),
            status: self.status(),
            group: self.group_name(),
            group_uuid: label.map(|label| label.group_uuid.to_string()),
            number: label.map(|label| label.number.0),
            name: label.map(|label| label.disk_name.to_string()),
            failure_group: label.map(|label| label.failure_group.to_string()),
            uuid: label.map(|label| label.disk_uuid.to_string()),
            in_use,
            found: self.found(),
        }
    }
}

/// Whether a process or the kernel holds these. To ask is to have the device for a moment, in which
/// nobody else gets it: it is asked only where the answer is needed. Another who asks seems to hold
/// it, and so it is asked twice.
#[must_use]
pub(crate) fn which_are_in_use(paths: &[&Path], servers: &NfsServers) -> Vec<bool> {
    let is_in_use = |path: &Path| is_in_use(path, servers);
    let mut in_use: Vec<bool> = paths.iter().map(|path| is_in_use(path)).collect();
    if in_use.contains(&true) {
        std::thread::sleep(MOMENT);
    }
    for (path, in_use) in paths.iter().zip(&mut in_use) {
        *in_use = *in_use && is_in_use(path);
    }
    in_use
}

fn is_in_use(path: &Path, servers: &NfsServers) -> bool {
    if is_remote(path) {
        return servers.is_held(path);
    }
    std::fs::metadata(path).is_ok_and(|metadata| {
        if metadata.file_type().is_block_device() {
            held_by_kernel(path)
        } else {
            metadata.is_file() && locked(&metadata)
        }
    })
}

/// Whether opening the device exclusively is refused: a mount, LVM, md, swap or a group has it.
/// Opened for reading only, so that closing it again is no event for anybody.
fn held_by_kernel(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    matches!(
        rustix::fs::open(path, flags, Mode::empty()),
        Err(rustix::io::Errno::BUSY)
    )
}

/// Whether the kernel's list of locks has one on the file.
fn locked(metadata: &Metadata) -> bool {
    let device = metadata.dev();
    let wanted = format!(
        "{:02x}:{:02x}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device),
        metadata.ino()
    );
    std::fs::read_to_string("/proc/locks").is_ok_and(|locks| {
        locks.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next() == Some("FLOCK") && words.any(|word| word == wanted)
        })
    })
}
