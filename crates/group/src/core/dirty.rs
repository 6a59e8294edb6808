//! Dirty regions: where copies may differ after an unclean stop, and what is stale on which disk.
//!
//! A region is 64 MiB of a mirrored file, or of one that was mirrored. Invariants:
//! - Before a write that overwrites initialised blocks reaches any disk, its region's row is open
//!   and durable. After an unclean stop only regions with an open row are compared; all disks that
//!   are offline count as stale in the whole region then, and those that it names in the blocks that
//!   it lists, or in the whole region where it lists none.
//! - In memory each region knows, block by block, what each disk missed. Before a write is
//!   answered that an offline disk missed, an open row names that disk, durably. It lists the blocks
//!   of several; of one alone it lists none while writes go on that it misses, or it would have to
//!   be put for each. A region that
//!   has been quiet for some rounds gets a closed row instead, which is exact; so a disk that
//!   returns is brought up to date with what was written meanwhile and no more.
//! - What was written since the last flush is known as well: a disk that goes offline may have
//!   lost that too, and has missed what is under way. What was only copied to a disk is known of
//!   that disk alone, see `copied.rs`. Of blocks that every other copy lacks it keeps what was durable
//!   there: nothing is staler than those.
//! - Blocks are taken off a disk's list only by a write or a copy that reached the disk in the
//!   incarnation that it has now, and relied on no disk that has gone since, else what the disk
//!   lost again would be forgotten; where they came onto it for the sake of a write alone that
//!   never went out; or where no other copy has them ([`DirtyRegions::keep_only_copy`],
//!   [`DirtyRegions::keep_least_stale`]), or the disk does not come back. The row follows later: until then a crash leaves only more to
//!   be copied.
//! - An open row ceases to name a disk that has everything again, so that after a crash its copy
//!   counts as any other, however busy the region is.
//! - A row is closed or deleted only while nobody writes to its region, after two quiet rounds.
//!   The commit that makes this durable flushes every disk first, so the copies agree by then; a
//!   crash before it leaves the row, and with it only a comparison too many.
//!
//! Rows are recorded by the sequence of their edit: a row is durable once the catalog has
//! committed that sequence. Committing is the caller's business.

mod block_set;
mod copied;
mod region;
mod stale;
mod writers;

use spindle_sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence};
use spindle_extent::map::Extent;
use spindle_extent::plan::Staleness;
use spindle_format::{DIRTY_REGION_BLOCKS, DirtyRecord};
use spindle_sync::level::{DeepMutex, Mutex, MutexGuard, Unshown};

use crate::core::disks::Target;
use crate::core::file::File;
use crate::incarnation::{Incarnation, Life};
use crate::levels;
pub(crate) use block_set::BlockSet;
pub use copied::HasFlushed;
pub use region::RegionKey;
use region::{OpenRows, Region};

/// The blocks of a file that share one mark.
pub const REGION_BLOCKS: u64 = DIRTY_REGION_BLOCKS as u64;

/// Rounds without a write after which a region counts as quiet.
const QUIET_ROUNDS: u8 = 2;

/// Ranges `[first, end)` of a file's blocks.
pub type Ranges = SmallVec<[(u64, u64); 2]>;

/// The parts of `[first, end)`, in blocks of the file, by region: its number, and the blocks in
/// it.
fn parts(first: u64, end: u64) -> impl Iterator<Item = (u32, u32, u32)> {
    let mut from = first;
    std::iter::from_fn(move || {
        if from >= end {
            return None;
        }
        let region = from / REGION_BLOCKS;
        let start = region * REGION_BLOCKS;
        let to = end.min(start + REGION_BLOCKS);
        let narrow = |blocks: u64| u32::try_from(blocks).expect("a region has 16,384 blocks");
        let part = (narrow(from - start), narrow(to - start));
        from = to;
        // A file ends where extent numbers do, far below the last region number.
        let number = u32::try_from(region).unwrap_or(u32::MAX);
        Some((number, part.0, part.1))
    })
}

/// A write that was announced, to be told of its end.
#[derive(Debug, Default)]
pub struct Writer {
    /// The regions, and the generation of each that it joined.
    joined: SmallVec<[(u32, u8); 2]>,
    /// Its own; none of who copies.
    number: u64,
}

