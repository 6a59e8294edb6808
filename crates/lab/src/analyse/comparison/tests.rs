//! Two folders of the same experiment, on two days.

use super::*;
use crate::analyse::sample::{classed, experiment, folder, measured};
use crate::experiment::Experiment;
use crate::record::{DurabilityClass, Outcome};

/// A day on which the machine is so fast and so noisy, and xfs so fast beside the others.
fn day(blocks: u32, seed: u64, speed: f64, noise: f64, of_xfs: f64) -> Folder {
    folder(experiment(blocks), |planned| {
        let mut random = fastrand::Rng::with_seed(seed * 1000 + u64::from(planned.number) * 31 + 7);
        let own = if planned.contender == "xfs" {
            of_xfs
        } else {
            1.0
        };
        measured(1000.0 * speed * own * (1.0 + noise * (random.f64() - 0.5)))
    })
}

fn of<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter()
        .find(|row| {
            row.contender == name && row.workload.starts_with("tpcb") && row.figure == "rate"
        })
        .unwrap()
}

#[test]
fn a_faster_day_is_no_faster_contender() {
    let (first, second) = (day(12, 1, 1.0, 0.04, 1.2), day(12, 2, 1.14, 0.04, 1.2));
    let rows = compare(&first, &second).unwrap();
    let xfs = of(&rows, "xfs");
    assert!((xfs.rates.centre - 1.14).abs() < 0.03, "{xfs:?}");
    assert_eq!(xfs.against.as_deref(), Some("ext4"));
    let ratios = xfs.ratios.unwrap();
    assert!(
        ratios.low.unwrap() < 1.0 && ratios.high.unwrap() > 1.0,
        "{xfs:?}"
    );
    assert_eq!(xfs.verdict, Verdict::Equivalent);
    // The baseline has nothing beside it that would tell the day from itself.
    let ext4 = of(&rows, "ext4");
    assert_eq!((ext4.ratios, ext4.verdict), (None, Verdict::Look));
    assert!(
        ext4.reason.as_ref().unwrap().contains("from the day"),
        "{ext4:?}"
    );
    assert!(rows.iter().all(|row| !row.contender.ends_with(AGAIN)));
}

#[test]
fn what_became_faster_beside_its_baseline_is_called_so_and_five_blocks_are_a_look() {
    let (first, second) = (day(12, 1, 1.0, 0.04, 1.0), day(12, 2, 0.9, 0.04, 1.3));
    let rows = compare(&first, &second).unwrap();
    let xfs = of(&rows, "xfs");
    assert_eq!(xfs.verdict, Verdict::Faster);
    assert!((xfs.ratios.unwrap().centre - 1.3).abs() < 0.03, "{xfs:?}");
    let rows = compare(&day(5, 1, 1.0, 0.04, 1.0), &second).unwrap();
    assert_eq!(of(&rows, "xfs").verdict, Verdict::Look);
    let rows = compare(&day(4, 1, 1.0, 0.04, 1.0), &second).unwrap();
    let xfs = of(&rows, "xfs");
    assert_eq!((xfs.verdict, xfs.rates.low), (Verdict::Inconclusive, None));
    assert!(xfs.reason.is_some(), "{xfs:?}");
    // Two copies against one are ranked in neither.
    assert_eq!(of(&rows, "spindle-normal").verdict, Verdict::Inconclusive);
}

#[test]
fn noise_alone_is_no_change() {
    for seed in 0..20 {
        let first = day(12, 2 * seed, 1.0, 0.3, 1.0);
        let rows = compare(&first, &day(12, 2 * seed + 1, 1.0, 0.3, 1.0)).unwrap();
        for row in rows {
            assert!(
                !matches!(row.verdict, Verdict::Faster | Verdict::Slower),
                "{row:?}"
            );
        }
    }
}

#[test]
fn the_intervals_of_all_rows_are_as_wide_as_all_of_them_need() {
    let (first, second) = (day(12, 1, 1.0, 0.04, 1.0), day(12, 2, 1.0, 0.04, 1.0));
    let rows = compare(&first, &second).unwrap();
    let of_rates = rows.iter().filter(|row| row.figure == "rate").count();
    let xfs = of(&rows, "xfs").ratios.unwrap();
    let logs = |folder: &Folder| -> Vec<f64> {
        let pairs = pairs(folder, 0, "xfs", "ext4");
        pairs
            .values()
            .map(|(own, other)| (own / other).ln())
            .collect()
    };
    let of_level = |comparisons| {
        let of = |folder| interval_among(&logs(folder), comparisons).unwrap();
        difference(of(&second), of(&first)).exp()
    };
    let (own, together) = (
        of_level(Comparisons::ONE),
        of_level(Comparisons::of(of_rates)),
    );
    assert!(of_rates > 1 && together.low < own.low && own.high < together.high);
    assert_eq!(
        (xfs.low, xfs.high),
        (Some(together.low), Some(together.high))
    );
}

