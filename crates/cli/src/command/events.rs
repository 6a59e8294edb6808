//! `spindle events`.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use spindle_control::view::EventReport;
use spindle_control::{
    EventFilter, EventKindReport, Events, Settings, parse_kinds, parse_severity,
};

use super::group::name_of;
use super::print_json;
use crate::arguments::{EventsArguments, Output};
use crate::line::say;
use crate::moment;
use crate::table::{Table, time};

/// How often is asked for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

fn list_kinds(output: Output) -> Result<u8> {
    let kinds = EventKindReport::all();
    if output.json {
        print_json(&kinds)?;
        return Ok(0);
    }
    let mut table = Table::new(&["Kind", "Severity", "Meaning"]);
    for kind in kinds {
        table.row([kind.kind, kind.severity, kind.meaning]);
    }
    table.print()?;
    Ok(0)
}

pub fn run(settings: &Settings, arguments: &EventsArguments) -> Result<u8> {
    if arguments.list_kinds {
        return list_kinds(arguments.output);
    }
    let group = arguments.group.as_deref().map(name_of).transpose()?;
    let since = arguments.since.as_deref().map(moment::parse).transpose()?;
    let filter = EventFilter {
        after: 0,
        since_ms: since.unwrap_or(0),
        least: parse_severity(&arguments.severity)?,
        kinds: parse_kinds(&arguments.kind.join(","))?,
    };
    let mut log = Events::new(settings, group, filter);
    let events = log.all()?;
    if !arguments.follow {
        if arguments.output.json {
            print_json(&events)?;
        } else {
            events.iter().for_each(print);
        }
        return Ok(0);
    }
    let mut new = events;
    loop {
        for event in &new {
            if arguments.output.json {
                let line = serde_json::to_string(event).map_err(std::io::Error::from)?;
                say!("{line}");
            } else {
                print(event);
            }
        }
        std::io::stdout().flush()?;
        std::thread::sleep(FOLLOW_INTERVAL);
        new = log.more()?;
    }
}

fn print(event: &EventReport) {
    let seconds = i64::try_from(event.time_s).unwrap_or(i64::MAX);
    // A file is told by its number where it was told; many say its path themselves.
    let path = (event.path.as_deref()).filter(|path| !event.text.contains(*path));
    let path = path.map_or_else(String::new, |path| format!(" ({}:{path})", event.group));
    say!(
        "{}Z  {:<8}  {}  {}{path}",
        time(seconds),
        event.severity,
        event.group,
        event.text
    );
}
