//! The words of this layer: times, kinds, what `stat` shows and what `setattr` changes.

use spindle_base::FileId;
use spindle_format::{InodeKind, Timestamp};
use spindle_group::RequestUnderWay;

use crate::error::{FsError, FsResult};

/// Time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10^9.
    pub nanoseconds: u32,
}

impl Time {
    /// The time as a record has it.
    pub(crate) fn stamp(self) -> FsResult<Timestamp> {
        if self.nanoseconds >= 1_000_000_000 {
            return Err(FsError::Invalid("a second has 10^9 nanoseconds"));
        }
        Ok(Timestamp {
            seconds: self.seconds,
            nanoseconds: self.nanoseconds,
        })
    }
}

impl From<Timestamp> for Time {
    fn from(stamp: Timestamp) -> Self {
        Self {
            seconds: stamp.seconds,
            nanoseconds: stamp.nanoseconds,
        }
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Regular,
    /// Names.
    Directory,
    /// Another path.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's number.
    CharacterDevice,
    /// A block device's number.
    BlockDevice,
}

impl From<InodeKind> for Kind {
    fn from(kind: InodeKind) -> Self {
        match kind {
            InodeKind::Regular => Self::Regular,
            InodeKind::Directory => Self::Directory,
            InodeKind::Symlink => Self::Symlink,
            InodeKind::Fifo => Self::Fifo,
            InodeKind::Socket => Self::Socket,
            InodeKind::CharacterDevice => Self::CharacterDevice,
            InodeKind::BlockDevice => Self::BlockDevice,
        }
    }
}

impl From<Kind> for InodeKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Regular => Self::Regular,
            Kind::Directory => Self::Directory,
            Kind::Symlink => Self::Symlink,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::CharacterDevice => Self::CharacterDevice,
            Kind::BlockDevice => Self::BlockDevice,
        }
    }
}

/// What `stat` shows.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// The inode number.
    pub id: FileId,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, set-id and sticky included.
    pub permissions: u16,
    /// Names (for a directory: subdirectories + 2).
    pub links_count: u32,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// The size in bytes.
    pub size_bytes: u64,
    /// What it takes on the disks, one copy counted.
    pub allocated_bytes: u64,
    /// A device's number.
    pub device: u32,
    /// Last read, as far as somebody sets it.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of contents or attributes.
    pub changed: Time,
    /// Creation.
    pub created: Time,
}

/// What `setattr` changes; `None` leaves a field alone.
#[derive(Debug, Clone, Default)]
pub struct AttributeChange {
    /// Permission bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub user: Option<u32>,
    /// Owning group.
    pub group: Option<u32>,
    /// The size: truncates or extends.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub accessed: Option<Time>,
    /// Last change of the contents.
    pub modified: Option<Time>,
    /// Last change of contents or attributes; the time of the call where nothing is said.
    pub changed: Option<Time>,
    /// Clear set-user-id and set-group-id as a write by a stranger does.
    pub kill_privileges: bool,
}

/// When something is asked for, and by which request of the kernel, where it must be done once
/// even if the process is killed before the answer. The one operation that fulfils it takes it.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The time that changed nodes get.
    pub now: Time,
    /// The request; nobody else needs one.
    pub request: Option<RequestUnderWay<'a>>,
}

impl From<Time> for Asked<'_> {
    fn from(now: Time) -> Self {
        Self { now, request: None }
    }
}

/// Who makes a new entry.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// The user.
    pub user: u32,
    /// The group, unless the directory gives its own (set-group-id).
    pub group: u32,
}

/// One entry of a directory; `cookie` continues after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub name: Vec<u8>,
    /// What it leads to.
    pub id: FileId,
    /// What that is.
    pub kind: Kind,
    /// Where reading continues after it; stable for the entry's life.
    pub cookie: u64,
}

/// How rename treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Takes its place.
    Replace,
    /// Refuses.
    NoReplace,
    /// Swaps both.
    Exchange,
}
