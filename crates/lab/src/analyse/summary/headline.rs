//! The verdicts as sentences that a reader believes to be all there is: with the interval, and with
//! nothing that the figures do not carry.

use super::{
    ContenderSummary, Curve, Overall, Ratio, Summary, WorkloadSummary, are_a_map, class, overall,
};
use crate::analyse::doubt::{Differing, Doubt, in_small};
use crate::analyse::interval::{percent, rarest_seen};
use crate::analyse::verdict::Verdict;
use crate::record::AGAIN;

pub(super) fn sentences(summary: &Summary) -> Vec<String> {
    let mut sentences = class::sentences(summary);
    sentences.extend(a_look(summary));
    let told_count = sentences.len();
    for overall in &summary.overall {
        sentences.push(of_all_loads(summary, overall));
    }
    let mut index = 0;
    while let Some(workload) = summary.workloads.get(index) {
        let count = summary.workloads[index..]
            .iter()
            .take_while(|other| other.family == workload.family)
            .count();
        let family = &summary.workloads[index..index + count];
        match summary
            .curves
            .iter()
            .find(|curve| curve.family == workload.family)
        {
            Some(curve) => sentences.extend(of_a_curve(curve, family)),
            None if are_a_map(family) => sentences.extend(of_a_map(family)),
            None => sentences.extend(family.iter().flat_map(of_a_load)),
        }
        index += count;
    }
    if sentences.len() == told_count {
        sentences.push("Nothing was compared.".to_owned());
    }
    sentences.extend(what_it_is_of(summary));
    sentences
}

/// The ratios that a verdict rests on.
fn ratios(summary: &Summary) -> impl Iterator<Item = &Ratio> {
    summary
        .workloads
        .iter()
        .flat_map(|workload| &workload.contenders)
        .filter(|contender| contender.verdict.is_some())
        .filter_map(|contender| contender.ratio.as_ref())
}

/// Before anything else, where there are too few blocks for a claim, or others had the machine.
fn a_look(summary: &Summary) -> Vec<String> {
    let looks: Vec<&ContenderSummary> = summary
        .workloads
        .iter()
        .flat_map(|workload| &workload.contenders)
        .filter(|contender| contender.verdict == Some(Verdict::Look))
        .collect();
    let few = looks
        .iter()
        .filter_map(|contender| contender.ratio)
        .map(|ratio| (ratio.blocks, ratio.blocks_for_a_claim()))
        .filter(|(blocks, needed)| blocks < needed)
        .max()
        .map(|(most, needed)| format!(
            "This is a look from {most} blocks, not a claim: a claim needs {needed}. Raise `blocks` and run the file again; what is there is kept."
        ));
    // A look that has too few blocks anyway is asked for: that nobody cut its power then is no news.
    let is_news = |contender: &ContenderSummary, doubt: &Doubt| {
        let has_few = (contender.ratio).is_some_and(|one| one.blocks < one.blocks_for_a_claim());
        !(has_few && matches!(doubt, Doubt::NotCut { .. } | Doubt::CutAtFew { .. }))
    };
    let others = looks
        .iter()
        .flat_map(|contender| contender.doubts.iter().map(move |told| (contender, told)))
        .find(|(contender, told)| told.doubt.leaves_a_look() && is_news(contender, &told.doubt))
        .map(|(_, told)| format!("This is a look, not a claim: {}", in_small(&told.what)));
    few.into_iter().chain(others).collect()
}

impl Summary {
    /// What the intervals are of, and what they cannot know; none where there is no interval.
    #[must_use]
    pub fn what_intervals_leave_out(&self) -> Option<String> {
        what_it_is_of(self)
    }
}

/// What the intervals are of, and what they cannot know.
fn what_it_is_of(summary: &Summary) -> Option<String> {
    let most = ratios(summary)
        .filter(|ratio| ratio.low.is_some())
        .map(|ratio| ratio.blocks)
        .max()?;
    Some(format!(
        "Each interval is of the middle block: half of all blocks have a higher ratio, half a lower one. {}What happens in fewer than {:.0} of 100 runs, such as a stall, may not have been met in {most} blocks.",
        what_holds_together(summary),
        rarest_seen(most) * 100.0
    ))
}

