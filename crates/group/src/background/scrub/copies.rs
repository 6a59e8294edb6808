//! All copies of a stretch in memory: one lane for each copy, and which blocks of it were read.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, crc32c};
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::{self, Serving, TooFar};
use spindle_format::ExtentCopy;
use spindle_sync::{Fault, is_put_back};

use crate::background::Group;
use crate::background::scrub::ScrubScope;
use crate::background::scrub::judging::Versions;
use crate::background::scrub::left_out::{LeftOutReason, Missed};
use crate::core::file::File;
use crate::io::bytes_of;

/// The most that is read by one request.
const REQUEST_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE_BYTES;
/// Below it lie the short extents of a file's head, of which a page may have several.
const HEAD_BLOCKS: u64 = 16;

/// A part of one extent that holds data.
#[derive(Debug)]
pub struct Piece {
    pub at_block: u64,
    pub blocks: u64,
    pub index: u32,
    pub inside_blocks: u64,
    /// Copies that are read: lane, place, slot.
    pub copies: SmallVec<[(usize, ExtentCopy, DiskSlot); 3]>,
}

/// See the module.
#[derive(Debug)]
pub struct Copies {
    first: u64,
    pub pieces: Vec<Piece>,
    /// Copies that were not read because they are stale or their disk is offline.
    pub left_out: Vec<Missed>,
    lanes: Vec<AlignedBuffer>,
    /// For each block the piece it is in.
    cover: Vec<Option<usize>>,
    unreadable: BTreeSet<(u64, usize)>,
    /// How often disks had come or gone when it was asked which copies are stale.
    turns_count: u64,
}

impl Copies {
    /// How often disks had come or gone when it was asked which copies are stale: where one has
    /// gone since, what its copies say proves nothing.
    pub const fn turns_count(&self) -> u64 {
        self.turns_count
    }

    /// The piece that holds a block, if that block holds data that is looked at.
    pub fn piece_at(&self, block: u64) -> Option<&Piece> {
        let at = usize::try_from(block.checked_sub(self.first)?).ok()?;
        self.cover.get(at)?.map(|piece| &self.pieces[piece])
    }

    /// A block as a lane has it.
    pub fn block(&self, lane: usize, block: u64) -> &[u8] {
        self.run(lane, block, 1)
    }

    /// Blocks as a lane has them.
    pub fn run(&self, lane: usize, block: u64, blocks: u64) -> &[u8] {
        let start = bytes_of(block - self.first);
        &self.lanes[lane][start..start + bytes_of(blocks)]
    }

    /// Lanes that were to be read and could not be, at this block.
    pub fn unreadable_lanes(&self, block: u64) -> impl Iterator<Item = usize> + '_ {
        self.unreadable
            .range((block, 0)..(block + 1, 0))
            .map(|(_, lane)| *lane)
    }

    /// The versions of a block among the copies that were read.
    pub fn versions(&self, block: u64) -> Versions<'_> {
        let mut versions = Versions::new();
        for (lane, ..) in self.piece_at(block).into_iter().flat_map(|p| &p.copies) {
            if self.unreadable.contains(&(block, *lane)) {
                continue;
            }
            let bytes = self.block(*lane, block);
            match versions.iter_mut().find(|(other, _)| *other == bytes) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => versions.push((bytes, 1 << lane)),
            }
        }
        versions
    }

    /// Blocks that differ between copies or could not be read from one.
    pub fn doubtful_blocks(&self) -> BTreeSet<u64> {
        let mut doubtful: BTreeSet<u64> = self.unreadable.iter().map(|(block, _)| *block).collect();
        for piece in &self.pieces {
            let mut lanes = piece.copies.iter().map(|(lane, ..)| *lane);
            let Some(one) = lanes.next() else {
                continue;
            };
            for other in lanes {
                let whole = |lane| self.run(lane, piece.at_block, piece.blocks);
                if whole(one) == whole(other) {
                    continue;
                }
                doubtful.extend(
                    (piece.at_block..piece.at_block + piece.blocks)
                        .filter(|block| self.block(one, *block) != self.block(other, *block)),
                );
            }
        }
        doubtful
    }

    /// What is to be added to "every copy" of these blocks where one was left out.
    pub fn left_out_words(&self, first: u64, blocks: u64) -> &'static str {
        let mut left_out = self.left_out.iter();
        if left_out.any(|one| one.first < first + blocks && first < one.end) {
            " that could be looked at"
        } else {
            ""
        }
    }

    /// A sum over all that was read of these blocks, to tell whether they have changed.
    pub fn digest(&self, first: u64, blocks: u64) -> u32 {
        let mut sums = Vec::new();
        for block in first..first + blocks {
            for (bytes, lanes) in self.versions(block) {
                sums.extend_from_slice(&crc32c(bytes).to_le_bytes());
                sums.push(lanes);
            }
        }
        crc32c(&sums)
    }
}

