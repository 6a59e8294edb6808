//! Names of groups, disks and failure groups.
//!
//! As in ASM: at most 30 bytes; letters, digits, `_`, `-`, `$` and `#`, a letter first. They
//! preserve case; they are compared without it by whoever must keep them unique.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name of a group, a disk or a failure group, in bytes.
pub const NAME_LENGTH_MAX: usize = 30;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No character at all.
    #[error("a name may not be empty")]
    Empty,
    /// More than 30 bytes.
    #[error(
        "the name {0:?} has {1} bytes; at most {NAME_LENGTH_MAX} are possible: choose a shorter one"
    )]
    TooLong(String, usize),
    /// A character that names may not have, or a first one that is no letter.
    #[error(
        "the name {0:?} has {1:?}; a name is a letter, then letters, digits, '_', '-', '$' or '#'"
    )]
    BadCharacter(String, char),
}

fn check(text: &str) -> Result<(), NameError> {
    let Some(first) = text.chars().next() else {
        return Err(NameError::Empty);
    };
    if text.len() > NAME_LENGTH_MAX {
        return Err(NameError::TooLong(text.to_owned(), text.len()));
    }
    if !first.is_ascii_alphabetic() {
        return Err(NameError::BadCharacter(text.to_owned(), first));
    }
    match text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$' | '#')))
    {
        Some(bad) => Err(NameError::BadCharacter(text.to_owned(), bad)),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks `text` and makes a name of it.
            ///
            /// # Errors
            /// [`NameError`] where the text is empty, too long or has a character that names may not have.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// The name as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

name!(
    /// The name of a disk group.
    GroupName
);
name!(
    /// The name of a disk within its group.
    DiskName
);
name!(
    /// The name of a failure group: disks that one fault can take away together.
    FailureGroupName
);

#[cfg(test)]
mod tests {
    use super::{GroupName, NameError};

    #[test]
    fn names_as_in_asm_are_accepted_and_others_are_told_why_not() {
        assert_eq!(GroupName::new("DATA_01").unwrap().as_str(), "DATA_01");
        assert_eq!(GroupName::new(""), Err(NameError::Empty));
        assert!(matches!(
            GroupName::new("x".repeat(31)),
            Err(NameError::TooLong(_, 31))
        ));
        assert!(matches!(
            GroupName::new("1data"),
            Err(NameError::BadCharacter(_, '1'))
        ));
        assert!(matches!(
            GroupName::new("a/b"),
            Err(NameError::BadCharacter(_, '/'))
        ));
    }
}
