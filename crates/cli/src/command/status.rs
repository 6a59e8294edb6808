//! `spindle status`: each group on a page.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::view::GroupReport;
use spindle_control::{ControlError, Settings, StatusReport, show_status};

use super::group::name_of;
use super::print_json;
use super::scrub::progress;
use super::top::screen::{Line, Screen};
use super::top::terminal::{Key, Terminal};
use crate::arguments::{StatusArguments, TopOrder};
use crate::line::say;

/// Columns of what is no terminal.
const PLAIN_COLUMNS: usize = 80;
/// Users that are named; a database has a process for each connection.
const USERS_MOST: usize = 3;

pub fn run(settings: &Settings, arguments: &StatusArguments) -> Result<u8> {
    let interval_s = arguments.interval;
    if !(0.1..=86_400.0).contains(&interval_s) {
        let message = format!("invalid interval {interval_s} s: choose from 0.1 s to a day");
        return Err(ControlError::invalid(message).into());
    }
    let name = arguments.group.as_deref().map(name_of).transpose()?;
    if arguments.watch && std::io::stdout().is_terminal() {
        return watch(settings, name.as_ref(), Duration::from_secs_f64(interval_s));
    }
    loop {
        let reports = show_status(settings, name.as_ref())?;
        if arguments.output.json {
            print_json(&reports)?;
        } else {
            for line in pages(&reports, PLAIN_COLUMNS) {
                say!("{}", line.text);
            }
        }
        if !arguments.watch {
            return Ok(0);
        }
        say!("");
        std::thread::sleep(Duration::from_secs_f64(interval_s));
    }
}

/// In place, until somebody ends it.
fn watch(settings: &Settings, name: Option<&GroupName>, interval: Duration) -> Result<u8> {
    // What is not there is told before the screen is another one.
    let mut reports = show_status(settings, name)?;
    let terminal = Terminal::take()?;
    let mut trouble: Option<String> = None;
    loop {
        let (columns, rows) = terminal.size();
        let screen = screen_of(columns);
        let mut lines = pages(&reports, columns);
        lines.truncate(rows.saturating_sub(2));
        if let Some(trouble) = &trouble {
            lines.push(Line::loud(screen.cut(trouble)));
        }
        let foot = format!("q quit   every {} s", interval.as_secs_f64());
        lines.push(Line::plain(screen.cut(&foot)));
        terminal.draw(&lines)?;
        if terminal.wait(interval)?.contains(&Key::Quit) {
            return Ok(0);
        }
        // What was last known stays, with what is wrong below it.
        trouble = match show_status(settings, name) {
            Ok(now) => {
                reports = now;
                None
            }
            Err(error) => Some(error.message()),
        };
    }
}

/// The lines are those of `spindle top`; the order concerns disks and files, which a page has not.
fn screen_of(columns: usize) -> Screen {
    Screen::plain(columns, TopOrder::Bytes)
}

fn pages(reports: &[StatusReport], columns: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for report in reports {
        if !lines.is_empty() {
            lines.push(Line::plain(String::new()));
        }
        lines.extend(page(report, columns));
    }
    lines
}

fn page(report: &StatusReport, columns: usize) -> Vec<Line> {
    let screen = screen_of(columns);
    let group = &report.group;
    let mut lines = screen.head(group, &report.health, "");
    let mut tell = |text: &str| lines.push(Line::plain(screen.cut(text)));
    if let Some(who) = served_by(group) {
        tell(&who);
    }
    for user in report.users.iter().take(USERS_MOST) {
        tell(&format!(
            "used by {} (process {}, {})",
            user.name, user.process_id, user.how
        ));
    }
    if report.users.len() > USERS_MOST {
        let left = report.users.len() - USERS_MOST;
        tell(&format!("... and {left} more processes"));
    }
    if let Some(scrub) = &report.scrub {
        tell(&progress(scrub));
    }
    lines.extend(screen.operations(&report.operations));
    lines.extend(report.events.iter().map(|event| screen.event(event)));
    lines
}

/// The process that serves the group, where it is mounted, and who goes on when that dies.
fn served_by(group: &GroupReport) -> Option<String> {
    let process_id = group.process_id?;
    let mut text = format!("served by process {process_id}");
    if let Some(keeper) = group.keeper_process_id {
        text.push_str(&format!(", kept by {keeper}"));
    }
    for mount in &group.mounts {
        text.push_str(&format!(", on {}", mount.directory));
    }
    Some(text)
}
