//! Disks that were away come back.
//!
//! In this order, so that a crash anywhere leaves only more to be copied: what the disk missed is
//! known durably (rows of dirty regions), then the group state names it online, then the resync
//! copies what is stale, then the rows go. Until a block was copied or written again no reader
//! gets it from there.
//!
//! A disk that went by itself and answers again is taken back without being asked for
//! ([`Group::return_answering`]); one that does so again and again stays away from then on, so
//! that a bad path does not shake the group for ever, and so does one that a person took offline.

use spindle_sync::atomic::Ordering;
use std::collections::BTreeMap;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::DiskSlot;
use spindle_extent::map::{Extent, Map};
use spindle_extent::plan::{self, Staleness, TooFar};
use spindle_format::{DiskStatus, Lost};
use spindle_sync::level::{MutexGuard, Unshown};

use crate::background::Group;
use crate::core::dirty::{REGION_BLOCKS, Ranges};
use crate::core::file::File;
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::levels;
use crate::quorum::DiskLook;

/// Returns of one disk by itself in this time, after which it stays away.
const RETURNS_MOST: usize = 3;
/// The time in which they are counted, in seconds.
const RETURNS_WINDOW_S: u64 = 3600;

/// What is remembered of disks that come back by themselves.
#[derive(Debug, Default)]
pub struct Returns {
    of_disk: BTreeMap<DiskNumber, Flaps>,
}

#[derive(Debug, Default)]
struct Flaps {
    /// When it came back by itself, in seconds.
    times_s: Vec<u64>,
    /// Why it does not come back, as told last.
    told: String,
}

impl Group {
    /// Takes back disks that went offline by themselves and answer again where they were open:
    /// their label can be read, they are the disks that went, and a block at their end can be
    /// read. To be called every few seconds; costs nothing while no disk is away. Gives the disks
    /// that are online again.
    ///
    /// # Errors
    /// Where the group had to stop.
    pub fn return_answering(&self) -> Result<Vec<DiskNumber>, GroupError> {
        let away: Vec<(DiskNumber, DiskSlot)> = (self.disks.iter())
            .filter(|disk| self.is_away(disk.number))
            .filter_map(|disk| Some((disk.number, disk.slot()?)))
            .collect();
        let mut back = Vec::new();
        for (disk, slot) in away {
            if self.answers(slot) {
                back.extend(self.return_by_itself(disk, slot)?);
            }
        }
        Ok(back)
    }

    /// Takes one disk back that was found to answer, unless a person took it offline or it has
    /// come back too often.
    ///
    /// # Errors
    /// Where the group had to stop.
    pub fn return_by_itself(
        &self,
        disk: DiskNumber,
        slot: DiskSlot,
    ) -> Result<Option<DiskNumber>, GroupError> {
        // Somebody takes disks offline or back, which may take long: the next round comes soon, and who
        // asks has a heartbeat to write.
        let Some(one) = self.returning.try_lock() else {
            return Ok(None);
        };
        if !self.may_try(disk) {
            return Ok(None);
        }
        let now_s = self.now_s.load(Ordering::Relaxed);
        (self.returns.lock().of_disk.entry(disk).or_default())
            .times_s
            .push(now_s);
        match self.return_alone(&one, &[slot]) {
            Ok(back) => {
                if let Some(flaps) = self.returns.lock().of_disk.get_mut(&disk) {
                    flaps.told.clear();
                }
                Ok(back.first().copied())
            }
            Err(error) => {
                self.check_fence()?;
                self.tell_why_away(disk, error.report());
                if let Some(flaps) = self.returns.lock().of_disk.get_mut(&disk) {
                    flaps.times_s.pop();
                }
                Ok(None)
            }
        }
    }

