//! The first screen: one sentence, what it was measured on, the matrix, and the doubts.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::prose;
use crate::analyse::folder::Folder;
use crate::analyse::interval::percent;
use crate::analyse::summary::{ContenderSummary, Summary, are_a_map, class_title, map_title};
use crate::analyse::verdict::Verdict;
use crate::quantity::show_number;
use crate::render::chart::escaped;
use crate::render::matrix::{Cell, Column, Matrix, Note, Row, Standing, Table, sentence};

/// The whole of it.
pub(super) fn first(folder: &Folder, summary: &Summary, matrix: &Matrix<'_>) -> String {
    let mut text = format!(
        "<section class=\"first verdicts\"><p class=\"sentence\">{}</p>{}",
        said(summary),
        super::measured::measured_on(folder, summary)
    );
    text.push_str(&about("In doubt for all of it", &matrix.of_all, matrix));
    for (place, table) in matrix.tables.iter().enumerate() {
        if place > 0 {
            let _ = write!(
                text,
                "<h3>Not ranked with these: {}</h3>",
                class_title(table.class).to_lowercase()
            );
        }
        text.push_str(&about("In doubt for every cell", &table.notes, matrix));
        text.push_str(&table_of(summary, matrix, table));
    }
    text.push_str(&legend(summary));
    text.push_str(&notes(&matrix.notes));
    text.push_str("</section>");
    text
}

/// The sentence with its verdicts in their colours.
fn said(summary: &Summary) -> String {
    let mut text = prose(&sentence(summary));
    for verdict in Verdict::ALL {
        let word = verdict.word();
        let strong = format!("<strong class=\"word-{word}\">{word}</strong>");
        text = text.replace(word, &strong);
    }
    text
}

fn about(what: &str, places: &[usize], matrix: &Matrix<'_>) -> String {
    if places.is_empty() {
        return String::new();
    }
    format!(
        "<p class=\"of-all\">{what}: {}</p>",
        tags(places, &matrix.notes)
    )
}

/// The names of doubts, each with the number of its note.
fn tags(places: &[usize], notes: &[Note<'_>]) -> String {
    let tags: Vec<String> = places
        .iter()
        .map(|place| {
            let (note, number) = (&notes[*place], place + 1);
            let class = if note.forbids_a_claim {
                "tag forbids"
            } else {
                "tag"
            };
            format!(
                "<a class=\"{class}\" href=\"#note-{number}\">{}<sup>{number}</sup></a>",
                escaped(note.name)
            )
        })
        .collect();
    tags.join(" ")
}

/// So many columns have room beside each other: on a desktop, on paper.
const COLUMNS_OF_A_DESKTOP: usize = 6;
const COLUMNS_OF_PAPER: usize = 5;

/// A map of more points than that has one row.
const POINTS_SHOWN_MOST: usize = 8;

fn table_of(summary: &Summary, matrix: &Matrix<'_>, table: &Table<'_>) -> String {
    let count = table.columns.len();
    let class = if count <= COLUMNS_OF_PAPER {
        "few"
    } else if count <= COLUMNS_OF_A_DESKTOP {
        "some"
    } else {
        "many"
    };
    let heads: String = table
        .columns
        .iter()
        .map(|column| head(summary, matrix, column))
        .collect();
    let of = |rows: &str| {
        format!(
            "<table class=\"matrix {class}\"><thead><tr><th scope=\"col\">load</th>{heads}</tr></thead>\
             <tbody>{rows}</tbody></table>"
        )
    };
    let mut rows = String::new();
    let mut folded = String::new();
    for family in (table.rows).chunk_by(|one, next| one.load.family == next.load.family) {
        let loads = &summary.workloads[family[0].index..][..family.len()];
        let each: String = family
            .iter()
            .map(|row| row_of(matrix, table, row))
            .collect();
        if family.len() <= POINTS_SHOWN_MOST || !are_a_map(loads) {
            rows.push_str(&each);
            continue;
        }
        let title = map_title(&family[0].load.title);
        rows.push_str(&row_of_a_map(&title, table, family));
        let _ = write!(
            folded,
            "<details><summary>{}: each of {} points</summary>{}</details>",
            escaped(&title),
            family.len(),
            of(&each)
        );
    }
    rows.push_str(&overall(table));
    format!("{}{folded}", of(&rows))
}

/// A map in one row: how often each word is said of a contender. Its points are folded away below.
fn row_of_a_map(title: &str, table: &Table<'_>, points: &[Row<'_>]) -> String {
    let cells: String = (table.columns.iter().enumerate())
        .map(|(place, column)| {
            let standings = points.iter().map(|row| row.cells[place].standing);
            let mut counts: Vec<(Standing, usize)> = Vec::new();
            for standing in standings {
                match counts
                    .iter_mut()
                    .find(|(other, _)| other.word() == standing.word())
                {
                    Some((_, count)) => *count += 1,
                    None => counts.push((standing, 1)),
                }
            }
            counts.sort_by_key(|(_, count)| Reverse(*count));
            let class = match counts.as_slice() {
                [(standing, _)] => class_of(*standing),
                _ => "mixed".to_owned(),
            };
            let said: Vec<String> = (counts.iter())
                .map(|(standing, count)| said_of(*standing, &format!(" at {count}")))
                .collect();
            format!(
                "<td class=\"cell {class}\"><span class=\"who\">{}</span>{}</td>",
                escaped(column.name),
                said.concat()
            )
        })
        .collect();
    format!(
        "<tr><th scope=\"row\"><a href=\"#map-{}\">{}</a><span class=\"small\">{} points</span></th>{cells}</tr>",
        points[0].index + 1,
        escaped(title),
        points.len()
    )
}

