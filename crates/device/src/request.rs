//! One request to one disk, and its answer.

/// Which of the opened disks; an index that only the set that gave it understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskSlot(pub u16);

/// What a request does. The memory is borrowed for the whole batch, so it cannot change in flight.
#[derive(Debug)]
pub enum Work<'a> {
    /// Fills the memory from the disk.
    Read(&'a mut [u8]),
    /// Writes the memory; durable only after a later [`Work::Flush`] of the same disk.
    Write(&'a [u8]),
    /// Writes the memory and is answered when it is durable (FUA).
    WriteDurable(&'a [u8]),
    /// Makes every write durable that was answered before the batch began.
    Flush,
}

/// One piece of a batch.
#[derive(Debug)]
pub struct Request<'a> {
    /// The disk.
    pub slot: DiskSlot,
    /// Where on the disk, in bytes; ignored by a flush.
    pub offset_bytes: u64,
    /// What to do.
    pub work: Work<'a>,
    /// The answer; `Ok` until the batch has run.
    pub result: Result<(), DeviceError>,
}

impl<'a> Request<'a> {
    /// A request not yet run.
    #[must_use]
    pub const fn new(slot: DiskSlot, offset_bytes: u64, work: Work<'a>) -> Self {
        Self {
            slot,
            offset_bytes,
            work,
            result: Ok(()),
        }
    }
}

/// What kept a disk from doing as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// The medium could not read or write these blocks (EIO, EBADMSG, ENODATA, ...).
    Medium,
    /// The disk is gone (ENODEV, ENXIO), or its file is shorter than it was.
    Gone,
    /// The file below has no room (ENOSPC, EDQUOT).
    NoSpace,
    /// No answer in the time that was set.
    TimedOut,
    /// Offset or length is no multiple of 4,096, or beyond the disk's end: our own mistake.
    Misaligned,
    /// The simulated machine has lost its power.
    PowerLost,
}

/// A failed request: which disk, where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {length_bytes} bytes at {offset_bytes} of {path} failed: {kind:?}{}", errno.map(|e| format!(" (errno {e})")).unwrap_or_default())]
pub struct DeviceError {
    /// The disk's path.
    pub path: String,
    /// `read`, `write` or `flush`.
    pub operation: &'static str,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// How much, in bytes.
    pub length_bytes: usize,
    /// Why.
    pub kind: DeviceErrorKind,
    /// The kernel's number for it, where the kernel gave one.
    pub errno: Option<i32>,
}
