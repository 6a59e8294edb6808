//! One copy of one extent goes elsewhere, a piece at a time.
//!
//! The run on the target is taken, a record is made (`moving.rs`), and the initialised blocks are
//! copied in pieces while others read and write the extent. What they wrote meanwhile is copied
//! again; the last of it with the extent's range locked, and then the map names the new copy and
//! the old run goes into quarantine. So there are never fewer copies than before. Where the target
//! or a disk with a copy goes away before that, and be it for a moment, the move is given up.
//!
//! A crash before the commit that carries the map finds the old run, whole: it stays in
//! quarantine until then. Blocks that were written to the new copy since are either synced, and
//! a sync commits a map that changed; or their region has a durable row, and the copies are made
//! equal. The record is memory only: a crash forgets the move, and the run on the target is free.
//!
//! A block that cannot be read keeps the rest from being copied only where it would be lost with the
//! old copy. A copy that was missing, or lacks the block too, is made without it: the target is stale
//! there, durably with the map, and the resync tries it again.
//!
//! Left to others: which copy goes where (`planner.rs`), when and how fast (`mover.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::Serving;
use spindle_extent::schedule::Schedule;
use spindle_extent::space::Run;
use spindle_format::ExtentCopy;
use spindle_sync::{Fault, is_put_back};

use crate::background::Group;
use crate::background::planner::Move;
use crate::core::dirty::Ranges;
use crate::core::disks::{DiskState, Target};
use crate::core::file::File;
use crate::core::files::{file_ranges, push_file_ranges};
use crate::core::moving::Ticket;
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::incarnation::Life;
use crate::io::bytes_of;

/// Blocks written meanwhile that are few enough to be copied while writers wait.
const FEW_BLOCKS: u64 = 32;
/// Blocks that a new copy may lack: where more cannot be read it is not made.
const LACKING_MOST: usize = 64;
/// Times that what was written meanwhile is copied without making writers wait.
const ROUNDS_MOST: u8 = 3;

/// A copy on its way. Dropping it without [`Group::abandon_relocation`] keeps the run taken
/// until the next opening.
#[derive(Debug)]
pub struct Relocation {
    file: Arc<File>,
    moved: Move,
    ticket: Ticket,
    run: Run,
    /// The run was noted as bad: who forgets such runs gives it back.
    is_run_noted: bool,
    /// The target and the disks that have copies, as they were when it began. A target that went
    /// has lost what no flush covered of the pieces, and what was read from a source that went
    /// may be older than what it had.
    lives: SmallVec<[Life; 4]>,
    /// The file's writes to disks with copies until then, where the extent is to get a copy that it
    /// lacks: those of a file that had one copy were announced to nobody.
    unannounced: SmallVec<[Target; 4]>,
    /// Blocks from the extent's start that were copied.
    done_blocks: u64,
    rounds: u8,
    /// Blocks of the extent that no copy gave, and that the new one lacks.
    lacking: BTreeSet<u64>,
}

impl Relocation {
    /// Bytes of the extent that need not be copied any more once it has ended.
    pub const fn length_bytes(&self) -> u64 {
        self.moved.blocks * BLOCK_SIZE_BYTES
    }
}

/// What a call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A piece was copied, in bytes; more is to do.
    Copied(u64),
    /// The map names the new copy.
    Finished,
    /// The file changed, or a disk failed: nothing was moved, and the target's run is free.
    Abandoned,
}

/// What came of a read.
enum ReadCopy {
    Good,
    /// A copy has a bad place there, and no other could be read.
    Bad,
    /// No copy is there, or answers.
    None,
}

/// Why a relocation did not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The extent or the disks are not what the plan thought.
    Outdated,
    /// The target has no room (any more).
    NoRoom,
}

