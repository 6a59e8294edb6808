//! Making holes, finding holes, cutting off.
//!
//! Whole extents go into quarantine at once; what is left of an extent's data before the range
//! decides: the mark moves back where nothing follows, else the blocks are zeroed in place. Both
//! count as overwrites, and their regions are recorded before.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_extent::map::{Extent, Map};
use spindle_extent::plan::{self, Segment, Serving, TooFar};
use spindle_extent::space::Run;
use spindle_sync::atomic::Ordering;

use crate::core::Core;
use crate::core::dirty::{REGION_BLOCKS, Ranges};
use crate::core::file::File;
use crate::error::GroupError;
use crate::io::ZEROS;
use crate::io::write::{Attempt, Intent, Payload, lie_within};

/// What becomes of an extent of which a part is punched.
#[derive(Debug, Default)]
struct PunchPlan {
    /// Extents that become holes.
    removed: Vec<u32>,
    /// Marks that move back.
    marks: Vec<(u32, u32)>,
    /// File blocks `[first, end)` to be zeroed in place, all of them initialised.
    zeroed: Vec<(u64, u64)>,
}

impl PunchPlan {
    /// One block in each region in which a mark moves back: a crash may come back to the mark
    /// before, behind which later writes need no record of their own.
    fn marked_blocks(&self, map: &Map) -> Ranges {
        let envelopes = (self.marks.iter()).map(|(index, _)| map.schedule().envelope(*index));
        let regions: BTreeSet<u64> = envelopes
            .flat_map(|(from, to)| from / REGION_BLOCKS..to.div_ceil(REGION_BLOCKS))
            .collect();
        let blocks = regions.into_iter().map(|region| region * REGION_BLOCKS);
        blocks.map(|block| (block, block + 1)).collect()
    }
}

fn plan_punch(map: &Map, first: u64, end: u64) -> Result<PunchPlan, GroupError> {
    let schedule = map.schedule();
    let mut plan = PunchPlan::default();
    let low = schedule
        .extents(first, first + 1)
        .ok_or_else(GroupError::too_far)?
        .0;
    let high = schedule
        .extents(end - 1, end)
        .map_or(u32::MAX, |range| range.1);
    let mut partial = Vec::new();
    map.for_each(low, high, |index, extent| {
        let last = schedule.file_block(index, schedule.length_blocks(index) - 1);
        if first <= schedule.first_block(index) && last < end {
            plan.removed.push(index);
        } else {
            partial.push((index, *extent));
        }
    });
    for (index, extent) in partial {
        // The punched blocks of one extent are contiguous in it: a range of the file is.
        let mark = u64::from(extent.mark_blocks);
        let Some((from, to)) = schedule.inside_range(index, first, end) else {
            continue;
        };
        if from >= mark {
            continue;
        }
        if to >= mark {
            let from = u32::try_from(from).expect("an extent has at most 2^18 blocks");
            plan.marks.push((index, from));
            continue;
        }
        let mut inside = from;
        while inside < to {
            let block = schedule.file_block(index, inside);
            let place = schedule.locate(block).ok_or_else(GroupError::too_far)?;
            let blocks = place.contiguous_blocks.min(to - inside);
            plan.zeroed.push((block, block + blocks));
            inside += blocks;
        }
    }
    Ok(plan)
}

impl Core {
    /// Makes the range read as zeros; whole extents become holes, the rest is zeroed in place.
    ///
    /// # Errors
    /// As [`Core::write`]; a part of the range may read as zeros then.
    pub fn punch(
        &self,
        file: &File,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), GroupError> {
        let end_bytes = offset_bytes.saturating_add(length_bytes);
        if length_bytes > 0 {
            self.punch_range(file, offset_bytes, end_bytes)?;
        }
        Ok(())
    }

    /// As [`Core::punch`]; whether blocks were taken of an extent that stays.
    fn punch_range(
        &self,
        file: &File,
        offset_bytes: u64,
        end_bytes: u64,
    ) -> Result<bool, GroupError> {
        let first = offset_bytes.div_ceil(BLOCK_SIZE_BYTES);
        let end = if end_bytes == u64::MAX {
            u64::MAX / BLOCK_SIZE_BYTES
        } else {
            end_bytes / BLOCK_SIZE_BYTES
        };
        if first > end {
            self.zero_bytes(file, offset_bytes, end_bytes)?;
            return Ok(false);
        }
        if offset_bytes < first * BLOCK_SIZE_BYTES {
            self.zero_bytes(file, offset_bytes, first * BLOCK_SIZE_BYTES)?;
        }
        if end_bytes > end * BLOCK_SIZE_BYTES && end_bytes != u64::MAX {
            self.zero_bytes(file, end * BLOCK_SIZE_BYTES, end_bytes)?;
        }
        if first == end {
            return Ok(false);
        }
        self.punch_blocks(file, first, end)
    }

