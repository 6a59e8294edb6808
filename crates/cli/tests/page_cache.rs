//! Readers through the kernel's page cache beside programs that write past it asynchronously, while
//! processes are killed and replaced.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use place::{Place, can_mount, children_of, signal, wait_for_end};
use rustix::process::Signal;
use spindle_device::{AlignedBuffer, Disks, OpenDisk, Request, UringDisks, Work};

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: u64 = 64;
const READERS: u64 = 8;
/// A write waits for the next process, and for disks that others use as well.
const WRITE_MOST: Duration = Duration::from_secs(30);
/// On a busy machine a write may return before its notice is sent, where the process that sends it has
/// just been killed or is being replaced. So long a reader may see the old block; one that nobody has
/// the kernel drop stays for good.
const SEEN_MOST: Duration = Duration::from_secs(20);
/// How long a moment is looked for in which a notice waits: seconds, and with twelve others on two
/// processors half a minute.
const MOMENT_MOST: Duration = Duration::from_secs(120);
/// After that the mount is taken from whoever is stuck in it.
const STORY_MOST: Duration = Duration::from_secs(180);

/// Ends readers, writers and the watch, also where a story fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads block after block until it is over, or the mount is gone.
fn read_on(path: &Path, start: u64, is_over: &AtomicBool) {
    let reader = File::open(path).unwrap();
    let mut read = vec![0; BLOCK_BYTES];
    let mut block = start;
    while !is_over.load(Ordering::Relaxed) {
        if reader
            .read_exact_at(&mut read, block % BLOCKS * BLOCK_BYTES as u64)
            .is_err()
        {
            return;
        }
        block += 1;
    }
}

/// Writes every block past the page cache, round after round, all blocks of a round at a time; the
/// byte of the last round, or `None` where the mount was gone.
fn write_on(path: &Path, is_over: &AtomicBool) -> Option<u8> {
    let writer = UringDisks::with_deadline(WRITE_MOST).unwrap();
    let slot = writer.try_attach(OpenDisk::open(path).unwrap()).unwrap();
    let mut byte = 0_u8;
    while !is_over.load(Ordering::Relaxed) {
        byte = byte.wrapping_add(1);
        let mut memory = AlignedBuffer::zeroed(BLOCK_BYTES);
        memory.fill(byte);
        let mut batch: Vec<Request<'_>> = (0..BLOCKS)
            .map(|block| Request::new(slot, block * BLOCK_BYTES as u64, Work::Write(&memory)))
            .collect();
        writer.run(&mut batch);
        if batch.iter().any(|request| request.result.is_err()) {
            return None;
        }
    }
    Some(byte)
}

