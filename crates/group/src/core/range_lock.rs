//! Locks on ranges of one file's blocks: shared for readers, exclusive for writers.
//!
//! Entries stand in the order of arrival, and one may go ahead when no earlier one conflicts
//! with it; so nobody starves, and a lock that nobody contends costs one short mutex. A thread
//! holds one range at a time.

use smallvec::SmallVec;
use spindle_sync::level::{Held, Holds, Level};
use spindle_sync::{Condvar, Mutex};

use std::sync::Arc;

use spindle_base::FileId;

use crate::core::clients::{Clients, ShownMark, Withheld};
use crate::levels;

#[derive(Debug, Clone, Copy)]
struct Entry {
    ticket: u32,
    exclusive: bool,
    first: u64,
    end: u64,
}

impl Entry {
    const fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.first < other.end && other.first < self.end
    }
}

#[derive(Debug, Default)]
struct State {
    entries: SmallVec<[Entry; 2]>,
    next_ticket: u32,
    waiting_count: u32,
}

impl State {
    fn may_go(&self, entry: &Entry) -> bool {
        self.entries
            .iter()
            .take_while(|earlier| earlier.ticket != entry.ticket)
            .all(|earlier| !earlier.conflicts(entry))
    }
}

/// The locks of one file.
#[derive(Debug)]
pub struct RangeLock {
    file: FileId,
    clients: Arc<Clients>,
    pub(super) shown_mark: Arc<ShownMark>,
    /// Of the entries, held for a moment; the ranges are what has a level.
    state: Mutex<State>,
    released: Condvar,
}

/// A held range; dropping it gives it back.
#[derive(Debug)]
pub struct RangeGuard<'a, L: Level = levels::Range> {
    // In this order: clients are shown nothing that another one has by then, and it is given up before it
    // counts as given up.
    _withheld: Option<Withheld<'a>>,
    _entry: HeldEntry<'a>,
    _held: Held<L>,
}

#[derive(Debug)]
struct HeldEntry<'a> {
    lock: &'a RangeLock,
    ticket: u32,
}

impl<L: Level> Holds for RangeGuard<'_, L> {
    type Level = L;
}

#[cfg(feature = "loom")]
impl Default for RangeLock {
    fn default() -> Self {
        Self::new(FileId(0), &Arc::default())
    }
}

impl RangeLock {
    /// Those of a file that these clients are shown, or will be.
    pub(crate) fn new(file: FileId, clients: &Arc<Clients>) -> Self {
        Self {
            file,
            clients: Arc::clone(clients),
            shown_mark: Arc::default(),
            state: Mutex::default(),
            released: Condvar::default(),
        }
    }

    /// Waits for the blocks `[first, end)`, shared with other readers.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn shared(&self, first: u64, end: u64) -> RangeGuard<'_> {
        let held = Held::take();
        self.take(held, false, first, end)
    }

    /// Waits for the blocks `[first, end)`, alone: no direct client reads them either.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn exclusive(&self, first: u64, end: u64) -> RangeGuard<'_> {
        let held = Held::take();
        self.take(held, true, first, end)
    }

    /// Waits for the blocks `[first, end)`, alone, with a change open; see
    /// [`levels::RemovedRange`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn exclusive_in(
        &self,
        _change: &impl Holds<Level = levels::Change>,
        first: u64,
        end: u64,
    ) -> RangeGuard<'_, levels::RemovedRange> {
        let held = Held::take();
        self.take(held, true, first, end)
    }

    fn take<L: Level>(
        &self,
        held: Held<L>,
        exclusive: bool,
        first: u64,
        end: u64,
    ) -> RangeGuard<'_, L> {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket = ticket.wrapping_add(1);
        let entry = Entry {
            ticket,
            exclusive,
            first,
            end,
        };
        state.entries.push(entry);
        while !state.may_go(&entry) {
            state.waiting_count += 1;
            self.released.wait(&mut state);
            state.waiting_count -= 1;
        }
        drop(state);
        let entry = HeldEntry { lock: self, ticket };
        let withhold = || (self.clients).withhold(self.file, &self.shown_mark, (first, end));
        RangeGuard {
            // The models of memory orders have no clients.
            _withheld: (exclusive && !cfg!(feature = "loom")).then(withhold),
            _entry: entry,
            _held: held,
        }
    }
}

impl Drop for HeldEntry<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        let place = state
            .entries
            .iter()
            .position(|entry| entry.ticket == self.ticket)
            .expect("a guard's entry stays until its drop");
        // The order of arrival must stay, so no swap_remove.
        state.entries.remove(place);
        if state.waiting_count > 0 {
            self.lock.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RangeLock;
    use spindle_base::FileId;
    use spindle_sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    #[test]
    fn readers_share_and_disjoint_writers_do_not_wait() {
        let lock = RangeLock::new(FileId(7), &Arc::default());
        let _one = lock.shared(0, 10);
        std::thread::scope(|scope| {
            let two = scope.spawn(|| drop(lock.shared(5, 15)));
            two.join().unwrap();
            let three = scope.spawn(|| drop(lock.exclusive(15, 20)));
            three.join().unwrap();
        });
    }

    #[test]
    fn a_range_is_never_held_by_a_writer_and_another() {
        let lock = RangeLock::new(FileId(7), &Arc::default());
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for round in 0..2000_u64 {
                        let first = (thread + round) % 3;
                        if round % 4 == 0 {
                            let _held = lock.exclusive(first, 4);
                            assert_eq!(inside.fetch_add(1000, Ordering::SeqCst), 0);
                            inside.fetch_sub(1000, Ordering::SeqCst);
                        } else {
                            let _held = lock.shared(3, 4);
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 1000);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
