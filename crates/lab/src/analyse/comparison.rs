//! Two experiments side by side, where that may be done; else why not.

use std::collections::BTreeMap;

use serde::Serialize;

use super::doubt::Doubt;
use super::folder::Folder;
use super::interval::{Comparisons, Interval, centre, difference, interval_among};
use super::summary::{
    ContenderSummary, JUDGED, Summary, WorkloadSummary, by_block, pairs, summarise,
};
use super::verdict::{Verdict, judge};
use crate::experiment::Workload;
use crate::record::AGAIN;

/// A contender in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The load.
    pub workload: String,
    /// The contender.
    pub contender: String,
    /// What is compared: `rate`, `p95` or `p99`.
    pub figure: String,
    /// In what.
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
    /// What may be said of the ratios; where there are none, a look at the rates at most: the day is
    /// in them. Of slow operations FASTER is what takes less time.
    pub verdict: Verdict,
    /// Why the two are not comparable, in a clause, where they are of different durability classes.
    pub not_comparable: Option<String>,
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

    /// The same with ends that lie further out by this share.
    fn widened(self, share: f64) -> Self {
        Self {
            low: self.low.map(|low| low / (1.0 + share)),
            high: self.high.map(|high| high * (1.0 + share)),
            ..self
        }
    }

    /// Of the first to the second.
    fn inverse(self) -> Self {
        Self {
            low: self.high.map(|high| 1.0 / high),
            centre: 1.0 / self.centre,
            high: self.low.map(|low| 1.0 / low),
            blocks: self.blocks,
        }
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
    if rows.iter().all(|row| row.not_comparable.is_some()) {
        let mut apart: Vec<String> = Vec::new();
        for reason in rows.into_iter().filter_map(|row| row.not_comparable) {
            if !apart.contains(&reason) {
                apart.push(reason);
            }
        }
        return Err(apart);
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
    let shared: Vec<&Workload> = (one.workloads.iter())
        .filter(|workload| other.workloads.contains(workload))
        .collect();
    differs("every workload", shared.is_empty());
    let is_known = |workload: &&Workload| workload.scripts.are_known();
    if let Some(first) = shared.first()
        && !shared.iter().any(is_known)
    {
        reasons.push(format!(
            "what the scripts of `{}` were is known of neither: their files are not in the folders",
            first.title()
        ));
    }
    reasons
}

struct Both<'a> {
    folders: [&'a Folder; 2],
    summaries: [Summary; 2],
}

/// A contender in both, with its place.
struct Pair<'a> {
    /// Of the load, in each.
    places: [usize; 2],
    loads: [&'a WorkloadSummary; 2],
    own: [&'a ContenderSummary; 2],
}

/// That one name stands for two things: another storage, other settings or other options.
fn asked_apart(both: &Both, name: &str) -> Option<String> {
    let asked = (both.folders).map(|folder| folder.experiment.asked(name));
    if asked[0] == asked[1] {
        return None;
    }
    let words = asked.map(|asked| {
        let mut words = vec![asked.storage.clone()];
        words.extend(asked.parts());
        words.join(" ")
    });
    Some(format!(
        "{name} is not the same in both: {} here, {} there",
        words[0], words[1]
    ))
}

fn rows(both: &Both) -> Vec<Row> {
    let [first, second] = &both.summaries;
    let mut found = Vec::new();
    for (index, workload) in first.workloads.iter().enumerate() {
        let same = second
            .workloads
            .iter()
            .position(|other| other.title == workload.title)
            // Scripts have the names of their files, whatever stands in these.
            .filter(|place| {
                let [one, other] = both.folders.map(|folder| &folder.experiment.workloads);
                let (one, other) = (&one[index].scripts, &other[*place].scripts);
                one == other && one.are_known()
            });
        let Some(place) = same else {
            continue;
        };
        let other = &second.workloads[place];
        for contender in &workload.contenders {
            let same = other
                .contenders
                .iter()
                .find(|other| other.name == contender.name && !other.name.ends_with(AGAIN));
            found.extend(same.map(|same| Pair {
                places: [index, place],
                loads: [workload, other],
                own: [contender, same],
            }));
        }
    }
    // All words of the rates are to be right together, and all of the slow operations among
    // themselves, as within one experiment.
    let of_rates = Comparisons::of(found.len());
    let of_latencies = Comparisons::of(found.len() * JUDGED.len());
    found
        .iter()
        .flat_map(|pair| {
            let latencies = JUDGED.map(|quantile| latency_row(both, pair, quantile, of_latencies));
            [rate_row(both, pair, of_rates)]
                .into_iter()
                .chain(latencies)
                .flatten()
        })
        .collect()
}

impl Pair<'_> {
    /// What it is compared with, where that is the same in both and has figures there.
    fn against(&self) -> Option<&str> {
        let [one, other] = self.own;
        let has_ratios = one.ratio.is_some() && other.ratio.is_some();
        one.against
            .as_deref()
            .filter(|name| Some(*name) == other.against.as_deref() && has_ratios)
    }

    /// Why the two are of different durability classes, where they are: the contender itself, or
    /// what it is compared with.
    fn apart(&self, both: &Both) -> Option<String> {
        let names = [Some(self.own[0].name.as_str()), self.against()];
        names.into_iter().flatten().find_map(|name| {
            if let Some(reason) = asked_apart(both, name) {
                return Some(reason);
            }
            let found = self.loads.map(|load| {
                let one = load.contenders.iter().find(|one| one.name == name);
                one.and_then(|one| one.durability.as_ref())
            });
            let class = found.map(|found| found.map(|found| found.class));
            (class[0] != class[1]).then(|| {
                let words = class.map(|class| class.map_or("not looked at", |class| class.words()));
                let reason = found
                    .iter()
                    .flatten()
                    .max_by_key(|found| found.class)
                    .map_or("", |found| found.reason.as_str());
                format!(
                    "the durability of {name}: {} here, {} there ({reason})",
                    words[0], words[1]
                )
            })
        })
    }

    /// What is said against it in one of them, and forbids a claim, or leaves a look.
    fn reason(&self, is: fn(&Doubt) -> bool) -> Option<String> {
        self.own
            .iter()
            .zip(self.loads)
            .find_map(|(contender, load)| {
                contender
                    .doubts
                    .iter()
                    .chain(&load.doubts)
                    .find(|told| is(&told.doubt))
                    .map(|told| told.what.clone())
            })
    }

    /// The row, from what is judged of the ratios, else of the rates. `floor` is the noise of each.
    fn row(&self, both: &Both, measured: Figures, comparisons: Comparisons) -> Row {
        let not_comparable = self.apart(both);
        let forbidden = self.reason(Doubt::forbids_a_claim);
        // Without something beside it nobody can tell the contender from the day.
        let alone = measured.ratios.is_none().then(|| {
            format!(
                "Nothing stands beside {} that would tell it from the day.",
                self.own[0].name
            )
        });
        let look = self.reason(Doubt::leaves_a_look).or(alone);
        // The noise of both: the one may have been low while the other was high.
        let floor = measured
            .floors
            .iter()
            .map(|floor| 1.0 + floor)
            .product::<f64>()
            - 1.0;
        let margin = both.summaries[0].margin.min(both.summaries[1].margin);
        let judged = || {
            let change = measured.ratios.unwrap_or(measured.rates);
            let change = if measured.is_time {
                change.inverse()
            } else {
                change
            };
            change.judged(margin, floor, comparisons)
        };
        let verdict = match (&not_comparable, &forbidden, &look) {
            (Some(_), _, _) | (_, Some(_), _) => Verdict::Inconclusive,
            (None, None, Some(_)) => judged().at_most_a_look(),
            (None, None, None) if self.reason(Doubt::hides_a_difference).is_some() => {
                judged().without_equivalence()
            }
            (None, None, None) => judged(),
        };
        Row {
            workload: self.loads[0].title.clone(),
            contender: self.own[0].name.clone(),
            figure: measured.figure,
            unit: measured.unit,
            first: measured.middles[0],
            second: measured.middles[1],
            rates: measured.rates,
            against: self
                .against()
                .filter(|_| measured.ratios.is_some())
                .map(str::to_owned),
            ratios: measured.ratios,
            verdict,
            not_comparable,
            reason: forbidden.or(look),
        }
    }
}

/// What a row is made of.
struct Figures {
    figure: String,
    unit: String,
    /// Whether less is better.
    is_time: bool,
    middles: [f64; 2],
    rates: Change,
    ratios: Option<Change>,
    floors: [f64; 2],
}

fn rate_row(both: &Both, pair: &Pair<'_>, comparisons: Comparisons) -> Option<Row> {
    let [one, other] = pair.own;
    let logs = |rates: &[f64]| -> Vec<f64> { rates.iter().map(|rate| rate.ln()).collect() };
    let rates = Change::of(&logs(&one.rates), &logs(&other.rates), comparisons)?;
    let ratios = pair.against().and_then(|against| {
        let logs = |side: usize| -> Vec<f64> {
            let pairs = pairs(both.folders[side], pair.places[side], &one.name, against);
            log_ratios(pairs)
        };
        Change::of(&logs(0), &logs(1), comparisons)
    });
    let figures = Figures {
        figure: "rate".to_owned(),
        unit: pair.loads[0].unit.clone(),
        is_time: false,
        middles: [one.rate?, other.rate?],
        rates,
        ratios,
        floors: pair.loads.map(|load| load.noise_floor),
    };
    Some(pair.row(both, figures, comparisons))
}

/// The same of the slow operations, where less is better.
fn latency_row(
    both: &Both,
    pair: &Pair<'_>,
    (name, quantile): (&str, f64),
    comparisons: Comparisons,
) -> Option<Row> {
    let found = pair.own.map(|own| {
        let mut latencies = own.latencies.iter();
        latencies.find(|found| found.quantile == name)
    });
    let [Some(one), Some(other)] = found else {
        return None;
    };
    let of =
        |side: usize, label: &str| by_block(both.folders[side], pair.places[side], label, quantile);
    let own = [0, 1].map(|side| of(side, &pair.own[0].name));
    let logs = |side: usize| -> Vec<f64> { own[side].values().map(|us| us.ln()).collect() };
    // They are recorded in whole microseconds.
    let rounding =
        |of: &BTreeMap<u32, f64>| 0.5 / of.values().copied().fold(f64::INFINITY, f64::min);
    let own_rounding = rounding(&own[0]) + rounding(&own[1]);
    let rates = Change::of(&logs(0), &logs(1), comparisons)?.widened(own_rounding);
    let ratios = pair.against().and_then(|against| {
        let beside = [0, 1].map(|side| of(side, against));
        let logs = |side: usize| -> Vec<f64> {
            let of_each = own[side].iter();
            log_ratios(
                of_each
                    .filter_map(|(block, us)| Some((*block, (*us, *beside[side].get(block)?))))
                    .collect(),
            )
        };
        let rounding = own_rounding + rounding(&beside[0]) + rounding(&beside[1]);
        Some(Change::of(&logs(0), &logs(1), comparisons)?.widened(rounding))
    });
    let figures = Figures {
        figure: name.to_owned(),
        unit: "\u{b5}s".to_owned(),
        is_time: true,
        middles: [one.us, other.us],
        rates,
        ratios,
        floors: [one, other].map(|found| found.noise_floor.unwrap_or(0.0)),
    };
    let mut row = pair.row(both, figures, comparisons);
    if one.noise_floor.is_none() || other.noise_floor.is_none() {
        // How far the baseline lies from itself in it is not known in one of them.
        row.verdict = row.verdict.at_most_a_look();
    }
    Some(row)
}

fn log_ratios(pairs: BTreeMap<u32, (f64, f64)>) -> Vec<f64> {
    pairs
        .values()
        .map(|(own, other)| (own / other).ln())
        .collect()
}

#[cfg(test)]
mod tests;
