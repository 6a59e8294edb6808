//! Verdicts on the slow operations, and limits that a contender misses.

use super::super::{ContenderSummary, Summary, summarise};
use super::*;
use crate::analyse::sample::{experiment, folder, measured};
use crate::record::{Latency, Outcome, PlannedRun};

/// A run of 1,000 operations of which so many of a hundred take `slow_us`, the others 1 ms.
fn with_tail(planned: &PlannedRun, slow_percent: u64, slow_us: u64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(u64::from(planned.number) * 17 + 3);
    let mut outcome = measured(1000.0 * (1.0 + 0.01 * random.f64()));
    if let Outcome::Measured(run) = &mut outcome {
        let noise = 1 + random.u64(0..slow_us / 100);
        run.latency = Latency {
            counts: vec![
                (1000 + random.u64(0..20), 1000 - 10 * slow_percent),
                (slow_us + noise, 10 * slow_percent),
            ],
        };
    }
    outcome
}

fn of<'a>(summary: &'a Summary, name: &str) -> &'a ContenderSummary {
    summary.workloads[0]
        .contenders
        .iter()
        .find(|contender| contender.name == name)
        .unwrap()
}

fn verdicts(contender: &ContenderSummary) -> Vec<(&str, Option<Verdict>)> {
    contender
        .latencies
        .iter()
        .map(|found| (found.quantile.as_str(), found.verdict))
        .collect()
}

#[test]
fn the_same_rate_with_a_longer_tail_is_slower_where_the_tail_is() {
    // Three of a hundred wait: beyond the p95, within the p99.
    let folder = folder(experiment(12), |planned| {
        let slow_us = if planned.contender == "xfs" {
            40_000
        } else {
            20_000
        };
        with_tail(planned, 3, slow_us)
    });
    let summary = summarise(&folder);
    let xfs = of(&summary, "xfs");
    assert_eq!(xfs.verdict, Some(Verdict::Equivalent));
    assert_eq!(
        verdicts(xfs),
        [
            ("p95", Some(Verdict::Equivalent)),
            ("p99", Some(Verdict::Slower))
        ]
    );
    let p99 = &xfs.latencies[1];
    assert!((p99.ratio.unwrap().centre - 2.0).abs() < 0.02, "{p99:?}");
    assert!(p99.noise_floor.unwrap() < 0.03);
    // The other way round it takes less.
    let ext4 = of(&summary, "ext4");
    assert_eq!(verdicts(ext4), [("p95", None), ("p99", None)]);
    let line = summary
        .headline
        .iter()
        .find(|line| line.starts_with("tpcb") && line.contains("xfs"))
        .unwrap();
    assert!(
        line.contains("EQUIVALENT")
            && line.contains("Its p99 takes 2.0")
            && line.contains(": slower"),
        "{line}"
    );
    let json = serde_json::to_value(&summary).unwrap();
    let told = &json["workloads"][0]["contenders"][2]["latencies"][1];
    assert_eq!(told["verdict"], "SLOWER");
    let terminal = crate::render::terminal::table(&summary);
    assert!(
        terminal
            .lines()
            .any(|line| line.starts_with("xfs p99") && line.contains("SLOWER")),
        "{terminal}"
    );
}

#[test]
fn a_baseline_whose_tail_differs_from_itself_gives_no_verdict_on_the_tail() {
    let folder = folder(experiment(12), |planned| {
        let is_again = planned.label.ends_with(AGAIN);
        let slow_us = match planned.contender.as_str() {
            "xfs" => 80_000,
            _ if is_again => 40_000,
            _ => 20_000,
        };
        with_tail(planned, 3, slow_us)
    });
    let summary = summarise(&folder);
    assert_eq!(
        verdicts(of(&summary, "xfs")),
        [
            ("p95", Some(Verdict::Equivalent)),
            ("p99", Some(Verdict::Inconclusive))
        ]
    );
}

