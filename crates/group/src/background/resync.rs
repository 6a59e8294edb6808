//! The resync: what disks missed while they were away is copied to them from the other copies.
//!
//! A unit of work is some runs of one region of one file on one disk. Each run is copied under
//! the shared lock of its blocks: readers go on (and take it from elsewhere), writers wait for
//! one run. It is read as any reader would, so never from a copy that is stale, and taken off the
//! list of what the disk missed when the disk has it.
//!
//! What was read lately in vain comes first, then files of fine striping (logs), then the rest.
//!
//! A block that cannot be read is passed over: the run is halved until it stands alone, and what
//! stands beside it is copied. So is one that the disk does not take, where the group cannot do
//! without the disk. It is tried again after a while (`resync/blocked.rs`). An extent whose other copies
//! are all away is left, and what stands beside it in the run is copied.
//!
//! A crash leaves more to be copied: rows follow the lists when a region has become quiet, and
//! the commit that makes them durable flushes the disks first.

use spindle_sync::atomic::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, Striping};
use spindle_catalog::Edit;
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, Request, Work};
use spindle_extent::plan::{self, Serving, TooFar};
use spindle_format::ExtentCopy;

use crate::background::Group;
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::dirty::{REGION_BLOCKS, Ranges, StaleRegion};
use crate::core::disks::DiskState;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::{Event, EventKind};
use crate::incarnation::Life;
use blocked::Blocked;

mod blocked;
mod caught_up;

/// Regions that are lined up at a time; then those wanted most are looked for anew.
const LINED_UP_MOST: usize = 64;

/// What the resync remembers between units.
#[derive(Debug, Default)]
pub struct Resync {
    queue: VecDeque<StaleRegion>,
    /// Regions that somebody works on, one disk at a time.
    claimed: BTreeSet<Claim>,
    blocked: Blocked,
    /// Failure groups of which disks that have caught up are being flushed.
    flushing: BTreeSet<u16>,
    /// Disks that were online and stale when last looked.
    under_way: BTreeSet<DiskNumber>,
    copied_bytes: u64,
}

/// A part of an extent that is copied to a disk.
struct Part {
    at_block: u64,
    blocks: u64,
    index: u32,
    inside_blocks: u64,
    /// The disk's copy.
    copy: ExtentCopy,
}

impl Part {
    fn to_bytes(&self) -> u64 {
        self.copy.start_bytes() + self.inside_blocks * BLOCK_SIZE_BYTES
    }

    const fn range(&self) -> (u64, u64) {
        (self.at_block, self.at_block + self.blocks)
    }
}

type Claim = (spindle_base::FileId, u32, DiskNumber);

const fn claim_of(stale: &StaleRegion) -> Claim {
    (stale.file, stale.region, stale.disk)
}

/// Gives a claim back, however its unit ended.
struct Claimed<'a> {
    group: &'a Group,
    stale: StaleRegion,
    /// How often disks had come or gone by then.
    turns_count: u64,
}

/// What came of a part of a region.
#[derive(Debug, Default)]
struct Copied {
    blocks: u64,
    /// Blocks that need not be tried again soon: copied, or found bad.
    tried_blocks: u64,
    /// Why some of it was not copied.
    failed: Option<GroupError>,
    /// A disk did not answer, or takes nothing: so it is with the rest of the region.
    is_over: bool,
}

impl Copied {
    fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.tried_blocks += other.tried_blocks;
        self.failed = self.failed.take().or(other.failed);
        self.is_over |= other.is_over;
    }
}

/// Why a run was not copied.
struct NotCopied {
    error: GroupError,
    obstacle: Obstacle,
    /// Blocks of it that were.
    copied_blocks: u64,
}

/// What stood in the way of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// A block that can be had nowhere: those beside it can be copied.
    Lost,
    /// A block that the disk does not take: those beside it can be copied.
    NotTaken,
    /// A disk that does not answer, or takes nothing more.
    Disk,
    /// No copy that counts is online, of some that serve: those beside it can be copied, and disks have
    /// to come.
    NoCopy,
    /// No other copy serves: disks have to come. What stands beside it was copied.
    Away,
}

impl Obstacle {
    /// `of_place`, where the error is about the place alone.
    const fn of(error: &DeviceError, of_place: Self) -> Self {
        match error.kind {
            DeviceErrorKind::Medium => of_place,
            _ => Self::Disk,
        }
    }
}

