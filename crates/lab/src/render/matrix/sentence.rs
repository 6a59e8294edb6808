//! The verdicts as the one sentence that stands over everything else.

use super::class_of;
use crate::analyse::summary::{ContenderSummary, FoundClass, Ratio, Summary, class_title};
use crate::analyse::verdict::Verdict;
use crate::record::{AGAIN, DurabilityClass};

/// The sentence. It claims no more than the cells below it.
#[must_use]
pub fn sentence(summary: &Summary) -> String {
    let compared: Vec<Compared<'_>> = names(summary)
        .into_iter()
        .filter_map(|name| Compared::of(summary, name))
        .collect();
    let mut clauses = Vec::new();
    let mut last_against = None;
    let mut index = 0;
    while let Some(one) = compared.get(index) {
        // Who is said the same of stands together.
        let alike: Vec<&str> = compared[index..]
            .iter()
            .take_while(|other| other.is_said_the_same_of(one, summary))
            .map(|other| other.name)
            .collect();
        index += alike.len();
        let said = one.said(summary, alike.len() == 1);
        let against = if last_against == Some(one.against) {
            String::new()
        } else {
            format!("against {}, ", one.against)
        };
        last_against = Some(one.against);
        clauses.push(format!("{against}{} {said}", listed(&alike)));
    }
    let is_compared = !clauses.is_empty();
    if !is_compared {
        clauses.push("nothing was compared".to_owned());
    }
    clauses.extend(unranked(summary));
    let text = format!("{}{}.", a_look(summary), clauses.join("; "));
    let mut letters = text.chars();
    // It begins with a word of ours, never with a name.
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.map_or_else(String::new, |first| format!("{first}{}", letters.as_str()))
}

/// Everyone but the baseline, as they were named.
fn names(summary: &Summary) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for contender in summary.workloads.iter().flat_map(|load| &load.contenders) {
        let name = contender.name.as_str();
        if name != summary.baseline && !name.ends_with(AGAIN) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A contender with a verdict under at least one load.
struct Compared<'a> {
    name: &'a str,
    against: &'a str,
    found: Vec<(Verdict, Option<Ratio>)>,
    /// On what terms, where these are not the same for both.
    terms: Option<String>,
}

impl<'a> Compared<'a> {
    fn of(summary: &'a Summary, name: &'a str) -> Option<Self> {
        let under_each: Vec<&ContenderSummary> = (summary.workloads.iter())
            .filter_map(|load| load.contenders.iter().find(|one| one.name == name))
            .collect();
        let found: Vec<(Verdict, Option<Ratio>)> = (under_each.iter())
            .filter_map(|one| Some((one.verdict?, one.ratio)))
            .collect();
        let judged = under_each.iter().find(|one| one.verdict.is_some())?;
        Some(Self {
            name,
            against: judged.against.as_deref().unwrap_or(&summary.baseline),
            terms: under_each.iter().find_map(|one| one.terms()),
            found,
        })
    }

    fn is_said_the_same_of(&self, other: &Self, summary: &Summary) -> bool {
        self.against == other.against && self.said(summary, true) == other.said(summary, true)
    }

    /// What follows its name; `is_alone` where no other name stands before it.
    fn said(&self, summary: &Summary, is_alone: bool) -> String {
        let (verb, whose) = if is_alone {
            ("is", "it")
        } else {
            ("are", "them")
        };
        if self.found.iter().all(|(_, ratio)| ratio.is_none()) {
            let word = Verdict::Inconclusive.word();
            let against = self.against;
            return format!(
                "{verb} {word}: no run of {whose} was measured beside one of {against}"
            );
        }
        let loads = summary.workloads.len();
        let parts: Vec<String> = ORDER
            .into_iter()
            .filter_map(|verdict| {
                let ratios: Vec<f64> = (self.found.iter())
                    .filter(|(found, _)| *found == verdict)
                    .map(|(_, ratio)| ratio.map_or(1.0, |ratio| ratio.centre))
                    .collect();
                let under = match (ratios.len(), loads) {
                    (0, _) => return None,
                    (_, 1) => String::new(),
                    (2, 2) => " under both loads".to_owned(),
                    (count, loads) if count == loads => format!(" under all {loads} loads"),
                    (count, loads) => format!(" under {count} of {loads} loads"),
                };
                let phrase = phrase(verdict, &ratios, is_only_a_look(summary));
                Some(format!("{phrase}{under}"))
            })
            .collect();
        // The number of the loads is told once.
        let mut parts = parts.iter().map(String::as_str);
        let first = parts.next().unwrap_or_default();
        let of_loads = format!(" of {loads} loads");
        let others = parts.map(|part| part.trim_end_matches(&of_loads));
        let all: Vec<&str> = [first].into_iter().chain(others).collect();
        let terms = (self.terms.as_ref()).map_or(String::new(), |terms| format!(", {terms}"));
        format!("{verb} {}{terms}", listed(&all))
    }
}

/// What says something first.
const ORDER: [Verdict; 5] = [
    Verdict::Faster,
    Verdict::Slower,
    Verdict::Equivalent,
    Verdict::Look,
    Verdict::Inconclusive,
];

