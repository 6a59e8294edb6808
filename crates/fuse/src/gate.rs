//! Which workers listen for requests.
//!
//! The kernel wakes listeners in turn, the one that slept longest first. Were all workers to
//! listen, each request would find a worker with cold caches, and a busy machine would switch
//! between sixteen threads where two could go on working. So only as many listen as there are
//! processors; the others are parked, the last parked first to be called.
//!
//! A worker that takes a request while nobody else listens calls another where the request will
//! wait for disks: by its kind, or because recent reads and writes took long. While they take
//! long any number may listen: each worker that is called costs two switches between threads,
//! which took a quarter of PostgreSQL's rate where it reads from disks of 0.1 ms. What takes long
//! is a guess; where it is wrong (a disk that hangs), the watch finds that nobody has listened
//! for a while and calls one.
//!
//! **Invariant.** Every worker is listening, serving, or in the list of the parked.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::abi::Opcode;

/// Reads and writes that take longer than this on average wait for disks.
const WAITING_NS: u64 = 50_000;
/// A mean over about so many requests.
const MEAN_REQUESTS: u64 = 16;
/// How long requests may find no listener where the guess was wrong.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// How often requests under way are looked at while they come to their end.
const SUSPEND_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct State {
    listeners_count: usize,
    parked: Vec<usize>,
    received_count: u64,
    closed: bool,
    suspended: bool,
}

/// What one parked worker waits for.
#[derive(Debug, Default)]
struct Call {
    called: Mutex<bool>,
    changed: Condvar,
}

/// The gate of one mount.
#[derive(Debug)]
pub(crate) struct Gate {
    listeners_max: usize,
    state: Mutex<State>,
    calls: Vec<Call>,
    mean_ns: AtomicU64,
    closed: AtomicBool,
    ended: Condvar,
    serving_count: AtomicUsize,
}

impl Gate {
    pub(crate) fn new(workers_count: usize) -> Self {
        let processors = thread::available_parallelism().map_or(2, usize::from);
        Self {
            listeners_max: processors.max(2),
            state: Mutex::default(),
            calls: (0..workers_count).map(|_| Call::default()).collect(),
            mean_ns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: Condvar::new(),
            serving_count: AtomicUsize::new(0),
        }
    }

    /// Waits until `worker` may listen. False: the mount has ended.
    pub(crate) fn enter(&self, worker: usize) -> bool {
        {
            let mut state = self.state.lock();
            if state.closed {
                return false;
            }
            let listeners_max = if self.is_waiting() {
                self.calls.len()
            } else {
                self.listeners_max
            };
            if state.listeners_count < listeners_max {
                state.listeners_count += 1;
                return true;
            }
            state.parked.push(worker);
        }
        let call = &self.calls[worker];
        let mut called = call.called.lock();
        while !*called {
            call.changed.wait(&mut called);
        }
        *called = false;
        !self.closed.load(Ordering::Acquire)
    }

    /// A listener took a request. False where it must not be served any more; else
    /// [`Gate::finish`] follows.
    pub(crate) fn leave(&self, opcode: u32) -> bool {
        let waits = may_wait(opcode) || self.is_waiting();
        let next = {
            let mut state = self.state.lock();
            if state.suspended {
                return false;
            }
            self.serving_count.fetch_add(1, Ordering::Relaxed);
            state.listeners_count -= 1;
            state.received_count += 1;
            let alone = state.listeners_count == 0;
            (alone && waits).then(|| state.next()).flatten()
        };
        self.call(next);
        true
    }

    /// Recent reads and writes took so long that they waited for disks.
    fn is_waiting(&self) -> bool {
        self.mean_ns.load(Ordering::Relaxed) > WAITING_NS
    }

    /// The answer of a request that is being served waits: one more [`Gate::finish`] follows.
    pub(crate) fn serve_on(&self) {
        self.serving_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nobody takes a request any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A request has been served and answered.
    pub(crate) fn finish(&self) {
        self.serving_count.fetch_sub(1, Ordering::Release);
    }

    /// Nothing is served any more; waits until what is under way is answered.
    pub(crate) fn suspend(&self) {
        self.state.lock().suspended = true;
        self.close();
        while self.serving_count.load(Ordering::Acquire) > 0 {
            thread::sleep(SUSPEND_INTERVAL);
        }
    }

    /// How many requests have been received, and how many of them are being served.
    pub(crate) fn progress(&self) -> (u64, usize) {
        let received_count = self.state.lock().received_count;
        (received_count, self.serving_count.load(Ordering::Acquire))
    }

    /// Notes how long a request took.
    pub(crate) fn note_time(&self, opcode: u32, elapsed: Duration) {
        if opcode != Opcode::Read as u32 && opcode != Opcode::Write as u32 {
            return;
        }
        let took_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let mean_ns = self.mean_ns.load(Ordering::Relaxed);
        let moved_ns = mean_ns - mean_ns / MEAN_REQUESTS + took_ns / MEAN_REQUESTS;
        // Two workers may note at once; one of them is lost, which a mean can bear.
        self.mean_ns.store(moved_ns, Ordering::Relaxed);
    }

    /// The mount has ended: nobody listens any more.
    pub(crate) fn close(&self) {
        let parked = {
            let mut state = self.state.lock();
            state.closed = true;
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut state.parked)
        };
        self.ended.notify_all();
        for worker in parked {
            self.call(Some(worker));
        }
    }

