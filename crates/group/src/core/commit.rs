//! Changes, commits, and what a sync waits for.
//!
//! Order of locks, the first taken first; nobody takes one that stands before one it holds:
//! 0. held over whole commits: one change of the disks, one return, one search for room in the
//!    catalog; then the catalog's committer;
//! 1. a file's range lock (held over the I/O of a read or write);
//! 2. the change lock: shared by whoever changes maps or rows, exclusive for a seal;
//! 3. a file's map;
//! 4. dirty regions;
//! 5. leaves: free space, flush state, events, the catalog's overlay, the lists of this group.
//!
//! A commit takes 2, 3 and leaves, never 1; nobody begins a commit while holding any of these.
//! Somebody who holds the change lock may wait for a range lock in one place only
//! ([`Core::remove_file`]); so whoever holds a range lock takes the change lock past those who
//! wait to have it alone ([`Core::change_inside`]), else the three would wait in a circle.

mod lost;
pub(in crate::core) mod owed;

use spindle_sync::atomic::Ordering;
use std::cell::{Cell, RefCell};

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{
    BegunCommit, Bracket, Edit, KeptJournal, RequestUnderWay, Sequence, Table, TakenBatch,
    TouchSlot,
};
use spindle_extent::map::{Books, Map, RowChange};
use spindle_sync::{Fault, InsideReadGuard, InsideWriteGuard, MutexGuard, is_put_back};

use crate::core::Core;
use crate::core::disks::{Fate, Flushes, Target};
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::incarnation::Life;

/// Beyond every edit: asks a commit for what its seal will add.
const WHATEVER_IS_SEALED: Sequence = Sequence(u64::MAX);

/// Rows of maps that become edits while writers wait: some tenths of a millisecond.
const SLICE_ROWS: usize = 64;

/// While it lives, no commit can take a half of what its holder changes. A panic of its holder
/// leaves a half: the group stops then, with it in memory only.
#[derive(Debug)]
pub struct Change<'a> {
    core: &'a Core,
    /// Ends before the change does, so that no commit comes between.
    operation: Option<Operation<'a>>,
    /// Something of it is in the batch.
    used: Cell<bool>,
    /// It began while a panic was under way already, of somebody around it.
    began_in_panic: bool,
    _shared: InsideReadGuard<'a>,
}

/// What the journal counts only whole.
#[derive(Debug)]
struct Operation<'a> {
    journal: &'a KeptJournal,
    bracket: Bracket,
    /// The request of the kernel that it fulfils.
    request: Option<RequestUnderWay<'a>>,
    settled: RefCell<SmallVec<[TouchSlot; 2]>>,
    _alone: MutexGuard<'a, ()>,
}

impl Operation<'_> {
    /// All of it counts; `used` where there is anything of it.
    fn end(self, used: bool) {
        if used {
            match self.request {
                Some(request) => request.end(self.bracket),
                None => self.journal.end(self.bracket),
            }
        }
        for slot in self.settled.into_inner() {
            self.journal.free_touch(slot);
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let used = self.used.get();
        let is_half = used && !self.began_in_panic && std::thread::panicking();
        if is_half {
            // Before anybody else can go on from it.
            self.core.stop_at_half();
        }
        if let Some(operation) = self.operation.take_if(|_| !is_half) {
            operation.end(used);
        }
    }
}

impl Change<'_> {
    /// Something of it is about to be in memory.
    pub(crate) fn note_used(&self) {
        self.used.set(true);
    }

    /// The row of an inode is in this change: its touch is given up when all of it is.
    pub fn settle(&self, touch: &mut Option<TouchSlot>) {
        if let (Some(operation), Some(slot)) = (&self.operation, touch.take()) {
            operation.settled.borrow_mut().push(slot);
        }
    }
}

/// A commit whose books are closed. No change is open until the batch was taken: it would have a
/// half of it, or a size without the mark that was moved before.
struct Sealed<'a> {
    begun: BegunCommit<'a>,
    /// The outages whose edits the batch has.
    outages_count: u64,
    _alone: InsideWriteGuard<'a>,
}

/// A commit whose batch was taken: changes belong to the next one from here on.
struct Taken<'a> {
    batch: TakenBatch<'a>,
    outages_count: u64,
}

/// A commit whose data is on the disks.
struct Flushed<'a>(TakenBatch<'a>);

/// Why a batch is not durable.
struct Uncommitted {
    /// The next commit can do what this one could not.
    try_again: bool,
    error: GroupError,
}

