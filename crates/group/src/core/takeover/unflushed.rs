//! What a killed process had written and no flush covered, where its disk does not take the first
//! flush of whoever takes over.
//!
//! The machine lives, and so do the disks' caches: one flush covers what the killed process wrote.
//! A disk that is gone, or fails that flush, has lost what only the killed process could name. So
//! every file of which an extent has no copy elsewhere that counts owes its next sync an error,
//! whether it had been written lately or not. A copy counts on a disk that is online and that no
//! durable row names as stale in the extent's blocks, or, where the row is open, in their region.
//! What grew since the last commit stays beyond the marks there: behind them may lie what an earlier
//! file left.
//!
//! A disk that the group cannot do without serves on, whatever its flush answered: where the
//! redundancy does not bear it beside the disks that are away or lack something, and where too few
//! votes or no replica of the catalog would be left without all that failed. Offline it would count
//! as stale wherever anything had been written lately, and so would the others: of what had long
//! been synced no copy would count any more, for good. Asked again it may answer well, be it by
//! this process or by a later one; so it counts as one that lost what no flush had covered, from its
//! first failure on until everybody concerned owes the error durably. The journal has its name until
//! then. Where another copy counts, it is stale beside that one, and where none does the copies are
//! compared; see `io/recovery.rs`.
//!
//! The same is asked of every flush until this process's own journal has begun: where the group
//! cannot do without all that fail one together, the takeover ends there, and the next process
//! finds all of them noted.
//!
//! A disk that went away and is back when the next process opens it, be it for a moment, may have
//! dropped the same. The journal has which appearance of each disk was served; of another one the
//! flush counts as failed.
//!
//! A disk counts as gone where it is offline and no row of this outage says since when: such a row is
//! written some seconds after a disk went, by a process that had noted what the disk lost. So a takeover that is
//! killed itself, when the group state already says that the disk is offline, leaves it as gone to
//! the next one; and a disk that was away long before makes no file owe anything.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{CatalogError, KeptJournal, Recovered, RecoveredExtent, Table};
use spindle_format::{BlockRun, DirtyRecord, ExtentCopy, Feature};

use crate::core::commit::owed;
use crate::core::dirty::REGION_BLOCKS;
use crate::core::disks::{Away, FailedFlush};
use crate::core::file::numbered_key;
use crate::core::takeover::Scene;
use crate::error::{GroupError, GroupErrorKind, Operation};

/// The exclusive end of the range of keys of dirty regions.
const KEYS_END: &[u8] = &[0xff; 13];
/// Rows that are read at once.
const ROWS_MOST: usize = 1024;

/// Disks that did not take the flush.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// They are not online any more.
    gone: BTreeSet<DiskNumber>,
    /// They took a later flush: what one before should have covered may be lost.
    doubtful: BTreeSet<DiskNumber>,
    /// Files of which marks stayed behind what was written.
    hides: BTreeSet<FileId>,
    /// The turns of disks when copies were counted.
    turns_count: u64,
    /// What the other disks have, once one did not take the flush.
    others: Option<Others>,
}

/// Which copies count beside those that may be lost.
#[derive(Debug)]
struct Others {
    online: BTreeSet<DiskNumber>,
    /// By file, region and disk the blocks of the region; none where nobody knows which.
    stale: BTreeMap<(FileId, u64, DiskNumber), Vec<BlockRun>>,
}

impl Others {
    fn look(scene: &Scene<'_>) -> Result<Self, GroupError> {
        let mut stale = BTreeMap::new();
        let mut from = Vec::new();
        // No scan: the newest of what the killed process left are not committed yet.
        loop {
            let rows = (scene.catalog).range(Table::DirtyRegion, &from, KEYS_END, ROWS_MOST)?;
            let Some((last, _)) = rows.last() else { break };
            from.clone_from(last);
            from.push(0);
            for (key, value) in rows {
                let (file, region) = numbered_key(&key)?;
                let record = DirtyRecord::parse(&value).map_err(|error| {
                    CatalogError::Damaged(format!("file {file}, dirty region {region}: {error}"))
                })?;
                let runs = record.stale.into_iter();
                stale.extend(runs.map(|stale| ((file, u64::from(region), stale.disk), stale.runs)));
            }
        }
        let online = scene.disks.iter().filter(|disk| disk.is_online());
        Ok(Self {
            online: online.map(|disk| disk.number).collect(),
            stale,
        })
    }

    /// Disks that are online and lack something.
    fn lacking(&self) -> impl Iterator<Item = DiskNumber> {
        let stale = self.stale.keys().map(|(_, _, disk)| *disk);
        stale.filter(|disk| self.online.contains(disk))
    }

