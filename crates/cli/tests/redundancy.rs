//! Files, directories and a whole group get another redundancy, under a mount and without one.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes, can_mount};

fn redundancy(place: &Place, path: &str) -> String {
    let stat = place.ask(["stat", path]);
    stat["redundancy"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_under_a_mount_gives_a_copy_back_and_gets_it_again() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(1, 9 << 20);
    let path = place.mount_point().join("file");
    std::fs::write(&path, &contents).unwrap();
    for (wanted, copies) in [("external", 1), ("normal", 2)] {
        let told = place.ask(["file", "set", "data:/file", "--redundancy", wanted]);
        assert_eq!(told["files_count"], 1);
        place.tell(["rebalance", "data", "--power", "1024", "--wait"]);
        assert_eq!(redundancy(&place, "data:/file"), wanted);
        let map = place.ask(["map", "data:/file"]);
        for extent in map["extents"].as_array().unwrap() {
            assert_eq!(extent["copies"].as_array().unwrap().len(), copies);
        }
        assert!(std::fs::read(&path).unwrap() == contents);
    }
    place.refuse(
        ["file", "set", "data:/file", "--redundancy", "high"],
        2,
        &["3 copies", "failure groups"],
    );
    place.refuse(
        ["file", "set", "data:/nothing", "--redundancy", "normal"],
        2,
        &["nothing"],
    );
    place.tell(["group", "check", "data"]);
    place.umount();
}

#[test]
fn a_group_that_nobody_has_open_is_told_what_it_is_to_have() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.refuse(
        ["group", "convert", "data", "--redundancy", "high"],
        2,
        &["3 copies", "1 more"],
    );
    let out = place.tell([
        "group",
        "convert",
        "data",
        "--redundancy",
        "external",
        "--yes",
    ]);
    assert!(out.contains("1 file") && out.contains("mounted"), "{out}");
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["redundancy"], "external");
    assert_eq!(redundancy(&place, "data:/file"), "external");
    place.tell(["cp", "file", "data:/other"]);
    assert_eq!(redundancy(&place, "data:/other"), "external");
    let templates = place.run([
        "template",
        "set",
        "data",
        "data",
        "--redundancy",
        "normal",
        "--json",
    ]);
    assert_eq!(templates.code, 2, "{templates:?}");
    let templates = place.ask(["template", "set", "data", "data", "--redundancy", "group"]);
    assert_eq!(templates[0]["redundancy"], "group");
    place.refuse(
        ["template", "set", "data", "date", "--redundancy", "group"],
        2,
        &["date", "data"],
    );
    place.tell(["group", "check", "data"]);
}

#[test]
fn to_give_up_copies_is_asked_for_twice_and_can_be_looked_at_before() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let convert = ["group", "convert", "data", "--redundancy", "external"];
    let wanted = ["--yes", "one lost disk"];
    place.refuse(convert, 2, &wanted);
    let redundancy_of_group = |place: &Place| {
        let group = place.ask(["group", "show", "data"]);
        group["redundancy"].as_str().unwrap().to_owned()
    };
    assert_eq!(redundancy_of_group(&place), "normal");
    for is_open in [false, true] {
        if is_open {
            place.tell(["group", "mount", "data"]);
        }
        let told = place.tell(convert.iter().chain(&["--dry-run"]));
        assert!(told.contains("1 file"), "{told}");
        assert!(told.contains("one lost disk"), "{told}");
        let told = place.ask(convert.iter().chain(&["--dry-run"]));
        assert_eq!(told["files_count"], 1, "{told}");
        assert_eq!(redundancy_of_group(&place), "normal");
        let high = [
            "group",
            "convert",
            "data",
            "--redundancy",
            "high",
            "--dry-run",
        ];
        place.refuse(high, 2, &["3 copies", "1 more"]);
    }
    assert_eq!(redundancy(&place, "data:/file"), "normal");
    let done = place.ask(convert.iter().chain(&["--yes"]));
    assert_eq!(done["files_count"], 1, "{done}");
    assert_eq!(redundancy_of_group(&place), "external");
    // More copies take nothing away.
    place.tell(["group", "convert", "data", "--redundancy", "normal"]);
    place.tell(["group", "dismount", "data"]);
}
