//! What each thread holds, as the check of tests knows it.

use std::marker::PhantomData;

use super::Level;

/// A lock of this level is held, or about to be, as long as this lives. For locks that are made
/// of others; the locks of this module have it inside their guards.
#[derive(Debug)]
pub struct Held<L: Level> {
    level: PhantomData<fn() -> L>,
    /// It belongs to the thread that it was made on.
    of_thread: PhantomData<*const ()>,
}

/// Nothing of it is in what ships.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Held<super::Leaf>>() == 0);

#[cfg(debug_assertions)]
mod check {
    use std::cell::RefCell;

    #[derive(Clone, Copy)]
    struct Entry {
        place: u8,
        name: &'static str,
    }

    crate::thread_local! {
        /// In the order in which they were taken. With the feature `simulated` it is the
        /// simulator's thread that this is of, of which many run on one of the system's.
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    }

    /// None is held that stands at this place or behind it.
    #[track_caller]
    pub(super) fn judge(place: u8, name: &str, doing: &str) {
        let lower = HELD.try_with(|held| {
            let held = held.borrow();
            held.iter().find(|entry| entry.place >= place).copied()
        });
        if let Ok(Some(lower)) = lower {
            // A thread that unwinds takes what its guards need to put things right; a panic inside
            // of that would hide the first one.
            assert!(
                std::thread::panicking(),
                "{doing} ({name}, place {place}) while holding {} (place {}): the order of locks \
                 is the other way round",
                lower.name,
                lower.place
            );
        }
    }

    pub(super) fn note(place: u8, name: &'static str) {
        let _ = HELD.try_with(|held| held.borrow_mut().push(Entry { place, name }));
    }

    pub(super) fn forget(place: u8) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(index) = held.iter().rposition(|entry| entry.place == place) {
                held.remove(index);
            }
        });
    }
}

impl<L: Level> Held<L> {
    /// Before the lock is taken: a wrong order is told, and not met as a circle.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take() -> Self {
        Self::take_behind::<L>()
    }

    /// As [`Held::take`], where nothing may be held from level `W` on, which stands before this
    /// one: whoever gets the lock waits for those who take theirs there.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_behind<W: Level>() -> Self {
        #[cfg(debug_assertions)]
        check::judge(W::PLACE, L::NAME, "a lock is taken");
        Self::tried()
    }

    /// A lock that was there at once, and that nobody waited for.
    #[inline]
    #[must_use]
    pub fn tried() -> Self {
        #[cfg(debug_assertions)]
        check::note(L::PLACE, L::NAME);
        Self {
            level: PhantomData,
            of_thread: PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
impl<L: Level> Drop for Held<L> {
    fn drop(&mut self) {
        check::forget(L::PLACE);
    }
}

/// This thread holds nothing from level `L` on: for what may take such a lock and mostly does not.
///
/// # Panics
/// Where it does, with `debug_assertions`.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn assert_none_from<L: Level>() {
    #[cfg(debug_assertions)]
    check::judge(L::PLACE, L::NAME, "what may take a lock is done");
}
