//! Errors of a group: a small kind for code, a sentence for people, and what it came of.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use spindle_base::ErrorClass;
use spindle_catalog::CatalogError;

/// A small kind, the context in the text, whose fault it is, and the error below that it came of.
///
/// An error of a sync is kept until it is answered: only when it is gone is what it tells no longer
/// owed.
#[derive(Debug, Clone)]
pub struct GroupError {
    /// What went wrong, for code.
    pub kind: GroupErrorKind,
    /// What happened, to what, and what to do, for a person. What the source says is in it, so
    /// that it can be told by itself.
    pub message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
    telling: Option<Arc<Telling>>,
}

/// As long as an error with this lives, whoever was to hear of it may not have heard: what it tells is
/// still owed to a process that takes over.
#[derive(Debug, Default)]
pub(crate) struct Telling;

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for GroupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
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
    /// Somebody else opens it in the same moment, and this process has let go of it.
    Contended,
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
            // Without a majority its disks are not there: nobody asked for anything wrong.
            Self::Io | Self::NoMajority => ErrorClass::Environment,
            Self::Corrupt => ErrorClass::BadBytes,
            Self::NoSpace
            | Self::NotFound
            | Self::NotEnough
            | Self::Busy
            | Self::Contended
            | Self::Invalid => ErrorClass::Caller,
        }
    }
}

impl GroupError {
    /// A failure of that kind.
    #[must_use]
    pub fn new(kind: GroupErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
            telling: None,
        }
    }

    /// The same error in words that tell more.
    pub(crate) fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    pub(crate) fn telling(mut self, telling: Arc<Telling>) -> Self {
        self.telling = Some(telling);
        self
    }

    /// The error of a disk, of the catalog or of bytes that it came of.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What it came of, to be kept.
    #[must_use]
    pub fn shared_source(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        self.source.clone()
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
        Self::new(kind, error.to_string()).because(error)
    }
}
