//! Rates from running counters.

use std::collections::BTreeMap;

use crate::api::calls::ShowActivity;
use crate::api::client::Client;
use crate::api::error::ControlResult;
use crate::api::view::{ActivityReport, ActivitySample, Counters, IostatReport, RateReport};

/// Asks a daemon for its counters, again and again.
#[derive(Debug)]
pub struct Iostat<'a> {
    client: &'a Client,
    before: ActivitySample,
}

impl<'a> Iostat<'a> {
    /// Takes the first sample.
    ///
    /// # Errors
    /// Where the daemon does not answer.
    pub fn begin(client: &'a Client) -> ControlResult<Self> {
        let before = client.ask(&ShowActivity {})?;
        Ok(Self { client, before })
    }

    /// What happened since the last call; of the files, the `files_most` busiest.
    ///
    /// # Errors
    /// Where the daemon does not answer.
    pub fn next(&mut self, files_most: usize) -> ControlResult<IostatReport> {
        let after = self.client.ask(&ShowActivity {})?;
        let report = rates(&self.before, &after, files_most);
        self.before = after;
        Ok(report)
    }
}

/// The rates between two samples.
#[must_use]
pub fn rates(before: &ActivitySample, after: &ActivitySample, files_most: usize) -> IostatReport {
    let interval_us = after.time_us.saturating_sub(before.time_us).max(1);
    #[expect(
        clippy::cast_precision_loss,
        reason = "an interval is far below 2^53 us"
    )]
    let interval_s = interval_us as f64 / 1e6;
    let mut files = rates_of(&before.files, &after.files, interval_s);
    files.retain(|file| file.reads_per_s + file.writes_per_s > 0.0);
    files.sort_by(|left, right| {
        let bytes = |rate: &RateReport| rate.read_bytes_per_s + rate.written_bytes_per_s;
        bytes(right).total_cmp(&bytes(left))
    });
    files.truncate(files_most);
    IostatReport {
        group: after.group.clone(),
        interval_s,
        disks: rates_of(&before.disks, &after.disks, interval_s),
        files,
    }
}

fn rates_of(
    before: &[ActivityReport],
    after: &[ActivityReport],
    interval_s: f64,
) -> Vec<RateReport> {
    let before: BTreeMap<u64, Counters> = before
        .iter()
        .map(|report| (report.id, report.counters))
        .collect();
    after
        .iter()
        .map(|report| {
            let old = before.get(&report.id).copied().unwrap_or_default();
            rate_of(report, old, interval_s)
        })
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates are shown with a few figures"
)]
fn rate_of(report: &ActivityReport, old: Counters, interval_s: f64) -> RateReport {
    let new = report.counters;
    // A daemon that began again counts from zero: then what it has counted is what happened.
    let since = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new) as f64;
    let reads = since(new.reads_count, old.reads_count);
    let writes = since(new.writes_count, old.writes_count);
    let mean = |time: f64, count: f64| (count > 0.0).then(|| time / count);
    RateReport {
        id: report.id,
        name: report.name.clone(),
        reads_per_s: reads / interval_s,
        writes_per_s: writes / interval_s,
        read_bytes_per_s: since(new.read_bytes, old.read_bytes) / interval_s,
        written_bytes_per_s: since(new.written_bytes, old.written_bytes) / interval_s,
        read_latency_us: mean(since(new.read_time_us, old.read_time_us), reads),
        write_latency_us: mean(since(new.write_time_us, old.write_time_us), writes),
    }
}

#[cfg(test)]
mod tests {
    use super::rates;
    use crate::api::view::{ActivityReport, ActivitySample, Counters};

    fn sample(time_us: u64, disk: Counters, file: Counters) -> ActivitySample {
        let report = |counters| ActivityReport {
            id: 0,
            name: "x".to_owned(),
            counters,
        };
        ActivitySample {
            group: "data".to_owned(),
            time_us,
            disks: vec![report(disk)],
            files: vec![report(file)],
        }
    }

    #[test]
    fn rates_are_differences_over_the_time_between_two_samples() {
        let zero = Counters::default();
        let busy = Counters {
            reads_count: 100,
            read_bytes: 819_200,
            read_time_us: 20_000,
            ..zero
        };
        let report = rates(&sample(0, zero, zero), &sample(2_000_000, busy, zero), 10);
        let disk = &report.disks[0];
        assert!((disk.reads_per_s - 50.0).abs() < 1e-9);
        assert!((disk.read_bytes_per_s - 409_600.0).abs() < 1e-9);
        assert_eq!(disk.read_latency_us, Some(200.0));
        assert_eq!(disk.write_latency_us, None);
        assert!(report.files.is_empty(), "idle files are left out");
    }

    #[test]
    fn counters_that_began_again_give_no_negative_rates() {
        let zero = Counters::default();
        let old = Counters {
            writes_count: 1000,
            ..zero
        };
        let new = Counters {
            writes_count: 10,
            ..zero
        };
        let report = rates(&sample(0, old, zero), &sample(1_000_000, new, zero), 10);
        assert!((report.disks[0].writes_per_s - 10.0).abs() < 1e-9);
    }
}
