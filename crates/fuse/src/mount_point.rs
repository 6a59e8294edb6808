//! Making and removing the mount itself.
//!
//! As root by mount(2); otherwise by `fusermount3`, which sends the descriptor over a socket.
//! A directory that cannot be mounted on is refused with a line that names it before anything
//! is done. A daemon that dies leaves its mount behind; such a one is recognised and named.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::geteuid;
use spindle_base::ErrorClass;
use spindle_group::GroupError;

use crate::MountOptions;
use crate::sys;

/// The largest request's data that is asked of the kernel.
pub(crate) const MAX_DATA_BYTES: usize = 1 << 20;

/// The type of our file systems in the kernel's list of mounts.
pub(crate) const MOUNT_KIND: &str = "fuse.spindle";

/// Why there is no mount, or why it stays.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Nothing is there.
    #[error("mount point {0} does not exist: make the directory first")]
    Missing(PathBuf),
    /// Something else is there.
    #[error("mount point {0} is not a directory: name an empty directory")]
    NotADirectory(PathBuf),
    /// Files would be hidden.
    #[error("mount point {0} is not empty: its files would be hidden; name an empty directory")]
    NotEmpty(PathBuf),
    /// A living file system is mounted there.
    #[error("{0} is a mount point already: unmount it first or name another directory")]
    AlreadyMounted(PathBuf),
    /// The daemon behind it died.
    #[error("{0} is the mount of a daemon that is gone: remove it with `umount -l {0}`")]
    DeadMount(PathBuf),
    /// The kernel module is absent.
    #[error("/dev/fuse is not there: load the module `fuse` (modprobe fuse)")]
    NoDevice,
    /// Not root, and the helper is absent.
    #[error("mounting needs root or fusermount3 (package fuse3): {0}")]
    NoHelper(io::Error),
    /// The helper said no.
    #[error("fusermount3 refused {directory}: {message}")]
    HelperRefused {
        /// Where.
        directory: PathBuf,
        /// What it printed.
        message: String,
    },
    /// The kernel is too old.
    #[error("the kernel speaks FUSE {major}.{minor}, at least 7.37 (Linux 6.1) is needed")]
    KernelTooOld {
        /// What it offers.
        major: u32,
        /// What it offers.
        minor: u32,
    },
    /// Programs have files open there.
    #[error("{0} is in use: close the files and leave the directory, or detach it")]
    Busy(PathBuf),
    /// Another file system is mounted over it.
    #[error("another file system is mounted over {0}: unmount that one first")]
    Covered(PathBuf),
    /// It is gone from its place and lives on somewhere else.
    #[error(
        "{directory} is unmounted here, but the file system lives on: {holders}; the group stays open until it is unmounted there too"
    )]
    Held {
        /// Where it was mounted.
        directory: PathBuf,
        /// Who holds it, in words.
        holders: String,
    },
    /// The group cannot be written.
    #[error(
        "{directory} cannot be mounted on, because the group refuses to be written: {source:#}"
    )]
    Group {
        /// Where.
        directory: PathBuf,
        /// What the group said.
        source: Box<GroupError>,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl MountError {
    /// Whose fault it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Group { source, .. } => source.kind.class(),
            Self::Missing(_)
            | Self::NotADirectory(_)
            | Self::NotEmpty(_)
            | Self::AlreadyMounted(_)
            | Self::DeadMount(_)
            | Self::Covered(_)
            | Self::Busy(_) => ErrorClass::Caller,
            Self::NoDevice
            | Self::NoHelper(_)
            | Self::HelperRefused { .. }
            | Self::KernelTooOld { .. }
            | Self::Held { .. }
            | Self::System { .. } => ErrorClass::Environment,
        }
    }

    pub(crate) fn system(what: &'static str, path: &Path, error: Errno) -> Self {
        Self::System {
            what,
            path: path.to_path_buf(),
            source: error.into(),
        }
    }
}

/// What the kernel keeps of a mount to read ahead and to write back.
pub(crate) struct BackingDevice(PathBuf);

