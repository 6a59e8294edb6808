//! The log as bytes: see the format in [`super`].

use spindle_base::crc32c;

use crate::request::DiskSlot;

const MAGIC: &[u8; 8] = b"SPNDLREC";
const VERSION: u32 = 1;
pub(super) const FILE_HEAD_BYTES: usize = 16;
pub(super) const HEAD_BYTES: usize = 48;
const CHECKED_HEAD_BYTES: usize = 40;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A disk is met for the first time.
    Disk,
    /// A write goes to its disk.
    Write,
    /// A durable write goes to its disk.
    WriteDurable,
    /// A flush goes to its disk.
    Flush,
    /// The request was answered: done.
    Done,
    /// The request was answered: failed.
    Failed,
}

impl RecordKind {
    pub(super) const ALL: [(u8, Self); 6] = [
        (1, Self::Disk),
        (2, Self::Write),
        (3, Self::WriteDurable),
        (4, Self::Flush),
        (5, Self::Done),
        (6, Self::Failed),
    ];

    fn to_byte(self) -> u8 {
        let known = Self::ALL.iter().find(|(_, kind)| *kind == self);
        known.expect("every kind is in the list").0
    }
}

/// What the head of a record to be written says.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead {
    pub(super) kind: RecordKind,
    pub(super) slot: DiskSlot,
    pub(super) number: u64,
    pub(super) offset_bytes: u64,
    pub(super) time_ns: u64,
}

pub(super) fn file_head() -> [u8; FILE_HEAD_BYTES] {
    let mut bytes = [0; FILE_HEAD_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

impl RecordHead {
    pub(super) fn to_bytes(self, data: &[u8]) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind.to_byte();
        bytes[2..4].copy_from_slice(&self.slot.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_ns.to_le_bytes());
        let checksum = checksum(&bytes, data);
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// Of the data's own checksum and the head, so that large data need not be copied behind it.
pub(super) fn checksum(head: &[u8; HEAD_BYTES], data: &[u8]) -> u32 {
    let mut checked = [0; CHECKED_HEAD_BYTES + 4];
    checked[..CHECKED_HEAD_BYTES].copy_from_slice(&head[..CHECKED_HEAD_BYTES]);
    checked[CHECKED_HEAD_BYTES..].copy_from_slice(&crc32c(data).to_le_bytes());
    crc32c(&checked)
}
