//! The last page: plain figures, and what survived.

use serde_json::Value;
use spindle_testbed::figures::{size, thousands};
use spindle_testbed::pgbench::Rate;

use crate::changes::{Changes, Copied};
use crate::database::CLIENT_COUNT;
use crate::story::Told;

/// Prints it.
pub fn print(told: &Told) {
    println!(
        "\n{}, TPC-B-like load, {CLIENT_COUNT} clients\n",
        told.title
    );
    print_rates(&told.rates);
    if let Some(group) = &told.group {
        print_disks("just before the power cut", group);
    }
    if let Some((changes, group)) = &told.changes {
        print_disks("at the end", group);
        print_changes(changes);
    }
    println!("\nWhat survived");
    let [after_cut, at_end] = &told.proofs;
    if told.faults.is_empty() {
        println!(
            "  all of the {} commits acknowledged before the power cut, without a gap; {} more \
             were\n  durable, of which no client had heard yet",
            thousands(after_cut.acknowledged),
            after_cut.unheard
        );
        println!(
            "  and all of the {} at the end of the story",
            thousands(at_end.acknowledged)
        );
        if told.group.is_some() {
            println!(
                "  the loss of a disk, its return, a new disk and a killed daemon, all under \
                 load: no\n  client saw an error"
            );
        }
    }
    for line in &at_end.held {
        println!("  {line}");
    }
    if let Some(checked) = &told.checked {
        println!("  spindle group check: {checked}");
    }
    println!(
        "  back after the power cut: mounted in {:.2} s, the database recovered in {:.2} s",
        told.mounted_after.as_secs_f64(),
        told.recovered_after.as_secs_f64()
    );
    for fault in &told.faults {
        println!("  FAULT: {fault}");
    }
}

fn print_disks(when: &str, group: &Value) {
    println!("\nThe disks {when}");
    for line in disk_lines(group) {
        println!("{line}");
    }
}

fn print_changes(changes: &Changes) {
    println!("\nWhat changed under load");
    let copied = |copied: &Copied| {
        format!(
            "{} in {:.1} s",
            size(copied.bytes),
            copied.took.as_secs_f64()
        )
    };
    println!(
        "  the lost disk is back: it got what it had missed, {}",
        copied(&changes.resync)
    );
    println!(
        "  a fifth disk holds its share: moved to it were {}",
        copied(&changes.rebalance)
    );
    match &changes.pause_us {
        Ok(pause_us) => println!(
            "  the storage daemon was killed: the longest that any client waited was {}",
            milliseconds(*pause_us)
        ),
        Err(why) => println!("  the storage daemon was not killed: {why}"),
    }
}

fn print_rates(rates: &[(&str, Rate)]) {
    let row = |name: &str, cell: &dyn Fn(&Rate) -> String| {
        let cells: String = rates
            .iter()
            .map(|(_, rate)| format!("{:>15}", cell(rate)))
            .collect();
        println!("  {name:25}{cells}");
    };
    let heads: String = rates
        .iter()
        .map(|(head, _)| format!("{head:>15}"))
        .collect();
    println!("  {:25}{heads}", "");
    row("transactions a second", &|rate| {
        format!("{:.0}", rate.per_second)
    });
    row("latency, median", &|rate| milliseconds(rate.p50_us));
    row("latency, 99 of 100 within", &|rate| {
        milliseconds(rate.p99_us)
    });
    row("latency, longest", &|rate| milliseconds(rate.worst_us));
}

fn milliseconds(latency_us: u64) -> String {
    format!("{}.{:02} ms", latency_us / 1000, latency_us % 1000 / 10)
}

/// The disks of the group's JSON, a line each.
fn disk_lines(group: &Value) -> Vec<String> {
    let text = |disk: &Value, key: &str| disk[key].as_str().unwrap_or("-").to_owned();
    let used = |disk: &Value| {
        let part = |key: &str| disk[key].as_u64();
        let used = part("total_bytes").zip(part("free_bytes"));
        used.map_or("-".to_owned(), |(total, free)| {
            size(total.saturating_sub(free))
        })
    };
    let bytes = |disk: &Value, key: &str| disk[key].as_u64().map_or("-".to_owned(), size);
    let mut lines = vec![format!(
        "  {:14} {:14} {:>10} {:>10} {:>10} {:>10}   mode",
        "disk", "failure group", "size", "used", "read", "written"
    )];
    for disk in group["disks"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  {:14} {:14} {:>10} {:>10} {:>10} {:>10}   {}",
            text(disk, "name"),
            text(disk, "failure_group"),
            bytes(disk, "total_bytes"),
            used(disk),
            bytes(disk, "read_bytes"),
            bytes(disk, "written_bytes"),
            text(disk, "mode")
        ));
    }
    lines
}
