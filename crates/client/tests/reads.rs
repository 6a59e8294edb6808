//! A client reads what a file holds, wherever its blocks lie: from the disks where the map says so, and
//! from the mount where it does not.
//!
//! Plain files stand for the disks and for the mount. The same block has other bytes on each copy and on
//! the mount, so that what was read says where it came from.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use spindle_base::{AuSize, DiskNumber, FileId, Striping};
use spindle_client::{Answer, ClientFile, Detour, NotDirect, ServingDisk, ServingDisks};
use spindle_device::{AlignedBuffer, SeededRandom};
use spindle_extent::schedule::Schedule;
use spindle_format::ExtentCopy;
use spindle_lease::map::{Allowed, Entry, FileKey, Reason, SeenMap, SharedMap};

const KEY: FileKey = FileKey {
    file: FileId(9),
    incarnation: 2,
};
const DISKS_COUNT: usize = 3;
const BLOCK_BYTES: usize = 4096;
/// The file's: the head, and more than a set of eight extents of 1 MiB.
const FILE_BLOCKS: u64 = 256 * 11;
const DISK_BLOCKS: u64 = 256 * 16;

/// Where bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Copy(u64),
    Mount,
}

/// What a block holds there.
fn bytes_of(block: u64, from: From) -> Vec<u8> {
    let from = match from {
        From::Copy(copy) => copy,
        From::Mount => 99,
    };
    let word = (block << 8 | from).to_le_bytes();
    word.repeat(BLOCK_BYTES / 8)
}

/// The group: disks, a mount, and their owner.
struct Fixture {
    folder: tempfile::TempDir,
    map: SharedMap,
    seen: SeenMap,
    schedule: Schedule,
    /// Of each extent, its copies.
    extents: Vec<[ExtentCopy; 2]>,
}

impl Fixture {
    fn new(striping: Striping) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let map = SharedMap::create().unwrap();
        let schedule = Schedule::new(striping, AuSize::from_bytes(1 << 20).unwrap());
        let seen = SeenMap::new(map.memory().read_only().unwrap()).unwrap();
        let mut fixture = Self {
            folder,
            map,
            seen,
            schedule,
            extents: Vec::new(),
        };
        fixture.place_extents();
        fixture.write_everything();
        fixture
    }

    /// Extents one behind the other on each disk, the copies of each on two of them.
    fn place_extents(&mut self) {
        let mut free = [1_u64; DISKS_COUNT];
        let last = self.schedule.locate(FILE_BLOCKS - 1).unwrap().index;
        let set_end = self
            .schedule
            .extents(0, FILE_BLOCKS)
            .unwrap()
            .1
            .max(last + 1);
        for index in 0..set_end {
            let class = self.schedule.class(index);
            let copies = [0, 1].map(|copy| {
                let disk = (usize::try_from(index).unwrap() + copy) % DISKS_COUNT;
                let start_block = free[disk];
                free[disk] += 1 << class;
                ExtentCopy::new(DiskNumber(u16::try_from(disk).unwrap()), start_block, class)
            });
            self.extents.push(copies);
        }
        assert!(free.iter().all(|end| *end <= DISK_BLOCKS), "{free:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disk_path(&self, disk: usize) -> PathBuf {
        self.path(&format!("disk{disk}"))
    }

    fn write_everything(&mut self) {
        let create = |path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path).unwrap()
        };
        let disks: Vec<File> = (0..DISKS_COUNT)
            .map(|disk| create(self.disk_path(disk)))
            .collect();
        for disk in &disks {
            disk.set_len(DISK_BLOCKS * 4096).unwrap();
        }
        let mount = create(self.path("mount"));
        for block in 0..FILE_BLOCKS {
            let bytes = bytes_of(block, From::Mount);
            mount.write_all_at(&bytes, block * 4096).unwrap();
        }
        for index in 0..u32::try_from(self.extents.len()).unwrap() {
            for (number, copy) in (0..).zip(self.extents[index as usize]) {
                let disk = &disks[usize::from(copy.disk().0)];
                for inside in 0..copy.blocks() {
                    let block = self.schedule.file_block(index, inside);
                    let bytes = bytes_of(block, From::Copy(number));
                    disk.write_all_at(&bytes, copy.start_bytes() + inside * 4096)
                        .unwrap();
                }
            }
            self.publish(index, Allowed::ReadAndWrite);
        }
        for file in disks.iter().chain([&mount]) {
            file.sync_all().unwrap();
        }
    }

    fn publish(&mut self, index: u32, allowed: Allowed) {
        let limit_blocks = u32::try_from(self.schedule.length_blocks(index)).unwrap();
        let copies = &self.extents[index as usize];
        let entry = Entry::new(copies, limit_blocks, allowed).unwrap();
        self.map.set(KEY, index, &entry).unwrap();
    }

    fn disks(&self) -> ServingDisks {
        let open = |disk| {
            let mut options = OpenOptions::new();
            let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
            options.read(true).write(true).custom_flags(flags);
            let file = options.open(self.disk_path(disk)).unwrap();
            Some(ServingDisk::new(file, DISK_BLOCKS).unwrap())
        };
        let disks = (0..DISKS_COUNT).map(open).collect();
        ServingDisks::new(self.map.standing().number(), disks)
    }

    fn open(&self) -> ClientFile {
        let mount = File::open(self.path("mount")).unwrap();
        ClientFile::new(KEY, self.schedule, mount)
    }

    /// Reads blocks, and looks where each came from.
    fn read(&self, first: u64, blocks: u64) -> (Vec<From>, Answer) {
        let disks = self.disks();
        let mut buffer = AlignedBuffer::zeroed(usize::try_from(blocks).unwrap() * BLOCK_BYTES);
        let by = (&self.seen, &disks);
        let answer = self.open().read_at(by, &mut buffer, first * 4096);
        (origins(first, &buffer), answer.unwrap())
    }
}

