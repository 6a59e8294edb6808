//! Lines that fit a terminal: what `spindle top` and `spindle status` both say of a group.
//!
//! Nothing here asks or prints. No line is longer than the terminal is wide, and no name that comes
//! from a disk or a file is obeyed by it.

use spindle_control::OperationReport;
use spindle_control::view::{EventReport, GroupReport, HealthFindingReport, HealthReport};

use crate::table::{clock, local_time, signed_size, size};

/// Cells of the bar that shows how full the group is.
const BAR_CELLS: u64 = 20;
/// Lines that one finding takes at most.
const FINDING_LINES_MOST: usize = 3;

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
    /// How wide it is.
    pub columns: usize,
    /// How many lines it has; `None`: as many as there is to say.
    pub rows: Option<usize>,
}

impl Screen {
    /// No terminal, or a page that goes on beyond its end.
    pub const fn endless(columns: usize) -> Self {
        Self {
            columns,
            rows: None,
        }
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

    /// An event in one line.
    pub fn event(&self, event: &EventReport) -> Line {
        let seconds = i64::try_from(event.time_s).unwrap_or(i64::MAX);
        let text = format!(
            "{}  {:<8}  {}",
            local_time(seconds),
            event.severity,
            event.text
        );
        Line::plain(self.cut(&text))
    }
}

/// How many of `of` parts `some` of `all` are.
pub fn share(some: u64, all: u64, of: u64) -> u64 {
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
pub fn shown(text: &str) -> String {
    let harmless = |letter: char| if letter.is_control() { '?' } else { letter };
    text.chars().map(harmless).collect()
}

/// The beginning, where all of it does not fit.
pub fn cut(text: &str, columns: usize) -> String {
    let text = shown(text);
    if text.chars().count() <= columns {
        return text;
    }
    let kept = text.chars().take(columns.saturating_sub(3));
    kept.chain("...".chars()).take(columns).collect()
}

/// The end: of a path it says more.
pub fn cut_front(text: &str, columns: usize) -> String {
    let text = shown(text);
    let length = text.chars().count();
    if length <= columns {
        return text;
    }
    let kept = text.chars().skip(length - columns.saturating_sub(3));
    "...".chars().chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use spindle_control::view::{EventReport, HealthFindingReport, HealthStatus};

    use super::{FINDING_LINES_MOST, Screen, cut, cut_front, share};

    #[test]
    fn a_text_that_is_too_long_loses_the_end_and_a_path_its_beginning() {
        assert_eq!(cut("one two three", 10), "one two...");
        assert_eq!(cut_front("/one/two/three", 10), "...o/three");
        for columns in 0..5 {
            assert!(cut("a text", columns).chars().count() <= columns);
        }
        assert_eq!(cut("\u{1b}[2J", 10), "?[2J");
        assert_eq!(share(1, 3, 100), 33);
        assert_eq!(share(0, 0, 100), 0);
    }

    #[test]
    fn a_finding_is_told_whole_where_there_is_room_and_in_three_lines_where_there_is_not() {
        let finding = HealthFindingReport {
            severity: HealthStatus::Critical,
            kind: "damage".to_owned(),
            disk_name: None,
            text: "many words ".repeat(20),
            advice: "the last word".to_owned(),
            can_be_cleared: true,
        };
        let whole = Screen::endless(40).finding(&finding);
        assert!(
            whole.last().unwrap().text.ends_with("the last word"),
            "{whole:?}"
        );
        assert!(
            whole
                .iter()
                .all(|line| line.text.chars().count() <= 40 && line.is_loud)
        );
        let short = Screen {
            columns: 40,
            rows: Some(24),
        };
        assert_eq!(short.finding(&finding).len(), FINDING_LINES_MOST);
    }

    #[test]
    fn an_event_has_the_time_with_its_distance_from_utc() {
        let event = EventReport {
            number: 1,
            time_s: 1_795_646_480,
            time_ms: 0,
            host: String::new(),
            group: "data".to_owned(),
            severity: "warning".to_owned(),
            kind: "disk_slow".to_owned(),
            disk: None,
            disk_name: None,
            file: None,
            path: None,
            text: "slow".to_owned(),
        };
        let line = Screen::endless(80).event(&event).text;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, zone, "warning", "slow"] = words[..] else {
            panic!("{line}");
        };
        assert!(zone.starts_with(['+', '-']) && zone.len() == 5, "{line}");
    }
}
