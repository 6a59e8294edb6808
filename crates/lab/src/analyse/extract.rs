//! What the database did, in the order in which a database administrator reads an AWR report: time,
//! load profile, waits, objects, checkpoints and log, devices. Sums over all measured runs of a
//! contender under a load; a figure that a run lacks is left out, never zero.

use serde::{Deserialize, Serialize};

use super::series::mean;
use crate::quantity::as_float;
use crate::record::{DeviceActivity, Measured, ObjectActivity, Waits};

/// The extract of one contender under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extract {
    /// Measured time of all runs.
    pub elapsed_s: f64,
    /// Operations of all runs.
    pub transactions: u64,
    /// Time that sessions spent in statements.
    pub database_time_s: Option<f64>,
    /// Processor time of the database's processes.
    pub database_processor_s: Option<f64>,
    /// Processor time of the storage's daemon.
    pub storage_processor_s: Option<f64>,
    /// Processor time of the kernel's own threads and of interrupts, whoever caused it.
    pub kernel_processor_s: Option<f64>,
    /// Load by kind.
    pub profile: Vec<Profile>,
    /// Blocks found in the database's memory, of those asked for.
    pub hit_share: Option<f64>,
    /// Where the sessions' time went, most first.
    pub waits: Vec<Wait>,
    /// The busiest tables, indexes and files.
    pub objects: Vec<ObjectActivity>,
    /// Checkpoints and the log: (what, how much in all runs).
    pub checkpoints: Vec<(String, f64)>,
    /// Each leaf device.
    pub devices: Vec<Device>,
}

/// One line of the load profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What is counted.
    pub name: String,
    /// Of it, a second.
    pub per_s: f64,
    /// Of it, a transaction.
    pub per_transaction: f64,
}

/// What sessions waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Such as `IO`; `CPU` is no wait.
    pub class: String,
    /// Such as `WALSync`.
    pub event: String,
    /// Seconds of sessions, by samples of a second.
    pub sampled_s: f64,
    /// Of all seconds of sessions that were sampled.
    pub share: f64,
    /// How often, where the database counts it.
    pub count: Option<f64>,
    /// Milliseconds all together, where the database measures it.
    pub total_ms: Option<f64>,
    /// Milliseconds each, where the database measures it.
    pub mean_ms: Option<f64>,
}

/// A leaf device in the columns of iostat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Such as `loop3`.
    pub name: String,
    /// Requests a second.
    pub reads_per_s: f64,
    /// Bytes a second.
    pub read_bytes_per_s: f64,
    /// Milliseconds a read takes, queue included.
    pub read_ms: Option<f64>,
    /// Requests a second.
    pub writes_per_s: f64,
    /// Bytes a second.
    pub written_bytes_per_s: f64,
    /// Milliseconds a write takes, queue included.
    pub write_ms: Option<f64>,
    /// Flushes a second.
    pub flushes_per_s: f64,
    /// Requests under way, on average.
    pub queue: f64,
    /// Share of the time in which something was under way; none where a limit holds requests back
    /// before they reach the device.
    pub busy_share: Option<f64>,
    /// Where it is held to a limit, how much of what it is allowed it carried.
    pub limit_share: Option<f64>,
}

/// Our words for what is counted, and the fact that holds it.
const PROFILE: [(&str, &str); 11] = [
    ("commits", "database_commits"),
    ("rollbacks", "database_rollbacks"),
    ("rows changed", "database_rows_changed"),
    ("blocks asked for", ASKED),
    ("blocks read", "database_blocks_read"),
    ("blocks written", "database_blocks_written"),
    ("bytes of log", "database_log_bytes"),
    ("log writes", "database_log_writes"),
    ("log syncs", "database_log_syncs"),
    ("bytes of temporary files", "database_temporary_bytes"),
    ("device flushes", "device_flushes"),
];

/// Not a fact: found in memory, and read.
const ASKED: &str = "database_blocks_asked";

const CHECKPOINTS: [(&str, &str); 9] = [
    ("checkpoints", "database_checkpoints"),
    (
        "of them requested, for the log's size",
        "database_checkpoints_requested",
    ),
    ("writing, ms", "database_checkpoint_write_ms"),
    ("syncing, ms", "database_checkpoint_sync_ms"),
    ("blocks by checkpoints", "database_blocks_by_checkpoints"),
    (
        "blocks by the background writer",
        "database_blocks_by_cleaner",
    ),
    ("blocks by sessions", "database_blocks_by_sessions"),
    ("log records", "database_log_records"),
    ("full pages in the log", "database_log_full_pages"),
];

