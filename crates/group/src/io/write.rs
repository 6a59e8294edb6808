//! Writes: extents that are missing get space, all pieces go to all online copies in one batch,
//! what failed takes its disk offline, and then the marks move.

use spindle_sync::atomic::Ordering;
use std::cell::RefCell;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_catalog::{Sequence, Wish, WriteUnderWay};
use spindle_device::{AlignedBuffer, DeviceError, Request, Work, WriteSource};
use spindle_extent::map::{Extent, Map};
use spindle_extent::plan::{self, Segment, Serving, TooFar, WritePlan};
use spindle_format::ExtentCopy;

use crate::core::Core;
use crate::core::dirty::{Ranges, Writer};
use crate::core::disks::{Fate, Target, Written};
use crate::core::file::File;
use crate::core::files::push_file_ranges;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::{Event, EventKind};
use crate::incarnation::Life;
use crate::io::allocate::SpaceSearch;
use crate::io::write::taken::without;
use crate::io::{ZERO_BLOCKS, ZEROS, blocks_of, bytes_of};

/// What a write will touch, as the map stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    /// File blocks to lock: those written, and the whole of each extent that grows.
    pub lock: (u64, u64),
    /// Whether initialised blocks are overwritten: their region must be recorded.
    pub overwrites: bool,
    /// Whether a crash can come back to such blocks: then the record must be durable before the
    /// data goes out. Else it is enough that it joins the batch, which the marks have to join.
    pub needs_durable_record: bool,
    /// Offline disks that hold copies of what is written.
    pub missed: SmallVec<[DiskNumber; 2]>,
    /// Whether extents must be allocated.
    pub allocates: bool,
    /// Whether marks move over what is written: rows that the next seal adds.
    pub moves_marks: bool,
    /// Whether copies could differ: what is overwritten must be recorded then.
    pub mirrored: bool,
    /// File blocks between marks and what is written, which are zeroed along with it.
    pub gaps: Ranges,
    /// How often marks of the file had gone back then, for what was lost.
    pub set_back_count: u32,
}

impl Intent {
    /// Whether what was prepared for `self` is enough for `now`.
    fn covers(&self, now: &Self) -> bool {
        self.lock.0 <= now.lock.0
            && self.lock.1 >= now.lock.1
            && (self.overwrites || !now.overwrites)
            && (self.mirrored || !now.mirrored)
            && now.missed.iter().all(|disk| self.missed.contains(disk))
            && lie_within(&now.gaps, &self.gaps)
    }
}

/// Whether each of these ranges lies in one of those.
pub(crate) fn lie_within(ranges: &[(u64, u64)], outer: &[(u64, u64)]) -> bool {
    (ranges.iter()).all(|(first, end)| {
        (outer.iter()).any(|(outer_first, outer_end)| outer_first <= first && end <= outer_end)
    })
}

/// What an attempt at a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Attempt {
    /// Every online copy has it.
    Written,
    /// Marks went back since the look at the map, or the file became mirrored and the write was not
    /// announced: nothing was written, and it begins again.
    Outdated,
}

/// What is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    Data(WriteSource<'a>),
    Zeros,
}

/// A write that was announced to the dirty regions; its end is told when it is dropped.
pub(crate) struct Announced<'a> {
    group: &'a Core,
    file: &'a File,
    writer: Writer,
    /// In the journal: after a kill the copies are compared here.
    under_way: Option<WriteUnderWay<'a>>,
    /// It is a copy to this disk.
    copied_to: Option<Life>,
    ranges: Ranges,
    /// What of them a disk was given, perhaps.
    went_out: RefCell<Ranges>,
}

