//! Files that owe an error together: all that had something only on disks which did not take the
//! first flush of a takeover.
//!
//! That may be every file of a group whose catalog is full, and a takeover opens it all the same. So
//! a row, `owed_by.N`, tells it of 1,024 file numbers at once: what all of them take is little beside
//! what the catalog keeps back for removals, for each of the files has rows of its own there. A file
//! that has told it leaves its row, which goes with the last.
//!
//! A file that is removed stays in its row until its number is another file's, or the next opening:
//! the removal is a part of an operation, which does not count where a kill cuts it off, and the row
//! as others leave it meanwhile does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Catalog, Edit, Table};
use spindle_sync::level::LeafGuard;

use crate::core::Core;
use crate::error::GroupError;

const KEY_START: &str = "owed_by.";
/// The exclusive end of the range of keys.
const KEYS_END: &[u8] = b"owed_by/";
/// File numbers that one row speaks of.
const FILES_PER_ROW: u64 = 1024;
/// Rows that are read at once.
const ROWS_MOST: usize = 256;

/// What one row says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwedTogether {
    /// Each of the files had something only on one of them.
    disks: BTreeSet<DiskNumber>,
    /// Whether reads beyond the marks are refused until the error is told.
    files: BTreeMap<FileId, bool>,
}

/// The rows, by number.
pub(crate) type OwedRows = BTreeMap<u64, OwedTogether>;

fn row_of(file: FileId) -> u64 {
    file.0 / FILES_PER_ROW
}

fn key(row: u64) -> Vec<u8> {
    format!("{KEY_START}{row}").into_bytes()
}

/// Ascending numbers as `1-3,7`; `-` for none.
fn put_numbers(out: &mut String, numbers: impl Iterator<Item = u64>) {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    if runs.is_empty() {
        out.push('-');
    }
    for (at, (first, last)) in runs.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let written = match first == last {
            true => write!(out, "{comma}{first}"),
            false => write!(out, "{comma}{first}-{last}"),
        };
        written.expect("a string takes everything");
    }
}

