//! `spindle file set`, `spindle group convert` and `spindle template set`.

use anyhow::Result;
use spindle_base::Redundancy;
use spindle_control::{ConversionReport, Location, Settings};

use super::group::{name_of, print_templates};
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
    print(&report, *output)
}

pub fn convert_group(
    settings: &Settings,
    group: &str,
    redundancy: Redundancy,
    output: Output,
) -> Result<u8> {
    let report = spindle_control::convert_group(settings, &name_of(group)?, redundancy)?;
    print(&report, output)
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

fn print(report: &ConversionReport, output: Output) -> Result<u8> {
    if output.json {
        print_json(report)?;
        return Ok(0);
    }
    match report.files_count {
        0 => say!("no file has to change"),
        1 => say!("1 file changes to {} redundancy", report.redundancy),
        count => say!("{count} files change to {} redundancy", report.redundancy),
    }
    if let Some(note) = &report.note {
        say!("{}: {note}", report.group);
    }
    Ok(0)
}
