//! Readers through the kernel's page cache beside writers that pass it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use spindle_base::FileId;
use spindle_device::{AlignedBuffer, DiskSlot, Disks, OpenDisk, Request, UringDisks, Work};
use spindle_fuse::{MountOptions, NoticesProgram};
use support::Mounted;

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: u64 = 64;
const ROUNDS: u8 = 50;
/// Of four blocks each, together more than so many answers wait.
const WRITERS: u64 = 64;
const ROUNDS_OF_MANY: u8 = 10;

/// This very program, which sends notices where it is asked for the test below.
fn notices() -> NoticesProgram {
    let arguments = [
        "--exact",
        "the_process_that_sends_notices",
        "--ignored",
        "--test-threads=1",
    ];
    NoticesProgram {
        path: "/proc/self/exe".into(),
        name: "page_cache".into(),
        arguments: arguments.map(Into::into).to_vec(),
    }
}

/// No test: what the mounts of the others start.
#[test]
#[ignore = "it is a part of the other tests"]
fn the_process_that_sends_notices() {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    spindle_fuse::send_notices(socket).unwrap();
}

fn mounted(direct: bool) -> Option<Mounted> {
    let options = MountOptions {
        direct,
        notices: Some(notices()),
        ..MountOptions::new("posix")
    };
    Mounted::with_options(&options, 512 << 20, None, None)
}

fn in_both_modes(story: impl Fn(&Mounted)) {
    for direct in [false, true] {
        if let Some(mounted) = mounted(direct) {
            eprintln!("direct: {direct}");
            story(&mounted);
        }
    }
}

/// Writes these blocks past the page cache, all at a time, and waits for none but all.
fn write_blocks(writer: &UringDisks, slot: DiskSlot, blocks: Range<u64>, byte: u8) {
    let mut memory = AlignedBuffer::zeroed(BLOCK_BYTES);
    memory.fill(byte);
    let mut batch: Vec<Request<'_>> = blocks
        .map(|block| Request::new(slot, block * BLOCK_BYTES as u64, Work::Write(&memory)))
        .collect();
    writer.run(&mut batch);
    for request in batch {
        request.result.unwrap();
    }
}

fn file_bytes(file: &File) -> usize {
    usize::try_from(file.metadata().unwrap().len()).unwrap()
}

/// How many blocks a reader sees that are not `byte`.
fn old_count(reader: &File, byte: u8) -> usize {
    let mut seen = vec![0; file_bytes(reader)];
    reader.read_exact_at(&mut seen, 0).unwrap();
    seen.chunks(BLOCK_BYTES)
        .filter(|block| block.iter().any(|one| *one != byte))
        .count()
}

/// Reads block after block until it is over.
fn read_on(path: &Path, start: usize, is_over: &AtomicBool) {
    let reader = File::open(path).unwrap();
    let mut read = vec![0; BLOCK_BYTES];
    let blocks = (file_bytes(&reader) / BLOCK_BYTES) as u64;
    for block in (0..blocks).cycle().skip(start) {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        (reader.read_exact_at(&mut read, block * BLOCK_BYTES as u64)).unwrap();
    }
}

/// Ends the readers, also where a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More writes are under way than answers wait.
#[test]
fn many_writers_at_a_time_wait_for_no_reader_for_long() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("data");
        fs::write(&path, vec![0; BLOCK_BYTES * 256]).unwrap();
        // It has a ring for each thread.
        let writer = UringDisks::new().unwrap();
        let slot = writer.try_attach(OpenDisk::open(&path).unwrap()).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            for start in 0..8 {
                let (path, is_over) = (&path, &is_over);
                scope.spawn(move || read_on(path, start * 8, is_over));
            }
            let writer = &writer;
            let writers = (0..WRITERS).map(|number| {
                scope.spawn(move || {
                    let blocks = number * 4..number * 4 + 4;
                    for byte in 1..=ROUNDS_OF_MANY {
                        write_blocks(writer, slot, blocks.clone(), byte);
                    }
                })
            });
            let writers: Vec<_> = writers.collect();
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let reader = File::open(&path).unwrap();
        assert_eq!(
            old_count(&reader, ROUNDS_OF_MANY),
            0,
            "blocks that were old"
        );
    });
}

/// The kernel drops the pages of what a program writes past its cache before it sends an
/// asynchronous write, and not afterwards: what a reader brings there in between would stay.
#[test]
fn who_reads_through_the_page_cache_sees_what_was_written_past_it_asynchronously() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("data");
        fs::write(&path, vec![0; BLOCK_BYTES * 64]).unwrap();
        let writer = UringDisks::new().unwrap();
        let slot = writer.try_attach(OpenDisk::open(&path).unwrap()).unwrap();
        let reader = File::open(&path).unwrap();
        let is_over = AtomicBool::new(false);
        let old_count = thread::scope(|scope| {
            for start in 0..8 {
                let (path, is_over) = (&path, &is_over);
                scope.spawn(move || read_on(path, start * 8, is_over));
            }
            let _over = Over(&is_over);
            let seen = (1..=ROUNDS).map(|round| {
                write_blocks(&writer, slot, 0..BLOCKS, round);
                old_count(&reader, round)
            });
            seen.sum::<usize>()
        });
        assert_eq!(old_count, 0, "blocks that were old");
    });
}

/// The kernel forgets the attributes of what a program writes past its cache when it sends an
/// asynchronous write, and not afterwards: what somebody asks for in between would stay.
#[test]
fn who_asks_for_the_times_of_a_file_sees_an_asynchronous_write_past_the_cache() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("data");
        fs::write(&path, vec![0; BLOCK_BYTES * 64]).unwrap();
        let id = FileId(fs::metadata(&path).unwrap().ino());
        let writer = UringDisks::new().unwrap();
        let slot = writer.try_attach(OpenDisk::open(&path).unwrap()).unwrap();
        let is_over = AtomicBool::new(false);
        let old_count = thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        fs::metadata(&path).unwrap();
                    }
                });
            }
            let _over = Over(&is_over);
            let is_old = (1..=ROUNDS).map(|round| {
                // More than the clock of times takes for a tick.
                thread::sleep(Duration::from_millis(5));
                write_blocks(&writer, slot, 0..BLOCKS, round);
                let seen = fs::metadata(&path).unwrap();
                let there = mounted.file_system.attributes(id).unwrap().modified;
                (seen.mtime(), seen.mtime_nsec()) != (there.seconds, i64::from(there.nanoseconds))
            });
            is_old.filter(|is_old| *is_old).count()
        });
        assert_eq!(old_count, 0, "times that were old");
    });
}
