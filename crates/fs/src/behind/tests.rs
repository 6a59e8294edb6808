//! What threads see of each other between two steps of one write or read.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use spindle_base::{AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, FaultyOperation, SharedMemory, SimulatedDisks};
use spindle_group::{Group, KeptJournal, LeftBlock, NewDisk, NewGroup, Opener};

use super::blocks::After;
use super::*;
use crate::attribute::Owner;

const BLOCK: usize = 4096;
const OWNER: Owner = Owner { user: 0, group: 0 };
const NOW: Time = Time {
    seconds: 1000,
    nanoseconds: 0,
};
const ROOT: FileId = FileId(1);

fn open(disks: Arc<dyn Disks>, journal: Option<Arc<KeptJournal>>) -> Arc<Group> {
    let opener = Opener {
        host: "here".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([9; 16]),
        process_id: 1,
        now_s: 1,
        force: true,
        preferred_failure_group: None,
    };
    let name = GroupName::new("DATA").unwrap();
    let slots = [DiskSlot(0)];
    Arc::new(Group::open_kept(disks, &slots, &name, &opener, &|_| false, journal).unwrap())
}

fn as_disks(disks: &Arc<SimulatedDisks>) -> Arc<dyn Disks> {
    Arc::clone(disks) as Arc<dyn Disks>
}

/// A group of one disk with memory for what waits, and a file in it.
fn kept() -> (Arc<SimulatedDisks>, FileSystem, Arc<Handle>) {
    let disks = Arc::new(SimulatedDisks::new(1, &[48 << 20]));
    let new = NewGroup {
        name: GroupName::new("DATA").unwrap(),
        uuid: Uuid([7; 16]),
        redundancy: Redundancy::External,
        au_size: AuSize::DEFAULT,
        disks: vec![NewDisk {
            slot: DiskSlot(0),
            name: DiskName::new("DISK0").unwrap(),
            failure_group: FailureGroupName::new("SIDE0").unwrap(),
            uuid: Uuid([1; 16]),
        }],
        profile: "plain".to_owned(),
        created_s: 1,
    };
    Group::create(as_disks(&disks), &new).unwrap();
    let group = open(as_disks(&disks), None);
    FileSystem::create(&group, OWNER, NOW).unwrap();
    FileSystem::open(group).unwrap().close().unwrap();
    let blocks = SharedMemory::create("blocks", UnwrittenBlocks::length_bytes(1 << 10)).unwrap();
    let journal = KeptJournal::create().unwrap();
    let journal = journal.with_blocks(UnwrittenBlocks::new(blocks).unwrap());
    let group = open(as_disks(&disks), Some(Arc::new(journal)));
    let fs = FileSystem::open_kept(group, false).unwrap();
    let name = std::ffi::OsStr::new("file");
    let (_, handle) = fs.create_file(ROOT, name, 0o644, OWNER, NOW).unwrap();
    (disks, fs, handle)
}

fn behind(fs: &FileSystem, handle: &Handle, offset_bytes: u64, data: &[u8]) {
    (fs.write_behind(handle, offset_bytes, data.into(), NOW)).unwrap();
}

/// As a thread does that has read this size and is stopped once the blocks' lock is let go of.
fn put_and_stop(fs: &FileSystem, handle: &Handle, size_bytes: u64, data: &[u8]) {
    let of = WriteOf {
        file: handle.id(),
        size_bytes,
    };
    let memory = fs.core.unwritten_memory().unwrap();
    let mut blocks = handle.node.unwritten.lock();
    let before = blocks.len();
    assert_eq!(blocks.put(memory, of, 0, data), Put::There);
    fs.core.behind.came(blocks.len() - before);
}

fn set_size(fs: &FileSystem, handle: &Handle, size_bytes: u64) {
    let change = crate::attribute::AttributeChange {
        size_bytes: Some(size_bytes),
        ..crate::attribute::AttributeChange::default()
    };
    fs.set_attributes(handle.id(), &change, NOW).unwrap();
}

/// The files as a power cut now would leave them; those here go on.
fn after_power_cut(disks: &SimulatedDisks, seed: u64) -> FileSystem {
    let left = disks.fork(seed);
    left.crash();
    left.restart();
    FileSystem::open(open(Arc::new(left), None)).unwrap()
}