    /// Whether the disk has the blocks `[first, end)` of the file, for all that is known.
    fn count(&self, disk: DiskNumber, file: FileId, (first, end): (u64, u64)) -> bool {
        let is_stale = |region: u64| {
            let start = region * REGION_BLOCKS;
            let touches = |run: &BlockRun| {
                let from = start + u64::from(run.first_block);
                from < end && first < from + u64::from(run.blocks)
            };
            (self.stale.get(&(file, region, disk)))
                .is_some_and(|runs| runs.is_empty() || runs.iter().any(touches))
        };
        let mut regions = first / REGION_BLOCKS..end.div_ceil(REGION_BLOCKS);
        self.online.contains(&disk) && !regions.any(is_stale)
    }
}

pub(in crate::core) fn cannot_be_flushed(flush: &FailedFlush) -> GroupError {
    let FailedFlush { life, error, .. } = flush;
    GroupError::new(
        GroupErrorKind::Io,
        format!("disk {} cannot be flushed", life.disk),
    )
    .during(Operation::Flush)
    .on_disk(life.disk)
    .because(error.clone())
}

impl Unflushed {
    /// Flushes every disk; the catalog has the rows that the killed process left. Those that
    /// cannot, or could not before, go offline where the group can do without all of them; else all
    /// of them serve on, and what they may have lost is owed.
    pub(super) fn flush(scene: &Scene<'_>, journal: &KeptJournal) -> Result<Self, GroupError> {
        let mut unflushed = Self::default();
        let flushes = &scene.disks.flushes;
        for disk in scene.disks.iter().filter(|disk| disk.is_online()) {
            flushes.assume_written(disk.life());
        }
        for (disk, appearance) in scene.membership.appearances() {
            if appearance.is_some_and(|appearance| journal.served_another(disk, appearance)) {
                journal.note_failed_flush(disk);
            }
        }
        let cover = || flushes.cover(scene.disks, &flushes.all_written(scene.disks));
        let mut failed = cover();
        let online = scene.disks.iter().filter(|disk| disk.is_online());
        // Whether they fail it now or did before: a disk that is asked again may forget it.
        let suspect: BTreeSet<DiskNumber> = (online.map(|disk| disk.number))
            .filter(|disk| journal.has_failed_flush(*disk))
            .collect();
        if suspect.is_empty() {
            // What no disk answered took nothing away, and made nothing durable either.
            return match failed.first() {
                None => Ok(unflushed),
                Some(flush) => Err(cannot_be_flushed(flush)),
            };
        }
        let reason = failed.first().map_or_else(
            || {
                "it failed a flush, or was away for a moment, when the process that served the \
                 group was killed or before"
                    .to_owned()
            },
            |flush| flush.error.to_string(),
        );
        let others = Others::look(scene)?;
        (scene.membership).begin_catching_up(others.lacking());
        let numbers: Vec<DiskNumber> = suspect.iter().copied().collect();
        if (scene.membership).take_offline_if_borne(&numbers, &reason)? {
            // Of those that stay none may be without a flush, whatever kept the first one from it.
            return match cover().first() {
                None => Ok(unflushed),
                Some(flush) => Err(cannot_be_flushed(flush)),
            };
        }
        unflushed.doubtful = suspect;
        // Noted in the journal: whatever becomes of this process, the next one knows of them.
        let failures = scene.membership.failed_flushes();
        for flush in failed.drain(..) {
            failures.forget(flush.life.disk, flush.failures_count);
        }
        let failed_again = cover();
        let Some(first) = failed_again.first() else {
            return Ok(unflushed);
        };
        let disks = failed_again.iter().map(|flush| flush.life.disk);
        let numbers: Vec<DiskNumber> = disks.collect();
        // One by one the first would go, and the next one would be asked for what both have.
        match (scene.membership).take_offline_if_borne(&numbers, &first.error.to_string())? {
            true => Ok(unflushed),
            false => Err(cannot_be_flushed(first)),
        }
    }

    /// Finds the disks that went unseen, after which the group has the feature by which files owe
    /// together. The rows are those that the killed process left.
    pub(super) fn find_gone(&mut self, scene: &Scene<'_>) -> Result<(), GroupError> {
        // From here on nobody does without others beside these.
        (scene.membership).begin_catching_up(self.doubtful.iter().copied());
        self.look_for_gone(scene)?;
        if !self.is_empty() {
            // Before anybody's copy is counted: a disk that cannot take it goes.
            (scene.membership).use_feature(Feature::OwedTogether)?;
            self.turns_count = scene.membership.turns_count();
            self.look_for_gone(scene)?;
        }
        Ok(())
    }

