//! A bad place on a disk put right: written again and read back, or the copy moved elsewhere on
//! its disk, or the disk given up: in that order.
//!
//! Whoever finds one writes nothing: he has the good bytes from another copy, and puts the place on
//! a list. A disk may take the write and give back other bytes, and until that is known nobody may
//! read the place. So it is written with its extent held alone, when the finder has let go of his
//! range ([`Core::move_bad_places`]); it is done before a read is answered. A crash before the commit
//! finds the copy at its old place, which can perhaps be read by then, and gives anything. So a row of
//! the dirty regions that names the disk is durable before the place is written.

use spindle_sync::atomic::Ordering;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::{AlignedBuffer, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::Serving;
use spindle_format::ExtentCopy;
use spindle_sync::level::assert_none_from;

use crate::core::Core;
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::dirty::{Ranges, Writer};
use crate::core::disks::DiskState;
use crate::core::file::File;
use crate::core::files::{file_ranges, push_file_ranges, run_of};
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::incarnation::Life;
use crate::io::bytes_of;
use crate::levels;

/// The most that is copied by one request.
const PIECE_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE_BYTES;

/// What became of a bad place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// Its bad blocks were written again, and the disk gives them back.
    InPlace,
    /// The copy lies elsewhere on its disk.
    Moved,
    /// The disk took it nowhere, and is offline.
    Offline,
    /// The file, the extent or its disks have changed meanwhile, or what is to be copied can be read
    /// nowhere: where it is still bad it is found again.
    Gone,
}

/// A place that is written again, as it was announced; its end is told when it is dropped.
struct Mending<'a> {
    group: &'a Core,
    file: &'a File,
    life: Life,
    writer: Writer,
}

impl Drop for Mending<'_> {
    fn drop(&mut self) {
        let group = self.group;
        {
            let _change = group.change_inside();
            let newest = group.disks.flushes.newest(self.life);
            let apply = &mut |edit| group.catalog.apply(edit);
            (group.dirty).end_mend(self.file.id, &self.writer, newest, apply);
        }
        // Until that is durable a stop finds the disk named.
        group.commit_soon();
    }
}

/// What became of the bad blocks of a place that were written again.
enum WrittenAgain {
    /// The disk gives them back.
    Good,
    /// Not all were written: the copy that has them right cannot be read, or may have lost them.
    NoSource,
    /// The disk did not take them, or gives back something else.
    Bad(String),
}

/// Why a copy did not get to another place of its disk.
enum NotCopied {
    /// Some of its blocks can be read from no copy: the disk is not to blame.
    NoSource(String),
    /// The disk has no room, or did not take it.
    NoPlace(String),
}

impl Core {
    /// Writes good bytes over a copy and reads them back; what is wrong where they did not come
    /// back. The caller holds the range alone.
    fn write_and_read_back(
        &self,
        file: &File,
        copy: ExtentCopy,
        inside_bytes: u64,
        good: &[u8],
    ) -> Result<(), String> {
        let Some(slot) = self.disks.slot_of(copy) else {
            return Ok(());
        };
        let at = copy.start_bytes() + inside_bytes;
        let mut batch = [Request::new(slot, at, Work::Write(good))];
        self.disks.write(&mut batch).of_file(file);
        let [request] = batch;
        if !file.moving.is_empty() {
            // Whoever copies this extent elsewhere may have read the bad bytes.
            let from = inside_bytes / BLOCK_SIZE_BYTES;
            let blocks = (good.len() as u64).div_ceil(BLOCK_SIZE_BYTES);
            file.moving.note_everywhere(from, from + blocks);
        }
        request.result.map_err(|error| error.to_string())?;
        self.read_back(copy, inside_bytes, good)
    }

    /// What is wrong where the copy does not give back what was written, or is not there any more.
    pub(crate) fn read_back(
        &self,
        copy: ExtentCopy,
        inside_bytes: u64,
        good: &[u8],
    ) -> Result<(), String> {
        let slot = self.disks.slot_of(copy).ok_or("its disk has gone")?;
        let at = copy.start_bytes() + inside_bytes;
        let mut again = AlignedBuffer::zeroed(good.len());
        let mut batch = [Request::new(slot, at, Work::Read(&mut again))];
        self.disks.read(&mut batch);
        let [request] = batch;
        request.result.map_err(|error| error.to_string())?;
        if again[..] == *good {
            Ok(())
        } else {
            Err("it gives back other bytes than were written".to_owned())
        }
    }