/// Waits that the database also counts and measures: event, count, milliseconds.
const COUNTED: [(&str, &str, &str, &str); 4] = [
    (
        "IO",
        "DataFileRead",
        "database_blocks_read",
        "database_read_ms",
    ),
    (
        "IO",
        "DataFileWrite",
        "database_blocks_by_sessions",
        "database_write_ms",
    ),
    (
        "IO",
        "WALSync",
        "database_log_syncs",
        "database_log_sync_ms",
    ),
    (
        "IO",
        "WALWrite",
        "database_log_writes",
        "database_log_write_ms",
    ),
];

/// How many waits, and how many objects, are told.
const LINES_AT_MOST: usize = 10;

/// Extracts; `None` where nothing was measured.
#[must_use]
pub fn extract(runs: &[&Measured]) -> Option<Extract> {
    if runs.is_empty() {
        return None;
    }
    let elapsed_s: f64 = runs.iter().map(|run| run.duration_s).sum();
    let transactions: u64 = runs.iter().map(|run| run.operations).sum();
    let profile = PROFILE
        .iter()
        .filter_map(|(name, fact)| {
            let sum = sum(runs, fact)?;
            Some(Profile {
                name: (*name).to_owned(),
                per_s: sum / elapsed_s,
                per_transaction: sum / as_float(transactions.max(1)),
            })
        })
        .collect();
    let asked = sum(runs, ASKED).filter(|asked| *asked > 0.0);
    let found = sum(runs, "database_blocks_hit");
    Some(Extract {
        elapsed_s,
        transactions,
        database_time_s: sum(runs, "database_active_ms").map(|ms| ms / 1000.0),
        database_processor_s: sum(runs, "database_processor_s"),
        storage_processor_s: sum(runs, "storage_daemon_s").filter(|seconds| *seconds > 0.0),
        kernel_processor_s: sum(runs, "kernel_threads_s"),
        profile,
        hit_share: asked.zip(found).map(|(asked, found)| found / asked),
        waits: waits(runs),
        objects: objects(runs),
        checkpoints: CHECKPOINTS
            .iter()
            .filter_map(|(name, fact)| Some(((*name).to_owned(), sum(runs, fact)?)))
            .collect(),
        devices: devices(runs, elapsed_s),
    })
}

/// A fact over all runs; `None` where one lacks it.
fn sum(runs: &[&Measured], fact: &str) -> Option<f64> {
    if fact == ASKED {
        return Some(sum(runs, "database_blocks_read")? + sum(runs, "database_blocks_hit")?);
    }
    runs.iter().map(|run| run.facts.get(fact).copied()).sum()
}

fn waits(runs: &[&Measured]) -> Vec<Wait> {
    let mut rows: Vec<Wait> = Vec::new();
    let mut row = |class: &str, event: &str| -> usize {
        let known = rows
            .iter()
            .position(|row| row.class == class && row.event == event);
        known.unwrap_or_else(|| {
            rows.push(Wait {
                class: class.to_owned(),
                event: event.to_owned(),
                sampled_s: 0.0,
                share: 0.0,
                count: None,
                total_ms: None,
                mean_ms: None,
            });
            rows.len() - 1
        })
    };
    let sampled: Vec<&Waits> = runs.iter().filter_map(|run| run.waits.as_ref()).collect();
    let events = || sampled.iter().flat_map(|waits| &waits.events);
    let places: Vec<usize> = events()
        .map(|event| row(&event.class, &event.event))
        .collect();
    let counted: Vec<(usize, f64, f64)> = COUNTED
        .iter()
        .filter_map(|(class, event, count, ms)| {
            let (count, ms) = (sum(runs, count)?, sum(runs, ms)?);
            (count > 0.0 && ms > 0.0).then(|| (row(class, event), count, ms))
        })
        .collect();
    for (event, place) in events().zip(places) {
        rows[place].sampled_s += as_float(event.sessions);
    }
    for (place, count, ms) in counted {
        rows[place].count = Some(count);
        rows[place].total_ms = Some(ms);
        rows[place].mean_ms = Some(ms / count);
    }
    let all: f64 = rows.iter().map(|row| row.sampled_s).sum();
    for row in &mut rows {
        row.share = if all > 0.0 { row.sampled_s / all } else { 0.0 };
    }
    rows.sort_by(|one, other| {
        other.sampled_s.total_cmp(&one.sampled_s).then(
            other
                .total_ms
                .unwrap_or(0.0)
                .total_cmp(&one.total_ms.unwrap_or(0.0)),
        )
    });
    rows.truncate(LINES_AT_MOST);
    rows
}