/// From a read of what is to be copied.
impl From<GroupError> for NotCopied {
    fn from(error: GroupError) -> Self {
        let cause = std::error::Error::source(&error);
        let of_disk = cause.and_then(|cause| cause.downcast_ref::<DeviceError>());
        Self {
            obstacle: of_disk.map_or(Obstacle::NoCopy, |error| {
                Obstacle::of(error, Obstacle::Lost)
            }),
            copied_blocks: 0,
            error,
        }
    }
}

/// What is still stale and cannot be copied now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub regions_count: usize,
    pub bytes: u64,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut resync = self.group.resync.lock();
        resync.claimed.remove(&claim_of(&self.stale));
    }
}

impl Group {
    /// Copies some of what a returned disk missed, about `bytes_most`; the bytes that were
    /// copied, `None` where nothing is left that nobody else works on. Threads may call it at
    /// once, each gets another region.
    ///
    /// # Errors
    /// Where the group had to stop.
    pub(crate) fn resync_unit(&self, bytes_most: u64) -> Result<Option<u64>, GroupError> {
        if !self.dirty.is_resyncing() {
            return Ok(None);
        }
        self.check_fence()?;
        loop {
            let Some(claimed) = self.next_stale() else {
                self.note_caught_up()?;
                self.end_resync();
                return Ok(None);
            };
            let stale = claimed.stale;
            let (copied, more) = self.resync_region(&claimed, bytes_most / BLOCK_SIZE_BYTES)?;
            let mut resync = self.resync.lock();
            let bytes = copied.blocks * BLOCK_SIZE_BYTES;
            resync.copied_bytes += bytes;
            if more {
                resync.queue.push_front(stale);
            } else if let Some(error) = copied.failed {
                let is_new = resync.blocked.add(&stale, claimed.turns_count);
                drop(resync);
                if is_new {
                    self.tell_blocked(&stale, &error);
                }
                return Ok(Some(bytes));
            }
            drop(resync);
            if bytes == 0 {
                // A failed flush that nobody told may be why, and who comes here does nothing else.
                self.tell_standing_failures()?;
            }
            if more || bytes > 0 {
                return Ok(Some(bytes));
            }
        }
    }

    fn tell_blocked(&self, stale: &StaleRegion, error: &GroupError) {
        let message = format!(
            "{} cannot be brought up to date in region {} of file {}: {error:#}",
            self.disks.describe(stale.disk),
            stale.region,
            stale.file
        );
        let event = Event::new(EventKind::BlocksUnreadable, message);
        self.event(event.disk(stale.disk).file(stale.file));
    }

    /// What could not be copied is tried again when its time has come.
    pub(crate) fn retry_resync(&self, now_ms: u64) {
        self.resync.lock().blocked.retry(now_ms);
    }

    /// What of that which disks that are online miss cannot be copied now, if anything.
    pub(crate) fn resync_stuck(&self) -> Option<Stuck> {
        let stale = self.dirty.stale_regions(&|disk| self.is_online(disk));
        let resync = self.resync.lock();
        let is_stuck = |stale: &&StaleRegion| resync.blocked.has(&claim_of(stale));
        let stuck: Vec<&StaleRegion> = stale.iter().filter(is_stuck).collect();
        let blocks: u64 = stuck.iter().map(|stale| u64::from(stale.blocks)).sum();
        (!stuck.is_empty()).then_some(Stuck {
            regions_count: stuck.len(),
            bytes: blocks * BLOCK_SIZE_BYTES,
        })
    }

    /// Bytes that disks which are online miss, and bytes copied so far.
    pub(crate) fn resync_progress(&self) -> (u64, u64) {
        let copied_bytes = self.resync.lock().copied_bytes;
        if !self.dirty.is_resyncing() {
            return (0, copied_bytes);
        }
        let stale = self.dirty.stale_regions(&|disk| self.is_online(disk));
        let blocks: u64 = stale.iter().map(|stale| u64::from(stale.blocks)).sum();
        (blocks * BLOCK_SIZE_BYTES, copied_bytes)
    }

    fn is_online(&self, disk: DiskNumber) -> bool {
        self.disks.get(disk).is_some_and(|disk| disk.is_online())
    }