impl<'a> Sealed<'a> {
    fn take_batch(self) -> Taken<'a> {
        Taken {
            batch: self.begun.take_batch(),
            outages_count: self.outages_count,
        }
    }
}

impl Flushed<'_> {
    fn make_durable(self) -> Result<(), Uncommitted> {
        self.0.make_durable().map_err(|error| Uncommitted {
            try_again: false,
            error: GroupError::from(error),
        })
    }
}

impl Core {
    /// Opens a change: the parts applied while it lives reach one commit together. Short, memory
    /// only: never hold it over data I/O. ([`Core::truncate`] and [`Core::punch`] take theirs
    /// inside.)
    pub fn change(&self) -> Change<'_> {
        self.change_for(None)
    }

    /// As [`Core::change`], for the operation that fulfils this request: where something is
    /// applied, its end is noted with the request.
    pub fn change_for<'a>(&'a self, request: Option<RequestUnderWay<'a>>) -> Change<'a> {
        let shared = self.change.read();
        let operation = self.kept.as_ref().map(|kept| Operation {
            _alone: kept.operation.lock(),
            bracket: kept.journal.bracket(),
            request,
            settled: RefCell::default(),
            journal: &kept.journal,
        });
        Change {
            core: self,
            operation,
            used: Cell::new(false),
            began_in_panic: std::thread::panicking(),
            _shared: shared,
        }
    }

    /// A change for whoever may hold a range lock; see the order of locks above.
    pub(crate) fn change_inside(&self) -> Change<'_> {
        Change {
            core: self,
            operation: None,
            used: Cell::new(false),
            began_in_panic: std::thread::panicking(),
            _shared: self.change.read_inside(),
        }
    }

    /// Adds the layer above's rows to the batch.
    pub fn apply(&self, change: &Change<'_>, edit: Edit) {
        change.note_used();
        match &change.operation {
            Some(operation) => {
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

    /// The map of this file, which the caller holds locked, has other rows that the catalog
    /// lacks.
    pub(crate) fn note_dirty_map(&self, file: &File, map: &Map) {
        self.dirty_maps.lock().note(file.id, map);
    }

    /// Closes the books: dirty rows of all maps become edits, and what was freed belongs to this
    /// batch.
    fn seal<'a>(&'a self, begun: BegunCommit<'a>) -> Sealed<'a> {
        self.seal_ahead();
        let alone = self.change.write();
        // A file stays among them until its rows are in an edit: whoever finds none of them may
        // rely on what is applied.
        loop {
            let first = self.dirty_maps.lock().first();
            let Some(id) = first else { break };
            self.seal_map(id, usize::MAX);
        }
        self.space.seal(self.catalog.applied());
        Sealed {
            begun,
            outages_count: self.dirty.outages_count(),
            _alone: alone,
        }
    }

    /// Where many maps have changed, most of their rows become edits a few at a time, with the
    /// writers going on between: they wait for a slice, not for all. What changes again after its
    /// slice is sealed again, in the same batch.
    fn seal_ahead(&self) {
        let changed = self.dirty_maps.lock().files();
        let rows_of = |id: &FileId| {
            let file = self.file(*id);
            file.map_or(0, |file| file.map.read().dirty_rows_count())
        };
        // Rows that come while this goes on are left to the seal.
        let mut left: Vec<(FileId, usize)> = changed.iter().map(|id| (*id, rows_of(id))).collect();
        if left.iter().map(|(_, rows)| rows).sum::<usize>() <= SLICE_ROWS {
            return;
        }
        while !left.is_empty() {
            let _alone = self.change.write();
            let mut room = SLICE_ROWS;
            while room > 0
                && let Some((id, rows)) = left.last_mut()
            {
                let taken = room.min((*rows).max(1));
                self.seal_map(*id, taken);
                room -= taken;
                *rows -= taken.min(*rows);
                if *rows == 0 {
                    left.pop();
                }
            }
        }
    }

    /// The map stays locked until its rows have the number of their edit, so that a sync sees it
    /// dirty or knows what to wait for. The caller has the change lock alone.
    fn seal_map(&self, id: FileId, rows_most: usize) {
        let Some(file) = self.file(id) else {
            self.dirty_maps.lock().forget(id);
            return;
        };
        let committed = self.catalog.committed();
        let apply = |rows: Vec<RowChange>| {
            let mut edit = Edit::default();
            for (number, bytes) in rows {
                let change = (Table::Extent, file.numbered_key(number), bytes);
                edit.changes.push(change);
            }
            self.catalog.apply_unnoted(edit)
        };
        let mut map = file.map.write();
        if is_put_back(Fault::SealLetsMapGo) {
            let rows = map.take_dirty_rows(committed, rows_most);
            if !rows.is_empty() {
                drop(map);
                let sealed = apply(rows);
                map = file.map.write();
                map.set_sealed(sealed);
            }
        } else {
            map.seal(committed, rows_most, apply);
        }
        self.note_dirty_map(&file, &map);
    }

    /// Makes the batch durable up to `through`. No lock of the list above may be held.
    pub(crate) fn commit_through(&self, through: Sequence) -> Result<(), GroupError> {
        if self.catalog.committed() >= through {
            return Ok(());
        }
        self.check_fence()?;
        loop {
            let Some(begun) = self.catalog.begin_commit(through) else {
                return Ok(());
            };
            let sealed = self.seal(begun);
            // A change that the seal waited for may have left a half.
            self.check_fence()?;
            let taken = sealed.take_batch();
            let answer = self.flush(taken).and_then(Flushed::make_durable);
            self.space.release(self.catalog.committed());
            self.notice_offline();
            match answer {
                Err(failed) if failed.try_again && self.check_fence().is_ok() => {}
                answer => return answer.map_err(|failed| failed.error),
            }
        }
    }

    /// The data that a batch speaks of, before the batch.
    fn flush<'a>(&self, taken: Taken<'a>) -> Result<Flushed<'a>, Uncommitted> {
        let outages_count = if is_put_back(Fault::OutagesCountedLate) {
            self.dirty.outages_count()
        } else {
            taken.outages_count
        };
        let flushed = self.flush_written();
        self.notice_offline();
        // What the lost disk had not flushed is noted as stale by edits that this batch does not
        // have; the marks in it must not be durable before them.
        let lost_a_disk = self.dirty.outages_count() != outages_count;
        let lost = || GroupError::new(GroupErrorKind::Io, "a disk went offline during a commit");
        match flushed {
            Ok(()) if !lost_a_disk => Ok(Flushed(taken.batch)),
            answer => Err(Uncommitted {
                try_again: lost_a_disk,
                error: answer.err().unwrap_or_else(lost),
            }),
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
                    self.owe(&file, &reason);
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
        let turns_count = self.membership.turns_count();
        let applied = self.catalog.applied();
        let targets = file.written.lock().clone();
        if let Err(error) = self.cover(&targets) {
            // Told here and now.
            self.take_owed(file);
            return Err(error);
        }
        let kept = self.keep_what_disks_lost(file, &targets);
        // Told here and now, where it is lost.
        file.written
            .lock()
            .retain(|target| !targets.contains(target));
        if let Err(error) = kept {
            self.take_owed(file);
            return Err(error);
        }
        let books = file.map.read().books();
        let through = match books {
            Books::Open => WHATEVER_IS_SEALED,
            Books::Sealed(sealed) if metadata => applied.max(sealed),
            Books::Sealed(sealed) => sealed,
        };
        self.commit_through(through)?;
        if self.membership.turns_count() != turns_count {
            // A mark that the commit waited for may have been set back before it was durable.
            self.notice_offline();
        }
        match self.take_owed(file) {
            None => Ok(()),
            Some(message) => Err(GroupError::new(GroupErrorKind::Io, message)),
        }
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Core::sync_file`], for the group.
    pub fn sync(&self) -> Result<(), GroupError> {
        self.check_fence()?;
        loop {
            let turns_count = self.membership.turns_count();
            self.flush_written()?;
            let kept = self.keep_what_all_disks_lost();
            self.commit_everything()?;
            // Where a disk came or went meanwhile, a mark may have been set back before it was
            // durable.
            if kept.is_err() || self.membership.turns_count() == turns_count {
                return kept;
            }
        }
    }

    /// As [`Core::sync`], but for what disks lost before they were flushed: that waits for somebody
    /// who asks for a sync.
    ///
    /// # Errors
    /// As [`Core::sync`].
    pub fn make_durable(&self) -> Result<(), GroupError> {
        self.check_fence()?;
        self.flush_written()?;
        self.commit_everything()
    }

    /// The next step commits what is pending, however young it is.
    pub(crate) fn commit_soon(&self) {
        self.commit_is_urgent.store(true, Ordering::Relaxed);
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

    /// A panic left half an operation in memory: no commit takes it, and no process after this
    /// one does.
    fn stop_at_half(&self) {
        if let Some(journal) = self.journal() {
            journal.end_at_half();
        }
        self.stop_for(&GroupError::new(
            GroupErrorKind::Io,
            "an operation ended by a panic, half done: the group stops, and mounting it again \
             forgets the half; see the log of the process",
        ));
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
