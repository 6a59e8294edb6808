//! Opening disks: block devices and plain files, to own or only to look at.
//!
//! Opening to own is exclusive: a block device with O_EXCL, which mounts, LVM, md and swap
//! respect; a plain file with an exclusive `flock`, which every opener of ours takes. The kernel
//! gives both back when the process ends, however it ends. Opening to look never locks and the
//! descriptor cannot write.

mod appearance;
mod file_disk;
mod holder;
mod release;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use spindle_base::{BLOCK_SIZE_BYTES, ErrorClass, size_text};

use crate::table::DISK_SLOTS_MAX;

pub use file_disk::{FileDisk, FileDiskError};

/// The smallest disk: AU 0 of the smallest AU size, in which no data has a place yet.
pub const DISK_SIZE_MIN_BYTES: u64 = 1 << 20;

/// How long to wait for a disk that somebody has. Who only asks whether a device is free claims it
/// for a moment, as we do ourselves; and what was let go is held until its last transfer has ended.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_INTERVAL: Duration = Duration::from_millis(10);

/// What a disk is to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// A block device.
    BlockDevice,
    /// A plain file.
    PlainFile,
}

/// A disk that is open; dropping it closes it and gives up its lock.
#[derive(Debug)]
pub struct OpenDisk {
    pub(crate) file: File,
    pub(crate) path: String,
    /// Whole blocks, as last measured.
    size_bytes: AtomicU64,
    pub(crate) memory_alignment_bytes: usize,
    /// Its transfers are copies within memory, see [`is_memory`].
    pub(crate) in_memory: bool,
    /// The most bytes that the device below takes in one piece, see [`transfer_bytes_max`].
    pub(crate) transfer_bytes_max: usize,
    /// Nobody else can own it meanwhile.
    pub(crate) is_owned: bool,
    /// The device, or the file system and the file.
    pub(crate) identity: (u64, u64),
    kind: DiskKind,
    sector_size_bytes: u32,
    direct: bool,
}

/// Why a disk could not be opened or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// Nothing is there.
    NotFound,
    /// The permissions forbid it.
    NotPermitted,
    /// Someone else has it; who, where that can be told.
    InUse {
        /// For example `mounted on /srv`.
        by: Option<String>,
    },
    /// Smaller than [`DISK_SIZE_MIN_BYTES`].
    TooSmall {
        /// What was found.
        size_bytes: u64,
    },
    /// Neither a block device nor a plain file.
    NoDisk {
        /// What it is instead.
        found: &'static str,
    },
    /// Its sectors are larger than our blocks.
    SectorSize {
        /// What was found.
        sector_size_bytes: u32,
    },
    /// A file disk was to be made where something already is.
    Exists,
    /// The file system has no room for a file disk of this size.
    NoSpace,
    /// The engine has opened as many disks as it can.
    NoSlot,
    /// The kernel refused for another reason.
    Refused,
}

/// A disk that could not be opened or made: which one and why.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {}", self.explanation())]
pub struct OpenError {
    /// The path as given.
    pub path: String,
    /// Why.
    pub kind: OpenErrorKind,
    /// The kernel's word, where there is one.
    #[source]
    pub source: Option<io::Error>,
}

impl OpenError {
    fn new(path: &Path, kind: OpenErrorKind, errno: Option<Errno>) -> Self {
        Self {
            path: path.display().to_string(),
            kind,
            source: errno.map(io::Error::from),
        }
    }

