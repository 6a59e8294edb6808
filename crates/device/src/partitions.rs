//! What the kernel is told of the partitions of a device.
#![allow(unsafe_code, reason = "the ioctls have no safe interface")]

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{NoArg, Opcode, Setter, ioctl, opcode};

/// Of `linux/fs.h`.
const BLKRRPART: Opcode = opcode::none(0x12, 95);
/// Of `linux/blkpg.h`.
const BLKPG: Opcode = opcode::none(0x12, 105);
/// Of `linux/blkpg.h`.
const ADD_PARTITION: i32 = 1;

/// `struct blkpg_partition`.
#[repr(C)]
struct Partition {
    start_bytes: i64,
    length_bytes: i64,
    number: i32,
    /// Nobody reads these.
    names: [[u8; 64]; 2],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Request {
    operation: i32,
    flags: i32,
    length: i32,
    partition: *mut c_void,
}

/// The kernel forgets the partitions that it knows of the device and reads its table anew. It may know
/// none of them after that, where it was built without that kind of table.
///
/// # Errors
/// Of the kernel's; [`Errno::BUSY`] where one of them is in use.
pub fn read_partitions_anew(device: impl AsFd) -> Result<()> {
    // SAFETY: nothing is passed.
    unsafe { ioctl(device, NoArg::<BLKRRPART>::new()) }
}

/// The kernel knows this partition of the device from here on.
///
/// # Errors
/// Of the kernel's; [`Errno::BUSY`] where there is one, or it lies over another.
pub fn add_partition(
    device: impl AsFd,
    number: u32,
    start_bytes: u64,
    length_bytes: u64,
) -> Result<()> {
    let fits = |_| Errno::INVAL;
    let mut partition = Partition {
        start_bytes: start_bytes.try_into().map_err(fits)?,
        length_bytes: length_bytes.try_into().map_err(fits)?,
        number: number.try_into().map_err(fits)?,
        names: [[0; 64]; 2],
    };
    let request = Request {
        operation: ADD_PARTITION,
        flags: 0,
        length: size_of::<Partition>().try_into().map_err(fits)?,
        partition: (&raw mut partition).cast(),
    };
    // SAFETY: the kernel reads the request and the partition that it points to, both of which live
    // until it comes back.
    unsafe { ioctl(device, Setter::<BLKPG, Request>::new(request)) }
}
