//! Writes, syncs, outages and failed flushes drawn by a seed, beside a model: what a good sync has
//! covered is read, what a bad one told may be what it was or what it was to be, and however often
//! a block is read it is the same.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DiskSlot, SeededRandom};

use crate::Group;
use crate::core::file::File;
use crate::event::EventKind;
use crate::scene::{
    NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, read, resync,
};

const DISKS: u64 = 4;
const FILES: u64 = 6;
const BLOCKS: u64 = 16;
const BLOCK: usize = 4096;

/// What may lie in one block, by the number of its pattern.
#[derive(Debug)]
struct Block {
    /// Any of them, until it is written again.
    settled: Vec<u64>,
    /// Written since the last sync of the file that was answered, in this order.
    pending: Vec<u64>,
}

struct Story {
    scene: Scene,
    group: Group,
    random: SeededRandom,
    files: Vec<Arc<File>>,
    blocks: Vec<Vec<Block>>,
    newest: u64,
}

impl Story {
    fn new(seed: u64) -> Self {
        let scene = Scene::new(
            seed,
            Redundancy::Normal,
            &[(0, 64), (1, 64), (2, 64), (3, 64)],
        );
        let group = scene.open();
        let files: Vec<_> = (10..10 + FILES)
            .map(|id| create(&group, id, NORMAL))
            .collect();
        let mut blocks = Vec::new();
        for file in &files {
            for block in 0..BLOCKS {
                let at = block * BLOCK as u64;
                group.write(file, at, &pattern(1, BLOCK)).unwrap();
            }
            let first = || Block {
                settled: vec![1],
                pending: Vec::new(),
            };
            blocks.push((0..BLOCKS).map(|_| first()).collect());
        }
        group.sync().unwrap();
        Self {
            random: SeededRandom::new(seed),
            scene,
            group,
            files,
            blocks,
            newest: 1,
        }
    }

    fn slots() -> impl Iterator<Item = DiskSlot> {
        (0..u16::try_from(DISKS).unwrap()).map(DiskSlot)
    }

    fn is_online(&self, slot: DiskSlot) -> bool {
        self.group.membership.is_online(DiskNumber(slot.0))
    }

    fn any_slot(&mut self) -> DiskSlot {
        DiskSlot(u16::try_from(self.random.below(DISKS)).unwrap())
    }

    fn write(&mut self) {
        let [file, block] = [FILES, BLOCKS].map(|count| self.random.below(count));
        self.newest += 1;
        let bytes = pattern(self.newest, BLOCK);
        let written = &self.files[usize::try_from(file).unwrap()];
        (self.group.write(written, block * BLOCK as u64, &bytes)).unwrap();
        let [file, block] = [file, block].map(|number| usize::try_from(number).unwrap());
        self.blocks[file][block].pending.push(self.newest);
    }

    fn sync(&mut self, file: usize) {
        let answer = self.group.sync_file(&self.files[file], false);
        self.group.check_serves().unwrap();
        for block in &mut self.blocks[file] {
            let mut pending = std::mem::take(&mut block.pending);
            match (&answer, pending.pop()) {
                (_, None) => {}
                (Ok(()), Some(last)) => block.settled = vec![last],
                (Err(_), Some(last)) => {
                    block.settled.extend(pending);
                    block.settled.push(last);
                }
            }
        }
    }

    /// As from time to time: nobody who had written is told anything by that.
    fn make_durable(&self) {
        let _ = self.group.make_durable();
        self.group.check_serves().unwrap();
    }

    fn check(&self, file: usize, when: &str) {
        for (number, block) in (0..).zip(&self.blocks[file]) {
            let look = || read(&self.group, &self.files[file], number * BLOCK as u64, BLOCK);
            let found = look();
            let mut allowed = block.settled.iter().chain(&block.pending);
            assert!(
                allowed.any(|seed| found == pattern(*seed, BLOCK)),
                "{when}: file {file}, block {number}: {block:?}"
            );
            let is_same = (0..3).all(|_| look() == found);
            assert!(
                is_same,
                "{when}: file {file}, block {number} is read in two ways"
            );
        }
    }

    /// One disk goes, where all are here and none lacks anything.
    fn lose_one(&mut self) {
        if !Self::slots().all(|slot| self.is_online(slot)) {
            return;
        }
        resync(&self.group);
        let slot = self.any_slot();
        if Self::slots().all(|slot| self.is_online(slot)) {
            self.scene.disks.vanish(slot);
            let disk = DiskNumber(slot.0);
            self.group.take_offline(&[disk], "it is gone").unwrap();
        }
    }

    fn bring_all_back(&self) {
        for slot in Self::slots().filter(|slot| !self.is_online(*slot)) {
            self.scene.disks.bring_back(slot);
            self.group.return_disks(&[slot]).unwrap();
        }
    }

    fn go_on(&mut self) {
        let file = usize::try_from(self.random.below(FILES)).unwrap();
        match self.random.below(40) {
            0..=19 => self.write(),
            20..=27 => self.sync(file),
            28..=31 => self.check(file, "in between"),
            32..=34 => {
                // Over before a group state is written: a disk that cannot take one goes, and so
                // does one that fails the next flush too; where several fail one, the group stops.
                let slot = self.any_slot();
                let stands = |slot: DiskSlot| {
                    let failures = self.group.membership.failed_flushes();
                    failures.of(DiskNumber(slot.0)).stand()
                };
                if self.is_online(slot) && !Self::slots().any(stands) {
                    self.scene.disks.drop_at_flushes(slot, 1);
                }
                match self.random.chance(1, 2) {
                    true => self.sync(file),
                    false => self.make_durable(),
                }
                self.scene.disks.clear_faults(slot);
            }
            35..=36 => self.lose_one(),
            37 => self.bring_all_back(),
            38 => resync(&self.group),
            _ => self.make_durable(),
        }
    }

    fn end(mut self) {
        self.bring_all_back();
        for file in 0..self.files.len() {
            self.sync(file);
            self.check(file, "at the end");
        }
        resync(&self.group);
        self.group.sync().unwrap();
        assert_sound(&self.group);
        for file in 0..self.files.len() {
            self.check(file, "up to date");
            let file = &self.files[file];
            assert_copies_equal(&self.scene, &self.group, file, "up to date");
        }
    }
}

#[test]
fn whatever_a_disk_drops_that_outlives_a_failed_flush_a_good_sync_has_covered_what_is_read() {
    let mut outlived_count = 0;
    for seed in 1..21 {
        let mut story = Story::new(seed);
        for _ in 0..200 {
            story.go_on();
            let events = story.group.membership.take_events();
            outlived_count += (events.iter())
                .filter(|event| event.kind == EventKind::FlushFailed)
                .count();
        }
        story.end();
    }
    assert!(
        outlived_count > 20,
        "{outlived_count} failed flushes were outlived"
    );
}
