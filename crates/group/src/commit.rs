//! Changes, commits, and what a sync waits for.
//!
//! Order of locks, the first taken first; nobody takes one that stands before one it holds:
//! 1. a file's range lock (held over the I/O of a read or write);
//! 2. the change lock: shared by whoever changes maps or rows, exclusive for a seal;
//! 3. a file's map;
//! 4. dirty regions;
//! 5. leaves: free space, flush state, events, the catalog's overlay, the lists of this group.
//!
//! A commit takes 2, 3 and leaves, never 1; nobody begins a commit while holding any of these.
//! Somebody who holds the change lock may wait for a range lock in one place only
//! ([`Group::remove_file`]); so whoever holds a range lock takes the change lock past those who
//! wait to have it alone ([`Group::change_inside`]), else the three would wait in a circle.

mod lost;

use spindle_sync::atomic::Ordering;
use std::cell::{Cell, RefCell};

use smallvec::SmallVec;
use spindle_base::{DiskNumber, Redundancy};
use spindle_catalog::{Bracket, CatalogError, Edit, KeptJournal, Sequence, Table, TouchSlot};
use spindle_sync::{InsideReadGuard, InsideWriteGuard, MutexGuard};

use crate::disks::{Fate, Flushes, Target};
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::file::File;
use crate::group::Group;
use crate::incarnation::Life;
use crate::map::Books;

/// Beyond every edit: asks a commit for what its seal will add.
const WHATEVER_IS_SEALED: Sequence = Sequence(u64::MAX);

/// While it lives, no commit can take a half of what its holder changes.
#[derive(Debug)]
pub struct Change<'a> {
    /// Ends before the change does, so that no commit comes between.
    operation: Option<Operation<'a>>,
    _shared: InsideReadGuard<'a>,
}

/// What the journal counts only whole.
#[derive(Debug)]
struct Operation<'a> {
    journal: &'a KeptJournal,
    bracket: Bracket,
    used: Cell<bool>,
    settled: RefCell<SmallVec<[TouchSlot; 2]>>,
    _alone: MutexGuard<'a, ()>,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if self.used.get() {
            self.journal.end(self.bracket);
        }
        for slot in self.settled.get_mut().drain(..) {
            self.journal.free_touch(slot);
        }
    }
}

impl Change<'_> {
    /// The row of an inode is in this change: its touch is given up when all of it is.
    pub fn settle(&self, touch: &mut Option<TouchSlot>) {
        if let (Some(operation), Some(slot)) = (&self.operation, touch.take()) {
            operation.settled.borrow_mut().push(slot);
        }
    }
}

fn region_failed(detail: &str) -> CatalogError {
    CatalogError::Region {
        operation: "written",
        detail: detail.to_owned(),
    }
}

