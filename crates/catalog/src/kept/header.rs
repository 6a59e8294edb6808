//! The first words of the journal's memory: whose it is, what is to be taken over, and where the log
//! begins and why it ends.
//!
//! Each word is whole and says one thing. The words before the heirs are of the group's states, see
//! [`super::standing`]; those behind them name disks, see [`super::disk_words`].

use std::sync::atomic::Ordering;

use super::Claim;
use super::layout::{HEIRS_COUNT, HEIRS_START, LOG_START};
use spindle_device::words::{MAGIC_WORDS, SharedMemory, Word, check_head};

/// Changes where a program of before would misread what lies here; words that it leaves alone may be
/// added.
pub(super) const VERSION: u64 = 5;
const MAGIC: u64 = u64::from_le_bytes(*b"SPNDJRNL");

/// A [`State`].
const STATE: usize = MAGIC_WORDS;
/// The position of the log's first record.
const LOG_BEGIN: usize = 3;
/// Of the process that began the journal.
pub(super) const CLAIM: usize = 4;
/// Heirs that were ever added.
const HEIRS_ADDED: usize = 5;
const COMPARE_EVERYTHING: usize = 6;
/// A [`LogEnd`].
const LOG_END: usize = 7;
const _: () = assert!(LOG_END < HEIRS_START);

/// Of the smallest ring: with less there would be no room for one change of names.
const LOG_LEAST_WORDS: u64 = 16;

/// Whether there is something to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No process has begun.
    Empty,
    /// A process serves, or was killed while it did.
    Live,
    /// All that was in the log and the touches is durable; the process that took it does not
    /// serve yet.
    Taken,
    /// The last process closed the group.
    Closed,
}

const LIVE: u64 = 1;
const CLOSED: u64 = 2;
const TAKEN: u64 = 3;

/// Whether records go into the log, and what came first where none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogEnd {
    /// They do.
    Open,
    /// Something fell out of it.
    Overflowed,
    /// Half an operation was left; nobody misses what comes after.
    AtHalf,
}

const OVERFLOWED: u64 = 1;
const AT_HALF: u64 = 2;

/// The first words.
pub(super) struct Header<'a>(&'a [Word]);

impl<'a> Header<'a> {
    pub(super) fn of(memory: &'a SharedMemory) -> Self {
        Self(memory.words())
    }

    /// Makes an empty journal of zeros, and refuses what it cannot read.
    pub(super) fn check(&self) -> Result<(), String> {
        let log_words = (self.0.len() as u64).saturating_sub(LOG_START as u64);
        if log_words < LOG_LEAST_WORDS || !log_words.is_power_of_two() {
            return Err(format!("the journal has {} words", self.0.len()));
        }
        check_head(self.0, MAGIC, VERSION, "the journal")
    }

    fn get(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }

    pub(super) fn state(&self) -> State {
        match self.get(STATE) {
            LIVE => State::Live,
            CLOSED => State::Closed,
            TAKEN => State::Taken,
            _ => State::Empty,
        }
    }

    fn heirs(&self) -> &[Word] {
        &self.0[HEIRS_START..][..HEIRS_COUNT]
    }

    /// Whether the process of this claim began the journal, or is an heir of the one that did.
    pub(super) fn is_heir(&self, claim: Claim) -> bool {
        let heirs = self.heirs().iter();
        self.claim() == claim
            || heirs
                .map(|heir| heir.load(Ordering::Acquire))
                .any(|heir| heir == claim.0)
    }

    /// Adds an heir; `before` stays one.
    pub(super) fn add_heir(&self, before: Claim, next: Claim) {
        if self.is_heir(next) {
            return;
        }
        let count = self.get(HEIRS_ADDED);
        let places = (0..HEIRS_COUNT as u64).map(|step| (count + step) % HEIRS_COUNT as u64);
        let free = places
            .filter_map(|place| self.heirs().get(usize::try_from(place).ok()?))
            .find(|heir| heir.load(Ordering::Acquire) != before.0);
        if let Some(heir) = free {
            heir.store(next.0, Ordering::Release);
            self.set(HEIRS_ADDED, count + 1);
        }
    }

    pub(super) fn remove_heir(&self, claim: Claim) {
        for heir in self.heirs() {
            if heir.load(Ordering::Acquire) == claim.0 {
                heir.store(0, Ordering::Release);
            }
        }
    }

    /// Of the process that began the journal.
    pub(super) fn claim(&self) -> Claim {
        Claim(self.get(CLAIM))
    }

    pub(super) fn set_taken(&self) {
        self.set(STATE, TAKEN);
    }

    pub(super) fn begin(&self, claim: Claim) {
        self.set(CLAIM, claim.0);
        for heir in self.heirs() {
            heir.store(0, Ordering::Release);
        }
        self.set(STATE, LIVE);
    }

    pub(super) fn close(&self) {
        self.set(STATE, CLOSED);
    }

    /// Where the log begins.
    pub(super) fn log_start(&self) -> u64 {
        self.get(LOG_BEGIN)
    }

    #[cfg(feature = "loom")]
    pub(super) const fn claim_word(&self) -> &Word {
        &self.0[CLAIM]
    }

    #[cfg(feature = "loom")]
    pub(super) const fn log_start_word(&self) -> &Word {
        &self.0[LOG_BEGIN]
    }

    pub(super) fn set_log_start(&self, position: u64) {
        self.set(LOG_BEGIN, position);
    }

    pub(super) fn set_compare_everything(&self, compare: bool) {
        self.set(COMPARE_EVERYTHING, u64::from(compare));
    }

    pub(super) fn compares_everything(&self) -> bool {
        self.get(COMPARE_EVERYTHING) != 0
    }

    pub(super) fn log_end(&self) -> LogEnd {
        match self.get(LOG_END) {
            0 => LogEnd::Open,
            AT_HALF => LogEnd::AtHalf,
            _ => LogEnd::Overflowed,
        }
    }

    /// Nothing more goes into the log. The first reason stays.
    pub(super) fn end_log(&self, end: LogEnd) {
        if self.log_end() == LogEnd::Open {
            let word = match end {
                LogEnd::Open => 0,
                LogEnd::Overflowed => OVERFLOWED,
                LogEnd::AtHalf => AT_HALF,
            };
            self.set(LOG_END, word);
        }
    }

    /// A commit has all that is missing in the log.
    pub(super) fn open_log(&self) {
        self.set(LOG_END, 0);
    }
}
