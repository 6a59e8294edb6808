//! On-disk structures to and from bytes: the only source of the layout. No I/O, no unsafe.
//!
//! Every `parse` accepts any bytes and answers with a [`FormatError`] that names the structure,
//! what is wrong and where; it never panics. Every `encode` writes one way only, so that equal
//! values are equal bytes. `docs/format/` shows the same layout to people, and a test holds both
//! together.

mod checksum_block;
mod dirty_record;
mod error;
mod event;
mod extent;
mod feature;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod inode;
mod journal;
mod label;
mod opener;
mod place;
mod record;
mod signature;
mod state;
mod versions;

pub use checksum_block::{
    CHECKSUM_BLOCK_BYTES, CHECKSUM_BLOCK_HEADER_BYTES, CHECKSUM_BLOCK_MAGIC,
    CHECKSUM_BLOCK_VERSION, ChecksumBlock, SUMS_PER_BLOCK, block_sum, run_checksum_pairs,
    run_data_blocks,
};
pub use dirty_record::{
    BlockRun, DIRTY_DISK_BYTES, DIRTY_RECORD_HEADER_BYTES, DIRTY_RECORD_VERSION,
    DIRTY_REGION_BLOCKS, DIRTY_RUN_BYTES, DirtyRecord, StaleDisk,
};
pub use error::{FormatError, FormatErrorKind, Structure};
pub use event::{
    EVENT_MESSAGE_BYTES_MAX, EVENT_NAME_BYTES_MAX, EVENT_RECORD_HEADER_BYTES, EVENT_RECORD_VERSION,
    EventRecord, Severity,
};
pub use extent::{
    COPIES_MAX, EXTENT_CLASS_MAX, EXTENT_COPY_BYTES, EXTENT_MARK_BYTES, EXTENT_ROW_HEADER_BYTES,
    EXTENT_ROW_VERSION, EXTENTS_PER_ROW, ExtentCopy, ExtentRow, InitialisedMark, encode_extent_row,
};
pub use feature::{Feature, Features};
pub use header::{HEADER_BYTES, HEADER_CHECKSUM_OFFSET, identities, said_place};
pub use inode::{
    INODE_HEADER_BYTES, INODE_VERSION, Inode, InodeKind, NAME_RECORD_BYTES, NAME_RECORD_VERSION,
    NameRecord, PERMISSIONS_MASK, SYMLINK_TARGET_BYTES_MAX, Timestamp,
};
pub use journal::{
    JOURNAL_CHANGE_BYTES, JOURNAL_HEADER_BYTES, JOURNAL_LENGTH_OFFSET, JOURNAL_MAGIC,
    JOURNAL_VERSION, JournalChange, JournalHead, JournalRecord, encode_journal_record,
};
pub use label::{
    DiskTruncated, LABEL_COPIES, LABEL_FEATURES_KNOWN, LABEL_MAGIC, LABEL_USED_BYTES,
    LABEL_VERSION, Label, LabelStatus, ParsedLabel,
};
pub use opener::{
    HOST_FIELD_BYTES, OPENER_MAGIC, OPENER_USED_BYTES, OPENER_VERSION, OpenerRecord, Origin,
};
pub use place::{
    CLAIM_PLACE, FIRST_DATA_AU, INTENT_PLACE, JOURNAL_BYTES, JOURNAL_PLACE, LABEL_BYTES,
    LABEL_PLACES, OPENER_BYTES, OPENER_PLACE, STATE_PLACES, STATE_SLOT_BYTES, end_label_place,
    labelled_bytes, may_have_aus, resized_aus, usable_aus,
};
pub use record::{
    DISK_RECORD_HEADER_BYTES, DISK_RECORD_VERSION, DiskRecord, FILE_RECORD_BYTES,
    FILE_RECORD_VERSION, FileRecord,
};
pub use signature::{
    DiskEnds, ForeignFormat, SIGNATURE_END_BYTES, SIGNATURE_START_BYTES, Signature,
    foreign_signatures,
};
pub use state::{
    AuRun, DISKS_MAX, DiskState, DiskStatus, GroupState, Lost, ParsedGroupState, REPLICAS_MAX,
    RUNS_MAX, Replica, STATE_DISK_BYTES, STATE_FEATURES_OFFSET, STATE_HEADER_BYTES,
    STATE_LENGTH_OFFSET, STATE_MAGIC, STATE_REPLICA_HEADER_BYTES, STATE_RUN_BYTES, STATE_VERSION,
    StateBytes, VOTERS_MAX,
};

pub use versions::FORMATS;

#[cfg(test)]
mod tests;
