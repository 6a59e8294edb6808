//! The section of a `[[workload]]` with several sizes and depths of requests: the map first, a table
//! for each contender and share of reads, then each of its loads, folded away until a reader wants
//! it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::sections::{figure, folded};
use crate::analyse::folder::Folder;
use crate::analyse::summary::{ContenderSummary, Summary, WorkloadSummary, map_title};
use crate::experiment::{BlockPoint, show_request};
use crate::quantity::show_number;
use crate::record::AGAIN;
use crate::render::chart::escaped;
use crate::render::matrix::Standing;

/// The section; `loads` are the places of its loads in the summary.
pub(super) fn section(folder: &Folder, summary: &Summary, loads: Range<usize>) -> String {
    let family = &summary.workloads[loads.clone()];
    let mut text = format!(
        "<section id=\"map-{}\"><h2>{}</h2>",
        loads.start + 1,
        escaped(&map_title(&family[0].title))
    );
    let mut names: Vec<&str> = Vec::new();
    for contender in family.iter().flat_map(|load| &load.contenders) {
        if !contender.name.ends_with(AGAIN) && !names.contains(&contender.name.as_str()) {
            names.push(&contender.name);
        }
    }
    let shares: BTreeSet<u32> = (family.iter())
        .filter_map(|load| Some(load.point?.read_percent))
        .collect();
    for share in &shares {
        for name in &names {
            let title = if shares.len() > 1 {
                format!("{} at {share} % reads", escaped(name))
            } else {
                escaped(name)
            };
            text.push_str(&figure(
                "h3",
                &title,
                &note(family, name),
                &table(family, name, *share),
            ));
        }
    }
    text.push_str(&folded(folder, summary, loads));
    text.push_str("</section>");
    text
}

fn note(family: &[WorkloadSummary], name: &str) -> String {
    let unit = escaped(&family[0].unit);
    let against = (family.iter())
        .flat_map(|load| &load.contenders)
        .find(|one| one.name == name)
        .and_then(|one| one.against.as_deref());
    match against {
        None => {
            format!("{unit}: rows by the size of a request, columns by how many are under way.")
        }
        Some(against) => format!(
            "Ratio to {}, with what may be said of it, over {unit}.",
            escaped(against)
        ),
    }
}

/// Sizes by depths.
fn table(family: &[WorkloadSummary], name: &str, read_percent: u32) -> String {
    let points = || family.iter().filter_map(|load| load.point);
    let sizes: BTreeSet<u64> = points().map(|point| point.request_bytes).collect();
    let depths: BTreeSet<u32> = points().map(|point| point.depth).collect();
    let mut text = "<div class=\"scroll\"><table class=\"map\"><thead><tr><th>size</th>".to_owned();
    for depth in &depths {
        let _ = write!(text, "<th>depth {depth}</th>");
    }
    text.push_str("</tr></thead><tbody>");
    for size in &sizes {
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", show_request(*size));
        for depth in &depths {
            let point = BlockPoint {
                request_bytes: *size,
                depth: *depth,
                read_percent,
            };
            let found = (family.iter())
                .find(|load| load.point == Some(point))
                .and_then(|load| load.contenders.iter().find(|one| one.name == name));
            text.push_str(&found.map_or_else(|| "<td></td>".to_owned(), cell));
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>");
    text
}

fn cell(contender: &ContenderSummary) -> String {
    let standing = Standing::of(contender);
    let class = standing.word().to_lowercase().replace(' ', "-");
    let rate = contender.rate.map_or_else(String::new, show_number);
    let Standing::Judged(_, Some(ratio)) = standing else {
        let word = if standing == Standing::Baseline {
            ""
        } else {
            standing.word()
        };
        return format!("<td class=\"cell {class}\">{word} {rate}</td>");
    };
    let interval = ratio
        .low
        .zip(ratio.high)
        .map_or_else(String::new, |(low, high)| {
            format!("<br><span class=\"small\">{low:.3} to {high:.3}</span>")
        });
    format!(
        "<td class=\"cell {class}\"><strong><span class=\"sign\" aria-hidden=\"true\">{}</span> {:.3}</strong>{interval}<br><span class=\"small\">{rate}</span></td>",
        standing.sign(),
        ratio.centre
    )
}