/// How sure all words of it are together; nothing where a look claims none.
fn what_holds_together(summary: &Summary) -> String {
    let claims: Vec<&Ratio> = ratios(summary)
        .filter(|ratio| ratio.low.is_some() && ratio.blocks >= ratio.blocks_for_a_claim())
        .collect();
    let Some(count) = claims.iter().map(|ratio| ratio.comparisons).max() else {
        return String::new();
    };
    if count == 1 {
        return String::new();
    }
    let slow = summary
        .workloads
        .iter()
        .flat_map(|workload| &workload.contenders)
        .flat_map(|contender| &contender.latencies)
        .filter(|found| found.verdict.is_some())
        .filter_map(|found| Some(found.ratio?.comparisons))
        .max()
        .map_or(String::new(), |count| {
            format!("; the {count} of p95 and p99 do among themselves")
        });
    format!(
        "The intervals are so wide that all {count} comparisons of rates hold together in 95 of 100 experiments{slow}. "
    )
}

fn of_all_loads(summary: &Summary, found: &Overall) -> String {
    let said = said(
        &found.name,
        &found.against,
        Some(&found.ratio),
        found.verdict,
        terms(summary, &found.name).as_deref(),
    );
    let parts = overall::parts(&summary.workloads, &found.name);
    let count = |verdict| parts.iter().filter(|part| **part == Some(verdict)).count();
    let open = parts.len()
        - [
            Verdict::Faster,
            Verdict::Slower,
            Verdict::Equivalent,
            Verdict::Look,
        ]
        .into_iter()
        .map(count)
        .sum::<usize>();
    let (faster, slower) = (count(Verdict::Faster), count(Verdict::Slower));
    let parts = if open > 0 {
        format!(
            "; under {open} of {} loads nothing may be said",
            parts.len()
        )
    } else if faster > 0 && slower > 0 {
        format!(
            "; faster under {faster}, slower under {slower} of {}",
            parts.len()
        )
    } else {
        String::new()
    };
    format!("Over all loads, by the geometric mean, {said}{parts}.")
}

fn of_a_load(workload: &WorkloadSummary) -> Vec<String> {
    let verdicts = workload
        .contenders
        .iter()
        .filter_map(|contender| Some(sentence(workload, contender, contender.verdict?)));
    over_the_limit(workload).chain(verdicts).collect()
}

/// Who misses the limit of the file; the baseline once, not under its second name too.
fn over_the_limit(workload: &WorkloadSummary) -> impl Iterator<Item = String> {
    workload
        .contenders
        .iter()
        .filter(|contender| !contender.name.ends_with(AGAIN))
        .filter_map(ContenderSummary::over_the_limit)
        .map(|told| format!("{}: {}", workload.title, told.what))
}

/// Who has a verdict under one of the loads, as they were named.
fn judged(family: &[WorkloadSummary]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for contender in family.iter().flat_map(|load| &load.contenders) {
        if contender.verdict.is_some() && !names.contains(&contender.name.as_str()) {
            names.push(&contender.name);
        }
    }
    names
}

/// One sentence a contender for all points of a map. `family` has its loads in their order.
fn of_a_map(family: &[WorkloadSummary]) -> Vec<String> {
    let names = judged(family);
    let under_each = |name: &str| -> Vec<&ContenderSummary> {
        (family.iter())
            .filter_map(|load| load.contenders.iter().find(|one| one.name == name))
            .filter(|one| one.verdict.is_some())
            .collect()
    };
    let verdicts = names.into_iter().filter_map(|name| {
        let found = under_each(name);
        let first = found.first()?;
        let parts: Vec<String> = Verdict::ALL
            .into_iter()
            .filter_map(|word| {
                let count = found.iter().filter(|one| one.verdict == Some(word)).count();
                let only = if word == Verdict::Look { "only a " } else { "" };
                (count > 0).then(|| format!("{only}{} at {count}", word.word()))
            })
            .collect();
        let ratios = || found.iter().filter_map(|one| Some(one.ratio?.centre));
        let low = ratios().fold(f64::INFINITY, f64::min);
        let ratios = if low.is_finite() {
            format!(" (ratios {low:.3} to {:.3})", ratios().fold(0.0, f64::max))
        } else {
            String::new()
        };
        Some(format!(
            "{}: {name} against {} is {} of {} points{}{ratios}.",
            map_title(&family[0].title),
            first.against.as_deref().unwrap_or("the baseline"),
            parts.join(", "),
            family.len(),
            (first.terms()).map_or(String::new(), |terms| format!(", {terms}")),
        ))
    });
    (family.iter().flat_map(over_the_limit))
        .chain(verdicts)
        .collect()
}

/// What the loads of a map share of their names: kind and pattern.
#[must_use]
pub fn map_title(first: &str) -> String {
    let words: Vec<&str> = first.split(", ").take(2).collect();
    format!("{}, by sizes and depths", words.join(", "))
}

