//! `spindle ls`, `stat`, `map` and `du`.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use spindle_control::view::{ExtentReport, FileReport};
use spindle_control::{GroupFiles, Location, Settings};

use super::print_json;
use crate::arguments::Output;
use crate::line::say;
use crate::table::{Table, permissions, size, time};

fn with_files<T>(
    settings: &Settings,
    text: &OsStr,
    act: impl FnOnce(&dyn spindle_control::Files, &std::path::Path) -> spindle_control::ControlResult<T>,
) -> Result<T> {
    let (group, path) = Location::in_group(text)?;
    let access = GroupFiles::to_look(settings, &group)?;
    Ok(act(access.files(), &path)?)
}

pub fn ls(settings: &Settings, paths: &[OsString], long: bool, output: Output) -> Result<u8> {
    let mut all: Vec<FileReport> = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let entries = with_files(settings, path, |files, path| files.list(path))?;
        if output.json {
            all.extend(entries);
            continue;
        }
        if paths.len() > 1 {
            let gap = if index > 0 { "\n" } else { "" };
            say!("{gap}{}:", path.to_string_lossy());
        }
        if long {
            print_long(&entries)?;
        } else {
            for entry in entries {
                say!("{}", shown_name(&entry));
            }
        }
    }
    if output.json {
        print_json(&all)?;
    }
    Ok(0)
}

fn shown_name(entry: &FileReport) -> String {
    match (entry.kind.as_str(), &entry.target) {
        ("directory", _) => format!("{}/", entry.name),
        ("symlink", Some(target)) => format!("{} -> {target}", entry.name),
        _ => entry.name.clone(),
    }
}

fn print_long(entries: &[FileReport]) -> Result<()> {
    let mut table = Table::new(&[
        "Permissions",
        ">Links",
        ">User",
        ">Group",
        "Redundancy",
        "Striping",
        ">Size",
        ">Space",
        "Modified",
        "Name",
    ]);
    let dash = || "-".to_owned();
    for entry in entries {
        table.row([
            permissions(&entry.kind, entry.permissions),
            entry.links_count.to_string(),
            entry.user.to_string(),
            entry.group.to_string(),
            entry.redundancy.map_or_else(dash, |it| it.to_string()),
            entry.striping.map_or_else(dash, |it| it.to_string()),
            size(entry.size_bytes),
            size(entry.allocated_bytes),
            format!("{}Z", time(entry.modified.seconds)),
            shown_name(entry),
        ]);
    }
    table.print()?;
    Ok(())
}

pub fn stat(settings: &Settings, path: &OsStr, output: Output) -> Result<u8> {
    let entry = with_files(settings, path, |files, path| files.stat(path))?;
    if output.json {
        print_json(&entry)?;
        return Ok(0);
    }
    let line = |name: &str, value: String| say!("{name:>12}  {value}");
    line("Path", entry.path.clone());
    if let Some(target) = &entry.target {
        line("Target", target.clone());
    }
    line("Kind", entry.kind.clone());
    line("File number", entry.id.to_string());
    line(
        "Size",
        format!("{} ({} bytes)", size(entry.size_bytes), entry.size_bytes),
    );
    line(
        "Space",
        format!(
            "{} ({} bytes)",
            size(entry.allocated_bytes),
            entry.allocated_bytes
        ),
    );
    if let (Some(redundancy), Some(striping)) = (entry.redundancy, entry.striping) {
        line("Redundancy", redundancy.to_string());
        line("Striping", striping.to_string());
    }
    let bits = entry.permissions;
    line(
        "Permissions",
        format!("{} ({bits:04o})", permissions(&entry.kind, bits)),
    );
    line("Owner", format!("{}:{}", entry.user, entry.group));
    line("Links", entry.links_count.to_string());
    for (name, at) in [
        ("Accessed", entry.accessed),
        ("Modified", entry.modified),
        ("Changed", entry.changed),
        ("Created", entry.created),
    ] {
        line(
            name,
            format!("{}.{:09} UTC", time(at.seconds), at.nanoseconds),
        );
    }
    Ok(0)
}

pub fn map(settings: &Settings, path: &OsStr, summary: bool, output: Output) -> Result<u8> {
    let mut map = with_files(settings, path, |files, path| files.map(path))?;
    if summary {
        map.extents.clear();
    }
    if output.json {
        print_json(&map)?;
        return Ok(0);
    }
    say!(
        "{}: {} bytes, {} redundancy, {} striping",
        map.path,
        map.size_bytes,
        map.redundancy,
        map.striping
    );
    if !summary {
        let mut table = Table::new(&[">Extent", ">Offset", ">Length", ">Initialised", "Copies"]);
        for extent in &map.extents {
            table.row([
                extent.index.to_string(),
                extent.offset_bytes.to_string(),
                size(extent.length_bytes),
                size(extent.initialised_bytes),
                copies(extent),
            ]);
        }
        say!("");
        table.print()?;
    }
    let mut table = Table::new(&["Disk", ">Extents", ">Bytes"]);
    for share in &map.disks {
        table.row([
            share.disk_name.clone(),
            share.extents_count.to_string(),
            size(share.bytes),
        ]);
    }
    say!("");
    table.print()?;
    Ok(0)
}

fn copies(extent: &ExtentReport) -> String {
    let words: Vec<String> = extent
        .copies
        .iter()
        .map(|copy| match copy {
            Some(copy) => format!("{}@{}", copy.disk_name, copy.offset_bytes),
            None => "missing".to_owned(),
        })
        .collect();
    words.join("  ")
}

pub fn du(settings: &Settings, path: &OsStr, depth: usize, output: Output) -> Result<u8> {
    let sums = with_files(settings, path, |files, path| files.usage(path, depth))?;
    if output.json {
        print_json(&sums)?;
        return Ok(0);
    }
    let mut table = Table::new(&[">Space", ">Size", ">Files", "Path"]);
    for sum in sums {
        table.row([
            size(sum.allocated_bytes),
            size(sum.size_bytes),
            sum.files_count.to_string(),
            sum.path,
        ]);
    }
    table.print()?;
    Ok(0)
}
