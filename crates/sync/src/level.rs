//! Locks that know where they stand: an order of locks as a rule of the compiler, and of every
//! test.
//!
//! Threads that take several locks never wait in a circle where all of them take them in one
//! order. So a lock has a [`Level`], a type; a level has a place in the order, and which levels
//! stand [`Before`] which is a fact of types. Who defines the levels owns the order: this module
//! has none but [`Leaf`], below which nothing is taken.
//!
//! Two rules hold it, and neither costs anything in what ships:
//! - Whoever takes a lock shows a guard that it holds ([`Holds`]), whose level stands before: else
//!   it does not compile. A function that must be called with a lock held asks for its guard the
//!   same way.
//! - A guard that is shown says nothing of others that are held, and deep places, which are called
//!   with one lock held and with another, have none to show: they say [`Unshown`]. So with
//!   `debug_assertions` (all tests, both simulators) each thread knows which levels it holds, and
//!   taking one that stands at or before one of them is a panic that names both, on the thread
//!   that was about to do it, whether or not somebody waits at that moment.
//!
//! A thread holds a level once: two locks of one level have no order between them. A lock that is
//! only tried waits for nobody; it is noted as held, and not judged.
//!
//! A guard of a higher level, shown to take a lower one:
//!
//! ```
//! use spindle_sync::level::{Mutex, Unshown};
//! # spindle_sync::levels! { High = 1, "the high one"; Low = 2, "the low one"; }
//!
//! let (high, low) = (Mutex::<u32, High>::new(1), Mutex::<u32, Low>::new(2));
//! let upper = high.lock(Unshown);
//! let lower = low.lock(&upper);
//! assert_eq!(*upper + *lower, 3);
//! ```
//!
//! The wrong way round:
//!
//! ```compile_fail,E0277
//! use spindle_sync::level::{Mutex, Unshown};
//! # spindle_sync::levels! { High = 1, "the high one"; Low = 2, "the low one"; }
//!
//! let (high, low) = (Mutex::<u32, High>::new(1), Mutex::<u32, Low>::new(2));
//! let lower = low.lock(Unshown);
//! let upper = high.lock(&lower);
//! ```
//!
//! Two of one level:
//!
//! ```compile_fail,E0277
//! use spindle_sync::level::{Mutex, Unshown};
//! # spindle_sync::levels! { High = 1, "the high one"; Low = 2, "the low one"; }
//!
//! let (one, other) = (Mutex::<u32, Low>::new(1), Mutex::<u32, Low>::new(2));
//! let held = one.lock(Unshown);
//! let also_held = other.lock(&held);
//! ```
//!
//! Below a leaf:
//!
//! ```compile_fail,E0277
//! use spindle_sync::level::{LeafMutex, Mutex};
//! # spindle_sync::levels! { High = 1, "the high one"; Low = 2, "the low one"; }
//!
//! let (leaf, low) = (LeafMutex::new(1), Mutex::<u32, Low>::new(2));
//! let held = leaf.lock();
//! let lower = low.lock(&held);
//! ```

mod held;
mod inside;
mod leaf;
mod mutex;
mod read_write;

pub use held::{Held, assert_none_from};
pub use inside::{InsideLock, InsideReadGuard, InsideWriteGuard};
pub use leaf::{DeepMutex, DeepRwLock, Leaf, LeafGuard, LeafMutex, LeafRwLock};
pub use mutex::{Mutex, MutexGuard};
pub use read_write::{ReadGuard, RwLock, WriteGuard};

/// A place in an order of locks.
pub trait Level: 'static {
    /// Those with smaller places are taken first. All levels of a program share one scale.
    const PLACE: u8;
    /// What a person calls it.
    const NAME: &'static str;
}

/// A lock of level `L` may be taken while this one is held.
#[diagnostic::on_unimplemented(
    message = "a lock of level `{L}` is not taken while one of level `{Self}` is held",
    note = "the order of locks stands where the levels are defined"
)]
pub trait Before<L: Level>: Level {}

/// As long as it lives, its thread holds a lock of that level. Guards are; so is what has one in
/// it.
pub trait Holds {
    /// Of the lock.
    type Level: Level;
}

/// What whoever takes a lock of level `L` shows of what it holds.
pub trait Shown<L: Level> {}

/// Nothing: the caller may hold something and cannot show it, or holds nothing. Only the check in
/// tests sees a wrong order then.
#[derive(Debug, Clone, Copy)]
pub struct Unshown;

impl<L: Level> Shown<L> for Unshown {}
impl<L: Level, G: Holds<Level: Before<L>>> Shown<L> for &G {}

/// Defines levels from the first to the last, and which stands before which: `NAME = PLACE,
/// "what a person calls it";`. A name with a path is a level that another crate has defined, and
/// its place is looked at; it must stand where it is listed. The same place twice, or a smaller one
/// behind a larger one, does not compile.
///
/// ```compile_fail,E0080
/// spindle_sync::levels! { One = 2, "one"; Other = 2, "the other"; }
/// ```
#[macro_export]
macro_rules! levels {
    ($($(#[$attribute:meta])* $($name:ident)? $(<$other:path>)? $(= $place:literal, $title:literal)?;)+) => {
        $($crate::levels!(@define [$(#[$attribute])*] $($name $place $title)?);)+
        $crate::levels!(@order $([$($name)? $($other)?])+);
    };
    (@define [$($attribute:tt)*] $name:ident $place:literal $title:literal) => {
        $($attribute)*
        #[derive(Debug)]
        pub enum $name {}
        impl $crate::level::Level for $name {
            const PLACE: u8 = $place;
            const NAME: &'static str = $title;
        }
    };
    (@define [$($attribute:tt)*]) => {};
    (@order [$first:path]) => {};
    (@order [$first:path] $([$rest:path])+) => {
        $(
            impl $crate::level::Before<$rest> for $first {}
            const _: () = assert!(
                <$first as $crate::level::Level>::PLACE < <$rest as $crate::level::Level>::PLACE,
                "levels are listed in the order of their places"
            );
        )+
        $crate::levels!(@order $([$rest])+);
    };
}

#[cfg(all(test, not(any(feature = "simulated", feature = "loom"))))]
mod tests;
