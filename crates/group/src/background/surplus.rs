//! CONVERT: copies that files should not have any more are given back.
//!
//! No byte is moved. An extent whose range is locked keeps as many good copies as it should have,
//! and the runs of the others go into quarantine; its map follows in the same change. A crash
//! before the commit finds all copies, and the opening finds the surplus and goes on. What is
//! given back lies where disks are fullest, so that the rest stays even; the rebalance that the
//! change of redundancy asks for does what is left of that.
//!
//! Missing copies, of files that should have more, are made by RESTORE.

use spindle_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};
use spindle_extent::plan::Serving;
use spindle_extent::space::Run;
use spindle_format::ExtentCopy;
use spindle_sync::level::{LeafMutex, Mutex};

use crate::background::Group;
use crate::background::operations::{OperationState, OperationView, Pass};
use crate::background::power::Power;
use crate::background::{BackgroundPass, PassStep};
use crate::core::disks::DiskState;
use crate::core::file::File;
use crate::error::GroupError;
use crate::levels;

/// Extents that give their surplus back in one unit.
const EXTENTS_MOST: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct SurplusPass {
    files: LeafMutex<BTreeSet<FileId>>,
    /// Held by whoever works: the next extent of the first file.
    turn: Mutex<u32, levels::SurplusTurn>,
    done_bytes: AtomicU64,
}

impl SurplusPass {
    /// These files may have surplus copies.
    pub fn add(&self, files: impl Iterator<Item = FileId>) {
        // Whoever gives them looks at their maps.
        let files: Vec<FileId> = files.collect();
        self.files.lock().extend(files);
    }

    fn end(&self, file: FileId) {
        let mut files = self.files.lock();
        files.remove(&file);
        if files.is_empty() {
            self.done_bytes.store(0, Ordering::Relaxed);
        }
    }
}

impl BackgroundPass for SurplusPass {
    fn work(&self, group: &Group, _now_ms: u64) -> Result<PassStep, GroupError> {
        if self.files.lock().is_empty() {
            return Ok(PassStep::Nothing);
        }
        let Some(mut turn) = self.turn.try_lock() else {
            return Ok(PassStep::Wait);
        };
        let Some(id) = self.files.lock().first().copied() else {
            return Ok(PassStep::Nothing);
        };
        let Some(file) = group.file(id) else {
            *turn = 0;
            self.end(id);
            return Ok(PassStep::Did(0));
        };
        for _ in 0..EXTENTS_MOST {
            let found = next_surplus(&file, *turn);
            let Some(index) = found else {
                // What lies before may have become surplus meanwhile: then it begins anew.
                *turn = 0;
                if group.forget_surplus(&file) {
                    self.end(id);
                }
                break;
            };
            *turn = index + 1;
            let Some(blocks) = group.give_surplus_back(&file, index)? else {
                return Ok(PassStep::Wait);
            };
            self.done_bytes
                .fetch_add(blocks * BLOCK_SIZE_BYTES, Ordering::Relaxed);
        }
        Ok(PassStep::Did(0))
    }

    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView> {
        let files: Vec<FileId> = self.files.lock().iter().copied().collect();
        if files.is_empty() {
            return None;
        }
        let left_blocks: u64 = files.iter().map(|file| group.surplus_blocks(*file)).sum();
        let power = group.power();
        Some(OperationView {
            pass: Pass::Convert,
            state: match power {
                Power::PAUSED => OperationState::Paused,
                _ if is_first => OperationState::Run,
                _ => OperationState::Wait,
            },
            power,
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            left_bytes: left_blocks * BLOCK_SIZE_BYTES,
            rate_bytes_per_s: 0,
            left_s: None,
            error: None,
        })
    }
}

/// The first extent from number `from` on that has more copies than it should.
fn next_surplus(file: &File, from: u32) -> Option<u32> {
    let map = file.map.read();
    let mut found = None;
    let mut at = Some(from);
    while let (Some(first), None) = (at, found) {
        at = map.walk(first, u32::MAX, |index, extent| {
            let surplus = &extent.copies()[map.wanted()..];
            let is_found = surplus.iter().any(|copy| copy.is_present());
            if is_found {
                found = Some(index);
            }
            !is_found
        });
    }
    found
}

