//! Taking a group over from a process that was killed while the machine lives.
//!
//! The keeper's journal has what no commit of that process had taken. It is brought into the
//! catalog, durably, before the maps are loaded: so everything after it is an opening like any
//! other. A kill in the midst leaves the journal as it was, and the next process does it again;
//! the rows come out the same.
//!
//! Copies can differ only where a write was under way: only there they are compared. Where the
//! journal cannot tell (more writes than it names, a write that failed on every copy), all dirty
//! regions are, as after a power cut.

mod lacking;
mod unflushed;

use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_base::{AuSize, FileId};
use spindle_catalog::{
    Catalog, Edit, RecoveredExtent, Rows, Sequence, Table, Touch, Wish, file_key,
};
use spindle_extent::map::{Extent, Map};
use spindle_extent::schedule::Schedule;
use spindle_extent::space::{Run, Space};
use spindle_format::{COPIES_MAX, EXTENTS_PER_ROW, ExtentCopy, ExtentRow, FileRecord, Inode};
use spindle_sync::level::Unshown;

use crate::core::disks::DiskTable;
use crate::core::file::File;
use crate::core::keeper_journal::Kept;
use crate::error::{GroupError, GroupErrorKind};
use crate::quorum::Membership;
use lacking::Lacking;
use unflushed::Unflushed;
pub(super) use unflushed::cannot_be_flushed;

/// Sizes and times that come into a catalog at once even where it has little room: fewer leaves than are
/// kept free for what must not be refused.
const TOUCHES_AT_ONCE: usize = 64;

/// What is at hand of a group that is taken over, before it is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) membership: &'a Membership,
    pub(crate) catalog: &'a Catalog,
    pub(crate) disks: &'a DiskTable,
    /// With the maps that the catalog has.
    pub(crate) files: &'a BTreeMap<FileId, Arc<File>>,
    pub(crate) space: &'a Space,
    pub(crate) au_size: AuSize,
}

impl Kept {
    /// Makes durable what is left; the space keeps clear of it from then on. True where anything was
    /// brought in.
    pub(crate) fn replay(&self, scene: &Scene<'_>) -> Result<bool, GroupError> {
        let recovered = self.recovered.lock(Unshown);
        let Some(recovered) = recovered.as_ref() else {
            return Ok(false);
        };
        for edit in &recovered.edits {
            scene.catalog.apply(edit.clone());
        }
        // The data below the marks before the commit, as in every one. Nothing is committed until
        // the space that the journal alone names is marked as used: a catalog that grows would take
        // it.
        let mut unflushed = Unflushed::flush(scene, &self.journal)?;
        unflushed.find_gone(scene)?;
        if recovered.is_empty() && unflushed.is_empty() {
            return Ok(false);
        }
        let lacking = apply_extents(scene, &recovered.extents, &mut unflushed)?;
        lacking.put(scene, &unflushed)?;
        unflushed.owe(scene, recovered)?;
        let mut touches = recovered.touches.as_slice();
        if fitting(scene.catalog, touches)? == touches.len() {
            apply_touches(scene.catalog, std::mem::take(&mut touches))?;
        }
        scene.catalog.commit(Sequence(u64::MAX))?;
        if touches.is_empty() {
            scene.catalog.settle()?;
        } else {
            // What that replaced is free after it, and how much is free is known.
            scene.catalog.measure()?;
        }
        unflushed.check_counted(scene)?;
        // Behind the extents that they speak of: a power cut in between leaves shorter files, and no
        // zeros at their ends. A kill in between leaves all of them to the next process.
        while !touches.is_empty() {
            let count = fitting(scene.catalog, touches)?.max(TOUCHES_AT_ONCE);
            let (step, left) = touches.split_at(count.min(touches.len()));
            apply_touches(scene.catalog, step)?;
            scene.catalog.commit(Sequence(u64::MAX))?;
            scene.catalog.settle_and_free()?;
            touches = left;
        }
        Ok(true)
    }
}

fn damaged(what: String, file: FileId) -> GroupError {
    GroupError::new(GroupErrorKind::Corrupt, what).of_file(file)
}

/// How many of these, from the first on, the catalog takes in one transaction. Their rows lie all over it,
/// and while they lagged behind nobody kept room for more than some of them.
fn fitting(catalog: &Catalog, touches: &[Touch]) -> Result<usize, GroupError> {
    let mut rows = Rows::default();
    for (count, touch) in touches.iter().enumerate() {
        if let Some(row) = catalog.get(Table::Inode, &file_key(touch.id))? {
            rows.count += 1;
            rows.bytes += row.len() as u64;
        }
        if catalog.room_bytes(rows, Wish::Less) == 0 {
            return Ok(count);
        }
    }
    Ok(touches.len())
}

/// Brings sizes and times into the rows that hold them.
fn apply_touches(catalog: &Catalog, touches: &[Touch]) -> Result<(), GroupError> {
    touches
        .iter()
        .try_for_each(|touch| apply_touch(catalog, touch))
}

