//! With what each contender is compared. Copies cost writes, so that only what keeps as many of them
//! is compared: with the baseline, or, where that keeps another number, with the first contender of
//! the experiment that keeps as many. The same holds for durability: of another class only what is
//! of it is compared.

use std::collections::BTreeSet;

use super::{FailedRun, class, labels};
use crate::analyse::folder::Folder;
use crate::record::AGAIN;

/// How many copies a contender keeps, where a run of it tells.
fn copies(folder: &Folder, label: &str) -> Option<u32> {
    folder
        .runs
        .iter()
        .filter(|run| run.run.planned.label == label)
        .find_map(|run| Some(run.run.layout.as_ref()?.copies))
}

/// The name of what `label` is compared with. The first of its number of copies is compared with
/// the baseline all the same, and a doubt forbids any claim from it.
pub(super) fn of(folder: &Folder, label: &str) -> String {
    let baseline = &folder.experiment.baseline;
    let own = copies(folder, label);
    let of_the_class = |name: &str| class::is_same(folder, label, name);
    if own.is_none() || (own == copies(folder, baseline) && of_the_class(baseline)) {
        return baseline.clone();
    }
    folder
        .experiment
        .contenders
        .iter()
        .find(|name| copies(folder, name) == own && of_the_class(name))
        .filter(|name| *name != label)
        .unwrap_or(baseline)
        .clone()
}

/// Measured runs whose block lacks what they are compared with.
pub(super) fn excluded(folder: &Folder) -> Vec<FailedRun> {
    let measured: BTreeSet<(u32, usize, &str)> = folder
        .runs
        .iter()
        .filter(|run| run.run.measured().is_some())
        .map(|run| {
            let planned = &run.run.planned;
            (planned.block, planned.workload, planned.label.as_str())
        })
        .collect();
    let mut excluded = Vec::new();
    for label in labels(folder) {
        // The baseline itself is compared with its second name.
        let against = if label == folder.experiment.baseline {
            format!("{label}{AGAIN}")
        } else {
            of(folder, &label)
        };
        if !class::is_same(folder, &label, &against) {
            continue;
        }
        for run in &folder.runs {
            let planned = &run.run.planned;
            let is_own = planned.label == label && run.run.measured().is_some();
            if is_own && !measured.contains(&(planned.block, planned.workload, against.as_str())) {
                excluded.push(FailedRun {
                    folder: planned.folder(),
                    contender: label.clone(),
                    workload: folder.experiment.workloads[planned.workload].title(),
                    reason: format!("block {} has no measured run of {against}", planned.block),
                    log_tail: String::new(),
                });
            }
        }
    }
    excluded
}