/// A region that recovery must look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtfulRegion {
    /// The file.
    pub file: FileId,
    /// Which 64 MiB of it.
    pub region: u32,
    /// Disks whose copies are stale: they neither win a comparison nor take part in it.
    pub stale_disks: Vec<DiskNumber>,
}

/// Blocks that were written lately and of which a disk has a copy.
#[derive(Debug, Clone)]
pub struct WrittenLately {
    /// The file.
    pub file: FileId,
    /// Blocks of it, `[first, end)`.
    pub blocks: (u64, u64),
    /// The disks that have the other copies, be they here or away.
    pub others: SmallVec<[DiskNumber; 2]>,
}

/// What was written lately, as it was when the note of an outage began.
#[derive(Debug, Default)]
pub struct Lately {
    /// All of it, ranges of blocks by file.
    pub written: Vec<(FileId, (u64, u64))>,
    /// What of that the disk which went had before.
    pub held: Vec<WrittenLately>,
}

/// What is stale of a region on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleRegion {
    /// The file.
    pub file: FileId,
    /// Which 64 MiB of it.
    pub region: u32,
    /// The disk that missed it.
    pub disk: DiskNumber,
    /// How much.
    pub blocks: u32,
    /// Rises with reads that had to go elsewhere.
    pub wanted: u64,
}

#[derive(Debug, Default)]
struct State {
    regions: BTreeMap<RegionKey, Region>,
    /// Of each disk that went offline its newest incarnation of which it is noted what was lost.
    noted: BTreeMap<DiskNumber, Incarnation>,
    /// How many outages were noted.
    outages_count: u64,
    /// How many writes were announced.
    writers_count: u64,
    /// Disks that are on their way back; they may be online at any moment.
    returns_count: u32,
    open_rows: OpenRows,
}

impl State {
    /// As [`DirtyRegions::missed_by`].
    fn miss(
        &mut self,
        file: &File,
        ranges: &[(u64, u64)],
        disks: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        let mut said = Sequence(0);
        for (number, first, end) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = self.regions.entry((file.id, number)).or_default();
            for disk in disks {
                region.miss(*disk, first, end);
            }
            said = said.max(region.open((file.id, number), self.open_rows, apply));
        }
        file.may_be_stale.store(true, Ordering::Release);
        said
    }

    /// As [`DirtyRegions::caught_up`].
    fn regain(
        &mut self,
        file: FileId,
        (first, end): (u64, u64),
        newest: &[Target],
        sources: &[Life],
    ) {
        let Self { regions, noted, .. } = self;
        let is_noted = |life: &Life| {
            let newest = noted.get(&life.disk);
            newest.is_some_and(|gone| *gone > life.incarnation)
        };
        let has_gone = |life: &Life| !life.incarnation.serves() || is_noted(life);
        if sources.iter().any(is_noted) {
            return;
        }
        for (number, first, end) in parts(first, end) {
            if let Some(region) = regions.get_mut(&(file, number)) {
                for target in newest.iter().filter(|target| !has_gone(&target.life)) {
                    region.regain(*target, first, end);
                }
            }
        }
    }

    /// By region those of these blocks that are stale on all of the other disks, and that the disk
    /// has not only got since a flush: what it had before is older than what they had.
    fn kept_by(
        &self,
        disk: DiskNumber,
        held: &[WrittenLately],
        has_flushed: HasFlushed<'_>,
    ) -> BTreeMap<RegionKey, Vec<(u32, u32)>> {
        let mut found: BTreeMap<RegionKey, Vec<(u32, u32)>> = BTreeMap::new();
        for WrittenLately {
            file,
            blocks: (first, end),
            others,
        } in held
        {
            for (number, first, end) in parts(*first, *end) {
                let Some(region) = self.regions.get(&(*file, number)) else {
                    continue;
                };
                // Of an only copy there is no other that was ever better.
                let got = match others.is_empty() {
                    true => BlockSet::Nothing,
                    false => region.got_lately(disk, has_flushed),
                };
                let mut at = first;
                while at < end {
                    let mut is_stale = true;
                    let mut until = end;
                    for blocks in others.iter().map(|disk| region.stale_of(*disk)) {
                        is_stale &= blocks.is_some_and(|blocks| blocks.contains(at));
                        until = blocks.map_or(until, |blocks| blocks.same_until(at, until));
                    }
                    is_stale &= !got.contains(at);
                    until = got.same_until(at, until);
                    if is_stale {
                        found.entry((*file, number)).or_default().push((at, until));
                    }
                    at = until;
                }
            }
        }
        found
    }
}

