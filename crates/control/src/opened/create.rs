//! Making a group: every check comes before the first byte is written, and file disks that were
//! made on the way are taken away again where the group is not made.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use spindle_base::{AuSize, DiskName, FailureGroupName, GroupName, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot, FileDisk, Request, Work};
use spindle_format::{SIGNATURE_END_BYTES, SIGNATURE_START_BYTES};
use spindle_fs::{FileSystem, Owner};
use spindle_group::{Group, NewDisk, NewGroup, judge_new_group};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::{DiskStatus, GroupReport, GroupState};
use crate::machine::discovery::Discovery;
use crate::machine::engine::Engine;
use crate::machine::identity::{new_uuid, opener};
use crate::machine::nfs::is_remote;
use crate::machine::probe::Probe;
use crate::machine::settings::Settings;

/// The longest name of a disk, in bytes.
const NAME_LENGTH_MAX: usize = 30;

/// A disk of the group to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedDisk {
    /// The block device or plain file.
    pub path: PathBuf,
    /// The size of the plain file to be made there; `None` where the disk is there.
    pub make_bytes: Option<u64>,
    /// Its failure group; `None` for one of its own.
    pub failure_group: Option<FailureGroupName>,
}

impl WantedDisk {
    /// The disks of `NAME=PATH,PATH:SIZE`.
    ///
    /// # Errors
    /// Where the text is something else.
    pub fn parse_failure_group(text: &OsStr) -> ControlResult<Vec<Self>> {
        let bytes = text.as_bytes();
        let wrong = || {
            ControlError::invalid(format!(
                "{text:?} is no failure group: write NAME=PATH,PATH"
            ))
        };
        let equals = bytes
            .iter()
            .position(|byte| *byte == b'=')
            .ok_or_else(wrong)?;
        let name = std::str::from_utf8(&bytes[..equals]).map_err(|_| wrong())?;
        let failure_group = FailureGroupName::new(name)?;
        let disks: Vec<Self> = bytes[equals + 1..]
            .split(|byte| *byte == b',')
            .filter(|path| !path.is_empty())
            .map(|path| {
                let (path, make_bytes) = Self::parse_path(OsStr::from_bytes(path))?;
                Ok(Self {
                    path,
                    make_bytes,
                    failure_group: Some(failure_group.clone()),
                })
            })
            .collect::<ControlResult<_>>()?;
        if disks.is_empty() {
            return Err(wrong());
        }
        Ok(disks)
    }

    /// A disk that is there, or PATH:SIZE to be made; how large then.
    ///
    /// # Errors
    /// Where it ends in what can only be meant as a size and is none.
    pub fn parse_path(text: &OsStr) -> ControlResult<(PathBuf, Option<u64>)> {
        let path = PathBuf::from(text);
        // One that is there is taken as it is, whatever its name ends in.
        if path.exists() {
            return Ok((path, None));
        }
        let Some((stem, size)) = text.to_str().and_then(|text| text.rsplit_once(':')) else {
            return Ok((path, None));
        };
        if let Ok(disk) = FileDisk::from_str(&format!("{stem}:{size}")) {
            return Ok((disk.path, Some(disk.size_bytes)));
        }
        let is_meant_as_size = size.starts_with(|first: char| first.is_ascii_digit())
            && size
                .chars()
                .all(|one| one.is_ascii_alphanumeric() || ".,".contains(one));
        if is_meant_as_size {
            return Err(ControlError::invalid(format!(
                "{}: {size:?} is no size: write PATH:SIZE with a size in bytes, or in K, M, G or T, that is a multiple of 4096",
                path.display()
            )));
        }
        Ok((path, None))
    }
}

/// A group to be made.
#[derive(Debug, Clone)]
pub struct WantedGroup {
    /// Its name.
    pub name: GroupName,
    /// Its disks.
    pub disks: Vec<WantedDisk>,
    /// Copies of each extent.
    pub redundancy: Redundancy,
    /// Allocation unit.
    pub au_size: AuSize,
    /// Set of templates.
    pub profile: String,
    /// Use disks although something stands on them.
    pub force: bool,
}

/// The group as it is to be made, after what can be said against it before its disks are looked at.
/// That no process serves one of its name is for whoever asks.
///
/// # Errors
/// Where there are too few failure groups, a disk is given twice, or the name is taken.
pub(crate) fn check(settings: &Settings, wanted: &WantedGroup) -> ControlResult<WantedGroup> {
    let wanted = WantedGroup {
        disks: join_named_twice(&wanted.disks),
        ..wanted.clone()
    };
    check_disks(&wanted)?;
    check_name(&wanted, &Discovery::look(settings)?)?;
    Ok(wanted)
}

