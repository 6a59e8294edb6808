//! One file on a server as a disk of the engine's: many threads use it at once.
//!
//! There is no thread that reads for the others. Whoever waits for an answer waits at the sockets,
//! one thread at a time, and hands on what comes for others; the others sleep until they have their
//! answer, or until the one at the sockets has its own and somebody else has to go there. So a thread
//! alone needs no switch but the kernel's, and no more than one is at the sockets.
//!
//! While nobody waits a thread of the disk's looks twice a second whether the lease is to be kept.
//!
//! Whoever looks how large many disks are, one after the other, is not kept by each disk of a server
//! that keeps silent: a look that has no answer counts for those that come after it, and where nobody
//! looks for a while, as when another disk keeps them all, the disk's thread begins a look.
//!
//! Every write is durable on the server before it is answered (`FILE_SYNC`): no server can forget it.
//!
//! A disk that is given up drops its connections, and what they held goes nowhere; what the server has
//! of it already is ended by the next opening, which is another client of the same owner.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use spindle_device::{DeviceErrorKind, RemoteDisk, RemoteFailure, RemoteJob, Request};

use crate::client::{JobId, Outcome, Settings, Work};
use crate::disk::{NfsDisk, PathAddress, Waits};
use crate::status::{ErrorKind, NfsError};

/// How often it is looked whether the lease is to be kept, where nobody waits.
const LEASE_INTERVAL: Duration = Duration::from_millis(500);
/// How long a measurement, or the end of the hold on the file, may take.
const SHORT_MOST: Duration = Duration::from_secs(2);
/// So long after the last look the disk's thread begins one. Heartbeats look more often: it does so
/// where they are held up, and where there are none.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Whoever waits decides how long, not the client.
const NO_DEADLINE_MS: u64 = u64::MAX >> 1;
/// A job that a disk without connections was to do.
const NO_JOB: JobId = JobId(u64::MAX);
/// What the engine's blocks are.
const BLOCK_BYTES: u64 = 4096;

/// A file on an NFS server as a disk.
#[derive(Debug)]
pub struct SharedDisk {
    path: String,
    size_bytes: AtomicU64,
    state: Mutex<State>,
    /// Held by whoever waits for a look.
    looks: Mutex<Looks>,
    /// Wakes whoever is at the sockets.
    wake: OwnedFd,
}

#[derive(Debug)]
struct State {
    /// None when it was given up.
    disk: Option<NfsDisk>,
    /// What its opener holds for as long as nobody else may have the disk.
    held: Vec<OwnedFd>,
    /// What the thread at the sockets waits for.
    led: Option<Waits>,
    /// Who sleeps until a job has its answer.
    sleepers: Vec<(JobId, Thread)>,
}

/// The looks how large the file is: one at a time.
#[derive(Debug)]
struct Looks {
    /// The one that has no answer yet, or whose answer nobody has taken.
    owed: Option<JobId>,
    /// When the last one began.
    begun: Instant,
}

impl State {
    fn has_answer(&self, id: JobId) -> bool {
        (self.disk.as_ref()).is_none_or(|disk| disk.has_answer(id))
    }

    /// Wakes those who have their answer.
    fn wake_answered(&self) {
        let answered = self.sleepers.iter().filter(|(id, _)| self.has_answer(*id));
        answered.for_each(|(_, thread)| thread.unpark());
    }

    /// Whoever was at the sockets goes: somebody else has to, where one waits.
    fn hand_over(&self) {
        let mut waiting = self.sleepers.iter().filter(|(id, _)| !self.has_answer(*id));
        if self.led.is_none()
            && let Some((_, thread)) = waiting.next()
        {
            thread.unpark();
        }
    }
}

impl SharedDisk {
    /// Opens the file that the settings name; the server is waited for until `deadline`. `held` is
    /// closed when the disk is closed or given up.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    ///
    /// # Panics
    /// As [`NfsDisk::open`].
    pub fn open(
        path: String,
        settings: Settings,
        addresses: Vec<PathAddress>,
        held: Vec<OwnedFd>,
        deadline: Duration,
    ) -> Result<Arc<Self>, NfsError> {
        let no_resources = || NfsError::new("OPEN", ErrorKind::NoResources);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(|_| no_resources())?;
        let mut disk = NfsDisk::open(settings, addresses, deadline)?;
        let size_bytes = disk.size_bytes()?;
        let shared = Arc::new(Self {
            path,
            size_bytes: AtomicU64::new(size_bytes - size_bytes % BLOCK_BYTES),
            state: Mutex::new(State {
                disk: Some(disk),
                held,
                led: None,
                sleepers: Vec::new(),
            }),
            looks: Mutex::new(Looks {
                owed: None,
                begun: Instant::now(),
            }),
            wake,
        });
        let kept = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("nfs-lease".to_owned())
            .spawn(move || keep_lease(&kept))
            .map_err(|_| no_resources())?;
        Ok(shared)
    }

