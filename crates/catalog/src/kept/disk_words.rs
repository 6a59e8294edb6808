//! What the journal says of single disks: which failed a flush that nobody was told of, and which
//! appearance of each is served.
//!
//! The words stand behind the heirs, in two tables. Each begins with the claim of the process whose
//! journal says so. A program of this version that does not know the words leaves them as they are; the
//! next process that begins has another claim, and what the words say is nobody's then.
//!
//! A kill leaves each word whole. A disk is named before anybody is answered who relies on that, and
//! forgotten when everybody concerned knows.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use spindle_base::DiskNumber;
use spindle_sync::{Mutex, MutexGuard};

use super::Claim;
use super::header::{CLAIM, Header};
use super::layout::{APPEARANCES_COUNT, FAILED_COUNT, HEADER_WORDS, HEIRS_COUNT, HEIRS_START};
use spindle_device::words::{SharedMemory, Word};

/// Whose the disks are that failed a flush: the header's own claim when they were named.
const FAILED_CLAIM: usize = HEIRS_START + HEIRS_COUNT;
const FAILED_START: usize = FAILED_CLAIM + 1;
/// Whose the appearances are.
const APPEARANCES_CLAIM: usize = FAILED_START + FAILED_COUNT;
const APPEARANCES_START: usize = APPEARANCES_CLAIM + 1;
const _: () = assert!(APPEARANCES_START + APPEARANCES_COUNT <= HEADER_WORDS);
/// The lower bits of an appearance's word; the others name the disk as [`name_of`] does.
const APPEARANCE_BITS: u32 = 47;
const APPEARANCE: u64 = (1 << APPEARANCE_BITS) - 1;

const EVERY_DISK: u64 = u64::MAX;

/// Zero is for none.
fn name_of(disk: DiskNumber) -> u64 {
    u64::from(disk.0) + 1
}

fn is_free(word: &&Word) -> bool {
    word.load(Ordering::Acquire) == 0
}

/// What the words say, for whoever looks.
pub(super) struct Named<'a> {
    memory: &'a SharedMemory,
}

impl<'a> Named<'a> {
    pub(super) const fn in_memory(memory: &'a SharedMemory) -> Self {
        Self { memory }
    }

    fn claim(&self, word: usize) -> Claim {
        Claim(self.memory.words()[word].load(Ordering::Acquire))
    }

    fn failed(&self) -> &'a [Word] {
        &self.memory.words()[FAILED_START..][..FAILED_COUNT]
    }

    fn appearances(&self) -> &'a [Word] {
        &self.memory.words()[APPEARANCES_START..][..APPEARANCES_COUNT]
    }

    /// Whether the disk failed a flush.
    pub(super) fn has_failed(&self, disk: DiskNumber) -> bool {
        let mut failed = self
            .failed()
            .iter()
            .map(|word| word.load(Ordering::Acquire));
        self.claim(FAILED_CLAIM) == self.claim(CLAIM)
            && failed.any(|word| word == name_of(disk) || word == EVERY_DISK)
    }

    /// Whether any disk failed a flush.
    pub(super) fn have_any_failed(&self) -> bool {
        self.claim(FAILED_CLAIM) == self.claim(CLAIM)
            && !self.failed().iter().all(|word| is_free(&word))
    }

    fn appearance_of(&self, disk: DiskNumber) -> Option<&'a Word> {
        self.appearances()
            .iter()
            .find(|word| word.load(Ordering::Acquire) >> APPEARANCE_BITS == name_of(disk))
    }

    /// Whether another appearance of the disk was served. A program that does not know of them may
    /// have had the group since; what it left says nothing.
    pub(super) fn served_another(&self, disk: DiskNumber, appearance: u64) -> bool {
        Header::of(self.memory).is_heir(self.claim(APPEARANCES_CLAIM))
            && (self.appearance_of(disk)).is_some_and(|word| {
                word.load(Ordering::Acquire) & APPEARANCE != appearance & APPEARANCE
            })
    }
}

/// Who may write the words: one at a time.
#[derive(Debug, Default)]
pub(super) struct DiskWords {
    /// Disks that failed a flush and that nobody needs any more once a commit has what fell out of
    /// the log.
    told: Mutex<BTreeSet<DiskNumber>>,
}

impl DiskWords {
    pub(super) fn lock<'a>(&'a self, memory: &'a SharedMemory) -> Naming<'a> {
        Naming {
            told: self.told.lock(),
            named: Named::in_memory(memory),
        }
    }
}

/// Names disks, and forgets them.
pub(super) struct Naming<'a> {
    told: MutexGuard<'a, BTreeSet<DiskNumber>>,
    named: Named<'a>,
}

impl Naming<'_> {
    fn set_claim(&self, word: usize, claim: Claim) {
        self.named.memory.words()[word].store(claim.0, Ordering::Release);
    }

    /// The disk failed a flush.
    pub(super) fn add_failed(&mut self, disk: DiskNumber) {
        self.told.remove(&disk);
        let claim = self.named.claim(CLAIM);
        if self.named.claim(FAILED_CLAIM) != claim {
            self.clear_failed();
            self.set_claim(FAILED_CLAIM, claim);
        }
        if self.named.has_failed(disk) {
            return;
        }
        match self.named.failed().iter().find(is_free) {
            Some(word) => word.store(name_of(disk), Ordering::Release),
            None => self.named.failed()[0].store(EVERY_DISK, Ordering::Release),
        }
    }

    /// Everybody concerned owes the error, or the disk is offline.
    pub(super) fn remove_failed(&self, disk: DiskNumber) {
        for word in self.named.failed() {
            if word.load(Ordering::Acquire) == name_of(disk) {
                word.store(0, Ordering::Release);
            }
        }
    }

    /// As [`Self::remove_failed`], once a commit has the rows that say so.
    pub(super) fn remove_failed_later(&mut self, disk: DiskNumber) {
        self.told.insert(disk);
    }

    /// A commit has the rows.
    pub(super) fn remove_told(&mut self) {
        while let Some(disk) = self.told.pop_first() {
            self.remove_failed(disk);
        }
    }

    pub(super) fn clear_failed(&self) {
        for word in self.named.failed() {
            word.store(0, Ordering::Release);
        }
    }

    /// Which appearance of the disk is served from now on; none where nobody knows it, or the disk is
    /// the group's no more.
    pub(super) fn set_appearance(&self, disk: DiskNumber, appearance: Option<u64>) {
        let word = appearance.map_or(0, |appearance| {
            (name_of(disk) << APPEARANCE_BITS) | (appearance & APPEARANCE)
        });
        let free = || self.named.appearances().iter().find(is_free);
        if let Some(place) = self.named.appearance_of(disk).or_else(free) {
            place.store(word, Ordering::Release);
        }
    }

    /// These are the appearances that the process of this claim serves, which is about to begin. What
    /// is known of other disks is forgotten: they may be as many as there are places.
    pub(super) fn set_appearances(
        &self,
        claim: Claim,
        appearances: impl Iterator<Item = (DiskNumber, Option<u64>)>,
    ) {
        for word in self.named.appearances() {
            word.store(0, Ordering::Release);
        }
        for (disk, appearance) in appearances {
            self.set_appearance(disk, appearance);
        }
        self.set_claim(APPEARANCES_CLAIM, claim);
    }
}