/// Where each block's bytes came from.
fn origins(first: u64, bytes: &[u8]) -> Vec<From> {
    (first..)
        .zip(bytes.chunks(BLOCK_BYTES))
        .map(|(block, found)| {
            let known = [From::Copy(0), From::Copy(1), From::Mount];
            let from = known
                .into_iter()
                .find(|from| bytes_of(block, *from) == found);
            from.unwrap_or_else(|| panic!("block {block} has bytes of nowhere"))
        })
        .collect()
}

#[test]
fn what_lies_plainly_comes_from_the_disks_however_the_file_is_striped() {
    for striping in [Striping::Coarse, Striping::Fine] {
        let fixture = Fixture::new(striping);
        let mut random = SeededRandom::new(5);
        let mut ranges = vec![(0, FILE_BLOCKS), (0, 1), (255, 2), (FILE_BLOCKS - 1, 1)];
        ranges.extend((0..100).map(|_| {
            let first = random.below(FILE_BLOCKS);
            (first, 1 + random.below((FILE_BLOCKS - first).min(100)))
        }));
        for (first, blocks) in ranges {
            let (from, answer) = fixture.read(first, blocks);
            let expected = Answer {
                length_bytes: from.len() * BLOCK_BYTES,
                detour: None,
            };
            assert_eq!(answer, expected, "{striping:?}, {blocks} blocks at {first}");
            assert!(from.iter().all(|from| *from == From::Copy(0)));
        }
    }
}

#[test]
fn what_does_not_lie_plainly_comes_from_the_mount_and_nothing_else_does() {
    let mut fixture = Fixture::new(Striping::Fine);
    let mut random = SeededRandom::new(6);
    let mut plain_count = 0;
    for _ in 0..40 {
        let extents_count = u32::try_from(fixture.extents.len()).unwrap();
        let is_closed: Vec<bool> = (0..extents_count).map(|_| random.chance(1, 4)).collect();
        for (index, is_closed) in (0..).zip(&is_closed) {
            let allowed = match (is_closed, random.chance(1, 2)) {
                (true, true) => Allowed::Nothing,
                (true, false) => Allowed::WaitsInMemory,
                (false, _) => Allowed::Read,
            };
            fixture.publish(index, allowed);
        }
        for blocks in [1, 2, 20, 600] {
            let first = random.below(FILE_BLOCKS - blocks);
            let (from, answer) = fixture.read(first, blocks);
            let is_plain = (first..first + blocks).all(|block| {
                let index = fixture.schedule.locate(block).unwrap().index;
                !is_closed[index as usize]
            });
            let expected = if is_plain { From::Copy(0) } else { From::Mount };
            assert!(
                from.iter().all(|from| *from == expected),
                "{blocks} at {first}"
            );
            assert_eq!(answer.detour.is_none(), is_plain);
            plain_count += u32::from(is_plain);
        }
    }
    assert!((20..140).contains(&plain_count), "{plain_count} of 160");
}

