//! Files that several threads use at once, as a database's processes do, and what happens to the
//! disks meanwhile.
//!
//! Whoever reads such a file beside writers sees each sector as it was at some moment between the
//! begin of the read and its end, whether the newest bytes lie in memory or on the disks.

use spindle_base::FileId;
use spindle_device::SeededRandom;
use spindle_fs::{FileSystem, Kind};
use spindle_group::{Group, Power};

use super::{Body, FILE_BLOCKS, Process, USER};
use crate::history::BLOCK_BYTES;
use crate::story::{Story, Subject, scene};

impl Process {
    /// The files, new and empty.
    pub(super) fn make_met(&self, fs: &FileSystem) -> Vec<Subject> {
        let make = |number: usize| {
            let name = format!("met.{number}");
            let root = FileId::ROOT;
            let mode = 0o644;
            let node = fs.make_node(
                root,
                name.as_ref(),
                Kind::Regular,
                mode,
                0,
                USER,
                self.time(),
            );
            let id = node.expect("there is room").id;
            self.history().create(id, 2);
            Subject {
                id,
                is_mirrored: true,
            }
        };
        (0..2).map(make).collect()
    }

    /// Who takes part besides the owners of names.
    pub(super) fn cast_of_meeting(&self, random: &mut SeededRandom) -> Vec<Body> {
        let first = 128 + u64::from(self.number) * 8;
        let mut cast: Vec<Body> = (0..2 + random.below(2))
            .map(|thread| {
                let of = first + thread;
                Box::new(move |process: &Self, fs: &FileSystem| process.meet(fs, of)) as Body
            })
            .collect();
        if random.chance(1, 2) {
            let of = first + 3;
            cast.push(Box::new(move |process, fs| process.read_directly(fs, of)));
        }
        let mut beside = |of: u64, doing: fn(&Story, &Group, u64)| {
            cast.push(Box::new(move |process, fs| {
                doing(&process.story, fs.group(), first + of);
            }));
        };
        match random.below(4) {
            0 => beside(4, Story::lose_and_return_disks),
            1 => beside(4, Story::break_places_for_a_while),
            2 => beside(4, Story::fail_flushes_alone),
            _ => {}
        }
        if random.chance(1, 3) {
            beside(5, Story::scrub);
        }
        if random.chance(1, 3) {
            beside(6, Story::join_once);
        }
        cast
    }

    /// A thread of a database.
    fn meet(&self, fs: &FileSystem, of: u64) {
        let mut random = self.story.random(of);
        for _ in 0..8 + random.below(16) {
            if !self.story.goes_on() {
                return;
            }
            self.make_room(fs);
            let id = self.story.files[random.index(self.story.files.len())].id;
            match random.below(12) {
                0..=3 => self.write(fs, id, &mut random),
                4..=8 => self.read(fs, id, &mut random),
                9 => self.sync_file(fs, id, &mut random),
                10 => self.resize(fs, id, &mut random),
                _ => self.sync_all(fs),
            }
        }
    }

    fn read(&self, fs: &FileSystem, id: FileId, random: &mut SeededRandom) {
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let first = random.below(FILE_BLOCKS);
        let end = (first + 1 + random.below(4)).min(FILE_BLOCKS);
        let mut out = vec![0xee; usize::try_from(end - first).expect("few") * BLOCK_BYTES];
        let begun = self.history().tick();
        let answer = fs.read(&handle, first * BLOCK_BYTES as u64, &mut out);
        if let Some(read) = self.answered("a read", answer) {
            // Zeros, whatever the file's size was.
            out[read..].fill(0);
            self.history().judge_read(id, first, &out, begun);
        }
    }
}

impl Story {
    /// Two disks join, once in a run, and copies move to them; after that they are spread anew.
    fn join_once(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..random.below(60) {
            spindle_sync::point();
        }
        if !self.goes_on() {
            return;
        }
        self.judge("setting the power", group.set_power(Power::MAX));
        let answer = if self.disks.disk_count() > scene::DISKS_COUNT {
            group.rebalance()
        } else {
            let joining = [(); 2].map(|()| self.disks.attach(scene::DISK_BYTES));
            self.history.note(|| format!("slots {joining:?} join"));
            group.add_disks(&joining.map(scene::new_disk)).map(drop)
        };
        // It may be refused beside another change; then nothing has changed.
        self.history.note(|| format!("{answer:?}"));
    }
}
