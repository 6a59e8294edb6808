//! What a program's calls cost in requests: each is two switches between processes, so one that
//! need not be asked must not be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use spindle_fuse::{Counters, Opcode};
use support::Mounted;

/// `O_DSYNC` alone; the library's name means `O_SYNC`.
const KERNELS_O_DSYNC: i32 = 0o10_000;

/// How many requests of each kind `work` causes.
fn requests(counters: &Counters, work: impl FnOnce()) -> Vec<(Opcode, u64)> {
    let before = counters.requests();
    work();
    let count_before = |opcode| {
        let found = before.iter().find(|request| request.opcode == opcode);
        found.map_or(0, |request| request.count)
    };
    counters
        .requests()
        .into_iter()
        .map(|request| (request.opcode, request.count - count_before(request.opcode)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn existing_file(mounted: &Mounted, flags: i32) -> File {
    let path = mounted.root.join("log");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&path)
        .unwrap()
}

fn commit_100_times(file: &File) {
    for block in 0..100 {
        file.write_all_at(&[1; 8192], block * 8192).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
fn a_commit_on_a_direct_mount_costs_a_write_and_a_sync() {
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    let file = existing_file(&mounted, 0);
    file.write_all_at(&[1; 8192], 0).unwrap();
    let mut found = requests(mounted.mount().counters(), || commit_100_times(&file));
    // The release of the handle that made the file may still be on its way.
    found.retain(|(opcode, _)| *opcode != Opcode::Release);
    assert_eq!(found, [(Opcode::Write, 100), (Opcode::Fsync, 100)]);
}

#[test]
fn a_commit_by_a_synchronous_write_on_a_direct_mount_costs_one_request() {
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    let file = existing_file(&mounted, KERNELS_O_DSYNC);
    file.write_all_at(&[1; 8192], 0).unwrap();
    let found = requests(mounted.mount().counters(), || {
        for block in 0..100 {
            file.write_all_at(&[1; 8192], block * 8192).unwrap();
        }
    });
    assert_eq!(found, [(Opcode::Write, 100)]);
}

#[test]
fn a_commit_on_a_cached_mount_costs_a_write_and_a_sync() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    let file = existing_file(&mounted, 0);
    file.write_all_at(&[1; 8192], 0).unwrap();
    let mut found = requests(mounted.mount().counters(), || commit_100_times(&file));
    // The release of the handle that made the file may still be on its way.
    found.retain(|(opcode, _)| *opcode != Opcode::Release);
    assert_eq!(found, [(Opcode::Write, 100), (Opcode::Fsync, 100)]);
}

#[test]
fn what_the_cache_holds_costs_nothing_to_read_again() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    let file = existing_file(&mounted, 0);
    let mut block = [0; 8192];
    file.read_exact_at(&mut block, 0).unwrap();
    let mut read_all = || {
        requests(mounted.mount().counters(), || {
            for number in 0..128 {
                file.read_exact_at(&mut block, number * 8192).unwrap();
            }
        })
    };
    // A kernel that is short of memory may have taken a page away between writing and reading;
    // whatever it took is held again after the first time.
    read_all();
    assert_eq!(read_all(), []);
}

#[test]
fn names_and_attributes_that_the_kernel_knows_are_not_asked_again() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    let present = mounted.root.join("present");
    let absent = mounted.root.join("absent");
    fs::write(&present, b"x").unwrap();
    let look = || {
        assert!(fs::metadata(&present).is_ok());
        assert!(fs::metadata(&absent).is_err());
    };
    look();
    let found = requests(mounted.mount().counters(), || (0..100).for_each(|_| look()));
    assert_eq!(found, []);
}

#[test]
fn opening_and_closing_costs_one_request_each() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    let path = mounted.root.join("file");
    fs::write(&path, b"x").unwrap();
    // A release is on its way when its close returns.
    let settle = || std::thread::sleep(std::time::Duration::from_millis(100));
    drop(File::open(&path).unwrap());
    settle();
    let found = requests(mounted.mount().counters(), || {
        for _ in 0..100 {
            drop(File::open(&path).unwrap());
        }
        settle();
    });
    assert_eq!(found, [(Opcode::Open, 100), (Opcode::Release, 100)]);
}
