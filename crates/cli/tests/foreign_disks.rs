//! Disks that hold something of somebody else are refused, named, and left as they are.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use place::{Place, outcome};

/// A file system's or volume's image: made by its own tool where that is installed.
fn image_by_tool(place: &Place, tool: &str, arguments: &[&str], size_bytes: u64) -> Option<String> {
    let path = place.disk("foreign");
    File::create(&path).unwrap().set_len(size_bytes).unwrap();
    let installed = Command::new(tool).arg("-V").output().is_ok();
    if !installed {
        println!("skipped: {tool} is not installed");
        return None;
    }
    let made = outcome(Command::new(tool).args(arguments).arg(&path));
    assert_eq!(made.code, 0, "{made:?}");
    Some(path)
}

#[track_caller]
fn is_refused_by_name(place: &Place, disk: &str, name: &str) {
    let before = place.contents();
    place.refuse(
        [
            "group",
            "create",
            "data",
            "--redundancy",
            "external",
            "--disk",
            disk,
        ],
        2,
        &[disk, name, "--force"],
    );
    assert!(before == place.contents(), "a refusal writes nothing");
    let scan = place.ask(["disk", "scan"]);
    let found = &scan["disks"][0];
    assert_eq!(found["status"], "foreign");
    assert!(found["found"].as_str().unwrap().contains(name), "{found}");
}

#[test]
fn an_ext4_file_system_is_refused() {
    let place = Place::new();
    if let Some(disk) = image_by_tool(&place, "mkfs.ext4", &["-q", "-F"], 32 << 20) {
        is_refused_by_name(&place, &disk, "an ext4 file system");
    }
}

#[test]
fn an_xfs_file_system_is_refused() {
    let place = Place::new();
    if let Some(disk) = image_by_tool(&place, "mkfs.xfs", &["-q", "-f"], 512 << 20) {
        is_refused_by_name(&place, &disk, "an XFS file system");
    }
}

#[test]
fn a_btrfs_file_system_is_refused() {
    let place = Place::new();
    if let Some(disk) = image_by_tool(&place, "mkfs.btrfs", &["-q", "-f"], 256 << 20) {
        is_refused_by_name(&place, &disk, "a btrfs file system");
    }
}

/// Bytes at an offset.
type Piece<'a> = (u64, &'a [u8]);

/// Their tools want real devices; the marks are what their formats document.
#[test]
fn lvm_md_and_asm_are_refused() {
    let size_bytes = 16 << 20;
    let raid = 0xa92b_4efc_u32.to_le_bytes();
    let marks: [(&str, &[Piece<'_>]); 4] = [
        (
            "an LVM physical volume",
            &[(512, b"LABELONE"), (536, b"LVM2 001")],
        ),
        ("a Linux RAID member (md)", &[(4096, &raid)]),
        ("a Linux RAID member (md)", &[(size_bytes - 65_536, &raid)]),
        ("an Oracle ASM disk", &[(32, b"ORCLDISK")]),
    ];
    for (name, pieces) in marks {
        let place = Place::new();
        let disk = place.disk("foreign");
        let file = File::create(&disk).unwrap();
        file.set_len(size_bytes).unwrap();
        for (offset_bytes, bytes) in pieces {
            file.write_all_at(bytes, *offset_bytes).unwrap();
        }
        is_refused_by_name(&place, &disk, name);
    }
}
