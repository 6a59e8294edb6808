//! What a client is asked, and what it asks for.

use std::sync::Arc;

use crate::compound::{Access, Entry};
use crate::rpc::Credentials;
use crate::status::NfsError;

/// The most paths to one server.
pub const PATHS_MOST: usize = 4;
/// The most entries of a directory that are listed.
pub const ENTRIES_MOST: usize = 65_536;

/// The most that one request carries: a record has less than 2 GiB.
pub const TRANSFER_BYTES_MOST: u32 = 1 << 30;

/// What a client is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many paths there are, at most [`PATHS_MOST`].
    pub paths: usize,
    /// As whom it calls.
    pub credentials: Credentials,
    /// The same for every client of this file that may take this one's place, and for no other. The
    /// file is added to it, so that two disks of one owner do not end each other.
    pub owner: Vec<u8>,
    /// The directory, from the root of the server's exports.
    pub directory: Vec<String>,
    /// The file in it; none to list the directory only.
    pub file: Option<FileWanted>,
    /// The most that one request carries; [`TRANSFER_BYTES_MOST`] at most.
    pub transfer_bytes: u32,
    /// The most requests under way.
    pub slots: u32,
    /// A path that was silent so long with requests out is asked whether it is there.
    pub probe_after_ms: u64,
    /// A path that was silent so long is cut, and its requests go elsewhere.
    pub silent_after_ms: u64,
    /// A path that leaves a request unanswered so long, though it answers others, is cut too: the
    /// server has dropped the request. Each further time it is waited for twice as long, so that one
    /// that takes long is not asked again and again.
    pub dropped_after_ms: u64,
}

/// The file that is the disk.
#[derive(Debug, Clone)]
pub struct FileWanted {
    /// Its name in the directory.
    pub name: String,
    /// Make it where it is not there.
    pub makes: bool,
    /// For what.
    pub access: Access,
}

/// A piece of work.
#[derive(Debug, Clone)]
pub enum Work {
    /// Gives the bytes of a range that lies within the file.
    Read {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u32,
    },
    /// Writes.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Arc<[u8]>,
        /// Durable before it is answered; else after a later [`Work::Flush`].
        is_durable: bool,
    },
    /// Makes every write durable that was answered before.
    Flush,
    /// Gives the size.
    Size,
    /// Sets the size.
    SetSize(u64),
    /// Lists the directory.
    List,
    /// Ends the hold on the file, and the session. Nothing can be asked afterwards.
    Close,
}

impl Work {
    /// What the protocol calls it.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::Flush => "COMMIT",
            Self::Size => "GETATTR",
            Self::SetSize(_) => "SETATTR",
            Self::List => "READDIR",
            Self::Close => "CLOSE",
        }
    }
}

/// What work gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// What was read, as long as was asked.
    Data(Vec<u8>),
    /// The size in bytes.
    Size(u64),
    /// The entries of the directory.
    Entries(Vec<Entry>),
}

/// Tells pieces of work apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u64);

/// What whoever drives a client is to do, in this order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Connect the path; [`Client::connected`] or [`Client::disconnected`] follows.
    Connect(usize),
    /// Send the bytes on the path.
    Send(usize, Arc<Vec<u8>>),
    /// Cut the path at once, so that what it still holds goes nowhere. Nothing follows.
    Reset(usize),
    /// Work is answered.
    Done(JobId, Result<Outcome, NfsError>),
    /// Something happened that concerns the disk as a whole.
    Event(Event),
}

/// What concerns the disk as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server forgot writes that were answered and not flushed: they are to be made again.
    LostWrites,
    /// The session was lost, and another one is made.
    SessionLost,
    /// The file was claimed again after a restart of the server.
    Reclaimed,
    /// The path answers.
    PathUp(usize),
    /// The path was cut, or does not answer.
    PathDown(usize),
    /// Nothing can be done any more: the reason.
    Failed(NfsError),
}
