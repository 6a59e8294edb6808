//! Plans: a pure step from (map, range, state of the disks) to the list of disk requests.
//!
//! Nothing here does I/O or changes anything, so that whoever executes a plan (reads, writes,
//! recovery, the rebalance) agrees on where bytes lie.

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::DiskSlot;
use spindle_format::ExtentCopy;

use crate::map::{Extent, Map};

/// Which disks serve.
pub trait Serving {
    /// The slot of the disk on which this copy lies, if it is online.
    fn slot_of(&self, copy: ExtentCopy) -> Option<DiskSlot>;

    /// The copy of the extent to read, its number among the extent's and the slot of its disk; none
    /// where no copy is online. `avoid` has a bit for each copy that must not be taken.
    fn choose(&self, extent: &Extent, avoid: u8) -> Option<(usize, ExtentCopy, DiskSlot)>;
}

/// Which copies of a file lack what others have.
pub trait Staleness {
    /// A bit for each copy of the extent that is stale at this block of the file, and up to which
    /// block, `end` at most, that answer holds.
    fn stale_copies(&mut self, extent: &Extent, block: u64, end: u64) -> (u8, u64);
}

/// File blocks that are contiguous in one extent.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// The first block in the file.
    pub at_block: u64,
    /// How many.
    pub blocks: u64,
    /// The extent's number.
    pub index: u32,
    /// Blocks from the extent's start.
    pub inside_blocks: u64,
    /// The extent, `None` for a hole.
    pub extent: Option<Extent>,
}

impl Segment {
    /// How many of the blocks hold data, from the first on.
    pub fn initialised_blocks(&self) -> u64 {
        self.extent.map_or(0, |extent| {
            u64::from(extent.mark_blocks)
                .saturating_sub(self.inside_blocks)
                .min(self.blocks)
        })
    }
}

/// The range is beyond what extent numbers can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFar;

/// Why a read cannot be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadRefusal {
    /// See [`TooFar`].
    TooFar,
    /// No online copy of this extent.
    NoCopy(u32),
}

/// Calls `visit` for the segments of `[first, end)` in the order of the file.
pub fn segments<E: From<TooFar>>(
    map: &Map,
    first: u64,
    end: u64,
    mut visit: impl FnMut(&Segment) -> Result<(), E>,
) -> Result<(), E> {
    let mut block = first;
    while block < end {
        let place = map.schedule().locate(block).ok_or(TooFar)?;
        let blocks = place.contiguous_blocks.min(end - block);
        visit(&Segment {
            at_block: block,
            blocks,
            index: place.index,
            inside_blocks: place.inside_blocks,
            extent: map.extent(place.index),
        })?;
        block += blocks;
    }
    Ok(())
}

impl From<TooFar> for ReadRefusal {
    fn from(_: TooFar) -> Self {
        Self::TooFar
    }
}

/// Where the bytes of a piece come from or go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The disk's slot.
    pub slot: DiskSlot,
    /// Where on it.
    pub offset_bytes: u64,
}

/// A part of a read, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPiece {
    /// Its length.
    pub blocks: u64,
    /// Where it lies; `None` reads as zeros.
    pub from: Option<Spot>,
}

/// The pieces of a read.
pub type ReadPlan = SmallVec<[ReadPiece; 4]>;

/// Plans a read of `[first, end)`; pieces that follow one another on disk are merged. What
/// `stale` names is read from no copy that missed it.
pub fn read(
    map: &Map,
    disks: &impl Serving,
    mut stale: Option<impl Staleness>,
    first: u64,
    end: u64,
) -> Result<ReadPlan, ReadRefusal> {
    let mut plan = ReadPlan::new();
    segments::<ReadRefusal>(map, first, end, |segment| {
        let data = segment.initialised_blocks();
        let mut done = 0;
        while done < data {
            let extent = segment.extent.expect("only an extent holds data");
            let (block, data_end) = (segment.at_block + done, segment.at_block + data);
            let (avoid, until) = match &mut stale {
                Some(stale) => stale.stale_copies(&extent, block, data_end),
                None => (0, data_end),
            };
            let (_, copy, slot) = disks
                .choose(&extent, avoid)
                .ok_or(ReadRefusal::NoCopy(segment.index))?;
            let inside_blocks = segment.inside_blocks + done;
            push_read(
                &mut plan,
                until - block,
                Some(Spot {
                    slot,
                    offset_bytes: copy.start_bytes() + inside_blocks * BLOCK_SIZE_BYTES,
                }),
            );
            done = until - segment.at_block;
        }
        if data < segment.blocks {
            push_read(&mut plan, segment.blocks - data, None);
        }
        Ok(())
    })?;
    Ok(plan)
}

