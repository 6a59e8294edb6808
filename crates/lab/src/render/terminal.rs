//! The summary on the terminal: figures, then the first screen of the page in 80 columns.

use std::fmt::Write as _;

use crate::analyse::summary::{ContenderSummary, Ratio, Summary, WorkloadSummary, class_title};
use crate::analyse::verdict::Verdict;
use crate::quantity::{show_microseconds, show_number};
use crate::render::matrix::{Cell, Column, Note, Standing, Table, matrix, sentence};

/// As wide as a terminal is at least.
const WIDTH: usize = 80;

/// Everything of a summary that fits a terminal. The figures come first and the verdicts last, where
/// they are in sight when the program has ended.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let mut text = String::new();
    for workload in &summary.workloads {
        let _ = writeln!(text, "{} ({})", workload.title, workload.unit);
        for (index, (class, members)) in workload.by_class().into_iter().enumerate() {
            if index > 0 {
                let _ = writeln!(
                    text,
                    "not ranked with these: {}",
                    class_title(class).to_lowercase()
                );
            }
            let heads = ["", "rate", "mean", "p50", "p99", "CPU/op"];
            let mut rows = vec![heads.map(str::to_owned).to_vec()];
            rows.extend(members.into_iter().map(row));
            text.push_str(&aligned(&rows));
        }
        text.push_str(&scripts(workload));
        text.push_str(&latencies(workload));
        text.push('\n');
    }
    for (name, made_of) in summary.made_of() {
        let _ = writeln!(text, "{}", wrapped(&format!("{name}: {made_of}"), 0));
    }
    for (name, reason) in &summary.not_run {
        let _ = writeln!(text, "not run: {name}: {reason}");
    }
    for failed in &summary.failed {
        let _ = writeln!(text, "FAILED: {}: {}", failed.folder, failed.reason);
    }
    text.push_str(&verdicts(summary));
    text
}

/// The first screen of the page with a line for each cell. It comes last and its doubts before it, so
/// that sentence and cells are in sight however many doubts there are.
fn verdicts(summary: &Summary) -> String {
    let matrix = matrix(summary);
    let mut text = doubts(&matrix.notes);
    let _ = write!(text, "\n{}\n", wrapped(&sentence(summary), 0));
    if !matrix.of_all.is_empty() {
        let names = tags(&matrix.of_all, &matrix.notes);
        let _ = writeln!(
            text,
            "{}",
            wrapped(&format!("In doubt for all of it: {names}"), 0)
        );
    }
    for (place, table) in matrix.tables.iter().enumerate() {
        if place > 0 {
            let title = class_title(table.class).to_lowercase();
            let _ = write!(text, "\nnot ranked with these: {title}\n");
        }
        text.push_str(&of_a_table(table, &matrix.notes));
    }
    text
}

