//! Whether the rate held still while it was measured. The measure is that of SNIA's Performance Test
//! Specification: five rounds, a fifth of the measured time each, whose best straight line rises or
//! falls by at most a tenth of their mean, and which lie at most a fifth of it apart.
//!
//! A round of a short run is one noisy second. So the course is that of all runs of a contender
//! under a load, each relative to its own mean: what all of them show is no noise. A single run of
//! eight samples or more is looked at by itself as well, by its trend.
//!
//! Before a claim the lab waits until a rate is steady, up to a longest time. What did not become so,
//! and what was not while it was measured, is told in the verdict's sentence.

use crate::analyse::doubt::Doubt;
use crate::analyse::folder::RunWithSamples;
use crate::analyse::interval::interval;
use crate::analyse::series::{
    SLOPE_AT_MOST, SPREAD_AT_MOST, effective_count, median, rounds, slope, spread, unsettled,
};
use crate::experiment::Workload;
use crate::quantity::as_float;
use crate::record::SETTLED;

const INDEPENDENT_AT_LEAST: u64 = 5;

/// What the course of the rate over time says against it.
pub(super) fn doubts(runs: &[&RunWithSamples], asked: &Workload) -> Vec<Doubt> {
    let paces: Vec<Vec<f64>> = runs
        .iter()
        .map(|run| {
            let pace: Vec<f64> = run.pace(false).into_iter().map(|point| point.1).collect();
            match pace.as_slice() {
                // Its first and its last second are worked in part only.
                [_, inner @ .., _] if asked.is_measured_to_its_end() => inner.to_vec(),
                _ => pace,
            }
        })
        .filter(|pace| !pace.is_empty())
        .collect();
    let mut doubts: Vec<Doubt> = not_settled(&paces).into_iter().collect();
    doubts.extend(never_settled(runs));
    if !asked.is_measured_to_its_end() {
        doubts.extend(nothing_waited_for(runs));
    }
    doubts.extend(too_short(&paces));
    doubts.extend(alike(&paces));
    doubts
}

/// The gate before the measured time was passed by its longest time.
fn never_settled(runs: &[&RunWithSamples]) -> Option<Doubt> {
    let waited: Vec<(&f64, f64)> = runs
        .iter()
        .filter_map(|run| run.run.measured())
        .filter_map(|measured| Some((measured.facts.get(SETTLED)?, measured.warm_up_s)))
        .collect();
    let in_vain: Vec<f64> = waited
        .iter()
        .filter(|(settled, _)| **settled < 1.0)
        .map(|(_, after_s)| *after_s)
        .collect();
    Some(Doubt::NeverSettled {
        runs: in_vain.len(),
        of: waited.len(),
        after_s: median(&in_vain)?,
    })
}

/// The gate was not there: it is off without a word for a short warm-up, for few blocks, and where the
/// file says so.
fn nothing_waited_for(runs: &[&RunWithSamples]) -> Option<Doubt> {
    let measured: Vec<_> = runs.iter().filter_map(|run| run.run.measured()).collect();
    let unwatched: Vec<f64> = measured
        .iter()
        .filter(|measured| !measured.facts.contains_key(SETTLED))
        .map(|measured| measured.warm_up_s)
        .collect();
    Some(Doubt::NothingWaitedFor {
        runs: unwatched.len(),
        of: measured.len(),
        after_s: median(&unwatched)?,
    })
}

