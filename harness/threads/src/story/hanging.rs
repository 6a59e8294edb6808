//! Disks that keep silent, and whoever goes on without them.
//!
//! One disk of the second failure group at a time answers some of its requests or none at all,
//! for less or more time than the engine waits. What was given up may reach the disk at any moment
//! until it answers again, and the disk may lose its power instead.

use std::sync::Arc;

use spindle_base::{FileId, Redundancy, Striping};
use spindle_device::{DiskSlot, Disks, FaultyOperation, SeededRandom};
use spindle_group::{File, Group, Layout};

use super::{Story, Subject};
use crate::disks::IO_DEADLINE_MS;

/// Where labels, group states and owner records lie.
const HEAD: std::ops::Range<u64> = 0..1 << 20;
const EVERYWHERE: std::ops::Range<u64> = 0..u64::MAX;
/// The number of the first file that comes while the threads run.
const NEWCOMER: u64 = 1000;
/// Time in which a step takes a disk offline that was given up.
const NOTICED_WITHIN_MS: u64 = 3 * IO_DEADLINE_MS;

impl Story {
    /// Disks keep silent, one after the other, and come back.
    pub fn hang_disks(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(80) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            let candidates = self.fallible();
            let slot = candidates[random.index(candidates.len())];
            self.let_hang(slot, &mut random);
            self.stay_silent(group, slot, &mut random);
            if !self.end_silence(group, slot, &mut random) {
                return;
            }
            self.let_others_go_on(1 + random.below(3000));
        }
    }

    /// Nobody is left who waits since before; those that were held up may still be on their way.
    fn let_others_go_on(&self, for_ms: u64) {
        let begun_ms = self.clock.waited_ms();
        while self.goes_on() && self.clock.waited_ms() < begun_ms + for_ms {
            self.clock.sleep(for_ms);
        }
    }

    fn let_hang(&self, slot: DiskSlot, random: &mut SeededRandom) {
        use FaultyOperation::{Flush, Read, Write};
        let (operations, range) = match random.below(6) {
            0 | 1 => (&[Read, Write, Flush][..], EVERYWHERE),
            2 => (&[Write][..], EVERYWHERE),
            3 => (&[Flush][..], EVERYWHERE),
            4 => (&[Read][..], EVERYWHERE),
            _ => (&[Read, Write][..], HEAD),
        };
        self.history.note(|| {
            format!(
                "slot {} keeps silent about {operations:?} {range:?}",
                slot.0
            )
        });
        // What only it had may count as lost.
        self.history.outage();
        for operation in operations {
            self.disks.hang(slot, *operation, range.clone());
        }
    }

    /// Time passes, and what was given up may reach the disk.
    fn stay_silent(&self, group: &Group, slot: DiskSlot, random: &mut SeededRandom) {
        let silence_ms = match random.below(3) {
            // Nobody gives it up.
            0 => random.below(IO_DEADLINE_MS),
            _ => IO_DEADLINE_MS + random.below(2 * IO_DEADLINE_MS),
        };
        let pieces = 1 + random.below(4);
        for _ in 0..pieces {
            self.clock.sleep(silence_ms / pieces);
            for _ in 0..random.below(30) {
                spindle_sync::point();
            }
            if random.chance(1, 3) && self.disks.let_land(slot) {
                self.history
                    .note(|| format!("a late write reaches slot {}", slot.0));
            }
            if random.chance(1, 3) && self.goes_on() && self.disks.is_fenced(slot) {
                let back = self.in_time("a return", || group.return_disks(&[slot]));
                if let Ok(back) = back
                    && !back.is_empty()
                    && self.disks.is_powered()
                {
                    self.history.violate(format!(
                        "slot {} was taken back while requests to it may still land",
                        slot.0
                    ));
                }
            }
        }
    }

    /// The disk answers again, or has lost its power; it goes offline where it was given up, and
    /// is taken back.
    fn end_silence(&self, group: &Group, slot: DiskSlot, random: &mut SeededRandom) -> bool {
        if !self.disks.is_powered() {
            return false;
        }
        let was_given_up = self.disks.is_fenced(slot);
        let is_pulled = random.chance(1, 4);
        if is_pulled {
            self.history
                .note(|| format!("slot {} loses its power", slot.0));
            self.disks.vanish(slot);
        }
        self.disks.release(slot);
        self.history
            .note(|| format!("slot {} keeps silent no more", slot.0));
        self.clock.wake();
        if is_pulled {
            if !self.ask_until_noticed(group, slot) {
                return false;
            }
            self.disks.bring_back(slot);
        } else if was_given_up && !self.goes_offline(group, slot) {
            return false;
        }
        self.bring_online(group, slot)
    }

    /// A disk that was given up goes offline by whoever needed it, or by the next step.
    fn goes_offline(&self, group: &Group, slot: DiskSlot) -> bool {
        let begun_ms = self.clock.waited_ms();
        while self.goes_on() {
            if Self::is_offline(group, slot) {
                return true;
            }
            if self.clock.waited_ms() > begun_ms + NOTICED_WITHIN_MS {
                self.history.violate(format!(
                    "slot {} was given up and does not go offline",
                    slot.0
                ));
            }
            let now_ms = self.later_ms(500);
            self.judge("a step", self.in_time("a step", || group.step(now_ms)));
        }
        false
    }

    /// Files that are made while disks keep silent: whoever comes is served.
    pub fn come_new(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for number in 0..1 + random.below(5) {
            self.later_ms(random.below(12_000));
            if !self.goes_on() {
                return;
            }
            let Some((subject, file)) = self.make_new(group, number) else {
                return;
            };
            self.write_once(group, subject, &file, &mut random);
            self.sync_new(group, subject, &file);
            self.read_once(group, subject, &file, &mut random);
        }
    }

    /// A file comes.
    pub(super) fn make_new(&self, group: &Group, number: u64) -> Option<(Subject, Arc<File>)> {
        let subject = Subject {
            id: FileId(NEWCOMER + number),
            is_mirrored: true,
        };
        let layout = Layout {
            redundancy: Redundancy::Normal,
            striping: Striping::Coarse,
        };
        let created = self.in_time("a file's making", || {
            let change = group.change();
            group.create_file(&change, subject.id, layout)
        });
        let file = self.judge("a file's making", created)?;
        self.history.create(subject.id, 2);
        Some((subject, file))
    }

    /// Whether a file that came is durable from here on.
    pub(super) fn sync_new(&self, group: &Group, subject: Subject, file: &File) -> bool {
        let begun = self.history.tick();
        let answer = self.in_time("a sync", || group.sync_file(file, true));
        self.history.end_sync(subject.id, begun, answer.is_ok());
        let is_durable = self.judge("a sync", answer).is_some();
        if is_durable {
            self.newcomers().push(subject);
        }
        is_durable
    }
}
