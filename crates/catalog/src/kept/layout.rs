//! Where everything lies in the journal's memory, in words of 8 bytes.
//!
//! A header ([`super::header`]); a table of requests, one for each worker; the numbers of requests that earlier
//! processes had done, in two lists of which one counts; the writes under way; the touches; then
//! the log's ring, which is what the memory has left. The memory dies with the machine, so that the
//! byte order is the machine's.
//!
//! **The order of stores.** A killed process has made some of its stores and not the others: the
//! first so many, in the order that the compiler left them in. So the language's order is what
//! counts, and it is asked for in both directions: what a word says is stored before the word
//! (`Release`), and what is overwritten because a word no longer says it is so after that word
//! ([`fence`]). `docs/decisions/memory-orders.md` says which of them `harness/loom` tries.

use std::sync::atomic::Ordering;

use spindle_base::FileId;
use spindle_format::Timestamp;

use super::recovered::Touch;
pub(super) use sizes::{
    APPEARANCES_COUNT, FAILED_COUNT, HEADER_WORDS, HEIRS_COUNT, HEIRS_START, REQUESTS_COUNT,
    TOUCHES_COUNT, WRITES_COUNT,
};
use sizes::{DONE_COUNT, LOG_ALIGN_WORDS};
use spindle_device::words::{SharedMemory, Word, fence};

#[cfg(not(feature = "loom"))]
mod sizes {
    /// Workers whose requests are told apart. With more, two would share a place, and a kill could
    /// have one of two requests done again: a mount has no more.
    pub(crate) const REQUESTS_COUNT: usize = 256;
    /// Requests of earlier processes that are remembered: as many as can be under way, four times.
    pub(super) const DONE_COUNT: usize = 1024;
    /// Writes under way that are told apart; with more, a takeover compares all dirty regions.
    pub(crate) const WRITES_COUNT: usize = 1024;
    /// Inodes whose rows may lag behind at a time; with more, rows are written at once.
    pub(crate) const TOUCHES_COUNT: u32 = 1 << 16;
    pub(crate) const HEADER_WORDS: usize = 512;
    /// The heirs, among the header's words.
    pub(crate) const HEIRS_START: usize = 64;
    /// Processes in a row that may die between their claim and the end of their opening, each of
    /// them known. Of older ones no disk says any more that they had the group.
    pub(crate) const HEIRS_COUNT: usize = 64;
    /// Disks that failed a flush and can be named; with more, every disk counts.
    pub(crate) const FAILED_COUNT: usize = 256;
    /// Disks of which it is known which appearance of theirs is served; of more it is not.
    pub(crate) const APPEARANCES_COUNT: usize = 126;
    /// A page.
    pub(super) const LOG_ALIGN_WORDS: usize = 512;
}

/// Just enough for a model, which has each word among what it tries.
#[cfg(feature = "loom")]
mod sizes {
    pub(crate) const REQUESTS_COUNT: usize = 1;
    pub(super) const DONE_COUNT: usize = 2;
    pub(crate) const WRITES_COUNT: usize = 1;
    pub(crate) const TOUCHES_COUNT: u32 = 1;
    pub(crate) const HEADER_WORDS: usize = 18;
    pub(crate) const HEIRS_START: usize = 12;
    pub(crate) const HEIRS_COUNT: usize = 2;
    pub(crate) const FAILED_COUNT: usize = 1;
    pub(crate) const APPEARANCES_COUNT: usize = 1;
    pub(super) const LOG_ALIGN_WORDS: usize = 1;
}

const REQUEST_WORDS: usize = 2;
const WRITE_WORDS: usize = 4;
const TOUCH_WORDS: usize = 8;
/// Bits of a touch's first word that name its version; the others have a position.
const TOUCH_VERSION_BITS: u32 = 2;
const TOUCH_VERSION: u64 = (1 << TOUCH_VERSION_BITS) - 1;

