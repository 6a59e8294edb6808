//! Disks: a batch of requests goes in, every answer comes out.
//!
//! The trait [`Disks`] is all that the layers above know of hardware. A batch may touch many
//! disks; its requests run in parallel and in no order among themselves; the call returns when
//! each has its answer. Whoever needs an order makes two batches.
//!
//! A crash keeps any subset of the writes that no later flush of the same disk covered, each of
//! them whole or torn at any 512-byte boundary. No idea of groups or extents lives here.

mod buffer;
mod counters;
mod engine;
#[cfg(test)]
mod engine_tests;
mod errno;
mod faulty;
mod guard;
mod open;
mod plain;
mod power_cut;
mod random;
mod recorder;
mod request;
mod shared_memory;
mod simulated;
mod table;
mod uring;

pub use buffer::AlignedBuffer;
pub use counters::{DiskCounters, LATENCY_BUCKETS, LatencyHistogram};
pub use engine::{Engine, open_engine};
pub use faulty::FaultableDisks;
pub use open::{
    DISK_SIZE_MIN_BYTES, DiskKind, FileDisk, FileDiskError, OpenDisk, OpenError, OpenErrorKind,
};
pub use plain::PlainDisks;
pub use random::SeededRandom;
pub use recorder::{
    Record, RecordKind, RecordLog, RecordedDisk, RecordedDisks, ReplayError, ReplaySummary,
    Replayer,
};
pub use request::{DeviceError, DeviceErrorKind, DiskSlot, Request, Work};
pub use shared_memory::SharedMemory;
pub use simulated::{FaultyOperation, SimulatedCounts, SimulatedDisks};
pub use table::DISK_SLOTS_MAX;
pub use uring::{DEADLINE_DEFAULT, UringDisks};

/// A set of opened disks. Slots are given at opening and stay until the process ends.
pub trait Disks: Send + Sync + std::fmt::Debug {
    /// Runs every request of the batch and puts the answer of each into its `result`.
    ///
    /// Offsets and lengths are multiples of 4,096 bytes, else the answer is
    /// [`DeviceErrorKind::Misaligned`]; memory of any alignment is served, aligned memory
    /// without a copy.
    fn run(&self, batch: &mut [Request<'_>]);

    /// The size in bytes of the disk in `slot`, as found when it was opened or last measured.
    fn size_bytes(&self, slot: DiskSlot) -> u64;

    /// Looks again how large the disk in `slot` is: a volume or an image may have grown.
    ///
    /// # Errors
    /// Where the disk does not tell.
    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        Ok(self.size_bytes(slot))
    }

    /// What a person calls the disk in `slot`: its path.
    fn path(&self, slot: DiskSlot) -> String;

    /// Requests under way on `slot`, so that a read can go to the least busy copy.
    fn in_flight_count(&self, slot: DiskSlot) -> u32;
}

impl<D: Disks + ?Sized> Disks for std::sync::Arc<D> {
    fn run(&self, batch: &mut [Request<'_>]) {
        (**self).run(batch);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        (**self).size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        (**self).measure(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        (**self).path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        (**self).in_flight_count(slot)
    }
}
