//! Where copies of a file lie on the disks of a story, damage that is planted there past
//! everything, and what a scrub makes of it.

use std::os::unix::fs::{FileExt, PermissionsExt};

use serde_json::Value;

use super::Place;

/// A group with room for a cluster, mounted; the user of a database may go in.
pub fn room() -> Place {
    let place = Place::new();
    let anybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("."), anybody).unwrap();
    let disk = |name: &str| format!("{}:256M", place.disk(name));
    place.tell([
        "group".to_owned(),
        "create".to_owned(),
        "data".to_owned(),
        "--failgroup".to_owned(),
        format!("left={},{}", disk("a"), disk("b")),
        "--failgroup".to_owned(),
        format!("right={},{}", disk("c"), disk("d")),
    ]);
    place.mount();
    place
}

/// Where a copy of a byte of a file lies: the disk's name, its path, and the offset.
pub fn spot(place: &Place, path: &str, offset_bytes: u64, copy: usize) -> (String, String, u64) {
    let map = place.ask(["map", &format!("data:{path}")]);
    let extents = map["extents"].as_array().unwrap();
    let extent = extents
        .iter()
        .rev()
        .find(|extent| extent["offset_bytes"].as_u64().unwrap() <= offset_bytes)
        .unwrap();
    let inside = offset_bytes - extent["offset_bytes"].as_u64().unwrap();
    let copy = &extent["copies"][copy];
    let group = place.ask(["group", "show", "data"]);
    let disks = group["disks"].as_array().unwrap();
    let disk = disks.iter().find(|disk| disk["number"] == copy["disk"]);
    (
        copy["disk_name"].as_str().unwrap().to_owned(),
        disk.unwrap()["path"].as_str().unwrap().to_owned(),
        copy["offset_bytes"].as_u64().unwrap() + inside,
    )
}

pub fn bytes_at(path: &str, offset_bytes: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    let disk = std::fs::File::open(path).unwrap();
    disk.read_exact_at(&mut bytes, offset_bytes).unwrap();
    bytes
}

/// Flips bits on the disk, past everything; what stood there.
pub fn damage(path: &str, offset_bytes: u64) -> [u8; 64] {
    let before = bytes_at(path, offset_bytes);
    let mut damaged = before;
    damaged[7] ^= 0x10;
    damaged[40] ^= 0x81;
    let disk = std::fs::File::options().write(true).open(path).unwrap();
    disk.write_all_at(&damaged, offset_bytes).unwrap();
    disk.sync_all().unwrap();
    before
}

pub fn findings(report: &Value) -> Vec<(String, String)> {
    let all = report["findings"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.iter()
        .map(|one| (text(&one["kind"]), text(&one["path"])))
        .collect()
}

pub fn scrub(place: &Place, target: &str, more: &[&str], code: i32) -> Value {
    let words = ["scrub", target, "--wait", "--power", "1024", "--json"];
    let outcome = place.run(words.iter().chain(more));
    assert_eq!(outcome.code, code, "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Writes on a disk, past everything, what it would have if it had kept back each write to this
/// range of the file since then; the disk's name.
pub fn keep_back(
    place: &Place,
    path: &str,
    offset_bytes: u64,
    older: &[u8],
    copy: usize,
) -> String {
    let mut name = String::new();
    for (at, block) in (offset_bytes..).step_by(4096).zip(older.chunks(4096)) {
        let (disk_name, disk_path, disk_offset_bytes) = spot(place, path, at, copy);
        let disk = std::fs::File::options().write(true).open(disk_path);
        disk.unwrap()
            .write_all_at(block, disk_offset_bytes)
            .unwrap();
        name = disk_name;
    }
    name
}

/// What a copy of this range of the file holds on its disk.
pub fn on_disk(
    place: &Place,
    path: &str,
    offset_bytes: u64,
    length_bytes: usize,
    copy: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; length_bytes];
    for (at, block) in (offset_bytes..).step_by(4096).zip(bytes.chunks_mut(4096)) {
        let (_, disk_path, disk_offset_bytes) = spot(place, path, at, copy);
        let disk = std::fs::File::open(disk_path).unwrap();
        disk.read_exact_at(block, disk_offset_bytes).unwrap();
    }
    bytes
}
