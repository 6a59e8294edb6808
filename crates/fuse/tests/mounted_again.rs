//! One mount after the other, of a group that stays open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::FileId;
use spindle_device::SharedMemory;
use spindle_group::KeptJournal;
use support::Mounted;

/// The requests that the next process would take for done, were this one killed now.
fn done(journal: &KeptJournal) -> BTreeSet<u64> {
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    let next = KeptJournal::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap();
    next.left().done
}

#[test]
fn a_new_mount_counts_its_requests_anew_and_none_passes_for_one_of_the_mount_before() {
    let journal = Arc::new(KeptJournal::create().unwrap());
    let kept = Some(Arc::clone(&journal));
    let Some(mut mounted) = Mounted::with_journal(false, 64 << 20, kept) else {
        return;
    };
    for number in 0..10 {
        let directory = mounted.root.join(number.to_string());
        fs::create_dir(&directory).unwrap();
        fs::remove_dir(&directory).unwrap();
    }
    assert!(!done(&journal).is_empty());
    mounted.mount_again();
    assert_eq!(done(&journal), BTreeSet::new());
    fs::create_dir(mounted.root.join("again")).unwrap();
    assert_eq!(done(&journal).len(), 1);
}

/// The kernel does not say what it lets go of when a mount ends.
#[test]
fn what_an_ended_mount_knew_keeps_no_space_when_it_is_removed_on_the_next_one() {
    let Some(mut mounted) = Mounted::new(false) else {
        return;
    };
    let free = |mounted: &Mounted| {
        mounted.file_system.sync().unwrap();
        mounted.file_system.space().unwrap().blocks_free
    };
    let before = free(&mounted);
    let path = mounted.root.join("big");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; 8 << 20]).unwrap();
    file.sync_all().unwrap();
    let id = FileId(file.metadata().unwrap().ino());
    drop(file);
    assert!(free(&mounted) < before);
    mounted.mount_again();
    fs::remove_file(&path).unwrap();
    let begun = Instant::now();
    while mounted.file_system.group().file(id).is_some() {
        // The kernel forgets when it has time.
        assert!(begun.elapsed() < Duration::from_secs(10), "the file stays");
        thread::sleep(Duration::from_millis(10));
    }
    let after = free(&mounted);
    // The catalog may have grown by a little.
    assert!(after + 64 >= before, "{before} blocks free, then {after}");
}

/// A door of this process has it open when the mount ends.
#[test]
fn a_file_without_a_name_that_is_open_elsewhere_outlives_the_mount_and_goes_with_its_handle() {
    let Some(mut mounted) = Mounted::new(false) else {
        return;
    };
    let path = mounted.root.join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let id = FileId(fs::metadata(&path).unwrap().ino());
    let handle = mounted.file_system.open_file(id).unwrap();
    fs::remove_file(&path).unwrap();
    mounted.mount_again();
    assert!(mounted.file_system.group().file(id).is_some());
    drop(handle);
    assert!(mounted.file_system.group().file(id).is_none());
}
