//! A direct client of a group: a process that reads its files from the disks themselves.
//!
//! It is given, by the owner of the group, descriptors of the disks, the words by which both agree, and
//! the map for reading alone; and it has opened the file on the mount as any program does. What the map
//! says plainly it asks the disks for; all else it asks the mount, which is right always.
//!
//! # Invariants
//! - No disk is asked but behind an announcement, and at the place that the map said behind it.
//! - Nothing is announced while the mount is asked: the owner may wait for this client before it answers.
//! - A disk that fails is no error of the client's: another copy is asked, then the mount.
//!
//! # Not here
//! Writes, read-ahead, several requests at a time, the message by which the descriptors come, and which
//! process is which client.

mod disks;
mod file;

pub use disks::{NotDirect, ServingDisk, ServingDisks};
pub use file::{Answer, ClientFile, Detour};

use std::sync::Arc;

use spindle_device::ReadOnlyMemory;
use spindle_lease::map::SeenMap;
use spindle_lease::{Client as Number, Leases, Operation};

/// What the threads of a client share.
#[derive(Debug)]
pub struct Client {
    leases: Leases,
    number: Number,
    map: SeenMap,
}

impl Client {
    /// The client that the owner let in under this number.
    ///
    /// # Errors
    /// What the map's memory is instead, for a message.
    pub fn new(leases: Leases, number: Number, map: ReadOnlyMemory) -> Result<Self, String> {
        let map = SeenMap::new(map)?;
        Ok(Self {
            leases,
            number,
            map,
        })
    }

    /// A thread that does one operation at a time, in place `index` of the client's. Each thread has
    /// another place.
    ///
    /// # Panics
    /// Where `index` is not below [`spindle_lease::OPERATIONS_COUNT`].
    #[must_use]
    pub fn worker(&self, index: usize, disks: Arc<ServingDisks>) -> Worker<'_> {
        Worker {
            map: &self.map,
            operation: self.leases.operation(self.number, index),
            disks,
        }
    }
}

/// One thread of a client, with what it was told of the disks.
#[derive(Debug)]
pub struct Worker<'a> {
    pub(crate) map: &'a SeenMap,
    pub(crate) operation: Operation<'a>,
    pub(crate) disks: Arc<ServingDisks>,
}

impl Worker<'_> {
    /// It was told of the disks anew.
    pub fn learn(&mut self, disks: Arc<ServingDisks>) {
        self.disks = disks;
    }
}
