//! What a write brought to disks counts there: they lack it no more. A copy that stays on a bad place
//! of its disk counts where it gives back what was written.

use spindle_sync::atomic::Ordering;

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_extent::plan::{self, Segment, TooFar};
use spindle_format::ExtentCopy;
use spindle_sync::{Fault, is_put_back};

use crate::core::Core;
use crate::core::dirty::Ranges;
use crate::core::disks::Target;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind};
use crate::io::write::{Announced, Intent, Payload};
use crate::io::{ZEROS, bytes_of};

impl Core {
    /// These disks have taken a write, and what was zeroed before it: of that there may be no other copy
    /// that could give it to them. Copies on bad places are read back; an error where of a block no disk
    /// gives back what was written. The caller holds the range alone.
    #[cold]
    pub(super) fn count_taken(
        &self,
        file: &File,
        blocks: (u64, u64),
        payload: Payload<'_>,
        intent: &Intent,
        targets: &[Target],
        announced: &Announced<'_>,
    ) -> Result<(), GroupError> {
        let gaps: Ranges = match is_put_back(Fault::ZerosCountAsLacked) {
            true => Ranges::new(),
            // Of a fine extent the write has blocks in a gap.
            false => (intent.gaps.iter())
                .flat_map(|gap| without(*gap, &[blocks]))
                .collect(),
        };
        if !self.bad_places.has_left() {
            for range in gaps.iter().chain([&blocks]) {
                self.note_taken(file, *range, targets, intent);
            }
            return Ok(());
        }
        for target in targets {
            let mut lacking = Ranges::new();
            for gap in &gaps {
                lacking.extend(self.not_given_back(file, *gap, Payload::Zeros, *target));
            }
            lacking.extend(self.not_given_back(file, blocks, payload, *target));
            for range in gaps.iter().chain([&blocks]) {
                for part in without(*range, &lacking) {
                    self.note_taken(file, part, &[*target], intent);
                }
            }
            if !lacking.is_empty() {
                let _change = self.change_inside();
                self.leave_blocks(file, &lacking, target.life.disk);
            }
        }
        let mut refused = None;
        for range in gaps.iter().chain([&blocks]) {
            let (segment, lacking) = self.given_back_by_none(file, *range, targets)?;
            announced.came_to_nobody(&lacking);
            refused = refused.or(segment);
        }
        let Some(segment) = refused else {
            return Ok(());
        };
        let message = format!(
            "extent {} of file {} lies on a bad place, which gives back other bytes than were written, \
             and no other copy is online",
            segment.index, file.id
        );
        let error = GroupError::new(GroupErrorKind::Io, message).in_extent(segment.index);
        let offset_bytes = segment.at_block * BLOCK_SIZE_BYTES;
        Err(self.write_failed(file, error.at_offset(offset_bytes)))
    }

    fn note_taken(&self, file: &File, blocks: (u64, u64), targets: &[Target], intent: &Intent) {
        let _change = self.change_inside();
        // Under the lock of the rows: who finds them exact and is answered has a sync wait for that.
        let apply = &mut |edit| {
            let listed = self.catalog.apply(edit);
            (file.listed_through).fetch_max(listed.0, Ordering::AcqRel);
            listed
        };
        (self.dirty).took_write(file, blocks, targets, intent.mirrored, apply);
    }

    /// Reads back those of the blocks which the disk has on a bad place; those that it does not give
    /// back as they were written just now.
    fn not_given_back(
        &self,
        file: &File,
        range: (u64, u64),
        payload: Payload<'_>,
        target: Target,
    ) -> Ranges {
        let disk = target.life.disk;
        let mut lacking = Ranges::new();
        for left in self.bad_places.left_of(file.id, disk, range) {
            let mut parts: SmallVec<[(Segment, ExtentCopy); 2]> = SmallVec::new();
            // What extents cannot reach was not written.
            let _ = plan::segments::<TooFar>(&file.map.read(), left.0, left.1, |segment| {
                let mut copies = segment.extent.iter().flat_map(|extent| extent.copies());
                if let Some(copy) = copies.find(|copy| copy.is_present() && copy.disk() == disk) {
                    parts.push((*segment, *copy));
                }
                Ok(())
            });
            for (segment, copy) in parts {
                for number in 0..segment.blocks {
                    let block = segment.at_block + number;
                    let inside_bytes = (segment.inside_blocks + number) * BLOCK_SIZE_BYTES;
                    let is_given_back = match payload {
                        Payload::Data(data) => {
                            let from = bytes_of(block - range.0);
                            let good = &data.bytes()[from..from + bytes_of(1)];
                            self.read_back(copy, inside_bytes, good)
                        }
                        Payload::Zeros => self.read_back(copy, inside_bytes, &ZEROS[..bytes_of(1)]),
                    };
                    match is_given_back {
                        Ok(()) => {
                            (self.bad_places).note_good(file.id, disk, (block, block + 1));
                        }
                        Err(_) => lacking.push((block, block + 1)),
                    }
                }
            }
        }
        lacking
    }

    /// The blocks of the range that each of these disks has on a place which gives back other bytes,
    /// and where the first of them lie.
    fn given_back_by_none(
        &self,
        file: &File,
        (first, end): (u64, u64),
        targets: &[Target],
    ) -> Result<(Option<Segment>, Ranges), GroupError> {
        let mut found = None;
        let mut lacking = Ranges::new();
        plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            let took =
                |copy: &ExtentCopy| (targets.iter()).any(|target| target.life.disk == copy.disk());
            let mut copies: SmallVec<[ExtentCopy; 3]> = SmallVec::new();
            if let Some(extent) = segment.extent {
                copies.extend(extent.present().filter(took));
            }
            let is_left = |copy: &ExtentCopy, block| {
                (self.bad_places).is_left(file.id, copy.disk(), (block, block + 1))
            };
            for block in segment.at_block..segment.at_block + segment.blocks {
                if !copies.is_empty() && copies.iter().all(|copy| is_left(copy, block)) {
                    found.get_or_insert(*segment);
                    lacking.push((block, block + 1));
                }
            }
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        Ok((found, lacking))
    }
}

/// What remains of a range without these, which are ascending within it.
pub(super) fn without((first, end): (u64, u64), taken: &[(u64, u64)]) -> Ranges {
    let mut rest = Ranges::new();
    let mut from = first;
    for (begin, stop) in taken {
        let inside = (*begin).clamp(first, end)..(*stop).clamp(first, end);
        if inside.is_empty() {
            continue;
        }
        rest.push((from, inside.start));
        from = inside.end;
    }
    rest.push((from, end));
    rest.retain(|(first, end)| first < end);
    rest
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_remains_of_a_range_is_all_that_was_not_taken() {
        assert_eq!(without((10, 20), &[])[..], [(10, 20)]);
        assert_eq!(without((10, 20), &[(3, 10), (20, 21)])[..], [(10, 20)]);
        assert_eq!(
            without((10, 20), &[(10, 12), (14, 15)])[..],
            [(12, 14), (15, 20)]
        );
        assert!(without((10, 20), &[(0, 12), (12, 30)]).is_empty());
    }
}
