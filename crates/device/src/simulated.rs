//! Simulated disks: in memory, with every fault that real ones have, all from one seed.
//!
//! # The fault model
//! - **A power cut** ([`SimulatedDisks::crash`], [`SimulatedDisks::power_fails_after`]) meets all
//!   disks at once. Each write that no later flush of the same disk covered is kept, lost or
//!   torn at 512-byte borders (a beginning, an end, or any sectors), independently and in any
//!   order; one cut in six keeps all of a disk's, one in six loses all. What a flush or a durable write
//!   was answered for is never touched. The requests of the batch that the cut interrupts take
//!   place in a random order: some were answered, of the others any may have reached its disk.
//!   From then on everything answers [`DeviceErrorKind::PowerLost`] until
//!   [`SimulatedDisks::restart`].
//! - **A flush** covers exactly the writes that were answered before its batch began; writes of
//!   the same batch stay unsynced. A durable write covers its own bytes only.
//! - **A disk vanishes** with its power: its own unsynced writes meet the fates above, and all
//!   its requests answer [`DeviceErrorKind::Gone`] until it returns with what survived.
//! - **A failed read** leaves rubbish in the memory. **A failed write** has reached the disk not
//!   at all, whole or in part. **A failed flush** makes nothing durable. Where it drops
//!   ([`SimulatedDisks::drop_at_flushes`]) all that no flush had covered is lost, as in kernels and
//!   caches that do not try again, and the next flush is answered well; so it is with the flush
//!   within a durable write.
//! - **A disk hangs** ([`SimulatedDisks::hang`]): it does not answer such requests until it is
//!   released. Whoever waits for one gives it up after [`SimulatedDisks::set_deadline`] where the
//!   judge allows it; the disk is fenced then, and the write reaches it when it is released.
//! - **Flipped bits** are silent and meet what is durable and what is not yet.
//! - What is not modelled: sectors torn inside, and a disk that answers a flush and lies.
//!
//! The same seed, sizes and calls give the same answers and the same bytes. Requests are served
//! batch after batch, whole; the order inside a batch is random. No call waits but at a disk that hangs.

mod disk;
mod pages;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Weak;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

pub use disk::FaultyOperation;
use disk::{Fault, Hang, LateWrite, SimulatedDisk};
use pages::{PAGE_BYTES, PageMap, index_of};

use crate::random::SeededRandom;
use crate::request::{DeviceErrorKind, DiskSlot, Operation, Request, Work, failures_of};
use crate::{Disks, Judge};

/// ENODEV: what Linux says of a disk that was pulled.
const GONE_ERRNO: i32 = 19;
/// How often somebody who waits for a disk looks whether its time is up.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// EIO: what Linux says of a block that cannot be read.
const MEDIUM_ERRNO: i32 = 5;

/// Disks in memory whose faults are switched by calls and decided by a seed.
#[derive(Debug)]
pub struct SimulatedDisks {
    state: Mutex<State>,
    /// A disk that hung was released or given up.
    changed: Condvar,
    judge: RwLock<Option<Weak<dyn Judge>>>,
}

#[derive(Debug, Clone)]
struct State {
    disks: Vec<SimulatedDisk>,
    random: SeededRandom,
    powered: bool,
    /// The number of the request at which power fails.
    fails_at_request: Option<u64>,
    counts: SimulatedCounts,
    /// How long a disk that hangs is waited for.
    deadline: Duration,
    /// Reused from batch to batch: the order of the requests.
    order: Vec<usize>,
    /// Reused from batch to batch: each disk's unsynced writes when the batch began.
    unsynced_before: Vec<usize>,
}

/// What a disk held at some moment.
#[derive(Debug, Clone)]
pub struct DiskImage(PageMap);

