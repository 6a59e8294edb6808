//! copy_file_range(2): within the group, by pieces, keeping holes.

use std::sync::Arc;

use spindle_device::AlignedBuffer;

use crate::attribute::Time;
use crate::data::{Reach, bytes_of, checked_end, length_of};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::node::Node;
use crate::system::FileSystem;

const PIECE_BYTES: u64 = 1 << 20;

impl FileSystem {
    /// Bytes copied: fewer than asked at the end of the source, or where an error came after
    /// the first bytes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] where both ranges overlap in one file, [`FsError::TooLarge`], that
    /// one is no regular file, or what the group says.
    pub fn copy_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        length_bytes: u64,
        now: Time,
    ) -> FsResult<u64> {
        from.node.file()?;
        to.node.file()?;
        let size_bytes = from.node.state.lock().inode.size_bytes;
        let length_bytes = length_bytes.min(size_bytes.saturating_sub(from_offset));
        let to_end = checked_end(to_offset, length_bytes)?;
        let from_end = from_offset + length_bytes;
        if from.id() == to.id() && from_offset < to_end && to_offset < from_end {
            return Err(FsError::Invalid("the two ranges overlap"));
        }
        let mut buffer = AlignedBuffer::zeroed(length_of(PIECE_BYTES.min(length_bytes)));
        let mut done = 0;
        while done < length_bytes {
            let at = from_offset + done;
            let copied =
                self.copy_piece(from, at, to, to_offset + done, from_end, &mut buffer, now);
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Copies the hole or the data at `at`, no further than `end`; 0 where the source shrank.
    #[allow(
        clippy::too_many_arguments,
        reason = "both places, the end and the buffer of one copy"
    )]
    fn copy_piece(
        &self,
        from: &Handle,
        at: u64,
        to: &Handle,
        to_offset: u64,
        end: u64,
        buffer: &mut [u8],
        now: Time,
    ) -> FsResult<u64> {
        // In a file that shrank meanwhile there is no data here, and no hole either.
        let (data, size_bytes) = self.seek_and_size(from, at, false)?;
        let data = data.unwrap_or(size_bytes).min(end);
        if data > at {
            self.copy_hole(&to.node, to_offset, data - at, now)?;
            return Ok(data - at);
        }
        let stop = self.seek(from, at, true)?.unwrap_or(end).min(end);
        let length = length_of(bytes_of(buffer.len()).min(stop.saturating_sub(at)));
        let length = self.read(from, at, &mut buffer[..length])?;
        self.write(to, to_offset, &buffer[..length], false, now)?;
        Ok(bytes_of(length))
    }

    /// Makes a range of the target read as zeros; the end moves where needed.
    fn copy_hole(
        &self,
        node: &Arc<Node>,
        offset_bytes: u64,
        length_bytes: u64,
        now: Time,
    ) -> FsResult<()> {
        let file = node.file()?;
        let end = offset_bytes + length_bytes;
        let _content = self.core.content_for(node, file, Reach::Bytes(end))?;
        let size_bytes = node.state.lock().inode.size_bytes;
        let old_end = end.min(size_bytes);
        if old_end > offset_bytes {
            self.core.punch(node, file, offset_bytes, old_end)?;
        }
        let grown = (end > size_bytes).then_some(end);
        self.core.note_contents(node, grown, now)
    }
}