impl Announced<'_> {
    /// These blocks go out now, with what is zeroed before them.
    fn goes_out(&self, blocks: (u64, u64), gaps: &[(u64, u64)]) {
        if self.ranges.is_empty() {
            return;
        }
        let mut went_out = self.went_out.borrow_mut();
        went_out.extend_from_slice(gaps);
        went_out.push(blocks);
    }

    /// Of what went out these blocks reached no copy that counts: who is away has missed nothing there.
    /// Else no copy would count when he is back.
    fn came_to_nobody(&self, blocks: &[(u64, u64)]) {
        let mut went_out = self.went_out.borrow_mut();
        *went_out = went_out
            .iter()
            .flat_map(|range| without(*range, blocks))
            .collect();
    }

    /// Nobody has missed what did not go out.
    #[cold]
    fn take_back(&self, went_out: &[(u64, u64)]) {
        let group = self.group;
        let _change = group.change_inside();
        let apply = &mut |edit| group.catalog.apply(edit);
        if (group.dirty).take_back(self.file.id, &self.writer, went_out, apply) {
            // Until that is durable a stop finds the disks named.
            group.commit_soon();
        }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        drop(self.under_way.take());
        let dirty = &self.group.dirty;
        match self.copied_to {
            None if lie_within(&self.ranges, self.went_out.get_mut()) => {
                dirty.end_write(self.file.id, &self.writer);
            }
            None => self.take_back(&self.went_out.borrow()),
            Some(life) => {
                let newest = self.group.disks.flushes.newest(life);
                dirty.end_copy(self.file.id, &self.writer, newest);
            }
        }
    }
}

impl Core {
    /// Writes to every online copy; allocates what is missing; blocks in part are read first.
    /// At return every online copy has it (not yet durable).
    ///
    /// # Errors
    /// [`GroupErrorKind::NoSpace`], and nothing was written; [`GroupErrorKind::Io`] where no copy
    /// of some extent took it, which the next sync of the file tells again.
    pub fn write(&self, file: &File, offset_bytes: u64, data: &[u8]) -> Result<(), GroupError> {
        self.write_from(file, offset_bytes, data.into())
    }

    /// As [`Core::write`]; a part of a buffer is written without a copy.
    ///
    /// # Errors
    /// As [`Core::write`].
    pub fn write_from(
        &self,
        file: &File,
        offset_bytes: u64,
        data: WriteSource<'_>,
    ) -> Result<(), GroupError> {
        let (first, end, whole) =
            blocks_of(offset_bytes, data.len()).ok_or_else(GroupError::too_far)?;
        if data.is_empty() {
            return Ok(());
        }
        if whole {
            return self.write_range(file, first, end, |group, intent, announced| {
                let blocks = (first, end);
                group.write_blocks(file, blocks, Payload::Data(data), intent, announced)
            });
        }
        self.write_range(file, first, end, |group, intent, announced| {
            let buffer = group.with_edges(file, first, end, offset_bytes, data.bytes())?;
            let payload = Payload::Data((&buffer).into());
            group.write_blocks(file, (first, end), payload, intent, announced)
        })
    }

