//! What the threads do.

use std::sync::atomic::Ordering;

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::{File, Group, Power};

use super::changing::Changing;
use super::{Plot, ROUNDS_MOST, Story, Subject, is_of_names, scene};
use crate::history::{BLOCK_BYTES, CUT_END_BLOCK, fill};

/// The blocks of each file that are used.
const FILE_BLOCKS: u64 = 48;
const LARGE_FILE_BLOCKS: u64 = 700;

fn bytes_of(blocks: u64) -> usize {
    usize::try_from(blocks).expect("few") * BLOCK_BYTES
}

/// Where the next operation goes: mostly to the same few blocks, so that threads meet.
fn place(random: &mut SeededRandom) -> (u64, u64) {
    let reach = if random.chance(1, 8) {
        LARGE_FILE_BLOCKS
    } else {
        FILE_BLOCKS
    };
    let first = random.below(reach);
    let most = if random.chance(1, 6) { 40 } else { 4 };
    let blocks = 1 + random.below(most);
    (first, first + blocks)
}

impl Story {
    fn place(&self, random: &mut SeededRandom) -> (u64, u64) {
        match self.plot {
            Plot::Changes(_) if random.chance(3, 4) => Self::place_within(random),
            _ => place(random),
        }
    }

    /// A thread of a database: writes, reads, syncs, now and then a hole.
    pub fn write_and_read(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let least = if matches!(self.plot, Plot::Changes(_)) {
            16
        } else {
            6
        };
        for _ in 0..least + random.below(14) {
            if !self.goes_on() {
                return;
            }
            let subject = self.files[random.index(self.files.len())];
            let Some(file) = group.file(subject.id) else {
                self.history
                    .violate(format!("file {} is not there", subject.id));
                return;
            };
            let which = match self.plot {
                // Mostly writes and syncs.
                Plot::Cuts(_) | Plot::Flushes(_) => {
                    [0, 0, 0, 0, 0, 6, 6, 6, 8, 5][random.index(10)]
                }
                Plot::Changes(Changing::Redundancy) => {
                    [0, 0, 0, 0, 0, 5, 5, 9, 9, 6][random.index(10)]
                }
                Plot::Changes(_) => [0, 0, 0, 0, 5, 5, 5, 6, 8, 9][random.index(10)],
                Plot::Everything | Plot::Moves | Plot::Hangs | Plot::Places => random.below(10),
            };
            match which {
                0..=4 => self.write_once(group, subject, &file, &mut random),
                5 => match random.below(6) {
                    0..=3 if matches!(self.plot, Plot::Changes(_)) => {
                        self.cut_and_grow(group, subject, &file, &mut random);
                    }
                    0 => self.cut_once(group, subject, &file, &mut random),
                    1 => self.reserve_once(group, subject, &file, &mut random),
                    _ => self.punch_once(group, subject, &file, &mut random),
                },
                6..=7 => self.sync_once(group, subject, &file, &mut random),
                8 => self.sync_all(group),
                _ => self.read_once(group, subject, &file, &mut random),
            }
        }
    }

    /// Writes some blocks.
    pub fn write_once(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let mut place = self.place(random);
        if self.is_written_anew(random) {
            // Nobody has written there yet: what tells that it holds data becomes durable later.
            let first = self.next_version.load(Ordering::Relaxed) * 6;
            place = (first, first + 1 + random.below(5));
        }
        self.write_blocks(group, subject, file, place);
    }

    /// Fills the beginning of the file, so that a move takes more than one piece.
    pub fn write_much(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let end = match self.plot {
            Plot::Changes(_) => 280 + random.below(160),
            _ => 100 + random.below(300),
        };
        for first in (0..end).step_by(50) {
            self.write_blocks(group, subject, file, (first, end.min(first + 50)));
        }
    }

    fn write_blocks(&self, group: &Group, subject: Subject, file: &File, (first, end): (u64, u64)) {
        let version = self.version();
        let mut data = vec![0; bytes_of(end - first)];
        fill(&mut data, subject.id, first, version);
        let place = self.history.begin_write(subject.id, (first, end), version);
        let answer = self.in_time("a write", || {
            group.write(file, bytes_of(first) as u64, &data)
        });
        self.end_write(subject, place, "a write", answer);
    }

    fn punch_once(&self, group: &Group, subject: Subject, file: &File, random: &mut SeededRandom) {
        let (first, end) = self.place(random);
        let place = self.history.begin_write(subject.id, (first, end), 0);
        let answer = self.in_time("a punch", || {
            group.punch(file, bytes_of(first) as u64, bytes_of(end - first) as u64)
        });
        self.end_write(subject, place, "a punch", answer);
    }

