//! From runs to what may be said.

use super::*;
use crate::analyse::sample::{experiment, folder, measured};
use crate::record::PlannedRun;

/// A machine that drifts by blocks and is a little noisy; `speed` is the contender's own.
fn noisy(planned: &PlannedRun, speed: f64, noise: f64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(u64::from(planned.number) * 31 + 7);
    let drift = 1.0 + 0.05 * f64::from(planned.block);
    measured(1000.0 * speed * drift * (1.0 + noise * (random.f64() - 0.5)))
}

fn of<'a>(summary: &'a Summary, workload: usize, name: &str) -> &'a ContenderSummary {
    summary.workloads[workload]
        .contenders
        .iter()
        .find(|contender| contender.name == name)
        .unwrap()
}

#[test]
fn what_is_faster_is_called_so_with_its_interval_and_the_noise() {
    let folder = folder(experiment(10), |planned| {
        let speed = if planned.contender == "xfs" { 1.2 } else { 1.0 };
        noisy(planned, speed, 0.02)
    });
    let summary = summarise(&folder);
    let xfs = of(&summary, 0, "xfs");
    assert_eq!(xfs.verdict, Some(Verdict::Faster));
    let ratio = xfs.ratio.unwrap();
    assert!(
        ratio.low.unwrap() < 1.2 && ratio.high.unwrap() > 1.2,
        "{ratio:?}"
    );
    assert!(summary.workloads[0].noise_floor < 0.03);
    assert!(
        summary.headline[0].contains("FASTER"),
        "{:?}",
        summary.headline
    );
    assert!(
        summary.headline[0].contains("interval"),
        "{:?}",
        summary.headline
    );
    assert_eq!(of(&summary, 0, "ext4").verdict, None);
    assert_eq!(summary.overall.len(), 2);
    assert_eq!(summary.overall[0].verdict, Verdict::Faster);
}

#[test]
fn equal_ones_are_equivalent_and_other_durability_is_never_ranked() {
    let folder = folder(experiment(10), |planned| {
        let speed = if planned.contender == "spindle-normal" {
            2.0
        } else {
            1.0
        };
        noisy(planned, speed, 0.02)
    });
    let summary = summarise(&folder);
    assert_eq!(of(&summary, 0, "xfs").verdict, Some(Verdict::Equivalent));
    let normal = of(&summary, 0, "spindle-normal");
    assert_eq!(normal.verdict, Some(Verdict::Inconclusive));
    assert!(
        normal
            .doubts
            .iter()
            .any(|told| matches!(told.doubt, Doubt::OtherDurability { .. })),
        "{:?}",
        normal.doubts
    );
    assert!(
        summary
            .headline
            .iter()
            .any(|line| line.contains("2 copies"))
    );
}

#[test]
fn a_failed_run_is_failed_and_its_block_is_left_out_never_a_zero() {
    let folder = folder(experiment(5), |planned| {
        if planned.contender == "xfs" && planned.block == 2 {
            return Outcome::Failed {
                reason: "no room left".to_owned(),
                log_tail: String::new(),
            };
        }
        noisy(planned, 1.0, 0.01)
    });
    let summary = summarise(&folder);
    let xfs = of(&summary, 0, "xfs");
    assert_eq!(xfs.failed, 1);
    assert_eq!(xfs.rates.len(), 4);
    let ratio = xfs.ratio.unwrap();
    assert_eq!(ratio.blocks, 4);
    assert!(ratio.low.is_none(), "four blocks give no interval");
    assert!((ratio.centre - 1.0).abs() < 0.02);
    assert_eq!(xfs.verdict, Some(Verdict::Inconclusive));
    assert_eq!(summary.failed.len(), 2);
    assert!(
        summary
            .headline
            .iter()
            .any(|line| line.contains("4 whole blocks"))
    );
}

#[test]
fn where_the_baseline_differs_from_itself_nothing_is_claimed() {
    let folder = folder(experiment(8), |planned| {
        let speed = if planned.label.ends_with(AGAIN) {
            1.3
        } else {
            1.0
        };
        let own = if planned.contender == "xfs" { 2.0 } else { 1.0 };
        noisy(planned, speed * own, 0.02)
    });
    let summary = summarise(&folder);
    assert_eq!(of(&summary, 0, "xfs").verdict, Some(Verdict::Inconclusive));
    assert!(
        summary.workloads[0].doubts[0]
            .what
            .contains("differs from itself")
    );
}

#[test]
fn the_published_page_names_every_field_of_the_summary() {
    let folder = folder(experiment(5), |planned| match planned.number {
        3 => Outcome::Failed {
            reason: "it hangs".to_owned(),
            log_tail: String::new(),
        },
        _ => noisy(planned, 1.0, 0.3),
    });
    let summary = summarise(&folder);
    let json = serde_json::to_value(&summary).unwrap();
    let back: Summary = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back.headline, summary.headline);
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/lab/summary.md"
    ))
    .unwrap();
    let mut names = Vec::new();
    keys(&json, &mut names);
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/lab/summary.md lacks `{name}`"
        );
    }
}

/// Every key but those of maps, whose names are data, and of doubts, which differ by kind.
fn keys(value: &serde_json::Value, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, inner) in object {
                names.push(name.clone());
                if name != "not_run" && name != "doubt" {
                    keys(inner, names);
                }
            }
        }
        serde_json::Value::Array(array) => array.iter().for_each(|inner| keys(inner, names)),
        _ => {}
    }
}
