//! What the data path asks of each disk's status, without a lock.
//!
//! Who looks at several things that hang together (whether a disk serves, what is stale there, what
//! a flush covered) asks for [`StandingTable::turns_count`] before and after: where it is the same,
//! no disk came or went meanwhile, and what was stored before the newest turn was there to be seen.
//! So the count is odd while a disk turns, and nobody is given an odd one: with a count that only
//! followed the turn, a look between the two would have met the disk that is back, without what is
//! known of it.

use spindle_base::DiskNumber;
use spindle_lease::map::StandingWord;
use spindle_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use spindle_sync::{Fault, is_put_back, thread};

use crate::by_number::ByNumber;
use crate::incarnation::{Incarnation, Life};

/// Of one disk.
#[derive(Debug, Default)]
struct Standing {
    /// Its [`Incarnation`]: whether it is here and serves, and which of its stays that is.
    incarnation: AtomicU32,
    /// New extents may go there too.
    receives: AtomicBool,
}

/// The standings of all disks.
#[derive(Debug, Default)]
pub(crate) struct StandingTable {
    by_disk: ByNumber<Standing>,
    /// Twice as often as any disk came, went or began anew, and one more while one does.
    turns_count: AtomicU64,
    /// What direct clients look at.
    shown: Option<StandingWord>,
}

impl StandingTable {
    /// Of no disk yet; clients look at that number.
    pub(crate) fn shown_by(shown: Option<StandingWord>) -> Self {
        Self {
            shown,
            ..Self::default()
        }
    }

    /// No client reads a disk any more until it is told how they stand.
    pub(crate) fn keep_clients_off(&self) {
        if let Some(shown) = &self.shown {
            shown.raise();
        }
    }

    /// Every disk that was ever set.
    pub(crate) fn disks(&self) -> impl Iterator<Item = DiskNumber> {
        self.by_disk.iter().map(|(number, _)| DiskNumber(number))
    }

    /// How the disk stands from now on. By one thread at a time.
    pub(crate) fn set(&self, disk: DiskNumber, serves: bool, receives: bool) {
        let standing = self.by_disk.get_or_put(disk.0, Standing::default);
        standing.receives.store(receives, Ordering::Release);
        let incarnation = self.incarnation(disk);
        if incarnation.serves() != serves {
            self.turn(standing, incarnation.next());
        }
    }

    /// The disk serves on, in the incarnation after the next, where that life is the one that it has.
    /// By one thread at a time, as [`Self::set`].
    pub(crate) fn renew(&self, life: Life) {
        if let Some(standing) = self.by_disk.get(life.disk.0)
            && self.incarnation(life.disk) == life.incarnation
            && life.incarnation.serves()
        {
            self.turn(standing, life.incarnation.next().next());
        }
    }

    fn turn(&self, standing: &Standing, next: Incarnation) {
        // Before, so that none reads what others do not write any more; and behind it, so that who was told
        // in between asks again.
        self.keep_clients_off();
        let is_late = is_put_back(Fault::TurnsCountedLate);
        if !is_late {
            self.turns_count.fetch_add(1, Ordering::AcqRel);
        }
        standing.incarnation.store(next.number(), Ordering::Release);
        let rest = if is_late { 2 } else { 1 };
        self.turns_count.fetch_add(rest, Ordering::AcqRel);
        self.keep_clients_off();
    }

    /// The disk's incarnation.
    pub(crate) fn incarnation(&self, disk: DiskNumber) -> Incarnation {
        let standing = self.by_disk.get(disk.0);
        standing.map_or(Incarnation::AWAY, |standing| {
            Incarnation::of_number(standing.incarnation.load(Ordering::Acquire))
        })
    }

    /// Whether new extents may go to the disk.
    pub(crate) fn may_receive(&self, disk: DiskNumber) -> bool {
        (self.by_disk.get(disk.0)).is_some_and(|standing| standing.receives.load(Ordering::Acquire))
    }

    /// Another number after each turn of any disk.
    pub(crate) fn turns_count(&self) -> u64 {
        loop {
            let count = self.turns_count.load(Ordering::Acquire);
            if count.is_multiple_of(2) {
                return count;
            }
            // Who turns a disk does a store and comes back.
            thread::yield_now();
        }
    }
}
