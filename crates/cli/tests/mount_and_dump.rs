//! A group is mounted, used, looked at from beside the mount, unmounted, and dumped.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::MetadataExt;

use place::{Place, bytes, can_mount, is_mounted};

#[test]
fn what_was_written_through_the_mount_is_seen_beside_it_and_in_the_dump() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    assert!(is_mounted(&point));
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["state"], "mounted");
    assert_eq!(group["mounts"][0]["directory"], point.display().to_string());

    let contents = bytes(3, 3_000_000);
    std::fs::create_dir(point.join("directory")).unwrap();
    std::fs::write(point.join("directory/file"), &contents).unwrap();
    // Through the daemon, not the mount: what the page cache holds must be written back first.
    place.tell(["cp", "data:/directory/file", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == contents);
    let stat = place.ask(["stat", "data:/directory/file"]);
    assert_eq!(stat["size_bytes"], 3_000_000);

    // And the other way: a file that the daemon replaced is a new one in the mount at once.
    assert_eq!(
        std::fs::read(point.join("directory/file")).unwrap().len(),
        3_000_000
    );
    std::fs::write(place.path("new"), b"new contents").unwrap();
    place.tell(["cp", "new", "data:/directory/file"]);
    assert_eq!(
        std::fs::read(point.join("directory/file")).unwrap(),
        b"new contents"
    );
    place.tell(["cp", "new", "data:/directory/other"]);
    assert_eq!(
        std::fs::read(point.join("directory/other")).unwrap(),
        b"new contents"
    );

    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
    place.refuse(["dump", "data"], 2, &["open", "dismount"]);

    let process_id = place.process_id();
    place.umount();
    assert!(!is_mounted(&point));
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat"));
    assert!(
        stat.is_err() || stat.unwrap().contains(") Z "),
        "umount waits until the process has ended"
    );
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["state"], "dismounted");

    let dump = place.ask(["dump", "data"]);
    assert_eq!(dump["disks"].as_array().unwrap().len(), 4);
    let label = &dump["disks"][0]["labels"][0]["contents"];
    assert_eq!(label["group_name"], "data");
    let tables = dump["catalog"]["tables"].as_array().unwrap();
    let names = tables.iter().find(|table| table["name"] == "name").unwrap();
    let rows = names["rows"].as_array().unwrap();
    assert!(
        rows.iter().any(|row| row["key"] == "1/directory"),
        "{names}"
    );
    let events = place.ask(["events", "data"]);
    let last = events.as_array().unwrap().last().unwrap();
    assert_eq!(last["text"], "closed");
}

#[test]
fn who_asks_on_a_mount_for_the_links_of_a_file_sees_that_a_command_took_one_of_its_names() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let links = |name: &str| std::fs::metadata(place.path(name)).unwrap().nlink();
    let link = |name: &str, other: &str| {
        std::fs::hard_link(place.path(name), place.path(other)).unwrap();
        assert_eq!(links(other), 2);
    };
    place.tell(["volume", "create", "data:/volume", "--size", "1M"]);
    link("mount/volume", "mount/same");
    place.tell(["volume", "drop", "data:/volume", "--yes"]);
    assert_eq!(links("mount/same"), 1);

    let (one, other) = (place.path("mount/a"), place.path("mount/b"));
    std::fs::write(&one, b"before").unwrap();
    link("mount/a", "mount/b");
    std::fs::write(place.path("new"), b"after").unwrap();
    place.tell(["cp", "new", "data:/a"]);
    assert_eq!(links("mount/b"), 1);
    assert_eq!(std::fs::read(&one).unwrap(), b"after");
    assert_eq!(std::fs::read(&other).unwrap(), b"before");
    place.umount();
}

#[test]
fn a_served_group_has_one_mount_and_stays_when_it_was_opened_to_stay() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let process_id = place.process_id();
    std::fs::create_dir(place.path("second")).unwrap();
    place.mount();
    place.refuse(
        ["mount", "data", "second", "--direct"],
        2,
        &["is mounted on", "already", "mount --bind"],
    );
    assert_eq!(place.process_id(), process_id, "one process a group");
    place.umount();
    place.tell(["mount", "data", "second", "--direct"]);
    std::fs::write(place.path("second/file"), b"one").unwrap();
    place.tell(["umount", "second"]);
    place.mount();
    assert_eq!(
        std::fs::read(place.mount_point().join("file")).unwrap(),
        b"one"
    );
    place.umount();
    assert_eq!(place.ask(["group", "show", "data"])["state"], "mounted");
    place.refuse(["group", "mount", "data"], 2, &["open already", "process"]);
    place.refuse(["group", "destroy", "data", "--yes"], 2, &["dismount data"]);
    place.refuse(["group", "rename", "data", "other"], 2, &["dismount data"]);
    place.tell(["group", "dismount", "data"]);
    assert_eq!(place.ask(["group", "show", "data"])["state"], "dismounted");
}

#[test]
fn iostat_shows_the_disks_and_the_files_that_are_busy() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::create_dir(place.mount_point().join("directory")).unwrap();
    let path = place.mount_point().join("directory/busy");
    std::fs::write(place.mount_point().join("idle"), b"x").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::write(&path, bytes(11, 1 << 20)).unwrap();
                std::fs::File::open(&path).unwrap().sync_all().unwrap();
            }
        });
        let report = place.ask(["iostat", "data", "--count", "1", "--interval", "1"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        report
    });
    let disks = report["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 4);
    let written: f64 = disks
        .iter()
        .map(|disk| disk["written_bytes_per_s"].as_f64().unwrap())
        .sum();
    assert!(written > 1_000_000.0, "{report}");
    assert!(
        disks
            .iter()
            .any(|disk| disk["write_latency_us"].as_f64() > Some(0.0)),
        "{report}"
    );
    let busy = &report["files"][0];
    assert_eq!(busy["name"], "/directory/busy", "{report}");
    assert!(busy["writes_per_s"].as_f64() > Some(0.0), "{report}");
    assert!(busy["write_latency_us"].as_f64() > Some(0.0), "{report}");
    place.umount();
}

#[test]
fn a_mount_in_use_is_not_taken_away() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let open = std::fs::File::create(place.mount_point().join("file")).unwrap();
    let point = place.text("mount");
    place.refuse(["umount", &point], 2, &["in use"]);
    place.refuse(["group", "dismount", "data"], 2, &["in use"]);
    drop(open);
    place.umount();
}

#[test]
fn a_disk_that_is_pulled_goes_offline_and_the_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(4, 2_000_000);
    std::fs::write(place.mount_point().join("before"), &contents).unwrap();
    place.refuse(
        ["fault", "pull", "data", "data_0009"],
        2,
        &["data_0009", "did you mean"],
    );
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.mount_point().join("after"), &contents).unwrap();
    let file = std::fs::File::open(place.mount_point().join("after")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["offline_disks_count"], 1);
    assert_eq!(group["disks"][1]["mode"], "offline");
    assert!(std::fs::read(place.mount_point().join("before")).unwrap() == contents);
    let events = place.tell(["events", "data"]);
    assert!(events.contains("goes offline"), "{events}");
    place.umount();
}
