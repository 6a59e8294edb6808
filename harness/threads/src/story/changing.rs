//! Extents that change while they are moved: they are cut within, punched and grow again; files get
//! another redundancy while a disk is away; two rounds of cleaning meet.
//!
//! A file that is to be converted has one copy for some time: so it may lose with a disk's power what
//! was not synced, and what was synced has to be there when all disks are back.

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::{ExtentView, Group, Power};

use super::{Story, Subject, scene};

/// What of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changing {
    Extents,
    Redundancy,
    Cleaning,
}

impl Changing {
    /// That of a run with this number among its like.
    pub const fn of(number: u64) -> Self {
        match number % 3 {
            0 => Self::Extents,
            1 => Self::Redundancy,
            _ => Self::Cleaning,
        }
    }
}

/// Blocks at which extents of some size begin.
const STARTS: [u64; 3] = [64, 128, 256];
/// Points for which a copy that is to go is waited for.
const PAUSES_MOST: u64 = 60;

impl Story {
    /// Blocks within one extent, mostly, and where it was cut or will be.
    pub(super) fn place_within(random: &mut SeededRandom) -> (u64, u64) {
        let start = STARTS[random.index(STARTS.len())];
        // At its beginning it goes, and comes again.
        let first = start + random.below(60).saturating_sub(15);
        let most = if random.chance(1, 3) { 50 } else { 6 };
        (first, first + 1 + random.below(most))
    }

    /// Copies move to and fro in small pieces.
    pub fn move_again_and_again(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let joining = [(); 2].map(|()| self.disks.attach(scene::DISK_BYTES));
        self.history.note(|| format!("slots {joining:?} join"));
        let power = [1, 11, 1024][random.index(3)];
        let power = Power::new(power).expect("in range");
        self.judge("setting the power", group.set_power(power));
        let answer = group.add_disks(&joining.map(scene::new_disk));
        self.history.note(|| format!("{answer:?}"));
        let mut is_leaving = false;
        for _ in 0..2 + random.below(4) {
            for _ in 0..random.below(300) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            // What comes and goes takes copies along.
            let disk = DiskNumber(joining[1].0);
            let answer = match (is_leaving, random.below(3)) {
                (_, 0) => group.rebalance(),
                (false, _) => group.drop_disks(&[disk], false),
                (true, _) => group.undrop_disks(&[disk]),
            };
            is_leaving = (group.view().disks.iter())
                .any(|disk| disk.number.0 == joining[1].0 && disk.state == "dropping");
            self.history
                .note(|| format!("{answer:?}, is leaving: {is_leaving}"));
        }
        self.is_smaller
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Files get one copy or two.
    pub fn convert(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        self.judge("setting the power", group.set_power(Power::MAX));
        for _ in 0..2 + random.below(6) {
            for _ in 0..random.below(150) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            let subject = self.files[random.index(self.files.len())];
            let redundancy = match random.chance(1, 2) {
                true => Redundancy::External,
                false => Redundancy::Normal,
            };
            self.convert_one(group, subject, redundancy);
        }
    }

    /// Files get one copy or two, and a disk goes for a moment soon after that, or before and after.
    pub fn convert_and_blink(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        self.judge("setting the power", group.set_power(Power::MAX));
        for _ in 0..1 + random.below(3) {
            let pause_most = [10, 60, 300][random.index(3)];
            let subject = self.files[random.index(self.files.len())];
            let candidates = self.fallible();
            let slot = candidates[random.index(candidates.len())];
            let (first, second) = match random.chance(1, 2) {
                true => (Redundancy::Normal, Redundancy::External),
                false => (Redundancy::External, Redundancy::Normal),
            };
            self.convert_one(group, subject, first);
            if random.chance(1, 2) {
                self.pause(&mut random, pause_most);
                if !self.blink(group, slot, true) {
                    return;
                }
            }
            self.pause(&mut random, pause_most);
            self.convert_one(group, subject, second);
            match second {
                Redundancy::External => self.wait_for_only_copy(group, subject, slot),
                _ => self.pause(&mut random, pause_most),
            }
            if !self.blink(group, slot, false) {
                return;
            }
        }
    }

    fn pause(&self, random: &mut SeededRandom, points_most: u64) {
        for _ in 0..random.below(points_most) {
            spindle_sync::point();
        }
    }

    /// The disk has the only copy of something, for all that its background work has done.
    fn wait_for_only_copy(&self, group: &Group, subject: Subject, slot: DiskSlot) {
        let is_there = |extent: &ExtentView| {
            let mut copies = extent.copies.iter().flatten();
            copies.next().is_some_and(|(disk, _)| disk.0 == slot.0) && copies.next().is_none()
        };
        for _ in 0..PAUSES_MOST {
            let Some(file) = group.file(subject.id) else {
                return;
            };
            if !self.goes_on() || group.map(&file).iter().any(is_there) {
                return;
            }
            spindle_sync::point();
        }
    }

    /// A disk loses its power, and is back as soon as somebody has noticed, or when what the others
    /// have was synced.
    fn blink(&self, group: &Group, slot: DiskSlot, is_synced_beside: bool) -> bool {
        if !self.goes_on() {
            return false;
        }
        self.history.note(|| format!("slot {} blinks", slot.0));
        self.disks.vanish(slot);
        self.history.outage();
        if !self.wait_until_noticed(group, slot) {
            return false;
        }
        if is_synced_beside {
            self.sync_all(group);
        }
        self.disks.bring_back(slot);
        self.bring_online(group, slot)
    }

    fn convert_one(&self, group: &Group, subject: Subject, redundancy: Redundancy) {
        // It may be refused while disks are away.
        let answer = group.convert_files(&[(subject.id, redundancy)]);
        let id = subject.id;
        self.history
            .note(|| format!("{id} to {redundancy}: {answer:?}"));
    }

    /// At the end every file has two copies.
    pub(super) fn convert_all_back(&self, group: &Group) {
        let all: Vec<_> = (self.files.iter())
            .map(|subject| (subject.id, Redundancy::Normal))
            .collect();
        self.judge("a conversion of all files", group.convert_files(&all));
    }

    /// Somebody takes a disk offline, which cleans two rounds first, and back.
    pub fn take_offline_by_wish(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..1 + random.below(5) {
            for _ in 0..random.below(100) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            let candidates = self.fallible();
            let slot = candidates[random.index(candidates.len())];
            // Refused where another one's return is not over.
            let answer = group.offline_disks(&[DiskNumber(slot.0)]);
            self.history
                .note(|| format!("slot {} offline: {answer:?}", slot.0));
            if answer.is_err() {
                continue;
            }
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            if !self.bring_online_by_wish(group, slot) {
                return;
            }
        }
    }

    /// Where its power is not away as well.
    fn bring_online_by_wish(&self, group: &Group, slot: DiskSlot) -> bool {
        self.disks.is_vanished(slot) || self.bring_online(group, slot)
    }
}
