//! Disks that were away come back.
//!
//! In this order, so that a crash anywhere leaves only more to be copied: what the disk missed is
//! known durably (rows of dirty regions), then the group state names it online, then the resync
//! copies what is stale, then the rows go. Until a block was copied or written again no reader
//! gets it from there.
//!
//! Since when a disk is away, and the last group state that it held, stands in the catalog (an
//! attribute for each such disk): the repair time counts from there, and a disk that was set back
//! meanwhile is found out.

use std::sync::atomic::Ordering;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_catalog::{Edit, Table};
use spindle_device::DiskSlot;
use spindle_format::DiskStatus;

use super::Group;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};

/// Since when a disk is away, and the epoch of the last group state that it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Away {
    /// Seconds since 1970.
    pub since_s: u64,
    /// As far as we know.
    pub held_epoch: u64,
}

impl Away {
    fn key(disk: DiskNumber) -> Vec<u8> {
        format!("away.{}", disk.0).into_bytes()
    }

    /// As a line of text, which a dump of the catalog shows as it is.
    fn encode(self) -> Vec<u8> {
        format!("since_s={} held_epoch={}", self.since_s, self.held_epoch).into_bytes()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (since, held) = text.split_once(' ')?;
        Some(Self {
            since_s: since.strip_prefix("since_s=")?.parse().ok()?,
            held_epoch: held.strip_prefix("held_epoch=")?.parse().ok()?,
        })
    }
}

impl Group {
    /// Makes disks that were away online again; what they missed is copied to them by the resync
    /// (`resync.rs`). All of `slots`, or none where one may not come back. A disk that cannot
    /// take the group state stays offline and is not among the answer.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] for a disk that is not ours, was dropped or replaced, was set
    /// back, or went on without the others; [`GroupErrorKind::Busy`] where requests from before it
    /// went are still under way; [`GroupErrorKind::Io`] where the group had to stop.
    pub fn return_disks(&self, slots: &[DiskSlot]) -> Result<Vec<DiskNumber>, GroupError> {
        self.check_fence()?;
        let _one = self.returning.lock();
        let held = |disk| self.away(disk).map(|away| away.held_epoch);
        let returning = self.membership.judge_return(slots, &held)?;
        self.notice_offline();
        self.commit_everything()?;
        self.region.forget_offline();
        // Nobody notes a disk as offline while this one changes: what is noted as missed by then
        // is what it missed.
        let mut known_offline = self.known_offline.lock();
        for disk in &returning {
            if !self.disks.flushes.restart(disk.number) {
                return Err(GroupError::new(
                    GroupErrorKind::Busy,
                    format!(
                        "{} has not answered a flush from before it went away: try again later",
                        self.disks.describe(disk.number)
                    ),
                ));
            }
            self.disks.set_slot(disk.number, disk.slot);
        }
        self.dirty.begin_resync();
        self.returns_count.fetch_add(1, Ordering::AcqRel);
        let answer = self.membership.return_disks(&returning);
        known_offline
            .retain(|number| !self.disks.get(*number).is_some_and(|disk| disk.is_online()));
        drop(known_offline);
        let online = self.keep_fence(answer)?;
        self.rebuild_placement();
        for disk in &online {
            self.tell_of_return(*disk);
        }
        // First of all: the fewer replicas the catalog has, the less may fail.
        self.replace_replica();
        Ok(online)
    }

    fn tell_of_return(&self, disk: DiskNumber) {
        let stale = self.dirty.stale_regions(&|number| number == disk);
        let blocks: u64 = stale.iter().map(|stale| u64::from(stale.blocks)).sum();
        let title = self.disks.describe(disk);
        let message = if blocks == 0 {
            format!("{title} is online again and missed nothing")
        } else {
            format!(
                "{title} is online again; {} bytes that it missed are copied to it",
                blocks * BLOCK_SIZE_BYTES
            )
        };
        self.event(Event::new(EventKind::DiskOnline, message).disk(disk));
    }

    /// Since when the disk is away, where that was noted.
    pub(crate) fn away(&self, disk: DiskNumber) -> Option<Away> {
        let row = self.catalog.get(Table::Attribute, &Away::key(disk));
        Away::parse(&row.ok()??)
    }

    /// Notes since when disks are away, and forgets it of those that are not.
    pub(super) fn note_away(&self) {
        let now_s = self.now_s.load(Ordering::Relaxed);
        let mut edit = Edit::default();
        for disk in self.disks.iter() {
            let is_away = matches!(
                self.membership.status(disk.number),
                Some(DiskStatus::Offline)
            );
            match (is_away, self.away(disk.number)) {
                (true, None) => {
                    let away = Away {
                        since_s: now_s,
                        held_epoch: self.membership.held_epoch(disk.number).unwrap_or(0),
                    };
                    edit.put(Table::Attribute, Away::key(disk.number), away.encode());
                }
                (false, Some(_)) => edit.delete(Table::Attribute, Away::key(disk.number)),
                _ => {}
            }
        }
        if !edit.is_empty() {
            let _change = self.change_inside();
            self.catalog.apply(edit);
        }
    }
}
