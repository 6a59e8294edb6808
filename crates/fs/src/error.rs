//! What a POSIX call can answer instead of a result.

use spindle_base::FileId;
use spindle_group::{GroupError, GroupErrorKind};

/// What a POSIX call can answer instead; the front door maps it to an errno, in one place.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("it exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// ENAMETOOLONG.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// EINVAL.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EPERM.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// ENODATA.
    #[error("no such attribute")]
    NoAttribute,
    /// EFBIG for a file, E2BIG for an attribute's value.
    #[error("the value does not fit")]
    TooLarge,
    /// ENOSPC, of one file's attributes.
    #[error("the extended attributes of one file have no more room")]
    AttributesFull,
    /// EOPNOTSUPP.
    #[error("not supported")]
    Unsupported,
    /// What the group below says; its kind decides (ENOSPC, EIO, ...).
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// A result of this layer.
pub type FsResult<T> = Result<T, FsError>;

/// Rows that contradict each other or cannot be read: bytes from disk, so never a panic.
pub(crate) fn corrupt(message: String) -> FsError {
    FsError::Group(GroupError::new(GroupErrorKind::Corrupt, message))
}

/// As [`corrupt`], of the rows of that inode.
pub(crate) fn corrupt_inode(id: FileId, message: String) -> FsError {
    FsError::Group(GroupError::new(GroupErrorKind::Corrupt, message).of_file(id))
}
