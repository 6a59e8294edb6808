//! `GROUP:/path` or a local path: what the arguments of `cp`, `ls` and their like name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use spindle_base::GroupName;

use crate::api::error::{ControlError, ControlResult};

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a group.
    Group(GroupName, PathBuf),
    /// In the file system of this machine.
    Local(PathBuf),
}

impl Location {
    /// What comes before `:/` (or a last `:`) is a group where it is a name; `./a:/b` is local.
    #[must_use]
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let local = || Self::Local(PathBuf::from(text));
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
            return local();
        };
        let (name, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let Some(name) = std::str::from_utf8(name)
            .ok()
            .and_then(|name| GroupName::new(name).ok())
        else {
            return local();
        };
        match path {
            [] => Self::Group(name, PathBuf::from("/")),
            [b'/', ..] => Self::Group(name, PathBuf::from(OsStr::from_bytes(path))),
            _ => local(),
        }
    }

    /// The group and the path in it.
    ///
    /// # Errors
    /// Where the text names a local path.
    pub fn in_group(text: &OsStr) -> ControlResult<(GroupName, PathBuf)> {
        match Self::parse(text) {
            Self::Group(group, path) => Ok((group, path)),
            Self::Local(path) => {
                // A bare name can only be meant as a group here.
                if let Some(name) = path.to_str().and_then(|name| GroupName::new(name).ok()) {
                    return Ok((name, PathBuf::from("/")));
                }
                Err(ControlError::invalid(format!(
                    "{} is no path in a group: write GROUP:/path",
                    path.display()
                )))
            }
        }
    }

    /// The path within the group or the machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Group(_, path) | Self::Local(path) => path,
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group(group, path) => write!(f, "{group}:{}", path.display()),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Location;
    use spindle_base::GroupName;
    use std::ffi::OsStr;
    use std::path::PathBuf;

    fn group(name: &str, path: &str) -> Location {
        Location::Group(GroupName::new(name).unwrap(), PathBuf::from(path))
    }

    #[test]
    fn a_name_a_colon_and_a_slash_are_a_place_in_a_group() {
        assert_eq!(
            Location::parse(OsStr::new("data:/a/b")),
            group("data", "/a/b")
        );
        assert_eq!(Location::parse(OsStr::new("data:")), group("data", "/"));
        assert_eq!(
            Location::in_group(OsStr::new("data")).unwrap().1,
            PathBuf::from("/")
        );
    }

    #[test]
    fn what_is_no_group_name_before_the_colon_is_local() {
        for local in ["./data:/a", "/srv/x:/y", "a:b", "1a:/b", "plain"] {
            assert_eq!(
                Location::parse(OsStr::new(local)),
                Location::Local(PathBuf::from(local)),
                "{local}"
            );
        }
    }
}
