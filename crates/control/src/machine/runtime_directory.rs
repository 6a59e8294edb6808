//! The directory of sockets and logs, and who is believed there.
//!
//! Whoever can write there decides which process a command talks to, and where a log leads. So it
//! is a real directory of the caller's own (or root's), writable by nobody else; and at the other
//! end of a socket, too, sits the caller or root. Root may look after another user's groups where
//! it names that user's directory itself: then that user is believed as well.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::trust::Trust;
use crate::machine::user::own_user;

/// What group and others may not be allowed.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Whose words are believed in this directory; that of a directory that is not there yet will be
/// the caller's own.
///
/// # Errors
/// Where it is another user's, is a symbolic link, or others may write there.
pub(super) fn trust(directory: &Path) -> ControlResult<Trust> {
    let own = Trust::own();
    let metadata = match std::fs::symlink_metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(own),
        Err(error) => return Err(ControlError::io("look at", directory.display(), &error)),
    };
    let refuse = |what: String| {
        Err(ControlError::new(
            ControlErrorKind::Denied,
            format!(
                "the runtime directory {} {what}: name another one in SPINDLE_RUNTIME_DIR",
                directory.display()
            ),
        ))
    };
    if !metadata.is_dir() {
        return refuse("is no directory of its own (a link, perhaps)".to_owned());
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return refuse(format!(
            "can be written by others (permissions {:03o})",
            metadata.mode() & 0o777
        ));
    }
    let owner = metadata.uid();
    let is_root = own_user() == 0;
    if owner != own_user() && owner != 0 && !is_root {
        return refuse(format!("belongs to user {owner}"));
    }
    Ok(if is_root { own.and(owner) } else { own })
}

/// Makes the directory where it is not there; one that is there must be the caller's own.
///
/// # Errors
/// Where it cannot be made, or as for [`trust`].
pub(crate) fn make(directory: &Path) -> ControlResult<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| {
            ControlError::io("make the runtime directory", directory.display(), &error)
        })?;
    trust(directory)?;
    let owner = std::fs::symlink_metadata(directory)
        .map_err(|error| ControlError::io("look at", directory.display(), &error))?
        .uid();
    if owner == own_user() {
        return Ok(());
    }
    Err(ControlError::new(
        ControlErrorKind::Denied,
        format!(
            "the runtime directory {} belongs to user {owner}: groups are served from a directory of one's own, named in SPINDLE_RUNTIME_DIR",
            directory.display()
        ),
    ))
}

/// The file of a group with that ending. Names of groups are unique whatever their case, and a
/// command may have written it otherwise than the group itself: all of them mean the same file.
#[must_use]
pub(crate) fn file_of(directory: &Path, group: &str, ending: &str) -> PathBuf {
    directory.join(format!("{}.{ending}", group.to_ascii_lowercase()))
}

/// Opens the log of a group to be written on. A link in its place is not followed.
///
/// # Errors
/// Where it cannot be opened, or something else is in its place.
pub(crate) fn open_log(path: &Path) -> ControlResult<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .map_err(|error| ControlError::io("open the log", path.display(), &error))?;
    let metadata = log
        .metadata()
        .map_err(|error| ControlError::io("look at", path.display(), &error))?;
    if metadata.is_file() && metadata.nlink() == 1 {
        return Ok(log);
    }
    Err(ControlError::new(
        ControlErrorKind::Exists,
        format!("{} is no log: remove it", path.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::{open_log, trust};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_write_or_that_is_a_link_is_not_believed() {
        let top = std::env::temp_dir().join(format!("spindle-runtime-{}", std::process::id()));
        let real = top.join("real");
        std::fs::create_dir_all(&real).unwrap();
        let mode = |mode| std::fs::set_permissions(&real, PermissionsExt::from_mode(mode));
        mode(0o755).unwrap();
        trust(&real).unwrap();
        trust(&top.join("absent")).unwrap();
        for open in [0o775, 0o757, 0o1777] {
            mode(open).unwrap();
            let refused = trust(&real).unwrap_err();
            assert!(refused.message().contains("by others"), "{refused}");
        }
        mode(0o700).unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        let refused = trust(&top.join("link")).unwrap_err();
        assert!(refused.message().contains("link"), "{refused}");
        std::fs::write(top.join("precious"), b"precious").unwrap();
        std::os::unix::fs::symlink("precious", top.join("data.log")).unwrap();
        open_log(&top.join("data.log")).unwrap_err();
        std::fs::hard_link(top.join("precious"), top.join("hard.log")).unwrap();
        open_log(&top.join("hard.log")).unwrap_err();
        std::fs::remove_dir_all(top).unwrap();
    }
}
