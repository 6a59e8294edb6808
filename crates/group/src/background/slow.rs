//! Slow disks are named and read around.

use spindle_sync::atomic::Ordering;

use spindle_base::DiskNumber;

use crate::background::Group;
use crate::core::disks::{ReadTotals, Verdict};
use crate::event::{Event, EventKind};

impl Group {
    /// Takes in what the disks have read so far, as counted below the group; to be called every
    /// few seconds. A disk far slower than its peers for some time is named by an event, and its
    /// copies are read last until it has recovered.
    pub fn note_read_totals(&self, totals: &[ReadTotals]) {
        let mut slow_disks = self.slow_disks.lock();
        let mut online: Vec<ReadTotals> = Vec::new();
        for totals in totals {
            if self.membership.is_online(totals.disk) {
                online.push(*totals);
            } else {
                slow_disks.forget(totals.disk);
                self.set_slow(totals.disk, false);
            }
        }
        let verdicts = slow_disks.observe(&online);
        drop(slow_disks);
        for (disk, verdict) in verdicts {
            let title = self.disks.describe(disk);
            let (is_slow, kind, message) = match verdict {
                Verdict::Slow { mean_us, peers_us } => (
                    true,
                    EventKind::DiskSlow,
                    format!(
                        "{title} is slow: a read takes {} ms where its peers take {} ms; other \
                         copies are read while it is",
                        mean_us / 1000,
                        peers_us / 1000
                    ),
                ),
                Verdict::Fast { mean_us, peers_us } => (
                    false,
                    EventKind::DiskFast,
                    format!(
                        "{title} is not slow any more: a read takes {} ms where its peers take {} \
                         ms",
                        mean_us / 1000,
                        peers_us / 1000
                    ),
                ),
            };
            self.set_slow(disk, is_slow);
            self.event(Event::new(kind, message).disk(disk));
        }
    }

    /// What disks carry, in bytes a second, where that was measured.
    pub(crate) fn disk_rates(&self) -> std::collections::BTreeMap<DiskNumber, u64> {
        self.slow_disks.lock().rates()
    }

    /// Asks slow disks for something, because nobody reads from them while they are: only so can
    /// they be found to be fast again.
    pub fn probe_slow_disks(&self) {
        let slow: Vec<DiskNumber> = self.slow_disks.lock().slow().collect();
        for disk in slow {
            if let Some(slot) = self.disks.get(disk).and_then(|disk| disk.online_slot()) {
                self.answers(slot);
            }
        }
    }

    fn set_slow(&self, disk: DiskNumber, is_slow: bool) {
        if let Some(disk) = self.disks.get(disk) {
            disk.is_slow.store(is_slow, Ordering::Relaxed);
        }
    }
}
