//! Writes that are to be durable when they return, however a program asks for it: counted at the
//! disks, where nothing can pretend.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::io::{ReadWriteFlags, pwritev2};
use spindle_fs::TemplateCaching;
use support::Mounted;

/// `O_DSYNC` and `O_SYNC` as the kernel has them. Not a library's names: one that calls `O_DSYNC`
/// what is `O_SYNC` hid that such writes were never flushed.
const KERNELS_O_DSYNC: i32 = 0o10_000;
const KERNELS_O_SYNC: i32 = 0o4_010_000;

const WRITES_COUNT: u64 = 50;

fn open(mounted: &Mounted, name: &str, flags: i32) -> File {
    let path = mounted.root.join(name);
    if !path.exists() {
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
    OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(&path)
        .unwrap()
}

/// How often `write` had every copy of what it wrote made durable.
fn flushed_count(mounted: &Mounted, write: impl Fn(u64)) -> u64 {
    // What came before must not be counted.
    mounted.file_system.sync().unwrap();
    let before = mounted.flushes_count();
    for number in 0..WRITES_COUNT {
        write(number * 8192);
    }
    mounted.flushes_count() - before
}

fn every_synchronous_write_is_flushed(mounted: &Mounted, name: &str) {
    for flags in [KERNELS_O_DSYNC, KERNELS_O_SYNC] {
        let file = open(mounted, name, flags);
        let flushed = flushed_count(mounted, |at| file.write_all_at(&[1; 8192], at).unwrap());
        assert!(
            flushed >= WRITES_COUNT,
            "{name}, flags {flags:#o}: {flushed}"
        );
    }
    let file = open(mounted, name, 0);
    for flags in [ReadWriteFlags::DSYNC, ReadWriteFlags::SYNC] {
        let flushed = flushed_count(mounted, |at| {
            let written = pwritev2(&file, &[IoSlice::new(&[2; 8192])], at, flags);
            assert_eq!(written, Ok(8192));
        });
        assert!(flushed >= WRITES_COUNT, "{name}, {flags:?}: {flushed}");
    }
}

#[test]
fn a_synchronous_write_on_a_direct_mount_is_durable_when_it_returns() {
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    every_synchronous_write_is_flushed(&mounted, "log");
    // A plain write waits for nobody: what is counted is what was asked for.
    let file = open(&mounted, "log", 0);
    let flushed = flushed_count(&mounted, |at| file.write_all_at(&[1; 8192], at).unwrap());
    assert!(flushed < WRITES_COUNT / 2, "{flushed}");
}

#[test]
fn a_synchronous_write_to_a_file_whose_template_says_direct_is_durable_when_it_returns() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    let mut templates = mounted.file_system.templates();
    for template in &mut templates {
        template.caching = TemplateCaching::Direct;
    }
    mounted.file_system.set_templates(templates).unwrap();
    every_synchronous_write_is_flushed(&mounted, "log");
}

#[test]
fn a_synchronous_write_through_the_cache_is_durable_when_it_returns() {
    let Some(mounted) = Mounted::new(false) else {
        return;
    };
    every_synchronous_write_is_flushed(&mounted, "log");
}