    /// Everything from `offset_bytes` on reads as zeros and is freed where whole extents lie in
    /// it. True where an extent stays of which blocks were taken: until that is durable a power cut
    /// gives them back, with whatever was written to them since.
    ///
    /// # Errors
    /// As [`Core::punch`].
    pub fn truncate(&self, file: &File, offset_bytes: u64) -> Result<bool, GroupError> {
        self.punch_range(file, offset_bytes, u64::MAX)
    }

    /// Zeroes bytes within one block, if that block holds data.
    fn zero_bytes(&self, file: &File, from: u64, to: u64) -> Result<(), GroupError> {
        let block = from / BLOCK_SIZE_BYTES;
        let mut holds_data = false;
        plan::segments::<TooFar>(&file.map.read(), block, block + 1, |segment| {
            holds_data = segment.initialised_blocks() > 0;
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        if !holds_data {
            return self.check_alive(file);
        }
        let length = usize::try_from(to - from).expect("within a block");
        self.write(file, from, &ZEROS[..length])
    }

    /// Whether a mark moved back.
    fn punch_blocks(&self, file: &File, first: u64, end: u64) -> Result<bool, GroupError> {
        'prepared: loop {
            self.check_alive(file)?;
            let change = self.change_inside();
            let (zeroed, marked) = {
                let map = file.map.read();
                let plan = plan_punch(&map, first, end)?;
                let marked = plan.marked_blocks(&map);
                (plan.zeroed, marked)
            };
            let mut intent = Intent {
                lock: (0, u64::MAX),
                overwrites: true,
                needs_durable_record: true,
                missed: SmallVec::new(),
                allocates: false,
                moves_marks: false,
                mirrored: file.is_mirrored(),
                gaps: Ranges::new(),
                set_back_count: 0,
            };
            let missed = self.missed_by_writes(file, &zeroed)?;
            // After that look: each extent has a copy that is none of those.
            self.refuse_without_copy(file, &zeroed)?;
            let (_marking, needed_of_marks) = self.announce(file, &marked, &intent);
            intent.missed = missed;
            let (zeroing, needed_of_zeros) = self.announce(file, &zeroed, &intent);
            drop(change);
            self.commit_through(needed_of_marks.max(needed_of_zeros))?;
            let _held = file.range_lock.exclusive(0, u64::MAX);
            self.check_alive(file)?;
            let (plan, now_marked) = {
                let map = file.map.read();
                intent.set_back_count = file.set_back_count.load(Ordering::Acquire);
                let plan = plan_punch(&map, first, end)?;
                let marked = plan.marked_blocks(&map);
                (plan, marked)
            };
            let missed = self.missed_by_writes(file, &plan.zeroed)?;
            if (file.is_mirrored() && !intent.mirrored)
                || !lie_within(&plan.zeroed, &zeroed)
                || !lie_within(&now_marked, &marked)
                || !missed.iter().all(|disk| intent.missed.contains(disk))
            {
                continue;
            }
            self.refuse_without_copy(file, &plan.zeroed)?;
            for (from, to) in &plan.zeroed {
                let blocks = (*from, *to);
                let attempt = self.write_blocks(file, blocks, Payload::Zeros, &intent, &zeroing)?;
                if attempt == Attempt::Outdated {
                    continue 'prepared;
                }
            }
            self.apply_punch(file, &plan);
            return Ok(!plan.marks.is_empty());
        }
    }

    /// Refuses where an extent of these ranges has no copy online. Before anything is announced: its
    /// copies miss nothing by what is not written, and the disks that miss something elsewhere would
    /// count as having missed it there too, until none of its copies counts.
    fn refuse_without_copy(&self, file: &File, ranges: &[(u64, u64)]) -> Result<(), GroupError> {
        let mut without = None;
        for (first, end) in ranges {
            let map = file.map.read();
            plan::segments::<TooFar>(&map, *first, *end, |segment| {
                // One that is gone since has become a hole.
                let is_away = |extent: Extent| {
                    let mut copies = extent.present();
                    !copies.any(|copy| self.disks.slot_of(copy).is_some())
                };
                if segment.extent.is_some_and(is_away) {
                    without = Some(segment.index);
                }
                Ok(())
            })
            .map_err(|TooFar| GroupError::too_far())?;
        }
        match without {
            None => Ok(()),
            Some(index) => Err(self.write_failed_everywhere(file, index)),
        }
    }

    /// Disks that are away and will miss what is written to these ranges. A disk that has no copy of
    /// one of them misses nothing by being named there.
    fn missed_by_writes(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
    ) -> Result<SmallVec<[DiskNumber; 2]>, GroupError> {
        let mut missed: SmallVec<[DiskNumber; 2]> = SmallVec::new();
        for (first, end) in ranges {
            missed.extend(self.intent(file, *first, *end)?.missed);
        }
        missed.sort_unstable();
        missed.dedup();
        Ok(missed)
    }

    fn apply_punch(&self, file: &File, plan: &PunchPlan) {
        if plan.removed.is_empty() && plan.marks.is_empty() {
            return;
        }
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        for index in &plan.removed {
            file.moving.cancel(*index);
            if let Some(extent) = map.remove(*index) {
                self.give_up_runs(file, &map, *index, &extent);
            }
        }
        for (index, mark) in &plan.marks {
            // An outage may have set it back further since.
            if map
                .extent(*index)
                .is_some_and(|extent| extent.mark_blocks > *mark)
            {
                map.set_mark(*index, *mark);
            }
        }
        self.note_dirty_map(file, &map);
    }

    /// The next offset >= `offset_bytes` with data (`hole` false) or in a hole (`hole` true),
    /// looking no further than `end_bytes`; `None` where there is none before it.
    pub fn seek(&self, file: &File, offset_bytes: u64, end_bytes: u64, hole: bool) -> Option<u64> {
        Self::seek_in(&file.map.read(), offset_bytes, end_bytes, hole, |segment| {
            segment.initialised_blocks()
        })
    }

    /// As [`Core::seek`], for what is shown to somebody. Until a loss is told all of each extent counts
    /// as data: whoever takes it for a hole would not read it, and never hear of the loss.
    pub fn seek_shown(
        &self,
        file: &File,
        offset_bytes: u64,
        end_bytes: u64,
        hole: bool,
    ) -> Option<u64> {
        let map = file.map.read();
        let hides_a_loss = file.hides_a_loss.load(Ordering::Acquire);
        Self::seek_in(
            &map,
            offset_bytes,
            end_bytes,
            hole,
            |segment| match segment.extent {
                Some(_) if hides_a_loss => segment.blocks,
                _ => segment.initialised_blocks(),
            },
        )
    }

    /// `data_of` says how many blocks at the beginning of a segment are data.
    fn seek_in(
        map: &Map,
        offset_bytes: u64,
        end_bytes: u64,
        hole: bool,
        data_of: impl Fn(&Segment) -> u64,
    ) -> Option<u64> {
        let first = offset_bytes / BLOCK_SIZE_BYTES;
        let mut end = end_bytes.div_ceil(BLOCK_SIZE_BYTES);
        if !hole {
            // Behind the last extent there is no data, however far the caller looks.
            let last = map.end_index().checked_sub(1)?;
            end = end.min(map.schedule().envelope(last).1);
        }
        let mut found: Option<u64> = None;
        // The walk ends by its error: `Found` or beyond what extents can reach.
        let walk = plan::segments::<Stop>(map, first, end, |segment| {
            let data = data_of(segment);
            let at = match (hole, data > 0) {
                (false, true) | (true, false) => segment.at_block,
                (true, true) if data < segment.blocks => segment.at_block + data,
                _ => return Ok(()),
            };
            found = Some(at);
            Err(Stop)
        });
        if walk.is_err() && found.is_none() && hole {
            found = Some(first);
        }
        let at = (found? * BLOCK_SIZE_BYTES).max(offset_bytes);
        (at < end_bytes).then_some(at)
    }

    /// Gives back an extent that no map ever named.
    pub(crate) fn give_back(&self, extent: &spindle_extent::map::Extent) {
        for copy in extent.present() {
            self.space.give_back(Run {
                disk: copy.disk(),
                start_block: copy.start_block(),
                class: copy.class(),
            });
        }
    }
}

/// Ends a walk over segments.
struct Stop;

impl From<TooFar> for Stop {
    fn from(_: TooFar) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests;