impl BackingDevice {
    /// That of the mount on `directory`.
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        // Without asking the mount itself: nobody may be answering.
        let status = statx(
            CWD,
            directory,
            AtFlags::STATX_DONT_SYNC,
            StatxFlags::empty(),
        )?;
        Ok(Self(PathBuf::from(format!(
            "/sys/class/bdi/{}:{}",
            status.stx_dev_major, status.stx_dev_minor
        ))))
    }

    fn set(&self, name: &str, value: u64) -> io::Result<()> {
        // Not to be created: what an older kernel lacks would be "permission denied".
        let mut attribute = File::options().write(true).open(self.0.join(name))?;
        attribute.write_all(value.to_string().as_bytes())
    }

    /// The kernel would begin to write when a tenth of all memory is dirty: until then the disks
    /// of a writer idle, and then its sync waits for all of it. Held to a share of its own, the
    /// mount is written to early and its writers go at the disks' pace. Before Linux 6.2 a share
    /// could only be told in per cent, of which FUSE gets one; more serves better.
    pub(crate) fn limit_dirty_bytes(&self, bytes: u64) -> io::Result<()> {
        let limited = self
            .set("max_bytes", bytes)
            .and_then(|()| self.set("strict_limit", 1));
        match limited {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.set("max_ratio", 20),
            answer => answer,
        }
    }
}

/// A mount in the file system tree; the descriptor carries its requests.
#[derive(Debug)]
pub(crate) struct MountPoint {
    pub(crate) directory: PathBuf,
    pub(crate) descriptor: OwnedFd,
}

impl MountPoint {
    /// Mounts on `directory`.
    pub(crate) fn make(directory: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let directory = check_directory(directory)?;
        let descriptor = if geteuid().is_root() {
            mount_by_kernel(&directory, options)?
        } else {
            mount_by_helper(&directory, options)?
        };
        Ok(Self {
            directory,
            descriptor,
        })
    }

    /// Gives the kernel's writer and reader of this mount enough to do. Only root may; the mount
    /// works without, more slowly.
    pub(crate) fn tune(&self, options: &MountOptions) -> io::Result<()> {
        let device = BackingDevice::of(&self.directory)?;
        device.set("read_ahead_kb", u64::from(options.read_ahead_kib))?;
        device.limit_dirty_bytes(options.dirty_bytes_max)
    }

    /// Unmounts; `detach` does so although programs use it: it vanishes from the tree at once
    /// and ends when they do.
    pub(crate) fn remove(directory: &Path, detach: bool) -> Result<(), MountError> {
        if geteuid().is_root() {
            let flags = if detach {
                UnmountFlags::DETACH
            } else {
                UnmountFlags::empty()
            };
            return match unmount(directory, flags | UnmountFlags::NOFOLLOW) {
                Ok(()) => Ok(()),
                Err(Errno::BUSY) => Err(MountError::Busy(directory.to_path_buf())),
                Err(error) => Err(MountError::system("cannot unmount", directory, error)),
            };
        }
        let mut command = Command::new("fusermount3");
        // Its exit code is 1 whatever failed, so that only the kernel's word tells why.
        command.env("LC_ALL", "C").arg("-u");
        if detach {
            command.arg("-z");
        }
        let output = command
            .arg("--")
            .arg(directory)
            .stdin(Stdio::null())
            .output()
            .map_err(MountError::NoHelper)?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if tells_busy(&message) {
            return Err(MountError::Busy(directory.to_path_buf()));
        }
        Err(MountError::HelperRefused {
            directory: directory.to_path_buf(),
            message,
        })
    }
}

/// What the program that unmounts prints of EBUSY, at the end of a line: the words of glibc, of musl,
/// and of `umount`, which it calls where there is a table of mounts to keep.
const BUSY_WORDS: [&str; 3] = [
    ": Device or resource busy",
    ": Resource busy",
    ": target is busy",
];

