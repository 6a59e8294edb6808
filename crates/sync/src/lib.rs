//! Locks, atomics and threads of everything between the disks and the front doors.
//!
//! What ships is `parking_lot` and the standard library, by their own names. With the feature
//! `simulated` the same names mean Shuttle's: each lock and each atomic is a point at which another
//! thread may go on, and a seed decides which. So a simulator runs the real code with many threads,
//! and a run that breaks a promise can be had again. Shuttle knows no memory order weaker than
//! sequential consistency, and sees no lock inside a library: a lock of ours stands before those.
//! With the feature `loom` they mean loom's, which knows the weaker orders and tries every one that
//! the language allows: for models of a few operations, of what relies on such an order.
//!
//! [`level`] gives locks a place in an order.
//!
//! Not here: what is shared with another process (`std`'s atomics in mapped memory), and values
//! that are made once and never change (`OnceLock`).

#[cfg(feature = "loom")]
mod explored;
#[cfg(not(any(feature = "simulated", feature = "loom")))]
mod real;
#[cfg(feature = "simulated")]
mod simulated;

#[cfg(feature = "loom")]
pub use explored::*;
#[cfg(not(any(feature = "simulated", feature = "loom")))]
pub use real::*;
#[cfg(feature = "simulated")]
pub use simulated::*;

pub use fault::Fault;
pub use inside::{InsideLock, InsideReadGuard, InsideWriteGuard};

mod fault;
mod inside;
pub mod level;
