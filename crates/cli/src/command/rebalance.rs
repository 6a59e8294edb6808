//! `spindle rebalance` and `spindle operations`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{EstimateRequest, OperationReport, OperationsReport, Settings};

use super::estimate::print_estimate;
use super::print_json;
use crate::arguments::{OperationsArguments, RebalanceArguments};
use crate::line::say;
use crate::table::{Table, clock, size};

/// How often what is waited for or watched is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Cells of a progress bar.
const BAR_CELLS: u64 = 30;

pub fn rebalance(settings: &Settings, arguments: &RebalanceArguments) -> Result<u8> {
    let group = GroupName::new(&arguments.group)?;
    if arguments.estimate {
        let request = EstimateRequest::default();
        let report = spindle_control::estimate(settings, &group, &request)?;
        return print_estimate(&report, arguments.output);
    }
    let mut report = match (arguments.power, arguments.default) {
        (Some(power), true) => spindle_control::set_default_power(settings, &group, power)?,
        (power, _) => spindle_control::rebalance_group(settings, &group, power)?,
    };
    if arguments.wait {
        report = wait(settings, &group, report)?;
    }
    let is_stuck = report.operations.iter().any(|line| line.error.is_some());
    if arguments.output.json {
        print_json(&report)?;
    } else {
        print(&[report])?;
    }
    Ok(u8::from(arguments.wait && is_stuck))
}

pub fn operations(settings: &Settings, arguments: &OperationsArguments) -> Result<u8> {
    let group = arguments.group.as_ref().map(GroupName::new).transpose()?;
    loop {
        let reports = spindle_control::list_operations(settings, group.as_ref())?;
        let is_screen = arguments.watch && std::io::stdout().is_terminal();
        if is_screen {
            write!(std::io::stdout(), "\x1b[H\x1b[2J")?;
        }
        if arguments.output.json {
            print_json(&reports)?;
        } else {
            print(&reports)?;
        }
        let is_over = reports.iter().all(OperationsReport::is_ended);
        if !arguments.watch || is_over {
            return Ok(0);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn wait(
    settings: &Settings,
    group: &GroupName,
    first: OperationsReport,
) -> Result<OperationsReport> {
    let mut report = first;
    let is_watched = std::io::stderr().is_terminal();
    while !report.is_copied() {
        if is_watched && let Some(line) = report.operations.first() {
            let mut out = std::io::stderr().lock();
            write!(out, "\r\x1b[K{}", progress(line))?;
            out.flush()?;
        }
        std::thread::sleep(LOOK_INTERVAL);
        let reports = spindle_control::list_operations(settings, Some(group))?;
        report = reports.into_iter().next().unwrap_or(report);
    }
    if is_watched {
        write!(std::io::stderr(), "\r\x1b[K")?;
    }
    Ok(report)
}

fn progress(line: &OperationReport) -> String {
    let whole = line.done_bytes + line.left_bytes;
    let part = |of: u64| {
        u64::try_from(u128::from(line.done_bytes) * u128::from(of) / u128::from(whole.max(1)))
            .unwrap_or(of)
    };
    let cells: String = (0..BAR_CELLS)
        .map(|cell| if cell < part(BAR_CELLS) { '#' } else { '.' })
        .collect();
    format!(
        "{} [{cells}] {}% of {}, {}/s, {}",
        line.pass,
        part(100),
        size(whole),
        size(line.rate_bytes_per_s),
        time_left(line)
    )
}

fn time_left(line: &OperationReport) -> String {
    line.left_s.map_or_else(|| "-".to_owned(), clock)
}

fn print(reports: &[OperationsReport]) -> Result<()> {
    let lines: Vec<&OperationReport> = reports.iter().flat_map(|r| &r.operations).collect();
    if lines.is_empty() {
        say!("nothing to do");
        return Ok(());
    }
    let mut table = Table::new(&[
        "group",
        "pass",
        "state",
        "power",
        "done",
        "left",
        "rate",
        "time left",
    ]);
    for line in &lines {
        table.row([
            line.group.clone(),
            line.pass.clone(),
            line.state.clone(),
            line.power.to_string(),
            size(line.done_bytes),
            size(line.left_bytes),
            format!("{}/s", size(line.rate_bytes_per_s)),
            time_left(line),
        ]);
    }
    table.print()?;
    for error in lines.iter().filter_map(|line| line.error.as_ref()) {
        say!("{error}");
    }
    Ok(())
}
