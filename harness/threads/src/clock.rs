//! The time of a run.
//!
//! Mostly it only counts: whoever wants it later makes it later. Where disks may hang it is simulated:
//! it passes only where nobody can do anything but wait for it, and so an operation takes as long as
//! it waited. Work takes no time at all.
//!
//! A thread that the scheduler holds up could go on, and is no reason to wait. Yet time may pass
//! over it, as it does over a thread that the kernel does not schedule; what passes so is held
//! against nobody ([`Clock::waited_ms`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shuttle::scheduler::TaskId;

#[derive(Debug, Default)]
struct State {
    now_ms: u64,
    /// What of it passed while somebody was held up.
    held_ms: u64,
    /// Until when the thread at work waits from its next point on.
    begins: Option<u64>,
    waiting: BTreeMap<usize, u64>,
}

/// See the module. No call but [`Clock::wait_until`] and [`Clock::sleep`] has a point in it.
#[derive(Debug)]
pub struct Clock {
    is_simulated: bool,
    state: Mutex<State>,
}

impl Clock {
    /// One that stands at the beginning.
    #[must_use]
    pub fn new(is_simulated: bool) -> Self {
        let state = State {
            now_ms: 1_000_000,
            ..State::default()
        };
        Self {
            is_simulated,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether time passes by itself.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// What it shows.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.state().now_ms
    }

    /// What it shows, the time left out that passed over somebody who was held up.
    #[must_use]
    pub fn waited_ms(&self) -> u64 {
        let state = self.state();
        state.now_ms - state.held_ms
    }

    /// The time when so much has passed, which the current thread waits for where time passes by
    /// itself.
    pub fn later_ms(&self, by_ms: u64) -> u64 {
        if self.is_simulated {
            self.sleep(by_ms);
            return self.now_ms();
        }
        let mut state = self.state();
        state.now_ms += by_ms;
        state.now_ms
    }

    /// Waits so long.
    pub fn sleep(&self, by_ms: u64) {
        let until_ms = self.now_ms() + by_ms;
        while self.now_ms() < until_ms {
            self.wait_until(until_ms);
        }
    }

    /// Waits until then, or until it is woken.
    pub fn wait_until(&self, until_ms: u64) {
        assert!(self.is_simulated, "nobody would end the wait");
        self.state().begins = Some(until_ms);
        spindle_sync::point();
    }

    /// What others wait for may have come: all look again.
    pub fn wake(&self) {
        self.state().waiting.clear();
    }

    /// For the scheduler: this thread came to a point.
    pub fn came_to_point(&self, task: TaskId) {
        let mut state = self.state();
        if let Some(until_ms) = state.begins.take() {
            state.waiting.insert(task.into(), until_ms);
        }
    }

    /// For the scheduler: whether this thread waits for time.
    pub fn is_waiting(&self, task: TaskId) -> bool {
        self.state().waiting.contains_key(&task.into())
    }

    /// For the scheduler: time passes until the first one that waits for it need not any more.
    pub fn pass(&self, is_somebody_held: bool) {
        let mut state = self.state();
        let Some(until_ms) = state.waiting.values().min().copied() else {
            return;
        };
        let passed_ms = until_ms.saturating_sub(state.now_ms);
        state.now_ms += passed_ms;
        if is_somebody_held {
            state.held_ms += passed_ms;
        }
        let now_ms = state.now_ms;
        state.waiting.retain(|_, until_ms| *until_ms > now_ms);
    }
}
