//! The log: records in a ring, found again by their positions.
//!
//! Positions count words from the journal's first record on and never repeat; a record's first
//! word is its own position plus one. Before a record gets that word, the word behind the record
//! becomes zero; so whoever reads stops there, whatever an earlier round of the ring left.

use std::sync::atomic::Ordering;

use super::header::{Header, LogEnd};
use super::layout::{LOG_START, log_words};
use crate::{Edit, Table};
use spindle_device::words::SharedMemory;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows set and removed.
    Edit,
    /// An extent as it is.
    Extent,
    /// The end of an operation, and the request that it was done for.
    End,
}

const EDIT: u64 = 1;
const EXTENT: u64 = 2;
const END: u64 = 3;

/// Bits of a bracket's number, and the highest one. No log has so many operations.
pub(super) const BRACKET_MASK: u32 = (1 << 24) - 1;
/// A record's position and its description.
const HEAD_WORDS: u64 = 2;
/// So much is cut off before its memory is given back to the machine.
const RELEASED_WORDS: u64 = 32 << 10;

/// A record as it was read.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) position: u64,
    pub(super) kind: Kind,
    pub(super) bracket: u32,
    pub(super) payload: Vec<u64>,
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Log {
    end: u64,
    /// Records that found no room since the log ended there. Each takes one position, so that of
    /// two moments the later one has the higher position.
    fallen_out_count: u64,
    /// Memory before this position was given back.
    released: u64,
    /// The bracket that was found last. Not the highest: after that one they begin again.
    pub(super) last_bracket: u32,
}

/// Where each position lies.
struct Ring {
    words: u64,
}

impl Ring {
    fn of(memory: &SharedMemory) -> Self {
        let words = log_words(memory);
        Self { words }
    }

    fn place(&self, position: u64) -> usize {
        // A power of two: a division for each word would be felt.
        let within = position & (self.words - 1);
        LOG_START + usize::try_from(within).expect("the ring fits the address space")
    }
}

impl Log {
    /// Finds the end of what is there.
    pub(super) fn open(memory: &SharedMemory) -> Self {
        let header = Header::of(memory);
        let start = header.log_start();
        let mut log = Self {
            end: start,
            // How many they were is known to who wrote them; at least one.
            fallen_out_count: u64::from(header.log_end() == LogEnd::Overflowed),
            released: start,
            last_bracket: 0,
        };
        while let Some(record) = read(memory, log.end) {
            log.end += HEAD_WORDS + record.payload.len() as u64;
            if record.bracket != 0 {
                log.last_bracket = record.bracket;
            }
        }
        log
    }

    /// Behind the last record.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Behind the last record and those that fell out after it: there the log goes on when a commit
    /// has these.
    pub(super) const fn place(&self) -> u64 {
        self.end + self.fallen_out_count
    }

    /// A record found no room.
    pub(super) const fn note_fallen_out(&mut self) {
        self.fallen_out_count += 1;
    }

    pub(super) fn length_words(&self, memory: &SharedMemory) -> u64 {
        self.end - Header::of(memory).log_start()
    }

    /// Appends a record; false where the ring is full.
    pub(super) fn append(
        &mut self,
        memory: &SharedMemory,
        kind: Kind,
        bracket: u32,
        payload: &[u64],
    ) -> bool {
        let length = payload.len() as u64;
        let next = self.end + HEAD_WORDS + length;
        // One word more for the zero behind it, and one for the zero behind a gap.
        let ring = Ring::of(memory);
        if next + 2 - Header::of(memory).log_start() > ring.words || length > u64::from(u32::MAX) {
            return false;
        }
        let words = memory.words();
        let kind = match kind {
            Kind::Edit => EDIT,
            Kind::Extent => EXTENT,
            Kind::End => END,
        };
        words[ring.place(next)].store(0, Ordering::Relaxed);
        let description = kind | u64::from(bracket) << 8 | length << 32;
        words[ring.place(self.end + 1)].store(description, Ordering::Relaxed);
        for (position, word) in (self.end + HEAD_WORDS..).zip(payload) {
            words[ring.place(position)].store(*word, Ordering::Relaxed);
        }
        words[ring.place(self.end)].store(self.end + 1, Ordering::Release);
        self.end = next;
        true
    }