impl Group {
    /// Takes the run and makes the record.
    pub(crate) fn begin_relocation(&self, moved: &Move) -> Result<Relocation, Refusal> {
        let file = self.file(moved.file).ok_or(Refusal::Outdated)?;
        if !self.is_still_wanted(&file, moved) {
            return Err(Refusal::Outdated);
        }
        let class = file.map.read().schedule().class(moved.index);
        let run = self.take_run(moved.to, class).ok_or(Refusal::NoRoom)?;
        let (first, end) = file.map.read().schedule().envelope(moved.index);
        let begun = {
            // Whoever writes to the extent was answered before this, or sees the record.
            let _alone = file.range_lock.exclusive(first, end);
            if self.is_still_wanted(&file, moved) {
                let extent = file.map.read().extent(moved.index);
                let target = self.disks.get(moved.to).map(DiskState::life);
                let mut lives: SmallVec<[Life; 4]> = target.into_iter().collect();
                lives.extend(self.disks.lives(extent.iter().flat_map(Extent::present)));
                let mut unannounced = file.written.lock().clone();
                unannounced
                    .retain(|target| !moved.from.is_present() && lives.contains(&target.life));
                let ticket = file.moving.begin(moved.index);
                ticket.map(|ticket| (ticket, lives, unannounced))
            } else {
                None
            }
        };
        let Some((ticket, lives, unannounced)) = begun else {
            self.give_run_back(run);
            return Err(Refusal::Outdated);
        };
        // What a source lost before it was looked at is stale there from here on: a disk that serves
        // on after a failed flush does so before that is noted.
        self.notice_offline();
        Ok(Relocation {
            file,
            moved: *moved,
            ticket,
            run,
            is_run_noted: false,
            lives,
            unannounced,
            done_blocks: 0,
            rounds: 0,
            lacking: BTreeSet::new(),
        })
    }

    /// Whether the extent still has the copy that is to move, and may have one on the target.
    fn is_still_wanted(&self, file: &File, moved: &Move) -> bool {
        let Some(target) = self.disks.get(moved.to) else {
            return false;
        };
        if file.is_removed() || !target.may_receive() {
            return false;
        }
        let Some(extent) = file.map.read().extent(moved.index) else {
            return false;
        };
        let copies = extent.copies();
        let number = usize::from(moved.copy_number);
        if !moved.from.is_present() && number >= file.map.read().wanted() {
            return false;
        }
        let is_elsewhere = |(other, copy): (usize, &ExtentCopy)| {
            other == number
                || !copy.is_present()
                || (self.disks.get(copy.disk()))
                    .is_none_or(|disk| disk.group_index != target.group_index)
        };
        copies.get(number) == Some(&moved.from) && copies.iter().enumerate().all(is_elsewhere)
    }

    /// Gives the target's run back.
    pub(crate) fn abandon_relocation(&self, relocation: &Relocation) {
        let index = relocation.moved.index;
        relocation.file.moving.end(index, relocation.ticket);
        if !relocation.is_run_noted {
            self.give_run_back(relocation.run);
        }
    }

    /// Takes a run that no map names yet. A check sees it both taken and under way, or neither.
    fn take_run(&self, disk: DiskNumber, class: u8) -> Option<Run> {
        let _change = self.change_inside();
        let start_block = (self.space).allocate(disk, class, self.reserve_aus(disk))?;
        let run = Run {
            disk,
            start_block,
            class,
        };
        self.background.underway.lock().push(run);
        Some(run)
    }

    fn give_run_back(&self, run: Run) {
        let _change = self.change_inside();
        self.forget_underway(run);
        self.space.give_back(run);
    }

    fn forget_underway(&self, run: Run) {
        self.background
            .underway
            .lock()
            .retain(|other| *other != run);
    }

    /// Copies at most `piece_blocks`, or ends the relocation where all is copied. After
    /// [`Step::Finished`] and [`Step::Abandoned`] there is nothing left to call.
    ///
    /// # Errors
    /// Where a disk that failed could not be taken offline, durably: the group stops.
    pub(crate) fn step_relocation(
        &self,
        relocation: &mut Relocation,
        piece_blocks: u64,
        buffer: &mut AlignedBuffer,
    ) -> Result<Step, GroupError> {
        let answer = self.try_step(relocation, piece_blocks, buffer);
        if !matches!(answer, Ok(Some(Step::Copied(_) | Step::Finished))) {
            self.abandon_relocation(relocation);
        }
        Ok(answer?.unwrap_or(Step::Abandoned))
    }

