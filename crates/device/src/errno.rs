//! The one place where the kernel's error numbers become kinds of our own.

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

/// Whether the kernel only asks for another try.
pub(crate) fn is_transient(errno: i32) -> bool {
    matches!(Errno::from_raw_os_error(errno), Errno::AGAIN | Errno::INTR)
}

#[cfg(test)]
mod tests {
    use super::{DeviceErrorKind, kind_of};

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
}
