//! Files come, go, and are shown.

use spindle_sync::atomic::Ordering;
use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_catalog::{Edit, Table, file_key};
use spindle_extent::map::{Extent, Map};
use spindle_extent::schedule::Schedule;
use spindle_extent::space::Run;
use spindle_format::{ExtentCopy, FileRecord};

use crate::core::Core;
use crate::core::commit::Change;
use crate::core::dirty::Ranges;
use crate::core::file::{File, Layout};
use crate::error::{GroupError, GroupErrorKind};

impl Core {
    /// Every file, in the order of the ids.
    pub(crate) fn all_files(&self) -> Vec<Arc<File>> {
        self.files.read().values().cloned().collect()
    }

    /// Puts every copy of an extent into quarantine, as [`Core::give_up_run`].
    pub(crate) fn give_up_runs(&self, file: &File, map: &Map, index: u32, extent: &Extent) {
        for copy in extent.present() {
            self.give_up_run(file, map, index, copy);
        }
    }

    /// Puts the run that a copy had into quarantine. One with a place that gives back other bytes than
    /// were written is not used again, unless its disk has many such. The caller has a change open.
    pub(crate) fn give_up_run(&self, file: &File, map: &Map, index: u32, copy: ExtentCopy) {
        let run = run_of(copy);
        if self.bad_places.has_left() {
            let ranges = file_ranges(map.schedule(), index);
            if self.bad_places.take_left(file.id, copy.disk(), &ranges)
                && self.bad_runs.may_note(run.disk)
            {
                self.bad_runs.note(run, |edit| {
                    self.catalog.apply(edit);
                });
                return;
            }
        }
        self.space.quarantine(run);
    }

    /// A new, empty file; its record joins the current batch.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] where the id is taken.
    pub fn create_file(
        &self,
        change: &Change<'_>,
        id: FileId,
        layout: Layout,
    ) -> Result<Arc<File>, GroupError> {
        let file = Arc::new(File::new(
            id,
            layout,
            self.membership.au_size(),
            &self.clients,
        ));
        if let Some(journal) = self.journal() {
            file.keep_map(change, journal, &self.clients);
        }
        if self.file(id).is_none() {
            // What a removed file of that number owed.
            let mut edit = Edit::default();
            let _rows = self.leave_owed_together(id, &mut edit);
            if !edit.is_empty() {
                self.apply(change, edit);
            }
        }
        let mut files = self.files.write();
        if files.contains_key(&id) {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                format!("there is a file {id} already"),
            )
            .of_file(id));
        }
        let record = FileRecord {
            redundancy: layout.redundancy,
            striping: layout.striping,
            rows_vary: false,
        };
        let mut edit = Edit::default();
        edit.put(Table::File, file_key(id), record.encode());
        self.apply(change, edit);
        files.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Frees everything and removes the record; space returns after the commit. Waits for I/O
    /// on it.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotFound`] where it was removed before.
    pub fn remove_file(&self, change: &Change<'_>, file: &Arc<File>) -> Result<(), GroupError> {
        let _held = file.range_lock.exclusive_in(change, 0, u64::MAX);
        if file.removed.swap(true, Ordering::AcqRel) {
            return Err(GroupError::new(
                GroupErrorKind::NotFound,
                format!("file {} was removed before", file.id),
            )
            .of_file(file.id));
        }
        change.note_used();
        file.moving.cancel_all();
        let map = file.map.write(change);
        let mut edit = Edit::default();
        for row in map.rows_ever_stored() {
            edit.delete(Table::Extent, file.numbered_key(row));
        }
        map.for_each(0, u32::MAX, |index, extent| {
            self.give_up_runs(file, &map, index, extent);
        });
        edit.delete(Table::File, file_key(file.id));
        self.dirty.forget_file(file.id, &mut edit);
        self.forget_owed(file, &mut file.owed.lock(), &mut edit);
        self.apply(change, edit);
        self.dirty_maps.lock().forget(file.id);
        self.clients.forget(file.id);
        self.files.write().remove(&file.id);
        Ok(())
    }

    /// Bytes allocated, one copy counted (what `st_blocks` shows).
    pub fn allocated_bytes(&self, file: &File) -> u64 {
        file.map.read().allocated_blocks() * BLOCK_SIZE_BYTES
    }

    /// The file's layout: what it was made with, or its redundancy was changed to.
    pub fn layout(&self, file: &File) -> Layout {
        file.layout()
    }
}

/// The run that a copy has.
pub(crate) const fn run_of(copy: ExtentCopy) -> Run {
    Run {
        disk: copy.disk(),
        start_block: copy.start_block(),
        class: copy.class(),
    }
}

/// The file blocks that an extent holds.
pub(crate) fn file_ranges(schedule: Schedule, index: u32) -> Ranges {
    let mut ranges = Ranges::new();
    let whole = (0, schedule.length_blocks(index));
    push_file_ranges(&mut ranges, schedule, index, whole);
    ranges
}

/// Adds the file blocks that the part `[from, to)` of an extent holds, in its own blocks.
pub(crate) fn push_file_ranges(
    ranges: &mut Ranges,
    schedule: Schedule,
    index: u32,
    (from, to): (u64, u64),
) {
    let mut inside = from;
    while inside < to {
        let block = schedule.file_block(index, inside);
        let contiguous = schedule.locate(block).map(|place| place.contiguous_blocks);
        let blocks = contiguous.unwrap_or(1).min(to - inside);
        ranges.push((block, block + blocks));
        inside += blocks;
    }
}