    fn of_errno(path: &Path, errno: Errno) -> Self {
        let kind = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => {
                OpenErrorKind::NotFound
            }
            Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM => OpenErrorKind::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => OpenErrorKind::NotPermitted,
            Errno::BUSY | Errno::TXTBSY => OpenErrorKind::InUse { by: None },
            Errno::EXIST => OpenErrorKind::Exists,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => OpenErrorKind::NoSpace,
            _ => OpenErrorKind::Refused,
        };
        Self::new(path, kind, Some(errno))
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self.kind {
            OpenErrorKind::NotFound
            | OpenErrorKind::TooSmall { .. }
            | OpenErrorKind::NoDisk { .. }
            | OpenErrorKind::SectorSize { .. }
            | OpenErrorKind::Exists => ErrorClass::Caller,
            OpenErrorKind::NotPermitted
            | OpenErrorKind::InUse { .. }
            | OpenErrorKind::NoSpace
            | OpenErrorKind::NoSlot
            | OpenErrorKind::Refused => ErrorClass::Environment,
        }
    }

    fn explanation(&self) -> String {
        match &self.kind {
            OpenErrorKind::NotFound => "no such disk: check the path".to_owned(),
            OpenErrorKind::NotPermitted => {
                "no permission to open it: run as root or as its owner".to_owned()
            }
            OpenErrorKind::InUse { by: Some(holder) } => {
                format!("in use, {holder}: release it first")
            }
            OpenErrorKind::InUse { by: None } => {
                "in use by another process or by the kernel: release it first".to_owned()
            }
            OpenErrorKind::TooSmall { size_bytes } => format!(
                "too small: it has {}, a disk needs {} or more",
                size_text(*size_bytes),
                size_text(DISK_SIZE_MIN_BYTES)
            ),
            OpenErrorKind::NoDisk { found } => {
                format!("this is {found}: a disk is a block device or a plain file")
            }
            OpenErrorKind::SectorSize { sector_size_bytes } => format!(
                "has sectors of {sector_size_bytes} bytes; at most {BLOCK_SIZE_BYTES} are possible"
            ),
            OpenErrorKind::Exists => {
                "a file is there already: choose another path, or use it as it is".to_owned()
            }
            OpenErrorKind::NoSpace => {
                "the file system below has no room for it: choose a smaller size".to_owned()
            }
            OpenErrorKind::NoSlot => format!(
                "cannot be opened: this process has opened {DISK_SLOTS_MAX} disks one after the other, and that is the most; start another one (`spindle upgrade` does)"
            ),
            OpenErrorKind::Refused => format!(
                "the kernel refuses to open it{}",
                self.source
                    .as_ref()
                    .map(|source| format!(" ({source})"))
                    .unwrap_or_default()
            ),
        }
    }
}

/// To own a disk, or to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Own,
    Look,
}