    fn next_stale(&self) -> Option<Claimed<'_>> {
        let mut resync = self.resync.lock();
        let turns_count = self.membership.turns_count();
        resync.blocked.follow(turns_count);
        loop {
            let Some(stale) = resync.queue.pop_front() else {
                if self.line_up(&mut resync) {
                    continue;
                }
                return None;
            };
            let claim = claim_of(&stale);
            if !resync.blocked.has(&claim) && resync.claimed.insert(claim) {
                return Some(Claimed {
                    group: self,
                    stale,
                    turns_count,
                });
            }
        }
    }

    /// Lines up what is wanted most; false where nothing is left that may be claimed.
    fn line_up(&self, resync: &mut Resync) -> bool {
        let mut stale = self.dirty.stale_regions(&|disk| self.is_online(disk));
        for stale in &stale {
            resync.under_way.insert(stale.disk);
        }
        stale.retain(|stale| {
            let claim = claim_of(stale);
            !resync.claimed.contains(&claim) && !resync.blocked.has(&claim)
        });
        let is_log = |stale: &StaleRegion| {
            let file = self.file(stale.file);
            file.is_some_and(|file| file.striping == Striping::Fine)
        };
        stale.sort_by_cached_key(|stale| {
            let first_reads = std::cmp::Reverse(stale.wanted);
            (first_reads, !is_log(stale), claim_of(stale))
        });
        stale.truncate(LINED_UP_MOST);
        resync.queue.extend(stale);
        !resync.queue.is_empty()
    }

    /// Nothing was left to be claimed: where nothing is under way either, it is over.
    fn end_resync(&self) {
        let clear = || {
            for file in self.all_files() {
                file.may_be_stale.store(false, Ordering::Release);
            }
        };
        if !(self.dirty).end_resync(&|disk| self.is_online(disk), &clear) {
            return;
        }
        let (disks, copied_bytes) = {
            let mut resync = self.resync.lock();
            resync.blocked = Blocked::default();
            let copied_bytes = std::mem::take(&mut resync.copied_bytes);
            (std::mem::take(&mut resync.under_way), copied_bytes)
        };
        for disk in disks {
            let message = format!(
                "{} has everything again ({copied_bytes} bytes were copied to returned disks)",
                self.disks.describe(disk)
            );
            self.event(Event::new(EventKind::ResyncEnded, message).disk(disk));
        }
    }

    /// Copies runs of one region, about so many blocks; what came of it, and whether more are left.
    fn resync_region(
        &self,
        claimed: &Claimed<'_>,
        blocks_most: u64,
    ) -> Result<(Copied, bool), GroupError> {
        let stale = &claimed.stale;
        let Some(file) = self.file(stale.file) else {
            // It was removed while a writer of it waited.
            let mut edit = Edit::default();
            self.dirty.forget_file(stale.file, &mut edit);
            let _change = self.change_inside();
            self.catalog.apply(edit);
            return Ok((Copied::default(), false));
        };
        let mut copied = Copied::default();
        let mut from = u64::from(stale.region) * REGION_BLOCKS;
        while let Some(run) = self.dirty.stale_run(stale, from) {
            let (first, end) = self.resync.lock().blocked.without_bad(stale, run);
            if first == end {
                from = end;
                continue;
            }
            if copied.tried_blocks >= blocks_most.max(1) {
                return Ok((copied, true));
            }
            if copied.is_over || !self.is_online(stale.disk) || file.is_removed() {
                break;
            }
            let end = end.min(first + (blocks_most - copied.tried_blocks).max(1));
            copied.add(self.resync_what_goes(&file, claimed, (first, end))?);
            from = end;
        }
        let why = self.resync.lock().blocked.why(stale);
        copied.failed = why.or(copied.failed);
        Ok((copied, false))
    }

    /// Copies a run; where a disk does not give or take a block of it, the others.
    fn resync_what_goes(
        &self,
        file: &Arc<File>,
        claimed: &Claimed<'_>,
        (first, end): (u64, u64),
    ) -> Result<Copied, GroupError> {
        let found = (&claimed.stale, claimed.turns_count);
        let mut copied = Copied::default();
        let run = self.resync_run(file, claimed.stale.disk, first, end);
        let NotCopied {
            error,
            obstacle,
            copied_blocks,
        } = match run {
            Ok(blocks) => {
                copied.blocks = blocks;
                copied.tried_blocks = end - first;
                return Ok(copied);
            }
            Err(not_copied) => not_copied,
        };
        copied.blocks = copied_blocks;
        copied.tried_blocks = copied_blocks;
        self.check_fence()?;
        match obstacle {
            Obstacle::Lost | Obstacle::NotTaken | Obstacle::NoCopy if end - first > 1 => {
                let middle = first + (end - first) / 2;
                copied.add(self.resync_what_goes(file, claimed, (first, middle))?);
                copied.add(self.resync_what_goes(file, claimed, (middle, end))?);
                return Ok(copied);
            }
            Obstacle::Lost | Obstacle::NotTaken => {
                let is_lost = obstacle == Obstacle::Lost;
                (self.resync.lock().blocked).pass_over(found, Some(first), is_lost, &error);
                copied.tried_blocks = 1;
            }
            Obstacle::Disk => {
                (self.resync.lock().blocked).pass_over(found, None, false, &error);
                copied.is_over = true;
            }
            // A disk that comes back is waited for, and a while.
            Obstacle::NoCopy | Obstacle::Away => {}
        }
        copied.failed = Some(error);
        Ok(copied)
    }

    /// Where no copy of these blocks counts that serves: what other copies of them there are than the
    /// disk's.
    fn without_copy_to_read(&self, file: &File, disk: DiskNumber, part: &Part) -> Obstacle {
        let extent = file.map.read().extent(part.index);
        let copies = extent.iter().flat_map(|extent| extent.present());
        let others = copies.map(ExtentCopy::disk).filter(|other| *other != disk);
        let (mut some_serve, mut all_serve) = (false, true);
        for other in others {
            some_serve |= self.is_online(other);
            all_serve &= self.is_online(other);
        }
        match (all_serve, some_serve) {
            // No disk that could come back has it.
            (true, _) => Obstacle::Lost,
            (false, true) => Obstacle::NoCopy,
            (false, false) => Obstacle::Away,
        }
    }

    /// Copies one run to the disk where it holds a copy; the blocks that were copied.
    fn resync_run(
        &self,
        file: &Arc<File>,
        disk: DiskNumber,
        first: u64,
        end: u64,
    ) -> Result<u64, NotCopied> {
        let Some(own) = self.disks.get(disk).map(DiskState::life) else {
            return Ok(0);
        };
        // What was copied and not flushed is lost again when the disk goes.
        let _announced = self.announce_copy(file, &[(first, end)], own);
        let _held = file.range_lock.shared(first, end);
        let (targets, lives) = self.parts_to_copy(file, own, (first, end))?;
        // What a source lost before it was looked at is stale there from here on: a disk that serves
        // on after a failed flush does so before that is noted.
        self.notice_offline();
        if !self.disks.have_kept_all(&lives) {
            return Ok(0);
        }
        let mut copied_blocks = 0;
        let mut left: Ranges = SmallVec::new();
        let mut away = None;
        for part in targets {
            let (at_block, blocks) = (part.at_block, part.blocks);
            let length = usize::try_from(blocks * BLOCK_SIZE_BYTES).expect("a part of a region");
            let mut buffer = AlignedBuffer::zeroed(length);
            match self.read_blocks(file, at_block, at_block + blocks, &mut buffer) {
                Ok(()) => {}
                Err(error) if error.kind == GroupErrorKind::NotFound => return Ok(copied_blocks),
                Err(error) => {
                    let mut not_copied = NotCopied::from(error);
                    if not_copied.obstacle == Obstacle::NoCopy {
                        not_copied.obstacle = self.without_copy_to_read(file, disk, &part);
                    }
                    if not_copied.obstacle != Obstacle::Away {
                        return Err(not_copied);
                    }
                    left.push(part.range());
                    away = away.or(Some(not_copied));
                    continue;
                }
            }
            let Some(slot) = self.disks.get(disk).and_then(|disk| disk.online_slot()) else {
                return Ok(copied_blocks);
            };
            let mut batch = [Request::new(slot, part.to_bytes(), Work::Write(&buffer))];
            self.disks.write(&mut batch).of_next_commit();
            // The read and the write.
            self.background.count_own(2);
            let [Request { result, .. }] = batch;
            if self.bad_places.is_left(file.id, disk, part.range()) {
                self.read_back_left(file, &part, &result, &buffer, &lives)?;
            }
            if let Err(error) = result {
                if self.take_offline_for_copy(disk, &error)? {
                    return Ok(copied_blocks);
                }
                // Nobody waits for it: the blocks stay stale there.
                let obstacle = Obstacle::of(&error, Obstacle::NotTaken);
                let error = self.not_taken(disk, error);
                return Err(NotCopied {
                    error,
                    obstacle,
                    copied_blocks: 0,
                });
            }
            copied_blocks += blocks;
        }
        self.note_copied(file, (first, end), left, (own, &lives));
        away.map_or(Ok(copied_blocks), |away| {
            Err(NotCopied {
                copied_blocks,
                ..away
            })
        })
    }

    /// What the disk holds of these blocks, and whose copies they have.
    fn parts_to_copy(
        &self,
        file: &File,
        own: Life,
        (first, end): (u64, u64),
    ) -> Result<(Vec<Part>, SmallVec<[Life; 4]>), GroupError> {
        let mut targets: Vec<Part> = Vec::new();
        let mut lives: SmallVec<[Life; 4]> = SmallVec::from_slice(&[own]);
        plan::segments::<TooFar>(&file.map.read(), first, end, |segment| {
            let blocks = segment.initialised_blocks();
            let copies = segment.extent.iter().flat_map(|extent| extent.copies());
            for life in self.disks.lives(copies.clone().copied()) {
                if !lives.contains(&life) {
                    lives.push(life);
                }
            }
            if let Some(copy) = copies
                .filter(|copy| copy.is_present())
                .find(|copy| copy.disk() == own.disk)
                && blocks > 0
            {
                targets.push(Part {
                    at_block: segment.at_block,
                    blocks,
                    index: segment.index,
                    inside_blocks: segment.inside_blocks,
                    copy: *copy,
                });
            }
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        Ok((targets, lives))
    }

    /// The disk has these blocks but for what was left.
    fn note_copied(
        &self,
        file: &File,
        (first, end): (u64, u64),
        mut left: Ranges,
        (own, lives): (Life, &[Life]),
    ) {
        // A disk that has come or gone since has lost what was copied to it, or what was read from
        // it was perhaps not the newest; nor was it where a failed flush is not told yet.
        if self.disks.have_kept_all(lives) {
            let newest = self.disks.flushes.newest(own);
            left.push((end, end));
            let mut from = first;
            for (at, until) in left {
                if from < at {
                    (self.dirty).caught_up(file, (from, at), &[newest], lives);
                }
                from = until;
            }
        }
    }

    /// The copy lies on a bad place that it could not leave. Where the disk does not give back what
    /// was written just now nobody reads it there, and it tries to leave it again.
    fn read_back_left(
        &self,
        file: &Arc<File>,
        part: &Part,
        written: &Result<(), DeviceError>,
        good: &[u8],
        lives: &[Life],
    ) -> Result<(), NotCopied> {
        let disk = part.copy.disk();
        let answer = match written {
            Ok(()) => {
                let inside_bytes = part.inside_blocks * BLOCK_SIZE_BYTES;
                self.read_back(part.copy, inside_bytes, good)
            }
            Err(error) if error.kind == DeviceErrorKind::Medium => Err(error.to_string()),
            // It is gone, and said to be.
            Err(_) => return Ok(()),
        };
        let Err(reason) = answer else {
            self.bad_places.note_good(file.id, disk, part.range());
            return Ok(());
        };
        if !self.disks.have_kept_all(lives) {
            return Ok(());
        }
        let (first, end) = part.range();
        let extent = file.map.read().extent(part.index);
        let counts = |copy: &ExtentCopy| {
            copy.disk() != disk
                && self.disks.slot_of(*copy).is_some()
                && !self.dirty.is_stale(file, copy.disk(), first, end)
        };
        let mut others = extent.iter().flat_map(|extent| extent.present());
        // A run is halved down to its bad blocks.
        if part.blocks == 1
            && let Some(source) = others.find(counts)
        {
            self.note_bad_place(BadPlace {
                file: Arc::clone(file),
                index: part.index,
                copy: part.copy,
                bad: vec![BadBlocks {
                    inside_blocks: part.inside_blocks,
                    blocks: part.blocks,
                    source,
                }],
                lives: lives.into(),
                reason: reason.clone(),
            });
        }
        let message = format!("its copy lies on a bad place: {reason}");
        Err(NotCopied {
            error: GroupError::new(GroupErrorKind::Io, message).on_disk(disk),
            obstacle: Obstacle::NotTaken,
            copied_blocks: 0,
        })
    }

    fn not_taken(&self, disk: DiskNumber, error: DeviceError) -> GroupError {
        let title = self.disks.describe(disk);
        let message = format!("{title} does not take what it missed");
        let not_taken = GroupError::new(GroupErrorKind::Io, message).because(error);
        not_taken.during(Operation::Write).on_disk(disk)
    }
}

#[cfg(test)]
pub(crate) mod tests;
