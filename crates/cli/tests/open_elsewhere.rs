//! A group that is open, here or on another host, is not opened again.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use place::{Place, outcome, refused, signal};
use spindle_format::{INTENT_PLACE, OPENER_BYTES, OPENER_PLACE, OpenerRecord};

#[test]
fn a_group_served_from_another_runtime_directory_is_refused() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let process = format!("process {}", place.process_id());
    let other = place.text("other-run");
    let run = |words: &[&str]| {
        let mut command = place.command(words);
        outcome(command.env("SPINDLE_RUNTIME_DIR", &other))
    };
    refused(
        &run(&["group", "mount", "data"]),
        2,
        &["data", "open already", &process],
    );
    refused(
        &run(&["cp", "/etc/hostname", "data:/x"]),
        2,
        &["open already"],
    );
    refused(&run(&["ls", "data:/"]), 2, &["open", "process"]);
    refused(&run(&["group", "destroy", "data", "--yes"]), 2, &["in use"]);
    refused(
        &run(&["group", "rename", "data", "x"]),
        2,
        &["open already"],
    );
}

/// Namespaces in which a process of this machine looks like one of another.
#[test]
fn a_group_that_is_open_is_refused_to_processes_in_other_namespaces_and_of_another_host_name() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: namespaces of their own need root");
        return;
    }
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    // By its name, its process numbers, its sockets, or all of them.
    for namespaces in [
        &["--uts"][..],
        &["--pid", "--fork"],
        &["--pid", "--fork", "--mount-proc"],
        &["--net"],
        &["--uts", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
    ] {
        let names_host = namespaces.contains(&"--uts");
        let named = if names_host {
            "hostname elsewhere; "
        } else {
            ""
        };
        for action in [
            "group mount data",
            "group destroy data --yes",
            "cp /etc/hostname data:/x",
        ] {
            let script = format!("{named}exec \"$0\" {action}");
            let mut command = std::process::Command::new("unshare");
            command
                .args(namespaces)
                .args(["sh", "-c", &script, env!("CARGO_BIN_EXE_spindle")])
                .current_dir(place.path("disks"))
                .env("SPINDLE_DISKS", place.disk("*"))
                .env("SPINDLE_RUNTIME_DIR", place.text("other-run"));
            let refusal = outcome(&mut command);
            assert_eq!(refusal.code, 2, "{namespaces:?}, {action}: {refusal:?}");
            let refusal = refusal.stderr.to_lowercase();
            let says = ["open", "in use"]
                .iter()
                .any(|words| refusal.contains(words));
            assert!(says, "{namespaces:?}, {action}: {refusal}");
        }
    }
    assert!(place.ask(["group", "show", "data"])["fenced"].is_null());
    place.tell(["cp", "/etc/hostname", "data:/x"]);
    place.tell(["group", "dismount", "data"]);
}

/// The number of a process of another container means nothing here: that it is nobody's is no proof
/// that its owner is dead.
#[test]
fn a_container_without_a_machine_id_waits_for_the_heartbeat_of_another_ones_owner() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: namespaces of their own need root");
        return;
    }
    let place = Place::new();
    place.create_group();
    // With the first process of its namespace all others of it end.
    let mount_in_container = |runtime: &str| {
        let script = "mount --bind /dev/null /etc/machine-id; \"$0\" group mount data; exit $?";
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--mount-proc"])
            .args(["sh", "-c", script, env!("CARGO_BIN_EXE_spindle")])
            .current_dir(place.path("disks"))
            .env("SPINDLE_DISKS", place.disk("*"))
            .env("SPINDLE_RUNTIME_DIR", place.text(runtime));
        outcome(&mut command)
    };
    let first = mount_in_container("first-run");
    assert_eq!(first.code, 0, "{first:?}");
    refused(
        &mount_in_container("second-run"),
        2,
        &["already open", "another process namespace"],
    );
}

/// Rewrites the opener record of every disk as a living process of another host would, or writes that
/// to the place of intents.
fn open_on_another_host(place: &Place, heartbeat_s: u64, is_written_to: u64) {
    for (path, contents) in place.contents() {
        let start = usize::try_from(OPENER_PLACE).unwrap();
        let mut opener =
            OpenerRecord::parse(&contents[start..start + OPENER_BYTES], OPENER_PLACE).unwrap();
        opener.sequence += 1;
        opener.open = true;
        opener.host = "elsewhere".to_owned();
        opener.boot.0 = [0xee; 16];
        opener.process_id = 4711;
        opener.heartbeat_s = heartbeat_s;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&opener.encode(is_written_to), is_written_to)
            .unwrap();
    }
}

