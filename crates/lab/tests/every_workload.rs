//! Smoke runs through the command: an experiment of several workloads on a file system and on
//! Spindle with its folder and its report; every workload on every contender that this machine can
//! do; and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::path::Path;

use scene::{Said, Scene};
use serde_json::Value;
use spindle_lab::measure::contender;

const EXPERIMENT: &str = r#"
name = "smoke"
contenders = ["ext4", "spindle-external", "zfs"]
blocks = 1
warm_up = "200 ms"
duration = "800 ms"

[devices]
kind = "loop"
count = 2
size = "384 MiB"
directory = "SCENE"

[database]
memory = "256 MiB"

[[workload]]
kind = "block"
pattern = "random-mixed"
size = "32 MiB"
[[workload]]
kind = "random"
size = "32 MiB"
users = 2
schemas = 2
scan_percent = 10
scan_size = "256 KiB"
[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 2
rate = 50
"#;

#[test]
fn an_experiment_of_several_workloads_runs_is_reported_and_leaves_nothing_behind() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "initdb"]) {
        return;
    }
    let file = scene.write("smoke.toml", EXPERIMENT);
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("not run: zfs: "), "{}", ran.stdout);
    let folder = scene.path().join("smoke");
    for name in [
        "summary.json",
        "samples.csv",
        "report.html",
        "environment.json",
    ] {
        assert!(folder.join(name).metadata().unwrap().len() > 100, "{name}");
    }
    assert_all_measured(&folder, 3, &ran);
    scene.assert_clean();

    // Started again there is nothing left to do, and the report is the same.
    let again = scene.lab(&["run", &file]);
    assert!(again.status.success());
    assert!(!again.stdout.contains("[1/"), "{}", again.stdout);

    // Compared with itself, nothing differs; with another kind of experiment it is refused.
    let path = folder.display().to_string();
    let compared = scene.lab(&["compare", &path, &path]);
    let (said, error) = (&compared.stdout, &compared.stderr);
    assert!(said.contains("ratio 1.000"), "{said}\n{error}");
    assert!(!said.contains("differs:"), "{said}");
    let other = scene.write("smoke.toml", &EXPERIMENT.replace("256 MiB", "300 MiB"));
    let refused = scene.lab(&["run", &other]);
    assert!(
        refused.stderr.contains("holds another experiment"),
        "{}",
        refused.stderr
    );
}

/// Every run of these loads was measured, with a rate above nothing.
#[track_caller]
fn assert_all_measured(folder: &Path, workloads_count: usize, ran: &Said) {
    let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    let workloads = summary["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), workloads_count);
    for workload in workloads {
        for contender in workload["contenders"].as_array().unwrap() {
            let is_measured = contender["rate"].as_f64().is_some_and(|rate| rate > 0.0)
                && contender["failed"] == 0;
            assert!(is_measured, "{contender}\n{}", ran.stdout);
        }
    }
}

/// Each kind of load, as small as it comes, in thirds that run beside each other.
const LOADS: [&[&str]; 3] = [
    &[
        "kind = \"block\"\npattern = \"random-mixed\"\nsize = \"16 MiB\"",
        "kind = \"validate\"\nsize = \"16 MiB\"",
        "kind = \"scan\"\nsize = \"16 MiB\"",
        "kind = \"as3ap\"\nsize = \"16 MiB\"\nmode = \"single-user\"",
    ],
    &[
        "kind = \"growth\"\nsize = \"16 MiB\"",
        "kind = \"random\"\nsize = \"16 MiB\"\nusers = 2",
        "kind = \"tpcb\"\nsize = \"16 MiB\"\nusers = 2",
    ],
    &[
        "kind = \"tpcc\"\nwarehouses = 1\nusers = 2",
        "kind = \"tpch\"\nscale = 0.01",
    ],
];

#[test]
fn every_workload_runs_on_every_contender_of_this_machine() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "initdb"]) {
        return;
    }
    std::thread::scope(|scope| {
        for (third, loads) in LOADS.into_iter().enumerate() {
            scope.spawn(move || run_on_all(third, loads));
        }
    });
}

fn run_on_all(third: usize, loads: &[&str]) {
    let scene = Scene::new().unwrap();
    let contenders = contender::all();
    let names: Vec<String> = contenders.iter().map(|one| one.name()).collect();
    let mut text = format!(
        "contenders = {names:?}\nbaseline = \"ext4\"\n\
         blocks = 1\nwarm_up = \"100 ms\"\nduration = \"1 s\"\n\
         [devices]\nkind = \"loop\"\ncount = 4\nsize = \"384 MiB\"\ndirectory = \"SCENE\"\n\
         [database]\nmemory = \"256 MiB\"\n"
    );
    for load in loads {
        text.push_str(&format!("[[workload]]\n{load}\n"));
    }
    let file = scene.write(&format!("third{third}.toml"), &text);
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let folder = scene.path().join(format!("third{third}"));
    assert_all_measured(&folder, loads.len(), &ran);
    // Those that cannot run here are told as such, and are no failure; a database needs files.
    for contender in contenders {
        let name = contender.name();
        if contender.lacks().is_some() {
            let is_told = ran.stdout.contains(&format!("not run: {name}: "));
            assert!(is_told, "{name}\n{}", ran.stdout);
        } else if !contender.is_device() {
            let runs_count = ran.stdout.matches(&format!(": {name} ... ")).count();
            assert_eq!(runs_count, loads.len(), "{name}\n{}", ran.stdout);
        }
    }
    scene.assert_clean();
}
