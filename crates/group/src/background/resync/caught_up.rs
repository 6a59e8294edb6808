//! When a disk that came back counts as a copy again for those that hang.
//!
//! It lacks nothing any more that another one could give, and what was copied to it is flushed. That a
//! commit has made durable that no row names it, which an opening after a crash would believe, is not
//! waited for: where the disk that it caught up from ceases to answer just then, that commit goes on
//! without it by the deadline, and would wait for it else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_sync::level::DeepMutex;

use super::{Claim, Resync, claim_of};
use crate::background::Group;
use crate::core::dirty::RegionKey;
use crate::core::file::File;
use crate::error::GroupError;
use crate::incarnation::Life;
use crate::levels;

/// What disks lack and can be had nowhere, by region and disk. It may stay stale for ever.
struct Lost(BTreeMap<Claim, LostBlocks>);

enum LostBlocks {
    /// It is the only copy of its file.
    All,
    /// Blocks of the file that no disk gives.
    These(BTreeSet<u64>),
}

impl Lost {
    /// Whether these blocks of the file, which are stale on the disk, are among them.
    fn has(&self, disk: DiskNumber, (file, region): RegionKey, (first, end): (u64, u64)) -> bool {
        match self.0.get(&(file, region, disk)) {
            Some(LostBlocks::All) => true,
            Some(LostBlocks::These(blocks)) => (first..end).all(|block| blocks.contains(&block)),
            None => false,
        }
    }
}

/// The disks of a failure group that one thread flushes.
struct Flushing<'a> {
    resync: &'a DeepMutex<Resync, levels::Resync>,
    failure_group: u16,
}

impl<'a> Flushing<'a> {
    /// `None` where another thread does: one of these disks perhaps keeps silent.
    fn begin(resync: &'a DeepMutex<Resync, levels::Resync>, failure_group: u16) -> Option<Self> {
        let is_first = resync.lock().flushing.insert(failure_group);
        is_first.then_some(Self {
            resync,
            failure_group,
        })
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.resync.lock().flushing.remove(&self.failure_group);
    }
}

impl Group {
    /// See the module. To be called by whoever may be the next to wait for a disk.
    pub(crate) fn note_caught_up(&self) -> Result<(), GroupError> {
        let catching_up = self.membership.catching_up();
        // Without redundancy no disk is ever given up for another one.
        if catching_up.is_empty() || self.membership.redundancy() == Redundancy::External {
            return Ok(());
        }
        let lost = self.stale_and_lost(&catching_up);
        let mut by_failure_group: BTreeMap<u16, Vec<Life>> = BTreeMap::new();
        for disk in catching_up.iter().filter_map(|disk| self.disks.get(*disk)) {
            self.if_it_lacks_only(&lost, disk.number, || {
                let lives = by_failure_group.entry(disk.group_index).or_default();
                lives.push(disk.life());
            });
        }
        if by_failure_group.is_empty() {
            return Ok(());
        }
        // A kill before the flush finds the regions doubtful.
        self.name_only_stale_everywhere();
        let mut is_news = false;
        for (failure_group, lives) in by_failure_group {
            let Some(_flushing) = Flushing::begin(&self.resync, failure_group) else {
                continue;
            };
            if !self.flush_lives(&lives)? {
                continue;
            }
            for life in lives {
                self.if_it_lacks_only(&lost, life.disk, || {
                    if self.disks.is_current(life) {
                        self.membership.caught_up(life.disk);
                        is_news = true;
                    }
                });
            }
        }
        match is_news {
            true => self.commit_everything(),
            false => Ok(()),
        }
    }

    fn if_it_lacks_only(&self, lost: &Lost, disk: DiskNumber, done: impl FnOnce()) {
        let is_lost = |key, blocks| lost.has(disk, key, blocks);
        self.dirty.if_it_lacks_only(disk, &is_lost, done);
    }

    fn stale_and_lost(&self, disks: &[DiskNumber]) -> Lost {
        let mut resync = self.resync.lock();
        (resync.blocked).follow(self.membership.turns_count());
        let stale = self.dirty.stale_regions(&|disk| disks.contains(&disk));
        let lost = stale.into_iter().map(|stale| {
            let has_one_copy = |file: Arc<File>| !file.is_mirrored();
            let blocks = match self.file(stale.file).is_none_or(has_one_copy) {
                true => LostBlocks::All,
                false => LostBlocks::These(resync.blocked.lost(&stale)),
            };
            (claim_of(&stale), blocks)
        });
        Lost(lost.collect())
    }
}
