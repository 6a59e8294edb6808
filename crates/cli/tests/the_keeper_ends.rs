//! A keeper is to end while the daemon has just been killed: what programs were answered for is in
//! the keeper's memory alone, and a last daemon writes it and closes the group.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::Write;
use std::time::Duration;

use place::{Place, bytes, can_mount, is_mounted, signal, wait_for_end};
use rustix::process::{Resource, Signal};

/// Long enough for a process to have seen a signal.
const SEEN: Duration = Duration::from_millis(300);

/// A mount with a file that was answered for and that no disk has; its daemon is stopped.
fn unwritten() -> (Place, u32, u32, Vec<u8>) {
    let place = Place::new();
    place.create_group();
    place.mount();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let contents = bytes(11, 300_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    signal(daemon, Signal::STOP);
    (place, daemon, keeper, contents)
}

/// The group is closed and nothing is mounted; mounted again it has the file, and is whole.
#[track_caller]
fn closed_with(place: &Place, keeper: u32, contents: &[u8]) {
    wait_for_end(keeper);
    assert!(!is_mounted(&place.mount_point()));
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["process_id"], serde_json::Value::Null, "{shown}");
    place.mount();
    let found = std::fs::read(place.mount_point().join("file")).unwrap();
    assert!(found == contents, "{} bytes are there", found.len());
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"], serde_json::json!([]));
    place.umount();
}

#[test]
fn a_daemon_that_dies_while_its_keeper_is_to_end_leaves_nothing_unwritten() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_keeper_that_is_told_to_end_while_no_daemon_serves_has_what_waits_written() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    signal(keeper, Signal::STOP);
    signal(daemon, Signal::KILL);
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(keeper, Signal::CONT);
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_daemon_that_dies_after_its_directory_was_unmounted_leaves_nothing_unwritten() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    rustix::mount::unmount(place.mount_point(), rustix::mount::UnmountFlags::empty()).unwrap();
    signal(daemon, Signal::KILL);
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_program_that_waits_while_the_keeper_is_to_end_is_answered_by_the_last_daemon() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let mut contents = bytes(11, 300_000);
    let mut file = std::fs::File::create_new(place.mount_point().join("file")).unwrap();
    file.write_all(&contents).unwrap();
    signal(daemon, Signal::STOP);
    let waiting = std::thread::spawn(move || file.write_all(b"the last words"));
    std::thread::sleep(SEEN);
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    waiting.join().unwrap().unwrap();
    contents.extend(b"the last words");
    closed_with(&place, keeper, &contents);
}

/// A mount whose daemons died until its keeper gave up, and what was written before the last death.
fn given_up() -> (Place, u32, Vec<u8>) {
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    place.mount_with("SPINDLE_SHORT_LIFE_MS", "60000");
    let keeper = place.keeper_process_id();
    let mut contents = Vec::new();
    for round in 0..20 {
        let shown = place.run(["group", "show", "data", "--json"]);
        if shown.code != 0 {
            assert!(shown.stderr.contains("held by the keeper"), "{shown:?}");
            return (place, keeper, contents);
        }
        let group: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        let daemon = u32::try_from(group["process_id"].as_u64().unwrap()).unwrap();
        contents = bytes(round, 300_000);
        std::fs::write(point.join("file"), &contents).unwrap();
        signal(daemon, Signal::KILL);
        wait_for_end(daemon);
    }
    panic!("the keeper does not give up");
}

#[test]
fn a_mount_that_is_given_up_leaves_nothing_unwritten() {
    if !can_mount() {
        return;
    }
    let (place, keeper, contents) = given_up();
    place.umount();
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_keeper_that_gave_up_and_is_told_to_end_leaves_nothing_unwritten() {
    if !can_mount() {
        return;
    }
    let (place, keeper, contents) = given_up();
    signal(keeper, Signal::TERM);
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_mount_that_was_removed_after_its_keeper_gave_up_leaves_nothing_unwritten() {
    if !can_mount() {
        return;
    }
    let (place, keeper, contents) = given_up();
    rustix::mount::unmount(place.mount_point(), rustix::mount::UnmountFlags::DETACH).unwrap();
    closed_with(&place, keeper, &contents);
}

/// Limits what a process may have, and those that it starts; the limit before.
fn limit(process_id: u32, resource: Resource, most: Option<u64>) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(process_id.try_into().unwrap());
    let mut limits = rustix::process::getrlimit(resource);
    limits.current = most;
    let before = rustix::process::prlimit(pid, resource, limits).unwrap();
    before.current
}

/// Leaves the keeper room for one file once its daemon has gone, which is too little to start
/// another one; the limit before.
fn keep_from_starting(keeper: u32) -> Option<u64> {
    let free = (0..).find(|number| {
        let path = format!("/proc/{keeper}/fd/{number}");
        std::fs::symlink_metadata(path).is_err()
    });
    limit(keeper, Resource::Nofile, free)
}

#[test]
fn a_last_daemon_that_cannot_be_started_is_tried_for_until_it_can() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    let before = keep_from_starting(keeper);
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    std::thread::sleep(Duration::from_secs(1));
    assert!(std::path::Path::new(&format!("/proc/{keeper}/exe")).exists());
    limit(keeper, Resource::Nofile, before);
    closed_with(&place, keeper, &contents);
}

/// What is said of each death.
const DIED: &str = "ERROR the process that served data died";