/// Every doubt under its number.
fn doubts(notes: &[Note<'_>]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut text = "\nDoubts\n".to_owned();
    for (place, note) in notes.iter().enumerate() {
        let _ = write!(text, "({}) {}", place + 1, note.name);
        text.push_str(if note.forbids_a_claim {
            ", which forbids a claim:\n"
        } else {
            ":\n"
        });
        for seen in &note.seen {
            let whose = match seen.whose() {
                whose if whose.is_empty() => whose,
                whose => format!("{whose}: "),
            };
            let _ = writeln!(text, "{}", wrapped(&format!("{whose}{}", seen.what), 4));
        }
        let _ = writeln!(text, "{}", wrapped(note.advice, 4));
    }
    text
}

fn of_a_table(table: &Table<'_>, notes: &[Note<'_>]) -> String {
    let mut text = String::new();
    let doubted = |text: &mut String, what: &str, places: &[usize], indent: usize| {
        if !places.is_empty() {
            let line = format!("{what}{}", tags(places, notes));
            let _ = writeln!(text, "{}", wrapped(&line, indent));
        }
    };
    doubted(&mut text, "In doubt for every cell: ", &table.notes, 0);
    for column in &table.columns {
        doubted(
            &mut text,
            &format!("In doubt for {}: ", column.name),
            &column.notes,
            0,
        );
    }
    let name = |column: &Column<'_>| match column.against {
        Some(against) => format!("{} (against {against})", column.name),
        None => column.name.to_owned(),
    };
    let widest = table
        .columns
        .iter()
        .map(|column| name(column).chars().count())
        .max();
    // Longer names push their own line to the right and no other.
    let width = widest.unwrap_or(0).min(WIDTH - 2 - FIGURES);
    for row in &table.rows {
        let noise = match row.load.noise {
            Some(noise) if noise.low.is_some() => {
                format!("noise {:.1} %", row.load.noise_floor * 100.0)
            }
            _ => "noise not known".to_owned(),
        };
        let _ = write!(
            text,
            "\n{}\n",
            wrapped(&format!("{} ({noise})", row.load.title), 0)
        );
        doubted(&mut text, "! ", &row.notes, 2);
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            if cell.standing == Standing::Absent {
                continue;
            }
            let _ = writeln!(
                text,
                "  {:<width$}{}",
                name(column),
                figures(cell, &row.load.unit)
            );
            doubted(&mut text, "! ", &cell.notes, 6);
        }
    }
    let overall: Vec<_> = table.overall.iter().zip(&table.columns).collect();
    if !overall.is_empty() {
        text.push_str("\nall loads, geometric mean\n");
    }
    for (found, column) in overall {
        let Some(found) = found else { continue };
        let standing = Standing::Judged(found.verdict, Some(found.ratio));
        let _ = writeln!(text, "  {:<width$}{}", name(column), of_standing(standing));
    }
    text
}

/// How much of a line a word, its ratio and its interval take.
const FIGURES: usize = 2 + 16 + 8 + 16;

fn figures(cell: &Cell<'_>, unit: &str) -> String {
    let rate = cell.contender.and_then(|one| one.rate);
    match (cell.standing, rate) {
        (Standing::Judged(..), _) | (_, None) => of_standing(cell.standing),
        (standing, Some(rate)) => {
            format!("  {:<16}{} {unit}", standing.word(), show_number(rate))
        }
    }
}

fn of_standing(standing: Standing) -> String {
    let figures = match standing {
        Standing::Judged(_, Some(ratio)) => {
            format!("{:<8.3}{}", ratio.centre, interval_of(Some(ratio)))
        }
        _ => String::new(),
    };
    format!("  {:<16}{figures}", standing.word())
        .trim_end()
        .to_owned()
}

/// The names of doubts, each with the number of its note.
fn tags(places: &[usize], notes: &[Note<'_>]) -> String {
    let tags: Vec<String> = (places.iter())
        .map(|place| format!("{} ({})", notes[*place].name, place + 1))
        .collect();
    tags.join(", ")
}

/// In lines of a terminal's width, each that far from its left edge.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split_whitespace() {
        let mut line = lines.pop().unwrap_or_default();
        let is_first = line.trim().is_empty();
        let needed = line.chars().count() + word.chars().count() + usize::from(!is_first);
        if needed > WIDTH && !is_first {
            lines.push(line);
            line = " ".repeat(indent);
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
        lines.push(line);
    }
    lines.join("\n")
}

/// Each of several scripts, below the rates.
fn scripts(workload: &WorkloadSummary) -> String {
    let heads = ["", "runs/s", "share", "mean", "p99"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for contender in workload
        .contenders
        .iter()
        .filter(|one| one.scripts.len() > 1)
    {
        for script in &contender.scripts {
            let dash = || "-".to_owned();
            rows.push(vec![
                format!("{} {}", contender.name, script.name),
                show_number(script.per_s),
                format!("{:.1} %", script.share * 100.0),
                script.latency_mean_us.map_or_else(dash, show_microseconds),
                (script.latency_p99_us)
                    .map_or_else(dash, |us| show_microseconds(crate::quantity::as_float(us))),
            ]);
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    aligned(&rows)
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
    let dash = || "-".to_owned();
    vec![
        contender.name.clone(),
        contender.rate.map_or("failed".to_owned(), show_number),
        contender
            .latency_mean_us
            .map_or_else(dash, show_microseconds),
        latency(0),
        latency(2),
        contender.processor_us.map_or_else(dash, show_microseconds),
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
