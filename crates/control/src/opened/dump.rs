//! `dump`: the structures of unmounted disks, as they lie there. It never writes: the disks are
//! opened for reading, and the catalog is opened over memory that takes what opening would write.

mod row;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use spindle_catalog::Table;
use spindle_device::Disks;
use spindle_format::{
    FormatError, FormatErrorKind, LABEL_BYTES, LABEL_COPIES, OPENER_BYTES, OPENER_PLACE,
    OpenerRecord, ParsedGroupState, ParsedLabel, STATE_PLACES, STATE_SLOT_BYTES,
};

use crate::api::error::ControlResult;
use crate::api::view::{CatalogDump, DiskDump, DumpReport, RowDump, StructureDump, TableDump};
use crate::machine::probe::{Probe, disks_to_look_at, look_at_all, read_at};
use crate::machine::settings::Settings;
use crate::opened::open::Opened;

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

/// The structures of these disks, whatever stands on them.
///
/// # Errors
/// Where one cannot be read.
pub fn dump_disks(settings: &Settings, paths: &[PathBuf]) -> ControlResult<DumpReport> {
    let probes = look_at_all(paths, &settings.servers);
    let dumps = probes.iter().map(|probe| dump_disk(probe, settings));
    let disks = dumps.collect::<ControlResult<_>>()?;
    Ok(DumpReport {
        disks,
        catalog: None,
        note: None,
    })
}

pub(crate) fn dump_disk(probe: &Probe, settings: &Settings) -> ControlResult<DiskDump> {
    if let Some(failure) = probe.failure() {
        return Err(failure.clone());
    }
    let disks = disks_to_look_at();
    let slot = settings.servers.attach_to_look(&disks, &probe.path)?;
    let read = |place: u64, length_bytes: usize| read_at(&disks, slot, place, length_bytes);
    let mut labels = Vec::new();
    for place in (0..LABEL_COPIES).filter_map(|copy| probe.label_place(copy)) {
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
pub(super) fn readable(value: Option<Value>) -> Option<Value> {
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

pub(crate) fn dump_catalog(opened: &Opened, rows_most: usize) -> ControlResult<CatalogDump> {
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
                    key: row::key(table, key),
                    value: row::value(table, value),
                }));
        }
        tables.push(dump);
    }
    Ok(CatalogDump { tables })
}

/// Two digits a byte.
#[must_use]
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
