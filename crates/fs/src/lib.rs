//! Names, directories, POSIX attributes and semantics over group files. See docs/architecture.md.
//! STUB of the contract: the owner of this crate splits it into rooms.

use std::ffi::OsStr;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_group::{Group, GroupError, Layout};

/// Time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

/// What `stat` shows.
#[derive(Debug, Clone)]
pub struct Attributes {
    pub id: FileId,
    pub kind: Kind,
    pub permissions: u16,
    pub links_count: u32,
    pub user: u32,
    pub group: u32,
    pub size_bytes: u64,
    pub allocated_bytes: u64,
    pub device: u32,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    pub created: Time,
}

/// What `setattr` changes; `None` leaves a field alone.
#[derive(Debug, Clone, Default)]
pub struct AttributeChange {
    pub permissions: Option<u16>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub size_bytes: Option<u64>,
    pub accessed: Option<Time>,
    pub modified: Option<Time>,
    pub changed: Option<Time>,
    /// Clear set-user-id and set-group-id as a write by a stranger does.
    pub kill_privileges: bool,
}

/// Who makes a new entry.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// One entry of a directory; `cookie` continues after it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: Vec<u8>,
    pub id: FileId,
    pub kind: Kind,
    pub cookie: u64,
}

/// How rename treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// What the group's caching template says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    Cached,
    Direct,
}

/// What a POSIX call can answer instead; `errno.rs` of the front door maps it, once.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    #[error("no such file or directory")]
    NotFound,
    #[error("it exists")]
    Exists,
    #[error("not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    #[error("too many links")]
    TooManyLinks,
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    #[error("no such attribute")]
    NoAttribute,
    #[error("the value does not fit")]
    TooLarge,
    #[error("not supported")]
    Unsupported,
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// A result of this layer.
pub type FsResult<T> = Result<T, FsError>;

/// What statfs shows.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    pub block_size_bytes: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
}

/// An open file: keeps an unlinked one alive until every handle is gone.
#[derive(Debug)]
pub struct Handle {}

impl Handle {
    /// The file it is open on.
    pub fn id(&self) -> FileId {
        unimplemented!("stub")
    }
}

/// The files of one group.
#[derive(Debug)]
pub struct FileSystem {}