impl Group {
    /// The first bytes of a file as each of its copies has them that can be read, where they
    /// differ. What is stale or offline has no say: another copy's bytes stand in its place. Empty
    /// where some of it lies on no copy that is there.
    pub fn read_each_copy(&self, file: &File, length_bytes: usize) -> Vec<Vec<u8>> {
        let end = (length_bytes as u64).div_ceil(BLOCK_SIZE_BYTES);
        let _held = file.range_lock.shared(0, end);
        let (copies, _) = self.read_copies(file, 0, end, &ScrubScope::Group);
        let is_readable = |lane: usize| !copies.unreadable.iter().any(|(_, other)| *other == lane);
        let version = |lane: usize| {
            let mut bytes = vec![0; bytes_of(end)];
            for piece in &copies.pieces {
                let mut lanes = piece.copies.iter().map(|(other, ..)| *other);
                let from = (lanes.clone().find(|other| *other == lane))
                    .or_else(|| lanes.find(|other| is_readable(*other)))?;
                let range = bytes_of(piece.at_block)..bytes_of(piece.at_block + piece.blocks);
                bytes[range.clone()].copy_from_slice(&copies.lanes[from][range]);
            }
            bytes.truncate(length_bytes);
            Some(bytes)
        };
        let mut versions: Vec<Vec<u8>> = (0..copies.lanes.len())
            .filter(|lane| is_readable(*lane))
            .filter_map(version)
            .collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Reads every copy of the blocks `[first, end)` that hold data, and counts the bytes; the
    /// caller holds their range.
    pub(crate) fn read_copies(
        &self,
        file: &File,
        first: u64,
        end: u64,
        scope: &ScrubScope,
    ) -> (Copies, u64) {
        let turns_count = self.membership.turns_count();
        let (pieces, left_out) = self.pieces(file, first, end, scope);
        let length = usize::try_from(end - first).expect("a stretch fits memory");
        let mut cover = vec![None; length];
        for (number, piece) in pieces.iter().enumerate() {
            let at = usize::try_from(piece.at_block - first).expect("within the stretch");
            let blocks = usize::try_from(piece.blocks).expect("within the stretch");
            cover[at..at + blocks].fill(Some(number));
        }
        let lanes = pieces.iter().flat_map(|piece| &piece.copies);
        let lanes_count = lanes.map(|(lane, ..)| lane + 1).max().unwrap_or(0);
        let mut copies = Copies {
            first,
            pieces,
            left_out,
            lanes: (0..lanes_count)
                .map(|_| AlignedBuffer::zeroed(bytes_of(end - first)))
                .collect(),
            cover,
            unreadable: BTreeSet::new(),
            turns_count,
        };
        let read_bytes = self.fill_lanes(&mut copies);
        (copies, read_bytes)
    }

    /// The parts of extents to read, cut where another set of copies can be read, and the copies
    /// that are left out.
    fn pieces(
        &self,
        file: &File,
        first: u64,
        end: u64,
        scope: &ScrubScope,
    ) -> (Vec<Piece>, Vec<Missed>) {
        let mut whole: Vec<(Piece, Extent)> = Vec::new();
        let map = file.map.read();
        // The last stretch may end beyond what extents can reach.
        let _ = plan::segments::<TooFar>(&map, first, end, |segment| {
            let blocks = segment.initialised_blocks();
            let Some(extent) = segment.extent.filter(|_| blocks > 0) else {
                return Ok(());
            };
            let is_wanted = match scope {
                ScrubScope::Disks(disks) => {
                    segment.at_block < HEAD_BLOCKS
                        || extent.present().any(|copy| disks.contains(&copy.disk()))
                }
                _ => true,
            };
            if is_wanted {
                let piece = Piece {
                    at_block: segment.at_block,
                    blocks,
                    index: segment.index,
                    inside_blocks: segment.inside_blocks,
                    copies: SmallVec::new(),
                };
                whole.push((piece, extent));
            }
            Ok(())
        });
        drop(map);
        if is_put_back(Fault::ScrubSkipsStretch) {
            let stale = self.dirty.stale_disks(file, first, end);
            let pieces = whole.into_iter();
            let pieces = pieces.map(|(piece, extent)| self.uncut_piece(piece, &extent, &stale));
            return (pieces.collect(), Vec::new());
        }
        let mut pieces = Vec::new();
        let mut left_out = Vec::new();
        for (piece, extent) in &whole {
            self.cut_piece(file, piece, extent, &mut pieces, &mut left_out);
        }
        (pieces, left_out)
    }

    /// The mistake that can be put back: one stale block leaves its disk out of all of it.
    fn uncut_piece(&self, piece: Piece, extent: &Extent, stale: &[DiskNumber]) -> Piece {
        let copies = extent.copies().iter().enumerate();
        let copies = copies
            .filter(|(_, copy)| copy.is_present() && !stale.contains(&copy.disk()))
            .filter_map(|(lane, copy)| Some((lane, *copy, self.disks.slot_of(*copy)?)))
            .collect();
        Piece { copies, ..piece }
    }

    /// Cuts one extent's piece at the borders of what is stale on a disk.
    fn cut_piece(
        &self,
        file: &File,
        whole: &Piece,
        extent: &Extent,
        pieces: &mut Vec<Piece>,
        left_out: &mut Vec<Missed>,
    ) {
        let end = whole.at_block + whole.blocks;
        let present = || {
            let copies = extent.copies().iter().enumerate();
            copies.filter(|(_, copy)| copy.is_present())
        };
        let is_stale = |disk, from, to| self.dirty.is_stale(file, disk, from, to);
        // Nearly always nothing is, and the piece stays whole.
        let doubtful: SmallVec<[usize; 3]> = present()
            .filter(|(_, copy)| is_stale(copy.disk(), whole.at_block, end))
            .map(|(lane, _)| lane)
            .collect();
        let stale_at = |block: u64| -> u8 {
            let stale = present().filter(|(lane, copy)| {
                doubtful.contains(lane) && is_stale(copy.disk(), block, block + 1)
            });
            stale.fold(0, |bits, (lane, _)| bits | 1 << lane)
        };
        let mut at = whole.at_block;
        while at < end {
            let stale = if doubtful.is_empty() { 0 } else { stale_at(at) };
            let mut to = end;
            if !doubtful.is_empty() {
                to = (at + 1..end)
                    .find(|block| stale_at(*block) != stale)
                    .unwrap_or(end);
            }
            let mut piece = Piece {
                at_block: at,
                blocks: to - at,
                index: whole.index,
                inside_blocks: whole.inside_blocks + (at - whole.at_block),
                copies: SmallVec::new(),
            };
            for (lane, copy) in present() {
                let reason = match self.disks.slot_of(*copy) {
                    None => LeftOutReason::Offline,
                    Some(_) if stale >> lane & 1 != 0 => LeftOutReason::Stale,
                    Some(slot) => {
                        piece.copies.push((lane, *copy, slot));
                        continue;
                    }
                };
                left_out.push(Missed {
                    file: file.id,
                    first: at,
                    end: to,
                    disk: copy.disk(),
                    reason,
                });
            }
            pieces.push(piece);
            at = to;
        }
    }

    /// One batch over all disks; what fails of it is asked for again block by block.
    fn fill_lanes(&self, copies: &mut Copies) -> u64 {
        let first = copies.first;
        let mut batch: Vec<Request<'_>> = Vec::new();
        let mut asked: Vec<(usize, u64, u64)> = Vec::new();
        let mut read_bytes = 0;
        for (lane, buffer) in copies.lanes.iter_mut().enumerate() {
            let mut rest = &mut buffer[..];
            let mut at_block = first;
            for piece in &copies.pieces {
                let Some((_, copy, slot)) = piece.copies.iter().find(|(l, ..)| *l == lane) else {
                    continue;
                };
                let mut done = 0;
                while done < piece.blocks {
                    let blocks = (piece.blocks - done).min(REQUEST_BLOCKS);
                    let block = piece.at_block + done;
                    let (_, after) = rest.split_at_mut(bytes_of(block - at_block));
                    let (memory, after) = after.split_at_mut(bytes_of(blocks));
                    rest = after;
                    at_block = block + blocks;
                    let inside_bytes = (piece.inside_blocks + done) * BLOCK_SIZE_BYTES;
                    let at = copy.start_bytes() + inside_bytes;
                    batch.push(Request::new(*slot, at, Work::Read(memory)));
                    asked.push((lane, block, blocks));
                    read_bytes += blocks * BLOCK_SIZE_BYTES;
                    done += blocks;
                }
            }
        }
        self.background.count_own(batch.len() as u64);
        self.disks.read(&mut batch);
        let failed: Vec<(usize, u64, u64)> = batch
            .into_iter()
            .zip(asked)
            .filter(|(request, _)| request.result.is_err())
            .map(|(_, asked)| asked)
            .collect();
        for (lane, block, blocks) in failed {
            self.read_block_by_block(copies, lane, block, blocks);
        }
        read_bytes
    }

    fn read_block_by_block(&self, copies: &mut Copies, lane: usize, first: u64, blocks: u64) {
        for block in first..first + blocks {
            let place = copies.piece_at(block).and_then(|piece| {
                let inside_blocks = piece.inside_blocks + (block - piece.at_block);
                let (_, copy, slot) = piece.copies.iter().find(|(l, ..)| *l == lane)?;
                Some((*slot, copy.start_bytes() + inside_blocks * BLOCK_SIZE_BYTES))
            });
            let Some((slot, at)) = place else {
                continue;
            };
            let start = bytes_of(block - copies.first);
            let memory = &mut copies.lanes[lane][start..start + bytes_of(1)];
            let mut batch = [Request::new(slot, at, Work::Read(memory))];
            self.disks.read(&mut batch);
            let [request] = batch;
            if request.result.is_err() {
                copies.unreadable.insert((block, lane));
            }
        }
    }
}