#[test]
fn a_disk_that_fails_is_read_around_by_another_copy_and_then_by_the_mount() {
    let fixture = Fixture::new(Striping::Coarse);
    let block = 300;
    let index = fixture.schedule.locate(block).unwrap().index;
    let [first, second] = fixture.extents[index as usize];
    let fail = |copy: ExtentCopy| {
        let disk = fixture.disk_path(usize::from(copy.disk().0));
        let disk = OpenOptions::new().write(true).open(disk).unwrap();
        disk.set_len(copy.start_bytes()).unwrap();
    };
    fail(first);
    let (from, answer) = fixture.read(block, 1);
    assert_eq!((from[0], answer.detour), (From::Copy(1), None));
    fail(second);
    let (from, answer) = fixture.read(block, 1);
    assert_eq!((from[0], answer.detour), (From::Mount, Some(Detour::Disks)));
}

#[test]
fn what_is_unaligned_or_of_another_standing_comes_from_the_mount() {
    let fixture = Fixture::new(Striping::Coarse);
    let before = fixture.disks();
    let file = fixture.open();
    for (offset_bytes, length_bytes) in [(512, 4096), (0, 512)] {
        let mut buffer = AlignedBuffer::zeroed(length_bytes);
        let answer = file.read_at((&fixture.seen, &before), &mut buffer, offset_bytes);
        assert_eq!(answer.unwrap().detour, Some(Detour::Unaligned));
        let word = u64::from_le_bytes(*buffer.first_chunk().unwrap());
        assert_eq!(word & 0xff, 99);
    }

    let mut buffer = AlignedBuffer::zeroed(4096);
    fixture.map.standing().raise();
    let now = fixture.disks();
    let mut read = |disks| {
        let answer = file
            .read_at((&fixture.seen, disks), &mut buffer, 0)
            .unwrap();
        answer.detour
    };
    assert_eq!(read(&before), Some(Detour::Map(Reason::Standing)));
    assert_eq!(read(&now), None);
}

#[test]
fn a_read_ends_where_the_file_does() {
    let mut fixture = Fixture::new(Striping::Coarse);
    // The last extent is not wholly inside the file: it is closed from its third block on.
    let first = FILE_BLOCKS - 256;
    let index = fixture.schedule.locate(first).unwrap().index;
    let copies = fixture.extents[index as usize];
    let entry = Entry::new(&copies, 2, Allowed::ReadAndWrite).unwrap();
    fixture.map.set(KEY, index, &entry).unwrap();
    let mount = OpenOptions::new().write(true).open(fixture.path("mount"));
    let length_bytes = (first + 2) * 4096 + 100;
    mount.unwrap().set_len(length_bytes).unwrap();
    let disks = fixture.disks();
    let read = |blocks: usize, at: u64| {
        let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
        let by = (&fixture.seen, &disks);
        let answer = fixture.open().read_at(by, &mut buffer, at * 4096);
        let answer = answer.unwrap();
        (answer.length_bytes, answer.detour)
    };
    assert_eq!(read(2, first), (8192, None));
    let beyond = Some(Detour::Map(Reason::BeyondLimit));
    assert_eq!(read(2, first + 2), (100, beyond));
    assert_eq!(read(1, first + 3), (0, beyond));
    assert_eq!(read(4, first - 1), (3 * 4096 + 100, beyond));
}

#[test]
fn a_descriptor_through_the_page_cache_is_no_disk() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(ServingDisk::new(file, 1).unwrap_err(), NotDirect);
}