    fn try_step(
        &self,
        relocation: &mut Relocation,
        piece_blocks: u64,
        buffer: &mut AlignedBuffer,
    ) -> Result<Option<Step>, GroupError> {
        if !self.is_as_begun(relocation) {
            return Ok(None);
        }
        let file = Arc::clone(&relocation.file);
        let index = relocation.moved.index;
        let Some(extent) = file.map.read().extent(index) else {
            return Ok(None);
        };
        let mark = u64::from(extent.mark_blocks);
        // What was cut off since is other bytes when it grows again, noted below this mark or not.
        relocation.done_blocks = relocation.done_blocks.min(mark);
        if relocation.done_blocks < mark {
            let from = relocation.done_blocks;
            let to = mark.min(from + piece_blocks);
            if !self.copy_blocks(relocation, &extent, (from, to), buffer)? {
                return Ok(None);
            }
            relocation.done_blocks = to;
            return Ok(Some(Step::Copied((to - from) * BLOCK_SIZE_BYTES)));
        }
        if relocation.rounds < ROUNDS_MOST {
            relocation.rounds += 1;
            let Some(noted) = file.moving.take(index, relocation.ticket) else {
                return Ok(None);
            };
            let blocks: u64 = noted.iter().map(|(from, to)| to - from).sum();
            for (from, to) in noted {
                if !self.copy_blocks(relocation, &extent, (from, to.min(mark)), buffer)? {
                    return Ok(None);
                }
            }
            if blocks > FEW_BLOCKS {
                return Ok(Some(Step::Copied(blocks * BLOCK_SIZE_BYTES)));
            }
        }
        self.finish(relocation, buffer)
    }

    /// The short end: with the extent's range locked, what is left is copied and the map changes.
    fn finish(
        &self,
        relocation: &mut Relocation,
        buffer: &mut AlignedBuffer,
    ) -> Result<Option<Step>, GroupError> {
        let (file, moved) = (Arc::clone(&relocation.file), relocation.moved);
        let (file, moved) = (&file, &moved);
        let (first, end) = file.map.read().schedule().envelope(moved.index);
        // Where no other copy counts the old run is the only one until the new one is durable.
        let is_good = |copy: ExtentCopy| {
            self.disks.slot_of(copy).is_some()
                && !self.disks.is_set_back(copy.disk())
                && self.has_regions(file, copy, (first, end))
        };
        let is_alone = |extent: &Extent| {
            let number = usize::from(moved.copy_number);
            let mut others = extent.copies().iter().enumerate();
            !others.any(|(other, copy)| other != number && is_good(*copy))
        };
        let Some(extent) = file.map.read().extent(moved.index) else {
            return Ok(None);
        };
        let was_alone = is_alone(&extent);
        if was_alone && !self.flush_target(moved)? {
            return Ok(None);
        }
        // A disk that went with them unflushed would not be known to lack them beside the new copy.
        if !self.flush_targets(&relocation.unannounced)? {
            return Ok(None);
        }
        let _alone = file.range_lock.exclusive(first, end);
        let Some(noted) = file.moving.take(moved.index, relocation.ticket) else {
            return Ok(None);
        };
        if !self.is_still_wanted(file, moved) {
            return Ok(None);
        }
        let Some(extent) = file.map.read().extent(moved.index) else {
            return Ok(None);
        };
        let mark = u64::from(extent.mark_blocks);
        let grown = (relocation.done_blocks.min(mark), mark);
        let mut copied = false;
        for (from, to) in noted.into_iter().chain([grown]) {
            let to = to.min(mark);
            copied |= from < to;
            if !self.copy_blocks(relocation, &extent, (from, to), buffer)? {
                return Ok(None);
            }
        }
        let is_alone = is_alone(&extent);
        if is_alone && (copied || !was_alone) && !self.flush_target(moved)? {
            return Ok(None);
        }
        Ok(self
            .enter_copy(relocation, is_alone)
            .then_some(Step::Finished))
    }

    /// Whether the target serves and no disk that it relies on has come or gone since it began, or failed
    /// a flush that is not told yet.
    fn is_as_begun(&self, relocation: &Relocation) -> bool {
        (self.disks.have_kept_all(&relocation.lives) || is_put_back(Fault::MoveOutlivesBlink))
            && (self.disks.get(relocation.moved.to)).is_some_and(DiskState::is_online)
    }

