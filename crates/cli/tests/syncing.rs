//! What is durable after `spindle sync`, and some time after sync(1).
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::process::Command;
use std::time::Duration;

use place::{Place, bytes, can_mount, outcome};

/// Copies the disks as they are in this moment. A power cut would leave no more than what is on
/// them: the daemon writes past the page cache.
fn cut_the_power(place: &Place, into: &Place) {
    for (path, contents) in place.contents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::write(into.disk(&name), contents).unwrap();
    }
}

#[test]
fn a_sync_by_command_is_durable_when_it_returns() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    // A closed group has nothing to be written.
    assert!(place.tell(["sync", "data"]).contains("not open"));
    place.refuse(["sync", "nothing"], 2, &["nothing"]);
    place.mount();
    let contents = bytes(3, 3_000_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    assert!(place.tell(["sync", "data"]).contains("durable"));
    let after = Place::new();
    cut_the_power(&place, &after);
    // The copies name the process that had them, which must be gone.
    place.umount();
    after.mount();
    let back = std::fs::read(after.mount_point().join("file")).unwrap();
    assert!(back == contents);
    after.umount();
}

#[test]
fn a_sync_of_the_kernels_is_durable_soon_after() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(4, 100_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    let synced = outcome(Command::new("sync").arg("-f").arg(place.mount_point()));
    assert_eq!(synced.code, 0, "{synced:?}");
    // Half a second, and as much again for a busy machine; without it 5 to 8 s.
    std::thread::sleep(Duration::from_millis(1500));
    let after = Place::new();
    cut_the_power(&place, &after);
    // The copies name the process that had them, which must be gone.
    place.umount();
    after.mount();
    let back = std::fs::read(after.mount_point().join("file")).unwrap();
    assert!(back == contents);
    after.umount();
}
