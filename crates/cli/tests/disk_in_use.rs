//! A disk that somebody has is refused, with who has it, and left as it is.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::process::Command;

use place::{Place, can_mount, outcome};

#[test]
fn a_disk_of_an_open_group_is_not_taken_even_by_force() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let disk = place.disk("a");
    let words = [
        "group",
        "create",
        "other",
        "--redundancy",
        "external",
        "--disk",
        &disk,
    ];
    place.refuse(words, 2, &[&disk, "data", "--force"]);
    place.refuse(words.into_iter().chain(["--force"]), 2, &[&disk, "in use"]);
    place.tell(["group", "dismount", "data"]);
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}

#[test]
fn a_file_that_another_program_has_locked_is_refused() {
    let place = Place::new();
    let disk = place.disk("a");
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    file.lock().unwrap();
    let words = [
        "group",
        "create",
        "data",
        "--redundancy",
        "external",
        "--disk",
        &disk,
    ];
    place.refuse(words, 2, &[&disk, "in use"]);
    assert_eq!(place.ask(["disk", "scan"])["disks"][0]["in_use"], true);
    drop(file);
    place.tell(words);
}

#[test]
fn a_mounted_device_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.text("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let made = outcome(Command::new("mkfs.ext4").args(["-q", "-F", &image]));
    if made.code != 0 {
        println!("skipped: no mkfs.ext4: {made:?}");
        return;
    }
    let mounted = outcome(Command::new("mount").args(["-o", "loop", &image, &place.text("mount")]));
    if mounted.code != 0 {
        println!("skipped: no loop device: {mounted:?}");
        return;
    }
    let found =
        outcome(Command::new("losetup").args(["--noheadings", "--output", "NAME", "-j", &image]));
    let device = found.stdout.trim().to_owned();
    let words = [
        "group",
        "create",
        "data",
        "--redundancy",
        "external",
        "--force",
        "--disk",
        &device,
    ];
    let refusal = place.run(words);
    let below = place.run([
        "group",
        "create",
        "data",
        "--redundancy",
        "external",
        "--force",
        "--disk",
        &image,
    ]);
    outcome(Command::new("umount").arg(place.mount_point()));
    place::refused(&refusal, 2, &[&device, "in use"]);
    place::refused(&below, 2, &[&image, "in use"]);
    let whole = outcome(Command::new("fsck.ext4").args(["-n", "-f", &image]));
    assert_eq!(whole.code, 0, "{whole:?}");
}

/// One of several block devices over one file, as a disk with two paths looks.
struct PathTo(String);

impl PathTo {
    fn new(image: &str) -> Option<Self> {
        let made = outcome(Command::new("losetup").args(["--find", "--show", image]));
        if made.code != 0 {
            println!("skipped: no loop device: {made:?}");
            return None;
        }
        Some(Self(made.stdout.trim().to_owned()))
    }
}

impl Drop for PathTo {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn two_paths_to_one_disk_make_no_group_and_do_not_join_as_two() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.text("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (Some(one), Some(other)) = (PathTo::new(&image), PathTo::new(&image)) else {
        return;
    };
    let why = [
        "are one disk",
        one.0.as_str(),
        other.0.as_str(),
        "multipath",
    ];
    place.refuse(
        [
            "group", "create", "twice", "--disk", &one.0, "--disk", &other.0,
        ],
        3,
        &why,
    );
    place.create_group();
    place.mount();
    let adding = ["disk", "add", "data", "--disk", &one.0, "--disk", &other.0];
    place.refuse(adding, 3, &why);
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["disks"].as_array().unwrap().len(), 4, "{group}");
    // Nothing stands on it that says so.
    place.tell(["disk", "add", "data", "--disk", &one.0]);
    place.umount();
}
