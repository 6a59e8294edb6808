//! The records of names and POSIX attributes: an inode, and a directory's entry.

use serde::Serialize;
use spindle_base::FileId;

use crate::error::{FormatError, Structure};
use crate::field::{Reader, Writer};

/// The version of the inode that this program writes.
pub const INODE_VERSION: u8 = 1;
/// The bytes of an inode before its symbolic link's target.
pub const INODE_HEADER_BYTES: usize = 112;
/// The longest target of a symbolic link, in bytes.
pub const SYMLINK_TARGET_BYTES_MAX: usize = 4095;
/// The version of the directory entry that this program writes.
pub const NAME_RECORD_VERSION: u8 = 1;
/// The bytes of a directory entry.
pub const NAME_RECORD_BYTES: usize = 24;

/// The permission bits that an inode can have: set-user-id to others' execute.
pub const PERMISSIONS_MASK: u16 = 0o7777;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InodeKind {
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

impl InodeKind {
    const fn code(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::Symlink => 3,
            Self::Fifo => 4,
            Self::Socket => 5,
            Self::CharacterDevice => 6,
            Self::BlockDevice => 7,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Regular),
            2 => Some(Self::Directory),
            3 => Some(Self::Symlink),
            4 => Some(Self::Fifo),
            5 => Some(Self::Socket),
            6 => Some(Self::CharacterDevice),
            7 => Some(Self::BlockDevice),
            _ => None,
        }
    }
}

/// Time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10^9.
    pub nanoseconds: u32,
}

impl Timestamp {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let seconds = reader.i64()?;
        let nanoseconds = reader.judged("nanoseconds", Reader::u32, |nanoseconds| {
            (nanoseconds < 1_000_000_000).then_some(nanoseconds)
        })?;
        Ok(Self {
            seconds,
            nanoseconds,
        })
    }

    fn write(self, writer: &mut Writer) {
        assert!(
            self.nanoseconds < 1_000_000_000,
            "nanoseconds are below a second"
        );
        writer.i64(self.seconds);
        writer.u32(self.nanoseconds);
    }
}

/// A file's POSIX attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inode {
    /// What it is.
    pub kind: InodeKind,
    /// Permission bits, set-id and sticky included.
    pub permissions: u16,
    /// Flags for later use; none are known yet, so that it is 0.
    pub flags: u32,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// Names (for a directory: subdirectories + 2).
    pub links_count: u32,
    /// A device's number.
    pub device: u32,
    /// The size as `stat` shows it.
    pub size_bytes: u64,
    /// The directory that it was made in or last moved to: a hint for people, never trusted.
    pub parent: Option<FileId>,
    /// For a directory: the cookie that its next new entry gets.
    pub next_cookie: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// A symbolic link's target; empty for everything else.
    pub target: Vec<u8>,
}

impl Inode {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no inode.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::Inode, bytes);
        reader.record_version(INODE_VERSION)?;
        let kind = reader.judged("kind", Reader::u8, InodeKind::of)?;
        let permissions = reader.judged("permissions", Reader::u16, |permissions| {
            (permissions & !PERMISSIONS_MASK == 0).then_some(permissions)
        })?;
        let flags = reader.judged("flags", Reader::u32, |flags| (flags == 0).then_some(flags))?;
        let user = reader.u32()?;
        let group = reader.u32()?;
        let links_count = reader.u32()?;
        let device = reader.u32()?;
        let size_bytes = reader.u64()?;
        let parent = reader.u64()?;
        let next_cookie = reader.u64()?;
        let accessed = Timestamp::read(&mut reader)?;
        let modified = Timestamp::read(&mut reader)?;
        let changed = Timestamp::read(&mut reader)?;
        let created = Timestamp::read(&mut reader)?;
        let target_bytes = reader.judged("target length", Reader::u16, |length| {
            let length = usize::from(length);
            let right = if kind == InodeKind::Symlink {
                (1..=SYMLINK_TARGET_BYTES_MAX).contains(&length)
            } else {
                length == 0
            };
            right.then_some(length)
        })?;
        reader.reserved_until(INODE_HEADER_BYTES)?;
        let target = reader.bytes(target_bytes)?.to_vec();
        reader.end()?;
        Ok(Self {
            kind,
            permissions,
            flags,
            user,
            group,
            links_count,
            device,
            size_bytes,
            parent: (parent != 0).then_some(FileId(parent)),
            next_cookie,
            accessed,
            modified,
            changed,
            created,
            target,
        })
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// Where a field has a value that it cannot have: our own state is wrong then.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.permissions & !PERMISSIONS_MASK == 0 && self.flags == 0,
            "permissions and flags have known bits only"
        );
        assert!(
            (self.kind == InodeKind::Symlink) != self.target.is_empty(),
            "symbolic links, and only they, have a target"
        );
        assert!(
            self.target.len() <= SYMLINK_TARGET_BYTES_MAX,
            "a target's length was checked when it was made"
        );
        let mut writer = Writer::with_capacity(INODE_HEADER_BYTES + self.target.len());
        writer.u8(INODE_VERSION);
        writer.u8(self.kind.code());
        writer.u16(self.permissions);
        writer.u32(self.flags);
        writer.u32(self.user);
        writer.u32(self.group);
        writer.u32(self.links_count);
        writer.u32(self.device);
        writer.u64(self.size_bytes);
        writer.u64(self.parent.map_or(0, |parent| parent.0));
        writer.u64(self.next_cookie);
        for time in [self.accessed, self.modified, self.changed, self.created] {
            time.write(&mut writer);
        }
        writer.u16(u16::try_from(self.target.len()).expect("checked above"));
        writer.reserved_until(INODE_HEADER_BYTES);
        writer.bytes(&self.target);
        writer.finish()
    }
}

/// A directory's entry: what a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NameRecord {
    /// The file.
    pub id: FileId,
    /// What it is, so that reading a directory needs no inodes.
    pub kind: InodeKind,
    /// Where reading the directory continues after this entry; stable for the entry's life.
    pub cookie: u64,
}

impl NameRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no directory entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::Name, bytes);
        reader.record_version(NAME_RECORD_VERSION)?;
        let kind = reader.judged("kind", Reader::u8, InodeKind::of)?;
        reader.reserved(6)?;
        let id = reader.file_id()?;
        let cookie = reader.u64()?;
        reader.end()?;
        Ok(Self { id, kind, cookie })
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// Where the file id is 0: our own state is wrong then.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.id.0 != 0, "file ids begin at 1");
        let mut writer = Writer::with_capacity(NAME_RECORD_BYTES);
        writer.u8(NAME_RECORD_VERSION);
        writer.u8(self.kind.code());
        writer.reserved(6);
        writer.u64(self.id.0);
        writer.u64(self.cookie);
        writer.finish()
    }
}
