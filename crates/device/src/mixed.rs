//! Disks of this machine beside disks that are reached by a protocol of our own.
//!
//! A batch goes to all of them at once: what a remote disk is to do is sent first, then the engine
//! runs what is for the machine's own disks, and then the remote answers are waited for. So the local
//! and the remote piece of one mirrored write wait together.
//!
//! Whoever waits for one disk of a batch takes what the remote ones have answered meanwhile, without
//! waiting for them: now and then, and before the [`Judge`] is asked. So it and whoever listens hear
//! of a failure however long another disk keeps silent, and no copy is given up for one that has failed.
//!
//! A remote disk that does not answer in time is given up as a local one is: where the [`Judge`] allows
//! it, its slot is fenced for good. Its memory needs no keeping: a [`RemoteDisk`] holds copies.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::counters::{DiskCounters, LiveCounters, Outcome};
use crate::engine::Engine;
use crate::open::{OpenDisk, OpenError, OpenErrorKind};
use crate::request::{DeviceErrorKind, DiskSlot, Operation, Request, Work, failures_of};
use crate::rest_of_batch::RestOfBatch;
use crate::table::DISK_SLOTS_MAX;
use crate::{Disks, Judge};

#[cfg(test)]
mod tests;

/// The most remote disks that one process can have opened, one beside or after the other.
pub const REMOTE_SLOTS_MAX: usize = 1024;
/// Above every slot that is given.
pub(crate) const SLOTS_END: usize = DISK_SLOTS_MAX + REMOTE_SLOTS_MAX;

/// How often the other disks are looked at while one is waited for, and how often the judge is asked
/// again about one that may not be given up.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What a remote disk gave for a request that it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemoteJob(pub u64);

/// Why a remote disk did not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFailure {
    /// What it means.
    pub kind: DeviceErrorKind,
    /// The nearest number of the kernel's, where there is one.
    pub errno: Option<i32>,
}

/// A disk that is reached by a protocol of our own. Dropping it ends what is under way there, or makes
/// sure that nothing of it lands after what a later opening writes.
pub trait RemoteDisk: Send + Sync + std::fmt::Debug {
    /// What a person calls it.
    fn path(&self) -> String;

    /// Its size in bytes, whole blocks, as last measured.
    fn size_bytes(&self) -> u64;

    /// Looks again how large it is.
    ///
    /// # Errors
    /// Where it does not tell.
    fn measure(&self) -> std::io::Result<u64>;

    /// As [`Disks::appearance`].
    fn appearance(&self) -> Option<u64>;

    /// Sends the request, and waits for nothing. What is to be written is copied.
    fn begin(&self, request: &Request<'_>) -> RemoteJob;

    /// Waits for the answer, fills the memory of a read, and gives the answer; `None` where there is
    /// none by `until`, which may be over: then it waits for nothing. Each job is asked about until it
    /// has its answer.
    fn wait(
        &self,
        job: RemoteJob,
        request: &mut Request<'_>,
        until: Instant,
    ) -> Option<Result<(), RemoteFailure>>;

    /// Lets go of it in order: nobody asks it anything any more, and the next one may have it at once.
    fn release(&self);

    /// Nobody waits for it any more: what is under way is answered [`DeviceErrorKind::TimedOut`], and
    /// nothing is sent from now on.
    fn give_up(&self);
}

#[derive(Debug)]
struct Remote {
    disk: Arc<dyn RemoteDisk>,
    counters: LiveCounters,
    is_fenced: AtomicBool,
}

/// Disks of the machine, and remote ones. Slots from [`DISK_SLOTS_MAX`] on are remote.
#[derive(Debug)]
pub struct MixedDisks {
    local: Engine,
    deadline: Duration,
    remotes: Box<[OnceLock<Box<Remote>>]>,
    remotes_count: AtomicUsize,
    attaching: Mutex<()>,
    judge: RwLock<Option<Weak<dyn Judge>>>,
}

impl MixedDisks {
    /// No remote disk yet; one that has not answered for `deadline` may be given up.
    #[must_use]
    pub fn new(local: Engine, deadline: Duration) -> Self {
        Self {
            local,
            deadline,
            remotes: (0..REMOTE_SLOTS_MAX).map(|_| OnceLock::new()).collect(),
            remotes_count: AtomicUsize::new(0),
            attaching: Mutex::new(()),
            judge: RwLock::new(None),
        }
    }

