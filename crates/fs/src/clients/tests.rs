//! A direct client beside the file system: what counts of its reads is what was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{
    AlignedBuffer, DiskSlot, Disks, Request, SeededRandom, SharedMemory, SimulatedDisks, Work,
};
use spindle_extent::schedule::Schedule;
use spindle_group::{
    Attended, ClientKey, Group, KeptJournal, NewDisk, NewGroup, Opener, UnwrittenBlocks,
};
use spindle_lease::map::{self, Piece, Reason, SeenMap, SharedMap};

use crate::attribute::{AttributeChange, Owner, Time};
use crate::handle::Handle;
use crate::system::FileSystem;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256 * 6;
const OWNER: Owner = Owner { user: 0, group: 0 };
const NOW: Time = Time {
    seconds: 1000,
    nanoseconds: 0,
};

/// A mount's file system with a file of [`BLOCKS`] blocks, and what a client has of it.
struct Scene {
    disks: Arc<SimulatedDisks>,
    fs: FileSystem,
    handle: Arc<Handle>,
    seen: SeenMap,
}

fn open(disks: &Arc<SimulatedDisks>, attended: Attended<'_>) -> Arc<Group> {
    let opener = Opener {
        host: "here".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([9; 16]),
        process_id: 1,
        now_s: 1,
        force: true,
        preferred_failure_group: None,
    };
    let name = GroupName::new("DATA").unwrap();
    let slots = [0, 1].map(DiskSlot);
    let disks = Arc::clone(disks) as Arc<dyn Disks>;
    let group = Group::open_attended(disks, &slots, &name, &opener, &|_| false, attended);
    Arc::new(group.unwrap())
}

impl Scene {
    fn new() -> Self {
        let disks = Arc::new(SimulatedDisks::new(1, &[48 << 20, 48 << 20]));
        let new_disk = |number: u8| NewDisk {
            slot: DiskSlot(number.into()),
            name: DiskName::new(format!("DISK{number}")).unwrap(),
            failure_group: FailureGroupName::new(format!("SIDE{number}")).unwrap(),
            uuid: Uuid([number + 1; 16]),
        };
        let new = NewGroup {
            name: GroupName::new("DATA").unwrap(),
            uuid: Uuid([7; 16]),
            redundancy: Redundancy::Normal,
            au_size: AuSize::DEFAULT,
            disks: [0, 1].map(new_disk).into(),
            profile: "plain".to_owned(),
            created_s: 1,
        };
        Group::create(Arc::clone(&disks) as Arc<dyn Disks>, &new).unwrap();
        let group = open(&disks, Attended::default());
        FileSystem::create(&group, OWNER, NOW).unwrap();
        FileSystem::open(group).unwrap().close().unwrap();
        let length_bytes = UnwrittenBlocks::length_bytes(1 << 12);
        let blocks = SharedMemory::create("blocks", length_bytes).unwrap();
        let journal = KeptJournal::create().unwrap();
        let journal = journal.with_blocks(UnwrittenBlocks::new(blocks).unwrap());
        let client_map = SharedMap::create().unwrap();
        let seen = SeenMap::new(client_map.memory().read_only().unwrap()).unwrap();
        let group = open(
            &disks,
            Attended {
                journal: Some(Arc::new(journal)),
                client_map: Some(client_map),
                ..Attended::default()
            },
        );
        let fs = FileSystem::open_kept(group, false).unwrap();
        let name = std::ffi::OsStr::new("file");
        let (_, handle) = fs.create_file(FileId(1), name, 0o644, OWNER, NOW).unwrap();
        let scene = Self {
            disks,
            fs,
            handle,
            seen,
        };
        for block in 0..BLOCKS {
            scene.write(block, 1);
        }
        scene.sync();
        scene
    }

    fn write(&self, block: u64, turn: u64) {
        let bytes = bytes_of(block, turn);
        let data = (&bytes[..]).into();
        (self.fs.write_behind(&self.handle, block * BLOCK, data, NOW)).unwrap();
    }

    fn sync(&self) {
        self.fs.sync_file(&self.handle, false).unwrap();
    }

