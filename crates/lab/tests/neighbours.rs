//! A program that runs beside a run is noticed, and its time is not the contender's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use scene::Scene;
use spindle_lab::analyse::doubt::Doubt;
use spindle_lab::analyse::summary::Summary;
use spindle_lab::record::{Run, read_json};

const EXPERIMENT: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "500 ms"
duration = "6 s"

[devices]
kind = "loop"
count = 1
size = "256 MiB"
directory = "SCENE"
bandwidth = "20 MiB"

[[workload]]
kind = "block"
pattern = "log"
size = "16 MiB"
"#;

/// A busy loop for each processor that ends by itself; a drop ends it earlier.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start() -> Self {
        let count = thread::available_parallelism().unwrap().get();
        let spin = || {
            Command::new("timeout")
                .args(["120", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        Self((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // SIGTERM, which `timeout` passes on.
            let id = i32::try_from(child.id()).unwrap();
            let id = rustix::process::Pid::from_raw(id).unwrap();
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

#[test]
fn a_busy_loop_beside_half_of_a_run_is_told_and_not_charged_to_the_contender() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4"]) {
        return;
    }
    let file = scene.write("beside.toml", EXPERIMENT);
    let mut lab = scene.start(&["run", &file]);
    // The first run's second half, and nothing of the second run's measured time but its beginning.
    let runs = scene.path().join("beside/runs");
    let until = Instant::now() + Duration::from_secs(120);
    let is_measuring = || {
        fs::read_dir(&runs).is_ok_and(|mut runs| {
            runs.any(|run| {
                let samples = run.unwrap().path().join("samples.csv");
                fs::read_to_string(samples).is_ok_and(|text| text.lines().count() > 4)
            })
        })
    };
    while !is_measuring() {
        assert!(lab.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < until, "no run has begun");
        thread::sleep(Duration::from_millis(20));
    }
    let neighbours = Neighbours::start();
    thread::sleep(Duration::from_secs(3));
    drop(neighbours);
    assert_eq!(lab.wait().unwrap().code(), Some(0));
    let summary: Summary = read_json(&scene.path().join("beside/summary.json")).unwrap();
    let told = summary
        .doubts
        .iter()
        .find(|told| matches!(told.doubt, Doubt::NeighboursOnProcessors { .. }));
    let told = told.unwrap_or_else(|| panic!("{:?}", summary.doubts));
    assert!(told.what.contains("-ext4"), "{}", told.what);
    let report = fs::read_to_string(scene.path().join("beside/report.html")).unwrap();
    assert!(report.contains("Other programs took"), "it is on the page");

    for run in fs::read_dir(&runs).unwrap() {
        let run: Run = read_json(&run.unwrap().path().join("run.json")).unwrap();
        let processor = &run.measured().unwrap().processor;
        let own_s = processor.own_s.unwrap();
        // fio's log of 20 MiB a second takes little; the loops took seconds.
        assert!(own_s < 2.0, "{processor:?}");
    }
    scene.assert_clean();
}