    /// Puts the new copy into the map. False where a disk went offline meanwhile, or the copy is
    /// not wanted any more.
    fn enter_copy(&self, relocation: &Relocation, is_flushed: bool) -> bool {
        let (file, moved, run) = (&relocation.file, &relocation.moved, relocation.run);
        let own = (relocation.lives.iter().copied()).find(|life| life.disk == moved.to);
        // Where the target goes offline before a flush has covered what was copied to it, these
        // blocks must be known as ones that it may lack. What is flushed it has, and perhaps
        // nobody else.
        let _announced = own
            .filter(|_| file.is_mirrored() && !is_flushed)
            .map(|own| {
                let ranges = file_ranges(file.map.read().schedule(), moved.index);
                self.announce_copy(file, &ranges, own)
            });
        let (lacking, others) = Self::lacking_ranges(relocation, file.map.read().schedule());
        // Until it is stale there a resync that looks finds nothing to do, and must not end the looking
        // of readers.
        let _returning = (!lacking.is_empty()).then(|| {
            let returning = self.dirty.begin_resync();
            self.membership.begin_catching_up(std::iter::once(moved.to));
            returning
        });
        {
            let change = self.change_inside();
            let copy = ExtentCopy::new(run.disk, run.start_block, run.class);
            let mut map = file.map.write(&change);
            // Under the map's lock: an outage before this look is seen by it, and whoever notes one
            // that comes later finds the new copy in the map.
            if !self.is_as_begun(relocation) {
                return false;
            }
            let number = usize::from(moved.copy_number);
            // Another redundancy asks for no lock of the range.
            let held =
                (map.extent(moved.index)).and_then(|extent| extent.copies().get(number).copied());
            if held != Some(moved.from) || (!moved.from.is_present() && number >= map.wanted()) {
                return false;
            }
            if !lacking.is_empty() {
                // Before anybody can read it there.
                let apply = &mut |edit| self.catalog.apply(edit);
                self.dirty.missed_by(file, &lacking, &[moved.to], apply);
            }
            let extent = map.extent(moved.index);
            let others_count = extent.map_or(0, |extent| {
                extent.present().filter(|copy| *copy != moved.from).count()
            });
            if others_count + 1 < map.wanted() {
                // Before the disk has it: from then on it is not to be done without.
                self.membership
                    .note_short(std::iter::once((moved.to, others_count + 1)));
            }
            map.set_copy(moved.index, number, copy);
            self.note_dirty_map(file, &map);
            if moved.from.is_present() {
                self.give_up_run(file, &map, moved.index, moved.from);
            }
            drop(map);
            // What the disk missed there before it had a copy, the new one has.
            let newest = own.map(|own| self.disks.flushes.newest(own));
            for range in others {
                (self.dirty).caught_up(file, range, newest.as_slice(), &relocation.lives);
            }
            self.name_only_stale(file);
            self.forget_underway(run);
            file.moving.end(moved.index, relocation.ticket);
        }
        true
    }

    /// Copies blocks `[from, to)` of the extent from a good copy to the target's run. False where
    /// no copy can be read or the target cannot be written.
    fn copy_blocks(
        &self,
        relocation: &mut Relocation,
        extent: &Extent,
        (from, to): (u64, u64),
        buffer: &mut AlignedBuffer,
    ) -> Result<bool, GroupError> {
        let mut from = from;
        while from < to {
            let mut blocks = (to - from).min(buffer.len() as u64 / BLOCK_SIZE_BYTES);
            let is_read = loop {
                let memory = &mut buffer[..bytes_of(blocks)];
                match self.read_good_copy(relocation, extent, from, memory) {
                    ReadCopy::Good => break true,
                    // What is bad on one may be good on another, beside what is bad there.
                    ReadCopy::Bad if blocks > 1 => blocks /= 2,
                    ReadCopy::Bad if self.may_lack(relocation, from) => break false,
                    ReadCopy::Bad | ReadCopy::None => return Ok(false),
                }
            };
            if !is_read {
                relocation.lacking.insert(from);
                from += 1;
                continue;
            }
            let memory = &buffer[..bytes_of(blocks)];
            let run = relocation.run;
            let Some(slot) = self.disks.get(run.disk).and_then(|disk| disk.online_slot()) else {
                return Ok(false);
            };
            let at = (run.start_block + from) * BLOCK_SIZE_BYTES;
            let mut batch = [Request::new(slot, at, Work::Write(memory))];
            self.disks.write(&mut batch).of_next_commit();
            self.background.count_own(1);
            let [request] = batch;
            if let Err(error) = request.result {
                return self.target_failed(relocation, &error).map(|()| false);
            }
            let copied = from..from + blocks;
            relocation.lacking.retain(|block| !copied.contains(block));
            from += blocks;
        }
        Ok(true)
    }

    /// Whether nothing is lost where the new copy lacks this block, because the old one has it no more.
    fn may_lack(&self, relocation: &Relocation, block: u64) -> bool {
        let (file, moved) = (&relocation.file, &relocation.moved);
        let from = moved.from;
        let is_stale = || {
            let schedule = file.map.read().schedule();
            let at = schedule.file_block(moved.index, block);
            self.dirty.is_stale(file, from.disk(), at, at + 1)
        };
        relocation.lacking.len() < LACKING_MOST
            && (!from.is_present() || self.is_absent(from.disk()) || is_stale())
    }