/// A disk is on its way back as long as this lives: readers look, whoever finds nothing to copy.
#[derive(Debug)]
pub struct Returning<'a>(&'a DirtyRegions);

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.0.state.lock().returns_count -= 1;
    }
}

/// A cleaning round that has begun. What had come to its end by then is on every disk once this
/// round's flush followed, and not by a flush that began before.
#[derive(Debug)]
pub struct Round<'a> {
    dirty: &'a DirtyRegions,
    _alone: MutexGuard<'a, (), levels::Cleaning>,
}

impl Round<'_> {
    /// Ends it: the rows of regions that have been quiet are closed or deleted with `edit`. True
    /// where a further round could clean more.
    pub fn end(self, edit: &mut Edit) -> bool {
        self.dirty.end_round(edit)
    }
}

/// All dirty regions of a group.
#[derive(Debug, Default)]
pub struct DirtyRegions {
    rounds: Mutex<(), levels::Cleaning>,
    state: DeepMutex<State, levels::Dirty>,
    /// A disk that is online may be stale somewhere: readers have to look.
    returned: AtomicBool,
    /// Nothing is recorded, so that what the record costs can be measured.
    left_out: AtomicBool,
}

impl DirtyRegions {
    /// Takes a row as the catalog holds it at opening. A disk that was dropped since missed nothing
    /// that anybody will ask of it; a row that names no other is taken all the same, so that the
    /// next round, or the removal of its file, takes it away.
    pub fn load(
        &self,
        file: FileId,
        region: u32,
        record: &DirtyRecord,
        is_member: &dyn Fn(DiskNumber) -> bool,
    ) {
        let mut loaded = Region::of(record);
        loaded.keep_stale(is_member);
        self.state.lock().regions.insert((file, region), loaded);
    }

    /// Open rows list blocks from now on: the group has the feature.
    pub fn list_blocks(&self) {
        self.state.lock().open_rows = OpenRows::ListBlocks;
    }

    /// Whether an open row calls all of a region stale on a disk because the group has not the feature by
    /// which it could list blocks.
    pub fn would_list(&self) -> bool {
        let state = self.state.lock();
        state.open_rows == OpenRows::NameDisks
            && (state.regions.values()).any(|region| !region.stale.is_empty())
    }

    /// Whether open rows list blocks.
    pub fn lists_blocks(&self) -> bool {
        self.state.lock().open_rows == OpenRows::ListBlocks
    }

    /// Nothing is recorded from now on.
    pub fn leave_out(&self) {
        self.left_out.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is recorded.
    pub fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The regions found open at opening, in the order of files.
    pub fn doubtful(&self) -> Vec<DoubtfulRegion> {
        let state = self.state.lock();
        let doubtful = state.regions.iter().filter(|(_, region)| region.doubtful);
        doubtful
            .map(|((file, number), region)| DoubtfulRegion {
                file: *file,
                region: *number,
                stale_disks: region.stale.iter().map(|stale| stale.disk).collect(),
            })
            .collect()
    }

    /// The copies of every region found at opening are equal, but for writes that were under way:
    /// the process that recorded them was killed, and the machine lives. The rows stay.
    pub fn trust(&self) {
        for region in self.state.lock().regions.values_mut() {
            region.doubtful = false;
        }
    }

    /// Disks that missed any of the blocks `[first, end)`: their copies are not compared, and
    /// prove nothing.
    pub fn stale_disks(&self, file: &File, first: u64, end: u64) -> Vec<DiskNumber> {
        let mut disks = Vec::new();
        if !file.may_be_stale.load(Ordering::Acquire) {
            return disks;
        }
        let state = self.state.lock();
        for (number, first, end) in parts(first, end) {
            let region = state.regions.get(&(file.id, number));
            for stale in region.into_iter().flat_map(|region| &region.stale) {
                if stale.blocks.touches(first, end) {
                    disks.push(stale.disk);
                }
            }
        }
        disks
    }

    /// The copies of every region found at opening are equal now: rows that name no stale disk
    /// go with `edit`, whose commit flushes the disks first. What was made equal counts as
    /// written lately until then.
    pub fn settle(&self, edit: &mut Edit) {
        for (key, region) in &mut self.state.lock().regions {
            if !std::mem::take(&mut region.doubtful) {
                continue;
            }
            region.note_written(0, DIRTY_REGION_BLOCKS.into());
            if region.stale.is_empty() {
                region.close(*key, edit);
            }
        }
    }

    /// A disk failed during an announced write: the rows name it before the marks move and
    /// before the write is answered. Nothing has to be durable yet that the marks are not; a sync
    /// has to wait for the edit that is given back, whoever put it.
    pub fn missed_by(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        disks: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        self.state.lock().miss(file, ranges, disks, apply)
    }

    /// As [`Self::missed_by`], for the disk with the only copy of these blocks: they are lost. Where
    /// nothing else is noted of their region its row lists them.
    pub fn lost_by(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        disk: DiskNumber,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut edit = Edit::default();
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (number, first, end) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = state.regions.entry((file.id, number)).or_default();
            region.miss(disk, first, end);
            region.list((file.id, number), &mut edit);
            if region.is_short() {
                region.open((file.id, number), rows, apply);
            }
        }
        file.may_be_stale.store(true, Ordering::Release);
        if !edit.is_empty() {
            apply(edit);
        }
    }

