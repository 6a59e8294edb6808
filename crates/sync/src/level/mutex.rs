//! A mutex that stands somewhere.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::{Held, Holds, Level, Shown};
use crate::Condvar;

/// As [`crate::Mutex`], of a level.
#[derive(Debug)]
pub struct Mutex<T, L> {
    lock: crate::Mutex<T>,
    level: PhantomData<fn() -> L>,
}

/// It is held as long as this lives.
#[derive(Debug)]
pub struct MutexGuard<'a, T, L: Level> {
    // In this order: it is given up before it counts as given up.
    guard: crate::MutexGuard<'a, T>,
    _held: Held<L>,
}

impl<T, L: Level> Mutex<T, L> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            lock: crate::Mutex::new(value),
            level: PhantomData,
        }
    }

    /// Waits for it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self, _shown: impl Shown<L>) -> MutexGuard<'_, T, L> {
        self.lock_checked()
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn lock_checked(&self) -> MutexGuard<'_, T, L> {
        let held = Held::take();
        MutexGuard {
            guard: self.lock.lock(),
            _held: held,
        }
    }

    /// Takes it where that needs no wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, L>> {
        self.lock.try_lock().map(|guard| MutexGuard {
            guard,
            _held: Held::tried(),
        })
    }
}

impl<T: Default, L: Level> Default for Mutex<T, L> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, L: Level> MutexGuard<'_, T, L> {
    /// Gives it up until the condition is notified. Nothing that stands before it is given up:
    /// whoever notifies must need none of that.
    pub fn wait(&mut self, condition: &Condvar) {
        condition.wait(&mut self.guard);
    }

    /// As [`Self::wait`], for so long at most; whether the time ran out.
    pub fn wait_for(&mut self, condition: &Condvar, time: Duration) -> bool {
        condition.wait_for(&mut self.guard, time).timed_out()
    }
}

impl<T, L: Level> Holds for MutexGuard<'_, T, L> {
    type Level = L;
}

impl<T, L: Level> Deref for MutexGuard<'_, T, L> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, L: Level> DerefMut for MutexGuard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