    /// Sets the size of the file, which the server may take so long for.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub fn set_size(&self, size_bytes: u64, most: Duration) -> Result<(), NfsError> {
        self.ask(Work::SetSize(size_bytes), most)?;
        self.size_bytes
            .store(size_bytes - size_bytes % BLOCK_BYTES, Ordering::Relaxed);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, work: Work) -> JobId {
        let mut state = self.state();
        let Some(disk) = &mut state.disk else {
            return NO_JOB;
        };
        let id = disk.begin(work, NO_DEADLINE_MS);
        let waits = disk.waits(u64::MAX);
        if state.led.as_ref().is_some_and(|led| led.misses(&waits)) {
            // Where it is full it wakes as well.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        id
    }

    /// The answer to a job; `None` where there is none by `until`.
    fn answer(&self, id: JobId, until: Instant) -> Option<Result<Outcome, NfsError>> {
        let given_up = NfsError::new("the request", ErrorKind::TimedOut);
        let mut state = self.state();
        loop {
            let is_led = state.led.is_some();
            let Some(disk) = &mut state.disk else {
                return Some(Err(given_up));
            };
            let answer = disk.take_answer(id);
            let now = Instant::now();
            if answer.is_some() || now >= until {
                state.hand_over();
                return answer;
            }
            if is_led {
                state.sleepers.push((id, std::thread::current()));
                drop(state);
                std::thread::park_timeout(until - now);
                state = self.state();
                state.sleepers.retain(|(other, _)| *other != id);
                continue;
            }
            let until_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX >> 1);
            let waits = disk.waits(disk.now_ms().saturating_add(until_ms));
            state = self.lead(state, waits);
        }
    }

    /// Waits at the sockets, and does what follows.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>, waits: Waits) -> MutexGuard<'a, State> {
        let again = waits.clone();
        state.led = Some(waits);
        drop(state);
        let ready = again.poll(Some(self.wake.as_fd()));
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        let mut state = self.state();
        state.led = None;
        if let Some(disk) = &mut state.disk {
            disk.go_on(ready);
            for event in disk.take_events() {
                tracing::warn!(disk = self.path, ?event, "of the disk's server");
            }
            if disk.has_ended() {
                // Nothing is sent any more, and whoever opens the disk anew may have it.
                state.held.clear();
            }
        }
        state.wake_answered();
        state
    }

    /// Begins a look.
    fn look(&self, looks: &mut Looks) {
        looks.begun = Instant::now();
        looks.owed = Some(self.submit(Work::Size));
    }

    /// The answer to the look that is owed; at once where the time for one is over.
    fn looked(&self, looks: &mut Looks) -> Result<Outcome, NfsError> {
        let until = looks.begun + SHORT_MOST;
        if until <= Instant::now() {
            // The answer may lie at the sockets, where nobody was for a moment.
            self.go_on();
        }
        let answer = looks.owed.and_then(|id| self.answer(id, until));
        let Some(answer) = answer else {
            return Err(NfsError::new(Work::Size.operation(), ErrorKind::TimedOut));
        };
        looks.owed = None;
        answer
    }

    /// Does what can be done without waiting, unless somebody is at the sockets and does; false where
    /// the disk was given up.
    fn go_on(&self) -> bool {
        let state = self.state();
        if state.led.is_some() {
            return true;
        }
        let Some(open) = &state.disk else {
            return false;
        };
        let waits = open.waits(open.now_ms());
        self.lead(state, waits).hand_over();
        true
    }

    /// Begins a look where nobody has for long.
    fn look_if_due(&self) {
        // Somebody looks just now.
        let Ok(mut looks) = self.looks.try_lock() else {
            return;
        };
        if looks.begun.elapsed() < LOOK_INTERVAL {
            return;
        }
        if let Some(id) = looks.owed {
            let mut state = self.state();
            let answer = (state.disk.as_mut()).and_then(|disk| disk.take_answer(id));
            drop(state);
            if answer.is_none() {
                return;
            }
        }
        self.look(&mut looks);
    }

    /// Asks for something that is not the engine's.
    fn ask(&self, work: Work, most: Duration) -> Result<Outcome, NfsError> {
        let asked = work.operation();
        let id = self.submit(work);
        let answer = self.answer(id, Instant::now() + most);
        answer.unwrap_or_else(|| Err(NfsError::new(asked, ErrorKind::TimedOut)))
    }
}

