//! Disks that are away: a group opens with what its redundancy bears, and not with less.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

fn take_away(place: &Place, names: &[&str]) {
    for name in names {
        std::fs::rename(place.disk(name), place.path(name)).unwrap();
    }
}

#[test]
fn a_missing_failure_group_is_borne_and_told() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"contents").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    take_away(&place, &["c"]);
    place.tell(["group", "mount", "data"]);
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["offline_disks_count"], 1);
    assert_eq!(group["disks"][2]["mode"], "offline");
    place.tell(["cp", "data:/file", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"contents");
}

#[test]
fn without_a_majority_the_group_is_refused_and_nothing_is_written() {
    let place = Place::new();
    place.create_group();
    take_away(&place, &["b", "c", "d"]);
    let before = place.contents();
    let looked = format!("looked for on the search path: {}", place.disk("*"));
    place.refuse(["group", "mount", "data"], 3, &["data", &looked]);
    place.refuse(["ls", "data:/"], 3, &["data", &looked]);
    assert!(before == place.contents());
    let group = &place.ask(["group", "list"])[0];
    assert_eq!(group["state"], "broken");
    assert!(group["note"].as_str().is_some_and(|note| !note.is_empty()));
}

#[test]
fn a_group_that_is_destroyed_while_disks_are_away_tells_which_keep_their_labels() {
    let place = Place::new();
    place.create_group();
    take_away(&place, &["b", "d"]);
    let told = place.tell(["group", "destroy", "data", "--yes"]);
    assert!(
        told.contains("still labelled as disks of data: disks 1, 3;"),
        "{told}"
    );
    for name in ["b", "d"] {
        std::fs::rename(place.path(name), place.disk(name)).unwrap();
    }
    let told = place.tell(["group", "destroy", "data", "--yes"]);
    assert!(!told.contains("still labelled"), "{told}");
    assert!(place.ask(["group", "list"]).as_array().unwrap().is_empty());
}

#[test]
fn without_a_majority_the_disks_that_are_away_are_named_with_where_they_were() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["group", "dismount", "data"]);
    take_away(&place, &["c", "d"]);
    let before = place.contents();
    let gone = [
        format!("disk 2 is data_0002, last at {}", place.disk("c")),
        format!("disk 3 is data_0003, last at {}", place.disk("d")),
    ];
    let wanted = ["no majority", gone[0].as_str(), gone[1].as_str()];
    place.refuse(["group", "mount", "data"], 3, &wanted);
    place.refuse(["ls", "data:/"], 3, &wanted);
    let shown = place.run(["health", "data"]);
    assert!(shown.stdout.contains(&gone[0]), "{shown:?}");
    assert!(before == place.contents(), "nothing was written");
    // One that is here is not said to be away, and a new place is the last one.
    std::fs::rename(place.path("c"), place.disk("moved")).unwrap();
    place.tell(["group", "mount", "data", "--force"]);
    place.tell(["group", "dismount", "data"]);
}
