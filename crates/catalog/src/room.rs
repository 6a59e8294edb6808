//! Whether the region can take what is applied: told before an operation is answered, because
//! afterwards it is too late.
//!
//! What a transaction needs is bounded from above: each row copies its leaf, may split it, and
//! copies a branch, but all rows together copy no more than the whole tree with each leaf split;
//! and new bytes need pages, half filled at worst. What is in use is bounded from above as well: as it was measured
//! last, and every block written since. A bound that is too high costs an early commit and a
//! measurement, never an answer that cannot be kept.
//!
//! A part of the region is kept back for what makes it emptier in the end: removing a name adds
//! rows to the batch before it gives pages back. Operations that run beside each other and were
//! all told that there is room lie within that part too.

use spindle_sync::atomic::{AtomicU64, Ordering};

pub(crate) const PAGE_BYTES: u64 = 4096;
/// Pages that one changed row copies at most, beside those that its bytes fill.
const PAGES_PER_ROW: u64 = 3;
/// Pages of the trees in which the library notes what is free, and of the roots.
const PAGES_OF_A_TRANSACTION: u64 = 64;
/// The part that is kept back for removals, of the region and at least.
const KEPT_BACK_PART: u64 = 8;
const KEPT_BACK_LEAST_PAGES: u64 = 256;

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
    /// Pages in use at most.
    used_pages: AtomicU64,
}

impl Room {
    pub(crate) const fn new(used_pages: u64) -> Self {
        Self {
            used_pages: AtomicU64::new(used_pages),
        }
    }

    /// A transaction wrote so many blocks.
    pub(crate) fn note_written(&self, blocks: u64) {
        self.used_pages.fetch_add(blocks, Ordering::AcqRel);
    }

    /// So many pages are in use.
    pub(crate) fn measured(&self, used_pages: u64) {
        self.used_pages.store(used_pages, Ordering::Release);
    }

    /// Bytes that are left of a region of that capacity beside these rows, in no transaction yet.
    pub(crate) fn left_bytes(&self, capacity_bytes: u64, rows: Rows, wish: Wish) -> u64 {
        let capacity = capacity_bytes / PAGE_BYTES;
        let used = self.used_pages.load(Ordering::Acquire);
        let kept_back = (capacity / KEPT_BACK_PART)
            .max(KEPT_BACK_LEAST_PAGES)
            .min(capacity / 4);
        let kept_back = match wish {
            Wish::More => kept_back,
            Wish::Less => kept_back / 2,
        };
        let copied = (PAGES_PER_ROW * rows.count).min(2 * used);
        let filled = 2 * rows.bytes / PAGE_BYTES;
        let needed = used + copied + filled + PAGES_OF_A_TRANSACTION + capacity / 128 + kept_back;
        capacity.saturating_sub(needed) * PAGE_BYTES
    }

    /// Whether the region should grow where it can: more than half of it is in use.
    pub(crate) fn is_half_used(&self, capacity_bytes: u64) -> bool {
        let used = self.used_pages.load(Ordering::Acquire);
        (2 * used + 4 * KEPT_BACK_LEAST_PAGES) * PAGE_BYTES > capacity_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, Room, Rows, Wish};

    const CAPACITY_BYTES: u64 = 8192 * PAGE_BYTES;

    #[test]
    fn what_is_left_shrinks_with_rows_and_bytes_and_more_is_left_for_removals() {
        let room = Room::new(3000);
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
        room.measured(3000);
        room.note_written(6000);
        assert_eq!(left(0, 0, Wish::Less), 0);
        room.measured(10);
        assert!(left(0, 0, Wish::More) > empty);
    }
}