    /// The file blocks of the extent that the new copy lacks, and the others.
    fn lacking_ranges(relocation: &Relocation, schedule: Schedule) -> (Ranges, Ranges) {
        let index = relocation.moved.index;
        let (mut lacking, mut others) = (Ranges::new(), Ranges::new());
        let mut from = 0;
        for block in relocation.lacking.iter().copied() {
            push_file_ranges(&mut others, schedule, index, (from, block));
            push_file_ranges(&mut lacking, schedule, index, (block, block + 1));
            from = block + 1;
        }
        let end = schedule.length_blocks(index);
        push_file_ranges(&mut others, schedule, index, (from, end));
        (lacking, others)
    }

    /// Reads from the copies in turn until one can be read; one that is stale there is no source.
    fn read_good_copy(
        &self,
        relocation: &Relocation,
        extent: &Extent,
        from: u64,
        memory: &mut [u8],
    ) -> ReadCopy {
        let file = &relocation.file;
        let mut avoid = 0_u8;
        let mut ranges = Ranges::new();
        let inside = (from, from + memory.len() as u64 / BLOCK_SIZE_BYTES);
        let schedule = file.map.read().schedule();
        push_file_ranges(&mut ranges, schedule, relocation.moved.index, inside);
        for (number, copy) in extent.copies().iter().enumerate() {
            let is_stale =
                |(first, end): &(u64, u64)| self.dirty.is_stale(file, copy.disk(), *first, *end);
            if copy.is_present() && ranges.iter().any(is_stale) {
                avoid |= 1 << number;
            }
        }
        let stale = avoid;
        let mut answer = ReadCopy::None;
        while let Some((number, copy, slot)) = self.disks.choose(extent, avoid) {
            if self.disks.is_set_back(copy.disk()) && self.has_better(extent, stale) {
                // Its bytes would go to a disk that nobody distrusts. The other one is away, or cannot
                // be read here.
                return answer;
            }
            let at = copy.start_bytes() + from * BLOCK_SIZE_BYTES;
            let mut batch = [Request::new(slot, at, Work::Read(&mut *memory))];
            self.disks.read(&mut batch);
            self.background.count_own(1);
            let [request] = batch;
            match request.result {
                Ok(()) => return ReadCopy::Good,
                Err(error) if error.kind == DeviceErrorKind::Medium => answer = ReadCopy::Bad,
                Err(_) => {}
            }
            avoid |= 1 << number;
        }
        answer
    }

    /// Whether a copy that is not among the stale ones lies on a disk that was neither set back nor
    /// given up, whether it serves or not.
    fn has_better(&self, extent: &Extent, stale: u8) -> bool {
        let mut copies = extent.copies().iter().enumerate();
        copies.any(|(number, copy)| {
            copy.is_present()
                && stale >> number & 1 == 0
                && !self.disks.is_set_back(copy.disk())
                && !self.is_absent(copy.disk())
        })
    }

    /// False where the target is not there, or failed: whoever else had written to it owes that.
    fn flush_target(&self, moved: &Move) -> Result<bool, GroupError> {
        match self.disks.get(moved.to).map(DiskState::life) {
            Some(life) => self.flush_lives(&[life]),
            None => Ok(false),
        }
    }

    /// A target that cannot be written is treated like any disk that fails a write; where the group
    /// cannot do without it, it is only left alone. Nobody waits for this write.
    fn target_failed(
        &self,
        relocation: &mut Relocation,
        error: &DeviceError,
    ) -> Result<(), GroupError> {
        let run = relocation.run;
        let is_external = self.membership.redundancy().copies() == 1;
        if !is_external && self.take_offline_for_copy(run.disk, error)? {
            return Ok(());
        }
        if error.kind == DeviceErrorKind::Medium && self.bad_runs.may_note(run.disk) {
            self.note_bad_target(relocation, error);
        }
        Ok(())
    }

    /// The run takes no copy: it is never given out again, and the next plan finds another one.
    fn note_bad_target(&self, relocation: &mut Relocation, error: &DeviceError) {
        let run = relocation.run;
        {
            let _change = self.change_inside();
            relocation.is_run_noted = true;
            self.forget_underway(run);
            self.bad_runs.note(run, |edit| {
                self.catalog.apply(edit);
            });
        }
        let message = format!(
            "{}: a place that was to get a copy is bad and is not used any more: {error}",
            self.disks.describe(run.disk)
        );
        self.event(Event::new(EventKind::BlockMoved, message).disk(run.disk));
    }
}

#[cfg(test)]
mod tests;
