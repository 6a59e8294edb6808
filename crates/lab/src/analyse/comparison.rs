//! Two experiments side by side, where that may be done; else why not.

use serde::Serialize;

use super::folder::Folder;
use super::summary::{Summary, summarise};

/// The rates of a contender in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The load.
    pub workload: String,
    /// The contender.
    pub contender: String,
    /// What is compared.
    pub unit: String,
    /// The middle of the runs in the first.
    pub first: f64,
    /// The middle of the runs in the second.
    pub second: f64,
}

/// What of the machine must be the same: other facts may differ from day to day.
const MUST_MATCH: [&str; 6] = [
    "kernel",
    "processor",
    "processors",
    "memory",
    "database",
    "distribution",
];

/// Compares.
///
/// # Errors
/// The reasons why the two are not comparable.
pub fn compare(first: &Folder, second: &Folder) -> Result<Vec<Row>, Vec<String>> {
    let reasons = reasons(first, second);
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let (one, other) = (summarise(first), summarise(second));
    let rows = rows(&one, &other);
    if rows.is_empty() {
        return Err(vec!["no contender was measured in both".to_owned()]);
    }
    Ok(rows)
}

fn reasons(first: &Folder, second: &Folder) -> Vec<String> {
    let mut reasons = Vec::new();
    for name in MUST_MATCH {
        let (one, other) = (
            first.environment.facts.get(name),
            second.environment.facts.get(name),
        );
        if one != other {
            let show = |fact: Option<&String>| fact.map_or("unknown", String::as_str).to_owned();
            reasons.push(format!("{name}: {} here, {} there", show(one), show(other)));
        }
    }
    let (one, other) = (&first.experiment, &second.experiment);
    let mut differs = |what: &str, is_different: bool| {
        if is_different {
            reasons.push(format!("the experiments differ in {what}"));
        }
    };
    differs(
        "devices",
        (one.devices.kind, one.devices.count, one.devices.size_bytes)
            != (
                other.devices.kind,
                other.devices.count,
                other.devices.size_bytes,
            ),
    );
    differs(
        "the bandwidth of the devices",
        (one.devices.bandwidth, one.devices.requests)
            != (other.devices.bandwidth, other.devices.requests),
    );
    differs(
        "the database's memory or settings",
        one.database != other.database,
    );
    differs(
        "warm_up or duration",
        (one.warm_up, one.duration) != (other.warm_up, other.duration),
    );
    let shares_a_load = one
        .workloads
        .iter()
        .any(|workload| other.workloads.contains(workload));
    differs("every workload", !shares_a_load);
    reasons
}

fn rows(one: &Summary, other: &Summary) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in &one.workloads {
        let Some(same) = other
            .workloads
            .iter()
            .find(|other| other.title == workload.title)
        else {
            continue;
        };
        for contender in &workload.contenders {
            let second = same
                .contenders
                .iter()
                .find(|other| other.name == contender.name)
                .and_then(|contender| contender.rate);
            if let (Some(first), Some(second)) = (contender.rate, second) {
                rows.push(Row {
                    workload: workload.title.clone(),
                    contender: contender.name.clone(),
                    unit: workload.unit.clone(),
                    first,
                    second,
                });
            }
        }
    }
    rows
}
