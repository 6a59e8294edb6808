//! What the history of a folder says against its figures: whether somebody could choose among runs.

use std::collections::BTreeMap;

use super::class::is_lost_before;
use super::family;
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::Folder;
use crate::record::{AGAIN, Event};

/// Where more than one run in so many was begun again, somebody may have chosen by it, whether the runs
/// were stopped or made to fail: the interval of twelve blocks reaches from the third lowest ratio to the third highest.
const REPEATED_ONE_IN: usize = 6;

/// What happened to a run, by the history.
#[derive(Debug, Default, Clone)]
struct Life {
    began: usize,
    failed: usize,
    /// The records of what was measured, in their order.
    measured: Vec<String>,
    /// The record of its last end.
    last: Option<String>,
}

impl Life {
    /// Attempts that have no end.
    fn stopped(&self) -> usize {
        self.began - (self.failed + self.measured.len()).min(self.began)
    }
}

fn lives(folder: &Folder) -> BTreeMap<&str, Life> {
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for event in &folder.history.events {
        match event {
            Event::Began { run, .. } => lives.entry(run).or_default().began += 1,
            Event::Ended {
                run, rate, record, ..
            } => {
                let life = lives.entry(run).or_default();
                life.last = Some(record.clone());
                match rate {
                    Some(_) => life.measured.push(record.clone()),
                    None => life.failed += 1,
                }
            }
            _ => {}
        }
    }
    lives
}

/// Of the runs of one contender under one load.
pub(super) fn of_a_contender(folder: &Folder, workload: usize, label: &str) -> Vec<Doubt> {
    let lives = lives(folder);
    let planned: Vec<_> = (folder.plan.runs.iter())
        .filter(|planned| planned.workload == workload && planned.label == label)
        .collect();
    let (mut gone, mut altered) = (Vec::new(), Vec::new());
    let (mut failed, mut stopped, mut repeated) = (0, 0, 0);
    for planned in &planned {
        let name = planned.folder();
        let current = (folder.runs.iter()).find(|run| run.run.planned.number == planned.number);
        let Some(life) = lives.get(name.as_str()) else {
            // Without a history of the plan that is said once, of all of it.
            if current.is_some() && knows_a_plan(folder) {
                altered.push(name);
            }
            continue;
        };
        let is_kept = |record: &String| current.is_some_and(|run| run.record == *record);
        let dropped = life.measured.iter().filter(|record| !is_kept(record));
        if dropped.count() > 0 {
            gone.push(name.clone());
        }
        if current.is_some() && !life.last.as_ref().is_some_and(is_kept) {
            altered.push(name);
        }
        failed += life.failed - usize::from(life.failed > 0 && life.measured.is_empty());
        let is_repeated = life.began > 1;
        stopped += if is_repeated { life.stopped() } else { 0 };
        repeated += usize::from(is_repeated);
    }
    let whose = label.strip_suffix(AGAIN).unwrap_or(label).to_owned();
    let mut doubts = Vec::new();
    if !gone.is_empty() {
        doubts.push(Doubt::RunsGone {
            whose: whose.clone(),
            runs: gone,
        });
    }
    if !altered.is_empty() {
        doubts.push(Doubt::RecordsAltered {
            whose: whose.clone(),
            runs: altered,
        });
    }
    if failed + stopped > 0 {
        doubts.push(Doubt::RunsRepeated {
            whose,
            runs: repeated,
            of: planned.len(),
            failed,
            stopped,
            is_often: repeated * REPEATED_ONE_IN > planned.len(),
        });
    }
    doubts
}

/// Whether the history was there when the plan was made: an older lab kept none.
fn knows_a_plan(folder: &Folder) -> bool {
    let mut events = folder.history.events.iter();
    events.any(|event| matches!(event, Event::Planned { .. }))
}

