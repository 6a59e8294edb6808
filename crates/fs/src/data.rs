//! Reading, writing, and where the data lies.
//!
//! A write puts its data first and moves the end of the file after it, so a reader that races
//! with it sees the old file or the new one. A write that fails moves nothing; bytes that it may
//! have left beyond the end are cleaned before the end moves over them.

use std::convert::Infallible;
use std::sync::Arc;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{ReadTarget, WriteSource};
use spindle_format::Timestamp;
use spindle_group::File;
use spindle_sync::level::WriteGuard;

use crate::attribute::Time;
use crate::behind::READS_MOST;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::levels;
use crate::node::Node;
use crate::system::{Core, FileSystem};
use crate::verify::LOOKS_MOST;

/// The largest file: 16 TiB, as ext4 has it. A map beyond it would be larger than memory is for.
pub const FILE_SIZE_BYTES_MAX: u64 = 1 << 44;

/// The end of a range, unless it is beyond what a file can have.
pub(crate) fn checked_end(offset_bytes: u64, length_bytes: u64) -> FsResult<u64> {
    match offset_bytes.checked_add(length_bytes) {
        Some(end) if end <= FILE_SIZE_BYTES_MAX => Ok(end),
        _ => Err(FsError::TooLarge),
    }
}

/// A length in memory as one on disk.
pub(crate) const fn bytes_of(length: usize) -> u64 {
    length as u64
}

/// A length on disk as one in memory, for what is bounded by a buffer or a block.
pub(crate) fn length_of(length_bytes: u64) -> usize {
    usize::try_from(length_bytes).expect("it is bounded by a buffer in memory")
}

impl FileSystem {
    /// Bytes read: fewer than asked only at the end of the file. What `out` holds beyond them is
    /// not said.
    ///
    /// # Errors
    /// That it is no regular file, or what the group says.
    pub fn read(&self, handle: &Handle, offset_bytes: u64, out: &mut [u8]) -> FsResult<usize> {
        self.read_into(handle, offset_bytes, out.into())
    }

    /// As [`FileSystem::read`]; a part of a buffer is filled without a copy.
    ///
    /// # Errors
    /// As [`FileSystem::read`].
    pub fn read_into(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        mut out: ReadTarget<'_>,
    ) -> FsResult<usize> {
        let mut length = self.read_once(handle, offset_bytes, &mut out)?;
        let mut in_vain = None;
        for _ in 0..LOOKS_MOST {
            let read = &out.bytes()[..length];
            if !self.mend_what_was_read(&handle.node, offset_bytes, read, &mut in_vain) {
                break;
            }
            // Perhaps from another copy, which has its own pages that lie.
            length = self.read_once(handle, offset_bytes, &mut out)?;
        }
        Ok(length)
    }

    fn read_once(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        out: &mut ReadTarget<'_>,
    ) -> FsResult<usize> {
        let node = &handle.node;
        for _ in 0..READS_MOST {
            let _content = node.content.read();
            if let Some(length) = self.read_unless_written(node, offset_bytes, out)? {
                return Ok(length);
            }
        }
        // Whoever writes shares the content.
        let _content = node.content.write();
        let read = self.read_unless_written(node, offset_bytes, out)?;
        Ok(read.expect("nobody writes"))
    }

