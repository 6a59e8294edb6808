//! A client reads what a file holds, wherever its blocks lie: from the disks where the map says so, and
//! from the mount where it does not.
//!
//! Plain files stand for the disks and for the mount. The same block has other bytes on each copy and on
//! the mount, so that what was read says where it came from.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use spindle_base::{AuSize, DiskNumber, FileId, Striping};
use spindle_client::{Answer, Client, ClientFile, Detour, NotDirect, ServingDisk, ServingDisks};
use spindle_device::{AlignedBuffer, SeededRandom};
use spindle_extent::schedule::Schedule;
use spindle_format::ExtentCopy;
use spindle_lease::map::{Allowed, Entry, FileKey, Reason, SharedMap};
use spindle_lease::{Blocks, Leases, Refused};

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
    leases: Arc<Leases>,
    map: SharedMap,
    schedule: Schedule,
    /// Of each extent, its copies.
    extents: Vec<[ExtentCopy; 2]>,
    client: Client,
}

impl Fixture {
    fn new(striping: Striping) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let leases = Leases::create().unwrap();
        let number = leases.let_in(100).unwrap();
        let map = SharedMap::create().unwrap();
        let schedule = Schedule::new(striping, AuSize::from_bytes(1 << 20).unwrap());
        let shared = leases.memory().descriptor().try_clone_to_owned().unwrap();
        let shared = spindle_device::SharedMemory::from_descriptor(shared).unwrap();
        let seen = map.memory().read_only().unwrap();
        let client = Client::new(Leases::new(shared).unwrap(), number, seen).unwrap();
        let mut fixture = Self {
            folder,
            leases: Arc::new(leases),
            map,
            schedule,
            extents: Vec::new(),
            client,
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

    fn disks(&self) -> Arc<ServingDisks> {
        let open = |disk| {
            let mut options = OpenOptions::new();
            let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
            options.read(true).write(true).custom_flags(flags);
            let file = options.open(self.disk_path(disk)).unwrap();
            Some(ServingDisk::new(file, DISK_BLOCKS).unwrap())
        };
        let disks = (0..DISKS_COUNT).map(open).collect();
        Arc::new(ServingDisks::new(self.map.standing(), disks))
    }

    fn open(&self) -> ClientFile {
        let mount = File::open(self.path("mount")).unwrap();
        ClientFile::new(KEY, self.schedule, mount)
    }

    /// Reads blocks by a new worker, and looks where each came from.
    fn read(&self, first: u64, blocks: u64) -> (Vec<From>, Answer) {
        let mut worker = self.client.worker(self.disks()).unwrap();
        let mut buffer = AlignedBuffer::zeroed(usize::try_from(blocks).unwrap() * BLOCK_BYTES);
        let answer = self.open().read_at(&mut worker, &mut buffer, first * 4096);
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
            let length_bytes = from.len() * BLOCK_BYTES;
            let expected = Answer {
                length_bytes,
                direct_bytes: length_bytes,
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
        let first = random.below(FILE_BLOCKS - 600);
        let (from, answer) = fixture.read(first, 600);
        let expected = (first..first + 600).map(|block| {
            let index = fixture.schedule.locate(block).unwrap().index;
            if is_closed[index as usize] {
                From::Mount
            } else {
                From::Copy(0)
            }
        });
        assert!(from.iter().copied().eq(expected));
        let direct_count = from.iter().filter(|from| **from != From::Mount).count();
        assert_eq!(answer.direct_bytes, direct_count * BLOCK_BYTES);
        assert_eq!(answer.detour.is_some(), direct_count < 600);
    }
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
    assert_eq!(answer.direct_bytes, 0);
}

#[test]
fn what_is_revoked_unaligned_or_of_another_standing_comes_from_the_mount() {
    let mut fixture = Fixture::new(Striping::Coarse);
    let leases = Arc::clone(&fixture.leases);
    let revocation = leases.revoke(Blocks::new(KEY.file, 7, 8)).unwrap();
    let (from, answer) = fixture.read(0, 8);
    assert_eq!(from, [From::Mount; 8]);
    assert_eq!(answer.detour, Some(Detour::Refused(Refused::Revoked)));
    drop(revocation);
    assert_eq!(fixture.read(0, 8).0, [From::Copy(0); 8]);

    let mut worker = fixture.client.worker(fixture.disks()).unwrap();
    let file = fixture.open();
    for (offset_bytes, length_bytes) in [(512, 4096), (0, 512)] {
        let mut buffer = AlignedBuffer::zeroed(length_bytes);
        let answer = file.read_at(&mut worker, &mut buffer, offset_bytes);
        assert_eq!(answer.unwrap().detour, Some(Detour::Unaligned));
        let word = u64::from_le_bytes(*buffer.first_chunk().unwrap());
        assert_eq!(word & 0xff, 99);
    }

    let (before, mut buffer) = (fixture.disks(), AlignedBuffer::zeroed(4096));
    fixture.map.raise_standing(&fixture.leases);
    let now = fixture.disks();
    let mut worker = fixture.client.worker(before).unwrap();
    let answer = fixture.open().read_at(&mut worker, &mut buffer, 0).unwrap();
    assert_eq!(answer.detour, Some(Detour::Map(Reason::Standing)));
    worker.learn(now);
    let answer = fixture.open().read_at(&mut worker, &mut buffer, 0).unwrap();
    assert_eq!((answer.detour, answer.direct_bytes), (None, 4096));
}

#[test]
fn two_workers_of_a_client_never_have_one_place() {
    let fixture = Fixture::new(Striping::Coarse);
    let new = || fixture.client.worker(fixture.disks());
    let mut workers: Vec<_> = std::iter::from_fn(new).collect();
    assert_eq!(workers.len(), spindle_lease::OPERATIONS_COUNT);
    // What is given back is the next one's, and nothing else is.
    drop(workers.swap_remove(17));
    let next = new().expect("a place was given back");
    assert!(new().is_none());
    drop(next);
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
    let mut worker = fixture.client.worker(fixture.disks()).unwrap();
    let mut read = |blocks: usize, at: u64| {
        let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
        let answer = fixture.open().read_at(&mut worker, &mut buffer, at * 4096);
        let answer = answer.unwrap();
        (answer.length_bytes, answer.direct_bytes, answer.detour)
    };
    assert_eq!(read(2, first), (8192, 8192, None));
    let beyond = Some(Detour::Map(Reason::BeyondLimit));
    assert_eq!(read(2, first + 2), (100, 0, beyond));
    assert_eq!(read(1, first + 3), (0, 0, beyond));
    // A part that is not wholly plain comes from the mount, whole.
    assert_eq!(read(4, first - 1), (3 * 4096 + 100, 4096, beyond));
}

#[test]
fn a_descriptor_through_the_page_cache_is_no_disk() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(ServingDisk::new(file, 1).unwrap_err(), NotDirect);
}

/// A mount that looks what its caller has announced.
struct Watching<'a> {
    leases: &'a Leases,
    asked_count: &'a AtomicUsize,
}

