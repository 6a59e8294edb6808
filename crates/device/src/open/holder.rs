//! Who has a disk that is in use, as far as the kernel tells. Only for messages: nothing is
//! decided by it, except that a file below a loop device is not opened to be written.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{major, minor};

/// Who has the block device number `device`: a mount, swap, or a device on top.
pub(super) fn holder_of_device(device: u64, path: &Path) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    mount_of(&number)
        .map(|point| format!("mounted on {point}"))
        .or_else(|| partition_in_use(&number))
        .or_else(|| swap_on(path))
        .or_else(|| {
            let above = first_name(&format!("/sys/dev/block/{number}/holders"))?;
            Some(format!("part of {above}"))
        })
}

/// Where the device is mounted, from the third and fifth field of mountinfo.
fn mount_of(number: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then_some(())?;
        Some(fields.nth(1)?.replace("\\040", " "))
    })
}

fn partition_in_use(number: &str) -> Option<String> {
    let entries = fs::read_dir(format!("/sys/dev/block/{number}")).ok()?;
    entries.flatten().find_map(|entry| {
        let partition = fs::read_to_string(entry.path().join("dev")).ok()?;
        let point = mount_of(partition.trim())?;
        let name = entry.file_name();
        Some(format!(
            "its partition {} is mounted on {point}",
            name.display()
        ))
    })
}

fn swap_on(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    let is_there = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|device| Path::new(device) == path);
    is_there.then(|| "used for swap".to_owned())
}

fn first_name(folder: &str) -> Option<String> {
    let entry = fs::read_dir(folder).ok()?.next()?.ok()?;
    entry.file_name().into_string().ok()
}

/// Who has the `flock` on this file, from `/proc/locks`.
pub(super) fn holder_of_lock(descriptor: &OwnedFd) -> Option<String> {
    let stat = rustix::fs::fstat(descriptor).ok()?;
    let (device, inode) = (stat.st_dev, stat.st_ino);
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(4);
        let process = fields.next()?;
        (fields.next()? == file).then(|| process.to_owned())
    })?;
    if process == std::process::id().to_string() {
        return Some("locked by this very process".to_owned());
    }
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("locked by process {process} {}", name.trim()))
}

/// The loop device that has this file below it; writing to both would mix the two up.
pub(super) fn loop_device_over(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.starts_with("loop").then_some(())?;
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            (Path::new(backing.trim_end_matches('\n')) == path).then(|| format!("/dev/{name}"))
        })
}
