//! Which writes of each disk a flush has covered, so that nothing is flushed twice and callers
//! share one flush.
//!
//! Every answered write gets the next number of its disk. A flush covers the numbers given out
//! before it began. Whoever needs a number covered waits for a flush that began late enough, or
//! starts one; flushes of several disks go out in one batch.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use spindle_base::DiskNumber;
use spindle_device::{DeviceError, Request, Work};

use super::DiskTable;

#[derive(Debug, Default, Clone)]
struct DiskFlush {
    flushed: u64,
    /// What the flush under way will cover.
    running: Option<u64>,
    /// The failure of the newest flush, with what it should have covered.
    failed: Option<(u64, DeviceError)>,
}

/// The flush state of all disks.
#[derive(Debug)]
pub struct Flushes {
    written: Vec<AtomicU64>,
    state: Mutex<Vec<DiskFlush>>,
    done: Condvar,
}

/// A disk, and the number of a write on it.
pub type Target = (DiskNumber, u64);

impl Flushes {
    pub fn new(disks_count: usize) -> Self {
        Self {
            written: (0..disks_count).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(vec![DiskFlush::default(); disks_count]),
            done: Condvar::new(),
        }
    }

    /// Numbers a write that was answered.
    pub fn note_written(&self, disk: DiskNumber) -> u64 {
        self.written[usize::from(disk.0)].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Everything written so far.
    pub fn all_written(&self) -> SmallVec<[Target; 8]> {
        (0..)
            .map(DiskNumber)
            .zip(&self.written)
            .map(|(disk, written)| (disk, written.load(Ordering::Acquire)))
            .collect()
    }

    /// Whether that write is covered.
    pub fn is_flushed(&self, (disk, number): Target) -> bool {
        self.state.lock()[usize::from(disk.0)].flushed >= number
    }

    /// Returns when flushes cover all targets on online disks; the disks whose flush failed.
    /// Targets on offline disks are passed over. Returns at once where nothing is left.
    pub fn cover(&self, table: &DiskTable, targets: &[Target]) -> Vec<(DiskNumber, DeviceError)> {
        let mut failed: Vec<(DiskNumber, DeviceError)> = Vec::new();
        loop {
            let mut claimed: SmallVec<[(DiskNumber, u64); 8]> = SmallVec::new();
            let mut must_wait = false;
            let mut state = self.state.lock();
            for &(disk, number) in targets {
                let flush = &mut state[usize::from(disk.0)];
                if flush.flushed >= number || failed.iter().any(|(gone, _)| *gone == disk) {
                    continue;
                }
                if let Some((through, error)) = &flush.failed
                    && *through >= number
                {
                    failed.push((disk, error.clone()));
                    continue;
                }
                if !table.get(disk).is_some_and(super::DiskState::is_online) {
                    continue;
                }
                if flush.running.is_some() {
                    must_wait = true;
                    continue;
                }
                let through = self.written[usize::from(disk.0)].load(Ordering::Acquire);
                flush.running = Some(through);
                claimed.push((disk, through));
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

    /// The failure of the disk's flush was told to everybody whom it concerns. What it should
    /// have covered is not covered: the next sync or commit flushes again, because marks that
    /// become durable over data that did not would show what an earlier file left.
    pub fn told(&self, disk: DiskNumber) {
        self.state.lock()[usize::from(disk.0)].failed = None;
    }

    fn run(&self, table: &DiskTable, claimed: &[(DiskNumber, u64)]) {
        let mut batch: SmallVec<[Request<'_>; 8]> = claimed
            .iter()
            .filter_map(|(disk, _)| table.get(*disk)?.slot)
            .map(|slot| Request::new(slot, 0, Work::Flush))
            .collect();
        assert_eq!(batch.len(), claimed.len(), "an online disk is open");
        table.run(&mut batch);
        let mut state = self.state.lock();
        for ((disk, through), request) in claimed.iter().zip(batch) {
            let flush = &mut state[usize::from(disk.0)];
            flush.running = None;
            match request.result {
                Ok(()) => flush.flushed = flush.flushed.max(*through),
                // A disk that once failed a flush may have dropped what it held: the failure
                // stands for all that it should have covered.
                Err(error) => flush.failed = Some((*through, error)),
            }
        }
        self.done.notify_all();
    }
}