    /// From block `first` of the file up to the end that is given back, `end` at most, the same
    /// copies of `extent` are stale. `lacking` is asked, with them as bits, which disks lack these
    /// blocks too, and that is noted as by [`Self::missed_by`]. All of it under one lock: who asks
    /// for another disk in the same moment finds the copy stale that is given up here, and keeps its
    /// own.
    pub fn missed_where(
        &self,
        file: &File,
        extent: &Extent,
        (first, end): (u64, u64),
        lacking: &dyn Fn(u8) -> SmallVec<[DiskNumber; 2]>,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> u64 {
        let mut view = self.look(file);
        let (stale, until) = view.stale_copies(extent, first, end);
        let disks = lacking(stale);
        if !disks.is_empty() {
            view.state.miss(file, &[(first, until)], &disks, apply);
        }
        until
    }

    /// A disk went offline, and has that incarnation since: it may lack what was `written` lately
    /// to any file, and what was copied to it, but for what of `held` no other disk has: that is not
    /// staler than any, and called stale it would be lost for good. What is announced since the caller
    /// asked for `written`, when the disk did not serve any more, was planned without it. `is_stale` is
    /// told the files. Noted once, whoever finds it out.
    pub fn went_offline(
        &self,
        gone: Life,
        Lately { written, held }: &Lately,
        has_flushed: HasFlushed<'_>,
        is_stale: &dyn Fn(FileId),
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut state = self.state.lock();
        let noted = state.noted.entry(gone.disk).or_default();
        if noted.outages_count() >= gone.incarnation.outages_count() {
            return;
        }
        let noted_before = std::mem::replace(noted, gone.incarnation);
        state.outages_count += 1;
        // What an earlier outage took is noted: it is stale since, or got again, or what is read.
        let has_flushed =
            &|target: Target| has_flushed(target) || target.life.incarnation < noted_before;
        let kept = state.kept_by(gone.disk, held, has_flushed);
        let rows = state.open_rows;
        let mut asked: BTreeMap<RegionKey, Vec<(u32, u32)>> = BTreeMap::new();
        for (file, (first, end)) in written {
            for (number, first, end) in parts(*first, *end) {
                asked.entry((*file, number)).or_default().push((first, end));
            }
        }
        for (key, region) in &mut state.regions {
            region.end_suspicions(*key, rows, apply);
            let copied = match region.doubtful {
                true => BlockSet::Everything,
                false => region.copied_lately(gone.disk, has_flushed),
            };
            let mut missed = copied.clone();
            if !region.doubtful {
                let written = region.written_lately();
                for (first, end) in asked.get(key).into_iter().flatten() {
                    missed.insert_all(&written.within(*first, *end));
                }
            }
            for (first, end) in kept.get(key).into_iter().flatten() {
                missed.remove(*first, *end);
            }
            // What another one lacks is all that it lacks, until more is announced.
            region.stop_growing();
            if !missed.is_empty() {
                region.miss_lately(gone.disk, &missed, &copied);
                region.open(*key, rows, apply);
                is_stale(key.0);
            }
            // Others may have the only copies from here on, which a crash must not find stale: also of
            // what was written long ago and has just been copied to them.
            region.name_only_stale(*key, rows, apply);
        }
    }

    /// A disk that serves has lost what no flush had covered before that incarnation. Gives what was
    /// written lately, ranges of blocks by file, whoever noted it: what of that the disk lacks, the
    /// caller tells by [`Self::missed_by`], with no commit between.
    pub fn began_anew(&self, now: Life) -> Vec<(FileId, (u64, u64))> {
        let mut state = self.state.lock();
        let noted = state.noted.entry(now.disk).or_default();
        if noted.outages_count() < now.incarnation.outages_count() {
            *noted = now.incarnation;
            state.outages_count += 1;
        }
        Self::ranges_written_lately(&state)
    }

    /// What was written lately, ranges of blocks by file.
    pub fn written_lately(&self) -> Vec<(FileId, (u64, u64))> {
        Self::ranges_written_lately(&self.state.lock())
    }

    fn ranges_written_lately(state: &State) -> Vec<(FileId, (u64, u64))> {
        let mut found = Vec::new();
        for ((file, number), region) in &state.regions {
            let written = match region.doubtful {
                true => BlockSet::Everything,
                false => region.written_lately(),
            };
            written.add_runs(*file, u64::from(*number) * REGION_BLOCKS, &mut found);
        }
        found
    }

    /// These blocks are about to be made equal, after a takeover: as if they were written now.
    pub fn written_again(
        &self,
        file: FileId,
        (first, end): (u64, u64),
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (number, first, end) in parts(first, end) {
            let key = (file, number);
            let region = state.regions.entry(key).or_default();
            region.open(key, rows, apply);
            region.note_written(first, end);
        }
    }

    /// The disk has the only copy of these blocks: whatever it lacks there nobody has, so that they are not
    /// stale there from now on.
    pub fn keep_only_copy(&self, file: FileId, (first, end): (u64, u64), disk: DiskNumber) {
        let mut state = self.state.lock();
        for (number, first, end) in parts(first, end) {
            if let Some(region) = state.regions.get_mut(&(file, number)) {
                region.catch_up(disk, first, end);
            }
        }
    }

    /// Of these blocks those that are stale on the disk and on all of `others`, which have the other
    /// copies, are not stale there: no copy is better. Whether there were any.
    pub fn keep_least_stale(
        &self,
        file: FileId,
        (first, end): (u64, u64),
        disk: DiskNumber,
        others: &[DiskNumber],
    ) -> bool {
        let mut is_kept = false;
        let mut state = self.state.lock();
        for (number, first, end) in parts(first, end) {
            let Some(region) = state.regions.get_mut(&(file, number)) else {
                continue;
            };
            for block in first..end {
                let is_stale = |disk: &DiskNumber| {
                    (region.stale_of(*disk)).is_some_and(|blocks| blocks.contains(block))
                };
                if is_stale(&disk) && others.iter().all(is_stale) {
                    region.catch_up(disk, block, block + 1);
                    is_kept = true;
                }
            }
        }
        is_kept
    }

    /// A write failed on every copy: these regions stay open until an opening compares them.
    pub fn doubt(
        &self,
        file: FileId,
        ranges: &[(u64, u64)],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (number, ..) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = state.regions.entry((file, number)).or_default();
            region.open((file, number), rows, apply);
            region.doubtful = true;
        }
    }

