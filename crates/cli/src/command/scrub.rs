//! `spindle scrub`.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{Location, ScrubReport, ScrubRequest, Settings};

use super::print_json;
use crate::arguments::ScrubArguments;
use crate::line::say;
use crate::table::size;

/// How often a scrub that is waited for is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

pub fn run(settings: &Settings, arguments: &ScrubArguments) -> Result<u8> {
    let (group, path) = Location::in_group(&arguments.target)?;
    let report = if arguments.stop {
        spindle_control::stop_scrub(settings, &group)?
    } else if arguments.status {
        spindle_control::show_scrub(settings, &group)?
    } else {
        begin(settings, &group, &path, arguments)?
    };
    let report = if arguments.wait {
        wait(settings, &group, report)?
    } else {
        report
    };
    let remaining_count = report.findings_count - report.repaired_count;
    let code = u8::from(report.is_ended() && remaining_count > 0);
    if arguments.output.json {
        print_json(&report)?;
        return Ok(code);
    }
    print(&report);
    Ok(code)
}

/// A scrub that runs is given another power where nothing else is asked for.
fn begin(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
    arguments: &ScrubArguments,
) -> Result<ScrubReport> {
    let is_whole = path == Path::new("/") && arguments.disk.is_empty() && !arguments.repair;
    if let Some(power) = arguments.power
        && is_whole
        && spindle_control::show_scrub(settings, group).is_ok_and(|scrub| !scrub.is_ended())
    {
        return Ok(spindle_control::set_scrub_power(settings, group, power)?);
    }
    let request = ScrubRequest {
        path: (path != Path::new("/")).then(|| path.to_owned()),
        disks: arguments.disk.clone(),
        repair: arguments.repair,
        power: arguments.power,
    };
    Ok(spindle_control::start_scrub(settings, group, &request)?)
}

fn wait(settings: &Settings, group: &GroupName, first: ScrubReport) -> Result<ScrubReport> {
    let mut report = first;
    let is_watched = std::io::stderr().is_terminal();
    while !report.is_ended() {
        if is_watched {
            let mut out = std::io::stderr().lock();
            write!(out, "\r\x1b[K{}", progress(&report))?;
            out.flush()?;
        }
        std::thread::sleep(LOOK_INTERVAL);
        report = spindle_control::show_scrub(settings, group)?;
    }
    if is_watched {
        write!(std::io::stderr(), "\r\x1b[K")?;
    }
    Ok(report)
}

fn progress(report: &ScrubReport) -> String {
    let percent = match report.total_bytes {
        0 => 100,
        total => u128::from(report.done_bytes) * 100 / u128::from(total),
    };
    format!(
        "scrub of {}: {}, {percent}% of {}, {} findings, power {}",
        report.title,
        report.state.replace('_', " "),
        size(report.total_bytes),
        report.findings_count,
        report.power
    )
}

fn print(report: &ScrubReport) {
    for finding in &report.findings {
        say!("{}", finding.message);
    }
    let left_out = report
        .findings_count
        .saturating_sub(report.findings.len() as u64);
    if left_out > 0 {
        say!("and {left_out} more, which `spindle events` shows");
    }
    say!("{}", progress(report));
    if report.is_ended() {
        say!(
            "{} read, {} pages judged, {} of {} findings repaired",
            size(report.read_bytes),
            report.judged_pages_count,
            report.repaired_count,
            report.findings_count
        );
    }
}
