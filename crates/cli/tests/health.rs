//! `spindle health`: exit codes for monitoring, a line a finding, and the hook at each event.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::PermissionsExt;

use place::{Place, bytes, signal};
use rustix::process::Signal;
use serde_json::Value;

#[track_caller]
fn health(place: &Place, code: i32, wanted: &[&str]) {
    let outcome = place.run(["health", "data"]);
    assert_eq!(outcome.code, code, "{outcome:?}");
    for word in wanted {
        assert!(outcome.stdout.contains(word), "{word}: {outcome:?}");
    }
    let outcome = place.run(["health", "data", "--json"]);
    assert_eq!(outcome.code, code, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let status = ["ok", "warning", "critical"][usize::try_from(code).unwrap()];
    assert_eq!(report[0]["status"], status);
}

#[test]
fn the_exit_code_tells_how_well_a_group_is() {
    let place = Place::new();
    let unknown = place.run(["health"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    place.create_group();
    health(&place, 1, &["not open", "spindle mount"]);
    place.tell(["group", "mount", "data"]);
    health(&place, 0, &["data: ok"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), bytes(1, 4 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    health(
        &place,
        2,
        &["data_0001", "critical", "offline", "spindle disk"],
    );
    place.tell(["group", "dismount", "data"]);
    health(&place, 2, &["data_0001", "not open"]);
    for words in [["health", "nothing"], ["health", "no/name"]] {
        let unknown = place.run(words);
        assert_eq!(unknown.code, 3, "{unknown:?}");
        assert_eq!(unknown.stderr.lines().count(), 1, "{unknown:?}");
    }
}

#[test]
fn a_process_that_hangs_is_a_finding_and_not_a_check_that_hangs() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let process_id = place.process_id();
    signal(process_id, Signal::STOP);
    let outcome = place.run(["health", "data"]);
    signal(process_id, Signal::CONT);
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stdout.contains("no answer within"), "{outcome:?}");
}

#[test]
fn listings_warn_before_usable_space_goes_below_zero() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    assert!(!place.tell(["group", "show", "data"]).contains("warning"));
    // Two failure groups of two disks of 64 MiB: 128 MiB mirrored, of which half a disk is kept.
    std::fs::write(place.path("file"), bytes(2, 80 << 20)).unwrap();
    place.tell(["cp", "file", "data:/one"]);
    for words in [vec!["group", "show", "data"], vec!["group", "list"]] {
        let listing = place.tell(words);
        assert!(listing.contains("data: warning: "), "{listing}");
        assert!(listing.contains("M are usable"), "{listing}");
    }
    health(&place, 1, &["usable"]);
    std::fs::write(place.path("file"), bytes(3, 20 << 20)).unwrap();
    place.tell(["cp", "file", "data:/two"]);
    let listing = place.tell(["group", "show", "data"]);
    assert!(listing.contains("usable space is below zero"), "{listing}");
    health(&place, 2, &["below zero", "spindle disk add"]);
}

#[test]
fn the_hook_is_run_at_the_events_that_were_asked_for() {
    let place = Place::new();
    let hook = place.path("hook");
    let out = place.text("told");
    std::fs::write(
        &hook,
        format!(
            "#!/bin/sh\necho $SPINDLE_EVENT_KIND $SPINDLE_EVENT_DISK >> {out}\ncat >> {out}.json\n"
        ),
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = |table: &str| std::fs::write(place.path("spindle.toml"), table).unwrap();
    for (table, wanted) in [
        ("[hooks]\nevent = \"hook\"\n", "absolute"),
        ("[hooks]\nevent = \"/h\"\nseverity = \"bad\"\n", "critical"),
        (
            "[hooks]\nevent = \"/h\"\nkinds = [\"disk_ofline\"]\n",
            "disk_offline",
        ),
        ("[hooks]\nevent = \"/h\"\ntimeout_s = 0\n", "3600"),
        ("[hooks]\nshell = \"rm\"\n", "[hooks]"),
    ] {
        settings(table);
        place.refuse(["group", "list"], 2, &[wanted]);
    }
    settings(&format!(
        "[hooks]\nevent = \"{}\"\nkinds = [\"disk_offline\", \"group_closed\"]\n",
        hook.display()
    ));
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), bytes(1, 4 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["group", "dismount", "data"]);
    let told = std::fs::read_to_string(place.path("told")).unwrap();
    assert_eq!(told, "disk_offline data_0001\ngroup_closed\n");
    let json = std::fs::read_to_string(place.path("told.json")).unwrap();
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first["severity"], "critical");
}

#[test]
fn a_hook_that_fails_is_noted_once_and_harms_nothing() {
    let place = Place::new();
    std::fs::write(
        place.path("spindle.toml"),
        "[hooks]\nevent = \"/nowhere/hook\"\n",
    )
    .unwrap();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    for _ in 0..3 {
        place.tell(["fault", "pull", "data", "data_0001"]);
        place.tell(["fault", "plug", "data", "data_0001"]);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let failed = place.ask(["events", "data", "--kind", "hook_failed"]);
    assert_eq!(failed.as_array().unwrap().len(), 1, "{failed}");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_disk_whose_file_was_removed_is_told_while_the_group_still_holds_it() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    health(&place, 0, &["data: ok"]);
    std::fs::rename(place.disk("b"), place.path("b")).unwrap();
    health(&place, 2, &["data_0001", "was removed"]);
    std::fs::File::create(place.disk("b")).unwrap();
    health(&place, 2, &["data_0001", "another file"]);
    std::fs::rename(place.path("b"), place.disk("b")).unwrap();
    health(&place, 0, &["data: ok"]);
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_keeper_that_was_killed_is_told_until_the_group_is_opened_again() {
    if !place::can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    health(&place, 0, &["data: ok"]);
    let keeper = place.keeper_process_id();
    signal(keeper, Signal::KILL);
    place::wait_for_end(keeper);
    // The daemon hears of it a moment later.
    for _ in 0..100 {
        if place.run(["health", "data"]).code != 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    health(&place, 1, &["keeper"]);
    place.umount();
    place.mount();
    health(&place, 0, &["data: ok"]);
    place.umount();
}

#[test]
fn damage_that_was_mended_is_told_no_more() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(4, 1 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["cp", "file", "data:/other"]);
    // One copy of each is another's: nobody can tell which is right.
    for name in ["data:/file", "data:/other"] {
        let map = place.ask(["map", name]);
        let copy = &map["extents"][0]["copies"][0];
        let disk = ["a", "b", "c", "d"][usize::try_from(copy["disk"].as_u64().unwrap()).unwrap()];
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(place.disk(disk))
            .unwrap();
        let offset = copy["offset_bytes"].as_u64().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes(5, 4096), offset).unwrap();
    }
    place.tell(["group", "mount", "data"]);
    let scrub = |code: i32| {
        let scrubbed = place.run(["scrub", "data", "--wait"]);
        assert_eq!(scrubbed.code, code, "{scrubbed:?}");
    };
    scrub(1);
    health(&place, 2, &["damage"]);
    // Both files are made anew, one by its removal.
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["cp", "file", "data:/other"]);
    health(&place, 0, &["data: ok"]);
    let clean = |count: usize| {
        let told = place.ask(["events", "data", "--kind", "all_copies_right"]);
        assert_eq!(told.as_array().unwrap().len(), count, "{told}");
    };
    clean(0);
    scrub(0);
    clean(1);
    place.tell(["group", "dismount", "data"]);
}