/// Whether a group that was checked could be made of these disks. They are opened for it and let go;
/// files are made and taken away again, and on what is there nothing is written.
///
/// # Errors
/// As [`make`].
pub(crate) fn rehearse(settings: &Settings, wanted: &WantedGroup) -> ControlResult<()> {
    // Dropped last: a file is taken away when nobody has it open.
    let mut made = MadeFiles::default();
    let engine = Engine::new(settings);
    let (new_group, _) = open_disks(settings, wanted, &engine, &mut made)?;
    let judged = judge_new_group(&*engine.disks(), &new_group);
    for disk in &new_group.disks {
        engine.release(disk.slot);
    }
    Ok(judged?)
}

/// Makes a group that was checked, and shows it.
///
/// # Errors
/// Where a disk is not there, in use, too small, or holds something. Nothing was written then.
pub(crate) fn make(settings: &Settings, wanted: &WantedGroup) -> ControlResult<GroupReport> {
    let mut made = MadeFiles::default();
    let engine = Engine::new(settings);
    let (new_group, probes) = open_disks(settings, wanted, &engine, &mut made)?;
    for (disk, probe) in new_group.disks.iter().zip(&probes) {
        if let Some(probe) = probe {
            wipe_marks(&engine, disk.slot, probe)?;
        }
    }
    let slots: Vec<_> = new_group.disks.iter().map(|disk| disk.slot).collect();
    let opener = opener(settings, false)?;
    Group::create(engine.disks(), &new_group)?;
    let group = Arc::new(Group::open(engine.disks(), &slots, &wanted.name, &opener)?);
    let owner = Owner {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    };
    FileSystem::create(&group, owner, crate::machine::clock::now())?;
    let mut report = GroupReport::new(group.view(), GroupState::Dismounted);
    group.close()?;
    made.keep();
    report.note = outside_search_path(
        settings,
        wanted.disks.iter().map(|disk| disk.path.as_path()),
    );
    Ok(report)
}

/// The group to be made, with its disks open, and what stands on those that are there.
fn open_disks(
    settings: &Settings,
    wanted: &WantedGroup,
    engine: &Engine,
    made: &mut MadeFiles,
) -> ControlResult<(NewGroup, Vec<Option<Probe>>)> {
    // Looked at before any is opened or made, so that a refusal leaves nothing behind.
    let mut probes = Vec::new();
    for disk in &wanted.disks {
        let probe = disk
            .make_bytes
            .is_none()
            .then(|| Probe::look(&disk.path, &settings.servers));
        if let Some(probe) = &probe {
            refuse_what_stands_there(probe, wanted.force)?;
            probe.refuse_held()?;
        }
        probes.push(probe);
    }
    let mut disks = Vec::new();
    for (index, disk) in wanted.disks.iter().enumerate() {
        let slot = made.open(engine, disk)?;
        let name = disk_name(&wanted.name, index)?;
        let own = || FailureGroupName::new(name.as_str()).map_err(ControlError::from);
        disks.push(NewDisk {
            slot,
            failure_group: disk.failure_group.clone().map_or_else(own, Ok)?,
            name,
            uuid: new_uuid()?,
        });
    }
    for probe in probes.iter().flatten() {
        probe.confirm(&settings.servers)?;
        probe.refuse_held_and_free()?;
    }
    let new_group = NewGroup {
        name: wanted.name.clone(),
        uuid: new_uuid()?,
        redundancy: wanted.redundancy,
        au_size: wanted.au_size,
        disks,
        profile: wanted.profile.clone(),
        created_s: opener(settings, false)?.now_s,
    };
    Ok((new_group, probes))
}

/// A file disk to be made may be named once by its size and once by its failure group: that is
/// one disk. Whatever else is named twice stays so, to be refused.
fn join_named_twice(disks: &[WantedDisk]) -> Vec<WantedDisk> {
    let mut joined: Vec<WantedDisk> = Vec::new();
    for disk in disks {
        let other = joined.iter_mut().find(|other| {
            other.path == disk.path
                && other.make_bytes.is_some() != disk.make_bytes.is_some()
                && (other.failure_group.is_none() || disk.failure_group.is_none())
        });
        match other {
            Some(other) => {
                other.make_bytes = other.make_bytes.or(disk.make_bytes);
                if other.failure_group.is_none() {
                    other.failure_group.clone_from(&disk.failure_group);
                }
            }
            None => joined.push(disk.clone()),
        }
    }
    joined
}

