//! Where a byte of a file lies, by arithmetic alone: file block to extent number and back.
//!
//! The schedule is a pure function of (striping, AU size), so that a map is an array indexed by
//! extent number and nothing about offsets is stored:
//! - the head, the file's first AU: extents of 1, 1, 2, 4, ... blocks up to half an AU;
//! - the coarse body: extents of 1 AU, from extent number 20,000 on of 4, from 40,000 on of 16;
//! - the fine body: sets of 8 extents of 1 AU, filled in turn by chunks of 128 KiB.
//!
//! Invariants: every file block lies in exactly one extent; every block of an extent is one file
//! block; extents of the head and the coarse body follow one another in the file.

use spindle_base::{AuSize, BLOCK_SIZE_BYTES, Striping};

/// The first extent number of 4 AUs, and of 16 AUs.
pub const EXTENT_OF_4_AUS_FIRST: u32 = 20_000;
/// See [`EXTENT_OF_4_AUS_FIRST`].
pub const EXTENT_OF_16_AUS_FIRST: u32 = 40_000;

const FINE_CHUNK_BLOCKS: u64 = Striping::FINE_CHUNK_BYTES / BLOCK_SIZE_BYTES;
const FINE_COLUMNS: u64 = Striping::FINE_COLUMNS;

/// A place in a file's extents, and how far both sides run on together from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The extent's number.
    pub index: u32,
    /// Blocks from the extent's start.
    pub inside_blocks: u64,
    /// Blocks from here that are contiguous in the file and in the extent.
    pub contiguous_blocks: u64,
}

/// How bytes of one file go to its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    striping: Striping,
    au_class: u8,
}

impl Schedule {
    /// The schedule of files with `striping` in a group of `au_size`.
    #[must_use]
    pub const fn new(striping: Striping, au_size: AuSize) -> Self {
        Self {
            striping,
            au_class: au_size.class(),
        }
    }

    const fn au_blocks(self) -> u64 {
        1 << self.au_class
    }

    /// Extents in the head.
    const fn head_count(self) -> u32 {
        self.au_class as u32 + 1
    }

    /// Blocks before the extents of 4 AUs, and before those of 16.
    const fn coarse_limits(self) -> (u64, u64) {
        let ones = (EXTENT_OF_4_AUS_FIRST - self.head_count()) as u64;
        let fours = (EXTENT_OF_16_AUS_FIRST - EXTENT_OF_4_AUS_FIRST) as u64;
        let first = self.au_blocks() * (1 + ones);
        (first, first + fours * 4 * self.au_blocks())
    }

    /// The length class of extent `index`: it has 2^class blocks.
    #[must_use]
    pub const fn class(self, index: u32) -> u8 {
        if index < self.head_count() {
            #[expect(clippy::cast_possible_truncation, reason = "below the head's count")]
            return index.saturating_sub(1) as u8;
        }
        match self.striping {
            Striping::Fine => self.au_class,
            Striping::Coarse if index < EXTENT_OF_4_AUS_FIRST => self.au_class,
            Striping::Coarse if index < EXTENT_OF_16_AUS_FIRST => self.au_class + 2,
            Striping::Coarse => self.au_class + 4,
        }
    }

    /// The blocks of extent `index`.
    #[must_use]
    pub const fn length_blocks(self, index: u32) -> u64 {
        1 << self.class(index)
    }

    /// The file block that the first block of extent `index` holds.
    #[must_use]
    pub const fn first_block(self, index: u32) -> u64 {
        if index < self.head_count() {
            return if index == 0 { 0 } else { 1 << (index - 1) };
        }
        let body = (index - self.head_count()) as u64;
        match self.striping {
            Striping::Fine => {
                let set = body / FINE_COLUMNS;
                let column = body % FINE_COLUMNS;
                self.au_blocks() * (1 + set * FINE_COLUMNS) + column * FINE_CHUNK_BLOCKS
            }
            Striping::Coarse => {
                let (fours, sixteens) = self.coarse_limits();
                if index < EXTENT_OF_4_AUS_FIRST {
                    self.au_blocks() * (1 + body)
                } else if index < EXTENT_OF_16_AUS_FIRST {
                    fours + (index - EXTENT_OF_4_AUS_FIRST) as u64 * 4 * self.au_blocks()
                } else {
                    sixteens + (index - EXTENT_OF_16_AUS_FIRST) as u64 * 16 * self.au_blocks()
                }
            }
        }
    }

    /// The file block that block `inside_blocks` of extent `index` holds.
    #[must_use]
    pub const fn file_block(self, index: u32, inside_blocks: u64) -> u64 {
        let first = self.first_block(index);
        if index < self.head_count() || matches!(self.striping, Striping::Coarse) {
            return first + inside_blocks;
        }
        let turn = inside_blocks / FINE_CHUNK_BLOCKS;
        first + turn * FINE_COLUMNS * FINE_CHUNK_BLOCKS + inside_blocks % FINE_CHUNK_BLOCKS
    }

