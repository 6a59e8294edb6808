//! A group gets another name; its files stay.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

#[test]
fn a_renamed_group_is_found_under_its_new_name_only() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"contents").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["group", "rename", "data", "archive"]);
    place.refuse(["ls", "data:/"], 2, &["no group data", "archive"]);
    place.tell(["cp", "archive:/file", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"contents");
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][0]["group"], "archive");
}

#[test]
fn a_name_that_is_taken_or_is_none_is_refused() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("e");
    place.tell([
        "group",
        "create",
        "flash",
        "--redundancy",
        "external",
        "--file-disk",
        &format!("{disk}:64M"),
    ]);
    let before = place.contents();
    place.refuse(
        ["group", "rename", "data", "FLASH"],
        2,
        &["FLASH", "another name"],
    );
    place.refuse(
        ["group", "rename", "data", "no/name"],
        2,
        &["no/name", "letter"],
    );
    place.refuse(["group", "rename", "dta", "x"], 2, &["did you mean data?"]);
    assert!(before == place.contents());
}
