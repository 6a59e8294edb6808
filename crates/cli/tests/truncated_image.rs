//! A disk that is shorter than its label says is refused by name and left as it is.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

#[test]
fn a_truncated_disk_is_named() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("b");
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.set_len(32 << 20).unwrap();
    let before = place.contents();
    place.refuse(["group", "mount", "data"], 4, &[&disk]);
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][1]["status"], "unusable");
    assert!(
        scan["disks"][1]["found"]
            .as_str()
            .unwrap()
            .contains("67108864")
    );
    assert!(before == place.contents());
    // Left out, it is a disk that is missing, which the redundancy bears.
    let pattern = place.disk("[acd]");
    place.tell(["group", "check", "data", "--disks", &pattern]);
}
