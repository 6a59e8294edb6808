//! What a killed process left, ready to be applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use spindle_base::FileId;
use spindle_format::Timestamp;

use super::KeptJournal;
use super::header::{Header, LogEnd, State};
use super::layout::{self, REQUESTS_COUNT, TOUCHES_COUNT, WRITES_COUNT};
use super::log::{self, Kind, Record};
use crate::{Edit, Table};

/// What an inode's row lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The inode.
    pub id: FileId,
    /// Its size.
    pub size_bytes: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
}

/// An extent as it was last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredExtent {
    /// Blocks from its start that hold data.
    pub mark_blocks: u32,
    /// Its copies as an extent row has them; empty for a hole.
    pub copies: Vec<u64>,
    /// Since the newest commit there was a hole under its number: what the catalog has there was
    /// another extent.
    pub was_hole: bool,
}

/// All that no commit had taken, and what was under way.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Edits in their order.
    pub edits: Vec<Edit>,
    /// Extents that changed, of files that are still there.
    pub extents: BTreeMap<(FileId, u32), RecoveredExtent>,
    /// Inodes whose rows lag behind even after the edits.
    pub touches: Vec<Touch>,
    /// File and blocks `[first, end)` of writes whose copies may differ.
    pub writes: Vec<(FileId, u64, u64)>,
    /// All dirty regions must be compared, as after a power cut.
    pub compare_everything: bool,
    /// Requests that are done and need only be answered.
    pub done: BTreeSet<u64>,
    /// The log was full: what came after is missing, which the mount had not answered.
    pub overflowed: bool,
}

/// Reads everything; changes nothing.
pub(super) fn read(journal: &KeptJournal) -> Recovered {
    let memory = &journal.memory;
    let words = memory.words();
    let header = Header::of(memory);
    // What was taken is rows; only what must be answered and compared is left.
    let is_taken = header.state() == State::Taken;
    let records = if is_taken {
        Vec::new()
    } else {
        records(journal)
    };
    let log_end = journal.end_position();
    let mut recovered = Recovered {
        compare_everything: header.compares_everything(),
        overflowed: !is_taken && header.log_end() == LogEnd::Overflowed,
        done: layout::read_done(words).collect(),
        writes: (0..WRITES_COUNT)
            .filter_map(|slot| layout::write(words, slot).get())
            .collect(),
        ..Recovered::default()
    };
    let requests =
        (0..REQUESTS_COUNT).filter_map(|slot| layout::request(words, slot).done(log_end));
    recovered.done.extend(requests);
    let inodes = recovered.take_records(&records);
    let mut touches: HashMap<FileId, (u64, Touch)> = HashMap::new();
    for slot in (0..TOUCHES_COUNT).filter(|_| !is_taken) {
        let Some((position, touch)) = layout::touch(words, slot).get(log_end) else {
            continue;
        };
        // A row that was noted after the touch has what the touch says.
        if inodes.get(&touch.id).is_some_and(|row| *row >= position) {
            continue;
        }
        // A node may have a second place, while the operation that wrote its row still ends.
        let newest = touches.entry(touch.id).or_insert((position, touch));
        if newest.0 < position {
            *newest = (position, touch);
        }
    }
    recovered.touches = touches.into_values().map(|(_, touch)| touch).collect();
    recovered.touches.sort_unstable_by_key(|touch| touch.id);
    recovered
}

fn records(journal: &KeptJournal) -> Vec<Record> {
    let mut position = Header::of(&journal.memory).log_start();
    let end = journal.end_position();
    let mut records = Vec::new();
    while position < end
        && let Some(record) = log::read(&journal.memory, position)
    {
        position += 2 + record.payload.len() as u64;
        records.push(record);
    }
    records
}

impl Recovered {
    /// Takes in what counts; where the newest row of each inode was noted.
    fn take_records(&mut self, records: &[Record]) -> HashMap<FileId, u64> {
        let ended: BTreeSet<u32> = records
            .iter()
            .filter(|record| record.kind == Kind::End)
            .map(|record| record.bracket)
            .collect();
        let mut inodes = HashMap::new();
        for record in records {
            match record.kind {
                Kind::Edit if record.bracket == 0 || ended.contains(&record.bracket) => {
                    let Some(edit) = log::decode_edit(&record.payload) else {
                        continue;
                    };
                    self.take_edit(edit, record.position, &mut inodes);
                }
                // An operation that has no end was never answered.
                Kind::Edit => {}
                Kind::Extent => self.take_extent(&record.payload),
                Kind::End => self
                    .done
                    .extend(record.payload.iter().filter(|unique| **unique != 0)),
            }
        }
        inodes
    }

    fn take_edit(&mut self, edit: Edit, position: u64, inodes: &mut HashMap<FileId, u64>) {
        for (table, key, value) in &edit.changes {
            let Ok(id) = <[u8; 8]>::try_from(key.as_slice()).map(u64::from_be_bytes) else {
                continue;
            };
            match (table, value) {
                (Table::Inode, _) => {
                    inodes.insert(FileId(id), position);
                }
                (Table::File, None) => {
                    let own = (FileId(id), 0)..=(FileId(id), u32::MAX);
                    let numbers: Vec<_> = self.extents.range(own).map(|(key, _)| *key).collect();
                    for key in numbers {
                        self.extents.remove(&key);
                    }
                }
                _ => {}
            }
        }
        self.edits.push(edit);
    }

    fn take_extent(&mut self, payload: &[u64]) {
        let [file, place, copies @ ..] = payload else {
            return;
        };
        let low = u32::try_from(place & u64::from(u32::MAX)).unwrap_or(0);
        let key = (FileId(*file), low);
        let before = self.extents.get(&key);
        let extent = RecoveredExtent {
            mark_blocks: u32::try_from(place >> 32).unwrap_or(0),
            copies: copies.to_vec(),
            was_hole: copies.is_empty() || before.is_some_and(|before| before.was_hole),
        };
        self.extents.insert(key, extent);
    }

    /// Whether there is nothing to apply.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.extents.is_empty() && self.touches.is_empty()
    }
}
