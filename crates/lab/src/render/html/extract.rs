//! The extract in the order of an AWR report, all contenders side by side, and the reconciliation of
//! the layers with a name for each gap.

use std::fmt::Write as _;

use crate::analyse::extract::{Device, Extract, Wait};
use crate::analyse::summary::{ContenderSummary, WorkloadSummary};
use crate::quantity::{show_number, show_size};
use crate::record::AGAIN;
use crate::render::chart::escaped;

const DASH: &str = "&ndash;";

/// A table with a column for each contender.
struct SideBySide<'a> {
    extracts: Vec<&'a Extract>,
    body: String,
}

impl SideBySide<'_> {
    fn head(&mut self, title: &str) {
        let _ = write!(
            self.body,
            "<tr class=\"head\"><td colspan=\"{}\">{}</td></tr>",
            self.extracts.len() + 1,
            escaped(title)
        );
    }

    /// A row, unless no contender has it.
    fn row(&mut self, name: &str, show: impl Fn(&Extract) -> Option<String>) {
        let cells: Vec<Option<String>> = self.extracts.iter().map(|one| show(one)).collect();
        if cells.iter().all(Option::is_none) {
            return;
        }
        let _ = write!(self.body, "<tr><td>{}</td>", escaped(name));
        for cell in cells {
            let _ = write!(
                self.body,
                "<td>{}</td>",
                cell.unwrap_or_else(|| DASH.to_owned())
            );
        }
        self.body.push_str("</tr>");
    }
}

/// Everyone with an extract, but for the baseline's second name.
fn shown(workload: &WorkloadSummary) -> Vec<(&ContenderSummary, &Extract)> {
    workload
        .contenders
        .iter()
        .filter(|contender| !contender.name.ends_with(AGAIN))
        .filter_map(|contender| Some((contender, contender.extract.as_ref()?)))
        .collect()
}

/// The extract; only devices where the lab's own fio was the load.
pub(super) fn extract(workload: &WorkloadSummary) -> String {
    let shown = shown(workload);
    if shown.is_empty() {
        return String::new();
    }
    let has_database = shown
        .iter()
        .any(|(_, extract)| !extract.profile.is_empty() && extract.database_processor_s.is_some());
    let mut text = String::new();
    if has_database {
        let _ = write!(
            text,
            "<details class=\"awr\"><summary>What the database did (in the order of an AWR report)</summary>\
             <p class=\"note\">{}</p>{}</details>",
            WHOSE,
            side_by_side(&shown)
        );
    }
    let _ = write!(
        text,
        "<details><summary>What each leaf device did (iostat)</summary>{}</details>",
        devices(&shown)
    );
    text
}

/// What the figures of the database are.
const WHOSE: &str = "Sums over all measured runs of a contender. Time in statements, counts and times of I/O are the database's \
     own; seconds of sessions are samples.";

fn side_by_side(shown: &[(&ContenderSummary, &Extract)]) -> String {
    let mut table = SideBySide {
        extracts: shown.iter().map(|(_, extract)| *extract).collect(),
        body: String::new(),
    };
    table.head("Time, s");
    table.row("elapsed", |one| Some(show_number(one.elapsed_s)));
    table.row("DB time", |one| one.database_time_s.map(show_number));
    table.row("DB CPU", |one| one.database_processor_s.map(show_number));
    table.row("storage daemon CPU", |one| {
        one.storage_processor_s.map(show_number)
    });
    table.row("kernel's threads and interrupts", |one| {
        one.kernel_processor_s.map(show_number)
    });
    table.row("active sessions, on average", |one| {
        one.database_time_s
            .map(|seconds| show_number(seconds / one.elapsed_s))
    });
    profile(&mut table);
    table.head("Cache");
    table.row("found in the database's memory", |one| {
        one.hit_share.map(|share| format!("{:.2} %", share * 100.0))
    });
    waits(&mut table);
    objects(&mut table);
    table.head("Checkpoints and log");
    for name in names(&table.extracts, |one| {
        one.checkpoints
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }) {
        table.row(&name, |one| {
            let (_, value) = one.checkpoints.iter().find(|(other, _)| *other == name)?;
            Some(show_number(*value))
        });
    }
    let heads: String = shown
        .iter()
        .map(|(contender, _)| format!("<th>{}</th>", escaped(&contender.name)))
        .collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{}</tbody></table></div>",
        table.body
    )
}