    /// Calls a worker whenever nobody listened, and nothing was received, for a while. Returns
    /// when the mount has ended.
    pub(crate) fn watch(&self) {
        let mut seen_count = None;
        let mut state = self.state.lock();
        while !state.closed {
            self.ended.wait_for(&mut state, WATCH_INTERVAL);
            if state.listeners_count > 0 {
                seen_count = None;
                continue;
            }
            if seen_count == Some(state.received_count) {
                self.call(state.next());
            }
            seen_count = Some(state.received_count);
        }
    }

    fn call(&self, worker: Option<usize>) {
        if let Some(worker) = worker {
            let call = &self.calls[worker];
            *call.called.lock() = true;
            call.changed.notify_one();
        }
    }
}

impl State {
    /// Makes the worker that was parked last a listener.
    fn next(&mut self) -> Option<usize> {
        let worker = self.parked.pop()?;
        self.listeners_count += 1;
        Some(worker)
    }
}

/// Requests that wait for disks by their nature.
const fn may_wait(opcode: u32) -> bool {
    matches!(
        Opcode::from_number(opcode),
        Some(
            Opcode::Fsync
                | Opcode::FsyncDirectory
                | Opcode::SyncFs
                | Opcode::Allocate
                | Opcode::CopyRange
                | Opcode::CopyRange64
                | Opcode::SetAttributes
        )
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    /// Workers beyond those that may listen, each telling when it is let in.
    fn park(gate: &Arc<Gate>, workers: std::ops::Range<usize>) -> mpsc::Receiver<(usize, bool)> {
        let (sender, receiver) = mpsc::channel();
        for worker in workers {
            let (gate, sender) = (Arc::clone(gate), sender.clone());
            let parked_before = gate.state.lock().parked.len();
            thread::spawn({
                let gate = Arc::clone(&gate);
                move || {
                    let entered = gate.enter(worker);
                    sender.send((worker, entered)).unwrap();
                }
            });
            while gate.state.lock().parked.len() == parked_before {
                thread::yield_now();
            }
        }
        receiver
    }

    fn full_gate() -> (Arc<Gate>, usize) {
        let gate = Arc::new(Gate::new(64));
        let listeners = gate.listeners_max;
        for worker in 0..listeners {
            assert!(gate.enter(worker));
        }
        (gate, listeners)
    }

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_suspended_gate_lets_what_is_under_way_end_and_nothing_begin() {
        let (gate, _) = full_gate();
        assert!(gate.leave(Opcode::Read as u32));
        let suspended = thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.suspend()
        });
        while gate.leave(Opcode::Read as u32) {
            gate.finish();
            if !gate.enter(0) {
                break;
            }
        }
        assert!(!suspended.is_finished());
        gate.finish();
        suspended.join().unwrap();
        assert!(!gate.enter(0));
    }

    #[test]
    fn the_last_listener_calls_the_last_parked_for_a_request_that_waits_only() {
        let (gate, listeners) = full_gate();
        let entered = park(&gate, listeners..listeners + 2);
        for _ in 0..listeners {
            assert!(gate.leave(Opcode::Read as u32));
        }
        assert!(entered.recv_timeout(SHORT).is_err());
        assert!(gate.enter(0));
        assert!(gate.leave(Opcode::Fsync as u32));
        assert_eq!(entered.recv_timeout(LONG).unwrap(), (listeners + 1, true));
        gate.close();
        assert_eq!(entered.recv_timeout(LONG).unwrap(), (listeners, false));
        assert!(!gate.enter(0));
    }

    #[test]
    fn slow_disks_keep_a_listener_there_and_let_every_worker_listen() {
        let (gate, listeners) = full_gate();
        let entered = park(&gate, listeners..listeners + 1);
        for _ in 0..100 {
            gate.note_time(Opcode::Read as u32, Duration::from_millis(5));
        }
        for _ in 0..listeners {
            assert!(gate.leave(Opcode::Read as u32));
        }
        assert_eq!(entered.recv_timeout(LONG).unwrap(), (listeners, true));
        for worker in 0..listeners {
            assert!(gate.enter(worker));
        }
    }

    #[test]
    fn a_disk_that_hangs_unexpectedly_does_not_leave_the_mount_without_a_listener() {
        let (gate, listeners) = full_gate();
        let entered = park(&gate, listeners..listeners + 1);
        let watch = thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.watch()
        });
        for _ in 0..listeners {
            assert!(gate.leave(Opcode::Read as u32));
        }
        assert_eq!(entered.recv_timeout(LONG).unwrap(), (listeners, true));
        gate.close();
        watch.join().unwrap();
    }
}
