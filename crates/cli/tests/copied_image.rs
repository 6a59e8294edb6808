//! Two disks with one identity: neither is written, both are named.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

#[test]
fn a_copied_disk_is_a_conflict_until_it_is_left_out() {
    let place = Place::new();
    place.create_group();
    std::fs::copy(place.disk("a"), place.disk("copy")).unwrap();
    let before = place.contents();
    let (disk, copy) = (place.disk("a"), place.disk("copy"));
    for words in [
        ["group", "mount", "data"],
        ["group", "check", "data"],
        ["group", "dismount", "data"],
    ] {
        place.refuse(words, 2, &[&disk, &copy, "identity", "--disks"]);
    }
    let scan = place.ask(["disk", "scan"]);
    let conflicts = scan["disks"].as_array().unwrap().iter();
    assert_eq!(
        conflicts
            .filter(|disk| disk["status"] == "conflict")
            .count(),
        2
    );
    assert_eq!(place.ask(["group", "list"])[0]["state"], "broken");
    assert!(before == place.contents());
    let pattern = place.disk("[a-d]");
    place.tell(["group", "check", "data", "--disks", &pattern]);
}
