//! What the block control group let through to each device, and how near that is to its limit.
//!
//! A request that waits for the limit has not reached the device: the kernel's own figure of how
//! busy a device is counts it as idle then, at the very moment at which it carries all that it may.
//! So the throttle's own counters are held against what it allows.

use std::fs;
use std::path::Path;

use super::control_group::{ControlGroup, ROOT, Version, version};
use super::device::Leaf;
use crate::experiment::Devices;
use crate::quantity::as_float;
use crate::record::DeviceActivity;

/// What was let through so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Served {
    read_bytes: f64,
    written_bytes: f64,
    reads: f64,
    writes: f64,
}

/// Reads it of each device; of one that is not limited nothing is known.
#[must_use]
pub fn served(group: &ControlGroup, leaves: &[Leaf]) -> Vec<Option<Served>> {
    let (bytes, requests) = match version("io") {
        Some(Version::One) => {
            let root = Path::new(ROOT).join("blkio");
            let read = |name: &str| {
                let file = root.join(format!("blkio.throttle.{name}"));
                fs::read_to_string(file).unwrap_or_default()
            };
            (read("io_service_bytes"), read("io_serviced"))
        }
        Some(Version::Two) => {
            let text = group.io_statistics();
            return leaves
                .iter()
                .map(|leaf| in_one_line(&text, &leaf.numbers))
                .collect();
        }
        None => return vec![None; leaves.len()],
    };
    leaves
        .iter()
        .map(|leaf| in_two_files(&bytes, &requests, &leaf.numbers))
        .collect()
}

/// Version 1: a line for each device and way, such as `7:0 Read 4096`.
fn in_two_files(bytes: &str, requests: &str, numbers: &str) -> Option<Served> {
    let of = |text: &str, way: &str| -> Option<f64> {
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let is_it = words.next() == Some(numbers) && words.next() == Some(way);
            is_it.then(|| words.next()?.parse().ok())?
        })
    };
    Some(Served {
        read_bytes: of(bytes, "Read")?,
        written_bytes: of(bytes, "Write")?,
        reads: of(requests, "Read")?,
        writes: of(requests, "Write")?,
    })
}

/// Version 2: a line for each device, such as `7:0 rbytes=4096 wbytes=0 rios=1 wios=0`.
fn in_one_line(text: &str, numbers: &str) -> Option<Served> {
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(numbers))?;
    let of = |name: &str| -> Option<f64> {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    };
    Some(Served {
        read_bytes: of("rbytes")?,
        written_bytes: of("wbytes")?,
        reads: of("rios")?,
        writes: of("wios")?,
    })
}

/// How much of what a device was allowed it carried: of bytes and requests, read and written, what
/// came nearest to its limit. `counted` is what the device itself counted, for where the throttle
/// says nothing.
#[must_use]
pub fn limit_share(
    (until, from): (Option<Served>, Option<Served>),
    counted: &DeviceActivity,
    devices: &Devices,
    elapsed_s: f64,
) -> Option<f64> {
    let grown = match (until, from) {
        (Some(until), Some(from)) => Served {
            read_bytes: until.read_bytes - from.read_bytes,
            written_bytes: until.written_bytes - from.written_bytes,
            reads: until.reads - from.reads,
            writes: until.writes - from.writes,
        },
        _ => Served {
            read_bytes: counted.read_bytes,
            written_bytes: counted.written_bytes,
            reads: counted.reads,
            writes: counted.writes,
        },
    };
    let share = |limit: Option<u64>, one: f64, other: f64| {
        Some(one.max(other) / elapsed_s / as_float(limit?))
    };
    [
        share(devices.bandwidth, grown.read_bytes, grown.written_bytes),
        share(devices.requests, grown.reads, grown.writes),
    ]
    .into_iter()
    .flatten()
    .filter(|share| share.is_finite())
    .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn devices(keys: &str) -> Devices {
        let text = format!(
            "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n{keys}\n[[workload]]\nkind = \"tpcb\"\n"
        );
        Experiment::parse(&text).unwrap().devices
    }

    #[test]
    fn a_device_that_carries_98_of_114_mebibytes_is_at_86_percent_of_its_limit() {
        let bytes = "7:1 Read 5\n7:1 Write 9\n7:0 Read 1048576\n7:0 Write WRITTEN\nTotal 9\n";
        let requests = "7:0 Read 10\n7:0 Write 200\n";
        let before = in_two_files(&bytes.replace("WRITTEN", "4096"), requests, "7:0").unwrap();
        let written = 4096 + 10 * (98 << 20);
        let after = bytes.replace("WRITTEN", &written.to_string());
        let after = in_two_files(&after, requests, "7:0").unwrap();
        // Every request had waited before it reached the device, which was idle meanwhile.
        let counted = DeviceActivity {
            busy_ms: 700.0,
            ..DeviceActivity::default()
        };
        let ends = (Some(after), Some(before));
        let share = |keys: &str| limit_share(ends, &counted, &devices(keys), 10.0);
        let found = share("bandwidth = \"114 MiB\"").unwrap();
        assert!((found - 98.0 / 114.0).abs() < 1e-9, "{found}");
        assert_eq!(share(""), None);
        assert_eq!(share("requests = 100"), Some(0.0));
    }

    #[test]
    fn what_is_nearest_to_its_limit_counts_and_version_2_says_it_in_one_line() {
        let text = "8:0 rbytes=1 wbytes=1 rios=1 wios=1\n7:3 rbytes=BYTES wbytes=0 rios=RIOS wios=0 dbytes=0 dios=0\n";
        let at = |bytes: &str, requests: &str| {
            in_one_line(
                &text.replace("BYTES", bytes).replace("RIOS", requests),
                "7:3",
            )
        };
        let ends = (at("10485760", "900"), at("0", "0"));
        let devices = devices("bandwidth = \"10 MiB\"\nrequests = 1000");
        let share = limit_share(ends, &DeviceActivity::default(), &devices, 1.0);
        assert_eq!(share, Some(1.0));
        let share = limit_share(
            (at("0", "900"), at("0", "0")),
            &DeviceActivity::default(),
            &devices,
            1.0,
        );
        assert_eq!(share, Some(0.9));
        let counted = DeviceActivity {
            writes: 500.0,
            ..DeviceActivity::default()
        };
        assert_eq!(
            limit_share((None, None), &counted, &devices, 1.0),
            Some(0.5)
        );
    }
}