/// Whether the program that unmounts says that the mount is in use. The directory may be called
/// `busy` as well.
fn tells_busy(message: &str) -> bool {
    let mut lines = message.lines().map(|line| line.trim_end_matches('.'));
    lines.any(|line| BUSY_WORDS.iter().any(|words| line.ends_with(words)))
}

/// The directory's real path, if a mount may cover it. Only looked at: whoever has more to do before
/// he mounts can be refused first.
///
/// # Errors
/// Where it is not there, no directory, not empty, or a mount point.
pub fn check_directory(directory: &Path) -> Result<PathBuf, MountError> {
    let path = directory.to_path_buf();
    let status = match rustix::fs::stat(directory) {
        Ok(status) => status,
        Err(Errno::NOENT) => return Err(MountError::Missing(path)),
        Err(Errno::NOTCONN) => return Err(MountError::DeadMount(path)),
        Err(Errno::NOTDIR) => return Err(MountError::NotADirectory(path)),
        Err(error) => return Err(MountError::system("cannot look at", directory, error)),
    };
    if !rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir() {
        return Err(MountError::NotADirectory(path));
    }
    let failed = |source| MountError::System {
        what: "cannot look at",
        path: path.clone(),
        source,
    };
    let real = directory.canonicalize().map_err(failed)?;
    let root = statx(CWD, &real, AtFlags::empty(), StatxFlags::empty())
        .map_err(|error| MountError::system("cannot look at", directory, error))?;
    if root
        .stx_attributes
        .contains(rustix::fs::StatxAttributes::MOUNT_ROOT)
    {
        return Err(MountError::AlreadyMounted(path));
    }
    if real.read_dir().map_err(failed)?.next().is_some() {
        return Err(MountError::NotEmpty(path));
    }
    Ok(real)
}

fn mount_by_kernel(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let descriptor = sys::open_device().map_err(|error| match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => MountError::NoDevice,
        error => MountError::system("cannot open", Path::new("/dev/fuse"), error),
    })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,max_read={MAX_DATA_BYTES}",
        descriptor.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("numbers and names hold no NUL");
    let flags = if options.read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    mount(
        options.source.as_str(),
        directory,
        MOUNT_KIND,
        flags,
        data.as_c_str(),
    )
    .map_err(|error| match error {
        Errno::NODEV => MountError::NoDevice,
        error => MountError::system("cannot mount on", directory, error),
    })?;
    Ok(descriptor)
}

/// `fusermount3` mounts with its privileges and sends the descriptor over the socket that it
/// finds as its standard input.
fn mount_by_helper(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |source| MountError::System {
        what: "cannot mount on",
        path: directory.to_path_buf(),
        source,
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut list = format!(
        "fsname={},subtype=spindle,default_permissions,max_read={MAX_DATA_BYTES}",
        options.source
    );
    if options.allow_other {
        list.push_str(",allow_other");
    }
    if options.read_only {
        list.push_str(",ro");
    }
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(directory)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .output()
        .map_err(MountError::NoHelper)?;
    if !output.status.success() {
        return Err(MountError::HelperRefused {
            directory: directory.to_path_buf(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    receive_descriptor(&ours)
        .map_err(|error| failed(error.into()))?
        .ok_or_else(|| MountError::HelperRefused {
            directory: directory.to_path_buf(),
            message: "it sent no descriptor".to_owned(),
        })
}

fn receive_descriptor(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::tells_busy;

    #[test]
    fn a_refusal_is_one_of_a_busy_mount_by_what_it_ends_with_and_not_by_the_directory() {
        for busy in [
            "fusermount3: failed to unmount /mnt/x: Device or resource busy",
            "fusermount3: failed to unmount /mnt/x: Resource busy",
            "umount: /mnt/x: target is busy.",
            "umount: /mnt/x: target is busy\n        (lsof tells who uses it.)",
        ] {
            assert!(tells_busy(busy), "{busy}");
        }
        for other in [
            "fusermount3: entry for /mnt/busy not found in /etc/mtab",
            "fusermount3: failed to unmount /mnt/busy: Operation not permitted",
            "",
        ] {
            assert!(!tells_busy(other), "{other}");
        }
    }
}