fn head(summary: &Summary, matrix: &Matrix<'_>, column: &Column<'_>) -> String {
    // Without columns only those heads are shown that tell more than a name.
    let has_settings = !summary.made_of().is_empty();
    let class = if column.against.is_some() || !column.notes.is_empty() || has_settings {
        " class=\"told\""
    } else {
        ""
    };
    let mut text = format!(
        "<th scope=\"col\"{class}><span class=\"name\">{}</span>",
        escaped(column.name)
    );
    let found = (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .find(|one| one.name == column.name);
    if let Some(made_of) = found.and_then(ContenderSummary::made_of) {
        let _ = write!(text, "<span class=\"small\">{}</span>", escaped(&made_of));
    }
    if column.name == summary.baseline {
        text.push_str("<span class=\"small\">the baseline</span>");
    }
    if let Some(against) = column.against {
        let _ = write!(
            text,
            "<span class=\"small\">against {}</span>",
            escaped(against)
        );
    }
    text.push_str(&beside(&column.notes, matrix));
    text.push_str("</th>");
    text
}

fn beside(places: &[usize], matrix: &Matrix<'_>) -> String {
    if places.is_empty() {
        return String::new();
    }
    format!(
        "<span class=\"tags\">{}</span>",
        tags(places, &matrix.notes)
    )
}

fn row_of(matrix: &Matrix<'_>, table: &Table<'_>, row: &Row<'_>) -> String {
    let noise = match row.load.noise {
        Some(noise) if noise.low.is_some() => {
            format!("noise: {:.1} %", row.load.noise_floor * 100.0)
        }
        _ => "noise: not known".to_owned(),
    };
    let cells: String = (row.cells.iter().zip(&table.columns))
        .map(|(cell, column)| cell_of(matrix, column, cell, &row.load.unit))
        .collect();
    format!(
        "<tr><th scope=\"row\"><a href=\"#load-{}\">{}</a><span class=\"small\">{noise}</span>{}</th>{cells}</tr>",
        row.index + 1,
        escaped(&row.load.title),
        beside(&row.notes, matrix)
    )
}

fn cell_of(matrix: &Matrix<'_>, column: &Column<'_>, cell: &Cell<'_>, unit: &str) -> String {
    let figures = match cell.standing {
        Standing::Judged(_, ratio) => ratio.map_or_else(String::new, |ratio| {
            ratio_of(ratio.centre, ratio.low.zip(ratio.high))
        }),
        _ => rate_of(cell.contender, unit),
    };
    let tails = cell.contender.map_or_else(String::new, tails);
    of_a_column(
        column,
        cell.standing,
        &format!("{figures}{tails}{}", beside(&cell.notes, matrix)),
    )
}

/// A cell under the name of its column, which stands beside it where there is no head to look at.
fn of_a_column(column: &Column<'_>, standing: Standing, figures: &str) -> String {
    format!(
        "<td class=\"cell {}\"><span class=\"who\">{}</span>{}{figures}</td>",
        class_of(standing),
        escaped(column.name),
        said_of(standing, "")
    )
}

fn class_of(standing: Standing) -> String {
    standing.word().to_lowercase().replace(' ', "-")
}

/// The word of a cell behind its sign, and how often; nothing for the baseline.
fn said_of(standing: Standing, how_often: &str) -> String {
    let sign = match standing.sign() {
        "" => String::new(),
        sign => format!("<span class=\"sign\" aria-hidden=\"true\">{sign}</span> "),
    };
    match standing {
        Standing::Baseline => String::new(),
        _ => format!("<strong>{sign}{}{how_often}</strong>", standing.word()),
    }
}

fn ratio_of(centre: f64, interval: Option<(f64, f64)>) -> String {
    let interval = interval.map_or("no interval".to_owned(), |(low, high)| {
        format!("{low:.3} to {high:.3}")
    });
    figures_of(&format!("{centre:.3}"), &interval)
}

fn rate_of(contender: Option<&ContenderSummary>, unit: &str) -> String {
    contender
        .and_then(|one| one.rate)
        .map_or_else(String::new, |rate| {
            figures_of(&show_number(rate), &escaped(unit))
        })
}

fn figures_of(first: &str, second: &str) -> String {
    format!(
        "<span class=\"figures\"><span class=\"ratio\">{first}</span><span class=\"interval\">{second}</span></span>"
    )
}

/// The slow operations, where they say something else than the rate.
fn tails(contender: &ContenderSummary) -> String {
    contender
        .latencies
        .iter()
        .filter(|found| {
            let differs = matches!(found.verdict, Some(Verdict::Faster | Verdict::Slower));
            differs && found.verdict != contender.verdict
        })
        .filter_map(|found| {
            let (ratio, word) = (found.ratio?, found.verdict?.word());
            Some(format!(
                "<span class=\"tail word-{word}\">{} takes {:.2} times as long</span>",
                escaped(&found.quantile),
                ratio.centre
            ))
        })
        .collect()
}

fn overall(table: &Table<'_>) -> String {
    if table.overall.is_empty() {
        return String::new();
    }
    let cells: String = (table.columns.iter().zip(&table.overall))
        .map(|(column, found)| match found {
            Some(found) => of_a_column(
                column,
                Standing::Judged(found.verdict, Some(found.ratio)),
                &ratio_of(found.ratio.centre, found.ratio.low.zip(found.ratio.high)),
            ),
            None => "<td class=\"cell none\"></td>".to_owned(),
        })
        .collect();
    format!(
        "<tr class=\"overall\"><th scope=\"row\">all loads<span class=\"small\">geometric mean</span></th>{cells}</tr>"
    )
}

/// What words and figures of the matrix mean.
fn legend(summary: &Summary) -> String {
    let confidence = (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .filter_map(|one| one.ratio?.confidence)
        .fold(f64::INFINITY, f64::min);
    let mut text = format!(
        "<p class=\"note\">Each ratio is of the rates in the middle block, more is faster, and stands over its {}interval. \
         EQUIVALENT: the interval lies within {:.2} to {:.2}. Noise: how far {} may lie from itself under a second name; \
         no smaller difference is claimed.",
        if confidence.is_finite() {
            format!("{} ", percent(confidence))
        } else {
            String::new()
        },
        1.0 - summary.margin,
        1.0 + summary.margin,
        escaped(&summary.baseline),
    );
    if let Some(limits) = summary.what_intervals_leave_out() {
        let _ = write!(text, " {}", prose(&limits));
    }
    text.push_str("</p>");
    text
}

/// Every doubt under its number: what was seen, of whom, and what to do, which is told once.
pub(super) fn notes(notes: &[Note<'_>]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut list = "<h3>Doubts</h3><ol class=\"doubts\">".to_owned();
    for (place, note) in notes.iter().enumerate() {
        let _ = write!(
            list,
            "<li id=\"note-{}\"><b>{}</b>",
            place + 1,
            escaped(note.name)
        );
        for seen in &note.seen {
            let whose = match seen.whose() {
                whose if whose.is_empty() => whose,
                whose => format!("<i>{}</i>: ", escaped(&whose)),
            };
            let _ = write!(
                list,
                "<span class=\"seen\">{whose}{}</span>",
                prose(seen.what)
            );
        }
        let _ = write!(
            list,
            "<span class=\"advice\">{}</span></li>",
            prose(note.advice)
        );
    }
    list.push_str("</ol>");
    list
}
