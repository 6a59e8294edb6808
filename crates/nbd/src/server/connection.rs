//! One client: its handshake, then several requests at once.
//!
//! Workers take turns: who holds the reading side takes one request with its payload off the socket,
//! hands the reading side on, does what was asked, and writes the reply under the lock of the writing
//! side. So a request stays with one thread, replies come in the order in which they are done, and
//! there is no queue that could grow. A worker is added when a request is taken and nobody waits to
//! take the next one, up to [`WORKERS_MOST`].
//!
//! **Memory.** A worker keeps a buffer for requests of up to [`KEPT_BYTES`]. Larger ones take their
//! memory from an allowance of the connection before they are taken off the socket, and give it back
//! when they are answered.
//!
//! **Ends.** The client says so, vanishes, or breaks the protocol: nobody takes a request after that,
//! and what is under way is finished and answered. The last worker forgets the connection.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spindle_device::{AlignedBuffer, ReadTarget, WriteSource};

use super::Shared;
use crate::negotiation::{
    Agreed, Negotiation, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OptionHeader, Step, greeting,
};
use crate::reply;
use crate::request::{Command, REQUEST_BYTES, Request, Terms};
use crate::volume::{Volume, VolumeError};
use crate::wire::{ErrorCode, PAYLOAD_BYTES_MAX};

/// Requests of one client that are under way at once.
pub(super) const WORKERS_MOST: usize = 16;
/// The memory that each worker keeps.
const KEPT_BYTES: usize = 1 << 20;
/// The memory of larger requests of one connection: one of the largest, or several.
const ALLOWANCE_BYTES: usize = PAYLOAD_BYTES_MAX as usize;
/// How long a client may take until it reads and writes.
const HANDSHAKE_MOST: Duration = Duration::from_secs(30);
/// Options of one client.
const OPTIONS_MOST: usize = 256;
/// What is passed over of an option or a payload that is too long, at once.
const PASSED_BYTES: usize = 64 << 10;
/// The longest data of an option that are passed over; more is no mistake any more.
const OPTION_PASSED_BYTES_MAX: u32 = 1 << 20;

/// What only the worker touches that takes the next request.
#[derive(Debug, Default)]
struct Reading {
    has_ended: bool,
    agreed: Agreed,
}

/// A client.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    stream: UnixStream,
    reading: Mutex<Reading>,
    writing: Mutex<()>,
    workers_count: AtomicUsize,
    /// Workers that take the next request or wait for their turn.
    idle_count: AtomicUsize,
    allowance_bytes: Mutex<usize>,
    returned: Condvar,
    /// What the client has sent and nobody has taken yet is not done any more: the kernel gives it to
    /// who reads, also after the connection was shut down.
    is_cut: AtomicBool,
}

/// A worker that lives; the last one to go takes the connection along.
struct Living(Arc<Connection>);

impl Drop for Living {
    fn drop(&mut self) {
        if thread::panicking() {
            // Its request stays without an answer: the client is to see that.
            self.0.cut();
        }
        if self.0.workers_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.cut();
            self.0.shared.forget(&self.0);
        }
    }
}

/// Memory of a request, taken from the connection's allowance.
struct Taken<'a>(&'a Connection, usize);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.allowance_bytes.lock() += self.1;
        self.0.returned.notify_one();
    }
}

