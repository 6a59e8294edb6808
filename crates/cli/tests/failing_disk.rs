//! A disk that fails what a command needs: which file, extent and disk it was is told in fields.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use place::{Place, bytes, can_mount};
use serde_json::Value;

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// A small file system of its own for a disk that is a file; unmounted however the story ends.
struct Ground {
    point: PathBuf,
}

impl Ground {
    fn new(place: &Place) -> Option<Self> {
        let point = place.path("ground");
        std::fs::create_dir(&point).unwrap();
        let at = point.display().to_string();
        if !succeeds("mount", &["-t", "tmpfs", "-o", "size=160m", "tmpfs", &at]) {
            println!("skipped: no tmpfs can be mounted here");
            return None;
        }
        Some(Self { point })
    }

    fn text(&self, name: &str) -> String {
        self.point.join(name).display().to_string()
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.text("filler")).unwrap();
        let piece = vec![1; 1 << 20];
        let full = (0..200).find_map(|_| filler.write_all(&piece).err());
        assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        succeeds("umount", &["-l", &self.point.display().to_string()]);
    }
}

/// The answer of the daemon to a file that is put into the group.
fn put(place: &Place, path: &str, content: &[u8]) -> Value {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let head = format!(
        "PUT /files/content?path={path} HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // It may answer before it has read everything.
    let _ = stream.write_all(content);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The daemon's answer has the text and beside it where it was.
#[track_caller]
fn tells_where(failed: &Value, path: &str) {
    let context = &failed["context"];
    assert_eq!(context["operation"], "write", "{failed}");
    assert_eq!(context["subject"], path, "{failed}");
    assert_eq!(context["disk"], 0, "{failed}");
    let message = failed["message"].as_str().unwrap();
    let (extent, file) = (&context["extent"], &context["file"]);
    let told = format!("no copy of extent {extent} of file {file} took a write");
    assert!(message.contains(&told), "{failed}");
    assert_eq!(failed["causes"][0], told, "the cause is told apart");
    let offset_bytes = context["offset_bytes"].as_u64().unwrap();
    assert!(offset_bytes < 4 << 20, "{failed}");
}

/// A group of one disk on a file system of its own, which gives room for no more than the disk's first
/// 30 MiB once that is [full](Ground::fill).
fn create_with_hole(place: &Place) -> Option<Ground> {
    let ground = Ground::new(place)?;
    let disk = ground.text("disk");
    let with_size = format!("{disk}:96M");
    std::os::unix::fs::symlink(&disk, place.disk("a")).unwrap();
    let of_one_copy = ["group", "create", "data", "--redundancy", "external"];
    place.tell([&of_one_copy[..], &["--file-disk", &with_size]].concat());
    // Behind its structures the disk has no room in the file system below.
    let (hole, length) = ((30_u64 << 20).to_string(), (60_u64 << 20).to_string());
    let punch = ["--punch-hole", "-o", &hole, "-l", &length, &disk];
    if !succeeds("fallocate", &punch) {
        println!("skipped: no hole can be punched here");
        return None;
    }
    Some(ground)
}

#[test]
fn a_write_that_a_disk_fails_is_told_with_file_extent_place_and_disk_in_fields() {
    let place = Place::new();
    let Some(ground) = create_with_hole(&place) else {
        return;
    };
    place.tell(["group", "mount", "data"]);
    let head = bytes(1, 30 << 20);
    std::fs::write(place.path("large"), &head).unwrap();
    place.tell(["cp", "large", "data:/large"]);
    ground.fill();

    let content = bytes(2, 4 << 20);
    std::fs::write(place.path("small"), &content).unwrap();
    let failed = place.run(["cp", "small", "data:/small", "--json"]);
    assert_eq!(failed.code, 3, "{failed:?}");
    tells_where(
        &serde_json::from_str(&failed.stderr).unwrap(),
        "data:/small",
    );
    tells_where(&put(&place, "/other", &content[..64 << 10]), "data:/other");
    std::fs::remove_file(ground.text("filler")).unwrap();
    place.tell(["cp", "small", "data:/small"]);
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_handover_leaves_what_it_cannot_write_to_the_next_process_and_is_no_death() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(ground) = create_with_hole(&place) else {
        return;
    };
    place.mount();
    let former = place.process_id();
    std::fs::write(place.mount_point().join("large"), bytes(1, 30 << 20)).unwrap();
    place.tell(["sync", "data"]);
    ground.fill();
    let content = bytes(2, 1 << 20);
    let file = place.mount_point().join("small");
    std::fs::write(&file, &content).unwrap();
    place.tell(["upgrade", "data"]);
    assert_ne!(place.process_id(), former);
    assert!(std::fs::read(&file).unwrap() == content);
    let log = std::fs::read_to_string(place.path("run/data.log")).unwrap();
    assert!(!log.contains("the process that served data died"), "{log}");
    assert!(
        log.contains("leaves to the next one"),
        "all was written: {log}"
    );
    std::fs::remove_file(ground.text("filler")).unwrap();
    // The failure is told once, and what waited is written.
    place.refuse(["sync", "data"], 3, &["data:/small took a write"]);
    place.tell(["sync", "data"]);
    place.umount();
    place.mount();
    assert!(std::fs::read(&file).unwrap() == content);
    place.umount();
}
