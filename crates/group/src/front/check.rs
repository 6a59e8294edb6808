//! The check: maps against free space, against each other and against the catalog's rows.
//!
//! It holds changes off while it looks. What it may put right is rows of the catalog that only
//! repeat what the maps say: the maps are what the group serves from.

use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};
use spindle_catalog::{Edit, Table};
use spindle_extent::map::Extent;
use spindle_extent::space::{Run, Space};
use spindle_sync::level::{InsideWriteGuard, Unshown};

use crate::background::Group;
use crate::core::disks::DiskState;
use crate::core::file::{File, numbered_key};
use crate::error::GroupError;
use crate::levels;

/// Rows read in one go.
const ROWS_MOST: usize = 4096;

impl Group {
    /// Compares maps, space and records; one line for each contradiction.
    ///
    /// # Errors
    /// As [`Core::get`](crate::core::Core::get), where the catalog cannot be read.
    pub fn check(&self) -> Result<Vec<String>, GroupError> {
        self.examine(None)
    }

    /// As [`Group::check`], and puts right what can be without losing anything: rows that differ
    /// from their map are written again, rows of files that are not there are removed. The lines
    /// that are left, and those that are settled; durable with the next commit.
    ///
    /// # Errors
    /// As [`Group::check`].
    pub fn check_and_repair(&self) -> Result<(Vec<String>, Vec<String>), GroupError> {
        let mut edit = Edit::default();
        let mut before = self.examine(Some(&mut edit))?;
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        // Maps that lacked a row are written by the commit, which the second look needs.
        self.commit_everything()?;
        let left = self.examine(None)?;
        before.retain(|line| !left.contains(line));
        Ok((left, before))
    }

    fn examine(&self, repair: Option<&mut Edit>) -> Result<Vec<String>, GroupError> {
        let alone = self.change.write(Unshown);
        let mut lines = Vec::new();
        let rebuilt = self.space.emptied();
        self.check_catalog_runs(&rebuilt, &mut lines);
        for run in self.bad_runs.all() {
            if let Err(conflict) = rebuilt.mark_used(run) {
                lines.push(format!(
                    "the bad run at block {} of disk {} {conflict}",
                    run.start_block, run.disk
                ));
            }
        }
        for run in self.background.runs_underway() {
            if let Err(conflict) = rebuilt.mark_used(run) {
                lines.push(format!(
                    "a copy on its way to block {} of disk {} {conflict}",
                    run.start_block, run.disk
                ));
            }
        }
        let files = self.all_files();
        let mut shared: Vec<(String, Run)> = Vec::new();
        for file in &files {
            self.check_map(file, &rebuilt, &mut lines, &mut shared);
        }
        check_owners(&files, &shared, &mut lines);
        rebuilt.end_as(&self.space);
        // A disk that went offline lost its replica of the catalog, whose runs count as used
        // there until the catalog is written next; nobody allocates on it before.
        let counted = |disk: &&DiskState| disk.holds_data && disk.is_online();
        for disk in self.disks.iter().filter(counted) {
            let (known, found) = (
                self.space.free_blocks(disk.number),
                rebuilt.free_blocks(disk.number),
            );
            if known != found {
                lines.push(format!(
                    "disk {}: {} bytes count as free where the maps leave {}",
                    disk.name(),
                    known * BLOCK_SIZE_BYTES,
                    found * BLOCK_SIZE_BYTES
                ));
            }
        }
        self.check_rows(&alone, &files, &mut lines, repair)?;
        Ok(lines)
    }

    fn check_catalog_runs(&self, rebuilt: &Space, lines: &mut Vec<String>) {
        for replica in self.membership.catalog_runs() {
            for run in &replica.runs {
                let (first, count) = (u64::from(run.start_au), u64::from(run.aus));
                if let Err(conflict) = rebuilt.mark_used_aus(replica.disk, first, count) {
                    lines.push(format!(
                        "the catalog's run at AU {first} of disk {} {conflict}",
                        replica.disk
                    ));
                }
            }
        }
    }

    fn check_map(
        &self,
        file: &File,
        rebuilt: &Space,
        lines: &mut Vec<String>,
        shared: &mut Vec<(String, Run)>,
    ) {
        let map = file.map.read();
        map.for_each(0, u32::MAX, |index, extent| {
            let name = format!("file {}, extent {index}", file.id);
            self.check_extent(&name, extent, lines);
            if u64::from(extent.mark_blocks) > map.schedule().length_blocks(index) {
                lines.push(format!("{name}: its mark is beyond its end"));
            }
            for copy in extent.present() {
                if copy.class() != map.schedule().class(index) {
                    lines.push(format!(
                        "{name}: a copy has another length than its number asks"
                    ));
                }
                let run = Run {
                    disk: copy.disk(),
                    start_block: copy.start_block(),
                    class: copy.class(),
                };
                if let Err(conflict) = rebuilt.mark_used(run) {
                    lines.push(format!(
                        "{name}: the copy at block {} of disk {} {conflict}",
                        run.start_block, run.disk
                    ));
                    shared.push((name.clone(), run));
                } else if !self.space.is_used(run) {
                    lines.push(format!(
                        "{name}: block {} of disk {} counts as free",
                        run.start_block, run.disk
                    ));
                }
            }
        });
    }

