//! What the rule of the packages tells udev of a device.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use place::Place;
use spindle_format::LABEL_PLACES;

#[test]
fn udev_is_told_of_disks_of_groups_and_of_nothing_else() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("a");
    let told = place.tell(["udev", &disk]);
    for property in [
        "ID_FS_TYPE=spindle_member",
        "ID_FS_USAGE=raid",
        "ID_FS_LABEL=data",
        "SPINDLE_GROUP=data",
        "SPINDLE_FAILURE_GROUP=left",
    ] {
        assert!(
            told.lines().any(|line| line == property),
            "{property}: {told}"
        );
    }
    let identity = |told: &str| {
        let lines = told.lines().filter(|line| line.starts_with("ID_FS_UUID="));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let other = place.tell(["udev", &place.disk("c")]);
    assert_eq!(identity(&told), identity(&other), "one group");
    assert_ne!(told, other, "two disks");
    // The second copy tells too.
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 4096], LABEL_PLACES[0]).unwrap();
    assert_eq!(place.tell(["udev", &disk]), told);
    file.write_all_at(&[0; 4096], LABEL_PLACES[1]).unwrap();
    assert_eq!(place.tell(["udev", &disk]), "");
    // A disk that its group has let go is free.
    place.tell([
        "group",
        "create",
        "other",
        "--redundancy",
        "external",
        "--file-disk",
        &format!("{}:64M", place.disk("x")),
    ]);
    assert_ne!(place.tell(["udev", &place.disk("x")]), "");
    place.tell(["group", "destroy", "other", "--yes"]);
    for nothing in [
        place.disk("x"),
        "/dev/null".to_owned(),
        "/etc/hostname".to_owned(),
    ] {
        assert_eq!(place.tell(["udev", &nothing]), "", "{nothing}");
    }
    place.refuse(["udev", &place.disk("none")], 2, &["none"]);
}

/// The image by which the patch for libblkid is tried, and what that says of it.
#[test]
fn udev_is_told_what_the_patched_libblkid_says() {
    let place = Place::new();
    let patch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/libblkid");
    let image = place.disk("image");
    let unpacked = Command::new("gzip")
        .arg("-dc")
        .arg(patch.join("member.img.gz"))
        .stdout(std::fs::File::create(&image).unwrap())
        .status();
    assert!(unpacked.unwrap().success());
    let told = place.tell(["udev", &image]);
    let mut told: Vec<&str> = (told.lines())
        .filter(|line| line.starts_with("ID_FS"))
        .collect();
    told.sort_unstable();
    let expected = std::fs::read_to_string(patch.join("member.expected")).unwrap();
    assert_eq!(told, expected.lines().collect::<Vec<_>>());
}
