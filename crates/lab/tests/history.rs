//! A folder remembers what was tried in it: a run that somebody removed, a record that somebody
//! changed, another machine or another Spindle in the middle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::PathBuf;

use scene::Scene;
use spindle_lab::record::{Event, History};

const EXPERIMENT: &str = r#"
contenders = ["raw"]
blocks = 1
warm_up = "100 ms"
duration = "300 ms"

[devices]
kind = "loop"
count = 1
size = "128 MiB"
directory = "SCENE"

[[workload]]
kind = "block"
pattern = "sequential-write"
regime = "cold"
size = "16 MiB"
"#;

fn first_run(scene: &Scene) -> PathBuf {
    let runs = fs::read_dir(scene.path().join("tried/runs")).unwrap();
    let mut runs: Vec<PathBuf> = runs.map(|run| run.unwrap().path()).collect();
    runs.sort();
    runs.remove(0)
}

#[test]
fn a_run_that_is_removed_is_measured_again_and_told_and_on_another_machine_it_is_refused() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio"]) {
        return;
    }
    let file = scene.write("tried.toml", EXPERIMENT);
    let folder = scene.path().join("tried");
    let summary = || fs::read_to_string(folder.join("summary.json")).unwrap();
    let said = scene.lab(&["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    assert!(summary().contains("started 1 time; 2 attempts at runs: 2 measured"));
    assert!(!summary().contains("runs-gone"), "{}", summary());

    // Another kernel, as it were: nothing is measured, and the line says why.
    let environment = folder.join("environment.json");
    let before = fs::read_to_string(&environment).unwrap();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    fs::write(&environment, before.replace(kernel.trim(), "2.4.18")).unwrap();
    fs::remove_dir_all(first_run(&scene)).unwrap();
    let said = scene.lab(&["run", &file]);
    assert!(!said.status.success(), "{}", said.stdout);
    assert!(
        said.stderr.contains("kernel: 2.4.18 then") && said.stderr.contains("--output"),
        "{}",
        said.stderr
    );

    // On the same one it is measured again, and the history has both.
    fs::write(&environment, &before).unwrap();
    let said = scene.lab(&["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    assert!(
        said.stdout.contains("measured runs are gone"),
        "{}",
        said.stdout
    );
    assert!(summary().contains("runs-gone"), "{}", summary());
    let history = History::read(&folder).unwrap();
    assert!(history.is_whole);
    let name = first_run(&scene)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let of_it =
        |event: &&Event| matches!(event, Event::Ended { run, rate: Some(_), .. } if *run == name);
    assert_eq!(history.events.iter().filter(of_it).count(), 2);

    // A record that a person has changed is told by the next report.
    let record = first_run(&scene).join("run.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(
        &record,
        text.replace("\"operations\": ", "\"operations\": 1"),
    )
    .unwrap();
    let folder_name = folder.display().to_string();
    let said = scene.lab(&["report", &folder_name]);
    assert!(said.status.success(), "{}", said.stderr);
    assert!(summary().contains("records-altered"), "{}", summary());
    scene.assert_clean();
}
