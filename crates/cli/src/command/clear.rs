//! `spindle clear`: findings that a person has dealt with are told no more.

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{ClearReport, ControlError, Settings, check_health};

use super::group::name_of;
use super::print_json;
use crate::arguments::ClearArguments;
use crate::line::say;

pub fn run(settings: &Settings, arguments: &ClearArguments) -> Result<u8> {
    let groups = match &arguments.group {
        Some(name) => vec![name_of(name)?],
        None => all_groups(settings)?,
    };
    if !arguments.all && arguments.findings.is_empty() {
        return Err(unnamed(settings, &groups).into());
    }
    let mut reports = Vec::new();
    for group in &groups {
        let findings = &arguments.findings;
        let report = spindle_control::clear_findings(settings, group, findings, arguments.dry_run)?;
        reports.push(report);
    }
    if arguments.output.json {
        print_json(&reports)?;
        return Ok(0);
    }
    for report in &reports {
        print(report, arguments);
    }
    Ok(0)
}

fn all_groups(settings: &Settings) -> Result<Vec<GroupName>> {
    let reports = check_health(settings, None)?;
    let names = reports.iter().map(|report| name_of(&report.group));
    names.collect()
}

/// Who names no finding is told which there are.
fn unnamed(settings: &Settings, groups: &[GroupName]) -> ControlError {
    let reports = match check_health(settings, groups.first()) {
        Ok(reports) => reports,
        Err(error) => return error,
    };
    let findings = reports.iter().flat_map(|report| &report.findings);
    let clearable = findings.filter(|finding| finding.can_be_cleared);
    let names: Vec<String> = clearable.map(|finding| finding.name()).collect();
    let which = match names.is_empty() {
        true => "nothing is there that can be".to_owned(),
        false => format!("those that can be: {}", names.join(", ")),
    };
    ControlError::invalid(format!(
        "name the findings to clear, or say --all for everything that is over; {which}"
    ))
}

fn print(report: &ClearReport, arguments: &ClearArguments) {
    let group = &report.group;
    let done = match arguments.dry_run {
        true => "would be cleared",
        false => "cleared",
    };
    if report.cleared.is_empty() {
        say!("{group}: nothing to clear");
    }
    for finding in &report.cleared {
        say!("{group}: {done}: {}: {}", finding.name(), finding.text);
    }
    for finding in &report.left {
        let why = match finding.can_be_cleared {
            true => "left",
            false => "still holds",
        };
        say!("{group}: {why}: {}: {}", finding.name(), finding.text);
    }
}
