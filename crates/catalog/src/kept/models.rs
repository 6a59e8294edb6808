//! What loom tries of the journal: the code itself, over words of loom's.
//!
//! The next process is a thread here, which looks while the one before goes on. That is more than a
//! kill does, after which every store that was made is there; so the heir
//! - counts what it saw only where the word that says what counts stood still meanwhile, and the
//!   writer ends where a kill would come, before that word has its first value again; or
//! - looks at two things against the order in which they were stored: what was stored last first.
//!
//! The one who looks is the thread that is started: loom begins with the other one, and finds from
//! there what may come between its stores. The other way round it forgets a load that comes before a
//! store where the writer itself has loaded the word in between.
//!
//! What is wrong then could be left by a kill, because the language lets a compiler order the
//! stores so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use spindle_base::FileId;
use spindle_format::Timestamp;
use spindle_sync::atomic::AtomicBool;
use spindle_sync::thread;

use super::header::{Header, State};
use super::layout;
use super::log;
use super::recovered::Touch;
use super::unwritten::{self, BLOCK_BYTES};
use super::{Claim, KeptJournal, UnwrittenBlocks};
use crate::{Edit, Table};
use spindle_device::words::{SharedMemory, Word, fence};

/// Of the log: three of the records that are made here, and a little.
const LOG_BYTES: u64 = 32 * 8;

fn new_memory() -> SharedMemory {
    SharedMemory::create("model", KeptJournal::length_bytes(LOG_BYTES)).expect("memory")
}

fn new_journal(memory: &SharedMemory) -> KeptJournal {
    let journal = KeptJournal::new(memory.clone()).expect("it is empty");
    journal.begin(Claim::numbered(1), false);
    journal
}

/// What the next process reads.
fn heir(memory: &SharedMemory) -> KeptJournal {
    KeptJournal::new(memory.clone()).expect("a journal")
}

/// What was seen, where the word stood still.
fn while_it_stood<T>(word: &Word, look: impl FnOnce() -> T) -> Option<T> {
    let before = word.load(Ordering::Acquire);
    let seen = look();
    fence(Ordering::Acquire);
    (word.load(Ordering::Relaxed) == before).then_some(seen)
}

