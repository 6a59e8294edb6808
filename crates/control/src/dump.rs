//! `dump`: the structures of unmounted disks, as they lie there. It never writes: the disks are
//! opened for reading, and the catalog is opened over memory that takes what opening would write.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use spindle_base::GroupName;
use spindle_catalog::Table;
use spindle_device::{Disks, OpenDisk, PlainDisks};
use spindle_format::{
    FormatError, FormatErrorKind, LABEL_BYTES, LABEL_PLACES, OPENER_BYTES, OPENER_PLACE,
    OpenerRecord, ParsedGroupState, ParsedLabel, STATE_PLACES, STATE_SLOT_BYTES,
};

use crate::discovery::Discovery;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::opening::{Access, Opened};
use crate::probe::{Probe, look_at_all, read_at};
use crate::settings::Settings;
use crate::sockets;
use crate::view::{CatalogDump, DiskDump, DumpReport, RowDump, StructureDump, TableDump};

const TABLES: [(Table, &str); 11] = [
    (Table::Attribute, "attribute"),
    (Table::Disk, "disk"),
    (Table::Inode, "inode"),
    (Table::Name, "name"),
    (Table::ExtendedAttribute, "extended_attribute"),
    (Table::File, "file"),
    (Table::Extent, "extent"),
    (Table::DirtyRegion, "dirty_region"),
    (Table::Orphan, "orphan"),
    (Table::Job, "job"),
    (Table::Event, "event"),
];

/// Rows counted in one call.
const ROWS_MOST: usize = 4096;

/// The structures of a group's disks and up to `rows_most` rows of each table of its catalog.
///
/// # Errors
/// Where there is no such group, or it is open.
pub fn dump_group(
    settings: &Settings,
    name: &GroupName,
    rows_most: usize,
) -> ControlResult<DumpReport> {
    if sockets::find(settings, name.as_str())?.is_some() {
        return Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "the group {name} is open and its disks change: close it with `spindle group dismount {name}`, or dump single disks with --disk"
            ),
        ));
    }
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name.as_str())?;
    let disks = found
        .disks
        .iter()
        .map(|probe| dump_disk(probe))
        .collect::<ControlResult<_>>()?;
    let opened = Opened::open_found(settings, &found, &Access::Look { force: true });
    let (catalog, note) = match opened.and_then(|opened| dump_catalog(&opened, rows_most)) {
        Ok(catalog) => (Some(catalog), None),
        Err(error) => (None, Some(error.message)),
    };
    Ok(DumpReport {
        disks,
        catalog,
        note,
    })
}

/// The structures of these disks, whatever stands on them.
///
/// # Errors
/// Where one cannot be read.
pub fn dump_disks(paths: &[PathBuf]) -> ControlResult<DumpReport> {
    let probes = look_at_all(paths);
    let disks = probes.iter().map(dump_disk).collect::<ControlResult<_>>()?;
    Ok(DumpReport {
        disks,
        catalog: None,
        note: None,
    })
}

fn dump_disk(probe: &Probe) -> ControlResult<DiskDump> {
    if let Some(failure) = probe.failure() {
        return Err(failure.clone());
    }
    let disks = PlainDisks::new();
    let slot = disks.attach(OpenDisk::open_read_only(&probe.path)?);
    let read = |place: u64, length_bytes: usize| read_at(&disks, slot, place, length_bytes);
    let mut labels = Vec::new();
    for place in LABEL_PLACES {
        let parsed = ParsedLabel::parse(&read(place, LABEL_BYTES)?, place);
        labels.push(structure(place, parsed.as_ref().map(ParsedLabel::contents)));
    }
    let mut states = Vec::new();
    for place in STATE_PLACES {
        let parsed = ParsedGroupState::parse(&read(place, STATE_SLOT_BYTES)?, place);
        states.push(structure(
            place,
            parsed.as_ref().map(ParsedGroupState::contents),
        ));
    }
    let opener = OpenerRecord::parse(&read(OPENER_PLACE, OPENER_BYTES)?, OPENER_PLACE);
    Ok(DiskDump {
        path: probe.path.display().to_string(),
        size_bytes: disks.size_bytes(slot),
        status: probe.status(),
        found: probe.found(),
        labels,
        states,
        opener: structure(OPENER_PLACE, opener.as_ref()),
    })
}

fn structure<T: Serialize>(place: u64, parsed: Result<&T, &FormatError>) -> StructureDump {
    let (contents, error) = match parsed {
        Ok(contents) => (readable(serde_json::to_value(contents).ok()), None),
        Err(error) if error.kind == FormatErrorKind::Magic => (None, Some("empty".to_owned())),
        Err(error) => (None, Some(error.to_string())),
    };
    StructureDump {
        offset_bytes: place,
        contents,
        error,
    }
}

/// Identities as their usual text instead of lists of numbers.
#[must_use]
pub fn readable(value: Option<Value>) -> Option<Value> {
    let mut value = value?;
    fold_bytes(&mut value);
    Some(value)
}

fn fold_bytes(value: &mut Value) {
    let as_bytes = |items: &[Value]| -> Option<Vec<u8>> {
        let numbers = items.iter().map(|item| u8::try_from(item.as_u64()?).ok());
        numbers.collect()
    };
    match value {
        Value::Array(items) => match as_bytes(items) {
            Some(bytes) if bytes.len() == 16 => {
                let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
                *value = Value::String(spindle_base::Uuid(bytes).to_string());
            }
            Some(bytes) if bytes.len() == 8 => *value = Value::String(hexadecimal(&bytes)),
            _ => items.iter_mut().for_each(fold_bytes),
        },
        Value::Object(map) => map.values_mut().for_each(fold_bytes),
        _ => {}
    }
}

fn dump_catalog(opened: &Opened, rows_most: usize) -> ControlResult<CatalogDump> {
    let mut tables = Vec::new();
    for (table, name) in TABLES {
        let mut dump = TableDump {
            name: name.to_owned(),
            rows_count: 0,
            rows: Vec::new(),
        };
        let mut from = Vec::new();
        // No key is as long as this and all ones: keys are numbers and names of 255 bytes.
        let to = vec![0xff; 300];
        loop {
            let rows = opened.group().range(table, &from, &to, ROWS_MOST)?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            from.clone_from(last);
            from.push(0);
            dump.rows_count += rows.len() as u64;
            let room = rows_most.saturating_sub(dump.rows.len());
            dump.rows
                .extend(rows.iter().take(room).map(|(key, value)| RowDump {
                    key: crate::dump_row::key(table, key),
                    value: crate::dump_row::value(table, value),
                }));
        }
        tables.push(dump);
    }
    Ok(CatalogDump { tables })
}

/// Two digits a byte.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
