//! What becomes of a guest that does not do what it is for.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::record::PlannedRun;

struct Nobody;

impl Listener for Nobody {
    fn tell(&mut self, _line: &str) {}
    fn begin(&mut self, _run: &PlannedRun, _title: &str, _index: usize, _of: usize) {}
    fn end(&mut self, _run: &Run, _left: Option<Duration>) {}
}

/// Starts a guest whose first process is a script, and hears it out.
fn hear(script: &str, silent_at_most: Duration) -> Option<Result<Word>> {
    if let Some(reason) = lacks() {
        println!("skipped: {reason}");
        return None;
    }
    let scene = tempfile::tempdir().unwrap();
    let init = scene.path().join("init");
    fs::write(&init, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let plan = MachinePlan {
        kernel: &Kernel::configured(),
        directory: scene.path(),
        disks: &[],
        memory_bytes: 128 << 20,
        order: Path::new("/no/order"),
        console: &scene.path().join("console"),
    };
    let mut machine = Machine::start(&plan, &journal).unwrap();
    let now = Instant::now();
    let heard = listen(&mut machine, scene.path(), &mut Nobody, now, silent_at_most);
    drop(machine);
    let name = scene.path().display().to_string();
    let alive = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(&name))
        .count();
    assert_eq!(alive, 0, "processes of the guest are left");
    Some(heard)
}

#[test]
fn a_guest_that_hangs_is_ended_and_told_with_the_end_of_its_console() {
    let Some(heard) = hear("echo here I stay; sleep 1000", Duration::from_secs(8)) else {
        return;
    };
    let said = heard.unwrap_err().to_string();
    assert!(said.contains("the guest hangs"), "{said}");
    assert!(said.contains("here I stay"), "{said}");
}

#[test]
fn a_guest_whose_kernel_panics_is_told_with_the_end_of_its_console() {
    let Some(heard) = hear("exit 7", Duration::from_secs(60)) else {
        return;
    };
    let said = heard.unwrap_err().to_string();
    assert!(said.contains("ended without a word"), "{said}");
    assert!(said.contains("Kernel panic"), "{said}");
}

#[test]
fn a_folder_of_the_hosts_own_runs_is_no_guests() {
    let scene = tempfile::tempdir().unwrap();
    let folder = scene.path().join("results");
    claim(&folder).unwrap();
    fs::write(folder.join("plan.json"), "{}").unwrap();
    let said = claim(&folder).unwrap_err().to_string();
    assert!(said.contains("not those of a guest"), "{said}");
    fs::write(folder.join(CONSOLE), "").unwrap();
    claim(&folder).unwrap();
    let foreign = scene.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("a file"), "").unwrap();
    let said = claim(&foreign).unwrap_err().to_string();
    assert!(said.contains("holds no experiment"), "{said}");
}
