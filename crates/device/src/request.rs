//! One request to one disk, and its answer.

use spindle_base::BLOCK_SIZE_BYTES;

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

    /// The bytes to be read or written; 0 for a flush.
    #[must_use]
    pub const fn length_bytes(&self) -> usize {
        match &self.work {
            Work::Read(memory) => memory.len(),
            Work::Write(memory) | Work::WriteDurable(memory) => memory.len(),
            Work::Flush => 0,
        }
    }

    /// What a person calls the work: `read`, `write` or `flush`.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match &self.work {
            Work::Read(_) => "read",
            Work::Write(_) | Work::WriteDurable(_) => "write",
            Work::Flush => "flush",
        }
    }

    /// Whether a disk of `size_bytes` can do this: whole blocks that lie on it.
    pub(crate) fn is_within(&self, size_bytes: u64) -> bool {
        if matches!(self.work, Work::Flush) {
            return true;
        }
        let length_bytes = self.length_bytes() as u64;
        (self.offset_bytes | length_bytes).is_multiple_of(BLOCK_SIZE_BYTES)
            && self
                .offset_bytes
                .checked_add(length_bytes)
                .is_some_and(|end| end <= size_bytes)
    }

    /// Puts a failure into the answer.
    #[cold]
    pub(crate) fn fail(&mut self, path: &str, kind: DeviceErrorKind, errno: Option<i32>) {
        self.result = Err(DeviceError {
            path: path.to_owned(),
            operation: self.operation(),
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes(),
            kind,
            errno,
        });
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
