//! The last page: plain figures, and what survived.

use spindle_rig::figures::thousands;
use spindle_rig::pgbench::Rate;

use crate::database::CLIENT_COUNT;
use crate::story::{Told, disk_lines};

/// Prints it.
pub fn print(told: &Told) {
    println!(
        "\n{}, TPC-B-like load, {CLIENT_COUNT} clients\n",
        told.title
    );
    print_rates(&told.rates);
    if let Some(group) = &told.group {
        println!();
        for line in disk_lines(group) {
            println!("{line}");
        }
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
            println!("  the loss of a disk under load: no client saw an error");
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

fn print_rates(rates: &[(&str, Rate); 3]) {
    let row = |name: &str, cell: &dyn Fn(&Rate) -> String| {
        let cells: String = rates
            .iter()
            .map(|(_, rate)| format!("{:>16}", cell(rate)))
            .collect();
        println!("  {name:26}{cells}");
    };
    let heads: String = rates
        .iter()
        .map(|(head, _)| format!("{head:>16}"))
        .collect();
    println!("  {:26}{heads}", "");
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
