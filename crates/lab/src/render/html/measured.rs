//! What the figures were measured on, in four short columns: enough to judge the matrix beside them.
//! What was done to the devices, and all settings, stand further below and repeat nothing of it.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::analyse::folder::Folder;
use crate::analyse::summary::Summary;
use crate::experiment::DeviceKind;
use crate::quantity::{as_float, show_microseconds_tick, show_number, show_size};
use crate::render::chart::escaped;

/// The facts on the machine that are told here.
pub(super) const TOLD: [&str; 6] = [
    "database",
    "distribution",
    "kernel",
    "memory",
    "processor",
    "processors",
];

/// The four columns.
pub(super) fn measured_on(folder: &Folder, summary: &Summary) -> String {
    let columns = [
        ("Devices", devices(folder)),
        ("Database and memory", database(folder)),
        ("Machine", machine(folder)),
        ("Runs", runs(folder, summary)),
    ];
    let mut text = "<dl class=\"measured-on\">".to_owned();
    for (name, lines) in columns {
        let _ = write!(text, "<div><dt>{name}</dt>");
        for line in lines {
            let _ = write!(text, "<dd>{line}</dd>");
        }
        text.push_str("</div>");
    }
    text.push_str("</dl>");
    text
}

fn fact<'a>(folder: &'a Folder, name: &str) -> Option<&'a str> {
    folder.environment.facts.get(name).map(String::as_str)
}

fn devices(folder: &Folder) -> Vec<String> {
    let devices = &folder.experiment.devices;
    let is_guest = fact(folder, "guest").is_some();
    let size = show_size(as_float(devices.size_bytes));
    let count = devices.count;
    let what = match devices.kind {
        DeviceKind::Loop if is_guest => {
            format!("{count} disks of a guest, {size} each, files of its host")
        }
        DeviceKind::Loop => format!("{count} loop devices of {size} each"),
        DeviceKind::Zram => format!("{count} zram devices of {size} each, compressed memory"),
        DeviceKind::Block => devices
            .names
            .iter()
            .map(|name| name.display().to_string())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let bandwidth = devices
        .bandwidth
        .map(|bytes| format!("{}/s", show_size(as_float(bytes))));
    let requests = devices
        .requests
        .map(|count| format!("{} requests/s", show_number(as_float(count))));
    let limits: Vec<String> = bandwidth.into_iter().chain(requests).collect();
    let mut lines = vec![escaped(&what)];
    if !limits.is_empty() {
        lines.push(format!("each held to {}, either way", limits.join(" and ")));
    }
    lines
}

fn database(folder: &Folder) -> Vec<String> {
    let asks = |folder: &Folder| {
        let mut loads = folder.experiment.workloads.iter();
        loads.any(|load| load.kind.needs_database())
    };
    let mut lines = Vec::new();
    if asks(folder) {
        let database = fact(folder, "database");
        lines.push(escaped(
            database.unwrap_or(folder.experiment.database.kind.name()),
        ));
    } else {
        lines.push("no database".to_owned());
    }
    lines.push(match folder.experiment.database.memory_bytes {
        None => "memory was not limited".to_owned(),
        Some(bytes) => format!(
            "{} for database, storage daemon and page cache together",
            show_size(as_float(bytes))
        ),
    });
    lines
}

fn machine(folder: &Folder) -> Vec<String> {
    let mut processor = Vec::new();
    if let Some(count) = fact(folder, "processors") {
        processor.push(match count {
            "1" => "1 processor".to_owned(),
            count => format!("{} processors", escaped(count)),
        });
    }
    processor.extend(fact(folder, "processor").map(escaped));
    let memory = fact(folder, "memory").map(|memory| {
        let kibibytes = memory
            .strip_suffix(" kB")
            .and_then(|count| count.parse::<u64>().ok());
        kibibytes.map_or_else(
            || escaped(memory),
            |kibibytes| format!("{} of memory", show_size(as_float(kibibytes) * 1024.0)),
        )
    });
    let system: Vec<String> = fact(folder, "kernel")
        .map(|kernel| format!("Linux {}", escaped(kernel)))
        .into_iter()
        .chain(fact(folder, "distribution").map(escaped))
        .collect();
    [
        processor.join(", "),
        memory.unwrap_or_default(),
        system.join(", "),
    ]
    .into_iter()
    .filter(|line| !line.is_empty())
    .collect()
}

fn runs(folder: &Folder, summary: &Summary) -> Vec<String> {
    let asked = &folder.experiment;
    let long = |time: std::time::Duration| show_microseconds_tick(time.as_secs_f64() * 1e6);
    let to_the_end = asked
        .workloads
        .iter()
        .filter(|load| load.is_measured_to_its_end());
    let length = match to_the_end.count() {
        count if count == asked.workloads.len() => "each until its work was done".to_owned(),
        count => format!(
            "{} each, after {} of warm-up{}",
            long(asked.duration),
            long(asked.warm_up),
            if count > 0 {
                ", or until the work was done"
            } else {
                ""
            }
        ),
    };
    let mut lines = vec![
        format!(
            "{} of {} runs measured, in {} blocks",
            summary.runs_measured, summary.runs_planned, asked.blocks
        ),
        length,
    ];
    lines.extend(days(folder));
    if !summary.failed.is_empty() {
        lines.push(format!(
            "<a href=\"#trouble\">{} failed</a>",
            summary.failed.len()
        ));
    }
    if !summary.not_run.is_empty() {
        let names: Vec<&str> = summary.not_run.keys().map(String::as_str).collect();
        lines.push(format!(
            "<a href=\"#trouble\">not run: {}</a>",
            escaped(&names.join(", "))
        ));
    }
    lines
}

/// The days on which it was measured, in universal time: a report is read elsewhere, too.
fn days(folder: &Folder) -> Option<String> {
    let began = || folder.runs.iter().map(|run| run.run.began_unix_s);
    let day = |second: u64| {
        let time = Timestamp::from_second(i64::try_from(second).ok()?).ok()?;
        Some(time.strftime("%Y-%m-%d").to_string())
    };
    let (first, last) = (day(began().min()?)?, day(began().max()?)?);
    if first == last {
        return Some(format!("on {first} (UTC)"));
    }
    Some(format!("from {first} to {last} (UTC)"))
}
