//! What a load reached beside something else: against itself alone, and how fast the other went on.

use serde::{Deserialize, Serialize};

use super::ratio::{Ratio, ratio};
use super::{ContenderSummary, pairs_of, runs_of};
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::Folder;
use crate::analyse::interval::Comparisons;
use crate::analyse::series::median;
use crate::experiment::Companion;
use crate::quantity::as_float;
use crate::record::{LAP_AWAY, LapRun};

/// A load beside something else, of one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BesideFound {
    /// Such as `backup`.
    pub companion: String,
    /// The rate against that of the same contender under the load alone, block by block; none
    /// where no block has both.
    pub share: Option<Ratio>,
    /// What went on, in the order in which it did.
    pub laps: Vec<LapFound>,
}

/// One of the things that went on in turn, over all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LapFound {
    /// Such as `disk leaves`.
    pub name: String,
    /// How often it was done within the measured time of all runs.
    pub done: usize,
    /// How often it was under way at the end of one.
    pub unfinished: usize,
    /// Seconds of the middle one that was done; none where none was.
    pub median_s: Option<f64>,
    /// Seconds for each that was done, with those of the unfinished ones; none where none was done.
    pub each_s: Option<f64>,
    /// Bytes a second of those that were done; none for what is no backup.
    pub bytes_per_s: Option<f64>,
}

/// None where nothing goes on beside the load.
pub(super) fn of(folder: &Folder, index: usize, label: &str) -> Option<BesideFound> {
    let loads = &folder.experiment.workloads;
    let asked = &loads[index];
    let companion = asked.beside?;
    let alone = loads.iter().position(|other| {
        other.family == asked.family && other.beside.is_none() && other.open_percent.is_none()
    });
    let share = alone.and_then(|alone| {
        let pairs: Vec<(f64, f64)> = pairs_of(folder, (index, label), (alone, label))
            .into_values()
            .collect();
        ratio(&pairs, Comparisons::ONE)
    });
    let runs = runs_of(folder, index, label);
    let all: Vec<(&LapRun, f64)> = (runs.iter())
        .filter_map(|run| run.run.measured())
        .flat_map(|measured| {
            let ended_s = measured.duration_s;
            measured.beside.iter().map(move |lap| (lap, ended_s))
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for (lap, _) in &all {
        if !names.contains(&lap.name.as_str()) {
            names.push(&lap.name);
        }
    }
    let laps = names
        .into_iter()
        .map(|name| {
            lap_found(
                name,
                all.iter().copied().filter(|(lap, _)| lap.name == name),
            )
        })
        .collect();
    Some(BesideFound {
        companion: companion.name().to_owned(),
        share,
        laps,
    })
}

/// Of its laps, each with the end of its run.
fn lap_found<'a>(name: &str, laps: impl Iterator<Item = (&'a LapRun, f64)>) -> LapFound {
    let (mut unfinished, mut unfinished_s, mut bytes) = (0, 0.0, None);
    let mut seconds = Vec::new();
    for (lap, ended_s) in laps {
        let Some(until_s) = lap.until_s else {
            unfinished += 1;
            unfinished_s += (ended_s - lap.from_s).max(0.0);
            continue;
        };
        seconds.push(until_s - lap.from_s);
        if let Some(read) = lap.bytes {
            bytes = Some(bytes.unwrap_or(0.0) + as_float(read));
        }
    }
    let all_s: f64 = seconds.iter().sum();
    LapFound {
        name: name.to_owned(),
        done: seconds.len(),
        unfinished,
        median_s: median(&seconds),
        each_s: (!seconds.is_empty())
            .then(|| (all_s + unfinished_s) / as_float(seconds.len() as u64)),
        bytes_per_s: bytes
            .filter(|_| all_s > 0.0)
            .map(|bytes: f64| bytes / all_s),
    }
}

impl BesideFound {
    /// Seconds that it all takes once, without the lab's own pauses; none where a part of it was
    /// never done.
    #[must_use]
    pub fn once_s(&self) -> Option<f64> {
        let laps = || self.laps.iter().filter(|lap| lap.name != LAP_AWAY);
        // A part that was never reached is never done either.
        let parts = if self.companion == Companion::Rebalance.name() {
            2
        } else {
            1
        };
        if laps().count() < parts {
            return None;
        }
        laps().map(|lap| lap.each_s).sum()
    }
}

/// Less is chance.
const DIFFERENCE_AT_LEAST: f64 = 0.10;

/// One whose companion went on slower leaves more to the load: no figure of the load alone. Where
/// either was never done nobody knows how fast it went on.
pub(super) fn of_the_pace(one: &ContenderSummary, other: &ContenderSummary) -> Option<Doubt> {
    let (own, others) = (one.beside.as_ref()?, other.beside.as_ref()?);
    if one.rates.is_empty() || other.rates.is_empty() {
        return None;
    }
    let (own_s, other_s) = (own.once_s(), others.once_s());
    let is_alike = own_s.zip(other_s).is_some_and(|(own, other)| {
        own <= other * (1.0 + DIFFERENCE_AT_LEAST) && other <= own * (1.0 + DIFFERENCE_AT_LEAST)
    });
    (!is_alike).then(|| Doubt::OtherPaceBeside {
        companion: own.companion.clone(),
        own_s,
        other_s,
    })
}