    /// Whole blocks around `data`, the parts before and after it as they are now.
    fn with_edges(
        &self,
        file: &File,
        first: u64,
        end: u64,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<AlignedBuffer, GroupError> {
        let mut buffer = AlignedBuffer::zeroed(bytes_of(end - first));
        let block = bytes_of(1);
        let start =
            usize::try_from(offset_bytes - first * BLOCK_SIZE_BYTES).expect("below a block");
        let stop = start + data.len();
        let last = buffer.len() - block;
        if start > 0 || stop < block {
            self.read_blocks(file, first, first + 1, &mut buffer[..block])?;
        }
        if stop > last && stop < buffer.len() && last > 0 {
            self.read_blocks(file, end - 1, end, &mut buffer[last..])?;
        }
        buffer[start..stop].copy_from_slice(data);
        Ok(buffer)
    }

    /// Prepares a write of `[first, end)` (dirty regions, range lock) and runs `write`; does so
    /// again where the map or the redundancy changed in between, and where space was short and more is found.
    pub(crate) fn write_range(
        &self,
        file: &File,
        first: u64,
        end: u64,
        mut write: impl FnMut(&Self, &Intent, &Announced<'_>) -> Result<Attempt, GroupError>,
    ) -> Result<(), GroupError> {
        let mut search = SpaceSearch::default();
        loop {
            self.check_alive(file)?;
            // In one change, so that no seal takes the marks between the look at them and the
            // record of the region.
            let change = self.change_inside();
            let intent = self.intent(file, first, end)?;
            let mut ranges = intent.gaps.clone();
            ranges.push((first, end));
            let (announced, needed) = self.announce(file, &ranges, &intent);
            drop(change);
            self.commit_through(needed)?;
            if intent.moves_marks {
                // Of a file whose space is there already, nobody else asks for it.
                self.make_room(Wish::Less)?;
            }
            let held = file.range_lock.exclusive(intent.lock.0, intent.lock.1);
            self.check_alive(file)?;
            let now = self.intent(file, first, end)?;
            if !intent.covers(&now) {
                continue;
            }
            let answer = write(self, &now, &announced);
            drop(held);
            drop(announced);
            match answer {
                Err(error) if error.kind == GroupErrorKind::NoSpace => {
                    search.go_on(self, file, (first, end), error)?;
                }
                Ok(Attempt::Outdated) => {}
                answer => return answer.map(|_| ()),
            }
        }
    }

    /// Records the regions as dirty before anything is overwritten; the edit that must be durable
    /// before the data goes out. The caller commits when it holds no lock, because a commit
    /// needs everybody who changes a map to come to an end.
    pub(crate) fn announce<'a>(
        &'a self,
        file: &'a File,
        ranges: &[(u64, u64)],
        intent: &Intent,
    ) -> (Announced<'a>, Sequence) {
        let mut announced = Announced {
            group: self,
            file,
            writer: Writer::default(),
            under_way: None,
            copied_to: None,
            ranges: Ranges::new(),
            went_out: RefCell::default(),
        };
        if !intent.mirrored || self.dirty.is_left_out() {
            return (announced, Sequence::default());
        }
        let (writer, recorded) = self.dirty.begin_write(
            file,
            ranges,
            intent.overwrites,
            &intent.missed,
            &mut |edit| self.catalog.apply(edit),
        );
        announced.writer = writer;
        announced.ranges.extend_from_slice(ranges);
        if let Some(journal) = self.journal()
            && intent.overwrites
            && let Some(first) = ranges.iter().map(|(first, _)| *first).min()
            && let Some(end) = ranges.iter().map(|(_, end)| *end).max()
        {
            announced.under_way = Some(journal.write(file.id, first, end));
        }
        let needed = if intent.needs_durable_record || !intent.missed.is_empty() {
            recorded
        } else {
            Sequence::default()
        };
        (announced, needed)
    }

    /// Announces a copy of blocks to a disk: until a flush has covered it that disk may lack it where
    /// it goes, and no other.
    pub(crate) fn announce_copy<'a>(
        &'a self,
        file: &'a File,
        ranges: &[(u64, u64)],
        to: Life,
    ) -> Announced<'a> {
        let has_flushed = |target| self.has_flushed(target);
        let writer = (self.dirty).begin_copy(file, ranges, to.disk, &has_flushed);
        Announced {
            group: self,
            file,
            writer,
            under_way: None,
            copied_to: Some(to),
            ranges: Ranges::new(),
            went_out: RefCell::default(),
        }
    }

    pub(super) fn intent(&self, file: &File, first: u64, end: u64) -> Result<Intent, GroupError> {
        let map = file.map.read();
        let mut intent = Intent {
            lock: (first, end),
            overwrites: false,
            needs_durable_record: false,
            missed: SmallVec::new(),
            allocates: false,
            moves_marks: false,
            mirrored: file.is_mirrored(),
            gaps: Ranges::new(),
            set_back_count: file.set_back_count.load(Ordering::Acquire),
        };
        let mut is_refused = false;
        plan::segments::<TooFar>(&map, first, end, |segment| {
            let initialised = segment.initialised_blocks();
            intent.overwrites |= initialised > 0;
            intent.needs_durable_record |= segment.extent.is_some_and(|extent| {
                u64::from(map.sealed_mark(segment.index, &extent)) > segment.inside_blocks
            });
            if initialised < segment.blocks {
                intent.moves_marks = true;
                let (low, high) = map.schedule().envelope(segment.index);
                intent.lock = (intent.lock.0.min(low), intent.lock.1.max(high));
            }
            let mark = segment.extent.map_or(0, |extent| extent.mark_blocks);
            let gap = (u64::from(mark), segment.inside_blocks);
            push_file_ranges(&mut intent.gaps, map.schedule(), segment.index, gap);
            let Some(extent) = segment.extent else {
                intent.allocates = true;
                return Ok(());
            };
            let is_here = |copy: &ExtentCopy| self.disks.slot_of(*copy).is_some();
            is_refused |= !extent.present().any(|copy| is_here(&copy));
            for copy in extent.present().filter(|copy| !is_here(copy)) {
                let disk = copy.disk();
                if !intent.missed.contains(&disk) {
                    intent.missed.push(disk);
                }
            }
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        if is_refused {
            // Of an extent every copy is away: nothing will be written, and no copy misses anything.
            // Else none of them would count when they are back.
            intent.missed.clear();
        }
        // Blocks behind a mark that moved back are not initialised, but a crash comes back to
        // the mark before.
        intent.overwrites |= intent.needs_durable_record;
        Ok(intent)
    }

    /// Writes whole blocks; the caller holds the range that `intent` asks for, and has announced
    /// them with its gaps.
    pub(crate) fn write_blocks(
        &self,
        file: &File,
        (first, end): (u64, u64),
        payload: Payload<'_>,
        intent: &Intent,
        announced: &Announced<'_>,
    ) -> Result<Attempt, GroupError> {
        if file.hides_a_loss.load(Ordering::Acquire) {
            Self::check_gaps(file, &file.map.read(), first, end)?;
        }
        // After that look: what lies before this write in an extent that is new is a hole.
        if intent.allocates {
            self.allocate_blocks(file, first, end)?;
            // Whoever gives a file another redundancy holds no range: the space has perhaps more
            // copies than this write knew of.
            if file.is_mirrored() && !intent.mirrored {
                return Ok(Attempt::Outdated);
            }
        }
        let plan = {
            let map = file.map.read();
            // Behind marks that have gone back since, zeros would go to blocks that this writer does not
            // hold, and the parts of blocks that it read are from before.
            if file.set_back_count.load(Ordering::Acquire) != intent.set_back_count {
                return Ok(Attempt::Outdated);
            }
            plan::write(&map, &self.disks, first, end)
        };
        let plan = plan.map_err(|TooFar| GroupError::too_far())?;
        if let Some(index) = plan.without_copy {
            return Err(self.write_failed_everywhere(file, index));
        }
        announced.goes_out((first, end), &intent.gaps);
        let (mut written, failed) = self.run_writes(file, &plan, payload);
        written.leave_out(|disk| failed.iter().any(|(failed, _)| *failed == disk));
        let mut ranges = intent.gaps.clone();
        ranges.push((first, end));
        if !file.moving.is_empty() {
            self.note_moving(file, first, end);
        }
        if !failed.is_empty() {
            let settled = self.settle_failed_writes(file, &plan, &ranges, &written, &failed);
            settled.inspect_err(|_| {
                for range in &ranges {
                    let nowhere = self.without_counting_copy(file, *range, &plan.missed);
                    announced.came_to_nobody(&nowhere);
                    self.note_missed(file, &without(*range, &nowhere), &plan.missed);
                }
            })?;
        }
        let mut counted = Ok(());
        if file.may_be_stale.load(Ordering::Acquire) || self.bad_places.has_left() {
            let took = |target: &Target| !plan.missed.contains(&target.life.disk);
            let targets = written.targets().iter().copied();
            let targets: SmallVec<[Target; 8]> = targets.filter(took).collect();
            counted = self.count_taken(file, (first, end), payload, intent, &targets, announced);
        }
        if !failed.is_empty() {
            counted = counted.and(self.note_failed(file, &ranges, &failed));
        }
        if announced.ranges.is_empty() {
            self.note_missed(file, &ranges, &plan.missed);
        } else {
            // Not what other parts of one announcement brought to other disks.
            let went_out = announced.went_out.borrow();
            let is_own = |range: &&(u64, u64)| lie_within(&[**range], &ranges);
            let own: Ranges = went_out.iter().filter(is_own).copied().collect();
            self.note_missed(file, &own, &plan.missed);
        }
        if intent.mirrored && !written.lives().all(|life| self.disks.is_current(life)) {
            // Noted before the other copy had this write, perhaps.
            self.miss_what_began_anew(file, &ranges, written.lives());
            self.owe_what_was_counted_late(file, &ranges, written.targets());
        }
        counted?;
        self.note_outages_before(file, &written);
        self.move_marks(file, &plan, intent.set_back_count, (first, end), &written)?;
        Ok(Attempt::Written)
    }

    /// Refuses to write behind the marks of a file that lost something and has not told it yet:
    /// what lies between would be zeroed, and zeros there would look like an answer.
    #[cold]
    fn check_gaps(file: &File, map: &Map, first: u64, end: u64) -> Result<(), GroupError> {
        let mut reached: SmallVec<[(u32, u64); 8]> = SmallVec::new();
        let mut behind_a_gap = None;
        plan::segments::<TooFar>(map, first, end, |segment| {
            let Some(extent) = segment.extent else {
                return Ok(());
            };
            let place = reached
                .iter()
                .position(|(index, _)| *index == segment.index)
                .unwrap_or_else(|| {
                    reached.push((segment.index, u64::from(extent.mark_blocks)));
                    reached.len() - 1
                });
            let (_, from) = &mut reached[place];
            if *from < segment.inside_blocks {
                behind_a_gap = Some(segment.index);
            }
            *from = (*from).max(segment.inside_blocks + segment.blocks);
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        match behind_a_gap {
            None => Ok(()),
            Some(index) => Err(file.lost_and_untold(index, "it can be written behind that")),
        }
    }

    /// These disks have missed blocks that a write brought to others, whatever becomes of other writes
    /// that are announced there. Most were named when it was announced; some went away since, or have the
    /// space that it was given just now.
    pub(super) fn note_missed(&self, file: &File, ranges: &[(u64, u64)], disks: &[DiskNumber]) {
        if disks.is_empty() || self.dirty.is_left_out() {
            return;
        }
        let _change = self.change_inside();
        let apply = &mut |edit| self.catalog.apply(edit);
        let said = self.dirty.missed_by(file, ranges, disks, apply);
        // Only now: one that came back before this was noted, with nothing stale there, nobody would
        // look at, and one that comes back later finds it noted.
        let is_back = |disk: &DiskNumber| self.disks.is_online(*disk);
        if disks.iter().any(is_back) {
            let back = disks.iter().copied().filter(is_back);
            self.membership.begin_catching_up(back);
            drop(self.dirty.begin_resync());
        }
        (file.listed_through).fetch_max(said.0, Ordering::AcqRel);
    }

    /// Tells whoever copies extents of the range elsewhere that these blocks, and what was zeroed
    /// before them, have changed; the marks have not moved yet. The caller holds the range alone
    /// since before they changed.
    pub(crate) fn note_moving(&self, file: &File, first: u64, end: u64) {
        // Beyond what extents can reach nothing is written.
        let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            if let Some(extent) = segment.extent {
                let from = segment.inside_blocks.min(u64::from(extent.mark_blocks));
                let to = segment.inside_blocks + segment.blocks;
                file.moving.note(segment.index, from, to);
            }
            Ok(())
        });
    }

    /// Runs the plan; what was written, and the disks that failed.
    fn run_writes(
        &self,
        file: &File,
        plan: &WritePlan,
        payload: Payload<'_>,
    ) -> (Written, Vec<(DiskNumber, DeviceError)>) {
        let mut batch: SmallVec<[Request<'_>; 4]> = SmallVec::new();
        let mut disks: SmallVec<[DiskNumber; 4]> = SmallVec::new();
        for piece in &plan.pieces {
            match (piece.from_blocks, payload) {
                (Some(from), Payload::Data(data)) => {
                    let start = bytes_of(from);
                    let memory = data.slice(start..start + bytes_of(piece.blocks));
                    batch.push(Request::new(
                        piece.to.slot,
                        piece.to.offset_bytes,
                        memory.into_work(),
                    ));
                    disks.push(piece.disk);
                }
                _ => {
                    let mut done = 0;
                    while done < piece.blocks {
                        let blocks = (piece.blocks - done).min(ZERO_BLOCKS);
                        batch.push(Request::new(
                            piece.to.slot,
                            piece.to.offset_bytes + done * BLOCK_SIZE_BYTES,
                            Work::WritePart(ZEROS.share(0..bytes_of(blocks))),
                        ));
                        disks.push(piece.disk);
                        done += blocks;
                    }
                }
            }
        }
        let written = self.disks.write(&mut batch);
        written.of_file(file);
        let mut failed: Vec<(DiskNumber, DeviceError)> = Vec::new();
        for (request, disk) in batch.into_iter().zip(disks) {
            if let Err(error) = request.result
                && !failed.iter().any(|(other, _)| *other == disk)
            {
                failed.push((disk, error));
            }
        }
        (written, failed)
    }

    /// Remembers that nothing was written, because the extent has no copy online.
    pub(super) fn write_failed_everywhere(&self, file: &File, index: u32) -> GroupError {
        let message = format!("extent {index} of file {} has no copy online", file.id);
        self.write_failed(
            file,
            GroupError::new(GroupErrorKind::Io, message).in_extent(index),
        )
    }

    /// Remembers the failure for the next sync.
    fn write_failed(&self, file: &File, error: GroupError) -> GroupError {
        let error = error.during(Operation::Write).of_file(file.id);
        self.owe_error(file, &error);
        self.event(Event::new(EventKind::WriteFailed, error.report()).file(file.id));
        error
    }

    /// A disk took some of this in a life that began with a failed flush, and what a file of one copy lost by
    /// that is not noted yet: the marks that go back for it would take this write with them, and nobody be told.
    fn note_outages_before(&self, file: &File, written: &Written) {
        let is_to_be_noted = |life: Life| {
            (self.disks.get(life.disk)).is_some_and(|disk| disk.outage_to_note().is_some())
        };
        if file.is_mirrored() || !written.lives().any(is_to_be_noted) {
            return;
        }
        let before = file.written.lock().clone();
        let is_lost = |target: &Target| self.disks.flushes.fate(&self.disks, *target) == Fate::Lost;
        if before.iter().any(is_lost) {
            self.notice_offline();
        }
    }

    /// The marks move over what was written. Not where a disk has gone since with the only copy
    /// of it, nor where marks went back since the write was planned by them: it has failed then,
    /// and the bytes beyond the marks are from before.
    fn move_marks(
        &self,
        file: &File,
        plan: &WritePlan,
        set_back_count: u32,
        range: (u64, u64),
        written: &Written,
    ) -> Result<(), GroupError> {
        let is_lost = |map: &Map| {
            file.set_back_count.load(Ordering::Acquire) != set_back_count
                || self.is_lost_meanwhile(file, map, range, plan, written)
        };
        let is_lost = if plan.marks.is_empty() {
            file.set_back_count.load(Ordering::Acquire) != set_back_count
                || (!written.lives().all(|life| self.disks.is_current(life))
                    && is_lost(&file.map.read()))
        } else {
            let change = self.change_inside();
            let mut map = file.map.write(&change);
            // Under the map's lock: whoever notes an outage sets marks back under it, and the
            // outage is later than this look or seen by it.
            let is_lost = is_lost(&map);
            if !is_lost {
                for (index, mark) in &plan.marks {
                    let is_forward = |extent: Extent| extent.mark_blocks <= *mark;
                    debug_assert!(
                        map.extent(*index).is_none_or(is_forward),
                        "a write moves the mark of extent {index} of file {} back",
                        file.id
                    );
                    map.set_mark(*index, *mark);
                }
                self.note_dirty_map(file, &map);
            }
            is_lost
        };
        if is_lost {
            let message = format!(
                "a disk with the only copy of what was written to file {} went away or failed a flush \
                 before it was flushed",
                file.id
            );
            return Err(self.write_failed(file, GroupError::new(GroupErrorKind::Io, message)));
        }
        Ok(())
    }

    /// Whether of an extent of the range no disk that serves has what was written, because each
    /// that took it has gone since.
    fn is_lost_meanwhile(
        &self,
        file: &File,
        map: &Map,
        range: (u64, u64),
        plan: &WritePlan,
        written: &Written,
    ) -> bool {
        if written.lives().all(|life| self.disks.is_current(life)) {
            return false;
        }
        let took: SmallVec<[DiskNumber; 4]> = (written.lives())
            .filter(|life| self.disks.is_current(*life) && !plan.missed.contains(&life.disk))
            .map(|life| life.disk)
            .collect();
        !matches!(self.without_copy(file, map, range, &took), Ok(None))
    }

    /// The last blocks of the range that have no copy on one of the disks that `took` them and serve:
    /// one that came back meanwhile has what was there before. Copies on bad places that give back
    /// other bytes do not count.
    fn without_copy(
        &self,
        file: &File,
        map: &Map,
        (first, end): (u64, u64),
        took: &[DiskNumber],
    ) -> Result<Option<Segment>, GroupError> {
        let has_copy = |segment: &Segment, extent: &Extent| {
            let blocks = (segment.at_block, segment.at_block + segment.blocks);
            let counts = |copy: ExtentCopy| {
                self.disks.slot_of(copy).is_some()
                    && took.contains(&copy.disk())
                    && !self.bad_places.is_left(file.id, copy.disk(), blocks)
            };
            extent.present().any(counts)
        };
        let mut without = None;
        plan::segments::<TooFar>(map, first, end, |segment| {
            let extent = segment.extent.as_ref();
            if !extent.is_some_and(|extent| has_copy(segment, extent)) {
                without = Some(*segment);
            }
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        Ok(without)
    }
}

mod settling;
mod taken;
#[cfg(test)]
mod tests;
