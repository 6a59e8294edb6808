use std::ffi::OsStr;

use spindle_device::SimulatedDisks;

use super::*;
use crate::bridge::tests::{OWNER, TIME, file_system_on};

fn file_system() -> Arc<FileSystem> {
    file_system_on(&Arc::new(SimulatedDisks::new(1, &[48 << 20])), None)
}

fn make(file_system: &FileSystem, name: &str) -> Arc<Handle> {
    let name = OsStr::new(name);
    let made = file_system.create_file(FileId::ROOT, name, 0o600, OWNER, TIME);
    made.unwrap().1
}

fn errno(answer: Result<Arc<Handle>, Refusal>) -> Option<Errno> {
    answer.err().map(|refusal| refusal.errno)
}

#[test]
fn daemons_of_one_moment_give_numbers_of_their_own() {
    let file_system = file_system();
    let open = make(&file_system, "file");
    let (first, next) = (Handles::new(0), Handles::new(1));
    let given: Vec<u64> = (0..100).map(|_| first.insert(open.clone())).collect();
    for _ in 0..100 {
        assert!(!given.contains(&next.insert(open.clone())));
    }
}

#[test]
fn a_number_of_an_earlier_daemon_leads_to_the_file_that_the_request_names() {
    let file_system = file_system();
    let (one, other) = (make(&file_system, "one"), make(&file_system, "other"));
    let before = Handles::new(3).insert(one.clone());
    let handles = Handles::new(4);
    handles.insert(other.clone());
    // As programs numbered that went by the clock.
    for number in [before, 1_700_000_000 << 24] {
        let found = handles.get(number, one.id(), &file_system).unwrap();
        assert_eq!(found.id(), one.id());
        assert_eq!(
            errno(handles.get(number, other.id(), &file_system)),
            Some(Errno::STALE)
        );
    }
}

#[test]
fn a_number_and_a_file_that_do_not_belong_together_are_refused() {
    let file_system = file_system();
    let (one, other) = (make(&file_system, "one"), make(&file_system, "other"));
    let handles = Handles::new(0);
    let number = handles.insert(one.clone());
    assert_eq!(
        errno(handles.get(number, other.id(), &file_system)),
        Some(Errno::STALE)
    );
    assert_eq!(errno(handles.get(number, one.id(), &file_system)), None);
}

#[test]
fn a_number_that_is_not_in_use_is_refused_and_so_is_one_of_a_file_that_is_gone() {
    let file_system = file_system();
    let one = make(&file_system, "one");
    let handles = Handles::new(1);
    let number = handles.insert(one.clone());
    handles.remove(number);
    for unused in [number, number + 1, Handles::new(2).insert(one.clone())] {
        assert_eq!(
            errno(handles.get(unused, one.id(), &file_system)),
            Some(Errno::BADF)
        );
    }
    let id = one.id();
    file_system
        .unlink(FileId::ROOT, OsStr::new("one"), TIME)
        .unwrap();
    drop(one);
    let before = HAS_GENERATION;
    assert_eq!(
        errno(handles.get(before, id, &file_system)),
        Some(Errno::STALE)
    );
}