    fn set_size(&self, size_bytes: u64) {
        let change = AttributeChange {
            size_bytes: Some(size_bytes),
            ..AttributeChange::default()
        };
        self.fs
            .set_attributes(self.handle.id(), &change, NOW)
            .unwrap();
    }

    fn show(&self) -> ClientKey {
        self.fs.show(&self.handle).unwrap().unwrap()
    }

    fn told(&self) -> map::Disks {
        let told = self.fs.group().tell_clients().unwrap();
        let blocks = told.disks.iter().map(|disk| disk.total_bytes / BLOCK);
        map::Disks {
            standing: told.standing,
            blocks: blocks.collect(),
        }
    }

    /// A block by one of its copies, or why the mount is asked; `None` where something was said meanwhile.
    fn read(
        &self,
        (key, told): (ClientKey, &map::Disks),
        block: u64,
        which: usize,
    ) -> Result<Vec<u8>, Option<Reason>> {
        let schedule = Schedule::new(Striping::Coarse, AuSize::DEFAULT);
        let place = schedule.locate(block).unwrap();
        let piece = Piece {
            file: key,
            index: place.index,
            inside_blocks: place.inside_blocks,
            blocks: 1,
        };
        let places = self.seen.places_to_read(told, &piece).map_err(Some)?;
        let copy = places.copies()[which % places.copies().len()];
        thread::yield_now();
        let mut buffer = AlignedBuffer::zeroed(4096);
        let slot = DiskSlot(copy.disk.0);
        let work = Work::Read(&mut buffer);
        let mut batch = [Request::new(slot, copy.offset_bytes, work)];
        self.disks.run(&mut batch);
        let [Request { result, .. }] = batch;
        result.unwrap();
        match self.seen.stands(&places) {
            true => Ok(buffer.to_vec()),
            false => Err(None),
        }
    }
}

fn bytes_of(block: u64, turn: u64) -> Vec<u8> {
    (block << 32 | turn).to_le_bytes().repeat(512)
}

#[test]
fn what_waits_in_memory_is_not_read_from_the_disks_until_they_have_it() {
    let scene = Scene::new();
    let (key, told) = (scene.show(), scene.told());
    scene.fs.show_again();
    let read = |block| scene.read((key, &told), block, 1);
    assert_eq!(read(700), Ok(bytes_of(700, 1)));
    scene.write(700, 2);
    let closed = Err(Some(Reason::NotAllowed));
    assert_eq!(read(700), closed);
    scene.fs.show_again();
    assert_eq!(read(700), closed, "the disks do not have it");
    scene.sync();
    assert_eq!(read(700), closed);
    scene.fs.show_again();
    assert_eq!(read(700), Ok(bytes_of(700, 2)));
}

#[test]
fn nobody_reads_behind_the_end_of_a_file_that_became_shorter() {
    let scene = Scene::new();
    let (key, told) = (scene.show(), scene.told());
    scene.fs.show_again();
    let read = |block| scene.read((key, &told), block, 0);
    assert!(read(700).is_ok());
    // In the middle of a block: the rest of it stays on the disks.
    scene.set_size(700 * BLOCK + 100);
    assert!(read(700).is_err());
    scene.fs.show_again();
    assert_eq!(read(700), Err(Some(Reason::BeyondLimit)));
    assert_eq!(read(699), Ok(bytes_of(699, 1)));
}

#[test]
fn while_a_range_is_made_zeros_or_a_hole_nothing_of_it_is_shown() {
    const PUNCH_HOLE: u32 = 2;
    const KEEP_SIZE: u32 = 1;
    const ZERO_RANGE: u32 = 16;
    for mode in [ZERO_RANGE, PUNCH_HOLE | KEEP_SIZE] {
        let scene = Scene::new();
        let (key, told) = (scene.show(), scene.told());
        let is_over = AtomicBool::new(false);
        let (first, count) = (300, 1200);
        thread::scope(|scope| {
            let (scene, is_over, told) = (&scene, &is_over, &told);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    scene.fs.show_again();
                }
            });
            let reader = scope.spawn(move || {
                // Once the last block is zeros the first one is, for whoever reads later, and the other
                // way round: it is one change.
                let mut seen_count = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let [one, two] =
                        [first, first + count - 1].map(|block| scene.read((key, told), block, 0));
                    if let (Ok(one), Ok(two)) = (one, two) {
                        seen_count += 1;
                        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
                        if is_zero(&one) && !is_zero(&two) {
                            is_over.store(true, Ordering::SeqCst);
                            panic!("a half of it");
                        }
                    }
                }
                seen_count
            });
            thread::sleep(Duration::from_millis(20));
            let handle = &scene.handle;
            (scene
                .fs
                .allocate(handle, first * BLOCK, count * BLOCK, mode, NOW))
            .unwrap();
            thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::SeqCst);
            assert!(reader.join().unwrap() > 0);
        });
    }
}

