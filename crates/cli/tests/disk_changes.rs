//! Disks of a group are added, dropped, replaced, resized, renamed and taken offline: under a
//! mount, and of a group that nobody has open.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::path::Path;

use place::{Place, bytes, can_mount};
use serde_json::Value;

fn disks(place: &Place) -> Vec<Value> {
    let group = place.ask(["group", "show", "data"]);
    group["disks"].as_array().unwrap().clone()
}

fn names(place: &Place) -> Vec<String> {
    let name = |disk: &Value| disk["name"].as_str().unwrap().to_owned();
    disks(place).iter().map(name).collect()
}

fn state(place: &Place, name: &str) -> String {
    let disks = disks(place);
    let disk = disks.iter().find(|disk| disk["name"] == name);
    disk.map_or("gone".to_owned(), |disk| {
        disk["state"].as_str().unwrap().to_owned()
    })
}

/// Waits for what the process that serves the group does by itself.
#[track_caller]
fn wait_for(what: impl Fn() -> bool) {
    for _ in 0..300 {
        if what() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it did not happen within 30 s");
}

fn make_disk(place: &Place, name: &str, size_bytes: u64) -> String {
    let path = place.disk(name);
    std::fs::File::create(&path)
        .unwrap()
        .set_len(size_bytes)
        .unwrap();
    path
}

#[test]
fn a_group_that_nobody_has_open_grows_and_an_empty_disk_leaves_it() {
    let place = Place::new();
    place.create_group();
    let contents = bytes(1, 3 << 20);
    std::fs::write(place.path("file"), &contents).unwrap();
    let new = make_disk(&place, "e", 64 << 20);
    let out = place.tell(["disk", "add", "data", "--failgroup", &format!("left={new}")]);
    assert!(out.contains("data_0004") && out.contains("left"), "{out}");
    assert_eq!(names(&place).len(), 5);
    // Nothing lies anywhere yet: the disk leaves at once, and is free for others.
    place.tell(["disk", "drop", "data", "data_0001"]);
    assert_eq!(state(&place, "data_0001"), "gone");
    let scan = place.ask(["disk", "scan"]);
    let found = scan["disks"].as_array().unwrap();
    let dropped = found
        .iter()
        .find(|disk| disk["path"] == place.disk("b"))
        .unwrap();
    assert_eq!(dropped["status"], "former");
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["cp", "data:/file", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == contents);
    // A disk that was dropped may come again.
    let former = format!("again={}", place.disk("b"));
    place.tell([
        "disk",
        "add",
        "data",
        "--failgroup",
        &former,
        "--name",
        "second",
    ]);
    assert_eq!(state(&place, "second"), "normal");
    assert_eq!(place.tell(["group", "check", "data"]).lines().count(), 1);
}

#[test]
fn disks_come_and_go_under_a_mount_and_a_dropped_one_is_let_go() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let file = place.mount_point().join("file");
    let contents = bytes(2, 5 << 20);
    std::fs::write(&file, &contents).unwrap();
    let epoch = |place: &Place| {
        place.ask(["group", "show", "data"])["epoch"]
            .as_u64()
            .unwrap()
    };
    // A disk of a few extents would be empty, and gone, before it is told to stay.
    place.tell(["rebalance", "data", "--power", "0", "--default"]);
    let before = epoch(&place);
    let added = place.ask([
        "disk",
        "add",
        "data",
        "--failgroup",
        &format!("left={}:64M", place.disk("e")),
        "--failgroup",
        &format!("right={}:64M", place.disk("f")),
        "--drop",
        "data_0000",
    ]);
    assert_eq!(added["disks"].as_array().unwrap().len(), 3);
    assert_eq!(epoch(&place), before + 1);
    assert_eq!(state(&place, "data_0000"), "dropping");
    place.tell(["disk", "undrop", "data", "data_0000"]);
    assert_eq!(state(&place, "data_0000"), "normal");
    place.tell(["rebalance", "data", "--power", "1024", "--default"]);
    place.tell(["disk", "rename", "data", "data_0004", "fifth"]);
    place.tell(["disk", "offline", "data", "fifth"]);
    place.tell(["disk", "drop", "data", "fifth", "--force"]);
    assert!(std::fs::read(&file).unwrap() == contents);
    // An empty one goes, and is nobody's: another group takes it while this one is mounted.
    place.tell(["disk", "drop", "data", "data_0005"]);
    wait_for(|| state(&place, "data_0005") == "gone");
    // The process lets go of it at its next look, a moment after the group has forgotten it.
    let disk = place.disk("f");
    let words = [
        "group",
        "create",
        "other",
        "--redundancy",
        "external",
        "--disk",
        &disk,
    ];
    wait_for(|| place.run(words).code == 0);
    assert!(std::fs::read(&file).unwrap() == contents);
    place.umount();
    place.tell(["cp", "data:/file", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == contents);
}

#[test]
fn a_dead_disk_is_replaced_while_files_are_in_use() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let file = place.mount_point().join("file");
    let contents = bytes(3, 6 << 20);
    std::fs::write(&file, &contents).unwrap();
    place.tell(["fault", "pull", "data", "data_0002"]);
    std::fs::write(place.mount_point().join("more"), &contents).unwrap();
    let sync = std::fs::File::open(place.mount_point().join("more")).unwrap();
    sync.sync_all().unwrap();
    drop(sync);
    wait_for(|| disks(&place)[2]["mode"] == "offline");
    let small = format!("{}:32M", place.disk("small"));
    place.refuse(
        ["disk", "replace", "data", "data_0002", "--with", &small],
        2,
        &["too small", "data_0002"],
    );
    assert!(!Path::new(&place.disk("small")).exists());
    let with = format!("{}:64M", place.disk("new"));
    let out = place.ask(["disk", "replace", "data", "data_0002", "--with", &with]);
    let came = out["disks"].as_array().unwrap();
    let came = came
        .iter()
        .find(|disk| disk["name"] != "data_0002")
        .unwrap();
    assert_eq!(
        (&came["failure_group"], &came["mode"]),
        (&"right".into(), &"online".into())
    );
    assert!(std::fs::read(&file).unwrap() == contents);
    place.umount();
}