/// Of all of it; it counts for every verdict.
pub(super) fn of_all(folder: &Folder) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let missing = folder.plan.runs.len() - folder.runs.len().min(folder.plan.runs.len());
    if missing > 0 {
        doubts.push(Doubt::NotFinished {
            runs: folder.runs.len(),
            of: folder.plan.runs.len(),
        });
    }
    let history = &folder.history;
    let planned: Vec<(u32, u32)> = (history.events.iter())
        .filter_map(|event| match event {
            Event::Planned { blocks, seen, .. } => Some((*blocks, *seen)),
            _ => None,
        })
        .collect();
    let names: Vec<String> = folder.plan.runs.iter().map(|run| run.folder()).collect();
    let lives = lives(folder);
    let outside = (lives.iter())
        .filter(|(name, life)| {
            !life.measured.is_empty() && !names.iter().any(|planned| planned == *name)
        })
        .count();
    let reason = if history.events.is_empty() {
        (!folder.runs.is_empty()).then_some("there is none")
    } else if !knows_a_plan(folder) {
        Some("it begins after the runs")
    } else if !history.is_whole {
        Some("lines of it are gone or were changed")
    } else if planned.last().map(|(blocks, _)| *blocks) != Some(folder.experiment.blocks) {
        Some("it knows another number of blocks than the file has")
    } else if outside > 0 {
        Some("it knows measured runs that the plan does not have")
    } else {
        None
    };
    doubts.extend(reason.map(|reason| Doubt::HistoryBroken {
        reason: reason.to_owned(),
    }));
    // Of the two families of words the rates need fewer blocks: with as many a verdict could be seen.
    let needed = family::of_rates(folder).blocks_for_a_claim();
    let raised = planned.windows(2).find(|pair| {
        let seen = usize::try_from(pair[1].1).unwrap_or(usize::MAX);
        pair[1].0 > pair[0].0 && seen >= needed
    });
    doubts.extend(raised.map(|pair| Doubt::BlocksRaised {
        from: pair[0].0,
        to: pair[1].0,
        seen: pair[1].1,
    }));
    doubts
}

