//! How long copying takes: from what each disk carries, and from what the power allows.
//!
//! A disk carries one thing at a time, and a worker too: the longer of the two sums is the time.
//! The rate of a disk is that of its own large reads since the group was opened, where there were
//! enough; else an assumption, and told as one.

use std::collections::BTreeMap;

use spindle_base::DiskNumber;

use crate::background::power::Power;
use crate::change::estimate::{Flow, TimeAtPower};

/// What a disk is taken to carry that has not been measured: a spindle in the midst of its plates.
const ASSUMED_BYTES_PER_S: u64 = 100_000_000;
/// Powers that are told besides the group's own.
const POWERS: [u16; 6] = [1, 4, 11, 32, 128, 1024];

/// The rates of the disks.
#[derive(Debug)]
pub(crate) struct Pace {
    measured: BTreeMap<DiskNumber, u64>,
}

impl Pace {
    pub(crate) const fn new(measured: BTreeMap<DiskNumber, u64>) -> Self {
        Self { measured }
    }

    /// Bytes a second, and whether that was measured.
    pub(crate) fn rate_of(&self, disk: DiskNumber) -> (u64, bool) {
        match self.measured.get(&disk) {
            Some(rate) => (*rate, true),
            None => (ASSUMED_BYTES_PER_S, false),
        }
    }

    /// The time at some powers and at the group's own.
    pub(crate) fn times(&self, flows: &[Flow], own: Power) -> Vec<TimeAtPower> {
        let mut powers: Vec<Power> = (POWERS.iter())
            .filter_map(|number| Power::new(*number).ok())
            .chain([own])
            .filter(|power| *power != Power::PAUSED)
            .collect();
        powers.sort_unstable();
        powers.dedup();
        (powers.into_iter())
            .map(|power| TimeAtPower {
                power,
                seconds: self.seconds(flows, power),
            })
            .collect()
    }

    fn seconds(&self, flows: &[Flow], power: Power) -> u64 {
        let mut busy_us: BTreeMap<DiskNumber, u128> = BTreeMap::new();
        let mut worked_us: u128 = 0;
        for flow in flows {
            for disk in [flow.from, flow.to] {
                let rate = u128::from(self.rate_of(disk).0.max(1));
                let time_us = u128::from(flow.bytes) * 1_000_000 / rate;
                *busy_us.entry(disk).or_default() += time_us;
                worked_us += time_us;
            }
        }
        let busiest_us = busy_us.values().copied().max().unwrap_or(0);
        let with_rests = worked_us * u128::from(100 + power.pause_percent(true)) / 100;
        let workers_us = with_rests / u128::from(power.workers_count().max(1));
        let longest_us = busiest_us.max(workers_us);
        u64::try_from(longest_us.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spindle_base::DiskNumber;

    use super::super::Flow;
    use super::{ASSUMED_BYTES_PER_S, Pace};
    use crate::background::Power;

    #[test]
    fn more_power_takes_no_longer_and_full_power_takes_what_the_busiest_disk_needs() {
        let flow = |from, to| Flow {
            from: DiskNumber(from),
            to: DiskNumber(to),
            bytes: 6_000_000_000,
        };
        let measured = BTreeMap::from([(DiskNumber(4), 60_000_000)]);
        let pace = Pace::new(measured);
        assert_eq!(pace.rate_of(DiskNumber(0)), (ASSUMED_BYTES_PER_S, false));
        let flows: Vec<Flow> = (0..4).map(|from| flow(from, 4)).collect();
        let times = pace.times(&flows, Power::DEFAULT);
        assert!(
            times
                .windows(2)
                .all(|pair| pair[0].seconds >= pair[1].seconds)
        );
        assert_eq!(times.last().unwrap().seconds, 4 * 100);
        assert!(times[0].seconds > 1000, "{times:?}");
    }
}
