//! The one place where an error of the file system becomes an errno.

use rustix::io::Errno;
use spindle_fs::FsError;
use spindle_group::GroupErrorKind;

/// What the calling program sees.
#[must_use]
pub fn errno_of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::Exists => Errno::EXIST,
        FsError::NotADirectory => Errno::NOTDIR,
        FsError::IsADirectory => Errno::ISDIR,
        FsError::NotEmpty => Errno::NOTEMPTY,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::Invalid(_) => Errno::INVAL,
        FsError::NotPermitted(_) => Errno::PERM,
        FsError::NoAttribute => Errno::NODATA,
        // Of a file; for an attribute's value the bridge says E2BIG.
        FsError::TooLarge => Errno::FBIG,
        FsError::AttributesFull => Errno::NOSPC,
        FsError::Unsupported => Errno::OPNOTSUPP,
        FsError::Group(error) => match error.kind {
            GroupErrorKind::NoSpace | GroupErrorKind::NotEnough => Errno::NOSPC,
            GroupErrorKind::NotFound => Errno::NOENT,
            GroupErrorKind::Invalid => Errno::INVAL,
            GroupErrorKind::Busy | GroupErrorKind::Contended => Errno::BUSY,
            GroupErrorKind::Io | GroupErrorKind::Corrupt | GroupErrorKind::NoMajority => Errno::IO,
        },
    }
}
