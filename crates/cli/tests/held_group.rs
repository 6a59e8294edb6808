//! A group whose processes died and that its keeper holds: who asks is told why they died, what
//! happened, and at once; and who asks while the next one takes over waits for its answer.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::time::{Duration, Instant};

use place::{Place, can_mount, signal, wait_for_end};
use rustix::process::Signal;

/// A mount whose processes cannot open the group any more, because its disks are not there; held.
fn held() -> Place {
    let place = Place::new();
    place.create_group();
    place.mount();
    let daemon = place.process_id();
    std::fs::write(place.mount_point().join("file"), b"kept").unwrap();
    signal(daemon, Signal::STOP);
    place.take_disks_away();
    signal(daemon, Signal::KILL);
    wait_for_end(daemon);
    loop {
        let shown = place.run(["group", "show", "data"]);
        if shown.stderr.contains("held by the keeper") {
            return place;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_held_group_says_what_its_processes_died_of_and_who_mounts_it_is_answered_at_once() {
    if !can_mount() {
        return;
    }
    let place = held();
    let log = std::fs::read_to_string(place.path("run/data.log")).unwrap();
    assert!(log.contains("no group data"), "{log}");
    let shown = place.run(["group", "show", "data"]);
    assert!(shown.stderr.contains("no group data"), "{shown:?}");
    let begun = Instant::now();
    let point = place.mount_point().display().to_string();
    let wanted = ["no group data", "held", "umount"];
    let refused = place.refuse(["mount", "data", point.as_str()], 3, &wanted);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}: {refused}");
    place.put_disks_back();
    place.mount();
    let contents = std::fs::read(place.mount_point().join("file")).unwrap();
    assert_eq!(contents, b"kept");
    place.umount();
}

/// Nobody but the keeper can open it as long as it is held: it hands a person's word on.
#[test]
fn a_held_group_is_opened_by_force_where_a_person_says_so() {
    if !can_mount() {
        return;
    }
    let place = held();
    for disk in ["a", "b"] {
        std::fs::rename(place.path(disk), place.disk(disk)).unwrap();
    }
    let point = place.mount_point().display().to_string();
    place.refuse(["mount", "data", point.as_str()], 3, &["--force"]);
    place.tell(["mount", "data", point.as_str(), "--force"]);
    let contents = std::fs::read(place.mount_point().join("file")).unwrap();
    assert_eq!(contents, b"kept");
    place.umount();
}

#[test]
fn the_events_of_a_held_group_are_shown_with_what_its_keeper_knows() {
    if !can_mount() {
        return;
    }
    let place = held();
    let events = place.tell(["events", "data"]);
    assert!(events.contains("no group data"), "why they died: {events}");
    place.put_disks_back();
    let events = place.tell(["events", "data"]);
    assert!(events.contains("opened by process"), "{events}");
    assert!(events.contains("no group data"), "{events}");
    let critical = place.tell(["events", "data", "--severity", "critical"]);
    assert!(critical.contains("is held"), "{critical}");
    assert!(!critical.contains("opened by process"), "{critical}");
    let of_all = place.tell(["events"]);
    assert!(of_all.contains("opened by process"), "{of_all}");
    place.mount();
    place.umount();
}

#[test]
fn who_asks_for_events_in_the_moment_of_a_takeover_is_answered_by_the_next_process() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    for _ in 0..3 {
        let daemon = place.process_id();
        signal(daemon, Signal::STOP);
        let mut asking = place.command(["events", "data"]);
        let asking = asking
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It has asked by then, and waits for the answer.
        std::thread::sleep(Duration::from_millis(500));
        signal(daemon, Signal::KILL);
        let output = asking.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let refused = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{refused}");
        assert!(told.contains("took over the mount"), "{told}");
    }
    place.umount();
}
