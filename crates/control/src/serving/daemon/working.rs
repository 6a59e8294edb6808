//! The threads that do the units of background work: resync, restore, rebalance, scrub.
//!
//! One thread is always there and asks now and then whether there is something to do; while
//! there is, it has as many workers beside it as the power asks for. A worker rests between
//! units in proportion to the time that its unit took, as the group says, so that at low power
//! the database has the disks nearly for itself however slow they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spindle_group::{Event, EventKind, Power};
use tokio::sync::watch;

use super::Daemon;
use super::threads::{self, Worker};
use crate::api::calls::Rebalance;
use crate::api::error::{ControlError, ControlResult};
use crate::api::operations::{OperationReport, OperationsReport};

/// A rest is cut into pieces so that a change of power is felt.
const REST_MOST: Duration = Duration::from_millis(200);
/// How long a worker waits whose unit failed.
const FAILED_INTERVAL: Duration = Duration::from_secs(1);
/// How often a worker looks again while others have all that can be done.
const TURN_INTERVAL: Duration = Duration::from_millis(2);
/// So often in a row, and then it ends: nothing is left, or a plan is being made.
const IDLE_TURNS_MOST: u32 = 100;

impl Daemon {
    /// What runs and what waits.
    pub(crate) fn operations(&self) -> OperationsReport {
        let group = self.opened.group();
        let name = self.group_name();
        OperationsReport {
            group: name.to_owned(),
            default_power: group.default_power().number(),
            operations: (group.operations().into_iter())
                .map(|view| OperationReport::new(name, view))
                .collect(),
        }
    }

    /// Asks for a rebalance, or changes the power of the one that runs, or the group's own.
    ///
    /// # Errors
    /// Where the power is out of range, or the wish cannot be made durable.
    pub(crate) fn rebalance(&self, asked: &Rebalance) -> ControlResult<OperationsReport> {
        let power = asked.power.map(Power::new).transpose()?;
        let group = self.opened.group();
        match (power, asked.default) {
            (Some(power), true) => group.set_power(power)?,
            (None, true) => {
                return Err(ControlError::invalid(
                    "the group's own power needs a number: give --power 0 to 1024",
                ));
            }
            (Some(power), false) => group.rebalance_at(power)?,
            (None, false) => group.rebalance()?,
        }
        Ok(self.operations())
    }
}

/// Starts the threads; they end soon after `stopped` says so.
pub(super) fn start(daemon: Arc<Daemon>, stopped: watch::Receiver<bool>) -> ControlResult<Worker> {
    threads::start("rebalance", move || lead(&daemon, &stopped))
}

fn lead(daemon: &Daemon, stopped: &watch::Receiver<bool>) {
    let clock = Instant::now();
    let group = daemon.opened.group();
    while !*stopped.borrow() {
        let wanted = group.workers_wanted();
        let has_work = wanted.count > 0 && work(daemon, clock, stopped);
        if !has_work {
            rest(
                Duration::from_millis(u64::from(wanted.idle_ms)),
                stopped,
                &|| true,
            );
            continue;
        }
        let is_wanted = || !*stopped.borrow() && group.workers_wanted() == wanted;
        std::thread::scope(|scope| {
            for _ in 1..wanted.count {
                scope.spawn(|| follow(daemon, clock, stopped, &is_wanted));
            }
            follow(daemon, clock, stopped, &is_wanted);
        });
    }
}

/// Does units as long as there are some and the power stays.
fn follow(
    daemon: &Daemon,
    clock: Instant,
    stopped: &watch::Receiver<bool>,
    is_wanted: &(dyn Fn() -> bool + Sync),
) {
    let mut idle_turns = 0;
    while is_wanted() && idle_turns < IDLE_TURNS_MOST {
        if work(daemon, clock, stopped) {
            idle_turns = 0;
        } else {
            idle_turns += 1;
            std::thread::sleep(TURN_INTERVAL);
        }
    }
}

/// One unit and the rest after it; whether there was one.
fn work(daemon: &Daemon, clock: Instant, stopped: &watch::Receiver<bool>) -> bool {
    let began = Instant::now();
    let now_ms = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
    let group = daemon.opened.group();
    match group.work(now_ms) {
        Ok(worked) => {
            let power = group.power();
            let pause = began.elapsed() * worked.pause_percent / 100;
            rest(pause, stopped, &|| group.power() == power);
            worked.did_something
        }
        Err(error) => {
            let message = format!("background work failed: {error:#}");
            daemon.tell(Event::new(EventKind::BackgroundFailed, message));
            std::thread::sleep(FAILED_INTERVAL);
            false
        }
    }
}

/// Whatever else ends a rest, the end of the process does: a unit that waited for a disk that hangs
/// has a rest of many minutes behind it, and nobody closes the group before.
fn rest(mut left: Duration, stopped: &watch::Receiver<bool>, goes_on: &dyn Fn() -> bool) {
    while !left.is_zero() && !*stopped.borrow() && goes_on() {
        let piece = left.min(REST_MOST);
        std::thread::sleep(piece);
        left -= piece;
    }
}

#[cfg(test)]
mod tests {
    use super::rest;
    use std::time::{Duration, Instant};
    use tokio::sync::watch;

    #[test]
    fn no_rest_is_longer_than_the_process_goes_on() {
        let (stop, stopped) = watch::channel(false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| rest(Duration::from_secs(100), &stopped, &|| true));
            std::thread::sleep(Duration::from_millis(300));
            stop.send_replace(true);
        });
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
