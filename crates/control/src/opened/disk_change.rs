//! The disks of a group change, while a process serves it or here where none does.
//!
//! What a person names (paths, disk names, failure groups) becomes what the group changes. New
//! disks are looked at as for a new group, and nothing is written to one that holds something
//! unless that is forced. Where the change is refused, disks that were opened for it are let go
//! again and plain files that were made for it are removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use spindle_base::{
    DiskName, DiskNumber, FailureGroupName, GroupName, Uuid, signed_size_text, size_text,
};
use spindle_device::DiskSlot;
use spindle_group::{DiskChanges, DiskView, GroupView, NewDisk};

use crate::api::disk_request::{DiskChangesRequest, NewDiskRequest};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::nearness::suggestion;
use crate::api::view::{DiskChangesReport, DiskReport, DiskStatus};
use crate::machine::identity::new_uuid;
use crate::machine::probe::Probe;
use crate::machine::settings::Settings;
use crate::opened::create::{
    MadeFiles, WantedDisk, disk_name, refuse_what_stands_there, wipe_marks,
};
use crate::opened::open::Opened;

impl From<&WantedDisk> for NewDiskRequest {
    fn from(disk: &WantedDisk) -> Self {
        Self {
            path: disk.path.clone(),
            make_bytes: disk.make_bytes,
            failure_group: disk.failure_group.as_ref().map(ToString::to_string),
            name: None,
        }
    }
}

/// Disks that were opened for a change; let go again unless it was made.
pub(super) struct Borrowed<'a> {
    opened: &'a Opened,
    group_uuid: Uuid,
    slots: Vec<(DiskSlot, PathBuf)>,
    /// What stands on those that were there.
    marked: Vec<(DiskSlot, Probe)>,
    made: MadeFiles,
}

impl Borrowed<'_> {
    fn is_of_this_group(&self, probe: &Probe) -> bool {
        let label = probe.label();
        label.is_some_and(|label| label.group_uuid == self.group_uuid)
    }

    fn keep(mut self) {
        self.made.keep();
        for (slot, path) in self.slots.drain(..) {
            self.opened.note_slot(slot, path);
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        for (slot, _) in &self.slots {
            self.opened.engine().release(*slot);
        }
    }
}

/// The group's disks as a request finds them. Looked at once for all the names in it: for each anew,
/// a change of a thousand disks of four thousand took two minutes.
struct Members<'a> {
    group_name: &'a str,
    /// By their names in lower case.
    by_name: BTreeMap<String, DiskView>,
}

impl Members<'_> {
    fn of(&self, name: &str) -> ControlResult<&DiskView> {
        let found = self.by_name.get(&name.to_ascii_lowercase());
        found.ok_or_else(|| {
            let mut disks: Vec<&DiskView> = self.by_name.values().collect();
            disks.sort_by_key(|disk| disk.number);
            let hint = suggestion(name, "disk", disks.iter().map(|disk| disk.name.as_str()));
            let group = self.group_name;
            ControlError::not_found(format!("{group} has no disk {name:?}; {hint}"))
        })
    }

    fn numbers(&self, names: &[String]) -> ControlResult<Vec<DiskNumber>> {
        (names.iter())
            .map(|name| Ok(self.of(name)?.number))
            .collect()
    }
}

/// Why usable space is less although there is more space in all: what nobody expects who adds some.
fn fall_of_usable(before: &GroupView, after: &GroupView) -> Option<String> {
    if after.total_bytes <= before.total_bytes || after.usable_bytes >= before.usable_bytes {
        return None;
    }
    Some(format!(
        "usable space falls from {} to {} although the group grows: {} must stay free to make the copies again that the largest disk or failure group holds, {} before; it rises when the other failure groups get as much",
        signed_size_text(before.usable_bytes),
        signed_size_text(after.usable_bytes),
        size_text(after.required_mirror_free_bytes),
        size_text(before.required_mirror_free_bytes)
    ))
}

/// That disks were asked to have the sizes that they have.
fn same_sizes(
    request: &DiskChangesRequest,
    before: &GroupView,
    after: &GroupView,
) -> Option<String> {
    let only_resizes = !request.resize.is_empty()
        && request.add.is_empty()
        && request.drop.is_empty()
        && request.replace.is_empty()
        && request.undrop.is_empty();
    let sizes =
        |view: &GroupView| -> Vec<u64> { view.disks.iter().map(|disk| disk.total_bytes).collect() };
    (only_resizes && sizes(before) == sizes(after))
        .then(|| "nothing has changed: the group uses as much of each disk already".to_owned())
}

