//! The numbers of NFSv4.1 that are spoken here (RFC 8881, and RFC 5662 for how they are laid out).

/// Operations of a compound.
#[allow(missing_docs, reason = "the names are the document's")]
pub mod operation {
    pub const CLOSE: u32 = 4;
    pub const COMMIT: u32 = 5;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LOOKUP: u32 = 15;
    pub const OPEN: u32 = 18;
    pub const PUTFH: u32 = 22;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const READDIR: u32 = 26;
    pub const SETATTR: u32 = 34;
    pub const WRITE: u32 = 38;
    pub const BIND_CONN_TO_SESSION: u32 = 41;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const DESTROY_SESSION: u32 = 44;
    pub const SEQUENCE: u32 = 53;
    pub const RECLAIM_COMPLETE: u32 = 58;

    /// What a person calls an operation.
    #[must_use]
    pub const fn name(number: u32) -> &'static str {
        match number {
            CLOSE => "CLOSE",
            COMMIT => "COMMIT",
            GETATTR => "GETATTR",
            GETFH => "GETFH",
            LOOKUP => "LOOKUP",
            OPEN => "OPEN",
            PUTFH => "PUTFH",
            PUTROOTFH => "PUTROOTFH",
            READ => "READ",
            READDIR => "READDIR",
            SETATTR => "SETATTR",
            WRITE => "WRITE",
            BIND_CONN_TO_SESSION => "BIND_CONN_TO_SESSION",
            EXCHANGE_ID => "EXCHANGE_ID",
            CREATE_SESSION => "CREATE_SESSION",
            DESTROY_SESSION => "DESTROY_SESSION",
            SEQUENCE => "SEQUENCE",
            RECLAIM_COMPLETE => "RECLAIM_COMPLETE",
            _ => "an operation",
        }
    }
}

/// Attributes of a file or its server.
#[allow(missing_docs, reason = "the names are the document's")]
pub mod attribute {
    pub const TYPE: u32 = 1;
    pub const SIZE: u32 = 4;
    pub const LEASE_TIME: u32 = 10;
    pub const MAXREAD: u32 = 30;
    pub const MAXWRITE: u32 = 31;
    pub const MODE: u32 = 33;
}

/// The minor version of every compound.
pub const MINOR_VERSION: u32 = 1;
/// The longest file handle.
pub const HANDLE_BYTES_MAX: usize = 128;
/// The longest owner, scope or name of a server.
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// The longest name in a directory that is believed.
pub const NAME_BYTES_MAX: usize = 1024;
/// `EXCHANGE_ID`: the server knew this client already, by this owner and verifier.
pub const EXCHANGED_CONFIRMED: u32 = 0x8000_0000;
/// `EXCHANGE_ID`: changes what the server knows of this client, and makes it no new one
/// (`EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`).
pub const UPDATE_CONFIRMED: u32 = 0x4000_0000;
/// `EXCHANGE_ID`: no parallel NFS.
pub const USE_NON_PNFS: u32 = 0x0001_0000;
/// `OPEN`: reading and writing, and no delegation, which would be called back.
pub const SHARE_READ_WRITE: u32 = 3 | 0x0400;
/// `OPEN`: reading alone, and no delegation.
pub const SHARE_READ: u32 = 1 | 0x0400;
/// `OPEN`: nobody else may write.
pub const DENY_WRITE: u32 = 2;
/// `OPEN`: others may do what they like.
pub const DENY_NONE: u32 = 0;

/// How durable a write is before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stable {
    /// In the server's memory; a `COMMIT` makes it durable.
    Unstable = 0,
    /// The data and what it takes to find them.
    DataSync = 1,
    /// All of it.
    FileSync = 2,
}
