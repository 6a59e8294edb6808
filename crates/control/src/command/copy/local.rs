//! This machine's own files, as the other end of a copy.
//!
//! Everything is reached by descriptors (see [`Place`]), and what was looked at before is looked at
//! again once it is open: a pipe that came in a file's place is never waited for. Bits that let a
//! program run as its owner are set only on files whose owner and group are the wanted ones.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fchown, fstat, mkdirat, openat,
    readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::place::{Place, open_directory, stat_entry};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::{Files, NewEntry, PIECE_BYTES};
use crate::api::view::{FileReport, MapReport, TimeReport, UsageReport};

/// Zeros in whole pieces of this size become holes.
const HOLE_BYTES: usize = 64 << 10;
/// So many links lead to a descriptor at most: `/dev/stdout` is one.
const DESCRIPTOR_LINKS_MOST: usize = 8;
/// Names that are tried for a file beside its place.
const NAMES_MOST: u32 = 1000;
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// The files of this machine at one named place and below it. Owners are set only where the
/// caller may.
#[derive(Debug)]
pub struct LocalFiles {
    /// Set owners and times as the copy says.
    preserve: bool,
    place: Place,
    /// The directories that have new names, each with one of these.
    changed: Mutex<BTreeMap<PathBuf, PathBuf>>,
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character_device",
        _ => "block_device",
    }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn report(path: &Path, stat: &Stat, target: Option<OsString>) -> FileReport {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let time = |seconds: i64, nanoseconds: u64| TimeReport {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    let changed = time(stat.st_ctime, stat.st_ctime_nsec);
    let (target, target_bytes) = FileReport::target_from(target.map(OsString::into_vec));
    FileReport {
        path: path.display().to_string(),
        name: name.to_string_lossy().into_owned(),
        name_bytes: name.to_str().is_none().then(|| name.as_bytes().to_vec()),
        id: stat.st_ino,
        kind: kind_name(kind_of(stat)).to_owned(),
        permissions: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0o600),
        links_count: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        user: stat.st_uid,
        group: stat.st_gid,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        allocated_bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        redundancy: None,
        striping: None,
        target,
        target_bytes,
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed,
        created: changed,
    }
}

impl LocalFiles {
    /// What is at `path`, as a person named it, and below it.
    #[must_use]
    pub const fn new(path: PathBuf, preserve: bool) -> Self {
        Self {
            preserve,
            place: Place::new(path),
            changed: Mutex::new(BTreeMap::new()),
        }
    }

    fn note_name(&self, path: &Path) {
        if let Some(parent) = path.parent() {
            let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.insert(parent.to_owned(), path.to_owned());
        }
    }

    /// Owner, permissions and time of what was just made, in this order: bits that let it run as
    /// its owner come when it has that owner.
    fn finish(&self, made: impl AsFd, path: &Path, new: NewEntry, also: Mode) -> ControlResult<()> {
        let fail = |error: Errno| ControlError::io("finish", path.display(), &error.into());
        let mut permissions = u32::from(new.permissions) & 0o7777;
        if self.preserve {
            let (user, group) = owner_of(new);
            match fchown(&made, user, group) {
                // As with cp(1): who may not give a file away keeps it.
                Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(fail(error)),
            }
            let stat = fstat(&made).map_err(fail)?;
            if stat.st_uid != new.user || stat.st_gid != new.group {
                permissions &= !SET_ID_BITS;
            }
        } else {
            permissions &= 0o777;
        }
        fchmod(&made, Mode::from_raw_mode(permissions) | also).map_err(fail)?;
        if let Some(time) = new.modified {
            let time = rustix::fs::Timespec {
                tv_sec: time.seconds,
                tv_nsec: time.nanoseconds.into(),
            };
            let times = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: rustix::fs::UTIME_OMIT,
                },
                last_modification: time,
            };
            rustix::fs::futimens(&made, &times).map_err(fail)?;
        }
        Ok(())
    }

    /// The regular file at `path`. Opening it waits for nobody.
    fn open(&self, path: &Path) -> ControlResult<File> {
        let fail = |error: Errno| ControlError::io("read", path.display(), &error.into());
        // A pipe that nobody writes to would be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = if self.place.is(path) {
            openat(CWD, path, flags, Mode::empty())
        } else {
            let (directory, name) = self.place.entry(path)?;
            openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
        };
        let opened = opened.map_err(fail)?;
        let stat = fstat(&opened).map_err(fail)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(ControlError::invalid(format!(
                "{} is a {}: only files, directories and symbolic links are copied",
                path.display(),
                kind_name(kind_of(&stat))
            )));
        }
        Ok(File::from(opened))
    }

    /// Where a person named a pipe, a device or an open descriptor, it is written to; a file is
    /// replaced whole.
    fn named_device(&self, path: &Path) -> ControlResult<Option<File>> {
        if !self.place.is(path) {
            return Ok(None);
        }
        let fail = |error| ControlError::io("open", path.display(), &error);
        if let Some(descriptor) = named_descriptor(path) {
            // Another descriptor of the same file, where one can be had: it goes on where that is.
            let standard = match descriptor {
                1 => std::io::stdout().as_fd().try_clone_to_owned(),
                2 => std::io::stderr().as_fd().try_clone_to_owned(),
                _ => (std::fs::OpenOptions::new().append(true).open(path)).map(OwnedFd::from),
            };
            return standard.map(|open| Some(File::from(open))).map_err(fail);
        }
        let Ok(stat) = self.place.stat() else {
            return Ok(None);
        };
        if matches!(
            kind_of(&stat),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        ) {
            return Ok(None);
        }
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map(Some)
            .map_err(fail)
    }
}

