//! `spindle file set`, `spindle group convert` and `spindle template set`.

use anyhow::Result;
use spindle_base::Redundancy;
use spindle_control::{ControlError, ConversionReport, Location, Settings};

use super::group::{is_sure, name_of, print_templates};
use super::print_json;
use crate::arguments::{FileCommand, Output};
use crate::line::say;

pub fn set_file(settings: &Settings, command: &FileCommand) -> Result<u8> {
    let FileCommand::Set {
        path,
        redundancy,
        recursive,
        output,
    } = command;
    let (group, path) = Location::in_group(path)?;
    let report =
        spindle_control::set_file_redundancy(settings, &group, &path, *redundancy, *recursive)?;
    print(&report, "change", *output)
}

pub fn convert_group(
    settings: &Settings,
    group: &str,
    redundancy: Redundancy,
    dry_run: bool,
    yes: bool,
    output: Output,
) -> Result<u8> {
    let group = name_of(group)?;
    if dry_run {
        let report = spindle_control::estimate_conversion(settings, &group, redundancy)?;
        return print(&report, "would change", output);
    }
    if !yes {
        let report = spindle_control::estimate_conversion(settings, &group, redundancy)?;
        if let Some(cost) = report.cost {
            let what = format!("{group} gives up copies, and {cost}");
            if !is_sure(&group, &what, &format!("{what}."))? {
                return Err(ControlError::invalid(format!("{group} was not converted")).into());
            }
        }
    }
    let report = spindle_control::convert_group(settings, &group, redundancy)?;
    print(&report, "change", output)
}

pub fn set_template(
    settings: &Settings,
    group: &str,
    name: &str,
    redundancy: Option<Redundancy>,
    output: Output,
) -> Result<u8> {
    let group = name_of(group)?;
    let templates = spindle_control::set_template_redundancy(settings, &group, name, redundancy)?;
    print_templates(templates, output)
}

/// `change` is "change" or "would change", as of more files than one.
fn print(report: &ConversionReport, change: &str, output: Output) -> Result<u8> {
    if output.json {
        print_json(report)?;
        return Ok(0);
    }
    match report.files_count {
        0 => say!("no file has to change"),
        1 if change == "change" => say!("1 file changes to {} redundancy", report.redundancy),
        1 => say!("1 file {change} to {} redundancy", report.redundancy),
        count => say!("{count} files {change} to {} redundancy", report.redundancy),
    }
    if let Some(cost) = &report.cost {
        say!("{}: {cost}", report.group);
    }
    if let Some(note) = &report.note {
        say!("{}: {note}", report.group);
    }
    Ok(0)
}