    /// Where file block `block` lies; `None` beyond what extent numbers can reach.
    #[must_use]
    pub fn locate(self, block: u64) -> Option<Location> {
        if block < self.au_blocks() {
            // Extent i of the head begins at block 2^(i-1), so the number is the bit length.
            let index = u64::BITS - block.leading_zeros();
            let inside_blocks = block - self.first_block(index);
            return Some(Location {
                index,
                inside_blocks,
                contiguous_blocks: self.length_blocks(index) - inside_blocks,
            });
        }
        match self.striping {
            Striping::Coarse => self.locate_coarse(block),
            Striping::Fine => self.locate_fine(block),
        }
    }

    fn locate_coarse(self, block: u64) -> Option<Location> {
        let (fours, sixteens) = self.coarse_limits();
        let (base_block, base_index, class) = if block < fours {
            (self.au_blocks(), self.head_count(), self.au_class)
        } else if block < sixteens {
            (fours, EXTENT_OF_4_AUS_FIRST, self.au_class + 2)
        } else {
            (sixteens, EXTENT_OF_16_AUS_FIRST, self.au_class + 4)
        };
        let body = block - base_block;
        let inside_blocks = body & ((1 << class) - 1);
        Some(Location {
            index: u32::try_from(body >> class).ok()?.checked_add(base_index)?,
            inside_blocks,
            contiguous_blocks: (1 << class) - inside_blocks,
        })
    }

    fn locate_fine(self, block: u64) -> Option<Location> {
        let body = block - self.au_blocks();
        let set_blocks = FINE_COLUMNS * self.au_blocks();
        let set = body / set_blocks;
        let chunk = body % set_blocks / FINE_CHUNK_BLOCKS;
        let in_chunk = body % FINE_CHUNK_BLOCKS;
        let extent = set * FINE_COLUMNS + chunk % FINE_COLUMNS;
        Some(Location {
            index: u32::try_from(extent).ok()?.checked_add(self.head_count())?,
            inside_blocks: chunk / FINE_COLUMNS * FINE_CHUNK_BLOCKS + in_chunk,
            contiguous_blocks: FINE_CHUNK_BLOCKS - in_chunk,
        })
    }

    /// The file blocks `[first, end)` that extent `index` may share with others of its set: its
    /// own range, or the whole set's under fine striping. Locking this range locks the extent.
    #[must_use]
    pub const fn envelope(self, index: u32) -> (u64, u64) {
        if index < self.head_count() || matches!(self.striping, Striping::Coarse) {
            let first = self.first_block(index);
            return (first, first + self.length_blocks(index));
        }
        let set = (index - self.head_count()) as u64 / FINE_COLUMNS;
        let first = self.au_blocks() * (1 + set * FINE_COLUMNS);
        (first, first + FINE_COLUMNS * self.au_blocks())
    }

    /// The part `[from, to)` of extent `index`, in its own blocks, that holds file blocks of
    /// `[first, end)`; `None` where none does. It is one part because both orders agree.
    #[must_use]
    pub fn inside_range(self, index: u32, first: u64, end: u64) -> Option<(u64, u64)> {
        let from = self.inside_at_least(index, first);
        let to = self.inside_at_least(index, end);
        (from < to).then_some((from, to))
    }

    /// The first block of extent `index` whose file block is not below `block`; the extent's
    /// length where there is none.
    fn inside_at_least(self, index: u32, block: u64) -> u64 {
        let first = self.first_block(index);
        let length = self.length_blocks(index);
        if block <= first {
            return 0;
        }
        let distance = block - first;
        if index < self.head_count() || matches!(self.striping, Striping::Coarse) {
            return distance.min(length);
        }
        let turn = distance / (FINE_COLUMNS * FINE_CHUNK_BLOCKS);
        let in_turn = distance % (FINE_COLUMNS * FINE_CHUNK_BLOCKS);
        (turn.saturating_mul(FINE_CHUNK_BLOCKS) + in_turn.min(FINE_CHUNK_BLOCKS)).min(length)
    }

    /// Whether extent `index` holds a file block of `[first, end)`.
    #[must_use]
    pub fn has_block_in(self, index: u32, first: u64, end: u64) -> bool {
        self.inside_range(index, first, end).is_some()
    }

    /// Extent numbers `[first, end)` that together hold the file blocks `[first_block,
    /// end_block)`; some of a fine set's may hold none of them.
    #[must_use]
    pub fn extents(self, first_block: u64, end_block: u64) -> Option<(u32, u32)> {
        if first_block >= end_block {
            return Some((0, 0));
        }
        let first = self.locate(first_block)?.index;
        let last = self.locate(end_block - 1)?.index;
        if matches!(self.striping, Striping::Coarse) {
            return Some((first, last + 1));
        }
        let whole_set = |index: u32| {
            (index >= self.head_count()).then(|| {
                #[expect(clippy::cast_possible_truncation, reason = "eight columns")]
                let columns = FINE_COLUMNS as u32;
                let start = index - (index - self.head_count()) % columns;
                (start, start.saturating_add(columns))
            })
        };
        Some((
            whole_set(first).map_or(first, |set| set.0),
            whole_set(last).map_or(last + 1, |set| set.1),
        ))
    }
}

#[cfg(test)]
mod tests;
