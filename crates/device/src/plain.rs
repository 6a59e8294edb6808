//! The engine for machines without io_uring: plain system calls, in parallel by a few threads.
//!
//! A batch is one shared list; the caller and the pool's threads take pieces from it until none
//! is left. The caller returns when every piece taken is done, so borrowed memory is never
//! touched after that. A system call cannot be taken back, so there is no deadline here: a disk
//! that hangs keeps its caller waiting for as long as the kernel does.
#![allow(
    unsafe_code,
    reason = "the pool's threads work on memory that the caller has borrowed"
)]

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustix::io::{Errno, ReadWriteFlags};

use crate::Disks;
use crate::buffer::AlignedBuffer;
use crate::counters::{DiskCounters, Outcome};
use crate::errno::{is_transient, kind_of};
use crate::open::OpenDisk;
use crate::request::{DeviceErrorKind, DiskSlot, Request, Work};
use crate::table::{DiskTable, TableEntry};

/// Enough to keep eight disks busy; more would help only machines that have io_uring.
const POOL_THREADS: usize = 8;

/// The plain engine. Its threads end with it.
#[derive(Debug)]
pub struct PlainDisks {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    table: DiskTable,
    offers: Mutex<Offers>,
    offered: Condvar,
}

#[derive(Debug, Default)]
struct Offers {
    batches: VecDeque<Arc<SharedBatch>>,
    ended: bool,
}

/// A batch whose pieces several threads take from.
#[derive(Debug)]
struct SharedBatch {
    /// The caller's slice. Only who has taken an index below `length` may touch that element,
    /// and the caller waits until all taken ones are done.
    first: *mut Request<'static>,
    length: usize,
    next: AtomicUsize,
    done: Mutex<usize>,
    all_done: Condvar,
}

// SAFETY: the pointer is used only for elements taken from `next`, each by one thread, and only
// while the caller, whose memory it is, waits in `run`.
unsafe impl Send for SharedBatch {}
// SAFETY: as above; everything else in it is made for sharing.
unsafe impl Sync for SharedBatch {}

impl SharedBatch {
    /// Serves pieces until none is left to take.
    fn serve(&self, table: &DiskTable) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.length {
                return;
            }
            // Without the answer the caller would wait for ever, or go on with memory in use.
            let guard = crate::guard::AbortOnUnwind;
            // SAFETY: `index` was taken by this thread alone, and the caller keeps the slice
            // alive and untouched until `done` reaches `length`, which this piece still lacks.
            let request = unsafe { &mut *self.first.add(index) };
            serve(table.entry(request.slot), request);
            std::mem::forget(guard);
            let mut done = self.done.lock();
            *done += 1;
            if *done == self.length {
                self.all_done.notify_one();
            }
        }
    }
}

impl Default for PlainDisks {
    fn default() -> Self {
        Self::new()
    }
}

impl PlainDisks {
    /// An engine without disks yet.
    ///
    /// # Panics
    /// Where the system gives no threads.
    #[must_use]
    pub fn new() -> Self {
        let shared = Arc::new(Shared {
            table: DiskTable::new(),
            offers: Mutex::default(),
            offered: Condvar::new(),
        });
        let threads = (0..POOL_THREADS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name("disk-io".to_owned())
                    .spawn(move || shared.work())
                    .expect("a system that cannot give eight threads can serve no disks")
            })
            .collect();
        Self { shared, threads }
    }

    /// Takes over an open disk; requests name it by the slot from now on.
    pub fn attach(&self, disk: OpenDisk) -> DiskSlot {
        self.shared.table.attach(disk)
    }

    /// Lets go of a disk; requests to its slot fail from now on.
    ///
    /// # Errors
    /// Where descriptors have run out; the disk is held on then.
    pub fn release(&self, slot: DiskSlot) -> std::io::Result<()> {
        self.shared.table.entry(slot).disk.release()
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn counters(&self, slot: DiskSlot) -> DiskCounters {
        self.shared.table.entry(slot).counters.snapshot()
    }
}

impl Shared {
    fn work(&self) {
        let mut offers = self.offers.lock();
        loop {
            if let Some(batch) = offers.batches.pop_front() {
                drop(offers);
                batch.serve(&self.table);
                offers = self.offers.lock();
            } else if offers.ended {
                return;
            } else {
                self.offered.wait(&mut offers);
            }
        }
    }
}

impl Drop for PlainDisks {
    fn drop(&mut self) {
        self.shared.offers.lock().ended = true;
        self.shared.offered.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has aborted the process already.
            let _ = thread.join();
        }
    }
}