#[test]
fn a_read_of_several_pieces_is_of_one_moment() {
    let mut fixture = Fixture::new(Striping::Coarse);
    // Blocks 0 and 1 are extents of their own, together a page of 8 KiB.
    let (first, second) = (fixture.extents[0], fixture.extents[1]);
    assert_ne!(first, second);
    let (disks, seen) = (fixture.disks(), &fixture.seen);
    let file = fixture.open();
    let is_over = AtomicBool::new(false);
    let [counted, changed] = [(); 2].map(|()| AtomicUsize::new(0));
    let map = &mut fixture.map;
    std::thread::scope(|scope| {
        let _end = End(&is_over);
        let (is_over, counted, changed, disks) = (&is_over, &counted, &changed, &disks);
        scope.spawn(move || {
            let mut buffer = AlignedBuffer::zeroed(2 * BLOCK_BYTES);
            while !is_over.load(Ordering::Relaxed) {
                let answer = file.read_at((seen, disks), &mut buffer, 0).unwrap();
                let from = origins(0, &buffer);
                assert_eq!(from[0], from[1], "of two moments: {answer:?}");
                let count = match answer.detour {
                    None => counted,
                    Some(_) => changed,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let until = Instant::now() + Duration::from_secs(30);
        let blocks_of = |copies: [ExtentCopy; 2]| u32::try_from(copies[0].blocks()).unwrap();
        for turn in 0_usize.. {
            let counts = [counted, changed].map(|count| count.load(Ordering::Relaxed));
            if turn > 500 && counts[0] > 200 && counts[1] > 20 {
                break;
            }
            assert!(
                Instant::now() < until && !is_over.load(Ordering::Relaxed),
                "{counts:?}"
            );
            // As a write of both has it, which none is read by in between: by the other copy from then on.
            for index in [0, 1] {
                map.close(KEY, index);
            }
            for (index, copies) in [(0, first), (1, second)] {
                let which = turn % 2;
                let entry = Entry::new(&copies[which..=which], blocks_of(copies), Allowed::Read);
                map.set(KEY, index, &entry.unwrap()).unwrap();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

/// Its drop ends the threads, whatever became of the test.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_read_while_extents_move_is_what_the_file_holds() {
    let mut fixture = Fixture::new(Striping::Coarse);
    let index = 9;
    let first = fixture.schedule.first_block(index);
    let disks = fixture.disks();
    let is_over = AtomicBool::new(false);
    let direct_count = AtomicUsize::new(0);
    let changed_count = AtomicUsize::new(0);
    let Fixture {
        map,
        seen,
        extents,
        folder,
        schedule,
    } = &mut fixture;
    let writing: Vec<File> = (0..DISKS_COUNT)
        .map(|disk| {
            let path = folder.path().join(format!("disk{disk}"));
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for place in 0..2 {
            let (is_over, direct_count, changed_count) = (&is_over, &direct_count, &changed_count);
            let (by, path) = ((&*seen, &disks), folder.path().join("mount"));
            let schedule = *schedule;
            scope.spawn(move || {
                let file = ClientFile::new(KEY, schedule, File::open(path).unwrap());
                let mut random = SeededRandom::new(place as u64);
                let mut buffer = AlignedBuffer::zeroed(4 * BLOCK_BYTES);
                while !is_over.load(Ordering::Relaxed) {
                    let block = first + random.below(253);
                    let answer = file.read_at(by, &mut buffer, block * 4096);
                    origins(block, &buffer);
                    let detour = answer.unwrap().detour;
                    direct_count.fetch_add(usize::from(detour.is_none()), Ordering::Relaxed);
                    let is_changed = usize::from(detour == Some(Detour::Changed));
                    changed_count.fetch_add(is_changed, Ordering::Relaxed);
                }
            });
        }
        let _end = End(&is_over);
        // Two places for the first copy on its disk, in turn; the one that it left is wiped.
        let [moving, other] = extents[index as usize];
        let second = ExtentCopy::new(moving.disk(), DISK_BLOCKS - 256, moving.class());
        let disk = &writing[usize::from(moving.disk().0)];
        let until = Instant::now() + Duration::from_secs(30);
        for turn in 0.. {
            let counts = [&direct_count, &changed_count].map(|it| it.load(Ordering::Relaxed));
            if turn >= 50 && counts[0] > 500 && counts[1] > 0 {
                break;
            }
            assert!(
                Instant::now() < until,
                "{turn} moves, {counts:?} reads that counted and did not"
            );
            let [old, new] = match turn % 2 {
                0 => [moving, second],
                _ => [second, moving],
            };
            let mut bytes = vec![0; 256 * BLOCK_BYTES];
            disk.read_exact_at(&mut bytes, old.start_bytes()).unwrap();
            disk.write_all_at(&bytes, new.start_bytes()).unwrap();
            let entry = Entry::new(&[new, other], 256, Allowed::Read).unwrap();
            map.set(KEY, index, &entry).unwrap();
            bytes.fill(0);
            disk.write_all_at(&bytes, old.start_bytes()).unwrap();
        }
    });
}
