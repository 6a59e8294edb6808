//! `spindle top`: one group on one screen, refreshed in place.

mod screen;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use spindle_control::{ControlErrorKind, Settings, Top, TopReport};

use self::screen::TopScreen;
use super::print_json;
use crate::arguments::{TopArguments, TopOrder};
use crate::line::say;
use crate::screen::{Line, cut};
use crate::terminal::{Key, Terminal};

/// Columns and rows of what is no terminal: every file that is asked for.
const PLAIN_COLUMNS: usize = 80;
/// Files that are asked for: more than fit on any screen are of no use.
const FILES_MOST: usize = 100;
/// Files that are listed where nobody says how many fit.
const FILES_USUAL: usize = 10;

pub fn run(settings: &Settings, arguments: &TopArguments) -> Result<u8> {
    let interval = Duration::from_secs_f64(arguments.interval);
    let count = if arguments.once {
        Some(1)
    } else {
        arguments.count
    };
    let top = Top::begin(settings, arguments.group.as_deref())?;
    let is_watched = std::io::stdout().is_terminal();
    if is_watched && !arguments.output.json && count.is_none() {
        return live(top, interval, arguments.sort);
    }
    lines(top, interval, count, arguments)
}

/// One screen after the other, for a file, a pipe or a program.
fn lines(
    mut top: Top,
    interval: Duration,
    count: Option<u64>,
    arguments: &TopArguments,
) -> Result<u8> {
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        std::thread::sleep(interval);
        let report = top.next(FILES_USUAL)?;
        if arguments.output.json {
            print_json(&report)?;
        } else {
            if shown > 0 {
                say!("");
            }
            for line in TopScreen::plain(PLAIN_COLUMNS, arguments.sort).lines(&report) {
                say!("{}", line.text);
            }
        }
        std::io::stdout().flush()?;
        shown += 1;
    }
    Ok(0)
}

/// In place, until somebody ends it.
fn live(mut top: Top, interval: Duration, mut order: TopOrder) -> Result<u8> {
    let terminal = Terminal::take()?;
    let mut last: Option<TopReport> = None;
    // Rates need two moments; the first are those of a moment.
    let mut wait = interval.min(Duration::from_millis(300));
    loop {
        for key in terminal.wait(wait)? {
            match key {
                Key::Quit => return Ok(0),
                Key::Order => order = order.next(),
            }
        }
        wait = interval;
        let trouble = match top.next(FILES_MOST) {
            Ok(report) => {
                last = Some(report);
                None
            }
            // Closed it is, and by whom the log of the group says.
            Err(error) if error.kind == ControlErrorKind::NotFound => return Err(error.into()),
            // The next process is about to come.
            Err(error) => Some(error.message()),
        };
        let (columns, rows) = terminal.size();
        let screen = TopScreen::new(columns, rows, order, interval);
        let mut drawn = last.as_ref().map_or_else(Vec::new, |it| screen.lines(it));
        if let Some(trouble) = trouble {
            drawn.truncate(rows.saturating_sub(2));
            drawn.push(Line::loud(cut(&trouble, columns)));
        }
        terminal.draw(&drawn)?;
    }
}
