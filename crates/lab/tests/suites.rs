//! The suites, through the command, small: derived from TPC-H and AS3AP-like. What they answer is
//! checked by the loads themselves; here it is seen that they are, and that a wrong answer fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::path::Path;

use scene::Scene;
use serde_json::Value;

const HEAD: &str = r#"
name = "suites"
contenders = ["ext4"]
blocks = 1
warm_up = "100 ms"
duration = "700 ms"

[devices]
kind = "loop"
count = 1
size = "448 MiB"
directory = "SCENE"

[database]
memory = "256 MiB"
"#;

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The runs of an experiment in their order.
fn runs(folder: &Path) -> Vec<(std::path::PathBuf, Value)> {
    let mut runs: Vec<_> = std::fs::read_dir(folder.join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("run.json"))
        .map(|path| (path.clone(), read(&path)))
        .collect();
    runs.sort_by(|(one, _), (other, _)| one.cmp(other));
    runs
}

fn scene() -> Option<Scene> {
    Scene::new().filter(|scene| !scene.lacks_programs(&["initdb"]))
}

#[test]
fn the_queries_derived_from_tpc_h_are_answered_as_their_rows_say_and_the_same_by_all() {
    let Some(scene) = scene() else { return };
    let text = format!(
        "{HEAD}
[[workload]]
kind = \"tpch\"
scale = 0.01
[[workload]]
kind = \"tpch\"
scale = 0.01
refresh = true
[[workload]]
kind = \"tpch\"
scale = 0.01
mode = \"throughput\"
users = 2
"
    );
    let file = scene.write("suites.toml", &text);
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let folder = scene.path().join("suites");
    let all = runs(&folder);
    assert_eq!(all.len(), 6);
    for (path, run) in &all {
        let measured = &run["outcome"]["measured"];
        assert!(measured["rate"].as_f64().unwrap() > 0.0, "{run}");
        // The last check of each is of the settings, after the load.
        let (operations, answers, checks) = match run["planned"]["workload"].as_u64() {
            Some(0) => (22, 22, 7),
            Some(1) => (24, 22, 2),
            _ => (44, 44, 7),
        };
        assert_eq!(measured["operations"], operations, "{path:?}");
        assert_eq!(measured["answers"].as_object().unwrap().len(), answers);
        assert_eq!(measured["checks"].as_array().unwrap().len(), checks);
        let facts = &measured["facts"];
        assert!(facts["query_01_s"].as_f64().unwrap() > 0.0);
        assert!(facts["temporary_bytes"].as_f64().unwrap() >= 0.0);
    }
    scene.assert_clean();

    // A contender that answers something else has failed: the first run is made to have done so.
    let (path, mut run) = all
        .into_iter()
        .find(|(_, run)| run["planned"]["workload"] == 0)
        .unwrap();
    run["outcome"]["measured"]["answers"]["stream 0, query 6"] = "0000000000000000".into();
    std::fs::write(&path, run.to_string()).unwrap();
    let (other, _) = runs(&folder)
        .into_iter()
        .rfind(|(other, run)| run["planned"]["workload"] == 0 && *other != path)
        .unwrap();
    std::fs::remove_file(other).unwrap();
    let again = scene.lab(&["run", &file]);
    assert!(!again.status.success());
    assert!(
        again.stdout.contains("it does not answer what") && again.stdout.contains("query 6"),
        "{}",
        again.stdout
    );
}

#[test]
fn every_mode_of_the_as3ap_like_suite_runs_and_is_checked() {
    let Some(scene) = scene() else { return };
    let modes = [
        "single-user",
        "information-retrieval",
        "mixed-information-retrieval",
        "oltp",
        "mixed-oltp",
    ];
    let mut text = HEAD.to_owned();
    for mode in modes {
        text.push_str(&format!(
            "[[workload]]\nkind = \"as3ap\"\nsize = \"16 MiB\"\nmode = \"{mode}\"\n"
        ));
        if mode != "single-user" {
            text.push_str("users = 3\n");
        }
    }
    let file = scene.write("suites.toml", &text);
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    for (path, run) in runs(&scene.path().join("suites")) {
        let measured = &run["outcome"]["measured"];
        assert!(measured["rate"].as_f64().unwrap() > 0.0, "{path:?}: {run}");
        assert!(measured["checks"].as_array().unwrap().len() >= 3);
    }
    let report = std::fs::read_to_string(scene.path().join("suites/report.html")).unwrap();
    assert!(report.contains("AS3AP-like, mixed-oltp"));
    assert!(report.contains("nor the AS3AP-like one to any other"));
    scene.assert_clean();
}
