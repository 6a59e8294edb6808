//! Two things at once, with a real database: a backup, a rebalance and a resync beside a load, each
//! broken off at the end, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;

use scene::Scene;
use spindle_lab::analyse::summary::{BesideFound, Summary};
use spindle_lab::measure::contender::spindle_program;
use spindle_lab::record::{Plan, Run, read_json};

const EXPERIMENT: &str = r#"
contenders = [CONTENDERS]
blocks = 1
warm_up = "100 ms"
duration = "DURATION"
[devices]
kind = "loop"
count = 3
size = "256 MiB"
directory = "SCENE"
[database]
kind = "sqlite"
memory = "256 MiB"
[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 2
beside = [BESIDE]
"#;

/// Runs it, and gives what was found.
fn summary_of(scene: &Scene, contenders: &str, beside: &str, duration: &str) -> Summary {
    let text = EXPERIMENT
        .replace("CONTENDERS", contenders)
        .replace("BESIDE", beside)
        .replace("DURATION", duration);
    let file = scene.write("beside.toml", &text);
    let said = scene.lab(&["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    scene.assert_clean();
    read_json(&scene.path().join("beside/summary.json")).unwrap()
}

/// What went on beside the load whose name has this in it.
fn found(summary: &Summary, load: &str, name: &str) -> BesideFound {
    let mut loads = summary.workloads.iter();
    let load = loads.find(|one| one.title.contains(load)).unwrap();
    let mut contenders = load.contenders.iter();
    let contender = contenders.find(|one| one.name == name).unwrap();
    assert!(contender.rate.is_some(), "{name} under {}", load.title);
    contender.beside.clone().unwrap()
}

/// Its laps by name: how many were done, and how many were not.
fn laps(found: &BesideFound) -> Vec<(&str, usize, usize)> {
    (found.laps.iter())
        .map(|lap| (lap.name.as_str(), lap.done, lap.unfinished))
        .collect()
}

#[test]
fn a_load_is_measured_alone_beside_a_backup_and_beside_a_rebalance() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.btrfs", "mkfs.ext4"]) {
        return;
    }
    if spindle_program().is_none() {
        println!("skipped: the command spindle is not built here");
        return;
    }
    let contenders = "\"btrfs-raid0\", \"spindle-external\", \"ext4\"";
    let beside = "\"backup\", \"rebalance\"";
    let summary = summary_of(&scene, contenders, beside, "3 s");
    assert_eq!(summary.workloads.len(), 3);
    assert!(summary.workloads[0].contenders[0].beside.is_none());
    // Of 16 MiB and more there is a backup or two in three seconds on anything.
    for name in ["btrfs-raid0", "spindle-external", "ext4"] {
        let backup = found(&summary, "beside a backup", name);
        assert!(backup.share.unwrap().centre > 0.0);
        let [lap] = backup.laps.as_slice() else {
            panic!("{backup:?}");
        };
        assert!(lap.name == "backup" && lap.done >= 1, "{lap:?}");
        assert!(lap.bytes_per_s.unwrap() > 0.0);
    }
    for name in ["btrfs-raid0", "spindle-external"] {
        let rebalance = found(&summary, "beside a rebalance", name);
        let laps = laps(&rebalance);
        assert_eq!(laps[0].0, "disk leaves", "{laps:?}");
        let unfinished: usize = laps.iter().map(|lap| lap.2).sum();
        assert!(unfinished <= 1, "{laps:?}");
    }
    let load = &summary.workloads[2].title;
    let reason = &summary.not_run[&format!("ext4 under {load}")];
    assert!(reason.contains("moves data"), "{reason}");
    let folder = scene.path().join("beside");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    let tables = page.matches("of its rate alone").count();
    assert_eq!(
        tables, 2,
        "one for each load beside which something went on"
    );
    // Each lap lies within the measured time.
    let plan: Plan = read_json(&folder.join("plan.json")).unwrap();
    let planned = (plan.runs.iter())
        .find(|run| run.workload == 1 && run.label == "ext4")
        .unwrap();
    let run: Run = read_json(&folder.join("runs").join(planned.folder()).join("run.json")).unwrap();
    let beside = &run.measured().unwrap().beside;
    for (one, next) in beside.iter().zip(beside.iter().skip(1)) {
        assert!(one.from_s < one.until_s.unwrap() && one.until_s.unwrap() <= next.from_s);
    }
    assert!(beside.last().unwrap().from_s < 3.5);
}

#[test]
fn a_disk_of_a_mirror_goes_and_comes_back_beside_a_load() {
    let Some(scene) = Scene::new() else { return };
    if spindle_program().is_none() {
        println!("skipped: the command spindle is not built here");
        return;
    }
    let summary = summary_of(&scene, "\"spindle-normal\"", "\"resync\"", "9 s");
    let resync = found(&summary, "beside a resync", "spindle-normal");
    let laps = laps(&resync);
    assert!(laps[0].0 == "away" && laps[0].1 >= 1, "{laps:?}");
    assert_eq!(laps[1].0, "resync", "{laps:?}");
}

#[test]
fn what_nothing_can_go_on_beside_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let text = EXPERIMENT
        .replace("CONTENDERS", "\"ext4\"")
        .replace("DURATION", "1 s");
    for (beside, load, wanted) in [
        ("\"backup\"", "kind = \"scan\"", "`beside` means nothing"),
        ("\"backup\", \"backup\"", "kind = \"tpcb\"", "twice"),
        ("\"backups\"", "kind = \"tpcb\"", "`beside` is"),
        ("", "kind = \"tpcb\"", "lists something"),
        (
            "\"rebalance\"",
            "kind = \"tpcb\"",
            "the baseline `ext4` cannot",
        ),
    ] {
        let text = text
            .replace("BESIDE", beside)
            .replace("kind = \"tpcb\"", load);
        let file = scene.write("beside.toml", &text.replace("users = 2\n", ""));
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{}", said.stdout);
        assert!(said.stderr.contains(wanted), "{}", said.stderr);
        scene.assert_clean();
    }
}
