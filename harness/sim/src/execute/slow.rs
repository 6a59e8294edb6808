//! Disks that are slow: the simulated disks know no time, so the group is told what their reads
//! took, as the daemon tells it.

use spindle_base::DiskNumber;
use spindle_group::ReadTotals;

use crate::run::{Run, Step};

/// Windows after which a disk must be known as slow, or as fast again.
const WINDOWS: u32 = 6;
const READS_COUNT: u64 = 10;
const READ_BYTES: u64 = 8192;
const FAST_US: u64 = 4000;
const SLOW_US: u64 = 500_000;

impl Run {
    /// The disk becomes slow, and the one that was slow is fast again; where it is that one, all
    /// are fast. The group must name it so.
    pub(super) fn slow_disk(&mut self, disk: u64) -> Step<()> {
        let Some((_, number)) = self.member(disk) else {
            return Ok(());
        };
        self.slow = (self.slow != Some(number)).then_some(number);
        self.note(format!("slow from now on: {:?}", self.slow));
        for _ in 0..WINDOWS {
            self.tell_read_totals();
        }
        self.take_events();
        let disks = self.group().view().disks;
        let online_count = disks.iter().filter(|disk| disk.mode == "online").count();
        let wrong = (disks.iter().filter(|disk| disk.mode == "online"))
            .find(|disk| disk.slow != (self.slow == Some(disk.number)));
        match wrong {
            // A disk is compared with its peers, and needs two of them.
            Some(disk) if online_count >= 3 => Err(Self::wrong(&format!(
                "disk {} is listed as {} where {:?} is slow",
                disk.name,
                if disk.slow { "slow" } else { "not slow" },
                self.slow
            ))),
            _ => Ok(()),
        }
    }

    fn tell_read_totals(&mut self) {
        let numbers: Vec<DiskNumber> = (self.members().into_iter())
            .map(|(_, number)| number)
            .collect();
        let totals: Vec<ReadTotals> = (numbers.into_iter())
            .map(|disk| {
                let latency_us = if self.slow == Some(disk) {
                    SLOW_US
                } else {
                    FAST_US
                };
                let totals = self.read_totals.entry(disk).or_insert(ReadTotals {
                    disk,
                    reads_count: 0,
                    read_bytes: 0,
                    read_time_us: 0,
                });
                totals.reads_count += READS_COUNT;
                totals.read_bytes += READS_COUNT * READ_BYTES;
                totals.read_time_us += READS_COUNT * latency_us;
                *totals
            })
            .collect();
        self.group().note_read_totals(&totals);
    }
}
