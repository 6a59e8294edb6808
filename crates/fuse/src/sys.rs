//! The one call that has no safe interface: another descriptor for the same mount.
#![allow(unsafe_code, reason = "the ioctl of /dev/fuse has no safe interface")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Opens `/dev/fuse`.
///
/// # Errors
/// What the kernel answered.
pub fn open_device() -> Result<OwnedFd, Errno> {
    open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// A descriptor with a queue of its own for answers on the mount of `descriptor`, so that workers
/// do not share a lock in the kernel.
///
/// # Errors
/// What the kernel answered.
pub fn clone_device(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let clone = open_device()?;
    let number = u32::try_from(descriptor.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel reads one u32, a descriptor's number, for the time of the call; the
    // memory belongs to the setter, which lives until the call returns.
    unsafe { ioctl(clone.as_fd(), Setter::<CLONE, u32>::new(number))? };
    Ok(clone)
}
