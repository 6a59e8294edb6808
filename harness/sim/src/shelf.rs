//! The disks that are there: those that the group was made of, and those that came later. Which of
//! them the group has, only the group knows; after a power cut that may be as before or as after.

use spindle_base::{DiskName, DiskNumber, FailureGroupName, Uuid};
use spindle_device::DiskSlot;
use spindle_group::NewDisk;

use crate::plan::PlannedDisk;
use crate::run::{Run, valid};

/// A disk that is there; its place among them is its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShelfDisk {
    /// The device's size.
    pub(crate) size_bytes: u64,
    pub(crate) failure_group: u64,
    /// Whether faults may meet it.
    pub(crate) may_fail: bool,
    /// As whom it was added last.
    identity: u8,
}

impl ShelfDisk {
    pub(crate) fn planned(planned: &PlannedDisk, identity: u8) -> Self {
        Self {
            size_bytes: planned.size_bytes,
            failure_group: planned.failure_group,
            may_fail: planned.may_fail,
            identity,
        }
    }

    const fn uuid(&self) -> Uuid {
        Uuid([self.identity; 16])
    }

    /// The disk as one that joins.
    pub(crate) fn joining(&self, slot: DiskSlot) -> NewDisk {
        NewDisk {
            slot,
            name: valid(DiskName::new(format!("d{}", self.identity - 1))),
            failure_group: valid(FailureGroupName::new(format!("f{}", self.failure_group))),
            uuid: self.uuid(),
        }
    }
}

impl Run {
    pub(crate) fn slots(&self) -> Vec<DiskSlot> {
        (0_u16..).take(self.shelf.len()).map(DiskSlot).collect()
    }

    pub(crate) fn shelf_disk(&self, slot: DiskSlot) -> ShelfDisk {
        self.shelf[usize::from(slot.0)]
    }

    /// A new device; faults meet it where they may meet the others of its failure group.
    pub(crate) fn attach(&mut self, size_bytes: u64, failure_group: u64) -> DiskSlot {
        let slot = self.disks.attach(size_bytes);
        let mut others = self.plan.disks.iter();
        let may_fail = others.any(|disk| disk.failure_group == failure_group && disk.may_fail);
        self.shelf.push(ShelfDisk {
            size_bytes,
            failure_group,
            may_fail,
            identity: 0,
        });
        slot
    }

    /// The disk as it is to join, with an identity that none had before.
    pub(crate) fn joining(&mut self, slot: DiskSlot) -> NewDisk {
        self.next_identity = self.next_identity.checked_add(1).expect("runs are short");
        let disk = &mut self.shelf[usize::from(slot.0)];
        disk.identity = self.next_identity;
        disk.joining(slot)
    }

    /// The disk's number, where the group has it: here, away or on its way out.
    pub(crate) fn number_of(&self, slot: DiskSlot) -> Option<DiskNumber> {
        let group = self.system().group();
        group.disk_of_uuid(self.shelf_disk(slot).uuid())
    }

    pub(crate) fn slot_of(&self, number: DiskNumber) -> Option<DiskSlot> {
        let mut slots = self.slots().into_iter();
        slots.find(|slot| self.number_of(*slot) == Some(number))
    }

    /// Disks that the group has.
    pub(crate) fn members(&self) -> Vec<(DiskSlot, DiskNumber)> {
        (self.slots().into_iter())
            .filter_map(|slot| Some((slot, self.number_of(slot)?)))
            .collect()
    }

    pub(crate) fn failing_slots(&self) -> Vec<DiskSlot> {
        (self.slots().into_iter())
            .filter(|slot| self.shelf_disk(*slot).may_fail)
            .collect()
    }
}
