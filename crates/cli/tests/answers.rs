//! What commands answer with: structures where they were asked for, times as a person writes them,
//! hints that can be taken literally; and what a mistyped name leaves behind.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, can_mount};

#[test]
fn mount_and_upgrade_answer_with_a_structure_where_one_is_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.text("mount");
    let mounted = place.ask(["mount", "data", &point]);
    assert_eq!(mounted["group"], "data", "{mounted}");
    assert_eq!(mounted["mounts"][0]["directory"], point.as_str());
    assert_eq!(mounted["process_id"], place.process_id());
    let upgraded = place.ask(["upgrade", "data"]);
    assert_eq!(upgraded["group"], "data", "{upgraded}");
    assert_eq!(upgraded["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(upgraded["process_id"], place.process_id());
    place.umount();
    // One that is open already, and mounted then.
    place.tell(["group", "mount", "data"]);
    let mounted = place.ask(["mount", "data", &point]);
    assert_eq!(mounted["mounts"][0]["directory"], point.as_str());
    assert_eq!(mounted["process_id"], place.process_id());
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn sync_umount_and_dismount_answer_with_a_structure_where_one_is_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.text("mount");
    let of = |open: bool| serde_json::json!({"group": "data", "open": open});
    assert_eq!(place.ask(["sync", "DATA"]), of(true));
    let closed = |closed: bool| {
        let directories = [&point];
        serde_json::json!({"group": "data", "directories": directories, "closed": closed})
    };
    assert_eq!(place.ask(["umount", &point]), closed(true));
    assert_eq!(place.ask(["sync", "DATA"]), of(false));
    // One that stays open without a mount.
    place.tell(["group", "mount", "data"]);
    place.mount();
    assert_eq!(place.ask(["umount", "DATA"]), closed(false));
    place.mount();
    assert_eq!(place.ask(["group", "dismount", "DATA"]), closed(true));
    place.mount();
    let wanted = ["did you mean data?", "mounted are"];
    place.refuse(["umount", "dtaa"], 2, &wanted);
    place.umount();
    let refused = place.run(["umount", "DATA", "--json"]);
    let refused: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(refused["kind"], "not_found", "{refused}");
}

#[test]
fn a_name_in_another_case_is_the_same_group_and_makes_no_files_of_its_own() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let names = || {
        let entries = std::fs::read_dir(place.path("run")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    place.mount();
    let as_written = names();
    place.umount();
    let closed = names();
    let point = place.text("mount");
    place.tell(["mount", "DATA", &point]);
    let open: Vec<_> = names()
        .into_iter()
        .filter(|name| name != "data.ended")
        .collect();
    assert_eq!(open, as_written);
    let told = place.tell(["group", "dismount", "dATA"]);
    assert_eq!(told, "data is closed\n");
    assert_eq!(names(), closed);
}

#[test]
fn a_mistyped_name_of_a_group_leaves_nothing_behind() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["group", "dismount", "data"]);
    let names = || {
        let entries = std::fs::read_dir(place.path("run")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let point = place.text("mount");
    for words in [
        vec!["mount", "date", &point],
        vec!["group", "mount", "date"],
    ] {
        place.refuse(&words, 2, &["no group date", "data"]);
        let with = |more: &'static str| words.iter().copied().chain([more]).collect::<Vec<_>>();
        place.refuse(with("--no-keeper"), 2, &["no group date"]);
        place.refuse(with("--foreground"), 2, &["no group date"]);
    }
    assert_eq!(names(), before);
}

#[test]
fn settings_are_shown_as_a_person_writes_them() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let shown = place.tell(["group", "set", "data"]);
    assert!(shown.contains("disk_repair_time  12h\n"), "{shown}");
    assert!(shown.contains("failgroup_repair_time  1d\n"), "{shown}");
    let changes = ["scrub_interval=7d", "disk_repair_time=90s"];
    let shown = place.tell(["group", "set", "data"].iter().chain(&changes));
    assert!(shown.contains("scrub_interval  7d\n"), "{shown}");
    assert!(shown.contains("disk_repair_time  90s\n"), "{shown}");
    let shown = place.ask(["group", "set", "data"]);
    assert_eq!(shown["disk_repair_time_s"], 90, "{shown}");
    assert_eq!(shown["watchdog_s"], 60, "{shown}");
    for wrong in ["watchdog=14s", "watchdog=25h"] {
        place.refuse(["group", "set", "data", wrong], 2, &["15s and 1d"]);
    }
    for wrong in ["watchdog=off", "watchdog=5x"] {
        let refused = place.refuse(["group", "set", "data", wrong], 2, &["30m or 90s"]);
        assert!(!refused.contains("or off"), "{refused}");
    }
    let shown = place.tell(["group", "set", "data", "watchdog=15s"]);
    assert!(shown.contains("watchdog  15s\n"), "{shown}");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn every_kind_of_event_can_be_listed_with_what_it_means() {
    let place = Place::new();
    let listed = place.tell(["events", "--list-kinds"]);
    let line = listed
        .lines()
        .find(|line| line.starts_with("disk_offline "));
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    assert!(
        line.contains("critical") && line.contains("A disk went offline"),
        "{line}"
    );
    let kinds = place.ask(["events", "--list-kinds"]);
    let kinds = kinds.as_array().unwrap();
    assert!(
        kinds.len() > 50 && kinds.len() + 1 == listed.lines().count(),
        "{listed}"
    );
    assert_eq!(kinds[0]["kind"], "group_opened");
    place.refuse(
        ["events", "--kind", "nothing_like_it"],
        2,
        &["--list-kinds"],
    );
}

#[test]
fn the_hint_of_a_search_path_can_be_taken_literally() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let (one, other) = (place.text("one"), place.text("other"));
    let disks = [format!("left={one}:64M"), format!("right={other}:64M")];
    let told = place.tell([
        "disk",
        "add",
        "data",
        "--failgroup",
        &disks[0],
        "--failgroup",
        &disks[1],
    ]);
    let (_, hint) = told.split_once("set SPINDLE_DISKS='").unwrap();
    let (value, _) = hint.split_once('\'').unwrap();
    place.tell(["group", "dismount", "data"]);
    let mut command = place.command(["group", "mount", "data", "--json"]);
    let opened = place::outcome(command.env("SPINDLE_DISKS", value));
    assert_eq!(opened.code, 0, "{value}: {opened:?}");
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["offline_disks_count"], 0, "{group}");
    assert_eq!(group["disks"].as_array().unwrap().len(), 6, "{group}");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_size_that_is_none_is_told_as_one_and_not_as_a_missing_disk() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let path = place.disk("e");
    for size in ["512X", "1,5G", "100", "0x40M"] {
        let wanted = format!("{size:?} is no size");
        let disk = format!("{path}:{size}");
        let with = format!("left={disk}");
        let add = ["disk", "add", "data", "--failgroup", &with];
        if size != "1,5G" {
            place.refuse(add, 2, &[&wanted, "K, M, G or T"]);
        }
        let replace = ["disk", "replace", "data", "data_0000", "--with", &disk];
        place.refuse(replace, 2, &[&wanted, "K, M, G or T"]);
    }
    // A colon in the name of a disk that is there, or is not, is none of that.
    let strange = place.disk("pci-0000:1f.2-part");
    let replace = ["disk", "replace", "data", "data_0000", "--with", &strange];
    place.refuse(replace, 2, &["no such disk"]);
    place.tell(["group", "dismount", "data"]);
}