/// One sentence a contender for all numbers of users, and one for all shares of the slowest peak: a
/// sentence for each would bury the rest. `family` has the curve's loads in their order.
fn of_a_curve(curve: &Curve, family: &[WorkloadSummary]) -> Vec<String> {
    let mut sentences: Vec<String> = family.iter().flat_map(over_the_limit).collect();
    let names = judged(family);
    for is_open in [false, true] {
        let loads: Vec<&WorkloadSummary> = family
            .iter()
            .filter(|load| load.open_percent.is_some() == is_open)
            .collect();
        for name in &names {
            let found: Vec<(u32, &ContenderSummary, Verdict)> = loads
                .iter()
                .filter_map(|load| {
                    let contender = load.contenders.iter().find(|one| one.name == *name)?;
                    let at = load.open_percent.unwrap_or(load.users);
                    Some((at, contender, contender.verdict?))
                })
                .collect();
            sentences.extend(together(curve, &found, is_open));
        }
    }
    sentences
}

/// What several points say of one contender: at which of them it is what.
fn together(
    curve: &Curve,
    found: &[(u32, &ContenderSummary, Verdict)],
    is_open: bool,
) -> Option<String> {
    let (_, first, _) = found.first()?;
    let unit = if is_open {
        "% of the slowest peak"
    } else {
        "users"
    };
    let parts: Vec<String> = Verdict::ALL
        .into_iter()
        .filter_map(|word| {
            let at: Vec<String> = found
                .iter()
                .filter(|(_, _, verdict)| *verdict == word)
                .map(|(at, _, _)| at.to_string())
                .collect();
            let only = if word == Verdict::Look { "only a " } else { "" };
            (!at.is_empty()).then(|| format!("{only}{} at {} {unit}", word.word(), at.join(", ")))
        })
        .collect();
    let ratios: Vec<f64> = found
        .iter()
        .filter_map(|(_, contender, _)| Some(contender.ratio?.centre))
        .collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let ratios = if ratios.is_empty() {
        String::new()
    } else {
        format!(" (ratios {low:.3} to {high:.3})")
    };
    let kind = if is_open { ", open load" } else { "" };
    Some(format!(
        "{}{kind}: {} against {} is {}{terms}{ratios}.",
        curve.title,
        first.name,
        first.against.as_deref().unwrap_or("the baseline"),
        parts.join("; "),
        terms = first
            .terms()
            .map_or(String::new(), |terms| format!(", {terms}")),
    ))
}

fn sentence(workload: &WorkloadSummary, contender: &ContenderSummary, verdict: Verdict) -> String {
    let baseline = contender.against.as_deref().unwrap_or("the baseline");
    let terms = contender.terms();
    let ratio = contender.ratio.as_ref();
    let said = said(&contender.name, baseline, ratio, verdict, terms.as_deref());
    let mut sentence = format!("{}: {said}", workload.title);
    if verdict == Verdict::Inconclusive {
        let reason = contender
            .doubts
            .iter()
            .chain(&workload.doubts)
            .find(|told| told.doubt.forbids_a_claim())
            .map(|told| told.what.clone());
        if let Some(reason) = reason {
            sentence.push_str(". ");
            sentence.push_str(reason.trim_end_matches('.'));
        } else if workload.noise_floor > 0.0 {
            sentence.push_str(&format!(
                ". The baseline against itself lies within {:.1} %",
                workload.noise_floor * 100.0
            ));
        }
    }
    for told in &contender.doubts {
        if let Doubt::Stalls {
            whose,
            blocks,
            of,
            together,
        } = &told.doubt
        {
            sentence.push_str(&format!(
                ". In {blocks} of {of} blocks {whose} was far slower than usual; all blocks together have the ratio {together:.3}"
            ));
        }
    }
    let baseline =
        (workload.contenders.iter()).find(|other| Some(&other.name) == contender.against.as_ref());
    for one in [Some(contender), baseline].into_iter().flatten() {
        for told in &one.doubts {
            if let Doubt::NeverSettled { runs, of, after_s } = told.doubt {
                sentence.push_str(&format!(
                    ". The rate of {} did not hold still before it was measured in {runs} of {of} runs, after {after_s:.0} s",
                    one.name
                ));
            }
        }
        let moved = one.doubts.iter().find_map(|told| told.doubt.unsteadiness());
        if let Some(moved) = moved {
            sentence.push_str(&format!(
                ". The rate of {} was not steady while it was measured: {moved}",
                one.name
            ));
        }
    }
    let tails: Vec<String> = contender
        .latencies
        .iter()
        .filter_map(|found| found.clause(verdict))
        .collect();
    if !tails.is_empty() {
        sentence.push_str(&format!(". {}", tails.join(". ")));
    }
    sentence.push('.');
    sentence
}

