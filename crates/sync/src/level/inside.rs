//! A lock that is shared past those who wait to have it alone, and that stands somewhere.

use std::marker::PhantomData;

use super::{Before, Held, Holds, Level, Shown};

/// As [`crate::InsideLock`], of level `L`. Somebody who shares it may wait for a lock of level `W`,
/// which stands before it: so whoever holds one of level `W` shares it past those who wait to have
/// it alone, and whoever stands behind those holds nothing from `W` on.
#[derive(Debug)]
pub struct InsideLock<L, W> {
    lock: crate::InsideLock,
    level: PhantomData<fn() -> (L, W)>,
}

/// It is shared as long as this lives.
#[derive(Debug)]
pub struct InsideReadGuard<'a, L: Level> {
    // In this order: it is given up before it counts as given up.
    _guard: crate::InsideReadGuard<'a>,
    _held: Held<L>,
}

/// It is had alone as long as this lives.
#[derive(Debug)]
pub struct InsideWriteGuard<'a, L: Level> {
    // In this order: it is given up before it counts as given up.
    _guard: crate::InsideWriteGuard<'a>,
    _held: Held<L>,
}

impl<L: Level, W: Before<L>> InsideLock<L, W> {
    /// Shares it, behind those who wait to have it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self, _shown: impl Shown<W>) -> InsideReadGuard<'_, L> {
        let held = Held::take_behind::<W>();
        InsideReadGuard {
            _guard: self.lock.read(),
            _held: held,
        }
    }

    /// Shares it, past those who wait to have it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read_inside(&self, _shown: impl Shown<L>) -> InsideReadGuard<'_, L> {
        let held = Held::take();
        InsideReadGuard {
            _guard: self.lock.read_inside(),
            _held: held,
        }
    }

    /// Has it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self, _shown: impl Shown<W>) -> InsideWriteGuard<'_, L> {
        let held = Held::take_behind::<W>();
        InsideWriteGuard {
            _guard: self.lock.write(),
            _held: held,
        }
    }
}

impl<L, W> Default for InsideLock<L, W> {
    fn default() -> Self {
        Self {
            lock: crate::InsideLock::default(),
            level: PhantomData,
        }
    }
}

impl<L: Level> Holds for InsideReadGuard<'_, L> {
    type Level = L;
}

impl<L: Level> Holds for InsideWriteGuard<'_, L> {
    type Level = L;
}
