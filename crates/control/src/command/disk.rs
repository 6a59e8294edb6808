//! The disks of a group change, in the process that serves it or here where none does.

use std::collections::BTreeSet;

use spindle_base::GroupName;

use crate::api::call::Standalone;
use crate::api::calls::{BringOnline, ChangeDisks, RenameDisk, TakeOffline};
use crate::api::disk_request::{DiskChangesRequest, DiskNames, ResizeRequest};
use crate::api::error::{ControlError, ControlResult};
use crate::api::estimate::EstimateRequest;
use crate::api::nearness::suggestion;
use crate::api::view::{DiskChangesReport, DiskReport};
use crate::command::group::show_group;
use crate::command::reach::reach;
use crate::machine::path::absolute;
use crate::machine::settings::Settings;
use crate::opened::open::Opened;

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
    let call = ChangeDisks { body: request };
    change(settings, group, &call, |opened| {
        opened.change_disks(settings, &call.body)
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
    let call = RenameDisk {
        disk: disk.to_owned(),
        name: name.to_owned(),
    };
    change(settings, group, &call, |opened| {
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
    let body = DiskNames::of(disks)?;
    change(settings, group, &TakeOffline { body }, |opened| {
        opened.offline_disks(disks)
    })
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
    let report = show_group(settings, group.as_str())?;
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
    let names: BTreeSet<&str> = (disks.iter())
        .map(|disk| disk.failure_group.as_str())
        .collect();
    let hint = suggestion(name, "failure group", names);
    ControlError::not_found(format!("{group} has no failure group {name:?}; {hint}"))
}

/// Asks the process that serves the group, or changes it here, with a word on what is left to do.
fn change<C: Standalone<Answer = DiskChangesReport>>(
    settings: &Settings,
    group: &GroupName,
    call: &C,
    here: impl FnOnce(&Opened) -> ControlResult<DiskChangesReport>,
) -> ControlResult<DiskChangesReport> {
    reach(settings, group, call, |opened| {
        let mut report = here(opened)?;
        if report.disks.iter().any(|disk| disk.state == "dropping") {
            report.note.get_or_insert_with(|| {
                format!("what has to move is moved when {group} is mounted")
            });
        }
        Ok(report)
    })
}

/// Brings disks back that are offline, in the process that serves the group or here; all that
/// can be found where none is named.
///
/// # Errors
/// Where there is no such group or disk, a disk is online, cannot be found, or may not come back;
/// nothing has changed then.
pub fn online_disks(
    settings: &Settings,
    group: &GroupName,
    disks: &[String],
) -> ControlResult<DiskChangesReport> {
    let body = DiskNames::of(disks)?;
    change(settings, group, &BringOnline { body }, |opened| {
        opened.online_disks(settings, disks)
    })
}
