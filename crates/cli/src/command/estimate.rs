//! What a change would cost, as `--estimate` and `--dry-run` print it.

use anyhow::Result;
use spindle_control::EstimateReport;

use super::print_json;
use crate::arguments::Output;
use crate::line::say;
use crate::table::{Table, clock, signed_size, size};

pub fn print_estimate(report: &EstimateReport, output: Output) -> Result<u8> {
    if output.json {
        print_json(report)?;
        return Ok(0);
    }
    for (bytes, what) in [
        (report.moved_bytes, "would be moved"),
        (report.restored_bytes, "would be copied from other copies"),
        (report.resynced_bytes, "were missed and would be copied"),
        (report.stuck_bytes, "would find no place"),
    ] {
        if bytes > 0 {
            say!("{} {what}", size(bytes));
        }
    }
    if report.flows.is_empty() {
        say!("nothing would be copied");
    } else {
        print_flows(report)?;
    }
    say!("");
    let mut disks = Table::new(&["Disk", "Failgroup", ">Total", ">Free now", ">Free then"]);
    for disk in &report.disks {
        disks.row([
            disk.name.clone(),
            disk.failure_group.clone(),
            size(disk.total_bytes),
            disk.free_before_bytes.map_or_else(|| "-".to_owned(), size),
            size(disk.free_bytes),
        ]);
    }
    disks.print()?;
    say!(
        "\nfree {}, required mirror free {}, usable {} (now {})",
        size(report.free_bytes),
        size(report.required_mirror_free_bytes),
        signed_size(report.usable_bytes),
        signed_size(report.usable_before_bytes)
    );
    say!("nothing was changed");
    Ok(0)
}

fn print_flows(report: &EstimateReport) -> Result<()> {
    say!("");
    let mut flows = Table::new(&["From", "To", ">Bytes"]);
    for flow in &report.flows {
        flows.row([flow.from.clone(), flow.to.clone(), size(flow.bytes)]);
    }
    flows.print()?;
    say!("");
    let mut times = Table::new(&[">Power", ">Time"]);
    for time in &report.times {
        let mark = if time.is_default { " (default)" } else { "" };
        times.row([format!("{}{mark}", time.power), clock(time.seconds)]);
    }
    times.print()?;
    let assumed: Vec<&str> = (report.disks.iter())
        .filter(|disk| !disk.rate_is_measured)
        .map(|disk| disk.name.as_str())
        .collect();
    if let Some(any) = report.disks.iter().find(|disk| !disk.rate_is_measured) {
        say!(
            "times count on {}/s, which was not measured, of {}",
            size(any.rate_bytes_per_s),
            assumed.join(", ")
        );
    }
    Ok(())
}