/// What the disks have been asked since they were made, requests after a power cut left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimulatedCounts {
    /// Requests of all kinds: the number that [`SimulatedDisks::power_fails_after`] counts on.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes, durable ones too.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl SimulatedDisks {
    /// Disks of zeros of these sizes, in slots from 0 on.
    ///
    /// # Panics
    /// Where a size is no multiple of 4,096.
    #[must_use]
    pub fn new(seed: u64, sizes_bytes: &[u64]) -> Self {
        let disks = Self {
            state: Mutex::new(State {
                disks: Vec::with_capacity(sizes_bytes.len()),
                random: SeededRandom::new(seed),
                powered: true,
                fails_at_request: None,
                counts: SimulatedCounts::default(),
                deadline: Duration::ZERO,
                order: Vec::new(),
                unsynced_before: Vec::new(),
            }),
            changed: Condvar::new(),
            judge: RwLock::new(None),
        };
        for &size_bytes in sizes_bytes {
            disks.attach(size_bytes);
        }
        disks
    }

    /// Adds a disk of zeros.
    ///
    /// # Panics
    /// Where the size is no multiple of 4,096 or 65,535 disks are there.
    pub fn attach(&self, size_bytes: u64) -> DiskSlot {
        assert!(
            size_bytes.is_multiple_of(PAGE_BYTES as u64),
            "a simulated disk has whole blocks"
        );
        let mut state = self.state.lock();
        let slot = u16::try_from(state.disks.len()).expect("slots have 16 bits");
        state.disks.push(SimulatedDisk::zeroed(size_bytes));
        DiskSlot(slot)
    }

    /// Gives a disk another size; what it holds stays. What is cut off cannot be reached.
    ///
    /// # Panics
    /// Where the size is no multiple of 4,096.
    pub fn resize(&self, slot: DiskSlot, size_bytes: u64) {
        assert!(
            size_bytes.is_multiple_of(PAGE_BYTES as u64),
            "a simulated disk has whole blocks"
        );
        let mut state = self.state.lock();
        state.disks[usize::from(slot.0)].resize(size_bytes);
    }

    /// What a read of the disk would see at this moment, for [`SimulatedDisks::put_back`]. Pages are
    /// shared until written.
    #[must_use]
    pub fn image(&self, slot: DiskSlot) -> DiskImage {
        self.with_disk(slot, |disk| DiskImage(disk.image()))
    }

    /// The disk holds again, durably, what it held then.
    pub fn put_back(&self, slot: DiskSlot, image: &DiskImage) {
        self.with_disk(slot, |disk| disk.put_back(image.0.clone()));
    }

    /// Cuts the disk off: what lay behind that is zeros when it is made larger again.
    ///
    /// # Panics
    /// Where the size is no multiple of 4,096.
    pub fn cut(&self, slot: DiskSlot, size_bytes: u64) {
        self.resize(slot, size_bytes);
        self.with_disk(slot, SimulatedDisk::forget_behind_end);
    }

    /// A request that nobody waits for any more, because its process has ended: none, all or some of
    /// its sectors have reached the disk.
    pub fn write_in_part(&self, slot: DiskSlot, offset_bytes: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let disk = &mut state.disks[usize::from(slot.0)];
        if !disk.vanished && !bytes.is_empty() {
            disk.write_in_part(offset_bytes, bytes, &mut state.random);
        }
    }

    /// A copy of all disks with all that is unsynced and every fault set, which goes its own way
    /// from here with the randomness of `seed`. Pages are shared until written.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let mut state = self.state.lock().clone();
        state.random = SeededRandom::new(seed);
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            judge: RwLock::new(None),
        }
    }

    /// Cuts the power now: see the fault model. Without power already, nothing happens.
    pub fn crash(&self) {
        self.state.lock().crash();
    }

    /// Cuts the power at the `requests`-th request from now; 1 is the very next one.
    ///
    /// # Panics
    /// Where `requests` is 0; that is [`SimulatedDisks::crash`].
    pub fn power_fails_after(&self, requests: u64) {
        assert!(requests > 0, "the first request that can fail is the next");
        let mut state = self.state.lock();
        state.fails_at_request = Some(state.counts.requests + requests);
    }

    /// Takes back a power cut that has not come yet.
    pub fn power_stays(&self) {
        self.state.lock().fails_at_request = None;
    }

    /// Power is back; the disks have what survived. Vanished disks stay away, faults stay set.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.powered = true;
        state.fails_at_request = None;
    }

    /// Whether there is power.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.state.lock().powered
    }

    /// Takes the disk away, with its power.
    pub fn vanish(&self, slot: DiskSlot) {
        self.state.lock().vanish(usize::from(slot.0));
    }

    /// Takes the disk away at the `requests`-th request to it from now; 1 is the very next one.
    ///
    /// # Panics
    /// Where `requests` is 0; that is [`SimulatedDisks::vanish`].
    pub fn vanish_after(&self, slot: DiskSlot, requests: u64) {
        assert!(
            requests > 0,
            "the first request that can be refused is the next"
        );
        self.with_disk(slot, |disk| disk.vanishes_after = Some(requests));
    }

    /// Brings a vanished disk back with the bytes that survived.
    pub fn bring_back(&self, slot: DiskSlot) {
        self.with_disk(slot, |disk| {
            disk.appearance += u64::from(disk.vanished);
            disk.vanished = false;
            disk.vanishes_after = None;
        });
    }

    /// Whether the disk has vanished.
    #[must_use]
    pub fn is_vanished(&self, slot: DiskSlot) -> bool {
        self.with_disk(slot, |disk| disk.vanished)
    }

    /// Lets the next `count` reads that touch the range fail as a bad block does; `u64::MAX` is
    /// for good.
    pub fn fail_reads(&self, slot: DiskSlot, range: Range<u64>, count: u64) {
        self.fail(
            slot,
            FaultyOperation::Read,
            range,
            count,
            DeviceErrorKind::Medium,
        );
    }

    /// Lets the next `count` writes that touch the range fail as a bad block does.
    pub fn fail_writes(&self, slot: DiskSlot, range: Range<u64>, count: u64) {
        self.fail(
            slot,
            FaultyOperation::Write,
            range,
            count,
            DeviceErrorKind::Medium,
        );
    }

    /// Lets the next `count` flushes fail.
    pub fn fail_flushes(&self, slot: DiskSlot, count: u64) {
        self.fail(
            slot,
            FaultyOperation::Flush,
            0..u64::MAX,
            count,
            DeviceErrorKind::Medium,
        );
    }

    /// Lets the next `count` flushes fail, those within durable writes among them, and the disk drop
    /// at each what none had covered.
    pub fn drop_at_flushes(&self, slot: DiskSlot, count: u64) {
        self.with_disk(slot, |disk| disk.drops_left = count);
    }

    /// Lets the next `count` such requests that touch the range fail with `kind`.
    pub fn fail(
        &self,
        slot: DiskSlot,
        operation: FaultyOperation,
        range: Range<u64>,
        count: u64,
        kind: DeviceErrorKind,
    ) {
        if count > 0 {
            self.with_disk(slot, |disk| {
                disk.faults.push(Fault {
                    operation,
                    range,
                    requests_left: count,
                    kind,
                });
            });
        }
    }

    /// Forgets the failures set on the disk that have not come yet.
    pub fn clear_faults(&self, slot: DiskSlot) {
        self.with_disk(slot, |disk| {
            disk.faults.clear();
            disk.vanishes_after = None;
            disk.drops_left = 0;
        });
    }

    /// Lets the disk keep silent about such requests that touch the range, until it is released.
    pub fn hang(&self, slot: DiskSlot, operation: FaultyOperation, range: Range<u64>) {
        self.with_disk(slot, |disk| disk.hangs.push(Hang { operation, range }));
    }

    /// How long a request is waited for that a disk keeps silent about; not at all at first.
    pub fn set_deadline(&self, deadline: Duration) {
        self.state.lock().deadline = deadline;
    }

    /// Lets a disk that hung answer again; what was given up reaches it now.
    pub fn release(&self, slot: DiskSlot) {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.disks[usize::from(slot.0)].release(&mut state.random);
        }
        self.changed.notify_all();
    }

    /// How many writes were given up that have not reached the disk.
    #[must_use]
    pub fn late_count(&self, slot: DiskSlot) -> usize {
        self.with_disk(slot, |disk| disk.late.len())
    }

    /// As [`Disks::run`], but waits for nobody: the places of the requests that a disk keeps silent
    /// about, which are to be asked about again ([`SimulatedDisks::ask_again`]).
    pub fn begin(&self, batch: &mut [Request<'_>]) -> Vec<usize> {
        let unanswered = self.state.lock().run(batch);
        batch
            .iter_mut()
            .for_each(|request| self.tell_failure(request));
        unanswered
    }

    /// Tells who listens, and the judge where the disk is gone.
    fn tell_failure(&self, request: &mut Request<'_>) {
        let kind = request.result.as_ref().err().map(|error| error.kind);
        if kind == Some(DeviceErrorKind::Gone)
            && let Some(judge) = self.judge.read().as_ref().and_then(Weak::upgrade)
        {
            judge.has_gone(request.slot);
        }
        request.tell_failure();
    }

    /// Looks again after a request that a disk kept silent about, and gives the disk up where whoever
    /// waits has no time left and the judge allows it; whether the request is answered now.
    /// `failed` is what of its batch has failed.
    pub fn ask_again(
        &self,
        request: &mut Request<'_>,
        is_overdue: bool,
        failed: &[(DiskSlot, DeviceErrorKind)],
    ) -> bool {
        let is_answered = self.look_again(request, is_overdue, failed);
        if is_answered {
            self.tell_failure(request);
        }
        is_answered
    }

    fn look_again(
        &self,
        request: &mut Request<'_>,
        is_overdue: bool,
        failed: &[(DiskSlot, DeviceErrorKind)],
    ) -> bool {
        let position = usize::from(request.slot.0);
        let waits = |state: &State| {
            // Somebody else may have given the disk up meanwhile; this request is out as well.
            let disk = &state.disks[position];
            state.powered && (disk.fenced || disk.keeps_silent(request))
        };
        let mut state = self.state.lock();
        if waits(&state) {
            if request.is_patient || !(is_overdue || state.disks[position].fenced) {
                return false;
            }
            drop(state);
            let is_given_up = self.may_give_up(request.slot, failed);
            state = self.state.lock();
            if waits(&state) {
                if is_given_up {
                    state.give_up(request);
                    self.changed.notify_all();
                }
                return is_given_up;
            }
        }
        if state.powered {
            state.count_unsynced();
            state.serve(request);
        } else {
            request.fail(&path_of(position), DeviceErrorKind::PowerLost, None);
        }
        true
    }

    /// Lets one of the writes that were given up reach the disk, which keeps silent as before; false
    /// where there is none.
    pub fn let_land(&self, slot: DiskSlot) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.disks[usize::from(slot.0)].land_one(&mut state.random)
    }

    /// Waits for a disk that keeps silent, until it answers or is given up.
    #[cold]
    fn wait_for(&self, batch: &mut [Request<'_>], index: usize) {
        let started = Instant::now();
        let deadline = self.state.lock().deadline;
        let failed = failures_of(batch);
        while !self.ask_again(&mut batch[index], started.elapsed() >= deadline, &failed) {
            let mut state = self.state.lock();
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
        }
    }

    fn may_give_up(&self, slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        if self.with_disk(slot, |disk| disk.fenced) {
            return true;
        }
        let judge = self.judge.read().as_ref().and_then(Weak::upgrade);
        judge.is_none_or(|judge| judge.may_give_up(slot, failed))
    }

    /// Flips `count` random bits of the range, silently.
    ///
    /// # Panics
    /// Where the range is empty or beyond the disk.
    pub fn flip_bits(&self, slot: DiskSlot, range: Range<u64>, count: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let disk = &mut state.disks[usize::from(slot.0)];
        assert!(
            range.start < range.end && range.end <= disk.size_bytes,
            "bits to flip lie on the disk"
        );
        for _ in 0..count {
            let byte = range.start + state.random.below(range.end - range.start);
            let bit = state.random.below(8);
            let within = index_of(byte % PAGE_BYTES as u64);
            disk.corrupt_page(byte / PAGE_BYTES as u64, |bytes| bytes[within] ^= 1 << bit);
        }
    }

    /// Puts these bytes on the disk, silently and durably, at any offset.
    ///
    /// # Panics
    /// Where they lie beyond the disk's end.
    pub fn overwrite(&self, slot: DiskSlot, offset_bytes: u64, bytes: &[u8]) {
        self.with_disk(slot, |disk| {
            assert!(
                offset_bytes + bytes.len() as u64 <= disk.size_bytes,
                "bytes to put lie on the disk"
            );
            let mut position = 0;
            while position < bytes.len() {
                let at = offset_bytes + position as u64;
                let within = index_of(at % PAGE_BYTES as u64);
                let length = (PAGE_BYTES - within).min(bytes.len() - position);
                let piece = &bytes[position..position + length];
                disk.corrupt_page(at / PAGE_BYTES as u64, |page| {
                    page[within..within + length].copy_from_slice(piece);
                });
                position += length;
            }
        });
    }

    /// What a read would see now, with power and the disk there or not, at any offset.
    ///
    /// # Panics
    /// Where the range goes beyond the disk's end.
    #[must_use]
    pub fn bytes(&self, slot: DiskSlot, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
        self.copy_out(slot, offset_bytes, length_bytes, SimulatedDisk::read)
    }

    /// What a power cut now leaves if it loses every unsynced write.
    ///
    /// # Panics
    /// Where the range goes beyond the disk's end.
    #[must_use]
    pub fn durable_bytes(&self, slot: DiskSlot, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
        self.copy_out(
            slot,
            offset_bytes,
            length_bytes,
            SimulatedDisk::read_durable,
        )
    }

    /// How many writes of the disk no flush has covered yet.
    #[must_use]
    pub fn unsynced_count(&self, slot: DiskSlot) -> usize {
        self.with_disk(slot, |disk| disk.unsynced_count())
    }

    /// What the disks have been asked so far.
    #[must_use]
    pub fn counts(&self) -> SimulatedCounts {
        self.state.lock().counts
    }

    /// How many disks there are.
    #[must_use]
    pub fn disk_count(&self) -> usize {
        self.state.lock().disks.len()
    }

    fn with_disk<T>(&self, slot: DiskSlot, action: impl FnOnce(&mut SimulatedDisk) -> T) -> T {
        action(&mut self.state.lock().disks[usize::from(slot.0)])
    }

    fn copy_out(
        &self,
        slot: DiskSlot,
        offset_bytes: u64,
        length_bytes: usize,
        read: impl Fn(&SimulatedDisk, u64, &mut [u8]),
    ) -> Vec<u8> {
        let page_bytes = PAGE_BYTES as u64;
        let start = offset_bytes - offset_bytes % page_bytes;
        let end = (offset_bytes + length_bytes as u64).next_multiple_of(page_bytes);
        let mut memory = vec![0; index_of(end - start)];
        self.with_disk(slot, |disk| {
            assert!(end <= disk.size_bytes, "bytes to look at lie on the disk");
            read(disk, start, &mut memory);
        });
        let skipped = index_of(offset_bytes - start);
        memory.drain(..skipped);
        memory.truncate(length_bytes);
        memory
    }
}