    /// Begins a cleaning round, when whoever has begun one has ended it; a flush of every disk must
    /// follow, then whoever went offline must be told of, then [`Round::end`].
    pub fn begin_round(&self) -> Round<'_> {
        let alone = self.rounds.lock(Unshown);
        for region in self.state.lock().regions.values_mut() {
            region.begin_round();
        }
        Round {
            dirty: self,
            _alone: alone,
        }
    }

    /// See [`Round::end`].
    fn end_round(&self, edit: &mut Edit) -> bool {
        let mut more = false;
        let mut state = self.state.lock();
        let rows = state.open_rows;
        state.regions.retain(|key, region| {
            region.end_round();
            region.forget_caught_up(*key, rows, edit);
            if region.has_writers() || region.doubtful {
                return true;
            }
            region.quiet_rounds = region.quiet_rounds.saturating_add(1);
            if region.quiet_rounds <= QUIET_ROUNDS {
                more = true;
                return true;
            }
            !region.close(*key, edit)
        });
        more
    }

    /// The file is being removed, and its rows with it.
    pub fn forget_file(&self, file: FileId, edit: &mut Edit) {
        let mut state = self.state.lock();
        let gone: Vec<u32> = (state.regions)
            .range((file, 0)..=(file, u32::MAX))
            .map(|((_, region), _)| *region)
            .collect();
        for number in gone {
            state.regions.remove(&(file, number));
            edit.delete(
                spindle_catalog::Table::DirtyRegion,
                region::row_key((file, number)),
            );
        }
    }

    /// The group has forgotten the disk: nothing of it is stale any more. Rows follow with the
    /// rounds.
    pub fn forget_disk(&self, disk: DiskNumber) {
        for region in self.state.lock().regions.values_mut() {
            region.catch_up(disk, 0, DIRTY_REGION_BLOCKS.into());
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.state.lock().regions.len()
    }

    /// How many outages were noted so far: a batch knows of those noted before it was sealed.
    pub fn outages_count(&self) -> u64 {
        self.state.lock().outages_count
    }

    /// Disks that are stale somewhere are online from now on, or will be at once: readers look.
    #[must_use]
    pub fn begin_resync(&self) -> Returning<'_> {
        let mut state = self.state.lock();
        state.returns_count += 1;
        self.returned.store(true, Ordering::Release);
        // What they lack is all that they lack.
        for region in state.regions.values_mut() {
            region.stop_growing();
        }
        drop(state);
        Returning(self)
    }

    /// Ends the looking of readers unless a disk that `is_online` is stale somewhere or one is on
    /// its way back; whether it
    /// ended just now. `clear` is called where no disk is stale anywhere: no file needs a look.
    pub fn end_resync(&self, is_online: &dyn Fn(DiskNumber) -> bool, clear: &dyn Fn()) -> bool {
        let state = self.state.lock();
        let stale = || state.regions.values().flat_map(|region| &region.stale);
        if state.returns_count > 0 || stale().any(|stale| is_online(stale.disk)) {
            return false;
        }
        if stale().next().is_none() {
            clear();
        }
        self.returned.swap(false, Ordering::AcqRel)
    }

    /// Whether some disk that is online may be stale somewhere.
    pub fn is_resyncing(&self) -> bool {
        self.returned.load(Ordering::Acquire)
    }

    /// These disks have taken the blocks `[first, end)` as the other copies have them, in these
    /// incarnations. Of a disk that has gone since nothing is concluded; nor where it was noted since that
    /// one of the `sources` has gone, as they were when the blocks were copied from them: it was asked then
    /// whether another copy had what it may have lost.
    pub fn caught_up(
        &self,
        file: &File,
        (first, end): (u64, u64),
        newest: &[Target],
        sources: &[Life],
    ) {
        if !file.may_be_stale.load(Ordering::Acquire) {
            return;
        }
        self.state
            .lock()
            .regain(file.id, (first, end), newest, sources);
    }

    /// As [`Self::caught_up`], for a write. Where the file has one copy, or another disk lacks something
    /// there as well, the rows cease to list the blocks in the same moment, so that no other edit does it
    /// that nobody waits for. A sync of the file has to wait for this one: after a crash a block that rows
    /// list on all disks is lost.
    pub fn took_write(
        &self,
        file: &File,
        (first, end): (u64, u64),
        newest: &[Target],
        is_mirrored: bool,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut edit = Edit::default();
        let mut state = self.state.lock();
        state.regain(file.id, (first, end), newest, &[]);
        let rows = state.open_rows;
        for (number, ..) in parts(first, end) {
            let key = (file.id, number);
            match state.regions.get_mut(&key) {
                Some(region) if is_mirrored => region.list_less(key, rows, &mut edit),
                Some(region) if region.is_outdated() => region.list(key, &mut edit),
                _ => {}
            }
        }
        if !edit.is_empty() {
            apply(edit);
        }
    }

    /// The rows of the file cease to name what disks have again. The commit that makes it durable
    /// flushes the disks first.
    pub fn name_only_stale(
        &self,
        file: FileId,
        is_mirrored: bool,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut edit = Edit::default();
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (key, region) in state.regions.range_mut((file, 0)..=(file, u32::MAX)) {
            if !is_mirrored && region.is_outdated() {
                region.list(*key, &mut edit);
            }
            region.name_only_stale(*key, rows, apply);
        }
        if !edit.is_empty() {
            apply(edit);
        }
    }
}

#[cfg(test)]
mod tests;
