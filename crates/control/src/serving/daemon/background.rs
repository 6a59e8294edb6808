//! Lazy work, heartbeats and events of a served group, on one thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spindle_group::{Event, EventKind};
use tokio::sync::watch;

use super::Daemon;
use super::patience::Rounds;
use super::threads::{self, Worker};
use crate::api::error::{ControlError, ControlResult};
use crate::api::health;
use crate::api::view::HealthStatus;
use crate::machine::clock::now;
use crate::serving::write_limit::{WriteLimit, Written};

/// How often the group is asked whether there is something to do.
const STEP_INTERVAL: Duration = Duration::from_millis(200);
/// How often the mark that says who has the group is renewed.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How often labels, opener records and group states are read again: at a heartbeat.
const STRUCTURES_INTERVAL: Duration = Duration::from_secs(8);
/// How often the space is looked at.
const SPACE_INTERVAL: Duration = Duration::from_secs(10);
/// How often a sign of life is given.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the kernel is asked for files without a name that an earlier process left open.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread; it ends soon after `stopped` says so.
pub(super) fn start(
    daemon: Arc<Daemon>,
    rounds: Rounds,
    stopped: watch::Receiver<bool>,
) -> ControlResult<Worker> {
    threads::start("background", move || {
        // Seen by the server too, so that a panic here ends the process cleanly.
        let _guard = StopOnDrop(daemon.clone());
        work(&daemon, &rounds, &stopped);
    })
}

/// Ends the daemon in order when its thread ends, however that is.
pub(super) struct StopOnDrop(pub(super) Arc<Daemon>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.send_replace(true);
    }
}

/// Tells once when space becomes low, and again when it goes below zero.
#[derive(Debug, Default)]
struct SpaceWatch {
    looked: Option<Instant>,
    told: Option<HealthStatus>,
}

impl SpaceWatch {
    fn look(&mut self, daemon: &Daemon) {
        let since = self.looked.map(|looked| looked.elapsed());
        if since.is_some_and(|since| since < SPACE_INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        let report = daemon.report();
        // Disks come and go while the group is open.
        daemon.opened.note_disk_paths(&report.disks);
        daemon.note_space(&report);
        let finding = health::space_finding(&report);
        let status = finding.as_ref().map(|finding| finding.severity);
        if let Some(finding) = finding
            && status > self.told
        {
            let kind = match finding.severity {
                HealthStatus::Critical => EventKind::UsableNegative,
                _ => EventKind::SpaceLow,
            };
            daemon.tell(Event::new(
                kind,
                format!("{}; {}", finding.text, finding.advice),
            ));
        }
        self.told = status;
    }
}

/// Lets as much wait, in Spindle's memory and in the page cache of each mount, as the disks have shown
/// they can write.
fn follow_disks(daemon: &Daemon, limit: &mut WriteLimit) {
    let group = daemon.opened.group();
    let written: Vec<Written> = (group.open_disks().into_iter())
        .map(|(disk, slot)| {
            let counters = daemon.opened.engine().counters(slot);
            Written {
                disk,
                bytes: counters.written_bytes,
                time_us: counters.write_time_us,
            }
        })
        .collect();
    let memory = rustix::system::sysinfo();
    let memory_bytes = memory.totalram * u64::from(memory.mem_unit);
    let copies_count = group.redundancy().copies();
    let limit_bytes = limit.look(&written, copies_count, memory_bytes);
    daemon.mounts.limit_dirty_bytes(limit_bytes);
    (daemon.opened.file_system()).set_unwritten_most(limit_bytes);
}

fn work(daemon: &Daemon, rounds: &Rounds, stopped: &watch::Receiver<bool>) {
    let started = Instant::now();
    let mut heartbeat_at = started + HEARTBEAT_INTERVAL;
    let mut structures_at = started + HEARTBEAT_INTERVAL;
    let mut alive_at = started;
    let mut sweep_at = started;
    let mut told = String::new();
    let mut space = SpaceWatch::default();
    let mut write_limit = WriteLimit::default();
    while !*stopped.borrow() {
        rounds.fetch_add(1, Ordering::Relaxed);
        let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut outcome = daemon
            .opened
            .file_system()
            .step(now_ms)
            .map_err(ControlError::from);
        // At once: whoever sees that a disk has left may take it.
        daemon.opened.release_forgotten();
        if Instant::now() >= heartbeat_at {
            heartbeat_at = Instant::now() + HEARTBEAT_INTERVAL;
            let now_s = u64::try_from(now().seconds).unwrap_or(0);
            if let Err(error) = daemon.opened.group().heartbeat(now_s) {
                outcome = Err(error.into());
            }
            let far = Instant::now() >= structures_at;
            if far {
                structures_at = Instant::now() + STRUCTURES_INTERVAL;
            }
            if let Err(error) = daemon.look_after_disks(far) {
                outcome = Err(error);
            }
            if let Err(error) = daemon.scrub_on_schedule(now_s) {
                outcome = Err(error);
            }
            daemon.mounts.reap();
            // Clients of exports are served to their end, as they are where a command unmounts.
            let is_needed = daemon.exports.are_needed();
            if !daemon.stay && !is_needed && daemon.mounts.close_if_over() {
                let message = "the mount was removed from outside";
                daemon.tell(Event::new(EventKind::MountRemoved, message));
                return daemon.stop_in_order();
            }
        }
        space.look(daemon);
        if Instant::now() >= alive_at {
            alive_at = Instant::now() + ALIVE_INTERVAL;
            daemon.tell_alive();
            follow_disks(daemon, &mut write_limit);
        }
        // As soon as the mount is there: where processes die one after another, each of which lives
        // for less than the interval, what programs remove meanwhile would fill the group.
        if Instant::now() >= sweep_at && daemon.sweep_orphans() {
            sweep_at = Instant::now() + SWEEP_INTERVAL;
        }
        daemon.note_events();
        if let Err(error) = daemon.opened.engine().flush_record() {
            outcome = Err(ControlError::io("write", "the record of the disks", &error));
        }
        (daemon.background_fails).store(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(true) => continue,
            Ok(false) => told.clear(),
            // Told once, not five times a second while it lasts.
            Err(error) if error.message() != told => {
                let message = format!("background work failed: {error:#}");
                daemon.tell(Event::new(EventKind::BackgroundFailed, message));
                told = error.message();
            }
            Err(_) => {}
        }
        std::thread::sleep(STEP_INTERVAL);
    }
}