#[test]
fn a_disk_that_grew_is_used_whole() {
    let place = Place::new();
    place.create_group();
    let total = || {
        place.ask(["group", "show", "data"])["total_bytes"]
            .as_u64()
            .unwrap()
    };
    // Of each disk the label has the last block, and so the group all AUs but one.
    assert_eq!(total(), (4 * 63) << 20);
    for name in ["a", "b", "c", "d"] {
        let file = std::fs::File::options()
            .write(true)
            .open(place.disk(name))
            .unwrap();
        file.set_len(128 << 20).unwrap();
    }
    place.tell(["failgroup", "resize", "data", "left"]);
    place.tell([
        "disk",
        "resize",
        "data",
        "data_0002",
        "data_0003",
        "--size",
        "96M",
    ]);
    assert_eq!(total(), (2 * 127 + 2 * 95) << 20);
    place.tell(["disk", "resize", "data", "data_0002", "--size", "64M"]);
    assert_eq!(total(), (2 * 127 + 95 + 63) << 20);
    let file = std::fs::File::options()
        .write(true)
        .open(place.disk("c"))
        .unwrap();
    file.set_len(64 << 20).unwrap();
    assert_eq!(place.tell(["group", "check", "data"]).lines().count(), 1);
}

#[test]
fn what_cannot_be_changed_is_refused_in_one_line_and_nothing_changes() {
    let place = Place::new();
    place.create_group();
    let other = place.disk("z");
    place.tell([
        "group",
        "create",
        "other",
        "--redundancy",
        "external",
        "--file-disk",
        &format!("{other}:64M"),
    ]);
    std::fs::write(place.path("file"), bytes(4, 1 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let spare = make_disk(&place, "spare", 64 << 20);
    let refuse = |words: &[&str], wanted: &[&str]| {
        let all = ["disk"].iter().chain(words);
        place.refuse(all, 2, wanted);
    };
    refuse(&["add", "data", "--disk", &other], &["other", "--force"]);
    refuse(
        &["add", "data", "--disk", &place.disk("a")],
        &["data_0000", "already"],
    );
    refuse(
        &["add", "data", "--disk", &place.disk("none")],
        &["--file-disk"],
    );
    refuse(&["add", "data"], &["--disk PATH"]);
    refuse(
        &["add", "data", "--disk", &spare, "--name", "data_0001"],
        &["data_0001", "another name"],
    );
    refuse(
        &["add", "data", "--disk", &spare, "--disk", &spare],
        &["spare"],
    );
    refuse(&["drop", "data", "data_0000", "DATA_0000"], &["twice"]);
    refuse(
        &["drop", "data", "data_0009"],
        &["data_0009", "did you mean"],
    );
    refuse(
        &["drop", "data", "data_0000", "data_0001"],
        &["failure groups"],
    );
    refuse(&["undrop", "data", "data_0000"], &["not being dropped"]);
    refuse(
        &["offline", "data", "data_0000", "data_0002"],
        &["the last good copy of", "of data:/file lies there"],
    );
    refuse(
        &["resize", "data", "data_0000", "--size", "128M"],
        &["cannot have 128M", "has 64M; enlarge"],
    );
    refuse(
        &["resize", "data", "data_0000", "--size", "4M"],
        &["cannot have 4M", "has at least 8M and 4K"],
    );
    refuse(
        &["rename", "data", "data_0000", "DATA_0001"],
        &["another name"],
    );
    place.refuse(
        ["failgroup", "drop", "data", "lft"],
        2,
        &["no failure group", "did you mean left?"],
    );
    place.refuse(
        ["failgroup", "drop", "data", "left"],
        2,
        &["failure groups"],
    );
    let states: Vec<Value> = disks(&place)
        .iter()
        .map(|disk| disk["state"].clone())
        .collect();
    assert_eq!(states, ["normal"; 4]);
    // The disk that was looked at belongs to nobody, and nobody holds it.
    place.tell(["disk", "add", "data", "--disk", &spare]);
}