    /// Puts a place on the list of those to be mended.
    pub(crate) fn note_bad_place(&self, place: BadPlace) {
        let mut waiting = self.bad_places.waiting.lock();
        let same = waiting.iter_mut().find(|other| other.is_same(&place));
        match same {
            Some(other) => {
                // Others read it before its turn comes, and find it too.
                let is_new = |bad: &BadBlocks| !other.bad.contains(bad);
                let new: Vec<BadBlocks> = place.bad.into_iter().filter(is_new).collect();
                other.bad.extend(new);
                other.lives.extend(place.lives);
            }
            None => waiting.push(place),
        }
        self.bad_places.any.store(true, Ordering::Release);
    }

    /// Mends the places that wait for it.
    pub(crate) fn move_bad_places(&self) -> Result<(), GroupError> {
        assert_none_from::<levels::Range>();
        if !self.bad_places.any.load(Ordering::Acquire) {
            return Ok(());
        }
        loop {
            let next = {
                let mut waiting = self.bad_places.waiting.lock();
                self.bad_places
                    .any
                    .store(waiting.len() > 1, Ordering::Release);
                waiting.pop()
            };
            let Some(place) = next else {
                return Ok(());
            };
            if self.mend_place(&place)? == Mended::InPlace {
                self.tell_written_again(&place);
            }
        }
    }

    fn tell_written_again(&self, place: &BadPlace) {
        let blocks: u64 = place.bad.iter().map(|bad| bad.blocks).sum();
        let first = place.bad.iter().map(|bad| bad.inside_blocks).min();
        let disk = place.copy.disk();
        let message = format!(
            "{}: {} bytes at {} could not be read and were written again from another copy \
             (extent {} of file {}): {}",
            self.disks.describe(disk),
            blocks * BLOCK_SIZE_BYTES,
            place.copy.start_bytes() + first.unwrap_or(0) * BLOCK_SIZE_BYTES,
            place.index,
            place.file.id,
            place.reason
        );
        let event = Event::new(EventKind::BlockRepaired, message);
        self.event(event.disk(disk).file(place.file.id));
    }

    /// Writes the bad blocks again, or moves the copy within its disk; where no other place takes it
    /// the disk goes offline. No event tells of what was mended in place. The caller holds no range.
    pub(crate) fn mend_place(&self, place: &BadPlace) -> Result<Mended, GroupError> {
        let Some(_mending) = self.announce_mending(place)? else {
            return Ok(Mended::Gone);
        };
        let (low, high) = place.file.map.read().schedule().envelope(place.index);
        let _held = place.file.range_lock.exclusive(low, high);
        self.mend_announced(place)
    }

