//! Which writes of each disk a flush has covered, so that nothing is flushed twice and callers
//! share one flush.
//!
//! Every answered write gets the next number of its disk. A flush covers the numbers given out
//! before it began. Whoever needs a number covered waits for a flush that began late enough, or
//! starts one; flushes of several disks go out in one batch.

use spindle_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

use smallvec::SmallVec;
use spindle_base::DiskNumber;
use spindle_device::{DeviceError, DiskSlot, Request, Work};
use spindle_sync::{Condvar, Mutex};

use super::DiskTable;
use crate::by_number::ByNumber;

#[derive(Debug, Default, Clone)]
struct DiskFlush {
    flushed: u64,
    /// What the flush under way will cover.
    running: Option<u64>,
    /// The failure of the newest flush, with what it should have covered.
    failed: Option<(u64, DeviceError)>,
}

/// The flush state of all disks; a disk is in it from its first write on.
#[derive(Debug, Default)]
pub struct Flushes {
    written: ByNumber<AtomicU64>,
    state: Mutex<BTreeMap<DiskNumber, DiskFlush>>,
    done: Condvar,
}

/// A flush that one caller runs for all.
#[derive(Debug, Clone, Copy)]
struct Claim {
    disk: DiskNumber,
    slot: DiskSlot,
    /// What it will cover.
    through: u64,
}

/// A disk, and the number of a write on it.
pub type Target = (DiskNumber, u64);

impl Flushes {
    /// Numbers a write that was answered.
    pub fn note_written(&self, disk: DiskNumber) -> u64 {
        let written = self.written.get_or_put(disk.0, || AtomicU64::new(0));
        written.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Everything written so far.
    pub fn all_written(&self) -> SmallVec<[Target; 8]> {
        (self.written.iter())
            .map(|(disk, written)| (DiskNumber(disk), written.load(Ordering::Acquire)))
            .collect()
    }

    /// Whether that write is covered.
    pub fn is_flushed(&self, (disk, number): Target) -> bool {
        let state = self.state.lock();
        state.get(&disk).map_or(0, |flush| flush.flushed) >= number
    }

    /// Returns when flushes cover all targets on online disks; the disks whose flush failed.
    /// Targets on offline disks are passed over. Returns at once where nothing is left.
    pub fn cover(&self, table: &DiskTable, targets: &[Target]) -> Vec<(DiskNumber, DeviceError)> {
        let mut failed: Vec<(DiskNumber, DeviceError)> = Vec::new();
        loop {
            let mut claimed: SmallVec<[Claim; 8]> = SmallVec::new();
            let mut must_wait = false;
            let mut state = self.state.lock();
            for &(disk, number) in targets {
                let flush = state.entry(disk).or_default();
                if flush.flushed >= number || failed.iter().any(|(gone, _)| *gone == disk) {
                    continue;
                }
                if let Some((through, error)) = &flush.failed
                    && *through >= number
                {
                    failed.push((disk, error.clone()));
                    continue;
                }
                let Some(slot) = table.get(disk).and_then(super::DiskState::online_slot) else {
                    continue;
                };
                if flush.running.is_some() {
                    must_wait = true;
                    continue;
                }
                let written = self.written.get(disk.0);
                let through = written.map_or(number, |written| written.load(Ordering::Acquire));
                flush.running = Some(through);
                claimed.push(Claim {
                    disk,
                    slot,
                    through,
                });
            }
            if !claimed.is_empty() {
                drop(state);
                self.run(table, &claimed);
            } else if must_wait {
                self.done.wait(&mut state);
            } else {
                return failed;
            }
        }
    }

    /// The disk comes back: what it had not flushed when it went counts as missed, which is known
    /// elsewhere, so nobody waits for it any more. False where a flush from before is under way.
    pub fn restart(&self, disk: DiskNumber) -> bool {
        let mut state = self.state.lock();
        let flush = state.entry(disk).or_default();
        if flush.running.is_some() {
            return false;
        }
        flush.failed = None;
        let written = self.written.get(disk.0);
        flush.flushed = written.map_or(0, |written| written.load(Ordering::Acquire));
        true
    }

    /// The failure of the disk's flush was told to everybody whom it concerns. What it should
    /// have covered is not covered: the next sync or commit flushes again, because marks that
    /// become durable over data that did not would show what an earlier file left.
    pub fn told(&self, disk: DiskNumber) {
        if let Some(flush) = self.state.lock().get_mut(&disk) {
            flush.failed = None;
        }
    }

    fn run(&self, table: &DiskTable, claimed: &[Claim]) {
        let mut batch: SmallVec<[Request<'_>; 8]> = claimed
            .iter()
            .map(|claim| Request::new(claim.slot, 0, Work::Flush))
            .collect();
        table.run(&mut batch);
        let mut state = self.state.lock();
        for (claim, request) in claimed.iter().zip(batch) {
            let flush = state.entry(claim.disk).or_default();
            flush.running = None;
            match request.result {
                Ok(()) => flush.flushed = flush.flushed.max(claim.through),
                // A disk that once failed a flush may have dropped what it held: the failure
                // stands for all that it should have covered.
                Err(error) => flush.failed = Some((claim.through, error)),
            }
        }
        self.done.notify_all();
    }
}