impl State {
    /// Runs a batch; the places of the requests that a disk keeps silent about.
    fn run(&mut self, batch: &mut [Request<'_>]) -> Vec<usize> {
        let mut unanswered = Vec::new();
        if !self.powered {
            for request in batch {
                request.fail(
                    &path_of(request.slot.0.into()),
                    DeviceErrorKind::PowerLost,
                    None,
                );
            }
            return unanswered;
        }
        self.count_unsynced();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..batch.len());
        self.random.shuffle(&mut order);
        let mut power_lost = false;
        for &index in &order {
            let request = &mut batch[index];
            if !power_lost {
                self.counts.requests += 1;
                power_lost = self.fails_at_request == Some(self.counts.requests);
            }
            if power_lost {
                self.interrupt(request);
            } else if self.disks[usize::from(request.slot.0)].keeps_silent(request) {
                unanswered.push(index);
            } else {
                self.serve(request);
            }
        }
        self.order = order;
        if power_lost {
            self.crash();
        }
        unanswered
    }

    fn count_unsynced(&mut self) {
        self.unsynced_before.clear();
        let counts = self.disks.iter().map(SimulatedDisk::unsynced_count);
        self.unsynced_before.extend(counts);
    }

    /// Nobody waits for it any more; where it is a write, it reaches the disk some day.
    fn give_up(&mut self, request: &mut Request<'_>) {
        let position = usize::from(request.slot.0);
        let disk = &mut self.disks[position];
        disk.fenced = true;
        if let Some(bytes) = request.work.written() {
            disk.late.push(LateWrite {
                offset_bytes: request.offset_bytes,
                bytes: bytes.to_vec(),
            });
        }
        request.fail(&path_of(position), DeviceErrorKind::TimedOut, None);
    }