impl Group {
    fn surplus_blocks(&self, file: FileId) -> u64 {
        let Some(file) = self.file(file) else {
            return 0;
        };
        let map = file.map.read();
        let mut blocks = 0;
        map.for_each(0, u32::MAX, |index, extent| {
            let surplus = extent.present().count().saturating_sub(map.wanted());
            blocks += map.schedule().length_blocks(index) * surplus as u64;
        });
        blocks
    }

    /// False where the file still has surplus copies.
    fn forget_surplus(&self, file: &File) -> bool {
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        let is_over = map.forget_surplus();
        file.follow(&map);
        is_over
    }

    /// An extent keeps as many good copies as it should have; the blocks given back. `None` where
    /// something changed meanwhile, or what stays could not be flushed: its turn comes again.
    fn give_surplus_back(&self, file: &Arc<File>, index: u32) -> Result<Option<u64>, GroupError> {
        let (first, end) = file.map.read().schedule().envelope(index);
        let _alone = file.range_lock.exclusive(first, end);
        let (wanted, found) = {
            let map = file.map.read();
            (map.wanted(), map.extent(index))
        };
        let Some(extent) = found else {
            return Ok(Some(0));
        };
        let kept = self.copies_to_keep(file, &extent, wanted, (first, end));
        // What stays has perhaps just been copied from what goes.
        let mut lives = self.disks.lives(kept.iter().copied());
        lives.retain(|life| life.incarnation.serves());
        if !self.flush_lives(&lives)? {
            return Ok(None);
        }
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        let is_as_found = map.wanted() == wanted
            && map.extent(index).as_ref() == Some(&extent)
            && lives.iter().all(|life| self.disks.is_current(*life));
        if file.is_removed() || !is_as_found {
            return Ok(None);
        }
        map.set_copies(index, &kept);
        self.note_dirty_map(file, &map);
        drop(map);
        self.name_only_stale(file);
        // Who copies one of them elsewhere finds no record, or another copy, and gives up.
        file.moving.cancel(index);
        let mut blocks = 0;
        for copy in extent.present().filter(|copy| !kept.contains(copy)) {
            blocks += copy.blocks();
            self.space.quarantine(Run {
                disk: copy.disk(),
                start_block: copy.start_block(),
                class: copy.class(),
            });
        }
        Ok(Some(blocks))
    }

    /// The copies that stay: good ones before others, of those that serve the ones that are good after
    /// a crash too, then those on disks that are least full.
    pub(crate) fn copies_to_keep(
        &self,
        file: &File,
        extent: &spindle_extent::map::Extent,
        wanted: usize,
        (first, end): (u64, u64),
    ) -> SmallVec<[ExtentCopy; 3]> {
        let mut ranked: SmallVec<[(u8, bool, u64, ExtentCopy); 3]> = extent
            .present()
            .map(|copy| {
                let disk = self.disks.get(copy.disk());
                let rank = match disk {
                    _ if self.dirty.is_stale(file, copy.disk(), first, end) => 3,
                    _ if self.disks.slot_of(copy).is_none() => 2,
                    _ if !self.has_regions(file, copy, (first, end)) => 1,
                    _ => 0,
                };
                let leaves = !disk.is_some_and(DiskState::may_receive);
                (rank, leaves, self.fullness(copy.disk()), copy)
            })
            .collect();
        ranked.sort_by_key(|(rank, leaves, fullness, _)| (*rank, *leaves, *fullness));
        ranked.truncate(wanted);
        let kept = |copy: &ExtentCopy| ranked.iter().any(|(.., other)| other == copy);
        extent.present().filter(kept).collect()
    }

    /// Millionths of the disk that are in use, quarantine not counted.
    fn fullness(&self, disk: DiskNumber) -> u64 {
        let used = self.space.used_blocks(disk);
        let used = used.saturating_sub(self.space.quarantined_blocks(disk));
        let total = (self.disks.get(disk)).map_or(1, |disk| disk.total_bytes() / BLOCK_SIZE_BYTES);
        used.saturating_mul(1_000_000) / total.max(1)
    }
}

#[cfg(test)]
mod tests;
