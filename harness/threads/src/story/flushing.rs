//! Disks that fail a flush, or a durable write, and serve on.
//!
//! Such a disk drops what no flush had covered and answers the next flush well, as kernels and caches
//! do that do not try again; or it keeps it. Who can do without it takes it offline; who cannot asks
//! it again, and what it had alone is owed: a sync that answers well promises all that it was asked
//! for, and one that answers an error has told of all that was answered before.

use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::Group;

use super::{Story, is_of_names, scene};
use crate::faults::FailedFlushes;

/// What the group can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushing {
    /// Every other disk is there: nothing is lost, and the disk goes offline.
    Alone,
    /// A disk of the other failure group is away: what both should have had only this one has.
    BesideOutage,
    /// No disk has what another one has.
    WithoutRedundancy,
}

impl Flushing {
    /// That of a run with this number among its like.
    pub const fn of(number: u64) -> Self {
        match number % 3 {
            0 => Self::Alone,
            1 => Self::BesideOutage,
            _ => Self::WithoutRedundancy,
        }
    }
}

impl Story {
    /// See the module.
    pub fn fail_flushes(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        match Flushing::of(self.seed / 16) {
            Flushing::Alone => self.fail_flushes_alone(group, of),
            Flushing::BesideOutage => self.fail_flushes_beside_outage(group, &mut random),
            Flushing::WithoutRedundancy => {
                let slots: Vec<DiskSlot> = self.all_slots().collect();
                self.fail_and_ask_again(group, &slots, &mut random);
            }
        }
    }

    pub(super) fn all_slots(&self) -> impl Iterator<Item = DiskSlot> {
        (0..u16::try_from(self.disks.disk_count()).expect("few")).map(DiskSlot)
    }

    /// One disk after the other, each back before the next.
    pub(super) fn fail_flushes_alone(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            let candidates = self.fallible();
            let slot = candidates[random.index(candidates.len())];
            self.faults.fail_flushes(FailedFlushes {
                slot,
                count: 1 + u32::from(random.chance(1, 4)),
                with_durable_writes: random.chance(1, 2),
                // Whoever reads what a disk dropped, before it has told of it, cannot know.
                drops: random.chance(3, 4) && !is_of_names(self.seed),
                is_second_failure: false,
            });
            let goes_on = self.wait_until_noticed(group, slot);
            self.faults.spare_flushes(slot);
            if !goes_on {
                return;
            }
            for _ in 0..random.below(120) {
                spindle_sync::point();
            }
            if !self.bring_online(group, slot) {
                return;
            }
        }
    }

    /// A disk goes, and comes back when others have failed flushes without it.
    fn fail_flushes_beside_outage(&self, group: &Group, random: &mut SeededRandom) {
        for _ in 0..random.below(40) {
            spindle_sync::point();
        }
        let candidates = self.fallible();
        let away = candidates[random.index(candidates.len())];
        self.history
            .note(|| format!("slot {} loses its power", away.0));
        self.disks.vanish(away);
        self.history.outage();
        if !self.ask_until_noticed(group, away) {
            return;
        }
        let slots: Vec<DiskSlot> = (self.all_slots())
            .filter(|slot| scene::failure_group(*slot) == 0)
            .collect();
        self.fail_and_ask_again(group, &slots, random);
        self.disks.bring_back(away);
        self.history
            .note(|| format!("slot {} has power again", away.0));
        self.bring_online(group, away);
    }

    /// Any of these disks fails a flush, and answers the next one well: the group goes on with it.
    fn fail_and_ask_again(&self, group: &Group, slots: &[DiskSlot], random: &mut SeededRandom) {
        let mut slots = slots.to_vec();
        random.shuffle(&mut slots);
        // Each once: one that fails the flush by which it is asked again has failed two.
        for slot in slots {
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            self.faults.fail_flushes(FailedFlushes {
                slot,
                count: 1,
                // One that cannot take a group state goes.
                with_durable_writes: false,
                drops: random.chance(3, 4),
                is_second_failure: true,
            });
            for _ in 0..random.below(100) {
                spindle_sync::point();
            }
            if random.chance(1, 2) {
                self.sync_all(group);
            }
            self.faults.spare_flushes(slot);
            if self.goes_on() && Self::is_offline(group, slot) {
                self.history.violate(format!(
                    "slot {} failed one flush, and went although nobody else has what it has",
                    slot.0
                ));
            }
        }
    }
}