    /// A request that the power cut met: it may or may not have reached its disk.
    fn interrupt(&mut self, request: &mut Request<'_>) {
        let position = usize::from(request.slot.0);
        let disk = &mut self.disks[position];
        let reaches = !disk.vanished && request.is_within(disk.size_bytes);
        if let Some(bytes) = request.work.written()
            && reaches
            && !bytes.is_empty()
            && self.random.chance(1, 2)
        {
            disk.write(request.offset_bytes, bytes);
        }
        request.fail(&path_of(position), DeviceErrorKind::PowerLost, None);
    }

    fn serve(&mut self, request: &mut Request<'_>) {
        match request.work.operation() {
            Operation::Read => self.counts.reads += 1,
            Operation::Write | Operation::WriteDurable => self.counts.writes += 1,
            Operation::Flush => self.counts.flushes += 1,
        }
        let position = usize::from(request.slot.0);
        if let Some(left) = &mut self.disks[position].vanishes_after {
            *left -= 1;
            if *left == 0 {
                self.vanish(position);
            }
        }
        let disk = &mut self.disks[position];
        if disk.vanished {
            return request.fail(&path_of(position), DeviceErrorKind::Gone, Some(GONE_ERRNO));
        }
        if !request.is_within(disk.size_bytes) {
            // As a plain file that was cut off while it was open answers.
            let kind = match request.is_within(disk.largest_bytes) {
                true => DeviceErrorKind::Gone,
                false => DeviceErrorKind::Misaligned,
            };
            return request.fail(&path_of(position), kind, None);
        }
        if disk.fenced {
            return request.fail(&path_of(position), DeviceErrorKind::TimedOut, None);
        }
        let length_bytes = request.length_bytes() as u64;
        if length_bytes == 0 && !matches!(request.work, Work::Flush) {
            request.result = Ok(());
            return;
        }
        let range = request.offset_bytes..request.offset_bytes + length_bytes;
        let dropped = disk.drop_at_flush(&request.work).then(|| {
            self.unsynced_before[position] = 0;
            DeviceErrorKind::Medium
        });
        if let Some(kind) = dropped.or_else(|| disk.take_fault(&request.work, &range)) {
            if let Some(bytes) = request.work.written() {
                disk.write_in_part(request.offset_bytes, bytes, &mut self.random);
            }
            if let Some(memory) = request.work.filled() {
                fill_with_rubbish(memory, &mut self.random);
            }
            let errno = (kind == DeviceErrorKind::Medium).then_some(MEDIUM_ERRNO);
            return request.fail(&path_of(position), kind, errno);
        }
        match &mut request.work {
            Work::Read(memory) => disk.read(request.offset_bytes, memory),
            Work::ReadPart(part) => disk.read(request.offset_bytes, part.bytes()),
            Work::Write(bytes) => disk.write(request.offset_bytes, bytes),
            Work::WritePart(part) => disk.write(request.offset_bytes, part.bytes()),
            Work::WriteDurable(bytes) => disk.write_durable(request.offset_bytes, bytes),
            Work::Flush => {
                let covered = std::mem::take(&mut self.unsynced_before[position]);
                disk.flush(covered);
            }
        }
        request.result = Ok(());
    }

