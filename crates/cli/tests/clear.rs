//! `spindle clear`: a finding that was dealt with is told no more, wherever the group goes, and one
//! that is found anew is.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use std::io::{Read, Write};

use place::exposition::parse;
use place::{Place, bytes};
use serde_json::Value;

const OPEN: &str = "spindle_scrub_findings_open";
const LAST: &str = "spindle_scrub_last_complete_timestamp_seconds";
const LEFT_OUT: &str = "spindle_scrub_left_out_bytes";

/// Flips a bit of one copy of the file, past everything.
fn damage(place: &Place, path: &str) {
    let map = place.ask(["map", &format!("data:{path}")]);
    let copy = &map["extents"][0]["copies"][0];
    let group = place.ask(["group", "show", "data"]);
    let disks = group["disks"].as_array().unwrap();
    let disk = disks.iter().find(|disk| disk["number"] == copy["disk"]);
    let disk = disk.unwrap()["path"].as_str().unwrap();
    let offset = copy["offset_bytes"].as_u64().unwrap() + 100;
    let file = std::fs::File::options().read(true).write(true).open(disk);
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 1;
    file.write_all_at(&byte, offset).unwrap();
    file.sync_all().unwrap();
}

fn scrub(place: &Place) {
    let outcome = place.run(["scrub", "data", "--wait", "--power", "1024"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
}

/// What health says: the exit code and the findings' kinds.
fn health(place: &Place) -> (i32, Vec<String>) {
    let outcome = place.run(["health", "data", "--json"]);
    let reports: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = reports[0]["findings"].as_array().unwrap().iter();
    let kinds = findings.map(|one| one["kind"].as_str().unwrap().to_owned());
    (outcome.code, kinds.collect())
}

fn metric(place: &Place, name: &str) -> Option<f64> {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let samples = parse(answer.split_once("\r\n\r\n").unwrap().1);
    let found = samples.iter().find(|sample| sample.name == name)?;
    Some(found.value)
}

#[test]
fn a_finding_that_was_cleared_counts_nowhere_until_it_is_found_anew() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 100_000)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    damage(&place, "/file");
    assert_eq!(
        (metric(&place, OPEN), metric(&place, LAST)),
        (Some(0.0), None)
    );
    scrub(&place);
    assert_eq!(metric(&place, OPEN), Some(1.0));
    assert_eq!(health(&place), (2, vec!["damage".to_owned()]));
    let told = place.run(["health", "data"]).stdout;
    assert!(told.contains("`spindle clear data damage`"), "{told}");

    let dry = place.tell(["clear", "data", "damage", "--dry-run"]);
    assert!(dry.contains("data: would be cleared: damage: "), "{dry}");
    assert_eq!(health(&place).0, 2, "a dry run changes nothing");
    place.refuse(["clear", "data"], 2, &["--all", "damage"]);
    place.refuse(["clear", "data", "damages"], 2, &["did you mean damage?"]);
    assert_eq!(health(&place).0, 2, "a refusal changes nothing");

    let report = &place.ask(["clear", "data", "damage"])[0];
    assert_eq!(report["cleared"][0]["kind"], "damage");
    assert_eq!(health(&place), (0, vec![]));
    assert_eq!(metric(&place, "spindle_health_status"), Some(0.0));
    assert_eq!(metric(&place, OPEN), Some(0.0));
    let status = place.tell(["status", "data"]);
    assert!(status.contains("health ok"), "{status}");
    let events = place.ask(["events", "data", "--kind", "finding_cleared"]);
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    let text = events[0]["text"].as_str().unwrap();
    let user = format!("uid {}", rustix::process::geteuid().as_raw());
    assert!(text.starts_with("damage up to event "), "{text}");
    assert!(
        text.contains("acknowledged by ") && text.contains(&user),
        "{text}"
    );
    let again = place.tell(["clear", "data", "--all"]);
    assert_eq!(again, "data: nothing to clear\n");

    scrub(&place);
    assert_eq!(health(&place), (2, vec!["damage".to_owned()]), "found anew");
}

