//! `spindle group`, `spindle template` and `spindle fault`.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::view::{DiskReport, GroupReport, TemplateReport};
use spindle_control::{ControlError, Settings, WantedDisk, WantedGroup};

use super::{conversion, disk, print_json, serve};
use crate::arguments::{CheckArguments, CreateArguments, FaultCommand, GroupCommand, Output};
use crate::line::say;
use crate::table::{Table, duration, signed_size, size};

pub fn run(settings: &Settings, command: &GroupCommand) -> Result<u8> {
    match command {
        GroupCommand::Create(create) => make(settings, create),
        GroupCommand::List { output } => list(settings, *output),
        GroupCommand::Show { group, output } => show(settings, group, *output),
        GroupCommand::Mount {
            group,
            serve,
            output,
        } => serve::group_mount(settings, group, serve, *output),
        GroupCommand::Dismount { group, output } => serve::dismount(settings, group, *output),
        GroupCommand::Check(arguments) => check(settings, arguments),
        GroupCommand::Set {
            group,
            changes,
            output,
        } => set(settings, group, changes, *output),
        GroupCommand::Convert {
            group,
            redundancy,
            dry_run,
            yes,
            output,
        } => conversion::convert_group(settings, group, *redundancy, *dry_run, *yes, *output),
        GroupCommand::Upgrade {
            group,
            dry_run,
            output,
        } => upgrade(settings, group, *dry_run, *output),
        GroupCommand::Destroy { group, yes } => destroy(settings, group, *yes),
        GroupCommand::Rename { group, name } => {
            let (old, new) = (name_of(group)?, name_of(name)?);
            spindle_control::rename_group(settings, &old, &new)?;
            say!("{old} is called {new} now");
            Ok(0)
        }
    }
}

fn upgrade(settings: &Settings, group: &str, dry_run: bool, output: Output) -> Result<u8> {
    let report = spindle_control::group_features(settings, &name_of(group)?)?;
    if output.json {
        print_json(&report)?;
        return Ok(0);
    }
    let mut table = Table::new(&["Feature", "Set", "Set when"]);
    for feature in report.features {
        let set = if feature.in_use { "yes" } else { "no" };
        table.row([feature.name, set.to_owned(), feature.set_when]);
    }
    say!("{}", table.lines().trim_end());
    if !dry_run {
        say!("nothing to do: a feature is set when it is first used");
    }
    Ok(0)
}

/// A group's name; what is none is the caller's mistake.
pub fn name_of(text: &str) -> Result<GroupName> {
    Ok(GroupName::new(text).map_err(ControlError::from)?)
}

fn make(settings: &Settings, create: &CreateArguments) -> Result<u8> {
    let mut disks = Vec::new();
    for path in &create.disk {
        disks.push(WantedDisk {
            path: path.clone(),
            make_bytes: None,
            failure_group: None,
        });
    }
    for file_disk in &create.file_disk {
        disks.push(WantedDisk {
            path: file_disk.path.clone(),
            make_bytes: Some(file_disk.size_bytes),
            failure_group: None,
        });
    }
    for text in &create.failure_groups {
        disks.extend(WantedDisk::parse_failure_group(text)?);
    }
    let mut wanted = WantedGroup {
        name: name_of(&create.name)?,
        disks,
        redundancy: create.redundancy,
        au_size: create.au_size,
        profile: create.profile.name().to_owned(),
        force: create.force,
    };
    // Kept until they have joined.
    let mut partitions = Vec::new();
    if create.partition {
        let disks = wanted.disks.iter();
        let disks = disks.map(|disk| (disk.path.as_path(), disk.make_bytes));
        disk::check_partitions(settings, disks, create.force, wanted.au_size)?;
        // What stands there was judged: the rest is asked for as if it did not.
        let over_all = WantedGroup {
            force: true,
            ..wanted.clone()
        };
        spindle_control::check_new_group(settings, &over_all)?;
        let whole = wanted.disks.iter_mut();
        let whole = whole.filter(|disk| disk.make_bytes.is_none());
        let paths = whole.map(|disk| &mut disk.path);
        partitions = disk::make_partitions(settings, paths, create.force, wanted.au_size)?;
    }
    let report = spindle_control::create_group(settings, &wanted)?;
    drop(partitions);
    if create.output.json {
        print_json(&report)?;
    } else {
        print_group(&report)?;
        say!("\nopen it: spindle mount {} DIR", report.name);
    }
    Ok(0)
}