#[test]
fn a_sync_finds_an_answered_write_into_a_block_that_another_is_about_to_tell_of() {
    let (_, fs, handle) = kept();
    behind(&fs, &handle, 0, &[1; BLOCK]);
    fs.sync().unwrap();
    put_and_stop(&fs, &handle, BLOCK as u64, &[2; BLOCK]);
    behind(&fs, &handle, 0, &[3; BLOCK]);
    fs.sync().unwrap();
    assert_eq!(fs.unwritten_bytes(), 0);
}

#[test]
fn a_write_that_began_when_the_file_was_shorter_takes_nothing_of_what_a_sync_answered_for() {
    let (disks, fs, handle) = kept();
    fs.sync_file(&handle, false).unwrap();
    // The other writer read a size of zero before this.
    behind(&fs, &handle, 0, &[1; 2 * BLOCK]);
    fs.sync_file(&handle, false).unwrap();
    put_and_stop(&fs, &handle, 0, &[2; BLOCK]);
    let stamp = NOW.stamp().unwrap();
    (fs.core).note_written(&handle.node, BLOCK as u64, stamp);
    fs.make_durable().unwrap();
    let after = after_power_cut(&disks, 1);
    let found = after.attributes(handle.id()).unwrap();
    assert_eq!(found.size_bytes, 2 * BLOCK as u64);
}

#[test]
fn a_write_that_began_when_the_file_was_shorter_takes_nothing_of_what_a_sync_is_about_to_commit() {
    let (disks, fs, handle) = kept();
    fs.sync_file(&handle, false).unwrap();
    behind(&fs, &handle, 0, &[1; 2 * BLOCK]);
    // A sync that has written what waits, and has not come to the row.
    fs.core.write_out_all(&handle.node).unwrap();
    put_and_stop(&fs, &handle, 0, &[2; BLOCK]);
    fs.make_durable().unwrap();
    let after = after_power_cut(&disks, 1);
    let found = after.attributes(handle.id()).unwrap();
    assert_eq!(found.size_bytes, 2 * BLOCK as u64);
}

#[test]
fn what_was_written_out_before_a_file_was_cut_says_nothing_of_what_made_it_longer_after_that() {
    let (disks, fs, handle) = kept();
    behind(&fs, &handle, 0, &[1; 2 * BLOCK]);
    let before = handle.node.state.lock().begin_writing_out();
    for size_bytes in [0, 100] {
        set_size(&fs, &handle, size_bytes);
        behind(&fs, &handle, size_bytes, &[2; 2 * BLOCK]);
    }
    // The sync that had begun before all that comes to its end.
    handle.node.state.lock().end_writing_out(before, true);
    fs.make_durable().unwrap();
    disks.crash();
    disks.restart();
    let after = FileSystem::open(open(disks, None)).unwrap();
    let found = after.attributes(handle.id()).unwrap();
    // The second cut was made durable, and its block with it, before the end moved over that.
    assert_eq!(found.size_bytes, 100);
}

#[test]
fn a_cut_beside_a_sync_takes_nothing_that_the_sync_wrote_in_front_of_the_new_end() {
    let (disks, fs, handle) = kept();
    fs.sync_file(&handle, false).unwrap();
    behind(&fs, &handle, 0, &[1; 3 * BLOCK]);
    let number = handle.node.state.lock().begin_writing_out();
    fs.core.write_out_what_is_there(&handle.node).unwrap();
    // Another writer read a size of zero before this.
    put_and_stop(&fs, &handle, 0, &[2; BLOCK]);
    for size_bytes in [2 * BLOCK as u64, 2 * BLOCK as u64 + 50] {
        set_size(&fs, &handle, size_bytes);
    }
    handle.node.state.lock().end_writing_out(number, true);
    fs.make_durable().unwrap();
    let after = after_power_cut(&disks, 1);
    let found = after.attributes(handle.id()).unwrap();
    assert!(found.size_bytes >= 2 * BLOCK as u64, "{found:?}");
    assert!(handle.node.state.lock().is_nobody_writing_out());
}

