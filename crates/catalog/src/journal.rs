//! The journal in front of the region: a commit is one record, one durable write.
//!
//! A transaction of the region costs two durable writes, one after the other, and tens of blocks;
//! a commit of a few rows must not. So its rows go to the journal, where they are durable, and
//! stay in memory above the committed state; when the journal is full, one transaction takes all
//! of them into the region, together with the number of the next generation, which empties the
//! journal.
//!
//! Invariants: a record is written only while every earlier one of its generation is durable;
//! after a failed write the journal takes none until its next generation. So the records of a
//! generation are a prefix of what was committed, and each acknowledged one is whole on every
//! replica that serves.
//!
//! A crash leaves the newest record whole, in part or not at all, on each replica. It was never
//! acknowledged, so either is right; whole on any replica, it counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_device::AlignedBuffer;
use spindle_format::{JOURNAL_PLACE, JournalRecord, encode_journal_record};

use crate::overlay::Layer;
use crate::{CatalogError, Region, Table};

const BLOCK_BYTES: usize = 4096;

/// The end of the journal, and what may be written there.
#[derive(Debug)]
pub(crate) struct Journal {
    region: Arc<dyn Region>,
    generation: u64,
    next_number: u64,
    next_offset_bytes: usize,
    /// A write failed: what is there now nobody knows.
    broken: bool,
}

impl Journal {
    /// An empty journal of that generation.
    pub(crate) const fn new(region: Arc<dyn Region>, generation: u64) -> Self {
        Self {
            region,
            generation,
            next_number: 0,
            next_offset_bytes: 0,
            broken: false,
        }
    }

    /// The generation that its records belong to.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes the batch as the next record; false where there is no room, and nothing was done.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where no replica took it.
    pub(crate) fn append(&mut self, batch: &Layer) -> Result<bool, CatalogError> {
        let room_bytes = self.region.journal_bytes() - self.next_offset_bytes;
        let rows = batch.rows().map(|(_, key, value)| (key, value));
        let length_bytes = JournalRecord::length_bytes(rows);
        if self.broken || length_bytes > room_bytes {
            return Ok(false);
        }
        let place = JOURNAL_PLACE + self.next_offset_bytes as u64;
        let of = (self.region.group_uuid(), self.generation, self.next_number);
        let rows = batch
            .rows()
            .map(|(table, key, value)| (table.number(), key, value));
        let record = encode_journal_record(place, of, rows);
        let mut bytes = AlignedBuffer::zeroed(record.len());
        bytes.copy_from_slice(&record);
        let answer = self
            .region
            .write_journal(self.next_offset_bytes as u64, &bytes);
        self.broken = answer.is_err();
        answer?;
        self.next_number += 1;
        self.next_offset_bytes += record.len();
        Ok(true)
    }
}

/// What the journal holds of `generation`, the newest change of each row.
///
/// # Errors
/// [`CatalogError::Damaged`] where a record is missing before others that are there.
pub(crate) fn replay(region: &dyn Region, generation: u64) -> Result<Layer, CatalogError> {
    let mut records: BTreeMap<u64, JournalRecord> = BTreeMap::new();
    for journal in region.read_journals() {
        let mut block = 0;
        while block * BLOCK_BYTES < journal.len() {
            let offset_bytes = block * BLOCK_BYTES;
            let place = JOURNAL_PLACE + offset_bytes as u64;
            block += 1;
            // Most blocks are the inside of a record, or of an earlier generation.
            let Ok(record) = JournalRecord::parse(&journal[offset_bytes..], place) else {
                continue;
            };
            if record.group_uuid != region.group_uuid() || record.generation != generation {
                continue;
            }
            records.entry(record.number).or_insert(record);
        }
    }
    let mut layer = Layer::default();
    for (expected, (number, record)) in (0..).zip(records) {
        if number != expected {
            return Err(CatalogError::Damaged(format!(
                "record {expected} of the journal is good on no disk, and record {number} \
                 follows it"
            )));
        }
        for change in record.changes {
            let table = Table::of_number(change.table).ok_or_else(|| {
                let number = change.table;
                CatalogError::Damaged(format!("the journal speaks of table {number}"))
            })?;
            layer.set(table, change.key, change.value);
        }
    }
    Ok(layer)
}
