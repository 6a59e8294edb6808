//! What ships.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic;
pub use std::thread;
pub use std::thread_local;

/// A point at which another thread may go on, beside those of locks and atomics; the simulated
/// disks have one at each request. Nothing, in what ships.
#[inline]
pub const fn point() {}

/// Whether the simulator of threads has put this mistake back. Never, in what ships.
#[inline]
#[must_use]
pub const fn is_put_back(_: crate::Fault) -> bool {
    false
}