#[test]
fn a_file_that_was_cut_a_moment_ago_is_not_let_go_of_before_that_is_durable() {
    let (disks, fs, handle) = kept();
    let id = handle.id();
    let others: Vec<FileId> = (0..200)
        .map(|number| {
            let name = format!("other {number}");
            let name = std::ffi::OsStr::new(&name);
            let (_, other) = fs.create_file(ROOT, name, 0o644, OWNER, NOW).unwrap();
            other.id()
        })
        .collect();
    fs.sync().unwrap();
    drop((handle, fs));
    let fs = FileSystem::open_holding(open(as_disks(&disks), None), false, 0).unwrap();
    let load_others = || {
        for id in &others {
            fs.attributes(*id).unwrap();
        }
    };
    for (size_bytes, offset_bytes) in [(55, 25), (5 * BLOCK as u64, 5 * BLOCK as u64)] {
        let handle = fs.open_file(id).unwrap();
        fs.write(&handle, 0, &[7; 8 * BLOCK], false, NOW).unwrap();
        fs.sync().unwrap();
        set_size(&fs, &handle, size_bytes);
        drop(handle);
        load_others();
        let handle = fs.open_file(id).unwrap();
        let bytes = &[9; 20];
        fs.write(&handle, offset_bytes, bytes, false, NOW).unwrap();
        for seed in 0..16 {
            let after = after_power_cut(&disks, seed);
            let found = after.open_file(id).unwrap();
            let mut bytes = vec![0; 9 * BLOCK];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            let sevens = bytes.iter().filter(|byte| **byte == 7).count();
            assert!(
                length != 8 * BLOCK || sevens == length,
                "{size_bytes}, seed {seed}: {sevens} of {length} bytes"
            );
        }
        set_size(&fs, &handle, 0);
        drop(handle);
        fs.sync().unwrap();
        load_others();
        assert!(fs.core.nodes.get(id).is_none(), "nothing needs it any more");
    }
}

#[test]
fn a_page_is_not_read_in_part_from_memory_that_a_write_past_it_has_reached_before_the_disks() {
    let (_, fs, handle) = kept();
    let node = &handle.node;
    behind(&fs, &handle, 0, &[1; 4 * BLOCK]);
    fs.sync().unwrap();
    for block in [0, 2] {
        behind(&fs, &handle, block * BLOCK as u64, &[1; BLOCK]);
    }
    let page = [2; 2 * BLOCK];
    let memory = fs.core.unwritten_memory().unwrap();
    let (sender, read) = std::sync::mpsc::channel();
    let read_page = |offset_bytes| {
        let mut bytes = vec![0; 2 * BLOCK];
        fs.read(&handle, offset_bytes, &mut bytes).unwrap();
        bytes
    };
    thread::scope(|scope| {
        let content = node.content.read();
        let around = Around::begin(memory, node, 0, &page);
        // Another page of the same kind is read meanwhile.
        let other = scope.spawn(|| read_page(2 * BLOCK as u64));
        assert!(other.join().unwrap() == vec![1; 2 * BLOCK]);
        let reader = scope.spawn(|| sender.send(read_page(0)).unwrap());
        let early = read.recv_timeout(Duration::from_millis(200));
        let file = node.file.as_ref().unwrap();
        fs.core.group.write(file, 0, &page).unwrap();
        drop(around);
        drop(content);
        reader.join().unwrap();
        let found = early.or_else(|_| read.try_recv()).unwrap();
        assert!(found == page, "{} and {}", found[0], found[BLOCK]);
    });
}

/// A write past the memory is on the disks, and about to be answered; whoever read it there writes the
/// same page anew.
#[test]
fn a_page_that_was_written_by_who_had_read_a_write_past_the_memory_is_not_overwritten_by_that() {
    for waits_before in [false, true] {
        let (_, fs, handle) = kept();
        let node = &handle.node;
        behind(&fs, &handle, 0, &[1; BLOCK]);
        if !waits_before {
            fs.sync().unwrap();
        }
        let memory = fs.core.unwritten_memory().unwrap();
        let page = [2; BLOCK];
        let content = node.content.read();
        let around = Around::begin(memory, node, 0, &page);
        let file = node.file.as_ref().unwrap();
        fs.core.group.write(file, 0, &page).unwrap();
        let read = || {
            let mut bytes = vec![0; BLOCK];
            fs.read(&handle, 0, &mut bytes).unwrap();
            bytes[0]
        };
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                assert_eq!(read(), 2);
                behind(&fs, &handle, 0, &[3; BLOCK]);
            });
            reader.join().unwrap();
        });
        drop(around);
        drop(content);
        assert_eq!(read(), 3);
        fs.sync().unwrap();
        assert_eq!(read(), 3, "it waited before: {waits_before}");
    }
}

