//! After a power cut, a kill or a clean close: open again and compare everything.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_fs::{FileSystem, FsError, Kind};
use spindle_group::{Group, GroupErrorKind};

use crate::model::{Inode, InodeKind, Names};
use crate::run::{Answer, Run, Step, Stop, violation};

/// How many openings may be cut short one after another.
const OPENINGS_MAX: usize = 8;

/// What the file system shows; the bytes of a file that cannot be read are left out.
pub(crate) struct Found {
    pub(crate) names: Names,
    pub(crate) bytes: BTreeMap<FileId, Vec<u8>>,
    unreadable: Vec<FileId>,
}

impl Run {
    /// The power failed: whatever was open is gone, and what was not synced may be.
    pub(crate) fn recover_from_power_cut(&mut self) -> Step<()> {
        self.coverage.power_cuts += 1;
        self.kept.clear();
        self.system = None;
        self.note("power cut");
        self.disks.restart();
        self.reopen(true)
    }

    /// The process died and the disks did not: nothing is lost, and nothing was flushed either.
    pub(crate) fn kill(&mut self) -> Step<()> {
        self.coverage.kills += 1;
        self.disks.power_stays();
        // The drop of a living file system may write; a dead process cannot. So the power is
        // cut for its eyes only, on disks that are then put aside.
        let disks = self.disks.fork(self.plan.seed ^ self.model.clock << 32);
        self.disks.crash();
        self.kept.clear();
        self.system = None;
        self.replace_disks(disks);
        self.reopen(true)?;
        if !self.disks.is_powered() {
            return Ok(());
        }
        self.sync_group("the sync after a kill")
    }

    /// Opens the group again, over refusals and further power cuts, and compares.
    pub(crate) fn reopen(&mut self, disks_may_change: bool) -> Step<()> {
        if std::mem::take(&mut self.disks_return) {
            self.repair_disks();
        } else if disks_may_change {
            self.change_disks_at_rest();
        }
        if let Some(requests) = self.cut_in_recovery.take() {
            self.disks.power_fails_after(requests);
        }
        let mut force = false;
        for _ in 0..OPENINGS_MAX {
            match self.open_once(force) {
                Ok(system) if self.disks.is_powered() => {
                    self.disks.power_stays();
                    self.system = Some(system);
                    return self.compare();
                }
                _ if !self.disks.is_powered() => {
                    self.coverage.power_cuts_in_recovery += 1;
                    self.note("power cut while opening");
                    self.disks.restart();
                }
                Err(error) => force = self.after_refusal(&error, force)?,
                Ok(_) => {}
            }
        }
        Err(Stop::Violation(format!(
            "the group was not opened in {OPENINGS_MAX} attempts"
        )))
    }

    fn open_once(&mut self, force: bool) -> Result<FileSystem, FsError> {
        let group = self.open_group(force).map_err(FsError::Group)?;
        FileSystem::open(group)
    }

    /// A refusal is right where faults keep voters away. Then they come back, where they can, or
    /// the owner forces it.
    fn after_refusal(&mut self, error: &FsError, was_forced: bool) -> Step<bool> {
        self.note(format!("opening refused: {error}"));
        if self.may_be_lost() {
            self.coverage.lost_groups += 1;
            return Err(Stop::Lost);
        }
        let no_majority =
            matches!(error, FsError::Group(error) if error.kind == GroupErrorKind::NoMajority);
        let mut away = self.failing_slots().into_iter();
        let is_away = away.any(|slot| self.disks.is_vanished(slot));
        // A cut within a commit tore the first block of the catalog on every disk that answers, and a
        // disk that has it whole went: what was written last may be there alone.
        let misses_first_block = is_away && error.to_string().contains("the first block of it");
        let refusal_is_right = no_majority || misses_first_block || self.is_lost_majority(error);
        if !refusal_is_right || was_forced || self.faults_count == 0 {
            return Err(violation("the group cannot be opened", error));
        }
        self.coverage.refused_openings += 1;
        if !no_majority || (is_away && self.random.chance(1, 2)) {
            self.note("all disks come back");
            self.repair_disks();
            return Ok(false);
        }
        self.note("opened by force");
        Ok(true)
    }

    /// Disks that may fail go and come back while nothing has the group open.
    fn change_disks_at_rest(&mut self) {
        for slot in self.failing_slots() {
            if self.disks.is_vanished(slot) {
                if self.random.chance(1, 2) {
                    self.note(format!("disk {} comes back", slot.0));
                    self.disks.bring_back(slot);
                    self.disks.clear_faults(slot);
                }
            } else if self.random.chance(1, 10) {
                self.note(format!("disk {} vanishes at rest", slot.0));
                self.faults_count += 1;
                self.disks.vanish(slot);
            }
        }
    }

    pub(crate) fn repair_disks(&self) {
        for slot in self.failing_slots() {
            self.disks.bring_back(slot);
            self.disks.clear_faults(slot);
        }
    }

    /// Everything that is found must be what one of the candidate states allows.
    fn compare(&mut self) -> Step<()> {
        if self.may_be_lost() {
            self.may_have_lost_what_lies_alone();
        }
        let found = self.walk()?;
        let mut reasons = Vec::new();
        let mut matching = None;
        for (candidate, names) in self.model.candidates() {
            match self.contradiction(candidate, names, &found) {
                None => {
                    matching = Some(candidate);
                    break;
                }
                Some(reason) => reasons.push((candidate, reason)),
            }
        }
        let Some(candidate) = matching else {
            let lines: Vec<String> = reasons
                .iter()
                .map(|(candidate, reason)| {
                    format!("\n  not as after operation {candidate}: {reason}")
                })
                .collect();
            return Err(Stop::Violation(format!(
                "what was found after opening is no allowed state:{}",
                lines.concat()
            )));
        };
        self.note(format!("opened as after operation {candidate}"));
        self.check_redundancies()?;
        let unreadable = found.unreadable;
        let mut bytes = found.bytes;
        for id in &unreadable {
            bytes.insert(*id, Vec::new());
        }
        self.model.adopt(Arc::new(found.names), bytes);
        for id in unreadable {
            if let Some(content) = self.model.contents.get_mut(&id) {
                content.is_lost = true;
            }
        }
        self.check_group()
    }

