//! Disks that stay away longer than their repair time are given up: dropped, by the group itself.
//! A crash comes back to it, because the time that a disk was away is written down.

use crate::background::Group;
use crate::error::GroupError;
use crate::event::{Event, EventKind, Severity};

impl Group {
    /// Gives up disks whose repair time is over.
    pub(crate) fn give_up_overdue(&self) -> Result<(), GroupError> {
        for disk in self.away_disks() {
            if self.repair_time_left(disk) != Some(0) {
                continue;
            }
            let title = self.disks.describe(disk);
            let (why, severity) = if self.membership.leaves(disk) {
                ("was being dropped when it went away", Severity::Warning)
            } else {
                ("was away longer than its repair time", Severity::Critical)
            };
            let answer = self.drop_disks(&[disk], true);
            let (kind, message) = match answer {
                Ok(()) => (
                    EventKind::RepairTimeOver,
                    format!("{title} {why} and is given up"),
                ),
                Err(error) => {
                    self.check_fence()?;
                    let mut clock = self.away_clock.lock();
                    let error = error.report();
                    let told = clock.told.insert(disk, error.clone());
                    if told.as_ref() == Some(&error) {
                        continue;
                    }
                    (
                        EventKind::RestoreStopped,
                        format!("{title} {why} and cannot be given up: {error}"),
                    )
                }
            };
            self.event(Event::new(kind, message).severity(severity).disk(disk));
        }
        Ok(())
    }
}
