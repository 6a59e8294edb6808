//! A smoke run: every workload, through the command, on a file system and on Spindle where its
//! command is there; the folder, the report, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use scene::Scene;
use serde_json::Value;

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
kind = "validate"
size = "32 MiB"
[[workload]]
kind = "scan"
size = "32 MiB"
[[workload]]
kind = "growth"
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
[[workload]]
kind = "tpcc"
warehouses = 1
users = 2
"#;

#[test]
fn every_workload_runs_is_checked_and_leaves_nothing_behind() {
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
    let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    let workloads = summary["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 7);
    for workload in workloads {
        for contender in workload["contenders"].as_array().unwrap() {
            let rate = contender["rate"].as_f64().unwrap();
            assert!(rate > 0.0, "{workload}");
            assert_eq!(contender["failed"], 0);
        }
    }
    scene.assert_clean();

    // Started again there is nothing left to do, and the report is the same.
    let again = scene.lab(&["run", &file]);
    assert!(again.status.success());
    assert!(!again.stdout.contains("[1/"), "{}", again.stdout);

    // Compared with itself, nothing differs; with another kind of experiment it is refused.
    let path = folder.display().to_string();
    let compared = scene.lab(&["compare", &path, &path]);
    assert!(compared.stdout.contains("+0.0 %"), "{}", compared.stderr);
    let other = scene.write("smoke.toml", &EXPERIMENT.replace("256 MiB", "300 MiB"));
    let refused = scene.lab(&["run", &other]);
    assert!(
        refused.stderr.contains("holds another experiment"),
        "{}",
        refused.stderr
    );
}
