//! After an unclean stop: the copies of each dirty region are compared and made equal.
//!
//! The first copy that can be read wins, whichever it is: a write that was cut off was never
//! acknowledged by a sync, and every copy holds either what was before it or what it wrote, block
//! by block. A crash in here leaves the region's record, and the next opening compares again.

use spindle_sync::level::Unshown;
use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};
use spindle_catalog::{Edit, KeptJournal, Recovered};
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::{self, Segment, Serving, Staleness, TooFar};
use spindle_format::ExtentCopy;

use crate::core::Core;
use crate::core::dirty::{DoubtfulRegion, REGION_BLOCKS};
use crate::core::file::File;
use crate::error::GroupError;
use crate::event::{Event, EventKind, Severity};

/// The most that is compared in one step.
const COMPARED_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE_BYTES;

impl Core {
    /// After an opening that took over: the copies are compared where writes were under way.
    /// False where that cannot be told.
    pub(crate) fn recover_writes(&self) -> Result<bool, GroupError> {
        let Some(kept) = &self.kept else {
            return Ok(false);
        };
        let guard = kept.recovered.lock(Unshown);
        let Some(recovered) = guard.as_ref() else {
            return Ok(false);
        };
        if recovered.overflowed {
            let message = "the journal was full when the process was killed: changes since its \
                           last commit may be missing";
            self.event(Event::new(EventKind::GroupTakenOver, message).severity(Severity::Critical));
        }
        // Those that went at the flush too.
        self.miss_disks(recovered.extents.keys());
        self.keep_only_copies();
        let unflushed = self.miss_unflushed(&kept.journal, recovered);
        if !recovered.compare_everything {
            self.dirty.trust();
        }
        self.compare_blocks(&unflushed)?;
        if recovered.compare_everything {
            return Ok(false);
        }
        self.compare_blocks(&recovered.writes)?;
        Ok(true)
    }

    /// Compares blocks `[first, end)` of files; where they can be read from no copy, the next
    /// opening does.
    fn compare_blocks(&self, ranges: &[(FileId, u64, u64)]) -> Result<(), GroupError> {
        for (id, first, end) in ranges {
            let Some(file) = self.file(*id).filter(|file| file.is_mirrored()) else {
                continue;
            };
            let blocks = (*first, *end);
            let apply = &mut |edit| self.catalog.apply(edit);
            // A disk that goes before the next flush may lack what is made equal here.
            self.dirty.written_again(*id, blocks, apply);
            if self.recover_blocks(&file, blocks)?.is_none() {
                self.dirty.doubt(*id, &[blocks], apply);
            }
        }
        Ok(())
    }

