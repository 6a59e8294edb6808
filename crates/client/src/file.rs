//! A file of a client: a read of it comes from the disks where the map says so of all of it, and from the
//! mount where it does not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::AlignedBuffer;
use spindle_extent::schedule::Schedule;
use spindle_lease::map::{FileKey, Piece, ReadPlaces, Reason, SeenMap};

use crate::ServingDisks;

/// A file that was opened on the mount, and what the owner told of it. `M` is the descriptor there.
#[derive(Debug)]
pub struct ClientFile<M = File> {
    key: FileKey,
    schedule: Schedule,
    mount: M,
}

/// What a read did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Bytes that were read: fewer than were asked for at the end of the file.
    pub length_bytes: usize,
    /// Why the mount was asked for all of them: the first reason that there was; `None` where they came from
    /// the disks.
    pub detour: Option<Detour>,
}

/// Why the mount was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detour {
    /// The range does not begin and end with blocks.
    Unaligned,
    /// The map says no plain place. With [`Reason::Standing`] the owner is asked for the disks.
    Map(Reason),
    /// Every copy failed.
    Disks,
    /// The owner said something else of the blocks while the disk was asked.
    Changed,
}

impl<M: FileExt> ClientFile<M> {
    /// The file of this number and incarnation, whose blocks lie in its extents by `schedule`.
    #[must_use]
    pub const fn new(key: FileKey, schedule: Schedule, mount: M) -> Self {
        Self {
            key,
            schedule,
            mount,
        }
    }

    /// Fills the buffer with the file's bytes from `offset_bytes` on, as `map` says and from the `disks` that
    /// the owner told of; or all of it from the mount. Parts from both would be of two moments.
    ///
    /// # Errors
    /// What the mount answered.
    pub fn read_at(
        &self,
        by: (&SeenMap, &ServingDisks),
        buffer: &mut AlignedBuffer,
        offset_bytes: u64,
    ) -> io::Result<Answer> {
        let Err(detour) = self.read_directly(by, buffer, offset_bytes) else {
            return Ok(Answer {
                length_bytes: buffer.len(),
                detour: None,
            });
        };
        Ok(Answer {
            length_bytes: fill(&self.mount, buffer, offset_bytes)?,
            detour: Some(detour),
        })
    }

    /// Asks the disks. What the buffer holds where this fails is not said.
    fn read_directly(
        &self,
        (map, disks): (&SeenMap, &ServingDisks),
        buffer: &mut AlignedBuffer,
        offset_bytes: u64,
    ) -> Result<(), Detour> {
        let length_bytes = buffer.len();
        let whole = whole_blocks(offset_bytes, length_bytes as u64);
        let (first, end) = whole.ok_or(Detour::Unaligned)?;
        let mut asked: SmallVec<[ReadPlaces; 2]> = SmallVec::new();
        let mut done = 0;
        while done < length_bytes {
            let block = first + done as u64 / BLOCK_SIZE_BYTES;
            // Beyond what extents there can be.
            let piece = self
                .piece(block, end)
                .ok_or(Detour::Map(Reason::NotInMap))?;
            let range = done..done + bytes_of(piece.blocks);
            done = range.end;
            let places = map
                .places_to_read(&disks.known, &piece)
                .map_err(Detour::Map)?;
            let mut copies = places.copies().iter();
            if !copies.any(|copy| disks.read(*copy, &mut buffer[range.clone()]).is_ok()) {
                return Err(Detour::Disks);
            }
            asked.push(places);
        }
        // All of them at the end: a write of several pieces is in all or in none.
        match asked.iter().all(|places| map.stands(places)) {
            true => Ok(()),
            false => Err(Detour::Changed),
        }
    }

    /// The blocks from `block` on, up to `end` or as far as they lie together.
    fn piece(&self, block: u64, end: u64) -> Option<Piece> {
        let location = self.schedule.locate(block)?;
        Some(Piece {
            file: self.key,
            index: location.index,
            inside_blocks: location.inside_blocks,
            blocks: location.contiguous_blocks.min(end - block),
        })
    }
}

/// The first block of a range and the one behind its last, where it begins and ends with blocks.
fn whole_blocks(offset_bytes: u64, length_bytes: u64) -> Option<(u64, u64)> {
    let end_bytes = offset_bytes.checked_add(length_bytes)?;
    let is_whole = |at: &u64| at.is_multiple_of(BLOCK_SIZE_BYTES);
    let ends = [offset_bytes, end_bytes];
    (ends.iter().all(is_whole)).then_some((
        offset_bytes / BLOCK_SIZE_BYTES,
        end_bytes / BLOCK_SIZE_BYTES,
    ))
}

/// # Panics
/// For blocks that no buffer has.
fn bytes_of(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK_SIZE_BYTES).expect("blocks of a buffer")
}

/// Fills `bytes` from there, up to the end of the file; how many there were.
fn fill(mount: &impl FileExt, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match mount.read_at(&mut bytes[filled..], offset_bytes + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
