//! One load: what each contender reached under it, against what, and what may be said of that.

use std::collections::BTreeMap;

use super::ratio::{Pairs, Ratio, of_pairs, ratio};
use super::{
    ContenderSummary, Told, WorkloadSummary, beside, class, contender, differing, doubts, family,
    labels, latency, past, power, quiet, reference, runs_of,
};
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::{Folder, RunWithSamples};
use crate::analyse::interval::Comparisons;
use crate::analyse::verdict::Verdict;
use crate::record::AGAIN;

/// What `label` and `other` reached in each block that has both.
pub(in crate::analyse) fn pairs(
    folder: &Folder,
    workload: usize,
    label: &str,
    other: &str,
) -> Pairs {
    pairs_of(folder, (workload, label), (workload, other))
}

/// What the one, a contender under a load, and the other reached in each block that has both.
pub(super) fn pairs_of(folder: &Folder, one: (usize, &str), other: (usize, &str)) -> Pairs {
    let rates = |(workload, label): (usize, &str)| -> BTreeMap<u32, f64> {
        runs_of(folder, workload, label)
            .into_iter()
            .filter_map(|run| Some((run.run.planned.block, run.run.measured()?.rate)))
            .filter(|(_, rate)| *rate > 0.0)
            .collect()
    };
    of_pairs(&rates(one), &rates(other))
}

/// Everything about one load.
pub(super) fn summary(folder: &Folder, index: usize) -> WorkloadSummary {
    let asked = &folder.experiment.workloads[index];
    let load = Load::of(folder, index);
    let mut contenders: Vec<ContenderSummary> = Vec::new();
    for label in labels(folder) {
        contenders.extend(load.contender(&label, &contenders));
    }
    let unit = folder
        .runs
        .iter()
        .filter(|run| run.run.planned.workload == index)
        .find_map(|run| Some(run.run.measured()?.unit.clone()));
    WorkloadSummary {
        title: asked.title(),
        family: asked.family,
        users: asked.users,
        open_percent: asked.open_percent,
        regime: asked.regime.name().to_owned(),
        point: asked.point(),
        unit: unit.unwrap_or_default(),
        settings: folder
            .runs
            .iter()
            .filter(|run| {
                let planned = &run.run.planned;
                // Others may have been asked for other settings.
                planned.workload == index && planned.contender == folder.experiment.baseline
            })
            .find_map(|run| Some(run.run.measured()?.settings.clone()))
            .unwrap_or_default(),
        noise: load.noise,
        noise_floor: load.noise_floor(),
        contenders,
        doubts: load.of_the_noise.into_iter().map(Told::from).collect(),
    }
}

/// A load and its noise: the ratio of the baseline to itself.
struct Load<'a> {
    folder: &'a Folder,
    index: usize,
    noise: Option<Ratio>,
    of_the_noise: Vec<Doubt>,
}

impl<'a> Load<'a> {
    fn of(folder: &'a Folder, index: usize) -> Self {
        let baseline = &folder.experiment.baseline;
        let again = format!("{baseline}{AGAIN}");
        // It claims nothing, it only forbids: no word can be wrong by it.
        let noise = ratio_of(folder, index, &again, baseline, Comparisons::ONE);
        Self {
            folder,
            index,
            noise,
            of_the_noise: doubts::of_the_noise(noise.as_ref()),
        }
    }

    fn noise_floor(&self) -> f64 {
        self.noise.map_or(0.0, |noise| noise.reach())
    }

    /// What was found of one; `before` are those that are listed before it. `None` where it has no
    /// runs.
    fn contender(&self, label: &str, before: &[ContenderSummary]) -> Option<ContenderSummary> {
        let (folder, index) = (self.folder, self.index);
        let (asked, baseline) = (
            &folder.experiment.workloads[index],
            &folder.experiment.baseline,
        );
        let runs = runs_of(folder, index, label);
        if runs.is_empty() {
            return None;
        }
        let mut contender = contender(label, &runs);
        let own_name = label.strip_suffix(AGAIN).unwrap_or(label);
        contender.storage = folder.experiment.asked(own_name).storage;
        contender.settings = differing::of(folder, index, label);
        contender.beside = beside::of(folder, index, label);
        let against = reference::of(folder, label);
        contender.durability = class::of(folder, label);
        let is_comparable = class::is_same(folder, label, &against);
        let is_baseline = label == *baseline;
        if !is_baseline {
            let comparisons = if label.ends_with(AGAIN) {
                Comparisons::ONE
            } else {
                family::of_rates(folder)
            };
            contender.ratio =
                ratio_of(folder, index, label, &against, comparisons).filter(|_| is_comparable);
            contender.against = Some(against.clone());
        }
        let reference = before
            .iter()
            .find(|other| other.name == against)
            .or(before.first());
        let mut found = doubts::of_a_contender(&contender, reference, &runs, asked);
        // A limit that the one or the other misses leaves no rate to be ranked.
        let limits: Vec<Doubt> = [Some(&contender), reference]
            .into_iter()
            .flatten()
            .filter_map(|one| doubts::of_the_limit(one, asked))
            .collect();
        contender.ratio = contender.ratio.filter(|_| limits.is_empty());
        if let Some(ratio) = &contender.ratio {
            found.extend(doubts::of_the_stalls(label, &against, ratio));
        }
        let other = reference.filter(|_| is_comparable && !is_baseline);
        for doubt in self.of_both_sides(&contender, &runs, other.map(|other| (other, &*against))) {
            if !found.contains(&doubt) {
                found.push(doubt);
            }
        }
        let is_apart = !is_comparable && !contender.rates.is_empty();
        let is_again = label.ends_with(AGAIN);
        let is_judged = !is_baseline && !is_again && !is_apart;
        let is_forbidden = found.iter().any(Doubt::forbids_a_claim);
        let other = Some(against.as_str()).filter(|_| is_judged || is_again);
        contender.latencies = latency::found(folder, index, label, other, is_forbidden);
        for latency in &mut contender.latencies {
            if found.iter().any(Doubt::leaves_a_look) {
                latency.look_only();
            }
            if found.iter().any(Doubt::hides_a_difference) {
                latency.without_equivalence();
            }
        }
        if is_judged && limits.is_empty() {
            contender.verdict = Some(self.verdict(contender.ratio, &mut found));
        }
        found.extend(limits);
        if against != *baseline {
            found.push(Doubt::NoiseOfAnother {
                baseline: against,
                measured: baseline.clone(),
            });
        }
        contender.doubts = found.into_iter().map(Told::from).collect();
        Some(contender)
    }

