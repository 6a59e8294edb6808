//! What a front door keeps of a file's bytes on its own account, as the kernel's page cache does.
//!
//! Whoever changes the file past that door has it forget them, which costs something with each
//! write; so here is known whether it keeps any.
//!
//! **Invariant.** Where a read was given bytes from before a write, and keeps them, that write sees
//! it here when it has ended: the read says so before it takes the bytes, the write looks after it
//! has put its own, and one of both sees the other.

use spindle_sync::atomic::{AtomicU32, Ordering, fence};

/// Nobody has said anything: this process may have begun beside a door that keeps bytes.
const UNKNOWN: u32 = 0;
const NOTHING: u32 = 1;
/// From here on: bytes are kept, and so many writes came since the last read.
const KEPT: u32 = 2;
/// With the number of the asking: the door has been asked to forget all of it, and has not answered
/// yet.
const FORGETTING: u32 = 1 << 31;

/// So many writes without a read in between, and having all of it forgotten once is cheaper than
/// having a part forgotten with each further write.
const WRITES_MOST: u32 = 64;

/// One time that the door was asked to forget all of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking(u32);

/// What a write is to have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing is kept.
    Nothing,
    /// What it wrote.
    Written,
    /// What it wrote, and then the whole file, after which [`KeptBytes::note_forgotten`] follows.
    WrittenAndAll(Asking),
}

/// Whether somebody keeps bytes of one file.
#[derive(Debug)]
pub struct KeptBytes {
    state: AtomicU32,
    /// How often the door was asked to forget all of it.
    asked_count: AtomicU32,
}

impl KeptBytes {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(UNKNOWN),
            asked_count: AtomicU32::new(0),
        }
    }

    /// Before a read takes bytes that its door keeps.
    pub fn note_kept(&self) {
        if self.state.load(Ordering::SeqCst) != KEPT {
            self.state.store(KEPT, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    /// After a write past the door: what the door is to forget. `unknown_is_kept` where it was there
    /// before this process.
    #[must_use]
    pub fn after_write(&self, unknown_is_kept: bool) -> Forgotten {
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::SeqCst);
        let counted = match state {
            NOTHING => return Forgotten::Nothing,
            UNKNOWN if !unknown_is_kept => return Forgotten::Nothing,
            FORGETTING.. => return Forgotten::Written,
            UNKNOWN => KEPT + 1,
            counted => counted + 1,
        };
        let order = Ordering::SeqCst;
        let due = (counted - KEPT >= WRITES_MOST).then(|| {
            let number = self.asked_count.fetch_add(1, order);
            Asking(number | FORGETTING)
        });
        let next = due.map_or(counted, |asking| asking.0);
        // A read that came in between has begun the count again.
        let changed = self.state.compare_exchange(state, next, order, order);
        match due {
            Some(asking) if changed.is_ok() => Forgotten::WrittenAndAll(asking),
            _ => Forgotten::Written,
        }
    }

    /// The door has done what it was asked for then: it has forgotten all of the file, what it was being
    /// given meanwhile included, and nothing is kept but what a read has taken since.
    ///
    /// Where it was asked once more since then, it keeps what a read took in between: the end of
    /// that later asking counts.
    pub fn note_forgotten(&self, asking: Asking) {
        let order = Ordering::SeqCst;
        // A read that came in between keeps bytes.
        let _ = (self.state).compare_exchange(asking.0, NOTHING, order, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(kept: &KeptBytes) -> Asking {
        for _ in 1..WRITES_MOST {
            assert_eq!(kept.after_write(false), Forgotten::Written);
        }
        match kept.after_write(false) {
            Forgotten::WrittenAndAll(asking) => asking,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_write_to_a_file_that_nobody_keeps_has_nothing_forgotten() {
        assert_eq!(KeptBytes::new().after_write(false), Forgotten::Nothing);
    }

    #[test]
    fn what_was_kept_before_this_process_is_forgotten() {
        assert_eq!(KeptBytes::new().after_write(true), Forgotten::Written);
    }

    #[test]
    fn after_many_writes_without_a_read_all_is_forgotten_once_and_then_nothing() {
        let kept = KeptBytes::new();
        kept.note_kept();
        let asking = due(&kept);
        assert_eq!(kept.after_write(false), Forgotten::Written);
        kept.note_forgotten(asking);
        assert_eq!(kept.after_write(false), Forgotten::Nothing);
        assert_eq!(kept.after_write(true), Forgotten::Nothing);
    }

    #[test]
    fn what_a_read_takes_while_all_is_being_forgotten_is_kept() {
        let kept = KeptBytes::new();
        kept.note_kept();
        let asking = due(&kept);
        kept.note_kept();
        kept.note_forgotten(asking);
        assert_eq!(kept.after_write(false), Forgotten::Written);
    }

    #[test]
    fn the_end_of_an_earlier_asking_says_nothing_of_what_was_read_before_a_later_one() {
        let kept = KeptBytes::new();
        kept.note_kept();
        let first = due(&kept);
        kept.note_kept();
        let second = due(&kept);
        kept.note_forgotten(first);
        assert_eq!(kept.after_write(false), Forgotten::Written);
        kept.note_forgotten(second);
        assert_eq!(kept.after_write(false), Forgotten::Nothing);
    }

    #[test]
    fn a_read_begins_the_count_of_writes_again() {
        let kept = KeptBytes::new();
        kept.note_kept();
        for _ in 1..WRITES_MOST {
            assert_eq!(kept.after_write(false), Forgotten::Written);
        }
        kept.note_kept();
        let _ = due(&kept);
    }
}
