//! Reading ahead while a group is being opened: the catalog is then read whole, a page of 4 KiB
//! at a time, and a disk answers one long read far sooner than many short ones in a row.
//!
//! Bytes are kept as they came from one replica; whoever asks for a block judges it by its
//! checksum as if it had been read just then. Blocks that are written are forgotten first.

use std::collections::BTreeMap;

use spindle_device::AlignedBuffer;

use crate::region::map::{BLOCK_LENGTH, Map, index};

/// Blocks of one long read: 1 MiB.
const CHUNK_BLOCKS: u64 = 256;

/// What was read so far, by the first block of each stretch.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    chunks: BTreeMap<u64, AlignedBuffer>,
}

impl Ahead {
    /// Fills `out` with the blocks from `first`, which lie in one run, reading the stretch around
    /// them by `read` where it is not here; false where the disk could not.
    pub(super) fn read(
        &mut self,
        map: &Map,
        first: u64,
        out: &mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> bool {
        let run = &map.runs[map.run_of(first)];
        let run_end = run.first_block + run.blocks;
        let mut block = first;
        let mut rest = out;
        while !rest.is_empty() {
            let start = (block - block % CHUNK_BLOCKS).max(run.first_block);
            let end = (block - block % CHUNK_BLOCKS + CHUNK_BLOCKS).min(run_end);
            let chunk = match self.chunks.entry(start) {
                std::collections::btree_map::Entry::Occupied(chunk) => chunk.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let mut chunk = AlignedBuffer::zeroed(index(end - start) * BLOCK_LENGTH);
                    if !read(start, &mut chunk) {
                        // One bad block spoils a long read; the short one may still be good.
                        return read(block, rest);
                    }
                    place.insert(chunk)
                }
            };
            let from = index(block - start) * BLOCK_LENGTH;
            let length = rest.len().min(chunk.len() - from);
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(&chunk[from..from + length]);
            block += (length / BLOCK_LENGTH) as u64;
            rest = later;
        }
        true
    }

    /// These blocks are about to change.
    pub(super) fn forget(&mut self, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            let before = self.chunks.range(..=block).next_back();
            if let Some(start) = before.map(|(start, _)| *start) {
                self.chunks.remove(&start);
            }
        }
    }
}
