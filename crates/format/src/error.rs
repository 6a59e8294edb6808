//! Why bytes are not the structure that they should be.

use std::fmt;

/// Which structure the bytes should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The disk label.
    Label,
    /// The record of who has the group open.
    Opener,
    /// The group state.
    GroupState,
    /// A checksum block of the catalog region.
    ChecksumBlock,
    /// A record of the catalog's journal.
    JournalRecord,
    /// A row of 128 extents.
    ExtentRow,
    /// A file's layout record.
    FileRecord,
    /// A dirty region's record.
    DirtyRecord,
    /// A disk's record in the catalog.
    DiskRecord,
    /// A POSIX inode.
    Inode,
    /// A directory entry.
    Name,
    /// An event.
    EventRecord,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Label => "disk label",
            Self::Opener => "opener record",
            Self::GroupState => "group state",
            Self::ChecksumBlock => "catalog checksum block",
            Self::JournalRecord => "catalog journal record",
            Self::ExtentRow => "extent row",
            Self::FileRecord => "file record",
            Self::DirtyRecord => "dirty-region record",
            Self::DiskRecord => "disk record",
            Self::Inode => "inode record",
            Self::Name => "directory entry",
            Self::EventRecord => "event record",
        })
    }
}

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FormatErrorKind {
    /// There are fewer bytes than the structure needs.
    #[error("the bytes end too early")]
    TooShort,
    /// There are more bytes than the structure has.
    #[error("bytes follow its end")]
    TooLong,
    /// The structure's magic is not there: something else, or nothing, was written here.
    #[error("its magic is missing")]
    Magic,
    /// A version that this program does not know.
    #[error("version {0} is not known here; a newer Spindle wrote it")]
    Version(u32),
    /// An incompatible feature that this program does not know.
    #[error("it uses features {0:#x} that are not known here; a newer Spindle wrote it")]
    Feature(u32),
    /// The checksum does not match: a flipped bit or a torn write.
    #[error("its checksum is wrong")]
    Checksum,
    /// The structure says that it belongs elsewhere: a misdirected write.
    #[error("it was written for another place")]
    Place,
    /// Bytes that must be zero are not.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// A field has a value that it cannot have.
    #[error("{0} has an impossible value")]
    Value(&'static str),
}

impl FormatErrorKind {
    /// Whether the structure is whole, and a newer program's.
    #[must_use]
    pub const fn is_newer(self) -> bool {
        matches!(self, Self::Version(_) | Self::Feature(_))
    }
}

/// Bytes that are not the structure that was expected: which one, what is wrong, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the {structure} is not valid at its byte {offset_bytes}: {kind}")]
pub struct FormatError {
    /// What the bytes should have been.
    pub structure: Structure,
    /// What is wrong.
    pub kind: FormatErrorKind,
    /// Where in the structure, in bytes from its start.
    pub offset_bytes: usize,
}