    /// Whether a disk that was found elsewhere may be taken back by itself, as far as looking tells;
    /// where it may not, that is told once. Who asks before he opens it opens none in vain.
    pub fn is_welcome(&self, disk: DiskNumber, look: &DiskLook) -> bool {
        if !self.may_try(disk) {
            return false;
        }
        let held = self.held_epochs();
        match self.membership.judge_found(look, &held) {
            Ok(number) => number == disk,
            Err(why) => {
                self.tell_why_away(disk, why);
                false
            }
        }
    }

    /// Whether no person took the disk offline, and it has not come back too often.
    fn may_try(&self, disk: DiskNumber) -> bool {
        if self.is_by_hand(disk) {
            return false;
        }
        let now_s = self.now_s.load(Ordering::Relaxed);
        let mut returns = self.returns.lock();
        let flaps = returns.of_disk.entry(disk).or_default();
        for time_s in &mut flaps.times_s {
            // One that lies ahead is of a clock that was wrong.
            *time_s = now_s.min(*time_s);
        }
        (flaps.times_s).retain(|time_s| now_s - time_s < RETURNS_WINDOW_S);
        let may = flaps.times_s.len() < RETURNS_MOST;
        drop(returns);
        if !may {
            self.tell_why_away(
                disk,
                format!(
                    "it came back {RETURNS_MOST} times in an hour and went again: look at its \
                     path, then bring it back with `spindle disk online`"
                ),
            );
        }
        may
    }

    /// Every disk that is open, online or not, and where.
    pub fn open_disks(&self) -> Vec<(DiskNumber, DiskSlot)> {
        (self.disks.iter())
            .filter_map(|disk| Some((disk.number, disk.slot()?)))
            .collect()
    }

    /// Disks that went offline and may come back.
    pub fn away_disks(&self) -> Vec<DiskNumber> {
        (self.disks.iter().map(|disk| disk.number))
            .filter(|disk| self.is_away(*disk))
            .collect()
    }

    fn is_away(&self, disk: DiskNumber) -> bool {
        !self.membership.is_online(disk)
            && self.membership.status(disk) == Some(DiskStatus::Offline)
    }

    /// Says once why a disk that answers stays away.
    fn tell_why_away(&self, disk: DiskNumber, why: String) {
        let title = self.disks.describe(disk);
        let message = format!("{title} answers again and stays offline: {why}");
        let mut returns = self.returns.lock();
        let flaps = returns.of_disk.entry(disk).or_default();
        if flaps.told == why {
            return;
        }
        flaps.told = why;
        drop(returns);
        self.event(Event::new(EventKind::DiskPassedOver, message).disk(disk));
    }

    /// Makes disks that were away online again; what they missed is copied to them by the resync
    /// (`resync.rs`). All of `slots`, or none where one may not come back. A disk that cannot
    /// take the group state stays offline and is not among the answer.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] for a disk that is not ours, was dropped or replaced, was set
    /// back, or went on without the others; [`GroupErrorKind::Io`] where the group had to stop.
    pub fn return_disks(&self, slots: &[DiskSlot]) -> Result<Vec<DiskNumber>, GroupError> {
        self.return_alone(&self.returning.lock(Unshown), slots)
    }

    /// As [`Self::return_disks`], of who has shown that nobody else takes disks offline or back.
    fn return_alone(
        &self,
        _one: &MutexGuard<'_, (), levels::Returning>,
        slots: &[DiskSlot],
    ) -> Result<Vec<DiskNumber>, GroupError> {
        self.check_fence()?;
        let held = self.held_epochs();
        let returning = self.membership.judge_return(slots, &held)?;
        self.notice_offline();
        for disk in &returning {
            self.note_lost(disk.number, disk.lost);
        }
        self.commit_everything()?;
        self.region.forget_offline();
        for disk in &returning {
            self.disks.set_slot(disk.number, disk.slot);
        }
        // Until it is online: a resync that looks meanwhile finds nothing to do, and must not end
        // the looking of readers.
        let _returning = self.dirty.begin_resync();
        let answer = self.membership.return_disks(&returning);
        let online = self.keep_fence(answer)?;
        self.rebuild_placement();
        for disk in &online {
            self.forget_away(*disk);
            self.tell_of_return(*disk);
        }
        // First of all: the fewer replicas the catalog has, the less may fail.
        self.replace_replica();
        Ok(online)
    }