/// The number of the descriptor that the path names, as `/dev/stdout` and `/dev/fd/3` do: what it
/// leads to is open already, and nothing can be renamed over it.
fn named_descriptor(path: &Path) -> Option<u32> {
    let mut path = path.to_owned();
    for _ in 0..DESCRIPTOR_LINKS_MOST {
        let parent = path.parent()?;
        let parent = std::fs::canonicalize(match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        });
        let parent = parent.ok()?;
        let own = format!("/proc/{}/", std::process::id());
        if parent.starts_with(own) && parent.ends_with("fd") {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = parent.join(std::fs::read_link(&path).ok()?);
    }
    None
}

fn owner_of(new: NewEntry) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    (
        Some(rustix::fs::Uid::from_raw(new.user)),
        Some(rustix::fs::Gid::from_raw(new.group)),
    )
}

impl Files for LocalFiles {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        if self.place.is(path) {
            // A link named on the command line means its target, as with cp(1).
            return Ok(report(path, &self.place.stat()?, None));
        }
        let (directory, name) = self.place.entry(path)?;
        match stat_entry(&directory, &name, path)? {
            Some(stat) => Ok(report(path, &stat, read_link(&directory, &name, &stat))),
            None => Err(ControlError::not_found(format!(
                "there is no {}",
                path.display()
            ))),
        }
    }

    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        let fail = |error: Errno| ControlError::io("list", path.display(), &error.into());
        let directory = self.place.directory(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = openat(&directory, ".", flags, Mode::empty()).map_err(fail)?;
        let mut reports = Vec::new();
        for entry in Dir::new(entries).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let at = path.join(name);
            // One that was removed meanwhile is not there.
            if let Some(stat) = stat_entry(&directory, name, &at)? {
                reports.push(report(&at, &stat, read_link(&directory, name, &stat)));
            }
        }
        reports.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(reports)
    }

    fn map(&self, path: &Path) -> ControlResult<MapReport> {
        Err(ControlError::invalid(format!(
            "{} is no file of a group",
            path.display()
        )))
    }

    fn usage(&self, path: &Path, _depth: usize) -> ControlResult<Vec<UsageReport>> {
        Err(ControlError::invalid(format!(
            "{} is no file of a group",
            path.display()
        )))
    }

    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64> {
        let fail = |error| ControlError::io("read", path.display(), &error);
        let mut file = self.open(path)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut total = 0;
        loop {
            let count = file.read(&mut piece).map_err(fail)?;
            if count == 0 {
                return Ok(total);
            }
            out.write_all(&piece[..count]).map_err(fail)?;
            total += count as u64;
        }
    }

    fn write_from(&self, path: &Path, new: NewEntry, input: &mut dyn Read) -> ControlResult<u64> {
        if let Some(mut device) = self.named_device(path)? {
            let total = std::io::copy(input, &mut device)
                .map_err(|error| ControlError::io("write", path.display(), &error))?;
            make_durable(&device, path)?;
            return Ok(total);
        }
        let (directory, name) = self.place.entry(path)?;
        let there = stat_entry(&directory, &name, path)?;
        if there.is_some_and(|stat| kind_of(&stat) == FileType::Directory) {
            return Err(ControlError::new(
                ControlErrorKind::Exists,
                format!("{} is a directory", path.display()),
            ));
        }
        let passing = Passing::create(directory, &name, path)?;
        let total = write_with_holes(&passing.file, input)
            .map_err(|error| ControlError::io("write", path.display(), &error))?;
        self.finish(&passing.file, path, new, Mode::empty())?;
        // Before it replaces what has the name now: a file system may refuse what it took, or keep the
        // new name over a power cut and not the bytes.
        make_durable(&passing.file, path)?;
        passing.rename_to(&name, path)?;
        self.note_name(path);
        Ok(total)
    }

    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()> {
        if self.place.is(path) && self.place.is_directory() {
            return Ok(());
        }
        let (directory, name) = self.place.entry(path)?;
        // Nobody else gets in before it has its owner and permissions.
        match mkdirat(&directory, &name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let there = open_directory(&directory, &name, path)?;
                if self.place.is(path) {
                    self.place.made(there);
                }
                return Ok(());
            }
            Err(error) => return Err(ControlError::io("make", path.display(), &error.into())),
        }
        self.note_name(path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&directory, &name, flags, Mode::empty())
            .map_err(|error| ControlError::io("finish", path.display(), &error.into()))?;
        // Its owner must be able to fill it, whatever the copied permissions are.
        let without_time = NewEntry {
            modified: None,
            ..new
        };
        self.finish(&made, path, without_time, Mode::RWXU)?;
        if self.place.is(path) {
            self.place.made(made);
        }
        Ok(())
    }

    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()> {
        let (directory, name) = self.place.entry(path)?;
        let fail = |what: &str, error: Errno| ControlError::io(what, path.display(), &error.into());
        let there = stat_entry(&directory, &name, path)?;
        if there.is_some_and(|stat| kind_of(&stat) == FileType::Symlink) {
            unlinkat(&directory, &name, AtFlags::empty()).map_err(|e| fail("replace", e))?;
        }
        symlinkat(target, &directory, &name).map_err(|error| fail("make the link", error))?;
        self.note_name(path);
        if self.preserve {
            let (user, group) = owner_of(new);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(&directory, &name, user, group, flags) {
                Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(fail("finish", error)),
            }
        }
        Ok(())
    }

    /// Each file was synced before it got its name.
    fn sync(&self, _written: &[&Path]) -> ControlResult<()> {
        let changed =
            std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for (parent, entry) in changed {
            let (directory, _) = self.place.entry(&entry)?;
            match openat(&directory, ".", flags, Mode::empty()) {
                Ok(open) => make_durable(open, &parent)?,
                // Names may be made there by who must not read them.
                Err(Errno::ACCESS) => {}
                Err(error) => {
                    return Err(ControlError::io("sync", parent.display(), &error.into()));
                }
            }
        }
        Ok(())
    }
}

