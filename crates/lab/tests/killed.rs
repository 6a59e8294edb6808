//! An experiment that is interrupted in its middle, politely and not: nothing stays, and it goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use scene::Scene;
use spindle_lab::measure::place::mounts;

const EXPERIMENT: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "200 ms"
duration = "2 s"

[devices]
kind = "loop"
count = 1
size = "256 MiB"
directory = "SCENE"
bandwidth = "100 MiB"

[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 2
"#;

/// Waits until the database of a run answers its load: everything that a run makes is there.
fn wait_for_load(scene: &Scene, lab: &mut Child) -> PathBuf {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let mounted = mounts()
            .unwrap()
            .into_iter()
            .map(|(place, _)| place)
            .find(|place| place.starts_with(scene.path()));
        if let Some(place) = mounted
            && place.join("data/postmaster.pid").exists()
        {
            thread::sleep(Duration::from_millis(700));
            return place;
        }
        assert!(lab.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < until, "no run has begun");
        thread::sleep(Duration::from_millis(20));
    }
}

fn send(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

/// Processes whose command line names the place.
fn processes_at(place: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path().join("cmdline");
            let line = std::fs::read(path).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(place).then_some(line)
        })
        .collect()
}

#[test]
fn nothing_stays_after_a_kill_and_after_ctrl_c_and_the_experiment_goes_on() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    let file = scene.write("killed.toml", EXPERIMENT);
    let here = scene.path().display().to_string();

    // SIGKILL: everything stays where it is, until the next start of anything.
    let mut lab = scene.start(&["run", &file]);
    wait_for_load(&scene, &mut lab);
    send(&lab, Signal::KILL);
    lab.wait().unwrap();
    assert!(
        !scene.left().is_empty(),
        "the kill left something to clear away"
    );
    let doctor = scene.lab(&["doctor"]);
    assert!(doctor.status.success());
    assert!(
        doctor.stderr.contains("removed what a killed run left"),
        "{}",
        doctor.stderr
    );
    assert!(!doctor.stderr.contains("it stays"), "{}", doctor.stderr);
    scene.assert_clean();
    let alive = processes_at(&here);
    assert!(alive.is_empty(), "{alive:?}");

    // Ctrl-C: it clears away by itself.
    let mut lab = scene.start(&["run", &file]);
    wait_for_load(&scene, &mut lab);
    send(&lab, Signal::INT);
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    scene.assert_clean();
    let alive = processes_at(&here);
    assert!(alive.is_empty(), "{alive:?}");

    // And it goes on where it was.
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("[2/2]"), "{}", ran.stdout);
    scene.assert_clean();
}