/// A write past the memory is in the blocks that wait and not on the disks yet. Whoever read it there
/// writes the same page anew, and has that synced, or it is written behind.
#[test]
fn a_write_past_the_memory_comes_over_nothing_that_was_written_by_who_had_read_it_before_the_disks_had_it()
 {
    type Written = fn(&FileSystem, &Handle);
    let sync: Written = |fs, handle| fs.sync_file(handle, false).unwrap();
    let by_age: Written = |fs, _| while fs.write_due() {};
    let for_room: Written = |fs, handle| while fs.core.write_own(&handle.node) {};
    for (way, write) in [("a sync", sync), ("by age", by_age), ("for room", for_room)] {
        let (disks, fs, handle) = kept();
        let node = &handle.node;
        behind(&fs, &handle, 0, &[1; BLOCK]);
        let read = || {
            let mut bytes = vec![0; BLOCK];
            fs.read(&handle, 0, &mut bytes).unwrap();
            bytes[0]
        };
        let (sender, answered) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            fs.core.around(node, 0, &[2; BLOCK], || {
                assert_eq!(read(), 2);
                behind(&fs, &handle, 0, &[3; BLOCK]);
                scope.spawn(|| {
                    write(&fs, &handle);
                    sender.send(()).unwrap();
                });
                // It may wait for this write.
                let _ = answered.recv_timeout(Duration::from_millis(200));
                let file = node.file.as_ref().unwrap();
                fs.core.group.write(file, 0, &[2; BLOCK]).unwrap();
            });
        });
        assert_eq!(read(), 3, "{way}");
        fs.sync().unwrap();
        assert_eq!(read(), 3, "{way}");
        let after = after_power_cut(&disks, 1);
        let found = after.open_file(handle.id()).unwrap();
        let mut bytes = vec![0; BLOCK];
        after.read(&found, 0, &mut bytes).unwrap();
        assert_eq!(bytes[0], 3, "{way}");
    }
}

/// There is always one: before each ends the next one has begun.
#[test]
fn a_sync_waits_for_no_write_past_the_memory_that_begins_after_it_nor_lets_it_come_over_what_is_newer()
 {
    let (_, fs, handle) = kept();
    let node = &handle.node;
    let memory = fs.core.unwritten_memory().unwrap();
    let write_to_disks = |page: &[u8]| {
        let file = node.file.as_ref().unwrap();
        fs.core.group.write(file, 0, page).unwrap();
    };
    let read = || {
        let mut bytes = vec![0; BLOCK];
        fs.read(&handle, 0, &mut bytes).unwrap();
        bytes[0]
    };
    behind(&fs, &handle, 0, &[1; BLOCK]);
    let first = Around::begin(memory, node, 0, &[2; BLOCK]);
    let (sender, answered) = std::sync::mpsc::channel();
    let second = thread::scope(|scope| {
        scope.spawn(|| {
            fs.sync_file(&handle, false).unwrap();
            sender.send(()).unwrap();
        });
        let early = answered.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "the first one has yet to come to the disks");
        let second = Around::begin(memory, node, 0, &[4; BLOCK]);
        behind(&fs, &handle, 0, &[5; BLOCK]);
        write_to_disks(&[2; BLOCK]);
        drop(first);
        let answer = answered.recv_timeout(Duration::from_secs(20));
        if answer.is_err() {
            // The scope waits for the sync.
            drop(second);
            panic!("the sync waits for what began after it");
        }
        second
    });
    write_to_disks(&[4; BLOCK]);
    drop(second);
    assert_eq!(read(), 5);
    fs.sync().unwrap();
    assert_eq!(fs.unwritten_bytes(), 0);
    assert_eq!(read(), 5);
}

/// The sync of another thread had begun to write the page before the write past the memory ended, and
/// has the disks' answer after that.
#[test]
fn a_page_stays_in_memory_over_which_a_write_past_it_may_have_come_while_it_was_written() {
    let (_, fs, handle) = kept();
    let node = &handle.node;
    let memory = fs.core.unwritten_memory().unwrap();
    behind(&fs, &handle, 0, &[1; BLOCK]);
    let after = node.unwritten.after_those_under_way();
    let around = Around::begin(memory, node, 0, &[2; BLOCK]);
    behind(&fs, &handle, 0, &[3; BLOCK]);
    let (run, _) = node.unwritten.lock().take(memory, 0, 1, after);
    drop(around);
    let gone = node.unwritten.lock().settle(memory, &run, &[true]);
    assert_eq!(gone, 0);
    fs.sync().unwrap();
    assert_eq!(fs.unwritten_bytes(), 0);
}