fn not_settled(paces: &[Vec<f64>]) -> Option<Doubt> {
    let courses: Vec<[f64; 5]> = paces.iter().filter_map(|pace| rounds(pace)).collect();
    let slopes: Vec<f64> = courses.iter().map(slope).collect();
    let (spread, is_apart) = spread_of_all(&courses);
    let trends: Vec<f64> = paces
        .iter()
        .filter_map(|pace| unsettled(pace))
        .filter(|change| change.abs() > SLOPE_AT_MOST)
        .collect();
    // One in a hundred looks so by chance.
    let by_trend = median(&trends).filter(|_| trends.len() * 5 > paces.len());
    // All runs together rise or fall, beyond chance and beyond what matters.
    let by_slope = interval(&slopes)
        .filter(|found| found.low > 0.0 || found.high < 0.0)
        .map(|found| found.centre)
        .filter(|slope| slope.abs() > SLOPE_AT_MOST);
    let beyond = slopes
        .iter()
        .filter(|slope| slope.abs() > SLOPE_AT_MOST)
        .count();
    let change = by_slope
        .or(by_trend)
        .or_else(|| median(&slopes).filter(|_| is_apart))?;
    Some(Doubt::NotSettled {
        runs: beyond.max(trends.len()),
        change,
        spread,
    })
}

/// How far the rounds of all runs lie apart, and whether that is more than noise: the highest must
/// lie above the lowest in the runs by themselves, too, by half of the bound at least.
fn spread_of_all(courses: &[[f64; 5]]) -> (f64, bool) {
    let typical = [0, 1, 2, 3, 4].map(|round| {
        let of_all: Vec<f64> = courses.iter().map(|course| course[round]).collect();
        median(&of_all).unwrap_or(1.0)
    });
    let by_rate = |one: &usize, other: &usize| typical[*one].total_cmp(&typical[*other]);
    let lowest = (0..5).min_by(by_rate).unwrap_or(0);
    let highest = (0..5).max_by(by_rate).unwrap_or(0);
    let apart: Vec<f64> = courses
        .iter()
        .map(|course| course[highest] - course[lowest])
        .collect();
    let spread = spread(&typical);
    let is_sure = interval(&apart).is_some_and(|found| found.low > SPREAD_AT_MOST / 2.0);
    (spread, is_sure && spread > SPREAD_AT_MOST)
}

/// Runs that are too short for five rounds say nothing of it.
fn too_short(paces: &[Vec<f64>]) -> Option<Doubt> {
    let judged = paces.iter().filter(|pace| rounds(pace).is_some()).count();
    let lengths: Vec<f64> = paces
        .iter()
        .map(|pace| as_float(pace.len() as u64))
        .collect();
    (judged * 2 < paces.len()).then_some(())?;
    Some(Doubt::TooShortToSettle {
        samples: median(&lengths)?,
    })
}

