//! Disks that were away come back by themselves where they answer again, and disks are watched
//! for being slow.

use spindle_group::ReadTotals;

use super::Daemon;
use crate::dirty_limit::{DirtyLimit, Written};
use crate::error::ControlResult;

/// The page cache holds at most one part in so many of the memory for the mounts, as the kernel
/// lets file systems by itself before it begins to write.
const MEMORY_SHARE: u64 = 10;

impl Daemon {
    /// Lets the page cache hold as much for the mounts as the disks have shown they can write.
    pub(super) fn follow_disks(&self, limit: &mut DirtyLimit) {
        let group = self.opened.group();
        let written: Vec<Written> = (group.open_disks().into_iter())
            .map(|(disk, slot)| {
                let counters = self.opened.engine().counters(slot);
                Written {
                    disk,
                    bytes: counters.written_bytes,
                    time_us: counters.write_time_us,
                }
            })
            .collect();
        let memory = rustix::system::sysinfo();
        let memory_bytes = memory.totalram * u64::from(memory.mem_unit);
        let copies_count = group.view().redundancy.copies();
        if let Some(bytes) = limit.look(&written, copies_count, memory_bytes / MEMORY_SHARE) {
            self.mounts.limit_dirty_bytes(bytes);
        }
    }

    /// Takes back disks that went offline by themselves and answer again, and looks which disks
    /// are slow. Called every few seconds; `far` also looks on the search path for disks that
    /// are not where they were.
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
        if far && !group.away_disks().is_empty() {
            self.opened.return_found(self.start_settings())?;
        }
        Ok(())
    }
}
