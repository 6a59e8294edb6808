//! The journal's words: atomics of the standard library in memory that the keeper holds too. With
//! the feature `loom` they are loom's, in this process alone, and another journal over a clone of
//! them stands for the next process.

#[cfg(not(feature = "loom"))]
pub(super) use spindle_device::SharedMemory;
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::atomic::{AtomicU64 as Word, fence};

#[cfg(feature = "loom")]
pub(super) use explored::SharedMemory;
#[cfg(feature = "loom")]
pub(super) use spindle_sync::atomic::{AtomicU64 as Word, fence};

#[cfg(feature = "loom")]
mod explored {
    use std::io;
    use std::sync::Arc;

    use super::Word;

    /// As `spindle_device::SharedMemory`, without a kernel.
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
    }
}
