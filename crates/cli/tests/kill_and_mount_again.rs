//! The daemon is killed with SIGKILL: what was acknowledged is there after the next mount.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes, can_mount, signal, wait_for_end};
use rustix::process::Signal;
use std::io::Write;

#[test]
fn what_was_fsynced_survives_a_kill_and_the_dead_mount_is_replaced() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount_alone();
    let contents = bytes(5, 1_500_000);
    let mut file = std::fs::File::create(place.mount_point().join("file")).unwrap();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    std::fs::File::open(place.mount_point())
        .unwrap()
        .sync_all()
        .unwrap();
    let process_id = place.process_id();
    signal(process_id, Signal::KILL);
    wait_for_end(process_id);
    drop(file);
    assert_eq!(place.ask(["group", "list"])[0]["state"], "dismounted");
    place.mount();
    assert!(std::fs::read(place.mount_point().join("file")).unwrap() == contents);
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
    place.umount();
}

#[test]
fn a_dead_mount_is_taken_away_by_umount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount_alone();
    let process_id = place.process_id();
    signal(process_id, Signal::KILL);
    wait_for_end(process_id);
    place.umount();
    assert!(!place::is_mounted(&place.mount_point()));
    place.mount_alone();
    place.umount();
}

#[test]
fn sigterm_closes_the_group_cleanly() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::write(place.mount_point().join("file"), b"unsynced").unwrap();
    let process_id = place.process_id();
    signal(process_id, Signal::TERM);
    wait_for_end(process_id);
    assert!(!place::is_mounted(&place.mount_point()));
    let events = place.tell(["events", "data"]);
    assert!(
        events.contains("SIGTERM") && events.contains("closed"),
        "{events}"
    );
    place.tell(["cp", "data:/file", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"unsynced");
}