/// Seconds that resemble each other are not as many measurements.
fn alike(paces: &[Vec<f64>]) -> Option<Doubt> {
    let mut counts: Vec<u64> = paces
        .iter()
        .filter(|pace| pace.len() >= 8)
        .map(|pace| effective_count(pace))
        .collect();
    counts.sort_unstable();
    let effective = *counts.get(counts.len() / 2)?;
    (effective < INDEPENDENT_AT_LEAST).then_some(Doubt::FewIndependentSamples { effective })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of so many seconds whose rate rises by `rise` from the first to the last, with a noise
    /// of 10 % from second to second.
    fn runs(count: usize, seconds: u32, rise: f64, seed: u64) -> Vec<Vec<f64>> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count)
            .map(|_| {
                (0..seconds)
                    .map(|second| {
                        let at = f64::from(second) / f64::from(seconds - 1);
                        let noise = (0..3).map(|_| random.f64() - 0.5).sum::<f64>() * 0.2;
                        1000.0 * (1.0 + rise * at) * (1.0 + noise)
                    })
                    .collect()
            })
            .collect()
    }

    fn told(count: usize, seconds: u32, rise: f64) -> usize {
        (0..100)
            .filter(|seed| not_settled(&runs(count, seconds, rise, *seed)).is_some())
            .count()
    }

    #[test]
    fn runs_of_five_seconds_that_rise_by_a_third_are_told_and_steady_ones_are_not() {
        for seconds in [5, 6, 7, 20] {
            for count in [5, 12] {
                let rising = told(count, seconds, 0.37);
                assert!(rising >= 95, "{count} runs of {seconds} s: {rising}");
                let steady = told(count, seconds, 0.0);
                assert!(steady <= 5, "{count} runs of {seconds} s: {steady}");
            }
        }
        let Some(Doubt::NotSettled {
            runs: 10..=12,
            change,
            ..
        }) = not_settled(&runs(12, 6, -0.3, 1))
        else {
            panic!("it falls");
        };
        assert!((-0.42..-0.25).contains(&change), "{change}");
    }

    #[test]
    fn a_rate_that_breaks_in_and_comes_back_is_not_steady_though_it_has_no_slope() {
        let mut all = runs(12, 10, 0.0, 5);
        for pace in &mut all {
            pace[4] *= 0.6;
            pace[5] *= 0.6;
        }
        let Some(Doubt::NotSettled { change, spread, .. }) = not_settled(&all) else {
            panic!("two seconds of ten are slow in every run");
        };
        assert!(change.abs() < 0.1 && spread > 0.3, "{change}, {spread}");
    }

    #[test]
    fn what_is_too_short_for_five_rounds_says_so() {
        assert_eq!(too_short(&runs(12, 5, 0.0, 1)), None);
        assert_eq!(
            too_short(&runs(12, 3, 0.0, 1)),
            Some(Doubt::TooShortToSettle { samples: 3.0 })
        );
    }

    #[test]
    fn a_rate_that_was_waited_for_in_vain_is_told_in_the_sentence_of_the_verdict() {
        use crate::analyse::sample::{experiment, folder, measured};
        use crate::analyse::summary::summarise;
        use crate::record::Outcome;
        let of = |settled: fn(&str) -> Option<f64>| {
            summarise(&folder(experiment(12), |planned| {
                let mut outcome = measured(1000.0 + f64::from(planned.number % 3));
                if let Outcome::Measured(run) = &mut outcome {
                    let fact = settled(&planned.label).map(|value| (SETTLED.to_owned(), value));
                    run.facts.extend(fact);
                }
                outcome
            }))
        };
        let says = |summary: &super::super::Summary| {
            let told = "The rate of xfs did not hold still before it was measured in 12 of 12 runs";
            summary.headline.iter().any(|line| line.contains(told))
        };
        assert!(says(&of(|label| Some(f64::from(u8::from(label != "xfs"))))));
        assert!(!says(&of(|_| Some(1.0))));
        assert!(!says(&of(|_| None)));
    }

    #[test]
    fn a_claim_for_which_nothing_was_waited_says_so_in_its_cell() {
        use crate::analyse::sample::{experiment, folder, measured};
        use crate::analyse::summary::summarise;
        use crate::record::Outcome;
        use crate::render::matrix::matrix;
        let names = |settled: Option<f64>| {
            let summary = summarise(&folder(experiment(12), |planned| {
                let speed = if planned.contender == "xfs" { 1.5 } else { 1.0 };
                let mut outcome = measured(1000.0 * speed + f64::from(planned.number % 3));
                if let Outcome::Measured(run) = &mut outcome {
                    run.facts.remove(SETTLED);
                    if planned.contender == "xfs" {
                        run.facts
                            .extend(settled.map(|fact| (SETTLED.to_owned(), fact)));
                    } else {
                        run.facts.insert(SETTLED.to_owned(), 1.0);
                    }
                }
                outcome
            }));
            let xfs = &summary.workloads[0].contenders[2];
            assert_eq!(
                (xfs.name.as_str(), xfs.verdict),
                ("xfs", Some(crate::analyse::verdict::Verdict::Faster))
            );
            let matrix = matrix(&summary);
            let column = &matrix.tables[0].columns[1];
            assert_eq!(column.name, "xfs");
            let of_the_column = column.notes.iter();
            let of_the_cell = matrix.tables[0].rows[0].cells[1].notes.iter();
            of_the_column
                .chain(of_the_cell)
                .map(|place| matrix.notes[*place].name)
                .collect::<Vec<_>>()
        };
        let told = "nothing was waited for";
        assert!(names(None).contains(&told), "{:?}", names(None));
        assert!(!names(Some(1.0)).contains(&told));
        assert!(
            !names(Some(0.0)).contains(&told),
            "it was waited for in vain"
        );
    }
}