fn check_disks(wanted: &WantedGroup) -> ControlResult<()> {
    if wanted.disks.is_empty() {
        return Err(ControlError::new(
            ControlErrorKind::NotEnough,
            "a group needs disks: give --disk PATH, --failgroup NAME=PATH,PATH or --file-disk PATH:SIZE",
        ));
    }
    let mut seen = BTreeSet::new();
    for disk in &wanted.disks {
        let real = std::fs::canonicalize(&disk.path).unwrap_or_else(|_| disk.path.clone());
        if !seen.insert(real) {
            return Err(ControlError::invalid(format!(
                "{} is given twice: a disk is in a group once",
                disk.path.display()
            )));
        }
    }
    let named: BTreeSet<String> = wanted
        .disks
        .iter()
        .filter_map(|disk| disk.failure_group.as_ref())
        .map(|name| name.as_str().to_lowercase())
        .collect();
    let alone = wanted
        .disks
        .iter()
        .filter(|disk| disk.failure_group.is_none());
    let failure_groups = named.len() + alone.count();
    let copies = wanted.redundancy.copies();
    if failure_groups < copies {
        return Err(ControlError::new(
            ControlErrorKind::NotEnough,
            format!(
                "{} redundancy keeps {copies} copies in {copies} failure groups, and there {} {failure_groups}: add disks in other failure groups or choose less redundancy",
                wanted.redundancy,
                if failure_groups == 1 { "is" } else { "are" }
            ),
        ));
    }
    Ok(())
}

fn check_name(wanted: &WantedGroup, discovery: &Discovery) -> ControlResult<()> {
    let name = wanted.name.as_str();
    let replaced: BTreeSet<PathBuf> = wanted
        .disks
        .iter()
        .filter_map(|disk| std::fs::canonicalize(&disk.path).ok())
        .collect();
    // A group all of whose disks are given and may be overwritten does not keep its name.
    let stays = |probe: &&Probe| {
        let real = std::fs::canonicalize(&probe.path).unwrap_or_else(|_| probe.path.clone());
        !(wanted.force && replaced.contains(&real))
    };
    let taken = discovery
        .groups()
        .into_iter()
        .find(|group| group.name.eq_ignore_ascii_case(name) && group.disks.iter().any(&stays));
    if let Some(group) = taken {
        return Err(ControlError::new(
            ControlErrorKind::Exists,
            format!(
                "there is a group {} already, on {}: choose another name",
                group.name,
                group.disks[0].path.display()
            ),
        ));
    }
    Ok(())
}

pub(crate) fn refuse_what_stands_there(probe: &Probe, force: bool) -> ControlResult<()> {
    let path = probe.path.display();
    if let Some(failure) = probe.failure() {
        if failure.kind == ControlErrorKind::NotFound {
            return Err(ControlError::not_found(format!(
                "{failure:#}; --file-disk PATH:SIZE makes a file to be used as a disk"
            ))
            .because(failure.clone()));
        }
        return Err(failure.clone());
    }
    if force {
        return Ok(());
    }
    let holds = match probe.status() {
        DiskStatus::Candidate | DiskStatus::Former => return Ok(()),
        DiskStatus::Member => format!(
            "is disk {} of the group {}: destroy that group first, or give --force and lose it",
            probe
                .label()
                .map(|label| label.disk_name.to_string())
                .unwrap_or_default(),
            probe.group_name().unwrap_or_default()
        ),
        DiskStatus::Foreign => format!(
            "holds {}: give --force to use it and lose that",
            probe.found()
        ),
        DiskStatus::Conflict | DiskStatus::Unusable => format!(
            "was a disk of a group and is damaged ({}): give --force to use it anew",
            probe.found()
        ),
    };
    Err(ControlError::new(
        ControlErrorKind::Exists,
        format!("{path} {holds}"),
    ))
}

/// Zeroes both ends of a disk that bears foreign marks, as far as marks are looked for, so that
/// nobody takes the disk for theirs again: some lie where a group writes nothing for a long time. Not
/// the blocks with a mark alone: of some formats copies stand beside it (the uberblocks of ZFS are
/// rings), and by one that is left the disk would pass for overwritten when a label is damaged.
pub(super) fn wipe_marks(engine: &Engine, slot: DiskSlot, probe: &Probe) -> ControlResult<()> {
    const PIECE_BYTES: usize = 64 << 10;
    if probe.foreign.is_empty() {
        return Ok(());
    }
    let size_bytes = engine.disks().size_bytes(slot);
    let start = size_bytes.min(SIGNATURE_START_BYTES as u64);
    let end = size_bytes.saturating_sub(SIGNATURE_END_BYTES as u64);
    let zeros = AlignedBuffer::zeroed(PIECE_BYTES);
    let mut batch = Vec::new();
    for (mut place, end) in [(0, start), (end.max(start), size_bytes)] {
        while place < end {
            let length = (end - place).min(PIECE_BYTES as u64);
            let piece = &zeros[..usize::try_from(length).unwrap_or(PIECE_BYTES)];
            batch.push(Request::new(slot, place, Work::WriteDurable(piece)));
            place += length;
        }
    }
    engine.disks().run(&mut batch);
    for request in batch {
        request.result.map_err(ControlError::from)?;
    }
    Ok(())
}

