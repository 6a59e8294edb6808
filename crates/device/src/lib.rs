//! Disks: a batch of requests goes in, every answer comes out.
//!
//! The trait [`Disks`] is all that the layers above know of hardware. A batch may touch many
//! disks; its requests run in parallel and in no order among themselves; the call returns when
//! each has its answer. Whoever needs an order makes two batches.
//!
//! A disk that does not answer in time is given up where its [`Judge`] allows it: the batch
//! returns with [`DeviceErrorKind::TimedOut`], and this process sends that disk nothing more until
//! the late requests have come back. Their memory is the engine's.
//!
//! A crash keeps any subset of the writes that no later flush of the same disk covered, each of
//! them whole or torn at any 512-byte boundary. No idea of groups or extents lives here.

mod bounce;
mod buffer;
mod counters;
mod engine;
#[cfg(test)]
mod engine_tests;
mod errno;
mod faulty;
mod guard;
#[cfg(test)]
mod hanging_tests;
mod held_byte;
mod memory;
mod mixed;
mod open;
mod partitions;
mod plain;
#[cfg(any(test, feature = "simulated"))]
mod power_cut;
mod random;
mod recorder;
mod request;
mod rest_of_batch;
mod shared_memory;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod table;
mod undertaker;
mod uring;
pub mod words;

pub use buffer::{AlignedBuffer, ReadPart, WritePart};
pub use counters::{DiskCounters, LATENCY_BUCKETS, LatencyHistogram};
pub use engine::{Engine, open_engine};
pub use faulty::FaultableDisks;
pub use held_byte::{hold_byte, is_byte_held};
pub use memory::{Lent, ReadTarget, WriteSource};
pub use mixed::{MixedDisks, REMOTE_SLOTS_MAX, RemoteDisk, RemoteFailure, RemoteJob};
pub use open::{
    DISK_SIZE_MIN_BYTES, DiskKind, FileDisk, FileDiskError, OpenDisk, OpenError, OpenErrorKind,
};
pub use partitions::{add_partition, read_partitions_anew};
pub use plain::PlainDisks;
pub use random::SeededRandom;
pub use recorder::RecordedDisks;
#[cfg(any(test, feature = "simulated"))]
pub use recorder::{
    Record, RecordKind, RecordLog, RecordedDisk, ReplayError, ReplaySummary, Replayer,
};
pub use request::{
    DeviceError, DeviceErrorKind, DiskSlot, FailureListener, Operation, Request, Work, failures_of,
};
pub use shared_memory::{ReadOnlyMemory, SharedMemory};
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{DiskImage, FaultyOperation, SimulatedCounts, SimulatedDisks};
pub use table::DISK_SLOTS_MAX;
pub use undertaker::engage_undertaker;
pub use uring::{DEADLINE_DEFAULT, UringDisks};

use std::sync::Weak;

/// A set of opened disks. Slots are given at opening and stay until the process ends.
pub trait Disks: Send + Sync + std::fmt::Debug {
    /// Runs every request of the batch and puts the answer of each into its `result`.
    ///
    /// Offsets and lengths are multiples of 4,096 bytes, else the answer is
    /// [`DeviceErrorKind::Misaligned`]; memory of any alignment is served, aligned memory
    /// without a copy.
    ///
    /// Who listens to a request is told of its failure when that is answered, however long the others
    /// of the batch take ([`Request::tell_failure`]).
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

    /// Which appearance of the disk in `slot` this is, where the kernel counts them: a device that went
    /// away and came back is another one, and may have lost what no flush had covered.
    fn appearance(&self, slot: DiskSlot) -> Option<u64>;

    /// Whether requests to `slot` were given up that may still reach the disk.
    fn is_fenced(&self, _slot: DiskSlot) -> bool {
        false
    }

    /// Who decides from now on which disks are given up; before, all are.
    fn set_judge(&self, _judge: Weak<dyn Judge>) {}
}

/// Decides whether a disk that does not answer may be given up: whether somebody else has what it
/// holds. Called by whoever waits, with any lock held, so it waits for nothing.
pub trait Judge: Send + Sync + std::fmt::Debug {
    /// True: its requests are answered [`DeviceErrorKind::TimedOut`], and the disk counts as gone
    /// from now on. False: they wait, and it is asked again.
    ///
    /// `failed` is what whoever waits has been answered beside it, in the same batch: disks that are
    /// no copy for that batch, though nobody could draw a conclusion from it yet.
    fn may_give_up(&self, slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool;

    /// The disk has answered somebody that it is gone. Told as soon as it has, however long others of
    /// the same batch keep silent.
    fn has_gone(&self, slot: DiskSlot);
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

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        (**self).appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        (**self).is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        (**self).set_judge(judge);
    }
}
