//! Disks that were away come back, under a mount that goes on writing.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use place::{Place, bytes, can_mount};

fn offline_count(place: &Place) -> u64 {
    let group = place.ask(["group", "show", "data"]);
    group["offline_disks_count"].as_u64().unwrap()
}

fn has_event(place: &Place, kind: &str) -> bool {
    let events = place.ask(["events", "data", "--kind", kind]);
    !events.as_array().unwrap().is_empty()
}

/// Waits for what the process that serves the group does by itself.
#[track_caller]
fn wait_for(what: impl Fn() -> bool) {
    for _ in 0..600 {
        if what() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it did not happen within a minute");
}

#[test]
fn a_disk_that_is_plugged_in_again_under_load_comes_back_by_itself_and_carries_the_files() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let before = bytes(1, 4_000_000);
    std::fs::write(place.mount_point().join("before"), &before).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut file = std::fs::File::create(place.mount_point().join("load")).unwrap();
            let mut written = Vec::new();
            while !stop.load(Ordering::Relaxed) || written.len() < 1_000_000 {
                let piece = bytes(written.len() as u64, 20_000);
                file.write_all(&piece).unwrap();
                file.sync_data().unwrap();
                written.extend(piece);
                if written.len() > 12_000_000 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            written
        });
        place.tell(["fault", "pull", "data", "data_0001"]);
        wait_for(|| offline_count(&place) == 1);
        std::thread::sleep(std::time::Duration::from_secs(1));
        place.tell(["fault", "plug", "data", "data_0001"]);
        wait_for(|| offline_count(&place) == 0);
        wait_for(|| has_event(&place, "resync_ended"));
        stop.store(true, Ordering::Relaxed);
        let written = load.join().unwrap();
        // Every other copy goes: what is read now comes from the disk that was away.
        let group = place.ask(["group", "show", "data"]);
        let disks = group["disks"].as_array().unwrap();
        let own = disks[1]["failure_group"].clone();
        let other = disks.iter().find(|disk| disk["failure_group"] != own);
        let other = other.unwrap()["name"].as_str().unwrap();
        place.tell(["fault", "pull", "data", other]);
        let found = std::fs::read(place.mount_point().join("load")).unwrap();
        assert!(found == written);
        let found = std::fs::read(place.mount_point().join("before")).unwrap();
        assert!(found == before);
    });
    place.umount();
}

#[test]
fn a_disk_that_a_person_took_offline_waits_for_a_person() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    place.refuse(
        ["disk", "online", "data", "data_0000"],
        2,
        &["online already"],
    );
    place.refuse(["disk", "online", "data", "data_0009"], 2, &["data_0009"]);
    place.tell(["disk", "offline", "data", "data_0000"]);
    let contents = bytes(3, 3_000_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(offline_count(&place), 1);
    place.tell(["disk", "online", "data", "data_0000"]);
    assert_eq!(offline_count(&place), 0);
    assert!(std::fs::read(place.mount_point().join("file")).unwrap() == contents);
    let set = place.ask(["group", "set", "data", "disk_repair_time=3h"]);
    assert_eq!(set["disk_repair_time_s"], 10_800);
    assert_eq!(set["failgroup_repair_time_s"], 86_400);
    place.refuse(
        ["group", "set", "data", "disk_repair_time=off"],
        2,
        &["12h"],
    );
    place.umount();
}

#[test]
fn a_disk_that_appears_on_the_search_path_joins_its_open_group_again() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let group = place.ask(["group", "show", "data"]);
    let path = group["disks"][2]["path"].as_str().unwrap().to_owned();
    let hidden = place.path("hidden");
    std::fs::rename(&path, &hidden).unwrap();
    place.mount();
    let contents = bytes(5, 3_000_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    assert_eq!(offline_count(&place), 1);
    std::fs::rename(&hidden, &path).unwrap();
    wait_for(|| offline_count(&place) == 0);
    wait_for(|| has_event(&place, "disk_online"));
    assert!(std::fs::read(place.mount_point().join("file")).unwrap() == contents);
    place.umount();
}

#[test]
fn a_disk_that_is_found_again_and_must_wait_for_a_person_is_not_held_meanwhile() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let group = place.ask(["group", "show", "data"]);
    let path = group["disks"][2]["path"].as_str().unwrap().to_owned();
    place.tell(["disk", "offline", "data", "data_0002"]);
    let hidden = place.path("hidden");
    std::fs::rename(&path, &hidden).unwrap();
    place.mount();
    std::fs::rename(&hidden, &path).unwrap();
    // The daemon looks for it at least every ten seconds.
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert_eq!(offline_count(&place), 1);
    let scan = place.ask(["disk", "scan"]);
    let disks = scan["disks"].as_array().unwrap();
    let found = disks.iter().find(|disk| disk["path"] == path.as_str());
    assert_eq!(found.unwrap()["in_use"], false);
    place.tell(["disk", "online", "data", "data_0002"]);
    assert_eq!(offline_count(&place), 0);
    place.umount();
}
