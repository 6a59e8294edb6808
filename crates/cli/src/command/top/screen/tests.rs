use std::time::Duration;

use serde_json::json;
use spindle_control::TopReport;

use super::{TopScreen, count, milliseconds};
use crate::arguments::TopOrder;
use crate::screen::Line;
use crate::table::local_time;

const SECOND: Duration = Duration::from_secs(1);

fn disk(number: usize, mode: &str, slow: bool) -> serde_json::Value {
    json!({
        "number": number, "name": format!("data_{number:04}"), "failure_group": "left",
        "path": null, "total_bytes": 1 << 30, "free_bytes": 1 << 29, "mode": mode,
        "state": "normal", "slow": slow, "voter": true, "catalog_replica": true,
        "reads_count": 0, "writes_count": 0, "read_bytes": 0, "written_bytes": 0,
        "read_errors_count": 0, "write_errors_count": 0
    })
}

fn rate(name: &str, per_s: f64, latency_us: f64) -> serde_json::Value {
    json!({
        "id": 1, "name": name, "reads_per_s": per_s, "writes_per_s": per_s,
        "read_bytes_per_s": per_s * 8192.0, "written_bytes_per_s": per_s * 8192.0,
        "read_latency_us": latency_us, "write_latency_us": null
    })
}

/// A group of so many disks, of which the last is offline and the one before slow, with busy files.
fn report(disks_count: usize) -> TopReport {
    let disks: Vec<_> = (0..disks_count)
        .map(|number| match disks_count - number {
            1 => disk(number, "offline", false),
            2 => disk(number, "online", true),
            _ => disk(number, "online", false),
        })
        .collect();
    let of_disks = (0..disks_count - 1)
        .map(|number| rate(&format!("data_{number:04}"), 100.0 + number as f64, 250.0));
    let long = format!("/pg/main/{}/base/5/16384", "directory/".repeat(30));
    let files: Vec<_> = (0..40)
        .map(|number| {
            rate(
                &format!("{long}.{number}"),
                1000.0 - f64::from(number),
                40_000.0,
            )
        })
        .chain([rate("/pg/\u{1b}[2Jlog", 0.5, 2_000_000.0)])
        .collect();
    serde_json::from_value(json!({
        "group": {
            "name": "data", "uuid": "", "state": "mounted", "redundancy": "normal",
            "profile": "postgresql", "sector_size_bytes": 512, "block_size_bytes": 4096,
            "au_size_bytes": 1 << 20, "total_bytes": 4_u64 << 30, "free_bytes": 3_u64 << 30,
            "required_mirror_free_bytes": 0, "usable_bytes": -(1_i64 << 30),
            "offline_disks_count": 1, "epoch": 1, "extents_count": 1, "process_id": 1,
            "keeper_process_id": 2, "mounts": [], "note": null, "disks": disks
        },
        "health": {
            "group": "data", "status": "critical", "findings": [{
                "severity": "critical", "kind": "disk_offline", "disk_name": null,
                "text": "a disk is offline: what it holds has no copy to spare",
                "advice": "bring it back, or replace it with another one, or read the page of it"
            }]
        },
        "operations": {
            "group": "data", "default_power": 1, "operations": [{
                "group": "data", "pass": "rebalance", "state": "run", "power": 1,
                "done_bytes": 1 << 20, "left_bytes": 3 << 20, "rate_bytes_per_s": 1 << 20,
                "left_s": 3, "error": null
            }]
        },
        "activity": {
            "group": "data", "interval_s": 1.0, "disks": of_disks.collect::<Vec<_>>(), "files": files
        },
        "events": (1..9).map(|number| json!({
            "number": number, "time_s": 1_795_646_480, "time_ms": 1_795_646_480_000_u64,
            "host": "vm", "group": "data", "severity": "info", "kind": "disk_online",
            "disk": null, "disk_name": null, "file": null, "path": null,
            "text": format!("event {number} {}", "with many words ".repeat(30))
        })).collect::<Vec<_>>()
    }))
    .unwrap()
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_screen_is_filled_and_never_more_at_any_size() {
    for disks_count in [2, 5, 1000] {
        let report = report(disks_count);
        for (columns, rows) in [(80, 24), (200, 60), (40, 10), (80, 12), (20, 3), (1, 1)] {
            let screen = TopScreen::new(columns, rows, TopOrder::Bytes, SECOND);
            let lines = screen.lines(&report);
            assert_eq!(
                lines.len(),
                rows,
                "{disks_count} disks at {columns} x {rows}"
            );
            for line in texts(&lines) {
                assert!(line.chars().count() <= columns, "{columns}: {line:?}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}

#[test]
fn the_usual_terminal_has_all_parts_and_disks_that_need_somebody_first() {
    let lines = TopScreen::new(80, 24, TopOrder::Bytes, SECOND).lines(&report(1000));
    let texts = texts(&lines);
    assert_eq!(
        texts[0],
        "data: mounted, normal redundancy, health critical, 1.0 s"
    );
    assert_eq!(
        texts[1],
        "[#####...............] 25% of 4G, 3G free, -1G usable, 1000 disks, 1 offline"
    );
    let at = |wanted: &str| {
        let found = texts.iter().position(|text| text.starts_with(wanted));
        found.unwrap_or_else(|| panic!("{wanted:?} in {texts:#?}"))
    };
    assert!(
        at("critical: a disk is offline")
            < at("rebalance: run, 25% of 4M, 1M/s, power 1, 0:00:03 left")
    );
    let disks = at("Disk ");
    assert!(texts[disks + 1].starts_with("data_0998 ") && texts[disks + 1].contains(" slow "));
    assert!(texts[disks + 2].starts_with("data_0999 ") && texts[disks + 2].contains(" offline "));
    assert!(lines[disks + 1].is_loud && lines[disks + 2].is_loud && !lines[disks + 3].is_loud);
    // The busiest of the others.
    assert!(texts[disks + 3].starts_with("data_0997 "), "{texts:#?}");
    assert!(at("... and 99") < at("File "));
    let file = texts[at("File ") + 1];
    assert!(
        file.starts_with("...") && file.contains("/base/5/16384.0 "),
        "{file}"
    );
    let last = local_time(1_795_646_480);
    at(&format!("{last}  info      event 8 "));
    assert_eq!(texts[23], "q quit   s sort (by bytes)   every 1 s");
}

#[test]
fn what_comes_first_can_be_chosen_and_no_name_is_obeyed_by_the_terminal() {
    let lines = TopScreen::plain(80, TopOrder::Latency).lines(&report(3));
    let texts = texts(&lines);
    let files = texts
        .iter()
        .position(|text| text.starts_with("File "))
        .unwrap();
    assert!(texts[files + 1].starts_with("/pg/?[2Jlog "), "{texts:#?}");
    assert!(
        texts[files + 1].ends_with("  2000      -"),
        "{}",
        texts[files + 1]
    );
    // Without rows everything is there.
    assert_eq!(
        texts
            .iter()
            .filter(|text| text.contains("/base/5/16384."))
            .count(),
        40
    );
}

#[test]
fn figures_fit_their_columns() {
    for (value, text) in [
        (0.0, "0"),
        (0.25, "0.2"),
        (9999.4, "9999"),
        (123_456.0, "123K"),
        (2.5e6, "2.5M"),
    ] {
        assert_eq!(count(value), text);
    }
    for (us, text) in [
        (1.0, "0.00"),
        (9_990.0, "9.99"),
        (12_345.0, "12.3"),
        (1.5e6, "1500"),
        (2.5e8, "250s"),
    ] {
        assert_eq!(milliseconds(Some(us)), text);
    }
    assert_eq!(milliseconds(None), "-");
}
