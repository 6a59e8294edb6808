//! One mount after the other, of a group that stays open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

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
