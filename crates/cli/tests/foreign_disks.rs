//! Disks that hold something of somebody else are refused, named, and left as they are.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// `pvcreate` writes little more than this.
#[test]
fn a_member_that_became_a_physical_volume_is_named_and_left_as_it_is() {
    let place = Place::new();
    place.create_group();
    let disk = place.disk("a");
    let file = File::options().write(true).open(&disk).unwrap();
    let mut block = [0; 4096];
    block[512..520].copy_from_slice(b"LABELONE");
    block[536..544].copy_from_slice(b"LVM2 001");
    file.write_all_at(&block, 0).unwrap();
    let before = std::fs::read(&disk).unwrap();
    let format = "an LVM physical volume";
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][0]["status"], "foreign");
    let found = scan["disks"][0]["found"].as_str().unwrap();
    assert!(
        found.contains(format) && found.contains("data_0000"),
        "{found}"
    );
    place.tell(["group", "mount", "data"]);
    let told = place.tell(["events", "data"]);
    assert!(told.contains(format) && told.contains(&disk), "{told}");
    place.refuse(["disk", "online", "data", "data_0000"], 2, &[&disk, format]);
    place.tell(["group", "dismount", "data"]);
    assert!(std::fs::read(&disk).unwrap() == before);
    // Where the others do not suffice that is said too.
    std::fs::rename(place.disk("c"), place.path("c")).unwrap();
    place.refuse(["group", "mount", "data"], 3, &[&disk, format]);
}

/// A pool that was used for a while has written each of its uberblocks.
#[test]
fn a_disk_that_was_taken_from_a_pool_of_zfs_is_repaired_when_its_label_is_damaged() {
    let place = Place::new();
    let size_bytes = 16 << 20;
    let taken = place.disk("a");
    let file = File::create_new(&taken).unwrap();
    file.set_len(size_bytes).unwrap();
    let label = 256 << 10;
    for start in [0, label, size_bytes - 2 * label, size_bytes - label] {
        for place in (start + label / 2..start + label).step_by(1024) {
            let magic = 0x00ba_b10c_u32.to_le_bytes();
            file.write_all_at(&magic, place).unwrap();
        }
    }
    is_refused_by_name(&place, &taken, "a ZFS pool member");
    let other = place.disk("b");
    let other_file = File::create(&other).unwrap();
    other_file.set_len(size_bytes).unwrap();
    let words = "group create data --redundancy normal --force --disk";
    let words = words.split(' ').chain([&*taken, "--disk", &other]);
    place.tell(words);
    let front = || std::fs::read(&taken).unwrap()[..4096].to_vec();
    let whole = front();
    file.write_all_at(&[0; 512], 0).unwrap();
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][0]["status"], "member", "{scan}");
    place.tell(["group", "mount", "data"]);
    place.tell(["group", "dismount", "data"]);
    assert!(front() == whole);
    let everything = std::fs::read(&taken).unwrap();
    let is_left = |at: usize| everything[at..at + 4] == 0x00ba_b10c_u32.to_le_bytes();
    assert!(!(0..everything.len()).step_by(1024).any(is_left));
}