/// All of it says the same number.
fn touch_of(number: u32) -> Touch {
    let time = Timestamp {
        seconds: number.into(),
        nanoseconds: number,
    };
    Touch {
        id: FileId(number.into()),
        size_bytes: number.into(),
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn edit_of(number: u64) -> Edit {
    let mut edit = Edit::default();
    edit.put(Table::Inode, number.to_be_bytes().to_vec(), vec![1; 8]);
    edit
}

/// A touch that is found is one that was noted, whole.
pub fn a_touch_is_found_whole() {
    let memory = new_memory();
    let written = memory.clone();
    let observer = thread::spawn(move || {
        let words = memory.words();
        let seen = while_it_stood(layout::touch(words, 0).current(), || {
            layout::touch(words, 0).get(0)
        });
        if let Some(Some((position, touch))) = seen {
            let number = u32::try_from(position).expect("small");
            assert!(number == 1 || number == 2, "touch {number} did not count");
            assert_eq!(touch, touch_of(number));
        }
    });
    let place = layout::touch(written.words(), 0);
    place.put(1, &touch_of(1));
    place.put(2, &touch_of(2));
    // And is killed before it counts.
    place.fill(3, &touch_of(3));
    observer.join().expect("no panic");
}

/// A write that is found under way names the blocks of one write.
pub fn a_write_under_way_is_found_whole() {
    let memory = new_memory();
    let written = memory.clone();
    let observer = thread::spawn(move || {
        let place = layout::write(memory.words(), 0);
        let is_named = place.get().is_some();
        if let Some(Some(found)) = while_it_stood(place.state(), || place.get())
            && is_named
        {
            assert_eq!(found, (FileId(1), 1, 1));
        }
    });
    let place = layout::write(written.words(), 0);
    assert!(place.begin(1, 1, 1));
    place.clear();
    // And is killed before it is named.
    assert!(place.fill(2, 2, 2));
    observer.join().expect("no panic");
}

/// Of two writers of one place each finds it free or taken by the other, never both of them in it.
pub fn two_writers_do_not_share_a_place() {
    let memory = new_memory();
    let written = memory.clone();
    let writer = thread::spawn(move || layout::write(written.words(), 0).begin(1, 1, 1));
    let is_ours = layout::write(memory.words(), 0).begin(2, 2, 2);
    let is_theirs = writer.join().expect("no panic");
    assert!(is_ours != is_theirs);
    let found = layout::write(memory.words(), 0).get();
    let wanted = if is_ours { 2 } else { 1 };
    assert_eq!(found, Some((FileId(wanted), wanted, wanted)));
}

/// The list of done requests that counts is one that was written, whole.
pub fn a_list_of_done_requests_is_found_whole() {
    let memory = new_memory();
    let written = memory.clone();
    let observer = thread::spawn(move || {
        let words = memory.words();
        let seen = while_it_stood(layout::done_current(words), || {
            layout::read_done(words).collect::<Vec<u64>>()
        });
        if let Some(seen) = seen {
            assert!(seen.is_empty() || seen == [12, 11], "{seen:?}");
        }
    });
    layout::write_done(written.words(), [12, 11].into_iter());
    // And is killed before it counts.
    layout::fill_done(written.words(), &mut [22, 21].into_iter());
    observer.join().expect("no panic");
}

/// Records that are found are those that were made, in their order and whole, also where the ring
/// goes round.
pub fn records_are_found_whole() {
    let memory = new_memory();
    let journal = new_journal(&memory);
    journal.edit(None, &edit_of(1));
    journal.edit(None, &edit_of(2));
    let observer = thread::spawn(move || {
        let start = Header::of(&memory);
        let seen = while_it_stood(start.log_start_word(), || {
            let mut position = start.log_start();
            let mut found = Vec::new();
            while let Some(record) = log::read(&memory, position) {
                position += 2 + record.payload.len() as u64;
                found.push(log::decode_edit(&record.payload));
            }
            (start.log_start(), found)
        });
        if let Some((start, found)) = seen {
            let first = if start == 0 { 1 } else { 3 };
            for (found, number) in found.into_iter().zip(first..) {
                let wanted = edit_of(number);
                assert_eq!(found.map(|edit| edit.changes), Some(wanted.changes));
            }
        }
    });
    let place = journal.place();
    journal.edit(None, &edit_of(3));
    journal.cut(place);
    // Over the place of the first one.
    journal.edit(None, &edit_of(4));
    journal.edit(None, &edit_of(5));
    assert!(!journal.is_overflowed());
    observer.join().expect("no panic");
}

/// A request that is known as done has all of its operation in the log.
pub fn what_is_done_is_in_the_log() {
    let memory = new_memory();
    let journal = new_journal(&memory);
    let observer = thread::spawn(move || {
        let is_done = layout::request(memory.words(), 0).done(u64::MAX);
        let left = heir(&memory).left();
        if let Some(unique) = is_done {
            assert_eq!(unique, 7);
            assert!(left.done.contains(&7));
        }
        assert!(!left.done.contains(&7) || left.edits.len() == 1);
    });
    let request = journal.request(journal.connection(), 0, 7);
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &edit_of(1));
    request.end(bracket);
    observer.join().expect("no panic");
}

/// A touch that was given up has its row in the log, in an operation that has ended.
pub fn a_touch_is_given_up_after_its_row() {
    let memory = new_memory();
    let journal = new_journal(&memory);
    let mut slot = None;
    assert!(journal.touch(&mut slot, &touch_of(1)));
    let observer = thread::spawn(move || {
        if !layout::touch(memory.words(), 0).is_taken() {
            assert_eq!(heir(&memory).left().edits.len(), 1);
        }
    });
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &edit_of(1));
    journal.end(bracket);
    journal.free_touch(slot.expect("it was given one"));
    observer.join().expect("no panic");
}