fn list(settings: &Settings, output: Output) -> Result<u8> {
    let reports = spindle_control::list_groups(settings)?;
    if output.json {
        print_json(&reports)?;
        return Ok(0);
    }
    if reports.is_empty() {
        say!(
            "no group is open, and none was found on the search path: {}",
            settings.search_path()
        );
        return Ok(0);
    }
    let mut table = group_table();
    reports
        .iter()
        .for_each(|report| add_group(&mut table, report));
    table.print()?;
    for report in &reports {
        print_note(report);
    }
    Ok(0)
}

fn show(settings: &Settings, group: &str, output: Output) -> Result<u8> {
    let report = spindle_control::show_group(settings, group)?;
    if output.json {
        print_json(&report)?;
    } else {
        print_group(&report)?;
    }
    Ok(0)
}

fn print_group(report: &GroupReport) -> Result<()> {
    let mut table = group_table();
    add_group(&mut table, report);
    table.print()?;
    say!("");
    disk_table(&report.disks).print()?;
    for mount in &report.mounts {
        let how = if mount.direct { ", direct" } else { "" };
        say!("\nmounted on {}{how}", mount.directory);
    }
    print_note(report);
    Ok(())
}

fn print_note(report: &GroupReport) {
    if let Some(finding) = spindle_control::stopped_finding(report) {
        say!(
            "\n{}: {}: {}; {}",
            report.name,
            finding.severity,
            finding.text,
            finding.advice
        );
    }
    if let Some(finding) = spindle_control::space_finding(report) {
        say!(
            "\n{}: {}: {}; {}",
            report.name,
            finding.severity,
            finding.text,
            finding.advice
        );
    }
    if let Some(note) = &report.note {
        say!("\n{}: {note}", report.name);
    }
}

/// The columns of ASM's lsdg, without the rebalance that is not there yet.
fn group_table() -> Table {
    Table::new(&[
        "State",
        "Type",
        ">Sector",
        ">Block",
        ">AU",
        ">Total",
        ">Free",
        ">Req_mir_free",
        ">Usable",
        ">Offline_disks",
        "Name",
    ])
}

fn add_group(table: &mut Table, report: &GroupReport) {
    // What is in use and takes no writes any more is not what "mounted" promises.
    let state = match report.fenced {
        Some(_) => "stopped".to_owned(),
        None => report.state.to_string(),
    };
    table.row([
        state,
        report.redundancy.to_string(),
        report.sector_size_bytes.to_string(),
        report.block_size_bytes.to_string(),
        size(report.au_size_bytes),
        size(report.total_bytes),
        size(report.free_bytes),
        size(report.required_mirror_free_bytes),
        signed_size(report.usable_bytes),
        report.offline_disks_count.to_string(),
        report.name.clone(),
    ]);
}

/// The columns of ASM's lsdsk that say something here.
pub fn disk_table(disks: &[DiskReport]) -> Table {
    let mut table = Table::new(&[
        ">Disk",
        "Name",
        "Failgroup",
        ">Total",
        ">Free",
        "Mode",
        "State",
        "Path",
    ]);
    for disk in disks {
        table.row([
            disk.number.to_string(),
            disk.name.clone(),
            disk.failure_group.clone(),
            size(disk.total_bytes),
            size(disk.free_bytes),
            mode_of(disk),
            disk.state.clone(),
            path_of(disk),
        ]);
    }
    table
}

/// The path by which a disk was opened, with what became of it: the disk itself serves on.
fn path_of(disk: &DiskReport) -> String {
    match (&disk.path, &disk.path_lost) {
        (Some(path), Some(what)) => format!("{path} ({what})"),
        (Some(path), None) => path.clone(),
        (None, _) => "-".to_owned(),
    }
}

fn mode_of(disk: &DiskReport) -> String {
    let slow = if disk.slow { ", slow" } else { "" };
    format!("{}{slow}", disk.mode)
}