fn apply_touch(catalog: &Catalog, touch: &Touch) -> Result<(), GroupError> {
    // An inode without a row was removed, or its making was cut off.
    let Some(bytes) = catalog.get(Table::Inode, &file_key(touch.id))? else {
        return Ok(());
    };
    let mut inode = Inode::parse(&bytes).map_err(|error| {
        damaged(format!("inode {} cannot be read", touch.id), touch.id).because(error)
    })?;
    inode.size_bytes = touch.size_bytes;
    inode.accessed = touch.accessed;
    inode.modified = touch.modified;
    inode.changed = touch.changed;
    let mut edit = Edit::default();
    edit.put(Table::Inode, file_key(touch.id), inode.encode());
    catalog.apply(edit);
    Ok(())
}

/// Brings extents into the rows that hold them; what no flush covered stays beyond the marks. Gives what
/// disks lack of them.
fn apply_extents(
    scene: &Scene<'_>,
    extents: &BTreeMap<(FileId, u32), RecoveredExtent>,
    unflushed: &mut Unflushed,
) -> Result<Lacking, GroupError> {
    let mut lacking = Lacking::default();
    let Scene {
        catalog,
        space,
        au_size,
        ..
    } = *scene;
    let mut rows: BTreeMap<(FileId, u32), Vec<(u32, &RecoveredExtent)>> = BTreeMap::new();
    let per_row = u32::try_from(EXTENTS_PER_ROW).expect("it is 128");
    for ((file, index), extent) in extents {
        let row = rows.entry((*file, index / per_row)).or_default();
        row.push((*index, extent));
    }
    for ((file, number), changed) in rows {
        // Without a record the file was removed by a commit that came last.
        let Some(bytes) = catalog.get(Table::File, &file_key(file))? else {
            continue;
        };
        let record = FileRecord::parse(&bytes)
            .map_err(|error| damaged(format!("file {file} cannot be read"), file).because(error))?;
        let schedule = Schedule::new(record.striping, au_size);
        let mut map = Map::new(schedule, record.redundancy.copies());
        let entries = || {
            let there = changed
                .iter()
                .filter(|(_, extent)| !extent.copies.is_empty());
            there.map(|(_, extent)| extent.copies.len())
        };
        let mut edit = Edit::default();
        if record.rows_vary {
            map.let_rows_vary();
        } else if entries().any(|entries| entries != map.copies()) {
            // Written in the midst of a change of the redundancy that was cut off.
            map.let_rows_vary();
            let record = FileRecord {
                rows_vary: true,
                ..record
            };
            edit.put(Table::File, file_key(file), record.encode());
        }
        // The journal may know extents from before the redundancy was changed, or from after it.
        let most = entries().max().unwrap_or(0).min(COPIES_MAX);
        if most > map.wanted() {
            map.set_wanted(most);
            map.want_fewer(record.redundancy.copies());
        }
        let mut key = file_key(file);
        key.extend_from_slice(&number.to_be_bytes());
        let stored = catalog.get(Table::Extent, &key)?;
        let row_title = format!("file {file}, row {number}");
        let told = |what: String| damaged(format!("{row_title}: {what}"), file);
        if let Some(bytes) = &stored {
            let row = ExtentRow::parse(bytes).map_err(|error| {
                damaged(format!("{row_title} cannot be read"), file).because(error)
            })?;
            map.load_row(number, &row, |_, _| Ok(())).map_err(told)?;
        }
        for (index, extent) in changed {
            let stored = map.extent(index).filter(|_| !extent.was_hole);
            let durable_blocks = stored.map_or(0, |stored| stored.mark_blocks);
            let blocks = schedule.envelope(index);
            let mark_blocks = unflushed.mark_of(file, blocks, extent, durable_blocks);
            let disks = unflushed.lacking(file, blocks, extent);
            lacking.add(file, (schedule, index), mark_blocks, &disks);
            put_extent(&mut map, index, extent, mark_blocks, space).map_err(told)?;
        }
        match map.encode_row(number) {
            Some(bytes) => edit.put(Table::Extent, key, bytes),
            None => edit.delete(Table::Extent, key),
        }
        catalog.apply(edit);
    }
    Ok(lacking)
}

fn put_extent(
    map: &mut Map,
    index: u32,
    extent: &RecoveredExtent,
    mark_blocks: u32,
    space: &Space,
) -> Result<(), String> {
    map.remove(index);
    if extent.copies.is_empty() {
        return Ok(());
    }
    if extent.copies.len() > map.copies()
        || u64::from(extent.mark_blocks) > map.schedule().length_blocks(index)
    {
        return Err(format!("the journal's extent {index} cannot be"));
    }
    let copies: Vec<ExtentCopy> = (extent.copies.iter())
        .map(|bits| ExtentCopy::from_bits(*bits))
        .collect();
    map.put_back(index, &Extent::new(&copies, mark_blocks));
    for copy in copies.iter().filter(|copy| copy.is_present()) {
        // Most are marked already, because the catalog's rows name them; whether two extents
        // claim one run is seen when the rows are loaded.
        let _ = space.mark_used(Run {
            disk: copy.disk(),
            start_block: copy.start_block(),
            class: copy.class(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
