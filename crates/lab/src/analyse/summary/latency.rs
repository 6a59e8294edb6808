//! The slow operations of each contender against those of what it is compared with: the same blocks,
//! the same interval, the same noise floor as the rate has, and less is better.
//!
//! A run counts where it has enough operations for the quantile; whoever has ten of them has no p95.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ratio::{Pairs, Ratio, of_pairs, ratio};
use super::{doubts, family, runs_of};
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::Folder;
use crate::analyse::interval::Comparisons;
use crate::analyse::latency::quantile_us;
use crate::analyse::series::median;
use crate::analyse::verdict::Verdict;
use crate::quantity::as_float;
use crate::record::AGAIN;

/// What is judged, by name.
pub(in crate::analyse) const JUDGED: [(&str, f64); 2] = [("p95", 0.95), ("p99", 0.99)];

/// One quantile of a contender's latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyFound {
    /// `p95` or `p99`.
    pub quantile: String,
    /// Microseconds, in the middle one of its runs.
    pub us: f64,
    /// Against what the rate is compared with; below one it takes less time.
    pub ratio: Option<Ratio>,
    /// How far the baseline may lie from itself in it (0.02 for 2 %).
    pub noise_floor: Option<f64>,
    /// What may be said: FASTER is what takes less time.
    pub verdict: Option<Verdict>,
}

/// The quantile in each run that has enough operations, by block.
pub(in crate::analyse) fn by_block(
    folder: &Folder,
    workload: usize,
    label: &str,
    quantile: f64,
) -> BTreeMap<u32, f64> {
    runs_of(folder, workload, label)
        .into_iter()
        .filter_map(|run| {
            let us = quantile_us(&run.run.measured()?.latency, quantile)?;
            Some((run.run.planned.block, as_float(us.max(1))))
        })
        .collect()
}

fn ratio_of(
    one: &BTreeMap<u32, f64>,
    other: &BTreeMap<u32, f64>,
    comparisons: Comparisons,
) -> Option<Ratio> {
    let pairs: Pairs = of_pairs(one, other);
    let pairs: Vec<(f64, f64)> = pairs.into_values().collect();
    // Latencies are recorded in whole microseconds: 6 and 6 may be a sixth apart.
    let least = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
    let rounding = 0.5 / least(|pair| pair.0) + 0.5 / least(|pair| pair.1);
    Some(ratio(&pairs, comparisons)?.widened(rounding))
}

/// What is found of `label` under a load; `against` is none for the baseline itself and for what
/// nothing is comparable with. `is_forbidden` says that nothing may be claimed of it at all.
pub(super) fn found(
    folder: &Folder,
    workload: usize,
    label: &str,
    against: Option<&str>,
    is_forbidden: bool,
) -> Vec<LatencyFound> {
    if folder.experiment.workloads[workload].is_suite() {
        // Its operations are different questions, each asked once.
        return Vec::new();
    }
    let baseline = &folder.experiment.baseline;
    let again = format!("{baseline}{AGAIN}");
    let one_of = |(name, quantile): (&str, f64)| -> Option<LatencyFound> {
        let of = |label: &str| by_block(folder, workload, label, quantile);
        let own = of(label);
        let us: Vec<f64> = own.values().copied().collect();
        let noise = ratio_of(&of(&again), &of(baseline), Comparisons::ONE);
        let noise_floor = noise.map(|noise| noise.reach());
        let comparisons = if label == again {
            Comparisons::ONE
        } else {
            family::of_latencies(folder)
        };
        let ratio = against.and_then(|against| ratio_of(&own, &of(against), comparisons));
        let judged = ratio.filter(|_| label != again).map(|ratio| {
            let is_forbidden = is_forbidden
                || doubts::of_the_noise(noise.as_ref())
                    .iter()
                    .any(Doubt::forbids_a_claim);
            match ratio.judged_as_time(folder.experiment.margin, noise_floor.unwrap_or(0.0)) {
                _ if is_forbidden => Verdict::Inconclusive,
                (verdict, _) => verdict,
            }
        });
        Some(LatencyFound {
            quantile: name.to_owned(),
            us: median(&us)?,
            ratio,
            noise_floor,
            verdict: judged,
        })
    };
    JUDGED.into_iter().filter_map(one_of).collect()
}

impl LatencyFound {
    /// Takes back what is claimed.
    pub(super) fn look_only(&mut self) {
        self.verdict = self.verdict.map(Verdict::at_most_a_look);
    }

    /// Takes back that there is no difference.
    pub(super) fn without_equivalence(&mut self) {
        self.verdict = self.verdict.map(Verdict::without_equivalence);
    }

    /// As a clause of the verdict's sentence, in small letters: the word in capitals is the rate's,
    /// and what is a look together with it is not called so again.
    pub(super) fn clause(&self, of_the_rate: Verdict) -> Option<String> {
        let ratio = self.ratio?;
        let interval = match (ratio.low, ratio.high) {
            (Some(low), Some(high)) => format!(" ({low:.3} to {high:.3})"),
            _ => String::new(),
        };
        let word = match self.verdict? {
            Verdict::Look if of_the_rate == Verdict::Look => String::new(),
            Verdict::Look => ": a look".to_owned(),
            verdict => format!(": {}", verdict.word().to_lowercase()),
        };
        Some(format!(
            "Its {} takes {:.3} times as long{interval}{word}",
            self.quantile, ratio.centre
        ))
    }
}

#[cfg(test)]
mod tests;
