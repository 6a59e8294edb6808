//! `spindle status`: each group on a page.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::view::GroupReport;
use spindle_control::{
    ForecastReport, ForecastState, LastScrubReport, Settings, StatusReport, show_status,
};

use super::group::name_of;
use super::print_json;
use super::scrub::progress;
use crate::arguments::StatusArguments;
use crate::line::say;
use crate::screen::{Line, Screen};
use crate::table::{local_time, size};
use crate::terminal::{Key, Terminal};

/// Columns of what is no terminal.
const PLAIN_COLUMNS: usize = 80;
/// Users that are named; a database has a process for each connection.
const USERS_MOST: usize = 3;

pub fn run(settings: &Settings, arguments: &StatusArguments) -> Result<u8> {
    let interval_s = arguments.interval;
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
        let screen = Screen::endless(columns);
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
    let screen = Screen::endless(columns);
    let group = &report.group;
    let mut lines = screen.head(group, &report.health, "");
    let mut tell = |text: &str| lines.push(Line::plain(screen.cut(text)));
    if let Some(forecast) = report.forecast.as_ref().and_then(filling) {
        tell(&forecast);
    }
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
    if let Some(last) = &report.last_scrub {
        tell(&of_last_scrub(last));
    }
    lines.extend(screen.operations(&report.operations));
    lines.extend(report.events.iter().map(|event| screen.event(event)));
    lines
}

/// When the last scrub of the whole group ended, whichever process ran it.
fn of_last_scrub(last: &LastScrubReport) -> String {
    let ended = local_time(i64::try_from(last.ended_s).unwrap_or(i64::MAX));
    let left_out = match last.left_out_bytes {
        0 => String::new(),
        bytes => format!(", {} left out", size(bytes)),
    };
    format!("last complete scrub ended {ended}{left_out}")
}

/// When the group will be full; `None` where it is, which its health says.
fn filling(forecast: &ForecastReport) -> Option<String> {
    let rate = || format!("at the rate of the last {}", span(forecast.window_s));
    match (forecast.state, forecast.full_in_s) {
        (ForecastState::Full, _) => None,
        (ForecastState::Filling, Some(full_in_s)) => {
            let growth_bytes = forecast.growth_bytes_per_day.unwrap_or(0);
            let growth = size(growth_bytes.unsigned_abs());
            Some(format!(
                "full in about {} {} ({growth} a day, all copies counted)",
                span(full_in_s),
                rate()
            ))
        }
        (ForecastState::Steady, _) => Some(format!("does not fill {}", rate())),
        (ForecastState::Filling | ForecastState::Unknown, _) => Some(
            "when it will be full is not known yet: the growth of an hour has to be seen"
                .to_owned(),
        ),
    }
}

/// So long, about: in the largest unit of which there are two.
fn span(seconds: u64) -> String {
    let units = [("days", 86_400), ("hours", 3600), ("minutes", 60)];
    let fits = |(_, length_s): &(&str, u64)| seconds >= 2 * length_s;
    match units.into_iter().find(fits) {
        Some((unit, length_s)) => format!("{} {unit}", (seconds + length_s / 2) / length_s),
        None => format!("{} s", seconds),
    }
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

#[cfg(test)]
mod tests {
    use spindle_control::{ForecastReport, ForecastState};

    use super::{filling, span};

    #[test]
    fn a_span_is_told_in_the_largest_unit_of_which_there_are_two() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (3600, "60 minutes"),
            (7199, "120 minutes"),
            (7200, "2 hours"),
            (7 * 86_400, "7 days"),
            (86_400 * 5 / 2, "3 days"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn the_forecast_says_when_from_what_and_where_nothing_is_known() {
        let of = |state, full_in_s| {
            filling(&ForecastReport {
                group: "data".to_owned(),
                state,
                full_in_s,
                growth_bytes_per_day: Some(3 << 30),
                window_s: 7 * 86_400,
            })
        };
        assert_eq!(
            of(ForecastState::Filling, Some(12 * 86_400)).unwrap(),
            "full in about 12 days at the rate of the last 7 days (3G a day, all copies counted)"
        );
        assert_eq!(
            of(ForecastState::Steady, None).unwrap(),
            "does not fill at the rate of the last 7 days"
        );
        assert!(
            of(ForecastState::Unknown, None)
                .unwrap()
                .contains("not known yet")
        );
        assert_eq!(
            of(ForecastState::Full, Some(0)),
            None,
            "its health says that"
        );
    }
}
