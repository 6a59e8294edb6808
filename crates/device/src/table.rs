//! The disks of one engine by slot, found without a lock.
//!
//! A slot is filled once and stays filled until the engine goes, so a reference into the table
//! is good for as long as the engine.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use crate::counters::LiveCounters;
use crate::open::OpenDisk;
use crate::request::DiskSlot;

/// The most disks one engine can have.
pub const DISK_SLOTS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct TableEntry {
    pub(crate) disk: OpenDisk,
    pub(crate) counters: LiveCounters,
    /// Requests that missed their deadline and that the kernel still holds.
    pub(crate) stuck: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct DiskTable {
    entries: Box<[OnceLock<Box<TableEntry>>]>,
    filled: Mutex<usize>,
}

impl DiskTable {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..DISK_SLOTS_MAX).map(|_| OnceLock::new()).collect(),
            filled: Mutex::new(0),
        }
    }

    pub(crate) fn attach(&self, disk: OpenDisk) -> DiskSlot {
        let mut filled = self.filled.lock();
        let slot = u16::try_from(*filled).expect("fewer than 65,536 slots");
        assert!(
            *filled < DISK_SLOTS_MAX,
            "an engine has at most {DISK_SLOTS_MAX} disks"
        );
        let entry = TableEntry {
            disk,
            counters: LiveCounters::new(),
            stuck: AtomicU32::new(0),
        };
        assert!(
            self.entries[*filled].set(Box::new(entry)).is_ok(),
            "a slot is filled once"
        );
        *filled += 1;
        DiskSlot(slot)
    }

    /// The disk in a slot that this table gave.
    pub(crate) fn entry(&self, slot: DiskSlot) -> &TableEntry {
        self.entries[usize::from(slot.0)]
            .get()
            .expect("slots are used only where they were given")
    }
}
