//! The engine for machines without io_uring: plain system calls, in parallel by a few threads.
//!
//! A batch is one shared list; the pool's threads take pieces from it until none is left, and so
//! does a caller who is patient. A system call cannot be taken back: where a disk does not answer
//! in time, the caller goes on, and the thread stays behind with memory of its own until the disk
//! answers; another takes its place in the pool.
//!
//! A disk's time counts from when a thread takes its piece: while all threads wait for another disk,
//! nobody has asked this one anything. So whoever waits for a thread for that long gets one more.
#![allow(
    unsafe_code,
    reason = "the pool's threads work on memory that the caller has handed over or lent"
)]

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::{Errno, ReadWriteFlags};

use crate::bounce::Bounce;
use crate::buffer::Memory;
use crate::counters::{DiskCounters, Outcome};
use crate::errno::{Again, MEMORY_PATIENCE, MEMORY_PAUSE, asks_again, kind_of};
use crate::open::{OpenDisk, OpenError};
use crate::request::{DeviceErrorKind, DiskSlot, Operation, Request, Work, failures_of};
use crate::rest_of_batch::RestOfBatch;
use crate::table::{DiskTable, TableEntry};
use crate::uring::DEADLINE_DEFAULT;
use crate::{Disks, Judge};

/// Enough to keep eight disks busy; more would help only machines that have io_uring.
const POOL_THREADS: usize = 8;

/// How often a long wait is looked at: whether its time is up, or another thread has given the
/// disk up meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The plain engine. Its threads end with it, but for those that wait for a disk.
#[derive(Debug)]
pub struct PlainDisks {
    shared: Arc<Shared>,
    deadline: Duration,
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
    threads: Vec<std::thread::JoinHandle<()>>,
    ended: bool,
}

/// A batch whose pieces several threads take from.
#[derive(Debug)]
struct SharedBatch {
    jobs: Box<[Job]>,
    next: AtomicUsize,
    /// How many have been answered.
    answers_count: Mutex<usize>,
    answered: Condvar,
}

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// One request, for whichever thread takes it.
#[derive(Debug)]
struct Job {
    slot: DiskSlot,
    offset_bytes: u64,
    operation: Operation,
    memory: *mut u8,
    length_bytes: usize,
    /// What keeps the memory alive where its caller does not.
    keeper: Option<Arc<Memory>>,
    state: AtomicU8,
    /// When a thread took it: from then on its disk has been asked.
    taken_at: OnceLock<Instant>,
    answer: OnceLock<Result<(), Failure>>,
}

// SAFETY: the memory is used by the one thread that has taken the job, and it lives until then: by
// `keeper`, or by a patient caller, who waits in `run`.
unsafe impl Send for Job {}
// SAFETY: as above; everything else in it is made for sharing.
unsafe impl Sync for Job {}

impl SharedBatch {
    /// Serves pieces until none is left to take.
    fn serve(&self, table: &DiskTable) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = self.jobs.get(index) else {
                return;
            };
            let taken =
                job.state
                    .compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire);
            if taken.is_err() {
                continue;
            }
            let _ = job.taken_at.set(Instant::now());
            // Without the answer the caller would wait for ever, or go on with memory in use.
            let guard = crate::guard::AbortOnUnwind;
            let entry = table.entry(job.slot);
            let answer = job.run(&entry.disk).map_err(|failure| {
                // The slot of a disk that was given up leads nowhere.
                let late = (DeviceErrorKind::TimedOut, None);
                if entry.is_fenced() { late } else { failure }
            });
            if let Err((kind, _)) = &answer {
                table.tell_if_gone(job.slot, *kind);
            }
            assert!(job.answer.set(answer).is_ok(), "a job is taken once");
            std::mem::forget(guard);
            *self.answers_count.lock() += 1;
            self.answered.notify_all();
        }
    }
}

impl Default for PlainDisks {
    fn default() -> Self {
        Self::new()
    }
}

impl PlainDisks {
    /// An engine without disks yet, which gives a disk up after [`DEADLINE_DEFAULT`] without an
    /// answer.
    ///
    /// # Panics
    /// Where the system gives no threads.
    #[must_use]
    pub fn new() -> Self {
        Self::with_deadline(DEADLINE_DEFAULT)
    }

    /// An engine that gives a disk up after `deadline` without an answer.
    ///
    /// # Panics
    /// Where the system gives no threads.
    #[must_use]
    pub fn with_deadline(deadline: Duration) -> Self {
        let shared = Arc::new(Shared {
            table: DiskTable::new(),
            offers: Mutex::default(),
            offered: Condvar::new(),
        });
        for _ in 0..POOL_THREADS {
            Shared::add_thread(&shared)
                .expect("a system that cannot give eight threads can serve no disks");
        }
        Self { shared, deadline }
    }

