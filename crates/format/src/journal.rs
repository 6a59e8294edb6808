//! The records of the catalog's journal: what a commit changed, before the region has it.
//!
//! The journal lies in AU 0 of every disk that holds a replica of the catalog, the same bytes on
//! each. Its records follow one another from its start, each from a whole block on. All records
//! of one generation count, in order; the catalog says which generation that is, so a journal is
//! emptied by nothing more than the commit of the region that names the next one.

use spindle_base::{BLOCK_SIZE_BYTES, Uuid};

use crate::error::Structure;
use crate::error::{FormatError, FormatErrorKind};
use crate::header::{HEADER_BYTES, Header};
use crate::place::{JOURNAL_BYTES, JOURNAL_PLACE};

/// What a record begins with.
pub const JOURNAL_MAGIC: &[u8; 8] = b"SPNDJRNL";
/// The version of the record that this program writes.
pub const JOURNAL_VERSION: u32 = 1;
/// Bytes of a record before its changes.
pub const JOURNAL_HEADER_BYTES: usize = 64;
/// Bytes of a change before its key and value.
pub const JOURNAL_CHANGE_BYTES: usize = 8;
/// Where the used length is in a record.
pub const JOURNAL_LENGTH_OFFSET: usize = 56;

const KIND_REMOVED: u8 = 1;
const KIND_SET: u8 = 2;

const HEADER: Header = Header {
    structure: Structure::JournalRecord,
    magic: JOURNAL_MAGIC,
    version: JOURNAL_VERSION,
};

/// A row that was set, or removed where there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalChange {
    /// The catalog's number of the table.
    pub table: u8,
    /// The row's key.
    pub key: Vec<u8>,
    /// Its value; `None` where it was removed.
    pub value: Option<Vec<u8>>,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    /// The group's identity.
    pub group_uuid: Uuid,
    /// Which life of the journal it belongs to.
    pub generation: u64,
    /// Its number in the generation, from 0 on.
    pub number: u64,
    /// What changed.
    pub changes: Vec<JournalChange>,
}

/// What the first block of a record says of it. No checksum was asked: the rest of the record may
/// be another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalHead {
    /// The group's identity.
    pub group_uuid: Uuid,
    /// Which life of the journal it belongs to.
    pub generation: u64,
    /// The whole blocks that it takes, the first included; 1 where it says what cannot be.
    pub blocks_count: usize,
}

impl JournalHead {
    /// The head at the start of `bytes`; `None` where no record begins there.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        HEADER.check_magic(bytes).ok()?;
        let (identity, rest) = bytes.get(HEADER_BYTES..)?.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let length_bytes = u32::from_le_bytes(*rest.first_chunk()?);
        let length_bytes = usize::try_from(length_bytes).unwrap_or(usize::MAX);
        let is_possible = (JOURNAL_HEADER_BYTES..=JOURNAL_BYTES).contains(&length_bytes);
        Some(Self {
            group_uuid: Uuid(*identity),
            generation: u64::from_le_bytes(*generation),
            blocks_count: if is_possible {
                whole_blocks(length_bytes) / whole_blocks(1)
            } else {
                1
            },
        })
    }
}

