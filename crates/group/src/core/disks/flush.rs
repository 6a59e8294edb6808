//! Which writes of each disk a flush has covered, so that nothing is flushed twice and callers
//! share one flush.
//!
//! Every answered write gets the next number of its disk, and belongs to the incarnation of the
//! disk in which it went out. A flush covers the numbers of its own incarnation that were given
//! out before it began. Whoever needs a number covered waits for a flush that began late enough,
//! or starts one; flushes of several disks go out in one batch.
//!
//! What no flush had covered when its incarnation ended is lost on that disk, for ever: no later
//! flush covers it, and nobody waits for one. Whether it is anywhere else the caller must see.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use spindle_base::DiskNumber;
use spindle_device::{DeviceError, DiskSlot, Request, Work};
use spindle_sync::atomic::{AtomicU64, Ordering};
use spindle_sync::level::LeafMutex;
use spindle_sync::{Condvar, Fault, is_put_back};

use crate::by_number::ByNumber;
use crate::incarnation::Life;

/// The disks, as flushes see them.
pub trait Flushed {
    /// The disk as it is now.
    fn life(&self, disk: DiskNumber) -> Option<Life>;

    /// The slot of a disk that serves.
    fn online_slot(&self, disk: DiskNumber) -> Option<DiskSlot>;

    /// Runs a batch.
    fn run(&self, batch: &mut [Request<'_>]);

    /// Whether the disk still serves as it did then.
    fn is_current(&self, life: Life) -> bool {
        life.incarnation.serves() && self.life(life.disk) == Some(life)
    }
}

/// The flushes of one incarnation of a disk.
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
    /// Of every incarnation in which somebody asked for a flush: there are few.
    state: LeafMutex<BTreeMap<Life, DiskFlush>>,
    done: Condvar,
}

/// A flush that one caller runs for all.
#[derive(Debug, Clone, Copy)]
struct Claim {
    life: Life,
    slot: DiskSlot,
    /// What it will cover.
    through: u64,
}

/// The number of a write on a disk, and the incarnation in which it went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The disk as it was.
    pub life: Life,
    /// Which write.
    pub number: u64,
}

/// What became of a write on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A flush has covered it.
    Flushed,
    /// A flush may cover it yet.
    Waits,
    /// Its disk went away before a flush had covered it.
    Lost,
}

impl Flushes {
    /// Numbers what was answered just now.
    pub(crate) fn note_written(&self, life: Life) -> Target {
        let written = self.written.get_or_put(life.disk.0, || AtomicU64::new(0));
        let number = written.fetch_add(1, Ordering::AcqRel) + 1;
        Target { life, number }
    }

    /// An earlier process may have written to the disk what no flush has covered.
    pub fn assume_written(&self, life: Life) {
        self.note_written(life);
    }

    /// Everything written so far in this incarnation of the disk.
    pub fn newest(&self, life: Life) -> Target {
        let written = self.written.get(life.disk.0);
        Target {
            life,
            number: written.map_or(0, |written| written.load(Ordering::Acquire)),
        }
    }

    /// Everything written so far to disks that serve.
    pub fn all_written(&self, table: &impl Flushed) -> SmallVec<[Target; 8]> {
        (self.written.iter())
            .filter_map(|(disk, _)| table.life(DiskNumber(disk)))
            .map(|life| self.newest(life))
            .collect()
    }

    /// What became of that write.
    pub fn fate(&self, table: &impl Flushed, target: Target) -> Fate {
        let state = self.state.lock();
        if state.get(&target.life).map_or(0, |flush| flush.flushed) >= target.number {
            Fate::Flushed
        } else if table.is_current(target.life) {
            Fate::Waits
        } else if is_put_back(Fault::LostCountsAsFlushed) {
            Fate::Flushed
        } else {
            Fate::Lost
        }
    }

    /// Returns when flushes cover all targets that are not lost; the disks whose flush failed.
    /// Returns at once where nothing is left.
    pub fn cover(&self, table: &impl Flushed, targets: &[Target]) -> Vec<(Life, DeviceError)> {
        let mut failed: Vec<(Life, DeviceError)> = Vec::new();
        loop {
            let mut claimed: SmallVec<[Claim; 8]> = SmallVec::new();
            let mut must_wait = false;
            let mut state = self.state.lock();
            for &Target { life, number } in targets {
                let flush = state.entry(life).or_default();
                if flush.flushed >= number || failed.iter().any(|(gone, _)| *gone == life) {
                    continue;
                }
                let slot = table.online_slot(life.disk);
                let Some(slot) = slot.filter(|_| table.is_current(life)) else {
                    continue;
                };
                if let Some((through, error)) = &flush.failed
                    && *through >= number
                {
                    failed.push((life, error.clone()));
                    continue;
                }
                if flush.running.is_some() {
                    must_wait = true;
                    continue;
                }
                let through = self.newest(life).number.max(number);
                flush.running = Some(through);
                claimed.push(Claim {
                    life,
                    slot,
                    through,
                });
            }
            if !claimed.is_empty() {
                drop(state);
                self.run(table, &claimed);
            } else if must_wait {
                state.wait(&self.done);
            } else {
                return failed;
            }
        }
    }

    /// An incarnation has ended: whoever waits for a flush of it need not.
    pub fn wake(&self) {
        // Under the lock: whoever has looked and does not wait yet would sleep on.
        let _state = self.state.lock();
        self.done.notify_all();
    }

    /// The failure of the disk's flush was told to everybody whom it concerns. What it should
    /// have covered is not covered: the next sync or commit flushes again, because marks that
    /// become durable over data that did not would show what an earlier file left.
    pub fn told(&self, life: Life) {
        if let Some(flush) = self.state.lock().get_mut(&life) {
            flush.failed = None;
        }
    }

    fn run(&self, table: &impl Flushed, claimed: &[Claim]) {
        let mut batch: SmallVec<[Request<'_>; 8]> = claimed
            .iter()
            .map(|claim| Request::new(claim.slot, 0, Work::Flush))
            .collect();
        table.run(&mut batch);
        let mut state = self.state.lock();
        for (claim, request) in claimed.iter().zip(batch) {
            let is_current = table.is_current(claim.life);
            let flush = state.entry(claim.life).or_default();
            flush.running = None;
            match request.result {
                // Where its disk went meanwhile, nobody knows what it covered.
                Ok(()) if is_current => flush.flushed = flush.flushed.max(claim.through),
                Ok(()) => {}
                // A disk that once failed a flush may have dropped what it held: the failure
                // stands for all that it should have covered.
                Err(error) => flush.failed = Some((claim.through, error)),
            }
        }
        self.done.notify_all();
    }
}
