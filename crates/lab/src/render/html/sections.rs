//! The parts of the page below the verdict.

use std::fmt::Write as _;
use std::ops::Range;

use super::extract::{extract, reconciliation};
use super::{beside, tails};
use crate::analyse::folder::Folder;
use crate::analyse::summary::{ContenderSummary, Summary, WorkloadSummary, class_title};
use crate::quantity::{as_float, show_microseconds, show_number};
use crate::record::AGAIN;
use crate::render::chart::{
    SESSION_KINDS, both, colour, distribution, escaped, layers, rates, series, sessions, window,
};

/// One load: figures and charts.
pub(super) fn workload(folder: &Folder, summary: &Summary, index: usize) -> String {
    let workload = &summary.workloads[index];
    format!(
        "<section><h2 id=\"load-{}\">{}</h2>{}</section>",
        index + 1,
        escaped(&workload.title),
        figures(folder, summary, index)
    )
}

/// Loads of one `[[workload]]`, each folded away until a reader wants it.
pub(super) fn folded(folder: &Folder, summary: &Summary, loads: Range<usize>) -> String {
    let mut text = String::new();
    for index in loads {
        let _ = write!(
            text,
            "<details class=\"point\" id=\"load-{}\"><summary>{}</summary>{}</details>",
            index + 1,
            escaped(&summary.workloads[index].title),
            figures(folder, summary, index)
        );
    }
    text
}

/// The figures and charts of a load, without its heading.
pub(super) fn figures(folder: &Folder, summary: &Summary, index: usize) -> String {
    let workload = &summary.workloads[index];
    let mut text = String::new();
    let names: Vec<&str> = workload
        .contenders
        .iter()
        .map(|contender| contender.name.as_str())
        .collect();
    let legend = legend(&names);
    let mut part = |title: &str, note: &str, chart: String| {
        if !chart.is_empty() {
            text.push_str(&figure("h3", title, note, &chart));
        }
    };
    part(
        "Figures",
        "CPU/op: of the database and the storage's daemon. What the kernel's own threads do is told in the extract.",
        table(workload),
    );
    part(
        "Scripts",
        "Each run of a script is one transaction for rate and latency; pauses of its own are part of it.",
        scripts(workload),
    );
    part("Beside it", beside::NOTE, beside::table(workload));
    part("Slow operations", tails::NOTE, tails::tails(workload));
    part(
        "Every run",
        "The ratios are taken within a block: what moved the whole block does not count.",
        legend.clone() + &both(|width| rates(folder, index, workload, width)),
    );
    let over_time = both(|width| series(folder, index, workload, width));
    if !over_time.is_empty() {
        part(
            "Over time",
            &over_time_note(workload, longest_s(folder, index)),
            legend.clone() + &over_time,
        );
    }
    let latencies = both(|width| distribution(folder, index, workload, width));
    if !latencies.is_empty() {
        part(
            "Latency",
            "From the intended start of each operation, all runs together.",
            legend + &latencies,
        );
    }
    part(
        "Bytes an operation, layer by layer",
        "Each layer by its own counters: the database, the file system past the page cache, the leaf devices. \
         Stacked devices (dm, md) are never counted beside their parts.",
        format!(
            "<ul class=\"legend\"><li><span class=\"swatch read\"></span>read</li>\
             <li><span class=\"swatch written\"></span>written</li><li>pale: asked for; full: devices</li></ul>{}{}",
            both(|width| layers(workload, width)),
            reconciliation(workload)
        ),
    );
    let active = both(|width| sessions(workload, width));
    if !active.is_empty() {
        let kinds = SESSION_KINDS.map(|(class, name, _)| {
            format!("<li><span class=\"swatch {class}\"></span>{name}</li>")
        });
        part(
            "Where the sessions' time went",
            "Active sessions, sampled once a second as an active session history does.",
            format!("<ul class=\"legend\">{}</ul>{active}", kinds.concat()),
        );
    }
    text.push_str(&extract(workload));
    text
}

fn over_time_note(workload: &WorkloadSummary, longest_s: f64) -> String {
    let beside = if workload.has_company() {
        ", and the ends of what went on beside it from the end of the warm-up on"
    } else {
        ""
    };
    format!(
        "Thin: each run, raw samples of a second. Thick: the moving average of {} s over all runs. \
         Shaded: warm-up. Strokes below: checkpoints{beside}.",
        window(longest_s)
    )
}

/// A part with its heading, which does not leave it on paper. A table may go on over pages; a chart
/// does not.
pub(super) fn figure(heading: &str, title: &str, note: &str, body: &str) -> String {
    let kept = if body.contains("<svg") {
        "figure kept"
    } else {
        "figure"
    };
    let note = match note {
        "" => String::new(),
        note => format!("<p class=\"note\">{note}</p>"),
    };
    format!("<div class=\"{kept}\"><{heading}>{title}</{heading}>{note}{body}</div>")
}

/// Warm-up and measured time of the longest run of a load.
fn longest_s(folder: &Folder, index: usize) -> f64 {
    folder
        .runs
        .iter()
        .filter(|run| run.run.planned.workload == index)
        .filter_map(|run| run.run.measured())
        .map(|measured| measured.warm_up_s + measured.duration_s)
        .fold(0.0, f64::max)
}

