//! Changes, commits, and what a sync waits for.
//!
//! Which locks are taken before which is said by types: see [`levels`].

mod anew;
mod lost;
pub(in crate::core) mod owed;

use spindle_sync::atomic::Ordering;
use std::cell::{Cell, RefCell};

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_catalog::{
    BegunCommit, Bracket, Committing, Edit, KeptJournal, RequestUnderWay, Sequence, Table,
    TakenBatch, TouchSlot,
};
use spindle_extent::map::{Books, RowChange};
use spindle_sync::level::{
    Holds, InsideReadGuard, InsideWriteGuard, MutexGuard, Unshown, assert_none_from,
};
use spindle_sync::{Fault, is_put_back};

use crate::core::Core;
use crate::core::commit::owed::ToldBefore;
use crate::core::disks::{DiskState, FailedFlush, Target};
use crate::core::file::File;
use crate::core::map_lock::MapWriteGuard;
use crate::core::takeover::cannot_be_flushed;
use crate::error::{self, GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::incarnation::Life;
use crate::levels;

/// Beyond every edit: asks a commit for what its seal will add.
const WHATEVER_IS_SEALED: Sequence = Sequence(u64::MAX);

/// A batch of so many bytes is committed however young it is.
const COMMIT_BYTES: usize = 8 << 20;

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
    _shared: InsideReadGuard<'a, levels::Change>,
}

impl Holds for Change<'_> {
    type Level = levels::Change;
}

/// What the journal counts only whole.
#[derive(Debug)]
struct Operation<'a> {
    journal: &'a KeptJournal,
    bracket: Bracket,
    /// The request of the kernel that it fulfils.
    request: Option<RequestUnderWay<'a>>,
    settled: RefCell<SmallVec<[TouchSlot; 2]>>,
    _alone: MutexGuard<'a, (), levels::Operation>,
}

