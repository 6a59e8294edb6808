//! The network block device protocol, from the server's side.
//!
//! [`negotiation`], [`request`] and [`reply`] are the protocol without I/O: bytes in, a decision or
//! bytes out. [`server`] moves them over sockets, and [`volume`] is what it serves.
//!
//! The protocol is the one that its own document describes: "The NBD protocol", `doc/proto.md` of
//! <https://github.com/NetworkBlockDevice/nbd>, as of May 2026. What is spoken is
//! fixed newstyle negotiation with `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`,
//! `STRUCTURED_REPLY` and the metadata context `base:allocation`; then `READ`, `WRITE`, `DISC`,
//! `FLUSH`, `TRIM`, `WRITE_ZEROES` and `BLOCK_STATUS`. TLS and extended headers are refused by the
//! code that the document has for it.
//!
//! **Invariants.** Any bytes of a client are a request, an error reply, or the end of its own
//! connection. Nothing is allocated by a length that was not checked before. A reply says "done"
//! only when the volume has said so.
//!
//! A crash loses connections and no more: what was answered lies where the volume says.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod negotiation;
pub mod reply;
pub mod request;
pub mod server;
pub mod volume;
mod wire;

pub use negotiation::{Agreed, Negotiation, Offer, OptionHeader, Step};
pub use request::{Command, Request, Terms};
pub use server::{CONNECTIONS_MOST, Server};
pub use volume::{Stretch, Volume, VolumeError};
pub use wire::{ErrorCode, PAYLOAD_BYTES_MAX, Violation};
