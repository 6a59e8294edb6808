//! A file of the group as a block device.
//!
//! Requests go through the doors of the mount's direct I/O: a write is on the disks when it is
//! answered, a flush is a sync of the file. What a mount's page cache holds of the file is written
//! back and forgotten when the export begins, and forgotten again where a reader of the mount has
//! filled it meanwhile.

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{ReadTarget, WriteSource};
use spindle_fs::{FileSystem, Forgotten, FsError, Handle};
use spindle_fuse::errno_of;
use spindle_nbd::{ErrorCode, Stretch, Volume, VolumeError};

use crate::machine::clock::now;
use crate::opened::files::KernelCache;

// The kernel's numbers (linux/falloc.h), which the file system takes.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// A hole, and zeros, are made in pieces, so that other requests get their turn in between.
const HOLE_PIECE_BYTES: u64 = 256 << 20;
const ZEROS_PIECE_BYTES: u64 = 16 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct ExportedFile {
    pub(super) file_system: Arc<FileSystem>,
    pub(super) handle: Arc<Handle>,
    pub(super) kernel: Arc<dyn KernelCache>,
    pub(super) is_read_only: bool,
}

impl ExportedFile {
    /// The kernel forgets what it holds of the file, where it holds anything.
    fn forget_cached(&self) {
        // What an earlier process left in the kernel counts as well.
        match self.handle.kept().after_write(true) {
            Forgotten::Nothing => {}
            Forgotten::Written => {
                self.kernel.bytes_changed(self.handle.id());
            }
            Forgotten::WrittenAndAll => {
                if self.kernel.bytes_changed(self.handle.id()) {
                    self.handle.kept().note_forgotten();
                }
            }
        }
    }

    fn change_range(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: u32,
        piece_bytes: u64,
    ) -> Result<(), VolumeError> {
        let mut done = Ok(());
        let end = offset_bytes + length_bytes;
        let mut at = offset_bytes;
        while at < end && done.is_ok() {
            // To the next whole piece, so that only the first begins within a block.
            let to = (at / piece_bytes + 1) * piece_bytes;
            let length = to.min(end) - at;
            let mode = mode | KEEP_SIZE;
            done = (self.file_system).allocate(&self.handle, at, length, mode, now());
            at += length;
        }
        // Also after a failure: a part may be changed.
        self.forget_cached();
        done.map_err(|error| told(&error))
    }
}

impl Volume for ExportedFile {
    fn size_bytes(&self) -> u64 {
        self.handle.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&self, offset_bytes: u64, out: ReadTarget<'_>) -> Result<(), VolumeError> {
        let (wanted, started) = (out.len(), Instant::now());
        let read = (self.file_system).read_into(&self.handle, offset_bytes, out);
        let read_bytes = read.map_err(|error| told(&error))?;
        self.handle.note_read(read_bytes, started.elapsed());
        if read_bytes < wanted {
            let message = "the volume has become smaller";
            return Err(VolumeError::new(ErrorCode::Invalid, message));
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: WriteSource<'_>) -> Result<(), VolumeError> {
        let (length, started) = (data.len(), Instant::now());
        let written = (self.file_system).write_from(&self.handle, offset_bytes, data, false, now());
        self.forget_cached();
        written.map_err(|error| told(&error))?;
        self.handle.note_write(length, started.elapsed());
        Ok(())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        let synced = self.file_system.sync_file(&self.handle, true);
        synced.map_err(|error| told(&error))
    }

    fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        // Of a block of which a part is wanted nothing can be given back.
        let first = offset_bytes.next_multiple_of(BLOCK_SIZE_BYTES);
        let end = offset_bytes + length_bytes;
        let end = end - end % BLOCK_SIZE_BYTES;
        if first >= end {
            return Ok(());
        }
        self.change_range(first, end - first, PUNCH_HOLE, HOLE_PIECE_BYTES)
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_be_hole: bool,
    ) -> Result<(), VolumeError> {
        if may_be_hole {
            self.change_range(offset_bytes, length_bytes, PUNCH_HOLE, HOLE_PIECE_BYTES)
        } else {
            self.change_range(offset_bytes, length_bytes, ZERO_RANGE, ZEROS_PIECE_BYTES)
        }
    }

    fn stretches(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Stretch>, VolumeError> {
        let end = offset_bytes + length_bytes;
        let next = |at, is_hole| {
            let found = self.file_system.seek(&self.handle, at, is_hole);
            let found = found.map_err(|error| told(&error))?;
            Ok(found.unwrap_or(end).clamp(at, end))
        };
        let mut stretches = Vec::new();
        let mut at = offset_bytes;
        while at < end && stretches.len() < most {
            let data = next(at, false)?;
            let is_hole = data > at;
            let to = if is_hole { data } else { next(at, true)? };
            // Data that became a hole in between: it is asked again.
            if to > at {
                stretches.push(Stretch {
                    length_bytes: to - at,
                    is_hole,
                });
            }
            at = to;
        }
        Ok(stretches)
    }
}

/// What a client is told of a failure.
fn told(error: &FsError) -> VolumeError {
    let code = match errno_of(error) {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorCode::NoSpace,
        Errno::PERM | Errno::ROFS => ErrorCode::NotPermitted,
        Errno::INVAL => ErrorCode::Invalid,
        _ => ErrorCode::Io,
    };
    VolumeError::new(code, error.to_string())
}