/// ext4, xfs and spindle-normal, each of its class.
fn of_classes(of_xfs: DurabilityClass, of_ext4: DurabilityClass) -> Folder {
    classed(|planned| {
        Some(match planned.contender.as_str() {
            "xfs" => of_xfs,
            "ext4" => of_ext4,
            _ => DurabilityClass::Durable,
        })
    })
}

#[test]
fn what_is_of_another_class_in_the_one_than_in_the_other_is_not_comparable() {
    use DurabilityClass::{CannotBeSeen, Durable, NotDurable};
    let honest = of_classes(Durable, Durable);
    for class in [NotDurable, CannotBeSeen] {
        let rows = compare(&honest, &of_classes(class, Durable)).unwrap();
        let xfs = of(&rows, "xfs");
        assert_eq!(xfs.verdict, Verdict::Inconclusive);
        let reason = xfs.not_comparable.as_ref().unwrap();
        assert!(
            reason.contains("the durability of xfs: durable here") && reason.contains("48 of xfs"),
            "{reason}"
        );
        let normal = of(&rows, "spindle-normal");
        assert_eq!(
            (&normal.not_comparable, normal.verdict),
            (&None, Verdict::Equivalent)
        );
    }
    // A baseline that forgets on one of the days makes nobody slower.
    let rows = compare(&honest, &of_classes(NotDurable, NotDurable)).unwrap();
    assert!(
        of(&rows, "xfs").not_comparable.is_some() && of(&rows, "ext4").not_comparable.is_some()
    );
    // Where nothing is left that could be compared, it is said instead of rows.
    let all = classed(|_| Some(NotDurable));
    let reasons = compare(&honest, &all).unwrap_err();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
}

#[test]
fn slow_operations_have_rows_of_their_own_and_a_longer_wait_is_slower() {
    let of_days = |later: u64| {
        let day = |factor: u64| {
            folder(experiment(12), |planned| {
                let mut outcome = measured(1000.0);
                if let Outcome::Measured(run) = &mut outcome {
                    let own = if planned.contender == "xfs" {
                        factor
                    } else {
                        1
                    };
                    let noise = u64::from(planned.number % 3) * 10;
                    run.latency.counts = vec![(2000 + noise, 90), ((9000 + noise) * own, 10)];
                }
                outcome
            })
        };
        let rows = compare(&day(1), &day(later)).unwrap();
        let word = |figure: &str| {
            let is_it = |row: &&Row| row.contender == "xfs" && row.figure == figure;
            rows.iter().find(is_it).map(|row| row.verdict)
        };
        [word("rate"), word("p95"), word("p99")]
    };
    use Verdict::{Equivalent, Slower};
    assert_eq!(of_days(1), [Some(Equivalent); 3]);
    assert_eq!(of_days(3), [Some(Equivalent), Some(Slower), Some(Slower)]);
}

#[test]
fn a_rate_without_anything_beside_it_claims_nothing_however_far_it_moved() {
    let rows = compare(&day(12, 1, 1.0, 0.04, 1.0), &day(12, 2, 3.0, 0.04, 1.0)).unwrap();
    for row in rows.iter().filter(|row| row.ratios.is_none()) {
        assert!(
            matches!(row.verdict, Verdict::Look | Verdict::Inconclusive),
            "{row:?}"
        );
    }
    assert!(rows.iter().any(|row| row.ratios.is_none()));
}

#[test]
fn scripts_of_which_nobody_knows_what_stood_in_them_are_no_like_loads() {
    let day = |text: Option<&str>| {
        let mut experiment = Experiment::parse(
            "contenders = [\"ext4\", \"xfs\"]\nblocks = 5\n[devices]\nkind = \"loop\"\n\
             [[workload]]\nkind = \"script\"\nfiles = [\"pay.sql\"]\ninit = \"pgbench\"\n",
        )
        .unwrap();
        experiment.workloads[0].scripts.files[0].text = text.map(str::to_owned);
        folder(experiment, |_| measured(1000.0))
    };
    assert!(compare(&day(Some("SELECT 1;")), &day(Some("SELECT 1;"))).is_ok());
    let reasons = compare(&day(None), &day(None)).unwrap_err().join("\n");
    assert!(
        reasons.contains("what the scripts of `script, pay.sql"),
        "{reasons}"
    );
    for other in [None, Some("SELECT 2;")] {
        let reasons = compare(&day(Some("SELECT 1;")), &day(other)).unwrap_err();
        let wanted = "the experiments differ in every workload";
        assert_eq!(reasons, [wanted]);
    }
}
