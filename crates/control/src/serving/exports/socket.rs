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

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::sockets::connect;

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
    /// Where the path is too long or not absolute, something has it, or its directory is not there.
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
        let access = remove_dead(path, &address, former)?;
        let bound = || {
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &address)?;
            // Nobody can connect before somebody listens, and then only who may.
            let permissions = access.map_or(0o600, |access| access.permissions);
            if let Some(access) = access {
                std::os::unix::fs::lchown(path, Some(access.user), Some(access.group))?;
            }
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
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