    /// Bytes read; none where the disks may have got some of them while they were read, so that of a
    /// page that was written at once a part may be old. The caller holds the content.
    fn read_unless_written(
        &self,
        node: &Node,
        offset_bytes: u64,
        out: &mut ReadTarget<'_>,
    ) -> FsResult<Option<usize>> {
        let file = node.file()?;
        let size_bytes = node.state.lock().inode.size_bytes;
        let asked = bytes_of(out.len());
        let length = size_bytes.saturating_sub(offset_bytes).min(asked);
        if length == 0 {
            return Ok(Some(0));
        }
        // Before the disks are asked: what is written to them meanwhile goes from here.
        let copies = self.core.copies_of_waiting(node, offset_bytes, length);
        let newer = copies.blocks;
        // Whole blocks go without a copy, so the last block is read whole where it fits.
        let whole = (offset_bytes + length).next_multiple_of(BLOCK_SIZE_BYTES) - offset_bytes;
        let whole = length_of(whole.min(asked));
        let end_block = (offset_bytes + length).div_ceil(BLOCK_SIZE_BYTES);
        if bytes_of(newer.len()) < end_block - offset_bytes / BLOCK_SIZE_BYTES {
            if copies.is_written_around && !newer.is_empty() {
                return Ok(None);
            }
            let read = (self.core.group).read_into(file, offset_bytes, out.first(whole));
            match read {
                // What memory has need not be readable where it will be written.
                Err(_) if !newer.is_empty() => {
                    self.read_gaps(file, offset_bytes, &mut out.bytes()[..whole], &newer)?;
                }
                read => read?,
            }
            if (self.core).has_begun_since(node, copies.begun_count, offset_bytes, length) {
                return Ok(None);
            }
        } else {
            self.core.group.check_serves()?;
        }
        lay_over(&mut out.bytes()[..whole], offset_bytes, &newer);
        Ok(Some(length_of(length)))
    }

    /// Writes all of `data`; `append` ignores the offset. The end of the file moves where needed.
    ///
    /// # Errors
    /// [`FsError::TooLarge`] beyond [`FILE_SIZE_BYTES_MAX`], that it is no regular file, or what
    /// the group says. The end of the file has not moved then.
    pub fn write(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        data: &[u8],
        append: bool,
        now: Time,
    ) -> FsResult<()> {
        self.write_from(handle, offset_bytes, data.into(), append, now)
    }

    /// As [`FileSystem::write`]; a part of a buffer is written without a copy.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn write_from(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        data: WriteSource<'_>,
        append: bool,
        now: Time,
    ) -> FsResult<()> {
        let node = &handle.node;
        let file = node.file()?;
        if data.is_empty() {
            return Ok(());
        }
        if append {
            let _content = (self.core).content_for(node, file, Reach::Size(u64::MAX))?;
            let size_bytes = node.state.lock().inode.size_bytes;
            return self.core.write_at(node, file, size_bytes, data, now);
        }
        let end = checked_end(offset_bytes, bytes_of(data.len()))?;
        loop {
            {
                let _content = node.content.read();
                if self.core.is_ready(node, Reach::Bytes(end)) {
                    return self.core.write_at(node, file, offset_bytes, data, now);
                }
            }
            drop((self.core).content_for(node, file, Reach::Bytes(end))?);
        }
    }

    /// lseek(2) with SEEK_DATA (`hole` false) or SEEK_HOLE; `None` is ENXIO.
    ///
    /// # Errors
    /// That it is no regular file.
    pub fn seek(&self, handle: &Handle, offset_bytes: u64, hole: bool) -> FsResult<Option<u64>> {
        Ok(self.seek_and_size(handle, offset_bytes, hole)?.0)
    }

    /// As [`FileSystem::seek`], with the size that the file had in the same moment, bytes.
    pub(crate) fn seek_and_size(
        &self,
        handle: &Handle,
        offset_bytes: u64,
        hole: bool,
    ) -> FsResult<(Option<u64>, u64)> {
        let node = &handle.node;
        let file = node.file()?;
        let _content = node.content.read();
        let size_bytes = node.state.lock().inode.size_bytes;
        if offset_bytes >= size_bytes {
            return Ok((None, size_bytes));
        }
        let found = self
            .seek_both(node, file, offset_bytes, size_bytes, hole)
            .filter(|found| *found < size_bytes);
        // Every file ends in a hole.
        Ok((found.or(hole.then_some(size_bytes)), size_bytes))
    }

    /// Reads what lies between blocks of memory.
    fn read_gaps(
        &self,
        file: &File,
        offset_bytes: u64,
        out: &mut [u8],
        newer: &[(u64, Vec<u8>)],
    ) -> FsResult<()> {
        let end_bytes = offset_bytes + bytes_of(out.len());
        let mut from = offset_bytes;
        let blocks = newer.iter().map(|(block, _)| *block);
        for block in blocks.chain([end_bytes.div_ceil(BLOCK_SIZE_BYTES)]) {
            let to = (block * BLOCK_SIZE_BYTES).min(end_bytes);
            if from < to {
                let gap = &mut out[length_of(from - offset_bytes)..length_of(to - offset_bytes)];
                self.core.group.read(file, from, gap)?;
            }
            from = (block + 1) * BLOCK_SIZE_BYTES;
        }
        Ok(())
    }

    /// Where data or a hole begins, in memory or on the disks. Memory is asked first: what it
    /// gives up meanwhile is data on the disks.
    fn seek_both(
        &self,
        node: &Node,
        file: &File,
        offset_bytes: u64,
        size_bytes: u64,
        hole: bool,
    ) -> Option<u64> {
        let group = &self.core.group;
        let mut at = offset_bytes;
        if !hole {
            let waiting = node.unwritten.first_from(at / BLOCK_SIZE_BYTES);
            let waiting = waiting.map(|block| (block * BLOCK_SIZE_BYTES).max(at));
            let there = group.seek_shown(file, at, size_bytes, false);
            return waiting.into_iter().chain(there).min();
        }
        loop {
            let end = node.unwritten.end_from(at / BLOCK_SIZE_BYTES) * BLOCK_SIZE_BYTES;
            let from = end.max(at);
            let found = group.seek_shown(file, from, size_bytes, true)?;
            if found == from || found >= size_bytes {
                return Some(found);
            }
            at = found;
        }
    }
}

