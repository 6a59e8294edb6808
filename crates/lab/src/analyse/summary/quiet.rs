//! Whether the machine was quiet while it was measured: no run of a minute is spoiled as a whole by
//! a backup of half a minute, so that each half is looked at by itself.

use crate::analyse::doubt::Doubt;
use crate::analyse::folder::{Folder, RunWithSamples};
use crate::analyse::series::{mean, median};
use crate::record::{COUNTED_S, Measured, Samples};

/// Of all processor time there was, in half of a run. A quiet machine has a hundredth or two.
const OTHERS_AT_MOST: f64 = 0.10;
const STOLEN_AT_MOST: f64 = 0.05;
/// Neighbours that wait for a disk, on average over half of a run.
const BLOCKED_AT_MOST: f64 = 0.5;
/// A block in which every run lies so far from the middle of its kind, to the same side.
const BLOCK_APART: f64 = 0.10;
/// So many runs lie on one side by chance too seldom to be chance.
const RUNS_OF_A_BLOCK: usize = 3;
/// Less of a half says nothing: the kernel counts in hundredths of a second.
const HALF_S_AT_LEAST: f64 = 0.4;

/// Others had most of the processors where more than half of all the time there was went to them.
const CROWDED_FROM: f64 = 0.5;
/// The interval of twelve blocks reaches from the third lowest ratio to the third highest: two
/// disturbed ones of twelve cannot move it beyond what is true, and more can.
const CROWDED_ONE_IN: usize = 6;

/// That most of the processors were not the contender's to use, in too many of its runs.
pub(super) fn crowd(whose: &str, runs: &[&RunWithSamples]) -> Option<Doubt> {
    let shares: Vec<f64> = runs
        .iter()
        .filter_map(|run| share_of_others(run.run.measured()?))
        .collect();
    let crowded: Vec<f64> = shares
        .iter()
        .copied()
        .filter(|share| *share > CROWDED_FROM)
        .collect();
    (crowded.len() * CROWDED_ONE_IN > shares.len()).then_some(())?;
    Some(Doubt::Crowded {
        whose: whose.to_owned(),
        runs: crowded.len(),
        of: shares.len(),
        share: median(&crowded)?,
    })
}

/// Of all processor time there was in a run, what other programs and other machines of this
/// machine's host had; none where that was not counted.
fn share_of_others(measured: &Measured) -> Option<f64> {
    let processor = &measured.processor;
    let length_s = measured
        .facts
        .get(COUNTED_S)
        .copied()
        .unwrap_or(measured.duration_s);
    let all_s = f64::from(processor.count) * length_s;
    (all_s > 0.0).then(|| Some((processor.others_s? + processor.stolen_s) / all_s))?
}

pub(super) fn doubts(folder: &Folder) -> Vec<Doubt> {
    let halves: Vec<Half> = folder.runs.iter().flat_map(halves).collect();
    let mut doubts = Vec::new();
    // The worst half beyond what is allowed, and every run with such a half, the worst first.
    let of = |share: fn(&Half) -> Option<f64>, most: f64| {
        let mut beyond: Vec<(&Half, f64)> = halves
            .iter()
            .filter_map(|half| Some((half, share(half)?)))
            .filter(|(_, share)| *share > most)
            .collect();
        beyond.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let mut disturbed: Vec<String> = Vec::new();
        for (half, _) in &beyond {
            if !disturbed.contains(&half.run) {
                disturbed.push(half.run.clone());
            }
        }
        let (worst, share) = *beyond.first()?;
        Some((worst, share, disturbed))
    };
    if let Some((worst, share, disturbed)) = of(|half| half.others, OTHERS_AT_MOST) {
        doubts.push(Doubt::NeighboursOnProcessors {
            share,
            disturbed,
            load: worst.load,
            pressure: worst.pressure,
        });
    }
    if let Some((_, blocked, disturbed)) = of(|half| half.blocked, BLOCKED_AT_MOST) {
        doubts.push(Doubt::NeighboursOnDisks { blocked, disturbed });
    }
    if let Some((_, share, disturbed)) = of(|half| half.stolen, STOLEN_AT_MOST) {
        doubts.push(Doubt::ProcessorStolen { share, disturbed });
    }
    doubts.extend(block_apart(folder));
    doubts
}

/// The first or second half of the measured time of a run.
struct Half {
    run: String,
    /// Of all processor time there was.
    others: Option<f64>,
    stolen: Option<f64>,
    blocked: Option<f64>,
    load: Option<f64>,
    /// Of the time: something runnable waited for a processor.
    pressure: Option<f64>,
}