#[test]
fn latencies_of_few_microseconds_are_never_equivalent_to_less_than_they_are_recorded_in() {
    let of = |us: u64| {
        let folder = folder(experiment(12), |planned| {
            let mut outcome = with_tail(planned, 3, 20_000);
            if let Outcome::Measured(run) = &mut outcome {
                run.latency = Latency {
                    counts: vec![(us, 1000)],
                };
            }
            outcome
        });
        let summary = summarise(&folder);
        verdicts(of(&summary, "xfs"))[0].1
    };
    assert_eq!(of(6), Some(Verdict::Inconclusive));
    assert_eq!(of(600), Some(Verdict::Equivalent));
}

#[test]
fn few_operations_have_no_p99() {
    let folder = folder(experiment(12), |planned| {
        let mut outcome = with_tail(planned, 3, 20_000);
        if let Outcome::Measured(run) = &mut outcome {
            run.latency = Latency {
                counts: vec![(1000, 40), (2000, 10)],
            };
        }
        outcome
    });
    let summary = summarise(&folder);
    let names: Vec<&str> = verdicts(of(&summary, "xfs"))
        .iter()
        .map(|found| found.0)
        .collect();
    assert_eq!(names, ["p95"]);
}

#[test]
fn who_misses_the_limit_of_the_file_is_named_and_his_rate_is_not_ranked() {
    let text = "contenders = [\"ext4\", \"xfs\", \"btrfs-single\"]\nblocks = 12\n[devices]\nkind = \"loop\"\n\
        [[workload]]\nkind = \"tpcb\"\np90_at_most = \"5 ms\"\n";
    let asked = crate::experiment::Experiment::parse(text).unwrap();
    let of_limit = |missing: &'static str| {
        let folder = folder(asked.clone(), |planned| {
            let slow_percent = if planned.contender == missing { 20 } else { 3 };
            with_tail(planned, slow_percent, 20_000)
        });
        summarise(&folder)
    };
    let summary = of_limit("xfs");
    let xfs = of(&summary, "xfs");
    assert_eq!((xfs.verdict, xfs.ratio), (None, None));
    assert_eq!(
        of(&summary, "btrfs-single").verdict,
        Some(Verdict::Equivalent)
    );
    let line = summary
        .headline
        .iter()
        .find(|line| line.contains("xfs"))
        .unwrap();
    assert!(
        line.contains("misses the limit of 5.00 ms") && line.contains("No rate is ranked"),
        "{line}"
    );
    let terminal = crate::render::terminal::table(&summary);
    assert!(terminal.contains("over the limit"), "{terminal}");
    // With a baseline that misses it nobody is compared.
    let summary = of_limit("ext4");
    for name in ["xfs", "btrfs-single"] {
        assert_eq!(of(&summary, name).verdict, None);
    }
    let told = |line: &&String| line.contains("misses the limit");
    let lines: Vec<&String> = summary.headline.iter().filter(told).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("ext4 misses the limit"),
        "once, and not as its second name too: {:?}",
        summary.headline
    );
}

#[test]
fn what_misses_a_limit_under_one_load_is_ranked_by_no_mean_over_all_loads() {
    let text = "contenders = [\"ext4\", \"xfs\", \"btrfs-single\"]\nblocks = 12\n[devices]\nkind = \"loop\"\n\
        [[workload]]\nkind = \"tpcb\"\np90_at_most = \"5 ms\"\n[[workload]]\nkind = \"growth\"\n";
    let asked = crate::experiment::Experiment::parse(text).unwrap();
    let folder = folder(asked, |planned| {
        let slow_percent = if planned.contender == "xfs" { 20 } else { 3 };
        with_tail(planned, slow_percent, 20_000)
    });
    let summary = summarise(&folder);
    let names: Vec<&str> = summary
        .overall
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["btrfs-single"]);
    let mean = summary
        .headline
        .iter()
        .find(|line| line.starts_with("Over all loads, by the geometric mean, "))
        .unwrap();
    assert!(mean.contains("btrfs-single and ext4"), "{mean}");
}