#[test]
fn a_page_for_which_memory_has_no_room_is_not_put_there_in_part() {
    let (_, fs, handle) = kept();
    let memory = fs.core.unwritten_memory().unwrap();
    behind(&fs, &handle, 0, &[1; 4 * BLOCK]);
    fs.sync().unwrap();
    behind(&fs, &handle, 0, &[1; BLOCK]);
    let mut taken: Vec<_> = std::iter::from_fn(|| memory.take()).collect();
    memory.give_back(taken.pop().unwrap());
    let of = WriteOf {
        file: handle.id(),
        size_bytes: 4 * BLOCK as u64,
    };
    let put = |page: &[u8]| (handle.node.unwritten.lock()).put(memory, of, 0, page);
    // What is there is changed where there is room for the others.
    assert_eq!(put(&[2; 3 * BLOCK]), Put::Around);
    let mut bytes = vec![0; 4 * BLOCK];
    fs.read(&handle, 0, &mut bytes).unwrap();
    assert!(bytes == vec![1; 4 * BLOCK]);
    let before = handle.node.unwritten.lock().len();
    assert_eq!(put(&[2; 2 * BLOCK]), Put::There);
    (fs.core.behind).came(handle.node.unwritten.lock().len() - before);
    fs.read(&handle, 0, &mut bytes).unwrap();
    assert!(bytes == [[2; 2 * BLOCK], [1; 2 * BLOCK]].concat());
    taken.into_iter().for_each(|slot| memory.give_back(slot));
}

#[test]
fn a_sync_of_all_finds_parked_blocks_of_a_file_that_another_thread_has_just_loaded() {
    let (_, fs, handle) = kept();
    behind(&fs, &handle, 0, &[1; BLOCK]);
    let id = handle.id();
    drop(handle);
    fs.sync().unwrap();
    fs.core.nodes.remove(id);
    let memory = fs.core.unwritten_memory().unwrap();
    let slot = memory.take().unwrap();
    memory.put(&slot, id, 0, &[2; BLOCK]);
    let left = LeftBlock {
        file: id,
        block: 0,
        slot,
    };
    assert!(fs.core.behind.parked.lock().park(left).is_none());
    let (_node, was_parked) = fs.core.get_or_load(id).unwrap();
    assert!(was_parked);
    fs.sync().unwrap();
    assert_eq!(fs.unwritten_bytes(), 0);
}

#[test]
fn copies_do_not_go_with_what_the_disks_got_after_them() {
    let (_, fs, handle) = kept();
    behind(&fs, &handle, 0, &[1; 8 * BLOCK]);
    fs.sync().unwrap();
    let node = &handle.node;
    let page_bytes = 2 * BLOCK as u64;
    let copies = fs.core.copies_of_waiting(node, 0, page_bytes);
    let count = copies.begun_count;
    assert!(copies.blocks.is_empty());
    behind(&fs, &handle, 0, &[2; 2 * BLOCK]);
    let has_begun = |at| fs.core.has_begun_since(node, count, at, page_bytes);
    assert!(!has_begun(0));
    fs.core.write_out(node, 1, 2).unwrap();
    assert!(has_begun(0));
    assert!(!has_begun(2 * BLOCK as u64), "another page");
    for _ in 0..20 {
        behind(&fs, &handle, 0, &[2; BLOCK]);
        fs.core.write_out(node, 0, 1).unwrap();
    }
    assert!(has_begun(4 * BLOCK as u64), "nobody knows any more");
}

#[test]
fn a_sync_that_waits_for_a_write_tells_what_another_one_was_told_meanwhile() {
    let (disks, fs, handle) = kept();
    disks.set_deadline(Duration::from_secs(60));
    behind(&fs, &handle, 0, &[1; BLOCK]);
    fs.sync().unwrap();
    for is_of_everything in [false, true] {
        behind(&fs, &handle, 0, &[2; BLOCK]);
        disks.hang(DiskSlot(0), FaultyOperation::Write, 0..48 << 20);
        let answer = thread::scope(|scope| {
            let syncer = scope.spawn(|| match is_of_everything {
                true => fs.sync(),
                false => fs.sync_file(&handle, false),
            });
            let is_writing = |next| matches!(next, Some((_, true)));
            while !is_writing(handle.node.unwritten.lock().next(0, 1, After::ALL)) {
                assert!(!syncer.is_finished());
                thread::yield_now();
            }
            let file = handle.node.file.as_ref().unwrap();
            fs.core.group.owe(file, "something is lost");
            fs.core.group.sync_file(file, false).unwrap_err();
            disks.release(DiskSlot(0));
            syncer.join().unwrap()
        });
        assert!(answer.is_err(), "of everything: {is_of_everything}");
        fs.sync_file(&handle, false).unwrap();
        fs.sync().unwrap();
    }
}