/// What a contender has that the one beside it has not, or the other way round, under any load.
fn terms(summary: &Summary, name: &str) -> Option<String> {
    (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .filter(|one| one.name == name)
        .find_map(ContenderSummary::terms)
}

impl ContenderSummary {
    /// On what terms it is compared, where these are not the same: a clause that belongs into every
    /// sentence with its verdict, because a figure from two disks against one is no figure of the
    /// software alone.
    #[must_use]
    pub fn terms(&self) -> Option<String> {
        let parts: Vec<String> = (self.doubts.iter())
            .filter_map(|told| match &told.doubt {
                Doubt::OtherSettings { differing } => {
                    let parts: Vec<String> = differing.iter().map(Differing::term).collect();
                    Some(format!("with {}", parts.join(" and ")))
                }
                Doubt::OtherDeviceCount {
                    devices,
                    baseline_devices,
                } => {
                    let disks = if *devices == 1 { "disk" } else { "disks" };
                    Some(format!("on {devices} {disks} against {baseline_devices}"))
                }
                Doubt::OtherPaceBeside {
                    companion,
                    own_s,
                    other_s,
                } => Some(pace_term(companion, *own_s, *other_s)),
                Doubt::OtherDurability {
                    copies,
                    baseline_copies,
                } => Some(format!(
                    "with {copies} {} against {baseline_copies}",
                    if *copies == 1 { "copy" } else { "copies" }
                )),
                Doubt::OtherChecksums { checks: true } => {
                    Some("with checksums of all data against none".to_owned())
                }
                Doubt::OtherChecksums { checks: false } => {
                    Some("without checksums against data that has them".to_owned())
                }
                Doubt::NotCached { .. } => {
                    Some("its data not cached although the load is called so".to_owned())
                }
                Doubt::OfTheOther { whose, doubt }
                    if matches!(**doubt, Doubt::NotCached { .. }) =>
                {
                    Some(format!(
                        "that of {whose} not cached although the load is called so"
                    ))
                }
                _ => None,
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// How fast what went on beside the load did, after the verdict.
fn pace_term(companion: &str, own_s: Option<f64>, other_s: Option<f64>) -> String {
    match (own_s, other_s) {
        (None, None) => format!("while neither {companion} was done"),
        (None, Some(_)) => format!("while its {companion} was never done"),
        (Some(_), None) => format!("while the other's {companion} was never done"),
        (Some(own), Some(other)) => {
            let times = own / other.max(f64::MIN_POSITIVE);
            let digits = if times < 1.0 { 2 } else { 1 };
            format!("while its {companion} took {times:.digits$} times as long")
        }
    }
}

fn said(
    name: &str,
    baseline: &str,
    ratio: Option<&Ratio>,
    verdict: Verdict,
    terms: Option<&str>,
) -> String {
    let terms = terms.map_or(String::new(), |terms| format!(", {terms}"));
    let Some(ratio) = ratio else {
        return format!(
            "{name} against {baseline} is {}: no run of it was measured",
            verdict.word()
        );
    };
    let interval = match (ratio.low, ratio.high, ratio.confidence) {
        (Some(low), Some(high), Some(confidence)) => {
            format!(
                "ratio {:.3}, {} interval {low:.3} to {high:.3}",
                ratio.centre,
                percent(confidence)
            )
        }
        _ => format!("ratio {:.3}, no interval", ratio.centre),
    };
    match verdict {
        Verdict::Faster => format!(
            "{name} is {:.0} % FASTER than {baseline}{terms} ({interval})",
            (ratio.centre - 1.0) * 100.0
        ),
        Verdict::Slower => format!(
            "{name} is {:.0} % SLOWER than {baseline}{terms} ({interval})",
            (1.0 - ratio.centre) * 100.0
        ),
        Verdict::Equivalent => format!("{name} and {baseline} are EQUIVALENT{terms} ({interval})"),
        Verdict::Inconclusive => {
            format!("{name} against {baseline} is INCONCLUSIVE{terms} ({interval})")
        }
        Verdict::Look => format!(
            "a LOOK at {name} against {baseline}{terms} ({interval}, {} blocks)",
            ratio.blocks
        ),
    }
}
