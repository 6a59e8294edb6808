//! `spindle disk` and `spindle failgroup`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use spindle_base::AuSize;
use spindle_control::view::DiskChangesReport;
use spindle_control::{
    ControlError, DiskChangesRequest, EstimateRequest, FailureGroupChange, MadePartition,
    NewDiskRequest, ReplacementRequest, ResizeRequest, Settings, WantedDisk,
};

use super::estimate::print_estimate;
use super::group::{disk_table, name_of};
use super::print_json;
use crate::arguments::{AddArguments, DiskCommand, FailureGroupCommand, Output, Preview};
use crate::line::say;
use crate::table::{Table, size};

/// A command as a change that can be made or judged beforehand.
struct Asked<'a> {
    group: &'a str,
    request: EstimateRequest,
    preview: Preview,
    output: Output,
}

pub fn run(settings: &Settings, command: &DiskCommand) -> Result<u8> {
    let (group, request, preview, output) = match command {
        DiskCommand::Scan { output } => return scan(settings, *output),
        DiskCommand::Rename {
            group,
            disk,
            name,
            output,
        } => {
            let report = spindle_control::rename_disk(settings, &name_of(group)?, disk, name)?;
            return print_changes(&report, *output);
        }
        DiskCommand::Add(add) => return add_disks(settings, add),
        DiskCommand::Drop {
            group,
            names,
            force,
            preview,
            output,
        } => {
            let request = DiskChangesRequest {
                drop: names.clone(),
                force: *force,
                ..DiskChangesRequest::default()
            };
            (group, of_disks(request), *preview, *output)
        }
        DiskCommand::Undrop {
            group,
            names,
            preview,
            output,
        } => {
            let request = DiskChangesRequest {
                undrop: names.clone(),
                ..DiskChangesRequest::default()
            };
            (group, of_disks(request), *preview, *output)
        }
        DiskCommand::Replace {
            group,
            disk,
            with,
            name,
            force,
            preview,
            output,
        } => {
            let request = replaced(disk, with, name.as_ref(), *force)?;
            (group, of_disks(request), *preview, *output)
        }
        DiskCommand::Resize {
            group,
            names,
            size,
            preview,
            output,
        } => (group, of_disks(resized(names, *size)), *preview, *output),
        DiskCommand::Offline {
            group,
            names,
            preview,
            output,
        } => (group, taken_offline(names), *preview, *output),
        DiskCommand::Online {
            group,
            names,
            all: _,
            preview,
            output,
        } => (group, brought_online(names), *preview, *output),
    };
    let asked = Asked {
        group,
        request,
        preview,
        output,
    };
    answer(settings, &asked)
}

/// Whether each of these disks that is there can become a partition; the others are to be made.
pub(super) fn check_partitions<'a>(
    settings: &Settings,
    disks: impl Iterator<Item = (&'a Path, Option<u64>)>,
    overwrite: bool,
    au_size: AuSize,
) -> Result<()> {
    for (path, make_bytes) in disks {
        match make_bytes {
            None => spindle_control::check_partition(settings, path, overwrite, au_size)?,
            Some(_) => spindle_control::check_file_beside(path)?,
        }
    }
    Ok(())
}

/// Makes a partition on each of these disks that fills it; each path becomes that of its device. What
/// is given back is kept until they have joined.
pub(super) fn make_partitions<'a>(
    settings: &Settings,
    disks: impl Iterator<Item = &'a mut PathBuf>,
    overwrite: bool,
    au_size: AuSize,
) -> Result<Vec<MadePartition>> {
    let mut all: Vec<MadePartition> = Vec::new();
    for disk in disks {
        let made = spindle_control::make_partition(settings, disk, overwrite, au_size)
            .map_err(|error| with_those_made(error, &all))?;
        let (disk_shown, made_shown) = (disk.display(), made.path.display());
        eprintln!("spindle: a partition was made on {disk_shown}: {made_shown}");
        disk.clone_from(&made.path);
        all.push(made);
    }
    Ok(all)
}

/// What the command has already made when it fails stays.
fn with_those_made(error: ControlError, made: &[MadePartition]) -> ControlError {
    if made.is_empty() {
        return error;
    }
    let paths: Vec<String> = made
        .iter()
        .map(|made| made.path.display().to_string())
        .collect();
    let paths = paths.join(", ");
    error.with_more(&format!(
        "partitions that were made before that stay and hold nothing ({paths}): the command can be \
         given again"
    ))
}