    /// Takes over an open disk; requests name it by the slot from now on.
    pub fn attach(&self, disk: OpenDisk) -> DiskSlot {
        self.shared.table.attach(disk)
    }

    /// As `attach`, and an error where the engine has had all the disks it can have.
    ///
    /// # Errors
    /// [`OpenErrorKind::NoSlot`](crate::OpenErrorKind::NoSlot).
    pub fn try_attach(&self, disk: OpenDisk) -> Result<DiskSlot, OpenError> {
        self.shared.table.try_attach(disk)
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

    /// As [`Disks::run`], for a part of a batch: the rest is looked at meanwhile.
    pub(crate) fn run_beside(&self, batch: &mut [Request<'_>], rest: &mut RestOfBatch<'_>) {
        let started = Instant::now();
        let table = &self.shared.table;
        let mut bounces = Vec::with_capacity(batch.len());
        let mut jobs = Vec::with_capacity(batch.len());
        for request in batch.iter_mut() {
            let entry = table.entry(request.slot);
            entry.counters.begin();
            request.result = Ok(());
            let (job, bounce) = Job::of(entry, request);
            jobs.push(job);
            bounces.push(bounce);
        }
        let offer = SharedBatch {
            jobs: jobs.into(),
            next: AtomicUsize::new(0),
            answers_count: Mutex::new(0),
            answered: Condvar::new(),
        };
        // Whoever is patient has lent memory that a panic must not free.
        let guard = crate::guard::AbortOnUnwind;
        let offer = self.run_jobs(batch, &bounces, offer, rest);
        std::mem::forget(guard);
        for ((request, job), bounce) in batch.iter_mut().zip(&offer.jobs).zip(bounces) {
            let entry = table.entry(request.slot);
            if request.result.is_ok() {
                match job.answer.get() {
                    Some(Ok(())) => bring(request, bounce.as_ref()),
                    Some(Err(_)) | None => {
                        unreachable!(
                            "one that failed, or has no answer, has a request that says so"
                        )
                    }
                }
            }
            count(entry, request, started);
        }
    }

    /// Runs the jobs of a batch by the pool and, where all are patient, by the caller too; returns
    /// when each has its answer or was given up, which its request then says.
    fn run_jobs(
        &self,
        batch: &mut [Request<'_>],
        bounces: &[Option<Bounce>],
        offer: SharedBatch,
        rest: &mut RestOfBatch<'_>,
    ) -> Arc<SharedBatch> {
        let shared = &self.shared;
        let offer = Arc::new(offer);
        // Whoever serves a piece hears of no other one's failure meanwhile.
        let helps = rest.is_nothing()
            && (batch.iter()).all(|request| request.is_patient && request.listener.is_none());
        let helpers = (batch.len() - usize::from(helps)).min(POOL_THREADS);
        let copies = std::iter::repeat_n(&offer, helpers).cloned();
        shared.offers.lock().batches.extend(copies);
        for _ in 0..helpers {
            shared.offered.notify_one();
        }
        if helps {
            offer.serve(&shared.table);
        }
        let mut helped_at = Instant::now();
        let interval = LOOK_INTERVAL.min(self.deadline);
        loop {
            self.take_failures(batch, &offer);
            rest.look_if_due();
            let mut answers = offer.answers_count.lock();
            let has_failed = |(request, job): (&Request<'_>, &Job)| {
                request.result.is_ok() && matches!(job.answer.get(), Some(Err(_)))
            };
            if batch.iter().zip(&offer.jobs).any(has_failed) {
                continue;
            }
            let is_open = |(request, job): (&Request<'_>, &Job)| {
                request.result.is_ok() && job.answer.get().is_none()
            };
            if !batch.iter().zip(&offer.jobs).any(is_open) {
                drop(answers);
                return offer;
            }
            if offer.answered.wait_for(&mut answers, interval).timed_out() {
                drop(answers);
                self.give_up(batch, bounces, &offer, rest);
                let waits = |(request, job): (&Request<'_>, &Job)| {
                    request.result.is_ok() && job.state.load(Ordering::Acquire) == WAITING
                };
                if helped_at.elapsed() >= self.deadline && batch.iter().zip(&offer.jobs).any(waits)
                {
                    helped_at = Instant::now();
                    self.add_help(&offer);
                }
            }
        }
    }

    /// Brings the failures that were answered to their requests, and tells who listens.
    fn take_failures(&self, batch: &mut [Request<'_>], offer: &SharedBatch) {
        for (request, job) in batch.iter_mut().zip(&offer.jobs) {
            if request.result.is_ok()
                && let Some(Err((kind, errno))) = job.answer.get()
            {
                let path = &self.shared.table.entry(request.slot).disk.path;
                request.fail(path, *kind, *errno);
            }
            request.tell_failure();
        }
    }

    /// Goes on without the disks that have no time left.
    fn give_up(
        &self,
        batch: &mut [Request<'_>],
        bounces: &[Option<Bounce>],
        offer: &Arc<SharedBatch>,
        rest: &mut RestOfBatch<'_>,
    ) {
        let table = &self.shared.table;
        let mut failed = failures_of(batch);
        failed.extend(rest.failures());
        for (index, (request, job)) in batch.iter_mut().zip(&offer.jobs).enumerate() {
            let entry = table.entry(request.slot);
            let is_open = request.result.is_ok() && job.answer.get().is_none();
            let is_overdue =
                (job.taken_at.get()).is_some_and(|taken| taken.elapsed() >= self.deadline);
            let has_no_time = is_overdue || entry.is_fenced();
            let is_asked = is_open && has_no_time && !request.is_patient;
            if !is_asked || !table.may_give_up(request.slot, &failed) {
                continue;
            }
            request.fail(&entry.disk.path, DeviceErrorKind::TimedOut, None);
            request.tell_failure();
            if job.state.swap(GIVEN_UP, Ordering::AcqRel) == WAITING {
                continue;
            }
            let memory = match (&bounces[index], &mut request.work) {
                (_, Work::Flush) => None,
                (Some(bounce), _) => Some(bounce.keep()),
                (None, Work::ReadPart(part)) => Some(part.give_up()),
                (None, Work::WritePart(part)) => Some(part.keep()),
                (None, Work::Read(_) | Work::Write(_) | Work::WriteDurable(_)) => {
                    unreachable!("only patient requests are lent plain memory")
                }
            };
            entry.fence(memory);
            // The thread that has it is lost for now, and may have been the last that would have
            // gone on with the rest.
            self.add_help(offer);
        }
    }

    /// One more thread, and the batch offered once more.
    fn add_help(&self, offer: &Arc<SharedBatch>) {
        let shared = &self.shared;
        shared.offers.lock().batches.push_front(Arc::clone(offer));
        shared.offered.notify_one();
        if let Err(error) = Shared::add_thread(shared) {
            tracing::warn!(%error, "no thread for the one that waits for a disk");
        }
    }
}

impl Shared {
    fn add_thread(shared: &Arc<Self>) -> std::io::Result<()> {
        let worker = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("disk-io".to_owned())
            .spawn(move || worker.work())?;
        shared.offers.lock().threads.push(thread);
        Ok(())
    }

    fn work(&self) {
        let mut offers = self.offers.lock();
        loop {
            if let Some(batch) = offers.batches.pop_front() {
                drop(offers);
                batch.serve(&self.table);
                drop(batch);
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
        let mut offers = self.shared.offers.lock();
        offers.ended = true;
        let threads = std::mem::take(&mut offers.threads);
        drop(offers);
        self.shared.offered.notify_all();
        // One that waits for a disk has the table as long as that lasts, and nobody waits for it.
        if threads.len() == POOL_THREADS {
            for thread in threads {
                // A thread that panicked has aborted the process already.
                let _ = thread.join();
            }
        }
    }
}

impl Disks for PlainDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        if let [request] = batch
            && request.is_patient
        {
            return serve(self.shared.table.entry(request.slot), request);
        }
        if batch.is_empty() {
            return;
        }
        self.run_beside(batch, &mut RestOfBatch::nothing());
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

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.shared.table.entry(slot).disk.appearance()
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.shared.table.entry(slot).is_fenced()
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.shared.table.set_judge(judge);
    }
}

/// What was read goes to where it belongs.
fn bring(request: &mut Request<'_>, bounce: Option<&Bounce>) {
    if let (Some(memory), Some(bounce)) = (request.work.filled(), bounce) {
        memory.copy_from_slice(bounce.bytes());
    }
}

fn count(entry: &TableEntry, request: &Request<'_>, started: Instant) {
    let outcome = match (&request.result, request.work.operation()) {
        (Err(_), _) => Outcome::Failed,
        (Ok(()), Operation::Read) => Outcome::Read,
        (Ok(()), Operation::Flush) => Outcome::Flushed,
        (Ok(()), Operation::Write | Operation::WriteDurable) => Outcome::Written,
    };
    let bytes = request.length_bytes() as u64;
    entry.counters.end(outcome, bytes, started.elapsed().into());
}

/// Serves one request with plain system calls, however long it takes, and counts it.
pub(crate) fn serve(entry: &TableEntry, request: &mut Request<'_>) {
    entry.counters.begin();
    let started = Instant::now();
    request.result = Ok(());
    let was_patient = std::mem::replace(&mut request.is_patient, true);
    let (job, bounce) = Job::of(entry, request);
    request.is_patient = was_patient;
    if request.result.is_ok() {
        match job.run(&entry.disk) {
            Ok(()) => bring(request, bounce.as_ref()),
            Err((kind, errno)) => request.fail(&entry.disk.path, kind, errno),
        }
    }
    count(entry, request, started);
    request.tell_failure();
}

type Failure = (DeviceErrorKind, Option<i32>);

impl Job {
    /// What is to be done for the request, and the memory in between where the request's own is
    /// none that the disk takes or that can be kept; the request has failed where it cannot be run.
    fn of(entry: &TableEntry, request: &mut Request<'_>) -> (Self, Option<Bounce>) {
        let mut job = Self {
            slot: request.slot,
            offset_bytes: request.offset_bytes,
            operation: request.work.operation(),
            memory: std::ptr::null_mut(),
            length_bytes: request.length_bytes(),
            keeper: None,
            state: AtomicU8::new(WAITING),
            taken_at: OnceLock::new(),
            answer: OnceLock::new(),
        };
        let refused = if !request.is_within(entry.disk.size_bytes()) {
            Some(DeviceErrorKind::Misaligned)
        } else if entry.is_fenced() {
            Some(DeviceErrorKind::TimedOut)
        } else {
            None
        };
        if let Some(kind) = refused {
            request.fail(&entry.disk.path, kind, None);
            job.state = AtomicU8::new(GIVEN_UP);
            return (job, None);
        }
        let can_lend = request.is_patient;
        match &mut request.work {
            Work::ReadPart(part) => {
                job.memory = part.start();
                job.keeper = Some(part.keep());
            }
            Work::WritePart(part) => {
                job.memory = part.bytes().as_ptr().cast_mut();
                job.keeper = Some(part.keep());
            }
            Work::Read(memory) if can_lend => job.memory = memory.as_mut_ptr(),
            // Never written through: the kernel only reads the memory of a write.
            Work::Write(memory) | Work::WriteDurable(memory) if can_lend => {
                job.memory = memory.as_ptr().cast_mut();
            }
            Work::Flush => return (job, None),
            Work::Read(_) | Work::Write(_) | Work::WriteDurable(_) => {}
        }
        let alignment = entry.disk.memory_alignment_bytes;
        if !job.memory.is_null() && job.memory.addr().is_multiple_of(alignment) {
            return (job, None);
        }
        let mut bounce = match request.work.written() {
            Some(bytes) => Bounce::holding(bytes),
            None => Bounce::new(job.length_bytes),
        };
        job.memory = bounce.bytes_mut().as_mut_ptr();
        job.keeper = Some(bounce.keep());
        (job, Some(bounce))
    }

    fn run(&self, disk: &OpenDisk) -> Result<(), Failure> {
        let at = self.offset_bytes;
        match self.operation {
            Operation::Flush => retried(self.operation, || rustix::fs::fdatasync(&disk.file)),
            Operation::Read => {
                // SAFETY: so many bytes of initialised memory, which nobody else reaches before
                // the job has its answer or was given up, and which lives as long as the job.
                let memory =
                    unsafe { std::slice::from_raw_parts_mut(self.memory, self.length_bytes) };
                read(disk, at, memory)
            }
            Operation::Write | Operation::WriteDurable => {
                // SAFETY: as above; nobody changes them.
                let memory = unsafe { std::slice::from_raw_parts(self.memory, self.length_bytes) };
                write(disk, at, memory, self.operation)
            }
        }
    }
}

fn read(disk: &OpenDisk, offset_bytes: u64, memory: &mut [u8]) -> Result<(), Failure> {
    let mut done = 0;
    while done < memory.len() {
        let at = offset_bytes + done as u64;
        let target = &mut memory[done..];
        let length = retried(Operation::Read, || {
            disk.file.read_at(target, at).map_err(errno_of)
        })?;
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
    operation: Operation,
) -> Result<(), Failure> {
    let flags = match operation {
        Operation::WriteDurable => ReadWriteFlags::DSYNC,
        _ => ReadWriteFlags::empty(),
    };
    let mut done = 0;
    while done < memory.len() {
        let piece = [std::io::IoSlice::new(&memory[done..])];
        let at = offset_bytes + done as u64;
        let length = retried(operation, || {
            rustix::io::pwritev2(&disk.file, &piece, at, flags)
        })?;
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

/// Repeats a call that a signal cut off, and for a while one that found no memory.
fn retried<T>(
    operation: Operation,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Failure> {
    let mut is_short_since = None;
    loop {
        let errno = match call() {
            Ok(value) => return Ok(value),
            Err(errno) => errno,
        };
        match asks_again(operation, errno.raw_os_error()) {
            Some(Again::AtOnce) => {}
            Some(Again::NoMemory)
                if is_short_since.get_or_insert_with(Instant::now).elapsed() < MEMORY_PATIENCE =>
            {
                std::thread::sleep(MEMORY_PAUSE);
            }
            _ => {
                let number = errno.raw_os_error();
                return Err((kind_of(number), Some(number)));
            }
        }
    }
}
