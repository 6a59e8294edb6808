//! `spindle disk`.

use anyhow::Result;
use spindle_control::Settings;

use super::print_json;
use crate::arguments::Output;
use crate::line::say;
use crate::table::{Table, size};

pub fn scan(settings: &Settings, output: Output) -> Result<u8> {
    let report = spindle_control::scan(settings)?;
    if output.json {
        print_json(&report)?;
        return Ok(0);
    }
    if report.disks.is_empty() {
        say!(
            "no disk was found on the search path: {}",
            report.search_path
        );
        return Ok(0);
    }
    let mut table = Table::new(&[
        "Path",
        ">Size",
        "Status",
        "Group",
        "Disk",
        "Failgroup",
        "In_use",
        "Found",
    ]);
    let dash = || "-".to_owned();
    for disk in report.disks {
        table.row([
            disk.path,
            disk.size_bytes.map_or_else(dash, size),
            disk.status.to_string(),
            disk.group.unwrap_or_else(dash),
            disk.name.unwrap_or_else(dash),
            disk.failure_group.unwrap_or_else(dash),
            if disk.in_use { "yes" } else { "no" }.to_owned(),
            disk.found,
        ]);
    }
    table.print()?;
    Ok(0)
}
