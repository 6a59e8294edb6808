//! Where the extents of files lie, in memory that the owner of a group writes and its direct clients
//! only read.
//!
//! A file's extents are known by their numbers, as in the owner's own map; which number a block
//! has is arithmetic, and the client does it. Extents stand in rows of as many as a row of
//! the catalog has; a row has its place by a hash of the file and of its own number, and one that
//! finds no place is not in the map. What is not in the map, or is anything but plain, goes through the
//! mount: that is right always, and so the map may forget whatever it likes.
//!
//! # Invariants
//! - An entry says where *good* copies lie, and of which blocks: those from the extent's start that hold
//!   data and lie wholly inside the file. A copy that is stale or away is not in it.
//! - Whatever the owner is killed between, each entry is as before, as after, or says nothing.
//! - What a client finds lies on a disk that it knows, inside it, whatever the memory holds.
//!
//! # The order in which it is right
//! **Who reads** announces nothing. It looks ([`SeenMap::places_to_read`]), asks a disk, and looks again
//! ([`SeenMap::stands`]): the owner changes what the map says before it changes what lies at the place, so
//! that what was read counts where the map still says the same. An entry that was closed and says the same
//! again is another one.
//!
//! **Who writes** announces its operation, looks at what is revoked, and then looks here:
//! [`SeenMap::places_to_write`] takes the announcement. The owner revokes, waits until nothing is under way
//! there, changes the entry, and lifts the revocation. So whoever is not refused sees the entry as it is,
//! for as long as the operation lasts. Without a revocation the owner may only say *more* than before
//! (blocks that hold data now, a hole that was filled, leave to write; not one more copy of what may
//! be written already, which a write under way would miss), or, holding the lock of the blocks, that
//! a write of the mount waits in the memory.
//!
//! # Not here
//! Which file has which striping, the owner's own map, and what a disk's outage means.

mod entry;
mod layout;
#[cfg(feature = "loom")]
pub mod models;
mod seen;
mod shared;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;

pub use entry::{Allowed, Entry, EntryError};
pub use layout::FileKey;
pub use seen::{CopyPlace, Disks, Piece, ReadPlaces, Reason, SeenMap, WritePlaces};
pub use shared::{NoRoom, SharedMap, StandingWord};
