//! The engine that this machine can have: io_uring, or plain system calls where it is missing.

use std::sync::Weak;
use std::time::Duration;

use crate::counters::DiskCounters;
use crate::open::{OpenDisk, OpenError};
use crate::plain::PlainDisks;
use crate::request::{DiskSlot, Request};
use crate::rest_of_batch::RestOfBatch;
use crate::uring::UringDisks;
use crate::{Disks, Judge};

/// Either engine, with what both can do.
#[derive(Debug)]
pub enum Engine {
    /// io_uring.
    Uring(UringDisks),
    /// Plain system calls: slower.
    Plain(PlainDisks),
}

/// Gives the io_uring engine, or the plain one and, for a warning, why not io_uring. Either gives
/// a disk up that has not answered for `deadline`.
#[must_use]
pub fn open_engine(deadline: Duration) -> (Engine, Option<std::io::Error>) {
    match UringDisks::with_deadline(deadline) {
        Ok(disks) => (Engine::Uring(disks), None),
        Err(reason) => (
            Engine::Plain(PlainDisks::with_deadline(deadline)),
            Some(reason),
        ),
    }
}

impl Engine {
    /// Takes over an open disk; requests name it by the slot from now on.
    pub fn attach(&self, disk: OpenDisk) -> DiskSlot {
        match self {
            Self::Uring(disks) => disks.attach(disk),
            Self::Plain(disks) => disks.attach(disk),
        }
    }

    /// As [`Engine::attach`], and an error where the engine has had all the disks it can have.
    ///
    /// # Errors
    /// [`OpenErrorKind::NoSlot`](crate::OpenErrorKind::NoSlot).
    pub fn try_attach(&self, disk: OpenDisk) -> Result<DiskSlot, OpenError> {
        match self {
            Self::Uring(disks) => disks.try_attach(disk),
            Self::Plain(disks) => disks.try_attach(disk),
        }
    }

    /// Lets go of a disk; requests to its slot fail from now on.
    ///
    /// # Errors
    /// Where descriptors have run out; the disk is held on then.
    pub fn release(&self, slot: DiskSlot) -> std::io::Result<()> {
        match self {
            Self::Uring(disks) => disks.release(slot),
            Self::Plain(disks) => disks.release(slot),
        }
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn counters(&self, slot: DiskSlot) -> DiskCounters {
        match self {
            Self::Uring(disks) => disks.counters(slot),
            Self::Plain(disks) => disks.counters(slot),
        }
    }

    /// As [`Disks::run`], for a part of a batch: the rest is looked at meanwhile.
    pub(crate) fn run_beside(&self, batch: &mut [Request<'_>], rest: &mut RestOfBatch<'_>) {
        match self {
            Self::Uring(disks) => disks.run_beside(batch, rest),
            Self::Plain(disks) => disks.run_beside(batch, rest),
        }
    }
}

impl Disks for Engine {
    fn run(&self, batch: &mut [Request<'_>]) {
        match self {
            Self::Uring(disks) => disks.run(batch),
            Self::Plain(disks) => disks.run(batch),
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        match self {
            Self::Uring(disks) => disks.size_bytes(slot),
            Self::Plain(disks) => disks.size_bytes(slot),
        }
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        match self {
            Self::Uring(disks) => disks.measure(slot),
            Self::Plain(disks) => disks.measure(slot),
        }
    }

    fn path(&self, slot: DiskSlot) -> String {
        match self {
            Self::Uring(disks) => disks.path(slot),
            Self::Plain(disks) => disks.path(slot),
        }
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        match self {
            Self::Uring(disks) => disks.in_flight_count(slot),
            Self::Plain(disks) => disks.in_flight_count(slot),
        }
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        match self {
            Self::Uring(disks) => disks.appearance(slot),
            Self::Plain(disks) => disks.appearance(slot),
        }
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        match self {
            Self::Uring(disks) => disks.is_fenced(slot),
            Self::Plain(disks) => disks.is_fenced(slot),
        }
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        match self {
            Self::Uring(disks) => disks.set_judge(judge),
            Self::Plain(disks) => disks.set_judge(judge),
        }
    }
}