impl OpenDisk {
    /// Opens a disk to own it: read and write, direct where the file system can, and nobody else.
    /// One that somebody has is waited for, a second at most, unless it is known to stay in use.
    ///
    /// # Errors
    /// [`OpenError`] where the disk is not there, not ours to open, in use, or none.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_as(path, Access::Own)
    }

    /// Opens a disk only to look at it, while others may be using it.
    ///
    /// # Errors
    /// [`OpenError`] as for [`OpenDisk::open`], but never that it is in use.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        Self::open_as(path, Access::Look)
    }

    fn open_as(path: &Path, access: Access) -> Result<Self, OpenError> {
        // Looked at before it is opened, since opening a tape or a pipe can do or wait for things.
        let stat = rustix::fs::stat(path).map_err(|errno| OpenError::of_errno(path, errno))?;
        let kind = kind_of_file(path, FileType::from_raw_mode(stat.st_mode))?;
        if access == Access::Own
            && kind == DiskKind::PlainFile
            && let Some(device) = holder::loop_device_over(path)
        {
            let by = Some(format!("the file below {device}"));
            return Err(OpenError::new(path, OpenErrorKind::InUse { by }, None));
        }
        let flags = match (access, kind) {
            (Access::Own, DiskKind::BlockDevice) => OFlags::RDWR | OFlags::EXCL,
            (Access::Own, DiskKind::PlainFile) => OFlags::RDWR,
            (Access::Look, _) => OFlags::RDONLY,
        };
        let holder = || holder::holder_of_device(stat.st_rdev, path);
        let opened = claim(|| open_direct(path, flags), || holder().is_some());
        let (descriptor, direct) = opened.map_err(|errno| match errno {
            Errno::BUSY => {
                let by = holder();
                OpenError::new(path, OpenErrorKind::InUse { by }, Some(errno))
            }
            _ => OpenError::of_errno(path, errno),
        })?;
        if access == Access::Own && kind == DiskKind::PlainFile {
            lock(path, &descriptor)?;
        }
        Self::examine(path, descriptor, direct, access)
    }

    /// What the open descriptor says; the path may have come to mean another file meanwhile.
    fn examine(
        path: &Path,
        descriptor: OwnedFd,
        direct: bool,
        access: Access,
    ) -> Result<Self, OpenError> {
        let of_errno = |errno| OpenError::of_errno(path, errno);
        let stat = rustix::fs::fstat(&descriptor).map_err(of_errno)?;
        let kind = kind_of_file(path, FileType::from_raw_mode(stat.st_mode))?;
        let end_bytes =
            rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::End(0)).map_err(of_errno)?;
        let sector_size_bytes = match kind {
            DiskKind::BlockDevice => rustix::fs::ioctl_blksszget(&descriptor).map_err(of_errno)?,
            DiskKind::PlainFile => 512,
        };
        if u64::from(sector_size_bytes) > BLOCK_SIZE_BYTES {
            let kind = OpenErrorKind::SectorSize { sector_size_bytes };
            return Err(OpenError::new(path, kind, None));
        }
        let size_bytes = end_bytes - end_bytes % BLOCK_SIZE_BYTES;
        if size_bytes < DISK_SIZE_MIN_BYTES {
            let kind = OpenErrorKind::TooSmall {
                size_bytes: end_bytes,
            };
            return Err(OpenError::new(path, kind, None));
        }
        let in_memory = is_memory(&descriptor, kind, stat.st_rdev).map_err(of_errno)?;
        if in_memory && kind == DiskKind::PlainFile {
            run_inline_in_ring(&descriptor).map_err(of_errno)?;
        }
        let device = match kind {
            DiskKind::BlockDevice => stat.st_rdev,
            DiskKind::PlainFile => stat.st_dev,
        };
        let identity = match kind {
            DiskKind::BlockDevice => (stat.st_rdev, 0),
            DiskKind::PlainFile => (stat.st_dev, stat.st_ino),
        };
        Ok(Self {
            is_owned: access == Access::Own,
            identity,
            in_memory,
            transfer_bytes_max: if in_memory {
                usize::MAX
            } else {
                transfer_bytes_max(device)
            },
            memory_alignment_bytes: if in_memory && kind == DiskKind::BlockDevice {
                MEMORY_DEVICE_ALIGNMENT_BYTES
            } else {
                memory_alignment_bytes(&descriptor, direct)
            },
            file: File::from(descriptor),
            path: path.display().to_string(),
            size_bytes: AtomicU64::new(size_bytes),
            kind,
            sector_size_bytes,
            direct,
        })
    }

    /// This disk cannot be used, and why.
    pub(crate) fn refused(&self, kind: OpenErrorKind) -> OpenError {
        OpenError {
            path: self.path.clone(),
            kind,
            source: None,
        }
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The size in bytes: whole blocks of 4 KiB.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Looks again how large the disk is, and gives its size in bytes.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn measure(&self) -> io::Result<u64> {
        let end_bytes = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?;
        let size_bytes = end_bytes - end_bytes % BLOCK_SIZE_BYTES;
        // What lies behind an end that came nearer is answered by the kernel: that it is not there.
        self.size_bytes.fetch_max(size_bytes, Ordering::Relaxed);
        Ok(size_bytes)
    }

    /// The number that the kernel gave the device when it appeared, and gives no other; `None` for a
    /// plain file, and before Linux 5.15.
    #[must_use]
    pub fn appearance(&self) -> Option<u64> {
        match self.kind {
            DiskKind::BlockDevice => appearance::appearance_of(&self.file),
            DiskKind::PlainFile => None,
        }
    }

    /// The logical sector size in bytes; 512 for a plain file.
    #[must_use]
    pub const fn sector_size_bytes(&self) -> u32 {
        self.sector_size_bytes
    }

    /// Block device or plain file.
    #[must_use]
    pub const fn kind(&self) -> DiskKind {
        self.kind
    }

    /// Whether transfers go past the page cache.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }
}

impl AsFd for OpenDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn kind_of_file(path: &Path, file_type: FileType) -> Result<DiskKind, OpenError> {
    let found = match file_type {
        FileType::BlockDevice => return Ok(DiskKind::BlockDevice),
        FileType::RegularFile => return Ok(DiskKind::PlainFile),
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "something else",
    };
    Err(OpenError::new(path, OpenErrorKind::NoDisk { found }, None))
}

