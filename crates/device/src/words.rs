//! Words of shared memory: atomics of the standard library, which other processes see too. With the
//! feature `loom` they are loom's, in this process alone, and who holds a clone of them stands for
//! another process.
//!
//! Each memory begins with words that say whose it is and of which version ([`check_head`]).

use std::sync::atomic::Ordering;

#[cfg(not(feature = "loom"))]
pub use crate::shared_memory::{ReadOnlyMemory, SharedMemory};
#[cfg(not(feature = "loom"))]
pub use std::sync::atomic::{AtomicU64 as Word, fence};

#[cfg(feature = "loom")]
pub use explored::{ReadOnlyMemory, SharedMemory};
#[cfg(feature = "loom")]
pub use spindle_sync::atomic::{AtomicU64 as Word, fence};

/// Words at the beginning of a memory that say what it holds: a magic number and a version.
pub const MAGIC_WORDS: usize = 2;
const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;

/// Writes the head of a memory of zeros, and refuses another one's. The version is written first, so
/// that a kill in between leaves what the next process can go on with.
///
/// # Errors
/// What the memory is instead, for a message.
pub fn check_head(words: &[Word], magic: u64, version: u64, what: &str) -> Result<(), String> {
    let get = |word: usize| words[word].load(Ordering::Acquire);
    match (get(MAGIC_WORD), get(VERSION_WORD)) {
        (0, 0) => words[VERSION_WORD].store(version, Ordering::Release),
        (0, known) if known == version => {}
        (known, found) if known == magic && found == version => return Ok(()),
        (known, other) if known == magic => {
            return Err(format!(
                "the memory of {what} has version {other}, and this program reads version {version}"
            ));
        }
        _ => return Err(format!("the kept memory is not that of {what}")),
    }
    words[MAGIC_WORD].store(magic, Ordering::Release);
    Ok(())
}

#[cfg(feature = "loom")]
mod explored {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::Word;

    /// As [`crate::SharedMemory`], without a kernel.
    #[derive(Debug, Clone)]
    pub struct SharedMemory(Arc<Vec<Word>>);

    impl SharedMemory {
        /// New zeroed memory.
        ///
        /// # Errors
        /// None.
        pub fn create(_name: &str, length_bytes: u64) -> io::Result<Self> {
            let words = (0..length_bytes / 8).map(|_| Word::new(0));
            Ok(Self(Arc::new(words.collect())))
        }

        /// All of it.
        #[must_use]
        pub fn words(&self) -> &[Word] {
            &self.0
        }

        /// All of it is there.
        ///
        /// # Errors
        /// None.
        #[expect(clippy::unused_self, reason = "the real one needs it")]
        pub const fn reserve(&self, _first_word: usize, _end_word: usize) -> io::Result<()> {
            Ok(())
        }

        /// Nothing is given back.
        #[expect(clippy::unused_self, reason = "the real one needs it")]
        pub const fn release(&self, _first_word: usize, _end_word: usize) {}

        /// The same memory, for reading.
        ///
        /// # Errors
        /// None.
        pub fn read_only(&self) -> io::Result<ReadOnlyMemory> {
            Ok(ReadOnlyMemory(self.clone()))
        }
    }

    /// As [`crate::ReadOnlyMemory`], without a kernel.
    #[derive(Debug)]
    pub struct ReadOnlyMemory(SharedMemory);

    impl ReadOnlyMemory {
        /// What is in a word; `None` where there are not so many.
        #[must_use]
        pub fn load(&self, word: usize) -> Option<u64> {
            Some(self.0.words().get(word)?.load(Ordering::Relaxed))
        }
    }
}
