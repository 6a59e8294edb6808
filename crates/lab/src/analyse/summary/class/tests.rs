use super::super::{Verdict, summarise};
use super::*;
use crate::analyse::sample::classed;
use crate::record::{Cut, JournalCommits, Outcome, PlannedRun};

fn of_xfs(class: DurabilityClass) -> impl Fn(&PlannedRun) -> Option<DurabilityClass> {
    move |planned| {
        Some(if planned.contender == "xfs" {
            class
        } else {
            DurabilityClass::Durable
        })
    }
}

#[test]
fn what_forgets_is_never_ranked_and_stands_apart_with_its_reason_in_the_headline() {
    let folder = classed(of_xfs(DurabilityClass::NotDurable));
    let summary = summarise(&folder);
    let workload = &summary.workloads[0];
    let xfs = workload
        .contenders
        .iter()
        .find(|one| one.name == "xfs")
        .unwrap();
    assert_eq!((xfs.verdict, xfs.ratio), (None, None));
    let spindle = workload.contenders.last().unwrap();
    assert_eq!(spindle.verdict, Some(Verdict::Equivalent));
    let headline = &summary.headline[0];
    assert!(
        headline.contains("xfs is not durable: fdatasync by 1 writer: 48 of xfs")
            && headline.contains("not ranked with ext4"),
        "{headline}"
    );
    let about_xfs = summary.headline.iter().filter(|line| line.contains("xfs"));
    assert_eq!(about_xfs.count(), 1, "{:?}", summary.headline);
    assert!(summary.overall.iter().all(|overall| overall.name != "xfs"));
    let classes = workload.by_class();
    assert_eq!(classes.len(), 2);
    assert_eq!(classes[1].0, Some(DurabilityClass::NotDurable));
    assert_eq!(classes[1].1.len(), 1);
    // Nothing to compare it with is no missing run.
    assert!(summary.excluded.is_empty());
}

#[test]
fn a_baseline_that_forgets_makes_nobody_slower() {
    let folder = classed(|planned| {
        Some(if planned.contender == "ext4" {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    });
    let summary = summarise(&folder);
    assert!(
        summary.headline[0].starts_with("ext4 is not durable"),
        "{:?}",
        summary.headline
    );
    for workload in &summary.workloads {
        for contender in &workload.contenders {
            let against = contender.against.as_deref();
            assert!(
                contender.verdict.is_none() || against == Some("xfs"),
                "{contender:?}"
            );
        }
        // Of the durable ones the first is what the other is compared with.
        let spindle = workload.contenders.last().unwrap();
        assert_eq!(spindle.verdict, Some(Verdict::Slower));
    }
}

#[test]
fn one_run_that_was_caught_is_enough() {
    let folder = classed(|planned| {
        Some(if planned.contender == "xfs" && planned.block == 7 {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    });
    let found = of(&folder, "xfs").unwrap();
    assert_eq!(found.class, DurabilityClass::NotDurable);
    assert!(!is_same(&folder, "xfs", "ext4"));
}

#[test]
fn those_of_one_class_are_ranked_whichever_it_is_and_the_class_is_told() {
    use DurabilityClass::{CannotBeSeen, Durable, NotDurable};
    for (class, words) in [
        (Some(Durable), ""),
        (Some(CannotBeSeen), "cannot be seen"),
        (Some(NotDurable), "It is not durable"),
        (None, ""),
    ] {
        let summary = summarise(&classed(|_| class));
        let workload = &summary.workloads[0];
        assert_eq!(workload.by_class().len(), 1, "{class:?}");
        let xfs = workload
            .contenders
            .iter()
            .find(|one| one.name == "xfs")
            .unwrap();
        assert_eq!(xfs.verdict, Some(Verdict::Faster), "{class:?}");
        let told = xfs.doubts.iter().any(|told| told.what.contains(words));
        assert!(words.is_empty() || told, "{class:?}: {:?}", xfs.doubts);
        let names_it = summary
            .headline
            .iter()
            .any(|line| line.starts_with("xfs is not"));
        assert_eq!(
            names_it,
            class == Some(NotDurable),
            "{:?}",
            summary.headline
        );
    }
}

#[test]
fn a_contender_without_figures_has_failed_and_is_of_no_other_class() {
    let mut folder = classed(|_| Some(DurabilityClass::Durable));
    for run in &mut folder.runs {
        if run.run.planned.contender == "xfs" {
            run.run.outcome = Outcome::Failed {
                reason: "no room left".to_owned(),
                log_tail: String::new(),
            };
        }
    }
    let summary = summarise(&folder);
    let workload = &summary.workloads[0];
    assert_eq!(workload.by_class().len(), 1);
    let xfs = workload
        .contenders
        .iter()
        .find(|one| one.name == "xfs")
        .unwrap();
    assert_eq!(xfs.verdict, Some(Verdict::Inconclusive));
}

fn with_cut(cut: Cut) -> Summary {
    let mut folder = classed(|_| Some(DurabilityClass::Durable));
    folder.cuts.contenders.insert("xfs".to_owned(), cut);
    summarise(&folder)
}

fn made(lost: &[&str]) -> Cut {
    Cut::Made {
        moments: 200,
        acknowledged: 400,
        lost: lost.iter().map(|&line| line.to_owned()).collect(),
        commits: JournalCommits::default(),
        seed: 1,
        elapsed_s: 20.0,
    }
}

#[test]
fn what_is_lost_when_the_power_is_cut_is_not_durable_whatever_was_counted_and_never_ranked() {
    let summary = with_cut(made(&["cut 3, after record 399: 2 of 141"]));
    let xfs = &summary.workloads[0].contenders[2];
    assert_eq!(
        (xfs.name.as_str(), xfs.verdict, xfs.ratio),
        ("xfs", None, None)
    );
    let found = xfs.durability.as_ref().unwrap();
    assert_eq!(found.class, DurabilityClass::NotDurable);
    let headline = &summary.headline[0];
    assert!(
        headline
            .contains("xfs is not durable: its power was cut at 200 moments, and after 1 of them")
            && headline.contains("after record 399")
            && headline.contains("not ranked with ext4"),
        "{headline}"
    );
}

#[test]
fn a_cut_that_found_everything_or_was_not_made_accuses_nobody_and_is_told() {
    for (cut, words) in [
        (made(&[]), "none of 400 acknowledged writes was lost"),
        (
            Cut::NotMade {
                reason: "no FUSE".to_owned(),
                by_choice: false,
            },
            "its power was not cut: no FUSE",
        ),
    ] {
        let summary = with_cut(cut);
        let xfs = &summary.workloads[0].contenders[2];
        assert_eq!(xfs.verdict, Some(Verdict::Faster));
        let found = xfs.durability.as_ref().unwrap();
        assert_eq!(found.class, DurabilityClass::Durable);
        assert!(found.cut.as_ref().unwrap().contains(words), "{found:?}");
        let page = crate::render::html::page(&classed(|_| None), &summary);
        assert!(page.contains(words), "the report says so");
    }
}
