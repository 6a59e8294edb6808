use super::*;
use crate::analyse::sample::{experiment, folder, measured};
use crate::analyse::summary::{Summary, Verdict, summarise};
use crate::record::{Outcome, PlannedRun};
use crate::render::{html, terminal};

const COLUMNS: [&str; 6] = [
    "seconds",
    "neighbours_s",
    "processor_stolen_s",
    "neighbours_blocked",
    "load_average",
    "pressure_processor_s",
];

/// Runs of 20 s after a warm-up of 2 s, on two processors; `of` gives the growth a second.
fn with_samples(of: impl Fn(u32, f64) -> [f64; 5]) -> Folder {
    let mut folder = folder(experiment(5), |planned| {
        measured(1000.0 + f64::from(planned.number % 3))
    });
    for run in &mut folder.runs {
        let mut sums = [1e4; 5];
        run.samples = Samples {
            columns: COLUMNS.map(str::to_owned).to_vec(),
            rows: (0..=22_u32)
                .map(|second| {
                    let grown = of(run.run.planned.number, f64::from(second));
                    for (sum, grown) in sums.iter_mut().zip(grown) {
                        *sum += grown;
                    }
                    let [others, stolen, _, _, pressure] = sums;
                    let [_, _, blocked, load, _] = grown;
                    vec![f64::from(second), others, stolen, blocked, load, pressure]
                })
                .collect(),
        };
    }
    folder
}

#[test]
fn a_machine_that_only_serves_what_is_measured_raises_no_doubt() {
    let folder = with_samples(|_, _| [0.05, 0.02, 0.1, 9.0, 0.9]);
    assert_eq!(doubts(&folder), []);
}

#[test]
fn neighbours_in_half_of_one_run_are_told_in_the_box_of_the_verdict_with_the_figures() {
    // A load of 17 on two processors for a third of one run.
    let folder = with_samples(|number, second| {
        if number == 7 && second > 14.0 {
            [1.0, 0.0, 0.0, 17.0, 0.8]
        } else {
            [0.02, 0.0, 0.0, 1.0, 0.1]
        }
    });
    let run = folder.runs[6].run.planned.folder();
    let found = doubts(&folder);
    let [
        Doubt::NeighboursOnProcessors {
            share,
            disturbed,
            load: Some(load),
            pressure: Some(pressure),
        },
    ] = found.as_slice()
    else {
        panic!("{found:?}");
    };
    assert_eq!(*disturbed, [run]);
    // 8 of 10 seconds with one of two processors, 2 with a hundredth.
    assert!((share - 0.402).abs() < 1e-3, "{share}");
    assert!(*load > 12.0 && (pressure - 0.66).abs() < 1e-3);
    let page = html::page(&folder, &summarise(&folder));
    let (box_, _) = page.split_once("</section>").unwrap();
    let told = "Other programs took 40.2 % of the processors";
    assert!(box_.contains("class=\"sentence\"") && box_.contains(told));
    let (over_the_table, _) = box_.split_once("<table").unwrap();
    assert!(over_the_table.contains("other programs on the processors"));
    assert!(terminal::table(&summarise(&folder)).contains(told));
}

#[test]
fn time_that_the_host_took_in_one_half_is_told_although_the_mean_is_small() {
    let folder = with_samples(|number, second| {
        let stolen = if number == 3 && second <= 12.0 {
            0.3
        } else {
            0.0
        };
        [0.0, stolen, 0.0, 1.0, 0.0]
    });
    let found = doubts(&folder);
    assert!(
        matches!(found.as_slice(), [Doubt::ProcessorStolen { share, disturbed }] if (share - 0.15).abs() < 1e-9 && disturbed.len() == 1),
        "{found:?}"
    );
}

#[test]
fn neighbours_that_wait_for_disks_are_told() {
    let folder = with_samples(|number, _| [0.0, 0.0, f64::from(number % 2) * 3.0, 4.0, 0.0]);
    let found = doubts(&folder);
    assert!(
        matches!(found.as_slice(), [Doubt::NeighboursOnDisks { blocked, .. }] if *blocked == 3.0),
        "{found:?}"
    );
}

#[test]
fn a_block_at_half_speed_is_told_and_one_slow_run_is_not() {
    let at = |slow: fn(u32, u32) -> bool| {
        folder(experiment(5), move |planned| {
            let speed = if slow(planned.block, planned.number) {
                0.5
            } else {
                1.0
            };
            measured(speed * (1000.0 + f64::from(planned.number % 3)))
        })
    };
    assert_eq!(doubts(&at(|_, number| number == 4)), []);
    let found = doubts(&at(|block, _| block == 2));
    assert!(
        matches!(found.as_slice(), [Doubt::BlockApart { block: 2, change, .. }] if (change + 0.5).abs() < 0.01),
        "{found:?}"
    );
}

#[test]
fn samples_from_before_neighbours_were_counted_raise_no_doubt() {
    assert_eq!(doubts(&folder(experiment(5), |_| measured(1000.0))), []);
}