/// What [`put_numbers`] wrote; none of `end` or beyond.
fn parse_numbers(text: &str, end: u64) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for run in text.split(',').filter(|_| text != "-") {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= end {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

impl OwedTogether {
    /// As a line of text, which a dump of the catalog shows as it is.
    fn encode(&self, row: u64) -> Vec<u8> {
        let mut line = String::new();
        put_numbers(&mut line, self.disks.iter().map(|disk| u64::from(disk.0)));
        line.push(' ');
        let within = |file: &FileId| file.0 - row * FILES_PER_ROW;
        put_numbers(&mut line, self.files.keys().map(within));
        line.push(' ');
        let hiding = self.files.iter().filter(|(_, hides)| **hides);
        put_numbers(&mut line, hiding.map(|(file, _)| within(file)));
        line.into_bytes()
    }

    fn parse(row: u64, value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.split(' ');
        let mut numbers = |end| parse_numbers(parts.next()?, end);
        let disks = numbers(u64::from(u16::MAX) + 1)?;
        let files = numbers(FILES_PER_ROW)?;
        let hiding = numbers(FILES_PER_ROW)?;
        let first = row.checked_mul(FILES_PER_ROW)?;
        let mut together = Self {
            disks: (disks.into_iter())
                .map(|disk| u16::try_from(disk).map(DiskNumber))
                .collect::<Result<_, _>>()
                .ok()?,
            files: (files.into_iter())
                .map(|within| (FileId(first + within), false))
                .collect(),
        };
        for within in hiding {
            *together.files.get_mut(&FileId(first + within))? = true;
        }
        Some(together)
    }

    /// Puts the row as it is now.
    fn put(&self, row: u64, edit: &mut Edit) {
        match self.files.is_empty() {
            true => edit.delete(Table::Attribute, key(row)),
            false => edit.put(Table::Attribute, key(row), self.encode(row)),
        }
    }
}

/// Every such row, also those that are not committed yet. What cannot be read is taken away.
fn load(catalog: &Catalog) -> Result<OwedRows, GroupError> {
    let mut found = OwedRows::new();
    let mut from = KEY_START.as_bytes().to_vec();
    loop {
        let rows = catalog.range(Table::Attribute, &from, KEYS_END, ROWS_MOST)?;
        let Some((last, _)) = rows.last() else {
            return Ok(found);
        };
        from.clone_from(last);
        from.push(0);
        for (key, value) in rows {
            let number = std::str::from_utf8(&key).ok();
            let number = number.and_then(|key| key.strip_prefix(KEY_START)?.parse().ok());
            match number.and_then(|row| Some((row, OwedTogether::parse(row, &value)?))) {
                Some((row, together)) => {
                    found.insert(row, together);
                }
                None => {
                    let mut edit = Edit::default();
                    edit.delete(Table::Attribute, key);
                    catalog.apply(edit);
                }
            }
        }
    }
}

/// The rows by which these files owe their next sync that something they had only on the disk may be
/// lost, whoever takes over; each with whether reads beyond its marks are refused until then.
pub(in crate::core) fn put(
    catalog: &Catalog,
    owing: impl Iterator<Item = (FileId, DiskNumber, bool)>,
) -> Result<(), GroupError> {
    let mut rows = load(catalog)?;
    let mut changed = BTreeSet::new();
    for (file, disk, hides) in owing {
        let together = rows.entry(row_of(file)).or_default();
        together.disks.insert(disk);
        *together.files.entry(file).or_default() |= hides;
        changed.insert(row_of(file));
    }
    let mut edit = Edit::default();
    for row in changed {
        rows[&row].put(row, &mut edit);
    }
    if !edit.is_empty() {
        catalog.apply(edit);
    }
    Ok(())
}

impl Core {
    /// At an opening: takes up what these rows say, where this process takes over.
    pub(super) fn take_up_owed_together(&self, takes_over: bool) -> Result<(), GroupError> {
        let mut rows = load(&self.catalog)?;
        let mut edit = Edit::default();
        rows.retain(|row, together| {
            let before = together.files.len();
            (together.files).retain(|id, _| takes_over && self.file(*id).is_some());
            if together.files.len() != before {
                together.put(*row, &mut edit);
            }
            !together.files.is_empty()
        });
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        for together in rows.values() {
            let disks = together.disks.iter().map(|disk| self.disks.describe(*disk));
            let disks = disks.collect::<Vec<_>>().join(" or ");
            for (id, hides) in &together.files {
                let message = format!(
                    "{disks} went away or failed a flush when the process that served the group was \
                     killed, and there is no other copy: what was written to file {id} since its \
                     last sync may be lost"
                );
                if let Some(file) = self.file(*id) {
                    self.take_up_row(&file, message, *hides).has_row_together = true;
                }
            }
        }
        *self.owed_together.lock() = rows;
        Ok(())
    }

    /// Takes the file out of its row. The edit is to be applied while the guard lives: whoever
    /// changes the row next changes what this one left.
    pub(in crate::core) fn leave_owed_together(
        &self,
        file: FileId,
        edit: &mut Edit,
    ) -> LeafGuard<'_, OwedRows> {
        let row = row_of(file);
        let mut rows = self.owed_together.lock();
        if let Some(together) = rows.get_mut(&row)
            && together.files.remove(&file).is_some()
        {
            together.put(row, edit);
            if together.files.is_empty() {
                rows.remove(&row);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use spindle_base::{DiskNumber, FileId};

    use super::{FILES_PER_ROW, OwedTogether, parse_numbers, put_numbers};

    #[test]
    fn runs_of_numbers_are_read_as_they_were_written() {
        for numbers in [
            vec![],
            vec![0],
            vec![1, 2, 3, 7],
            vec![0, 2, 4, 6],
            vec![1022, 1023],
        ] {
            let mut text = String::new();
            put_numbers(&mut text, numbers.iter().copied());
            assert_eq!(parse_numbers(&text, FILES_PER_ROW), Some(numbers), "{text}");
        }
        for wrong in ["", "1,", "a", "3-1024", "7-3", "-1", "1--2"] {
            assert_eq!(parse_numbers(wrong, FILES_PER_ROW), None, "{wrong}");
        }
    }

    #[test]
    fn a_row_says_of_each_file_whether_it_hides() {
        let files = (2048..2060).map(|id| (FileId(id), id % 5 == 0)).collect();
        let row = OwedTogether {
            disks: [DiskNumber(3)].into(),
            files,
        };
        let encoded = row.encode(2);
        assert_eq!(encoded, b"3 0-11 2,7");
        assert_eq!(OwedTogether::parse(2, &encoded), Some(row));
        // A file that hides and does not owe, a number of another row, a row that cannot be.
        for (number, wrong) in [
            (2, "3 0-1 2"),
            (2, "3 1024 -"),
            (2, "3 0"),
            (u64::MAX, "3 0 -"),
        ] {
            assert_eq!(
                OwedTogether::parse(number, wrong.as_bytes()),
                None,
                "{wrong}"
            );
        }
    }
}
