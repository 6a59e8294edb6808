//! What a fuzzer throws at each decoder; also run by a test over random and damaged bytes.
//!
//! A decoder answers any bytes with a value or an error; a panic is a failure. What it accepts it
//! must encode to the same bytes again: there is one way to write each value.

use spindle_base::{Uuid, crc32c};

use crate::{
    CHECKSUM_BLOCK_BYTES, CHECKSUM_BLOCK_MAGIC, CHECKSUM_BLOCK_VERSION, ChecksumBlock,
    DIRTY_RECORD_VERSION, DirtyRecord, DiskEnds, DiskRecord, EventRecord, ExtentRow, FileRecord,
    HEADER_BYTES, HEADER_CHECKSUM_OFFSET, Inode, JOURNAL_BYTES, JOURNAL_HEADER_BYTES,
    JOURNAL_LENGTH_OFFSET, JOURNAL_MAGIC, JOURNAL_VERSION, JournalRecord, LABEL_BYTES, LABEL_MAGIC,
    LABEL_VERSION, NameRecord, OPENER_BYTES, OPENER_MAGIC, OPENER_VERSION, OpenerRecord,
    ParsedGroupState, ParsedLabel, STATE_HEADER_BYTES, STATE_LENGTH_OFFSET, STATE_MAGIC,
    STATE_SLOT_BYTES, STATE_VERSION, encode_extent_row, foreign_signatures,
};

/// Where the structures are said to lie.
pub const PLACE: u64 = 1 << 16;

/// A target's name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("label", label),
    ("opener", opener),
    ("group_state", group_state),
    ("checksum_block", checksum_block),
    ("journal", journal),
    ("records", records),
    ("signature", signature),
];

/// Makes the common header right, so that the fuzzer's work is behind it: a checksum would turn
/// nearly every input away. Only for three inputs of four, that the header's own checks are tried
/// too.
fn seal(bytes: &mut [u8], magic: &[u8; 8], version: u32) {
    if bytes.len() < HEADER_BYTES || bytes[0] & 3 == 0 {
        return;
    }
    bytes[..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&PLACE.to_le_bytes());
    let checksum = HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4;
    bytes[checksum.clone()].fill(0);
    let sum = crc32c(bytes);
    bytes[checksum].copy_from_slice(&sum.to_le_bytes());
}

/// The input with a right header, cut or filled with zeros to `length_bytes`.
fn sealed(input: &[u8], length_bytes: usize, magic: &[u8; 8], version: u32) -> Vec<u8> {
    let mut bytes = input.to_vec();
    bytes.resize(length_bytes, 0);
    seal(&mut bytes, magic, version);
    bytes
}

/// The disk label.
pub fn label(input: &[u8]) {
    let bytes = sealed(input, LABEL_BYTES, LABEL_MAGIC, LABEL_VERSION);
    if let Ok(label) = ParsedLabel::parse(&bytes, PLACE) {
        assert_eq!(label.contents().encode(PLACE), bytes);
        let _ = label.check(1 << 40);
    }
    // Whatever its length, the input itself is answered too.
    let _ = ParsedLabel::parse(input, PLACE);
}

/// Who has the group open.
pub fn opener(input: &[u8]) {
    let bytes = sealed(input, OPENER_BYTES, OPENER_MAGIC, OPENER_VERSION);
    if let Ok(opener) = OpenerRecord::parse(&bytes, PLACE) {
        assert_eq!(opener.encode(PLACE), bytes);
    }
    let _ = OpenerRecord::parse(input, PLACE);
}

