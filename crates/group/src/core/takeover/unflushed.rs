//! What a killed process had written and no flush covered, where its disk does not take the first
//! flush of whoever takes over.
//!
//! The machine lives, and so do the disks' caches: one flush covers what the killed process wrote.
//! A disk that is gone, or fails that flush, has lost what only the killed process could name. So
//! every file with an extent that has its only copy there owes its next sync an error, whether it
//! had written lately or not. What grew since the last commit stays beyond the marks there: behind
//! them may lie what an earlier file left.
//!
//! A disk counts as gone where it is offline and no row says since when: such a row is written some
//! seconds after a disk went, by a process that had noted what the disk lost. So a takeover that is
//! killed itself, when the group state already says that the disk is offline, leaves it as gone to
//! the next one; and a disk that was away long before makes no file owe anything.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{Recovered, RecoveredExtent, Sequence, Table};
use spindle_format::{DiskStatus, ExtentCopy};

use crate::core::commit::owed;
use crate::core::disks::away_key;
use crate::core::takeover::Scene;
use crate::error::{GroupError, GroupErrorKind};
use crate::incarnation::Life;

/// Disks that did not take the flush.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// They are not online any more.
    gone: BTreeSet<DiskNumber>,
    /// They took a second flush: what the first should have covered may be lost.
    doubtful: BTreeSet<DiskNumber>,
    /// Files of which marks stayed behind what was written.
    hides: BTreeSet<FileId>,
}

impl Unflushed {
    /// Flushes every disk. One that cannot goes offline where others have what it holds.
    pub(super) fn flush(scene: &Scene<'_>, recovered: &Recovered) -> Result<Self, GroupError> {
        let mut unflushed = Self::default();
        let flushes = &scene.disks.flushes;
        for disk in scene.disks.iter().filter(|disk| disk.is_online()) {
            flushes.assume_written(disk.life());
        }
        let cover = || flushes.cover(scene.disks, &flushes.all_written(scene.disks));
        let failed = cover();
        let Some((_, reason)) = failed.first() else {
            return Ok(unflushed);
        };
        let reason = reason.to_string();
        let lives: Vec<Life> = failed.into_iter().map(|(life, _)| life).collect();
        let numbers: Vec<DiskNumber> = lives.iter().map(|life| life.disk).collect();
        if scene.membership.redundancy() != Redundancy::External {
            scene.membership.take_offline(&numbers, &reason)?;
            return Ok(unflushed);
        }
        unflushed.doubtful = numbers.into_iter().collect();
        // Durable before the disk is asked again, which may forget then that it had failed.
        unflushed.owe(scene, recovered)?;
        scene.catalog.commit(Sequence(u64::MAX))?;
        for life in lives {
            flushes.told(life);
        }
        match cover().first() {
            None => Ok(unflushed),
            Some((life, error)) => Err(GroupError::new(
                GroupErrorKind::Io,
                format!("disk {} cannot be flushed: {error}", life.disk),
            )
            .because(error.clone())),
        }
    }

    /// Finds the disks that went unseen. The rows are those that the killed process left.
    pub(super) fn find_gone(&mut self, scene: &Scene<'_>) -> Result<(), GroupError> {
        for disk in scene.disks.iter() {
            let number = disk.number;
            if disk.holds_data
                && !disk.is_online()
                && scene.membership.status(number) == Some(DiskStatus::Offline)
                && (scene.catalog.get(Table::Attribute, &away_key(number))?).is_none()
            {
                self.gone.insert(number);
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.doubtful.is_empty()
    }

    /// The disk that has the only copy, where it did not take the flush.
    fn only_on(&self, copies: impl Iterator<Item = ExtentCopy>) -> Option<DiskNumber> {
        let mut present = copies.filter(|copy| copy.is_present());
        let only = present.next()?.disk();
        let is_lost = self.gone.contains(&only) || self.doubtful.contains(&only);
        (is_lost && present.next().is_none()).then_some(only)
    }

    /// The mark of an extent that the journal has, of which `durable_blocks` are durable.
    pub(super) fn mark_of(
        &mut self,
        file: FileId,
        extent: &RecoveredExtent,
        durable_blocks: u32,
    ) -> u32 {
        let is_gone = (self.only_on(copies_of(extent))).is_some_and(|on| self.gone.contains(&on));
        if !is_gone || extent.mark_blocks <= durable_blocks {
            return extent.mark_blocks;
        }
        self.hides.insert(file);
        durable_blocks
    }

    /// Puts the rows of the files that owe an error.
    pub(super) fn owe(&self, scene: &Scene<'_>, recovered: &Recovered) -> Result<(), GroupError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut owing: BTreeMap<FileId, DiskNumber> = BTreeMap::new();
        for (id, file) in scene.files {
            file.map.read().for_each(0, u32::MAX, |_, extent| {
                if let Some(disk) = self.only_on(extent.present()) {
                    owing.insert(*id, disk);
                }
            });
        }
        for ((id, _), extent) in &recovered.extents {
            if let Some(disk) = self.only_on(copies_of(extent)) {
                owing.insert(*id, disk);
            }
        }
        for (id, disk) in owing {
            let what = match self.gone.contains(&disk) {
                true => "went away",
                false => "failed a flush",
            };
            let message = format!(
                "{} {what} when the process that served the group was killed, and there is no \
                 other copy: what was written to file {id} since its last sync may be lost",
                scene.disks.describe(disk)
            );
            owed::put(scene.catalog, id, &message, self.hides.contains(&id))?;
        }
        Ok(())
    }
}

fn copies_of(extent: &RecoveredExtent) -> impl Iterator<Item = ExtentCopy> {
    (extent.copies.iter()).map(|bits| ExtentCopy::from_bits(*bits))
}