    /// Cuts the file off; whoever writes beyond makes it grow again.
    fn cut_once(&self, group: &Group, subject: Subject, file: &File, random: &mut SeededRandom) {
        let (first, _) = self.place(random);
        self.cut_at(group, subject, file, first);
    }

    fn cut_at(&self, group: &Group, subject: Subject, file: &File, first: u64) {
        let blocks = (first, CUT_END_BLOCK);
        let place = self.history.begin_write(subject.id, blocks, 0);
        let answer = self.in_time("a truncation", || {
            group.truncate(file, bytes_of(first) as u64)
        });
        self.end_write(subject, place, "a truncation", answer.map(drop));
    }

    /// Cuts the file off, and writes over that at once or after a while.
    fn cut_and_grow(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let (first, end) = self.place(random);
        self.cut_at(group, subject, file, first);
        for _ in 0..random.below(40) {
            spindle_sync::point();
        }
        for from in (first..end).step_by(8) {
            self.write_blocks(group, subject, file, (from, end.min(from + 8)));
        }
    }

    /// Gives blocks space; what they read as stays.
    fn reserve_once(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let (first, end) = self.place(random);
        self.history
            .note(|| format!("space for {} {:?}", subject.id, (first, end)));
        let answer = self.in_time("an allocation", || {
            group.allocate(file, bytes_of(first) as u64, bytes_of(end - first) as u64)
        });
        self.judge_of(subject, "an allocation", answer);
    }

    fn end_write(
        &self,
        subject: Subject,
        place: usize,
        what: &str,
        answer: Result<(), spindle_group::GroupError>,
    ) {
        self.history.end_write(subject.id, place, answer.is_ok());
        self.judge_of(subject, what, answer);
    }

    pub(super) fn sync_once(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let begun = self.history.tick();
        let metadata = random.chance(1, 2);
        let answer = self.in_time("a sync", || group.sync_file(file, metadata));
        self.history.end_sync(subject.id, begun, answer.is_ok());
        if answer.is_ok() {
            self.cut_when_durable(random);
        }
        self.judge_of(subject, "a sync", answer);
    }

    pub(super) fn sync_all(&self, group: &Group) {
        let begun = self.history.tick();
        let answer = self.in_time("a sync of the group", || group.sync());
        self.history.notice_drops(begun);
        if is_of_names(self.seed) {
            // Of files with memory before them the group cannot speak.
            self.judge("a sync of the group", answer);
            return;
        }
        for subject in &self.files {
            self.history.end_sync(subject.id, begun, answer.is_ok());
        }
        // What only one copy had may be lost with its disk's power, and is told here.
        let may_have_lost = |subject: &Subject| self.history.may_have_lost(subject.id);
        if !self
            .files
            .iter()
            .any(|subject| !subject.is_mirrored || may_have_lost(subject))
        {
            self.judge("a sync of the group", answer);
        }
    }

    pub(super) fn read_once(
        &self,
        group: &Group,
        subject: Subject,
        file: &File,
        random: &mut SeededRandom,
    ) {
        let (first, end) = self.place(random);
        let mut out = vec![0xee; bytes_of(end - first)];
        let begun = self.history.tick();
        let answer = self.in_time("a read", || {
            group.read(file, bytes_of(first) as u64, &mut out)
        });
        if answer.is_ok() {
            self.history.judge_read(subject.id, first, &out, begun);
        } else {
            self.judge_of(subject, "a read", answer);
        }
    }

    /// The daemon's lazy work: commits, cleaning, replicas.
    pub fn step(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..ROUNDS_MOST {
            if self.is_over.load(Ordering::Relaxed) || !self.goes_on() {
                return;
            }
            let now_ms = self.later_ms(1 + random.below(4000));
            let answer = self.in_time("a step", || group.step(now_ms));
            if self.judge_work(group, "a step", answer) == Some(true) {
                self.cut_when_durable(&mut random);
            }
            if self.clock.is_simulated() {
                let answer = self.in_time("a heartbeat", || group.heartbeat(now_ms / 1000));
                self.judge("a heartbeat", answer);
            }
            group.take_events();
            spindle_sync::point();
        }
    }