fn objects(runs: &[&Measured]) -> Vec<ObjectActivity> {
    let mut all: Vec<(ObjectActivity, Vec<f64>)> = Vec::new();
    for object in runs.iter().flat_map(|run| &run.objects) {
        match all.iter_mut().find(|(known, _)| known.name == object.name) {
            Some((known, hits)) => {
                known.read_bytes += object.read_bytes;
                known.written_bytes = known
                    .written_bytes
                    .zip(object.written_bytes)
                    .map(|(one, other)| one + other);
                hits.extend(object.hit_share);
            }
            None => all.push((object.clone(), object.hit_share.into_iter().collect())),
        }
    }
    let mut all: Vec<ObjectActivity> = all
        .into_iter()
        .map(|(object, hits)| ObjectActivity {
            hit_share: mean(&hits),
            ..object
        })
        .collect();
    let bytes = |object: &ObjectActivity| object.read_bytes + object.written_bytes.unwrap_or(0.0);
    all.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
    all.truncate(LINES_AT_MOST);
    all
}

fn devices(runs: &[&Measured], elapsed_s: f64) -> Vec<Device> {
    let count = runs.iter().map(|run| run.devices.len()).max().unwrap_or(0);
    (0..count)
        .map(|index| {
            let each: Vec<&DeviceActivity> = runs
                .iter()
                .filter_map(|run| run.devices.get(index))
                .collect();
            let sum = |of: fn(&DeviceActivity) -> f64| -> f64 {
                each.iter().map(|device| of(device)).sum()
            };
            let (reads, writes) = (sum(|device| device.reads), sum(|device| device.writes));
            let shares: Vec<f64> = each
                .iter()
                .filter_map(|device| device.limit_share)
                .collect();
            let limit_share = mean(&shares);
            let mean_ms = |ms: f64, requests: f64| (requests > 0.0).then(|| ms / requests);
            Device {
                name: each
                    .last()
                    .map_or(String::new(), |device| device.name.clone()),
                reads_per_s: reads / elapsed_s,
                read_bytes_per_s: sum(|device| device.read_bytes) / elapsed_s,
                read_ms: mean_ms(sum(|device| device.read_ms), reads),
                writes_per_s: writes / elapsed_s,
                written_bytes_per_s: sum(|device| device.written_bytes) / elapsed_s,
                write_ms: mean_ms(sum(|device| device.write_ms), writes),
                flushes_per_s: sum(|device| device.flushes) / elapsed_s,
                queue: sum(|device| device.queue_ms) / 1000.0 / elapsed_s,
                busy_share: limit_share
                    .is_none()
                    .then(|| sum(|device| device.busy_ms) / 1000.0 / elapsed_s),
                limit_share,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::sample::measured;
    use crate::record::Outcome;

    fn run() -> Measured {
        let Outcome::Measured(measured) = measured(50.0) else {
            panic!("it is measured");
        };
        *measured
    }

    #[test]
    fn figures_are_a_second_and_a_transaction_and_a_missing_one_is_left_out() {
        let (one, other) = (run(), run());
        let found = extract(&[&one, &other]).unwrap();
        assert!((found.elapsed_s - 40.0).abs() < 1e-9);
        assert_eq!(found.transactions, 2000);
        let of = |name: &str| found.profile.iter().find(|row| row.name == name);
        let commits = of("commits").unwrap();
        assert!((commits.per_s - 50.0).abs() < 1e-9, "{commits:?}");
        assert!((commits.per_transaction - 1.0).abs() < 1e-9);
        assert!((found.hit_share.unwrap() - 0.9).abs() < 1e-9);
        assert_eq!(of("bytes of temporary files"), None);
        assert_eq!(extract(&[]), None);
        let device = &found.devices[0];
        assert!((device.reads_per_s - 10.0).abs() < 1e-9, "{device:?}");
        assert!((device.read_ms.unwrap() - 2.0).abs() < 1e-9);
        assert!((device.busy_share.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(device.limit_share, None);
    }

    #[test]
    fn a_device_that_is_held_to_a_limit_is_as_busy_as_it_is_near_to_that() {
        let (mut one, mut other) = (run(), run());
        one.devices[0].limit_share = Some(0.84);
        other.devices[0].limit_share = Some(0.88);
        let found = extract(&[&one, &other]).unwrap();
        let device = &found.devices[0];
        assert_eq!(device.busy_share, None);
        assert!((device.limit_share.unwrap() - 0.86).abs() < 1e-9);
    }

    #[test]
    fn waits_are_sampled_seconds_with_counts_where_the_database_has_them() {
        let found = extract(&[&run()]).unwrap();
        let sync = &found.waits[0];
        assert_eq!(sync.event, "WALSync");
        assert!((sync.sampled_s - 30.0).abs() < 1e-9);
        assert!((sync.share - 0.6).abs() < 1e-9);
        assert_eq!(sync.count, Some(500.0));
        assert!((sync.mean_ms.unwrap() - 2.0).abs() < 1e-9);
        let processor = found.waits.iter().find(|row| row.class == "CPU").unwrap();
        assert_eq!(processor.count, None);
    }
}
