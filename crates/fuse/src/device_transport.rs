//! The classic carrier: `read` and `writev` on `/dev/fuse`.
//!
//! Requests are read to 80 bytes before a page boundary. The header has 40 bytes and the
//! structure of a `WRITE` has 40, so that its data begins on the boundary and goes to the disks
//! by direct I/O as it lies. The answer of a short `READ` reuses the same pages: such a request
//! has nothing beyond the 80 bytes.
//!
//! Long answers borrow memory that all workers share, the last used first. The kernel wakes
//! workers in turn, so with memory of their own a stream of long reads would walk over as many
//! megabytes as there are workers, and each would come from beyond the processor's cache.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::{Errno, read, writev};
use spindle_device::{AlignedBuffer, ReadTarget, WriteSource};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, WriteIn};
use crate::notices::{Answer, Dropped, Notices};
use crate::stale::{self, Stale};
use crate::transport::Transport;

/// Where the data of a `WRITE` begins in the buffer, and the data of an answer.
const PAYLOAD_START: usize = PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// Where a request begins in the buffer.
const REQUEST_START: usize = PAYLOAD_START - size_of::<InHeader>() - size_of::<WriteIn>();

/// Answers up to this length stay in the worker's own pages.
const SHORT_ANSWER_BYTES: usize = 64 << 10;

/// Memory for long answers.
#[derive(Debug)]
pub struct AnswerBuffers {
    free: Mutex<Vec<AlignedBuffer>>,
    length_bytes: usize,
}

impl AnswerBuffers {
    /// Buffers of `length_bytes`; as many are made as are in use at a time.
    #[must_use]
    pub const fn new(length_bytes: usize) -> Self {
        Self {
            free: Mutex::new(Vec::new()),
            length_bytes,
        }
    }

    fn take(&self) -> AlignedBuffer {
        let last = self.free.lock().pop();
        last.unwrap_or_else(|| AlignedBuffer::zeroed(self.length_bytes))
    }

    fn give_back(&self, buffer: AlignedBuffer) {
        self.free.lock().push(buffer);
    }
}

/// A worker's descriptor of the mount and its buffer.
#[derive(Debug)]
pub(crate) struct DeviceTransport {
    descriptor: Arc<OwnedFd>,
    buffer: AlignedBuffer,
    answer_buffers: Arc<AnswerBuffers>,
    notices: Notices,
    borrowed: Option<AlignedBuffer>,
    request_length_bytes: usize,
    unique: u64,
}

impl DeviceTransport {
    /// A transport over `descriptor` for as much data per request as an answer buffer holds.
    #[must_use]
    pub(crate) fn new(
        descriptor: Arc<OwnedFd>,
        answer_buffers: Arc<AnswerBuffers>,
        notices: Notices,
    ) -> Self {
        let mut buffer = AlignedBuffer::zeroed(PAYLOAD_START + answer_buffers.length_bytes);
        // Memory must be there before the kernel copies a request to it: where a process is
        // killed while the kernel would have to make a page first, the kernel answers the request
        // with EIO instead of keeping it for the next process.
        for page in buffer.chunks_mut(PAGE_BYTES) {
            std::hint::black_box(&mut page[0]).clone_from(&1);
        }
        Self {
            descriptor,
            buffer,
            answer_buffers,
            notices,
            borrowed: None,
            request_length_bytes: 0,
            unique: 0,
        }
    }

    /// What it reads requests from.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn give_back(&mut self) {
        if let Some(buffer) = self.borrowed.take() {
            self.answer_buffers.give_back(buffer);
        }
    }

    /// The request after its header.
    fn body(&self) -> &[u8] {
        let start = REQUEST_START + size_of::<InHeader>();
        let end = REQUEST_START + self.request_length_bytes;
        &self.buffer[start..end]
    }
}