impl JournalRecord {
    /// Checks the record at the start of `bytes`, which were read at `place`; what follows the
    /// used bytes is not looked at.
    ///
    /// # Errors
    /// [`FormatError`] where there is no record, or one that was damaged or never whole.
    pub fn parse(bytes: &[u8], place: u64) -> Result<Self, FormatError> {
        HEADER.check_magic(bytes)?;
        let too_short = HEADER.error(bytes.len(), FormatErrorKind::TooShort);
        let field = JOURNAL_LENGTH_OFFSET..JOURNAL_LENGTH_OFFSET + 4;
        let field = bytes.get(field).ok_or(too_short)?;
        let length_bytes = field
            .iter()
            .rev()
            .fold(0_usize, |value, byte| (value << 8) | usize::from(*byte));
        if !(JOURNAL_HEADER_BYTES..=JOURNAL_BYTES).contains(&length_bytes) {
            return Err(HEADER.error(JOURNAL_LENGTH_OFFSET, FormatErrorKind::Value("length")));
        }
        let bytes = bytes.get(..length_bytes).ok_or(too_short)?;
        let (number, mut reader) = HEADER.read(bytes, place)?;
        let group_uuid = reader.uuid()?;
        let generation = reader.u64()?;
        reader.u32()?;
        let changes_count = reader.u32()?;
        let mut changes = Vec::new();
        for _ in 0..changes_count {
            let table = reader.u8()?;
            let is_set =
                reader.judged(
                    "kind of change",
                    crate::field::Reader::u8,
                    |kind| match kind {
                        KIND_REMOVED => Some(false),
                        KIND_SET => Some(true),
                        _ => None,
                    },
                )?;
            let key_bytes = usize::from(reader.u16()?);
            let value_bytes = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
            if !is_set && value_bytes > 0 {
                return Err(reader.error(FormatErrorKind::Value("length of a removed value")));
            }
            let key = reader.bytes(key_bytes)?.to_vec();
            let value = reader.bytes(value_bytes)?.to_vec();
            changes.push(JournalChange {
                table,
                key,
                value: is_set.then_some(value),
            });
        }
        reader.end()?;
        Ok(Self {
            group_uuid,
            generation,
            number,
            changes,
        })
    }

    /// The bytes that a record of these changes takes, whole blocks.
    pub fn length_bytes<'a>(changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> usize {
        let used: usize = changes
            .map(|(key, value)| JOURNAL_CHANGE_BYTES + key.len() + value.map_or(0, <[u8]>::len))
            .sum();
        whole_blocks(JOURNAL_HEADER_BYTES + used)
    }

    /// The record's bytes for `place`, with zeros to the end of its last block.
    ///
    /// # Panics
    /// Where a key or all of it is too long for a record: the caller asked
    /// [`JournalRecord::length_bytes`].
    #[must_use]
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let changes = self.changes.iter().map(|change| {
            let value = change.value.as_deref();
            (change.table, change.key.as_slice(), value)
        });
        let of = (self.group_uuid, self.generation, self.number);
        encode_journal_record(place, of, changes)
    }

    /// The blocks from its start to the next record.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let changes = self.changes.iter();
        let rows = changes.map(|change| (change.key.as_slice(), change.value.as_deref()));
        Self::length_bytes(rows) as u64 / BLOCK_SIZE_BYTES
    }
}

/// As [`JournalRecord::encode`], of rows (table, key, value) that stay where they are; `of` is
/// the group, the generation and the number.
///
/// # Panics
/// As [`JournalRecord::encode`].
pub fn encode_journal_record<'a>(
    place: u64,
    of: (Uuid, u64, u64),
    changes: impl Iterator<Item = (u8, &'a [u8], Option<&'a [u8]>)>,
) -> Vec<u8> {
    let (group_uuid, generation, number) = of;
    let mut body = crate::field::Writer::with_capacity(4096);
    let mut changes_count = 0_u32;
    for (table, key, value) in changes {
        changes_count += 1;
        body.u8(table);
        body.u8(if value.is_some() {
            KIND_SET
        } else {
            KIND_REMOVED
        });
        body.u16(u16::try_from(key.len()).expect("keys are short"));
        let value = value.unwrap_or_default();
        body.u32(u32::try_from(value.len()).expect("a record is smaller than the journal"));
        body.bytes(key);
        body.bytes(value);
    }
    let body = body.finish();
    let length_bytes = JOURNAL_HEADER_BYTES + body.len();
    assert!(
        length_bytes <= JOURNAL_BYTES,
        "a record fits into the journal"
    );
    let mut writer = HEADER.begin(whole_blocks(length_bytes), place, number);
    writer.bytes(&group_uuid.0);
    writer.u64(generation);
    writer.u32(u32::try_from(length_bytes).expect("smaller than the journal"));
    writer.u32(changes_count);
    writer.bytes(&body);
    let mut bytes = Header::finish(writer);
    bytes.resize(whole_blocks(length_bytes), 0);
    bytes
}

const fn whole_blocks(bytes: usize) -> usize {
    bytes.next_multiple_of(4096)
}

const _: () = assert!(BLOCK_SIZE_BYTES == 4096 && JOURNAL_PLACE.is_multiple_of(4096));