fn now_s() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.unwrap().as_secs()
}

#[test]
fn a_group_that_another_host_is_about_to_open_is_not_destroyed() {
    let place = Place::new();
    place.create_group();
    let destroy = ["group", "destroy", "data", "--yes"];
    open_on_another_host(&place, now_s(), INTENT_PLACE);
    let before = place.contents();
    place.refuse(destroy, 2, &["elsewhere", "4711"]);
    assert!(before == place.contents());
    // It has ended before it wrote its record, and its clock was ahead.
    open_on_another_host(&place, now_s() + 3600, INTENT_PLACE);
    place.tell(destroy);
}

/// The other host's clock is minutes behind: only that its mark is renewed tells that it lives.
#[test]
fn a_group_is_not_destroyed_under_a_host_whose_clock_is_behind() {
    let place = Place::new();
    place.create_group();
    let behind_s = now_s() - 600;
    open_on_another_host(&place, behind_s, OPENER_PLACE);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for beat in 1.. {
                std::thread::sleep(Duration::from_secs(2));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                open_on_another_host(&place, behind_s + 2 * beat, OPENER_PLACE);
            }
        });
        let refused = place.run(["group", "destroy", "data", "--yes"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(refused.code, 2, "{refused:?}");
        for word in ["watching", "elsewhere", "4711", "renewed"] {
            assert!(refused.stderr.contains(word), "{word:?} in {refused:?}");
        }
    });
    // Nothing renews it any more.
    place.tell(["group", "destroy", "data", "--yes"]);
}

#[test]
fn a_group_open_on_another_host_is_refused_unless_forced() {
    let place = Place::new();
    place.create_group();
    let now_s = now_s();
    open_on_another_host(&place, now_s, OPENER_PLACE);
    let before = place.contents();
    place.refuse(
        ["group", "mount", "data"],
        2,
        &["data", "elsewhere", "4711"],
    );
    place.refuse(
        ["group", "destroy", "data", "--yes"],
        2,
        &["elsewhere", "4711"],
    );
    assert!(before == place.contents());
    place.tell(["group", "mount", "data", "--force"]);
    place.tell(["group", "dismount", "data"]);
}

/// Writes and syncs a block of the file; whether that was answered with success.
fn write_durably(file: &std::fs::File, byte: u8) -> bool {
    file.write_all_at(&[byte; 4096], 0).is_ok() && file.sync_data().is_ok()
}

#[test]
fn an_owner_that_was_stopped_while_another_host_took_the_group_writes_and_answers_nothing() {
    let place = Place::new();
    place.create_group();
    place.mount();
    let path = place.mount_point().join("file");
    let file = std::fs::File::options()
        .create_new(true)
        .write(true)
        .open(path);
    let file = file.unwrap();
    assert!(write_durably(&file, 1));
    let (keeper, daemon) = (place.keeper_process_id(), place.process_id());
    for process in [keeper, daemon] {
        signal(process, rustix::process::Signal::STOP);
    }
    // Longer than an owner record is relied on without being read again.
    std::thread::sleep(std::time::Duration::from_secs(3));
    open_on_another_host(&place, 1, OPENER_PLACE);
    let before = place.contents();
    for process in [daemon, keeper] {
        signal(process, rustix::process::Signal::CONT);
    }
    // Not even from memory.
    assert!(file.write_all_at(&[2; 4096], 0).is_err());
    assert!(std::fs::File::create(place.mount_point().join("another")).is_err());
    assert!(!write_durably(&file, 2), "the group is another host's");
    drop(file);
    let shown = place.ask(["group", "show", "data"]);
    assert!(shown["fenced"].as_str().unwrap().contains("elsewhere"));
    assert!(before == place.contents(), "nothing was written");
}

#[test]
fn a_forced_start_is_forced_once_and_not_again_by_the_keeper() {
    let place = Place::new();
    place.create_group();
    open_on_another_host(&place, 1, OPENER_PLACE);
    let point = place.text("mount");
    place.tell(["mount", "data", &point, "--force"]);
    let daemon = place.process_id();
    open_on_another_host(&place, 2, OPENER_PLACE);
    let before = place.contents();
    signal(daemon, rustix::process::Signal::KILL);
    // The next daemons are refused, until the keeper gives up.
    let begun = std::time::Instant::now();
    while begun.elapsed().as_secs() < 5 {
        assert!(before == place.contents(), "nobody took the group back");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
