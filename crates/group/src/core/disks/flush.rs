//! Which writes of each disk a flush has covered, so that nothing is flushed twice and callers
//! share one flush.
//!
//! Every answered write gets the next number of its disk, and belongs to the incarnation of the
//! disk in which it went out. A flush covers the numbers of its own incarnation that were given
//! out before it began. Whoever needs a number covered waits for a flush that began late enough,
//! or starts one; flushes of several disks go out in one batch.
//!
//! A flush that failed stands until it was told to everybody whom it concerns, see
//! `quorum/failed_flushes.rs`: until then none of its disk counts, neither one that began before it
//! failed nor one that the disk would answer well now. It does not concern an incarnation that began
//! with it: flushes of that count at once.
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
use crate::quorum::Failures;

/// The disks, as flushes see them.
pub trait Flushed {
    /// The disk as it is now.
    fn life(&self, disk: DiskNumber) -> Option<Life>;

    /// The slot of a disk that serves.
    fn online_slot(&self, disk: DiskNumber) -> Option<DiskSlot>;

    /// Runs a batch.
    fn run(&self, batch: &mut [Request<'_>]);

    /// How many flushes of the disk failed, whoever asked for them. Cheap.
    fn failures(&self, disk: DiskNumber) -> Failures;

    /// What the disk answered to the newest flush that it failed.
    fn newest_failure(&self, disk: DiskNumber) -> DeviceError;

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
    /// The failed flushes of the disk until then.
    failures_count: u64,
}

/// A flush that failed, and is to be told.
#[derive(Debug, Clone)]
pub struct FailedFlush {
    pub life: Life,
    /// The failed flushes of the disk until then: whoever tells this one has told all of them.
    pub failures_count: u64,
    pub error: DeviceError,
}

/// A failed flush as it is seen under the lock; without an error it is the newest of the disk.
type Found = (Life, u64, Option<DeviceError>);

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
    /// Its disk went away, or failed a flush and serves on, before a flush had covered it.
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

    /// Returns when flushes cover all targets that are not lost; the disks whose flush failed, or
    /// has and was not told yet. Returns at once where nothing is left.
    pub fn cover(&self, table: &impl Flushed, targets: &[Target]) -> Vec<FailedFlush> {
        let mut failed: Vec<FailedFlush> = Vec::new();
        loop {
            let mut claimed: SmallVec<[Claim; 8]> = SmallVec::new();
            let mut found: Vec<Found> = Vec::new();
            let mut must_wait = false;
            let mut state = self.state.lock();
            for &Target { life, number } in targets {
                let flush = state.entry(life).or_default();
                if flush.flushed >= number || failed.iter().any(|flush| flush.life == life) {
                    continue;
                }
                // First: what has failed by now is of this life or of one before, and never of the
                // next one, which would forget it.
                let failures = table.failures(life.disk);
                let slot = table.online_slot(life.disk);
                let Some(slot) = slot.filter(|_| table.is_current(life)) else {
                    continue;
                };
                // The disk may answer the next one well, without what it dropped.
                if failures.stand_against(life.incarnation)
                    && !is_put_back(Fault::FailedFlushForgotten)
                {
                    found.push((life, failures.count, None));
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
                    failures_count: failures.count,
                });
            }
            if claimed.is_empty() && found.is_empty() {
                if !must_wait {
                    return failed;
                }
                state.wait(&self.done);
                continue;
            }
            drop(state);
            if !claimed.is_empty() {
                self.run(table, &claimed, &mut found);
            }
            let told = |(life, failures_count, error): Found| FailedFlush {
                life,
                failures_count,
                error: error.unwrap_or_else(|| table.newest_failure(life.disk)),
            };
            failed.extend(found.into_iter().map(told));
        }
    }

    /// An incarnation has ended: whoever waits for a flush of it need not.
    pub fn wake(&self) {
        // Under the lock: whoever has looked and does not wait yet would sleep on.
        let _state = self.state.lock();
        self.done.notify_all();
    }

    /// What a flush that failed should have covered is not covered: the next sync or commit flushes
    /// again when the failure was told, because marks that become durable over data that did not
    /// would show what an earlier file left.
    fn run(&self, table: &impl Flushed, claimed: &[Claim], found: &mut Vec<Found>) {
        let mut batch: SmallVec<[Request<'_>; 8]> = claimed
            .iter()
            .map(|claim| Request::new(claim.slot, 0, Work::Flush))
            .collect();
        table.run(&mut batch);
        let mut state = self.state.lock();
        for (claim, request) in claimed.iter().zip(batch) {
            let life = claim.life;
            let flush = state.entry(life).or_default();
            flush.running = None;
            let failures = table.failures(life.disk);
            // Where its disk went meanwhile, nobody knows what it covered.
            if !table.is_current(life) {
                continue;
            }
            match request.result {
                Ok(()) if failures.count == claim.failures_count => {
                    flush.flushed = flush.flushed.max(claim.through);
                }
                // Where another one failed meanwhile, nobody knows either.
                answer => found.push((life, failures.count, answer.err())),
            }
        }
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests;
