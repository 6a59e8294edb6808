//! Simulated disks at whose every request another thread may go on.
//!
//! A batch's requests are served one by one in an order that the seed draws, with a point before
//! each; so a power cut, a disk that goes and another thread's write come between any two of them.
//! Whoever asked a disk that keeps silent waits in the simulator's time, for as long as the engine
//! does: until the disk answers, or its time is up and the judge lets the disk be given up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spindle_device::{DiskSlot, Disks, Request, SeededRandom, SimulatedDisks, Work, failures_of};

use crate::clock::Clock;
use crate::faults::Faults;
use crate::history::History;
use crate::watch::Watch;

/// How long a disk may keep silent, as `io_deadline_s` of a daemon says.
pub const IO_DEADLINE_MS: u64 = 10_000;
/// How long whoever must wait on looks away.
const LOOK_INTERVAL_MS: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub struct PointDisks {
    inner: Arc<SimulatedDisks>,
    faults: Arc<Faults>,
    history: Arc<History>,
    watch: Arc<Watch>,
    clock: Arc<Clock>,
    /// Never held over a point.
    random: Mutex<SeededRandom>,
    /// Writes that were sent and are not served yet, where a kill may come between.
    sent: Option<Arc<SentWrites>>,
}

/// Writes that a process has sent and that are not answered: one that is killed does not say how
/// much of them its disks took. No call has a point in it.
#[derive(Debug, Default)]
pub struct SentWrites(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    next: u64,
    by_number: BTreeMap<u64, (DiskSlot, u64, Vec<u8>)>,
}

impl SentWrites {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that is sent, where it writes.
    fn begin(&self, request: &Request<'_>) -> Option<u64> {
        let bytes = request.work.written()?.to_vec();
        let mut sent = self.sent();
        let number = sent.next;
        sent.next += 1;
        let write = (request.slot, request.offset_bytes, bytes);
        sent.by_number.insert(number, write);
        Some(number)
    }

    fn end(&self, number: Option<u64>) {
        if let Some(number) = number {
            self.sent().by_number.remove(&number);
        }
    }

    /// Of each write that is not answered none, all or some of its sectors reach these disks; how
    /// many writes there are.
    pub fn land_in_part(&self, disks: &SimulatedDisks) -> usize {
        let sent = self.sent();
        for (slot, at, bytes) in sent.by_number.values() {
            disks.write_in_part(*slot, *at, bytes);
        }
        sent.by_number.len()
    }
}

impl PointDisks {
    /// Over these disks.
    #[must_use]
    pub fn new(
        inner: Arc<SimulatedDisks>,
        faults: Arc<Faults>,
        history: Arc<History>,
        watch: Arc<Watch>,
        clock: Arc<Clock>,
        seed: u64,
    ) -> Self {
        Self {
            inner,
            faults,
            history,
            watch,
            clock,
            random: Mutex::new(SeededRandom::new(!seed)),
            sent: None,
        }
    }

    /// What is sent and not answered is noted there.
    #[must_use]
    pub fn noting(self, sent: Arc<SentWrites>) -> Self {
        let sent = Some(sent);
        Self { sent, ..self }
    }
}

impl PointDisks {
    #[cold]
    fn wait_for(&self, batch: &mut [Request<'_>], mut silent: Vec<usize>) {
        let deadline_ms = self.clock.now_ms() + IO_DEADLINE_MS;
        loop {
            let now_ms = self.clock.now_ms();
            let before_count = silent.len();
            let failed = failures_of(batch);
            silent.retain(|index| {
                let request = &mut batch[*index];
                let is_overdue = now_ms >= deadline_ms;
                let is_answered = self.inner.ask_again(request, is_overdue, &failed);
                if is_answered {
                    self.note(request);
                }
                !is_answered
            });
            if silent.len() < before_count {
                // A disk that was given up is waited for by nobody.
                self.clock.wake();
            }
            if silent.is_empty() {
                return;
            }
            let until_ms = if now_ms < deadline_ms {
                deadline_ms
            } else {
                now_ms + LOOK_INTERVAL_MS
            };
            self.clock.wait_until(until_ms);
        }
    }

    fn note(&self, request: &Request<'_>) {
        if !matches!(request.work, Work::Flush) {
            // Disks have the numbers of their slots here.
            let (disk, at) = (request.slot.0, request.offset_bytes);
            self.watch.note(disk, at, request.length_bytes() as u64);
        }
        self.history.note(|| {
            let what = match request.work {
                Work::Read(_) | Work::ReadPart(_) => "read",
                Work::Write(_) | Work::WritePart(_) => "write",
                Work::WriteDurable(_) => "durable write",
                Work::Flush => "flush",
            };
            let length = request.length_bytes();
            let (slot, at) = (request.slot.0, request.offset_bytes);
            let answer = match &request.result {
                Ok(()) => String::new(),
                Err(error) => format!(": {:?}", error.kind),
            };
            format!("    {what} of {length} at {at} of slot {slot}{answer}")
        });
    }
}

impl Disks for PointDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        self.random
            .lock()
            .expect("never poisoned")
            .shuffle(&mut order);
        let mut silent = Vec::new();
        let sent = self.sent.as_deref();
        let mut numbers: Vec<Option<u64>> = batch
            .iter()
            .map(|request| sent.and_then(|sent| sent.begin(request)))
            .collect();
        for index in order {
            spindle_sync::point();
            // What is asked now is served, or met by a power cut, before anything else comes.
            if let Some(sent) = sent {
                sent.end(numbers[index].take());
            }
            let slot = batch[index].slot;
            let is_met = self.faults.begin(&self.inner, &batch[index]);
            let is_answered = self.inner.begin(&mut batch[index..=index]).is_empty();
            if is_met {
                self.faults.end(&self.inner, slot);
            }
            if is_answered {
                self.note(&batch[index]);
            } else {
                silent.push(index);
            }
        }
        if !silent.is_empty() {
            self.wait_for(batch, silent);
        }
        // The answer is on its way.
        spindle_sync::point();
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner.size_bytes(slot)
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

    fn set_judge(&self, judge: std::sync::Weak<dyn spindle_device::Judge>) {
        self.inner.set_judge(judge);
    }
}
