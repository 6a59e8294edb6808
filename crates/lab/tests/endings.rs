//! Every way in which a run is ended from outside, with the real command: nothing stays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use scene::Scene;
use spindle_lab::measure::place::mounts;
use spindle_lab::measure::program::lacking;

/// Long enough for its middle to be met.
const EXPERIMENT: &str = r#"
contenders = ["ext4"]
blocks = 5
warm_up = "200 ms"
duration = "20 s"

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

const LOAD_WITHIN: Duration = Duration::from_secs(120);
const END_WITHIN: Duration = Duration::from_secs(60);

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Waits until the database of a run has its load: everything that a run makes is there.
fn wait_for_load(scene: &Scene, child: &mut Child) {
    let until = Instant::now() + LOAD_WITHIN;
    loop {
        let is_up = mounts().unwrap().into_iter().any(|(place, _)| {
            place.starts_with(scene.path()) && place.join("data/postmaster.pid").exists()
        });
        if is_up {
            thread::sleep(Duration::from_millis(700));
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < until, "no run has begun");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The numbers of the labs that hold something, by their journals.
fn labs(scene: &Scene) -> Vec<u32> {
    fs::read_dir(scene.path().join("state"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.split('-').next()?.parse().ok()
        })
        .collect()
}

/// Waits for its end; the test has failed where it goes on.
fn wait_for_end(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + END_WITHIN;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it did not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until these labs, which are nobody's children here, have ended.
fn wait_for_labs(labs: &[u32]) {
    let until = Instant::now() + END_WITHIN;
    let is_there = |id: &u32| {
        fs::read_to_string(format!("/proc/{id}/stat"))
            .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
    };
    while labs.iter().any(is_there) {
        assert!(Instant::now() < until, "it did not end");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Control groups and processes of these labs and of this scene.
fn assert_nothing_stays(scene: &Scene, labs: &[u32]) {
    scene.assert_clean();
    for place in [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/cpuacct",
    ] {
        let Ok(groups) = fs::read_dir(place) else {
            continue;
        };
        for group in groups {
            let name = group.unwrap().file_name().into_string().unwrap();
            let is_theirs = labs.iter().any(|lab| {
                name.starts_with(&format!("spindle-lab-{lab}-"))
                    || name == format!("spindle-lab-image-{lab}")
            });
            assert!(!is_theirs, "the control group {place}/{name} stays");
        }
    }
    let here = scene.path().display().to_string();
    for entry in fs::read_dir("/proc").unwrap() {
        let Ok(line) = fs::read(entry.unwrap().path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains(&here), "{line} goes on");
    }
}

#[test]
fn two_signals_within_a_second_are_one_and_nothing_stays() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    let file = scene.write("ended.toml", EXPERIMENT);
    for (first, second) in [
        (Signal::TERM, Signal::TERM),
        (Signal::TERM, Signal::HUP),
        (Signal::INT, Signal::INT),
    ] {
        let mut lab = scene.start(&["run", &file]);
        wait_for_load(&scene, &mut lab);
        let labs = labs(&scene);
        kill_process(pid(&lab), first).unwrap();
        thread::sleep(Duration::from_millis(50));
        // It may have cleared everything away by now.
        let _ = kill_process(pid(&lab), second);
        assert_eq!(wait_for_end(&mut lab), Some(2), "{first:?}, {second:?}");
        assert_nothing_stays(&scene, &labs);
    }
}

#[test]
fn a_run_that_timeout_ends_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    let file = scene.write("ended.toml", EXPERIMENT);
    // `timeout` sends its signal to the process and then to its group: to the same process again.
    let mut timeout = Command::new("timeout")
        .arg("3600")
        .arg(env!("CARGO_BIN_EXE_spindle-lab"))
        .args(["run", &file])
        .current_dir(scene.path())
        .env("SPINDLE_LAB_STATE", scene.path().join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    wait_for_load(&scene, &mut timeout);
    let labs = labs(&scene);
    // What it does when its time has come.
    kill_process(pid(&timeout), Signal::ALARM).unwrap();
    wait_for_end(&mut timeout);
    wait_for_labs(&labs);
    assert_nothing_stays(&scene, &labs);
}

#[test]
fn a_run_whose_terminal_is_closed_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    if let Some(reason) = lacking("script") {
        println!("skipped: {reason}");
        return;
    }
    let file = scene.write("ended.toml", EXPERIMENT);
    let lab = env!("CARGO_BIN_EXE_spindle-lab");
    // `script` is the terminal; killed, it is closed.
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("{lab} run {file}"))
        .arg(scene.path().join("typescript"))
        .current_dir(scene.path())
        .env("SPINDLE_LAB_STATE", scene.path().join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    wait_for_load(&scene, &mut terminal);
    let labs = labs(&scene);
    assert!(!labs.is_empty());
    kill_process_group(pid(&terminal), Signal::KILL).unwrap();
    terminal.wait().unwrap();
    wait_for_labs(&labs);
    assert_nothing_stays(&scene, &labs);
}

#[test]
fn a_run_that_nobody_reads_any_more_ends_and_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    // The reader goes while the first run is under way; the next line finds nobody.
    let text = EXPERIMENT.replace("\"20 s\"", "\"2 s\"");
    let file = scene.write("ended.toml", &text);
    let mut lab = scene
        .command(&["run", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_load(&scene, &mut lab);
    let labs = labs(&scene);
    drop(lab.stdout.take());
    let stderr = lab.stderr.take().unwrap();
    assert_eq!(wait_for_end(&mut lab), Some(141));
    let said: Vec<String> = BufReader::new(stderr)
        .lines()
        .map_while(Result::ok)
        .collect();
    assert!(
        !said.iter().any(|line| line.contains("panicked")),
        "{said:#?}"
    );
    assert_nothing_stays(&scene, &labs);
}

#[test]
fn a_reader_who_has_enough_after_a_line_ends_the_doctor_quietly() {
    let Some(scene) = Scene::new() else { return };
    let mut doctor = scene
        .command(&["doctor"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(doctor.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert_eq!(first.trim(), "Contenders");
    let stderr = doctor.stderr.take().unwrap();
    assert_eq!(wait_for_end(&mut doctor), Some(141));
    let said: Vec<String> = BufReader::new(stderr)
        .lines()
        .map_while(Result::ok)
        .collect();
    assert!(said.is_empty(), "{said:#?}");
    scene.assert_clean();
}
