//! What listings, events and process tables call things: by what they are, and by their names.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes, can_mount};

#[test]
fn a_disk_whose_file_was_removed_is_listed_with_what_became_of_it() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::rename(place.disk("b"), place.path("b")).unwrap();
    let listing = place.tell(["group", "show", "data"]);
    let line = listing.lines().find(|line| line.contains("data_0001"));
    assert!(line.unwrap().ends_with("/b (was removed)"), "{listing}");
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["disks"][1]["path_lost"], "was removed", "{shown}");
    assert!(shown["disks"][0]["path_lost"].is_null(), "{shown}");
    std::fs::rename(place.path("b"), place.disk("b")).unwrap();
    let listing = place.tell(["group", "show", "data"]);
    assert!(!listing.contains("removed"), "{listing}");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn usable_space_that_falls_when_a_disk_grows_is_told_with_the_reason() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let usable = |place: &Place| {
        let group = place.ask(["group", "show", "data"]);
        group["usable_bytes"].as_i64().unwrap()
    };
    let before = usable(&place);
    let disk = std::fs::File::options()
        .write(true)
        .open(place.disk("a"))
        .unwrap();
    disk.set_len(160 << 20).unwrap();
    let told = place.tell(["disk", "resize", "data", "data_0000"]);
    assert!(usable(&place) < before, "{told}");
    assert!(told.contains("usable space falls from "), "{told}");
    assert!(told.contains("must stay free"), "{told}");
    // What pairs with it takes the reason away.
    for name in ["c", "d"] {
        let disk = std::fs::File::options()
            .write(true)
            .open(place.disk(name))
            .unwrap();
        disk.set_len(200 << 20).unwrap();
    }
    let told = place.tell(["disk", "resize", "data", "data_0002", "data_0003"]);
    assert!(!told.contains("usable space falls"), "{told}");
    let same = place.tell(["disk", "resize", "data", "data_0002"]);
    assert!(same.contains("nothing has changed"), "{same}");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn an_event_about_a_file_names_its_path_wherever_that_is_by_now() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    std::fs::create_dir_all(point.join("tree/made")).unwrap();
    std::fs::write(point.join("tree/made/zero"), bytes(1, 1 << 20)).unwrap();
    std::fs::write(point.join("tree/gone"), bytes(2, 1 << 20)).unwrap();
    for file in ["made/zero", "gone"] {
        let path = format!("data:/tree/{file}");
        place.tell(["file", "set", &path, "--redundancy", "external"]);
    }
    std::fs::remove_file(point.join("tree/gone")).unwrap();
    std::fs::rename(point.join("tree/made/zero"), point.join("tree/one")).unwrap();
    std::fs::create_dir_all(point.join("tree/below")).unwrap();
    std::fs::rename(point.join("tree/one"), point.join("tree/below/one")).unwrap();
    for is_open in [true, false] {
        let told = place.tell(["events", "data", "--kind", "redundancy_changed"]);
        assert!(told.lines().count() == 2, "{told}");
        let first = told.lines().next().unwrap();
        assert!(first.ends_with(" (data:/tree/below/one)"), "{told}");
        let last = told.lines().last().unwrap();
        assert!(last.ends_with(" redundancy"), "it is gone: {told}");
        let events = place.ask(["events", "data", "--kind", "redundancy_changed"]);
        assert_eq!(events[0]["path"], "/tree/below/one", "{events}");
        assert!(events[1]["path"].is_null(), "{events}");
        if is_open {
            place.umount();
        }
    }
}

#[test]
fn a_process_that_takes_over_is_called_as_the_program_is() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let daemon = place.kill_daemon();
    let name = std::fs::read_to_string(format!("/proc/{daemon}/comm")).unwrap();
    assert_eq!(name.trim(), "spindle");
    let line = std::fs::read_to_string(format!("/proc/{daemon}/cmdline")).unwrap();
    let program = line.split('\0').next().unwrap();
    assert!(program.ends_with("/spindle"), "{line}");
    place.umount();
}