const REQUESTS_START: usize = HEADER_WORDS;
/// Which of two lists counts.
const DONE_CURRENT: usize = REQUESTS_START + REQUESTS_COUNT * REQUEST_WORDS;
const DONE_START: usize = DONE_CURRENT + 1;
const WRITES_START: usize = DONE_START + 2 * DONE_COUNT;
const TOUCH_CURRENT_START: usize = WRITES_START + WRITES_COUNT * WRITE_WORDS;
const TOUCHES_START: usize = TOUCH_CURRENT_START + TOUCHES_COUNT as usize;
/// The ring begins here, on a page.
pub(super) const LOG_START: usize =
    (TOUCHES_START + 2 * TOUCHES_COUNT as usize * TOUCH_WORDS).next_multiple_of(LOG_ALIGN_WORDS);
/// Words of the ring in what ships: 128 MiB. A power of two in any case.
pub(super) const LOG_WORDS: u64 = 16 << 20;

/// Words of the ring in this memory.
pub(super) fn log_words(memory: &SharedMemory) -> u64 {
    (memory.words().len() - LOG_START) as u64
}

/// One worker's request.
pub(super) struct Request<'a>(&'a [Word]);

pub(super) fn request(words: &[Word], slot: usize) -> Request<'_> {
    Request(&words[REQUESTS_START + slot * REQUEST_WORDS..][..REQUEST_WORDS])
}

impl Request<'_> {
    /// It is done where the log reaches this position.
    pub(super) fn set_done(&self, unique: u64, counts_from: u64) {
        self.0[0].store(unique, Ordering::Release);
        // Zero is for none.
        self.0[1].store(counts_from + 1, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.0[1].store(0, Ordering::Release);
    }

    /// Its number, where its effect is in the log, which ends here, or committed.
    pub(super) fn done(&self, log_end: u64) -> Option<u64> {
        let counts_from = self.0[1].load(Ordering::Acquire).checked_sub(1)?;
        (counts_from <= log_end).then(|| self.0[0].load(Ordering::Acquire))
    }
}

/// Puts another list in place of the one that counts, which counts until the new one is whole.
pub(super) fn write_done(words: &[Word], mut done: impl Iterator<Item = u64>) {
    let next = fill_done(words, &mut done);
    words[DONE_CURRENT].store(next, Ordering::Release);
}

/// Fills the list that does not count with the first of these; which it is.
pub(super) fn fill_done(words: &[Word], done: &mut dyn Iterator<Item = u64>) -> u64 {
    let next = 1 - words[DONE_CURRENT].load(Ordering::Acquire).min(1);
    for word in done_list(words, next) {
        word.store(done.next().unwrap_or(0), Ordering::Release);
    }
    next
}

#[cfg(feature = "loom")]
pub(super) const fn done_current(words: &[Word]) -> &Word {
    &words[DONE_CURRENT]
}

fn done_list(words: &[Word], number: u64) -> &[Word] {
    let (first, second) = words[DONE_START..][..2 * DONE_COUNT].split_at(DONE_COUNT);
    if number == 0 { first } else { second }
}

pub(super) fn read_done(words: &[Word]) -> impl Iterator<Item = u64> + '_ {
    let done = done_list(words, words[DONE_CURRENT].load(Ordering::Acquire)).iter();
    done.map(|word| word.load(Ordering::Acquire))
        .filter(|unique| *unique != 0)
}

/// A write under way.
pub(super) struct Write<'a>(&'a [Word]);

pub(super) fn write(words: &[Word], slot: usize) -> Write<'_> {
    Write(&words[WRITES_START + slot * WRITE_WORDS..][..WRITE_WORDS])
}

const WRITE_FREE: u64 = 0;
const WRITE_TAKEN: u64 = 1;
const WRITE_NAMED: u64 = 2;

impl Write<'_> {
    #[cfg(feature = "loom")]
    pub(super) const fn state(&self) -> &Word {
        &self.0[0]
    }

    /// Takes the slot, where it is free.
    pub(super) fn begin(&self, file: u64, first: u64, end: u64) -> bool {
        let is_taken = self.fill(file, first, end);
        if is_taken {
            // Before any data goes out.
            self.0[0].store(WRITE_NAMED, Ordering::SeqCst);
        }
        is_taken
    }

    /// Takes the slot, where it is free, and does not name it yet.
    pub(super) fn fill(&self, file: u64, first: u64, end: u64) -> bool {
        let taken = self.0[0].compare_exchange(
            WRITE_FREE,
            WRITE_TAKEN,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return false;
        }
        // Not before it is taken: it would name the write before with this one's blocks.
        fence(Ordering::Release);
        self.0[1].store(file, Ordering::Relaxed);
        self.0[2].store(first, Ordering::Relaxed);
        self.0[3].store(end, Ordering::Relaxed);
        true
    }

    pub(super) fn clear(&self) {
        self.0[0].store(WRITE_FREE, Ordering::Release);
    }

    pub(super) fn get(&self) -> Option<(FileId, u64, u64)> {
        (self.0[0].load(Ordering::Acquire) == WRITE_NAMED).then(|| {
            let word = |index: usize| self.0[index].load(Ordering::Relaxed);
            (FileId(word(1)), word(2), word(3))
        })
    }
}

