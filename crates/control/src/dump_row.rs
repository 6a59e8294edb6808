//! Keys and values of the catalog's tables in words.

use serde_json::Value;
use spindle_catalog::Table;

use crate::dump::hexadecimal;

/// A key: numbers as numbers, names as text.
#[must_use]
pub fn key(table: Table, bytes: &[u8]) -> String {
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
        _ => hexadecimal(bytes),
    }
}

/// A value, as the structure that it is; its bytes where it is none.
#[must_use]
pub fn value(table: Table, bytes: &[u8]) -> Value {
    match table {
        Table::Attribute => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains(char::is_control) => Value::String(text.to_owned()),
            _ => Value::String(hexadecimal(bytes)),
        },
        _ => Value::String(hexadecimal(bytes)),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
