//! Disks that were away come back by themselves where they answer again, and disks are watched
//! for being slow.

use spindle_group::ReadTotals;

use super::Daemon;
use crate::api::error::ControlResult;

impl Daemon {
    /// Takes back disks that went offline by themselves and answer again, and looks which disks
    /// are slow. Called every few seconds; `far` also looks at labels and group states, and on the
    /// search path for disks that are not where they were.
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
            group.mend_structures();
        }
        if far && !group.away_disks().is_empty() {
            self.opened.return_found(self.start_settings())?;
        }
        Ok(())
    }
}