impl Operation<'_> {
    /// All of it counts; `used` where there is anything of it. The change is still open.
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
    _alone: InsideWriteGuard<'a, levels::Change>,
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
        let shared = self.change.read(Unshown);
        let operation = self.kept.as_ref().map(|kept| Operation {
            _alone: kept.operation.lock(&shared),
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

    /// A change for whoever may hold a range lock; see [`levels::RemovedRange`].
    pub(crate) fn change_inside(&self) -> Change<'_> {
        Change {
            core: self,
            operation: None,
            used: Cell::new(false),
            began_in_panic: std::thread::panicking(),
            _shared: self.change.read_inside(Unshown),
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

    /// The map of this file has other rows that the catalog lacks.
    pub(crate) fn note_dirty_map(&self, file: &File, map: &MapWriteGuard<'_>) {
        self.dirty_maps.lock().note(file.id, map);
    }

    /// Closes the books: dirty rows of all maps become edits, and what was freed belongs to this
    /// batch.
    fn seal<'a>(&'a self, begun: BegunCommit<'a>) -> Sealed<'a> {
        self.seal_ahead(&begun);
        let alone = self.change.write(&begun);
        // A file stays among them until its rows are in an edit: whoever finds none of them may
        // rely on what is applied.
        loop {
            let first = self.dirty_maps.lock().first();
            let Some(id) = first else { break };
            self.seal_map(&alone, id, usize::MAX);
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
    fn seal_ahead(&self, begun: &BegunCommit<'_>) {
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
            let alone = self.change.write(begun);
            let mut room = SLICE_ROWS;
            while room > 0
                && let Some((id, rows)) = left.last_mut()
            {
                let taken = room.min((*rows).max(1));
                self.seal_map(&alone, *id, taken);
                room -= taken;
                *rows -= taken.min(*rows);
                if *rows == 0 {
                    left.pop();
                }
            }
        }
    }

    /// The map stays locked until its rows have the number of their edit, so that a sync sees it
    /// dirty or knows what to wait for.
    fn seal_map(&self, alone: &InsideWriteGuard<'_, levels::Change>, id: FileId, rows_most: usize) {
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
        let mut map = file.map.write(alone);
        if is_put_back(Fault::SealLetsMapGo) {
            let rows = map.take_dirty_rows(committed, rows_most);
            if !rows.is_empty() {
                drop(map);
                let sealed = apply(rows);
                map = file.map.write(alone);
                map.set_sealed(sealed);
            }
        } else {
            map.seal(committed, rows_most, apply);
        }
        self.note_dirty_map(&file, &map);
    }

    /// Applies the edit and makes it durable, with all that was applied before.
    pub(crate) fn commit_edit(&self, edit: Edit) -> Result<(), GroupError> {
        let sequence = {
            let _change = self.change();
            self.catalog.apply(edit)
        };
        self.commit_through(sequence)
    }

    /// Makes the batch durable up to `through`.
    ///
    /// # Errors
    /// As [`Core::sync_file`]; also where it may be durable and the group had to stop meanwhile:
    /// nothing is acknowledged then.
    pub(crate) fn commit_through(&self, through: Sequence) -> Result<(), GroupError> {
        // Also where nothing is left to be committed: with the next caller there may be.
        assert_none_from::<Committing>();
        if self.catalog.committed() >= through {
            return Ok(());
        }
        self.check_fence()?;
        loop {
            let Some(begun) = self.catalog.begin_commit(through) else {
                return self.check_fence();
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
                Err(failed) => return Err(failed.error),
                Ok(()) => return self.check_fence(),
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
        let lost = || {
            GroupError::new(GroupErrorKind::Io, "a disk went offline during a commit")
                .during(error::Operation::Commit)
        };
        match flushed {
            Ok(()) if !lost_a_disk => Ok(Flushed(taken.batch)),
            answer => Err(Uncommitted {
                // A disk that fails its flushes and serves on would fail the next one too.
                try_again: lost_a_disk && answer.is_ok(),
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

    /// Flushes up to these writes, or up to those that are not lost. A disk that cannot goes offline,
    /// durably; in a group without redundancy that would lose all it holds, so there it stays, what
    /// it had not flushed is lost, and the error is told now and at the next sync of every file that
    /// had written to it, see `commit/lost.rs`. Where a group with redundancy cannot do without the
    /// disk, it is asked once more, and stays as well if it answers: what it dropped is owed by the
    /// files that have it nowhere else. A group that has to stop leaves the failure noted for
    /// whoever takes over, see `quorum/failed_flushes.rs`. Within
    /// a takeover it stops where it cannot do without all of them, see `takeover/unflushed.rs`.
    pub(crate) fn cover(&self, targets: &[Target]) -> Result<(), GroupError> {
        let mut failed = self.disks.flushes.cover(&self.disks, targets);
        if failed.is_empty() {
            return Ok(());
        }
        if self.membership.redundancy() == Redundancy::External {
            let error = failed[0].error.clone();
            self.outlive_failed_flushes(&failed);
            return Err(GroupError::new(GroupErrorKind::Io, error.to_string())
                .during(error::Operation::Flush)
                .on_disk(failed[0].life.disk)
                .because(error));
        }
        let disks_of = |failed: &[FailedFlush]| -> Vec<DiskNumber> {
            failed.iter().map(|flush| flush.life.disk).collect()
        };
        let disks = disks_of(&failed);
        if self.take_offline_if_borne(&disks, &failed[0].error.to_string())? {
            return Ok(());
        }
        if self.is_taking_over() {
            let error = cannot_be_flushed(&failed[0]);
            self.stop_for(&error);
            return Err(error);
        }
        let disks = disks.into_iter().collect();
        if self.membership.had_better_serve_on(&disks) && !is_put_back(Fault::NeededDiskGoes) {
            failed = self.ask_again(failed);
        }
        match failed.first() {
            None => Ok(()),
            Some(first) => self.take_offline(&disks_of(&failed), &first.error.to_string()),
        }
    }

    /// Flushes what was written to the disks in these incarnations, as [`Self::flush_targets`].
    pub(crate) fn flush_lives(&self, lives: &[Life]) -> Result<bool, GroupError> {
        let newest = lives.iter().map(|life| self.disks.flushes.newest(*life));
        self.flush_targets(&newest.collect::<SmallVec<[Target; 4]>>())
    }

    /// Tells failed flushes that nobody told. One of the catalog's, say, stands although nothing that its
    /// disk was to flush depends on it, and nobody comes to tell it: as long as it does, nothing is
    /// copied, moved or mended from there.
    pub(crate) fn tell_standing_failures(&self) -> Result<(), GroupError> {
        let failures = self.membership.failed_flushes();
        let stands = |disk: &&DiskState| failures.of(disk.number).stand() && disk.is_online();
        let lives: SmallVec<[Life; 4]> = (self.disks.iter().filter(stands))
            .map(DiskState::life)
            .collect();
        if lives.is_empty() {
            return Ok(());
        }
        for life in &lives {
            self.disks.flushes.assume_written(*life);
        }
        self.flush_lives(&lives).map(drop)
    }

    /// Flushes what was written to disks, where no flush has covered it; false where one is not there
    /// any more, or failed it. Who had written to that one owes it, and the caller does nothing that
    /// relies on it.
    pub(crate) fn flush_targets(&self, targets: &[Target]) -> Result<bool, GroupError> {
        if self.cover(targets).is_err() {
            self.check_fence()?;
            return Ok(false);
        }
        Ok(targets.iter().all(|target| self.has_flushed(*target)))
    }

    /// Makes the file's data durable and, where `metadata` asks for it or its map has changed,
    /// the batch too.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where data could not be made durable on any copy, be it now or in
    /// a write since the last sync; told once, and by every sync that runs at once with the one that
    /// tells it.
    pub fn sync_file(&self, file: &File, metadata: bool) -> Result<(), GroupError> {
        self.sync_file_since(file, metadata, self.told_of(file))
    }

    /// As [`Core::sync_file`], for a sync that began at [`Core::told_of`].
    ///
    /// # Errors
    /// As [`Core::sync_file`].
    pub fn sync_file_since(
        &self,
        file: &File,
        metadata: bool,
        before: ToldBefore,
    ) -> Result<(), GroupError> {
        self.check_fence()?;
        let turns_count = self.membership.turns_count();
        let applied = self.catalog.applied();
        let targets = file.written.lock().clone();
        if let Err(error) = self.cover(&targets) {
            self.check_fence()?;
            // Told here and now.
            self.forget_lost(file, &targets);
            return Err(self.tell_found(file, error));
        }
        let kept = self.keep_what_disks_lost(file, &targets);
        // Told here and now, where it is lost.
        file.written
            .lock()
            .retain(|target| !targets.contains(target));
        if let Err(error) = kept {
            self.check_fence()?;
            return Err(self.tell_found(file, error));
        }
        let books = file.map.read().books();
        let through = match books {
            Books::Open => WHATEVER_IS_SEALED,
            Books::Sealed(sealed) if metadata => applied.max(sealed),
            Books::Sealed(sealed) => sealed,
        };
        let listed = Sequence(file.listed_through.load(Ordering::Acquire));
        self.commit_through(through.max(listed))?;
        if self.membership.turns_count() != turns_count {
            // A mark that the commit waited for may have been set back before it was durable.
            self.notice_offline();
        }
        self.take_owed(file, before).map_or(Ok(()), Err)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Core::sync_file`], for the group.
    pub fn sync(&self) -> Result<(), GroupError> {
        self.sync_since(self.told())
    }

    /// As [`Core::sync`], for a sync that began at [`Core::told`].
    ///
    /// # Errors
    /// As [`Core::sync`].
    pub fn sync_since(&self, before: ToldBefore) -> Result<(), GroupError> {
        self.check_fence()?;
        loop {
            let turns_count = self.membership.turns_count();
            let flushed = self.flush_written();
            // Also where that failed: what was lost is told by this sync, and not by the next one too.
            let kept = flushed.and(self.keep_what_all_disks_lost());
            self.commit_everything()?;
            kept?;
            // Where a disk came or went meanwhile, a mark may have been set back before it was
            // durable.
            if self.membership.turns_count() == turns_count {
                break;
            }
        }
        if self.told() == before {
            return Ok(());
        }
        Err(GroupError::new(
            GroupErrorKind::Io,
            "what was written since the last sync may be lost: another sync, which ran at once with \
             this one, was told so, and of which file",
        ))
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

    /// The newest change of what the catalog has, for [`Core::is_durable`].
    pub fn applied(&self) -> Sequence {
        self.catalog.applied()
    }

    /// Whether no power cut takes this change back.
    pub fn is_durable(&self, applied: Sequence) -> bool {
        self.catalog.committed() >= applied
    }

    /// The next step commits what is pending, however young it is.
    pub(crate) fn commit_soon(&self) {
        self.commit_is_urgent.store(true, Ordering::Relaxed);
    }

    /// The group stops here: nothing is acknowledged any more. Told once.
    pub(crate) fn stop_for(&self, error: &GroupError) {
        let is_first = {
            let mut fence = self.fence.lock();
            let is_first = fence.is_none();
            fence.get_or_insert_with(|| error.clone());
            is_first
        };
        if is_first {
            self.event(Event::new(EventKind::GroupFenced, error.report()));
        }
        self.is_fenced.store(true, Ordering::Release);
        // Their copies may differ by now, and nobody makes them equal.
        self.clients.end();
    }

    /// The group is closed: whoever still asks is refused.
    pub(crate) fn stop_closed(&self) {
        *self.fence.lock() = Some(GroupError::new(
            GroupErrorKind::Invalid,
            "the group is closed: open it again",
        ));
        self.is_fenced.store(true, Ordering::Release);
    }

    /// Why the group had to stop.
    pub(crate) fn stopped_for(&self) -> Option<String> {
        self.check_fence().err().map(|error| error.report())
    }

    /// Whether something waits to be committed.
    pub(crate) fn is_commit_pending(&self) -> bool {
        self.catalog.committed() < self.catalog.applied() || !self.dirty_maps.lock().is_empty()
    }

    /// Whether what waits should not wait until it is old: somebody said so, or it is much.
    pub(crate) fn is_commit_urgent(&self) -> bool {
        self.commit_is_urgent.load(Ordering::Relaxed)
            || self.catalog.pending_bytes() >= COMMIT_BYTES
            || self.journal().is_some_and(|journal| journal.is_long())
    }

    /// Nothing waits, or a commit begins.
    pub(crate) fn is_not_urgent_any_more(&self) {
        self.commit_is_urgent.store(false, Ordering::Relaxed);
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
        if let Some(error) = self.membership.stopped() {
            return Err(error.clone());
        }
        if !self.is_fenced.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.fence.lock() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Refuses in a group that had to stop.
    ///
    /// # Errors
    /// Why it had to.
    pub fn check_serves(&self) -> Result<(), GroupError> {
        self.check_fence()
    }

    /// Refuses for a file that is gone and in a group that had to stop.
    pub(crate) fn check_alive(&self, file: &File) -> Result<(), GroupError> {
        self.check_fence()?;
        if file.is_removed() {
            return Err(GroupError::new(
                GroupErrorKind::NotFound,
                format!("file {} was removed", file.id),
            )
            .of_file(file.id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
