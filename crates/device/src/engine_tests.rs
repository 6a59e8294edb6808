//! What both engines promise, tried on real files: every test runs over io_uring and over plain
//! system calls.

use std::path::{Path, PathBuf};

use crate::{
    AlignedBuffer, DeviceErrorKind, DiskSlot, Disks, Engine, FileDisk, PlainDisks, Request,
    UringDisks, Work,
};

const MIB: usize = 1 << 20;

/// A folder that goes with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self::within(&std::env::temp_dir(), name)
    }

    fn within(parent: &Path, name: &str) -> Self {
        let unique = format!("spindle-device-{name}-{}", std::process::id());
        let path = parent.join(unique);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn disk(&self, name: &str, size_bytes: usize) -> crate::OpenDisk {
        let path = self.0.join(name);
        let size_bytes = size_bytes as u64;
        FileDisk { path, size_bytes }.create().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with_each_engine(name: &str, story: impl Fn(&Engine, &[DiskSlot], &Folder)) {
    // Where there is one, also in memory, whose files io_uring serves in another way.
    let parents = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    for (index, parent) in [0, 1, 0, 1].into_iter().enumerate() {
        let engine = if index < 2 {
            Engine::Uring(UringDisks::new().unwrap())
        } else {
            Engine::Plain(PlainDisks::new())
        };
        if !parents[parent].is_dir() {
            continue;
        }
        let folder = Folder::within(&parents[parent], &format!("{name}-{index}"));
        let slots: Vec<_> = ["a", "b"]
            .map(|disk| engine.attach(folder.disk(disk, 16 * MIB)))
            .into();
        story(&engine, &slots, &folder);
    }
}

fn filled(byte: u8, length_bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(length_bytes);
    buffer.fill(byte);
    buffer
}

fn read(disks: &dyn Disks, slot: DiskSlot, at: u64, memory: &mut [u8]) {
    let mut batch = [Request::new(slot, at, Work::Read(memory))];
    disks.run(&mut batch);
    batch[0].result.clone().unwrap();
}

#[test]
fn a_batch_over_two_disks_is_answered_whole_and_counted() {
    with_each_engine("whole", |engine, slots, _| {
        let data = filled(5, MIB);
        let mut batch = [
            Request::new(slots[0], 0, Work::Write(&data)),
            Request::new(slots[1], MIB as u64, Work::WriteDurable(&data)),
        ];
        engine.run(&mut batch);
        assert!(batch.iter().all(|request| request.result.is_ok()));
        let mut batch = slots.iter().map(|&slot| Request::new(slot, 0, Work::Flush));
        engine.run(&mut [batch.next().unwrap(), batch.next().unwrap()]);
        let mut memory = filled(1, MIB);
        read(engine, slots[0], 0, &mut memory);
        assert_eq!(memory[..], data[..]);
        read(engine, slots[1], MIB as u64, &mut memory);
        assert_eq!(memory[..], data[..]);
        read(engine, slots[1], 0, &mut memory);
        assert!(memory.iter().all(|&byte| byte == 0));
        let counters = engine.counters(slots[1]);
        assert_eq!(
            (counters.reads, counters.writes, counters.flushes),
            (2, 1, 1)
        );
        assert_eq!(counters.read_bytes, 2 * MIB as u64);
        assert_eq!(counters.write_bytes, MIB as u64);
        assert_eq!((counters.errors, counters.in_flight), (0, 0));
        assert_eq!(counters.read_latency.count(), 2);
    });
}

#[test]
fn more_pieces_than_the_ring_has_places_are_all_served() {
    with_each_engine("many", |engine, slots, _| {
        let blocks: Vec<_> = (0..1000_usize)
            .map(|index| filled(u8::try_from(index % 251).unwrap(), 4096))
            .collect();
        let place = |index: usize| (slots[index % 2], (index * 4096) as u64);
        let mut batch: Vec<_> = (blocks.iter().enumerate())
            .map(|(index, block)| Request::new(place(index).0, place(index).1, Work::Write(block)))
            .collect();
        engine.run(&mut batch);
        assert!(batch.iter().all(|request| request.result.is_ok()));
        let mut memory = AlignedBuffer::zeroed(1000 * 4096);
        let mut batch: Vec<_> = (memory.chunks_exact_mut(4096).enumerate())
            .map(|(index, block)| Request::new(place(index).0, place(index).1, Work::Read(block)))
            .collect();
        engine.run(&mut batch);
        assert!(batch.iter().all(|request| request.result.is_ok()));
        for (block, found) in blocks.iter().zip(memory.chunks_exact(4096)) {
            assert_eq!(block[..], found[..]);
        }
    });
}

#[test]
fn memory_of_any_alignment_is_served() {
    with_each_engine("alignment", |engine, slots, _| {
        let mut data = filled(0, 3 * 4096);
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = u8::try_from(index % 253).unwrap();
        }
        let mut batch = [Request::new(slots[0], 8192, Work::Write(&data[3..8195]))];
        engine.run(&mut batch);
        batch[0].result.clone().unwrap();
        let mut memory = filled(9, 3 * 4096);
        read(engine, slots[0], 8192, &mut memory[1..8193]);
        assert_eq!(memory[1..8193], data[3..8195]);
        assert_eq!((memory[0], memory[8193]), (9, 9));
    });
}

/// A zram device of root's, gone with its test.
struct Zram(String);

impl Zram {
    fn make(size_bytes: usize) -> Option<Self> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let device = Self(number.trim().to_owned());
        let size = format!("/sys/block/zram{}/disksize", device.0);
        std::fs::write(size, size_bytes.to_string()).ok()?;
        Some(device)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

/// The kernel lets go of what a ring had open some time after the ring is gone.
fn open_when_free(path: &std::path::Path) -> crate::OpenDisk {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        match crate::OpenDisk::open(path) {
            Ok(disk) => return disk,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn zram_never_gets_memory_from_the_middle_of_a_page() {
    let Some(device) = Zram::make(16 * MIB) else {
        println!("skipped: no zram device can be made in this kernel");
        return;
    };
    let path = PathBuf::from(format!("/dev/zram{}", device.0));
    let engines = [
        Engine::Uring(UringDisks::new().unwrap()),
        Engine::Plain(PlainDisks::new()),
    ];
    for engine in engines {
        let slot = engine.attach(open_when_free(&path));
        let mut data = filled(0, 6 * 4096);
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = u8::try_from(index % 251).unwrap();
        }
        for start in [16, 512, 2048] {
            // Two requests, since a single one goes another way than through a ring.
            let end = start + 2 * 4096;
            let mut batch = [
                Request::new(slot, 65_536, Work::Write(&data[start..end])),
                Request::new(slot, 81_920, Work::Write(&data[end..end + 8192])),
            ];
            engine.run(&mut batch);
            assert!(batch.iter().all(|request| request.result.is_ok()));
            let mut memory = filled(9, 6 * 4096);
            let (before, rest) = memory.split_at_mut(4096 + start);
            let (first, rest) = rest.split_at_mut(8192);
            let (second, after) = rest.split_at_mut(8192);
            let mut batch = [
                Request::new(slot, 65_536, Work::Read(first)),
                Request::new(slot, 81_920, Work::Read(second)),
            ];
            engine.run(&mut batch);
            assert!(batch.iter().all(|request| request.result.is_ok()));
            assert!(*first == data[start..end] && *second == data[end..end + 8192]);
            assert!(before.iter().chain(after.iter()).all(|byte| *byte == 9));
        }
    }
}

#[test]
fn requests_off_the_blocks_or_the_disk_are_refused_and_their_neighbours_served() {
    with_each_engine("misaligned", |engine, slots, _| {
        let data = filled(5, 8192);
        let end = 16 * MIB as u64;
        let mut batch = [
            Request::new(slots[0], 512, Work::Write(&data)),
            Request::new(slots[0], 0, Work::Write(&data[..100])),
            Request::new(slots[0], end - 4096, Work::Write(&data)),
            Request::new(slots[0], u64::MAX - 4095, Work::Write(&data)),
            Request::new(slots[0], 0, Work::Write(&data)),
            Request::new(slots[0], end, Work::Write(&[])),
        ];
        engine.run(&mut batch);
        for request in &batch[..4] {
            let error = request.result.clone().unwrap_err();
            assert_eq!(error.kind, DeviceErrorKind::Misaligned);
        }
        assert!(batch[4..].iter().all(|request| request.result.is_ok()));
        assert_eq!(engine.counters(slots[0]).errors, 4);
    });
}

#[test]
fn a_file_that_became_shorter_is_a_disk_that_is_gone() {
    with_each_engine("shorter", |engine, slots, folder| {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(folder.0.join("a"))
            .unwrap();
        for left in [MIB as u64, MIB as u64 + 100] {
            file.set_len(left).unwrap();
            let mut memory = filled(1, 2 * MIB);
            let mut batch = [Request::new(slots[0], 0, Work::Read(&mut memory))];
            engine.run(&mut batch);
            let error = batch[0].result.clone().unwrap_err();
            assert_eq!(error.kind, DeviceErrorKind::Gone, "{error}");
            assert!(error.path.ends_with("/a"), "{error}");
        }
    });
}

#[test]
fn many_threads_share_an_engine_and_a_disk_can_join_meanwhile() {
    with_each_engine("threads", |engine, slots, folder| {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..50_u8 {
                        let at = u64::from(thread) * MIB as u64;
                        let data = filled(thread * 50 + round, 8192);
                        let mut batch = [
                            Request::new(slots[0], at, Work::Write(&data)),
                            Request::new(slots[1], at, Work::Write(&data)),
                        ];
                        engine.run(&mut batch);
                        let mut memory = filled(0, 8192);
                        read(engine, slots[usize::from(round % 2)], at, &mut memory);
                        assert_eq!(memory[..], data[..]);
                    }
                });
            }
            let late = engine.attach(folder.disk("c", MIB));
            let mut memory = filled(1, 4096);
            read(engine, late, 0, &mut memory);
            assert_eq!((late, memory[0]), (DiskSlot(2), 0));
        });
        assert_eq!(engine.in_flight_count(slots[0]), 0);
    });
}

#[test]
fn a_disk_is_free_again_as_soon_as_its_engine_is_dropped() {
    let folder = Folder::new("free");
    for engine in [
        Engine::Uring(UringDisks::new().unwrap()),
        Engine::Plain(PlainDisks::new()),
    ] {
        let _ = std::fs::remove_file(folder.0.join("a"));
        let slot = engine.attach(folder.disk("a", MIB));
        let mut memory = filled(1, 4096);
        read(&engine, slot, 0, &mut memory);
        let path = folder.0.join("a");
        assert!(crate::OpenDisk::open(&path).is_err());
        drop(engine);
        crate::OpenDisk::open(&path).unwrap();
    }
}