fn halves(run: &RunWithSamples) -> Vec<Half> {
    let Some(measured) = run.run.measured() else {
        return Vec::new();
    };
    let from = measured.warm_up_s;
    let middle = from + measured.duration_s / 2.0;
    let until = from + measured.duration_s;
    [(from, middle), (middle, until)]
        .into_iter()
        .filter_map(|(from, until)| {
            let part = Part::of(&run.samples, from, until)?;
            let processors_s = f64::from(measured.processor.count) * part.length_s();
            Some(Half {
                run: run.run.planned.folder(),
                others: part
                    .growth("neighbours_s")
                    .map(|grown| grown.max(0.0) / processors_s),
                stolen: part
                    .growth("processor_stolen_s")
                    .map(|grown| grown / processors_s),
                blocked: part.mean("neighbours_blocked"),
                load: part.mean("load_average"),
                pressure: part
                    .growth("pressure_processor_s")
                    .map(|grown| grown / part.length_s()),
            })
        })
        .collect()
}

/// The samples between two moments.
struct Part<'a> {
    samples: &'a Samples,
    seconds: Vec<f64>,
    from: f64,
    until: f64,
}

impl<'a> Part<'a> {
    /// As far as the samples reach; none where that says nothing.
    fn of(samples: &'a Samples, from: f64, until: f64) -> Option<Self> {
        let seconds = samples.column("seconds")?;
        let from = from.max(*seconds.first()?);
        let until = until.min(*seconds.last()?);
        (until - from >= HALF_S_AT_LEAST).then_some(Self {
            samples,
            seconds,
            from,
            until,
        })
    }

    fn length_s(&self) -> f64 {
        self.until - self.from
    }

    /// How much a counter grew, between rows as if evenly.
    fn growth(&self, name: &str) -> Option<f64> {
        let values = self.samples.column(name)?;
        Some(self.at(&values, self.until)? - self.at(&values, self.from)?)
    }

    fn at(&self, values: &[f64], moment: f64) -> Option<f64> {
        let next = self.seconds.iter().position(|second| *second >= moment)?;
        let Some(before) = next.checked_sub(1) else {
            return values.get(next).copied();
        };
        let length = self.seconds[next] - self.seconds[before];
        let share = if length > 0.0 {
            (moment - self.seconds[before]) / length
        } else {
            1.0
        };
        Some(values[before] + share * (values[next] - values[before]))
    }

    /// Of what is no counter.
    fn mean(&self, name: &str) -> Option<f64> {
        let values = self.samples.column(name)?;
        let within: Vec<f64> = self
            .seconds
            .iter()
            .zip(values)
            .filter(|(second, _)| (self.from..=self.until).contains(second))
            .map(|(_, value)| value)
            .collect();
        mean(&within)
    }
}

/// A block in which every run was slower, or faster, than its like in the other blocks: the ratios
/// within it may hold, the machine was another one.
fn block_apart(folder: &Folder) -> Option<Doubt> {
    let measured: Vec<_> = folder
        .runs
        .iter()
        .filter_map(|run| Some((&run.run.planned, run.run.measured()?.rate)))
        .collect();
    let blocks = measured.iter().map(|(planned, _)| planned.block).max()?;
    // Fewer have no middle that one of them does not move.
    if blocks < 3 {
        return None;
    }
    (1..=blocks)
        .filter_map(|block| {
            let changes: Vec<f64> = measured
                .iter()
                .filter(|(planned, _)| planned.block == block)
                .filter_map(|(planned, rate)| {
                    let of_its_kind: Vec<f64> = measured
                        .iter()
                        .filter(|(other, _)| {
                            other.label == planned.label && other.workload == planned.workload
                        })
                        .map(|(_, rate)| *rate)
                        .collect();
                    Some(rate / median(&of_its_kind).filter(|middle| *middle > 0.0)? - 1.0)
                })
                .collect();
            let is_apart = changes.len() >= RUNS_OF_A_BLOCK
                && (changes.iter().all(|change| *change < -BLOCK_APART)
                    || changes.iter().all(|change| *change > BLOCK_APART));
            let change = median(&changes).filter(|_| is_apart)?;
            Some((block, change, changes.len()))
        })
        .max_by(|(_, one, _), (_, other, _)| one.abs().total_cmp(&other.abs()))
        .map(|(block, change, runs)| Doubt::BlockApart {
            block,
            change,
            runs,
        })
}

#[cfg(test)]
mod tests;
