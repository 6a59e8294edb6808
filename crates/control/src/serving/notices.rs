//! The process that tells the kernel what to drop of a mount's files: this program once more.

use std::ffi::OsString;
use std::os::fd::AsFd;

use spindle_fuse::NoticesProgram;

use crate::api::error::{ControlError, ControlResult};

/// The command that does it, and what nobody types by mistake.
const ARGUMENTS: [&str; 2] = ["notices", "--of-mount"];

/// This program, as a process that serves a mount starts it.
pub(super) fn program() -> NoticesProgram {
    let name = std::env::args_os().next();
    NoticesProgram {
        // What was installed in its place meanwhile does not matter.
        path: "/proc/self/exe".into(),
        name: name.unwrap_or_else(|| OsString::from("spindle")),
        arguments: ARGUMENTS.map(OsString::from).to_vec(),
    }
}

/// Sends the notices that the process at the other end of standard input asks for, until that is
/// gone.
///
/// # Errors
/// Where standard input is no such connection.
pub fn send_notices() -> ControlResult<()> {
    let failed = |error| ControlError::io("send", "the notices of a mount", &error);
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed)?;
    spindle_fuse::send_notices(socket).map_err(failed)
}