pub fn check(settings: &Settings, arguments: &CheckArguments) -> Result<u8> {
    let name = name_of(&arguments.group)?;
    let report = spindle_control::check_group(settings, &name, arguments.repair)?;
    let code = u8::from(!report.contradictions.is_empty());
    if arguments.output.json {
        print_json(&report)?;
        return Ok(code);
    }
    for event in &report.events {
        say!("noticed: {event}");
    }
    for line in &report.repaired {
        say!("put right: {line}");
    }
    for contradiction in &report.contradictions {
        say!("contradiction: {contradiction}");
    }
    match report.contradictions.len() {
        0 => say!("{}: maps, space, records and names agree", report.group),
        count => say!("{}: {count} contradictions", report.group),
    }
    Ok(code)
}

/// Every word is looked at before anything is changed.
fn set(settings: &Settings, group: &str, changes: &[String], output: Output) -> Result<u8> {
    let name = name_of(group)?;
    let pairs = changes
        .iter()
        .map(|change| {
            change.split_once('=').ok_or_else(|| {
                ControlError::invalid(format!(
                    "{change:?} changes nothing: write NAME=VALUE, such as scrub_interval=7d"
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut report = spindle_control::show_settings(settings, &name)?;
    for (setting, value) in pairs {
        report = spindle_control::change_setting(settings, &name, setting, value)?;
    }
    if output.json {
        print_json(&report)?;
        return Ok(0);
    }
    match report.scrub_interval_s {
        Some(seconds) => say!("scrub_interval  {}", duration(seconds)),
        None => say!("scrub_interval  off"),
    }
    say!("disk_repair_time  {}", duration(report.disk_repair_time_s));
    say!(
        "failgroup_repair_time  {}",
        duration(report.failgroup_repair_time_s)
    );
    say!("watchdog  {}", duration(report.watchdog_s));
    Ok(0)
}

/// Whether somebody types the group's name; refused where nobody can be asked.
pub fn is_sure(name: &GroupName, refusal: &str, question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{refusal}: give --yes to do it without being asked");
        return Err(ControlError::invalid(message).into());
    }
    // Not into what a program reads.
    eprint!("{question} Type its name to go on: ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == name.as_str())
}

fn destroy(settings: &Settings, group: &str, yes: bool) -> Result<u8> {
    let name = name_of(group)?;
    if !yes {
        let refusal = format!("destroying {name} loses its files");
        let question = format!("All files of {name} will be lost.");
        if !is_sure(&name, &refusal, &question)? {
            return Err(ControlError::invalid(format!("{name} was not destroyed")).into());
        }
    }
    let destroyed =
        spindle_control::destroy_group(settings, &name, &|text| eprintln!("spindle: {text}"))?;
    say!(
        "{name} is destroyed; free for other use: {}",
        destroyed.disks.join(", ")
    );
    if !destroyed.missing.is_empty() {
        let numbers: Vec<String> = destroyed.missing.iter().map(u16::to_string).collect();
        say!(
            "not found, and still labelled as disks of {name}: disks {}; where they come back they are taken for another group with --force only",
            numbers.join(", ")
        );
    }
    Ok(0)
}

pub fn templates(settings: &Settings, group: &str, output: Output) -> Result<u8> {
    let templates = spindle_control::list_templates(settings, &name_of(group)?)?;
    print_templates(templates, output)
}

pub fn print_templates(templates: Vec<TemplateReport>, output: Output) -> Result<u8> {
    if output.json {
        print_json(&templates)?;
        return Ok(0);
    }
    let mut table = Table::new(&["Name", "Redundancy", "Striping", "Caching", "Files"]);
    for template in templates {
        table.row([
            template.name,
            template.redundancy,
            template.striping.to_string(),
            template.caching,
            template.pattern,
        ]);
    }
    table.print()?;
    Ok(0)
}

pub fn fault(settings: &Settings, command: &FaultCommand) -> Result<u8> {
    let (group, disk, pulled) = match command {
        FaultCommand::Pull { group, disk } => (group, disk, true),
        FaultCommand::Plug { group, disk } => (group, disk, false),
    };
    let found = spindle_control::set_fault(settings, group, disk, pulled)?;
    let what = if pulled {
        "fails every request now"
    } else {
        "answers again"
    };
    say!("disk {} of {group} {what}", found.name);
    Ok(0)
}

/// The arguments of this process, for the daemon that it starts.
pub fn own_arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(1)
}
