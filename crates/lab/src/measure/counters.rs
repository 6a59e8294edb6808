//! The kernel's own counters: leaf devices, processors, memory, processes. All only ever grow, but
//! for the memory; what a reader wants is the difference of two readings.

use std::fs;

use super::control_group::ControlGroup;
use super::device::Leaf;
use super::process::Identity;
use crate::record::{DeviceActivity, Processor};

/// The kernel counts processor time in hundredths of a second for user space, whatever its clock.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Sectors in these counters have 512 bytes, whatever the device has.
const SECTOR_BYTES: f64 = 512.0;

/// Reads the leaf devices, each by itself and in their order. Stacked devices are never asked:
/// their parts would count twice.
#[must_use]
pub fn devices(leaves: &[Leaf]) -> Vec<DeviceActivity> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    devices_in(&text, leaves)
}

fn devices_in(text: &str, leaves: &[Leaf]) -> Vec<DeviceActivity> {
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    leaves
        .iter()
        .map(|leaf| {
            let is_own = |fields: &&Vec<&str>| {
                leaf.numbers.split_once(':').is_some_and(|(major, minor)| {
                    fields.first() == Some(&major) && fields.get(1) == Some(&minor)
                })
            };
            lines
                .iter()
                .find(is_own)
                .map_or_else(DeviceActivity::default, |fields| device(fields))
        })
        .collect()
}

fn device(fields: &[&str]) -> DeviceActivity {
    let at = |index: usize| -> f64 {
        fields
            .get(index)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0.0)
    };
    DeviceActivity {
        name: fields
            .get(2)
            .map_or(String::new(), |name| (*name).to_owned()),
        reads: at(3),
        read_bytes: at(5) * SECTOR_BYTES,
        read_ms: at(6),
        writes: at(7),
        written_bytes: at(9) * SECTOR_BYTES,
        write_ms: at(10),
        busy_ms: at(12),
        queue_ms: at(13),
        flushes: at(18),
        limit_share: None,
    }
}

/// The sum of several devices.
#[must_use]
pub fn total(devices: &[DeviceActivity]) -> DeviceActivity {
    devices
        .iter()
        .fold(DeviceActivity::default(), |sum, device| {
            combined(&sum, device, |one, other| one + other)
        })
}

/// What each device counted between two readings.
#[must_use]
pub fn devices_since(now: &[DeviceActivity], before: &[DeviceActivity]) -> Vec<DeviceActivity> {
    now.iter()
        .zip(before)
        .map(|(now, before)| combined(now, before, |one, other| one - other))
        .collect()
}

fn combined(
    one: &DeviceActivity,
    other: &DeviceActivity,
    with: impl Fn(f64, f64) -> f64,
) -> DeviceActivity {
    DeviceActivity {
        name: one.name.clone(),
        reads: with(one.reads, other.reads),
        read_bytes: with(one.read_bytes, other.read_bytes),
        read_ms: with(one.read_ms, other.read_ms),
        writes: with(one.writes, other.writes),
        written_bytes: with(one.written_bytes, other.written_bytes),
        write_ms: with(one.write_ms, other.write_ms),
        flushes: with(one.flushes, other.flushes),
        busy_ms: with(one.busy_ms, other.busy_ms),
        queue_ms: with(one.queue_ms, other.queue_ms),
        limit_share: None,
    }
}

/// What processes asked of files, and what of it went past the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Transfers {
    /// Bytes that system calls read.
    pub asked_read_bytes: f64,
    /// Bytes that system calls wrote.
    pub asked_written_bytes: f64,
    /// Bytes that the kernel's file systems fetched from their devices for it.
    pub fetched_bytes: f64,
    /// Bytes that the kernel's file systems got to bring to their devices; for writes through the
    /// page cache with whole folios, so that it is far too much for small ones.
    pub stored_bytes: f64,
}

/// Sums what these processes transferred. Their ended children are in it, as far as somebody of them
/// has waited for these.
#[must_use]
pub fn transfers(ids: impl IntoIterator<Item = u32>) -> Transfers {
    ids.into_iter()
        .filter_map(|id| fs::read_to_string(format!("/proc/{id}/io")).ok())
        .fold(Transfers::default(), |sum, text| {
            let own = transfers_in(&text);
            Transfers {
                asked_read_bytes: sum.asked_read_bytes + own.asked_read_bytes,
                asked_written_bytes: sum.asked_written_bytes + own.asked_written_bytes,
                fetched_bytes: sum.fetched_bytes + own.fetched_bytes,
                stored_bytes: sum.stored_bytes + own.stored_bytes,
            }
        })
}

