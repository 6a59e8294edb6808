//! Places of disks that cannot be read or written: for a moment, until they are written, or for good.
//!
//! All of the second failure group, so that every extent has a copy that can be read; and all of the
//! others' requests go on. At the next opening reads fail here and there, of any disk: an opening may
//! be refused for that, but what was acknowledged is there when the disks answer again.

use std::ops::Range;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::{EventKind, Group, GroupError};

use super::{Story, scene};
use crate::faults::BadPlace;

/// Where the first records of the catalog's journal lie, and the first blocks of its region with
/// their checksums.
const JOURNAL: Range<u64> = 640 << 10..700 << 10;
const REGION: Range<u64> = 1 << 20..(1 << 20) + (200 << 10);
/// Openings that may be refused while reads fail.
const OPENINGS_MOST: u8 = 3;

impl Story {
    /// See the module.
    pub fn break_places_for_a_while(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..2 + random.below(5) {
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            let Some(slot) = self.break_one(group, &mut random) else {
                continue;
            };
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            if random.chance(1, 2) {
                self.faults.mend_places(slot);
            }
            if self.goes_on() && Self::is_offline(group, slot) {
                self.faults.mend_places(slot);
                if !self.bring_online(group, slot) {
                    return;
                }
            }
        }
    }

    /// A place of a copy goes bad, and somebody reads there; of which disk.
    fn break_one(&self, group: &Group, random: &mut SeededRandom) -> Option<DiskSlot> {
        let subject = self.files[random.index(self.files.len())];
        let file = group.file(subject.id).filter(|_| subject.is_mirrored)?;
        let extents = group.map(&file);
        let extent = extents.get(random.index(extents.len().max(1)))?;
        let blocks = extent.initialised_bytes / BLOCK_SIZE_BYTES;
        let broken = (extent.copies.iter().flatten())
            .find(|(disk, _)| scene::failure_group(DiskSlot(disk.0)) == 1);
        let (disk, at) = broken.filter(|_| blocks > 0)?;
        let slot = DiskSlot(disk.0);
        let first = random.below(blocks);
        let end = blocks.min(first + 1 + random.below(16));
        let [reads_left, writes_left] = match random.below(5) {
            0 => [1 + random.below(3), 0],
            1 | 2 => [u64::MAX, 0],
            3 => [u64::MAX, 1 + random.below(3)],
            _ => [0, 1 + random.below(3)],
        };
        // A disk that cannot be written goes, with what no flush had covered.
        self.history.outage();
        self.faults.break_place(BadPlace {
            slot,
            bytes: at + first * BLOCK_SIZE_BYTES..at + end * BLOCK_SIZE_BYTES,
            reads_left,
            writes_left,
            is_mended_by_writes: random.chance(2, 3),
        });
        let mut out = vec![0; usize::try_from(extent.initialised_bytes).expect("few")];
        for _ in 0..random.below(5) {
            // Either copy may be asked.
            let answer = group.read(&file, extent.offset_bytes, &mut out);
            self.judge("a read of a bad place", answer);
        }
        Some(slot)
    }

    /// Some blocks of the catalog can be read on none of these disks.
    fn break_catalog(&self, slots: &[DiskSlot], random: &mut SeededRandom) {
        let (area, blocks_most) = match random.below(2) {
            0 => (JOURNAL, 3),
            _ => (REGION, 16),
        };
        let blocks = (area.end - area.start) / BLOCK_SIZE_BYTES;
        let first = area.start + random.below(blocks) * BLOCK_SIZE_BYTES;
        let length = (1 + random.below(blocks_most)) * BLOCK_SIZE_BYTES;
        for slot in slots {
            self.faults.break_place(BadPlace {
                slot: *slot,
                bytes: first..first + length,
                reads_left: u64::MAX,
                writes_left: 0,
                is_mended_by_writes: random.chance(1, 2),
            });
        }
    }

    fn has_compared_all(group: &Group) -> bool {
        let events = group.take_events();
        !(events.iter()).any(|event| event.kind == EventKind::BlocksUnreadable)
    }

    /// A copy that lacks something, as one on a place that was bad, has no other one while a disk of the
    /// first failure group is away: that one answers again, and is taken back before anything is read.
    fn take_back_needed(&self, group: &Group) -> bool {
        let view = group.view();
        if view.resync_left_bytes == 0 {
            return true;
        }
        let away = (view.disks.iter())
            .filter(|disk| disk.mode == "offline" && disk.state != "absent")
            .map(|disk| DiskSlot(disk.number.0));
        away.filter(|slot| scene::failure_group(*slot) == 0)
            .all(|slot| {
                let taken = group.return_disks(&[slot]);
                self.judge("taking back a disk that answers again", taken)
                    .is_some()
            })
    }

    /// Opens while reads fail here and there; refused, it tries again, and at last without.
    pub(super) fn open_with_bad_reads(
        &self,
        random: &mut SeededRandom,
    ) -> Result<Group, GroupError> {
        let slots: Vec<DiskSlot> = match random.below(3) {
            0 => self.all_slots().collect(),
            of => (self.all_slots())
                .filter(|slot| u64::from(scene::failure_group(*slot)) == of - 1)
                .collect(),
        };
        if slots.iter().any(|slot| scene::failure_group(*slot) == 0) {
            // Else a copy may have no other one.
            self.all_slots()
                .for_each(|slot| self.faults.mend_places(slot));
        }
        for opening in 0..OPENINGS_MOST {
            if random.chance(1, 2) {
                self.break_catalog(&slots, random);
            } else {
                let one_in = [4, 12, 40][random.index(3)];
                self.faults.blink(&slots, one_in, random.next_u64());
            }
            let opened = scene::open(&self.access, &self.disks, 10 + opening);
            self.faults.stop_blinking();
            slots.iter().for_each(|slot| self.faults.mend_places(*slot));
            if let Ok(group) = &opened
                && !self.take_back_needed(group)
            {
                return opened;
            }
            match opened {
                Ok(group) if Self::has_compared_all(&group) => return Ok(group),
                // No copy of some blocks could be read: they are compared at the next opening.
                Ok(group) => {
                    self.judge_files(&group, true);
                    self.disks.crash();
                    drop(group);
                    self.disks.restart();
                }
                Err(error) => self.history.note(|| format!("refused: {error}")),
            }
        }
        scene::open(&self.access, &self.disks, 10 + OPENINGS_MOST)
    }
}
