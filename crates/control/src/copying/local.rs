//! This machine's own files, as the other end of a copy.

use std::fs::{File, FileType, Metadata};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::files::{Files, NewEntry, PIECE_BYTES};
use crate::view::{FileReport, MapReport, TimeReport, UsageReport};

/// Zeros in whole pieces of this size become holes.
const HOLE_BYTES: usize = 64 << 10;

/// The files of this machine. Owners are set only where the caller may.
#[derive(Debug, Default)]
pub struct LocalFiles {
    /// Set owners and times as the copy says.
    pub preserve: bool,
}

fn kind_name(kind: FileType) -> &'static str {
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_char_device() {
        "character_device"
    } else {
        "block_device"
    }
}

fn report(path: &Path, metadata: &Metadata) -> FileReport {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let time = |seconds: i64, nanoseconds: i64| TimeReport {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    FileReport {
        path: path.display().to_string(),
        name: name.to_string_lossy().into_owned(),
        name_bytes: name
            .to_str()
            .is_none()
            .then(|| std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec()),
        id: metadata.ino(),
        kind: kind_name(metadata.file_type()).to_owned(),
        permissions: u16::try_from(mode).unwrap_or(0o600),
        links_count: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        user: metadata.uid(),
        group: metadata.gid(),
        size_bytes: metadata.len(),
        allocated_bytes: metadata.blocks() * 512,
        redundancy: None,
        striping: None,
        target: std::fs::read_link(path)
            .ok()
            .map(|target| target.display().to_string()),
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
        changed: time(metadata.ctime(), metadata.ctime_nsec()),
        created: time(metadata.ctime(), metadata.ctime_nsec()),
    }
}

impl LocalFiles {
    fn finish(&self, file: &File, path: &Path, new: NewEntry) -> ControlResult<()> {
        let fail = |error| ControlError::io("finish", path.display(), &error);
        if self.preserve {
            std::os::unix::fs::fchown(file, Some(new.user), Some(new.group)).map_err(fail)?;
        }
        let permissions = std::fs::Permissions::from_mode(u32::from(new.permissions));
        file.set_permissions(permissions).map_err(fail)?;
        if let Some(time) = new.modified {
            let since = std::time::Duration::new(
                u64::try_from(time.seconds).unwrap_or(0),
                time.nanoseconds,
            );
            file.set_modified(std::time::UNIX_EPOCH + since)
                .map_err(fail)?;
        }
        Ok(())
    }
}

impl Files for LocalFiles {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        // A link named on the command line means its target, as with cp(1).
        let metadata = std::fs::metadata(path)
            .map_err(|error| ControlError::io("find", path.display(), &error))?;
        Ok(report(path, &metadata))
    }

    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        let fail = |error| ControlError::io("list", path.display(), &error);
        let mut reports = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let metadata = entry.metadata().map_err(fail)?;
            reports.push(report(&entry.path(), &metadata));
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
        let mut file = File::open(path).map_err(fail)?;
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
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(ControlError::new(
                ControlErrorKind::Exists,
                format!("{} is a directory", path.display()),
            ));
        }
        // A pipe or a device is written to; a file is replaced whole.
        if there.is_some_and(|metadata| !metadata.is_file()) {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(|error| ControlError::io("open", path.display(), &error))?;
            return std::io::copy(input, &mut file)
                .map_err(|error| ControlError::io("write", path.display(), &error));
        }
        let passing = Passing::create(path)?;
        let total = write_with_holes(&passing.file, input)
            .map_err(|error| ControlError::io("write", path.display(), &error))?;
        self.finish(&passing.file, path, new)?;
        passing.rename_to(path)?;
        Ok(total)
    }

    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()> {
        match std::fs::create_dir(path) {
            Ok(()) => {}
            Err(_) if path.is_dir() => return Ok(()),
            Err(error) => return Err(ControlError::io("make", path.display(), &error)),
        }
        let fail = |error| ControlError::io("finish", path.display(), &error);
        if self.preserve {
            std::os::unix::fs::chown(path, Some(new.user), Some(new.group)).map_err(fail)?;
        }
        // Its owner must be able to fill it, whatever the copied permissions are.
        let mode = u32::from(new.permissions) | 0o700;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(fail)
    }

    fn make_symlink(&self, path: &Path, target: &Path, _new: NewEntry) -> ControlResult<()> {
        if path.is_symlink() {
            std::fs::remove_file(path)
                .map_err(|error| ControlError::io("replace", path.display(), &error))?;
        }
        std::os::unix::fs::symlink(target, path)
            .map_err(|error| ControlError::io("make the link", path.display(), &error))
    }

    fn sync(&self) -> ControlResult<()> {
        Ok(())
    }
}

/// A file beside its place, removed again unless it reaches it.
struct Passing {
    file: File,
    path: Option<PathBuf>,
}

impl Passing {
    fn create(path: &Path) -> ControlResult<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let short: String = name.chars().take(60).collect();
        let beside = path.with_file_name(format!(".{short}.spindle-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .map_err(|error| ControlError::io("make", path.display(), &error))?;
        Ok(Self {
            file,
            path: Some(beside),
        })
    }

    fn rename_to(mut self, path: &Path) -> ControlResult<()> {
        if let Some(beside) = &self.path {
            std::fs::rename(beside, path)
                .map_err(|error| ControlError::io("name", path.display(), &error))?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Some(beside) = &self.path {
            let _ = std::fs::remove_file(beside);
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
