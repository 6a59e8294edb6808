//! Two words of a disk that are read beside the membership's: where it is open, and of which of its
//! outages it is noted what it missed.

use spindle_device::DiskSlot;
use spindle_sync::atomic::{AtomicU32, Ordering};

use crate::core::disks::NONE;
use crate::incarnation::Incarnation;

/// Where a disk is open.
#[derive(Debug)]
pub(crate) struct OpenSlot(AtomicU32);

impl OpenSlot {
    pub(crate) fn new(slot: Option<DiskSlot>) -> Self {
        Self(AtomicU32::new(Self::word(slot)))
    }

    fn word(slot: Option<DiskSlot>) -> u32 {
        slot.map_or(NONE, |slot| u32::from(slot.0))
    }

    pub(crate) fn set(&self, slot: Option<DiskSlot>) {
        self.0.store(Self::word(slot), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<DiskSlot> {
        let slot = u16::try_from(self.0.load(Ordering::Acquire)).ok()?;
        Some(DiskSlot(slot))
    }

    /// The slot of a disk that serves. It is asked for first: a disk that comes back somewhere else
    /// is put there before it serves, and where it was nobody may ask for it any more.
    pub(crate) fn get_where(&self, serves: impl FnOnce() -> bool) -> Option<DiskSlot> {
        if serves() { self.get() } else { None }
    }
}

/// Outages of a disk of which it is noted what it missed.
#[derive(Debug, Default)]
pub(crate) struct NotedOutages(AtomicU32);

impl NotedOutages {
    /// Whether something is to be noted yet of the outages before that incarnation. Where not, all
    /// that was noted of them is there to be seen, without a lock too.
    pub(crate) fn lacks(&self, incarnation: Incarnation) -> bool {
        incarnation.outages_count() > self.0.load(Ordering::Acquire)
    }

    /// What the disk missed by the outages before that incarnation is noted.
    pub(crate) fn set(&self, incarnation: Incarnation) {
        (self.0).fetch_max(incarnation.outages_count(), Ordering::AcqRel);
    }
}
