//! The disks of a group change, while a process serves it or here where none does.
//!
//! What a person names (paths, disk names, failure groups) becomes what the group changes. New
//! disks are looked at as for a new group, and nothing is written to one that holds something
//! unless that is forced. Where the change is refused, disks that were opened for it are let go
//! again and plain files that were made for it are removed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spindle_base::{DiskName, DiskNumber, FailureGroupName, GroupName};
use spindle_device::DiskSlot;
use spindle_format::DISKS_MAX;
use spindle_group::{DiskChanges, NewDisk};
use utoipa::ToSchema;

use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::estimating::EstimateRequest;
use crate::making::{MadeFiles, WantedDisk, disk_name, refuse_what_stands_there, wipe_marks};
use crate::nearness::suggestion;
use crate::opening::{Access, Opened, new_uuid};
use crate::probe::Probe;
use crate::query::append;
use crate::settings::Settings;
use crate::sockets;
use crate::starting::absolute;
use crate::view::{DiskChangesReport, DiskReport, DiskStatus};

/// A disk that is to join a group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDiskRequest {
    /// The block device or plain file.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// The size of the plain file to be made there; `null` where the disk is there.
    #[serde(default)]
    pub make_bytes: Option<u64>,
    /// Its failure group; `null` for one of its own.
    #[serde(default)]
    pub failure_group: Option<String>,
    /// Its name; `null` for the group's name and a number.
    #[serde(default)]
    pub name: Option<String>,
}

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

/// A disk that is to take the place of another.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacementRequest {
    /// The name of the disk that goes.
    pub disk: String,
    /// The disk that comes, into the same failure group.
    pub with: NewDiskRequest,
}

/// A disk of which the group is to use more or less.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// The disk's name.
    pub disk: String,
    /// What to use of it; `null` for all that it has now.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// Changes of a group's disks that are made together and want one rebalance.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskChangesRequest {
    /// Disks that join.
    pub add: Vec<NewDiskRequest>,
    /// Use disks that join although something stands on them: it is lost.
    pub overwrite: bool,
    /// Names of disks that leave.
    pub drop: Vec<String>,
    /// Give up disks that leave and are offline.
    pub force: bool,
    /// Disks that others take the place of.
    pub replace: Vec<ReplacementRequest>,
    /// Names of disks that are being dropped and are kept after all.
    pub undrop: Vec<String>,
    /// Disks that get another size.
    pub resize: Vec<ResizeRequest>,
}

impl DiskChangesRequest {
    /// Refuses a change of more disks than a group can have.
    ///
    /// # Errors
    /// Where that is so.
    pub fn check_size(&self) -> ControlResult<()> {
        check_count(
            self.add.len()
                + self.drop.len()
                + self.replace.len()
                + self.undrop.len()
                + self.resize.len(),
        )
    }
}

/// Names of disks, in the body of a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskNames {
    /// The names; empty where the request says what that means.
    pub disks: Vec<String>,
}

impl DiskNames {
    /// Of a command.
    ///
    /// # Errors
    /// Where there are more than a group can have.
    pub fn of(disks: &[String]) -> ControlResult<Self> {
        check_count(disks.len())?;
        Ok(Self {
            disks: disks.to_vec(),
        })
    }

    /// Of a request; one without a body names none.
    ///
    /// # Errors
    /// Where they cannot be understood, or there are more than a group can have.
    pub fn from_body(body: &[u8]) -> ControlResult<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let names: Self = crate::route::body_of(body)?;
        check_count(names.disks.len())?;
        Ok(names)
    }
}

fn check_count(count: usize) -> ControlResult<()> {
    if count <= DISKS_MAX {
        return Ok(());
    }
    Err(ControlError::invalid(format!(
        "{count} disks are named: one change takes at most {DISKS_MAX}"
    )))
}