/// Makes the partitions of `spindle disk add --partition`, when all that the command could be refused
/// with was asked of the disks as they are: what a partition takes the place of is lost.
fn partition_added(
    settings: &Settings,
    add: &AddArguments,
    request: &mut DiskChangesRequest,
) -> Result<Vec<MadePartition>> {
    let report = spindle_control::show_group(settings, &add.group)?;
    let au_size = AuSize::from_bytes(report.au_size_bytes).map_err(ControlError::from)?;
    let disks = request.add.iter();
    let disks = disks.map(|disk| (disk.path.as_path(), disk.make_bytes));
    check_partitions(settings, disks, add.force, au_size)?;
    // What stands there was judged: the rest is asked for as if it did not.
    let over_all = DiskChangesRequest {
        overwrite: true,
        ..request.clone()
    };
    if add.preview.dry_run {
        *request = over_all;
        return Ok(Vec::new());
    }
    let rehearsed = of_disks(over_all);
    spindle_control::estimate(settings, &name_of(&add.group)?, &rehearsed)?;
    let whole = request.add.iter_mut();
    let whole = whole.filter(|disk| disk.make_bytes.is_none());
    make_partitions(
        settings,
        whole.map(|disk| &mut disk.path),
        add.force,
        au_size,
    )
}

/// What `spindle disk offline` asks for.
fn taken_offline(names: &[String]) -> EstimateRequest {
    EstimateRequest {
        offline: Some(names.to_vec()),
        ..EstimateRequest::default()
    }
}

/// What `spindle disk online` asks for.
fn brought_online(names: &[String]) -> EstimateRequest {
    EstimateRequest {
        online: Some(names.to_vec()),
        ..EstimateRequest::default()
    }
}

/// What `spindle disk replace` asks for.
fn replaced(
    disk: &str,
    with: &OsStr,
    name: Option<&String>,
    overwrite: bool,
) -> Result<DiskChangesRequest> {
    let with = NewDiskRequest {
        name: name.cloned(),
        ..new_disk(with)?
    };
    Ok(DiskChangesRequest {
        replace: vec![ReplacementRequest {
            disk: disk.to_owned(),
            with,
        }],
        overwrite,
        ..DiskChangesRequest::default()
    })
}

/// What `spindle disk resize` asks for.
fn resized(names: &[String], size_bytes: Option<u64>) -> DiskChangesRequest {
    let resize = |disk: &String| ResizeRequest {
        disk: disk.clone(),
        size_bytes,
    };
    DiskChangesRequest {
        resize: names.iter().map(resize).collect(),
        ..DiskChangesRequest::default()
    }
}

fn of_disks(request: DiskChangesRequest) -> EstimateRequest {
    EstimateRequest {
        disks: Some(request),
        ..EstimateRequest::default()
    }
}

/// Makes the change, or tells what it would cost.
fn answer(settings: &Settings, asked: &Asked<'_>) -> Result<u8> {
    let group = name_of(asked.group)?;
    let request = &asked.request;
    if asked.preview.dry_run {
        let report = spindle_control::estimate(settings, &group, request)?;
        return print_estimate(&report, asked.output);
    }
    let report = if let Some(names) = &request.offline {
        spindle_control::offline_disks(settings, &group, names)?
    } else if let Some(names) = &request.online {
        spindle_control::online_disks(settings, &group, names)?
    } else {
        let disks = request.disks.clone().unwrap_or_default();
        spindle_control::change_disks(settings, &group, &disks)?
    };
    print_changes(&report, asked.output)
}

pub fn run_on_failure_groups(settings: &Settings, command: &FailureGroupCommand) -> Result<u8> {
    let (group, names, change, preview, output) = match command {
        FailureGroupCommand::Drop {
            group,
            names,
            force,
            preview,
            output,
        } => {
            let change = FailureGroupChange::Drop { force: *force };
            (group, names, change, preview, output)
        }
        FailureGroupCommand::Undrop {
            group,
            names,
            preview,
            output,
        } => (group, names, FailureGroupChange::Undrop, preview, output),
        FailureGroupCommand::Resize {
            group,
            names,
            size,
            preview,
            output,
        } => {
            let change = FailureGroupChange::Resize { size_bytes: *size };
            (group, names, change, preview, output)
        }
        FailureGroupCommand::Offline {
            group,
            names,
            preview,
            output,
        } => (group, names, FailureGroupChange::Offline, preview, output),
        FailureGroupCommand::Online {
            group,
            names,
            preview,
            output,
        } => (group, names, FailureGroupChange::Online, preview, output),
    };
    let request = spindle_control::of_failure_groups(settings, &name_of(group)?, names, change)?;
    let asked = Asked {
        group,
        request,
        preview: *preview,
        output: *output,
    };
    answer(settings, &asked)
}

