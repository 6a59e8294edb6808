//! One request to one disk, and its answer.

use std::sync::Arc;

use spindle_base::BLOCK_SIZE_BYTES;

use crate::buffer::{ReadPart, WritePart};

/// Which of the opened disks; an index that only the set that gave it understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskSlot(pub u16);

/// What a request does.
///
/// Plain memory is reached by way of a copy, since a disk may answer long after its caller has
/// gone on; parts of buffers are read and written as they are.
#[derive(Debug)]
pub enum Work<'a> {
    /// Fills the memory from the disk.
    Read(&'a mut [u8]),
    /// Fills a part of a buffer from the disk.
    ReadPart(ReadPart<'a>),
    /// Writes the memory; durable only after a later [`Work::Flush`] of the same disk.
    Write(&'a [u8]),
    /// Writes a part of a buffer, as [`Work::Write`].
    WritePart(WritePart<'a>),
    /// Writes the memory and is answered when it is durable (FUA).
    WriteDurable(&'a [u8]),
    /// Makes every write durable that was answered before the batch began.
    Flush,
}

/// The kinds of [`Work`], wherever the memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Fills memory from the disk.
    Read,
    /// Writes memory.
    Write,
    /// Writes memory durably.
    WriteDurable,
    /// Makes writes durable.
    Flush,
}

impl<'a> Work<'a> {
    /// Its kind.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Work::Read(_) | Work::ReadPart(_) => Operation::Read,
            Work::Write(_) | Work::WritePart(_) => Operation::Write,
            Work::WriteDurable(_) => Operation::WriteDurable,
            Work::Flush => Operation::Flush,
        }
    }

    /// What it writes.
    #[must_use]
    pub fn written(&self) -> Option<&'a [u8]> {
        match self {
            Work::Write(memory) | Work::WriteDurable(memory) => Some(memory),
            Work::WritePart(part) => Some(part.bytes()),
            Work::Read(_) | Work::ReadPart(_) | Work::Flush => None,
        }
    }

    /// What it fills.
    pub fn filled(&mut self) -> Option<&mut [u8]> {
        match self {
            Work::Read(memory) => Some(memory),
            Work::ReadPart(part) => Some(part.bytes()),
            Work::Write(_) | Work::WritePart(_) | Work::WriteDurable(_) | Work::Flush => None,
        }
    }
}

/// Hears of failures as disks answer them, which may be long before the batch has ended: another of
/// its disks may keep silent.
pub trait FailureListener: Send + Sync + std::fmt::Debug {
    /// A request to the disk in `slot` has failed. Called by a thread of the engine or by the one
    /// that waits for the batch, with none of the engine's locks held.
    fn failed(&self, slot: DiskSlot, error: &DeviceError);
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
    /// Waits for the disk for as long as it takes: nobody else has what is asked for.
    pub is_patient: bool,
    /// Who hears of it at once if it fails; nobody any more when that was told. It belongs to the
    /// request, so that no layer between can forget to hand it on: one that sends a request of its
    /// own in the place of this one moves it over.
    pub listener: Option<Arc<dyn FailureListener>>,
    /// The answer; `Ok` until the batch has run.
    pub result: Result<(), DeviceError>,
}

impl<'a> Request<'a> {
    /// A request not yet run, which is given up when the disk does not answer in time.
    #[must_use]
    pub const fn new(slot: DiskSlot, offset_bytes: u64, work: Work<'a>) -> Self {
        Self {
            slot,
            offset_bytes,
            work,
            is_patient: false,
            listener: None,
            result: Ok(()),
        }
    }

    /// The bytes to be read or written; 0 for a flush.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        match &self.work {
            Work::Read(memory) => memory.len(),
            Work::ReadPart(part) => part.len(),
            Work::Write(memory) | Work::WriteDurable(memory) => memory.len(),
            Work::WritePart(part) => part.bytes().len(),
            Work::Flush => 0,
        }
    }

    /// What a person calls the work: `read`, `write` or `flush`.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self.work.operation() {
            Operation::Read => "read",
            Operation::Write | Operation::WriteDurable => "write",
            Operation::Flush => "flush",
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

    /// Tells who listens where the answer is a failure, once. Whoever serves a request calls it as
    /// soon as it has the answer, with no lock held.
    pub fn tell_failure(&mut self) {
        if let Err(error) = &self.result
            && let Some(listener) = self.listener.take()
        {
            listener.failed(self.slot, error);
        }
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

/// What of a batch has failed until now, for the [`Judge`](crate::Judge) of a disk that keeps the
/// others waiting.
#[must_use]
pub fn failures_of(batch: &[Request<'_>]) -> Vec<(DiskSlot, DeviceErrorKind)> {
    let failed = |request: &Request<'_>| {
        let error = request.result.as_ref().err()?;
        Some((request.slot, error.kind))
    };
    batch.iter().filter_map(failed).collect()
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
    /// No answer in the time that was set. It may still come: until then the disk is given nothing.
    TimedOut,
    /// The disk obeys another host (EBADE, a reservation conflict), or this process has lost its
    /// right to it. The disk is well.
    Fenced,
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