/// What happened, in sentences for the report.
pub(super) fn told(folder: &Folder) -> Vec<String> {
    let events = &folder.history.events;
    if events.is_empty() {
        return vec!["The folder has no history: it is not known what was tried.".to_owned()];
    }
    let starts = (events.iter())
        .filter(|event| matches!(event, Event::Started { .. }))
        .count();
    let lives = lives(folder);
    let sum = |of: fn(&Life) -> usize| lives.values().map(of).sum::<usize>();
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut told = vec![format!(
        "The file was started {}; {} {} measured, {} failed, {} stopped before an end.",
        count(starts, "time", "times"),
        count(
            sum(|life| life.began),
            "attempt at a run:",
            "attempts at runs:"
        ),
        sum(|life| life.measured.len()),
        sum(|life| life.failed),
        sum(Life::stopped),
    )];
    let mut before = None;
    for event in events {
        if let Event::Planned { blocks, seen, .. } = event {
            if let Some(before) = before.filter(|before| before != blocks) {
                told.push(format!(
                    "`blocks` went from {before} to {blocks} when {seen} blocks had figures."
                ));
            }
            before = Some(*blocks);
        }
    }
    for contender in &folder.experiment.contenders {
        told.extend(
            is_lost_before(folder, contender).map(|clause| format!("{contender}: {clause}.")),
        );
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::sample::{classed, experiment, folder, measured, noted};
    use crate::analyse::summary::{Summary, summarise};
    use crate::analyse::verdict::Verdict;
    use crate::record::DurabilityClass;

    fn faster() -> Folder {
        folder(experiment(12), |planned| {
            let speed = if planned.contender == "xfs" { 1.5 } else { 1.0 };
            measured(1000.0 * speed + f64::from(planned.number % 3))
        })
    }

    /// What is said of xfs under both loads.
    fn words(summary: &Summary) -> [Option<Verdict>; 2] {
        [0, 1].map(|load: usize| summary.workloads[load].contenders[2].verdict)
    }

    const CLAIM: [Option<Verdict>; 2] = [Some(Verdict::Faster); 2];
    const LOOK: [Option<Verdict>; 2] = [Some(Verdict::Look); 2];

    fn says(summary: &Summary, words: &str) -> bool {
        let all = summary.workloads.iter().flat_map(|load| &load.contenders);
        all.flat_map(|one| &one.doubts)
            .any(|told| told.what.contains(words))
    }

    /// The name of the first run of xfs under the first load.
    fn first_of_xfs(folder: &Folder) -> String {
        let mut runs = folder.plan.runs.iter();
        let found = runs.find(|run| run.contender == "xfs" && run.workload == 0);
        found.unwrap().folder()
    }

    #[test]
    fn an_experiment_that_ran_through_has_nothing_said_against_it() {
        let summary = summarise(&faster());
        assert_eq!(words(&summary), CLAIM);
        let told = &summary.history[0];
        assert!(
            told.contains("started 1 time") && told.contains("96 measured, 0 failed, 0 stopped"),
            "{told}"
        );
    }

    #[test]
    fn a_measured_run_that_was_removed_and_measured_again_leaves_a_look_under_its_load() {
        let mut folder = faster();
        let name = first_of_xfs(&folder);
        // It had been slower, and the record that is there is of the second time.
        let at = folder
            .history
            .events
            .iter()
            .position(|event| matches!(event, Event::Began { run, .. } if *run == name));
        noted(&mut folder, at.unwrap(), &name, Some(900.0));
        let summary = summarise(&folder);
        assert_eq!(
            words(&summary),
            [Some(Verdict::Look), Some(Verdict::Faster)]
        );
        assert!(says(&summary, &name), "{:?}", summary.headline);
        assert!(
            summary.headline[0].contains("are gone"),
            "{:?}",
            summary.headline
        );
    }

    #[test]
    fn a_baseline_whose_runs_were_replaced_claims_nothing_of_anybody() {
        let mut folder = faster();
        let mut runs = folder.plan.runs.iter();
        let of_ext4 = runs.find(|run| run.label == "ext4" && run.workload == 0);
        let name = of_ext4.unwrap().folder();
        noted(&mut folder, 2, &name, Some(1300.0));
        assert_eq!(words(&summarise(&folder))[0], Some(Verdict::Look));
    }

    #[test]
    fn a_measured_run_that_is_missing_and_an_experiment_that_is_not_finished_are_looks() {
        let mut folder = faster();
        let name = first_of_xfs(&folder);
        folder.runs.retain(|run| run.run.planned.folder() != name);
        let summary = summarise(&folder);
        assert_ne!(words(&summary)[0], Some(Verdict::Faster));
        assert!(says(&summary, "are gone") && says(&summary, "95 of 96 runs"));
        // Stopped where it looked good: the runs that were never begun are missing as well.
        let mut asked = experiment(24);
        asked.blocks = 24;
        let mut folder = crate::analyse::sample::folder(asked, |planned| {
            let speed = if planned.contender == "xfs" { 1.5 } else { 1.0 };
            measured(1000.0 * speed + f64::from(planned.number % 3))
        });
        folder.runs.retain(|run| run.run.planned.block <= 13);
        folder.history.events.retain(|event| match event {
            Event::Began { run, .. } | Event::Ended { run, .. } => {
                let mut kept = folder.runs.iter();
                kept.any(|kept| kept.run.planned.folder() == *run)
            }
            _ => true,
        });
        let summary = summarise(&folder);
        assert_eq!(words(&summary), LOOK);
        assert!(says(&summary, "104 of 192 runs"));
    }

    #[test]
    fn a_record_that_is_not_the_one_that_was_written_is_a_look() {
        let mut folder = faster();
        for run in &mut folder.runs {
            if run.run.planned.contender == "xfs" && run.run.planned.block == 3 {
                run.record = "another".to_owned();
            }
        }
        let summary = summarise(&folder);
        assert_eq!(words(&summary), LOOK);
        assert!(says(&summary, "is not the one that the lab wrote"));
    }

    #[test]
    fn no_history_one_with_holes_and_one_of_another_plan_are_looks() {
        for (spoil, words_of_it) in [
            (
                (|folder: &mut Folder| folder.history.events.clear()) as fn(&mut Folder),
                "there is none",
            ),
            (
                |folder| folder.history.is_whole = false,
                "gone or were changed",
            ),
            (
                |folder| folder.experiment.blocks = 11,
                "another number of blocks",
            ),
        ] {
            let mut folder = faster();
            spoil(&mut folder);
            let summary = summarise(&folder);
            assert_eq!(words(&summary), LOOK, "{words_of_it}");
            assert!(says(&summary, words_of_it), "{words_of_it}");
        }
    }

    fn planned(blocks: u32, seen: u32) -> Event {
        Event::Planned {
            at_unix_s: 1,
            blocks,
            seen,
        }
    }

    #[test]
    fn blocks_that_are_raised_after_a_claim_could_stand_leave_a_look_and_after_a_look_do_not() {
        let raised = |blocks: &[(u32, u32)]| {
            let mut folder = folder(experiment(24), |run| {
                let speed = if run.contender == "xfs" { 1.5 } else { 1.0 };
                measured(1000.0 * speed + f64::from(run.number % 3))
            });
            folder
                .history
                .events
                .retain(|event| !matches!(event, Event::Planned { .. }));
            let events = blocks.iter().map(|(blocks, seen)| planned(*blocks, *seen));
            folder.history.events.extend(events);
            summarise(&folder)
        };
        let twice = raised(&[(12, 0), (24, 12)]);
        assert_eq!(words(&twice), LOOK);
        assert!(says(
            &twice,
            "raised from 12 to 24 when 12 blocks had figures"
        ));
        // Five blocks are no claim, so that there is one chance of one all the same; it is told.
        let once = raised(&[(5, 0), (24, 5)]);
        assert_eq!(words(&once), CLAIM);
        assert!(
            once.history
                .iter()
                .any(|told| told.contains("from 5 to 24"))
        );
        assert_eq!(words(&raised(&[(12, 0), (24, 3)])), CLAIM);
    }

    #[test]
    fn what_is_begun_again_is_told_and_leaves_a_look_where_it_is_more_than_one_run_in_six() {
        let with = |stopped: &[usize], failed: &[usize]| {
            let mut folder = faster();
            let of_xfs: Vec<String> = (folder.plan.runs.iter())
                .filter(|run| run.contender == "xfs" && run.workload == 0)
                .map(|run| run.folder())
                .collect();
            for run in stopped {
                let began = Event::Began {
                    at_unix_s: 1,
                    run: of_xfs[*run].clone(),
                    attempt: 1,
                };
                folder.history.events.insert(2, began);
            }
            for run in failed {
                noted(&mut folder, 2, &of_xfs[*run], None);
            }
            summarise(&folder)
        };
        let summary = with(&[0, 1], &[0]);
        assert_eq!(words(&summary), CLAIM);
        assert!(
            says(&summary, "1 attempts failed and 2 were stopped"),
            "{summary:?}"
        );
        // One run, however often: it has one ratio of twelve.
        assert_eq!(words(&with(&[0, 0, 0], &[])), CLAIM);
        // A run that is made to fail is one that is stopped.
        for (stopped, failed) in [
            (&[0, 1, 2][..], &[][..]),
            (&[], &[0, 1, 2]),
            (&[0], &[1, 2]),
        ] {
            let summary = with(stopped, failed);
            assert_eq!(
                words(&summary)[0],
                Some(Verdict::Look),
                "{stopped:?} {failed:?}"
            );
        }
    }

    #[test]
    fn a_history_that_begins_after_the_runs_accuses_none_of_them() {
        let mut folder = faster();
        folder.history.events.clear();
        folder.history.events.push(Event::Started {
            at_unix_s: 1,
            measured: 0,
        });
        let summary = summarise(&folder);
        assert_eq!(words(&summary)[0], Some(Verdict::Look));
        assert!(says(&summary, "it begins after the runs"), "{summary:?}");
        assert!(
            !says(&summary, "is not the one that the lab wrote"),
            "{summary:?}"
        );
    }

    #[test]
    fn what_a_cut_found_lost_stays_lost_when_its_record_is_removed() {
        let mut folder = classed(|_| Some(DurabilityClass::Durable));
        assert_eq!(words(&summarise(&folder)), CLAIM);
        folder.history.events.push(Event::Cut {
            at_unix_s: 1,
            contender: "xfs".to_owned(),
            moments: 200,
            lost: 3,
        });
        let summary = summarise(&folder);
        assert_eq!(words(&summary), [None, None]);
        assert!(
            summary.headline[0].starts_with("xfs is not durable"),
            "{:?}",
            summary.headline
        );
    }
}
