//! What `spindle top` shows, as lines that fit: how the group is, what runs in it, its disks and its
//! busiest files, and what happened last.
//!
//! Nothing here asks or prints. No line is longer than the screen is wide, and there are no more lines
//! than it has rows; disks that are away or slow come first, so that they never fall off its end.

use std::collections::BTreeMap;
use std::time::Duration;

use spindle_control::TopReport;
use spindle_control::view::{DiskReport, EventReport, RateReport};

use crate::arguments::TopOrder;
use crate::screen::{Line, Screen, cut, cut_front, share};
use crate::table::rate;

/// Columns of a disk's state: failure group, mode and use, with a space before each.
const STATE_COLUMNS: usize = 11 + 9 + 5;
/// Columns of rates: six figures of six, with a space before each.
const RATE_COLUMNS: usize = 6 * 7;
/// The narrowest name.
const NAME_COLUMNS_MIN: usize = 6;
/// Events that are shown where there is room.
const EVENTS_MOST: usize = 3;
/// A thousand, where figures get a letter.
const THOUSAND: f64 = 1000.0;

/// What the lines have to fit into, and in which order they come.
#[derive(Debug, Clone, Copy)]
pub struct TopScreen {
    screen: Screen,
    order: TopOrder,
    /// How often a person gets another screen.
    interval: Option<Duration>,
}

impl TopScreen {
    /// A terminal of that size.
    pub const fn new(columns: usize, rows: usize, order: TopOrder, interval: Duration) -> Self {
        Self {
            screen: Screen {
                columns,
                rows: Some(rows),
            },
            order,
            interval: Some(interval),
        }
    }

    /// No terminal: everything is shown.
    pub const fn plain(columns: usize, order: TopOrder) -> Self {
        Self {
            screen: Screen::endless(columns),
            order,
            interval: None,
        }
    }

    /// The lines of one moment.
    pub fn lines(&self, report: &TopReport) -> Vec<Line> {
        let beside = format!(", {:.1} s", report.activity.interval_s);
        let mut lines = self.screen.head(&report.group, &report.health, &beside);
        lines.extend(self.screen.operations(&report.operations.operations));
        let events = self.events(&report.events);
        let foot = self.foot();
        let room = self.screen.rows.map(|rows| {
            let taken = lines.len() + events.len() + foot.len();
            // Two headings, with an empty line before each.
            rows.saturating_sub(taken + 4)
        });
        let disks = self.disks(report);
        let files = self.files(report);
        let files_least = room.map_or(files.len(), |room| files.len().min(room / 3));
        let disks_most = room.map_or(disks.len(), |room| room.saturating_sub(files_least));
        let (heading, disks) = (self.disk_heading(), fitting(disks, disks_most, "disks"));
        let files_most = room.map_or(files.len(), |room| room.saturating_sub(disks.len()));
        lines.push(Line::plain(String::new()));
        lines.push(Line::loud(heading));
        lines.extend(disks);
        if !files.is_empty() {
            lines.push(Line::plain(String::new()));
            lines.push(Line::loud(self.file_heading()));
            lines.extend(files.into_iter().take(files_most));
        }
        lines.extend(events);
        if let Some(rows) = self.screen.rows {
            let above = rows.saturating_sub(foot.len());
            lines.truncate(above);
            lines.resize(above, Line::plain(String::new()));
        }
        lines.extend(foot);
        if let Some(rows) = self.screen.rows {
            lines.truncate(rows);
        }
        lines
    }

    fn name_columns(&self, beside: usize) -> usize {
        self.screen
            .columns
            .saturating_sub(beside)
            .max(NAME_COLUMNS_MIN)
    }

    fn disk_heading(&self) -> String {
        let width = self.name_columns(STATE_COLUMNS + RATE_COLUMNS);
        let state = format!("{:<10} {:<8} {:>4}", "Failgroup", "Mode", "Use");
        self.screen
            .cut(&format!("{:<width$} {state}{}", "Disk", heading_of_rates()))
    }

