//! Two folders of the same experiment, on two days.

use super::*;
use crate::analyse::sample::{experiment, folder, measured};

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
        .find(|row| row.contender == name && row.workload.starts_with("tpcb"))
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
    assert_eq!((ext4.ratios, ext4.verdict), (None, Verdict::Faster));
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
        of_level(Comparisons::of(rows.len())),
    );
    assert!(rows.len() > 1 && together.low < own.low && own.high < together.high);
    assert_eq!(
        (xfs.low, xfs.high),
        (Some(together.low), Some(together.high))
    );
}
