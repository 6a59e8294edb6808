//! A place on this machine that a person named, and everything below it, by descriptors.
//!
//! What a person names may be a symbolic link and is followed, as with cp(1). Below it nothing is:
//! whoever can write there could put a link in the way of a copy that root makes. So the named
//! place is opened once, and everything below it is reached from there, one component after the
//! other, none of them a link.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// A descriptor that only names an entry: no permission to read it is needed, nothing waits.
const NAMED: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The named place.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// The directory that it is, from the moment on when it was first seen to be one.
    directory: OnceLock<OwnedFd>,
}

fn fail(what: &str, path: &Path, error: Errno) -> ControlError {
    if error == Errno::LOOP {
        return in_the_way(path);
    }
    ControlError::io(what, path.display(), &error.into())
}

fn in_the_way(path: &Path) -> ControlError {
    ControlError::new(
        ControlErrorKind::Exists,
        format!(
            "{} is a symbolic link or no directory, and below what was named no link is followed: remove it first",
            path.display()
        ),
    )
}

impl Place {
    /// The place at `path`.
    #[must_use]
    pub(super) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            directory: OnceLock::new(),
        }
    }

    /// Whether `path` is the place itself, which is followed where it is a link.
    #[must_use]
    pub(super) fn is(&self, path: &Path) -> bool {
        self.path == path
    }

    /// What is at the place itself, links followed.
    ///
    /// # Errors
    /// Where there is nothing, or it may not be looked at.
    pub(super) fn stat(&self) -> ControlResult<Stat> {
        let path = &self.path;
        let entry = openat(CWD, path, NAMED, Mode::empty()).map_err(|e| fail("find", path, e))?;
        let stat = fstat(&entry).map_err(|error| fail("find", path, error))?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            // The first one stays: a directory that comes in its place later is another.
            let _ = self.directory.set(entry);
        }
        Ok(stat)
    }

    /// Whether the place was seen to be a directory.
    #[must_use]
    pub(super) fn is_directory(&self) -> bool {
        self.directory.get().is_some()
    }

    /// The place is the directory that was just made there.
    pub(super) fn made(&self, directory: OwnedFd) {
        let _ = self.directory.set(directory);
    }

    /// The directory at `path`, which is the place or below it.
    ///
    /// # Errors
    /// Where there is none, or a component below the place is a link.
    pub(super) fn directory(&self, path: &Path) -> ControlResult<OwnedFd> {
        if self.directory.get().is_none() {
            self.stat()?;
        }
        let Some(top) = self.directory.get() else {
            return Err(in_the_way(&self.path));
        };
        let below = path.strip_prefix(&self.path).map_err(|_| self.bug(path))?;
        let mut directory = top.try_clone().map_err(|error| {
            ControlError::io("open another descriptor of", self.path.display(), &error)
        })?;
        let mut at = self.path.clone();
        for component in below.components() {
            let Component::Normal(name) = component else {
                return Err(self.bug(path));
            };
            at.push(name);
            directory = open_directory(&directory, name, &at)?;
        }
        Ok(directory)
    }

    /// The directory that the entry at `path` is in, and the entry's name.
    ///
    /// # Errors
    /// As for [`Place::directory`].
    pub(super) fn entry(&self, path: &Path) -> ControlResult<(OwnedFd, OsString)> {
        let Some(name) = path.file_name() else {
            return Err(ControlError::invalid(format!(
                "{} names no entry of a directory",
                path.display()
            )));
        };
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let directory = if self.is(path) {
            // Named with the place by the same person.
            openat(CWD, parent, NAMED | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| fail("find", parent, error))?
        } else {
            self.directory(parent)?
        };
        Ok((directory, name.to_owned()))
    }

    fn bug(&self, path: &Path) -> ControlError {
        ControlError::new(
            ControlErrorKind::Bug,
            format!("{} is not below {}", path.display(), self.path.display()),
        )
    }
}

/// The directory `name` of `directory`, never a link to one; `path` is for messages.
///
/// # Errors
/// Where it is none.
pub(super) fn open_directory(
    directory: &OwnedFd,
    name: &OsStr,
    path: &Path,
) -> ControlResult<OwnedFd> {
    let flags = NAMED | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    openat(directory, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR => in_the_way(path),
        error => fail("find", path, error),
    })
}

/// What is at `name` of `directory`, a link as such; `None` where there is nothing.
///
/// # Errors
/// Where it may not be looked at.
pub(super) fn stat_entry(
    directory: &OwnedFd,
    name: &OsStr,
    path: &Path,
) -> ControlResult<Option<Stat>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(fail("find", path, error)),
    }
}
