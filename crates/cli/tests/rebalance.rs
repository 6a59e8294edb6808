//! A disk joins and another leaves under a mount: the rebalance begins by itself, is shown, paused
//! and given power, and the files are what they were.
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

fn names(place: &Place) -> Vec<String> {
    let group = place.ask(["group", "show", "data"]);
    let disks = group["disks"].as_array().unwrap();
    let name = |disk: &Value| disk["name"].as_str().unwrap().to_owned();
    disks.iter().map(name).collect()
}

#[test]
fn a_disk_is_added_and_another_dropped_and_the_rebalance_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(1, 24 << 20);
    let path = place.mount_point().join("file");
    std::fs::write(&path, &contents).unwrap();
    place.tell(["rebalance", "data", "--power", "0"]);
    let new = make_disk(&place, "e", 64 << 20);
    let new = format!("left={new}");
    place.tell([
        "disk",
        "add",
        "data",
        "--failgroup",
        &new,
        "--drop",
        "data_0000",
    ]);
    let shown = place.ask(["operations", "data"]);
    let line = &shown[0]["operations"][0];
    assert_eq!(
        (&line["pass"], &line["state"]),
        (&"rebalance".into(), &"paused".into())
    );
    assert!(names(&place).contains(&"data_0000".to_owned()));
    let out = place.tell(["operations"]);
    assert!(out.contains("paused") && out.contains("time left"), "{out}");
    let out = place.tell(["rebalance", "data", "--power", "1024", "--wait"]);
    assert!(out.contains("nothing to do"), "{out}");
    assert_eq!(
        names(&place),
        ["data_0001", "data_0002", "data_0003", "data_0004"]
    );
    assert!(std::fs::read(&path).unwrap() == contents);
    let map = place.ask(["map", "data:/file"]);
    let held = |name: &str| {
        let extents = map["extents"].as_array().unwrap().iter();
        extents
            .flat_map(|extent| extent["copies"].as_array().unwrap())
            .filter(|copy| copy["disk_name"] == name)
            .count()
    };
    assert_eq!(held("data_0000"), 0);
    assert!(held("data_0004") >= 8);
    place.tell(["group", "check", "data"]);
    place.umount();
}

#[test]
fn the_power_of_a_group_is_kept_and_one_out_of_range_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.refuse(["rebalance", "data"], 2, &["data"]);
    place.mount();
    place.refuse(
        ["rebalance", "data", "--power", "1025"],
        2,
        &["1025", "1024"],
    );
    place.tell(["rebalance", "data", "--power", "7", "--default"]);
    place.umount();
    place.mount();
    let shown = place.ask(["operations", "data"]);
    assert_eq!(shown[0]["default_power"], 7);
    assert_eq!(shown[0]["operations"].as_array().unwrap().len(), 0);
    place.umount();
}
