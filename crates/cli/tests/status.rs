//! `spindle status`: a group on one page.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::process::{Command, Stdio};

use place::{Place, can_mount};

#[test]
fn a_page_tells_of_health_space_work_and_events_of_a_group_that_is_open_or_closed() {
    let place = Place::new();
    place.create_group();
    let closed = place.tell(["status"]);
    assert!(closed.contains("data: dismounted"), "{closed}");
    assert!(closed.contains("the group is not open"), "{closed}");
    place.tell(["group", "mount", "data"]);
    let open = place.tell(["status", "data"]);
    assert!(open.contains("health ok"), "{open}");
    assert!(open.contains("served by process"), "{open}");
    assert!(!open.contains("scrub"), "none has run: {open}");
    place.tell(["scrub", "data", "--wait"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), [7; 100_000]).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let hurt = place.tell(["status", "data"]);
    let words: String = hurt.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "health critical",
        "1 offline",
        "spindle disk online",
        "scrub of data: done",
        "0 findings",
        "was pulled for a test",
    ] {
        assert!(words.contains(wanted), "{wanted} in {hurt}");
    }
    for line in hurt.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let report = &place.ask(["status", "data"])[0];
    assert_eq!(report["group"]["name"], "data");
    assert_eq!(report["health"]["status"], "critical");
    assert_eq!(report["scrub"]["state"], "done");
    assert!(report["events"].as_array().unwrap().len() <= 5);
    place.refuse(["status", "nothing"], 2, &["nothing", "data"]);
    place.refuse(["status", "--watch", "--interval", "0"], 2, &["interval"]);
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_page_names_who_uses_the_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let mut user = Command::new("cat")
        .current_dir(place.mount_point())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = place.tell(["status", "data"]);
    let wanted = format!("used by cat (process {}", user.id());
    assert!(shown.contains(&wanted), "{wanted} in {shown}");
    let report = &place.ask(["status", "data"])[0]["users"][0];
    assert_eq!(report["process_id"], user.id());
    drop(user.stdin.take());
    user.wait().unwrap();
    assert!(!place.tell(["status", "data"]).contains("used by"));
    place.umount();
}