/// Direct where the file system can, else through the page cache.
fn open_direct(path: &Path, flags: OFlags) -> Result<(OwnedFd, bool), Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let mode = Mode::empty();
    match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
        // A file system without direct I/O refuses the flag.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((rustix::fs::open(path, flags, mode)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// Asks for a disk as long as [`PATIENCE`] allows while somebody has it, unless it `stays` so.
fn claim<T>(ask: impl Fn() -> Result<T, Errno>, stays: impl Fn() -> bool) -> Result<T, Errno> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE && !stays() => {
                std::thread::sleep(PATIENCE_INTERVAL);
            }
            answer => return answer,
        }
    }
}

fn lock(path: &Path, descriptor: &OwnedFd) -> Result<(), OpenError> {
    let lock = || rustix::fs::flock(descriptor, FlockOperation::NonBlockingLockExclusive);
    match claim(lock, || false) {
        Err(Errno::WOULDBLOCK) => {
            let by = holder::holder_of_lock(descriptor);
            Err(OpenError::new(path, OpenErrorKind::InUse { by }, None))
        }
        outcome => outcome.map_err(|errno| OpenError::of_errno(path, errno)),
    }
}

/// Whether the disk is memory of this machine: its transfers are copies that never wait for a
/// device, unless somebody throttles them.
fn is_memory(descriptor: &OwnedFd, kind: DiskKind, device: u64) -> Result<bool, Errno> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    match kind {
        DiskKind::PlainFile => Ok(rustix::fs::fstatfs(descriptor)?.f_type == TMPFS_MAGIC),
        DiskKind::BlockDevice => {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
            let name = link.ok().and_then(|target| {
                let name = target.file_name()?;
                Some(name.to_string_lossy().into_owned())
            });
            Ok(name.is_some_and(|name| {
                let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
                matches!(driver, "zram" | "ram" | "pmem")
            }))
        }
    }
}

/// The most bytes that the device takes in one piece, whatever memory they come from: what its
/// queue allows, and as many segments of a page each. [`usize::MAX`] where nothing says so.
///
/// io_uring first asks the block layer not to wait. A transfer that would have to be split is
/// then refused and done again by a worker thread of the kernel's; where a control group limits
/// the device, both attempts are charged, and the disk seems half as fast as it is.
fn transfer_bytes_max(device: u64) -> usize {
    const PAGE_BYTES: usize = 4096;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has its queue in the directory of the whole disk.
    let limit = |name: &str| {
        ["queue", "../queue"].iter().find_map(|queue| {
            let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<usize>().ok().filter(|limit| *limit > 0)
        })
    };
    let (Some(queue_kib), Some(segments)) = (limit("max_sectors_kb"), limit("max_segments")) else {
        return usize::MAX;
    };
    let bytes = (queue_kib << 10).min(segments * PAGE_BYTES);
    (bytes - bytes % PAGE_BYTES).max(PAGE_BYTES)
}

/// What memory a device in memory gets, whatever it says that it takes.
///
/// zram copies a whole page to the beginning of the page that a transfer's memory lies in. Given
/// memory from the middle of a page it answers with success, has the wrong bytes there, and has
/// written over what lies before and behind.
const MEMORY_DEVICE_ALIGNMENT_BYTES: usize = 4096;

/// Marks a file of tmpfs as non-blocking.
///
/// tmpfs does not tell the kernel that it never waits, so io_uring would hand each of its
/// requests to a worker thread, which costs ten times the copy itself. The mark makes io_uring
/// run them at once. It is for tmpfs alone: elsewhere a request that would have to wait would
/// come back unserved.
fn run_inline_in_ring(descriptor: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)
}

/// What memory a direct transfer needs: what the kernel says, else a page; none through the
/// page cache.
fn memory_alignment_bytes(descriptor: &OwnedFd, direct: bool) -> usize {
    if !direct {
        return 1;
    }
    rustix::fs::statx(descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .and_then(|stat| usize::try_from(stat.stx_dio_mem_align).ok())
        .filter(|alignment| alignment.is_power_of_two())
        .unwrap_or(4096)
}
