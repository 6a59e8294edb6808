//! The first request of every mount, `INIT`: which version and capabilities both sides use.
//!
//! What was agreed holds for as long as the mount, beyond the death of a daemon: the next one
//! that serves the same descriptors is given [`Negotiated`] instead of an `INIT`.

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InitIn, InitOut, Opcode, capability};
use crate::mount_point::MAX_DATA_BYTES;
use crate::transport::Transport;

/// Requests that the kernel may have under way without a caller waiting (read-ahead, write-back,
/// asynchronous direct I/O). Its default of 12 starves queues as deep as databases use.
const MAX_BACKGROUND: u16 = 256;
/// From here on the kernel holds read-ahead back.
const CONGESTION_THRESHOLD: u16 = 192;

/// What kernel and daemon agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol.
    pub minor: u32,
    /// Capabilities in use, as `linux/fuse.h` numbers them.
    pub capabilities: u64,
}

impl Negotiated {
    /// True where the kernel gathers writes in its cache and owns size and times of files.
    #[must_use]
    pub const fn has_writeback_cache(self) -> bool {
        self.capabilities & capability::WRITEBACK_CACHE != 0
    }

    /// True where a new daemon can ask for the requests that the old one did not answer.
    #[must_use]
    pub const fn has_resend(self) -> bool {
        self.capabilities & capability::HAS_RESEND != 0
    }
}

/// Why there is no agreement.
#[derive(Debug)]
pub(crate) enum NegotiationError {
    /// The mount ended before it began.
    Ended,
    /// The kernel's version.
    TooOld { major: u32, minor: u32 },
    /// The descriptor failed.
    Failed(Errno),
}

impl From<Errno> for NegotiationError {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

/// What we want where the kernel offers it.
///
/// Not wanted, so that the kernel does it alone: locks, access checks, ACLs. `ATOMIC_O_TRUNC`:
/// the file would be cut before the kernel has looked whether it may be, and the kernel refuses to
/// cut a program that runs.
/// `WRITEBACK_CACHE`: the kernel would answer writes that find no space, and know sizes and holes
/// that we do not. Write-behind is ours (`spindle_fs`).
/// `EXPLICIT_INVAL_DATA`: the mount is the only door, so cached pages are never stale by
/// themselves. `NO_OPENDIR_SUPPORT`: a directory needs no handle, its cookies are stable.
fn wanted() -> u64 {
    capability::ASYNC_READ
        | capability::EXPORT_SUPPORT
        | capability::BIG_WRITES
        | capability::READDIRPLUS
        | capability::READDIRPLUS_AUTO
        | capability::ASYNC_DIO
        | capability::PARALLEL_DIROPS
        | capability::ABORT_ERROR
        | capability::MAX_PAGES
        | capability::CACHE_SYMLINKS
        | capability::NO_OPENDIR_SUPPORT
        | capability::EXPLICIT_INVAL_DATA
        | capability::HANDLE_KILLPRIV_V2
        | capability::INIT_EXT
        | capability::DIRECT_IO_ALLOW_MMAP
        | capability::HAS_RESEND
}

/// Answers `INIT`.
pub(crate) fn negotiate<T: Transport>(transport: &mut T) -> Result<Negotiated, NegotiationError> {
    loop {
        let Some(header) = transport.receive()? else {
            return Err(NegotiationError::Ended);
        };
        if header.opcode != Opcode::Init as u32 {
            transport.answer(-Errno::IO.raw_os_error(), &[])?;
            continue;
        }
        let arguments = transport
            .arguments(size_of::<InitIn>())
            .ok_or(Errno::PROTO)?;
        let (init, _) = InitIn::read_from_prefix(arguments).map_err(|_| Errno::PROTO)?;
        let tail = transport.tail(size_of::<InitIn>());
        if init.major > abi::MAJOR {
            // The kernel asks again with our major version.
            let only_version = InitOut {
                major: abi::MAJOR,
                minor: abi::MINOR,
                ..InitOut::default()
            };
            transport.answer(0, only_version.as_bytes())?;
            continue;
        }
        if init.major < abi::MAJOR || init.minor < abi::OLDEST_MINOR {
            transport.answer(-Errno::PROTO.raw_os_error(), &[])?;
            return Err(NegotiationError::TooOld {
                major: init.major,
                minor: init.minor,
            });
        }
        let high = u32::read_from_prefix(tail).map_or(0, |(flags2, _)| flags2);
        let offered = u64::from(init.flags) | (u64::from(high) << 32);
        let negotiated = Negotiated {
            minor: init.minor.min(abi::MINOR),
            capabilities: offered & wanted(),
        };
        transport.answer(0, agreement(negotiated, &init).as_bytes())?;
        return Ok(negotiated);
    }
}

fn agreement(negotiated: Negotiated, init: &InitIn) -> InitOut {
    let low = negotiated.capabilities & u64::from(u32::MAX);
    InitOut {
        major: abi::MAJOR,
        minor: negotiated.minor,
        max_read_ahead_bytes: init.max_read_ahead_bytes,
        flags: u32::try_from(low).expect("masked to 32 bits"),
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTION_THRESHOLD,
        max_write_bytes: u32::try_from(MAX_DATA_BYTES).expect("1 MiB"),
        time_granularity_ns: 1,
        max_pages: u16::try_from(MAX_DATA_BYTES / 4096).expect("256 pages"),
        map_alignment: 0,
        flags2: u32::try_from(negotiated.capabilities >> 32).expect("the upper half"),
        unused: [0; 7],
    }
}
