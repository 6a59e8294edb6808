//! The threads that write to the disks what programs were answered for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Daemon;
use super::background::StopOnDrop;
use super::threads::{self, Worker};
use crate::api::error::ControlResult;

/// So many runs are under way at a time at least, each to every disk that has a copy.
const THREADS_LEAST: usize = 4;
/// Disks beyond so many are kept busy by the runs of all.
const THREADS_MOST: usize = 16;
/// How long a daemon that ends writes what waits before it takes its mounts away.
const LAST_WRITES_MOST: Duration = Duration::from_secs(60);
/// How often a thread looks for what has become old, and whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Starts them; when `stopped` says so they write what waits and end. What comes after that, and
/// what could not be written, is left to the closing of the group.
pub(super) fn start(
    daemon: &Arc<Daemon>,
    stopped: &watch::Receiver<bool>,
) -> ControlResult<Vec<Worker>> {
    let disks_count = daemon.opened.group().open_disks().len();
    let threads_count = disks_count.clamp(THREADS_LEAST, THREADS_MOST);
    let threads = (0..threads_count).map(|number| {
        let (daemon, stopped) = (Arc::clone(daemon), stopped.clone());
        threads::start(&format!("writer-{number}"), move || {
            let _guard = StopOnDrop(daemon.clone());
            work(&daemon, &stopped);
        })
    });
    threads.collect()
}

fn work(daemon: &Daemon, stopped: &watch::Receiver<bool>) {
    let file_system = daemon.opened.file_system();
    while !*stopped.borrow() {
        if !file_system.write_due() {
            file_system.wait_for_due(LOOK_INTERVAL);
        }
    }
    let stopped_at = Instant::now();
    file_system.hurry_writes();
    // Programs that go on writing do not keep it from its end.
    while stopped_at.elapsed() < LAST_WRITES_MOST && file_system.write_due() {}
}
