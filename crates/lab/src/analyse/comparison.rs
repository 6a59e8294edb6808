//! Two experiments side by side, where that may be done; else why not.

use std::collections::BTreeMap;

use serde::Serialize;

use super::folder::Folder;
use super::interval::{Comparisons, Interval, centre, difference, interval_among};
use super::summary::{ContenderSummary, Summary, WorkloadSummary, pairs, summarise};
use super::verdict::{Verdict, judge};
use crate::record::AGAIN;

/// A contender in both.
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
    /// The second over the first.
    pub rates: Change,
    /// What it is compared with in both; none for the baseline.
    pub against: Option<String>,
    /// The ratio to that in the second over the one in the first: what changed for both alike, the
    /// day and the machine, is not in it.
    pub ratios: Option<Change>,
    /// What may be said: of the ratios where there are any, else of the rates.
    pub verdict: Verdict,
    /// Why nothing may be said, or only a look is left, where something forbids more.
    pub reason: Option<String>,
}

/// From the first to the second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// The lower end; none where one has too few blocks.
    pub low: Option<f64>,
    /// The best single value.
    pub centre: f64,
    /// The upper end.
    pub high: Option<f64>,
    /// Blocks of the one that has fewer.
    pub blocks: usize,
}

impl Change {
    /// From logs, a block each.
    fn of(first: &[f64], second: &[f64], comparisons: Comparisons) -> Option<Self> {
        let found = interval_among(second, comparisons)
            .zip(interval_among(first, comparisons))
            .map(|(second, first)| difference(second, first).exp());
        Some(Self {
            low: found.map(|found| found.low),
            centre: (centre(second)? - centre(first)?).exp(),
            high: found.map(|found| found.high),
            blocks: first.len().min(second.len()),
        })
    }

    /// What may be said of it, where nothing forbids to say something.
    fn judged(&self, margin: f64, floor: f64, comparisons: Comparisons) -> Verdict {
        let interval = self.low.zip(self.high).map(|(low, high)| Interval {
            low,
            centre: self.centre,
            high,
            confidence: 0.0,
        });
        if interval.is_some() && self.blocks < comparisons.blocks_for_a_claim() {
            return Verdict::Look;
        }
        judge(interval, margin, floor)
    }
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
    let rows = rows(&Both {
        folders: [first, second],
        summaries: [summarise(first), summarise(second)],
    });
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

struct Both<'a> {
    folders: [&'a Folder; 2],
    summaries: [Summary; 2],
}

fn rows(both: &Both) -> Vec<Row> {
    let [first, second] = &both.summaries;
    let mut found = Vec::new();
    for (index, workload) in first.workloads.iter().enumerate() {
        let same = second
            .workloads
            .iter()
            .position(|other| other.title == workload.title);
        let Some(place) = same else {
            continue;
        };
        let other = &second.workloads[place];
        for contender in &workload.contenders {
            let same = other
                .contenders
                .iter()
                .find(|other| other.name == contender.name && !other.name.ends_with(AGAIN));
            found.extend(same.map(|same| {
                let sides = [(workload, contender), (other, same)];
                ([index, place], sides)
            }));
        }
    }
    // All words of the rows are to be right together.
    let comparisons = Comparisons::of(found.len());
    found
        .into_iter()
        .filter_map(|(places, sides)| row(both, places, sides, comparisons))
        .collect()
}

fn row(
    both: &Both,
    places: [usize; 2],
    sides: [(&WorkloadSummary, &ContenderSummary); 2],
    comparisons: Comparisons,
) -> Option<Row> {
    let [(workload, one), (_, other)] = sides;
    let logs = |rates: &[f64]| -> Vec<f64> { rates.iter().map(|rate| rate.ln()).collect() };
    let rates = Change::of(&logs(&one.rates), &logs(&other.rates), comparisons)?;
    let against = one
        .against
        .clone()
        .filter(|name| Some(name) == other.against.as_ref())
        .filter(|_| one.ratio.is_some() && other.ratio.is_some());
    let ratios = against.as_ref().and_then(|against| {
        let logs = |side: usize| -> Vec<f64> {
            let pairs: BTreeMap<u32, (f64, f64)> =
                pairs(both.folders[side], places[side], &one.name, against);
            pairs
                .values()
                .map(|(own, other)| (own / other).ln())
                .collect()
        };
        Change::of(&logs(0), &logs(1), comparisons)
    });
    let reason = sides.iter().find_map(|(workload, contender)| {
        contender
            .doubts
            .iter()
            .chain(&workload.doubts)
            .find(|told| told.doubt.forbids_a_claim())
            .map(|told| told.what.clone())
    });
    let look = sides.iter().find_map(|(_, contender)| {
        let told = contender
            .doubts
            .iter()
            .find(|told| told.doubt.leaves_a_look());
        told.map(|told| told.what.clone())
    });
    // The noise of both: the one may have been low while the other was high.
    let floor = sides
        .iter()
        .map(|(workload, _)| 1.0 + workload.noise_floor)
        .product::<f64>()
        - 1.0;
    let margin = both.summaries[0].margin.min(both.summaries[1].margin);
    Some(Row {
        workload: workload.title.clone(),
        contender: one.name.clone(),
        unit: workload.unit.clone(),
        first: one.rate?,
        second: other.rate?,
        rates,
        verdict: match (&reason, &look) {
            (Some(_), _) => Verdict::Inconclusive,
            (None, Some(_)) => ratios
                .unwrap_or(rates)
                .judged(margin, floor, comparisons)
                .at_most_a_look(),
            (None, None) => ratios.unwrap_or(rates).judged(margin, floor, comparisons),
        },
        against: against.filter(|_| ratios.is_some()),
        ratios,
        reason: reason.or(look),
    })
}

#[cfg(test)]
mod tests;
