//! The event log: shown whether the group is open or not, filtered, followed, and never lost at
//! an orderly close.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use place::{Place, bytes, signal, wait_for_end};
use rustix::process::Signal;
use serde_json::Value;

fn kinds(place: &Place, words: &[&str]) -> Vec<String> {
    let events = place.ask(["events", "data"].iter().chain(words));
    (events.as_array().unwrap().iter())
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .collect()
}

/// Makes a disk of the open group fail a write.
fn lose_a_disk(place: &Place) {
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), bytes(1, 4 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
}

#[test]
fn the_log_is_in_the_group_and_no_orderly_end_loses_an_event() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    lose_a_disk(&place);
    assert!(kinds(&place, &[]).contains(&"disk_offline".to_owned()));
    place.tell(["group", "dismount", "data"]);
    // Nothing beside the disks is needed.
    std::fs::remove_dir_all(place.path("run")).unwrap();
    let events = place.ask(["events", "data"]);
    let events = events.as_array().unwrap();
    assert_eq!(events[0]["kind"], "group_opened");
    assert_eq!(events.last().unwrap()["kind"], "group_closed");
    let offline = events
        .iter()
        .find(|event| event["kind"] == "disk_offline")
        .unwrap();
    assert_eq!(offline["severity"], "critical");
    assert_eq!(
        (&offline["disk"], &offline["disk_name"]),
        (&Value::from(1), &Value::from("data_0001"))
    );
    assert!(!offline["host"].as_str().unwrap().is_empty());
    let numbers = events.iter().map(|event| event["number"].as_u64().unwrap());
    assert!(numbers.is_sorted_by(|left, right| left < right));
    assert_eq!(
        place.ask(["events"]).as_array().unwrap().len(),
        events.len()
    );
}

#[test]
fn a_lost_disk_is_in_the_log_after_the_process_was_killed_a_second_later() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    lose_a_disk(&place);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let process_id = place.process_id();
    signal(process_id, Signal::KILL);
    wait_for_end(process_id);
    assert!(kinds(&place, &[]).contains(&"disk_offline".to_owned()));
}

#[test]
fn events_are_chosen_by_severity_kind_and_time() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    lose_a_disk(&place);
    let critical = kinds(&place, &["--severity", "critical"]);
    assert_eq!(critical, ["disk_offline"]);
    let chosen = kinds(&place, &["--kind", "group_opened,disk_offline"]);
    assert_eq!(chosen, ["group_opened", "disk_offline"]);
    assert!(!kinds(&place, &["--since", "1h"]).is_empty());
    assert!(kinds(&place, &["--since", "0s"]).is_empty());
    assert!(kinds(&place, &["--since", "2100-01-01"]).is_empty());
    place.refuse(["events", "data", "--severity", "bad"], 2, &["critical"]);
    place.refuse(["events", "data", "--since", "then"], 2, &["15m"]);
    let typo = ["events", "data", "--kind", "disk_ofline"];
    place.refuse(typo, 2, &["did you mean disk_offline"]);
    place.refuse(["events", "nothing"], 2, &["no group nothing"]);
}

#[test]
fn who_follows_sees_what_comes_to_the_last_word_of_the_process() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let mut follower = place
        .command(["events", "data", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || -> String {
        let line = lines.next().unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        event["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(next(), "group_opened");
    place.tell(["fault", "pull", "data", "data_0001"]);
    assert_eq!(next(), "disk_fault_injected");
    place.tell(["fault", "plug", "data", "data_0001"]);
    assert_eq!(next(), "disk_fault_injected");
    place.tell(["group", "dismount", "data"]);
    assert_eq!(next(), "group_stopping");
    assert_eq!(next(), "group_closed");
    place.tell(["group", "mount", "data"]);
    assert_eq!(next(), "group_opened");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_dead_disk_that_no_copy_stands_for_is_told_once_and_then_with_counts() {
    let place = Place::new();
    let (one, other) = (place.disk("a"), place.disk("b"));
    let disks = [format!("{one}:64M"), format!("{other}:64M")];
    let mut words = vec!["group", "create", "data", "--redundancy", "external"];
    words.extend(["--file-disk", &disks[0], "--file-disk", &disks[1]]);
    place.tell(words);
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 4 << 20)).unwrap();
    place.tell(["fault", "pull", "data", "data_0001"]);
    let names: Vec<String> = (0..8).map(|number| format!("data:/file{number}")).collect();
    let refused = names
        .iter()
        .filter(|name| place.run(["cp", "file", name]).code != 0);
    let refused_count = refused.count();
    assert!(refused_count >= 4, "{refused_count}");
    place.run(["group", "dismount", "data"]);
    place.tell(["group", "mount", "data"]);
    let all = place.ask(["events", "data"]);
    let of = |kind: &str| -> Vec<Value> {
        let events = all.as_array().unwrap().iter();
        events
            .filter(|event| event["kind"] == kind)
            .cloned()
            .collect()
    };
    let failed = of("write_failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["disk_name"], "data_0001");
    assert!(of("flush_failed").len() <= 1, "{all}");
    let counted = of("events_left_out");
    let counted = counted.iter().find(|event| {
        event["text"]
            .as_str()
            .unwrap()
            .contains("of the kind write_failed, of files ")
    });
    let counted = counted.unwrap_or_else(|| panic!("{all}"));
    let text = counted["text"].as_str().unwrap();
    let count: usize = text.split(' ').next().unwrap().parse().unwrap();
    assert!(count + 1 >= refused_count, "{text}");
    assert_eq!(counted["disk_name"], "data_0001");
    place.tell(["group", "dismount", "data"]);
}
