//! The files of a group, whether the daemon serves it or this process opened the disks.
//!
//! [`Files`] is what `ls`, `stat`, `map`, `du` and `cp` are written against. `opened::files`
//! answers from a file system in this process; the client asks the daemon, which itself answers
//! from there: so both ways give the same words.
//!
//! A new file becomes visible whole: bytes go to an unnamed file, which then gets its name. A
//! crash before that leaves an orphan that the next mount removes.

use std::io::{Read, Write};
use std::path::Path;

use spindle_fs::Time;

use crate::api::error::ControlResult;
use crate::api::view::{FileReport, MapReport, TimeReport, UsageReport};

/// How many bytes go to or from the file system in one call.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What a new file, directory or link is made with.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry {
    /// Permission bits.
    pub permissions: u16,
    /// Owner.
    pub user: u32,
    /// Owning group of users.
    pub group: u32,
    /// Time of the last change; now where `None`.
    pub modified: Option<TimeReport>,
}

/// What can be done with the files of a group. Paths begin with `/`.
pub trait Files: Sync {
    /// One entry; symbolic links are not followed.
    ///
    /// # Errors
    /// Where there is none, or the group cannot be read.
    fn stat(&self, path: &Path) -> ControlResult<FileReport>;
    /// The entries of a directory in the order of their names, or the entry itself.
    ///
    /// # Errors
    /// As for [`Files::stat`].
    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>>;
    /// Which extents of a file lie where.
    ///
    /// # Errors
    /// As for [`Files::stat`], and where it is no regular file.
    fn map(&self, path: &Path) -> ControlResult<MapReport>;
    /// Space taken, down to `depth` directories below `path`, the sum last.
    ///
    /// # Errors
    /// As for [`Files::stat`].
    fn usage(&self, path: &Path, depth: usize) -> ControlResult<Vec<UsageReport>>;
    /// Sends a file's bytes to `out` and returns how many there were.
    ///
    /// # Errors
    /// As for [`Files::map`], and what `out` answers.
    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64>;
    /// Makes a file of all bytes of `input`, in place of one that is there, and returns how
    /// many there were. Not durable before a [`Files::sync`] that names it.
    ///
    /// # Errors
    /// Where the directory is not there, a directory has the name, or there is no room; the
    /// group then holds what it held before.
    fn write_from(&self, path: &Path, new: NewEntry, input: &mut dyn Read) -> ControlResult<u64>;
    /// Makes a directory; one that is there stays as it is.
    ///
    /// # Errors
    /// Where the parent is not there or something else has the name.
    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()>;
    /// Makes a symbolic link, in place of one that is there.
    ///
    /// # Errors
    /// Where the parent is not there or something else has the name.
    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()>;
    /// Makes everything durable, and asks of each file that was `written` what was lost of it: another
    /// sync of everything may have been told. One that is not there any more is no error.
    ///
    /// # Errors
    /// Where a disk refused and no copy is left, or something of these files is lost.
    fn sync(&self, written: &[&Path]) -> ControlResult<()>;
}

impl From<Time> for TimeReport {
    fn from(time: Time) -> Self {
        Self {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        }
    }
}

impl From<TimeReport> for Time {
    fn from(time: TimeReport) -> Self {
        Self {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        }
    }
}
