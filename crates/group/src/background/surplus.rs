//! CONVERT: copies that files should not have any more are given back.
//!
//! No byte is moved. An extent whose range is locked keeps as many good copies as it should have,
//! and the runs of the others go into quarantine; its map follows in the same change. A crash
//! before the commit finds all copies, and the opening finds the surplus and goes on. What is
//! given back lies where disks are fullest, so that the rest stays even; the rebalance that the
//! change of redundancy asks for does what is left of that.
//!
//! A file whose surplus is gone in memory keeps the width of its map until a commit has made that
//! durable. A file of one copy announces no overwrite: before the commit a crash would come back to
//! both copies, of which only one has what was written, and nothing would name the region.
//!
//! A copy that alone has some of an extent's blocks is not given back, be it on a disk that is away:
//! it has what the others lack. Nor does one on a disk that was given up stand for another. Such an
//! extent keeps all its copies until those that stay have everything; its file is looked at again
//! from time to time, and what comes after CONVERT goes on meanwhile. So the only copy of an extent
//! is never one that lacks something, which an opening after a power cut relies on
//! (`io/recovery.rs`).
//!
//! Missing copies, of files that should have more, are made by RESTORE.

use spindle_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};
use spindle_extent::map::Map;
use spindle_extent::plan::{self, Serving, Staleness, TooFar};
use spindle_format::{DiskStatus, ExtentCopy};
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

/// Files that wait for one commit together, before their maps become narrower.
const NARROWED_MOST: usize = 64;

/// How long a file is left alone of which every copy is needed.
const LOOK_AGAIN_MS: u64 = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub struct SurplusPass {
    files: LeafMutex<Files>,
    /// Held by whoever works.
    turn: Mutex<Turn, levels::SurplusTurn>,
    done_bytes: AtomicU64,
}

/// Files that may have surplus copies.
#[derive(Debug, Default)]
struct Files {
    due: BTreeSet<FileId>,
    /// Of these some extents need all their copies.
    waiting: BTreeSet<FileId>,
    /// These have no surplus copies in memory any more; on the disks perhaps still.
    given_back: BTreeSet<FileId>,
    /// When those are due again.
    look_again_ms: u64,
}

/// What is done next.
enum Next {
    /// This file gives copies back.
    File(FileId),
    /// What was given back becomes durable, and maps narrower.
    Commit,
}

impl Files {
    fn all(&self) -> BTreeSet<FileId> {
        let sets = [&self.due, &self.waiting, &self.given_back];
        sets.into_iter().flatten().copied().collect()
    }

    fn next(&mut self, now_ms: u64) -> Option<Next> {
        if now_ms >= self.look_again_ms {
            self.due.append(&mut self.waiting);
        }
        match self.due.first() {
            Some(file) if self.given_back.len() < NARROWED_MOST => Some(Next::File(*file)),
            None if self.given_back.is_empty() => None,
            _ => Some(Next::Commit),
        }
    }

    fn set_given_back(&mut self, file: FileId) {
        self.due.remove(&file);
        self.given_back.insert(file);
    }

    fn leave_alone(&mut self, file: FileId, now_ms: u64) {
        self.due.remove(&file);
        if self.waiting.is_empty() {
            self.look_again_ms = now_ms + LOOK_AGAIN_MS;
        }
        self.waiting.insert(file);
    }
}

/// How far the first file has come.
#[derive(Debug, Default)]
struct Turn {
    next_index: u32,
    /// An extent before that needs all its copies.
    has_passed_over: bool,
}

/// What became of the surplus of an extent.
enum Surplus {
    /// So many blocks were given back.
    GivenBack(u64),
    /// Something changed meanwhile, or what stays could not be flushed: its turn comes again.
    Waits,
    /// No copy can be missed.
    Needed,
}

impl SurplusPass {
    /// These files may have surplus copies.
    pub fn add(&self, files: impl Iterator<Item = FileId>) {
        // Whoever gives them looks at their maps.
        let files: Vec<FileId> = files.collect();
        self.files.lock().due.extend(files);
    }

