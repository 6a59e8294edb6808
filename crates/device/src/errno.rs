//! The one place where the kernel's error numbers become kinds of our own.

use std::time::Duration;

use rustix::io::Errno;

use crate::request::{DeviceErrorKind, Operation};

/// What `errno` says about a read, write or flush of a disk. Whatever is not known to say
/// something else is taken for a bad medium: the disk did not do as asked.
pub(crate) fn kind_of(errno: i32) -> DeviceErrorKind {
    match Errno::from_raw_os_error(errno) {
        Errno::NODEV | Errno::NXIO | Errno::STALE | Errno::NOLINK | Errno::NOTCONN => {
            DeviceErrorKind::Gone
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DeviceErrorKind::NoSpace,
        Errno::TIMEDOUT | Errno::TIME | Errno::CANCELED => DeviceErrorKind::TimedOut,
        // A reservation of another host's: what Linux calls a bad exchange.
        Errno::BADE => DeviceErrorKind::Fenced,
        _ => DeviceErrorKind::Medium,
    }
}

/// After so many answers that only ask for another try a request has failed.
pub(crate) const TRIES_MAX: u8 = 100;

/// For so long what finds no memory is tried again, counted from its first try. Below the time after
/// which an owner has to ask whether the group is still its own.
pub(crate) const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Between two such tries.
pub(crate) const MEMORY_PAUSE: Duration = Duration::from_millis(10);

/// Why the kernel asks for another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// A signal came, or it could not be done without waiting.
    AtOnce,
    /// There was no memory for the request (`BLK_STS_RESOURCE` of the block layer, a file system
    /// below): the disk was not asked, and is not to blame.
    NoMemory,
}

/// Whether the kernel only asks for another try. A flush that found no memory has failed: it may tell
/// of a write to the page cache that did, which the kernel tells once and forgets.
pub(crate) fn asks_again(operation: Operation, errno: i32) -> Option<Again> {
    match Errno::from_raw_os_error(errno) {
        Errno::AGAIN | Errno::INTR => Some(Again::AtOnce),
        Errno::NOMEM | Errno::NOBUFS => match operation {
            Operation::Read | Operation::Write => Some(Again::NoMemory),
            Operation::WriteDurable | Operation::Flush => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Again, DeviceErrorKind, Operation, asks_again, kind_of};

    #[test]
    fn the_numbers_the_kernel_gives_for_disks_get_the_kinds_that_the_layers_above_act_on() {
        for (errno, kind) in [
            (5, DeviceErrorKind::Medium),
            (61, DeviceErrorKind::Medium),
            (74, DeviceErrorKind::Medium),
            (6, DeviceErrorKind::Gone),
            (19, DeviceErrorKind::Gone),
            (28, DeviceErrorKind::NoSpace),
            (122, DeviceErrorKind::NoSpace),
            (110, DeviceErrorKind::TimedOut),
            (52, DeviceErrorKind::Fenced),
        ] {
            assert_eq!(kind_of(errno), kind, "errno {errno}");
        }
    }

    #[test]
    fn a_kernel_without_memory_for_a_request_blames_no_disk() {
        for errno in [11, 4] {
            for operation in [Operation::Read, Operation::Flush] {
                assert_eq!(asks_again(operation, errno), Some(Again::AtOnce));
            }
        }
        for errno in [12, 105] {
            for operation in [Operation::Read, Operation::Write] {
                assert_eq!(asks_again(operation, errno), Some(Again::NoMemory));
            }
        }
        for errno in [5, 28, 110] {
            assert_eq!(asks_again(Operation::Write, errno), None, "errno {errno}");
        }
    }

    /// A kernel tells once that a write to its page cache failed: the next flush would succeed.
    #[test]
    fn a_flush_that_found_no_memory_has_failed() {
        for errno in [12, 105] {
            for operation in [Operation::Flush, Operation::WriteDurable] {
                assert_eq!(asks_again(operation, errno), None, "errno {errno}");
            }
        }
    }
}
