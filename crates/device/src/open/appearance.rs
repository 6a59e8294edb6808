//! Which appearance of a device this is.
#![allow(unsafe_code, reason = "the ioctl has no safe interface")]

use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// Of `linux/fs.h`.
const BLKGETDISKSEQ: Opcode = opcode::read::<u64>(0x12, 128);

/// The number that the kernel gave the block device when it appeared, and gives no other; none
/// before Linux 5.15.
pub(super) fn appearance_of(device: impl AsFd) -> Option<u64> {
    // SAFETY: the kernel writes one u64, the getter's own, for the time of the call.
    unsafe { ioctl(device, Getter::<BLKGETDISKSEQ, u64>::new()) }.ok()
}
