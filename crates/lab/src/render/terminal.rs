//! The table on the terminal: verdicts first.

use std::fmt::Write as _;

use crate::analyse::summary::{ContenderSummary, Summary, Told, WorkloadSummary, class_title};
use crate::quantity::{show_microseconds, show_number};

/// Everything of a summary that fits a terminal.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let mut text = String::new();
    for sentence in &summary.headline {
        let _ = writeln!(text, "{sentence}");
    }
    for workload in &summary.workloads {
        let _ = writeln!(text, "\n{} ({})", workload.title, workload.unit);
        for (index, (class, members)) in workload.by_class().into_iter().enumerate() {
            if index > 0 {
                let _ = writeln!(
                    text,
                    "not ranked with these: {}",
                    class_title(class).to_lowercase()
                );
            }
            let heads = ["", "rate", "ratio", "interval", "verdict", "p50", "p99"];
            let mut rows = vec![heads.map(str::to_owned).to_vec()];
            rows.extend(members.into_iter().map(row));
            text.push_str(&aligned(&rows));
        }
        let _ = writeln!(text, "{}", noise(workload));
        for (whose, doubt) in workload.all_doubts() {
            told(&mut text, &whose, doubt);
        }
    }
    for doubt in &summary.doubts {
        told(&mut text, "", doubt);
    }
    for (name, reason) in &summary.not_run {
        let _ = writeln!(text, "not run: {name}: {reason}");
    }
    for failed in &summary.failed {
        let _ = writeln!(text, "FAILED: {}: {}", failed.folder, failed.reason);
    }
    text
}

fn noise(workload: &WorkloadSummary) -> String {
    match workload.noise {
        Some(noise) if noise.low.is_some() => format!(
            "noise: the baseline against itself lies within {:.1} %",
            workload.noise_floor * 100.0
        ),
        _ => "noise: unknown, too few blocks".to_owned(),
    }
}

/// A doubt, with the advice where it was not given before.
fn told(text: &mut String, whose: &str, told: &Told) {
    let whose = if whose.is_empty() {
        String::new()
    } else {
        format!("{whose}: ")
    };
    let _ = write!(text, "  ! {whose}{}", told.what);
    if !text.contains(&told.what_to_do) {
        let _ = write!(text, " {}", told.what_to_do);
    }
    text.push('\n');
}

fn row(contender: &ContenderSummary) -> Vec<String> {
    let latency = |index: usize| {
        contender
            .latency_us
            .get(index)
            .copied()
            .flatten()
            .map_or_else(
                || "-".to_owned(),
                |us| show_microseconds(crate::quantity::as_float(us)),
            )
    };
    let interval = contender
        .ratio
        .and_then(|ratio| Some((ratio.low?, ratio.high?)));
    vec![
        contender.name.clone(),
        contender.rate.map_or("failed".to_owned(), show_number),
        contender
            .ratio
            .map_or("1".to_owned(), |ratio| format!("{:.3}", ratio.centre)),
        interval.map_or("-".to_owned(), |(low, high)| {
            format!("{low:.3} to {high:.3}")
        }),
        contender
            .verdict
            .map_or("", |verdict| verdict.word())
            .to_owned(),
        latency(0),
        latency(2),
    ]
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
