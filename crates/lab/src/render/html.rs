//! The report: one page that a database administrator reads from the top down.

mod beside;
mod curve;
mod extract;
mod fairness;
mod first;
mod machine;
mod map;
mod measured;
mod sections;
mod style;
mod tails;

use std::fmt::Write as _;

use self::fairness::fairness;
use self::first::first;
use self::machine::environment;
use self::sections::{footer, trouble, workload};
use crate::analyse::folder::Folder;
use crate::analyse::summary::{Summary, are_a_map};
use crate::render::chart::{self, both, escaped};
use crate::render::matrix::matrix;

/// The whole page.
#[must_use]
pub fn page(folder: &Folder, summary: &Summary) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>{} - spindle-lab</title><style>{}</style></head><body><main>",
        escaped(&summary.name),
        style::sheet()
    );
    let _ = write!(
        page,
        "<header><p class=\"kind\">spindle-lab</p><h1>{}</h1></header>",
        escaped(&summary.name)
    );
    page.push_str(&first(folder, summary, &matrix(summary)));
    page.push_str(&ratios(summary));
    let mut index = 0;
    while let Some(first) = summary.workloads.get(index) {
        let family = first.family;
        let count = summary.workloads[index..]
            .iter()
            .take_while(|other| other.family == family)
            .count();
        match summary.curves.iter().find(|curve| curve.family == family) {
            Some(curve) => {
                page.push_str(&curve::section(
                    folder,
                    summary,
                    curve,
                    index..index + count,
                ));
            }
            None if are_a_map(&summary.workloads[index..index + count]) => {
                page.push_str(&map::section(folder, summary, index..index + count));
            }
            None => {
                let loads = index..index + count;
                page.extend(loads.map(|index| workload(folder, summary, index)));
            }
        }
        index += count;
    }
    page.push_str(&fairness(folder, summary));
    page.push_str(&trouble(summary));
    page.push_str(&environment(folder));
    page.push_str(&footer(folder, summary));
    page.push_str("</main></body></html>\n");
    page
}

/// The ratios of every load over one axis, so that loads can be compared, too.
fn ratios(summary: &Summary) -> String {
    let reach = chart::reach(summary);
    let charts: String = summary
        .workloads
        .iter()
        .map(|load| {
            let chart = both(|width| chart::ratios(load, summary.margin, reach, width));
            if chart.is_empty() {
                return String::new();
            }
            sections::figure("h3", &escaped(&load.title), "", &chart)
        })
        .collect();
    if charts.is_empty() {
        return charts;
    }
    format!(
        "<section><h2>Ratios</h2><p class=\"note\">Each over one axis with 1.00 in its middle, where twice as fast lies as far away \
         as half as fast. Shaded: EQUIVALENT. Dashed: {} against itself.</p>{charts}</section>",
        escaped(&summary.baseline)
    )
}

/// Escaped, with what stands between two backticks as code.
fn prose(text: &str) -> String {
    let escaped = escaped(text);
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // One without its partner is no mark.
        return escaped;
    }
    let mut prose = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        if index % 2 == 0 {
            prose.push_str(part);
        } else {
            let _ = write!(prose, "<code>{part}</code>");
        }
    }
    prose
}

#[cfg(test)]
mod tests;
