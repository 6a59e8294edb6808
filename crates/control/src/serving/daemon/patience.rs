//! A sign of life for a daemon whose background work waits for a disk.
//!
//! The background gives the sign while it goes on. Where it waits for a disk that hangs and that
//! nobody can do without, it cannot, and whoever watches would kill the process for it. The next one
//! would wait for the same disk, and so would all the programs, which wait now. So the sign is given
//! here as long as the background stands still and a disk that the group still uses owes an answer.
//! A daemon that stands still for another reason gives none, and is ended. This thread asks counters
//! alone: nothing here waits for a disk or for a lock that anybody keeps while he does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spindle_device::DiskSlot;
use tokio::sync::watch;

use super::Daemon;
use super::threads::{self, Worker};
use crate::api::error::ControlResult;

/// How often it is asked whether the process is to end.
const STEP_INTERVAL: Duration = Duration::from_millis(200);
/// How often the background and the disks are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// So many looks without an answer, and a disk hangs: one that is only slow answers between them.
const SILENT_LOOKS_MIN: u32 = 10;

/// Counts the rounds of the background.
pub(super) type Rounds = Arc<AtomicU64>;

/// What is counted of a disk.
#[derive(Debug, Clone, Copy)]
struct Counted {
    slot: DiskSlot,
    in_flight_count: u32,
    answers_count: u64,
    /// The group goes on without it, whenever it answers.
    is_given_up: bool,
}

/// What was seen at the looks before.
#[derive(Debug, Default)]
struct Patience {
    rounds_count: u64,
    /// The answers of each disk, and how many looks it owes the next one.
    disks: BTreeMap<DiskSlot, (u64, u32)>,
}

impl Patience {
    /// Whether the background stands still for a disk that owes an answer.
    fn waits_for_disk(&mut self, rounds_count: u64, disks: &[Counted]) -> bool {
        let stands_still = std::mem::replace(&mut self.rounds_count, rounds_count) == rounds_count;
        let before = std::mem::take(&mut self.disks);
        for disk in disks {
            let looks_count = match before.get(&disk.slot) {
                Some((answers_count, looks_count))
                    if *answers_count == disk.answers_count
                        && disk.in_flight_count > 0
                        && !disk.is_given_up =>
                {
                    looks_count + 1
                }
                _ => 0,
            };
            self.disks
                .insert(disk.slot, (disk.answers_count, looks_count));
        }
        let hangs = |(_, looks_count): &(u64, u32)| *looks_count >= SILENT_LOOKS_MIN;
        stands_still && self.disks.values().any(hangs)
    }
}

/// Starts the thread; it ends soon after `stopped` says so.
pub(super) fn start(
    daemon: Arc<Daemon>,
    rounds: Rounds,
    stopped: watch::Receiver<bool>,
) -> ControlResult<Worker> {
    threads::start("patience", move || {
        let mut patience = Patience::default();
        let mut look_at = Instant::now();
        while !*stopped.borrow() {
            if Instant::now() >= look_at {
                look_at = Instant::now() + LOOK_INTERVAL;
                let rounds_count = rounds.load(Ordering::Relaxed);
                if patience.waits_for_disk(rounds_count, &daemon.counted()) {
                    daemon.tell_alive();
                }
            }
            std::thread::sleep(STEP_INTERVAL);
        }
    })
}

impl Daemon {
    fn counted(&self) -> Vec<Counted> {
        let engine = self.opened.engine();
        let disks = engine.disks();
        (self.opened.slots().iter())
            .map(|(slot, _)| {
                let counters = engine.disk_counters(*slot);
                Counted {
                    slot: *slot,
                    in_flight_count: counters.in_flight,
                    answers_count: counters.reads
                        + counters.writes
                        + counters.flushes
                        + counters.errors,
                    is_given_up: disks.is_fenced(*slot),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Patience, SILENT_LOOKS_MIN};
    use spindle_device::DiskSlot;

    const SILENT: Counted = Counted {
        slot: DiskSlot(0),
        in_flight_count: 1,
        answers_count: 7,
        is_given_up: false,
    };

    /// How many of a hundred looks of a background that stands still are signs of life.
    fn signs(disk: impl Fn(u64) -> Counted, rounds_count: impl Fn(u64) -> u64) -> usize {
        let mut patience = Patience::default();
        let other = Counted {
            slot: DiskSlot(1),
            in_flight_count: 0,
            ..SILENT
        };
        (1..=100)
            .filter(|look| patience.waits_for_disk(rounds_count(*look), &[disk(*look), other]))
            .count()
    }

    #[test]
    fn a_background_that_waits_for_a_disk_that_hangs_is_alive() {
        let waited = signs(|_| SILENT, |_| 3);
        assert_eq!(waited, 100 - SILENT_LOOKS_MIN as usize);
    }

    #[test]
    fn a_background_that_stands_still_for_another_reason_gives_no_sign() {
        let idle = |_| Counted {
            in_flight_count: 0,
            ..SILENT
        };
        assert_eq!(signs(idle, |_| 3), 0, "no disk owes anything");
        let busy = |look| Counted {
            answers_count: look,
            ..SILENT
        };
        assert_eq!(signs(busy, |_| 3), 0, "the disk answers others");
        let given_up = |_| Counted {
            is_given_up: true,
            ..SILENT
        };
        assert_eq!(signs(given_up, |_| 3), 0, "nobody waits for that one");
    }

    #[test]
    fn a_background_that_goes_on_gives_its_sign_itself() {
        assert_eq!(signs(|_| SILENT, |look| look), 0);
    }
}
