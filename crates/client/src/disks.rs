//! The disks that a client can reach: what the owner told of them, with descriptors.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{OFlags, fcntl_getfl};
use spindle_base::DiskNumber;
use spindle_lease::map::{CopyPlace, Disks};

/// A disk that the owner opened for this client.
#[derive(Debug)]
pub struct ServingDisk {
    file: File,
    blocks: u64,
}

/// The descriptor goes through the page cache, where another process's writes are not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotDirect;

impl fmt::Display for NotDirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the descriptor of the disk was not opened for direct I/O")
    }
}

impl std::error::Error for NotDirect {}

impl ServingDisk {
    /// A disk of so many blocks behind a descriptor that was opened with `O_DIRECT`.
    ///
    /// # Errors
    /// [`NotDirect`] where it was not.
    pub fn new(file: File, blocks: u64) -> Result<Self, NotDirect> {
        let flags = fcntl_getfl(&file).map_err(|_| NotDirect)?;
        if flags.contains(OFlags::DIRECT) {
            Ok(Self { file, blocks })
        } else {
            Err(NotDirect)
        }
    }
}

/// All disks of the group that serve, of one standing.
#[derive(Debug)]
pub struct ServingDisks {
    pub(crate) known: Disks,
    files: Vec<Option<File>>,
}

impl ServingDisks {
    /// The disks by their numbers, `None` for what is no disk or is away, and the standing that the owner
    /// told of together with them.
    #[must_use]
    pub fn new(standing: u64, disks: Vec<Option<ServingDisk>>) -> Self {
        let blocks_of = |disk: &Option<ServingDisk>| disk.as_ref().map_or(0, |disk| disk.blocks);
        let blocks = disks.iter().map(blocks_of).collect();
        let files = disks.into_iter().map(|disk| disk.map(|disk| disk.file));
        Self {
            known: Disks { standing, blocks },
            files: files.collect(),
        }
    }

    fn file(&self, disk: DiskNumber) -> Option<&File> {
        self.files.get(usize::from(disk.0))?.as_ref()
    }

    /// Fills `bytes`, which direct I/O accepts, from there.
    pub(crate) fn read(&self, place: CopyPlace, bytes: &mut [u8]) -> io::Result<()> {
        let disk = self.file(place.disk).ok_or(io::ErrorKind::NotFound)?;
        disk.read_exact_at(bytes, place.offset_bytes)
    }
}