/// As ASM names them: the group's name and a number.
pub(super) fn disk_name(group: &GroupName, index: usize) -> ControlResult<DiskName> {
    let digits = format!("_{index:04}");
    let most = NAME_LENGTH_MAX - digits.len();
    let stem = &group.as_str()[..group.as_str().len().min(most)];
    Ok(DiskName::new(format!("{stem}{digits}"))?)
}

/// A hint where the next command would not find the disks.
pub(super) fn outside_search_path<'a>(
    settings: &Settings,
    paths: impl Iterator<Item = &'a Path>,
) -> Option<String> {
    let paths_found = match settings.disk_paths() {
        Ok(found) => found,
        // The disks have joined: that stays so.
        Err(error) => {
            return Some(format!(
                "whether the search path has the disks is not known ({error:#})"
            ));
        }
    };
    let found: BTreeSet<PathBuf> = (paths_found.into_iter())
        .map(|path| std::fs::canonicalize(&path).unwrap_or(path))
        .collect();
    let mut outside: Vec<String> = paths
        .filter_map(|path| match is_remote(path) {
            true => Some(path.to_path_buf()),
            false => std::fs::canonicalize(path).ok(),
        })
        .filter(|path| !found.contains(path))
        .map(|path| path.display().to_string())
        .collect();
    if outside.is_empty() {
        return None;
    }
    // Together with what is there: the variable takes the place of the search path.
    let patterns = settings.disk_patterns();
    let beside = match patterns {
        [] => " and the patterns of the group's other disks",
        _ => "",
    };
    outside.splice(0..0, patterns.iter().cloned());
    Some(format!(
        "these disks are outside the search path ({}): set SPINDLE_DISKS='{}'{beside}, or add them to spindle.toml",
        settings.search_path(),
        outside.join(",")
    ))
}

/// Plain files made for the group, removed again unless it was made.
#[derive(Debug, Default)]
pub(super) struct MadeFiles(Vec<PathBuf>);

impl MadeFiles {
    pub(super) fn open(&mut self, engine: &Engine, disk: &WantedDisk) -> ControlResult<DiskSlot> {
        let Some(size_bytes) = disk.make_bytes else {
            return engine.attach_to_own(&disk.path);
        };
        let file_disk = FileDisk {
            path: disk.path.clone(),
            size_bytes,
        };
        let slot = engine.make(&file_disk)?;
        self.0.push(file_disk.path);
        Ok(slot)
    }

    pub(super) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        // Our client of NFS servers removes nothing: a file there stays.
        for path in self.0.iter().filter(|path| !is_remote(path)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WantedDisk, disk_name, join_named_twice};
    use spindle_base::{FailureGroupName, GroupName};
    use std::ffi::OsStr;
    use std::path::PathBuf;

    #[test]
    fn a_failure_group_has_disks_that_are_there_and_disks_to_be_made() {
        let disks =
            WantedDisk::parse_failure_group(OsStr::new("left=/dev/null,/nowhere/a:1M")).unwrap();
        assert_eq!(disks[0].path, PathBuf::from("/dev/null"));
        assert_eq!(disks[0].make_bytes, None);
        assert_eq!(disks[1].path, PathBuf::from("/nowhere/a"));
        assert_eq!(disks[1].make_bytes, Some(1 << 20));
        for wrong in ["left", "left=", "1=/a", "=/a"] {
            assert!(
                WantedDisk::parse_failure_group(OsStr::new(wrong)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_disks_name_fits_however_long_the_groups_is() {
        let group = GroupName::new("g".repeat(30)).unwrap();
        assert_eq!(disk_name(&group, 12).unwrap().as_str().len(), 30);
        let group = GroupName::new("data").unwrap();
        assert_eq!(disk_name(&group, 1).unwrap().as_str(), "data_0001");
    }

    fn disk(path: &str, make_bytes: Option<u64>, failure_group: Option<&str>) -> WantedDisk {
        WantedDisk {
            path: path.into(),
            make_bytes,
            failure_group: failure_group.map(|name| FailureGroupName::new(name).unwrap()),
        }
    }

    #[test]
    fn a_disk_to_be_made_and_named_in_a_failure_group_is_one_disk() {
        let given = [
            disk("/a", Some(64), None),
            disk("/b", Some(64), None),
            disk("/a", None, Some("left")),
            disk("/c", None, Some("left")),
        ];
        let joined = [
            disk("/a", Some(64), Some("left")),
            disk("/b", Some(64), None),
            disk("/c", None, Some("left")),
        ];
        assert_eq!(join_named_twice(&given), joined);
    }

    #[test]
    fn a_disk_in_two_failure_groups_stays_named_twice() {
        let given = [
            disk("/a", None, Some("left")),
            disk("/a", None, Some("right")),
        ];
        assert_eq!(join_named_twice(&given), given);
    }
}