impl Opened {
    /// Makes the changes that a request names.
    ///
    /// # Errors
    /// Where there is no such disk, a new one cannot be used, or what remains cannot hold the data;
    /// nothing has changed then.
    pub fn change_disks(
        &self,
        settings: &Settings,
        request: &DiskChangesRequest,
    ) -> ControlResult<DiskChangesReport> {
        let (changes, borrowed) = self.prepare_changes(request)?;
        self.group().judge_disk_changes(&changes)?;
        let before = self.group().view();
        for (slot, probe) in &borrowed.marked {
            wipe_marks(self.engine(), *slot, probe)?;
        }
        let joining = self.group().change_disks(&changes)?;
        borrowed.keep();
        // A disk on which nothing lies need not wait for a rebalance.
        let forgotten = self.group().forget_empty_disks();
        self.release_forgotten();
        let resized = changes.resize.iter().map(|(number, _)| *number);
        let replaced = changes.replace.iter().map(|(number, _)| *number);
        let concerned: Vec<DiskNumber> = (joining.into_iter())
            .chain(changes.drop.iter().copied())
            .chain(replaced)
            .chain(changes.undrop.iter().copied())
            .chain(resized)
            .collect();
        let after = self.group().view();
        let mut report = self.changes_report(&concerned);
        let notes = [
            outside_search_path(settings, request),
            fall_of_usable(&before, &after),
            same_sizes(request, &before, &after),
            // The change itself is made.
            (forgotten.err())
                .map(|error| format!("a disk that is empty has not left yet: {error:#}")),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        report.note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(report)
    }

    /// What a request names, with the disks that join opened, and made where they are to be.
    pub(super) fn prepare_changes(
        &self,
        request: &DiskChangesRequest,
    ) -> ControlResult<(DiskChanges, Borrowed<'_>)> {
        request.check_size()?;
        if request.add.is_empty()
            && request.drop.is_empty()
            && request.replace.is_empty()
            && request.undrop.is_empty()
            && request.resize.is_empty()
        {
            return Err(ControlError::invalid("no change was asked for"));
        }
        let members = self.members();
        let mut changes = DiskChanges {
            drop: members.numbers(&request.drop)?,
            force: request.force,
            undrop: members.numbers(&request.undrop)?,
            ..DiskChanges::default()
        };
        for resize in &request.resize {
            let number = members.of(&resize.disk)?.number;
            let size_bytes = match resize.size_bytes {
                Some(size_bytes) => size_bytes,
                None => self.group().device_bytes(number)?,
            };
            changes.resize.push((number, size_bytes));
        }
        let mut borrowed = Borrowed {
            opened: self,
            group_uuid: self.group().view().uuid,
            slots: Vec::new(),
            marked: Vec::new(),
            made: MadeFiles::default(),
        };
        let names = self.new_names(request)?;
        let mut names = names.into_iter();
        // A disk that has just left may be the one that joins.
        self.release_forgotten();
        for disk in &request.add {
            let name = names.next().expect("a name for each");
            let failure_group = match &disk.failure_group {
                Some(failure_group) => FailureGroupName::new(failure_group)?,
                None => FailureGroupName::new(name.as_str())?,
            };
            changes.add.push(self.borrow(
                &mut borrowed,
                disk,
                name,
                failure_group,
                request.overwrite,
            )?);
        }
        for replacement in &request.replace {
            let old = members.of(&replacement.disk)?;
            let name = names.next().expect("a name for each");
            let failure_group = match &replacement.with.failure_group {
                Some(failure_group) => FailureGroupName::new(failure_group)?,
                None => old.failure_group.clone(),
            };
            let with = &replacement.with;
            let new = self.borrow(&mut borrowed, with, name, failure_group, request.overwrite)?;
            changes.replace.push((old.number, new));
        }
        Ok((changes, borrowed))
    }

    /// Gives a disk another name.
    ///
    /// # Errors
    /// Where there is no such disk, the name is in use, or the disk is away.
    pub fn rename_disk(&self, disk: &str, name: &str) -> ControlResult<DiskChangesReport> {
        let number = self.members().of(disk)?.number;
        self.group().rename_disk(number, &DiskName::new(name)?)?;
        Ok(self.changes_report(&[number]))
    }

    /// Takes disks offline.
    ///
    /// # Errors
    /// Where there is no such disk, or something would lose its last copy.
    pub fn offline_disks(&self, disks: &[String]) -> ControlResult<DiskChangesReport> {
        let numbers = self.numbers(disks)?;
        self.group().offline_disks(&numbers)?;
        Ok(self.changes_report(&numbers))
    }

    /// Lets go of disks that the group has forgotten.
    pub fn release_forgotten(&self) {
        for slot in self.group().take_free_slots() {
            self.engine().release(slot);
            self.forget_slot(slot);
        }
    }

    pub(super) fn changes_report(&self, concerned: &[DiskNumber]) -> DiskChangesReport {
        let disks = self.group().view().disks;
        DiskChangesReport {
            group: self.group_name().to_owned(),
            forgotten: (concerned.iter())
                .filter(|number| disks.iter().all(|disk| disk.number != **number))
                .map(|number| number.0)
                .collect(),
            disks: (disks.into_iter())
                .filter(|disk| concerned.contains(&disk.number))
                .map(DiskReport::from)
                .collect(),
            note: None,
        }
    }

    fn members(&self) -> Members<'_> {
        Members {
            group_name: self.group_name(),
            by_name: (self.group().view().disks.into_iter())
                .map(|disk| (disk.name.as_str().to_ascii_lowercase(), disk))
                .collect(),
        }
    }

