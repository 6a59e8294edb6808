//! What carries requests of the kernel to a worker and its answer back.
//!
//! Classic `/dev/fuse` stands behind this trait ([`crate::device_transport`]), so that another
//! carrier can take its place. Each worker has a transport of its own.
//!
//! **Invariants.** A transport holds at most one request; the thread that received it answers it, or
//! says by [`Transport::answer_after`] that it may be answered elsewhere.
//! The memory of [`Transport::payload`] begins at a multiple of 4,096 bytes: what a `WRITE`
//! carries goes to disks from there, and what a `READ` answers is read from disks to there,
//! with no copy on the way.

use rustix::io::Errno;
use spindle_device::{ReadTarget, WriteSource};

use crate::abi::InHeader;
use crate::notices::Dropped;
use crate::stale::Stale;

/// One worker's connection to the kernel.
pub(crate) trait Transport {
    /// Waits for the next request. `None`: the mount has ended.
    ///
    /// # Errors
    /// What the kernel answered instead of a request.
    fn receive(&mut self) -> Result<Option<InHeader>, Errno>;

    /// What follows the request's header: the structure of its opcode in the first
    /// `length_bytes`. `None` where the request is shorter.
    fn arguments(&self, length_bytes: usize) -> Option<&[u8]>;

    /// What follows the structure of `after_bytes` bytes: names, or the data of a `WRITE`.
    fn tail(&self, after_bytes: usize) -> &[u8];

    /// Memory for `length_bytes` of data of an answer; `None` where that is more than was agreed
    /// on. It may lie over the tail of the request: take what is needed of that first.
    fn payload(&mut self, length_bytes: usize) -> Option<&mut [u8]>;

    /// The data of a `WRITE`, whose structure has `after_bytes`, as disks take it; `None` where the
    /// request is shorter.
    fn data(&self, after_bytes: usize, length_bytes: usize) -> Option<WriteSource<'_>> {
        self.tail(after_bytes).get(..length_bytes).map(Into::into)
    }

    /// As [`Transport::payload`], to be filled by disks.
    fn payload_target(&mut self, length_bytes: usize) -> Option<ReadTarget<'_>> {
        self.payload(length_bytes).map(Into::into)
    }

    /// Answers with an error, or with zero for success without data, and `data`.
    ///
    /// # Errors
    /// What the kernel said of the answer.
    fn answer(&mut self, error: i32, data: &[u8]) -> Result<(), Errno>;

    /// Answers with `data` when the kernel has dropped what `dropped` says of a file, or nearly so (see
    /// `notices`): later, by another thread.
    ///
    /// # Errors
    /// What the kernel said of the answer, where it was given at once.
    fn answer_after(&mut self, dropped: Dropped, data: &[u8]) -> Result<(), Errno>;

    /// Has the kernel drop what `dropped` says of a file, soon.
    fn drop_pages(&mut self, dropped: Dropped);

    /// Answers with the first `length_bytes` of the payload.
    ///
    /// # Errors
    /// What the kernel said of the answer.
    fn answer_payload(&mut self, length_bytes: usize) -> Result<(), Errno>;

    /// Makes the kernel forget all of these, soon after the answer.
    fn forget_soon(&self, stale: Vec<Stale>);

    /// Makes the kernel forget that before the answer. Only what it waits for nothing with, which are a
    /// file's attributes.
    ///
    /// # Errors
    /// What the kernel said of it; that it does not know the file is none.
    fn forget(&self, stale: &Stale) -> Result<(), Errno>;
}
