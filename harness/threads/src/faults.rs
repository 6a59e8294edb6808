//! What disks that serve on answer badly: a flush, a durable write.
//!
//! A fault is set for one request, as it is about to be served, and taken back when it was: so it
//! says of which kind of request it is, which the simulated disks do not tell apart.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spindle_device::{DiskSlot, Request, SimulatedDisks, Work};

use crate::history::History;

/// Flushes that fail.
#[derive(Debug, Clone, Copy)]
pub struct FailedFlushes {
    pub slot: DiskSlot,
    pub count: u32,
    /// Durable writes too, which are a write and a flush.
    pub with_durable_writes: bool,
    /// The disk drops what no flush had covered, and answers the next one well. Else it keeps it.
    pub drops: bool,
    /// What the disk drops may be nowhere else, of mirrored files too.
    pub is_second_failure: bool,
}

#[derive(Debug, Default)]
struct State {
    flushes: Vec<FailedFlushes>,
}

/// See the module. No call has a point in it.
#[derive(Debug)]
pub struct Faults {
    history: Arc<History>,
    state: Mutex<State>,
}

impl Faults {
    /// None yet.
    #[must_use]
    pub fn new(history: Arc<History>) -> Self {
        Self {
            history,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next flushes of the disk fail.
    pub fn fail_flushes(&self, flushes: FailedFlushes) {
        self.history.note(|| format!("{flushes:?} will fail"));
        self.state().flushes.push(flushes);
    }

    /// What has not come of them does not come.
    pub fn spare_flushes(&self, slot: DiskSlot) {
        self.state().flushes.retain(|other| other.slot != slot);
    }

    /// Sets what this request meets; whether it meets anything.
    pub fn begin(&self, disks: &SimulatedDisks, request: &Request<'_>) -> bool {
        let mut state = self.state();
        let flush = match request.work {
            Work::Flush => state.flush_of(request.slot, false),
            Work::WriteDurable(_) => state.flush_of(request.slot, true),
            Work::Read(_) | Work::ReadPart(_) | Work::Write(_) | Work::WritePart(_) => None,
        };
        let Some(flush) = flush else {
            return false;
        };
        drop(state);
        self.history.drop_by_disk();
        if flush.is_second_failure {
            self.history.second_failure();
        }
        match (flush.drops, &request.work) {
            (true, _) => disks.drop_at_flushes(request.slot, 1),
            (false, Work::Flush) => disks.fail_flushes(request.slot, 1),
            (false, _) => disks.fail_writes(request.slot, 0..u64::MAX, 1),
        }
        true
    }

    /// The request was served.
    pub fn end(&self, disks: &SimulatedDisks, slot: DiskSlot) {
        disks.clear_faults(slot);
    }
}

impl State {
    fn flush_of(&mut self, slot: DiskSlot, is_durable_write: bool) -> Option<FailedFlushes> {
        let meets = |flush: &FailedFlushes| {
            flush.slot == slot && (flush.with_durable_writes || !is_durable_write)
        };
        let position = self.flushes.iter().position(meets)?;
        let flush = &mut self.flushes[position];
        let met = *flush;
        flush.count -= 1;
        if flush.count == 0 {
            self.flushes.remove(position);
        }
        Some(met)
    }
}