/// Makes the change of `spindle disk add`, and the partitions before where it wants some.
fn add_disks(settings: &Settings, add: &AddArguments) -> Result<u8> {
    let mut request = request_to_add(add)?;
    let made = match add.partition {
        true => partition_added(settings, add, &mut request)?,
        false => Vec::new(),
    };
    let asked = Asked {
        group: &add.group,
        request: of_disks(request),
        preview: add.preview,
        output: add.output,
    };
    let answered = answer(settings, &asked);
    drop(made);
    answered
}

fn request_to_add(add: &AddArguments) -> Result<DiskChangesRequest> {
    let mut disks: Vec<NewDiskRequest> = Vec::new();
    for path in &add.disk {
        disks.push(NewDiskRequest {
            path: path.clone(),
            ..NewDiskRequest::default()
        });
    }
    for file_disk in &add.file_disk {
        disks.push(NewDiskRequest {
            path: file_disk.path.clone(),
            make_bytes: Some(file_disk.size_bytes),
            ..NewDiskRequest::default()
        });
    }
    for text in &add.failure_groups {
        let group = WantedDisk::parse_failure_group(text)?;
        disks.extend(group.iter().map(NewDiskRequest::from));
    }
    if disks.is_empty() {
        return Err(ControlError::invalid(
            "no disk is given: add --disk PATH, --failgroup NAME=PATH,PATH or --file-disk PATH:SIZE",
        )
        .into());
    }
    if let Some(name) = &add.name {
        let [only] = disks.as_mut_slice() else {
            return Err(ControlError::invalid(
                "--name names one disk, and several are added; name them with `spindle disk rename`",
            )
            .into());
        };
        only.name = Some(name.clone());
    }
    Ok(DiskChangesRequest {
        add: disks,
        overwrite: add.force,
        drop: add.drop.clone(),
        force: add.force_drop,
        ..DiskChangesRequest::default()
    })
}

/// A disk that is there, or PATH:SIZE to be made.
fn new_disk(text: &OsStr) -> Result<NewDiskRequest> {
    let (path, make_bytes) = WantedDisk::parse_path(text)?;
    Ok(NewDiskRequest {
        path,
        make_bytes,
        ..NewDiskRequest::default()
    })
}

fn print_changes(report: &DiskChangesReport, output: Output) -> Result<u8> {
    if output.json {
        print_json(report)?;
        return Ok(0);
    }
    if !report.disks.is_empty() {
        disk_table(&report.disks).print()?;
    }
    for number in &report.forgotten {
        say!("disk {number} held nothing and has left the group");
    }
    if let Some(note) = &report.note {
        say!("\n{}: {note}", report.group);
    } else if report.disks.is_empty() && report.forgotten.is_empty() {
        say!("{}: nothing has changed", report.group);
    }
    Ok(0)
}

fn scan(settings: &Settings, output: Output) -> Result<u8> {
    let report = spindle_control::scan(settings)?;
    if output.json {
        print_json(&report)?;
        return Ok(0);
    }
    if report.disks.is_empty() {
        say!(
            "no disk was found on the search path: {}",
            report.search_path
        );
        return Ok(0);
    }
    let mut table = Table::new(&[
        "Path",
        ">Size",
        "Status",
        "Group",
        "Disk",
        "Failgroup",
        "In_use",
        "Found",
    ]);
    let dash = || "-".to_owned();
    for disk in report.disks {
        table.row([
            disk.path,
            disk.size_bytes.map_or_else(dash, size),
            disk.status.to_string(),
            disk.group.unwrap_or_else(dash),
            disk.name.unwrap_or_else(dash),
            disk.failure_group.unwrap_or_else(dash),
            if disk.in_use { "yes" } else { "no" }.to_owned(),
            disk.found,
        ]);
    }
    table.print()?;
    Ok(0)
}