/// The contenders with their colours, the baseline first.
pub(super) fn legend(names: &[&str]) -> String {
    let mut text = "<ul class=\"legend\">".to_owned();
    for (index, name) in names.iter().enumerate() {
        let is_again = name.ends_with(AGAIN);
        let index = if is_again { 0 } else { index };
        let _ = write!(
            text,
            "<li><span class=\"swatch {}\"></span>{}</li>",
            colour(index, is_again),
            escaped(name)
        );
    }
    text.push_str("</ul>");
    text
}

/// A table for each durability class, the baseline's first.
fn table(workload: &WorkloadSummary) -> String {
    let mut text = String::new();
    for (index, (class, members)) in workload.by_class().into_iter().enumerate() {
        if index > 0 {
            let _ = write!(
                text,
                "<h4>Not ranked with these: {}</h4>",
                class_title(class).to_lowercase()
            );
        }
        text.push_str(&table_of(workload, &members));
    }
    text
}

fn table_of(workload: &WorkloadSummary, members: &[&ContenderSummary]) -> String {
    let mut text = format!(
        "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>{}</th><th>mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>CPU/op</th></tr></thead><tbody>",
        escaped(&workload.unit)
    );
    for contender in members {
        text.push_str(&row(contender));
    }
    text.push_str("</tbody></table></div>");
    text
}

fn row(contender: &ContenderSummary) -> String {
    let dash = || "&ndash;".to_owned();
    let latency = |index: usize| {
        contender
            .latency_us
            .get(index)
            .copied()
            .flatten()
            .map_or_else(dash, |us| show_microseconds(as_float(us)))
    };
    format!(
        "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(&contender.name),
        contender
            .made_of()
            .map_or_else(String::new, |made_of| format!(
                "<br><span class=\"small\">{}</span>",
                escaped(&made_of)
            )),
        contender.rate.map_or("failed".to_owned(), show_number),
        contender
            .latency_mean_us
            .map_or_else(dash, show_microseconds),
        latency(0),
        latency(2),
        latency(3),
        contender.processor_us.map_or_else(dash, show_microseconds),
    )
}

/// Each script by itself, of each contender; nothing where the load is of no scripts.
fn scripts(workload: &WorkloadSummary) -> String {
    let mut rows = String::new();
    for contender in &workload.contenders {
        for script in &contender.scripts {
            let dash = || "&ndash;".to_owned();
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td></tr>",
                escaped(&contender.name),
                escaped(&script.name),
                show_number(script.per_s),
                script.share * 100.0,
                script.latency_mean_us.map_or_else(dash, show_microseconds),
                script
                    .latency_p99_us
                    .map_or_else(dash, |us| show_microseconds(as_float(us))),
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>script</th><th>runs/s</th><th>share</th><th>mean</th><th>p99</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// What failed, and what could not run.
pub(super) fn trouble(summary: &Summary) -> String {
    if summary.failed.is_empty() && summary.not_run.is_empty() && summary.excluded.is_empty() {
        return String::new();
    }
    let mut text =
        "<section><h2 id=\"trouble\">Failed, left out and not run</h2><div class=\"scroll\"><table><tbody>"
            .to_owned();
    for failed in &summary.failed {
        let log = if failed.log_tail.is_empty() {
            String::new()
        } else {
            format!(
                "<details><summary>the end of its log</summary><pre>{}</pre></details>",
                escaped(&failed.log_tail)
            )
        };
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"long\">failed under {}: {}{log}</td></tr>",
            escaped(&failed.folder),
            escaped(&failed.workload),
            escaped(&failed.reason)
        );
    }
    for run in &summary.excluded {
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"long\">measured under {}, in no ratio: {}</td></tr>",
            escaped(&run.folder),
            escaped(&run.workload),
            escaped(&run.reason)
        );
    }
    for (name, reason) in &summary.not_run {
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"long\">not run: {}</td></tr>",
            escaped(name),
            escaped(reason)
        );
    }
    text.push_str("</tbody></table></div></section>");
    text
}

/// How to repeat it, and what the names mean.
pub(super) fn footer(folder: &Folder, summary: &Summary) -> String {
    format!(
        "<section><h2>How to repeat it</h2>\
         <p>Write this into <code>experiment.toml</code>; then <code>sudo spindle-lab run experiment.toml</code>. \
         The seed {} gives the same order of runs and the same load.</p><pre>{}</pre></section>\
         <footer><p>The figures are in <code>summary.json</code>, every sample in <code>samples.csv</code>, \
         each run with its log in <code>runs/</code>.</p>\
         <p>Loads derived from those of the TPC (tpcc is derived from TPC-C, its rate is in NOPM) are not comparable to its published results, nor the AS3AP-like one to any other. \
         Intervals are by signs. \
         Knees are those of the universal scalability law: where the slope of one user meets the highest rate of the curve.</p></footer>",
        summary.seed,
        escaped(folder.text.trim_end())
    )
}