    fn check_extent(&self, name: &str, extent: &Extent, lines: &mut Vec<String>) {
        let group_of = |disk: DiskNumber| self.disks.get(disk).map(|disk| disk.group_index);
        let groups: Vec<Option<u16>> = extent.present().map(|copy| group_of(copy.disk())).collect();
        for (number, group) in groups.iter().enumerate() {
            if group.is_none() {
                lines.push(format!(
                    "{name}: a copy lies on a disk that the group does not have"
                ));
            } else if groups[..number].contains(group) {
                lines.push(format!("{name}: two copies lie in one failure group"));
            }
        }
    }

    /// Compares the newest rows of the catalog with the maps that are not dirty.
    fn check_rows(
        &self,
        alone: &InsideWriteGuard<'_, levels::Change>,
        files: &[Arc<File>],
        lines: &mut Vec<String>,
        repair: Option<&mut Edit>,
    ) -> Result<(), GroupError> {
        let mut stray: Vec<(Table, Vec<u8>)> = Vec::new();
        let mut differing: Vec<(FileId, u32)> = Vec::new();
        let by_id: BTreeMap<FileId, &Arc<File>> =
            files.iter().map(|file| (file.id, file)).collect();
        let mut recorded: u64 = 0;
        self.each_row(Table::File, 8, |key, _| {
            recorded += 1;
            let id = key
                .try_into()
                .map(|bytes| FileId(u64::from_be_bytes(bytes)));
            if !id.is_ok_and(|id| by_id.contains_key(&id)) {
                lines.push(format!("the catalog has a file {key:?} that is not open"));
            }
            Ok(())
        })?;
        if recorded != files.len() as u64 {
            lines.push(format!(
                "the catalog has {recorded} files where {} are open",
                files.len()
            ));
        }
        let mut rows: BTreeMap<FileId, u64> = BTreeMap::new();
        self.each_row(Table::Extent, 12, |key, value| {
            let (id, number) = numbered_key(key)?;
            let Some(file) = by_id.get(&id) else {
                lines.push(format!(
                    "row {number} belongs to file {id}, which is not there"
                ));
                stray.push((Table::Extent, key.to_vec()));
                return Ok(());
            };
            *rows.entry(id).or_default() += 1;
            let map = file.map.read();
            if !map.is_dirty_row(number) && !map.is_row(number, value) {
                lines.push(format!(
                    "file {id}: row {number} differs from the catalog's"
                ));
                differing.push((id, number));
            }
            Ok(())
        })?;
        for file in files {
            let map = file.map.read();
            let stored = map.stored_rows().count() as u64;
            let found = rows.get(&file.id).copied().unwrap_or(0);
            if stored != found {
                lines.push(format!(
                    "file {}: the catalog has {found} rows of its map where there should be \
                     {stored}",
                    file.id
                ));
                differing.extend(map.stored_rows().map(|number| (file.id, number)));
            }
        }
        self.each_row(Table::DirtyRegion, 12, |key, _| {
            let (id, region) = numbered_key(key)?;
            if !by_id.contains_key(&id) {
                lines.push(format!(
                    "the dirty region {region} belongs to file {id}, which is not there"
                ));
                stray.push((Table::DirtyRegion, key.to_vec()));
            }
            Ok(())
        })?;
        let Some(edit) = repair else {
            return Ok(());
        };
        for (table, key) in stray {
            edit.delete(table, key);
        }
        for (id, number) in differing {
            if let Some(file) = by_id.get(&id) {
                let mut map = file.map.write(alone);
                map.mark_dirty_row(number);
                self.note_dirty_map(file, &map);
            }
        }
        Ok(())
    }

    fn each_row(
        &self,
        table: Table,
        key_length: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let mut from = Vec::new();
        let to = vec![u8::MAX; key_length + 1];
        loop {
            let rows = self.catalog.range(table, &from, &to, ROWS_MOST)?;
            for (key, value) in &rows {
                visit(key, value)?;
            }
            match rows.last() {
                // The least key that is above this one.
                Some((key, _)) if rows.len() == ROWS_MOST => {
                    from.clone_from(key);
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Who else has the runs that two maps name: the other one was there first, and nothing tells
/// which of them is right.
fn check_owners(files: &[Arc<File>], shared: &[(String, Run)], lines: &mut Vec<String>) {
    if shared.is_empty() {
        return;
    }
    for file in files {
        file.map.read().for_each(0, u32::MAX, |index, extent| {
            for copy in extent.present() {
                let first = copy.start_block();
                let end = first + (1 << copy.class());
                for (name, run) in shared {
                    let own = format!("file {}, extent {index}", file.id);
                    let overlaps = run.disk == copy.disk()
                        && first < run.start_block + (1 << run.class)
                        && run.start_block < end;
                    if overlaps && own != *name {
                        lines.push(format!(
                            "{name} shares block {} of disk {} with {own}: copy both files \
                             elsewhere, compare them with a backup, and remove these",
                            run.start_block.max(first),
                            run.disk
                        ));
                    }
                }
            }
        });
    }
}