/// What is done to all disks of a failure group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureGroupChange {
    /// They leave; `force` gives up those that are offline.
    Drop {
        /// Give up those that are offline.
        force: bool,
    },
    /// Those that are being dropped are kept after all.
    Undrop,
    /// They get this size, or all that each has now.
    Resize {
        /// What to use of each.
        size_bytes: Option<u64>,
    },
    /// They go offline.
    Offline,
    /// Those that are offline come back.
    Online,
}

/// Makes changes, in the process that serves the group or here.
///
/// # Errors
/// Where there is no such group or disk, a new disk cannot be used, or what remains cannot hold
/// the data; nothing has changed then.
pub fn change_disks(
    settings: &Settings,
    group: &GroupName,
    request: &DiskChangesRequest,
) -> ControlResult<DiskChangesReport> {
    let mut request = request.clone();
    let replacing = request.replace.iter_mut().map(|item| &mut item.with);
    for disk in request.add.iter_mut().chain(replacing) {
        disk.path = absolute(&disk.path)?;
    }
    request.check_size()?;
    let asked = Asked::Body("/disks/change", &request);
    in_group(settings, group, asked, |opened| {
        opened.change_disks(settings, &request)
    })
}

/// Gives a disk another name.
///
/// # Errors
/// Where there is no such group or disk, the name is in use, or the disk is away.
pub fn rename_disk(
    settings: &Settings,
    group: &GroupName,
    disk: &str,
    name: &str,
) -> ControlResult<DiskChangesReport> {
    let mut path = "/disks/rename".to_owned();
    append(&mut path, "disk", disk.as_bytes());
    append(&mut path, "name", name.as_bytes());
    in_group(settings, group, Asked::<()>::Path(&path), |opened| {
        opened.rename_disk(disk, name)
    })
}

/// Takes disks offline.
///
/// # Errors
/// Where there is no such group or disk, or something would lose its last copy.
pub fn offline_disks(
    settings: &Settings,
    group: &GroupName,
    disks: &[String],
) -> ControlResult<DiskChangesReport> {
    let names = DiskNames::of(disks)?;
    let asked = Asked::Body("/disks/offline", &names);
    in_group(settings, group, asked, |opened| opened.offline_disks(disks))
}

/// What the same change of all disks of failure groups is as a change of disks.
///
/// # Errors
/// Where there is no such group or failure group, or no disk of it is in a standing that this
/// changes.
pub fn of_failure_groups(
    settings: &Settings,
    group: &GroupName,
    failure_groups: &[String],
    change: FailureGroupChange,
) -> ControlResult<EstimateRequest> {
    let report = crate::administration::show_group(settings, group.as_str())?;
    let mut disks: Vec<&DiskReport> = Vec::new();
    for name in failure_groups {
        let before = disks.len();
        disks.extend(report.disks.iter().filter(|disk| {
            disk.failure_group.eq_ignore_ascii_case(name)
                && match change {
                    FailureGroupChange::Drop { .. } => disk.state == "normal",
                    FailureGroupChange::Undrop => disk.state == "dropping",
                    FailureGroupChange::Online => disk.mode == "offline",
                    FailureGroupChange::Resize { .. } | FailureGroupChange::Offline => {
                        disk.mode == "online"
                    }
                }
        }));
        if disks.len() == before {
            return Err(no_failure_group(&report.disks, group, name));
        }
    }
    let names: Vec<String> = disks.iter().map(|disk| disk.name.clone()).collect();
    let mut request = EstimateRequest::default();
    let mut changes = DiskChangesRequest::default();
    match change {
        FailureGroupChange::Offline => request.offline = Some(names),
        FailureGroupChange::Online => request.online = Some(names),
        FailureGroupChange::Drop { force } => {
            changes.drop = names;
            changes.force = force;
        }
        FailureGroupChange::Undrop => changes.undrop = names,
        FailureGroupChange::Resize { size_bytes } => {
            changes.resize = (names.into_iter())
                .map(|disk| ResizeRequest { disk, size_bytes })
                .collect();
        }
    }
    if request.offline.is_none() && request.online.is_none() {
        request.disks = Some(changes);
    }
    Ok(request)
}

