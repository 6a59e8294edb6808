//! Locks that nothing is shown for: leaves, and those that deep places take.

use super::{Level, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};

/// The last level of every order: whoever holds such a lock takes no other one that has a level.
/// It stands before none, so its guard cannot be shown for one.
#[derive(Debug)]
pub enum Leaf {}

impl Level for Leaf {
    const PLACE: u8 = u8::MAX;
    const NAME: &'static str = "a leaf";
}

/// A mutex of a level that failure paths take, whatever they hold: it is always as with
/// [`Unshown`](super::Unshown).
#[derive(Debug)]
pub struct DeepMutex<T, L>(Mutex<T, L>);

/// A lock of readers and writers of a level that is taken whatever is held.
#[derive(Debug)]
pub struct DeepRwLock<T, L>(RwLock<T, L>);

/// A mutex that is a leaf: whatever is held, it may be taken.
pub type LeafMutex<T> = DeepMutex<T, Leaf>;
/// A lock of readers and writers that is a leaf: whatever is held, it may be taken.
pub type LeafRwLock<T> = DeepRwLock<T, Leaf>;
/// The leaf is held as long as this lives.
pub type LeafGuard<'a, T> = MutexGuard<'a, T, Leaf>;

impl<T, L: Level> DeepMutex<T, L> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T, L> {
        self.0.lock_checked()
    }
}

impl<T, L: Level> DeepRwLock<T, L> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Shares it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> ReadGuard<'_, T, L> {
        self.0.read_checked()
    }

    /// Has it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> WriteGuard<'_, T, L> {
        self.0.write_checked()
    }

    /// Has it alone where that needs no wait.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T, L>> {
        self.0.try_write()
    }
}

impl<T: Default, L: Level> Default for DeepMutex<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default, L: Level> Default for DeepRwLock<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
