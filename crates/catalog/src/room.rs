//! Whether the region can take what is applied: told before an operation is answered, because
//! afterwards it is too late.
//!
//! What a transaction needs is bounded from above: each row copies its leaf, may split it, and
//! copies a branch, but all rows together copy no more than the whole tree with each leaf split;
//! and new bytes need pages, half filled at worst. What is in use is bounded from above as well:
//! by what the library asked for, which it does only where it finds no free page, and by what was
//! measured last and every block written since. A bound that is too high costs an early commit and
//! a measurement, never an answer that cannot be kept.
//!
//! A part of the region is kept back for what makes it emptier in the end: removing a name adds
//! rows to the batch before it gives pages back. Operations that run beside each other and were
//! all told that there is room lie within that part too.

use spindle_sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: u64 = 4096;
/// Pages that one changed row copies at most, beside those that its bytes fill.
const PAGES_PER_ROW: u64 = 3;
/// Pages of the trees in which the library notes what is free, and of the roots.
const PAGES_OF_A_TRANSACTION: u64 = 64;
/// The part that is kept back for removals, of the region and at least.
const KEPT_BACK_PART: u64 = 8;
const KEPT_BACK_LEAST_PAGES: u64 = 256;
/// The part of a region that is written between two countings at most, where it matters.
const UNCOUNTED_PART: u64 = 8;

/// What an operation will leave in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Rows that were not there: refused where only the part for removals is left.
    More,
    /// Rows that go, or change in place.
    Less,
}

/// Rows, and the bytes in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Keys and values.
    pub bytes: u64,
}

impl std::ops::Sub for Rows {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            count: self.count - other.count,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl std::ops::Add for Rows {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What is known of the region's use.
#[derive(Debug)]
pub(crate) struct Room {
    /// Pages in use at most, as far as they were counted.
    used_pages: AtomicU64,
    /// Pages that the library asked for.
    asked_pages: AtomicU64,
    /// Blocks that were written since it was counted what is in use, or since the opening.
    uncounted_blocks: AtomicU64,
}

impl Room {
    /// Of a region in which the library has asked for so much.
    pub(crate) fn new(asked_bytes: u64) -> Self {
        Self {
            used_pages: AtomicU64::new(asked_bytes / PAGE_BYTES),
            asked_pages: AtomicU64::new(asked_bytes / PAGE_BYTES),
            uncounted_blocks: AtomicU64::new(0),
        }
    }

    /// A transaction wrote so many blocks; the library has asked for so many bytes by now.
    pub(crate) fn note_written(&self, blocks: u64, asked_bytes: u64) {
        self.used_pages.fetch_add(blocks, Ordering::AcqRel);
        self.uncounted_blocks.fetch_add(blocks, Ordering::AcqRel);
        self.asked_pages
            .store(asked_bytes / PAGE_BYTES, Ordering::Release);
    }

    /// So many pages are in use.
    pub(crate) fn measured(&self, used_pages: u64) {
        self.used_pages.store(used_pages, Ordering::Release);
        self.uncounted_blocks.store(0, Ordering::Release);
    }

    /// Whether so much was written that whoever asks counts what is in use of a region of that
    /// capacity, which reads all of it. Nobody else is told so before as much was written again.
    pub(crate) fn take_due_count(&self, capacity_bytes: u64) -> bool {
        let uncounted = self.uncounted_blocks.load(Ordering::Acquire);
        let is_due = uncounted > capacity_bytes / PAGE_BYTES / UNCOUNTED_PART;
        if is_due {
            self.uncounted_blocks.store(0, Ordering::Release);
        }
        is_due
    }

    fn used_pages(&self) -> u64 {
        let asked = self.asked_pages.load(Ordering::Acquire);
        self.used_pages.load(Ordering::Acquire).min(asked)
    }

    /// Bytes that are left of a region of that capacity beside these rows, in no transaction yet.
    pub(crate) fn left_bytes(&self, capacity_bytes: u64, rows: Rows, wish: Wish) -> u64 {
        let capacity = capacity_bytes / PAGE_BYTES;
        let needed = self.needed_pages(capacity, rows);
        let kept_back = (capacity / KEPT_BACK_PART)
            .max(KEPT_BACK_LEAST_PAGES)
            .min(capacity / 4);
        let kept_back = match wish {
            Wish::More => kept_back,
            Wish::Less => kept_back / 2,
        };
        capacity.saturating_sub(needed + kept_back) * PAGE_BYTES
    }

    /// Whether a region of that capacity takes these rows for certain, in one transaction.
    pub(crate) fn takes(&self, capacity_bytes: u64, rows: Rows) -> bool {
        let capacity = capacity_bytes / PAGE_BYTES;
        self.needed_pages(capacity, rows) <= capacity
    }

    /// Pages that are in use during a transaction of these rows, at most.
    fn needed_pages(&self, capacity: u64, rows: Rows) -> u64 {
        let used = self.used_pages();
        let copied = (PAGES_PER_ROW * rows.count).min(2 * used);
        let filled = 2 * rows.bytes / PAGE_BYTES;
        used + copied + filled + PAGES_OF_A_TRANSACTION + capacity / 128
    }

    /// A capacity in which there is room for as much again, however many rows change: the tree,
    /// and a copy of it with each leaf split.
    pub(crate) fn wished_capacity_bytes(&self, rows: Rows) -> u64 {
        let used = self.used_pages() + 2 * KEPT_BACK_LEAST_PAGES;
        4 * used * PAGE_BYTES + 5 * rows.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, Room, Rows, Wish};

    const CAPACITY_BYTES: u64 = 8192 * PAGE_BYTES;

    #[test]
    fn what_is_left_shrinks_with_rows_and_bytes_and_more_is_left_for_removals() {
        let room = Room::new(3000 * PAGE_BYTES);
        let left =
            |count, bytes, wish| room.left_bytes(CAPACITY_BYTES, Rows { count, bytes }, wish);
        let empty = left(0, 0, Wish::More);
        assert!(left(100, 0, Wish::More) < empty);
        assert!(left(0, 1 << 20, Wish::More) <= empty - (2 << 20));
        assert!(left(0, 0, Wish::Less) > empty);
        // However many rows change, no more than the whole tree is copied.
        room.measured(1000);
        assert_eq!(left(1 << 30, 0, Wish::More), left(700, 0, Wish::More));
        assert!(left(1 << 30, 0, Wish::More) > 0);
        room.measured(10);
        assert!(left(0, 0, Wish::More) > empty);
        // What was written counts, but no more than the library ever asked for.
        room.note_written(2000, 3000 * PAGE_BYTES);
        let written = left(0, 0, Wish::More);
        room.note_written(5000, 3000 * PAGE_BYTES);
        assert!(left(0, 0, Wish::More) < written);
        assert_eq!(left(0, 0, Wish::More), empty);
        room.note_written(1000, 8000 * PAGE_BYTES);
        assert_eq!(left(0, 0, Wish::Less), 0);
    }

    #[test]
    fn in_the_capacity_that_is_wished_there_is_room_whatever_changes() {
        for used_pages in [10, 1000, 100_000] {
            for bytes in [0, 1 << 20, 1 << 30] {
                let room = Room::new(used_pages * PAGE_BYTES);
                let rows = |count, bytes| Rows { count, bytes };
                let wished_bytes = room.wished_capacity_bytes(rows(9, bytes));
                let left = |rows| room.left_bytes(wished_bytes, rows, Wish::More);
                assert!(
                    left(rows(u64::MAX >> 2, 2 * bytes)) > 0,
                    "{used_pages} {bytes}"
                );
            }
        }
    }
}
