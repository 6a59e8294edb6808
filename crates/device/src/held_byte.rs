//! A byte of a file that an open file description holds, so that others see whether it is still open.
//!
//! The lock is of the description, not of a process: whoever has a copy of the descriptor keeps it (a
//! child of a fork, a program after an `exec`, the kernel for a request that is under way), and the
//! kernel lets go of it with the last of them. No process number is asked, so none can be mistaken for
//! another's. It is another kind than the `flock` of an opener, and the two do not meet. The byte
//! need not exist: nothing is read or written.

use std::io;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, flock};

fn whole_lock_of(byte: u16) -> io::Result<flock> {
    let kind = |value: i32| i16::try_from(value).map_err(io::Error::other);
    Ok(flock {
        l_type: kind(F_WRLCK)?,
        l_whence: kind(SEEK_SET)?,
        l_start: byte.into(),
        l_len: 1,
        // As the kernel asks of such a lock.
        l_pid: 0,
    })
}

/// Holds `byte` by the open file description of `file`, which is open for writing, until the last
/// descriptor and the last request of it are gone. False where another description holds it.
///
/// # Errors
/// What the kernel answered.
pub fn hold_byte(file: impl AsFd, byte: u16) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_lock_of(byte)?)) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a description other than that of `file` holds `byte`.
///
/// # Errors
/// What the kernel answered.
pub fn is_byte_held(file: impl AsFd, byte: u16) -> io::Result<bool> {
    let mut found = whole_lock_of(byte)?;
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != F_UNLCK)
}
