//! Which comparisons are to be right together: those that the file asks for.
//!
//! They are counted from the plan, before anything is measured: a family that shrank with what the
//! figures leave to be said would be chosen by them. What is not run is known before, and not in it.
//! The words in capitals, of the rates under each load and over all of them, are one family; the
//! words on p95 and p99 are another, so that a reader of rates does not pay for them.

use super::latency::JUDGED;
use crate::analyse::folder::Folder;
use crate::analyse::interval::Comparisons;

/// Of the rates: each contender under each load, and over all loads where there are several.
pub(super) fn of_rates(folder: &Folder) -> Comparisons {
    let loads = folder.experiment.workloads.len();
    let over_all = usize::from(loads > 1);
    Comparisons::of(contenders(folder) * (loads + over_all))
}

/// Of the slow operations: each contender under each load that is no suite, in each quantile.
pub(super) fn of_latencies(folder: &Folder) -> Comparisons {
    let loads = (folder.experiment.workloads.iter())
        .filter(|workload| !workload.is_suite())
        .count();
    Comparisons::of(contenders(folder) * loads * JUDGED.len())
}

/// Everyone that runs but the baseline.
fn contenders(folder: &Folder) -> usize {
    let experiment = &folder.experiment;
    (experiment.contenders.iter())
        .filter(|name| {
            **name != experiment.baseline && !folder.plan.not_run.contains_key(name.as_str())
        })
        .count()
}
