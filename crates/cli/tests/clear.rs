//! `spindle clear`: a finding that was dealt with is told no more, wherever the group goes, and one
//! that is found anew is.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use std::io::{Read, Write};

use place::exposition::{parse, value};
use place::{Place, bytes};
use serde_json::Value;

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

fn status_metric(place: &Place) -> f64 {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let samples = parse(answer.split_once("\r\n\r\n").unwrap().1);
    value(&samples, "spindle_health_status", &[("group", "data")])
}

#[test]
fn a_finding_that_was_cleared_counts_nowhere_until_it_is_found_anew() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 100_000)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    damage(&place, "/file");
    scrub(&place);
    assert_eq!(health(&place), (2, vec!["damage".to_owned()]));
    let told = place.run(["health", "data"]).stdout;
    assert!(told.contains("`spindle clear data damage`"), "{told}");

    let dry = place.tell(["clear", "data", "damage", "--dry-run"]);
    assert!(dry.contains("data: would be cleared: damage: "), "{dry}");
    assert_eq!(health(&place).0, 2, "a dry run changes nothing");
    place.refuse(["clear", "data"], 2, &["--all", "damage"]);
    place.refuse(["clear", "data", "damge"], 2, &["did you mean damage?"]);
    assert_eq!(health(&place).0, 2, "a refusal changes nothing");

    let report = &place.ask(["clear", "data", "damage"])[0];
    assert_eq!(report["cleared"][0]["kind"], "damage");
    assert_eq!(health(&place), (0, vec![]));
    assert_eq!(status_metric(&place), 0.0);
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
