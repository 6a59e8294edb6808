//! Disks that are plain files, made on the way.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use spindle_base::BLOCK_SIZE_BYTES;

use super::{DISK_SIZE_MIN_BYTES, OpenDisk, OpenError, OpenErrorKind};

/// A file disk that shall be made: written `PATH:SIZE`, for example `/srv/disk1:10G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDisk {
    /// Where.
    pub path: PathBuf,
    /// How large, in bytes.
    pub size_bytes: u64,
}

/// A text that is no `PATH:SIZE`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no file disk: write PATH:SIZE with a size in bytes, or in K, M, G or T, that is a multiple of 4096"
)]
pub struct FileDiskError(pub String);

impl FromStr for FileDisk {
    type Err = FileDiskError;
    fn from_str(text: &str) -> Result<Self, FileDiskError> {
        let error = || FileDiskError(text.to_owned());
        let (path, size) = text.rsplit_once(':').ok_or_else(error)?;
        let (digits, shift) = match size.chars().last().ok_or_else(error)? {
            'K' | 'k' => (&size[..size.len() - 1], 10),
            'M' | 'm' => (&size[..size.len() - 1], 20),
            'G' | 'g' => (&size[..size.len() - 1], 30),
            'T' | 't' => (&size[..size.len() - 1], 40),
            _ => (size, 0),
        };
        let number: u64 = digits.parse().map_err(|_| error())?;
        let size_bytes = number.checked_mul(1 << shift).ok_or_else(error)?;
        if path.is_empty() || !size_bytes.is_multiple_of(BLOCK_SIZE_BYTES) {
            return Err(error());
        }
        Ok(Self {
            path: PathBuf::from(path),
            size_bytes,
        })
    }
}

impl FileDisk {
    /// Makes the file with all its space and opens it to own it. A file that is there already is
    /// refused; where the making fails, nothing stays behind.
    ///
    /// # Errors
    /// [`OpenError`] with the kind `Exists`, `NoSpace`, `TooSmall` or one of opening.
    pub fn create(&self) -> Result<OpenDisk, OpenError> {
        let path = self.path.as_path();
        if self.size_bytes < DISK_SIZE_MIN_BYTES {
            let kind = OpenErrorKind::TooSmall {
                size_bytes: self.size_bytes,
            };
            return Err(OpenError::new(path, kind, None));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| OpenError::of_errno(path, errno))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.size_bytes)
            .and_then(|()| rustix::fs::fsync(&file))
            .and_then(|()| sync_parent(path))
            .map_err(|errno| OpenError::of_errno(path, errno))
            .and_then(|()| OpenDisk::open(path))
            .inspect_err(|_| {
                // The first error is the one to tell; a file left behind shows itself.
                let _ = rustix::fs::unlink(path);
            })
    }
}

/// Makes the new name durable: a disk whose name a power cut forgets is a lost disk.
fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::open(parent, flags, Mode::empty())?)
}
