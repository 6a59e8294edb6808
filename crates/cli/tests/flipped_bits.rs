//! A bit of a label or of the catalog is flipped: the other copy serves, repairs it, and it is told.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::FileExt;

use place::Place;
use serde_json::Value;

fn flip(path: &str, offset_bytes: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset_bytes).unwrap();
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset_bytes).unwrap();
}

fn events(place: &Place) -> String {
    place.tell(["events", "data"])
}

#[test]
fn a_damaged_label_is_repaired_from_the_other_copy() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("a");
    flip(&disk, 70);
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][0]["status"], "member");
    assert!(
        scan["disks"][0]["found"]
            .as_str()
            .unwrap()
            .contains("damaged")
    );
    place.tell(["group", "mount", "data"]);
    assert!(events(&place).contains("label"), "{}", events(&place));
    place.tell(["group", "dismount", "data"]);
    let dump = place.ask(["dump", "--disk", &disk]);
    let labels = dump["disks"][0]["labels"].as_array().unwrap();
    assert!(
        labels.iter().all(|label| label["error"] == Value::Null),
        "{dump}"
    );
}

#[test]
fn a_dump_shows_the_label_at_the_end_where_it_is_the_only_one() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("a");
    let dump = || place.ask(["dump", "--disk", &disk])["disks"][0]["labels"].clone();
    let labels = dump();
    let last = labels[2].clone();
    assert!(last["contents"].is_object(), "{labels}");
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 1 << 20], 0).unwrap();
    let labels = dump();
    assert_eq!(labels[2], last, "{labels}");
    assert_eq!(labels[0]["error"], "empty");
}

#[test]
fn a_damaged_block_of_the_catalog_is_repaired_from_another_replica() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"contents").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let dump = place.ask(["dump", "data"]);
    let states = dump["disks"][0]["states"].as_array().unwrap();
    let newest = states
        .iter()
        .max_by_key(|state| state["contents"]["epoch"].as_u64())
        .unwrap();
    let replica = &newest["contents"]["replicas"][0];
    let disk = dump["disks"][usize::try_from(replica["disk"].as_u64().unwrap()).unwrap()]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    let run_start = replica["runs"][0]["start_au"].as_u64().unwrap() << 20;
    // Somewhere in each of the first blocks of data: at least one of them is in use.
    for block in 8..64 {
        flip(&disk, run_start + block * 4096 + 100);
    }
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "data:/file", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"contents");
    place.tell(["group", "check", "data"]);
    let events = events(&place);
    assert!(events.contains("written again"), "{events}");
}

#[test]
fn every_label_damaged_is_a_missing_disk() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("a");
    flip(&disk, 70);
    flip(&disk, (512 << 10) + 70);
    assert_eq!(place.ask(["disk", "scan"])["disks"][0]["status"], "member");
    flip(&disk, std::fs::metadata(&disk).unwrap().len() - 4096 + 70);
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][0]["status"], "unusable");
    place.refuse(
        [
            "group",
            "create",
            "other",
            "--redundancy",
            "external",
            "--disk",
            &disk,
        ],
        2,
        &[&disk, "damaged", "--force"],
    );
    place.tell(["group", "mount", "data"]);
    assert_eq!(
        place.ask(["group", "show", "data"])["offline_disks_count"],
        1
    );
}
