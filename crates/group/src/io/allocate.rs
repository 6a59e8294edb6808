//! Extents for ranges of files: all that are missing, or none.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_extent::map::{Extent, Map};

use crate::core::Core;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind};
use crate::quorum::Membership;

impl Core {
    /// Reserves space for the range; it reads as before (holes as zeros). All or nothing.
    ///
    /// # Errors
    /// [`GroupErrorKind::NoSpace`], and nothing was reserved.
    pub fn allocate(
        &self,
        file: &File,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), GroupError> {
        let end_bytes = offset_bytes
            .checked_add(length_bytes)
            .ok_or_else(GroupError::too_far)?;
        let first = offset_bytes / BLOCK_SIZE_BYTES;
        let end = end_bytes.div_ceil(BLOCK_SIZE_BYTES);
        if length_bytes == 0 {
            return Ok(());
        }
        self.check_alive(file)?;
        let mut search = SpaceSearch::default();
        loop {
            match self.allocate_blocks(file, first, end) {
                Err(error) if error.kind == GroupErrorKind::NoSpace => {
                    search.go_on(self, file, (first, end), error)?;
                }
                answer => return answer,
            }
        }
    }

    /// Gives every extent that holds blocks of `[first, end)` space, or none.
    pub(crate) fn allocate_blocks(
        &self,
        file: &File,
        first: u64,
        end: u64,
    ) -> Result<(), GroupError> {
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        let missing = missing_extents(&map, first, end)?;
        if missing.is_empty() {
            return Ok(());
        }
        if !self.has_room_for_extents(missing.len()) {
            return Err(Self::catalog_full());
        }
        let placement = self.placement();
        let reserve = self.reserve_for(file.striping);
        let mut taken: SmallVec<[(u32, Extent); 4]> = SmallVec::new();
        for index in missing {
            let extent = placement.allocate(
                &self.space,
                file.id,
                index,
                map.wanted(),
                map.schedule().class(index),
                &reserve,
            );
            match extent {
                Some(extent) => taken.push((index, extent)),
                None => {
                    for (_, extent) in &taken {
                        self.give_back(extent);
                    }
                    return Err(GroupError::no_space());
                }
            }
        }
        let wanted = map.wanted();
        let extents = taken.iter().map(|(_, extent)| extent);
        let mut short = extents
            .filter(|extent| extent.present().count() < wanted)
            .peekable();
        if short.peek().is_some() {
            let copies = short.flat_map(|extent| {
                let copies_count = extent.present().count();
                (extent.present()).map(move |copy| (copy.disk(), copies_count))
            });
            self.membership.note_short(copies);
        }
        for (index, extent) in &taken {
            map.insert(*index, extent);
        }
        self.note_dirty_map(file, &map);
        Ok(())
    }
}

/// Tells the membership of extents of the file that have fewer copies than they should.
pub(crate) fn note_missing_copies(membership: &Membership, file: &File) {
    let map = file.map.read();
    if !map.lacks_copies() {
        return;
    }
    let mut fewest: BTreeMap<DiskNumber, usize> = BTreeMap::new();
    map.for_each(0, u32::MAX, |_, extent| {
        let copies_count = extent.present().count();
        if copies_count < map.wanted() {
            for copy in extent.present() {
                let fewest = fewest.entry(copy.disk()).or_insert(copies_count);
                *fewest = copies_count.min(*fewest);
            }
        }
    });
    drop(map);
    membership.note_short(fewest.into_iter());
}

/// The search for space of one request that found none: what was freed becomes free, and the
/// catalog finds room. What is found is there for everybody, so others may have taken it before
/// the request gets its turn; it is refused only where there was nothing to be found.
#[derive(Debug, Default)]
pub(super) struct SpaceSearch {
    tries_count: usize,
}

impl SpaceSearch {
    /// So often others may be quicker.
    const TRIES_MAX: usize = 64;

    /// Looks for space for `[first, end)` of the file, where there may be more than there was.
    ///
    /// # Errors
    /// `refused`, where there is not; as [`Core::sync`].
    pub(super) fn go_on(
        &mut self,
        core: &Core,
        file: &File,
        (first, end): (u64, u64),
        refused: GroupError,
    ) -> Result<(), GroupError> {
        let count = missing_extents(&file.map.read(), first, end)?.len();
        let has_quarantine = core.space.has_quarantine();
        let lacks_room = !core.has_room_for_extents(count);
        // What was freed may have become free since the request was refused.
        let is_first = self.tries_count == 0;
        if self.tries_count == Self::TRIES_MAX || !(is_first || has_quarantine || lacks_room) {
            return Err(refused);
        }
        self.tries_count += 1;
        if has_quarantine {
            core.commit_everything()?;
        }
        core.make_room_for_extents(count)
    }
}

/// Numbers of the extents that hold blocks of the range and are holes.
fn missing_extents(map: &Map, first: u64, end: u64) -> Result<SmallVec<[u32; 4]>, GroupError> {
    let schedule = map.schedule();
    let (low, high) = schedule
        .extents(first, end)
        .ok_or_else(GroupError::too_far)?;
    let in_range =
        |index: &u32| map.extent(*index).is_none() && schedule.has_block_in(*index, first, end);
    Ok((low..high).filter(in_range).collect())
}

#[cfg(test)]
mod tests;