impl Group {
    /// Opens a change: the parts applied while it lives reach one commit together. Short, memory
    /// only: never hold it over data I/O. ([`Group::truncate`] and [`Group::punch`] take theirs
    /// inside.)
    pub fn change(&self) -> Change<'_> {
        let shared = self.change.read();
        let operation = self.kept.as_ref().map(|kept| Operation {
            _alone: kept.operation.lock(),
            bracket: kept.journal.bracket(),
            used: Cell::new(false),
            settled: RefCell::default(),
            journal: &kept.journal,
        });
        Change {
            operation,
            _shared: shared,
        }
    }

    /// A change for whoever may hold a range lock; see the order of locks above.
    pub(crate) fn change_inside(&self) -> Change<'_> {
        Change {
            operation: None,
            _shared: self.change.read_inside(),
        }
    }

    /// Adds the layer above's rows to the batch.
    pub fn apply(&self, change: &Change<'_>, edit: Edit) {
        match &change.operation {
            Some(operation) => {
                operation.used.set(true);
                self.catalog.apply_within(operation.bracket, edit);
            }
            None => {
                self.catalog.apply(edit);
            }
        }
    }

    /// Adds one inode's row to the batch outside of any operation, where no place is left for a
    /// touch. The caller holds the inode's lock.
    pub fn apply_alone(&self, edit: Edit) {
        self.catalog.apply(edit);
    }

    /// The map of this file has rows that the catalog lacks.
    pub(crate) fn note_dirty_map(&self, file: &File) {
        self.dirty_maps.lock().insert(file.id);
    }

    /// Dirty rows of all maps become edits, and what was freed belongs to this batch. No change
    /// may be open until the batch was taken: it would have a half of it, or a size without the
    /// mark that was moved before. So the lock is handed on.
    fn seal(&self) -> InsideWriteGuard<'_> {
        let alone = self.change.write();
        // A file stays among them until its rows are in an edit: whoever finds none of them may
        // rely on what is applied.
        loop {
            let first = self.dirty_maps.lock().first().copied();
            let Some(id) = first else { break };
            if let Some(file) = self.file(id) {
                self.seal_map(&file);
            }
            self.dirty_maps.lock().remove(&id);
        }
        self.space.seal(self.catalog.applied());
        alone
    }

    /// The map stays locked until its rows have the number of their edit, so that a sync sees it
    /// dirty or knows what to wait for.
    fn seal_map(&self, file: &File) {
        file.map.write().seal(usize::MAX, |rows| {
            let mut edit = Edit::default();
            for (number, bytes) in rows {
                let change = (Table::Extent, file.numbered_key(number), bytes);
                edit.changes.push(change);
            }
            self.catalog.apply_unnoted(edit)
        });
    }

    /// Makes the batch durable up to `through`. No lock of the list above may be held.
    pub(crate) fn commit_through(&self, through: Sequence) -> Result<(), GroupError> {
        if self.catalog.committed() >= through {
            return Ok(());
        }
        self.check_fence()?;
        loop {
            let mut lost_a_disk = false;
            let alone = Cell::new(None);
            // As of the seal: the batch has the edits of these outages and of no later one.
            let outages_in_batch = Cell::new(0);
            let answer = self.catalog.commit(
                through,
                &mut || {
                    let sealed = self.seal();
                    outages_in_batch.set(self.dirty.outages_count());
                    alone.set(Some(sealed));
                },
                &mut || {
                    // The batch is taken: changes belong to the next one from here on.
                    drop(alone.take());
                    let flushed = self.flush_written();
                    self.notice_offline();
                    lost_a_disk = self.dirty.outages_count() != outages_in_batch.get();
                    match flushed {
                        // What the lost disk had not flushed is noted as stale by edits that this
                        // batch does not have; the marks in it must not be durable before them.
                        Ok(()) if lost_a_disk => Err(region_failed("a disk went offline")),
                        Ok(()) => Ok(()),
                        Err(error) => Err(region_failed(&error.message)),
                    }
                },
            );
            self.space.release(self.catalog.committed());
            self.notice_offline();
            match answer {
                Err(_) if lost_a_disk && self.check_fence().is_ok() => {}
                answer => return answer.map_err(GroupError::from),
            }
        }
    }

    /// Makes everything applied, every dirty map and everything written durable.
    pub(crate) fn commit_everything(&self) -> Result<(), GroupError> {
        let through = if self.dirty_maps.lock().is_empty() && !self.space.has_quarantine() {
            self.catalog.applied()
        } else {
            WHATEVER_IS_SEALED
        };
        self.commit_through(through)
    }

    /// Flushes every disk written since its last flush.
    pub(crate) fn flush_written(&self) -> Result<(), GroupError> {
        self.cover(&self.disks.flushes.all_written(&self.disks))
    }

    /// Flushes up to these writes. A disk that cannot goes offline, durably; in a group without
    /// redundancy that would lose all it holds, so there it stays, and the error is told now and
    /// at the next sync of every file that had written to it.
    fn cover(&self, targets: &[Target]) -> Result<(), GroupError> {
        let flushes: &Flushes = &self.disks.flushes;
        let failed = flushes.cover(&self.disks, targets);
        if failed.is_empty() {
            return Ok(());
        }
        let reason = failed[0].1.to_string();
        let lives: Vec<Life> = failed.into_iter().map(|(life, _)| life).collect();
        let disks: Vec<DiskNumber> = lives.iter().map(|life| life.disk).collect();
        if self.membership.redundancy() == Redundancy::External {
            let message = format!("a flush failed: {reason}");
            self.event(Event::new(EventKind::FlushFailed, message).disk(disks[0]));
            for file in self.all_files() {
                let concerned = |target: &Target| {
                    lives.contains(&target.life)
                        && flushes.fate(&self.disks, *target) != Fate::Flushed
                };
                if file.written.lock().iter().any(concerned) {
                    *file.error.lock() = Some(reason.clone());
                }
            }
            for life in lives {
                flushes.told(life);
            }
            return Err(GroupError::new(GroupErrorKind::Io, reason));
        }
        self.take_offline(&disks, &reason)
    }

    /// Makes the file's data durable and, where `metadata` asks for it or its map has changed,
    /// the batch too.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where data could not be made durable on any copy, be it now or in
    /// a write since the last sync; told once.
    pub fn sync_file(&self, file: &File, metadata: bool) -> Result<(), GroupError> {
        self.check_fence()?;
        let told = file.error.lock().take();
        let applied = self.catalog.applied();
        let targets = file.written.lock().clone();
        if let Err(error) = self.cover(&targets) {
            // Told here and now.
            *file.error.lock() = None;
            return Err(error);
        }
        let kept = self.keep_what_disks_lost(file, &targets);
        // Told here and now, where it is lost.
        file.written
            .lock()
            .retain(|target| !targets.contains(target));
        kept?;
        let books = file.map.read().books();
        let through = match books {
            Books::Open => WHATEVER_IS_SEALED,
            Books::Sealed(sealed) if metadata => applied.max(sealed),
            Books::Sealed(sealed) => sealed,
        };
        self.commit_through(through)?;
        match told {
            None => Ok(()),
            Some(message) => Err(GroupError::new(GroupErrorKind::Io, message)),
        }
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Group::sync_file`], for the group.
    pub fn sync(&self) -> Result<(), GroupError> {
        self.check_fence()?;
        self.flush_written()?;
        let kept = self.keep_what_all_disks_lost();
        self.commit_everything()?;
        kept
    }

    /// As [`Group::sync`], but for what disks lost before they were flushed.
    pub(crate) fn make_durable(&self) -> Result<(), GroupError> {
        self.check_fence()?;
        self.flush_written()?;
        self.commit_everything()
    }

    /// The group stops here: nothing is acknowledged any more. Told once.
    pub(crate) fn stop_for(&self, error: &GroupError) {
        let mut fence = self.fence.lock();
        if fence.is_none() {
            *fence = Some(error.clone());
            self.event(Event::new(EventKind::GroupFenced, error.message.clone()));
        }
        self.is_fenced.store(true, Ordering::Release);
    }

    /// Refuses once the group had to stop.
    pub(crate) fn check_fence(&self) -> Result<(), GroupError> {
        if !self.is_fenced.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.fence.lock() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Refuses for a file that is gone and in a group that had to stop.
    pub(crate) fn check_alive(&self, file: &File) -> Result<(), GroupError> {
        self.check_fence()?;
        if file.is_removed() {
            return Err(GroupError::new(
                GroupErrorKind::NotFound,
                format!("file {} was removed", file.id),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
