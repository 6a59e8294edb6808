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
//! Writes, read-ahead, several requests at a time, a deadline for a disk that hangs, the message by which
//! the descriptors come, and which process is which client: a fork has its parent's number and places,
//! and must not go on as the same client.

mod disks;
mod file;

pub use disks::{NotDirect, ServingDisk, ServingDisks};
pub use file::{Answer, ClientFile, Detour};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_device::ReadOnlyMemory;
use spindle_lease::map::SeenMap;
use spindle_lease::{Client as Number, Leases, OPERATIONS_COUNT, Operation};

/// What the threads of a client share.
#[derive(Debug)]
pub struct Client {
    leases: Leases,
    number: Number,
    map: SeenMap,
    /// A bit for each place of the client's that a worker has.
    taken: AtomicU64,
}

// Two workers in one place would end each other's announcements.
const _: () = assert!(
    OPERATIONS_COUNT == u64::BITS as usize,
    "a bit for each place"
);

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
            taken: AtomicU64::new(0),
        })
    }

    /// For a thread that does one operation at a time, in a place of the client's that nobody else has
    /// until the worker is dropped; `None` where all are taken.
    #[must_use]
    pub fn worker(&self, disks: Arc<ServingDisks>) -> Option<Worker<'_>> {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, free);
        let place = before.ok()?.trailing_ones();
        Some(Worker {
            map: &self.map,
            operation: self.leases.operation(self.number, place as usize),
            disks,
            place: TakenPlace {
                taken: &self.taken,
                place,
            },
        })
    }
}

/// One thread of a client, with what it was told of the disks.
#[derive(Debug)]
pub struct Worker<'a> {
    pub(crate) map: &'a SeenMap,
    pub(crate) operation: Operation<'a>,
    pub(crate) disks: Arc<ServingDisks>,
    #[expect(dead_code, reason = "its drop gives the place back")]
    place: TakenPlace<'a>,
}

/// A place of the client's, until it is dropped.
#[derive(Debug)]
struct TakenPlace<'a> {
    taken: &'a AtomicU64,
    place: u32,
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        self.taken.fetch_and(!(1 << self.place), Ordering::AcqRel);
    }
}

impl Worker<'_> {
    /// It was told of the disks anew.
    pub fn learn(&mut self, disks: Arc<ServingDisks>) {
        self.disks = disks;
    }
}