/// One inode's touch: two versions, and a word that says which one counts, and until which
/// position of the log. So a process that is killed while it writes one leaves the other.
pub(super) struct TouchPlace<'a> {
    current: &'a Word,
    versions: &'a [Word],
}

pub(super) fn touch(words: &[Word], slot: u32) -> TouchPlace<'_> {
    let slot = slot as usize;
    TouchPlace {
        current: &words[TOUCH_CURRENT_START + slot],
        versions: &words[TOUCHES_START + slot * 2 * TOUCH_WORDS..][..2 * TOUCH_WORDS],
    }
}

impl TouchPlace<'_> {
    #[cfg(feature = "loom")]
    pub(super) const fn current(&self) -> &Word {
        self.current
    }

    pub(super) fn is_taken(&self) -> bool {
        self.current.load(Ordering::Acquire) != 0
    }

    pub(super) fn clear(&self) {
        self.current.store(0, Ordering::Release);
    }

    pub(super) fn put(&self, position: u64, touch: &Touch) {
        let next = self.fill(position, touch);
        self.current.store(next as u64, Ordering::Release);
    }

    /// Fills the version that does not count; which it is.
    pub(super) fn fill(&self, position: u64, touch: &Touch) -> usize {
        let next = if self.version() == 1 { 2 } else { 1 };
        let nanoseconds = |time: Timestamp| u64::from(time.nanoseconds);
        let words = [
            position,
            touch.id.0,
            touch.size_bytes,
            touch.accessed.seconds.cast_unsigned(),
            touch.modified.seconds.cast_unsigned(),
            touch.changed.seconds.cast_unsigned(),
            nanoseconds(touch.accessed) | nanoseconds(touch.modified) << 32,
            nanoseconds(touch.changed),
        ];
        let version = &self.versions[(next - 1) * TOUCH_WORDS..][..TOUCH_WORDS];
        // Not before the other version counts: this one did until then.
        fence(Ordering::Release);
        for (place, word) in version.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        next
    }

    /// 1 for the first version, 2 for the second one.
    fn version(&self) -> u64 {
        self.current.load(Ordering::Acquire) & TOUCH_VERSION
    }

    /// From there on the row has what the touch says, or newer.
    pub(super) fn count_until(&self, position: u64) {
        let word = self.version() | position << TOUCH_VERSION_BITS;
        self.current.store(word, Ordering::Release);
    }

    /// The touch, and where the log ended when it was noted, where it counts while the log ends
    /// at `log_end`.
    pub(super) fn get(&self, log_end: u64) -> Option<(u64, Touch)> {
        let start = match self.version() {
            1 => 0,
            2 => TOUCH_WORDS,
            _ => return None,
        };
        let until = self.current.load(Ordering::Acquire) >> TOUCH_VERSION_BITS;
        if until != 0 && log_end >= until {
            return None;
        }
        let word = |index: usize| self.versions[start + index].load(Ordering::Relaxed);
        let low = |index: usize| u32::try_from(word(index) & u64::from(u32::MAX)).unwrap_or(0);
        let time = |index: usize, nanoseconds: u32| Timestamp {
            seconds: word(index).cast_signed(),
            nanoseconds,
        };
        let touch = Touch {
            id: FileId(word(1)),
            size_bytes: word(2),
            accessed: time(3, low(6)),
            modified: time(4, u32::try_from(word(6) >> 32).unwrap_or(0)),
            changed: time(5, low(7)),
        };
        Some((word(0), touch))
    }
}