/// Keeps the lease of a disk for as long as there is one.
fn keep_lease(kept: &Weak<SharedDisk>) {
    loop {
        std::thread::sleep(LEASE_INTERVAL);
        let Some(disk) = kept.upgrade() else {
            return;
        };
        if !disk.go_on() {
            return;
        }
        disk.look_if_due();
    }
}

impl Drop for SharedDisk {
    fn drop(&mut self) {
        self.release();
    }
}

impl RemoteDisk for SharedDisk {
    fn path(&self) -> String {
        self.path.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn measure(&self) -> io::Result<u64> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.owed.is_some() {
            // What it answers may be from before the caller came.
            self.looked(&mut looks).map_err(io::Error::other)?;
        }
        self.look(&mut looks);
        match self.looked(&mut looks) {
            Ok(Outcome::Size(size_bytes)) => {
                let size_bytes = size_bytes - size_bytes % BLOCK_BYTES;
                // As of a disk of the machine's: what lies behind an end that came nearer is answered
                // by the server.
                self.size_bytes.fetch_max(size_bytes, Ordering::Relaxed);
                Ok(size_bytes)
            }
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// No write waits in the server's memory: what came back has lost nothing.
    fn appearance(&self) -> Option<u64> {
        None
    }

    fn begin(&self, request: &Request<'_>) -> RemoteJob {
        let offset_bytes = request.offset_bytes;
        let work = match (request.work.written(), request.length_bytes()) {
            (Some(bytes), _) => Work::Write {
                offset_bytes,
                data: bytes.into(),
                is_durable: true,
            },
            (None, 0) => Work::Flush,
            (None, length) => Work::Read {
                offset_bytes,
                length_bytes: u32::try_from(length).expect("the engine's requests are below 4 GiB"),
            },
        };
        RemoteJob(self.submit(work).0)
    }

    fn wait(
        &self,
        job: RemoteJob,
        request: &mut Request<'_>,
        until: Instant,
    ) -> Option<Result<(), RemoteFailure>> {
        if until <= Instant::now() {
            // Who only looks takes what lies at the sockets.
            self.go_on();
        }
        let outcome = match self.answer(JobId(job.0), until)? {
            Ok(outcome) => outcome,
            Err(error) => return Some(Err(failure_of(&error))),
        };
        if let Outcome::Data(data) = outcome
            && let Some(memory) = request.work.filled()
        {
            memory.copy_from_slice(&data);
        }
        Some(Ok(()))
    }

    fn release(&self) {
        // The next host need not wait until the lease is over. A server that does not answer is not
        // waited for.
        let _ = self.ask(Work::Close, SHORT_MOST);
        self.give_up();
    }

    fn give_up(&self) {
        let mut state = self.state();
        // With it go its sockets, and what they hold.
        drop(state.disk.take());
        state.held.clear();
        state.wake_answered();
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// What a failure means to the engine.
fn failure_of(error: &NfsError) -> RemoteFailure {
    let (kind, errno) = match error.kind {
        ErrorKind::TimedOut => (DeviceErrorKind::TimedOut, Errno::TIMEDOUT),
        ErrorKind::NoSpace => (DeviceErrorKind::NoSpace, Errno::NOSPC),
        ErrorKind::Fenced | ErrorKind::InUse => (DeviceErrorKind::Fenced, Errno::BADE),
        ErrorKind::Io | ErrorKind::LostWrites => (DeviceErrorKind::Medium, Errno::IO),
        ErrorKind::Gone
        | ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::Access
        | ErrorKind::SessionLost
        | ErrorKind::Refused
        | ErrorKind::Violation
        | ErrorKind::NoResources
        | ErrorKind::Closed => (DeviceErrorKind::Gone, Errno::NODEV),
    };
    RemoteFailure {
        kind,
        errno: Some(errno.raw_os_error()),
    }
}
