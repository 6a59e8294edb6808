//! What servers answer, and what it means for a disk.

/// A status of the protocol, by its number (RFC 8881, section 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($name:ident = $number:literal,)*) => {
        #[allow(missing_docs, reason = "the names are the document's")]
        impl Status {
            $(pub const $name: Self = Self($number);)*

            /// The name that the document gives it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    OK = 0, PERM = 1, NOENT = 2, IO = 5, NXIO = 6, ACCESS = 13, EXIST = 17, NOTDIR = 20, ISDIR = 21,
    INVAL = 22, FBIG = 27, NOSPC = 28, ROFS = 30, NAMETOOLONG = 63, DQUOT = 69, STALE = 70,
    BADHANDLE = 10001, NOTSUPP = 10004, TOOSMALL = 10005, SERVERFAULT = 10006, DELAY = 10008,
    EXPIRED = 10011, LOCKED = 10012, GRACE = 10013, FHEXPIRED = 10014, SHARE_DENIED = 10015,
    WRONGSEC = 10016, CLID_INUSE = 10017, MOVED = 10019, MINOR_VERS_MISMATCH = 10021,
    STALE_CLIENTID = 10022, NOT_SAME = 10027, STALE_STATEID = 10023, OLD_STATEID = 10024, BAD_STATEID = 10025,
    NO_GRACE = 10033, RECLAIM_BAD = 10034, RECLAIM_CONFLICT = 10035, BADXDR = 10036,
    ADMIN_REVOKED = 10047, BADSESSION = 10052, BADSLOT = 10053, COMPLETE_ALREADY = 10054,
    CONN_NOT_BOUND_TO_SESSION = 10055, BACK_CHAN_BUSY = 10057, SEQ_MISORDERED = 10063,
    RETRY_UNCACHED_REP = 10068, OP_NOT_IN_SESSION = 10071, CLIENTID_BUSY = 10074,
    SEQ_FALSE_RETRY = 10076, DEADSESSION = 10078,
}

impl Status {
    /// The server asks to be asked again later. Version 3 calls the first one `JUKEBOX`.
    #[must_use]
    pub const fn is_wait(self) -> bool {
        matches!(self, Self::DELAY | Self::GRACE | Self::BACK_CHAN_BUSY)
    }

    /// The session is no longer usable; another one may be.
    #[must_use]
    pub const fn is_session_lost(self) -> bool {
        matches!(
            self,
            Self::BADSESSION
                | Self::DEADSESSION
                | Self::BADSLOT
                | Self::SEQ_MISORDERED
                | Self::SEQ_FALSE_RETRY
                | Self::STALE_CLIENTID
        )
    }

    /// What it means where a file is a disk.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::NOENT | Self::NOTDIR => ErrorKind::NotFound,
            Self::EXIST => ErrorKind::Exists,
            Self::STALE | Self::FHEXPIRED | Self::BADHANDLE | Self::NXIO => ErrorKind::Gone,
            Self::NOSPC | Self::DQUOT | Self::FBIG => ErrorKind::NoSpace,
            Self::ACCESS | Self::PERM | Self::ROFS | Self::WRONGSEC => ErrorKind::Access,
            Self::SHARE_DENIED | Self::LOCKED | Self::CLID_INUSE => ErrorKind::InUse,
            Self::BADSESSION | Self::DEADSESSION | Self::STALE_CLIENTID => ErrorKind::SessionLost,
            Self::EXPIRED
            | Self::STALE_STATEID
            | Self::OLD_STATEID
            | Self::BAD_STATEID
            | Self::ADMIN_REVOKED
            | Self::NO_GRACE
            | Self::RECLAIM_BAD
            | Self::RECLAIM_CONFLICT
            // Another start of this host's has our place.
            | Self::NOT_SAME => ErrorKind::Fenced,
            Self::IO => ErrorKind::Io,
            _ => ErrorKind::Refused,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

/// What kept a request from being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No answer within the deadline. What was asked may still be done.
    TimedOut,
    /// There is no such file or directory.
    NotFound,
    /// It is there already.
    Exists,
    /// The file is gone, or shorter than it was (`STALE`).
    Gone,
    /// The server has no room, or we may use no more (`NOSPC`, `DQUOT`).
    NoSpace,
    /// The server lets this user or machine not do it.
    Access,
    /// Another client has the file open and keeps others out (`SHARE_DENIED`).
    InUse,
    /// The server has taken our hold on the file away: another host may have it.
    Fenced,
    /// The server no longer knows the session, where no other can be had.
    SessionLost,
    /// The server forgot writes that it had answered and that no flush had covered.
    LostWrites,
    /// The server's own disk failed.
    Io,
    /// The server refused for a reason that no disk should meet; the status says which.
    Refused,
    /// The server's answer is none of the protocol.
    Violation,
    /// This process has no descriptor or thread left.
    NoResources,
    /// The disk was closed.
    Closed,
}

/// A request that failed: what was asked, what the server said, and what that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {}{}", explain(*kind), status.map(|status| format!(" ({status})")).unwrap_or_default())]
pub struct NfsError {
    /// What was asked, as the protocol calls it.
    pub operation: &'static str,
    /// What it means.
    pub kind: ErrorKind,
    /// What the server said, where it said something.
    pub status: Option<Status>,
}

impl NfsError {
    /// A failure that no status of the server stands for.
    #[must_use]
    pub const fn new(operation: &'static str, kind: ErrorKind) -> Self {
        Self {
            operation,
            kind,
            status: None,
        }
    }

    /// A failure that the server told.
    #[must_use]
    pub const fn told(operation: &'static str, status: Status) -> Self {
        Self {
            operation,
            kind: status.kind(),
            status: Some(status),
        }
    }
}

const fn explain(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TimedOut => {
            "the server did not answer in time: look whether it runs and is reached"
        }
        ErrorKind::NotFound => "the server has no such file: check the path, or create the file",
        ErrorKind::Exists => "the file exists already: choose another name",
        ErrorKind::Gone => "the file is gone, or shorter than it was: restore it on the server",
        ErrorKind::NoSpace => "the server has no room, or the quota is used up: make room there",
        ErrorKind::Access => {
            "the server denies access: check the export, its options and the file's owner"
        }
        ErrorKind::InUse => "another client has the file open: close it there first",
        ErrorKind::Fenced => {
            "the server has ended our hold on the file, and another host may have it: open the disk again"
        }
        ErrorKind::SessionLost => "the server no longer knows the session: open the disk again",
        ErrorKind::LostWrites => {
            "the server forgot writes that were not flushed: resync the disk from another copy"
        }
        ErrorKind::Io => "the server's own disk failed: look into the server's log",
        ErrorKind::Refused => "the server refused: look into the server's log",
        ErrorKind::Violation => "the server's answer breaks the protocol: update the server",
        ErrorKind::NoResources => {
            "this process can have no more descriptors or threads: raise its limits"
        }
        ErrorKind::Closed => "the disk is closed",
    }
}