    /// Refuses where a disk went since copies were counted: what was owed by then may be too little.
    /// The next process finds the same in the journal, and that disk among those that are gone.
    pub(super) fn check_counted(&self, scene: &Scene<'_>) -> Result<(), GroupError> {
        if self.is_empty() || scene.membership.turns_count() == self.turns_count {
            return Ok(());
        }
        Err(GroupError::new(
            GroupErrorKind::Io,
            "a disk went away while it was noted what others had lost",
        ))
    }

    fn look_for_gone(&mut self, scene: &Scene<'_>) -> Result<(), GroupError> {
        for disk in scene.disks.iter() {
            let number = disk.number;
            if disk.holds_data
                && !disk.is_online()
                && let Some(offline_epoch) = scene.membership.offline_epoch(number)
                && Away::of_outage(scene.catalog, number, offline_epoch)?.is_none()
            {
                self.gone.insert(number);
            }
        }
        if !self.is_empty() {
            self.others = Some(Others::look(scene)?);
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.doubtful.is_empty()
    }

    /// The disk that has the only copy of the file's `blocks` that counts, where it did not take the
    /// flush.
    fn only_on(
        &self,
        file: FileId,
        blocks: (u64, u64),
        copies: impl Iterator<Item = ExtentCopy>,
    ) -> Option<DiskNumber> {
        let others = self.others.as_ref()?;
        let mut only = None;
        for copy in copies.filter(|copy| copy.is_present()) {
            let disk = copy.disk();
            if self.gone.contains(&disk) || self.doubtful.contains(&disk) {
                only = only.or(Some(disk));
            } else if others.count(disk, file, blocks) {
                return None;
            }
        }
        only
    }

    /// The mark of an extent that the journal has, of which `durable_blocks` are durable.
    pub(super) fn mark_of(
        &mut self,
        file: FileId,
        blocks: (u64, u64),
        extent: &RecoveredExtent,
        durable_blocks: u32,
    ) -> u32 {
        let only = self.only_on(file, blocks, copies_of(extent));
        if only.is_none() || extent.mark_blocks <= durable_blocks {
            return extent.mark_blocks;
        }
        self.hides.insert(file);
        durable_blocks
    }

    /// The disks with copies of an extent that may lack what was written to it, where another copy counts.
    pub(super) fn lacking(
        &self,
        file: FileId,
        blocks: (u64, u64),
        extent: &RecoveredExtent,
    ) -> Vec<DiskNumber> {
        if self.only_on(file, blocks, copies_of(extent)).is_some() {
            return Vec::new();
        }
        let copies = copies_of(extent).filter(|copy| copy.is_present());
        (copies.map(ExtentCopy::disk))
            .filter(|disk| self.gone.contains(disk) || self.doubtful.contains(disk))
            .collect()
    }

    /// The disk that lost what no flush had covered and serves on, where there is no other and none
    /// is gone.
    pub(super) fn only_doubtful(&self) -> Option<DiskNumber> {
        let mut doubtful = self.doubtful.iter().copied();
        let (only, None, true) = (doubtful.next()?, doubtful.next(), self.gone.is_empty()) else {
            return None;
        };
        Some(only)
    }

    /// Puts the rows of the files that owe an error.
    pub(super) fn owe(&self, scene: &Scene<'_>, recovered: &Recovered) -> Result<(), GroupError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut owing: BTreeMap<FileId, DiskNumber> = BTreeMap::new();
        for (id, file) in scene.files {
            let map = file.map.read();
            map.for_each(0, u32::MAX, |index, extent| {
                let blocks = map.schedule().envelope(index);
                if let Some(disk) = self.only_on(*id, blocks, extent.present()) {
                    owing.insert(*id, disk);
                }
            });
        }
        for ((id, index), extent) in &recovered.extents {
            // Of a file that the catalog does not have yet nothing is stale anywhere.
            let blocks = (scene.files.get(id))
                .map_or((0, 0), |file| file.map.read().schedule().envelope(*index));
            if let Some(disk) = self.only_on(*id, blocks, copies_of(extent)) {
                owing.insert(*id, disk);
            }
        }
        if owing.is_empty() {
            return Ok(());
        }
        let owing = owing.into_iter();
        owed::together::put(
            scene.catalog,
            owing.map(|(id, disk)| (id, disk, self.hides.contains(&id))),
        )
    }
}

fn copies_of(extent: &RecoveredExtent) -> impl Iterator<Item = ExtentCopy> {
    (extent.copies.iter()).map(|bits| ExtentCopy::from_bits(*bits))
}
