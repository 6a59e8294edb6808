//! What stands on one disk. Looking never locks, never writes, and never waits for a pipe.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use spindle_format::{
    FormatError, FormatErrorKind, GroupState, LABEL_BYTES, LABEL_PLACES, Label, LabelStatus,
    OPENER_BYTES, OPENER_PLACE, OpenerRecord, ParsedGroupState, ParsedLabel, STATE_PLACES,
    STATE_SLOT_BYTES,
};

use crate::signature::{self, Signature};
use crate::view::{DiskStatus, FoundDisk};

/// A disk that was looked at.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its path.
    pub path: PathBuf,
    /// Its size; `None` where it cannot be opened.
    pub size_bytes: Option<u64>,
    /// The two copies of the label, as they parse.
    pub labels: Vec<Result<Label, FormatError>>,
    /// The two slots of the group state, as they parse.
    pub states: Vec<Result<GroupState, FormatError>>,
    /// Who has or had the group open.
    pub opener: Option<Result<OpenerRecord, FormatError>>,
    /// Marks of somebody else's format.
    pub foreign: Vec<Signature>,
    /// Why it cannot be read.
    pub failure: Option<String>,
    /// Whether a process or the kernel holds it.
    pub in_use: bool,
}

impl Probe {
    /// Looks at the disk at `path`.
    #[must_use]
    pub fn look(path: &Path) -> Self {
        let mut probe = Self {
            path: path.to_owned(),
            size_bytes: None,
            labels: Vec::new(),
            states: Vec::new(),
            opener: None,
            foreign: Vec::new(),
            failure: None,
            in_use: false,
        };
        if let Err(error) = probe.read() {
            probe.failure = Some(error.to_string());
        }
        probe
    }

    fn read(&mut self) -> std::io::Result<()> {
        let metadata = std::fs::metadata(&self.path)?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(std::io::Error::other(
                "is no disk: a disk is a block device or a plain file",
            ));
        }
        let file = File::options()
            .read(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0))
            .open(&self.path)?;
        let size_bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        self.size_bytes = Some(size_bytes);
        self.in_use = if kind.is_block_device() {
            held_by_kernel(&self.path)
        } else {
            locked(&metadata)
        };
        for place in LABEL_PLACES {
            let bytes = read_at(&file, place, LABEL_BYTES)?;
            let parsed = ParsedLabel::parse(&bytes, place);
            self.labels
                .push(parsed.map(|label| label.contents().clone()));
        }
        for place in STATE_PLACES {
            let bytes = read_at(&file, place, STATE_SLOT_BYTES)?;
            let parsed = ParsedGroupState::parse(&bytes, place);
            self.states
                .push(parsed.map(|state| state.contents().clone()));
        }
        let bytes = read_at(&file, OPENER_PLACE, OPENER_BYTES)?;
        self.opener = Some(OpenerRecord::parse(&bytes, OPENER_PLACE));
        self.foreign = signature::find(size_bytes, &mut |offset_bytes, length_bytes| {
            read_at(&file, offset_bytes, length_bytes)
        })?;
        Ok(())
    }

    /// The newer of the two label copies.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        let good = self.labels.iter().filter_map(|label| label.as_ref().ok());
        good.max_by_key(|label| label.sequence)
    }

    /// The newest group state on this disk that belongs to the label's group.
    #[must_use]
    pub fn state(&self) -> Option<&GroupState> {
        let group_uuid = self.label()?.group_uuid;
        let good = self.states.iter().filter_map(|state| state.as_ref().ok());
        good.filter(|state| state.group_uuid == group_uuid)
            .max_by_key(|state| state.epoch)
    }

    /// The label, where the disk is a member that can be used.
    #[must_use]
    pub fn member(&self) -> Option<&Label> {
        let label = self.label()?;
        (self.status() == DiskStatus::Member).then_some(label)
    }

    /// What stands on it. A conflict can only be seen beside other disks.
    #[must_use]
    pub fn status(&self) -> DiskStatus {
        if self.failure.is_some() {
            return DiskStatus::Unusable;
        }
        match self.label() {
            Some(label) if self.truncated(label) => DiskStatus::Unusable,
            Some(label) if label.status == LabelStatus::Member => DiskStatus::Member,
            Some(_) if !self.foreign.is_empty() => DiskStatus::Foreign,
            Some(_) => DiskStatus::Former,
            None if !self.foreign.is_empty() => DiskStatus::Foreign,
            None if self.damaged_label().is_some() => DiskStatus::Unusable,
            None => DiskStatus::Candidate,
        }
    }

    fn truncated(&self, label: &Label) -> bool {
        self.size_bytes.is_some_and(|size| size < label.size_bytes)
    }

    /// A copy that is a label and is damaged.
    fn damaged_label(&self) -> Option<FormatError> {
        self.labels
            .iter()
            .filter_map(|label| label.as_ref().err())
            .find(|error| {
                !matches!(
                    error.kind,
                    FormatErrorKind::Magic | FormatErrorKind::TooShort
                )
            })
            .copied()
    }

    /// What was found, in words.
    #[must_use]
    pub fn found(&self) -> String {
        if let Some(failure) = &self.failure {
            return failure.clone();
        }
        let damaged = self.damaged_label();
        match (self.label(), self.status()) {
            (Some(label), DiskStatus::Unusable) => format!(
                "truncated: its label says {} bytes, it has {}",
                label.size_bytes,
                self.size_bytes.unwrap_or(0)
            ),
            (_, DiskStatus::Foreign) => {
                let names: Vec<&str> = self.foreign.iter().map(|mark| mark.name.as_str()).collect();
                names.join(", ")
            }
            (Some(_), DiskStatus::Member) if self.labels.iter().any(Result::is_err) => {
                "one of its two labels is damaged; opening the group repairs it".to_owned()
            }
            (Some(label), DiskStatus::Member) => format!(
                "disk {} of {}",
                label.number,
                self.group_name().unwrap_or_default()
            ),
            (Some(label), _) => format!("was in {}", label.group_name),
            (None, DiskStatus::Unusable) => match damaged {
                Some(error) => format!("both labels are damaged: {error}"),
                None => "unreadable".to_owned(),
            },
            (None, _) => "nothing".to_owned(),
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

    /// The probe as a listing shows it.
    #[must_use]
    pub fn report(&self) -> FoundDisk {
        let label = self.label();
        FoundDisk {
            path: self.path.display().to_string(),
            size_bytes: self.size_bytes,
            status: self.status(),
            group: self.group_name(),
            group_uuid: label.map(|label| label.group_uuid.to_string()),
            number: label.map(|label| label.number.0),
            name: label.map(|label| label.disk_name.to_string()),
            failure_group: label.map(|label| label.failure_group.to_string()),
            uuid: label.map(|label| label.disk_uuid.to_string()),
            in_use: self.in_use,
            found: self.found(),
        }
    }
}

/// What lies there; fewer bytes where the disk ends before.
fn read_at(file: &File, offset_bytes: u64, length_bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length_bytes];
    let mut count = 0;
    while count < length_bytes {
        match file.read_at(&mut bytes[count..], offset_bytes + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
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
fn locked(metadata: &std::fs::Metadata) -> bool {
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
