//! Whose fault an error is, which decides what a person is told and which exit code follows.

use serde::{Deserialize, Serialize};

/// The four classes an error belongs to; they are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The caller asked for something that cannot be: exit code 2.
    Caller,
    /// The machine, a disk, the network or the kernel refused: exit code 3.
    Environment,
    /// Bytes read from a disk or a socket are not what they must be: exit code 4.
    BadBytes,
    /// Spindle contradicts itself: exit code 70.
    Bug,
}

impl ErrorClass {
    /// The process exit code documented for this class.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Caller => 2,
            Self::Environment => 3,
            Self::BadBytes => 4,
            Self::Bug => 70,
        }
    }
}