impl Transport for DeviceTransport {
    fn receive(&mut self) -> Result<Option<InHeader>, Errno> {
        // Left over where serving panicked.
        self.give_back();
        loop {
            let length_bytes =
                match read(self.descriptor.as_fd(), &mut self.buffer[REQUEST_START..]) {
                    Ok(length_bytes) => length_bytes,
                    // The request was withdrawn before it could be read, or a signal came.
                    Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                    Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                    Err(error) => return Err(error),
                };
            let (header, _) = InHeader::read_from_prefix(
                &self.buffer[REQUEST_START..REQUEST_START + length_bytes],
            )
            .map_err(|_| Errno::PROTO)?;
            if usize::try_from(header.length_bytes) != Ok(length_bytes) {
                return Err(Errno::PROTO);
            }
            self.request_length_bytes = length_bytes;
            self.unique = header.unique;
            return Ok(Some(header));
        }
    }

    fn arguments(&self, length_bytes: usize) -> Option<&[u8]> {
        self.body().get(..length_bytes)
    }

    fn tail(&self, after_bytes: usize) -> &[u8] {
        self.body().get(after_bytes..).unwrap_or_default()
    }

    fn payload(&mut self, length_bytes: usize) -> Option<&mut [u8]> {
        if length_bytes <= SHORT_ANSWER_BYTES {
            return self.buffer[PAYLOAD_START..].get_mut(..length_bytes);
        }
        let buffers = &self.answer_buffers;
        let borrowed = self.borrowed.get_or_insert_with(|| buffers.take());
        borrowed.get_mut(..length_bytes)
    }

    fn data(&self, after_bytes: usize, length_bytes: usize) -> Option<WriteSource<'_>> {
        let start = REQUEST_START + size_of::<InHeader>() + after_bytes;
        let end = start.checked_add(length_bytes)?;
        let fits = end <= REQUEST_START + self.request_length_bytes;
        fits.then(|| WriteSource::Part(self.buffer.share(start..end)))
    }

    fn payload_target(&mut self, length_bytes: usize) -> Option<ReadTarget<'_>> {
        let (buffer, start) = if length_bytes <= SHORT_ANSWER_BYTES {
            (&mut self.buffer, PAYLOAD_START)
        } else {
            let buffers = &self.answer_buffers;
            (self.borrowed.get_or_insert_with(|| buffers.take()), 0)
        };
        let end = start.checked_add(length_bytes)?;
        (end <= buffer.len()).then_some(ReadTarget::Buffer(buffer, start..end))
    }

    fn answer(&mut self, error: i32, data: &[u8]) -> Result<(), Errno> {
        send(&self.descriptor, self.unique, error, &[data])
    }

    fn answer_after(&mut self, dropped: Dropped, data: &[u8]) -> Result<(), Errno> {
        let answer = Answer {
            descriptor: Arc::clone(&self.descriptor),
            unique: self.unique,
            data: data.to_vec(),
        };
        self.notices.answer_after(dropped, answer)
    }

    fn drop_pages(&mut self, dropped: Dropped) {
        self.notices.drop_pages(dropped);
    }

    fn answer_payload(&mut self, length_bytes: usize) -> Result<(), Errno> {
        let data = match &self.borrowed {
            Some(borrowed) => &borrowed[..length_bytes],
            None => &self.buffer[PAYLOAD_START..PAYLOAD_START + length_bytes],
        };
        let sent = send(&self.descriptor, self.unique, 0, &[data]);
        self.give_back();
        sent
    }

    fn forget_soon(&self, stale: Vec<Stale>) {
        stale::forget_soon(&self.descriptor, stale);
    }

    fn forget(&self, stale: &Stale) -> Result<(), Errno> {
        stale.forget(&self.descriptor)
    }
}

/// Sends one message: an answer, or with `unique` zero a notice that nobody asked for, its code
/// in `error`.
///
/// # Errors
/// What the kernel said of it. An answer to a request that has been withdrawn is no error.
pub(crate) fn send(
    descriptor: &OwnedFd,
    unique: u64,
    error: i32,
    parts: &[&[u8]],
) -> Result<(), Errno> {
    let data_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let header = OutHeader {
        length_bytes: u32::try_from(size_of::<OutHeader>() + data_bytes)
            .expect("an answer is far shorter than 4 GiB"),
        error,
        unique,
    };
    let empty = IoSlice::new(&[]);
    let mut slices = [IoSlice::new(header.as_bytes()), empty, empty];
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let used = 1 + parts.len();
    loop {
        return match writev(descriptor, &slices[..used]) {
            Err(Errno::INTR) => continue,
            Err(Errno::NOENT) if unique != 0 => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        };
    }
}
