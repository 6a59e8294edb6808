//! Scripts of a load, each by itself: a fast one may hide what a slow one beside it waits for.

use serde::{Deserialize, Serialize};

use crate::analyse::latency::{mean_us, merged, quantile_us};
use crate::quantity::as_float;
use crate::record::Measured;

/// One script over all runs of a contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptFound {
    /// Its file.
    pub name: String,
    /// Runs of it a second.
    pub per_s: f64,
    /// Of all runs of scripts (0.9 for 90 %).
    pub share: f64,
    /// Microseconds on average, pauses included.
    pub latency_mean_us: Option<f64>,
    /// Microseconds that 99 of 100 runs take at most.
    pub latency_p99_us: Option<u64>,
}

/// The quantile that is told of each.
const QUANTILE: f64 = 0.99;

/// In the order of the file.
pub(super) fn found(runs: &[&Measured]) -> Vec<ScriptFound> {
    let names = runs.first().map_or(&[][..], |run| &run.scripts);
    let of = |name: &str| {
        let name = name.to_owned();
        (runs.iter())
            .flat_map(|run| &run.scripts)
            .filter(move |script| script.name == name)
    };
    let duration_s: f64 = runs.iter().map(|run| run.duration_s).sum();
    let all: u64 = (runs.iter().flat_map(|run| &run.scripts))
        .map(|script| script.operations)
        .sum();
    (names.iter())
        .map(|script| {
            let operations: u64 = of(&script.name).map(|one| one.operations).sum();
            let latency = merged(of(&script.name).map(|one| &one.latency));
            ScriptFound {
                name: script.name.clone(),
                per_s: as_float(operations) / duration_s.max(f64::MIN_POSITIVE),
                share: as_float(operations) / as_float(all.max(1)),
                latency_mean_us: mean_us(&latency),
                latency_p99_us: quantile_us(&latency, QUANTILE),
            }
        })
        .collect()
}