/// Puts blocks of memory over what the disks had of a range.
fn lay_over(out: &mut [u8], offset_bytes: u64, blocks: &[(u64, Vec<u8>)]) {
    let end_bytes = offset_bytes + bytes_of(out.len());
    for (block, newer) in blocks {
        let start = block * BLOCK_SIZE_BYTES;
        let from = start.max(offset_bytes);
        let to = (start + BLOCK_SIZE_BYTES).min(end_bytes);
        out[length_of(from - offset_bytes)..length_of(to - offset_bytes)]
            .copy_from_slice(&newer[length_of(from - start)..length_of(to - start)]);
    }
}

/// How far a change of a file goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    /// Bytes in front of this end change, on the disks at once or later.
    Bytes(u64),
    /// The end of the file moves there, where that is behind it.
    Size(u64),
}

/// What has to be done before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// What lies beyond the end is to read as zeros: the end moves over it.
    Clean,
    /// A cut of the file is to be durable first, and then it is to be cleaned where that is needed.
    /// Were the cut lost that came before a change beyond the end, the former end would be back, with
    /// bytes below it that came after the cut; and a change in the block of the end would be seen
    /// beside what the cut had taken from the same sector.
    Commit,
}

impl Core {
    /// Writes, then moves the end. The caller holds the content, shared or alone.
    pub(crate) fn write_at(
        &self,
        node: &Arc<Node>,
        file: &File,
        offset_bytes: u64,
        data: WriteSource<'_>,
        now: Time,
    ) -> FsResult<()> {
        let end = checked_end(offset_bytes, bytes_of(data.len()))?;
        let now = now.stamp()?;
        // Until the end has moved, or clients are shown the former one.
        let _withheld = self.withhold(file, offset_bytes, end);
        // A write that finds no space must change nothing that waits.
        if !node.unwritten.is_empty() {
            (self.group).allocate(file, offset_bytes, bytes_of(data.len()))?;
        }
        let written = self.around(node, offset_bytes, data.bytes(), || {
            self.group.write_from(file, offset_bytes, data)
        });
        if let Err(error) = written {
            node.note_failed_write(end);
            return Err(error.into());
        }
        self.note_written(node, end, now);
        Ok(())
    }

