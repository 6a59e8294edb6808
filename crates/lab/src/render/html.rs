//! The report: one page that a database administrator reads from the top down.

mod curve;
mod extract;
mod fairness;
mod machine;
mod sections;
mod style;
mod tails;

use std::fmt::Write as _;

use self::fairness::fairness;
use self::machine::environment;
use self::sections::{footer, trouble, workload};
use crate::analyse::folder::Folder;
use crate::analyse::summary::{Summary, Told};
use crate::analyse::verdict::Verdict;
use crate::render::chart::escaped;

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
        style::SHEET
    );
    let _ = write!(
        page,
        "<header><p class=\"kind\">spindle-lab</p><h1>{}</h1>{}</header>",
        escaped(&summary.name),
        sections::subtitle(folder, summary)
    );
    page.push_str(&verdicts(summary));
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
            None => page.push_str(&workload(folder, summary, index)),
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

fn verdicts(summary: &Summary) -> String {
    let mut text = "<section class=\"verdicts\"><h2>Verdict</h2>".to_owned();
    for sentence in &summary.headline {
        let found: Vec<Verdict> = Verdict::ALL
            .into_iter()
            .filter(|verdict| sentence.contains(verdict.word()))
            .collect();
        // Several verdicts in one sentence have no colour together.
        let class = match found.as_slice() {
            [one] => one.word(),
            _ => "none",
        }
        .to_lowercase();
        let mut marked = prose(sentence);
        for verdict in found {
            let strong = format!("<strong>{}</strong>", verdict.word());
            marked = marked.replacen(verdict.word(), &strong, 1);
        }
        let _ = write!(text, "<p class=\"verdict-line {class}\">{marked}</p>");
    }
    let of_the_machine: Vec<(String, &Told)> = summary
        .doubts
        .iter()
        .map(|told| (String::new(), told))
        .collect();
    text.push_str(&doubts(&of_the_machine));
    text.push_str("</section>");
    text
}

/// Doubts as a list, each with whose it is; nothing where there are none.
fn doubts(all: &[(String, &Told)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut list = "<ul class=\"doubts\">".to_owned();
    let mut given: Vec<&str> = Vec::new();
    for (whose, told) in all {
        let whose = if whose.is_empty() {
            String::new()
        } else {
            format!("<b>{}</b>: ", escaped(whose))
        };
        let _ = write!(list, "<li>{whose}{}", prose(&told.what));
        // The same advice once is enough.
        if !given.contains(&told.what_to_do.as_str()) {
            given.push(&told.what_to_do);
            let advice = prose(&told.what_to_do);
            let _ = write!(list, " <span class=\"advice\">{advice}</span>");
        }
        list.push_str("</li>");
    }
    list.push_str("</ul>");
    list
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