/// A request with what goes with it.
struct Work<'a> {
    request: Request,
    agreed: Agreed,
    /// What it is answered with at once.
    refused: Option<VolumeError>,
    /// The memory of a larger one.
    large: Option<(AlignedBuffer, Taken<'a>)>,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, stream: UnixStream) -> Self {
        Self {
            shared,
            stream,
            reading: Mutex::default(),
            writing: Mutex::new(()),
            workers_count: AtomicUsize::new(0),
            idle_count: AtomicUsize::new(0),
            allowance_bytes: Mutex::new(ALLOWANCE_BYTES),
            returned: Condvar::new(),
            is_cut: AtomicBool::new(false),
        }
    }

    /// Begins with the handshake.
    ///
    /// # Errors
    /// Where the machine gives no thread; the connection is forgotten then.
    pub(super) fn start(connection: Arc<Self>) -> io::Result<()> {
        connection.workers_count.store(1, Ordering::Release);
        // Moved into the thread, or dropped with it where there is none.
        let living = Living(connection);
        thread::Builder::new()
            .name("nbd".to_owned())
            .spawn(move || living.0.begin())?;
        Ok(())
    }

    /// No further request is taken.
    pub(super) fn take_no_more(&self) {
        self.is_cut.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// The client can neither send nor receive any more.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn volume(&self) -> &dyn Volume {
        &*self.shared.volume
    }

    /// The first worker: the handshake, then as any other.
    fn begin(self: &Arc<Self>) {
        let limits = |most| {
            self.stream.set_read_timeout(most)?;
            self.stream.set_write_timeout(most)
        };
        let greeted = limits(Some(HANDSHAKE_MOST)).and_then(|()| self.negotiate());
        let agreed = match greeted.and_then(|agreed| limits(None).map(|()| agreed)) {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(volume = %self.shared.name, %error, "a handshake failed");
                return;
            }
        };
        self.reading.lock().agreed = agreed;
        self.work();
    }

    /// What the client may do; `None` where it wants no more.
    fn negotiate(&self) -> io::Result<Option<Agreed>> {
        let begun = Instant::now();
        let mut stream = &self.stream;
        stream.write_all(&greeting())?;
        let mut flags = [0; 4];
        stream.read_exact(&mut flags)?;
        let flags = u32::from_be_bytes(flags);
        let mut negotiation = Negotiation::begin(self.shared.offer(), flags).map_err(broken)?;
        for _ in 0..OPTIONS_MOST {
            if begun.elapsed() >= HANDSHAKE_MOST {
                break;
            }
            let mut header = [0; OPTION_HEADER_BYTES];
            stream.read_exact(&mut header)?;
            let header = OptionHeader::parse(&header).map_err(broken)?;
            let mut out = Vec::new();
            let step = if header.length_bytes > OPTION_BYTES_MAX {
                if header.length_bytes > OPTION_PASSED_BYTES_MAX {
                    return Err(broken("an option is too long"));
                }
                self.pass_over(header.length_bytes)?;
                negotiation.answer_too_big(header.option, &mut out)
            } else {
                let mut data = vec![0; header.length_bytes as usize];
                stream.read_exact(&mut data)?;
                negotiation.answer(header.option, &data, &mut out)
            };
            stream.write_all(&out)?;
            match step {
                Step::Next => {}
                Step::Serve(agreed) => return Ok(Some(agreed)),
                Step::End => return Ok(None),
            }
        }
        Err(broken("a handshake without an end"))
    }

    fn work(self: &Arc<Self>) {
        let mut buffer: Option<AlignedBuffer> = None;
        while let Some(mut work) = self.take_one(&mut buffer) {
            // A client that was cut off has sent this again elsewhere, and more after it.
            if self.is_cut.load(Ordering::Acquire) {
                return;
            }
            let written = match work.refused.take() {
                Some(error) => self.tell_failed(&work, &error),
                None => self.serve(&mut work, &mut buffer),
            };
            if let Err(error) = written {
                tracing::debug!(volume = %self.shared.name, %error, "a reply was not taken");
                self.cut();
            }
        }
    }

    /// The next request with its payload, which is in the kept or the large buffer; `None` when
    /// there are no more.
    fn take_one(self: &Arc<Self>, kept: &mut Option<AlignedBuffer>) -> Option<Work<'_>> {
        self.idle_count.fetch_add(1, Ordering::AcqRel);
        let mut reading = self.reading.lock();
        let taken = if reading.has_ended || self.is_cut.load(Ordering::Acquire) {
            None
        } else {
            self.read_one(reading.agreed, kept).unwrap_or_else(|error| {
                tracing::debug!(volume = %self.shared.name, %error, "a connection ended");
                None
            })
        };
        reading.has_ended |= taken.is_none();
        let is_last = self.idle_count.fetch_sub(1, Ordering::AcqRel) == 1;
        drop(reading);
        if taken.is_some() && is_last {
            self.add_worker();
        }
        taken
    }

    fn add_worker(self: &Arc<Self>) {
        let room = |count| (count < WORKERS_MOST).then_some(count + 1);
        let order = Ordering::AcqRel;
        if (self.workers_count)
            .fetch_update(order, Ordering::Acquire, room)
            .is_err()
        {
            return;
        }
        let living = Living(self.clone());
        let started = thread::Builder::new()
            .name("nbd".to_owned())
            .spawn(move || living.0.work());
        if let Err(error) = started {
            // This worker goes on alone.
            tracing::warn!(volume = %self.shared.name, %error, "no further worker");
        }
    }

    /// The caller holds the reading side. `Ok(None)` where the client wants no more.
    fn read_one(
        &self,
        agreed: Agreed,
        kept: &mut Option<AlignedBuffer>,
    ) -> io::Result<Option<Work<'_>>> {
        let mut stream = &self.stream;
        let mut bytes = [0; REQUEST_BYTES];
        stream.read_exact(&mut bytes)?;
        let request = Request::parse(&bytes).map_err(broken)?;
        if request.is_disconnect() {
            return Ok(None);
        }
        let mut work = Work {
            request,
            agreed,
            refused: None,
            large: None,
        };
        if let Err(error) = request.judge(&self.terms(agreed)) {
            self.pass_over(request.payload_bytes())?;
            work.refused = Some(error);
            return Ok(Some(work));
        }
        if request.payload_bytes() == 0 && !request.is_read() {
            return Ok(Some(work));
        }
        let length = request.length_bytes as usize;
        let buffer = if length > KEPT_BYTES {
            let taken = self.take_memory(length);
            let (buffer, _) = (work.large).insert((AlignedBuffer::zeroed(length), taken));
            buffer
        } else {
            kept.get_or_insert_with(|| AlignedBuffer::zeroed(KEPT_BYTES))
        };
        if request.payload_bytes() > 0 {
            stream.read_exact(&mut buffer[..length])?;
        }
        Ok(Some(work))
    }

    fn take_memory(&self, length: usize) -> Taken<'_> {
        let mut left = self.allowance_bytes.lock();
        while *left < length {
            self.returned.wait(&mut left);
        }
        *left -= length;
        Taken(self, length)
    }

    fn terms(&self, agreed: Agreed) -> Terms {
        Terms {
            size_bytes: self.volume().size_bytes(),
            is_read_only: self.volume().is_read_only(),
            agreed,
        }
    }

    /// Takes bytes off the socket that nobody looks at.
    fn pass_over(&self, length_bytes: u32) -> io::Result<()> {
        let mut left = length_bytes as usize;
        let mut piece = vec![0; left.min(PASSED_BYTES)];
        while left > 0 {
            let length = left.min(PASSED_BYTES);
            (&self.stream).read_exact(&mut piece[..length])?;
            left -= length;
        }
        Ok(())
    }

    /// Does what was asked and answers it.
    fn serve(&self, work: &mut Work<'_>, kept: &mut Option<AlignedBuffer>) -> io::Result<()> {
        let (request, agreed) = (work.request, work.agreed);
        // Once more: the volume may have become smaller.
        let command = match request.judge(&self.terms(agreed)) {
            Ok(command) => command,
            Err(error) => return self.tell_failed(work, &error),
        };
        let length = request.length_bytes as usize;
        let buffer = match (&mut work.large, kept) {
            (Some((buffer, _)), _) | (None, Some(buffer)) => Some(buffer),
            (None, None) => None,
        };
        let done = match (command, buffer) {
            (Command::Read, Some(buffer)) => {
                match self.read(&request, ReadTarget::Buffer(buffer, 0..length)) {
                    Ok(()) => {
                        let head = reply::before_data(agreed, &request);
                        return self.send(&head, &buffer[..length]);
                    }
                    Err(error) => Err(error),
                }
            }
            (Command::Write { is_durable }, Some(buffer)) => {
                let data = WriteSource::Part(buffer.share(0..length));
                self.write(&request, data, is_durable)
            }
            (Command::Write { is_durable }, None) => self.finish(is_durable),
            (Command::Status { is_one_enough }, _) => match self.stretches(&request, is_one_enough)
            {
                Ok(bytes) => return self.send(&bytes, &[]),
                Err(error) => Err(error),
            },
            (other, _) => self.change(&request, other),
        };
        match done {
            Ok(()) => self.send(&reply::done(request.cookie), &[]),
            Err(error) => self.tell_failed(work, &error),
        }
    }

    fn read(&self, request: &Request, out: ReadTarget<'_>) -> Result<(), VolumeError> {
        if request.length_bytes == 0 {
            return Ok(());
        }
        self.volume().read_at(request.offset_bytes, out)
    }

    fn write(
        &self,
        request: &Request,
        data: WriteSource<'_>,
        is_durable: bool,
    ) -> Result<(), VolumeError> {
        if request.length_bytes > 0 {
            self.volume().write_at(request.offset_bytes, data)?;
        }
        self.finish(is_durable)
    }

    fn finish(&self, is_durable: bool) -> Result<(), VolumeError> {
        if is_durable {
            self.volume().flush()?;
        }
        Ok(())
    }

    /// What carries no bytes.
    fn change(&self, request: &Request, command: Command) -> Result<(), VolumeError> {
        let (offset_bytes, length_bytes) = (request.offset_bytes, u64::from(request.length_bytes));
        let is_empty = length_bytes == 0;
        match command {
            Command::Flush => self.volume().flush(),
            Command::Trim { is_durable } => {
                if !is_empty {
                    self.volume().trim(offset_bytes, length_bytes)?;
                }
                self.finish(is_durable)
            }
            Command::Zero {
                may_be_hole,
                is_durable,
            } => {
                if !is_empty {
                    let volume = self.volume();
                    volume.zero(offset_bytes, length_bytes, may_be_hole)?;
                }
                self.finish(is_durable)
            }
            Command::Read | Command::Write { .. } | Command::Status { .. } => {
                let told = "a request without its memory";
                Err(VolumeError::new(ErrorCode::Io, told))
            }
        }
    }

    fn stretches(&self, request: &Request, is_one_enough: bool) -> Result<Vec<u8>, VolumeError> {
        let most = if is_one_enough {
            1
        } else {
            reply::STRETCHES_MOST
        };
        let length_bytes = request.length_bytes;
        let found =
            (self.volume()).stretches(request.offset_bytes, u64::from(length_bytes), most)?;
        Ok(reply::status(request.cookie, length_bytes, &found, most))
    }

    fn tell_failed(&self, work: &Work<'_>, error: &VolumeError) -> io::Result<()> {
        tracing::debug!(volume = %self.shared.name, request = ?work.request, ?error, "refused");
        self.send(&reply::failed(work.agreed, work.request.cookie, error), &[])
    }

    /// Sends a reply whole.
    fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock();
        let mut parts = [IoSlice::new(head), IoSlice::new(data)];
        let mut parts = &mut parts[..];
        // Drops empty ones, so that nothing written means that nothing is taken any more.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match (&self.stream).write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
