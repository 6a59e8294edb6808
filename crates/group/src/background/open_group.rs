//! An open disk group: its core, and what is under way beside its users.
//!
//! It stands on this floor because the passes are done with it; what opens it and looks at it is the
//! front's.

use spindle_base::Redundancy;
use spindle_device::DiskSlot;
use spindle_sync::level::{DeepMutex, LeafMutex, Mutex};

use crate::background::Background;
use crate::background::outage::AwayClock;
use crate::background::resync::Resync;
use crate::background::returning::Returns;
use crate::background::scrub::Scrubs;
use crate::core::Core;
use crate::levels;

/// What the steps remember.
#[derive(Debug, Default)]
pub struct Lazy {
    pub(crate) pending_since_ms: Option<u64>,
    pub(crate) last_round_ms: Option<u64>,
    /// Why a lost replica could not be replaced, as told last.
    pub(crate) lacks_replica: Option<String>,
}

/// An open disk group.
///
/// What it is made of is its [`Core`], all of which can be called on it; the rest is what is under
/// way beside the work of its users: disks that come back, scrubs, passes, changes of the disks.
#[derive(Debug)]
pub struct Group {
    pub(crate) core: Core,
    pub(crate) scrubs: Scrubs,
    /// Held while disks come back: one after the other.
    pub(crate) returning: Mutex<(), levels::Returning>,
    pub(crate) resync: DeepMutex<Resync, levels::Resync>,
    pub(crate) returns: LeafMutex<Returns>,
    pub(crate) away_clock: DeepMutex<AwayClock, levels::AwayClock>,
    pub(crate) lazy: LeafMutex<Lazy>,
    /// One change of the disks at a time.
    pub(crate) disk_changes: Mutex<(), levels::DiskChanges>,
    pub(crate) background: Background,
    /// The redundancy that the group is to have when every copy is there, where it is another.
    pub(crate) wanted_redundancy: LeafMutex<Option<Redundancy>>,
    /// Where disks were open that the group has forgotten.
    pub(crate) free_slots: LeafMutex<Vec<DiskSlot>>,
}

impl std::ops::Deref for Group {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
