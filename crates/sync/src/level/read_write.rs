//! A lock of readers and writers that stands somewhere.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::{Held, Holds, Level, Shown};

/// As [`crate::RwLock`], of a level. A thread does not share it twice: one that waits to have it
/// alone may stand between the two.
#[derive(Debug)]
pub struct RwLock<T, L> {
    lock: crate::RwLock<T>,
    level: PhantomData<fn() -> L>,
}

/// It is shared as long as this lives.
#[derive(Debug)]
pub struct ReadGuard<'a, T, L: Level> {
    // In this order: it is given up before it counts as given up.
    guard: crate::RwLockReadGuard<'a, T>,
    _held: Held<L>,
}

/// It is had alone as long as this lives.
#[derive(Debug)]
pub struct WriteGuard<'a, T, L: Level> {
    // In this order: it is given up before it counts as given up.
    guard: crate::RwLockWriteGuard<'a, T>,
    _held: Held<L>,
}

impl<T, L: Level> RwLock<T, L> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            lock: crate::RwLock::new(value),
            level: PhantomData,
        }
    }

    /// Shares it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self, _shown: impl Shown<L>) -> ReadGuard<'_, T, L> {
        self.read_checked()
    }

    /// Has it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self, _shown: impl Shown<L>) -> WriteGuard<'_, T, L> {
        self.write_checked()
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn read_checked(&self) -> ReadGuard<'_, T, L> {
        let held = Held::take();
        ReadGuard {
            guard: self.lock.read(),
            _held: held,
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn write_checked(&self) -> WriteGuard<'_, T, L> {
        let held = Held::take();
        WriteGuard {
            guard: self.lock.write(),
            _held: held,
        }
    }

    /// Has it alone where that needs no wait.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T, L>> {
        self.lock.try_write().map(|guard| WriteGuard {
            guard,
            _held: Held::tried(),
        })
    }
}

impl<T: Default, L: Level> Default for RwLock<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, L: Level> Holds for ReadGuard<'_, T, L> {
    type Level = L;
}

impl<T, L: Level> Holds for WriteGuard<'_, T, L> {
    type Level = L;
}

impl<T, L: Level> Deref for ReadGuard<'_, T, L> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, L: Level> Deref for WriteGuard<'_, T, L> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, L: Level> DerefMut for WriteGuard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