impl FileExt for Watching<'_> {
    fn read_at(&self, bytes: &mut [u8], _offset_bytes: u64) -> io::Result<usize> {
        let everything = self.leases.revoke(Blocks::ALL).unwrap();
        assert!(everything.under_way().is_empty());
        self.asked_count.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len())
    }

    fn write_at(&self, _bytes: &[u8], _offset_bytes: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn nothing_is_announced_while_the_mount_is_asked() {
    let mut fixture = Fixture::new(Striping::Coarse);
    for index in [1, 3] {
        fixture.publish(index, Allowed::Nothing);
    }
    let asked_count = AtomicUsize::new(0);
    let mount = Watching {
        leases: &fixture.leases,
        asked_count: &asked_count,
    };
    let mut worker = fixture.client.worker(fixture.disks()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(16 * BLOCK_BYTES);
    let file = ClientFile::new(KEY, fixture.schedule, mount);
    // Extent 1 is block 1, extent 3 blocks 4 to 7: two parts.
    let answer = file.read_at(&mut worker, &mut buffer, 0).unwrap();
    assert_eq!(answer.direct_bytes, 11 * BLOCK_BYTES);
    assert_eq!(asked_count.load(Ordering::SeqCst), 2);
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
    let blocks = Blocks::new(KEY.file, first, first + 256);
    let disks = fixture.disks();
    let is_over = AtomicBool::new(false);
    let direct_count = AtomicUsize::new(0);
    let Fixture {
        leases,
        map,
        client,
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
            let (disks, is_over, direct_count) = (Arc::clone(&disks), &is_over, &direct_count);
            let (client, path) = (&*client, folder.path().join("mount"));
            let schedule = *schedule;
            scope.spawn(move || {
                let file = ClientFile::new(KEY, schedule, File::open(path).unwrap());
                let mut worker = client.worker(disks).unwrap();
                let mut random = SeededRandom::new(place as u64);
                let mut buffer = AlignedBuffer::zeroed(4 * BLOCK_BYTES);
                while !is_over.load(Ordering::Relaxed) {
                    let block = first + random.below(253);
                    let answer = file.read_at(&mut worker, &mut buffer, block * 4096);
                    origins(block, &buffer);
                    let is_direct = answer.unwrap().detour.is_none();
                    direct_count.fetch_add(usize::from(is_direct), Ordering::Relaxed);
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
            if turn >= 50 && direct_count.load(Ordering::Relaxed) > 500 {
                break;
            }
            assert!(
                Instant::now() < until,
                "{turn} moves, {direct_count:?} reads"
            );
            let [old, new] = match turn % 2 {
                0 => [moving, second],
                _ => [second, moving],
            };
            let revocation = leases.revoke(blocks).unwrap();
            while !revocation.under_way().is_empty() {
                assert!(Instant::now() < until, "{:?}", revocation.under_way());
                std::thread::sleep(Duration::from_micros(20));
            }
            let mut bytes = vec![0; 256 * BLOCK_BYTES];
            disk.read_exact_at(&mut bytes, old.start_bytes()).unwrap();
            disk.write_all_at(&bytes, new.start_bytes()).unwrap();
            let entry = Entry::new(&[new, other], 256, Allowed::Read).unwrap();
            map.set(KEY, index, &entry).unwrap();
            drop(revocation);
            bytes.fill(0);
            disk.write_all_at(&bytes, old.start_bytes()).unwrap();
        }
    });
}