fn no_failure_group(disks: &[DiskReport], group: &GroupName, name: &str) -> ControlError {
    let exists = |disk: &&DiskReport| disk.failure_group.eq_ignore_ascii_case(name);
    if disks.iter().any(|disk| exists(&disk)) {
        return ControlError::invalid(format!(
            "no disk of the failure group {name} of {group} is in a standing that this changes"
        ));
    }
    let names = disks.iter().map(|disk| disk.failure_group.as_str());
    let hint = suggestion(name, "failure group", names);
    ControlError::not_found(format!("{group} has no failure group {name:?}; {hint}"))
}

/// What the process that serves a group is asked for.
pub(crate) enum Asked<'a, T> {
    /// All of it is in the path.
    Path(&'a str),
    /// A structure goes with it.
    Body(&'a str, &'a T),
}

/// Asks the process that serves the group, or opens it, changes it and closes it again.
pub(crate) fn in_group<T: Serialize>(
    settings: &Settings,
    group: &GroupName,
    asked: Asked<'_, T>,
    change: impl FnOnce(&Opened) -> ControlResult<DiskChangesReport>,
) -> ControlResult<DiskChangesReport> {
    if let Some(client) = sockets::find(settings, group.as_str())? {
        return match asked {
            Asked::Path(path) => client.post(path),
            Asked::Body(path, body) => client.post_json(path, body),
        };
    }
    let opened = Opened::open(settings, group, &Access::Change)?;
    let answer = change(&opened);
    // Closed also where it was refused, so that it is not left open.
    let closed = opened.close();
    let mut report = answer?;
    closed?;
    if report.disks.iter().any(|disk| disk.state == "dropping") {
        report
            .note
            .get_or_insert_with(|| format!("what has to move is moved when {group} is mounted"));
    }
    Ok(report)
}

/// Disks that were opened for a change; let go again unless it was made.
pub(crate) struct Borrowed<'a> {
    opened: &'a Opened,
    slots: Vec<(DiskSlot, PathBuf)>,
    /// What stands on those that were there.
    marked: Vec<(DiskSlot, Probe)>,
    made: MadeFiles,
}

impl Borrowed<'_> {
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

impl Opened {
    /// Makes the changes that a request names.
    ///
    /// # Errors
    /// As [`change_disks`].
    pub fn change_disks(
        &self,
        settings: &Settings,
        request: &DiskChangesRequest,
    ) -> ControlResult<DiskChangesReport> {
        let (changes, borrowed) = self.prepare_changes(request)?;
        self.group().judge_disk_changes(&changes)?;
        for (slot, probe) in &borrowed.marked {
            wipe_marks(self.engine(), *slot, probe)?;
        }
        let joining = self.group().change_disks(&changes)?;
        borrowed.keep();
        // A disk on which nothing lies need not wait for a rebalance.
        self.group().forget_empty_disks()?;
        self.release_forgotten();
        let resized = changes.resize.iter().map(|(number, _)| *number);
        let replaced = changes.replace.iter().map(|(number, _)| *number);
        let concerned: Vec<DiskNumber> = (joining.into_iter())
            .chain(changes.drop.iter().copied())
            .chain(replaced)
            .chain(changes.undrop.iter().copied())
            .chain(resized)
            .collect();
        let mut report = self.changes_report(&concerned);
        report.note = outside_search_path(settings, request)?;
        Ok(report)
    }

