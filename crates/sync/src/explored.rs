//! What loom explores: locks with `parking_lot`'s interface over loom's.
//!
//! Loom takes a load or store that asks for sequential consistency for one that acquires or
//! releases; so a model may show an order that the program forbids, and never hides one.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use loom::sync::atomic;
pub use loom::thread;

/// Loom's own does not know the beginning that is a constant.
macro_rules! thread_local_of_loom {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = const $first:block;) => {
        loom::thread_local! { $(#[$attribute])* static $name: $type = $first; }
    };
}
pub(crate) use thread_local_of_loom as thread_local;

/// A point at which another thread may go on; loom has enough of its own.
pub const fn point() {}

/// No mistake is put back in a model: its judge is tried by weakening an order by hand.
#[must_use]
pub const fn is_put_back(_: crate::Fault) -> bool {
    false
}

const NEVER_POISONED: &str = "a model ends with its first panic";

/// As `parking_lot`'s.
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// As `parking_lot`'s.
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(NEVER_POISONED)))
    }

    /// Takes it where that needs no wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard(Some(self.0.try_lock().ok()?)))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mutex")
    }
}

impl<T> Debug for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("MutexGuard")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("given up only while it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("given up only while it waits")
    }
}

/// As `parking_lot`'s.
pub struct RwLock<T>(loom::sync::RwLock<T>);

/// As `parking_lot`'s.
pub struct RwLockReadGuard<'a, T>(loom::sync::RwLockReadGuard<'a, T>);

/// As `parking_lot`'s.
pub struct RwLockWriteGuard<'a, T>(loom::sync::RwLockWriteGuard<'a, T>);

impl<T> RwLock<T> {
    /// Held by nobody.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// Shares it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(self.0.read().expect(NEVER_POISONED))
    }

    /// Has it alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(self.0.write().expect(NEVER_POISONED))
    }

    /// Has it alone where that needs no wait.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(RwLockWriteGuard(self.0.try_write().ok()?))
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("RwLock")
    }
}

impl<T> Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("RwLockReadGuard")
    }
}

impl<T> Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("RwLockWriteGuard")
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// `parking_lot`'s condition variable.
#[derive(Debug)]
pub struct Condvar(loom::sync::Condvar);

/// How a wait with a time ended.
#[derive(Debug)]
pub struct Waited;

impl Waited {
    /// Whether the time ran out.
    #[must_use]
    pub const fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    /// Gives the lock up, waits to be notified, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("given up only while it waits");
        guard.0 = Some(self.0.wait(held).expect(NEVER_POISONED));
    }

    /// As [`Self::wait`]: there is no time in a model.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) -> Waited {
        self.wait(guard);
        Waited
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one();
        true
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