#[cfg(test)]
mod tests {
    use crate::analyse::doubt::Doubt;
    use crate::analyse::folder::Folder;
    use crate::analyse::sample::{folder, measured};
    use crate::analyse::summary::{ContenderSummary, summarise};
    use crate::analyse::verdict::Verdict;
    use crate::experiment::{Companion, Experiment};
    use crate::record::{LapRun, Outcome};

    /// A load alone and beside a rebalance, of which each contender does a lap of so many seconds
    /// after the other, and under which it keeps such a share of its rate.
    fn accompanied(laps_s: [f64; 2], shares: [f64; 2]) -> Folder {
        let experiment = Experiment::parse(
            "contenders = [\"btrfs-raid0\", \"spindle-external\"]\nblocks = 12\nduration = \"60 s\"\n\
             [devices]\nkind = \"loop\"\n\
             [[workload]]\nkind = \"tpcb\"\nsize = \"64 MiB\"\nbeside = \"rebalance\"\n",
        )
        .unwrap();
        let loads = experiment.workloads.clone();
        folder(experiment, |planned| {
            let which = usize::from(planned.contender == "spindle-external");
            let is_alone = loads[planned.workload].beside.is_none();
            let share = if is_alone { 1.0 } else { shares[which] };
            let noise = 1.0 + f64::from(planned.number % 3) / 1000.0;
            let mut outcome = measured(1000.0 * share * noise);
            if let Outcome::Measured(run) = &mut outcome
                && !is_alone
            {
                run.duration_s = 60.0;
                let mut at_s = 0.0;
                for name in ["disk leaves", "disk joins"].iter().cycle() {
                    let until_s = at_s + laps_s[which];
                    run.beside.push(LapRun {
                        name: (*name).to_owned(),
                        from_s: at_s,
                        until_s: (until_s <= 60.0).then_some(until_s),
                        bytes: None,
                    });
                    at_s = until_s;
                    if at_s >= 60.0 {
                        break;
                    }
                }
            }
            outcome
        })
    }

    fn of_spindle(folder: &Folder) -> ContenderSummary {
        let summary = summarise(folder);
        let load = summary.workloads.last().unwrap();
        assert_eq!(
            load.title, "tpcb, 8 users, beside a rebalance, cached",
            "the load with a companion comes last"
        );
        load.contenders.last().unwrap().clone()
    }

    #[test]
    fn a_load_beside_something_is_held_against_itself_alone_and_has_its_laps() {
        let folder = accompanied([11.0, 11.0], [0.5, 0.8]);
        assert_eq!(folder.experiment.workloads.len(), 2);
        assert_eq!(
            folder.experiment.workloads[1].beside,
            Some(Companion::Rebalance)
        );
        let spindle = of_spindle(&folder);
        let found = spindle.beside.clone().unwrap();
        let share = found.share.unwrap();
        assert!((share.centre - 0.8).abs() < 0.01, "{share:?}");
        assert!(share.low.is_some());
        let names: Vec<&str> = found.laps.iter().map(|lap| lap.name.as_str()).collect();
        assert_eq!(names, ["disk leaves", "disk joins"]);
        // Three of the one and two of the other in each of twelve runs, and one that was broken off.
        assert_eq!((found.laps[0].done, found.laps[0].unfinished), (36, 0));
        assert_eq!((found.laps[1].done, found.laps[1].unfinished), (24, 12));
        // The five seconds of the one that was broken off count for those that were done.
        assert!((found.once_s().unwrap() - 24.5).abs() < 1e-9);
        // Beside the same pace nothing is said of it, and no curve is made of the two loads.
        assert!(!has_pace(&spindle));
        assert_eq!(summarise(&folder).curves, []);
        assert!((spindle.ratio.unwrap().centre - 1.6).abs() < 0.02);
    }

    fn has_pace(contender: &ContenderSummary) -> bool {
        (contender.doubts.iter()).any(|told| matches!(told.doubt, Doubt::OtherPaceBeside { .. }))
    }

    #[test]
    fn who_wins_by_a_slow_companion_has_that_in_the_sentence() {
        let spindle = of_spindle(&accompanied([5.0, 20.0], [0.5, 0.8]));
        assert!(has_pace(&spindle));
        let terms = spindle.terms().unwrap();
        assert_eq!(terms, "while its rebalance took 4.0 times as long");
        let spindle = of_spindle(&accompanied([20.0, 5.0], [0.5, 0.8]));
        let terms = spindle.terms().unwrap();
        assert_eq!(terms, "while its rebalance took 0.25 times as long");
        // One that is never done is as slow as can be.
        let spindle = of_spindle(&accompanied([5.0, 100.0], [0.5, 0.8]));
        let terms = spindle.terms().unwrap();
        assert_eq!(terms, "while its rebalance was never done");
        assert_eq!(spindle.verdict, Some(Verdict::Look));
        // Of two that were never done nobody knows which went on faster.
        let spindle = of_spindle(&accompanied([100.0, 100.0], [0.5, 0.8]));
        assert_eq!(spindle.terms().unwrap(), "while neither rebalance was done");
        assert_eq!(spindle.verdict, Some(Verdict::Look));
        let headline = summarise(&accompanied([5.0, 100.0], [0.5, 0.8])).headline;
        assert!(
            headline
                .iter()
                .any(|line| line.contains("while its rebalance was never done")),
            "{headline:?}"
        );
    }
}