#[test]
fn a_plain_file_that_holds_anything_is_no_disk_until_that_is_said() {
    let place = Place::new();
    place.create_group();
    let archive = place.disk("precious.tar");
    let file = File::create(&archive).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"the last backup", 40 << 20).unwrap();
    let before = place.contents();
    let wanted = [archive.as_str(), "unknown data", "--force"];
    let create = ["group", "create", "other", "--redundancy", "external"];
    let with = |words: &[&str]| {
        let mut all: Vec<String> = words.iter().map(ToString::to_string).collect();
        all.extend(["--disk".to_owned(), archive.clone()]);
        all
    };
    place.refuse(with(&create), 2, &wanted);
    let add = ["disk", "add", "data"];
    place.refuse(with(&add), 2, &wanted);
    place.tell(["group", "mount", "data"]);
    place.refuse(with(&add), 2, &wanted);
    place.tell(["group", "dismount", "data"]);
    let scanned = |disk: &str| {
        let scan = place.ask(["disk", "scan"]);
        let disks = scan["disks"].as_array().unwrap().clone();
        let is_it = |found: &&serde_json::Value| found["path"] == disk;
        let found = disks.iter().find(is_it).unwrap().clone();
        (found["status"].clone(), found["found"].clone())
    };
    let (status, found) = scanned(&archive);
    assert_eq!(status, "foreign");
    let text = found.as_str().unwrap();
    assert!(text.contains("unknown data"), "{text}");
    let after = place.contents();
    let of_archive = |all: &[(std::path::PathBuf, Vec<u8>)]| {
        let is_it = |(path, _): &&(std::path::PathBuf, Vec<u8>)| path.ends_with("precious.tar");
        all.iter().find(is_it).unwrap().1.clone()
    };
    assert!(
        of_archive(&before) == of_archive(&after),
        "nothing was written"
    );
    // Holes and zeros are nothing; and who says so may have the file.
    let empty = place.disk("empty");
    let file = File::create(&empty).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[0; 1 << 20], 20 << 20).unwrap();
    assert_eq!(scanned(&empty).0, "candidate");
    let external = ["--redundancy", "external", "--disk"];
    place.tell([&["group", "create", "one"], &external[..], &[&empty]].concat());
    place.tell(
        [
            &["group", "create", "two", "--force"],
            &external[..],
            &[&archive],
        ]
        .concat(),
    );
}

#[test]
fn a_file_whose_bytes_the_kernel_has_not_written_back_is_no_disk_either() {
    if !place::can_mount() {
        return;
    }
    let place = Place::new();
    place.tell([
        "group",
        "create",
        "data",
        "--redundancy",
        "external",
        "--file-disk",
        &format!("{}:256M", place.disk("a")),
    ]);
    place.mount();
    let archive = place.mount_point().join("precious.tar");
    let file = File::create(&archive).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"the last backup", 40 << 20).unwrap();
    // Asked before anybody else has opened it, and had it written back thereby.
    let found = spindle_control::look_for_data(&archive, u64::MAX).unwrap();
    let offset_bytes = 40 << 20;
    assert_eq!(found, spindle_control::Contents::Data { offset_bytes });
    file.write_all_at(b"the last backup", 41 << 20).unwrap();
    let archive = archive.display().to_string();
    let create = ["group", "create", "other", "--redundancy", "external"];
    place.refuse(
        create.into_iter().chain(["--disk", &archive]),
        2,
        &["precious.tar", "unknown data", "--force"],
    );
    drop(file);
    place.umount();
}

#[test]
fn of_two_groups_that_are_made_of_one_disk_at_once_one_is_there_and_whole() {
    let place = Place::new();
    let disk = place.disk("both");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    // Written zeros, which whoever takes the file reads to its end.
    let zeros = place.disk("zeros");
    let mut file = File::create(&zeros).unwrap();
    for _ in 0..1536 {
        file.write_all(&vec![0; 1 << 20]).unwrap();
    }
    drop(file);
    let external = ["--redundancy", "external"];
    let mut slow = place.command(["group", "create", "slow", "--disk", &disk, "--disk", &zeros]);
    let slow = slow
        .args(external)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    let slow = slow.spawn().unwrap();
    // It has looked at the first one, and reads the second.
    std::thread::sleep(Duration::from_millis(150));
    let mut quick = place.command(["group", "create", "quick", "--disk", &disk]);
    let quick = place::outcome(quick.args(external));
    let slow = slow.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&slow.stderr);
    assert!(
        slow.status.success() != (quick.code == 0),
        "{said} {quick:?}"
    );
    let groups = place.ask(["group", "list"]);
    assert_eq!(groups.as_array().unwrap().len(), 1, "{groups}");
    let name = if quick.code == 0 {
        assert!(said.contains("another disk than a moment ago"), "{said}");
        "quick"
    } else {
        "slow"
    };
    let check = place.ask(["group", "check", name]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
}
