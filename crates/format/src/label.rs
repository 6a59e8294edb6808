//! The disk label: which disk of which group this is. It is written twice in AU 0 of each disk, and
//! a third time behind the last AU, where there is room: disks that joined before this copy was
//! thought of may have none.
//!
//! Everything but zeros lies in the first 512 bytes, so that a torn write leaves the old label
//! or the new one, where the device writes its sectors whole; where it does not, another copy
//! stands. No two copies are written in one batch.

use serde::Serialize;
use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::Reader;
use crate::header::Header;
use crate::place::{LABEL_BYTES, LABEL_PLACES, end_label_place, may_have_aus};
use crate::record::{redundancy_code, redundancy_of};

/// What a label begins with.
pub const LABEL_MAGIC: &[u8; 8] = b"SPNDLABL";
/// The version of the label that this program writes.
pub const LABEL_VERSION: u32 = 1;
/// Incompatible features that this program knows: none yet.
pub const LABEL_FEATURES_KNOWN: u32 = 0;
/// Where the features are in a label.
const FEATURES_OFFSET: usize = 168;
/// The copies that a disk has at most.
pub const LABEL_COPIES: usize = 3;
/// Bytes of a label that are not reserved.
pub const LABEL_USED_BYTES: usize = 192;

const _: () = assert!(LABEL_USED_BYTES <= 512, "a label is torn nowhere");

const HEADER: Header = Header {
    structure: Structure::Label,
    magic: LABEL_MAGIC,
    version: LABEL_VERSION,
};

/// Whether the disk still belongs to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelStatus {
    /// It belongs to the group.
    Member,
    /// It was dropped, or its group was destroyed: free for a new group.
    Former,
}

/// What a disk says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Rises with each writing; of two copies that differ the higher one is right.
    pub sequence: u64,
    /// The group's identity.
    pub group_uuid: Uuid,
    /// The disk's identity.
    pub disk_uuid: Uuid,
    /// The group's name when the label was written; the group state's name is the newer one.
    pub group_name: GroupName,
    /// The disk's name.
    pub disk_name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Its number in the group.
    pub number: DiskNumber,
    /// The group's AU size.
    pub au_size: AuSize,
    /// The group's redundancy.
    pub redundancy: Redundancy,
    /// Whether it still belongs to the group.
    pub status: LabelStatus,
    /// The disk's size when it was labelled, in bytes.
    pub size_bytes: u64,
    /// When the group was made, in seconds since 1970.
    pub created_s: u64,
}

/// A label whose bytes are whole, before anybody asked whether this disk can be the one that it
/// speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLabel(Label);

/// The disk is smaller than its label says: a truncated image, or a wrong device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its label says {labelled_bytes} bytes, and it has {found_bytes}")]
pub struct DiskTruncated {
    /// What the label says.
    pub labelled_bytes: u64,
    /// What was found.
    pub found_bytes: u64,
}

impl ParsedLabel {
    /// Checks 4 KiB that were read at `place`.
    ///
    /// # Errors
    /// [`FormatError`] where they are no label, or one that was damaged or belongs elsewhere.
    pub fn parse(bytes: &[u8], place: u64) -> Result<Self, FormatError> {
        let Some(bytes) = bytes.get(..LABEL_BYTES) else {
            return Err(HEADER.error(bytes.len(), FormatErrorKind::TooShort));
        };
        let (sequence, mut reader) = HEADER.read(bytes, place)?;
        // First of all: a feature may change what the other fields can hold.
        let features = bytes[FEATURES_OFFSET..].first_chunk();
        let features = features.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if features & !LABEL_FEATURES_KNOWN != 0 {
            let kind = FormatErrorKind::Feature(features & !LABEL_FEATURES_KNOWN);
            return Err(HEADER.error(FEATURES_OFFSET, kind));
        }
        let group_uuid = reader.uuid()?;
        let disk_uuid = reader.uuid()?;
        let group_name = reader.group_name()?;
        let disk_name = reader.disk_name()?;
        let failure_group = reader.failure_group_name()?;
        let number = reader.judged("disk number", Reader::u16, |number| {
            (number != u16::MAX).then_some(DiskNumber(number))
        })?;
        let au_size = reader.au_size()?;
        let redundancy = reader.judged("redundancy", Reader::u8, redundancy_of)?;
        let status = reader.judged("status", Reader::u8, |code| match code {
            1 => Some(LabelStatus::Member),
            2 => Some(LabelStatus::Former),
            _ => None,
        })?;
        reader.reserved(3)?;
        let _features_known = reader.u32()?;
        reader.reserved(4)?;
        let size_bytes = reader.judged("size", Reader::u64, |size_bytes| {
            (size_bytes >= 2 * au_size.bytes()).then_some(size_bytes)
        })?;
        let created_s = reader.u64()?;
        reader.reserved_until(LABEL_BYTES)?;
        Ok(Self(Label {
            sequence,
            group_uuid,
            disk_uuid,
            group_name,
            disk_name,
            failure_group,
            number,
            au_size,
            redundancy,
            status,
            size_bytes,
            created_s,
        }))
    }

    /// What the label says, for listings that only look.
    #[must_use]
    pub const fn contents(&self) -> &Label {
        &self.0
    }

    /// The label, where a disk of `disk_size_bytes` can be the one that it speaks of.
    ///
    /// # Errors
    /// [`DiskTruncated`] where the disk is smaller than it was.
    pub fn check(self, disk_size_bytes: u64) -> Result<Label, DiskTruncated> {
        if disk_size_bytes < self.0.size_bytes {
            return Err(DiskTruncated {
                labelled_bytes: self.0.size_bytes,
                found_bytes: disk_size_bytes,
            });
        }
        Ok(self.0)
    }
}

impl Label {
    /// Where its copies lie, of which no two are written in one batch, on a disk of which the group
    /// has `size_aus`; the third only where no AU reaches.
    #[must_use]
    pub fn places(&self, size_aus: u32) -> [Option<u64>; LABEL_COPIES] {
        let [first, second] = LABEL_PLACES;
        let end = end_label_place(self.size_bytes);
        let used_bytes = u64::from(size_aus) * self.au_size.bytes();
        [
            Some(first),
            Some(second),
            (end >= used_bytes).then_some(end),
        ]
    }

    /// Whether a disk of the size that it says may have `size_aus`.
    #[must_use]
    pub fn fits(&self, size_aus: u32) -> bool {
        may_have_aus(self.size_bytes, self.au_size, u64::from(size_aus))
    }

    /// The bytes of the label for `place`.
    #[must_use]
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let mut writer = HEADER.begin(LABEL_BYTES, place, self.sequence);
        writer.bytes(&self.group_uuid.0);
        writer.bytes(&self.disk_uuid.0);
        writer.name(self.group_name.as_str());
        writer.name(self.disk_name.as_str());
        writer.name(self.failure_group.as_str());
        writer.u16(self.number.0);
        writer.au_size(self.au_size);
        writer.u8(redundancy_code(self.redundancy));
        writer.u8(match self.status {
            LabelStatus::Member => 1,
            LabelStatus::Former => 2,
        });
        writer.reserved(3);
        writer.u32(0);
        writer.reserved(4);
        writer.u64(self.size_bytes);
        writer.u64(self.created_s);
        writer.reserved_until(LABEL_BYTES);
        Header::finish(writer)
    }
}
