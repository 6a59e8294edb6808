//! What becomes of a guest that does not do what it is for.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const MEMORY_BYTES: u64 = 128 << 20;

/// What became of a guest.
struct Heard {
    result: Result<Word>,
    /// How long after the last line of its console this was told.
    told_after: Duration,
}

/// Starts a guest whose first process is a script, and hears it out.
fn hear(script: &str, memory_bytes: u64, silent_at_most: Duration) -> Option<Heard> {
    if let Some(reason) = lacks() {
        println!("skipped: {reason}");
        return None;
    }
    let scene = tempfile::tempdir().unwrap();
    let init = scene.path().join("init");
    fs::write(&init, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let console = &scene.path().join("console");
    let plan = MachinePlan {
        kernel: &Kernel::configured(),
        directory: scene.path(),
        disks: &[],
        memory_bytes,
        task: Task::Order(Path::new("/no/order")),
        console,
    };
    let mut machine = Machine::start(&plan, &journal).unwrap();
    let now = Instant::now();
    let result = listen(&mut machine, scene.path(), &mut Silent, now, silent_at_most);
    let shown = fs::metadata(console).unwrap().modified().unwrap();
    let told_after = SystemTime::now().duration_since(shown).unwrap_or_default();
    drop(machine);
    let name = scene.path().display().to_string();
    let alive = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(&name))
        .count();
    assert_eq!(alive, 0, "processes of the guest are left");
    Some(Heard { result, told_after })
}

#[test]
fn a_guest_that_hangs_is_ended_and_told_with_the_end_of_its_console() {
    let script = "echo here I stay; sleep 1000";
    let Some(heard) = hear(script, MEMORY_BYTES, Duration::from_secs(8)) else {
        return;
    };
    let said = heard.result.unwrap_err().to_string();
    assert!(said.contains("the guest hangs"), "{said}");
    assert!(said.contains("here I stay"), "{said}");
}

/// The first line of what is told of a guest that died, which must be told at once.
fn told_at_once(heard: Heard) -> String {
    let said = heard.result.unwrap_err().to_string();
    assert!(heard.told_after < Duration::from_secs(5), "{said}");
    assert!(!said.contains("hangs"), "{said}");
    said.lines().next().unwrap().to_owned()
}

#[test]
fn a_guest_whose_kernel_panics_is_told_with_the_end_of_its_console() {
    let Some(heard) = hear("exit 7", MEMORY_BYTES, Duration::from_secs(60)) else {
        return;
    };
    let said = heard.result.as_ref().unwrap_err().to_string();
    assert!(said.contains("ended without a word"), "{said}");
    assert!(said.contains("new_thread_handler"), "{said}");
    let line = told_at_once(heard);
    assert!(line.contains("it died at its start"), "{line}");
    let reason = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000700";
    assert!(line.contains(reason), "{line}");
}

#[test]
fn a_guest_whose_kernel_cannot_start_is_told_with_the_reason() {
    let Some(heard) = hear("sleep 1000", 8 << 20, Duration::from_secs(60)) else {
        return;
    };
    let line = told_at_once(heard);
    assert!(line.contains("it died at its start"), "{line}");
    assert!(line.contains("Too few physical memory!"), "{line}");
}

/// A process of a kernel that gave up may stay and hold the console.
#[test]
fn a_guest_that_has_given_up_and_stays_is_told_as_dead_and_not_as_a_hang() {
    let script = "echo 'Kernel panic - not syncing: nothing to live for'; sleep 1000";
    let Some(heard) = hear(script, MEMORY_BYTES, Duration::from_secs(60)) else {
        return;
    };
    let line = told_at_once(heard);
    assert!(line.contains("it died at its start"), "{line}");
    assert!(line.contains("nothing to live for"), "{line}");
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
