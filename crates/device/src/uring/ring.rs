//! One thread's ring: queues a batch, waits, and takes the answers.
//!
//! Invariants: between two calls of [`Ring::run`] the ring is empty, so nothing that a caller
//! lent is known to the kernel. At most [`RING_ENTRIES`] pieces are under way, and the completion
//! queue has twice that, so it cannot overflow.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;

use crate::buffer::AlignedBuffer;
use crate::counters::Outcome;
use crate::errno::{is_transient, kind_of};
use crate::guard::AbortOnUnwind;
use crate::request::{DeviceErrorKind, Request, Work};
use crate::table::{DiskTable, TableEntry};

/// How many pieces are under way at once; more wait their turn.
const RING_ENTRIES: u32 = 128;

/// The most bytes of one piece: below the kernel's limit of 2 GiB, and whole blocks.
const PIECE_BYTES_MAX: usize = 1 << 30;

/// How often a piece that the kernel answers with "again" is tried before that is a failure.
const TRIES_MAX: u8 = 100;

/// How long between two warnings that a cancelled piece has not come back.
const STUCK_WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// Marks the answers to cancellations, which nobody waits for by name.
const CANCELLATION: u64 = u64::MAX;

const RWF_DSYNC: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    UnderWay,
    Answered,
}

/// What the kernel needs to know of one request, or of a part of it that its disk takes in one
/// transfer, and how far it is.
struct Piece {
    /// Which request of the batch.
    request: usize,
    /// Where in the request's memory it begins.
    start_bytes: usize,
    operation: Operation,
    state: State,
    tries: u8,
    descriptor: i32,
    /// The caller's memory, or the bounce buffer's. Nobody else uses it until `Answered`.
    memory: *mut u8,
    length_bytes: usize,
    done_bytes: usize,
    offset_bytes: u64,
    bounce: Option<AlignedBuffer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    WriteDurable,
    Flush,
}

pub(super) struct Ring {
    ring: IoUring,
    /// Reused from batch to batch: one or more for each request, in the same order.
    pieces: Vec<Piece>,
    /// Reused: pieces to be queued again.
    again: Vec<usize>,
}

/// Whether this kernel lets us have a ring with all that is used here.
pub(super) fn probe() -> io::Result<()> {
    let ring = new_ring()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let has_operations = needed.iter().all(|&code| probe.is_supported(code));
    // Without waiting with a time limit there is no deadline; without NODROP no certainty.
    let has_features = ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop();
    if has_operations && has_features {
        Ok(())
    } else {
        Err(io::Error::other("the kernel's io_uring is too old"))
    }
}