    /// Notes that the contents up to `end` are new; the end of the file moves where it lies before.
    /// The caller holds the content, shared or alone.
    pub(crate) fn note_written(&self, node: &Arc<Node>, end: u64, now: Timestamp) {
        let noted = self.change_lagging(node, |state| {
            let grown = end > state.inode.size_bytes;
            if grown {
                state.inode.size_bytes = end;
            }
            state.inode.modified = now;
            state.inode.changed = now;
            state.touch(grown);
            Ok::<(), Infallible>(())
        });
        match noted {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// Whether nothing has to be done before a change. The caller holds the content.
    pub(crate) fn is_ready(&self, node: &Node, reach: Reach) -> bool {
        self.before(node, reach) == Before::Nothing
    }

    fn before(&self, node: &Node, reach: Reach) -> Before {
        let mut state = node.state.lock();
        let size_bytes = state.inode.size_bytes;
        let (end, free_end) = match reach {
            Reach::Bytes(end) => (end, size_bytes - size_bytes % BLOCK_SIZE_BYTES),
            Reach::Size(end) => (end, size_bytes),
        };
        // Of a file that is gone nothing can be cleaned.
        if end <= free_end || state.removed {
            return Before::Nothing;
        }
        if state.has_young_cut(&self.group) {
            return Before::Commit;
        }
        match end > size_bytes && !state.clean_beyond_end {
            true => Before::Clean,
            false => Before::Nothing,
        }
    }

    /// The content, held alone, when all has been done that is to be done before a change. Commits are
    /// made before it is held: they wait for every disk, and whoever reads the file need not.
    pub(crate) fn content_for<'a>(
        &self,
        node: &'a Node,
        file: &File,
        reach: Reach,
    ) -> FsResult<WriteGuard<'a, (), levels::Content>> {
        for _ in 0..READS_MOST {
            match self.before(node, reach) {
                Before::Nothing => {}
                Before::Clean => self.group.keep_what_fell_out()?,
                Before::Commit => self.commit_cut()?,
            }
            let content = node.content.write();
            match self.before(node, reach) {
                Before::Nothing => return Ok(content),
                Before::Clean => {
                    self.clean_beyond_end(node, file)?;
                    return Ok(content);
                }
                // Somebody cut it in between.
                Before::Commit => {}
            }
        }
        let content = node.content.write();
        if self.before(node, reach) == Before::Commit {
            self.commit_cut()?;
        }
        if self.before(node, reach) == Before::Clean {
            self.clean_beyond_end(node, file)?;
        }
        Ok(content)
    }

    /// Makes the cuts of all files durable. What a disk lost in a flush is told to whoever had written
    /// it, and the next commit does without: the caller has asked for nothing but the commit.
    fn commit_cut(&self) -> FsResult<()> {
        let Err(error) = self.group.make_durable() else {
            return Ok(());
        };
        self.group.check_serves()?;
        tracing::warn!(%error, "a cut is not durable yet, and is committed once more");
        Ok(self.group.make_durable()?)
    }

    /// Makes everything from the end of the file on read as zeros: what a failed write, a cut, a crash
    /// between data and size, or one in the middle of a truncation left there. The caller holds the
    /// content alone, and no cut of the file is younger than the last commit: a power cut would bring
    /// the former end back, with zeros below it.
    fn clean_beyond_end(&self, node: &Node, file: &File) -> FsResult<()> {
        let size_bytes = node.state.lock().inode.size_bytes;
        let block_end = size_bytes.next_multiple_of(BLOCK_SIZE_BYTES);
        // Of writes that failed half way, and of cuts that could not be kept.
        self.group.keep_what_fell_out()?;
        self.discard(node, block_end / BLOCK_SIZE_BYTES, u64::MAX);
        if block_end > size_bytes {
            let block = size_bytes / BLOCK_SIZE_BYTES;
            self.write_out(node, block, block + 1)?;
            let mut tail = vec![0; length_of(block_end - size_bytes)];
            self.group.read(file, size_bytes, &mut tail)?;
            if tail.iter().any(|byte| *byte != 0) {
                self.group.punch(file, size_bytes, block_end - size_bytes)?;
            }
        }
        // Reserved space beyond the end is kept where nothing was written to it.
        let stray = self.group.seek(file, block_end, FILE_SIZE_BYTES_MAX, false);
        if stray.is_some() {
            self.group.truncate(file, block_end)?;
        }
        node.state.lock().clean_beyond_end = true;
        Ok(())
    }
}
