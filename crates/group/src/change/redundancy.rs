//! Files, and the group itself, get another redundancy while they are used.
//!
//! A change is one commit: the record of each file, and for the group what it is to become. From
//! then on new extents have the copies that are wanted; those that lack are missing, and RESTORE
//! makes them; surplus ones are given back by CONVERT. Both are found again by whoever opens the
//! group after a crash. At no moment has an extent fewer copies than it had and should have.
//!
//! The group state names the group's redundancy, which says how many failure groups may be away
//! at an opening. So it is lowered as soon as the commit is durable, and raised only when no copy
//! is missing any more ([`Group::finish_redundancy`]). Votes and replicas of the catalog follow
//! from the failure groups alone, and are not touched.

use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, FileId, Redundancy, count_text};
use spindle_catalog::{Catalog, Edit, Table, file_key};
use spindle_extent::capacity::{self, DiskCapacity};
use spindle_format::FileRecord;
use spindle_sync::level::Unshown;

use crate::background::Group;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::io::allocate::note_missing_copies;

/// The attribute that holds the redundancy which the group is to have.
const WANTED_KEY: &[u8] = b"redundancy";

/// What the catalog says the group is to become.
pub(crate) fn wanted(catalog: &Catalog) -> Result<Option<Redundancy>, GroupError> {
    let name = catalog.get(Table::Attribute, WANTED_KEY)?;
    let all = [Redundancy::External, Redundancy::Normal, Redundancy::High];
    Ok(name.and_then(|name| {
        (all.into_iter()).find(|redundancy| redundancy.to_string().as_bytes() == name)
    }))
}

fn refusal(message: String) -> GroupError {
    GroupError::new(GroupErrorKind::NotEnough, message)
}

impl Group {
    /// The redundancy of files whose template says "as the group": what the group is to have,
    /// from the moment on that this was asked for.
    pub fn redundancy(&self) -> Redundancy {
        let wanted = *self.wanted_redundancy.lock();
        wanted.unwrap_or_else(|| self.membership.redundancy())
    }

    /// Gives files other redundancies, durably; how many files it changes. The copies follow as
    /// background work.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotEnough`] where failure groups or room are missing, with what is;
    /// [`GroupErrorKind::Invalid`] for copies in a group without redundancy. Nothing has changed
    /// then.
    pub fn convert_files(&self, files: &[(FileId, Redundancy)]) -> Result<u64, GroupError> {
        let _one = self.disk_changes.lock(Unshown);
        self.check_fence()?;
        let changes = self.changed_files(files);
        if changes.is_empty() {
            return Ok(0);
        }
        self.judge_redundancy(&changes, self.redundancy())?;
        let changed = self.enter_redundancies(&changes, None);
        self.rebalance()?;
        Ok(changed)
    }

    /// Refuses a redundancy that no file of the group can have now.
    ///
    /// # Errors
    /// As [`Group::convert_files`].
    pub fn check_redundancy(&self, redundancy: Redundancy) -> Result<(), GroupError> {
        self.check_fence()?;
        self.judge_groups(redundancy, self.redundancy())
    }

    /// Gives the group another redundancy, and these files theirs, durably; how many files it
    /// changes. The copies follow as background work, and where there are to be more the group
    /// has its new redundancy when all are there.
    ///
    /// # Errors
    /// As [`Group::convert_files`], and [`GroupErrorKind::Invalid`] where disks are offline and
    /// no redundancy is to be left.
    pub fn convert_group(
        &self,
        redundancy: Redundancy,
        files: &[(FileId, Redundancy)],
    ) -> Result<u64, GroupError> {
        let _one = self.disk_changes.lock(Unshown);
        let changes = self.judged_conversion(redundancy, files)?;
        let changed = self.enter_redundancies(&changes, Some(redundancy));
        self.rebalance()?;
        if redundancy <= self.membership.redundancy() {
            self.finish_redundancy()?;
        }
        Ok(changed)
    }

    /// How many files [`Group::convert_group`] would change; nothing is changed.
    ///
    /// # Errors
    /// As there.
    pub fn estimate_conversion(
        &self,
        redundancy: Redundancy,
        files: &[(FileId, Redundancy)],
    ) -> Result<u64, GroupError> {
        Ok(self.judged_conversion(redundancy, files)?.len() as u64)
    }

