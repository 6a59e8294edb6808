//! What a change of the disks would cost is told before anything starts, of a group that is open
//! and of one that is not; nothing is changed by it, and what is refused is refused in the same
//! words.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes, can_mount};
use serde_json::Value;

fn make_disk(place: &Place, name: &str, size_bytes: u64) -> String {
    let path = place.disk(name);
    let disk = std::fs::File::create(&path).unwrap();
    disk.set_len(size_bytes).unwrap();
    path
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap()
}

#[test]
fn a_group_that_nobody_has_open_tells_what_a_change_would_cost_and_stays_as_it_is() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 20 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let new = make_disk(&place, "e", 64 << 20);
    let before = place.contents();
    let left = format!("left={new}");
    let add = ["disk", "add", "data", "--failgroup", &left, "--dry-run"];
    let told = place.ask(add);
    assert!(number(&told, "moved_bytes") >= 4 << 20, "{told}");
    let flows = told["flows"].as_array().unwrap();
    assert!(flows.iter().any(|flow| flow["to"] == "data_0004"), "{told}");
    let names: Vec<&Value> = (told["disks"].as_array().unwrap().iter())
        .map(|disk| &disk["name"])
        .collect();
    assert_eq!(names.len(), 5);
    let times = told["times"].as_array().unwrap();
    assert!(times.iter().any(|time| time["power"] == 1024));
    assert_eq!(
        times
            .iter()
            .filter(|time| time["is_default"] == true)
            .count(),
        1
    );
    let shown = place.tell(add);
    for word in [
        "would be moved",
        "data_0004",
        "Power",
        "not measured",
        "usable",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // A plain file that would be made is not there afterwards.
    let made = format!("{}:64M", place.disk("f"));
    place.ask(["disk", "add", "data", "--file-disk", &made, "--dry-run"]);
    assert!(!std::path::Path::new(&place.disk("f")).exists());
    let told = place.ask(["disk", "drop", "data", "data_0001", "--dry-run"]);
    assert!(number(&told, "moved_bytes") > 0, "{told}");
    let told = place.ask([
        "disk",
        "resize",
        "data",
        "data_0000",
        "--size",
        "40M",
        "--dry-run",
    ]);
    assert_eq!(told["disks"][0]["total_bytes"], 39 << 20);
    place.ask(["failgroup", "offline", "data", "left", "--dry-run"]);
    let told = place.ask(["rebalance", "data", "--estimate"]);
    assert_eq!(number(&told, "stuck_bytes"), 0);
    assert!(place.contents() == before, "telling wrote to a disk");
}

#[test]
fn what_would_be_refused_is_refused_in_the_same_words() {
    let place = Place::new();
    place.create_group();
    let small = make_disk(&place, "e", 32 << 20);
    let wrong: [Vec<&str>; 7] = [
        vec!["disk", "drop", "data", "data_0000", "data_0000"],
        vec!["disk", "drop", "data", "nobody"],
        vec!["disk", "undrop", "data", "data_0000"],
        vec!["disk", "replace", "data", "data_0000", "--with", &small],
        vec!["disk", "resize", "data", "data_0000", "--size", "900M"],
        vec!["failgroup", "drop", "data", "left"],
        vec!["failgroup", "drop", "data", "nobody"],
    ];
    for words in wrong {
        let real = place.run(&words);
        let told = place.run(words.iter().copied().chain(["--dry-run"]));
        assert_ne!(real.code, 0, "{words:?}");
        assert_eq!(
            (told.code, told.stderr),
            (real.code, real.stderr),
            "{words:?}"
        );
    }
}

#[test]
fn an_open_group_tells_the_bytes_that_are_then_moved() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::write(place.mount_point().join("file"), bytes(1, 24 << 20)).unwrap();
    place.tell(["rebalance", "data", "--power", "1024", "--wait"]);
    let epoch = |place: &Place| number(&place.ask(["group", "show", "data"]), "epoch");
    let before = epoch(&place);
    let told = place.ask(["disk", "drop", "data", "data_0000", "--dry-run"]);
    assert_eq!(epoch(&place), before);
    let moved = number(&told, "moved_bytes");
    assert!(moved >= 8 << 20, "{told}");
    place.tell(["rebalance", "data", "--power", "0"]);
    place.tell(["disk", "drop", "data", "data_0000"]);
    place.tell(["rebalance", "data", "--power", "1024", "--wait"]);
    let events = place.ask(["events", "data", "--kind", "rebalance_ended"]);
    let text = events.as_array().unwrap().last().unwrap()["text"]
        .as_str()
        .unwrap();
    let found: u64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!(
        moved.abs_diff(found) * 50 <= moved,
        "{moved} told, {found} moved"
    );
    place.umount();
}
