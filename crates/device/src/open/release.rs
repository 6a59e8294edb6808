//! Letting go of a disk while its slot stays: a disk that was dropped can be pulled out or given
//! to somebody else before the process ends.
#![allow(
    unsafe_code,
    reason = "a descriptor is replaced in place, beside whoever still knows its number"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::OpenDisk;

impl OpenDisk {
    /// Lets go of the disk and of its lock. Requests that are under way end; later ones fail.
    ///
    /// # Errors
    /// Where descriptors have run out; the disk is held on then.
    pub fn release(&self) -> io::Result<()> {
        // A descriptor that leads nowhere: reads, writes and flushes of it are refused.
        let nowhere = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the number is that of `self.file`, which stays open under it for as long as
        // `self` lives; the second owner made here is never dropped, so it is closed once.
        let mut held = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.file.as_raw_fd()) });
        // One step for the kernel: no moment leaves the number free for another file.
        rustix::io::dup3(&nowhere, &mut held, rustix::io::DupFlags::CLOEXEC)?;
        Ok(())
    }
}