    fn vanish(&mut self, position: usize) {
        let disk = &mut self.disks[position];
        disk.vanishes_after = None;
        if !disk.vanished {
            disk.vanished = true;
            disk.lose_power(&mut self.random);
        }
    }

    fn crash(&mut self) {
        self.fails_at_request = None;
        if self.powered {
            self.powered = false;
            for disk in &mut self.disks {
                disk.lose_power(&mut self.random);
            }
        }
    }
}

fn fill_with_rubbish(memory: &mut [u8], random: &mut SeededRandom) {
    for piece in memory.chunks_mut(8) {
        let bits = random.next_u64().to_le_bytes();
        piece.copy_from_slice(&bits[..piece.len()]);
    }
}

fn path_of(position: usize) -> String {
    format!("simulated-{position}")
}

impl Disks for SimulatedDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        let unanswered = self.begin(batch);
        for index in unanswered {
            self.wait_for(batch, index);
        }
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        Some(self.with_disk(slot, |disk| disk.appearance))
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.with_disk(slot, |disk| disk.fenced)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        *self.judge.write() = Some(judge);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.with_disk(slot, |disk| disk.size_bytes)
    }

    fn path(&self, slot: DiskSlot) -> String {
        path_of(slot.0.into())
    }

    /// Nothing is ever under way between two calls; a small number that changes from request to
    /// request stands in, so that every copy gets its turn to be read.
    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        let requests = self.state.lock().counts.requests;
        let mut mixed = SeededRandom::new(requests << 16 | u64::from(slot.0));
        u32::try_from(mixed.below(4)).expect("below four")
    }
}