    /// Some extents of the file give copies back; its turn ends when all were looked at.
    fn give_back(
        &self,
        group: &Group,
        turn: &mut Turn,
        id: FileId,
        now_ms: u64,
    ) -> Result<PassStep, GroupError> {
        let Some(file) = group.file(id) else {
            *turn = Turn::default();
            self.files.lock().set_given_back(id);
            return Ok(PassStep::Did(0));
        };
        for _ in 0..EXTENTS_MOST {
            let found = next_surplus(&file, turn.next_index);
            let Some(index) = found else {
                // What lies before may have become surplus meanwhile: then it begins anew.
                let has_passed_over = std::mem::take(turn).has_passed_over;
                if next_surplus(&file, 0).is_none() {
                    self.files.lock().set_given_back(id);
                } else if has_passed_over {
                    self.files.lock().leave_alone(id, now_ms);
                }
                break;
            };
            turn.next_index = index + 1;
            match group.give_surplus_back(&file, index)? {
                Surplus::GivenBack(blocks) => {
                    let bytes = blocks * BLOCK_SIZE_BYTES;
                    self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Surplus::Needed => turn.has_passed_over = true,
                Surplus::Waits => return Ok(PassStep::Wait),
            }
        }
        Ok(PassStep::Did(0))
    }

    /// What these files gave back is durable, then their maps become narrower.
    fn commit(&self, group: &Group) -> Result<PassStep, GroupError> {
        let given_back = self.files.lock().given_back.clone();
        group.commit_everything()?;
        for id in given_back {
            let is_over = (group.file(id)).is_none_or(|file| group.forget_surplus(&file));
            let mut files = self.files.lock();
            files.given_back.remove(&id);
            if !is_over {
                files.due.insert(id);
            }
        }
        if self.files.lock().all().is_empty() {
            self.done_bytes.store(0, Ordering::Relaxed);
        }
        Ok(PassStep::Did(0))
    }
}

impl BackgroundPass for SurplusPass {
    fn work(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        if self.files.lock().next(now_ms).is_none() {
            return Ok(PassStep::Nothing);
        }
        let Some(mut turn) = self.turn.try_lock() else {
            return Ok(PassStep::Wait);
        };
        let next = self.files.lock().next(now_ms);
        match next {
            None => Ok(PassStep::Nothing),
            Some(Next::File(id)) => self.give_back(group, &mut turn, id, now_ms),
            Some(Next::Commit) => self.commit(group),
        }
    }

    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView> {
        let (files, waiting_count) = {
            let files = self.files.lock();
            (files.all(), files.waiting.len())
        };
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
            error: (waiting_count > 0).then(|| {
                format!(
                    "{waiting_count} files keep more copies than they should have: of some extents \
                     the copies that would stay lack blocks, or lie on disks that are away"
                )
            }),
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

/// Ends a walk: of some blocks no copy counts, or they lie beyond what extents can reach.
struct Lacks;

impl From<TooFar> for Lacks {
    fn from(_: TooFar) -> Self {
        Self
    }
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

    /// The map becomes narrower; that no extent has surplus copies must be durable. False where the
    /// file has some again.
    fn forget_surplus(&self, file: &File) -> bool {
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        let is_over = map.forget_surplus();
        file.follow(&map);
        is_over
    }

    /// An extent keeps as many good copies as it should have.
    fn give_surplus_back(&self, file: &Arc<File>, index: u32) -> Result<Surplus, GroupError> {
        let (first, end) = file.map.read().schedule().envelope(index);
        let _alone = file.range_lock.exclusive(first, end);
        let (wanted, found) = {
            let map = file.map.read();
            (map.wanted(), map.extent(index))
        };
        let Some(extent) = found else {
            return Ok(Surplus::GivenBack(0));
        };
        let mut lives = self.disks.lives(extent.present());
        // What a disk lost before it was looked at is stale there from here on.
        self.notice_offline();
        let kept = self.copies_to_keep(file, &extent, wanted, (first, end));
        // Of a copy that serves, blocks would be given up that can be read, for one that is away.
        let serves = |copy: &ExtentCopy| self.disks.slot_of(*copy).is_some();
        if !kept.iter().all(serves)
            && extent
                .present()
                .any(|copy| !kept.contains(&copy) && serves(&copy))
        {
            return Ok(Surplus::Needed);
        }
        // What stays has perhaps just been copied from what goes.
        if !self.have_everything(file, &file.map.read(), index, &kept) {
            return Ok(Surplus::Needed);
        }
        lives.retain(|life| {
            life.incarnation.serves() && kept.iter().any(|copy| copy.disk() == life.disk)
        });
        if !self.flush_lives(&lives)? {
            return Ok(Surplus::Waits);
        }
        let change = self.change_inside();
        let mut map = file.map.write(&change);
        let is_as_found = map.wanted() == wanted
            && map.extent(index).as_ref() == Some(&extent)
            && lives.iter().all(|life| self.disks.is_current(*life));
        if file.is_removed() || !is_as_found {
            return Ok(Surplus::Waits);
        }
        if !self.have_everything(file, &map, index, &kept) {
            return Ok(Surplus::Needed);
        }
        map.set_copies(index, &kept);
        self.note_dirty_map(file, &map);
        let mut blocks = 0;
        for copy in extent.present().filter(|copy| !kept.contains(copy)) {
            blocks += copy.blocks();
            self.give_up_run(file, &map, index, copy);
        }
        drop(map);
        self.name_only_stale(file);
        // Who copies one of them elsewhere finds no record, or another copy, and gives up.
        file.moving.cancel(index);
        Ok(Surplus::GivenBack(blocks))
    }

    /// The copies that stay: good ones before others, of those that serve the ones that are good after
    /// a crash too, then those on disks that are least full. Those on disks that were given up come
    /// last.
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
                    _ if self.is_absent(copy.disk()) => 4,
                    _ if self.disks.is_set_back(copy.disk()) => 3,
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

    /// Whether of each block of the extent that holds data one of these copies has it as it is now;
    /// those on disks that were given up are read never again, and what was set back has nothing.
    fn have_everything(&self, file: &File, map: &Map, index: u32, kept: &[ExtentCopy]) -> bool {
        let Some(extent) = map.extent(index) else {
            return true;
        };
        let counts = |copy: &ExtentCopy| {
            let disk = copy.disk();
            copy.is_present()
                && kept.contains(copy)
                && !self.is_absent(disk)
                && !self.disks.is_set_back(disk)
        };
        let (first, end) = map.schedule().envelope(index);
        let mut look = self.dirty.look(file);
        let walk = plan::segments(map, first, end, |segment| {
            let mut at = segment.at_block;
            let end = match segment.index == index {
                true => at + segment.initialised_blocks(),
                false => at,
            };
            while at < end {
                let (stale, until) = look.stale_copies(&extent, at, end);
                let mut copies = extent.copies().iter().enumerate();
                if !copies.any(|(number, copy)| counts(copy) && stale >> number & 1 == 0) {
                    return Err(Lacks);
                }
                at = until;
            }
            Ok(())
        });
        walk.is_ok()
    }

    /// Whether what the disk holds is read never again.
    pub(crate) fn is_absent(&self, disk: DiskNumber) -> bool {
        matches!(
            self.membership.status(disk),
            None | Some(DiskStatus::Absent)
        )
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