    fn contradiction(&self, candidate: u64, names: &Names, found: &Found) -> Option<String> {
        if let Some(difference) = names.difference(&found.names) {
            return Some(difference);
        }
        if let Some(demand) = self.model.broken_demand(candidate, names) {
            return Some(demand);
        }
        for (id, bytes) in &found.bytes {
            let Some(content) = self.model.contents.get(id) else {
                return Some(format!(
                    "file {id} has bytes that the model knows nothing of"
                ));
            };
            if content.is_lost {
                continue;
            }
            let size_bytes = bytes.len() as u64;
            if !content.may_have_size(candidate, size_bytes) {
                return Some(format!("file {id} has a size of {size_bytes}"));
            }
            if let Err(reason) = content.check(candidate, bytes) {
                return Some(format!("file {id} (tag {}): {reason}", content.tag));
            }
        }
        None
    }

    /// The group's own check of its maps, space and records.
    pub(crate) fn check_group(&mut self) -> Step<()> {
        let group: Arc<Group> = Arc::clone(self.system().group());
        self.take_events();
        if let Some(message) = self.wrongly_left_out.take() {
            return Err(Stop::Violation(message));
        }
        let result = group.check().map_err(FsError::Group);
        match self.judge("the check", result)? {
            Answer::Done(lines) if !lines.is_empty() && !self.may_be_lost() => Err(
                Stop::Violation(format!("the check found: {}", lines.join("; "))),
            ),
            _ => Ok(()),
        }
    }

    /// Reads every name, attribute and byte.
    pub(crate) fn walk(&mut self) -> Step<Found> {
        let mut found = Found {
            names: Names::default(),
            bytes: BTreeMap::new(),
            unreadable: Vec::new(),
        };
        let mut directories = vec![FileId::ROOT];
        self.walk_inode(FileId::ROOT, &mut found)?;
        while let Some(directory) = directories.pop() {
            let mut cookie = 0;
            loop {
                let entries = self.system().read_directory(directory, cookie, 7);
                let entries = entries.map_err(|error| self.stop("a directory", &error))?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in entries {
                    if entry.name == b"." || entry.name == b".." {
                        continue;
                    }
                    let key = (directory, entry.name.clone());
                    if found.names.entries.insert(key, entry.id).is_some() {
                        return Err(Stop::Violation(format!(
                            "directory {directory} lists {} twice",
                            String::from_utf8_lossy(&entry.name)
                        )));
                    }
                    if entry.kind == Kind::Directory {
                        directories.push(entry.id);
                    }
                    if !found.names.inodes.contains_key(&entry.id) {
                        self.walk_inode(entry.id, &mut found)?;
                    }
                }
            }
        }
        Ok(found)
    }

    fn walk_inode(&mut self, id: FileId, found: &mut Found) -> Step<()> {
        let attributes = self.system().attributes(id);
        let attributes = attributes.map_err(|error| self.stop("an inode", &error))?;
        let kind = match attributes.kind {
            Kind::Directory => InodeKind::Directory,
            Kind::Symlink => {
                let target = self.system().read_link(id);
                InodeKind::Symlink(target.map_err(|error| self.stop("a link", &error))?)
            }
            _ => InodeKind::Regular,
        };
        if kind == InodeKind::Regular {
            match self.read_all(id, attributes.size_bytes) {
                Ok(bytes) => {
                    found.bytes.insert(id, bytes);
                }
                Err(_) if self.may_be_lost() => found.unreadable.push(id),
                Err(error) => return Err(self.stop(&format!("file {id}"), &error)),
            }
        }
        let inode = Inode {
            permissions: attributes.permissions & 0o7777,
            // What a directory counts is its own business.
            links_count: match kind {
                InodeKind::Directory => 0,
                _ => attributes.links_count,
            },
            kind,
            extended: self.extended_attributes(id)?,
        };
        found.names.inodes.insert(id, Arc::new(inode));
        Ok(())
    }

    fn extended_attributes(&self, id: FileId) -> Step<BTreeMap<Vec<u8>, Arc<[u8]>>> {
        let names = self.system().list_extended_attributes(id);
        let names = names.map_err(|error| self.stop("extended attributes", &error))?;
        names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| {
                let value = self
                    .system()
                    .extended_attribute(id, OsStr::from_bytes(name));
                let value = value.map_err(|error| self.stop("an extended attribute", &error))?;
                Ok((name.to_vec(), Arc::from(value)))
            })
            .collect()
    }

    pub(crate) fn read_all(&self, id: FileId, size_bytes: u64) -> Result<Vec<u8>, FsError> {
        let handle = self.system().open_file(id)?;
        // One byte more than there is, so that a read beyond the end is seen.
        let mut bytes = vec![0xAA; crate::content::index(size_bytes) + 1];
        let length = self.system().read(&handle, 0, &mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// What a failed read of metadata means.
    fn stop(&self, what: &str, error: &FsError) -> Stop {
        if self.may_be_lost() {
            return Stop::Lost;
        }
        violation(&format!("{what} cannot be read"), error)
    }
}