#[test]
fn a_file_that_is_removed_is_shown_no_more() {
    let scene = Scene::new();
    let (key, told) = (scene.show(), scene.told());
    scene.fs.show_again();
    assert!(scene.read((key, &told), 700, 0).is_ok());
    let name = std::ffi::OsStr::new("file");
    scene.fs.unlink(FileId(1), name, NOW).unwrap();
    assert!(scene.read((key, &told), 700, 0).is_ok(), "a handle is open");
    let Scene {
        disks,
        fs,
        handle,
        seen,
    } = scene;
    drop(handle);
    fs.group().sync().unwrap();
    fs.show_again();
    let told = told.clone();
    let name = std::ffi::OsStr::new("other");
    let (_, handle) = fs.create_file(FileId(1), name, 0o644, OWNER, NOW).unwrap();
    let scene = Scene {
        disks,
        fs,
        handle,
        seen,
    };
    assert_eq!(
        scene.read((key, &told), 700, 0),
        Err(Some(Reason::NotInMap))
    );
}

#[test]
fn a_client_reads_what_was_answered_beside_writers_and_those_who_write_behind_them() {
    let scene = Scene::new();
    let key = scene.show();
    let count = || (0..BLOCKS).map(|_| AtomicU64::new(1)).collect::<Vec<_>>();
    let (begun, answered) = (count(), count());
    let is_over = AtomicBool::new(false);
    let read_count = AtomicU64::new(0);
    thread::scope(|scope| {
        let (scene, begun, answered, is_over, read_count) =
            (&scene, &begun, &answered, &is_over, &read_count);
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                scene.fs.hurry_writes();
                while scene.fs.write_due() {}
                scene.fs.show_again();
                thread::sleep(Duration::from_micros(100));
            }
        });
        for seed in 0..2 {
            scope.spawn(move || {
                let mut random = SeededRandom::new(seed);
                let mut told = scene.told();
                while !is_over.load(Ordering::SeqCst) {
                    let block = random.below(BLOCKS);
                    let at = usize::try_from(block).unwrap();
                    let least = answered[at].load(Ordering::SeqCst);
                    match scene.read((key, &told), block, random.index(2)) {
                        Ok(found) => {
                            let word = u64::from_le_bytes(*found.first_chunk().unwrap());
                            let turn = word & 0xffff_ffff;
                            let most = begun[at].load(Ordering::SeqCst);
                            if found != bytes_of(block, turn) || !(least..=most).contains(&turn) {
                                is_over.store(true, Ordering::SeqCst);
                                panic!("block {block}: {word:x}, {least} to {most}");
                            }
                            read_count.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(Some(Reason::Standing)) => told = scene.told(),
                        Err(_) => thread::yield_now(),
                    }
                }
            });
        }
        let mut random = SeededRandom::new(5);
        let until = Instant::now() + Duration::from_secs(60);
        for turn in 2.. {
            let is_enough = turn > 1500 && read_count.load(Ordering::SeqCst) > 500;
            if is_enough || is_over.load(Ordering::SeqCst) || Instant::now() > until {
                break;
            }
            let block = random.below(BLOCKS);
            let at = usize::try_from(block).unwrap();
            begun[at].store(turn, Ordering::SeqCst);
            scene.write(block, turn);
            answered[at].store(turn, Ordering::SeqCst);
            // So that all is written and shown at times.
            let pause_us = if turn % 50 == 0 { 20_000 } else { 300 };
            thread::sleep(Duration::from_micros(pause_us));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(read_count.load(Ordering::SeqCst) > 500, "{read_count:?}");
}
