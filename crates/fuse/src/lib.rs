//! The mount: any program uses a group's files through the kernel's FUSE protocol.
//!
//! [`Mount::start`] puts a [`spindle_fs::FileSystem`] into the file system tree.
//! `session` runs the workers, `transport` carries requests, `bridge` turns each into calls of
//! the file system, `errno` turns its errors into numbers; `abi` describes the kernel's
//! structures. Why the transport is our own: `docs/decisions/`.
//!
//! A crash loses nothing that an `fsync` answered: no state lives here but open handles.

mod abi;
mod bridge;
mod counters;
mod device_transport;
mod errno;
mod gate;
mod mount_point;
mod mount_table;
mod negotiation;
mod notices;
mod session;
mod stale;
mod sys;
mod transport;

pub use abi::Opcode;
pub use counters::{Counters, RequestCount};
pub use errno::errno_of;
pub use mount_point::{MountError, check_directory};
pub use mount_table::{KernelMount, all_mounts, mounted_at};
pub use negotiation::Negotiated;
pub use notices::{NoticesProgram, send_notices};
pub use session::{Mount, MountOptions, has_ended};
