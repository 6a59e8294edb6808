//! What a command answers instead: one line for a person, a class for the exit code.

use serde::{Deserialize, Serialize};
use spindle_base::{AuSizeError, ErrorClass, NameError};
use spindle_fs::FsError;
use spindle_group::{GroupError, GroupErrorKind};
use utoipa::ToSchema;

/// A command's failure. It crosses the API as it is, so that a person reads the same line
/// whether the daemon or the command itself failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, ToSchema)]
#[error("{message}")]
pub struct ControlError {
    /// Whose fault it is; the exit code follows from it.
    #[schema(value_type = String)]
    pub class: ErrorClass,
    /// What went wrong, for code.
    pub kind: ControlErrorKind,
    /// What happened, to what, and what to do: one line for a person.
    pub message: String,
}

/// What went wrong, as far as a caller may want to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlErrorKind {
    /// No such group, disk, file or mount.
    NotFound,
    /// Something is there that must not be lost: a foreign disk, a file, a full directory.
    Exists,
    /// In use here or on another host.
    Busy,
    /// The process that was asked is about to end: the next one may be asked.
    Ending,
    /// No room.
    NoSpace,
    /// Too few failure groups, too few or too small disks.
    NotEnough,
    /// The newest group state has no majority among the disks seen.
    NoMajority,
    /// The peer may not do this.
    Denied,
    /// Any other mistake of the caller.
    Invalid,
    /// The two ends are of different versions, and one does not understand the other.
    Version,
    /// A process that should answer does not.
    Silent,
    /// The machine or a disk refused.
    Io,
    /// Bytes are not what they must be.
    Corrupt,
    /// Spindle contradicts itself.
    Bug,
}

/// A result of this layer.
pub type ControlResult<T> = Result<T, ControlError>;

impl ControlError {
    /// A failure of `kind`; its class follows from the kind.
    #[must_use]
    pub fn new(kind: ControlErrorKind, message: impl Into<String>) -> Self {
        let class = match kind {
            ControlErrorKind::Io | ControlErrorKind::Silent | ControlErrorKind::Version => {
                ErrorClass::Environment
            }
            ControlErrorKind::Corrupt => ErrorClass::BadBytes,
            ControlErrorKind::Bug => ErrorClass::Bug,
            ControlErrorKind::NotFound
            | ControlErrorKind::Exists
            | ControlErrorKind::Busy
            | ControlErrorKind::Ending
            | ControlErrorKind::NoSpace
            | ControlErrorKind::NotEnough
            | ControlErrorKind::NoMajority
            | ControlErrorKind::Denied
            | ControlErrorKind::Invalid => ErrorClass::Caller,
        };
        Self {
            class,
            kind,
            message: message.into(),
        }
    }

    /// The caller asked for what cannot be.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ControlErrorKind::Invalid, message)
    }

    /// No such thing.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ControlErrorKind::NotFound, message)
    }

    /// The machine refused; `what` was tried on `subject`.
    #[must_use]
    pub fn io(what: &str, subject: impl std::fmt::Display, error: &std::io::Error) -> Self {
        // A failure of the other end of a copy travels through readers and writers as it is.
        if let Some(other) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Self::clone(other);
        }
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                ControlErrorKind::NotFound
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ControlErrorKind::NoSpace
            }
            _ => ControlErrorKind::Io,
        };
        Self::new(kind, format!("cannot {what} {subject}: {error}"))
    }

    /// The same failure, told with what it happened to.
    #[must_use]
    pub fn about(mut self, subject: impl std::fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }
}

impl From<GroupError> for ControlError {
    fn from(error: GroupError) -> Self {
        let kind = match error.kind {
            GroupErrorKind::NoSpace => ControlErrorKind::NoSpace,
            GroupErrorKind::Io => ControlErrorKind::Io,
            GroupErrorKind::Corrupt => ControlErrorKind::Corrupt,
            GroupErrorKind::NotFound => ControlErrorKind::NotFound,
            GroupErrorKind::NotEnough => ControlErrorKind::NotEnough,
            GroupErrorKind::Busy => ControlErrorKind::Busy,
            GroupErrorKind::NoMajority => ControlErrorKind::NoMajority,
            GroupErrorKind::Invalid => ControlErrorKind::Invalid,
        };
        Self {
            class: error.kind.class(),
            kind,
            message: error.message,
        }
    }
}

impl From<FsError> for ControlError {
    fn from(error: FsError) -> Self {
        let kind = match error {
            FsError::Group(group) => return group.into(),
            FsError::NotFound => ControlErrorKind::NotFound,
            FsError::Exists | FsError::NotEmpty => ControlErrorKind::Exists,
            _ => ControlErrorKind::Invalid,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<NameError> for ControlError {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<AuSizeError> for ControlError {
    fn from(error: AuSizeError) -> Self {
        Self::invalid(error.to_string())
    }
}
