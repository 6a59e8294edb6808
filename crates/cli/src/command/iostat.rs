//! `spindle iostat`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use spindle_control::view::{IostatReport, RateReport};
use spindle_control::{Iostat, Settings};

use super::print_json;
use crate::arguments::Output;
use crate::line::say;
use crate::table::{Table, rate};

pub fn run(
    settings: &Settings,
    group: &str,
    interval_s: f64,
    count: Option<u64>,
    files_most: usize,
    output: Output,
) -> Result<u8> {
    let client = spindle_control::serving(settings, group)?;
    let mut iostat = Iostat::begin(&client)?;
    let in_place = !output.json && std::io::stdout().is_terminal() && count != Some(1);
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        std::thread::sleep(Duration::from_secs_f64(interval_s));
        let report = iostat.next(files_most)?;
        if output.json {
            print_json(&report)?;
        } else {
            if in_place {
                // Home, and clear what was there.
                print!("\x1b[H\x1b[2J");
            } else if shown > 0 {
                say!("");
            }
            print_report(&report)?;
        }
        std::io::stdout().flush()?;
        shown += 1;
    }
    Ok(0)
}

fn print_report(report: &IostatReport) -> Result<()> {
    say!("{}: {:.2} s", report.group, report.interval_s);
    rates("Disk", &report.disks).print()?;
    if !report.files.is_empty() {
        say!("");
        rates("File", &report.files).print()?;
    }
    Ok(())
}

fn rates(what: &'static str, reports: &[RateReport]) -> Table {
    let mut table = Table::new(&[
        what,
        ">Reads/s",
        ">Writes/s",
        ">Read/s",
        ">Written/s",
        ">Read_us",
        ">Write_us",
    ]);
    let latency =
        |latency: Option<f64>| latency.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    for report in reports {
        table.row([
            report.name.clone(),
            format!("{:.0}", report.reads_per_s),
            format!("{:.0}", report.writes_per_s),
            rate(report.read_bytes_per_s),
            rate(report.written_bytes_per_s),
            latency(report.read_latency_us),
            latency(report.write_latency_us),
        ]);
    }
    table
}
