//! Room in the catalog, found before an operation is answered.

use spindle_catalog::{CatalogError, Region as _, Rows, Wish};
use spindle_sync::atomic::Ordering;
use spindle_sync::level::{Unshown, assert_none_from};

use crate::core::Core;
use crate::error::{GroupError, GroupErrorKind};
use crate::levels;

/// Bytes of an extent in a row of a map at most.
const EXTENT_BYTES: u64 = 32;
/// What there must be after a commit for anything to be added.
const LEAST_STEP_BYTES: u64 = 256 << 10;
/// As long as the catalog has little of the disks it is made so large that this much is left:
/// some hundred operations between two commits.
const GOOD_STEP_BYTES: u64 = 2 << 20;
/// How often one that is to be refused looks, where rows come while it does: until they are in the
/// region they fill it, also those that take others away.
const LOOKS_MOST: usize = 3;
/// The part of a disk that may be set aside for the catalog before it is needed.
const AHEAD_PART: u64 = 32;

/// What so many new extents fill at most: their rows may be split, and copied once.
const fn bytes_of_extents(count: usize) -> u64 {
    4 * EXTENT_BYTES * count as u64
}

impl Core {
    /// Finds room in the catalog for an operation; where there is none at once, what is applied
    /// is committed and the region grows where it can. No change may be open. What takes rows
    /// away is never refused.
    ///
    /// # Errors
    /// [`GroupErrorKind::NoSpace`] where the catalog is full, or as [`Core::sync`].
    pub fn make_room(&self, wish: Wish) -> Result<(), GroupError> {
        self.make_room_for(wish, 0)
    }

    /// As [`Core::make_room`], for an operation that adds so many bytes at once.
    fn make_room_for(&self, wish: Wish, bytes: u64) -> Result<(), GroupError> {
        assert_none_from::<levels::MakingRoom>();
        if self.has_catalog_room(wish, bytes) {
            return Ok(());
        }
        // One does it for all who wait.
        let _alone = self.making_room.lock(Unshown);
        if self.has_catalog_room(wish, bytes) {
            return Ok(());
        }
        let is_refused = self.is_catalog_full.load(Ordering::Acquire)
            && self.refused_at.load(Ordering::Acquire) == self.catalog.applied().0;
        if wish == Wish::More && is_refused {
            return Err(Self::catalog_full());
        }
        if wish == Wish::Less {
            return match self.find_room(wish, bytes) {
                Err(error) if error.kind == GroupErrorKind::NoSpace => Ok(()),
                found => found,
            };
        }
        for _ in 0..LOOKS_MOST {
            let applied = self.catalog.applied().0;
            self.find_room(wish, bytes)?;
            // With less than that each of the last operations would cost a commit of its own.
            let is_full = self.catalog_room_bytes(wish) < LEAST_STEP_BYTES.max(bytes);
            // What came while it looked was not seen, and may be what takes rows away: only who
            // finds nothing newer than this look began with is refused without another.
            self.refused_at.store(applied, Ordering::Release);
            self.is_catalog_full.store(is_full, Ordering::Release);
            if !is_full {
                return Ok(());
            }
            if self.catalog.applied().0 == applied {
                break;
            }
        }
        Err(Self::catalog_full())
    }

    /// Finds room, by what costs least: more is set aside for the catalog; what is applied goes
    /// into the region; what is in use there is counted.
    fn find_room(&self, wish: Wish, bytes: u64) -> Result<(), GroupError> {
        let has = |step: u64| self.catalog_room_bytes(wish) >= step.max(bytes.saturating_add(1));
        let is_found = || has(LEAST_STEP_BYTES);
        let wished_bytes = self.catalog.wished_capacity_bytes(self.lagging()) + 2 * bytes;
        if wished_bytes <= self.catalog_ahead_bytes_max() {
            self.set_aside(wished_bytes)?;
        }
        if is_found() {
            return Ok(());
        }
        self.commit_everything()?;
        self.catalog.settle()?;
        // Less than what is wished is better than nothing.
        let capacity_bytes = self.region.capacity_bytes();
        let more_bytes = capacity_bytes + (2 * (LEAST_STEP_BYTES + bytes)).max(capacity_bytes / 4);
        let may_grow = more_bytes <= 2 * self.catalog_ahead_bytes_max();
        if has(GOOD_STEP_BYTES) || (is_found() && !may_grow) {
            return Ok(());
        }
        self.set_aside(more_bytes)?;
        if is_found() {
            return Ok(());
        }
        Ok(self.catalog.measure()?)
    }

    /// Sets more aside for the catalog; where there is no room for it, it stays as it is.
    fn set_aside(&self, bytes: u64) -> Result<(), GroupError> {
        match self.region.set_aside(bytes) {
            Ok(()) | Err(CatalogError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How much may be set aside for the catalog before it is needed: little beside the disks.
    fn catalog_ahead_bytes_max(&self) -> u64 {
        let holders = (self.disks.iter()).filter(|disk| self.membership.holds_replica(disk.number));
        holders.map(|disk| disk.total_bytes()).min().unwrap_or(0) / AHEAD_PART
    }

    /// What the next seal adds.
    fn lagging(&self) -> Rows {
        self.dirty_maps.lock().rows()
    }

    /// Bytes that the catalog can take beside what is applied and what the next seal adds.
    pub(crate) fn catalog_room_bytes(&self, wish: Wish) -> u64 {
        self.catalog.room_bytes(self.lagging(), wish)
    }

    /// Whether so many new extents can be recorded.
    pub(crate) fn has_room_for_extents(&self, count: usize) -> bool {
        self.has_catalog_room(Wish::More, bytes_of_extents(count))
    }

    /// Finds room for so many new extents.
    pub(crate) fn make_room_for_extents(&self, count: usize) -> Result<(), GroupError> {
        self.make_room_for(Wish::More, bytes_of_extents(count))
    }

    /// Whether there is more than that. Once somebody was refused nobody else gets the little
    /// that there is.
    fn has_catalog_room(&self, wish: Wish, bytes: u64) -> bool {
        let room_bytes = self.catalog_room_bytes(wish);
        let is_full = wish == Wish::More && self.is_catalog_full.load(Ordering::Acquire);
        room_bytes > bytes && (!is_full || room_bytes >= LEAST_STEP_BYTES)
    }

    /// Where somebody was refused because the catalog was full: looks whether it still is.
    ///
    /// # Errors
    /// As [`Core::sync`].
    pub fn look_for_room(&self) -> Result<(), GroupError> {
        if !self.is_catalog_full.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.make_room(Wish::More) {
            Err(error) if error.kind == GroupErrorKind::NoSpace => Ok(()),
            answer => answer,
        }
    }

    /// Whether somebody was refused because the catalog is full, and it still is.
    pub fn is_catalog_full(&self) -> bool {
        self.is_catalog_full.load(Ordering::Acquire)
            && self.catalog_room_bytes(Wish::More) < LEAST_STEP_BYTES
    }

    pub(crate) fn catalog_full() -> GroupError {
        GroupError::new(
            GroupErrorKind::NoSpace,
            "the catalog is full and no disk of it has room for more: remove files, or add disks",
        )
    }
}