    /// Disks that failed a flush and serve on have perhaps lost what was written lately. Where
    /// another copy counts, they lack it; where none does, their copies may differ, in the blocks
    /// that are given.
    fn miss_unflushed(
        &self,
        journal: &KeptJournal,
        recovered: &Recovered,
    ) -> Vec<(FileId, u64, u64)> {
        let failed = |disk: DiskNumber| journal.has_failed_flush(disk);
        let mut unequal = Vec::new();
        if !(self.disks.iter()).any(|disk| disk.is_online() && failed(disk.number)) {
            return unequal;
        }
        let regions = self.dirty.doubtful().into_iter().map(|region| {
            let first = u64::from(region.region) * REGION_BLOCKS;
            (region.file, Some((first, first + REGION_BLOCKS)), 0)
        });
        let extents = recovered.extents.keys();
        let extents = extents.map(|(id, index)| (*id, None, *index));
        let mut lacking: BTreeSet<DiskNumber> = BTreeSet::new();
        for (id, blocks, index) in regions.chain(extents) {
            let Some(file) = self.file(id).filter(|file| file.is_mirrored()) else {
                continue;
            };
            let (first, end) = blocks.unwrap_or_else(|| file.map.read().schedule().envelope(index));
            let mut segments: Vec<Segment> = Vec::new();
            // The last region may end beyond what extents can reach.
            let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
                segments.push(*segment);
                Ok(())
            });
            for segment in segments {
                let range = (
                    segment.at_block,
                    segment.at_block + segment.initialised_blocks(),
                );
                let Some(extent) = segment.extent.filter(|_| range.0 < range.1) else {
                    continue;
                };
                let doubted: Vec<DiskNumber> = (extent.present())
                    .map(ExtentCopy::disk)
                    .filter(|disk| failed(*disk) && self.disks.is_online(*disk))
                    .collect();
                if doubted.is_empty() {
                    continue;
                }
                let stale = self.dirty.stale_disks(&file, range.0, range.1);
                let counts = |copy: ExtentCopy| {
                    let disk = copy.disk();
                    self.disks.is_online(disk) && !failed(disk) && !stale.contains(&disk)
                };
                if extent.present().any(counts) {
                    let apply = &mut |edit| self.catalog.apply(edit);
                    self.dirty.missed_by(&file, &[range], &doubted, apply);
                    lacking.extend(doubted);
                } else {
                    unequal.push((id, range.0, range.1));
                }
            }
        }
        if !lacking.is_empty() {
            // They are online already.
            drop(self.dirty.begin_resync());
            self.membership.begin_catching_up(lacking.into_iter());
        }
        unequal
    }

    /// A row that was open calls its disks stale in all of the region. A copy that is the only one of
    /// its extent is not: there is none that could have what it lacks.
    fn keep_only_copies(&self) {
        for region in self.dirty.doubtful() {
            let first = u64::from(region.region) * REGION_BLOCKS;
            let Some(file) = self.file(region.file) else {
                continue;
            };
            let mut only: Vec<((u64, u64), DiskNumber)> = Vec::new();
            let end = first + REGION_BLOCKS;
            // The last region may end beyond what extents can reach.
            let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
                let mut copies = segment.extent.iter().flat_map(Extent::present);
                if let (Some(copy), None) = (copies.next(), copies.next())
                    && region.stale_disks.contains(&copy.disk())
                {
                    let blocks = (segment.at_block, segment.at_block + segment.blocks);
                    only.push((blocks, copy.disk()));
                }
                Ok(())
            });
            for (blocks, disk) in only {
                self.dirty.keep_only_copy(region.file, blocks, disk);
            }
        }
    }

    /// Before recovery flushes or writes anything, so that a disk that goes in here finds noted what
    /// the others lack, and keeps it: no state says yet how many copies of a file are good.
    fn miss_before_flushing(&self) -> Result<(), GroupError> {
        let guard = self.kept.as_ref().map(|kept| kept.recovered.lock(Unshown));
        if let Some(recovered) = guard.as_deref().and_then(Option::as_ref) {
            self.miss_disks(recovered.extents.keys());
        } else if !self.dirty.doubtful().is_empty() {
            self.keep_only_copies();
            // Before any disk is found to lack something: two that do would be called stale in all of
            // a region, and what each has of it could not be read after the next power cut.
            self.have_rows_list()?;
            self.miss_disks(std::iter::empty());
        }
        Ok(())
    }

    /// Disks that are away now may have gone while nobody served: they lack what was written
    /// lately, in the doubtful regions and in `extents`, where there is another copy.
    fn miss_disks<'a>(&self, extents: impl Iterator<Item = &'a (FileId, u32)>) {
        if self.offline_now().is_empty() {
            return;
        }
        for region in self.dirty.doubtful() {
            let first = u64::from(region.region) * REGION_BLOCKS;
            if let Some(file) = self.file(region.file) {
                self.miss_away(&file, (first, first + REGION_BLOCKS));
            }
        }
        for (id, index) in extents {
            if let Some(file) = self.file(*id).filter(|file| file.is_mirrored()) {
                let blocks = file.map.read().schedule().envelope(*index);
                self.miss_away(&file, blocks);
            }
        }
    }

    /// Copies that are away lack these blocks where another one is not stale; of several such that
    /// are all away one stays, for whoever is back is read.
    fn miss_away(&self, file: &File, (first, end): (u64, u64)) {
        let mut pieces: Vec<((u64, u64), Extent)> = Vec::new();
        // The last region may end beyond what extents can reach.
        let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            let blocks = (segment.at_block, segment.at_block + segment.blocks);
            pieces.extend(segment.extent.map(|extent| (blocks, extent)));
            Ok(())
        });
        for ((first, end), extent) in pieces {
            let outages = self.outages_of(extent.present());
            let lacking = |stale: u8| {
                let copies = extent.copies().iter().enumerate();
                let fresh: SmallVec<[ExtentCopy; 3]> = copies
                    .filter(|(number, copy)| copy.is_present() && stale >> number & 1 == 0)
                    .map(|(_, copy)| *copy)
                    .collect();
                self.away_beside_others(&fresh, &outages)
            };
            let mut at = first;
            while at < end {
                let apply = &mut |edit| self.catalog.apply(edit);
                at = (self.dirty).missed_where(file, &extent, (at, end), &lacking, apply);
            }
        }
    }

    /// Of these copies the disks that are away: the state that took each offline, and whether this process
    /// has found it.
    fn outages_of(&self, copies: impl Iterator<Item = ExtentCopy>) -> Outages {
        let away = copies.filter(|copy| self.disks.slot_of(*copy).is_none());
        away.filter_map(|copy| {
            let disk = copy.disk();
            let epoch = self.membership.offline_epoch(disk)?;
            Some((disk, (epoch, self.membership.slot(disk).is_some())))
        })
        .collect()
    }

    /// The disks of those of these copies that are away and lack what was written lately. Where all of
    /// them are away, one lacks nothing, because no other could bring it up to date: the disk that went
    /// last, which may have served without the others and is likelier to come back than one that is dead.
    fn away_beside_others(
        &self,
        counting: &[ExtentCopy],
        outages: &Outages,
    ) -> SmallVec<[DiskNumber; 2]> {
        let is_away = |copy: &&ExtentCopy| self.disks.slot_of(**copy).is_none();
        let mut away: SmallVec<[DiskNumber; 2]> = counting
            .iter()
            .filter(is_away)
            .map(|copy| copy.disk())
            .collect();
        if away.len() == counting.len() {
            // One that is not among them went just now.
            let went = |disk: &DiskNumber| {
                let known = outages.iter().find(|(other, _)| other == disk);
                known.map_or((u64::MAX, true), |(_, went)| *went)
            };
            let last = away.iter().copied().rev().max_by_key(went);
            away.retain(|disk| Some(*disk) != last);
        }
        away
    }

    pub(crate) fn recover(&self) -> Result<(), GroupError> {
        // The opening may have seen it of a disk already, which is not to be copied from.
        self.keep_fence(self.membership.give_up_set_back())?;
        self.take_up_owed()?;
        self.recover_copies()?;
        if self.dirty.would_list() {
            // A row of a takeover that names two disks would call all of its region stale on both, were
            // this process killed as well.
            self.have_rows_list()?;
            self.name_only_stale_everywhere();
        }
        Ok(())
    }

    fn recover_copies(&self) -> Result<(), GroupError> {
        self.miss_before_flushing()?;
        if !self.membership.was_clean() {
            // An earlier process may have been killed, with writes that no flush covered: what is
            // read from now on must be as durable as a sync will promise.
            for disk in self.disks.iter().filter(|disk| disk.is_online()) {
                self.disks.flushes.assume_written(disk.life());
            }
            self.flush_written()?;
        }
        if self.recover_writes()? {
            return self.flush_written();
        }
        self.keep_only_copies();
        let doubtful = self.dirty.doubtful();
        if !doubtful.is_empty() {
            // Before any disk is found to lack something: two that do would be called stale in all of
            // a region, and what each has of it could not be read after the next power cut.
            self.have_rows_list()?;
        }
        let mut equalised_count = 0;
        let mut unreadable = Vec::new();
        for region in &doubtful {
            match self.file(region.file) {
                Some(file) => match self.recover_region(&file, region)? {
                    Some(count) => equalised_count += count,
                    None => unreadable.push(region),
                },
                // A crash came between a write and the removal of its file.
                None => {
                    let mut edit = Edit::default();
                    self.dirty.forget_file(region.file, &mut edit);
                    self.catalog.apply(edit);
                }
            }
        }
        if doubtful.is_empty() {
            return Ok(());
        }
        // Who reads one copy now must not find the other one, as it was, after the next crash.
        self.flush_written()?;
        if equalised_count > 0 {
            self.event(Event::new(
                EventKind::CopiesEqualised,
                format!(
                    "{equalised_count} runs of blocks differed between their copies after an \
                     unclean stop and were made equal"
                ),
            ));
        }
        let mut edit = Edit::default();
        self.dirty.settle(&mut edit);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        for region in unreadable {
            let message = format!(
                "file {}: blocks of its region {} can be read from no copy; it stays to be \
                 compared at the next opening",
                region.file, region.region
            );
            self.event(Event::new(EventKind::BlocksUnreadable, message).file(region.file));
            let apply = &mut |edit| self.catalog.apply(edit);
            let first = u64::from(region.region) * REGION_BLOCKS;
            self.dirty.doubt(region.file, &[(first, first + 1)], apply);
        }
        Ok(())
    }

    /// Compares one region; the runs that had to be written, `None` where blocks can be read from
    /// no copy.
    fn recover_region(
        &self,
        file: &Arc<File>,
        region: &DoubtfulRegion,
    ) -> Result<Option<usize>, GroupError> {
        let first = u64::from(region.region) * REGION_BLOCKS;
        let blocks = (first, first + REGION_BLOCKS);
        self.recover_blocks(file, blocks)
    }

    /// Compares blocks `[first, end)`, but for copies that are stale there.
    pub(crate) fn recover_blocks(
        &self,
        file: &Arc<File>,
        (first, end): (u64, u64),
    ) -> Result<Option<usize>, GroupError> {
        if !self.offline_now().is_empty() {
            self.miss_away(file, (first, end));
        }
        let mut equalised_count = 0;
        let mut readable = true;
        for part in self.parts_of_copies(file, first, end) {
            match self.equalise_part(file, &part)? {
                Some(count) => equalised_count += count,
                None => readable = false,
            }
        }
        Ok(readable.then_some(equalised_count))
    }

    /// Makes the initialised blocks of a range equal on their online copies, after a write that
    /// some took and others did not; the caller holds the range. Blocks that can be read nowhere
    /// stay as they are, to be compared at the next opening.
    pub(crate) fn make_equal(&self, file: &File, first: u64, end: u64) -> Result<(), GroupError> {
        for part in self.parts_of_copies(file, first, end) {
            self.equalise_part(file, &part)?;
        }
        Ok(())
    }

    /// Cuts blocks `[first, end)` where their copies begin or cease to count, but for what holds no data.
    pub(super) fn parts_of_copies(&self, file: &File, first: u64, end: u64) -> Vec<Part> {
        let mut segments: Vec<(Segment, Extent)> = Vec::new();
        // The last region may end beyond what extents can reach, and a write beyond every extent was
        // refused.
        let _ = plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            let extent = segment.extent.filter(|_| segment.initialised_blocks() > 0);
            segments.extend(extent.map(|extent| (*segment, extent)));
            Ok(())
        });
        let mut parts = Vec::new();
        for (segment, extent) in segments {
            let end = segment.at_block + segment.blocks;
            let mut at = segment.at_block;
            while at < end {
                let (stale, until) = self.dirty.look(file).stale_copies(&extent, at, end);
                let copies = extent.copies().iter().enumerate();
                let counting = copies
                    .filter(|(number, copy)| copy.is_present() && stale >> number & 1 == 0)
                    .map(|(_, copy)| *copy);
                parts.push(Part {
                    segment: Segment {
                        at_block: at,
                        blocks: until - at,
                        inside_blocks: segment.inside_blocks + (at - segment.at_block),
                        ..segment
                    },
                    counting: counting.collect(),
                });
                at = until;
            }
        }
        parts
    }

    /// Makes the copies of a part that are online equal; as [`Self::equalise`].
    fn equalise_part(&self, file: &File, part: &Part) -> Result<Option<usize>, GroupError> {
        let slot = |copy: &ExtentCopy| self.disks.slot_of(*copy);
        let mut copies: SmallVec<[(ExtentCopy, DiskSlot); 3]> = (part.counting.iter())
            .filter_map(|copy| Some((*copy, slot(copy)?)))
            .collect();
        // The first that can be read is taken for the others.
        copies.sort_by_key(|(copy, _)| self.disks.is_set_back(copy.disk()));
        let mut equalised_count = Some(0);
        if copies.len() < 2 {
            return Ok(equalised_count);
        }
        let blocks = part.segment.initialised_blocks();
        let mut done = 0;
        while done < blocks {
            let piece = (blocks - done).min(COMPARED_BLOCKS);
            let count = self.equalise(file, &copies, &part.segment, (done, piece))?;
            equalised_count = equalised_count.zip(count).map(|(sum, count)| sum + count);
            done += piece;
        }
        Ok(equalised_count)
    }

    /// Makes `blocks` blocks from the `from`th of the segment on equal on all their copies; how many
    /// had to be written, `None` where no copy can be read. A copy on a place that gives back other
    /// bytes than were written there counts no more.
    fn equalise(
        &self,
        file: &File,
        copies: &[(ExtentCopy, DiskSlot)],
        segment: &Segment,
        (from, blocks): (u64, u64),
    ) -> Result<Option<usize>, GroupError> {
        let length = usize::try_from(blocks * BLOCK_SIZE_BYTES).expect("a mebibyte");
        let inside_bytes = (segment.inside_blocks + from) * BLOCK_SIZE_BYTES;
        let place = |copy: &ExtentCopy| copy.start_bytes() + inside_bytes;
        let mut buffers: Vec<AlignedBuffer> = copies
            .iter()
            .map(|_| AlignedBuffer::zeroed(length))
            .collect();
        let mut batch: Vec<Request<'_>> = copies
            .iter()
            .zip(&mut buffers)
            .map(|((copy, slot), buffer)| Request::new(*slot, place(copy), Work::Read(buffer)))
            .collect();
        self.disks.read(&mut batch);
        let results: Vec<_> = batch.into_iter().map(|request| request.result).collect();
        let Some(good) = results.iter().position(Result::is_ok) else {
            // What is bad on one may be good on another, beside what is bad there.
            let half = blocks / 2;
            if half == 0 {
                return Ok(None);
            }
            let first = self.equalise(file, copies, segment, (from, half))?;
            let second = self.equalise(file, copies, segment, (from + half, blocks - half))?;
            return Ok(first.zip(second).map(|(first, second)| first + second));
        };
        let mut written_count = 0;
        for (index, (copy, slot)) in copies.iter().enumerate() {
            if index == good || (results[index].is_ok() && buffers[index][..] == buffers[good][..])
            {
                continue;
            }
            let mut batch = [Request::new(
                *slot,
                place(copy),
                Work::Write(&buffers[good]),
            )];
            self.disks.write(&mut batch).of_file(file);
            let [request] = batch;
            if let Err(error) = request.result {
                if !self.take_offline_for_blocks(copy.disk(), &error)? {
                    let first = segment.at_block + from;
                    self.note_missed(file, &[(first, first + blocks)], &[copy.disk()]);
                }
                continue;
            }
            written_count += 1;
            // Where it could be read there is no bad place.
            if results[index].is_err()
                && self.read_back(*copy, inside_bytes, &buffers[good]).is_err()
            {
                let first = segment.at_block + from;
                let _change = self.change_inside();
                self.leave_blocks(file, &[(first, first + blocks)], copy.disk());
            }
        }
        Ok(Some(written_count))
    }
}

/// See [`Core::outages_of`].
type Outages = SmallVec<[(DiskNumber, (u64, bool)); 3]>;

/// Blocks of a file, contiguous in one extent, of which the same copies count.
#[derive(Debug)]
pub(super) struct Part {
    segment: Segment,
    pub counting: SmallVec<[ExtentCopy; 3]>,
}

impl Part {
    /// Which blocks of the file.
    pub const fn blocks(&self) -> (u64, u64) {
        let first = self.segment.at_block;
        (first, first + self.segment.blocks)
    }
}
