//! The classic carrier: `read` and `writev` on `/dev/fuse`.
//!
//! Requests are read to 80 bytes before a page boundary. The header has 40 bytes and the
//! structure of a `WRITE` has 40, so that its data begins on the boundary and goes to the disks
//! by direct I/O as it lies. The answer of a `READ` reuses the same pages: such a request has
//! nothing beyond the 80 bytes.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, read, writev};
use spindle_device::AlignedBuffer;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, WriteIn};
use crate::transport::Transport;

/// Where the data of a `WRITE` begins in the buffer, and the data of an answer.
const PAYLOAD_START: usize = 4096;
/// Where a request begins in the buffer.
const REQUEST_START: usize = PAYLOAD_START - size_of::<InHeader>() - size_of::<WriteIn>();

/// A worker's descriptor of the mount and its one buffer.
#[derive(Debug)]
pub struct DeviceTransport {
    descriptor: Arc<OwnedFd>,
    buffer: AlignedBuffer,
    request_length_bytes: usize,
    unique: u64,
}

impl DeviceTransport {
    /// A transport over `descriptor` for data of up to `max_data_bytes` per request.
    #[must_use]
    pub fn new(descriptor: Arc<OwnedFd>, max_data_bytes: usize) -> Self {
        Self {
            descriptor,
            buffer: AlignedBuffer::zeroed(PAYLOAD_START + max_data_bytes),
            request_length_bytes: 0,
            unique: 0,
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

    fn payload(&mut self) -> &mut [u8] {
        &mut self.buffer[PAYLOAD_START..]
    }

    fn answer(&mut self, error: i32, data: &[u8]) -> Result<(), Errno> {
        send(&self.descriptor, self.unique, error, &[data])
    }

    fn answer_payload(&mut self, length_bytes: usize) -> Result<(), Errno> {
        let data = &self.buffer[PAYLOAD_START..PAYLOAD_START + length_bytes];
        send(&self.descriptor, self.unique, 0, &[data])
    }

    fn notify(&self, code: i32, data: &[u8]) -> Result<(), Errno> {
        send(&self.descriptor, 0, code, &[data])
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