    /// The disks that need somebody first, then the busiest.
    fn disks(&self, report: &TopReport) -> Vec<Line> {
        let rates: BTreeMap<&str, &RateReport> = (report.activity.disks.iter())
            .map(|rate| (rate.name.as_str(), rate))
            .collect();
        let mut disks: Vec<(&DiskReport, Option<&RateReport>)> = (report.group.disks.iter())
            .map(|disk| (disk, rates.get(disk.name.as_str()).copied()))
            .collect();
        disks.sort_by(|(left, left_rate), (right, right_rate)| {
            let is_well = |disk: &DiskReport| disk.mode == "online" && !disk.slow;
            let busy = |rate: &Option<&RateReport>| rate.map_or(0.0, |rate| self.key(rate));
            (is_well(left).cmp(&is_well(right)))
                .then(busy(right_rate).total_cmp(&busy(left_rate)))
                .then(left.number.cmp(&right.number))
        });
        let width = self.name_columns(STATE_COLUMNS + RATE_COLUMNS);
        let line = |(disk, rate): (&DiskReport, Option<&RateReport>)| {
            let mode = match (disk.mode.as_str(), disk.slow, disk.state.as_str()) {
                ("online", true, _) => "slow",
                ("online", false, "normal") | ("offline", _, "normal") => disk.mode.as_str(),
                (_, _, state) => state,
            };
            let used_bytes = disk.total_bytes.saturating_sub(disk.free_bytes);
            let text = format!(
                "{:<width$} {:<10} {:<8} {:>3}%{}",
                cut(&disk.name, width),
                cut(&disk.failure_group, 10),
                cut(mode, 8),
                share(used_bytes, disk.total_bytes, 100),
                rate.map_or_else(String::new, figures)
            );
            Line {
                text: self.screen.cut(&text),
                is_loud: disk.mode != "online" || disk.slow,
            }
        };
        disks.into_iter().map(line).collect()
    }

    fn file_heading(&self) -> String {
        let width = self.name_columns(RATE_COLUMNS);
        self.screen
            .cut(&format!("{:<width$}{}", "File", heading_of_rates()))
    }

    fn files(&self, report: &TopReport) -> Vec<Line> {
        let mut files: Vec<&RateReport> = report.activity.files.iter().collect();
        files.sort_by(|left, right| self.key(right).total_cmp(&self.key(left)));
        let width = self.name_columns(RATE_COLUMNS);
        let line = |file: &RateReport| {
            let name = cut_front(&file.name, width);
            Line::plain(self.screen.cut(&format!("{name:<width$}{}", figures(file))))
        };
        files.into_iter().map(line).collect()
    }

    fn key(&self, rate: &RateReport) -> f64 {
        match self.order {
            TopOrder::Bytes => rate.read_bytes_per_s + rate.written_bytes_per_s,
            TopOrder::Requests => rate.reads_per_s + rate.writes_per_s,
            TopOrder::Latency => {
                let slower = rate.read_latency_us.unwrap_or(0.0);
                slower.max(rate.write_latency_us.unwrap_or(0.0))
            }
        }
    }

    fn events(&self, events: &[EventReport]) -> Vec<Line> {
        if events.is_empty() {
            return Vec::new();
        }
        let newest = &events[events.len().saturating_sub(EVENTS_MOST)..];
        std::iter::once(Line::plain(String::new()))
            .chain(newest.iter().map(|event| self.screen.event(event)))
            .collect()
    }

    fn foot(&self) -> Vec<Line> {
        let Some(interval) = self.interval else {
            return Vec::new();
        };
        let text = format!(
            "q quit   s sort (by {})   every {} s",
            self.order.word(),
            interval.as_secs_f64()
        );
        vec![Line::plain(self.screen.cut(&text))]
    }
}

/// As many lines as fit; the last one says how many do not.
fn fitting(mut lines: Vec<Line>, most: usize, what: &str) -> Vec<Line> {
    if lines.len() > most {
        let left = lines.len() - most.saturating_sub(1);
        lines.truncate(most.saturating_sub(1));
        if most > 0 {
            lines.push(Line::plain(format!("... and {left} more {what}")));
        }
    }
    lines
}

fn heading_of_rates() -> String {
    ["r/s", "w/s", "rB/s", "wB/s", "r_ms", "w_ms"]
        .map(|heading| format!(" {heading:>6}"))
        .concat()
}

fn figures(of: &RateReport) -> String {
    [
        count(of.reads_per_s),
        count(of.writes_per_s),
        rate(of.read_bytes_per_s),
        rate(of.written_bytes_per_s),
        milliseconds(of.read_latency_us),
        milliseconds(of.write_latency_us),
    ]
    .map(|figure| format!(" {figure:>6}"))
    .concat()
}

/// Requests a second, in six columns.
fn count(per_s: f64) -> String {
    let per_s = per_s.max(0.0);
    if per_s >= THOUSAND * THOUSAND {
        format!("{:.1}M", per_s / THOUSAND / THOUSAND)
    } else if per_s >= 100.0 * THOUSAND {
        format!("{:.0}K", per_s / THOUSAND)
    } else if per_s > 0.0 && per_s < 10.0 {
        format!("{per_s:.1}")
    } else {
        format!("{per_s:.0}")
    }
}

/// A mean time, in six columns.
fn milliseconds(microseconds: Option<f64>) -> String {
    let Some(us) = microseconds else {
        return "-".to_owned();
    };
    let ms = us / THOUSAND;
    match ms {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms if ms < 100.0 * THOUSAND => format!("{ms:.0}"),
        _ => format!("{:.0}s", ms / THOUSAND),
    }
}

#[cfg(test)]
mod tests;
