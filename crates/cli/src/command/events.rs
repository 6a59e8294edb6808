//! `spindle events`.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use spindle_control::Settings;
use spindle_control::view::EventReport;

use super::print_json;
use crate::arguments::Output;
use crate::table::time;

/// How often the file is looked at for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

pub fn run(settings: &Settings, group: Option<&str>, follow: bool, output: Output) -> Result<u8> {
    let read = || spindle_control::read_events(settings, group);
    let events = read()?;
    if output.json && !follow {
        print_json(&events)?;
        return Ok(0);
    }
    events.iter().try_for_each(|event| print(event, output))?;
    if !follow {
        return Ok(0);
    }
    let mut shown = events.len();
    loop {
        std::io::stdout().flush()?;
        std::thread::sleep(FOLLOW_INTERVAL);
        let events = read()?;
        // An old file made room for a new one: what is left was shown.
        shown = shown.min(events.len());
        events[shown..]
            .iter()
            .try_for_each(|event| print(event, output))?;
        shown = events.len();
    }
}

fn print(event: &EventReport, output: Output) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if output.json {
        serde_json::to_writer(&mut out, event).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        let seconds = i64::try_from(event.time_s).unwrap_or(i64::MAX);
        writeln!(out, "{}  {}  {}", time(seconds), event.group, event.text)?;
    }
    Ok(())
}
