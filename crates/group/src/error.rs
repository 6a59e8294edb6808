//! Errors of a group: a small kind and a subject for code, a sentence for people, and what it came of.
//!
//! The sentence says what happened and leaves out what the source says. `{}` is the sentence alone,
//! `{:#}` the whole chain on one line: whatever outlives the error as text (an event, what a file
//! owes its next sync, a log) takes [`GroupError::report`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use spindle_base::{DiskNumber, ErrorClass, FileId, causes};
use spindle_catalog::CatalogError;

/// A small kind, what it happened to, whose fault it is, and the error below that it came of.
///
/// An error of a sync is kept until it is answered: only when it is gone is what it tells no longer
/// owed.
#[derive(Debug, Clone)]
pub struct GroupError {
    /// What went wrong, for code.
    pub kind: GroupErrorKind,
    /// What happened, to what, and what to do, for a person, without what the source says.
    pub message: String,
    /// What was being done to what, as far as it is known where the error is made.
    pub subject: Subject,
    source: Option<Arc<dyn Error + Send + Sync>>,
    telling: Option<Arc<Telling>>,
}

/// What was being done to what when a group's error was made. What is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Subject {
    /// What was being done.
    pub operation: Option<Operation>,
    /// The file.
    pub file: Option<FileId>,
    /// The number of the file's extent, from 0.
    pub extent: Option<u32>,
    /// Where in the file, in bytes: the first that it concerns.
    pub offset_bytes: Option<u64>,
    /// The disk that failed, or that the error is about; of several one.
    pub disk: Option<DiskNumber>,
}

/// What was being done when a group's error was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A file, or a structure of the group, was read.
    Read,
    /// A file, or a structure of the group, was written.
    Write,
    /// What was written was made durable.
    Flush,
    /// What changed in the catalog was made durable.
    Commit,
    /// A disk was asked for its size.
    Measure,
}

impl Operation {
    /// The word that reports have for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Commit => "commit",
            Self::Measure => "measure",
        }
    }
}

impl Subject {
    /// A file, and nothing more.
    pub(crate) fn of_file(file: FileId) -> Self {
        Self::default().in_file(file)
    }

    /// The same of that file.
    pub(crate) const fn in_file(mut self, file: FileId) -> Self {
        self.file = Some(file);
        self
    }

    /// Nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// To what, in words: the file and its extent, or else the disk; nothing where neither is known.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file, self.extent, self.disk) {
            (Some(file), Some(extent), _) => write!(f, "extent {extent} of file {file}"),
            (Some(file), None, _) => write!(f, "file {file}"),
            (None, _, Some(disk)) => write!(f, "disk {disk}"),
            (None, _, None) => Ok(()),
        }
    }
}

/// As long as an error with this lives, whoever was to hear of it may not have heard: what it tells is
/// still owed to a process that takes over.
#[derive(Debug, Default)]
pub(crate) struct Telling;

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if f.alternate() {
            for cause in self.causes() {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
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
            subject: Subject::default(),
            source: None,
            telling: None,
        }
    }

    /// The same error in words that tell more.
    pub(crate) fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// What was being done to what, all at once.
    pub(crate) const fn about(mut self, subject: Subject) -> Self {
        self.subject = subject;
        self
    }

    /// While that was being done.
    #[must_use]
    pub const fn during(mut self, operation: Operation) -> Self {
        self.subject.operation = Some(operation);
        self
    }

    /// It happened to the file, or is about it.
    #[must_use]
    pub const fn of_file(mut self, file: FileId) -> Self {
        self.subject.file = Some(file);
        self
    }

    /// It happened in that extent of the file.
    #[must_use]
    pub const fn in_extent(mut self, extent: u32) -> Self {
        self.subject.extent = Some(extent);
        self
    }

    /// It happened at that byte of the file.
    #[must_use]
    pub const fn at_offset(mut self, offset_bytes: u64) -> Self {
        self.subject.offset_bytes = Some(offset_bytes);
        self
    }

    /// The disk failed, or it is about the disk.
    #[must_use]
    pub const fn on_disk(mut self, disk: DiskNumber) -> Self {
        self.subject.disk = Some(disk);
        self
    }

    /// The whole chain on one line, for a person: what happened, and what it came of.
    #[must_use]
    pub fn report(&self) -> String {
        format!("{self:#}")
    }

    /// What it came of in words, the nearest first; what a level above has said already is left out.
    fn causes(&self) -> Vec<String> {
        causes(&self.message, self.source(), |words| words)
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