impl FileSystem {
    /// Makes the root directory and the profile's templates in a fresh group.
    pub fn create(_group: &Arc<Group>, _owner: Owner, _now: Time) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// Opens the files of `group`; removes orphans that a crash left.
    pub fn open(_group: Arc<Group>) -> FsResult<Self> {
        unimplemented!("stub")
    }
    /// The group below.
    pub fn group(&self) -> &Arc<Group> {
        unimplemented!("stub")
    }
    pub fn lookup(&self, _parent: FileId, _name: &OsStr) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    /// The kernel holds `count` more references to the id (made by lookup, create, ...): it may
    /// use the id although the last name is gone, until `forget`.
    pub fn remember(&self, _id: FileId, _count: u64) {
        unimplemented!("stub")
    }
    pub fn forget(&self, _id: FileId, _count: u64) {
        unimplemented!("stub")
    }
    pub fn attributes(&self, _id: FileId) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn set_attributes(
        &self,
        _id: FileId,
        _change: &AttributeChange,
        _now: Time,
    ) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn make_node(
        &self,
        _parent: FileId,
        _name: &OsStr,
        _kind: Kind,
        _permissions: u16,
        _device: u32,
        _owner: Owner,
        _now: Time,
    ) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn make_directory(
        &self,
        _parent: FileId,
        _name: &OsStr,
        _permissions: u16,
        _owner: Owner,
        _now: Time,
    ) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn make_symlink(
        &self,
        _parent: FileId,
        _name: &OsStr,
        _target: &OsStr,
        _owner: Owner,
        _now: Time,
    ) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn make_link(
        &self,
        _id: FileId,
        _parent: FileId,
        _name: &OsStr,
        _now: Time,
    ) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
    pub fn read_link(&self, _id: FileId) -> FsResult<Vec<u8>> {
        unimplemented!("stub")
    }
    pub fn unlink(&self, _parent: FileId, _name: &OsStr, _now: Time) -> FsResult<()> {
        unimplemented!("stub")
    }
    pub fn remove_directory(&self, _parent: FileId, _name: &OsStr, _now: Time) -> FsResult<()> {
        unimplemented!("stub")
    }
    pub fn rename(
        &self,
        _parent: FileId,
        _name: &OsStr,
        _new_parent: FileId,
        _new_name: &OsStr,
        _mode: RenameMode,
        _now: Time,
    ) -> FsResult<()> {
        unimplemented!("stub")
    }
    pub fn open_file(&self, _id: FileId) -> FsResult<Arc<Handle>> {
        unimplemented!("stub")
    }
    /// Makes and opens a regular file that did not exist.
    pub fn create_file(
        &self,
        _parent: FileId,
        _name: &OsStr,
        _permissions: u16,
        _owner: Owner,
        _now: Time,
    ) -> FsResult<(Attributes, Arc<Handle>)> {
        unimplemented!("stub")
    }
    /// Makes and opens a file without a name (`O_TMPFILE`) in the directory's file system place.
    pub fn create_unnamed(
        &self,
        _parent: FileId,
        _permissions: u16,
        _owner: Owner,
        _now: Time,
    ) -> FsResult<(Attributes, Arc<Handle>)> {
        unimplemented!("stub")
    }
    /// Bytes read: fewer than asked only at the end of the file.
    pub fn read(&self, _handle: &Handle, _offset_bytes: u64, _out: &mut [u8]) -> FsResult<usize> {
        unimplemented!("stub")
    }
    /// Writes all of `data`; `append` ignores the offset. The end of the file moves where needed.
    pub fn write(
        &self,
        _handle: &Handle,
        _offset_bytes: u64,
        _data: &[u8],
        _append: bool,
        _now: Time,
    ) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// fallocate(2): mode as the flags FALLOC_FL_KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE.
    pub fn allocate(
        &self,
        _handle: &Handle,
        _offset_bytes: u64,
        _length_bytes: u64,
        _mode: u32,
        _now: Time,
    ) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// lseek(2) with SEEK_DATA (`hole` false) or SEEK_HOLE; `None` is ENXIO.
    pub fn seek(&self, _handle: &Handle, _offset_bytes: u64, _hole: bool) -> FsResult<Option<u64>> {
        unimplemented!("stub")
    }
    pub fn copy_range(
        &self,
        _from: &Handle,
        _from_offset: u64,
        _to: &Handle,
        _to_offset: u64,
        _length_bytes: u64,
        _now: Time,
    ) -> FsResult<u64> {
        unimplemented!("stub")
    }
    /// fsync (`data_only` false) or fdatasync.
    pub fn sync_file(&self, _handle: &Handle, _data_only: bool) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// fsync of a directory, syncfs.
    pub fn sync(&self) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// Entries after `cookie` (0: from the start, "." and ".." included), at most `most`.
    pub fn read_directory(&self, _id: FileId, _cookie: u64, _most: usize) -> FsResult<Vec<Entry>> {
        unimplemented!("stub")
    }
    pub fn extended_attribute(&self, _id: FileId, _name: &OsStr) -> FsResult<Vec<u8>> {
        unimplemented!("stub")
    }
    /// `create`: XATTR_CREATE; `replace`: XATTR_REPLACE.
    pub fn set_extended_attribute(
        &self,
        _id: FileId,
        _name: &OsStr,
        _value: &[u8],
        _create: bool,
        _replace: bool,
        _now: Time,
    ) -> FsResult<()> {
        unimplemented!("stub")
    }
    pub fn remove_extended_attribute(
        &self,
        _id: FileId,
        _name: &OsStr,
        _now: Time,
    ) -> FsResult<()> {
        unimplemented!("stub")
    }
    /// Names, each ended by a NUL.
    pub fn list_extended_attributes(&self, _id: FileId) -> FsResult<Vec<u8>> {
        unimplemented!("stub")
    }
    pub fn space(&self) -> FsResult<Space> {
        unimplemented!("stub")
    }
    /// What the template says of the file's caching.
    pub fn caching(&self, _id: FileId) -> FsResult<Caching> {
        unimplemented!("stub")
    }
    /// What a new file at this path would get (profile and templates).
    pub fn layout_for(&self, _parent: FileId, _name: &OsStr) -> FsResult<Layout> {
        unimplemented!("stub")
    }
    /// Walks a path from the root; symbolic links are not followed.
    pub fn resolve(&self, _path: &OsStr) -> FsResult<Attributes> {
        unimplemented!("stub")
    }
}
