//! What `spindle top` shows, as lines that fit: how the group is, what runs in it, its disks and its
//! busiest files, and what happened last.
//!
//! Nothing here asks or prints. No line is longer than the screen is wide, and there are no more lines
//! than it has rows; disks that are away or slow come first, so that they never fall off its end.

use std::collections::BTreeMap;
use std::time::Duration;

use spindle_control::view::{
    DiskReport, EventReport, GroupReport, HealthFindingReport, HealthReport, RateReport,
};
use spindle_control::{OperationReport, TopReport};

use crate::arguments::TopOrder;
use crate::command::rebalance::clock;
use crate::table::{rate, signed_size, size, time};

/// Columns of a disk's state: failure group, mode and use, with a space before each.
const STATE_COLUMNS: usize = 11 + 9 + 5;
/// Columns of rates: six figures of six, with a space before each.
const RATE_COLUMNS: usize = 6 * 7;
/// The narrowest name.
const NAME_COLUMNS_MIN: usize = 6;
/// Cells of the bar that shows how full the group is.
const BAR_CELLS: u64 = 20;
/// Lines that one finding takes at most.
const FINDING_LINES_MOST: usize = 3;
/// Events that are shown where there is room.
const EVENTS_MOST: usize = 3;
/// A thousand, where figures get a letter.
const THOUSAND: f64 = 1000.0;

/// One line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Without control characters.
    pub text: String,
    /// To be seen first.
    pub is_loud: bool,
}

impl Line {
    /// A line to be seen first.
    pub const fn loud(text: String) -> Self {
        Self {
            text,
            is_loud: true,
        }
    }

    /// Any other line.
    pub const fn plain(text: String) -> Self {
        Self {
            text,
            is_loud: false,
        }
    }
}

/// What the lines have to fit into.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    columns: usize,
    /// `None`: as many as there is to say.
    rows: Option<usize>,
    order: TopOrder,
    /// How often a person gets another screen.
    interval: Option<Duration>,
}

impl Screen {
    /// A terminal of that size.
    pub const fn new(columns: usize, rows: usize, order: TopOrder, interval: Duration) -> Self {
        Self {
            columns,
            rows: Some(rows),
            order,
            interval: Some(interval),
        }
    }

    /// No terminal: everything is shown.
    pub const fn plain(columns: usize, order: TopOrder) -> Self {
        Self {
            columns,
            rows: None,
            order,
            interval: None,
        }
    }

    /// The lines of one moment.
    pub fn lines(&self, report: &TopReport) -> Vec<Line> {
        let beside = format!(", {:.1} s", report.activity.interval_s);
        let mut lines = self.head(&report.group, &report.health, &beside);
        lines.extend(self.operations(&report.operations.operations));
        let events = self.events(&report.events);
        let foot = self.foot();
        let room = self.rows.map(|rows| {
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
        if let Some(rows) = self.rows {
            let above = rows.saturating_sub(foot.len());
            lines.truncate(above);
            lines.resize(above, Line::plain(String::new()));
        }
        lines.extend(foot);
        if let Some(rows) = self.rows {
            lines.truncate(rows);
        }
        lines
    }

    /// A text that fits, without what a terminal would obey.
    pub fn cut(&self, text: &str) -> String {
        cut(text, self.columns)
    }

    /// How the group is, and what is wrong; `beside` ends the first line.
    pub fn head(&self, group: &GroupReport, health: &HealthReport, beside: &str) -> Vec<Line> {
        let state = match group.fenced {
            Some(_) => "stopped".to_owned(),
            None => group.state.to_string(),
        };
        let first = format!(
            "{}: {state}, {} redundancy, health {}{beside}",
            group.name, group.redundancy, health.status
        );
        let used_bytes = group.total_bytes.saturating_sub(group.free_bytes);
        let part = |of: u64| share(used_bytes, group.total_bytes, of);
        let bar: String = (0..BAR_CELLS)
            .map(|cell| if cell < part(BAR_CELLS) { '#' } else { '.' })
            .collect();
        let away = match group.offline_disks_count {
            0 => String::new(),
            count => format!(", {count} offline"),
        };
        let second = format!(
            "[{bar}] {}% of {}, {} free, {} usable, {} disks{away}",
            part(100),
            size(group.total_bytes),
            size(group.free_bytes),
            signed_size(group.usable_bytes),
            group.disks.len()
        );
        let mut lines = vec![Line::loud(self.cut(&first)), Line::plain(self.cut(&second))];
        for finding in &health.findings {
            lines.extend(self.finding(finding));
        }
        lines
    }

    /// A line for each pass of background work.
    pub fn operations(&self, operations: &[OperationReport]) -> Vec<Line> {
        let line = |operation| Line::plain(self.cut(&told(operation)));
        operations.iter().map(line).collect()
    }

    /// What is wrong and what to do, in as many lines as that takes.
    fn finding(&self, finding: &HealthFindingReport) -> Vec<Line> {
        let text = format!("{}: {}; {}", finding.severity, finding.text, finding.advice);
        let mut lines: Vec<String> = Vec::new();
        for word in shown(&text).split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= self.columns => {
                    line.push(' ');
                    line.push_str(word);
                }
                Some(_) => lines.push(format!("  {word}")),
                None => lines.push(word.to_owned()),
            }
        }
        if self.rows.is_some() && lines.len() > FINDING_LINES_MOST {
            lines.truncate(FINDING_LINES_MOST);
            lines[FINDING_LINES_MOST - 1].push_str(" ...");
        }
        (lines.iter())
            .map(|line| Line::loud(self.cut(line)))
            .collect()
    }