    /// Gives up everything before `position`. Where that is behind the end, what fell out of the log
    /// goes too, and the log goes on there: one word says both.
    pub(super) fn cut(&mut self, memory: &SharedMemory, position: u64) {
        let header = Header::of(memory);
        if position > self.end {
            memory.words()[Ring::of(memory).place(position)].store(0, Ordering::Relaxed);
            self.end = position;
            self.fallen_out_count = 0;
        }
        if position <= header.log_start() {
            return;
        }
        header.set_log_start(position);
        if position - self.released < RELEASED_WORDS {
            return;
        }
        let ring = Ring::of(memory);
        // The log may have gone round and lie where the oldest of that lay.
        let first = self.released.max((self.end + 2).saturating_sub(ring.words));
        self.released = position;
        if first >= position {
            return;
        }
        let (from, to) = (ring.place(first), ring.place(position));
        if from < to {
            memory.release(from, to);
        } else {
            memory.release(from, memory.words().len());
            memory.release(LOG_START, to);
        }
    }
}

/// The record at `position`, if there is one.
pub(super) fn read(memory: &SharedMemory, position: u64) -> Option<Record> {
    let words = memory.words();
    let ring = Ring::of(memory);
    if words[ring.place(position)].load(Ordering::Acquire) != position + 1 {
        return None;
    }
    let description = words[ring.place(position + 1)].load(Ordering::Relaxed);
    let kind = match description & 0xff {
        EDIT => Kind::Edit,
        EXTENT => Kind::Extent,
        END => Kind::End,
        _ => return None,
    };
    let length = description >> 32;
    if length > ring.words {
        return None;
    }
    let first = position + HEAD_WORDS;
    let payload = (first..first + length)
        .map(|position| words[ring.place(position)].load(Ordering::Relaxed))
        .collect();
    Some(Record {
        position,
        kind,
        bracket: u32::try_from(description >> 8 & u64::from(BRACKET_MASK)).unwrap_or(0),
        payload,
    })
}

/// An edit as words: for each change a word with the table, whether there is a value, and the
/// key's length, one with the value's length, then both, filled up to whole words.
pub(super) fn encode_edit(edit: &Edit) -> Vec<u64> {
    let mut words = Vec::with_capacity(edit.changes.len() * 16);
    for (table, key, value) in &edit.changes {
        let has_value = u64::from(value.is_some());
        words.push(table.index() as u64 | has_value << 8 | (key.len() as u64) << 32);
        words.push(value.as_ref().map_or(0, Vec::len) as u64);
        push_bytes(&mut words, key);
        push_bytes(&mut words, value.as_deref().unwrap_or_default());
    }
    words
}

fn push_bytes(words: &mut Vec<u64>, bytes: &[u8]) {
    words.extend(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    }));
}

/// The edit in a record; `None` where the words are none.
pub(super) fn decode_edit(words: &[u64]) -> Option<Edit> {
    let mut edit = Edit::default();
    let mut rest = words;
    while let [head, value_bytes, after @ ..] = rest {
        let table = *Table::ALL.get(usize::try_from(head & 0xff).ok()?)?;
        let (key, after) = take_bytes(after, head >> 32)?;
        let (value, after) = take_bytes(after, *value_bytes)?;
        let has_value = head >> 8 & 1 == 1;
        edit.changes.push((table, key, has_value.then_some(value)));
        rest = after;
    }
    rest.is_empty().then_some(edit)
}

fn take_bytes(words: &[u64], length_bytes: u64) -> Option<(Vec<u8>, &[u64])> {
    let length = usize::try_from(length_bytes).ok()?;
    let (taken, rest) = words.split_at_checked(length.div_ceil(8))?;
    let mut bytes: Vec<u8> = taken.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(length);
    Some((bytes, rest))
}