impl Disks for PlainDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        if let [request] = batch {
            return serve(self.shared.table.entry(request.slot), request);
        }
        if batch.is_empty() {
            return;
        }
        let shared = Arc::new(SharedBatch {
            first: batch.as_mut_ptr().cast(),
            length: batch.len(),
            next: AtomicUsize::new(0),
            done: Mutex::new(0),
            all_done: Condvar::new(),
        });
        let helpers = (batch.len() - 1).min(POOL_THREADS);
        let mut offers = self.shared.offers.lock();
        offers
            .batches
            .extend(std::iter::repeat_n(&shared, helpers).cloned());
        drop(offers);
        for _ in 0..helpers {
            self.shared.offered.notify_one();
        }
        shared.serve(&self.shared.table);
        let mut done = shared.done.lock();
        while *done < shared.length {
            shared.all_done.wait(&mut done);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.shared.table.entry(slot).disk.size_bytes()
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.shared.table.entry(slot).disk.measure()
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.shared.table.entry(slot).disk.path.clone()
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.shared.table.entry(slot).counters.in_flight()
    }
}

/// Serves one request with plain system calls, and counts it.
pub(crate) fn serve(entry: &TableEntry, request: &mut Request<'_>) {
    entry.counters.begin();
    let started = Instant::now();
    let bytes = request.length_bytes() as u64;
    let outcome = match transfer(entry, request) {
        Ok(outcome) => {
            request.result = Ok(());
            outcome
        }
        Err((kind, errno)) => {
            request.fail(&entry.disk.path, kind, errno);
            Outcome::Failed
        }
    };
    entry.counters.end(outcome, bytes, started.elapsed().into());
}

type Failure = (DeviceErrorKind, Option<i32>);

fn transfer(entry: &TableEntry, request: &mut Request<'_>) -> Result<Outcome, Failure> {
    if !request.is_within(entry.disk.size_bytes()) {
        return Err((DeviceErrorKind::Misaligned, None));
    }
    let disk = &entry.disk;
    let offset_bytes = request.offset_bytes;
    match &mut request.work {
        Work::Flush => {
            retried(|| rustix::fs::fdatasync(&disk.file))?;
            Ok(Outcome::Flushed)
        }
        Work::Read(memory) if is_aligned(memory, disk) => {
            read(disk, offset_bytes, memory)?;
            Ok(Outcome::Read)
        }
        Work::Read(memory) => {
            let mut bounce = AlignedBuffer::zeroed(memory.len());
            read(disk, offset_bytes, &mut bounce)?;
            memory.copy_from_slice(&bounce);
            Ok(Outcome::Read)
        }
        Work::Write(memory) => {
            write(disk, offset_bytes, memory, ReadWriteFlags::empty())?;
            Ok(Outcome::Written)
        }
        Work::WriteDurable(memory) => {
            write(disk, offset_bytes, memory, ReadWriteFlags::DSYNC)?;
            Ok(Outcome::Written)
        }
    }
}

fn is_aligned(memory: &[u8], disk: &OpenDisk) -> bool {
    memory
        .as_ptr()
        .addr()
        .is_multiple_of(disk.memory_alignment_bytes)
}

fn read(disk: &OpenDisk, offset_bytes: u64, memory: &mut [u8]) -> Result<(), Failure> {
    let mut done = 0;
    while done < memory.len() {
        let at = offset_bytes + done as u64;
        let target = &mut memory[done..];
        let length = retried(|| disk.file.read_at(target, at).map_err(errno_of))?;
        done += length;
        // A file that ends inside a block, or before it, is shorter than when it was opened.
        if done < memory.len() && (length == 0 || !done.is_multiple_of(512)) {
            return Err((DeviceErrorKind::Gone, None));
        }
    }
    Ok(())
}

fn write(
    disk: &OpenDisk,
    offset_bytes: u64,
    memory: &[u8],
    flags: ReadWriteFlags,
) -> Result<(), Failure> {
    let bounced = (!is_aligned(memory, disk)).then(|| {
        let mut bounce = AlignedBuffer::zeroed(memory.len());
        bounce.copy_from_slice(memory);
        bounce
    });
    let memory = bounced.as_deref().unwrap_or(memory);
    let mut done = 0;
    while done < memory.len() {
        let piece = [std::io::IoSlice::new(&memory[done..])];
        let at = offset_bytes + done as u64;
        let length = retried(|| rustix::io::pwritev2(&disk.file, &piece, at, flags))?;
        if length == 0 {
            return Err((DeviceErrorKind::NoSpace, None));
        }
        done += length;
    }
    Ok(())
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Repeats a call that a signal cut off.
fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Failure> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(errno) if is_transient(errno.raw_os_error()) => {}
            Err(errno) => {
                let number = errno.raw_os_error();
                return Err((kind_of(number), Some(number)));
            }
        }
    }
}
