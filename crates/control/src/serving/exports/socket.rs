//! The socket of an export: a name in a file system that others use too.
//!
//! Only its owner can connect from the first moment on. A socket at which nobody listens is what a
//! process left that died, and is replaced; anything else that has the name is left alone. Where that
//! process was the one before this one, whom it let in are let in again. When the export ends the name
//! goes, unless it means something else by then.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::sockets::connect;

/// What group and others may not be allowed in its directory, unless only owners take files away there.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Clients that wait to be taken.
const WAITING_MOST: i32 = 64;

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SocketIdentity {
    device: u64,
    inode: u64,
}

impl SocketIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Whom a socket lets in.
#[derive(Debug, Clone, Copy)]
struct Access {
    user: u32,
    group: u32,
    permissions: u32,
}

/// A socket that this process made.
#[derive(Debug)]
pub(super) struct ExportSocket {
    path: PathBuf,
    identity: SocketIdentity,
}

impl ExportSocket {
    /// Makes it. Where it takes the place of `former` it lets in whom that did.
    ///
    /// # Errors
    /// Where the path is too long or not absolute, something has it, or its directory is not there or
    /// others could put something of theirs in its place there.
    pub(super) fn bind(
        path: &Path,
        former: Option<SocketIdentity>,
    ) -> ControlResult<(Self, UnixListener)> {
        if !path.is_absolute() {
            let told = format!("{} is no absolute path", path.display());
            return Err(ControlError::invalid(told));
        }
        let fail = |error| ControlError::io("listen at", path.display(), &error);
        let address = SocketAddrUnix::new(path).map_err(|_| {
            ControlError::invalid(format!(
                "{} is too long for a socket: at most 107 bytes are possible",
                path.display()
            ))
        })?;
        check_directory(path)?;
        let access = remove_dead(path, &address, former)?;
        let bound = || {
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // What is bound gets them. Nobody can connect before somebody listens, and then only who may.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &address)?;
            if let Some(access) = access {
                let permissions = std::fs::Permissions::from_mode(access.permissions);
                std::os::unix::fs::lchown(path, Some(access.user), Some(access.group))?;
                std::fs::set_permissions(path, permissions)?;
            }
            rustix::net::listen(&socket, WAITING_MOST)?;
            let metadata = std::fs::symlink_metadata(path)?;
            io::Result::Ok((socket, SocketIdentity::of(&metadata)))
        };
        let (socket, identity) = bound().map_err(fail)?;
        let own = Self {
            path: path.to_owned(),
            identity,
        };
        Ok((own, UnixListener::from(socket)))
    }

    /// Where it is.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is.
    #[must_use]
    pub(super) const fn identity(&self) -> SocketIdentity {
        self.identity
    }

    /// Takes the name away, where it still means this socket.
    pub(super) fn remove(&self) {
        let metadata = std::fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|metadata| SocketIdentity::of(&metadata) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes away the name of a socket that a process left which has ended, where it still means that socket.
pub(super) fn remove_left(path: &Path, identity: SocketIdentity) {
    let is_it = std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| SocketIdentity::of(&metadata) == identity);
    if is_it && let Ok(address) = SocketAddrUnix::new(path) {
        // Where somebody listens it stays.
        let _ = remove_dead(path, &address, None);
    }
}

/// Refuses a directory in which another user could take the socket away and put his own in its place:
/// he would be given the permissions that it is to have.
fn check_directory(path: &Path) -> ControlResult<()> {
    let directory = path.parent().unwrap_or(path);
    let metadata = std::fs::metadata(directory)
        .map_err(|error| ControlError::io("listen at", path.display(), &error))?;
    let own = rustix::process::geteuid().as_raw();
    let why = if ![own, 0].contains(&metadata.uid()) {
        format!("belongs to user {}", metadata.uid())
    } else if metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0 {
        let permissions = metadata.mode() & 0o777;
        format!("can be written by others (permissions {permissions:03o})")
    } else {
        return Ok(());
    };
    let told = format!(
        "the directory {} {why}, who could put a socket of their own in the place of this one: choose \
         another",
        directory.display()
    );
    Err(ControlError::new(ControlErrorKind::Denied, told))
}

/// Takes away a socket at which nobody listens; refuses where anything else is there. Whom it let in,
/// where it is `former`.
fn remove_dead(
    path: &Path,
    address: &SocketAddrUnix,
    former: Option<SocketIdentity>,
) -> ControlResult<Option<Access>> {
    let fail = |error| ControlError::io("look at", path.display(), &error);
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let exists = |what: &str| {
        let told = format!("{} is {what}: choose another path", path.display());
        ControlError::new(ControlErrorKind::Exists, told)
    };
    if !metadata.file_type().is_socket() {
        return Err(exists("there already, and no socket"));
    }
    // Who listens and takes nobody is not waited for.
    match connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)?;
            let is_former = former == Some(SocketIdentity::of(&metadata));
            Ok(is_former.then(|| Access {
                user: metadata.uid(),
                group: metadata.gid(),
                permissions: metadata.mode() & 0o777,
            }))
        }
        _ => Err(exists("a socket at which somebody listens")),
    }
}
