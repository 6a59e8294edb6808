//! The table on the terminal: verdicts first.

use std::fmt::Write as _;

use crate::analyse::summary::{
    ContenderSummary, Ratio, Summary, Told, WorkloadSummary, class_title,
};
use crate::analyse::verdict::Verdict;
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
        text.push_str(&latencies(workload));
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

/// The slow operations of each, below the rates.
fn latencies(workload: &WorkloadSummary) -> String {
    let heads = ["", "middle run", "ratio", "interval", "verdict"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for contender in &workload.contenders {
        for found in &contender.latencies {
            rows.push(vec![
                format!("{} {}", contender.name, found.quantile),
                show_microseconds(found.us),
                centre_of(contender, found.ratio),
                interval_of(found.ratio),
                found.verdict.map_or("", Verdict::word).to_owned(),
            ]);
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    aligned(&rows)
}

/// One for the baseline itself; nothing for what is not compared.
fn centre_of(contender: &ContenderSummary, ratio: Option<Ratio>) -> String {
    match ratio {
        Some(ratio) => format!("{:.3}", ratio.centre),
        None if contender.against.is_none() => "1".to_owned(),
        None => "-".to_owned(),
    }
}

fn interval_of(ratio: Option<Ratio>) -> String {
    ratio
        .and_then(|ratio| Some((ratio.low?, ratio.high?)))
        .map_or("-".to_owned(), |(low, high)| {
            format!("{low:.3} to {high:.3}")
        })
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
    vec![
        contender.name.clone(),
        contender.rate.map_or("failed".to_owned(), show_number),
        centre_of(contender, contender.ratio),
        interval_of(contender.ratio),
        match contender.verdict {
            Some(verdict) => verdict.word(),
            None if contender.is_over_the_limit() => "over the limit",
            None => "",
        }
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
