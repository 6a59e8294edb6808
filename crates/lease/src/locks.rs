//! The locks of blocks: words that writers take, one after the other, before they write.
//!
//! Blocks share words: which, a hash of the file and of the stretch of 16 KiB says, so that two that
//! write different blocks may meet. Who wants several takes them in the order of the words, so that
//! nobody waits in a ring. A word says which operation has it; of a dead client's words its owner lets go
//! when the blocks have been compared.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use spindle_device::words::Word;

use crate::Leases;
use crate::layout::{Blocks, CLIENTS_COUNT, ClientNumber, LOCKS_COUNT, OPERATIONS_COUNT};

/// Blocks that share a word for certain: pages of 8 and of 16 KiB take one word.
const STRETCH_BLOCKS: u64 = 4;
/// Blocks of one write, at most: 1 MiB.
pub const WRITE_BLOCKS_MAX: u64 = 256;

/// Whose a locked word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder(u64);

impl Holder {
    pub(crate) const fn new(client: ClientNumber, operation: usize) -> Self {
        Self((client.index() * OPERATIONS_COUNT + operation) as u64 + 1)
    }

    /// `None` for a word that is free, or says what nobody is.
    fn of(word: u64) -> Option<(ClientNumber, usize)> {
        let index = usize::try_from(word.checked_sub(1)?).ok()?;
        if index >= CLIENTS_COUNT * OPERATIONS_COUNT {
            return None;
        }
        let client = ClientNumber::new(u16::try_from(index / OPERATIONS_COUNT).ok()?)?;
        Some((client, index % OPERATIONS_COUNT))
    }
}

/// The words of some blocks, in order.
#[derive(Debug)]
pub(crate) struct Places(SmallVec<[u32; 4]>);

impl Places {
    /// # Panics
    /// For more than [`WRITE_BLOCKS_MAX`] blocks, or blocks of every file: nobody locks those.
    pub(crate) fn of(blocks: Blocks) -> Self {
        let file = blocks.file.expect("blocks of one file are locked").0;
        assert!(
            blocks.end.saturating_sub(blocks.first) <= WRITE_BLOCKS_MAX,
            "a write of more than {WRITE_BLOCKS_MAX} blocks"
        );
        let stretches = blocks.first / STRETCH_BLOCKS..blocks.end.div_ceil(STRETCH_BLOCKS);
        let mut places: SmallVec<[u32; 4]> =
            stretches.map(|stretch| place_of(file, stretch)).collect();
        places.sort_unstable();
        places.dedup();
        Self(places)
    }
}

/// Mixed as by the finaliser of MurmurHash3, whose source says that each bit changes each other
/// one with a probability of nearly one half.
pub(crate) const fn mixed(file: u64, number: u64) -> u64 {
    let mut mixed = file.rotate_left(32) ^ number;
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

fn place_of(file: u64, stretch: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 words")]
    let place = (mixed(file, stretch) % LOCKS_COUNT as u64) as u32;
    place
}

/// A lock that somebody has, or had a moment ago.
#[derive(Debug)]
pub(crate) struct HeldLock<'a> {
    word: &'a Word,
    value: u64,
    pub(crate) client: ClientNumber,
    pub(crate) operation: usize,
}

impl HeldLock<'_> {
    /// Takes it away from whoever has it. False where somebody else has it by now.
    pub(crate) fn steal(&self, holder: Holder) -> bool {
        let (from, to) = (self.value, holder.0);
        let change = (self.word).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        change.is_ok()
    }
}

impl Leases {
    /// Takes the first of the words that are not the holder's yet and are free; how many it has
    /// now, of those in order. To be called until it has all.
    pub(crate) fn take_locks(&self, places: &Places, holder: Holder, mut taken: usize) -> usize {
        for place in &places.0[taken..] {
            let word = &self.locks()[*place as usize];
            let free = word.compare_exchange(0, holder.0, Ordering::Acquire, Ordering::Relaxed);
            if free.is_err() {
                break;
            }
            taken += 1;
        }
        taken
    }

    pub(crate) fn has_all(places: &Places, taken: usize) -> bool {
        taken == places.0.len()
    }

    /// Who has the next of the words, if somebody has it.
    pub(crate) fn holder_of(&self, places: &Places, taken: usize) -> Option<HeldLock<'_>> {
        let word = &self.locks()[*places.0.get(taken)? as usize];
        let value = word.load(Ordering::Relaxed);
        let (client, operation) = Holder::of(value)?;
        Some(HeldLock {
            word,
            value,
            client,
            operation,
        })
    }

    /// Of the words those that are the holder's.
    pub(crate) fn give_back_locks(&self, places: &Places, holder: Holder) {
        for place in &places.0 {
            // Not by a store: the next one may be overtaken, or not taken yet.
            let word = &self.locks()[*place as usize];
            let _ = word.compare_exchange(holder.0, 0, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// All that the client has.
    pub(crate) fn give_back_all_locks(&self, client: ClientNumber) {
        let is_its = |value| Holder::of(value).is_some_and(|(whose, _)| whose == client);
        for word in self.locks() {
            let value = word.load(Ordering::Relaxed);
            if is_its(value) {
                let _ = word.compare_exchange(value, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Frees the words of holders that are no client: one that writes anything has stored them, or an
    /// owner was killed as it let a client go. How many there were.
    pub fn mend_locks(&self) -> u64 {
        let is_nobodys = |value| match Holder::of(value) {
            Some((client, _)) => self.client(client).is_none(),
            None => value != 0,
        };
        let mend = |word: &&Word| {
            let value = word.load(Ordering::Relaxed);
            is_nobodys(value)
                && (word.compare_exchange(value, 0, Ordering::Release, Ordering::Relaxed)).is_ok()
        };
        self.locks().iter().filter(mend).count() as u64
    }
}