#[test]
fn a_last_daemon_that_dies_before_it_has_the_group_open_is_followed_by_another() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    // The keeper needs no more than it has.
    let before = limit(keeper, Resource::Stack, Some(16 << 10));
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    std::thread::sleep(Duration::from_secs(1));
    let log = std::fs::read_to_string(place.path("run/data.log")).unwrap();
    assert!(log.matches(DIED).count() > 2, "it is tried once: {log}");
    limit(keeper, Resource::Stack, before);
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_second_signal_ends_a_keeper_that_can_start_no_last_daemon() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, _) = unwritten();
    keep_from_starting(keeper);
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    std::thread::sleep(Duration::from_secs(1));
    signal(keeper, Signal::TERM);
    wait_for_end(keeper);
    assert!(!is_mounted(&place.mount_point()));
    place.assert_lost_is_told();
}

#[test]
fn a_last_daemon_that_dies_too_ends_the_keeper_which_says_what_is_lost() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, _) = unwritten();
    // Whoever comes next cannot open the group.
    place.take_disks_away();
    signal(keeper, Signal::TERM);
    std::thread::sleep(SEEN);
    signal(daemon, Signal::KILL);
    wait_for_end(keeper);
    assert!(!is_mounted(&place.mount_point()));
    place.assert_lost_is_told();
    place.put_disks_back();
    place.mount();
    place.umount();
}

#[test]
fn a_disk_of_a_held_mount_is_not_taken_even_by_force_nor_by_who_has_another_runtime_directory() {
    if !can_mount() {
        return;
    }
    let (place, keeper, contents) = given_up();
    let other = format!("{}:64M", place.text("other"));
    place.tell([
        "group",
        "create",
        "more",
        "--redundancy",
        "external",
        "--file-disk",
        &other,
    ]);
    let before = place.contents();
    let disk = place.disk("a");
    let held = format!("held by the keeper {keeper}");
    let wanted = [disk.as_str(), "is in use", &held, "`spindle umount"];
    let create = [
        "group",
        "create",
        "third",
        "--force",
        "--redundancy",
        "external",
        "--disk",
        &disk,
    ];
    let refused_everywhere = |words: &[&str]| {
        for run in ["run", "elsewhere"] {
            let mut command = place.command(words);
            command.env("SPINDLE_RUNTIME_DIR", place.path(run));
            command.env(
                "SPINDLE_DISKS",
                format!("{},{}", place.disk("*"), place.text("other")),
            );
            let said = place::outcome(&mut command);
            // Here the keeper's own word is heard first where the group is named.
            let wanted: &[&str] = if run == "run" && words[2] == "data" {
                &[&held]
            } else {
                &wanted
            };
            place::refused(&said, 3, wanted);
        }
    };
    refused_everywhere(&create);
    refused_everywhere(&["disk", "add", "more", "--disk", &disk, "--force"]);
    refused_everywhere(&["group", "destroy", "data", "--yes"]);
    refused_everywhere(&["group", "mount", "data"]);
    assert!(place.contents() == before, "a refusal wrote to a disk");
    place.umount();
    closed_with(&place, keeper, &contents);
    place.tell(create);
}

#[test]
fn a_disk_whose_keeper_says_nothing_is_not_taken() {
    if !can_mount() {
        return;
    }
    let (place, daemon, keeper, contents) = unwritten();
    signal(keeper, Signal::STOP);
    signal(daemon, Signal::KILL);
    wait_for_end(daemon);
    let disk = place.disk("a");
    let keeper_told = format!("the keeper {keeper}");
    let wanted = [disk.as_str(), &keeper_told, "does not say what it does"];
    let words = [
        "group",
        "create",
        "third",
        "--force",
        "--redundancy",
        "external",
        "--disk",
    ];
    let said = place.run(words.into_iter().chain([disk.as_str()]));
    signal(keeper, Signal::CONT);
    place::refused(&said, 2, &wanted);
    place.umount();
    closed_with(&place, keeper, &contents);
}

#[test]
fn a_held_group_is_told_as_held_by_health_and_by_every_listing() {
    if !can_mount() {
        return;
    }
    let (place, keeper, contents) = given_up();
    for run in ["run", "elsewhere"] {
        let ask = |words: &[&str], code: i32| -> serde_json::Value {
            let mut command = place.command(words);
            command
                .arg("--json")
                .env("SPINDLE_RUNTIME_DIR", place.path(run));
            let said = place::outcome(&mut command);
            assert_eq!(said.code, code, "{said:?}");
            serde_json::from_str(&said.stdout).unwrap()
        };
        for words in [&["health", "data"][..], &["health"]] {
            let health = ask(words, 2);
            let finding = &health[0]["findings"][0];
            assert_eq!(finding["kind"], "group_held", "{health}");
            let text = finding["text"].as_str().unwrap();
            assert!(text.contains(&format!("the keeper {keeper}")), "{text}");
        }
        let groups = ask(&["group", "list"], 0);
        assert_eq!(groups[0]["state"], "held", "{groups}");
        assert_eq!(groups[0]["keeper_process_id"], keeper);
        let mut sync = place.command(["sync", "data"]);
        let said = place::outcome(sync.env("SPINDLE_RUNTIME_DIR", place.path(run)));
        place::refused(&said, 3, &[&format!("held by the keeper {keeper}")]);
        // Its disks alone do not say what its programs were answered.
        let mut list = place.command(["ls", "data:/"]);
        let said = place::outcome(list.env("SPINDLE_RUNTIME_DIR", place.path(run)));
        place::refused(&said, 3, &[&format!("held by the keeper {keeper}")]);
        let scan = ask(&["disk", "scan"], 0);
        let disks = scan["disks"].as_array().unwrap();
        assert!(
            disks.len() == 4 && disks.iter().all(|disk| disk["in_use"] == true),
            "{scan}"
        );
    }
    place.umount();
    closed_with(&place, keeper, &contents);
}
