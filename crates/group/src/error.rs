//! Errors of a group: a small kind for code, a sentence for people.

use spindle_base::ErrorClass;
use spindle_catalog::CatalogError;

/// A small kind, the context in the text, and whose fault it is.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct GroupError {
    /// What went wrong, for code.
    pub kind: GroupErrorKind,
    /// What happened, to what, and what to do, for a person.
    pub message: String,
}

/// What went wrong in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupErrorKind {
    /// No room with the redundancy that the file wants.
    NoSpace,
    /// No online copy of some extent could be read or written; sticky where it was a write.
    Io,
    /// Bytes from disk are not what they must be, on every copy.
    Corrupt,
    /// No such file.
    NotFound,
    /// Too few disks, failure groups or too small ones.
    NotEnough,
    /// Open here or elsewhere.
    Busy,
    /// The newest group state has no majority among the disks seen.
    NoMajority,
    /// Any other mistake of the caller.
    Invalid,
}

impl GroupErrorKind {
    /// Whose fault this kind is.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        match self {
            Self::Io => ErrorClass::Environment,
            Self::Corrupt => ErrorClass::BadBytes,
            Self::NoSpace
            | Self::NotFound
            | Self::NotEnough
            | Self::Busy
            | Self::NoMajority
            | Self::Invalid => ErrorClass::Caller,
        }
    }
}

impl GroupError {
    pub(crate) fn new(kind: GroupErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn no_space() -> Self {
        Self::new(
            GroupErrorKind::NoSpace,
            "no room is left for the file's redundancy: remove files or add disks",
        )
    }

    pub(crate) fn too_far() -> Self {
        Self::new(
            GroupErrorKind::Invalid,
            "the offset is beyond what a file of this layout can reach",
        )
    }
}

impl From<CatalogError> for GroupError {
    fn from(error: CatalogError) -> Self {
        let kind = match &error {
            CatalogError::Region { .. } => GroupErrorKind::Io,
            CatalogError::Damaged(_) => GroupErrorKind::Corrupt,
            CatalogError::Full => GroupErrorKind::NoSpace,
        };
        Self::new(kind, error.to_string())
    }
}