    /// What a request names, with the disks that join opened, and made where they are to be.
    pub(crate) fn prepare_changes(
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
        let mut changes = DiskChanges {
            drop: self.numbers(&request.drop)?,
            force: request.force,
            undrop: self.numbers(&request.undrop)?,
            ..DiskChanges::default()
        };
        for resize in &request.resize {
            let number = self.number(&resize.disk)?;
            let size_bytes = match resize.size_bytes {
                Some(size_bytes) => size_bytes,
                None => self.group().device_bytes(number)?,
            };
            changes.resize.push((number, size_bytes));
        }
        let mut borrowed = Borrowed {
            opened: self,
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
            let old = self.report_of(&replacement.disk)?;
            let name = names.next().expect("a name for each");
            let failure_group = match &replacement.with.failure_group {
                Some(failure_group) => FailureGroupName::new(failure_group)?,
                None => FailureGroupName::new(&old.failure_group)?,
            };
            let with = &replacement.with;
            let new = self.borrow(&mut borrowed, with, name, failure_group, request.overwrite)?;
            changes.replace.push((DiskNumber(old.number), new));
        }
        Ok((changes, borrowed))
    }

    /// Gives a disk another name.
    ///
    /// # Errors
    /// As [`rename_disk`].
    pub fn rename_disk(&self, disk: &str, name: &str) -> ControlResult<DiskChangesReport> {
        let number = self.number(disk)?;
        self.group().rename_disk(number, &DiskName::new(name)?)?;
        Ok(self.changes_report(&[number]))
    }

    /// Takes disks offline.
    ///
    /// # Errors
    /// As [`offline_disks`].
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

    pub(crate) fn changes_report(&self, concerned: &[DiskNumber]) -> DiskChangesReport {
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

    fn report_of(&self, name: &str) -> ControlResult<DiskReport> {
        let disks: Vec<DiskReport> = (self.group().view().disks.into_iter())
            .map(DiskReport::from)
            .collect();
        let hint = suggestion(name, "disk", disks.iter().map(|disk| disk.name.as_str()));
        let found = (disks.into_iter()).find(|disk| disk.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let group = self.group_name();
            ControlError::not_found(format!("{group} has no disk {name:?}; {hint}"))
        })
    }

    fn number(&self, name: &str) -> ControlResult<DiskNumber> {
        Ok(DiskNumber(self.report_of(name)?.number))
    }

    pub(crate) fn numbers(&self, names: &[String]) -> ControlResult<Vec<DiskNumber>> {
        names.iter().map(|name| self.number(name)).collect()
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
        let probe = disk.make_bytes.is_none().then(|| Probe::look(&disk.path));
        if let Some(probe) = &probe {
            self.refuse_member(probe)?;
            let stray = probe.status() == DiskStatus::Member && self.is_of_this_group(probe);
            refuse_what_stands_there(probe, overwrite || stray)?;
        }
        let wanted = WantedDisk {
            path: disk.path.clone(),
            make_bytes: disk.make_bytes,
            failure_group: Some(failure_group.clone()),
        };
        let slot = borrowed.made.open(self.engine(), &wanted)?;
        borrowed.slots.push((slot, disk.path.clone()));
        borrowed.marked.extend(probe.map(|probe| (slot, probe)));
        Ok(NewDisk {
            slot,
            name,
            failure_group,
            uuid: new_uuid()?,
        })
    }

    fn is_of_this_group(&self, probe: &Probe) -> bool {
        let uuid = self.group().view().uuid;
        probe.label().is_some_and(|label| label.group_uuid == uuid)
    }

    /// Refuses a disk that the group has, here or away; one that was dropped, or that a crash
    /// kept from joining, has a label of the group and may come.
    fn refuse_member(&self, probe: &Probe) -> ControlResult<()> {
        let Some(label) = probe.member().filter(|_| self.is_of_this_group(probe)) else {
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
fn outside_search_path(
    settings: &Settings,
    request: &DiskChangesRequest,
) -> ControlResult<Option<String>> {
    let replacing = request.replace.iter().map(|item| &item.with);
    let paths = (request.add.iter().chain(replacing)).map(|disk| disk.path.as_path());
    crate::making::outside_search_path(settings, paths)
}