    fn name_columns(&self, beside: usize) -> usize {
        self.columns.saturating_sub(beside).max(NAME_COLUMNS_MIN)
    }

    fn disk_heading(&self) -> String {
        let width = self.name_columns(STATE_COLUMNS + RATE_COLUMNS);
        let state = format!("{:<10} {:<8} {:>4}", "Failgroup", "Mode", "Use");
        self.cut(&format!("{:<width$} {state}{}", "Disk", heading_of_rates()))
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
                text: self.cut(&text),
                is_loud: disk.mode != "online" || disk.slow,
            }
        };
        disks.into_iter().map(line).collect()
    }

    fn file_heading(&self) -> String {
        let width = self.name_columns(RATE_COLUMNS);
        self.cut(&format!("{:<width$}{}", "File", heading_of_rates()))
    }

    fn files(&self, report: &TopReport) -> Vec<Line> {
        let mut files: Vec<&RateReport> = report.activity.files.iter().collect();
        files.sort_by(|left, right| self.key(right).total_cmp(&self.key(left)));
        let width = self.name_columns(RATE_COLUMNS);
        let line = |file: &RateReport| {
            let name = cut_front(&file.name, width);
            Line::plain(self.cut(&format!("{name:<width$}{}", figures(file))))
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
            .chain(newest.iter().map(|event| self.event(event)))
            .collect()
    }

    /// An event in one line.
    pub fn event(&self, event: &EventReport) -> Line {
        let seconds = i64::try_from(event.time_s).unwrap_or(i64::MAX);
        let text = format!("{}Z  {:<8}  {}", time(seconds), event.severity, event.text);
        Line::plain(self.cut(&text))
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
        vec![Line::plain(self.cut(&text))]
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

/// How many of `of` parts `some` of `all` are.
fn share(some: u64, all: u64, of: u64) -> u64 {
    u64::try_from(u128::from(some) * u128::from(of) / u128::from(all.max(1))).unwrap_or(of)
}

fn told(operation: &OperationReport) -> String {
    let whole = operation.done_bytes + operation.left_bytes;
    let left = operation
        .left_s
        .map_or_else(String::new, |left_s| format!(", {} left", clock(left_s)));
    let error = (operation.error.as_ref()).map_or_else(String::new, |error| format!(": {error}"));
    format!(
        "{}: {}, {}% of {}, {}/s, power {}{left}{error}",
        operation.pass,
        operation.state,
        share(operation.done_bytes, whole, 100),
        size(whole),
        size(operation.rate_bytes_per_s),
        operation.power
    )
}

/// Names come from disks and files: a terminal must not obey them.
fn shown(text: &str) -> String {
    let harmless = |letter: char| if letter.is_control() { '?' } else { letter };
    text.chars().map(harmless).collect()
}

/// The beginning, where all of it does not fit.
fn cut(text: &str, columns: usize) -> String {
    let text = shown(text);
    if text.chars().count() <= columns {
        return text;
    }
    let kept = text.chars().take(columns.saturating_sub(3));
    kept.chain("...".chars()).take(columns).collect()
}

/// The end: of a path it says more.
fn cut_front(text: &str, columns: usize) -> String {
    let text = shown(text);
    let length = text.chars().count();
    if length <= columns {
        return text;
    }
    let kept = text.chars().skip(length - columns.saturating_sub(3));
    "...".chars().chain(kept).collect()
}

#[cfg(test)]
mod tests;
