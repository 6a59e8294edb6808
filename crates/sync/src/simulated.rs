//! What a scheduler decides on.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::Fault;

pub use shuttle::sync::atomic;
pub use shuttle::thread;
pub use shuttle::thread_local;
pub use shuttle_parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A point at which another thread may go on, beside those of locks and atomics.
pub fn point() {
    thread::yield_now();
}

/// Of this process; 0 for none. No point: a choice that is made before the first run.
static PUT_BACK: AtomicU8 = AtomicU8::new(0);

/// From here on the code makes this mistake again, in all runs.
pub fn put_back(fault: Fault) {
    PUT_BACK.store(fault as u8, Ordering::Relaxed);
}

/// Whether this mistake was put back.
#[must_use]
pub fn is_put_back(fault: Fault) -> bool {
    PUT_BACK.load(Ordering::Relaxed) == fault as u8
}

/// `parking_lot`'s condition variable, of which Shuttle has none.
#[derive(Debug, Default)]
pub struct Condvar {
    /// How often somebody was notified: whoever waits sees the next notification even where it
    /// comes between the release of the caller's lock and the wait.
    notified: shuttle::sync::Mutex<u64>,
    changed: shuttle::sync::Condvar,
}

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
    pub const fn new() -> Self {
        Self {
            notified: shuttle::sync::Mutex::new(0),
            changed: shuttle::sync::Condvar::new(),
        }
    }

    /// Gives the lock up, waits to be notified, and takes the lock again. It may return without
    /// having been notified, as the real one may.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let mut notified = self.notified.lock().expect("never poisoned");
        let before = *notified;
        MutexGuard::unlocked(guard, || {
            while *notified == before {
                notified = self.changed.wait(notified).expect("never poisoned");
            }
            drop(notified);
        });
    }

    /// As [`Self::wait`]: simulated time stands still and never runs out.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) -> Waited {
        self.wait(guard);
        Waited
    }

    /// Wakes one who waits. (All are woken, and find out for themselves: a caller must bear that.)
    pub fn notify_one(&self) -> bool {
        self.notify_all();
        true
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        *self.notified.lock().expect("never poisoned") += 1;
        self.changed.notify_all();
    }
}
