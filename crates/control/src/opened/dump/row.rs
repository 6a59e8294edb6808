//! Keys and values of the catalog's tables in words.

use serde::Serialize;
use serde_json::Value;
use spindle_catalog::Table;
use spindle_format::{
    DirtyRecord, DiskRecord, EventRecord, ExtentCopy, ExtentRow, FileRecord, FormatError, Inode,
    NameRecord,
};

use crate::opened::dump::{hexadecimal, readable};

/// A key: numbers as numbers, names as text.
#[must_use]
pub(super) fn key(table: Table, bytes: &[u8]) -> String {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    match table {
        Table::Attribute => text(bytes),
        Table::Disk if bytes.len() == 2 => number(bytes).to_string(),
        Table::Inode | Table::File | Table::Orphan | Table::Job if bytes.len() == 8 => {
            number(bytes).to_string()
        }
        Table::Name | Table::ExtendedAttribute if bytes.len() > 8 => {
            format!("{}/{}", number(&bytes[..8]), text(&bytes[8..]))
        }
        Table::Extent | Table::DirtyRegion if bytes.len() == 12 => {
            format!("{}/{}", number(&bytes[..8]), number(&bytes[8..]))
        }
        Table::Event if bytes.len() == 9 => {
            format!("{}/{}", bytes[0], number(&bytes[1..]))
        }
        _ => hexadecimal(bytes),
    }
}

/// A value, as the structure that it is; its bytes where it is none.
#[must_use]
pub(super) fn value(table: Table, bytes: &[u8]) -> Value {
    let parsed = match table {
        Table::Attribute => attribute(bytes),
        Table::Disk => structure(DiskRecord::parse(bytes)),
        Table::Inode => structure(Inode::parse(bytes)),
        Table::Name => structure(NameRecord::parse(bytes)),
        Table::File => structure(FileRecord::parse(bytes)),
        Table::Extent => ExtentRow::parse(bytes).ok().map(|row| extents(&row)),
        Table::DirtyRegion => structure(DirtyRecord::parse(bytes)),
        Table::Event => structure(EventRecord::parse(bytes)),
        Table::ExtendedAttribute | Table::Orphan | Table::Job => None,
    };
    parsed.unwrap_or_else(|| Value::String(hexadecimal(bytes)))
}

fn structure<T: Serialize>(parsed: Result<T, FormatError>) -> Option<Value> {
    readable(serde_json::to_value(parsed.ok()?).ok())
}

/// Text as text, eight bytes as a number.
fn attribute(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok();
    let printable = |text: &&str| !text.chars().any(|c| c.is_control() && !"\t\n".contains(c));
    if let Some(text) = text.filter(printable) {
        return Some(Value::String(text.to_owned()));
    }
    let number = <[u8; 8]>::try_from(bytes).ok().map(u64::from_le_bytes);
    number.map(Value::from)
}

/// Each extent as its copies, `disk@byte+length`.
fn extents(row: &ExtentRow<'_>) -> Value {
    let entries: Vec<ExtentCopy> = row.entries().collect();
    let extents: Vec<String> = entries
        .chunks(row.copies())
        .map(|copies| {
            let words: Vec<String> = copies.iter().map(|copy| copy_in_words(*copy)).collect();
            words.join(" ")
        })
        .collect();
    let marks: Vec<String> = row
        .marks()
        .map(|mark| format!("{}:{}", mark.index, mark.blocks))
        .collect();
    serde_json::json!({ "extents": extents, "initialised_blocks": marks })
}

fn copy_in_words(copy: ExtentCopy) -> String {
    if copy == ExtentCopy::HOLE {
        return "hole".to_owned();
    }
    if copy == ExtentCopy::MISSING {
        return "missing".to_owned();
    }
    format!(
        "{}@{}+{}",
        copy.disk(),
        copy.start_bytes(),
        copy.length_bytes()
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