/// A verdict with how much of it.
fn phrase(verdict: Verdict, ratios: &[f64], is_only_a_look: bool) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let word = verdict.word();
    let between = |one: String, other: String| {
        if one == other {
            one
        } else {
            format!("{one} to {other}")
        }
    };
    let percent = |ratio: f64| format!("{:.0}", (ratio - 1.0).abs() * 100.0);
    match verdict {
        Verdict::Faster => format!("{} % {word}", between(percent(low), percent(high))),
        Verdict::Slower => format!("{} % {word}", between(percent(high), percent(low))),
        Verdict::Equivalent | Verdict::Inconclusive => word.to_owned(),
        Verdict::Look => {
            let times = between(format!("{low:.3}"), format!("{high:.3}"));
            if is_only_a_look {
                format!("{times} times as fast")
            } else {
                format!("{times} times as fast, only a {word},")
            }
        }
    }
}

/// Whether nothing is claimed of anybody, for want of blocks.
fn is_only_a_look(summary: &Summary) -> bool {
    let verdicts = || {
        (summary.workloads.iter().flat_map(|load| &load.contenders)).filter_map(|one| one.verdict)
    };
    let is_no_claim = |verdict| matches!(verdict, Verdict::Look | Verdict::Inconclusive);
    verdicts().any(|verdict| verdict == Verdict::Look) && verdicts().all(is_no_claim)
}

/// Before anything else, where a look is all there is.
fn a_look(summary: &Summary) -> String {
    if !is_only_a_look(summary) {
        return String::new();
    }
    let looks = || {
        (summary.workloads.iter().flat_map(|load| &load.contenders))
            .filter(|one| one.verdict == Some(Verdict::Look))
    };
    let blocks = looks()
        .filter_map(|one| one.ratio)
        .map(|ratio| (ratio.blocks, ratio.blocks_for_a_claim()))
        .max();
    let reason = looks()
        .flat_map(|one| &one.doubts)
        .find(|told| told.doubt.leaves_a_look())
        .map(|told| told.doubt.name());
    match (blocks, reason) {
        (Some((blocks, needed)), _) if blocks < needed => {
            format!("a look from {blocks} blocks and no claim, which needs {needed}: ")
        }
        (_, Some(reason)) => format!("a look and no claim ({reason}): "),
        _ => String::new(),
    }
}

/// Who is not durable at all, who stands apart and why, and who misses the limit.
fn unranked(summary: &Summary) -> Vec<String> {
    let all = || summary.workloads.iter().flat_map(|load| &load.contenders);
    let of_the_baseline = class_of(summary, &summary.baseline);
    let mut clauses = Vec::new();
    let mut forgetful: Vec<(Vec<&str>, &str)> = Vec::new();
    let mut over: Vec<&str> = Vec::new();
    let everyone = [summary.baseline.as_str()]
        .into_iter()
        .chain(names(summary));
    for name in everyone {
        let class = class_of(summary, name);
        let is_apart = class.is_some() && of_the_baseline.is_some() && class != of_the_baseline;
        if is_apart {
            clauses.push(format!(
                "{name} is not ranked with {} ({})",
                summary.baseline,
                why_apart(summary, name, class.flatten())
            ));
        } else if class.flatten() == Some(DurabilityClass::NotDurable) {
            // Whose reasons are the same stand together.
            let reason = found_of(summary, name).map_or("", |found| found.reason.as_str());
            match forgetful.iter_mut().find(|(_, other)| *other == reason) {
                Some((names, _)) => names.push(name),
                None => forgetful.push((vec![name], reason)),
            }
        }
        if all().any(|one| one.name == name && one.is_over_the_limit()) {
            over.push(name);
        }
    }
    let mut told = |names: &[&str], one: &str, many: &str| {
        if !names.is_empty() {
            let verb = if names.len() == 1 { one } else { many };
            clauses.push(format!("{} {verb}", listed(names)));
        }
    };
    for (names, reason) in &forgetful {
        let because = match *reason {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        told(
            names,
            &format!("is not durable{because}"),
            &format!("are not durable{because}"),
        );
    }
    told(
        &over,
        "misses the limit of response times",
        "miss the limit of response times",
    );
    clauses
}

/// What was found of what a contender acknowledges.
fn found_of<'a>(summary: &'a Summary, name: &str) -> Option<&'a FoundClass> {
    (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .filter(|one| one.name == name)
        .find_map(|one| one.durability.as_ref())
}

/// Why the one is of another class than the baseline, from whichever of the two is of the worse.
fn why_apart(summary: &Summary, name: &str, class: Option<DurabilityClass>) -> String {
    let title = class_title(class).to_lowercase();
    let (own, baseline) = (
        found_of(summary, name),
        found_of(summary, &summary.baseline),
    );
    match (own, baseline) {
        (Some(own), Some(baseline)) if baseline.class > own.class => {
            let of_it = class_title(Some(baseline.class)).to_lowercase();
            format!(
                "{title}; {}: {of_it}, {}",
                summary.baseline, baseline.reason
            )
        }
        (Some(own), _) => format!("{title}: {}", own.reason),
        (None, _) => title,
    }
}

/// `a, b and c`.
fn listed(parts: &[&str]) -> String {
    match parts {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [firsts @ .., last] => format!("{} and {last}", firsts.join(", ")),
    }
}
