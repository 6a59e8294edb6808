//! One thread's ring: queues a batch, waits, and takes the answers.
//!
//! Invariants: between two calls of [`Ring::run`] the ring is empty, or it is lost and never used
//! again: then the kernel may still hold pieces that were given up, whose memory the table keeps.
//! At most [`RING_ENTRIES`] pieces are under way, and the completion queue has twice that, so it
//! cannot overflow.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;

use crate::bounce::Bounce;
use crate::buffer::Memory;
use crate::counters::Outcome;
use crate::errno::{Again, MEMORY_PATIENCE, MEMORY_PAUSE, TRIES_MAX, asks_again, kind_of};
use crate::guard::AbortOnUnwind;
use crate::request::{DeviceErrorKind, DiskSlot, Operation, Request, Work, failures_of};
use crate::rest_of_batch::RestOfBatch;
use crate::table::{DiskTable, TableEntry};

/// How many pieces are under way at once; more wait their turn.
const RING_ENTRIES: u32 = 128;

/// The most bytes of one piece: below the kernel's limit of 2 GiB, and whole blocks.
const PIECE_BYTES_MAX: usize = 1 << 30;

/// How often a long wait is looked at: whether its time is up, or another thread has given the
/// disk up meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How often while pieces are cancelled, which the kernel answers at once where it can.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a cancelled piece is waited for.
const CANCEL_PATIENCE: Duration = Duration::from_millis(100);

/// How long between two warnings that a disk keeps its callers waiting.
const STUCK_WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// Marks the answers to cancellations, which nobody waits for by name.
const CANCELLATION: u64 = u64::MAX;

const RWF_DSYNC: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    UnderWay,
    /// Under way, and the kernel was asked to give it back.
    Cancelled,
    Answered,
}

/// What the kernel needs to know of one request, or of a part of it that its disk takes in one
/// transfer, and how far it is.
struct Piece {
    /// Which request of the batch.
    request: usize,
    operation: Operation,
    state: State,
    tries: u8,
    descriptor: i32,
    /// The buffer's or the bounce buffer's memory, or a patient caller's. Nobody else uses it until
    /// `Answered`.
    memory: *mut u8,
    length_bytes: usize,
    done_bytes: usize,
    offset_bytes: u64,
}

