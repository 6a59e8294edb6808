//! Files on NFS servers as disks: a client of our own for NFSv4.1, with sessions, over TCP.
//!
//! [`xdr`], [`rpc`] and [`compound`] are bytes; [`client`] is the protocol's state without I/O: what
//! happened goes in, what is to be done comes out. [`disk`] moves it over sockets that belong to the
//! calling thread; [`shared`] lets many threads use one, as a disk of the engine's.
//!
//! The protocol is that of RFC 8881 with the layout of RFC 5662; what is spoken is what one file that
//! is a disk needs. Version 4.1, because only its slots make sure that what a dead connection still
//! holds is not done after what was asked later.
//!
//! **Invariants.** Any bytes of a server are an answer, an error of the work that waits, or the end of
//! their own connection. Memory is bounded by what was asked for. A flush succeeds only where the
//! server has not forgotten a write that it covers.
//!
//! A crash loses what no flush covered; nothing is kept on this side.

pub mod client;
pub mod compound;
pub mod disk;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod rpc;
pub mod shared;
pub mod status;
pub mod wire;
pub mod xdr;

pub use client::{Action, Client, Event, FileWanted, JobId, Outcome, Settings, Work, fnv};
pub use compound::Access;
pub use disk::NfsDisk;
pub use shared::SharedDisk;
pub use status::{ErrorKind, NfsError, Status};