/// What was written stays over a power cut, as far as it can: a pipe or a terminal keeps nothing.
fn make_durable(written: impl AsFd, path: &Path) -> ControlResult<()> {
    match rustix::fs::fsync(written) {
        Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => Ok(()),
        Err(error) => Err(ControlError::io("sync", path.display(), &error.into())),
    }
}

fn read_link(directory: &OwnedFd, name: &OsStr, stat: &Stat) -> Option<OsString> {
    if kind_of(stat) != FileType::Symlink {
        return None;
    }
    let target = readlinkat(directory, name, Vec::new()).ok()?;
    Some(OsString::from_vec(target.into_bytes()))
}

/// A file beside its place, removed again unless it reaches it.
struct Passing {
    file: File,
    directory: OwnedFd,
    name: Option<OsString>,
}

impl Passing {
    fn create(directory: OwnedFd, name: &OsStr, path: &Path) -> ControlResult<Self> {
        let short: String = name.to_string_lossy().chars().take(60).collect();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut number = 0;
        loop {
            // A copy that was killed leaves its file, and the next process may have its number.
            let own = std::process::id();
            let beside = OsString::from(format!(".{short}.spindle-{own}-{number}"));
            match openat(&directory, &beside, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    return Ok(Self {
                        file: File::from(file),
                        directory,
                        name: Some(beside),
                    });
                }
                Err(Errno::EXIST) if number < NAMES_MOST => number += 1,
                Err(error) => return Err(ControlError::io("make", path.display(), &error.into())),
            }
        }
    }

    fn rename_to(mut self, name: &OsStr, path: &Path) -> ControlResult<()> {
        if let Some(beside) = &self.name {
            renameat(&self.directory, beside, &self.directory, name)
                .map_err(|error| ControlError::io("name", path.display(), &error.into()))?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Some(beside) = &self.name {
            let _ = unlinkat(&self.directory, beside, AtFlags::empty());
        }
    }
}

fn write_with_holes(file: &File, input: &mut dyn Read) -> std::io::Result<u64> {
    let mut file = file;
    let mut piece = vec![0; PIECE_BYTES];
    let mut total: u64 = 0;
    loop {
        let mut count = 0;
        while count < piece.len() {
            match input.read(&mut piece[count..])? {
                0 => break,
                more => count += more,
            }
        }
        for run in piece[..count].chunks(HOLE_BYTES) {
            if run.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(run.len()).unwrap_or(0)))?;
            } else {
                file.write_all(run)?;
            }
        }
        total += count as u64;
        if count < piece.len() {
            break;
        }
    }
    file.set_len(total)?;
    Ok(total)
}

#[cfg(test)]
mod tests;