    /// As [`Engine::try_attach`].
    ///
    /// # Errors
    /// [`OpenErrorKind::NoSlot`].
    pub fn try_attach(&self, disk: OpenDisk) -> Result<DiskSlot, OpenError> {
        self.local.try_attach(disk)
    }

    /// Takes over a remote disk.
    ///
    /// # Errors
    /// [`OpenErrorKind::NoSlot`].
    pub fn try_attach_remote(&self, disk: Arc<dyn RemoteDisk>) -> Result<DiskSlot, OpenError> {
        let _one = self.attaching.lock();
        let at = self.remotes_count.load(Ordering::Acquire);
        let Some(place) = self.remotes.get(at) else {
            return Err(OpenError {
                path: disk.path(),
                kind: OpenErrorKind::NoSlot,
                source: None,
            });
        };
        let remote = Remote {
            disk,
            counters: LiveCounters::new(),
            is_fenced: AtomicBool::new(false),
        };
        assert!(place.set(Box::new(remote)).is_ok(), "a slot is filled once");
        self.remotes_count.store(at + 1, Ordering::Release);
        Ok(DiskSlot(
            u16::try_from(DISK_SLOTS_MAX + at).expect("fewer than 65,536 slots"),
        ))
    }

    /// Lets go of a disk; requests to its slot fail from now on.
    ///
    /// # Errors
    /// As [`Engine::release`].
    pub fn release(&self, slot: DiskSlot) -> std::io::Result<()> {
        match self.remote(slot) {
            None => self.local.release(slot),
            Some(remote) => {
                remote.is_fenced.store(true, Ordering::Release);
                remote.disk.release();
                Ok(())
            }
        }
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn counters(&self, slot: DiskSlot) -> DiskCounters {
        match self.remote(slot) {
            None => self.local.counters(slot),
            Some(remote) => remote.counters.snapshot(),
        }
    }

    fn remote(&self, slot: DiskSlot) -> Option<&Remote> {
        let at = usize::from(slot.0).checked_sub(DISK_SLOTS_MAX)?;
        let remote = self.remotes.get(at).and_then(OnceLock::get);
        Some(remote.expect("slots are used only where they were given"))
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        self.judge.read().as_ref().and_then(Weak::upgrade)
    }

    fn may_give_up(&self, slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        (self.judge()).is_none_or(|judge| judge.may_give_up(slot, failed))
    }

    fn run_mixed(&self, batch: &mut [Request<'_>]) {
        let begun = Instant::now();
        let jobs = batch.iter_mut().map(|request| self.begin(request));
        let mut jobs: Vec<Option<RemoteJob>> = jobs.collect();
        self.run_local(batch, &mut jobs, begun);
        for index in 0..batch.len() {
            self.end(batch, &mut jobs, index, begun);
        }
    }

    /// What is for the machine's own disks, as one batch, which looks at the remote ones meanwhile.
    fn run_local(&self, batch: &mut [Request<'_>], jobs: &mut [Option<RemoteJob>], begun: Instant) {
        let mut places = Vec::with_capacity(batch.len());
        let mut local = Vec::with_capacity(batch.len());
        for (place, request) in batch.iter_mut().enumerate() {
            if self.remote(request.slot).is_none() {
                // The caller's memory moves over for the run and comes back with the answer.
                let mut empty = Request::new(request.slot, 0, Work::Flush);
                empty.is_patient = request.is_patient;
                local.push(std::mem::replace(request, empty));
                places.push(place);
            }
        }
        if local.is_empty() {
            return;
        }
        let mut look = || self.take_answers(batch, jobs, begun);
        (self.local).run_beside(&mut local, &mut RestOfBatch::seen_by(&mut look));
        for (place, request) in places.into_iter().zip(local) {
            batch[place] = request;
        }
    }

    /// Sends a request to a remote disk; `None` for the others, and for one that is answered already.
    fn begin(&self, request: &mut Request<'_>) -> Option<RemoteJob> {
        let remote = self.remote(request.slot)?;
        request.result = Ok(());
        let refusal = if remote.is_fenced.load(Ordering::Acquire) {
            Some(DeviceErrorKind::TimedOut)
        } else if request.is_within(remote.disk.size_bytes()) {
            None
        } else {
            Some(DeviceErrorKind::Misaligned)
        };
        if let Some(kind) = refusal {
            request.fail(&remote.disk.path(), kind, None);
            request.tell_failure();
            return None;
        }
        remote.counters.begin();
        Some(remote.disk.begin(request))
    }

    /// Waits until a remote disk has answered, or was given up.
    fn end(
        &self,
        batch: &mut [Request<'_>],
        jobs: &mut [Option<RemoteJob>],
        index: usize,
        begun: Instant,
    ) {
        // What came while another disk was waited for is there to be taken.
        let mut until = (begun + self.deadline).max(Instant::now() + LOOK_INTERVAL);
        while jobs[index].is_some() {
            let look_at = until.min(Instant::now() + LOOK_INTERVAL);
            self.take_answer(&mut batch[index], &mut jobs[index], begun, look_at);
            if jobs[index].is_none() {
                return;
            }
            let failed = self.take_answers(batch, jobs, begun);
            // Its own answer may have come in this moment.
            if jobs[index].is_none() || Instant::now() < until {
                continue;
            }
            let request = &batch[index];
            let slot = request.slot;
            let remote = self.remote(slot).expect("it was sent there");
            // Whoever is patient has nobody else to ask.
            if !request.is_patient
                && (remote.is_fenced.load(Ordering::Acquire) || self.may_give_up(slot, &failed))
            {
                if remote.fence() {
                    let disk = remote.disk.path();
                    tracing::error!(
                        disk,
                        "the disk hangs: it has not answered in time and is sent nothing more"
                    );
                }
                continue;
            }
            until = Instant::now() + LOOK_INTERVAL;
        }
    }

    /// Takes what remote disks have answered, and waits for nothing; what has failed there until now.
    fn take_answers(
        &self,
        batch: &mut [Request<'_>],
        jobs: &mut [Option<RemoteJob>],
        begun: Instant,
    ) -> Vec<(DiskSlot, DeviceErrorKind)> {
        let now = Instant::now();
        for (request, job) in batch.iter_mut().zip(jobs) {
            self.take_answer(request, job, begun, now);
        }
        failures_of(batch)
    }

    /// Takes the answer to a job where it comes by `until`; the job is over then.
    fn take_answer(
        &self,
        request: &mut Request<'_>,
        job: &mut Option<RemoteJob>,
        begun: Instant,
        until: Instant,
    ) {
        let Some(sent) = *job else {
            return;
        };
        let remote = self.remote(request.slot).expect("it was sent there");
        let Some(answer) = remote.disk.wait(sent, request, until) else {
            return;
        };
        *job = None;
        let outcome = match (&answer, request.work.operation()) {
            (Err(_), _) => Outcome::Failed,
            (Ok(()), Operation::Read) => Outcome::Read,
            (Ok(()), Operation::Write | Operation::WriteDurable) => Outcome::Written,
            (Ok(()), Operation::Flush) => Outcome::Flushed,
        };
        let bytes = request.length_bytes() as u64;
        (remote.counters).end(outcome, bytes, begun.elapsed().into());
        if let Err(failure) = answer {
            if failure.kind == DeviceErrorKind::Gone
                && let Some(judge) = self.judge()
            {
                judge.has_gone(request.slot);
            }
            request.fail(&remote.disk.path(), failure.kind, failure.errno);
            request.tell_failure();
        }
    }
}

impl Remote {
    /// Sends it nothing more; whether it was sent something until now.
    fn fence(&self) -> bool {
        let is_first = !self.is_fenced.swap(true, Ordering::AcqRel);
        self.disk.give_up();
        is_first
    }
}

impl Disks for MixedDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        let is_mixed = self.remotes_count.load(Ordering::Acquire) > 0
            && (batch.iter()).any(|request| usize::from(request.slot.0) >= DISK_SLOTS_MAX);
        if is_mixed {
            self.run_mixed(batch);
        } else {
            self.local.run(batch);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        match self.remote(slot) {
            None => self.local.size_bytes(slot),
            Some(remote) => remote.disk.size_bytes(),
        }
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        match self.remote(slot) {
            None => self.local.measure(slot),
            Some(remote) => remote.disk.measure(),
        }
    }

    fn path(&self, slot: DiskSlot) -> String {
        match self.remote(slot) {
            None => self.local.path(slot),
            Some(remote) => remote.disk.path(),
        }
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        match self.remote(slot) {
            None => self.local.in_flight_count(slot),
            Some(remote) => remote.counters.in_flight(),
        }
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        match self.remote(slot) {
            None => self.local.appearance(slot),
            Some(remote) => remote.disk.appearance(),
        }
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        match self.remote(slot) {
            None => self.local.is_fenced(slot),
            Some(remote) => remote.is_fenced.load(Ordering::Acquire),
        }
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        *self.judge.write() = Some(judge.clone());
        self.local.set_judge(judge);
    }
}
