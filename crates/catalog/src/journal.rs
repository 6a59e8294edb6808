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
//!
//! So where a record would follow, a replica that could be read says whether there is one. Where
//! none could, there may be, and the opening is refused: a path may be away for a moment only.
//! Likewise where one begins that is not whole, and a replica does not give it: what a crash has torn
//! looks like what has rotted. What one replica does not give of a record another may: the same bytes
//! are on each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_base::Uuid;
use spindle_device::AlignedBuffer;
use spindle_format::{JOURNAL_PLACE, JournalHead, JournalRecord, encode_journal_record};
use spindle_sync::{Fault, is_put_back};

use crate::overlay::Layer;
use crate::{CatalogError, JournalCopy, Region, Table};

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

    /// A write failed, and its record may be there.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
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

/// What the journal held of a generation.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// The newest change of each row.
    pub(crate) layer: Layer,
    /// A replica did not give what it has behind the last record that counts: one in flight, which
    /// would count at the next opening, or what a person has given up. The generation has to end,
    /// and none may be added to it.
    pub(crate) must_end: bool,
}

/// What the journal holds of `generation`.
///
/// # Errors
/// [`CatalogError::Damaged`] where a record is missing before others that are there,
/// [`CatalogError::Region`] where no replica can say that the journal ends where it seems to.
pub(crate) fn replay(region: &dyn Region, generation: u64) -> Result<Replayed, CatalogError> {
    let journals = region.read_journals();
    let group_uuid = region.group_uuid();
    let mut records: BTreeMap<u64, (usize, JournalRecord)> = BTreeMap::new();
    for bytes in completed(&journals.copies) {
        for block in 0..bytes.len() / BLOCK_BYTES {
            let offset_bytes = block * BLOCK_BYTES;
            let place = JOURNAL_PLACE + offset_bytes as u64;
            // Most blocks are the inside of a record, or of an earlier generation.
            let Ok(record) = JournalRecord::parse(&bytes[offset_bytes..], place) else {
                continue;
            };
            if record.group_uuid == group_uuid && record.generation == generation {
                records.entry(record.number).or_insert((block, record));
            }
        }
    }
    let mut layer = Layer::default();
    let mut end = 0;
    let mut next = 0;
    while let Some((block, record)) = records.remove(&next) {
        end = block + index(record.blocks());
        next += 1;
        for change in record.changes {
            let table = Table::of_number(change.table).ok_or_else(|| {
                let number = change.table;
                CatalogError::Damaged(format!("the journal speaks of table {number}"))
            })?;
            layer.set(table, change.key, change.value);
        }
    }
    let said: Vec<AtEnd> = (journals.copies.iter())
        .map(|copy| at_end(copy, end, group_uuid, generation))
        .collect();
    // One that is whole nowhere was never acknowledged where every replica gives all of it: else it
    // may have rotted on those that do, and be whole on another.
    let is_known = said.contains(&AtEnd::Nothing)
        || !said.contains(&AtEnd::Unread)
        || is_put_back(Fault::UnreadJournalEnds);
    if !is_known && !journals.ends_where_unread {
        return Err(CatalogError::Region {
            operation: "read",
            detail: format!(
                "block {end} of its journal, where record {next} would be, can be read whole on no \
                 disk; try again when the disks answer. Where it is bad for good, --force opens \
                 the group without the commits from there on"
            ),
        });
    }
    if !is_known {
        region.journal_was_cut(end);
    } else if let Some((number, _)) = records.first_key_value() {
        return Err(CatalogError::Damaged(format!(
            "record {next} of the journal is good on no disk, and record {number} follows it"
        )));
    } else if said.contains(&AtEnd::Broken) && !said.contains(&AtEnd::Nothing) {
        region.journal_ends_broken(end);
    }
    Ok(Replayed {
        layer,
        must_end: said.contains(&AtEnd::Unread),
    })
}

/// The journal of each replica. The blocks that it does not give are those of another, of each in
/// turn; zeros where none gives them.
fn completed(copies: &[JournalCopy]) -> Vec<Cow<'_, [u8]>> {
    let mut journals = Vec::with_capacity(copies.len());
    for copy in copies {
        if copy.read.iter().all(|is_read| *is_read) {
            journals.push(Cow::Borrowed(&copy.bytes[..]));
            continue;
        }
        for first in 0..copies.len() {
            let others = copies[first..].iter().chain(&copies[..first]);
            let mut bytes = copy.bytes.clone();
            for (block, out) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
                if !copy.read[block]
                    && let Some(other) = others.clone().find(|other| other.read[block])
                {
                    let start = block * BLOCK_BYTES;
                    out.copy_from_slice(&other.bytes[start..start + BLOCK_BYTES]);
                }
            }
            journals.push(Cow::Owned(bytes));
        }
    }
    journals
}

/// What a replica has where the next record would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    /// No record of the generation begins there, or the journal is full: none was acknowledged,
    /// because that one is on every replica.
    Nothing,
    /// One begins there, and is not whole.
    Broken,
    /// It does not give all that a record there would take.
    Unread,
}

fn at_end(copy: &JournalCopy, end: usize, group_uuid: Uuid, generation: u64) -> AtEnd {
    match copy.read.get(end) {
        None => AtEnd::Nothing,
        Some(false) => AtEnd::Unread,
        Some(true) => match JournalHead::of(&copy.bytes[end * BLOCK_BYTES..]) {
            Some(head) if head.group_uuid == group_uuid && head.generation == generation => {
                let mut blocks = copy.read[end..].iter().take(head.blocks_count);
                if blocks.all(|is_read| *is_read) {
                    AtEnd::Broken
                } else {
                    AtEnd::Unread
                }
            }
            _ => AtEnd::Nothing,
        },
    }
}

fn index(blocks: u64) -> usize {
    usize::try_from(blocks).expect("a journal is read into memory")
}