    /// The files that the group's conversion changes, where it can be.
    fn judged_conversion(
        &self,
        redundancy: Redundancy,
        files: &[(FileId, Redundancy)],
    ) -> Result<Vec<(Arc<File>, Redundancy)>, GroupError> {
        self.check_fence()?;
        let mut changes = self.changed_files(files);
        if redundancy == Redundancy::External {
            // Those without a name too.
            let all = self.all_files();
            let all: Vec<_> = all.iter().map(|file| (file.id, redundancy)).collect();
            changes = self.changed_files(&all);
        }
        if redundancy == Redundancy::External
            && let Some(away) = self.offline_now().first()
        {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                format!(
                    "{} is offline, and without redundancy what it holds could not be read: \
                     bring it back or drop it first",
                    self.disks.describe(*away)
                ),
            ));
        }
        self.judge_redundancy(&changes, redundancy)?;
        Ok(changes)
    }

    /// Missing copies were made: where none is missing of what the group is to have by now, it has its
    /// raised redundancy.
    ///
    /// # Errors
    /// As [`Self::finish_redundancy`].
    pub(crate) fn finish_raised_redundancy(&self) -> Result<(), GroupError> {
        let _one = self.disk_changes.lock(Unshown);
        let is_wanted = self.wanted_redundancy.lock().is_some();
        // Another may be wanted since the run counted, and lack all of its copies.
        if is_wanted && self.lost_copies_count() == 0 {
            self.finish_redundancy()?;
        }
        Ok(())
    }

    /// The group has the redundancy that it is to have: no copy is missing, or there are to be
    /// fewer. Does nothing where nothing else is wanted. The caller lets nobody else change that.
    ///
    /// # Errors
    /// Where too few voters take the state; the next call goes on.
    fn finish_redundancy(&self) -> Result<(), GroupError> {
        let Some(redundancy) = *self.wanted_redundancy.lock() else {
            return Ok(());
        };
        self.membership.set_redundancy(redundancy)?;
        let mut edit = Edit::default();
        edit.delete(Table::Attribute, WANTED_KEY.to_vec());
        self.commit_edit(edit)?;
        *self.wanted_redundancy.lock() = None;
        let message = format!("the group has {redundancy} redundancy now");
        self.event(Event::new(EventKind::RedundancyChanged, message));
        Ok(())
    }

    /// Those of the files that are there and have another redundancy.
    fn changed_files(&self, files: &[(FileId, Redundancy)]) -> Vec<(Arc<File>, Redundancy)> {
        (files.iter())
            .filter_map(|(id, redundancy)| Some((self.file(*id)?, *redundancy)))
            .filter(|(file, redundancy)| file.layout().redundancy != *redundancy)
            .collect()
    }

    /// All records in one change.
    fn enter_redundancies(
        &self,
        changes: &[(Arc<File>, Redundancy)],
        of_group: Option<Redundancy>,
    ) -> u64 {
        let mut changed = 0;
        {
            let change = self.change();
            for (file, redundancy) in changes {
                let mut map = file.map.write(&change);
                // A removal marks the file first and then waits for the map.
                if file.is_removed() {
                    continue;
                }
                map.set_wanted(redundancy.copies());
                file.follow(&map);
                let record = FileRecord {
                    redundancy: *redundancy,
                    striping: file.striping,
                    rows_vary: true,
                };
                let mut edit = Edit::default();
                edit.put(Table::File, file_key(file.id), record.encode());
                self.apply(&change, edit);
                changed += 1;
            }
            if let Some(redundancy) = of_group {
                let mut edit = Edit::default();
                let name = redundancy.to_string().into_bytes();
                edit.put(Table::Attribute, WANTED_KEY.to_vec(), name);
                self.apply(&change, edit);
                *self.wanted_redundancy.lock() = Some(redundancy);
            }
        }
        for (file, _) in changes {
            note_missing_copies(&self.membership, file);
        }
        let with_surplus = changes
            .iter()
            .filter(|(file, _)| file.map.read().has_surplus());
        (self.background).give_back(with_surplus.map(|(file, _)| file.id));
        self.tell_redundancies(changes, of_group);
        changed
    }

    fn tell_redundancies(&self, changes: &[(Arc<File>, Redundancy)], of_group: Option<Redundancy>) {
        let event = match (of_group, changes) {
            (Some(redundancy), _) => Event::new(
                EventKind::RedundancyChanged,
                format!(
                    "the group is to have {redundancy} redundancy; {} files change with it",
                    changes.len()
                ),
            ),
            (None, [(file, redundancy)]) => Event::new(
                EventKind::RedundancyChanged,
                format!("file {} is to have {redundancy} redundancy", file.id),
            )
            .file(file.id),
            (None, _) => Event::new(
                EventKind::RedundancyChanged,
                format!("{} files are to have another redundancy", changes.len()),
            ),
        };
        self.event(event);
    }

    /// Refuses what the disks cannot hold in different failure groups, or only so that a failure
    /// could not be repaired any more.
    fn judge_redundancy(
        &self,
        changes: &[(Arc<File>, Redundancy)],
        of_group: Redundancy,
    ) -> Result<(), GroupError> {
        let most = (changes.iter().map(|(_, redundancy)| *redundancy))
            .max()
            .unwrap_or(Redundancy::External)
            .max(of_group);
        let is_raised = of_group > self.redundancy()
            || (changes.iter()).any(|(file, wanted)| *wanted > file.layout().redundancy);
        if !is_raised {
            return Ok(());
        }
        self.judge_groups(most, of_group)?;
        self.judge_room(changes, of_group)
    }

    /// Refuses more copies than there are failure groups for.
    fn judge_groups(&self, most: Redundancy, of_group: Redundancy) -> Result<(), GroupError> {
        let group = self.membership.name();
        if of_group == Redundancy::External && most > of_group {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                format!(
                    "group {group} has no redundancy, so that all of its files have one copy; \
                     `spindle group convert` gives it one"
                ),
            ));
        }
        let mut able: Vec<u32> = (self.capacities(None).iter())
            .filter(|disk| disk.online)
            .map(|disk| disk.failure_group)
            .collect();
        able.sort_unstable();
        able.dedup();
        if able.len() < most.copies() {
            return Err(refusal(format!(
                "{most} redundancy keeps {} copies in different failure groups, and group {group} \
                 has disks that are online in {} only; add disks in {} first",
                most.copies(),
                able.len(),
                count_text((most.copies() - able.len()) as u64, "more failure group")
            )));
        }
        Ok(())
    }

    fn judge_room(
        &self,
        changes: &[(Arc<File>, Redundancy)],
        of_group: Redundancy,
    ) -> Result<(), GroupError> {
        let mut lacking = self.lacking_after(changes);
        let added: u64 = (changes.iter())
            .map(|(file, wanted)| {
                let map = file.map.read();
                let more = wanted.copies().saturating_sub(map.wanted());
                map.allocated_blocks() * more as u64
            })
            .sum();
        if lacking == 0 {
            let after = less_free(&self.capacities(None), added);
            let usable = capacity::usable_blocks(of_group, &after);
            lacking = u64::try_from(-usable).unwrap_or(0) * of_group.copies() as u64;
        }
        if lacking == 0 {
            return Ok(());
        }
        let mebibytes = |blocks: u64| (blocks * BLOCK_SIZE_BYTES).div_ceil(1 << 20);
        Err(refusal(format!(
            "the copies that are to be made take {} MiB, and group {} lacks {} MiB of room for \
             them in the right failure groups, what must stay free for repairs counted; remove \
             files or add disks first",
            mebibytes(added),
            self.membership.name(),
            mebibytes(lacking)
        )))
    }
}

/// The disks with `added` blocks more on them, in proportion to what is free.
fn less_free(before: &[DiskCapacity], added: u64) -> Vec<DiskCapacity> {
    let free: u64 = (before.iter())
        .filter(|disk| disk.online)
        .map(|disk| disk.free_blocks)
        .sum();
    let part = |of: u64| {
        let blocks = u128::from(of) * u128::from(added) / u128::from(free.max(1));
        u64::try_from(blocks).unwrap_or(u64::MAX)
    };
    (before.iter())
        .map(|disk| DiskCapacity {
            free_blocks: disk.free_blocks.saturating_sub(part(disk.free_blocks)),
            ..*disk
        })
        .collect()
}