fn push_read(plan: &mut ReadPlan, blocks: u64, from: Option<Spot>) {
    if let Some(last) = plan.last_mut() {
        let follows = match (last.from, from) {
            (None, None) => true,
            (Some(before), Some(next)) => {
                before.slot == next.slot
                    && before.offset_bytes + last.blocks * BLOCK_SIZE_BYTES == next.offset_bytes
            }
            _ => false,
        };
        if follows {
            last.blocks += blocks;
            return;
        }
    }
    plan.push(ReadPiece { blocks, from });
}

/// A part of a write to one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePiece {
    /// The disk.
    pub disk: DiskNumber,
    /// Where on it.
    pub to: Spot,
    /// Its length.
    pub blocks: u64,
    /// Blocks from the start of the data; `None` writes zeros.
    pub from_blocks: Option<u64>,
}

/// A write: what goes where, and how far the extents hold data afterwards.
#[derive(Debug, Default)]
pub struct WritePlan {
    /// The requests, one for each piece and online copy.
    pub pieces: SmallVec<[WritePiece; 4]>,
    /// Extents whose marks move forward, and to where.
    pub marks: SmallVec<[(u32, u32); 4]>,
    /// An extent of which no copy is online.
    pub without_copy: Option<u32>,
    /// Disks that hold copies and are offline.
    pub missed: SmallVec<[DiskNumber; 2]>,
}

/// Plans a write of `[first, end)`, every extent of which is there. What lies between an
/// extent's mark and the first block written is zeroed in the same batch.
pub fn write(map: &Map, disks: &impl Serving, first: u64, end: u64) -> Result<WritePlan, TooFar> {
    let mut plan = WritePlan::default();
    segments::<TooFar>(map, first, end, |segment| {
        let extent = segment
            .extent
            .expect("a write is planned when its extents are there");
        let known = plan
            .marks
            .iter()
            .rposition(|(index, _)| *index == segment.index);
        let mark = u64::from(known.map_or(extent.mark_blocks, |at| plan.marks[at].1));
        if mark < segment.inside_blocks {
            let gap = segment.inside_blocks - mark;
            push_copies(&mut plan, disks, &extent, mark, gap, None);
        }
        let reached = push_copies(
            &mut plan,
            disks,
            &extent,
            segment.inside_blocks,
            segment.blocks,
            Some(segment.at_block - first),
        );
        if !reached {
            plan.without_copy = Some(segment.index);
        }
        let written_end = segment.inside_blocks + segment.blocks;
        if written_end > mark {
            let mark = u32::try_from(written_end).expect("an extent has at most 2^18 blocks");
            match known {
                Some(at) => plan.marks[at].1 = mark,
                None => plan.marks.push((segment.index, mark)),
            }
        }
        Ok(())
    })?;
    Ok(plan)
}

/// A piece for each online copy; whether there is one.
fn push_copies(
    plan: &mut WritePlan,
    disks: &impl Serving,
    extent: &Extent,
    inside_blocks: u64,
    blocks: u64,
    from_blocks: Option<u64>,
) -> bool {
    let mut reached = false;
    for copy in extent.present() {
        let Some(slot) = disks.slot_of(copy) else {
            if !plan.missed.contains(&copy.disk()) {
                plan.missed.push(copy.disk());
            }
            continue;
        };
        reached = true;
        let offset_bytes = copy.start_bytes() + inside_blocks * BLOCK_SIZE_BYTES;
        let recent = plan.pieces.len().saturating_sub(extent.copies().len());
        let follows = plan.pieces[recent..].iter_mut().find(|piece| {
            piece.to.slot == slot
                && piece.to.offset_bytes + piece.blocks * BLOCK_SIZE_BYTES == offset_bytes
                && piece.from_blocks.is_some()
                && piece.from_blocks.map(|from| from + piece.blocks) == from_blocks
        });
        if let Some(piece) = follows {
            piece.blocks += blocks;
            continue;
        }
        plan.pieces.push(WritePiece {
            disk: copy.disk(),
            to: Spot { slot, offset_bytes },
            blocks,
            from_blocks,
        });
    }
    reached
}
