//! The text format in which Prometheus takes metrics (version 0.0.4).
//!
//! A family is declared once, with its help and type, and its samples follow. Names and types
//! are ours and asserted; label values come from anywhere and are escaped.

use std::fmt::Write;

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What sort of figures a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    /// Only grows, and begins at zero with the process.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// Label names and values.
pub(super) type Labels<'a> = [(&'static str, &'a str)];

/// Metrics as text.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    family: &'static str,
}

impl Exposition {
    /// Begins a family; its samples must follow before the next.
    pub(super) fn family(&mut self, name: &'static str, metric_type: MetricType, help: &str) {
        assert!(
            (metric_type == MetricType::Counter) == name.ends_with("_total"),
            "the name of a counter, and of nothing else, ends with _total: {name}"
        );
        let word = match metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
        };
        self.declare(name, word, help);
    }

    /// Begins a family of histograms.
    pub(super) fn histograms(&mut self, name: &'static str, help: &str) {
        self.declare(name, "histogram", help);
    }

    fn declare(&mut self, name: &'static str, word: &str, help: &str) {
        self.family = name;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}");
        let _ = writeln!(self.text, "# TYPE {name} {word}");
    }

    /// A sample of the family.
    pub(super) fn sample(&mut self, labels: &Labels<'_>, value: impl std::fmt::Display) {
        self.line("", labels, None, value);
    }

    /// A histogram of the family: upper bounds in the family's unit with the number of
    /// observations in each bucket alone, and the sum of all.
    pub(super) fn histogram(
        &mut self,
        labels: &Labels<'_>,
        buckets: &[(f64, u64)],
        beyond: u64,
        sum: f64,
    ) {
        let mut count = 0;
        for (bound, in_bucket) in buckets {
            count += in_bucket;
            self.line("_bucket", labels, Some(&bound.to_string()), count);
        }
        count += beyond;
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<&str>,
        value: impl std::fmt::Display,
    ) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        let all = labels
            .iter()
            .copied()
            .chain(bound.map(|bound| ("le", bound)));
        let mut separator = '{';
        for (name, label) in all {
            self.text.push(separator);
            separator = ',';
            let _ = write!(self.text, "{name}=\"");
            for letter in label.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The whole text.
    #[must_use]
    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, MetricType};

    #[test]
    fn samples_follow_their_family_and_label_values_are_escaped() {
        let mut text = Exposition::default();
        text.family("spindle_x_bytes", MetricType::Gauge, "What x is.");
        text.sample(&[("path", "/a\"b\\c\nd")], -5);
        text.family("spindle_y_total", MetricType::Counter, "What y was.");
        text.sample(&[], 7);
        let expected = "# HELP spindle_x_bytes What x is.\n# TYPE spindle_x_bytes gauge\n\
            spindle_x_bytes{path=\"/a\\\"b\\\\c\\nd\"} -5\n\
            # HELP spindle_y_total What y was.\n# TYPE spindle_y_total counter\n\
            spindle_y_total 7\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_count_all_that_is_below_them() {
        let mut text = Exposition::default();
        text.histograms("spindle_z_seconds", "What z took.");
        text.histogram(&[("d", "r")], &[(0.001, 2), (0.5, 3)], 1, 4.25);
        let text = text.finish();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "spindle_z_seconds_bucket{d=\"r\",le=\"0.001\"} 2",
            "spindle_z_seconds_bucket{d=\"r\",le=\"0.5\"} 5",
            "spindle_z_seconds_bucket{d=\"r\",le=\"+Inf\"} 6",
            "spindle_z_seconds_sum{d=\"r\"} 4.25",
            "spindle_z_seconds_count{d=\"r\"} 6",
        ];
        assert_eq!(lines, expected);
    }
}