/// A record of the catalog's journal: as much of the input counts as it says itself.
pub fn journal(input: &[u8]) {
    let mut bytes = input.to_vec();
    if (JOURNAL_HEADER_BYTES..=JOURNAL_BYTES).contains(&bytes.len()) && bytes[1] & 3 != 0 {
        let length = u32::try_from(bytes.len()).expect("at most the journal");
        bytes[JOURNAL_LENGTH_OFFSET..JOURNAL_LENGTH_OFFSET + 4]
            .copy_from_slice(&length.to_le_bytes());
    }
    seal(&mut bytes, JOURNAL_MAGIC, JOURNAL_VERSION);
    if let Ok(record) = JournalRecord::parse(&bytes, PLACE) {
        let again = record.encode(PLACE);
        let used = JOURNAL_LENGTH_OFFSET..JOURNAL_LENGTH_OFFSET + 4;
        assert_eq!(again[used.clone()], bytes[used]);
        let length = again.len().min(bytes.len());
        let differing = (0..length).find(|at| again[*at] != bytes[*at]);
        // Beyond the used bytes only the encoder's zeros are told.
        assert!(differing.is_none_or(|at| again[at..].iter().all(|byte| *byte == 0)));
    }
    let _ = JournalRecord::parse(input, PLACE);
}

/// The group state: as much of a slot counts as it says itself.
pub fn group_state(input: &[u8]) {
    let mut slot = input.to_vec();
    if (STATE_HEADER_BYTES..=STATE_SLOT_BYTES).contains(&slot.len()) && slot[1] & 3 != 0 {
        // A length that is the input's own: else nearly none would be right.
        let length = u32::try_from(slot.len()).expect("at most a slot");
        slot[STATE_LENGTH_OFFSET..STATE_LENGTH_OFFSET + 4].copy_from_slice(&length.to_le_bytes());
    }
    seal(&mut slot, STATE_MAGIC, STATE_VERSION);
    if let Ok(parsed) = ParsedGroupState::parse(&slot, PLACE) {
        let state = parsed.contents().clone();
        let mut disk = [0; 16];
        disk.copy_from_slice(&slot[48..64]);
        let again = state.encode(PLACE, Uuid(disk));
        assert_eq!(again, slot[..again.len()]);
        assert_eq!(parsed.check(state.group_uuid, Uuid(disk)), Ok(state));
    }
    let _ = ParsedGroupState::parse(input, PLACE);
}

/// The sums of a part of the catalog region.
pub fn checksum_block(input: &[u8]) {
    let version = CHECKSUM_BLOCK_VERSION;
    let bytes = sealed(input, CHECKSUM_BLOCK_BYTES, CHECKSUM_BLOCK_MAGIC, version);
    if let Ok(block) = ChecksumBlock::parse(&bytes, PLACE) {
        assert_eq!(block.encode(PLACE), bytes);
    }
    let _ = ChecksumBlock::parse(input, PLACE);
}

/// The rows of the catalog's tables: the first byte chooses which, the rest is its value.
pub fn records(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else {
        return;
    };
    let again = match kind % 7 {
        0 => FileRecord::parse(bytes).ok().map(|record| record.encode()),
        1 => DirtyRecord::parse(bytes).ok().and_then(|record| {
            let again = record.encode();
            assert_eq!(DirtyRecord::parse(&again), Ok(record));
            // An older version is read, and written as the newest.
            (bytes[0] == DIRTY_RECORD_VERSION).then_some(again)
        }),
        2 => DiskRecord::parse(bytes).ok().map(|record| record.encode()),
        3 => Inode::parse(bytes).ok().map(|inode| inode.encode()),
        4 => NameRecord::parse(bytes).ok().map(|name| name.encode()),
        5 => EventRecord::parse(bytes).ok().map(|record| record.encode()),
        _ => ExtentRow::parse(bytes).ok().and_then(|row| {
            let entries: Vec<_> = row.entries().collect();
            let marks: Vec<_> = row.marks().collect();
            // A row of holes only is never written, and so has no bytes to compare with.
            encode_extent_row(row.copies(), &entries, &marks)
        }),
    };
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
}

/// Foreign marks on a disk of any size, of which any part was read.
pub fn signature(input: &[u8]) {
    let Some((size, bytes)) = input.split_first_chunk::<8>() else {
        return;
    };
    let (start, end) = bytes.split_at(bytes.len() / 2);
    let disk = DiskEnds {
        size_bytes: u64::from_le_bytes(*size),
        start,
        end,
    };
    for found in foreign_signatures(disk) {
        assert!(!found.format.name().is_empty());
        assert!(!disk.is_blank());
    }
}
