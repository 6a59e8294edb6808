//! The group's disks as the data path sees them: where each is open, whether it is online, how
//! much was asked of it, and how far it was flushed.
//!
//! Invariant: a disk that the membership says is offline is neither read nor written for file
//! data; the membership says so only when it is durable.

mod flush;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_base::{DiskName, DiskNumber, FailureGroupName};
use spindle_device::{DiskSlot, Disks, Request, Work};
use spindle_format::ExtentCopy;

use crate::map::Extent;
use crate::membership::Membership;

pub use flush::{Flushes, Target};

/// What was asked of a disk since the group was opened.
#[derive(Debug, Default)]
pub struct Counters {
    pub reads_count: AtomicU64,
    pub writes_count: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub read_errors_count: AtomicU64,
    pub write_errors_count: AtomicU64,
}

/// One disk of the group.
#[derive(Debug)]
pub struct DiskState {
    pub number: DiskNumber,
    pub name: DiskName,
    pub failure_group: FailureGroupName,
    /// The failure group as a small number.
    pub group_index: u16,
    /// Where it is open; `None` where it was not found.
    pub slot: Option<DiskSlot>,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// Whether it may hold data: quorum disks do not.
    pub holds_data: bool,
    pub counters: Counters,
    pub membership: Arc<Membership>,
}

impl DiskState {
    /// Whether file data may be read and written there.
    pub fn is_online(&self) -> bool {
        self.slot.is_some() && self.membership.is_online(self.number)
    }

    /// The slot of an online disk.
    pub fn online_slot(&self) -> Option<DiskSlot> {
        self.slot.filter(|_| self.is_online())
    }
}

/// All disks by number, and the way to them.
#[derive(Debug)]
pub struct DiskTable {
    backend: Arc<dyn Disks>,
    disks: Vec<Option<DiskState>>,
    by_slot: Vec<Option<u16>>,
    preferred_group: Option<u16>,
    pub flushes: Flushes,
}

impl DiskTable {
    /// A table of these disks, in ascending order of their numbers.
    pub fn new(
        backend: Arc<dyn Disks>,
        list: Vec<DiskState>,
        preferred: Option<&FailureGroupName>,
    ) -> Self {
        let count = list.iter().map(|d| usize::from(d.number.0) + 1).max();
        let mut disks: Vec<Option<DiskState>> = Vec::new();
        disks.resize_with(count.unwrap_or(0), || None);
        let mut by_slot = Vec::new();
        let mut preferred_group = None;
        for disk in list {
            if let Some(slot) = disk.slot {
                let at = usize::from(slot.0);
                if by_slot.len() <= at {
                    by_slot.resize(at + 1, None);
                }
                by_slot[at] = Some(disk.number.0);
            }
            if preferred.is_some_and(|name| {
                name.as_str()
                    .eq_ignore_ascii_case(disk.failure_group.as_str())
            }) {
                preferred_group = Some(disk.group_index);
            }
            let at = usize::from(disk.number.0);
            disks[at] = Some(disk);
        }
        let flushes = Flushes::new(disks.len());
        Self {
            backend,
            disks,
            by_slot,
            preferred_group,
            flushes,
        }
    }

    /// The disk with that number.
    pub fn get(&self, number: DiskNumber) -> Option<&DiskState> {
        self.disks.get(usize::from(number.0))?.as_ref()
    }

    /// Every disk, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = &DiskState> {
        self.disks.iter().flatten()
    }

    /// The size of each disk by number.
    pub fn sizes_bytes(&self) -> Vec<Option<u64>> {
        self.disks
            .iter()
            .map(|disk| {
                let disk = disk.as_ref().filter(|disk| disk.holds_data)?;
                Some(disk.total_bytes)
            })
            .collect()
    }

    /// A person's name for the disk: name and, where it is open, its path.
    pub fn describe(&self, number: DiskNumber) -> String {
        self.get(number).map_or_else(
            || format!("disk {number}"),
            |disk| match disk.slot {
                Some(slot) => format!("disk {} ({})", disk.name, self.backend.path(slot)),
                None => format!("disk {}", disk.name),
            },
        )
    }

    /// The path of a disk that is open.
    pub fn path(&self, disk: &DiskState) -> Option<String> {
        disk.slot.map(|slot| self.backend.path(slot))
    }

    /// Where a copy lies, if its disk is online.
    pub fn slot_of(&self, copy: ExtentCopy) -> Option<DiskSlot> {
        if !copy.is_present() {
            return None;
        }
        self.get(copy.disk())?.online_slot()
    }

    /// The copy to read: in the preferred failure group where there is one, else on the least
    /// busy disk. `avoid` has a bit for each copy that failed already.
    pub fn choose(&self, extent: &Extent, avoid: u8) -> Option<(usize, ExtentCopy, DiskSlot)> {
        let mut best: Option<(u32, usize, ExtentCopy, DiskSlot)> = None;
        for (number, copy) in extent.copies().iter().enumerate() {
            if avoid >> number & 1 != 0 || !copy.is_present() {
                continue;
            }
            let Some(disk) = self.get(copy.disk()) else {
                continue;
            };
            let Some(slot) = disk.online_slot() else {
                continue;
            };
            if extent.copies().len() == 1 {
                return Some((number, *copy, slot));
            }
            let busy_count = if self.preferred_group == Some(disk.group_index) {
                0
            } else {
                self.backend.in_flight_count(slot).saturating_add(1)
            };
            if best.is_none_or(|(least, ..)| busy_count < least) {
                best = Some((busy_count, number, *copy, slot));
            }
        }
        best.map(|(_, number, copy, slot)| (number, copy, slot))
    }

    /// Runs a batch and counts it.
    pub fn run(&self, batch: &mut [Request<'_>]) {
        self.backend.run(batch);
        for request in batch.iter() {
            let Some(disk) = self.disk_of(request.slot) else {
                continue;
            };
            let counters = &disk.counters;
            let (count, bytes, errors, length) = match &request.work {
                Work::Read(memory) => (
                    &counters.reads_count,
                    &counters.read_bytes,
                    &counters.read_errors_count,
                    memory.len(),
                ),
                Work::Write(memory) | Work::WriteDurable(memory) => (
                    &counters.writes_count,
                    &counters.written_bytes,
                    &counters.write_errors_count,
                    memory.len(),
                ),
                Work::Flush => continue,
            };
            if request.result.is_err() {
                errors.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    }

    /// The disk open in `slot`.
    pub fn disk_of(&self, slot: DiskSlot) -> Option<&DiskState> {
        let number = (*self.by_slot.get(usize::from(slot.0))?)?;
        self.get(DiskNumber(number))
    }
}
