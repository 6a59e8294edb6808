//! An owner that changes the shared map without a pause and is killed anywhere, and the next one that
//! goes on: a client that looks at any moment finds an extent as some owner said it, or the mount.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use spindle_base::{DiskNumber, FileId};
use spindle_device::{SeededRandom, SharedMemory};
use spindle_format::ExtentCopy;
use spindle_lease::map::{Allowed, Disks, Entry, FileKey, Piece, Reason, SeenMap, SharedMap};

const CHILD: &str = "SPINDLE_LEASE_OWNERS_CHILD";
const FILES_COUNT: u64 = 3;
const INDICES: [u32; 4] = [0, 1, 127, 128];
const CLASS: u8 = 4;
const DISK_BLOCKS: u64 = 1 << 30;

fn key(file: u64) -> FileKey {
    FileKey {
        file: FileId(file),
        incarnation: 1,
    }
}

/// Where the copies of an extent lie in its `turn`: so that whose and which it is can be read off.
fn places(file: u64, index: u32, turn: u64) -> [u64; 3] {
    let first = ((turn * FILES_COUNT + file) * 256 + u64::from(index) + 1) << CLASS;
    [first, first + (1 << 26), first + (1 << 27)]
}

fn entry(file: u64, index: u32, turn: u64) -> Entry {
    let mut disk = 0;
    let copies = places(file, index, turn).map(|start_block| {
        disk += 1;
        ExtentCopy::new(DiskNumber(disk - 1), start_block, CLASS)
    });
    Entry::new(&copies, 1 << CLASS, Allowed::Read).unwrap()
}

/// An owner: it changes the map until somebody ends it.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let told: Vec<u64> = told.split(' ').map(|it| it.parse().unwrap()).collect();
    let [begun, seed] = told[..] else {
        panic!("{told:?}");
    };
    let path = format!("/proc/self/fd/{begun}");
    let begun = OpenOptions::new().read(true).write(true).open(path);
    let begun = SharedMemory::from_descriptor(OwnedFd::from(begun.unwrap())).unwrap();
    // Not by `/proc`: nobody opens the map anew for writing.
    let map = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut map = SharedMap::new(SharedMemory::from_descriptor(map).unwrap()).unwrap();
    let mut random = SeededRandom::new(seed);
    map.reset();
    // Made before, so that most kills come while the map is changed.
    let some: Vec<(u64, u32, Entry)> = (0..64)
        .map(|_| {
            let file = random.below(FILES_COUNT);
            let index = INDICES[random.index(INDICES.len())];
            (file, index, entry(file, index, random.below(1 << 12)))
        })
        .collect();
    for round in 1_u32.. {
        for (file, index, entry) in &some {
            map.set(key(*file), *index, entry).unwrap();
        }
        if round.is_multiple_of(256) {
            map.withdraw(FileId(random.below(FILES_COUNT)));
        }
        begun.words()[0].fetch_add(1, Ordering::Relaxed);
    }
}

/// A running owner. Its drop ends it, whatever became of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(map: &SharedMemory, begun: &SharedMemory, seed: u64) -> Self {
        fcntl_setfd(begun.descriptor(), FdFlags::empty()).unwrap();
        let told = format!("{} {seed}", begun.descriptor().as_raw_fd());
        let map = map.descriptor().try_clone_to_owned().unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child"])
            .env(CHILD, told)
            .stdin(Stdio::from(map))
            .stdout(Stdio::null())
            .spawn();
        Self(process.unwrap())
    }
}

/// A client.
struct By {
    seen: SeenMap,
}

/// As an owner tells its clients.
fn told_by(map: &SharedMap) -> Disks {
    Disks {
        standing: map.standing().number(),
        blocks: vec![DISK_BLOCKS; 3],
    }
}

/// What clients found.
#[derive(Default)]
struct Tally {
    direct: u64,
    changes: u64,
    through_mount: u64,
}

/// Looks at every extent.
fn look(by: &By, told: &Disks, changes: bool, tally: &mut Tally) {
    for file in 0..FILES_COUNT {
        for index in INDICES {
            let piece = Piece {
                file: key(file),
                index,
                inside_blocks: 0,
                blocks: 1 << CLASS,
            };
            match by.seen.places_to_read(told, &piece) {
                Ok(places_found) => {
                    let found = places_found
                        .copies()
                        .iter()
                        .map(|copy| copy.offset_bytes >> 12);
                    let found: Vec<u64> = found.collect();
                    let turn = (found[0] >> CLASS) / 256 / FILES_COUNT;
                    assert_eq!(found, places(file, index, turn), "{piece:?}");
                    tally.direct += 1;
                }
                Err(Reason::Changes) if changes => tally.changes += 1,
                Err(reason) => {
                    let is_right = matches!(
                        reason,
                        Reason::NotAllowed | Reason::NotInMap | Reason::Standing
                    );
                    assert!(is_right, "{reason:?} of {piece:?}");
                    tally.through_mount += 1;
                }
            }
        }
    }
}

#[test]
fn a_client_finds_what_an_owner_said_or_the_mount_wherever_owners_are_killed() {
    let map = SharedMap::create().unwrap();
    let begun = SharedMemory::create("begun", 4096).unwrap();
    let memory = map.memory().read_only().unwrap();
    let by = By {
        seen: SeenMap::new(memory).unwrap(),
    };
    let mut random = SeededRandom::new(3);
    let (mut beside, mut behind) = (Tally::default(), Tally::default());
    for round in 0..100 {
        let begun_before = begun.words()[0].load(Ordering::Relaxed);
        let owner = Running::start(map.memory(), &begun, round);
        let until = Instant::now() + Duration::from_secs(20);
        // Every eighth is killed as it resets the map, or before.
        let changes_least = if round % 8 == 0 { 0 } else { 5 };
        while begun.words()[0].load(Ordering::Relaxed) - begun_before < changes_least {
            assert!(Instant::now() < until, "an owner that does nothing");
            std::thread::sleep(Duration::from_micros(100));
        }
        let looks_until = Instant::now() + Duration::from_micros(random.below(6000));
        while Instant::now() < looks_until {
            look(&by, &told_by(&map), true, &mut beside);
        }
        drop(owner);
        // Nobody changes it now: each entry is whole, or says nothing.
        look(&by, &told_by(&map), false, &mut behind);
    }
    assert!(beside.direct > 1000 && beside.through_mount > 100);
    assert!(beside.changes > 0 && behind.direct > 100 && behind.through_mount > 10);
}