    /// The daemon's background work: resync, rebalance, restore.
    pub fn work(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        self.watch.scrubs();
        let mut longest_ms = 20;
        for _ in 0..ROUNDS_MOST {
            if self.is_over.load(Ordering::Relaxed) || !self.goes_on() {
                return;
            }
            let now_ms = self.later_ms(1 + random.below(longest_ms));
            let answer = self.in_time("background work", || group.work(now_ms));
            let did_something = self
                .judge_work(group, "background work", answer)
                .is_some_and(|worked| worked.did_something);
            longest_ms = match self.clock.is_simulated() {
                // As a worker waits that found nothing to do.
                true if !did_something => 2000,
                _ => 20,
            };
            let pause_points = match self.plot {
                Plot::Moves | Plot::Changes(_) if random.chance(1, 6) => random.below(300),
                _ => u64::from(!did_something),
            };
            for _ in 0..pause_points {
                spindle_sync::point();
            }
        }
    }

    /// A disk loses its power, somebody notices, and it comes back.
    pub fn lose_and_return_disks(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            let candidates = self.fallible();
            let slot = candidates[random.index(candidates.len())];
            if !self.goes_on() {
                return;
            }
            self.history
                .note(|| format!("slot {} loses its power", slot.0));
            self.disks.vanish(slot);
            self.history.outage();
            if !self.wait_until_noticed(group, slot) {
                return;
            }
            for _ in 0..random.below(120) {
                spindle_sync::point();
            }
            self.disks.bring_back(slot);
            self.history
                .note(|| format!("slot {} has power again", slot.0));
            if !self.bring_online(group, slot) {
                return;
            }
        }
    }

    /// A disk joins, and while it is given copies it goes and is back again and again.
    pub fn blink_where_copies_come(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        // Slots take turns: the second one is of the failure group that may fail.
        let joining = [(); 2].map(|()| self.disks.attach(scene::DISK_BYTES));
        let slot = joining[1];
        self.history.note(|| format!("slots {joining:?} join"));
        let answer = group.add_disks(&joining.map(scene::new_disk));
        self.history.note(|| format!("{answer:?}"));
        for _ in 0..2 + random.below(6) {
            for _ in 0..random.below(200) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            self.history
                .note(|| format!("slot {} loses its power", slot.0));
            self.disks.vanish(slot);
            self.history.outage();
            if !self.ask_until_noticed(group, slot) {
                return;
            }
            self.disks.bring_back(slot);
            self.history
                .note(|| format!("slot {} has power again", slot.0));
            if !self.bring_online(group, slot) {
                return;
            }
        }
    }

    /// Only a disk that was noticed to be away may come back: it lost what was on its way to it.
    pub(super) fn ask_until_noticed(&self, group: &Group, slot: DiskSlot) -> bool {
        for _ in 0..20 {
            self.sync_all(group);
            let now_s = self.later_ms(2000) / 1000;
            self.judge("a heartbeat", group.heartbeat(now_s));
            if !self.goes_on() || Self::is_offline(group, slot) {
                break;
            }
        }
        self.goes_on() && Self::is_offline(group, slot)
    }

    /// Whoever next asks the disk for something finds out; this thread does so itself at last. What
    /// even a sync and a heartbeat do not ask has nothing to lose: it blinked, and nobody knows.
    pub(super) fn wait_until_noticed(&self, group: &Group, slot: DiskSlot) -> bool {
        for round in 0..30 {
            if !self.goes_on() {
                return false;
            }
            if Self::is_offline(group, slot) {
                return true;
            }
            if round > 20 {
                let now_s = self.clock.now_ms() / 1000;
                self.judge("a heartbeat", group.heartbeat(now_s));
                self.sync_all(group);
            }
            spindle_sync::point();
        }
        true
    }

    pub(super) fn is_offline(group: &Group, slot: DiskSlot) -> bool {
        (group.view().disks.iter())
            .find(|disk| disk.number.0 == slot.0)
            .is_none_or(|disk| disk.mode == "offline")
    }

    pub(super) fn bring_online(&self, group: &Group, slot: DiskSlot) -> bool {
        for _ in 0..200 {
            if !self.goes_on() {
                return false;
            }
            if !Self::is_offline(group, slot) {
                return true;
            }
            match group.return_disks(&[slot]) {
                Ok(back) => {
                    self.history.note(|| format!("back: {back:?}"));
                    return true;
                }
                // Dropped and forgotten meanwhile, or a flush from before is under way.
                Err(error) => {
                    self.history
                        .note(|| format!("it is not taken back: {error}"));
                    let is_member = group
                        .view()
                        .disks
                        .iter()
                        .any(|disk| disk.number.0 == slot.0);
                    if !is_member {
                        return true;
                    }
                    spindle_sync::point();
                }
            }
        }
        true
    }

    /// A disk joins or is dropped, or copies are to be spread anew.
    pub fn change_disks(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        let mut leaving = None;
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(40) {
                spindle_sync::point();
            }
            if !self.goes_on() {
                return;
            }
            match random.below(6) {
                0..=2 if self.disks.disk_count() < 8 => {
                    let slot = self.disks.attach(scene::DISK_BYTES);
                    self.history.note(|| format!("slot {} joins", slot.0));
                    // It may be refused beside another change; then nothing has changed.
                    let answer = group.add_disks(&[scene::new_disk(slot)]);
                    self.history.note(|| format!("{answer:?}"));
                    if answer.is_err() {
                        // The next one would not have the number of its slot.
                        break;
                    }
                }
                3..=4 if leaving.is_none() => leaving = self.drop_a_disk(group, &mut random),
                _ => {
                    let answer = group.set_power(Power::MAX).and_then(|()| group.rebalance());
                    self.history.note(|| format!("rebalance: {answer:?}"));
                }
            }
        }
        if let Some(slot) = leaving {
            self.see_off(group, slot, &mut random);
        }
    }

    /// Asks for a disk to be dropped, whether it is here or away; one that is given up with force
    /// has gone at once for all but the copies of what it held. Where that is refused nothing has
    /// changed.
    fn drop_a_disk(&self, group: &Group, random: &mut SeededRandom) -> Option<DiskSlot> {
        let members: Vec<DiskSlot> = (group.view().disks.iter())
            .map(|disk| DiskSlot(disk.number.0))
            .collect();
        let slot = members[random.index(members.len())];
        let force = random.chance(1, 4);
        // Asked before the line is told: it has points.
        let away = if Self::is_offline(group, slot) {
            ", which is away"
        } else {
            ""
        };
        self.history
            .note(|| format!("slot {}{away} is to be dropped", slot.0));
        self.is_smaller.store(true, Ordering::Relaxed);
        let answer = group
            .set_power(Power::MAX)
            .and_then(|()| group.drop_disks(&[DiskNumber(slot.0)], force));
        self.history.note(|| format!("{answer:?}"));
        answer.ok().map(|()| slot)
    }

    /// What the group has forgotten nobody needs: it is taken away for good, if the others move
    /// what it held while this waits for it. Or it is kept after all.
    fn see_off(&self, group: &Group, slot: DiskSlot, random: &mut SeededRandom) {
        let keeps_after = random.chance(1, 4).then(|| random.below(200));
        for round in 0..1500 {
            if !self.goes_on() {
                return;
            }
            if keeps_after == Some(round) {
                let answer = group.undrop_disks(&[DiskNumber(slot.0)]);
                self.history
                    .note(|| format!("slot {} is kept: {answer:?}", slot.0));
            }
            if group.disk_of_uuid(scene::new_disk(slot).uuid).is_none() {
                self.history
                    .note(|| format!("slot {} is forgotten, and goes", slot.0));
                self.gone().push(slot);
                self.disks.vanish(slot);
                return;
            }
            if self.clock.is_simulated() {
                self.clock.sleep(50);
            } else {
                spindle_sync::point();
            }
        }
    }

    /// A place of a disk cannot be read nor written any more.
    pub fn break_places(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..1 + random.below(2) {
            for _ in 0..random.below(60) {
                spindle_sync::point();
            }
            let subject = self.files[random.index(self.files.len())];
            let Some(file) = group.file(subject.id).filter(|_| subject.is_mirrored) else {
                continue;
            };
            if !self.goes_on() {
                return;
            }
            let extents = group.map(&file);
            let Some(extent) = extents.get(random.index(extents.len().max(1))) else {
                continue;
            };
            let broken = (extent.copies.iter().flatten())
                .find(|(disk, _)| scene::failure_group(DiskSlot(disk.0)) == 1);
            let Some((disk, at)) = broken.filter(|_| extent.initialised_bytes > 0) else {
                continue;
            };
            let slot = DiskSlot(disk.0);
            self.history
                .note(|| format!("slot {} breaks at {at}", slot.0));
            let range = *at..at + extent.initialised_bytes;
            self.disks.fail_reads(slot, range.clone(), u64::MAX);
            if random.chance(1, 2) {
                self.disks.fail_writes(slot, range, u64::MAX);
                self.history.outage();
            }
            let mut out = vec![0; usize::try_from(extent.initialised_bytes).expect("few")];
            for _ in 0..4 {
                // Either copy may be asked.
                let answer = group.read(&file, extent.offset_bytes, &mut out);
                self.judge("a read of a broken place", answer);
            }
        }
    }
}
