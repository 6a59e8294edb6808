//! A direct client of a group: a process that reads its files from the disks themselves.
//!
//! It is given, by the owner of the group, descriptors of the disks and the map for reading alone; and it
//! has opened the file on the mount as any program does. What the map says plainly it asks the disks for;
//! all else it asks the mount, which is right always.
//!
//! # Invariants
//! - What a disk answered counts only where the map, looked at behind the answer, still says what it said
//!   before. So the owner waits for no reader, and no reader is given what lies elsewhere by now.
//! - A disk that fails is no error of the client's: another copy is asked, then the mount.
//!
//! # Not here
//! Writes, which announce themselves and have locks (`spindle_lease`), read-ahead, several requests at a
//! time, a deadline for a disk that hangs, and the message by which the descriptors come.

mod disks;
mod file;

pub use disks::{NotDirect, ServingDisk, ServingDisks};
pub use file::{Answer, ClientFile, Detour};
