//! The metrics of a served group, gathered when they are asked for.
//!
//! Every figure is a snapshot of counters that are kept anyway: nothing is measured for the
//! metrics alone, and asking costs the data path nothing. Names are a promise
//! (`docs/operations.md` lists them): families are added, never renamed.

pub(super) mod exposition;

use exposition::Exposition;
use exposition::MetricType::{Counter, Gauge};
use spindle_device::{DiskCounters, LatencyHistogram};
use spindle_group::{GroupFigures, OperationView, Pass};

use crate::api::forecast::{ForecastReport, ForecastState};
use crate::api::scrub_log::LastScrubReport;
use crate::api::view::{DiskReport, GroupReport, HealthReport, HealthStatus};
use crate::serving::mount::RequestSum;

/// Bounds of the latency buckets: powers of two, 16 us to 17 s.
const BOUND_LOG2_NS: std::ops::RangeInclusive<u32> = 14..=34;

/// What the metrics are made of.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The group as listings show it.
    pub group: GroupReport,
    /// What only the group itself counts.
    pub figures: GroupFigures,
    /// What the engine counts of each disk, by number; none where it was not found.
    pub disks: Vec<(u16, DiskCounters)>,
    /// Bytes that were answered and wait to be written.
    pub unwritten_bytes: u64,
    /// Requests of the mount, by kind.
    pub requests: Vec<RequestSum>,
    /// Background work that runs or waits.
    pub operations: Vec<OperationView>,
    /// What `spindle health` says.
    pub health: HealthReport,
    /// The last scrub of the whole group, where the log has one.
    pub last_scrub: Option<LastScrubReport>,
    /// Places that scrubs found wrong, and that are so still.
    pub scrub_findings_open: u64,
    /// When the group will be full.
    pub forecast: ForecastReport,
    /// Events kept since the process began, by severity.
    pub events: [(&'static str, u64); 3],
}

/// The metrics as text.
#[must_use]
pub(super) fn expose(snapshot: &Snapshot) -> String {
    let mut text = Exposition::default();
    let group = snapshot.group.name.as_str();
    build(&mut text);
    identity(&mut text, &snapshot.group);
    sizes(&mut text, &snapshot.group);
    of_forecast(&mut text, &snapshot.forecast);
    of_scrubs(&mut text, group, snapshot);
    of_group(&mut text, group, snapshot);
    of_operations(&mut text, group, &snapshot.operations);
    of_disks(&mut text, group, &snapshot.group.disks);
    of_engine(&mut text, group, snapshot);
    text.family(
        "spindle_unwritten_bytes",
        Gauge,
        "What was answered and waits in memory to be written to the disks.",
    );
    text.sample(&[("group", group)], snapshot.unwritten_bytes);
    of_requests(&mut text, group, &snapshot.requests);
    text.finish()
}

fn build(text: &mut Exposition) {
    text.family(
        "spindle_build_info",
        Gauge,
        "The version that runs; always 1.",
    );
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
}

fn identity(text: &mut Exposition, group: &GroupReport) {
    text.family("spindle_group_info", Gauge, "What the group is; always 1.");
    let redundancy = group.redundancy.to_string();
    let info = [
        ("group", group.name.as_str()),
        ("uuid", group.uuid.as_str()),
        ("redundancy", &redundancy),
        ("profile", &group.profile),
    ];
    text.sample(&info, 1);
}

fn sizes(text: &mut Exposition, group: &GroupReport) {
    let sizes: [(&'static str, i64, &str); 5] = [
        (
            "spindle_group_total_bytes",
            signed(group.total_bytes),
            "Size of all disks together.",
        ),
        (
            "spindle_group_free_bytes",
            signed(group.free_bytes),
            "What no extent uses, all copies counted.",
        ),
        (
            "spindle_group_required_mirror_free_bytes",
            signed(group.required_mirror_free_bytes),
            "What must stay free to restore redundancy after the largest failure.",
        ),
        (
            "spindle_group_usable_bytes",
            group.usable_bytes,
            "What files can still take so that a failure can be repaired; negative where it could not.",
        ),
        (
            "spindle_group_resync_left_bytes",
            signed(group.resync_left_bytes),
            "What disks that came back have not been given yet.",
        ),
    ];
    for (family, value, help) in sizes {
        text.family(family, Gauge, help);
        text.sample(&[("group", group.name.as_str())], value);
    }
}

/// What is not known has no sample: a number would be a lie that an alert believes.
fn of_forecast(text: &mut Exposition, forecast: &ForecastReport) {
    let labels = [("group", forecast.group.as_str())];
    text.family(
        "spindle_group_forecast_window_seconds",
        Gauge,
        "How far back the sizes reach that the forecast of space comes from.",
    );
    text.sample(&labels, forecast.window_s);
    text.family(
        "spindle_group_forecast_full_seconds",
        Gauge,
        "Seconds until nothing is usable any more at the rate of the window; +Inf where the group does not fill, absent while nothing is known.",
    );
    match (forecast.full_in_s, forecast.state) {
        (Some(full_in_s), _) => text.sample(&labels, full_in_s),
        (None, ForecastState::Steady) => text.sample(&labels, "+Inf"),
        (None, _) => {}
    }
    text.family(
        "spindle_group_forecast_growth_bytes_per_day",
        Gauge,
        "What files and their copies take more each day, at the rate of the window; absent while nothing is known.",
    );
    if let Some(growth) = forecast.growth_bytes_per_day {
        text.sample(&labels, growth);
    }
}

/// A group that was never scrubbed has no time of it: zero would be a scrub of 1970.
fn of_scrubs(text: &mut Exposition, group: &str, snapshot: &Snapshot) {
    let labels = [("group", group)];
    text.family(
        "spindle_scrub_findings_open",
        Gauge,
        "Places that scrubs found wrong, that nothing has mended since and nobody has acknowledged.",
    );
    text.sample(&labels, snapshot.scrub_findings_open);
    text.family(
        "spindle_scrub_last_complete_timestamp_seconds",
        Gauge,
        "When the last scrub of the whole group ended, since 1970; absent where the log has none.",
    );
    if let Some(last) = snapshot.last_scrub {
        text.sample(&labels, last.ended_s);
    }
    text.family(
        "spindle_scrub_left_out_bytes",
        Gauge,
        "Bytes of which that scrub could not look at a copy; absent where the log has none.",
    );
    if let Some(last) = snapshot.last_scrub {
        text.sample(&labels, last.left_out_bytes);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn of_group(text: &mut Exposition, name: &str, snapshot: &Snapshot) {
    let (group, figures) = (&snapshot.group, &snapshot.figures);
    let labels = [("group", name)];
    let status = match snapshot.health.status {
        HealthStatus::Ok => 0,
        HealthStatus::Warning => 1,
        HealthStatus::Critical => 2,
        HealthStatus::Unknown => 3,
    };
    let voters = group.disks.iter().filter(|disk| disk.voter).count() as u64;
    let replicas = (group.disks.iter())
        .filter(|disk| disk.catalog_replica)
        .count() as u64;
    let gauges: [(&'static str, u64, &str); 9] = [
        (
            "spindle_health_status",
            status,
            "As `spindle health` exits: 0 ok, 1 warning, 2 critical.",
        ),
        (
            "spindle_group_extents",
            group.extents_count,
            "Extents of all files.",
        ),
        (
            "spindle_group_offline_disks",
            u64::from(group.offline_disks_count),
            "Disks that are not online.",
        ),
        (
            "spindle_group_voters",
            voters,
            "Disks that vote on the group state.",
        ),
        (
            "spindle_group_catalog_replicas",
            replicas,
            "Disks that hold the catalog.",
        ),
        (
            "spindle_group_fenced",
            u64::from(group.fenced.is_some()),
            "1 where the group had to stop.",
        ),
        (
            "spindle_group_dirty_regions",
            figures.dirty_regions_count,
            "Regions of 64 MiB whose copies an unclean stop would compare, or that an offline disk missed.",
        ),
        (
            "spindle_group_epoch",
            group.epoch,
            "Number of the newest group state.",
        ),
        (
            "spindle_catalog_pending_bytes",
            figures.catalog_pending_bytes,
            "Changes of metadata that no commit has made durable yet.",
        ),
    ];
    for (family, value, help) in gauges {
        text.family(family, Gauge, help);
        text.sample(&labels, value);
    }
    text.family(
        "spindle_catalog_commits_total",
        Counter,
        "Commits of the catalog.",
    );
    text.sample(&labels, figures.catalog_commits_count);
    text.family(
        "spindle_events_total",
        Counter,
        "Events kept since the process began.",
    );
    for (severity, count) in snapshot.events {
        text.sample(&[("group", name), ("severity", severity)], count);
    }
}

fn of_operations(text: &mut Exposition, group: &str, operations: &[OperationView]) {
    type Figure = fn(&OperationView) -> u64;
    let gauges: [(&'static str, Figure, &str); 5] = [
        (
            "spindle_operation_power",
            |operation| u64::from(operation.power.number()),
            "At which power a pass of background work runs; 0 is paused.",
        ),
        (
            "spindle_operation_done_bytes",
            |operation| operation.done_bytes,
            "What a pass has done.",
        ),
        (
            "spindle_operation_left_bytes",
            |operation| operation.left_bytes,
            "What is left of a pass, as far as is known.",
        ),
        (
            "spindle_operation_rate_bytes_per_second",
            |operation| operation.rate_bytes_per_s,
            "How fast a pass is.",
        ),
        (
            "spindle_operation_stopped",
            |operation| u64::from(operation.error.is_some()),
            "1 where a pass cannot go on.",
        ),
    ];
    for (family, figure, help) in gauges {
        text.family(family, Gauge, help);
        for operation in operations {
            let pass = match operation.pass {
                Pass::Resync => "resync",
                Pass::Convert => "convert",
                Pass::Restore => "restore",
                Pass::Rebalance => "rebalance",
                Pass::Scrub => "scrub",
            };
            text.sample(&[("group", group), ("pass", pass)], figure(operation));
        }
    }
}

fn of_disks(text: &mut Exposition, group: &str, disks: &[DiskReport]) {
    text.family(
        "spindle_disk_info",
        Gauge,
        "Where a disk is and what it belongs to; always 1.",
    );
    for disk in disks {
        let number = disk.number.to_string();
        let path = disk.path.as_deref().unwrap_or("");
        text.sample(
            &[
                ("group", group),
                ("disk", disk.name.as_str()),
                ("number", &number),
                ("failure_group", &disk.failure_group),
                ("path", path),
                ("state", &disk.state),
            ],
            1,
        );
    }
    type Figure = fn(&DiskReport) -> u64;
    let gauges: [(&'static str, Figure, &str); 5] = [
        (
            "spindle_disk_online",
            |disk| u64::from(disk.mode == "online"),
            "1 where the disk serves.",
        ),
        (
            "spindle_disk_total_bytes",
            |disk| disk.total_bytes,
            "What the group uses of the disk.",
        ),
        (
            "spindle_disk_free_bytes",
            |disk| disk.free_bytes,
            "Of this, what no extent uses.",
        ),
        (
            "spindle_disk_voter",
            |disk| u64::from(disk.voter),
            "1 where the disk votes on the group state.",
        ),
        (
            "spindle_disk_catalog_replica",
            |disk| u64::from(disk.catalog_replica),
            "1 where the disk holds the catalog.",
        ),
    ];
    for (family, figure, help) in gauges {
        text.family(family, Gauge, help);
        for disk in disks {
            text.sample(
                &[("group", group), ("disk", disk.name.as_str())],
                figure(disk),
            );
        }
    }
    text.family(
        "spindle_disk_repair_time_left_seconds",
        Gauge,
        "Until a disk that is away is given up; only of those.",
    );
    for disk in disks {
        if let Some(left_s) = disk.repair_time_left_s {
            text.sample(&[("group", group), ("disk", disk.name.as_str())], left_s);
        }
    }
    disk_errors(text, group, disks);
}

fn disk_errors(text: &mut Exposition, group: &str, disks: &[DiskReport]) {
    type Figure = fn(&DiskReport) -> u64;
    let counters: [(&'static str, Figure, &str); 2] = [
        (
            "spindle_disk_read_errors_total",
            |disk| disk.read_errors_count,
            "Reads of file data that failed or gave damaged bytes.",
        ),
        (
            "spindle_disk_write_errors_total",
            |disk| disk.write_errors_count,
            "Writes of file data that failed.",
        ),
    ];
    for (family, figure, help) in counters {
        text.family(family, Counter, help);
        for disk in disks {
            text.sample(
                &[("group", group), ("disk", disk.name.as_str())],
                figure(disk),
            );
        }
    }
}

/// What the engine counts: every request, those of the catalog and of background work too.
fn of_engine(text: &mut Exposition, group: &str, snapshot: &Snapshot) {
    let name_of = |number: u16| {
        let disk = snapshot
            .group
            .disks
            .iter()
            .find(|disk| disk.number == number);
        disk.map_or("", |disk| disk.name.as_str())
    };
    type Figure = fn(&DiskCounters) -> u64;
    let counters: [(&'static str, Figure, &str); 6] = [
        (
            "spindle_disk_reads_total",
            |disk| disk.reads,
            "Reads that the disk answered.",
        ),
        (
            "spindle_disk_writes_total",
            |disk| disk.writes,
            "Writes that the disk answered.",
        ),
        (
            "spindle_disk_flushes_total",
            |disk| disk.flushes,
            "Flushes that the disk answered.",
        ),
        (
            "spindle_disk_read_bytes_total",
            |disk| disk.read_bytes,
            "Bytes read.",
        ),
        (
            "spindle_disk_written_bytes_total",
            |disk| disk.write_bytes,
            "Bytes written.",
        ),
        (
            "spindle_disk_failed_requests_total",
            |disk| disk.errors,
            "Requests that failed, for whatever reason.",
        ),
    ];
    for (family, figure, help) in counters {
        text.family(family, Counter, help);
        for (number, disk) in &snapshot.disks {
            text.sample(
                &[("group", group), ("disk", name_of(*number))],
                figure(disk),
            );
        }
    }
    text.family(
        "spindle_disk_requests_in_flight",
        Gauge,
        "Requests under way now.",
    );
    for (number, disk) in &snapshot.disks {
        text.sample(
            &[("group", group), ("disk", name_of(*number))],
            disk.in_flight,
        );
    }
    text.histograms(
        "spindle_disk_request_duration_seconds",
        "How long the disk took to answer reads and writes.",
    );
    for (number, disk) in &snapshot.disks {
        for (direction, latency) in [("read", &disk.read_latency), ("write", &disk.write_latency)] {
            let labels = [
                ("group", group),
                ("disk", name_of(*number)),
                ("direction", direction),
            ];
            let (buckets, beyond) = coarse(latency);
            text.histogram(&labels, &buckets, beyond, seconds(latency.sum_ns));
        }
    }
}

/// The engine's fine buckets gathered into those between powers of two, and what lies beyond.
fn coarse(latency: &LatencyHistogram) -> (Vec<(f64, u64)>, u64) {
    let mut bounds_ns = BOUND_LOG2_NS.map(|log2| 1_u64 << log2).peekable();
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    let mut sum = 0;
    for (bucket, count) in latency.counts.iter().enumerate() {
        let lower_ns = LatencyHistogram::lower_bound_ns(bucket);
        while let Some(bound_ns) = bounds_ns.next_if(|bound_ns| *bound_ns <= lower_ns) {
            buckets.push((seconds(bound_ns), sum));
            sum = 0;
        }
        sum += count;
    }
    buckets.extend(bounds_ns.map(|bound_ns| (seconds(bound_ns), std::mem::take(&mut sum))));
    (buckets, sum)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds are shown as a float by the format"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn of_requests(text: &mut Exposition, group: &str, requests: &[RequestSum]) {
    text.family(
        "spindle_fuse_requests_total",
        Counter,
        "Requests of the kernel to the mount, by kind.",
    );
    for request in requests {
        text.sample(
            &[("group", group), ("request", request.name.as_str())],
            request.count,
        );
    }
    text.family(
        "spindle_fuse_request_seconds_total",
        Counter,
        "Time from request read to answer sent, added up by kind.",
    );
    for request in requests {
        let labels = [("group", group), ("request", request.name.as_str())];
        text.sample(&labels, seconds(request.total_us.saturating_mul(1000)));
    }
}

#[cfg(test)]
mod tests {
    use spindle_device::LatencyHistogram;

    use super::coarse;

    #[test]
    fn no_request_is_lost_on_the_way_to_coarser_buckets() {
        let mut latency = LatencyHistogram {
            counts: vec![1; spindle_device::LATENCY_BUCKETS],
            sum_ns: 5,
        };
        let (buckets, beyond) = coarse(&latency);
        assert_eq!(buckets.len(), 21);
        assert_eq!(
            buckets.iter().map(|(_, count)| count).sum::<u64>() + beyond,
            128
        );
        assert!(buckets.is_sorted_by(|left, right| left.0 < right.0));
        // A request of 20 us lies between 16 us and 33 us.
        latency.counts.fill(0);
        let bucket = (0..128)
            .rfind(|bucket| LatencyHistogram::lower_bound_ns(*bucket) <= 20_000)
            .unwrap();
        latency.counts[bucket] = 1;
        let (buckets, beyond) = coarse(&latency);
        assert_eq!((buckets[0].1, buckets[1].1, beyond), (0, 1, 0));
    }
}
