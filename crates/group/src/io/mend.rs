//! A bad place on a disk put right: written again and read back, or the copy moved elsewhere on
//! its disk, or the disk given up: in that order.
//!
//! Writing in place happens under the range lock that the finder holds, shared or not: no writer
//! can be at these blocks, and two that mend write the same. Moving a copy needs its extent
//! alone, so it waits in a list until the finder has let go of its range
//! ([`Core::move_bad_places`]); it is done before a read is answered. A crash before the commit
//! finds the copy at its old place, which is then found bad again.

use spindle_sync::atomic::Ordering;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{AlignedBuffer, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::Serving;
use spindle_extent::space::Run;
use spindle_format::ExtentCopy;
use spindle_sync::level::assert_none_from;

use crate::core::Core;
use crate::core::bad_places::BadPlace;
use crate::core::file::File;
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::io::bytes_of;
use crate::levels;

/// The most that is copied by one request.
const PIECE_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE_BYTES;

const fn run_of(copy: ExtentCopy) -> Run {
    Run {
        disk: copy.disk(),
        start_block: copy.start_block(),
        class: copy.class(),
    }
}

/// What became of a bad place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// The copy lies elsewhere on its disk.
    Moved,
    /// The disk took it nowhere, and is offline.
    Offline,
    /// The file or the extent has changed meanwhile.
    Gone,
}

impl Core {
    /// Writes good bytes over a copy and reads them back; what is wrong where they did not come
    /// back. The caller holds the range.
    pub(crate) fn mend_in_place(
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
        self.verify(copy, at, good)
    }

    fn verify(&self, copy: ExtentCopy, at: u64, good: &[u8]) -> Result<(), String> {
        let Some(slot) = self.disks.slot_of(copy) else {
            return Ok(());
        };
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

    /// Puts a place on the list of those to be moved.
    pub(crate) fn note_bad_place(&self, place: BadPlace) {
        let mut waiting = self.bad_places.waiting.lock();
        let same = waiting.iter_mut().find(|other| other.is_same(&place));
        match same {
            Some(other) => {
                other.bad.extend(&place.bad);
                other.lives.extend(place.lives);
            }
            None => waiting.push(place),
        }
        self.bad_places.any.store(true, Ordering::Release);
    }

    /// Moves the copies whose places could not be mended.
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
            self.move_copy(&place)?;
        }
    }

    /// Moves one copy within its disk; where no other place takes it the disk goes offline.
    pub(crate) fn move_copy(&self, place: &BadPlace) -> Result<Mended, GroupError> {
        let file = &place.file;
        let (low, high) = file.map.read().schedule().envelope(place.index);
        let _held = file.range_lock.exclusive(low, high);
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
        if !self.is_as_found(place) || !place.bad.iter().all(|bad| is_there(&bad.source)) {
            return Ok(Mended::Gone);
        }
        match self.copy_elsewhere(place, &extent) {
            Ok(moved) => {
                // The new place has perhaps what no other copy has, and the old one is given up.
                let flushed = match place.lives.iter().find(|life| life.disk == disk) {
                    Some(own) => self.flush_lives(&[*own]),
                    None => Ok(false),
                };
                if !matches!(flushed, Ok(true)) || !self.is_as_found(place) {
                    self.space.give_back(run_of(moved));
                    return flushed.map(|_| Mended::Gone);
                }
                self.settle_move(place, number, moved);
                Ok(Mended::Moved)
            }
            Err(reason) => {
                let reason = format!(
                    "a bad place was found ({}), and no other place on the disk took the copy: \
                     {reason}",
                    place.reason
                );
                self.take_offline(&[disk], &reason)?;
                Ok(Mended::Offline)
            }
        }
    }

    /// Whether the disks of the extent have neither come nor gone since the place was found.
    fn is_as_found(&self, place: &BadPlace) -> bool {
        place.lives.iter().all(|life| self.disks.is_same(*life))
    }

    /// The copy at another place of its disk, every block read back.
    fn copy_elsewhere(&self, place: &BadPlace, extent: &Extent) -> Result<ExtentCopy, String> {
        let (disk, class) = (place.copy.disk(), place.copy.class());
        let start_block = self
            .space
            .allocate(disk, class, 0)
            .ok_or("no room is left on it")?;
        let moved = ExtentCopy::new(disk, start_block, class);
        let mut done = 0;
        while done < u64::from(extent.mark_blocks) {
            let blocks = Self::whole_piece(place, done, u64::from(extent.mark_blocks));
            if let Err(reason) = self.copy_piece(place, extent, moved, done, blocks) {
                // No map ever named it; the disk is given up now in any case.
                self.space.give_back(run_of(moved));
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
    /// itself does not give is taken from any other.
    fn copy_piece(
        &self,
        place: &BadPlace,
        extent: &Extent,
        moved: ExtentCopy,
        inside_blocks: u64,
        blocks: u64,
    ) -> Result<(), String> {
        let inside_bytes = inside_blocks * BLOCK_SIZE_BYTES;
        let bad = place.bad_at(inside_blocks);
        let first = bad.map_or(place.copy, |bad| bad.source);
        // One block of the file or more: where any of the extent's is stale, none is taken.
        let (low, high) = place.file.map.read().schedule().envelope(place.index);
        let stale = self.dirty.stale_disks(&place.file, low, high);
        let others = extent
            .present()
            .filter(|copy| *copy != first && *copy != place.copy && !stale.contains(&copy.disk()));
        let mut buffer = AlignedBuffer::zeroed(bytes_of(blocks));
        let mut reason = "no copy is online".to_owned();
        let was_read = std::iter::once(first).chain(others).any(|copy| {
            let Some(slot) = self.disks.slot_of(copy) else {
                return false;
            };
            let at = copy.start_bytes() + inside_bytes;
            let mut batch = [Request::new(slot, at, Work::Read(&mut buffer))];
            self.disks.read(&mut batch);
            let [request] = batch;
            if let Err(error) = &request.result {
                reason = error.to_string();
            }
            request.result.is_ok()
        });
        if !was_read {
            return Err(reason);
        }
        self.mend_in_place(&place.file, moved, inside_bytes, &buffer)
    }

    /// The map names the new place, and the old one is never used again.
    fn settle_move(&self, place: &BadPlace, number: usize, moved: ExtentCopy) {
        let file = &place.file;
        {
            let change = self.change_inside();
            let mut map = file.map.write(&change);
            map.set_copy(place.index, number, moved);
            self.note_dirty_map(file, &map);
            drop(map);
            // Who copies this extent elsewhere began with the copy that is gone.
            file.moving.cancel(place.index);
            self.bad_runs.note(run_of(place.copy), |edit| {
                self.catalog.apply(edit);
            });
        }
        let disk = place.copy.disk();
        let message = format!(
            "{0}: the place of extent {1} of file {2} at {3} is bad ({4}); the copy was moved to {5} on \
             the same disk",
            self.disks.describe(disk),
            place.index,
            file.id,
            place.copy.start_bytes(),
            place.reason,
            moved.start_bytes(),
        );
        let event = Event::new(EventKind::BlockMoved, message);
        self.event(event.disk(disk).file(file.id));
    }
}

#[cfg(test)]
mod tests;
