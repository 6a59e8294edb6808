//! From runs to what may be said.

use super::*;
use crate::analyse::sample::{curve, experiment, folder, measured};
use crate::record::{COUNTED_S, PlannedRun};

/// A scaling curve.
fn of_users(reach: impl FnMut(&PlannedRun) -> Outcome) -> Folder {
    folder(curve(5), reach)
}

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
    let folder = folder(experiment(12), |planned| {
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
    let folder = folder(experiment(12), |planned| {
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
fn five_blocks_are_a_look_and_its_headline_claims_nothing() {
    let folder = folder(experiment(5), |planned| {
        let speed = if planned.contender == "xfs" { 2.0 } else { 1.0 };
        noisy(planned, speed, 0.02)
    });
    let summary = summarise(&folder);
    let xfs = of(&summary, 0, "xfs");
    assert_eq!(xfs.verdict, Some(Verdict::Look));
    assert!(xfs.ratio.unwrap().low.unwrap() > 1.9);
    assert_eq!(summary.overall[0].verdict, Verdict::Look);
    assert!(
        summary.headline[0].starts_with("This is a look from 5 blocks"),
        "{:?}",
        summary.headline
    );
    for line in &summary.headline {
        assert!(
            !["FASTER", "SLOWER", "EQUIVALENT"]
                .iter()
                .any(|word| line.contains(word)),
            "{line}"
        );
    }
}

#[test]
fn without_its_second_name_the_baseline_gives_no_claim_but_the_reason_and_what_to_do() {
    // All runs of the second name fail, then all but four.
    for measured_blocks in [0, 4] {
        let folder = folder(experiment(12), |planned| {
            if planned.label.ends_with(AGAIN) && planned.block > measured_blocks {
                return Outcome::Failed {
                    reason: "no room left".to_owned(),
                    log_tail: String::new(),
                };
            }
            let speed = if planned.contender == "xfs" { 1.5 } else { 1.0 };
            noisy(planned, speed, 0.02)
        });
        let summary = summarise(&folder);
        assert_eq!(of(&summary, 0, "xfs").verdict, Some(Verdict::Inconclusive));
        assert_eq!(summary.overall[0].verdict, Verdict::Inconclusive);
        let told = &summary.workloads[0].doubts[0];
        assert_eq!(told.doubt, Doubt::NoNoiseFloor);
        assert!(told.what_to_do.contains("Run the file again"), "{told:?}");
        let line = summary
            .headline
            .iter()
            .find(|line| line.contains("tpcb") && line.contains("xfs against"))
            .unwrap();
        assert!(line.contains(told.what.trim_end_matches('.')), "{line}");
    }
}

#[test]
fn over_all_loads_nothing_is_claimed_where_the_baseline_differs_from_itself_under_one() {
    let folder = folder(experiment(12), |planned| {
        let is_apart = planned.label.ends_with(AGAIN) && planned.workload == 1;
        let speed = if is_apart { 1.3 } else { 1.0 };
        let own = if planned.contender == "xfs" { 3.0 } else { 1.0 };
        noisy(planned, speed * own, 0.02)
    });
    let summary = summarise(&folder);
    assert_eq!(of(&summary, 0, "xfs").verdict, Some(Verdict::Faster));
    assert_eq!(of(&summary, 1, "xfs").verdict, Some(Verdict::Inconclusive));
    assert_eq!(summary.overall[0].verdict, Verdict::Inconclusive);
    assert!(
        summary.headline[0].contains("under 1 of 2 loads nothing may be said"),
        "{}",
        summary.headline[0]
    );
}

#[test]
fn what_stalls_is_named_beside_the_verdict_of_the_middle_block() {
    let folder = folder(experiment(24), |planned| {
        let stalls = planned.contender == "xfs" && planned.block % 12 == 0;
        let speed = match planned.contender.as_str() {
            "xfs" if stalls => 0.5,
            "xfs" => 1.5,
            _ => 1.0,
        };
        noisy(planned, speed, 0.02)
    });
    let summary = summarise(&folder);
    let xfs = of(&summary, 0, "xfs");
    assert_eq!(xfs.verdict, Some(Verdict::Faster));
    let ratio = xfs.ratio.unwrap();
    assert_eq!((ratio.far_below, ratio.far_above), (2, 0));
    let line = summary
        .headline
        .iter()
        .find(|line| line.contains("tpcb") && line.contains("xfs is"))
        .unwrap();
    assert!(
        line.contains("In 2 of 24 blocks xfs was far slower than usual"),
        "{line}"
    );
    let last = summary.headline.last().unwrap();
    assert!(
        last.contains("fewer than 12 of 100 runs") && last.contains("in 24 blocks"),
        "{last}"
    );
}

/// Two blocks of twelve in which xfs stalls, among so many contenders and loads.
fn stalling(contenders: &str, loads: &str, blocks: u32) -> Summary {
    let text = format!(
        "contenders = [\"ext4\", \"xfs\"{contenders}]\nblocks = {blocks}\n[devices]\nkind = \"loop\"\n\
         [[workload]]\nkind = \"tpcb\"\n{loads}"
    );
    let asked = crate::experiment::Experiment::parse(&text).unwrap();
    summarise(&folder(asked, |planned| {
        let speed = match planned.contender.as_str() {
            "xfs" if planned.block == 3 || planned.block == 8 => 0.5,
            "xfs" => 1.5,
            _ => 1.0,
        };
        noisy(planned, speed, 0.02)
    }))
}

#[test]
fn the_more_a_report_compares_the_more_a_word_needs_so_that_all_of_them_hold_together() {
    // By itself it is faster: two blocks of twelve are left out.
    let alone = stalling("", "", 12);
    let xfs = of(&alone, 0, "xfs");
    assert_eq!(
        (xfs.ratio.unwrap().comparisons, xfs.verdict),
        (1, Some(Verdict::Faster))
    );
    assert!(
        !alone.headline.concat().contains("hold together"),
        "{:?}",
        alone.headline
    );
    // With two more contenders and three more loads, and all of them over all loads, it is one of
    // fifteen, and twelve blocks leave out hardly one.
    let loads = "users = 2\n[[workload]]\nkind = \"growth\"\n[[workload]]\nkind = \"scan\"\n\
        [[workload]]\nkind = \"random\"\n";
    let others = ", \"ext3\", \"btrfs-single\"";
    let together = stalling(others, loads, 12);
    let xfs = of(&together, 0, "xfs");
    let ratio = xfs.ratio.unwrap();
    assert_eq!(
        (ratio.comparisons, xfs.verdict),
        (15, Some(Verdict::Inconclusive))
    );
    assert!(
        (ratio.confidence.unwrap() - (1.0 - 0.05 / 15.0)).abs() < 1e-9,
        "{ratio:?}"
    );
    let over_all = together
        .overall
        .iter()
        .find(|one| one.name == "xfs")
        .unwrap();
    assert_eq!(
        (over_all.ratio.comparisons, over_all.verdict),
        (15, Verdict::Inconclusive)
    );
    // The slow operations are a family of their own; the baseline's second name is in none.
    let p95 = of(&together, 0, "ext3").latencies[0].ratio.unwrap();
    assert!(p95.comparisons > 15 && p95.comparisons <= 24, "{p95:?}");
    assert_eq!(together.workloads[0].noise.unwrap().comparisons, 1);
    let last = together.headline.last().unwrap();
    assert!(
        last.contains("all 15 comparisons of rates hold together in 95 of 100 experiments; the")
            && last.contains("of p95 and p99 do among themselves"),
        "{last}"
    );
    // Twice the blocks carry it.
    let xfs_of_more = stalling(others, loads, 24);
    assert_eq!(of(&xfs_of_more, 0, "xfs").verdict, Some(Verdict::Faster));
}

#[test]
fn where_the_baseline_differs_from_itself_nothing_is_claimed() {
    let folder = folder(experiment(12), |planned| {
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
fn a_run_whose_counters_came_late_keeps_its_rate_and_loses_what_was_counted() {
    let folder = folder(experiment(5), |planned| {
        let Outcome::Measured(mut run) = noisy(planned, 1.0, 0.01) else {
            unreachable!("it is measured");
        };
        let is_late = planned.contender == "xfs" && planned.block == 2;
        if is_late {
            run.processor.user_s /= 10.0;
            run.layers
                .iter_mut()
                .for_each(|layer| layer.read_bytes /= 10.0);
        }
        let counted_s = if is_late { 3.0 } else { 20.1 };
        run.facts.insert(COUNTED_S.to_owned(), counted_s);
        Outcome::Measured(run)
    });
    let summary = summarise(&folder);
    let (xfs, ext4) = (of(&summary, 0, "xfs"), of(&summary, 0, "ext4"));
    assert_eq!(xfs.rates.len(), 5);
    assert_eq!(xfs.ratio.unwrap().blocks, 5);
    assert_eq!(xfs.layers, ext4.layers);
    let (of_xfs, of_ext4) = (xfs.processor_us.unwrap(), ext4.processor_us.unwrap());
    assert!((of_xfs - of_ext4).abs() < 1e-6, "{of_xfs} {of_ext4}");
    let told = |contender: &ContenderSummary| {
        (contender.doubts.iter()).any(|told| told.doubt == Doubt::CountedInPart { runs: 1 })
    };
    assert!(told(xfs) && !told(ext4), "{:?}", xfs.doubts);
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
    let of_users = summarise(&of_users(|planned| noisy(planned, 1.0, 0.01)));
    let of_users = serde_json::to_value(&of_users).unwrap();
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/lab/summary.md"
    ))
    .unwrap();
    let mut names = Vec::new();
    keys(&json, &mut names);
    keys(&of_users, &mut names);
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
                if !["not_run", "doubt", "environment", "settings"].contains(&name.as_str()) {
                    keys(inner, names);
                }
            }
        }
        serde_json::Value::Array(array) => array.iter().for_each(|inner| keys(inner, names)),
        _ => {}
    }
}

#[test]
fn what_keeps_as_many_copies_is_compared_and_with_its_own_baseline() {
    // btrfs-raid1 and spindle-normal keep two copies, ext4 and xfs one.
    let folder = folder(curve(12), |planned| {
        let speed = match planned.contender.as_str() {
            "spindle-normal" => 0.5,
            "btrfs-raid1" => 0.6,
            _ => 1.0,
        };
        noisy(planned, speed, 0.02)
    });
    let summary = summarise(&folder);
    let first = of(&summary, 0, "spindle-normal");
    assert_eq!(first.against.as_deref(), Some("ext4"));
    assert_eq!(first.verdict, Some(Verdict::Inconclusive));
    let second = of(&summary, 0, "btrfs-raid1");
    assert_eq!(second.against.as_deref(), Some("spindle-normal"));
    assert_eq!(second.verdict, Some(Verdict::Faster));
    let ratio = second.ratio.unwrap().centre;
    assert!((ratio - 1.2).abs() < 0.03, "{ratio}");
    assert!(
        second
            .doubts
            .iter()
            .any(|told| matches!(told.doubt, Doubt::NoiseOfAnother { .. }))
    );
}

#[test]
fn several_users_make_a_curve_with_a_knee_and_one_sentence_a_contender() {
    let experiment = curve(12);
    let loads = experiment.workloads.clone();
    let folder = folder(experiment, |planned| {
        let users = f64::from(loads[planned.workload].users);
        // Four users are what it carries.
        let law = 250.0 * users / (1.0 + 0.25 * (users - 1.0));
        noisy(planned, law / 1000.0, 0.02)
    });
    let summary = summarise(&folder);
    let curve = &summary.curves[0];
    assert_eq!(curve.title, "tpcb, cached");
    assert_eq!(curve.slowest_per_s, Some(1000.0));
    let xfs = curve
        .contenders
        .iter()
        .find(|contender| contender.name == "xfs")
        .unwrap();
    let users: Vec<u32> = xfs.points.iter().map(|point| point.users).collect();
    assert_eq!(users, [1, 2, 4, 8, 16]);
    assert_eq!(xfs.peak_users, Some(16));
    let knee = xfs.knee.unwrap();
    assert!((3.5..=4.5).contains(&knee.users), "{knee:?}");
    assert!(
        knee.low.unwrap() < 4.2 && knee.high.unwrap() > 3.8,
        "{knee:?}"
    );
    assert_eq!(xfs.open.len(), 3);
    assert_eq!(xfs.open[1].percent, 70);
    assert!(xfs.points[0].low.is_some());
    let of_xfs: Vec<&String> = summary
        .headline
        .iter()
        .filter(|line| line.contains("xfs against"))
        .collect();
    assert!(
        of_xfs
            .iter()
            .any(|line| line.contains("EQUIVALENT at 1, 2, 4, 8, 16 users")),
        "{of_xfs:#?}"
    );
    assert!(
        of_xfs
            .iter()
            .any(|line| line.contains("% of the slowest peak"))
    );
}

#[test]
fn measured_runs_that_have_nothing_to_be_compared_with_are_named() {
    let folder = folder(experiment(6), |planned| {
        if planned.label == "ext4" && planned.block == 3 && planned.workload == 0 {
            return Outcome::Failed {
                reason: "it hangs".to_owned(),
                log_tail: "the last line".to_owned(),
            };
        }
        noisy(planned, 1.0, 0.01)
    });
    let summary = summarise(&folder);
    assert_eq!(summary.failed[0].log_tail, "the last line");
    // Its second name and the two others of that block.
    assert_eq!(summary.excluded.len(), 3, "{:?}", summary.excluded);
    assert!(summary.excluded[0].reason.contains("block 3"));
}

#[test]
fn a_rate_that_rises_while_it_is_measured_is_told_in_the_sentence_of_the_verdict() {
    let mut folder = folder(experiment(12), |planned| {
        let speed = if planned.contender == "xfs" { 1.2 } else { 1.0 };
        noisy(planned, speed, 0.02)
    });
    for run in &mut folder.runs {
        let rises = run.run.planned.contender == "xfs";
        if let Outcome::Measured(measured) = &mut run.run.outcome {
            measured.duration_s = 6.0;
        }
        run.samples.rows.truncate(9);
        let mut operations = 0.0;
        for row in &mut run.samples.rows {
            operations += if rises { 100.0 + 10.0 * row[0] } else { 100.0 };
            row[1] = operations;
        }
    }
    let summary = summarise(&folder);
    let of_xfs = summary
        .headline
        .iter()
        .find(|line| line.starts_with("tpcb") && line.contains("xfs is"))
        .unwrap();
    assert!(
        of_xfs.contains("The rate of xfs was not steady while it was measured: it rose by"),
        "{of_xfs}"
    );
    assert!(!of_xfs.contains("The rate of ext4"), "{of_xfs}");
}

/// xfs beside ext4 under one load: so much faster, on so many devices, with checksums or none, and
/// a lab that took so much of the processors while ext4 ran.
fn on_terms(speed: f64, devices: [u32; 2], checks: [bool; 2], lab_of_ext4: f64) -> Summary {
    let text = "contenders = [\"ext4\", \"xfs\"]\nblocks = 12\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"tpcb\"\n";
    let asked = crate::experiment::Experiment::parse(text).unwrap();
    let mut folder = folder(asked, |planned| {
        let is_xfs = planned.contender == "xfs";
        let mut outcome = noisy(planned, if is_xfs { speed } else { 1.0 }, 0.02);
        if let Outcome::Measured(run) = &mut outcome
            && !is_xfs
        {
            run.processor.harness_s = lab_of_ext4 * run.duration_s * f64::from(run.processor.count);
        }
        outcome
    });
    for run in &mut folder.runs {
        let side = usize::from(run.run.planned.contender != "xfs");
        if let Some(layout) = &mut run.run.layout {
            (layout.devices, layout.data_checksums) = (devices[side], checks[side]);
        }
    }
    summarise(&folder)
}

#[test]
fn a_figure_from_two_disks_against_one_says_so_in_every_sentence_with_its_word() {
    let said = |summary: &Summary| {
        [
            crate::render::matrix::sentence(summary),
            summary.headline[0].clone(),
        ]
    };
    for text in said(&on_terms(2.0, [2, 1], [false, false], 0.05)) {
        assert!(
            text.contains("100 % FASTER") && text.contains(", on 2 disks against 1"),
            "{text}"
        );
    }
    for text in said(&on_terms(2.0, [1, 4], [true, false], 0.05)) {
        assert!(
            text.contains("on 1 disk against 4")
                && text.contains("with checksums of all data against none"),
            "{text}"
        );
    }
    for text in said(&on_terms(2.0, [1, 1], [false, true], 0.05)) {
        assert!(
            text.contains("without checksums against data that has them"),
            "{text}"
        );
    }
    for text in said(&on_terms(2.0, [2, 2], [true, true], 0.05)) {
        assert!(
            !text.contains("disk") && !text.contains("checksums"),
            "{text}"
        );
    }
}

#[test]
fn a_busy_lab_calls_nothing_equivalent_and_one_that_has_most_of_the_machine_claims_nothing() {
    let verdict = |speed, lab| {
        let summary = on_terms(speed, [1, 1], [false, false], lab);
        of(&summary, 0, "xfs").verdict
    };
    assert_eq!(verdict(1.0, 0.05), Some(Verdict::Equivalent));
    assert_eq!(verdict(1.0, 0.3), Some(Verdict::Look));
    assert_eq!(verdict(1.5, 0.3), Some(Verdict::Faster));
    assert_eq!(verdict(1.5, 0.6), Some(Verdict::Look));
}
