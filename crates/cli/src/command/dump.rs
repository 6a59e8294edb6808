//! `spindle dump`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;
use spindle_control::Settings;
use spindle_control::view::{CatalogDump, DiskDump, StructureDump};

use super::group::name_of;
use super::print_json;
use crate::arguments::Output;
use crate::line::say;
use crate::table::size;

pub fn run(
    settings: &Settings,
    group: Option<&str>,
    disks: &[PathBuf],
    rows_most: usize,
    output: Output,
) -> Result<u8> {
    let report = match group {
        Some(group) if disks.is_empty() => {
            spindle_control::dump_group(settings, &name_of(group)?, rows_most)?
        }
        _ => spindle_control::dump_disks(settings, disks)?,
    };
    if output.json {
        print_json(&report)?;
        return Ok(0);
    }
    for disk in &report.disks {
        print_disk(disk);
    }
    if let Some(catalog) = &report.catalog {
        print_catalog(catalog);
    }
    if let Some(note) = &report.note {
        say!("the catalog cannot be shown: {note}");
    }
    Ok(0)
}

fn print_disk(disk: &DiskDump) {
    say!(
        "{}  {}  {}  {}",
        disk.path,
        size(disk.size_bytes),
        disk.status,
        disk.found
    );
    for label in &disk.labels {
        print_structure("label", label);
    }
    print_structure("opener", &disk.opener);
    for state in &disk.states {
        print_structure("group state", state);
    }
    say!("");
}

fn print_structure(what: &str, structure: &StructureDump) {
    say!("  {what} at {}", structure.offset_bytes);
    if let Some(contents) = &structure.contents {
        print_value(contents, 4);
    }
    if let Some(error) = &structure.error {
        say!("    {error}");
    }
}

/// Scalars a line each; lists of structures a line an item.
fn print_value(value: &Value, indent: usize) {
    let Value::Object(map) = value else {
        say!("{:indent$}{}", "", scalar(value));
        return;
    };
    for (name, value) in map {
        match value {
            Value::Array(items) if items.iter().any(Value::is_object) => {
                say!("{:indent$}{name}", "");
                for item in items {
                    say!("{:indent$}  {}", "", on_one_line(item));
                }
            }
            Value::Object(_) => {
                say!("{:indent$}{name}", "");
                print_value(value, indent + 2);
            }
            _ => say!("{:indent$}{name:<20} {}", "", scalar(value)),
        }
    }
}

fn on_one_line(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let words: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name}={}", scalar(value)))
                .collect();
            words.join(" ")
        }
        _ => scalar(value),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn print_catalog(catalog: &CatalogDump) {
    say!("catalog");
    for table in &catalog.tables {
        say!("  {}: {} rows", table.name, table.rows_count);
        for row in &table.rows {
            say!("    {}  {}", row.key, on_one_line(&row.value));
        }
        let rest = table.rows_count - table.rows.len() as u64;
        if rest > 0 && !table.rows.is_empty() {
            say!("    and {rest} more");
        }
    }
}