#[test]
fn every_disturbed_run_is_named_the_worst_first() {
    let folder = with_samples(|number, _| {
        let share = if number % 2 == 1 {
            0.3 + f64::from(number) / 100.0
        } else {
            0.0
        };
        [share, 0.0, 0.0, 1.0, 0.0]
    });
    let found = doubts(&folder);
    let [doubt @ Doubt::NeighboursOnProcessors { disturbed, .. }] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(disturbed.len(), folder.runs.len().div_ceil(2));
    assert!(disturbed[0] > disturbed[1], "{disturbed:?}");
    let said = doubt.what();
    assert!(
        said.contains(&format!("in half of the run {}", disturbed[0])),
        "{said}"
    );
    assert!(
        said.contains(&disturbed[6]) && !said.contains(&disturbed[7]),
        "{said}"
    );
    assert!(said.contains("and ") && said.contains(" more"), "{said}");
}

/// Twelve blocks in which xfs is 20 % faster; `of` gives the seconds that others had of the 40 that
/// two processors have in each run.
fn beside_others(of: impl Fn(&PlannedRun) -> f64) -> Folder {
    folder(experiment(12), |planned| {
        let speed = if planned.contender == "xfs" { 1.2 } else { 1.0 };
        let mut outcome = measured(1000.0 * speed + f64::from(planned.number % 3));
        if let Outcome::Measured(run) = &mut outcome {
            run.processor.others_s = Some(of(planned));
        }
        outcome
    })
}

fn verdict_of_xfs(summary: &Summary) -> Option<Verdict> {
    let contenders = &summary.workloads[0].contenders;
    contenders.iter().find(|one| one.name == "xfs")?.verdict
}

#[test]
fn beside_others_who_had_most_of_the_processors_twelve_blocks_are_a_look_and_the_headline_says_why()
{
    let summary = summarise(&beside_others(|_| 24.0));
    assert_eq!(verdict_of_xfs(&summary), Some(Verdict::Look));
    let first = &summary.headline[0];
    assert!(
        first.starts_with("This is a look, not a claim: other programs had most of the processors in 12 of 12 runs of")
            && first.contains("60.0 %"),
        "{:?}",
        summary.headline
    );
    let claims = |text: &str| text.contains("FASTER") || text.contains("faster");
    assert!(
        !summary.headline.iter().any(|line| claims(line)),
        "{:?}",
        summary.headline
    );
    for overall in &summary.overall {
        assert_ne!(overall.verdict, Verdict::Faster);
    }
    // Of the tails nothing is claimed either.
    let of_tails = summary.workloads[0]
        .contenders
        .iter()
        .flat_map(|one| &one.latencies);
    for found in of_tails {
        assert!(
            !matches!(
                found.verdict,
                Some(Verdict::Equivalent | Verdict::Faster | Verdict::Slower)
            ),
            "{found:?}"
        );
    }
}

#[test]
fn a_claim_stands_beside_others_who_had_less_than_half_or_two_runs_of_twelve() {
    let summary = summarise(&beside_others(|_| 16.0));
    assert_eq!(verdict_of_xfs(&summary), Some(Verdict::Faster));
    let two = |planned: &PlannedRun| if planned.block <= 2 { 36.0 } else { 1.0 };
    assert_eq!(
        verdict_of_xfs(&summarise(&beside_others(two))),
        Some(Verdict::Faster)
    );
    let three = |planned: &PlannedRun| if planned.block <= 3 { 36.0 } else { 1.0 };
    assert_eq!(
        verdict_of_xfs(&summarise(&beside_others(three))),
        Some(Verdict::Look)
    );
}

#[test]
fn others_who_had_the_processors_of_one_side_only_leave_a_look_as_well() {
    for crowded in ["ext4", "xfs"] {
        let one_side = |planned: &PlannedRun| {
            if planned.label == crowded { 30.0 } else { 1.0 }
        };
        let summary = summarise(&beside_others(one_side));
        assert_eq!(verdict_of_xfs(&summary), Some(Verdict::Look), "{crowded}");
        assert!(summary.headline[0].contains(&format!("runs of {crowded}")));
    }
}

#[test]
fn what_the_host_took_counts_as_others_and_a_record_from_before_it_was_counted_says_nothing() {
    let mut folder = beside_others(|_| 4.0);
    for run in &mut folder.runs {
        if let Outcome::Measured(measured) = &mut run.run.outcome {
            measured.processor.stolen_s = 20.0;
        }
    }
    assert_eq!(verdict_of_xfs(&summarise(&folder)), Some(Verdict::Look));
    for run in &mut folder.runs {
        if let Outcome::Measured(measured) = &mut run.run.outcome {
            measured.processor.others_s = None;
        }
    }
    assert_eq!(verdict_of_xfs(&summarise(&folder)), Some(Verdict::Faster));
}