fn profile(table: &mut SideBySide<'_>) {
    let all = names(&table.extracts, |one| {
        one.profile.iter().map(|row| row.name.clone()).collect()
    });
    let find = |one: &Extract, name: &str| one.profile.iter().find(|row| row.name == name).cloned();
    table.head("Load profile, a second");
    table.row("transactions", |one| {
        Some(show_number(
            crate::quantity::as_float(one.transactions) / one.elapsed_s,
        ))
    });
    for name in &all {
        table.row(name, |one| Some(show_number(find(one, name)?.per_s)));
    }
    table.head("Load profile, a transaction");
    for name in &all {
        table.row(name, |one| {
            Some(show_number(find(one, name)?.per_transaction))
        });
    }
}

fn waits(table: &mut SideBySide<'_>) {
    let events = names(&table.extracts, |one| {
        one.waits
            .iter()
            .map(|wait| format!("{}: {}", wait.class, wait.event))
            .collect()
    });
    if events.is_empty() {
        return;
    }
    table.head(
        "Top waits: share of sessions' time; count, s, ms each where the database counts them",
    );
    for name in events {
        table.row(&name, |one| {
            let wait = one
                .waits
                .iter()
                .find(|wait| format!("{}: {}", wait.class, wait.event) == name)?;
            Some(wait_cell(wait))
        });
    }
}

fn wait_cell(wait: &Wait) -> String {
    let share = format!("{:.1} %", wait.share * 100.0);
    match (wait.count, wait.total_ms, wait.mean_ms) {
        (Some(count), Some(total), Some(mean)) => format!(
            "{share}<br><span class=\"advice\">{} &times; {} ms = {} s</span>",
            show_number(count),
            show_number(mean),
            show_number(total / 1000.0)
        ),
        _ => share,
    }
}

fn objects(table: &mut SideBySide<'_>) {
    let all = names(&table.extracts, |one| {
        one.objects
            .iter()
            .map(|object| object.name.clone())
            .collect()
    });
    if all.is_empty() {
        return;
    }
    table.head(
        "I/O by table, index and file: read, written, found in memory; warm-up included for tables",
    );
    for name in all {
        table.row(&name, |one| {
            let object = one.objects.iter().find(|object| object.name == name)?;
            let mut cell = show_size(object.read_bytes);
            if let Some(written) = object.written_bytes {
                let _ = write!(cell, " / {}", show_size(written));
            }
            if let Some(share) = object.hit_share {
                let _ = write!(
                    cell,
                    " <span class=\"advice\">{:.1} %</span>",
                    share * 100.0
                );
            }
            Some(cell)
        });
    }
}

/// The names that any of them has, in the order of their first coming.
fn names(extracts: &[&Extract], of: impl Fn(&Extract) -> Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in extracts.iter().flat_map(|one| of(one)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn devices(shown: &[(&ContenderSummary, &Extract)]) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>device</th><th>r/s</th><th>read/s</th><th>r_await</th>\
         <th>w/s</th><th>written/s</th><th>w_await</th><th>f/s</th><th>aqu-sz</th><th>busy</th></tr></thead><tbody>"
        .to_owned();
    for (contender, extract) in shown {
        let _ = write!(
            text,
            "<tr class=\"head\"><td colspan=\"10\">{}</td></tr>",
            escaped(&contender.name)
        );
        for device in &extract.devices {
            text.push_str(&device_row(device));
        }
    }
    text.push_str("</tbody></table></div>");
    text
}

fn device_row(device: &Device) -> String {
    let ms =
        |value: Option<f64>| value.map_or(DASH.to_owned(), |ms| format!("{} ms", show_number(ms)));
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(&device.name),
        show_number(device.reads_per_s),
        show_size(device.read_bytes_per_s),
        ms(device.read_ms),
        show_number(device.writes_per_s),
        show_size(device.written_bytes_per_s),
        ms(device.write_ms),
        show_number(device.flushes_per_s),
        show_number(device.queue),
        busy(device),
    )
}

