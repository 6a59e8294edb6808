//! Mount points that are not there, not empty, no directory, or taken; and no FUSE at all.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::process::Command;

use place::{Place, can_mount, outcome, refused};

#[test]
fn a_mount_point_that_cannot_be_one_is_refused_and_the_group_is_closed_again() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.refuse(
        ["mount", "data", "nowhere"],
        2,
        &["nowhere", "does not exist"],
    );
    std::fs::write(place.path("file"), b"x").unwrap();
    place.refuse(["mount", "data", "file"], 2, &["file", "not a directory"]);
    place.refuse(["mount", "data", "disks"], 2, &["disks", "not empty"]);
    // Requests of more than that are not told apart after a kill.
    std::fs::create_dir(place.path("empty")).unwrap();
    for count in ["0", "257"] {
        let workers = ["mount", "data", "empty", "--workers", count];
        place.refuse(workers, 2, &["1 to 256 workers", count]);
    }
    std::fs::remove_dir(place.path("empty")).unwrap();
    assert_eq!(place.ask(["group", "show", "data"])["state"], "dismounted");
    assert!(place.contents().len() == 4);
    place.mount();
    let point = place.text("mount");
    place.refuse(["mount", "data", &point], 2, &["mount point already"]);
    place.umount();
}

#[test]
fn a_mount_point_that_is_refused_changes_nothing_on_a_group_whose_disk_is_away_for_a_moment() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"x").unwrap();
    let before = place.contents();
    std::fs::rename(place.disk("a"), place.path("a")).unwrap();
    place.refuse(["mount", "data", "nowhere"], 2, &["does not exist"]);
    place.refuse(["mount", "data", "file"], 2, &["not a directory"]);
    place.refuse(["mount", "data", "disks"], 2, &["not empty"]);
    place.refuse(["mount", "data", "/proc"], 2, &["mount point already"]);
    std::fs::rename(place.path("a"), place.disk("a")).unwrap();
    assert!(
        place.contents() == before,
        "a refused mount wrote to a disk"
    );
}

#[test]
fn without_fuse_the_mount_is_refused_and_files_can_still_be_copied() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    // A device that nobody serves, in place of /dev/fuse, in a mount namespace of its own.
    let node = place.text("node");
    let made = outcome(Command::new("mknod").args([&node, "c", "240", "200"]));
    let mut inside = Command::new("unshare");
    inside.args([
        "--mount",
        "sh",
        "-c",
        "mount --bind \"$0\" /dev/fuse && exec \"$@\"",
        &node,
    ]);
    let command = place.command(["mount", "data", "mount"]);
    inside.arg(command.get_program()).args(command.get_args());
    inside.current_dir(place.path(""));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    let refusal = outcome(&mut inside);
    if made.code != 0 || refusal.stderr.contains("unshare") {
        println!("skipped: no mount namespace: {made:?} {refusal:?}");
        return;
    }
    refused(&refusal, 3, &["/dev/fuse", "fuse"]);
    std::fs::write(place.path("file"), b"x").unwrap();
    place.tell(["cp", "file", "data:/file"]);
}