/// Who takes over leaves behind, at each moment, what the next heir needs.
pub fn a_takeover_leaves_what_the_next_one_needs() {
    let memory = new_memory();
    let journal = new_journal(&memory);
    assert!(layout::write(memory.words(), 0).begin(1, 1, 2));
    let (before, next) = (Claim::numbered(1), Claim::numbered(2));
    journal.note_claim(before, next);
    let observer = thread::spawn(move || {
        let header = Header::of(&memory);
        let words = memory.words();
        let state = header.state();
        let is_under_way = layout::write(words, 0).get().is_some();
        assert!(is_under_way || header.compares_everything());
        if state == State::Taken {
            assert_eq!(layout::read_done(words).collect::<Vec<u64>>(), [5]);
        }
        // Until it has begun it is among the heirs, and from then on it is the one who began.
        let is_heir = while_it_stood(header.claim_word(), || header.is_heir(next));
        assert_ne!(is_heir, Some(false));
    });
    journal.take(&BTreeSet::from([5]));
    journal.begin(next, true);
    observer.join().expect("no panic");
}

/// Memory for one block.
fn new_blocks() -> SharedMemory {
    SharedMemory::create("model", UnwrittenBlocks::length_bytes(1)).expect("memory")
}

/// The blocks as this process has them, or the next one.
fn blocks_in(memory: &SharedMemory) -> UnwrittenBlocks {
    UnwrittenBlocks::new(memory.clone()).expect("blocks")
}

fn put(blocks: &UnwrittenBlocks, file: u8, block: u64) {
    let slot = blocks.take().expect("it is free");
    blocks.put(&slot, FileId(file.into()), block, &[file; BLOCK_BYTES]);
}

/// A block that is left has the bytes that were put under its name, all of them.
pub fn a_block_that_is_left_is_whole_and_its_own() {
    let memory = new_blocks();
    let blocks = blocks_in(&memory);
    let slot = blocks.take().expect("it is free");
    blocks.put(&slot, FileId(1), 1, &[1; BLOCK_BYTES]);
    let observer = thread::spawn(move || {
        let seen = while_it_stood(unwritten::file_word(memory.words(), 0), || {
            let heir = blocks_in(&memory);
            let mut left = heir.left();
            let bytes = left.pop().map(|left| {
                let mut bytes = [0; BLOCK_BYTES];
                heir.read(&left.slot, &mut bytes);
                (left.file, left.block, bytes)
            });
            assert!(left.is_empty());
            bytes
        });
        if let Some(Some((file, block, bytes))) = seen {
            let number = u8::try_from(file.0).expect("small");
            assert_eq!((block, bytes), (file.0, [number; BLOCK_BYTES]));
        }
    });
    blocks.give_back(slot);
    put(&blocks, 2, 2);
    observer.join().expect("no panic");
}

/// A block that was lost is not left to the next process, and is not forgotten before its file owes
/// the error.
pub fn a_lost_block_is_never_left() {
    let memory = new_blocks();
    put(&blocks_in(&memory), 1, 5);
    let blocks = blocks_in(&memory);
    let is_owed = Arc::new(AtomicBool::new(false));
    let owes = Arc::clone(&is_owed);
    let observer = thread::spawn(move || {
        let heir = blocks_in(&memory);
        let is_left = while_it_stood(unwritten::file_word(memory.words(), 0), || heir.left());
        for left in is_left.iter().flatten() {
            let name = (left.file.0, left.block);
            assert!(name == (1, 5) || name == (2, 7), "{name:?}");
        }
        let is_known = !heir.left().is_empty() || !heir.lost().is_empty();
        assert!(is_known || is_owed.load(Ordering::Acquire));
    });
    let left = blocks.left().pop().expect("one is left");
    blocks.lose(left);
    let lost = blocks.lost().pop().expect("it is lost");
    owes.store(true, Ordering::Release);
    blocks.give_back(lost.slot);
    put(&blocks, 2, 7);
    observer.join().expect("no panic");
}
