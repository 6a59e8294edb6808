//! What loom tries of the map, as in [`crate::models`]: the code itself, over words of loom's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spindle_base::{DiskNumber, FileId};
use spindle_format::ExtentCopy;
use spindle_sync::atomic::AtomicU64;
use spindle_sync::thread;

use super::{Allowed, Disks, Entry, FileKey, Piece, SeenMap, SharedMap};
use crate::{Blocks, Leases, Mode, Patience};

const fn key(number: u64) -> FileKey {
    FileKey {
        file: FileId(number),
        incarnation: 0,
    }
}

/// An extent of one block, which has its copies at this block of two disks.
fn entry(start_block: u64) -> Entry {
    let copies = [0, 1].map(|disk| ExtentCopy::new(DiskNumber(disk), start_block, 0));
    Entry::new(&copies, 1, Allowed::ReadAndWrite).expect("it can be")
}

const fn piece(file: FileKey) -> Piece {
    Piece {
        file,
        index: 0,
        inside_blocks: 0,
        blocks: 1,
    }
}

/// The owner's map, with the file at block 1, and a client's view of it.
fn new_map() -> (SharedMap, SeenMap) {
    let mut map = SharedMap::create().expect("memory");
    map.set(key(1), 0, &entry(1)).expect("room");
    let memory = map.memory().read_only().expect("memory");
    (map, SeenMap::new(memory).expect("a map"))
}

fn disks() -> Disks {
    Disks {
        standing: 0,
        blocks: vec![9, 9],
    }
}

/// The blocks that copies begin at, where the map says any.
fn places(seen: &SeenMap, file: FileKey) -> Option<Vec<u64>> {
    let found = seen.places_to_read(&disks(), &piece(file)).ok()?;
    let blocks = found.copies().iter().map(|copy| copy.offset_bytes >> 12);
    Some(blocks.collect())
}

/// What counts when the disk has answered; of which block.
fn read_a_place(seen: &SeenMap, disk: &[AtomicU64; 3]) -> Option<u64> {
    let places = seen.places_to_read(&disks(), &piece(key(1))).ok()?;
    let block = usize::try_from(places.copies()[0].offset_bytes >> 12).expect("small");
    let found = disk[block].load(Ordering::Relaxed);
    seen.stands(&places).then_some(found)
}

/// What counts of what was read is the file's, though the owner moves it and gives the old place to another
/// one.
pub fn what_moves_is_read_where_it_lies() {
    const OURS: u64 = 1;
    const OF_ANOTHER: u64 = 2;
    let (mut map, seen) = new_map();
    let disk = Arc::new([0, OURS, 0].map(AtomicU64::new));
    let shared_disk = Arc::clone(&disk);
    let reader = thread::spawn(move || {
        let found = read_a_place(&seen, &shared_disk);
        assert!(found.is_none_or(|found| found == OURS), "{found:?}");
    });
    disk[2].store(OURS, Ordering::Relaxed);
    map.set(key(1), 0, &entry(2)).expect("room");
    disk[1].store(OF_ANOTHER, Ordering::Relaxed);
    reader.join().expect("no panic");
}

/// An extent that was closed while its bytes changed, and says the same again, is another one.
pub fn what_was_closed_meanwhile_does_not_count() {
    const HALF_WRITTEN: u64 = 1;
    const WRITTEN: u64 = 2;
    let (mut map, seen) = new_map();
    let disk = Arc::new([0, 0, 0].map(AtomicU64::new));
    let shared_disk = Arc::clone(&disk);
    let reader = thread::spawn(move || {
        let found = read_a_place(&seen, &shared_disk);
        assert_ne!(found, Some(HALF_WRITTEN), "a half counts");
    });
    map.close(key(1), 0);
    disk[1].store(HALF_WRITTEN, Ordering::Relaxed);
    disk[1].store(WRITTEN, Ordering::Relaxed);
    map.set(key(1), 0, &entry(1)).expect("room");
    reader.join().expect("no panic");
}

/// What is read behind an outage, of which the client was not told, does not count.
pub fn what_was_read_behind_an_outage_does_not_count() {
    const MISSED: u64 = 1;
    let (map, seen) = new_map();
    let written = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&written);
    let reader = thread::spawn(move || {
        let places = seen.places_to_read(&disks(), &piece(key(1))).ok();
        let found = shared.load(Ordering::Relaxed);
        let counts = places.is_some_and(|places| seen.stands(&places));
        assert!(!counts || found != MISSED, "the disk that is away was read");
    });
    map.standing().raise();
    written.store(MISSED, Ordering::Relaxed);
    reader.join().expect("no panic");
}

/// The copies of an entry are those of one change.
pub fn an_entry_is_found_whole() {
    let (mut map, seen) = new_map();
    let reader = thread::spawn(move || {
        if let Some(found) = places(&seen, key(1)) {
            assert!(found == [1, 1] || found == [2, 2], "{found:?}");
        }
    });
    map.set(key(1), 0, &entry(2)).expect("room");
    reader.join().expect("no panic");
}

/// Who looks for a file that was withdrawn does not find the one that has its room.
pub fn the_next_file_in_a_place_is_not_taken_for_the_one_before() {
    let (mut map, seen) = new_map();
    let reader = thread::spawn(move || {
        let found = places(&seen, key(1));
        assert!(found.is_none_or(|found| found == [1, 1]));
    });
    map.withdraw(FileId(1));
    map.set(key(2), 0, &entry(2)).expect("room");
    reader.join().expect("no panic");
}

/// Who looks for a file does not find what its room said of the one before.
pub fn the_file_before_in_a_place_is_not_taken_for_the_next() {
    let (mut map, seen) = new_map();
    let reader = thread::spawn(move || {
        let found = places(&seen, key(2));
        assert!(found.is_none_or(|found| found == [2, 2]));
    });
    map.withdraw(FileId(1));
    map.set(key(2), 0, &entry(2)).expect("room");
    reader.join().expect("no panic");
}

/// A write that asks the disks though the owner has gone on without the one that is gone ends as torn.
pub fn what_begins_behind_an_outage_asks_no_disk() {
    let leases = Arc::new(Leases::create().expect("memory"));
    let client = leases.let_in(2).expect("a place");
    let (map, seen) = new_map();
    let outage = Arc::new(AtomicU64::new(0));
    let (shared, is_over) = (Arc::clone(&leases), Arc::clone(&outage));
    let writer = thread::spawn(move || {
        let mut operation = shared.operation(client, 0);
        let blocks = Blocks::new(FileId(1), 0, 1);
        let Ok(announced) = operation.announce_write(blocks, |_| Patience::GiveUp) else {
            return;
        };
        let found = seen.places_to_write(&announced, &disks(), &piece(key(1)));
        let is_direct = found.is_ok();
        let asks_behind_it = is_direct && is_over.load(Ordering::Relaxed) == 1;
        announced.done();
        let left = shared.left_by(client.number());
        let is_torn = left.iter().any(|found| found.mode() == Mode::Torn);
        assert!(!asks_behind_it || is_torn, "nobody compares the copies");
    });
    map.standing().raise();
    leases.overtake_writes();
    outage.store(1, Ordering::Relaxed);
    writer.join().expect("no panic");
}
