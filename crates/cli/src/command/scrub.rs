//! `spindle scrub`.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{ControlError, Location, ScrubReport, ScrubRequest, Settings};

use super::print_json;
use crate::arguments::ScrubArguments;
use crate::line::say;
use crate::table::size;

/// Places that a person is shown.
const LEFT_OUT_SHOWN: usize = 20;
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
    let code = u8::from(report.is_ended() && !report.is_all_well());
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
    let is_whole = path == Path::new("/")
        && arguments.disk.is_empty()
        && arguments.distrust.is_none()
        && !arguments.repair;
    if let Some(power) = arguments.power
        && is_whole
        && spindle_control::show_scrub(settings, group).is_ok_and(|scrub| !scrub.is_ended())
    {
        return Ok(spindle_control::set_scrub_power(settings, group, power)?);
    }
    if let Some(disk) = &arguments.distrust
        && arguments.repair
        && !arguments.yes
    {
        confirm(group, disk)?;
    }
    let request = ScrubRequest {
        path: (path != Path::new("/")).then(|| path.to_owned()),
        disks: arguments.disk.clone(),
        repair: arguments.repair,
        power: arguments.power,
        distrust: arguments.distrust.clone(),
    };
    Ok(spindle_control::start_scrub(settings, group, &request)?)
}

/// What a disk holds is about to be overwritten because somebody says that it is wrong.
fn confirm(group: &GroupName, disk: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(ControlError::invalid(format!(
            "--distrust {disk} --repair overwrites what {disk} holds wherever another copy differs \
             and nothing proves which is right: look first without --repair, then give --yes to do \
             it without being asked"
        ))
        .into());
    }
    print!(
        "Where copies of {group} differ and nothing proves which is right, those on {disk} are \
         overwritten. Type the disk's name to go on: "
    );
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case(disk) {
        return Err(ControlError::invalid(format!("nothing was written to {disk}")).into());
    }
    Ok(())
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

/// How far it is, or how it ended.
pub(super) fn progress(report: &ScrubReport) -> String {
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
    print_left_out(report);
}

fn print_left_out(report: &ScrubReport) {
    if report.left_out_bytes == 0 {
        return;
    }
    for one in report.left_out.iter().take(LEFT_OUT_SHOWN) {
        let why = match one.reason.as_str() {
            "offline" => "is offline",
            _ => "missed writes there and has not been given them again yet",
        };
        say!(
            "left out: {} bytes at {} of {}: the copy on {}, which {why}",
            one.length_bytes,
            one.offset_bytes,
            one.path,
            one.disk
        );
    }
    let more = report.left_out.len().saturating_sub(LEFT_OUT_SHOWN);
    if more > 0 {
        say!("and {more} more places, which --json lists");
    }
    let when = if report.is_ended() {
        "scrub again when the disks have everything"
    } else {
        "it is come back to"
    };
    say!(
        "of {} a copy was not looked at: {when}",
        size(report.left_out_bytes)
    );
}
