//! The kernel's own counters: leaf devices, processors, memory, processes. All only ever grow, but
//! for the memory; what a reader wants is the difference of two readings.

use std::fs;

use super::control_group::ControlGroup;
use super::device::Leaf;
use super::process::Identity;
use crate::record::Processor;

/// The kernel counts processor time in hundredths of a second for user space, whatever its clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Sectors in these counters have 512 bytes, whatever the device has.
const SECTOR_BYTES: f64 = 512.0;

/// The sum over several devices.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DiskCounters {
    /// Requests.
    pub reads: f64,
    /// Bytes.
    pub read_bytes: f64,
    /// Requests.
    pub writes: f64,
    /// Bytes.
    pub written_bytes: f64,
    /// Flushes.
    pub flushes: f64,
    /// Milliseconds in which something was under way, of each device.
    pub busy_ms: f64,
}

impl DiskCounters {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
            busy_ms: self.busy_ms - before.busy_ms,
        }
    }
}

/// Reads the leaf devices. Stacked devices are never asked: their parts would count twice.
#[must_use]
pub fn disks(leaves: &[Leaf]) -> DiskCounters {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    disks_in(&text, leaves)
}

fn disks_in(text: &str, leaves: &[Leaf]) -> DiskCounters {
    let mut sum = DiskCounters::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(major), Some(minor)) = (fields.first(), fields.get(1)) else {
            continue;
        };
        let numbers = format!("{major}:{minor}");
        if !leaves.iter().any(|leaf| leaf.numbers == numbers) {
            continue;
        }
        let at = |index: usize| -> f64 {
            fields
                .get(index)
                .and_then(|field| field.parse().ok())
                .unwrap_or(0.0)
        };
        sum.reads += at(3);
        sum.read_bytes += at(5) * SECTOR_BYTES;
        sum.writes += at(7);
        sum.written_bytes += at(9) * SECTOR_BYTES;
        sum.busy_ms += at(12);
        sum.flushes += at(18);
    }
    sum
}

/// Reads the processors; the harness's share is the caller's to fill in.
#[must_use]
pub fn processor() -> Processor {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0.0) / TICKS_PER_SECOND)
        .collect();
    let at = |index: usize| fields.get(index).copied().unwrap_or(0.0);
    Processor {
        count: std::thread::available_parallelism()
            .ok()
            .and_then(|count| u32::try_from(count.get()).ok())
            .unwrap_or(1),
        user_s: at(0) + at(1),
        // Interrupts are the kernel's work, too.
        system_s: at(2) + at(5) + at(6),
        waiting_s: at(4),
        stolen_s: at(7),
        harness_s: 0.0,
    }
}

/// What was used since `before`.
#[must_use]
pub fn processor_since(now: &Processor, before: &Processor) -> Processor {
    Processor {
        count: now.count,
        user_s: now.user_s - before.user_s,
        system_s: now.system_s - before.system_s,
        waiting_s: now.waiting_s - before.waiting_s,
        stolen_s: now.stolen_s - before.stolen_s,
        harness_s: now.harness_s - before.harness_s,
    }
}

/// Seconds of processor time of these processes, threads included.
#[must_use]
pub fn processes_s(processes: &[Identity]) -> f64 {
    processes
        .iter()
        .filter_map(|process| {
            let text = fs::read_to_string(format!("/proc/{}/stat", process.id)).ok()?;
            let (_, rest) = text.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let ticks: f64 = [11, 12]
                .iter()
                .filter_map(|index| fields.get(*index)?.parse::<f64>().ok())
                .sum();
            Some(ticks / TICKS_PER_SECOND)
        })
        .sum()
}

/// How long runnable tasks waited for a processor, over all of them: (running s, waiting s).
#[must_use]
pub fn schedule_s() -> (f64, f64) {
    let text = fs::read_to_string("/proc/schedstat").unwrap_or_default();
    let mut running = 0.0;
    let mut waiting = 0.0;
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let fields: Vec<f64> = line
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        // The last three: running, waiting (both in ns), time slices.
        if let [.., run, wait, _] = fields.as_slice() {
            running += run / 1e9;
            waiting += wait / 1e9;
        }
    }
    (running, waiting)
}

/// The group's memory.
#[must_use]
pub fn memory_bytes(group: &ControlGroup) -> f64 {
    group
        .memory_used_bytes()
        .map_or(0.0, crate::quantity::as_float)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_the_leaf_devices_are_counted() {
        let text = "   7       0 loop0 10 0 80 5 20 0 160 7 0 12 12 0 0 0 0 3 1\n   \
                    7       1 loop1 1 0 8 5 2 0 16 7 0 1 12 0 0 0 0 1 1\n   \
                    9       0 md0 11 0 88 5 22 0 176 7 0 12 12 0 0 0 0 4 1\n";
        let leaf = |numbers: &str| Leaf {
            path: PathBuf::new(),
            numbers: numbers.to_owned(),
            size_bytes: 0,
        };
        let sum = disks_in(text, &[leaf("7:0"), leaf("7:1")]);
        assert_eq!(sum.reads, 11.0);
        assert_eq!(sum.read_bytes, 88.0 * 512.0);
        assert_eq!(sum.written_bytes, 176.0 * 512.0);
        assert_eq!(sum.flushes, 4.0);
    }

    #[test]
    fn our_own_processor_time_is_seen() {
        let before = processes_s(&[Identity::own()]);
        let until = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(processes_s(&[Identity::own()]) > before);
        assert!(processor().user_s > 0.0);
    }
}
