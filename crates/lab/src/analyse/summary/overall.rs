//! A contender over all loads: the geometric mean, and no more than its parts allow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::pairs;
use super::ratio::{Pairs, Ratio, ratio};
use super::{WorkloadSummary, class, family, reference};
use crate::analyse::folder::Folder;
use crate::analyse::series::mean;
use crate::analyse::verdict::Verdict;

/// A contender over all loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// Its name.
    pub name: String,
    /// Against what its ratio is.
    pub against: String,
    /// Geometric mean of the ratios.
    pub ratio: Ratio,
    /// What may be said.
    pub verdict: Verdict,
}

/// Everyone but the baseline, where there are several loads.
pub(super) fn overall(folder: &Folder, workloads: &[WorkloadSummary]) -> Vec<Overall> {
    if workloads.len() < 2 {
        return Vec::new();
    }
    let floor = workloads
        .iter()
        .map(|workload| workload.noise_floor)
        .fold(0.0, f64::max);
    folder
        .experiment
        .contenders
        .iter()
        .filter(|name| **name != folder.experiment.baseline)
        .filter_map(|name| {
            let against = reference::of(folder, name);
            if !class::is_same(folder, name, &against) || is_unranked(workloads, name) {
                return None;
            }
            let pairs = over_all_loads(folder, workloads.len(), name, &against);
            let ratio = ratio(&pairs, family::of_rates(folder))?;
            let found = ratio.judged(folder.experiment.margin, floor).0;
            Some(Overall {
                name: name.clone(),
                verdict: allowed(found, &parts(workloads, name)),
                against,
                ratio,
            })
        })
        .collect()
}

/// Whether its rate is ranked with none under one of the loads: then a mean would rank it.
fn is_unranked(workloads: &[WorkloadSummary], name: &str) -> bool {
    workloads
        .iter()
        .flat_map(|workload| &workload.contenders)
        .any(|contender| contender.name == name && contender.is_unranked())
}

/// The verdict under each load, where there is one.
pub(super) fn parts(workloads: &[WorkloadSummary], name: &str) -> Vec<Option<Verdict>> {
    workloads
        .iter()
        .map(|workload| {
            workload
                .contenders
                .iter()
                .find(|contender| contender.name == name)?
                .verdict
        })
        .collect()
}

/// What the parts leave of a verdict: where nothing may be said of one of them, nothing may be said
/// of all.
fn allowed(found: Verdict, parts: &[Option<Verdict>]) -> Verdict {
    let has = |verdict: Option<Verdict>| parts.contains(&verdict);
    if has(None) || has(Some(Verdict::Inconclusive)) {
        Verdict::Inconclusive
    } else if has(Some(Verdict::Look)) {
        Verdict::Look
    } else {
        found
    }
}

/// The geometric means over the loads in each block. Only blocks in which it ran under every load
/// count: else the mix would differ.
fn over_all_loads(folder: &Folder, loads: usize, name: &str, against: &str) -> Vec<(f64, f64)> {
    let by_load: Vec<Pairs> = (0..loads)
        .map(|index| pairs(folder, index, name, against))
        .collect();
    let blocks: BTreeMap<u32, Vec<(f64, f64)>> =
        by_load
            .iter()
            .flatten()
            .fold(BTreeMap::new(), |mut blocks, (block, pair)| {
                blocks.entry(*block).or_insert_with(Vec::new).push(*pair);
                blocks
            });
    blocks
        .into_values()
        .filter(|pairs| pairs.len() == loads)
        .filter_map(|pairs| {
            let mean_of = |of: fn(&(f64, f64)) -> f64| {
                let logs: Vec<f64> = pairs.iter().map(|pair| of(pair).ln()).collect();
                mean(&logs).map(f64::exp)
            };
            mean_of(|pair| pair.0).zip(mean_of(|pair| pair.1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_of_all_where_nothing_may_be_said_of_a_part() {
        use Verdict::{Equivalent, Faster, Inconclusive, Look, Slower};
        let of = |found, parts: &[Verdict]| {
            let parts: Vec<Option<Verdict>> = parts.iter().copied().map(Some).collect();
            allowed(found, &parts)
        };
        assert_eq!(of(Faster, &[Faster, Equivalent]), Faster);
        assert_eq!(of(Slower, &[Slower, Slower]), Slower);
        for found in [Faster, Slower, Equivalent, Look] {
            assert_eq!(of(found, &[Faster, Inconclusive]), Inconclusive);
            assert_eq!(of(found, &[Inconclusive, Look]), Inconclusive);
            assert_eq!(of(found, &[Faster, Look]), Look);
            assert_eq!(allowed(found, &[Some(Faster), None]), Inconclusive);
        }
    }
}