    /// Notes as missed what the disk lost: all of it that another copy has, and of the rest what
    /// is surely gone.
    fn note_lost(&self, disk: DiskNumber, lost: Lost) {
        let size_aus = self.membership.state().disk(disk).map(|disk| disk.size_aus);
        let Some(start_au) = size_aus.and_then(|size_aus| lost.start_au(size_aus)) else {
            return;
        };
        let gone_from_bytes = start_au * self.membership.au_size().bytes();
        for file in self.all_files() {
            let ranges = self.lost_blocks(&file, disk, gone_from_bytes);
            if ranges.is_empty() {
                continue;
            }
            let _change = self.change_inside();
            let apply = &mut |edit| self.catalog.apply(edit);
            match file.is_mirrored() {
                true => {
                    self.dirty.missed_by(&file, &ranges, &[disk], apply);
                }
                false => self.dirty.lost_by(&file, &ranges, disk, apply),
            }
        }
    }

    /// The initialised blocks of the file that the disk lost: those that another copy has, and
    /// those of extents that are surely gone. Where every other copy lacks them, what the disk
    /// still shows is all there is.
    fn lost_blocks(&self, file: &File, disk: DiskNumber, gone_from_bytes: u64) -> Ranges {
        let map = file.map.read();
        let mut stale = self.dirty.look(file);
        blocks_where(&map, |extent, at, end| {
            let own = extent.present().find(|copy| copy.disk() == disk);
            let Some(own) = own else {
                return (false, end);
            };
            if own.start_bytes() + own.length_bytes() > gone_from_bytes {
                return (true, end);
            }
            let (stale_copies, until) = stale.stale_copies(extent, at, end);
            let is_elsewhere = extent.copies().iter().enumerate().any(|(number, copy)| {
                copy.is_present() && copy.disk() != disk && stale_copies >> number & 1 == 0
            });
            (is_elsewhere, until)
        })
    }

    fn tell_of_return(&self, disk: DiskNumber) {
        let stale = self.dirty.stale_regions(&|number| number == disk);
        let blocks: u64 = stale.iter().map(|stale| u64::from(stale.blocks)).sum();
        let title = self.disks.describe(disk);
        let message = if blocks == 0 {
            format!("{title} is online again and missed nothing")
        } else {
            format!(
                "{title} is online again; {} bytes are copied to it, with all that it missed among \
                 them",
                blocks * BLOCK_SIZE_BYTES
            )
        };
        self.event(Event::new(EventKind::DiskOnline, message).disk(disk));
    }
}

/// The initialised blocks of a file that `wanted` picks: it is asked for blocks `[at, end)` of an
/// extent, and answers up to where its answer holds.
fn blocks_where(map: &Map, mut wanted: impl FnMut(&Extent, u64, u64) -> (bool, u64)) -> Ranges {
    let mut ranges = Ranges::new();
    let mut first = 0;
    // A region at a time, so that the holes of a large file cost little.
    while let Some((from, _)) = map.schedule().extents(first, first + 1)
        && from < map.end_index()
    {
        // The last region may end beyond what extents can reach.
        let _ = plan::segments::<TooFar>(map, first, first + REGION_BLOCKS, |segment| {
            let end = segment.at_block + segment.initialised_blocks();
            let mut at = segment.at_block;
            while let Some(extent) = segment.extent.as_ref().filter(|_| at < end) {
                let (is_wanted, until) = wanted(extent, at, end);
                match ranges.last_mut() {
                    _ if !is_wanted => {}
                    Some(last) if last.1 == at => last.1 = until,
                    _ => ranges.push((at, until)),
                }
                at = until;
            }
            Ok(())
        });
        first += REGION_BLOCKS;
    }
    ranges
}

#[cfg(test)]
mod tests;
