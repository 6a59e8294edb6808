//! A disk goes in the midst of syncs, and soon after it the power.
//!
//! Where the power goes some requests after the disk, what is there had mostly been flushed, and
//! several commits follow each other. The other runs have what such a run meets too seldom: nothing
//! that was written is flushed when the disk goes, nobody has written over anything, so no row calls
//! a whole region doubtful, and the first answer that says "durable" may be the last one. A commit
//! that does not know of the outage then shows as copies that differ after the disk's return.

use std::sync::atomic::Ordering;

use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::Group;

use super::{Plot, Story};

/// When the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutting {
    /// Some requests after the disk.
    AfterOutage,
    /// When somebody is told that something is durable.
    AfterSync,
}

/// Files that come in a run: room for those of each thread.
const COME_MOST: u64 = 10;
/// Writes of a thread before the disk goes.
const WRITES_MOST: u64 = 30;

impl Cutting {
    /// That of a run with this number among its like.
    pub const fn of(number: u64) -> Self {
        match number % 2 {
            0 => Self::AfterOutage,
            _ => Self::AfterSync,
        }
    }
}

impl Story {
    /// Whether a write goes where nobody has written.
    pub(super) fn is_written_anew(&self, random: &mut SeededRandom) -> bool {
        match self.plot {
            Plot::Cuts(Cutting::AfterOutage) => random.chance(3, 4),
            Plot::Cuts(Cutting::AfterSync) => random.chance(15, 16),
            _ => false,
        }
    }

    fn lose_any_disk(&self, random: &mut SeededRandom) -> DiskSlot {
        let candidates = self.fallible();
        let slot = candidates[random.index(candidates.len())];
        self.history
            .note(|| format!("slot {} loses its power", slot.0));
        self.disks.vanish(slot);
        self.history.outage();
        slot
    }

    /// A disk loses its power, and soon all do.
    pub fn lose_a_disk_and_the_power(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let most = [50, 300][random.index(2)];
        for _ in 0..random.below(most) {
            spindle_sync::point();
        }
        let slot = self.lose_any_disk(&mut random);
        self.wait_until_noticed(group, slot);
        let most = [6, 20, 60][random.index(3)];
        let requests = 1 + random.below(most);
        self.history
            .note(|| format!("all disks will lose it at request {requests} from now"));
        self.disks.power_fails_after(requests);
    }

    /// A disk loses its power when much was written, and all do when something is durable.
    pub fn lose_a_disk_before_syncs(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let most = [50, 300, 2000][random.index(3)];
        for _ in 0..random.below(most) {
            spindle_sync::point();
        }
        for _ in 0..2 + random.below(4) {
            self.write_any(group, &mut random);
        }
        let slot = self.lose_any_disk(&mut random);
        self.is_cut_due.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            self.write_any(group, &mut random);
        }
        self.wait_until_noticed(group, slot);
    }

    /// Writes until the disk goes, or only waits for that, and then asks that all be durable.
    pub fn write_and_sync_late(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let writes = if of.is_multiple_of(2) { 0 } else { WRITES_MOST };
        for _ in 0..writes {
            if self.is_cut_due.load(Ordering::Relaxed) || !self.goes_on() {
                break;
            }
            if random.chance(1, 12) {
                self.sync_any(group, &mut random);
            } else {
                self.write_any(group, &mut random);
            }
            spindle_sync::point();
        }
        while !self.is_cut_due.load(Ordering::Relaxed) && self.goes_on() {
            spindle_sync::point();
        }
        for number in 0..2 + random.below(4) {
            let most = [4, 20, 100][random.index(3)];
            for _ in 0..random.below(most) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            if random.chance(1, 3) {
                self.sync_any(group, &mut random);
                continue;
            }
            // Its sync waits for no disk before the commit, which has what all others wrote.
            let Some((subject, file)) = self.make_new(group, COME_MOST * of + number) else {
                return;
            };
            if self.sync_new(group, subject, &file) {
                self.cut_when_durable(&mut random);
            }
        }
    }

    fn write_any(&self, group: &Group, random: &mut SeededRandom) {
        let subject = self.files[random.index(self.files.len())];
        if let Some(file) = group.file(subject.id).filter(|_| self.goes_on()) {
            self.write_once(group, subject, &file, random);
        }
    }

    fn sync_any(&self, group: &Group, random: &mut SeededRandom) {
        let subject = self.files[random.index(self.files.len())];
        if let Some(file) = group.file(subject.id) {
            self.sync_once(group, subject, &file, random);
        }
    }

    /// Something is durable: where a disk went before, the power may go.
    pub(super) fn cut_when_durable(&self, random: &mut SeededRandom) {
        if self.is_cut_due.load(Ordering::Relaxed) && random.chance(3, 4) {
            self.history
                .note(|| "all disks lose their power at the next request".to_owned());
            self.disks.power_fails_after(1);
        }
    }
}