pub(super) struct Ring {
    ring: IoUring,
    /// Reused from batch to batch: one or more for each request, in the same order.
    pieces: Vec<Piece>,
    /// Reused: pieces to be queued again.
    again: Vec<usize>,
    /// Reused: memory between requests and their callers', by the request's place.
    bounces: Vec<(usize, Bounce)>,
    /// The kernel holds pieces that nobody waits for.
    pub(super) is_lost: bool,
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
            bounces: Vec::new(),
            is_lost: false,
        })
    }

    /// Runs a batch: see [`crate::Disks::run`]. A ring that `is_lost` afterwards must be dropped:
    /// the kernel then ends by itself what it still holds.
    pub(super) fn run(
        &mut self,
        table: &DiskTable,
        deadline: Duration,
        batch: &mut [Request<'_>],
        rest: &mut RestOfBatch<'_>,
    ) {
        // From here until the kernel has given everything back no panic may unwind into the
        // caller, who would free what it lent.
        let guard = AbortOnUnwind;
        let started = Instant::now();
        self.prepare(table, batch);
        let is_heard = batch.iter().any(|request| request.listener.is_some());
        let mut progress = Progress {
            next: 0,
            under_way: 0,
            last_answer: started,
            is_short_since: None,
            cancelled_at: None,
            warned_at: started,
        };
        loop {
            self.queue(&mut progress);
            if is_heard {
                batch.iter_mut().for_each(Request::tell_failure);
            }
            if progress.under_way == 0 {
                break;
            }
            self.wait(&progress, deadline, is_heard);
            if self.reap(table, &mut progress, batch) {
                progress.last_answer = Instant::now();
                rest.look_if_due();
            } else {
                self.look(table, deadline, &mut progress, batch, rest);
            }
        }
        self.finish(table, started, batch);
        std::mem::forget(guard);
    }

    /// Notes what each request needs; those that cannot be run are answered at once.
    fn prepare(&mut self, table: &DiskTable, batch: &mut [Request<'_>]) {
        self.pieces.clear();
        self.again.clear();
        self.bounces.clear();
        for (index, request) in batch.iter_mut().enumerate() {
            let entry = table.entry(request.slot);
            entry.counters.begin();
            request.result = Ok(());
            if !request.is_within(entry.disk.size_bytes()) {
                request.fail(&entry.disk.path, DeviceErrorKind::Misaligned, None);
            } else if entry.is_fenced() {
                request.fail(&entry.disk.path, DeviceErrorKind::TimedOut, None);
            } else {
                let memory = self.memory_for(entry, index, request);
                let operation = request.work.operation();
                let length = request.length_bytes();
                let most = entry.disk.transfer_bytes_max;
                // A flush has no bytes, and is one piece all the same.
                let parts = length.div_ceil(most);
                for part in 0..parts.max(usize::from(operation == Operation::Flush)) {
                    let start = part * most;
                    self.pieces.push(Piece {
                        request: index,
                        operation,
                        state: State::Waiting,
                        tries: 0,
                        descriptor: entry.disk.file.as_raw_fd(),
                        memory: memory.wrapping_add(start),
                        length_bytes: (length - start).min(most),
                        done_bytes: 0,
                        offset_bytes: request.offset_bytes + start as u64,
                    });
                }
            }
        }
    }

    /// Where the kernel finds the request's bytes or puts them: a buffer's memory, which the engine
    /// can keep; that of a caller who waits however long it takes; else our own.
    fn memory_for(
        &mut self,
        entry: &TableEntry,
        index: usize,
        request: &mut Request<'_>,
    ) -> *mut u8 {
        let can_lend = request.is_patient;
        let memory = match &mut request.work {
            Work::ReadPart(part) => part.start(),
            // Never written through: the kernel only reads the memory of a write.
            Work::WritePart(part) => part.bytes().as_ptr().cast_mut(),
            Work::Read(memory) if can_lend => memory.as_mut_ptr(),
            Work::Write(memory) | Work::WriteDurable(memory) if can_lend => {
                memory.as_ptr().cast_mut()
            }
            Work::Flush => return std::ptr::null_mut(),
            Work::Read(_) | Work::Write(_) | Work::WriteDurable(_) => std::ptr::null_mut(),
        };
        let alignment = entry.disk.memory_alignment_bytes;
        if !memory.is_null() && memory.addr().is_multiple_of(alignment) {
            return memory;
        }
        let mut bounce = match request.work.written() {
            Some(bytes) => Bounce::holding(bytes),
            None => Bounce::new(request.length_bytes()),
        };
        let memory = bounce.bytes_mut().as_mut_ptr();
        self.bounces.push((index, bounce));
        memory
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
            // SAFETY: the memory in the entry is a buffer's or a bounce buffer's, which the table
            // keeps where `run` returns before the kernel has answered, or it is that of a patient
            // request, for which `run` does not return before.
            let pushed = unsafe { submission.push(&entry) };
            assert!(pushed.is_ok(), "the queue has room for all under way");
            piece.state = State::UnderWay;
            progress.under_way += 1;
        }
    }

    /// Submits what is queued and waits: for all that is under way, or for half of it where more
    /// waits to be queued; for one answer where somebody listens, who is to hear of it at once; not for
    /// long at a time.
    fn wait(&self, progress: &Progress, deadline: Duration, is_heard: bool) {
        let more_waits = progress.next < self.pieces.len();
        let wanted = if is_heard {
            1
        } else if more_waits {
            progress.under_way / 2
        } else {
            progress.under_way
        };
        let limit = match progress.cancelled_at {
            Some(_) => CANCEL_INTERVAL,
            None => LOOK_INTERVAL.min(deadline),
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

    /// Takes the answers that are there; whether there was one. That the kernel had no memory is none:
    /// no disk has said anything.
    fn reap(
        &mut self,
        table: &DiskTable,
        progress: &mut Progress,
        batch: &mut [Request<'_>],
    ) -> bool {
        let mut has_answered = false;
        let mut is_short = false;
        for answer in self.ring.completion() {
            if answer.user_data() == CANCELLATION {
                continue;
            }
            let index = usize::try_from(answer.user_data()).expect("an index that we gave");
            let piece = &mut self.pieces[index];
            let expired = match piece.state {
                State::UnderWay => false,
                State::Cancelled => true,
                // It was given up, and this ring is lost.
                State::Answered if self.is_lost => continue,
                state => panic!("an answer for a piece that is {state:?}"),
            };
            progress.under_way -= 1;
            let request = &mut batch[piece.request];
            let entry = table.entry(request.slot);
            let verdict = piece.judge(answer.result(), expired, &mut progress.is_short_since);
            match verdict {
                Verdict::NoMemory => is_short = true,
                _ => has_answered = true,
            }
            match verdict {
                Verdict::Done => piece.state = State::Answered,
                Verdict::Again | Verdict::NoMemory => {
                    piece.state = State::Waiting;
                    self.again.push(index);
                }
                Verdict::Failed(kind, errno) => {
                    piece.state = State::Answered;
                    // The slot of a disk that was given up leads nowhere.
                    if entry.is_fenced() {
                        request.fail(&entry.disk.path, DeviceErrorKind::TimedOut, None);
                    } else {
                        request.fail(&entry.disk.path, kind, errno);
                        table.tell_if_gone(request.slot, kind);
                    }
                }
            }
        }
        if is_short {
            std::thread::sleep(MEMORY_PAUSE);
        }
        has_answered
    }

    /// Nothing was answered for a while: cancels what has no time left, and gives up what the
    /// kernel does not give back.
    fn look(
        &mut self,
        table: &DiskTable,
        deadline: Duration,
        progress: &mut Progress,
        batch: &mut [Request<'_>],
        rest: &mut RestOfBatch<'_>,
    ) {
        let now = Instant::now();
        if let Some(cancelled_at) = progress.cancelled_at
            && now - cancelled_at >= CANCEL_PATIENCE
        {
            self.give_up(table, progress, batch);
            progress.cancelled_at = None;
            return;
        }
        let is_overdue = now - progress.last_answer >= deadline;
        let mut failed = failures_of(batch);
        failed.extend(rest.failures());
        let mut judged: Vec<(DiskSlot, bool)> = Vec::new();
        for piece in self.pieces.iter().filter(|piece| piece.is_open()) {
            let request = &batch[piece.request];
            let is_asked = is_overdue || table.entry(request.slot).is_fenced();
            let is_known = judged.iter().any(|(slot, _)| *slot == request.slot);
            // Asked only for what the kernel has: what waits for its turn is not the disk's fault.
            if piece.state == State::UnderWay && is_asked && !request.is_patient && !is_known {
                judged.push((request.slot, table.may_give_up(request.slot, &failed)));
            }
        }
        for (slot, is_given_up) in judged {
            if is_given_up {
                self.cancel(table, slot, progress, batch);
                progress.cancelled_at.get_or_insert(now);
            }
        }
        if is_overdue
            && progress.cancelled_at.is_none()
            && now - progress.warned_at >= STUCK_WARNING_INTERVAL
        {
            progress.warned_at = now;
            self.warn(table, now - progress.last_answer, batch);
        }
    }

    /// The disk has no time left: what has not been submitted never will be, the rest is cancelled.
    fn cancel(
        &mut self,
        table: &DiskTable,
        slot: DiskSlot,
        progress: &Progress,
        batch: &mut [Request<'_>],
    ) {
        let path = &table.entry(slot).disk.path;
        let mut submission = self.ring.submission();
        for (index, piece) in self.pieces.iter_mut().enumerate() {
            let request = &mut batch[piece.request];
            if request.slot != slot || request.is_patient {
                continue;
            }
            match piece.state {
                State::Answered | State::Cancelled => {}
                State::Waiting => {
                    request.fail(path, DeviceErrorKind::TimedOut, None);
                    piece.state = State::Answered;
                }
                State::UnderWay => {
                    let cancellation = opcode::AsyncCancel::new(index as u64)
                        .build()
                        .user_data(CANCELLATION);
                    // SAFETY: a cancellation names no memory.
                    let pushed = unsafe { submission.push(&cancellation) };
                    assert!(
                        pushed.is_ok(),
                        "all {} under way had their places here before",
                        progress.under_way
                    );
                    piece.state = State::Cancelled;
                }
            }
        }
    }

    /// The kernel did not give the cancelled pieces back: it may read and fill their memory at any
    /// later time.
    fn give_up(&mut self, table: &DiskTable, progress: &mut Progress, batch: &mut [Request<'_>]) {
        let mut late: Vec<(DiskSlot, Option<Arc<Memory>>)> = Vec::new();
        for piece in &mut self.pieces {
            if piece.state != State::Cancelled {
                continue;
            }
            let request = &mut batch[piece.request];
            let path = &table.entry(request.slot).disk.path;
            request.fail(path, DeviceErrorKind::TimedOut, None);
            piece.state = State::Answered;
            progress.under_way -= 1;
            self.is_lost = true;
            let bounced = self
                .bounces
                .iter()
                .find(|(index, _)| *index == piece.request);
            let memory = match (bounced, &mut request.work) {
                (_, Work::Flush) => None,
                (Some((_, bounce)), _) => Some(bounce.keep()),
                (None, Work::ReadPart(part)) => Some(part.give_up()),
                (None, Work::WritePart(part)) => Some(part.keep()),
                (None, Work::Read(_) | Work::Write(_) | Work::WriteDurable(_)) => {
                    unreachable!("only patient requests are lent plain memory")
                }
            };
            late.push((request.slot, memory));
        }
        for (slot, memory) in late {
            table.entry(slot).fence(memory);
        }
    }

    /// Says now and then which disk keeps its caller waiting.
    fn warn(&self, table: &DiskTable, waited: Duration, batch: &[Request<'_>]) {
        let mut pieces = self.pieces.iter();
        if let Some(piece) = pieces.find(|piece| piece.state == State::UnderWay) {
            let request = &batch[piece.request];
            tracing::warn!(
                disk = table.entry(request.slot).disk.path,
                operation = request.operation(),
                offset_bytes = request.offset_bytes,
                waited_s = waited.as_secs(),
                "the disk hangs, and nobody else has what it holds: its callers wait"
            );
        }
    }

    /// Brings what was read to where it belongs, and counts the batch, every request with the time
    /// that the whole took.
    fn finish(&mut self, table: &DiskTable, started: Instant, batch: &mut [Request<'_>]) {
        debug_assert!(!self.pieces.iter().any(Piece::is_open));
        for (index, bounce) in self.bounces.drain(..) {
            let request = &mut batch[index];
            if request.result.is_ok()
                && let Some(memory) = request.work.filled()
            {
                memory.copy_from_slice(bounce.bytes());
            }
        }
        let latency = started.elapsed().into();
        for request in batch {
            let outcome = match (&request.result, request.work.operation()) {
                (Err(_), _) => Outcome::Failed,
                (Ok(()), Operation::Read) => Outcome::Read,
                (Ok(()), Operation::Flush) => Outcome::Flushed,
                (Ok(()), Operation::Write | Operation::WriteDurable) => Outcome::Written,
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
    /// What the kernel has and is waited for.
    under_way: usize,
    last_answer: Instant,
    /// Since when the kernel has had no memory for something of the batch.
    is_short_since: Option<Instant>,
    /// Since when pieces are waited for that were cancelled.
    cancelled_at: Option<Instant>,
    warned_at: Instant,
}

enum Verdict {
    Done,
    Again,
    /// Again, though no disk has said anything.
    NoMemory,
    Failed(DeviceErrorKind, Option<i32>),
}

impl Piece {
    /// Whether it has no answer yet.
    fn is_open(&self) -> bool {
        self.state != State::Answered
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

    /// What the kernel's answer means. What finds no memory is tried again for a while, from when the
    /// batch was first short of it.
    fn judge(
        &mut self,
        result: i32,
        expired: bool,
        is_short_since: &mut Option<Instant>,
    ) -> Verdict {
        let Ok(moved_bytes) = usize::try_from(result) else {
            let errno = -result;
            return match asks_again(self.operation, errno) {
                Some(_) if expired => Verdict::Failed(DeviceErrorKind::TimedOut, None),
                Some(Again::AtOnce) if self.tries < TRIES_MAX => {
                    self.tries += 1;
                    Verdict::Again
                }
                Some(Again::NoMemory)
                    if is_short_since.get_or_insert_with(Instant::now).elapsed()
                        < MEMORY_PATIENCE =>
                {
                    self.tries = self.tries.max(1);
                    Verdict::NoMemory
                }
                _ => Verdict::Failed(kind_of(errno), Some(errno)),
            };
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Operation, Piece, State, Verdict};

    const NO_MEMORY: i32 = -12;

    fn piece(operation: Operation) -> Piece {
        Piece {
            request: 0,
            operation,
            state: State::UnderWay,
            tries: 0,
            descriptor: -1,
            memory: std::ptr::null_mut(),
            length_bytes: 4096,
            done_bytes: 0,
            offset_bytes: 0,
        }
    }

    #[test]
    fn what_finds_no_memory_is_tried_again_for_a_second_and_a_flush_is_not() {
        let mut since = None;
        let mut write = piece(Operation::Write);
        for _ in 0..1000 {
            let verdict = write.judge(NO_MEMORY, false, &mut since);
            assert!(matches!(verdict, Verdict::NoMemory));
        }
        let mut long_ago = Instant::now().checked_sub(Duration::from_secs(2));
        let verdict = write.judge(NO_MEMORY, false, &mut long_ago);
        assert!(matches!(verdict, Verdict::Failed(_, Some(12))));
        for operation in [Operation::Flush, Operation::WriteDurable] {
            let verdict = piece(operation).judge(NO_MEMORY, false, &mut None);
            assert!(matches!(verdict, Verdict::Failed(_, Some(12))));
        }
    }
}