    /// What matters for both sides of a ratio, the own one and that of the other, which is named as it
    /// is compared with: who had the machine, whose power was cut, and what was tried.
    fn of_both_sides(
        &self,
        contender: &ContenderSummary,
        runs: &[&RunWithSamples],
        other: Option<(&ContenderSummary, &str)>,
    ) -> Vec<Doubt> {
        let (folder, index, label) = (self.folder, self.index, contender.name.as_str());
        let mut found: Vec<Doubt> = quiet::crowd(label, runs).into_iter().collect();
        if let Some((_, against)) = other {
            let runs = runs_of(folder, index, against);
            found.extend(quiet::crowd(against, &runs));
        }
        if !contender.rates.is_empty() {
            found.extend(power::doubt(folder, label, contender.durability.as_ref()));
        }
        found.extend(past::of_a_contender(folder, index, label));
        // The noise floor is made of the runs of the baseline's second name: they are everybody's.
        let again = format!("{}{AGAIN}", folder.experiment.baseline);
        found.extend(past::of_a_contender(folder, index, &again));
        found.extend(past::of_all(folder));
        if let Some((other, _)) = other {
            found.extend(of_the_other(other, label));
        }
        found
    }

    /// What may be said of the rates beside these doubts, and what forbids to say more.
    fn verdict(&self, ratio: Option<Ratio>, found: &mut Vec<Doubt>) -> Verdict {
        let margin = self.folder.experiment.margin;
        let (verdict, doubt) = ratio.map_or((Verdict::Inconclusive, None), |ratio| {
            ratio.judged(margin, self.noise_floor())
        });
        found.extend(doubt);
        let mut all = found.iter().chain(&self.of_the_noise);
        if all.any(Doubt::forbids_a_claim) {
            return Verdict::Inconclusive;
        }
        if found.iter().any(Doubt::leaves_a_look) {
            return verdict.at_most_a_look();
        }
        if found.iter().any(Doubt::hides_a_difference) {
            return verdict.without_equivalence();
        }
        verdict
    }
}

/// What is said against the one that another is compared with, and counts for the comparison: it
/// stands with that one as well, but its power, whose sentence names whose it is.
fn of_the_other(other: &ContenderSummary, label: &str) -> Vec<Doubt> {
    if label.strip_suffix(AGAIN) == Some(other.name.as_str()) {
        return Vec::new();
    }
    other
        .doubts
        .iter()
        .filter_map(|told| match &told.doubt {
            Doubt::NotCut { .. }
            | Doubt::CutAtFew { .. }
            | Doubt::RunsGone { .. }
            | Doubt::RecordsAltered { .. }
            | Doubt::RunsRepeated { .. } => Some(told.doubt.clone()),
            doubt if doubt.counts_for_others() => Some(Doubt::OfTheOther {
                whose: other.name.clone(),
                doubt: Box::new(doubt.clone()),
            }),
            _ => None,
        })
        // A doubt about somebody else again is not this one's.
        .filter(|doubt| match doubt {
            Doubt::NotCut { whose, .. }
            | Doubt::CutAtFew { whose, .. }
            | Doubt::RunsGone { whose, .. }
            | Doubt::RecordsAltered { whose, .. }
            | Doubt::RunsRepeated { whose, .. } => *whose == other.name,
            _ => true,
        })
        .collect()
}

fn ratio_of(
    folder: &Folder,
    index: usize,
    label: &str,
    other: &str,
    comparisons: Comparisons,
) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> = pairs(folder, index, label, other).into_values().collect();
    ratio(&pairs, comparisons)
}