    pub(super) fn numbers(&self, names: &[String]) -> ControlResult<Vec<DiskNumber>> {
        self.members().numbers(names)
    }

    /// Names for the disks that join: those given, else the group's name and the next numbers.
    fn new_names(&self, request: &DiskChangesRequest) -> ControlResult<Vec<DiskName>> {
        let group = GroupName::new(self.group_name())?;
        let disks = self.group().view().disks;
        let mut index = disks
            .iter()
            .map(|disk| disk.number.0 + 1)
            .max()
            .unwrap_or(0);
        let mut names: Vec<DiskName> = Vec::new();
        let replacing = request.replace.iter().map(|item| &item.with);
        for disk in request.add.iter().chain(replacing) {
            let name = match &disk.name {
                Some(name) => DiskName::new(name)?,
                None => loop {
                    let name = disk_name(&group, usize::from(index))?;
                    index = index.saturating_add(1);
                    let same =
                        |other: &DiskName| other.as_str().eq_ignore_ascii_case(name.as_str());
                    let taken = disks.iter().any(|disk| same(&disk.name));
                    if !taken || index == u16::MAX {
                        break name;
                    }
                },
            };
            names.push(name);
        }
        Ok(names)
    }

    /// Looks at a disk that is to join, and opens or makes it.
    fn borrow(
        &self,
        borrowed: &mut Borrowed<'_>,
        disk: &NewDiskRequest,
        name: DiskName,
        failure_group: FailureGroupName,
        overwrite: bool,
    ) -> ControlResult<NewDisk> {
        let probe = disk
            .make_bytes
            .is_none()
            .then(|| Probe::look(&disk.path, self.engine().servers()));
        if let Some(probe) = &probe {
            let is_ours = borrowed.is_of_this_group(probe);
            if is_ours {
                self.refuse_member(probe)?;
            }
            let stray = probe.status() == DiskStatus::Member && is_ours;
            refuse_what_stands_there(probe, overwrite || stray)?;
            if !stray {
                probe.refuse_held()?;
            }
        }
        let wanted = WantedDisk {
            path: disk.path.clone(),
            make_bytes: disk.make_bytes,
            failure_group: Some(failure_group.clone()),
        };
        let slot = borrowed.made.open(self.engine(), &wanted)?;
        borrowed.slots.push((slot, disk.path.clone()));
        if let Some(probe) = &probe {
            probe.confirm(self.engine().servers())?;
        }
        if let Some(probe) = probe
            .as_ref()
            .filter(|probe| !borrowed.is_of_this_group(probe))
        {
            probe.refuse_held_and_free()?;
        }
        borrowed.marked.extend(probe.map(|probe| (slot, probe)));
        Ok(NewDisk {
            slot,
            name,
            failure_group,
            uuid: new_uuid()?,
        })
    }

    /// Refuses a disk with a label of this group that the group has, here or away; one that was
    /// dropped, or that a crash kept from joining, has such a label too and may come.
    fn refuse_member(&self, probe: &Probe) -> ControlResult<()> {
        let Some(label) = probe.member() else {
            return Ok(());
        };
        if self.group().disk_of_uuid(label.disk_uuid).is_none() {
            return Ok(());
        }
        Err(ControlError::new(
            ControlErrorKind::Exists,
            format!(
                "{} is disk {} of {} already",
                probe.path.display(),
                label.disk_name,
                self.group_name()
            ),
        ))
    }
}

/// A hint where the next mount would not find the disks that joined.
fn outside_search_path(settings: &Settings, request: &DiskChangesRequest) -> Option<String> {
    let replacing = request.replace.iter().map(|item| &item.with);
    let paths = (request.add.iter().chain(replacing)).map(|disk| disk.path.as_path());
    crate::opened::create::outside_search_path(settings, paths)
}
