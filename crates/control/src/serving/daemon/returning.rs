//! Disks that were away come back by themselves where they answer again, and disks are watched
//! for being slow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spindle_group::ReadTotals;
use tokio::sync::watch;

use super::Daemon;
use super::threads::{self, Worker};
use crate::api::error::ControlResult;

/// How often disks that are away are looked for on the search path.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
const STEP_INTERVAL: Duration = Duration::from_millis(200);

/// Starts the thread that looks for disks that are away; it ends soon after `stopped` says so. Whoever
/// looks waits for servers and devices that do not answer: nothing else is to wait for that.
pub(super) fn start(daemon: Arc<Daemon>, stopped: watch::Receiver<bool>) -> ControlResult<Worker> {
    threads::start("returning", move || {
        let mut search_at = Instant::now() + SEARCH_INTERVAL;
        while !*stopped.borrow() {
            if Instant::now() >= search_at {
                if let Err(error) = daemon.opened.return_found(daemon.start_settings()) {
                    tracing::warn!(%error, "a disk that was found again could not be taken back");
                }
                search_at = Instant::now() + SEARCH_INTERVAL;
            }
            std::thread::sleep(STEP_INTERVAL);
        }
    })
}

impl Daemon {
    /// Takes back disks that went offline by themselves and answer again, and looks which disks
    /// are slow. Called every few seconds; `far` also looks at labels and group states.
    pub(super) fn look_after_disks(&self, far: bool) -> ControlResult<()> {
        let group = self.opened.group();
        let totals: Vec<ReadTotals> = (group.open_disks().into_iter())
            .map(|(disk, slot)| {
                let counters = self.opened.engine().counters(slot);
                ReadTotals {
                    disk,
                    reads_count: counters.reads_count,
                    read_bytes: counters.read_bytes,
                    read_time_us: counters.read_time_us,
                }
            })
            .collect();
        group.note_read_totals(&totals);
        group.probe_slow_disks();
        group.return_answering()?;
        if far {
            group.mend_structures()?;
        }
        Ok(())
    }
}