#[test]
fn the_hook_is_told_who_cleared_what() {
    let place = Place::new();
    let (hook, told) = (place.path("hook"), place.text("told"));
    std::fs::write(
        &hook,
        format!("#!/bin/sh\necho $SPINDLE_EVENT_TEXT >> {told}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = format!(
        "[hooks]\nevent = \"{}\"\nkinds = [\"finding_cleared\"]\n",
        hook.display()
    );
    std::fs::write(place.path("spindle.toml"), settings).unwrap();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(5, 100_000)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    damage(&place, "/file");
    scrub(&place);
    place.tell(["clear", "data", "damage"]);
    place.tell(["group", "dismount", "data"]);
    let told = std::fs::read_to_string(told).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("damage up to event "), "{told}");
}

#[test]
fn what_was_cleared_stays_so_after_a_kill_and_in_a_group_that_is_closed() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(2, 100_000)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    damage(&place, "/file");
    scrub(&place);
    place.tell(["clear", "data", "--all"]);
    // At once: who was answered relies on it.
    place.kill_daemon();
    assert_eq!(health(&place), (0, vec![]));
    scrub(&place);
    place.tell(["group", "dismount", "data"]);
    let closed = vec!["damage".to_owned(), "group_closed".to_owned()];
    assert_eq!(health(&place), (2, closed));
    let told = place.tell(["clear", "--all"]);
    assert!(told.contains("data: cleared: damage: "), "{told}");
    assert!(told.contains("data: still holds: group_closed: "), "{told}");
    assert_eq!(health(&place), (1, vec!["group_closed".to_owned()]));
    // From other disks' places, as another host would see them: nothing but the disks knows it.
    std::fs::rename(place.path("run"), place.path("former")).unwrap();
    assert_eq!(health(&place), (1, vec!["group_closed".to_owned()]));
    let events = place.ask(["events", "data", "--kind", "finding_cleared"]);
    assert_eq!(events.as_array().unwrap().len(), 2, "{events}");
}

#[test]
fn what_still_holds_is_not_cleared_and_the_refusal_says_what_ends_it() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), bytes(3, 4 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let (code, kinds) = health(&place);
    assert_eq!(code, 2);
    assert!(kinds.contains(&"disk_offline".to_owned()), "{kinds:?}");
    let wanted = [
        "data_0001",
        "still holds",
        "spindle disk online data data_0001",
    ];
    for name in ["disk_offline", "disk_offline:data_0001"] {
        place.refuse(["clear", "data", name], 2, &wanted);
    }
    let left = place.tell(["clear", "data", "--all"]);
    assert!(left.contains("nothing to clear"), "{left}");
    assert!(
        left.contains("still holds: disk_offline:data_0001: "),
        "{left}"
    );
    assert_eq!(health(&place).0, 2);
    let events = place.ask(["events", "data", "--kind", "finding_cleared"]);
    assert_eq!(events.as_array().unwrap().len(), 0, "{events}");
}

#[test]
fn the_last_complete_scrub_is_known_to_the_next_process_with_what_it_left_out() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(4, 3 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let before = std::time::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs_f64()
        .floor();
    place.tell(["scrub", "data", "--wait", "--power", "1024"]);
    let first = metric(&place, LAST).unwrap();
    assert!(
        (before..before + 60.0).contains(&first),
        "{first} after {before}"
    );
    assert_eq!(metric(&place, LEFT_OUT), Some(0.0));
    place.tell(["fault", "pull", "data", "data_0001"]);
    place.tell(["cp", "file", "data:/other"]);
    // A part of the group is no complete scrub.
    place.run(["scrub", "data:/other", "--wait", "--power", "1024"]);
    assert_eq!(metric(&place, LAST), Some(first));
    scrub(&place);
    let left_out = metric(&place, LEFT_OUT).unwrap();
    let report = place.run(["scrub", "data", "--status", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert!(left_out > 0.0);
    assert_eq!(Some(left_out), report["left_out_bytes"].as_f64());
    let second = metric(&place, LAST).unwrap();
    assert!(second >= first);
    place.kill_daemon();
    assert_eq!(metric(&place, LAST), Some(second));
    assert_eq!(metric(&place, LEFT_OUT), Some(left_out));
    place.tell(["group", "dismount", "data"]);
    let last = &place.ask(["status", "data"])[0]["last_scrub"];
    assert_eq!(last["ended_s"].as_f64(), Some(second));
    assert_eq!(last["left_out_bytes"].as_f64(), Some(left_out));
}