/// As iostat's %util; of a device that is held to a limit, how near it was to that.
fn busy(device: &Device) -> String {
    match (device.limit_share, device.busy_share) {
        (Some(share), _) => format!("at {:.0} % of its limit", share * 100.0),
        (None, Some(share)) => format!("{:.0} %", share * 100.0),
        (None, None) => DASH.to_owned(),
    }
}

/// Neighbouring layers whose bytes differ by less are in step.
const IN_STEP: f64 = 0.02;

/// The layers as a table: what each counted an operation, and what the difference to the next is.
pub(super) fn reconciliation(workload: &WorkloadSummary) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>contender</th><th></th><th>asked for</th><th>gap</th>\
         <th>file system</th><th>gap</th><th>devices</th></tr></thead><tbody>"
        .to_owned();
    let mut has_rows = false;
    for contender in &workload.contenders {
        let [asked, filesystem, devices] = contender.layers.as_slice() else {
            continue;
        };
        if contender.name.ends_with(AGAIN) {
            continue;
        }
        has_rows = true;
        let copies = contender.layout.as_ref().map_or(1, |layout| layout.copies);
        let rows = [
            ("read", asked.1, filesystem.1, devices.1),
            ("written", asked.2, filesystem.2, devices.2),
        ];
        for (way, asked, filesystem, devices) in rows {
            let is_read = way == "read";
            let above = (asked, filesystem);
            let below = (filesystem, devices);
            let name = if is_read { contender.name.as_str() } else { "" };
            let _ = write!(
                text,
                "<tr><td>{}</td><td>{way}</td><td>{}</td><td class=\"gap\">{}</td><td>{}</td><td class=\"gap\">{}</td><td>{}</td></tr>",
                escaped(name),
                show_size(asked),
                gap(above, upper_gap(is_read, above)),
                show_size(filesystem),
                gap(below, lower_gap(is_read, below, copies)),
                show_size(devices),
            );
        }
    }
    if !has_rows {
        return String::new();
    }
    text.push_str("</tbody></table></div>");
    text
}

fn gap((from, until): (f64, f64), name: String) -> String {
    if (until - from).abs() <= IN_STEP * from.max(until).max(1.0) {
        return "in step".to_owned();
    }
    let sign = if until > from { "+" } else { "&minus;" };
    format!(
        "{sign}{}<br><span class=\"advice\">{name}</span>",
        show_size((until - from).abs())
    )
}

/// Between what the database counts and what went past the page cache.
fn upper_gap(is_read: bool, (asked, filesystem): (f64, f64)) -> String {
    match (is_read, filesystem < asked) {
        (true, true) => "page cache",
        (true, false) => "read-ahead, log, catalog",
        (false, true) => "rewritten in the page cache",
        (false, false) => "whole pages of the log, temporary files",
    }
    .to_owned()
}

/// Between the file system and the leaf devices.
fn lower_gap(is_read: bool, (filesystem, devices): (f64, f64), copies: u32) -> String {
    match (is_read, devices < filesystem) {
        (true, true) => "page cache below".to_owned(),
        (true, false) => "metadata, read-ahead".to_owned(),
        (false, true) => "not yet written back".to_owned(),
        (false, false) if copies > 1 => format!("{copies} copies, metadata, journal"),
        (false, false) => "metadata, journal".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_has_its_size_and_its_name_and_a_small_one_is_none() {
        assert_eq!(gap((1000.0, 1010.0), String::new()), "in step");
        let copies = gap((4096.0, 9000.0), lower_gap(false, (4096.0, 9000.0), 2));
        assert!(copies.starts_with("+4.79 KiB"), "{copies}");
        assert!(copies.contains("2 copies"), "{copies}");
        let cache = gap((8192.0, 0.0), upper_gap(true, (8192.0, 0.0)));
        assert!(
            cache.contains("&minus;") && cache.contains("page cache"),
            "{cache}"
        );
    }
}
