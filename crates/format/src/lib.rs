//! On-disk structures to and from bytes: the only source of the layout. No I/O, no unsafe.
//!
//! Every `parse` accepts any bytes and answers with a [`FormatError`] that names the structure,
//! what is wrong and where; it never panics. Every `encode` writes one way only, so that equal
//! values are equal bytes. `docs/format/` shows the same layout to people, and a test holds both
//! together.

mod error;
mod extent;
mod field;
mod inode;
mod record;

pub use error::{FormatError, FormatErrorKind, Structure};
pub use extent::{
    COPIES_MAX, EXTENT_CLASS_MAX, EXTENT_COPY_BYTES, EXTENT_MARK_BYTES, EXTENT_ROW_HEADER_BYTES,
    EXTENT_ROW_VERSION, EXTENTS_PER_ROW, ExtentCopy, ExtentRow, InitialisedMark, encode_extent_row,
};
pub use inode::{
    INODE_HEADER_BYTES, INODE_VERSION, Inode, InodeKind, NAME_RECORD_BYTES, NAME_RECORD_VERSION,
    NameRecord, PERMISSIONS_MASK, SYMLINK_TARGET_BYTES_MAX, Timestamp,
};
pub use record::{
    DIRTY_RECORD_HEADER_BYTES, DIRTY_RECORD_VERSION, DISK_RECORD_HEADER_BYTES, DISK_RECORD_VERSION,
    DirtyRecord, DiskRecord, FILE_RECORD_BYTES, FILE_RECORD_VERSION, FileRecord,
};

#[cfg(test)]
mod tests;
