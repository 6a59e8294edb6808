//! fallocate(2): reserving space, punching holes, zeroing ranges.

use std::sync::Arc;

use spindle_group::File;

use crate::attribute::Time;
use crate::data::{FILE_SIZE_BYTES_MAX, Reach, bytes_of, checked_end, length_of};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::node::Node;
use crate::system::{Core, FileSystem};

// The kernel's numbers (linux/falloc.h).
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// Zeros are written in pieces of this size.
const ZERO_PIECE_BYTES: u64 = 1 << 20;

impl FileSystem {
    /// fallocate(2): mode as the flags `FALLOC_FL_KEEP_SIZE`, `PUNCH_HOLE`, `ZERO_RANGE`.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for another mode, [`FsError::TooLarge`], or what the group says;
    /// where there is no room, nothing has changed.
    pub fn allocate(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        length_bytes: u64,
        mode: u32,
        now: Time,
    ) -> FsResult<()> {
        let node = &handle.node;
        let file = node.file()?;
        let core = &self.core;
        if length_bytes == 0 {
            return Err(FsError::Invalid("a range has at least one byte"));
        }
        if mode == PUNCH_HOLE | KEEP_SIZE {
            // Whatever lies beyond the largest file is a hole already.
            let end = offset_bytes
                .saturating_add(length_bytes)
                .min(FILE_SIZE_BYTES_MAX);
            if offset_bytes >= end {
                return Ok(());
            }
            let _content = core.content_for(node, file, Reach::Bytes(end))?;
            core.punch(node, file, offset_bytes, end)?;
            return core.note_contents(node, None, now);
        }
        let keep_size = mode & KEEP_SIZE != 0;
        let zero = match mode & !KEEP_SIZE {
            0 => false,
            ZERO_RANGE => true,
            _ => return Err(FsError::Unsupported),
        };
        let end = checked_end(offset_bytes, length_bytes)?;
        let _content = core.content_for(node, file, Reach::Bytes(end))?;
        let size_bytes = node.state.lock().inode.size_bytes;
        core.group.allocate(file, offset_bytes, length_bytes)?;
        if zero {
            // It is many writes, between which no direct client reads either.
            let _withheld = core.withhold(file, offset_bytes, end);
            core.write_out_range(node, offset_bytes, end)?;
            core.zero(file, offset_bytes, end)?;
        }
        let grown = (!keep_size && end > size_bytes).then_some(end);
        if zero || grown.is_some() {
            core.note_contents(node, grown, now)?;
        }
        Ok(())
    }
}

impl Core {
    /// Notes changed contents, and a size where the end moved.
    pub(crate) fn note_contents(
        &self,
        node: &Arc<Node>,
        size_bytes: Option<u64>,
        now: Time,
    ) -> FsResult<()> {
        let now = now.stamp()?;
        self.change_lagging(node, |state| {
            if let Some(size_bytes) = size_bytes {
                state.inode.size_bytes = size_bytes;
            }
            state.inode.modified = now;
            state.inode.changed = now;
            state.touch(size_bytes.is_some());
            Ok(())
        })
    }

    /// Writes zeros over the data of a range and leaves its space reserved. Punching and
    /// reserving again could find no room: what is freed returns only after the commit.
    fn zero(&self, file: &File, offset_bytes: u64, end: u64) -> FsResult<()> {
        let mut at = offset_bytes;
        let mut zeros = Vec::new();
        while let Some(start) = self.group.seek(file, at, end, false) {
            let start = start.max(at);
            if start >= end {
                break;
            }
            let stop = self.group.seek(file, start, end, true).unwrap_or(end);
            let length = length_of(stop.min(end).min(start + ZERO_PIECE_BYTES) - start);
            if zeros.len() < length {
                zeros.resize(length, 0);
            }
            self.group.write(file, start, &zeros[..length])?;
            at = start + bytes_of(length);
        }
        Ok(())
    }
}