fn transfers_in(text: &str) -> Transfers {
    let of = |name: &str| -> f64 {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
            .unwrap_or(0.0)
    };
    Transfers {
        asked_read_bytes: of("rchar"),
        asked_written_bytes: of("wchar"),
        fetched_bytes: of("read_bytes"),
        // What was truncated before it was written never had to be.
        stored_bytes: of("write_bytes") - of("cancelled_write_bytes"),
    }
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
        ..Processor::default()
    }
}

/// How long the processors served interrupts; it is part of the time in the kernel.
#[must_use]
pub fn interrupts_s() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<&str> = line.split_whitespace().collect();
    [6, 7]
        .iter()
        .filter_map(|index| fields.get(*index)?.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS_PER_SECOND
}

/// How many tasks ran or waited for a processor or a disk, on average over the last minute.
#[must_use]
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|field| field.parse().ok())
        .unwrap_or(0.0)
}

/// How long something had to wait for a processor, a disk or memory, where the kernel measures it.
#[must_use]
pub fn pressure_s(resource: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total_us) = line.rsplit_once("total=")?;
    Some(total_us.trim().parse::<f64>().ok()? / 1e6)
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
        own_s: grown(now.own_s, before.own_s),
        kernel_s: grown(now.kernel_s, before.kernel_s),
        others_s: grown(now.others_s, before.others_s),
    }
}

/// What has only ever grown does not shrink by what two readings disagree about.
fn grown(now: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some((now? - before?).max(0.0))
}

/// Seconds of processor time of these processes, threads and ended children included.
#[must_use]
pub fn processes_s(processes: &[Identity]) -> f64 {
    processes
        .iter()
        .filter_map(|process| {
            let text = fs::read_to_string(format!("/proc/{}/stat", process.id)).ok()?;
            let (_, rest) = text.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            // Its own, and that of children that it has waited for.
            let ticks: f64 = [11, 12, 13, 14]
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
    fn only_the_leaf_devices_are_counted_never_a_stack_with_its_parts() {
        let text = "   7       0 loop0 10 0 80 5 20 0 160 7 0 12 24 0 0 0 0 3 1\n   \
                    7       1 loop1 1 0 8 5 2 0 16 7 0 1 12 0 0 0 0 1 1\n   \
                    9       0 md0 11 0 88 5 22 0 176 7 0 12 12 0 0 0 0 4 1\n 253       0 dm-0 11 0 88 5 22 0 176 7 0 12 12 0 0 0 0 4 1\n";
        let leaf = |numbers: &str| Leaf {
            path: PathBuf::new(),
            numbers: numbers.to_owned(),
            size_bytes: 0,
        };
        let each = devices_in(text, &[leaf("7:0"), leaf("7:1"), leaf("7:9")]);
        assert_eq!(each.len(), 3);
        assert_eq!((each[0].name.as_str(), each[0].queue_ms), ("loop0", 24.0));
        let sum = total(&each);
        assert_eq!(sum.reads, 11.0);
        assert_eq!(sum.read_bytes, 88.0 * 512.0);
        assert_eq!(sum.written_bytes, 176.0 * 512.0);
        assert_eq!(sum.flushes, 4.0);
        assert_eq!(total(&devices_since(&each, &each)).reads, 0.0);
    }

    #[test]
    fn what_a_process_asked_for_is_told_from_what_went_past_the_cache() {
        let text = "rchar: 100\nwchar: 80\nsyscr: 1\nsyscw: 1\nread_bytes: 40\n\
                    write_bytes: 30\ncancelled_write_bytes: 10\n";
        let found = transfers_in(text);
        assert_eq!(found.asked_read_bytes, 100.0);
        assert_eq!(found.fetched_bytes, 40.0);
        assert_eq!(found.stored_bytes, 20.0);
        assert!(transfers([std::process::id()]).asked_read_bytes > 0.0);
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
