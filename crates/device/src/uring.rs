//! The production engine: io_uring, one ring per calling thread.
//!
//! A batch is queued into the caller's own ring, submitted and reaped by the same call, mostly
//! with one `io_uring_enter` and no other system call, no lock and no allocation. Rings belong
//! to threads and end with them; a ring holds no disk open, so that a disk is free as soon as
//! its engine is dropped.
//!
//! A request that gets no answer in time is cancelled. Where the kernel cannot cancel it (a
//! transfer handed to the device), it is given up: `run` returns, the table keeps its memory, the
//! disk is fenced, and the ring is closed, so that the kernel ends the request by itself whenever
//! it can. Requests of other threads to that disk are given up along with it. Only memory of
//! buffers, which the engine can keep, is reached as it is; plain memory is borrowed by patient
//! requests alone, for which `run` waits.
//!
//! After a crash nothing remains of this module; what was durable is what flushes covered.
#![allow(
    unsafe_code,
    reason = "the kernel works on memory that the caller has lent"
)]

mod ring;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::counters::DiskCounters;
use crate::open::{OpenDisk, OpenError};
use crate::plain;
use crate::request::{DiskSlot, Request, Work};
use crate::rest_of_batch::RestOfBatch;
use crate::table::{DiskTable, TableEntry};
use crate::{Disks, Judge};
use ring::Ring;

/// How long a batch may go without any answer before it is given up.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);

/// The io_uring engine.
#[derive(Debug)]
pub struct UringDisks {
    table: DiskTable,
    deadline: Duration,
    /// Unlike an address, never used again by a later engine.
    number: u64,
    /// Lets the rings of other threads see that the engine is gone.
    alive: Arc<()>,
}

struct ThreadRing {
    engine_number: u64,
    engine: Weak<()>,
    ring: Ring,
}

thread_local! {
    /// This thread's rings, one for each engine it has used; hardly ever more than one.
    static RINGS: RefCell<Vec<ThreadRing>> = const { RefCell::new(Vec::new()) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl UringDisks {
    /// An engine without disks yet, whose batches are given up after [`DEADLINE_DEFAULT`]
    /// without an answer.
    ///
    /// # Errors
    /// What the kernel says where it has no io_uring, forbids it, or lacks an operation.
    pub fn new() -> io::Result<Self> {
        Self::with_deadline(DEADLINE_DEFAULT)
    }

    /// An engine whose batches are given up after `deadline` without an answer.
    ///
    /// # Errors
    /// As for [`UringDisks::new`].
    pub fn with_deadline(deadline: Duration) -> io::Result<Self> {
        ring::probe()?;
        Ok(Self {
            table: DiskTable::new(),
            deadline,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            alive: Arc::new(()),
        })
    }

    /// Takes over an open disk; requests name it by the slot from now on.
    ///
    /// # Panics
    /// Where the engine has all the disks it can have.
    pub fn attach(&self, disk: OpenDisk) -> DiskSlot {
        self.table.attach(disk)
    }

    /// As `attach`, and an error where the engine has had all the disks it can have.
    ///
    /// # Errors
    /// [`OpenErrorKind::NoSlot`](crate::OpenErrorKind::NoSlot).
    pub fn try_attach(&self, disk: OpenDisk) -> Result<DiskSlot, OpenError> {
        self.table.try_attach(disk)
    }

    /// Lets go of a disk; requests to its slot fail from now on.
    ///
    /// # Errors
    /// Where descriptors have run out; the disk is held on then.
    pub fn release(&self, slot: DiskSlot) -> std::io::Result<()> {
        self.table.entry(slot).disk.release()
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn counters(&self, slot: DiskSlot) -> DiskCounters {
        self.table.entry(slot).counters.snapshot()
    }

    /// This thread's ring, made at its first batch; none where the kernel gives none now.
    fn ring<'r>(&self, rings: &'r mut Vec<ThreadRing>) -> Option<&'r mut Ring> {
        let found = rings
            .iter()
            .position(|ring| ring.engine_number == self.number);
        let position = found.or_else(|| {
            rings.retain(|ring| ring.engine.strong_count() > 0);
            let ring = Ring::new()
                .inspect_err(|error| {
                    tracing::warn!(%error, "no ring for this thread; using plain system calls");
                })
                .ok()?;
            rings.push(ThreadRing {
                engine_number: self.number,
                engine: Arc::downgrade(&self.alive),
                ring,
            });
            Some(rings.len() - 1)
        })?;
        Some(&mut rings[position].ring)
    }

    /// Runs the batch by this thread's ring; false where there is none.
    fn run_by_ring(
        &self,
        rings: &mut Vec<ThreadRing>,
        batch: &mut [Request<'_>],
        rest: &mut RestOfBatch<'_>,
    ) -> bool {
        let Some(ring) = self.ring(rings) else {
            return false;
        };
        ring.run(&self.table, self.deadline, batch, rest);
        if ring.is_lost {
            rings.retain(|ring| !ring.ring.is_lost);
        }
        true
    }

    /// As [`Disks::run`], for a part of a batch: the rest is looked at meanwhile.
    pub(crate) fn run_beside(&self, batch: &mut [Request<'_>], rest: &mut RestOfBatch<'_>) {
        let served = RINGS.try_with(|rings| self.run_by_ring(&mut rings.borrow_mut(), batch, rest));
        // No ring: descriptors or locked memory have run out, or the thread is ending.
        if !matches!(served, Ok(true)) {
            for request in batch {
                plain::serve(self.table.entry(request.slot), request);
                rest.look_if_due();
            }
        }
    }
}

/// Whether io_uring would hand the request to a worker thread of its own, so that the calling
/// thread serves it sooner: all of zram and its like, which do not promise never to wait, and
/// every flush. A flush that hangs cannot be called back from there, so that is for patient ones.
fn goes_to_a_worker(entry: &TableEntry, request: &Request<'_>) -> bool {
    let is_flush = matches!(request.work, Work::Flush);
    entry.disk.in_memory || (is_flush && request.is_patient)
}

impl Disks for UringDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        if batch.is_empty() {
            return;
        }
        // A single request has nothing to run beside it; several go through the ring, side by side.
        if let [request] = batch
            && goes_to_a_worker(self.table.entry(request.slot), request)
        {
            plain::serve(self.table.entry(request.slot), request);
            return;
        }
        self.run_beside(batch, &mut RestOfBatch::nothing());
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.table.entry(slot).disk.size_bytes()
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.table.entry(slot).disk.measure()
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.table.entry(slot).disk.path.clone()
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.table.entry(slot).counters.in_flight()
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.table.entry(slot).disk.appearance()
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.table.entry(slot).is_fenced()
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.table.set_judge(judge);
    }
}