/// The newest kernels let completions run in the waiting thread, which saves interrupting it;
/// older ones do without.
fn new_ring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(RING_ENTRIES)
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(RING_ENTRIES))
        .or_else(|_| IoUring::new(RING_ENTRIES))
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            ring: new_ring()?,
            pieces: Vec::new(),
            again: Vec::new(),
        })
    }

    /// Runs a batch: see [`crate::Disks::run`].
    pub(super) fn run(&mut self, table: &DiskTable, deadline: Duration, batch: &mut [Request<'_>]) {
        // From here until the kernel has given everything back no panic may unwind into the
        // caller, who would free what it lent.
        let guard = AbortOnUnwind;
        let started = Instant::now();
        self.prepare(table, batch);
        let mut progress = Progress {
            next: 0,
            under_way: 0,
            cancellations: 0,
            last_answer: started,
            expired: false,
        };
        loop {
            if !progress.expired {
                self.queue(&mut progress);
            }
            if progress.under_way == 0 && progress.cancellations == 0 {
                break;
            }
            self.wait(&progress, deadline);
            let before = progress.under_way;
            self.reap(table, &mut progress, batch);
            if progress.under_way == 0 || progress.expired {
                self.warn_if_stuck(table, &mut progress, batch, before);
                continue;
            }
            let now = Instant::now();
            if progress.under_way < before {
                progress.last_answer = now;
            } else if now - progress.last_answer >= deadline {
                progress.last_answer = now;
                self.expire(table, &mut progress, batch);
            }
        }
        self.finish(table, started, batch);
        std::mem::forget(guard);
    }

    /// Notes what each request needs; those that cannot be run are answered at once.
    fn prepare(&mut self, table: &DiskTable, batch: &mut [Request<'_>]) {
        self.pieces.clear();
        self.again.clear();
        for (index, request) in batch.iter_mut().enumerate() {
            let entry = table.entry(request.slot);
            entry.counters.begin();
            request.result = Ok(());
            if !request.is_within(entry.disk.size_bytes()) {
                request.fail(&entry.disk.path, DeviceErrorKind::Misaligned, None);
            } else if entry.stuck.load(Relaxed) > 0 {
                request.fail(&entry.disk.path, DeviceErrorKind::TimedOut, None);
            } else {
                let lent = Lent::of(&mut request.work);
                let length = request.length_bytes();
                let most = entry.disk.transfer_bytes_max;
                // A flush has no bytes, and is one piece all the same.
                let parts = length.div_ceil(most);
                for part in 0..parts.max(usize::from(lent.operation == Operation::Flush)) {
                    let start = part * most;
                    let bytes = (length - start).min(most);
                    let piece = piece_of(entry, (index, request), lent, start, bytes);
                    self.pieces.push(piece);
                }
            }
        }
    }

    /// Puts as many waiting pieces into the submission queue as there is room for.
    fn queue(&mut self, progress: &mut Progress) {
        let mut submission = self.ring.submission();
        while progress.under_way < RING_ENTRIES as usize {
            let index = if let Some(index) = self.again.pop() {
                index
            } else if progress.next < self.pieces.len() {
                progress.next += 1;
                progress.next - 1
            } else {
                break;
            };
            let piece = &mut self.pieces[index];
            if piece.state == State::Answered {
                continue;
            }
            let mut entry = piece.entry().user_data(index as u64);
            if piece.tries > 0 {
                // What could not be had at once is waited for by a worker of the kernel's.
                entry = entry.flags(squeue::Flags::ASYNC);
            }
            // SAFETY: the memory in the entry is the caller's, lent for the whole of `run`, or
            // the piece's bounce buffer; `run` keeps both until the kernel has answered.
            let pushed = unsafe { submission.push(&entry) };
            assert!(pushed.is_ok(), "the queue has room for all under way");
            piece.state = State::UnderWay;
            progress.under_way += 1;
        }
    }

    /// Submits what is queued and waits: for all that is under way, or for half of it where more
    /// waits to be queued.
    fn wait(&self, progress: &Progress, deadline: Duration) {
        let more_waits = progress.next < self.pieces.len() && !progress.expired;
        let wanted = match progress.under_way {
            under_way if more_waits => under_way / 2,
            0 => progress.cancellations,
            under_way => under_way,
        };
        let limit = if progress.expired {
            STUCK_WARNING_INTERVAL
        } else {
            deadline
        };
        let limit = Timespec::from(limit);
        let arguments = SubmitArgs::new().timespec(&limit);
        match self
            .ring
            .submitter()
            .submit_with_args(wanted.max(1), &arguments)
        {
            Ok(_) => {}
            Err(error) => match Errno::from_io_error(&error) {
                // Time is up, a signal came, or the kernel wants its answers taken first.
                Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => {}
                // The guard of `run` ends the process: what the ring holds cannot be got back.
                _ => panic!("the kernel refuses a ring that it gave: {error}"),
            },
        }
    }

    /// Takes the answers that are there.
    fn reap(&mut self, table: &DiskTable, progress: &mut Progress, batch: &mut [Request<'_>]) {
        for answer in self.ring.completion() {
            if answer.user_data() == CANCELLATION {
                progress.cancellations -= 1;
                continue;
            }
            let index = usize::try_from(answer.user_data()).expect("an index that we gave");
            let piece = &mut self.pieces[index];
            assert_eq!(piece.state, State::UnderWay, "one answer for one piece");
            progress.under_way -= 1;
            let request = &mut batch[piece.request];
            let entry = table.entry(request.slot);
            if progress.expired {
                entry.stuck.fetch_sub(1, Relaxed);
            }
            match piece.judge(answer.result(), progress.expired) {
                Verdict::Done => {
                    piece.state = State::Answered;
                    if let (Work::Read(memory), Some(bounce)) = (&mut request.work, &piece.bounce) {
                        let end = piece.start_bytes + piece.length_bytes;
                        memory[piece.start_bytes..end].copy_from_slice(bounce);
                    }
                }
                Verdict::Again => {
                    piece.state = State::Waiting;
                    self.again.push(index);
                }
                Verdict::Failed(kind, errno) => {
                    piece.state = State::Answered;
                    request.fail(&entry.disk.path, kind, errno);
                }
            }
        }
    }

    /// The deadline has passed: what has not been submitted never will be, the rest is cancelled.
    fn expire(&mut self, table: &DiskTable, progress: &mut Progress, batch: &mut [Request<'_>]) {
        progress.expired = true;
        let mut submission = self.ring.submission();
        for (index, piece) in self.pieces.iter_mut().enumerate() {
            let request = &mut batch[piece.request];
            let entry = table.entry(request.slot);
            match piece.state {
                State::Answered => {}
                State::Waiting => {
                    request.fail(&entry.disk.path, DeviceErrorKind::TimedOut, None);
                    piece.state = State::Answered;
                }
                State::UnderWay => {
                    entry.stuck.fetch_add(1, Relaxed);
                    let cancellation = opcode::AsyncCancel::new(index as u64)
                        .build()
                        .user_data(CANCELLATION);
                    // SAFETY: a cancellation names no memory.
                    let pushed = unsafe { submission.push(&cancellation) };
                    assert!(pushed.is_ok(), "all under way had their places here before");
                    progress.cancellations += 1;
                }
            }
        }
    }

    /// Says now and then which disk keeps its caller waiting.
    fn warn_if_stuck(
        &self,
        table: &DiskTable,
        progress: &mut Progress,
        batch: &[Request<'_>],
        under_way_before: usize,
    ) {
        let waited = progress.last_answer.elapsed();
        if progress.under_way == 0
            || progress.under_way < under_way_before
            || waited < STUCK_WARNING_INTERVAL
        {
            return;
        }
        progress.last_answer = Instant::now();
        let mut pieces = self.pieces.iter();
        if let Some(piece) = pieces.find(|piece| piece.state == State::UnderWay) {
            let request = &batch[piece.request];
            tracing::warn!(
                disk = table.entry(request.slot).disk.path,
                operation = request.operation(),
                offset_bytes = request.offset_bytes,
                "a cancelled request has not come back from the kernel; the disk hangs"
            );
        }
    }

    /// Counts the batch, every request with the time that the whole took.
    fn finish(&mut self, table: &DiskTable, started: Instant, batch: &[Request<'_>]) {
        let latency = started.elapsed().into();
        for piece in &mut self.pieces {
            debug_assert_eq!(piece.state, State::Answered);
            piece.bounce = None;
        }
        for request in batch {
            let outcome = match (&request.result, &request.work) {
                (Err(_), _) => Outcome::Failed,
                (Ok(()), Work::Read(_)) => Outcome::Read,
                (Ok(()), Work::Flush) => Outcome::Flushed,
                (Ok(()), Work::Write(_) | Work::WriteDurable(_)) => Outcome::Written,
            };
            let counters = &table.entry(request.slot).counters;
            counters.end(outcome, request.length_bytes() as u64, latency);
        }
    }
}

/// How far a batch is.
struct Progress {
    /// The first piece never queued.
    next: usize,
    under_way: usize,
    cancellations: usize,
    last_answer: Instant,
    expired: bool,
}

enum Verdict {
    Done,
    Again,
    Failed(DeviceErrorKind, Option<i32>),
}

/// The memory of a whole request, taken from the caller once, and what is done with it.
#[derive(Clone, Copy)]
struct Lent {
    operation: Operation,
    memory: *mut u8,
}

impl Lent {
    fn of(work: &mut Work<'_>) -> Self {
        let (operation, memory) = match work {
            Work::Read(memory) => (Operation::Read, memory.as_mut_ptr()),
            // Never written through: the kernel only reads the memory of a write.
            Work::Write(memory) => (Operation::Write, memory.as_ptr().cast_mut()),
            Work::WriteDurable(memory) => (Operation::WriteDurable, memory.as_ptr().cast_mut()),
            Work::Flush => (Operation::Flush, std::ptr::null_mut()),
        };
        Self { operation, memory }
    }
}

/// The piece for `length_bytes` of the request's memory from `start_bytes` on.
fn piece_of(
    entry: &TableEntry,
    (index, request): (usize, &Request<'_>),
    lent: Lent,
    start_bytes: usize,
    length_bytes: usize,
) -> Piece {
    let memory = lent.memory.wrapping_add(start_bytes);
    let mut piece = Piece {
        request: index,
        start_bytes,
        operation: lent.operation,
        state: State::Waiting,
        tries: 0,
        descriptor: entry.disk.file.as_raw_fd(),
        memory,
        length_bytes,
        done_bytes: 0,
        offset_bytes: request.offset_bytes + start_bytes as u64,
        bounce: None,
    };
    if !memory
        .addr()
        .is_multiple_of(entry.disk.memory_alignment_bytes)
    {
        piece.bounce(&request.work);
    }
    piece
}

impl Piece {
    /// Goes through aligned memory of our own, since the caller's is none that the disk takes.
    #[cold]
    fn bounce(&mut self, work: &Work<'_>) {
        let mut bounce = AlignedBuffer::zeroed(self.length_bytes);
        if let Work::Write(memory) | Work::WriteDurable(memory) = work {
            let end = self.start_bytes + self.length_bytes;
            bounce.copy_from_slice(&memory[self.start_bytes..end]);
        }
        self.memory = bounce.as_mut_ptr();
        self.bounce = Some(bounce);
    }

    /// The order to the kernel for what is left of the piece.
    fn entry(&self) -> squeue::Entry {
        let descriptor = Fd(self.descriptor);
        let left_bytes = (self.length_bytes - self.done_bytes).min(PIECE_BYTES_MAX);
        let length = u32::try_from(left_bytes).expect("at most 1 GiB");
        let memory = self.memory.wrapping_add(self.done_bytes);
        let offset_bytes = self.offset_bytes + self.done_bytes as u64;
        match self.operation {
            Operation::Read => opcode::Read::new(descriptor, memory, length)
                .offset(offset_bytes)
                .build(),
            Operation::Write => opcode::Write::new(descriptor, memory, length)
                .offset(offset_bytes)
                .build(),
            Operation::WriteDurable => opcode::Write::new(descriptor, memory, length)
                .offset(offset_bytes)
                .rw_flags(RWF_DSYNC)
                .build(),
            Operation::Flush => opcode::Fsync::new(descriptor)
                .flags(FsyncFlags::DATASYNC)
                .build(),
        }
    }

    /// What the kernel's answer means.
    fn judge(&mut self, result: i32, expired: bool) -> Verdict {
        let Ok(moved_bytes) = usize::try_from(result) else {
            let errno = -result;
            if is_transient(errno) && self.tries < TRIES_MAX {
                self.tries += 1;
                return self.again(expired);
            }
            return Verdict::Failed(kind_of(errno), Some(errno));
        };
        self.done_bytes += moved_bytes;
        if self.operation == Operation::Flush || self.done_bytes == self.length_bytes {
            return Verdict::Done;
        }
        match self.operation {
            // A file that ends inside the request is shorter than when it was opened.
            Operation::Read if moved_bytes == 0 || !self.done_bytes.is_multiple_of(512) => {
                Verdict::Failed(DeviceErrorKind::Gone, None)
            }
            Operation::Read => self.again(expired),
            _ if moved_bytes == 0 => Verdict::Failed(DeviceErrorKind::NoSpace, None),
            // A short direct write can end inside a sector; that sector is written again.
            _ => {
                self.done_bytes -= self.done_bytes % 512;
                self.tries += u8::from(moved_bytes < 512);
                if self.tries < TRIES_MAX {
                    self.again(expired)
                } else {
                    Verdict::Failed(DeviceErrorKind::Medium, None)
                }
            }
        }
    }

    const fn again(&self, expired: bool) -> Verdict {
        if expired {
            Verdict::Failed(DeviceErrorKind::TimedOut, None)
        } else {
            Verdict::Again
        }
    }
}