#[test]
fn a_time_that_is_set_in_the_midst_of_a_removal_brings_no_half_of_it_back_after_a_kill() {
    let (disks, fs, handle) = kept();
    let id = handle.id();
    let name = std::ffi::OsStr::new;
    fs.make_link(id, ROOT, name("second"), NOW).unwrap();
    fs.make_durable().unwrap();
    // No place for touches is left: as many other nodes have them.
    let journal = Arc::clone(fs.core.group.journal().unwrap());
    let stamp = NOW.stamp().unwrap();
    let touch = spindle_catalog::Touch {
        id: FileId(1 << 40),
        size_bytes: 0,
        accessed: stamp,
        modified: stamp,
        changed: stamp,
    };
    while journal.touch(&mut None, &touch) {}
    let (directory, node) = (fs.core.node(ROOT).unwrap(), fs.core.node(id).unwrap());
    let change = crate::attribute::AttributeChange {
        modified: Some(NOW),
        ..crate::attribute::AttributeChange::default()
    };
    let fs = Arc::new(fs);
    // One thread is in the midst of removing a name, and does not come to its end.
    let (mine, of_file) = (Arc::clone(&fs), Arc::clone(&node));
    let half = thread::spawn(move || {
        let operation = mine.core.begin();
        operation.remove_entry(&directory, b"file", of_file.kind, stamp);
        operation.unname(&of_file, stamp);
        std::mem::forget(operation);
    });
    half.join().unwrap();
    // Another one sets a time of the file. It may come to its answer or wait for the first one.
    let mine = Arc::clone(&fs);
    let set = thread::spawn(move || mine.set_attributes(id, &change, NOW).map(drop));
    for _ in 0..50 {
        if set.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // And then the process is killed.
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    std::mem::forget((handle, fs, set));
    let memory = SharedMemory::from_descriptor(memory).unwrap();
    let next = Arc::new(KeptJournal::new(memory).unwrap());
    let fs = FileSystem::open_kept(open(disks, Some(next)), true).unwrap();
    // The kernel asks again, and the removal is done once.
    fs.unlink(ROOT, name("file"), NOW).unwrap();
    for id in fs.doubtful_orphans() {
        fs.disinherit(id);
    }
    let attributes = fs.lookup(ROOT, name("second"));
    let attributes = attributes.expect("the file has another name");
    assert_eq!(attributes.links_count, 1);
    assert_eq!(fs.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_file_that_comes_to_memory_again_may_have_had_its_attributes_forgotten_before() {
    let (_, fs, handle) = kept();
    let id = handle.id();
    let count = fs.forgettings_count();
    assert!(!fs.was_forgotten_since(id, count));
    drop(handle.forget_attributes());
    assert!(fs.was_forgotten_since(id, count));
    fs.sync().unwrap();
    drop(handle);
    fs.core.nodes.remove(id);
    assert!(fs.was_forgotten_since(id, count), "nobody knows");
    fs.attributes(id).unwrap();
    assert!(fs.was_forgotten_since(id, count));
    assert!(!fs.was_forgotten_since(id, fs.forgettings_count()));
}

#[test]
fn what_is_lost_and_not_told_yet_is_copied_as_no_hole() {
    let (disks, fs, handle) = kept();
    behind(&fs, &handle, 0, &[1; 64 * BLOCK]);
    let name = std::ffi::OsStr::new("copy");
    let (_, copy) = fs.create_file(ROOT, name, 0o644, OWNER, NOW).unwrap();
    fs.hurry_writes();
    while fs.write_due() {}
    assert_eq!(fs.unwritten_bytes(), 0);
    disks.drop_at_flushes(DiskSlot(0), 1);
    fs.make_durable().unwrap_err();
    assert_eq!(fs.seek(&handle, 0, false).unwrap(), Some(0));
    let length_bytes = 64 * BLOCK as u64;
    fs.copy_range(&handle, 0, &copy, 0, length_bytes, NOW)
        .unwrap_err();
    fs.sync_file(&handle, false).unwrap_err();
    // Who was told reads what is there.
    let copied = fs.copy_range(&handle, 0, &copy, 0, length_bytes, NOW);
    assert_eq!(copied.unwrap(), length_bytes);
}
