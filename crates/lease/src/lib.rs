//! Who touches which blocks of a file, in memory that several processes share.
//!
//! A client of a group does its own I/O by the extent map; the process that serves the group, its
//! owner, moves extents, cuts files and takes disks offline beside it. They agree here, without a
//! message:
//!
//! - A client **announces** the blocks that it is about to read or write, looks whether they are
//!   revoked, does its I/O, and ends the announcement ([`Operation`]).
//! - The owner **revokes** blocks and looks who has announced them ([`Revocation`]). Who announces
//!   them from then on is refused and goes through the mount. What nobody has announced any more is
//!   the owner's alone until it drops the revocation.
//! - Writers **lock** their blocks ([`locks`]), the mount's too: two that write the same block do
//!   so one after the other, so that the copies of it cannot differ by order.
//!
//! # Who dies or stops
//! A kill leaves each word as it was stored last. What a dead client had announced to write may
//! be on one copy and not on the other: [`Leases::left_by`] says it. The owner revokes those blocks,
//! waits for who else writes there (the dead one may have had no lock yet, or no more), compares
//! them, and lets go of all that the client had ([`Leases::let_go`]). A client that is stopped keeps its
//! announcement; nothing is moved under it. The owner that has to write where a stopped client has
//! a lock takes that away ([`Patience::Overtake`]): the announcement does not end then but stays as
//! torn, until the owner has compared the blocks.
//!
//! Where the blocks lie a client finds in a memory of its own ([`map`]), which it cannot write.
//!
//! # Not here
//! Which process is which client, waiting, the owner's own extent map, and the judgement what is to be
//! compared: of those the layers above know. Whether a client lives the disks say ([`presence`]).
//! A client can write anything into this memory, as it can into the disks; what it says is checked
//! so far that the owner neither panics nor waits for ever.

mod clients;
mod layout;
pub mod locks;
pub mod map;
#[cfg(feature = "loom")]
pub mod models;
mod operation;
pub mod presence;
mod revocation;

pub use clients::{Client, UnderWay};
pub use layout::{Blocks, CLIENTS_COUNT, ClientNumber, Mode, OPERATIONS_COUNT};
pub use operation::{Announced, Operation, Patience, Refused};
pub use revocation::Revocation;

use spindle_device::words::{SharedMemory, check_head};

/// The words of one group's leases.
#[derive(Debug)]
pub struct Leases {
    memory: SharedMemory,
}

const MAGIC: u64 = u64::from_le_bytes(*b"spnlease");

impl Leases {
    /// Of the words' order. Owner and clients must agree on it.
    pub const VERSION: u64 = 1;
    /// How much memory they need.
    pub const LENGTH_BYTES: u64 = layout::WORDS_COUNT as u64 * 8;

    /// The leases in this memory, which is new or another process's.
    ///
    /// # Errors
    /// What it is instead, for a message.
    pub fn new(memory: SharedMemory) -> Result<Self, String> {
        let words = memory.words();
        if words.len() < layout::WORDS_COUNT {
            return Err(format!(
                "the memory of leases has {} words, and {} are needed",
                words.len(),
                layout::WORDS_COUNT
            ));
        }
        check_head(words, MAGIC, Self::VERSION, "leases")?;
        Ok(Self { memory })
    }

    /// New ones.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn create() -> std::io::Result<Self> {
        let memory = SharedMemory::create("spindle-leases", Self::LENGTH_BYTES)?;
        Self::new(memory).map_err(std::io::Error::other)
    }

    /// To be given to other processes.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
