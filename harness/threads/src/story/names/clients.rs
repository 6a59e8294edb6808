//! Direct clients, which read the files that threads meet on from the disks themselves.
//!
//! What a client read counts where the map that the group shows it says the same behind the disk's answer.
//! Such a read is one as any other: it sees each sector as it was at some moment between its begin and
//! its end.

use spindle_base::{AuSize, FileId, Striping};
use spindle_device::{AlignedBuffer, Disks as _, Request, SeededRandom, Work};
use spindle_extent::schedule::Schedule;
use spindle_fs::FileSystem;
use spindle_group::ToldDisks;
use spindle_lease::map::{Disks, Piece, Reason, SeenMap};

use super::{FILE_BLOCKS, Process};
use crate::history::BLOCK_BYTES;

/// What a client was told of the disks.
struct Told {
    told: ToldDisks,
    /// As which each was there then: a descriptor of one that went is of no use when it is back.
    appearances: Vec<Option<u64>>,
    disks: Disks,
}

impl Process {
    /// None from a group that has stopped.
    fn tell_client(&self, fs: &FileSystem) -> Option<Told> {
        let told = fs.group().tell_clients()?;
        let slots = told.disks.iter().map(|disk| disk.slot);
        let appearances = slots
            .map(|slot| self.story.disks.appearance(slot))
            .collect();
        let mut disks = Disks {
            standing: told.standing,
            blocks: Vec::new(),
        };
        for disk in &told.disks {
            let number = usize::from(disk.number.0);
            if disks.blocks.len() <= number {
                disks.blocks.resize(number + 1, 0);
            }
            disks.blocks[number] = disk.total_bytes / BLOCK_BYTES as u64;
        }
        Some(Told {
            told,
            appearances,
            disks,
        })
    }

    /// A process of a database that reads by itself.
    pub(super) fn read_directly(&self, fs: &FileSystem, of: u64) {
        let mut random = self.story.random(of);
        let map = self.client_map.as_ref().expect("one is kept in these runs");
        let map = map.read_only().expect("the kernel maps memory");
        let seen = SeenMap::new(map).expect("it is a map");
        let Some(mut told) = self.tell_client(fs) else {
            return;
        };
        for _ in 0..16 + random.below(32) {
            if !self.story.goes_on() {
                return;
            }
            let id = self.story.files[random.index(self.story.files.len())].id;
            if random.chance(1, 2) {
                // Nothing is shown of a file of which memory has a part.
                self.sync_file(fs, id, &mut random);
            }
            let Some(handle) = self.answered("an open", fs.open_file(id)) else {
                return;
            };
            self.answered("showing a file", fs.show(&handle));
            for _ in 0..8 {
                let reason = self.read_a_block(&seen, &told, id, &mut random);
                if reason == Some(Reason::Standing) {
                    match self.tell_client(fs) {
                        Some(anew) => told = anew,
                        None => return,
                    }
                }
            }
        }
    }

    /// Why the disks were not asked.
    fn read_a_block(
        &self,
        seen: &SeenMap,
        told: &Told,
        id: FileId,
        random: &mut SeededRandom,
    ) -> Option<Reason> {
        let block = random.below(FILE_BLOCKS);
        let schedule = Schedule::new(Striping::Coarse, AuSize::DEFAULT);
        let place = schedule.locate(block).expect("a small number");
        let piece = Piece {
            file: spindle_group::client_key(id),
            index: place.index,
            inside_blocks: place.inside_blocks,
            blocks: 1,
        };
        let begun = self.history().tick();
        let places = match seen.places_to_read(&told.disks, &piece) {
            Ok(places) => places,
            Err(reason) => return Some(reason),
        };
        let copy = places.copies()[random.index(places.copies().len())];
        let disk = told
            .told
            .disks
            .iter()
            .position(|disk| disk.number == copy.disk);
        let disk = disk.expect("the map names disks that it was told of");
        let slot = told.told.disks[disk].slot;
        let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        let work = Work::Read(&mut buffer);
        let mut batch = [Request::new(slot, copy.offset_bytes, work)];
        self.story.access.run(&mut batch);
        let [Request { result, .. }] = batch;
        let is_there = self.story.disks.appearance(slot) == told.appearances[disk];
        spindle_sync::point();
        if result.is_ok() && is_there && seen.stands(&places) {
            self.history()
                .note(|| format!("a client read block {block} of {id} of slot {}", slot.0));
            self.history().judge_read(id, block, &buffer, begun);
        }
        None
    }
}
