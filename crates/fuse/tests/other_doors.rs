//! Files that change by another door than the mount, while they are mounted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use spindle_base::FileId;
use spindle_fs::{Owner, Time};
use support::in_both_modes;

const ROOT_USER: Owner = Owner { user: 0, group: 0 };
const MOST: Duration = Duration::from_secs(10);
const NOW: Time = Time {
    seconds: 1_700_000_000,
    nanoseconds: 5,
};

#[test]
fn a_name_made_elsewhere_is_seen_although_it_was_missed_before() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("new");
        assert!(!path.exists());
        let name = OsStr::new("new");
        let (_, handle) = mounted
            .file_system
            .create_file(FileId::ROOT, name, 0o644, ROOT_USER, NOW)
            .unwrap();
        mounted
            .file_system
            .write(&handle, 0, b"made elsewhere", false, NOW)
            .unwrap();
        mounted
            .mount()
            .invalidate_entry(FileId::ROOT, b"new")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"made elsewhere");
        let listed = fs::read_dir(&mounted.root).unwrap().count();
        assert_eq!(listed, 1);
    });
}

#[test]
fn a_name_made_elsewhere_that_nobody_looked_up_is_listed_although_the_directory_was_listed_before()
{
    in_both_modes(|mounted| {
        let names = || fs::read_dir(&mounted.root).unwrap().count();
        let modified = || fs::metadata(&mounted.root).unwrap().modified().unwrap();
        // The kernel keeps a listing from the second time on.
        assert_eq!([names(), names()], [0, 0]);
        let before = modified();
        let name = OsStr::new("new");
        (mounted.file_system)
            .create_file(FileId::ROOT, name, 0o644, ROOT_USER, NOW)
            .unwrap();
        mounted
            .mount()
            .invalidate_entry(FileId::ROOT, b"new")
            .unwrap();
        assert_eq!(names(), 1);
        assert_ne!(modified(), before);
    });
}

#[test]
fn bytes_and_size_changed_elsewhere_are_seen_after_the_kernel_is_told() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, b"before").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        let found = mounted
            .file_system
            .lookup(FileId::ROOT, OsStr::new("file"))
            .unwrap();
        let handle = mounted.file_system.open_file(found.id).unwrap();
        mounted
            .file_system
            .write(&handle, 0, b"afterwards", false, NOW)
            .unwrap();
        mounted.mount().invalidate_file(found.id, MOST).unwrap();
        mounted
            .mount()
            .invalidate_entry(FileId::ROOT, b"file")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"afterwards");
        assert_eq!(fs::metadata(&path).unwrap().len(), 10);
    });
}

#[test]
fn telling_the_kernel_of_what_it_does_not_know_is_no_error() {
    in_both_modes(|mounted| {
        mounted
            .mount()
            .invalidate_file(FileId(987_654), MOST)
            .unwrap();
        mounted
            .mount()
            .invalidate_entry(FileId::ROOT, b"unknown")
            .unwrap();
        mounted
            .mount()
            .invalidate_entry(FileId(987_654), b"unknown")
            .unwrap();
    });
}
