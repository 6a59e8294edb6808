//! The one place where the kernel's error numbers become kinds of our own.

use std::time::Duration;

use rustix::io::Errno;

use crate::request::DeviceErrorKind;

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

/// Whether the kernel only asks for another try: a signal came, or there was no memory for the
/// request (`BLK_STS_RESOURCE` of the block layer, a file system below). The disk was not asked then,
/// and is not to blame.
pub(crate) fn is_transient(errno: i32) -> bool {
    let errno = Errno::from_raw_os_error(errno);
    matches!(errno, Errno::AGAIN | Errno::INTR) || is_short_of_memory(errno)
}

/// Waits before another try where there was no memory; whether that was so.
pub(crate) fn pause_for_memory(errno: i32) -> bool {
    let is_short = is_short_of_memory(Errno::from_raw_os_error(errno));
    if is_short {
        std::thread::sleep(Duration::from_millis(10));
    }
    is_short
}

fn is_short_of_memory(errno: Errno) -> bool {
    matches!(errno, Errno::NOMEM | Errno::NOBUFS)
}

#[cfg(test)]
mod tests {
    use super::{DeviceErrorKind, is_transient, kind_of};

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
        for errno in [11, 4, 12, 105] {
            assert!(is_transient(errno), "errno {errno}");
        }
        for errno in [5, 28, 110] {
            assert!(!is_transient(errno), "errno {errno}");
        }
    }
}
