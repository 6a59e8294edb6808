//! Recording what a running program writes to its disks, and rebuilding the disks as a power
//! cut at any moment of the recording could have left them.
//!
//! # The log
//! Bytes are little-endian. The file begins with 16 bytes: `SPNDLREC`, the version (u32, now 1)
//! and four zeros. Records follow, each a head of 48 bytes and then `length` bytes of data:
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 1 | kind: 1 disk, 2 write, 3 durable write, 4 flush, 5 done, 6 failed |
//! | 1 | 1 | zero |
//! | 2 | 2 | slot |
//! | 4 | 4 | zero |
//! | 8 | 8 | length of the data: what is written, or a disk's path |
//! | 16 | 8 | number of the request, from 1; `done` and `failed` name that of their request |
//! | 24 | 8 | offset of the write on the disk; a disk's size in bytes |
//! | 32 | 8 | CLOCK_MONOTONIC in nanoseconds |
//! | 40 | 4 | CRC-32C of bytes 0 to 39 and the data |
//! | 44 | 4 | zero |
//!
//! # What the order says
//! A request's own record comes before the disk sees it, its `done` after the disk has answered
//! and before the caller knows. So at a cut between two records: what has `done` before the cut
//! was possibly answered to somebody, what has none was under way and nobody built on it. Times
//! never decrease along the log; a client's own log of the same clock can be laid beside it.
//!
//! A log that ends inside a record (the recording process was killed) is good up to there.

mod log;
#[cfg(any(test, feature = "simulated"))]
mod reading;
#[cfg(any(test, feature = "simulated"))]
mod replay;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

use crate::Disks;
use crate::request::{DiskSlot, Operation, Request};

use log::RecordHead;
#[cfg(any(test, feature = "simulated"))]
pub use log::RecordKind;
#[cfg(any(test, feature = "simulated"))]
pub use reading::{Record, RecordLog, RecordedDisk};
#[cfg(any(test, feature = "simulated"))]
pub use replay::{ReplayError, ReplaySummary, Replayer};

/// What is gathered before it goes to the log file.
const LOG_BUFFER_BYTES: usize = 1 << 20;

/// Any disks, with a log of every write and flush. Reads pass through.
#[derive(Debug)]
pub struct RecordedDisks<D> {
    inner: D,
    log: Mutex<LogWriter>,
}

#[derive(Debug)]
struct LogWriter {
    file: BufWriter<File>,
    /// The first error; from then on the log is left as it is, and the disks go on.
    failure: Option<io::Error>,
    next_number: u64,
    /// Slots whose disk record is in the log.
    known: Vec<DiskSlot>,
}

impl<D: Disks> RecordedDisks<D> {
    /// Begins a log in a new file at `path`.
    ///
    /// # Errors
    /// Where the file is there already or cannot be made.
    pub fn new(inner: D, path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let mut file = BufWriter::with_capacity(LOG_BUFFER_BYTES, file);
        file.write_all(&log::file_head())?;
        Ok(Self {
            inner,
            log: Mutex::new(LogWriter {
                file,
                failure: None,
                next_number: 1,
                known: Vec::new(),
            }),
        })
    }

    /// The disks that are recorded.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Brings all that is recorded so far into the log file, so that it outlives the process.
    ///
    /// # Errors
    /// The first error that the log met; what came after it is not in the log.
    pub fn flush_log(&self) -> io::Result<()> {
        let mut log = self.log.lock();
        if let Some(error) = &log.failure {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        log.file.flush()
    }
}

impl LogWriter {
    fn append(&mut self, head: RecordHead, data: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let written = self
            .file
            .write_all(&head.to_bytes(data))
            .and_then(|()| self.file.write_all(data));
        if let Err(error) = written {
            tracing::warn!(%error, "the recording ends here: its log cannot be written");
            self.failure = Some(error);
        }
    }

    fn introduce(&mut self, slot: DiskSlot, disks: &impl Disks) {
        if self.known.contains(&slot) {
            return;
        }
        self.known.push(slot);
        let path = disks.path(slot);
        let head = RecordHead {
            kind: log::RecordKind::Disk,
            slot,
            number: 0,
            offset_bytes: disks.size_bytes(slot),
            time_ns: monotonic_ns(),
        };
        self.append(head, path.as_bytes());
    }
}

impl<D: Disks> Disks for RecordedDisks<D> {
    fn run(&self, batch: &mut [Request<'_>]) {
        let is_read = |request: &Request<'_>| request.work.operation() == Operation::Read;
        if batch.iter().all(is_read) {
            return self.inner.run(batch);
        }
        let mut log = self.log.lock();
        for request in batch.iter() {
            log.introduce(request.slot, &self.inner);
        }
        // Read under the lock, so that times go up along the log.
        let time_ns = monotonic_ns();
        let first_number = log.next_number;
        for request in batch.iter() {
            let kind = match request.work.operation() {
                Operation::Read => continue,
                Operation::Write => log::RecordKind::Write,
                Operation::WriteDurable => log::RecordKind::WriteDurable,
                Operation::Flush => log::RecordKind::Flush,
            };
            let data = request.work.written().unwrap_or_default();
            let head = RecordHead {
                kind,
                slot: request.slot,
                number: log.next_number,
                offset_bytes: request.offset_bytes,
                time_ns,
            };
            log.next_number += 1;
            log.append(head, data);
        }
        drop(log);
        self.inner.run(batch);
        let mut log = self.log.lock();
        let time_ns = monotonic_ns();
        let recorded = batch.iter().filter(|request| !is_read(request));
        for (number, request) in (first_number..).zip(recorded) {
            let kind = match request.result {
                Ok(()) => log::RecordKind::Done,
                Err(_) => log::RecordKind::Failed,
            };
            let head = RecordHead {
                kind,
                slot: request.slot,
                number,
                offset_bytes: 0,
                time_ns,
            };
            log.append(head, &[]);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner.size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.inner.measure(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.inner.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.inner.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.inner.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.inner.is_fenced(slot)
    }

    fn set_judge(&self, judge: std::sync::Weak<dyn crate::Judge>) {
        self.inner.set_judge(judge);
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
    let seconds = u64::try_from(now.tv_sec()).expect("the clock starts at zero");
    let nanoseconds = u64::try_from(now.tv_nsec()).expect("below one second");
    seconds * 1_000_000_000 + nanoseconds
}