    /// A crash from here on does not take for good what the disk gives at the bad blocks. Nothing where
    /// the disks of the extent have come or gone since the place was found, or no row can be made
    /// durable.
    fn announce_mending<'a>(
        &'a self,
        place: &'a BadPlace,
    ) -> Result<Option<Mending<'a>>, GroupError> {
        let disk = place.copy.disk();
        let own = place.lives.iter().find(|life| life.disk == disk);
        let Some(life) = own.copied().filter(|_| self.is_as_found(place)) else {
            return Ok(None);
        };
        let (mending, needed) = {
            let _change = self.change_inside();
            let apply = &mut |edit| self.catalog.apply(edit);
            let has_flushed = |target| self.has_flushed(target);
            let ranges = Self::bad_ranges(place);
            let all_serve = || self.disks.iter().all(DiskState::is_online);
            let (writer, needed) =
                self.dirty
                    .begin_mend(&place.file, &ranges, disk, &has_flushed, &all_serve, apply);
            let mending = Mending {
                group: self,
                file: &place.file,
                life,
                writer,
            };
            (mending, needed)
        };
        if self.commit_through(needed).is_err() {
            self.check_fence()?;
            return Ok(None);
        }
        Ok(Some(mending))
    }

    /// As [`Self::mend_place`]; the caller has announced it, and holds the extent's range alone.
    fn mend_announced(&self, place: &BadPlace) -> Result<Mended, GroupError> {
        let file = &place.file;
        let disk = place.copy.disk();
        let extent = file.map.read().extent(place.index);
        let number = extent.and_then(|extent| {
            let mut copies = extent.copies().iter();
            copies.position(|copy| *copy == place.copy)
        });
        let (Some(extent), Some(number), Some(_), false) = (
            extent,
            number,
            self.disks.slot_of(place.copy),
            file.is_removed(),
        ) else {
            return Ok(Mended::Gone);
        };
        // A run that no longer belongs to the extent has what it had when it left it.
        let is_there = |source: &ExtentCopy| extent.present().any(|copy| copy == *source);
        let has_right = |bad: &BadBlocks| {
            let ranges = Self::ranges_of(place, bad);
            let source = bad.source.disk();
            let is_stale =
                |(first, end): &(u64, u64)| self.dirty.is_stale(file, source, *first, *end);
            is_there(&bad.source) && !ranges.iter().any(is_stale)
        };
        if !self.is_as_found(place) || !place.bad.iter().all(has_right) {
            return Ok(Mended::Gone);
        }
        let reason = match self.write_again(place) {
            WrittenAgain::Good if self.is_as_found(place) => {
                self.has_right_again(place);
                return Ok(Mended::InPlace);
            }
            WrittenAgain::Good | WrittenAgain::NoSource => return Ok(Mended::Gone),
            WrittenAgain::Bad(reason) => reason,
        };
        match self.copy_elsewhere(place, &extent) {
            Ok(moved) => {
                // The new place has perhaps what no other copy has, and the old one is given up.
                let flushed = match place.lives.iter().find(|life| life.disk == disk) {
                    Some(own) => self.flush_lives(&[*own]),
                    None => Ok(false),
                };
                if !matches!(flushed, Ok(true)) || !self.is_as_found(place) {
                    self.space.give_back(run_of(moved));
                    self.leave_unread(place);
                    return flushed.map(|_| Mended::Gone);
                }
                self.settle_move(place, number, moved, &reason);
                self.has_right_again(place);
                Ok(Mended::Moved)
            }
            Err(_) if !self.is_as_found(place) => {
                // Its good copy went: the disk is not to blame.
                self.leave_unread(place);
                Ok(Mended::Gone)
            }
            Err(NotCopied::NoSource(nothing)) => {
                self.leave_unread(place);
                self.tell_left(place, &reason, &nothing);
                Ok(Mended::Gone)
            }
            Err(NotCopied::NoPlace(nowhere)) => {
                // It may come back by itself.
                (self.bad_places).leave(file.id, disk, &Self::bad_ranges(place));
                let why = format!(
                    "a bad place was found ({reason}), and no other place on the disk took the copy: \
                     {nowhere}"
                );
                if self.take_offline_if_borne(&[disk], &why)? {
                    return Ok(Mended::Offline);
                }
                // Others lack what it alone has, and would never get it.
                self.leave_unread(place);
                self.tell_left(place, &reason, &nowhere);
                Ok(Mended::Gone)
            }
        }
    }

    /// Writes each of the bad blocks again from the copy that has them right, and reads them back.
    fn write_again(&self, place: &BadPlace) -> WrittenAgain {
        for bad in &place.bad {
            let mut inside = bad.inside_blocks;
            let end = bad.inside_blocks + bad.blocks;
            while inside < end {
                let blocks = (end - inside).min(PIECE_BLOCKS);
                let inside_bytes = inside * BLOCK_SIZE_BYTES;
                let mut good = AlignedBuffer::zeroed(bytes_of(blocks));
                let read = self.read_copy(bad.source, inside_bytes, &mut good);
                // A source that has come or gone may have lost what this copy has.
                if read.is_err() || !self.is_as_found(place) {
                    return WrittenAgain::NoSource;
                }
                let written =
                    self.write_and_read_back(&place.file, place.copy, inside_bytes, &good);
                if let Err(reason) = written {
                    return WrittenAgain::Bad(reason);
                }
                inside += blocks;
            }
        }
        WrittenAgain::Good
    }

    /// Reads from one copy; why it cannot be read.
    fn read_copy(&self, copy: ExtentCopy, inside_bytes: u64, out: &mut [u8]) -> Result<(), String> {
        let slot = self.disks.slot_of(copy).ok_or("no copy is online")?;
        let at = copy.start_bytes() + inside_bytes;
        let mut batch = [Request::new(slot, at, Work::Read(out))];
        self.disks.read(&mut batch);
        let [request] = batch;
        request.result.map_err(|error| error.to_string())
    }

    /// The file blocks that the bad blocks hold.
    fn ranges_of(place: &BadPlace, bad: &BadBlocks) -> Ranges {
        let schedule = place.file.map.read().schedule();
        let blocks = (bad.inside_blocks, bad.inside_blocks + bad.blocks);
        let mut ranges = Ranges::new();
        push_file_ranges(&mut ranges, schedule, place.index, blocks);
        ranges
    }

    /// The file blocks that all of its bad blocks hold.
    fn bad_ranges(place: &BadPlace) -> Ranges {
        let bad = place.bad.iter();
        bad.flat_map(|bad| Self::ranges_of(place, bad)).collect()
    }

    /// The place was written again, gives back something else, and the copy could not be moved,
    /// because a disk has come or gone in between: nobody reads its bad blocks before a resync has
    /// copied them again.
    fn leave_unread(&self, place: &BadPlace) {
        let file = &place.file;
        // Who copies this extent elsewhere has perhaps read what lies there now.
        file.moving.cancel(place.index);
        let disk = place.copy.disk();
        let _change = self.change_inside();
        self.leave_blocks(file, &Self::bad_ranges(place), disk);
        let Some(extent) = file.map.read().extent(place.index) else {
            return;
        };
        // What a source lacks now it has lost, and whoever noted that took this copy for a good one; or a
        // write is announced there, which notes it again when it goes out. Where no copy is better, the
        // source's counts.
        for bad in &place.bad {
            let source = bad.source.disk();
            let disks = extent.present().map(|copy| copy.disk());
            let others: SmallVec<[DiskNumber; 2]> = disks.filter(|disk| *disk != source).collect();
            let mut is_kept = false;
            for range in Self::ranges_of(place, bad) {
                is_kept |= self.dirty.keep_least_stale(file.id, range, source, &others);
            }
            if let Some(source) = self.disks.get(source).filter(|_| is_kept) {
                self.owe_error(file, &self.lost_with(source.life(), file));
            }
        }
        self.name_only_stale(file);
    }

    /// The disk has these blocks on a bad place, which gives back other bytes than were written: nobody
    /// reads them there before it has given them back as they are. The caller holds them alone, and has
    /// a change open.
    pub(crate) fn leave_blocks(&self, file: &File, ranges: &[(u64, u64)], disk: DiskNumber) {
        self.bad_places.leave(file.id, disk, ranges);
        let _returning = self.dirty.begin_resync();
        self.membership.begin_catching_up(std::iter::once(disk));
        let apply = &mut |edit| self.catalog.apply(edit);
        self.dirty.missed_by(file, ranges, &[disk], apply);
    }

    /// Whether the disks of the extent are as they were when the place was found.
    fn is_as_found(&self, place: &BadPlace) -> bool {
        self.disks.have_kept_all(&place.lives)
    }

    fn tell_left(&self, place: &BadPlace, reason: &str, nothing: &str) {
        let disk = place.copy.disk();
        let message = format!(
            "{}: the place of extent {} of file {} at {} is bad ({reason}), and the copy cannot leave \
             it, because some of its blocks can be read from no copy: {nothing}",
            self.disks.describe(disk),
            place.index,
            place.file.id,
            place.copy.start_bytes(),
        );
        let event = Event::new(EventKind::BlocksUnreadable, message);
        self.event(event.disk(disk).file(place.file.id));
    }

    /// The copy at another place of its disk, every block read back.
    fn copy_elsewhere(&self, place: &BadPlace, extent: &Extent) -> Result<ExtentCopy, NotCopied> {
        let (disk, class) = (place.copy.disk(), place.copy.class());
        let no_room = || NotCopied::NoPlace("no room is left on it".to_owned());
        let start_block = (self.space.allocate(disk, class, 0)).ok_or_else(no_room)?;
        let moved = ExtentCopy::new(disk, start_block, class);
        let mut done = 0;
        while done < u64::from(extent.mark_blocks) {
            let blocks = Self::whole_piece(place, done, u64::from(extent.mark_blocks));
            if let Err(reason) = self.copy_piece(place, extent, moved, done, blocks) {
                // No map ever named it.
                let run = run_of(moved);
                if matches!(reason, NotCopied::NoSource(_))
                    || !self.is_as_found(place)
                    || !self.bad_runs.may_note(disk)
                {
                    self.space.give_back(run);
                } else {
                    let _change = self.change_inside();
                    self.bad_runs.note(run, |edit| {
                        self.catalog.apply(edit);
                    });
                }
                return Err(reason);
            }
            done += blocks;
        }
        Ok(moved)
    }

    /// How many blocks from `from` on come from one source.
    fn whole_piece(place: &BadPlace, from: u64, end: u64) -> u64 {
        let stop = match place.bad_at(from) {
            Some(bad) => bad.inside_blocks + bad.blocks,
            None => {
                let begins = place.bad.iter().map(|bad| bad.inside_blocks);
                begins.filter(|begin| *begin > from).min().unwrap_or(end)
            }
        };
        (stop.min(end) - from).min(PIECE_BLOCKS)
    }

    /// Copies blocks from the copy itself, or the bad ones from the good copy; what the copy
    /// itself does not give is taken from any other. What no copy gives in one piece is asked for in
    /// halves: each may have something else.
    fn copy_piece(
        &self,
        place: &BadPlace,
        extent: &Extent,
        moved: ExtentCopy,
        inside_blocks: u64,
        blocks: u64,
    ) -> Result<(), NotCopied> {
        let inside_bytes = inside_blocks * BLOCK_SIZE_BYTES;
        let bad = place.bad_at(inside_blocks);
        let first = bad.map_or(place.copy, |bad| bad.source);
        let schedule = place.file.map.read().schedule();
        let mut ranges = Ranges::new();
        push_file_ranges(
            &mut ranges,
            schedule,
            place.index,
            (inside_blocks, inside_blocks + blocks),
        );
        let is_stale = |copy: &ExtentCopy| {
            let mut ranges = ranges.iter();
            ranges.any(|(first, end)| self.dirty.is_stale(&place.file, copy.disk(), *first, *end))
        };
        let others = extent
            .present()
            .filter(|copy| *copy != first && *copy != place.copy && !is_stale(copy));
        let mut buffer = AlignedBuffer::zeroed(bytes_of(blocks));
        let mut reason = "no copy is online".to_owned();
        let was_read = std::iter::once(first).chain(others).any(|copy| {
            let answer = self.read_copy(copy, inside_bytes, &mut buffer);
            answer.map_err(|error| reason = error).is_ok()
        });
        if was_read {
            let written = self.write_and_read_back(&place.file, moved, inside_bytes, &buffer);
            return written.map_err(NotCopied::NoPlace);
        }
        let half = blocks / 2;
        if half == 0 {
            return Err(NotCopied::NoSource(reason));
        }
        self.copy_piece(place, extent, moved, inside_blocks, half)?;
        self.copy_piece(place, extent, moved, inside_blocks + half, blocks - half)
    }

    /// The disk has the bad blocks as their sources have them, which are as they were found.
    fn has_right_again(&self, place: &BadPlace) {
        let (file, disk) = (&place.file, place.copy.disk());
        let own = place.lives.iter().find(|life| life.disk == disk);
        let newest = own.map(|own| self.disks.flushes.newest(*own));
        for range in Self::bad_ranges(place) {
            (self.dirty).caught_up(file, range, newest.as_slice(), &place.lives);
            self.bad_places.note_good(file.id, disk, range);
        }
    }

    /// The map names the new place, and the old one is never used again.
    fn settle_move(&self, place: &BadPlace, number: usize, moved: ExtentCopy, reason: &str) {
        let file = &place.file;
        {
            let change = self.change_inside();
            let mut map = file.map.write(&change);
            map.set_copy(place.index, number, moved);
            self.note_dirty_map(file, &map);
            // At the new place nothing is bad; what was copied from blocks that are stale is stale.
            let ranges = file_ranges(map.schedule(), place.index);
            self.bad_places
                .take_left(file.id, place.copy.disk(), &ranges);
            drop(map);
            // Who copies this extent elsewhere began with the copy that is gone.
            file.moving.cancel(place.index);
            self.bad_runs.note(run_of(place.copy), |edit| {
                self.catalog.apply(edit);
            });
        }
        let disk = place.copy.disk();
        let message = format!(
            "{0}: the place of extent {1} of file {2} at {3} is bad ({reason}); the copy was moved to \
             {4} on the same disk",
            self.disks.describe(disk),
            place.index,
            file.id,
            place.copy.start_bytes(),
            moved.start_bytes(),
        );
        let event = Event::new(EventKind::BlockMoved, message);
        self.event(event.disk(disk).file(file.id));
    }
}

#[cfg(test)]
mod tests;