/// Takes the mount away where the story does not end: a program that waits in it cannot be killed.
fn watch(mount_point: &Path, is_over: &AtomicBool) {
    let begun = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if begun.elapsed() > STORY_MOST {
            let flags = rustix::mount::UnmountFlags::FORCE;
            let _ = rustix::mount::unmount(mount_point, flags);
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The process that sends the notices of the one that serves, once there is one.
fn notices_process(serving: u32) -> Option<u32> {
    children_of(serving).into_iter().find(|id| {
        let name = std::fs::read_to_string(format!("/proc/{id}/comm"));
        name.is_ok_and(|name| name.trim() == "fuse-notices")
    })
}

/// Waits until a reader sees nothing but this byte.
fn wait_until_seen(path: &Path, byte: u8) {
    let begun = Instant::now();
    loop {
        let seen = std::fs::read(path).unwrap();
        let is_old = |block: &&[u8]| block.iter().any(|one| *one != byte);
        let old_count = seen.chunks(BLOCK_BYTES).filter(is_old).count();
        if old_count == 0 {
            return;
        }
        assert!(begun.elapsed() < SEEN_MOST, "{old_count} blocks stay old");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `trouble` beside readers and a writer; then a reader has to see what was written last.
fn beside(place: &Place, trouble: impl FnOnce(&Path)) {
    let path = place.mount_point().join("file");
    std::fs::write(&path, vec![0; BLOCK_BYTES * 64]).unwrap();
    let (is_over, is_compared) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _compared = Over(&is_compared);
        let point = place.mount_point();
        let is_compared = &is_compared;
        scope.spawn(move || watch(&point, is_compared));
        let written = thread::scope(|scope| {
            let _over = Over(&is_over);
            let (path, is_over) = (&path, &is_over);
            for number in 0..READERS {
                scope.spawn(move || read_on(path, number * BLOCKS / READERS, is_over));
            }
            let writer = scope.spawn(move || write_on(path, is_over));
            trouble(path);
            is_over.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        let byte = written.expect("no write fails");
        wait_until_seen(&path, byte);
    });
}

fn mounted() -> Option<Place> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    Some(place)
}

#[test]
fn who_reads_through_the_page_cache_sees_what_was_written_past_it_over_kills() {
    let Some(place) = mounted() else {
        return;
    };
    beside(&place, |_| {
        for _ in 0..6 {
            thread::sleep(Duration::from_millis(300));
            place.kill_daemon();
        }
        thread::sleep(Duration::from_millis(300));
    });
    place.umount();
}

#[test]
fn a_hand_over_waits_for_no_reader_and_leaves_it_no_old_block() {
    let Some(place) = mounted() else {
        return;
    };
    beside(&place, |_| {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            let begun = Instant::now();
            place.tell(["upgrade", "data", "--binary", env!("CARGO_BIN_EXE_spindle")]);
            assert!(begun.elapsed() < Duration::from_secs(20), "{begun:?}");
        }
    });
    place.umount();
}

#[test]
fn the_process_that_sends_notices_is_replaced_where_it_is_killed() {
    let Some(place) = mounted() else {
        return;
    };
    let mut killed_count = 0;
    beside(&place, |_| {
        let begun = Instant::now();
        while killed_count < 3 && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(100));
            if let Some(id) = notices_process(place.process_id()) {
                signal(id, Signal::KILL);
                killed_count += 1;
            }
        }
        thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(killed_count, 3, "there was a process to kill");
    place.umount();
}

/// Whether a thread of that process waits in the kernel and cannot be killed.
fn is_stuck(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter();
    threads.flatten().flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('D'))
    })
}

/// Stops the process that serves in a moment in which the kernel keeps its process for notices
/// waiting for a read; the latter.
fn stop_while_a_notice_waits(serving: u32) -> u32 {
    let begun = Instant::now();
    while begun.elapsed() < MOMENT_MOST {
        thread::sleep(Duration::from_millis(1));
        // It is stopped only where one waits already: there are few such moments on a busy machine.
        let Some(id) = notices_process(serving).filter(|id| is_stuck(*id)) else {
            continue;
        };
        signal(serving, Signal::STOP);
        thread::sleep(Duration::from_millis(20));
        if is_stuck(id) {
            thread::sleep(Duration::from_millis(50));
            if is_stuck(id) {
                return id;
            }
        }
        signal(serving, Signal::CONT);
    }
    panic!("no notice waited for a read within {MOMENT_MOST:?}");
}

/// The kernel ends a mount with its last descriptor, and a notice that it keeps waiting holds one.
#[test]
fn a_mount_that_nobody_serves_ends_although_a_notice_waits_for_a_read() {
    let Some(place) = mounted() else {
        return;
    };
    let path: PathBuf = place.mount_point().join("file");
    std::fs::write(&path, vec![0; BLOCK_BYTES * 64]).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        let (path, is_over) = (&path, &is_over);
        let point = place.mount_point();
        scope.spawn(move || watch(&point, is_over));
        for number in 0..READERS {
            scope.spawn(move || read_on(path, number * BLOCKS / READERS, is_over));
        }
        let writer = scope.spawn(move || write_on(path, is_over));
        let (keeper, serving) = (place.keeper_process_id(), place.process_id());
        let notices = stop_while_a_notice_waits(serving);
        let begun = Instant::now();
        signal(keeper, Signal::KILL);
        signal(serving, Signal::KILL);
        wait_for_end(notices);
        assert_eq!(writer.join().unwrap(), None, "what nobody answers fails");
        assert!(begun.elapsed() < Duration::from_secs(30), "{begun:?}");
    });
    let _ = rustix::mount::unmount(place.mount_point(), rustix::mount::UnmountFlags::DETACH);
}
