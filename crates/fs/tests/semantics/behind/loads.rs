//! Streams, many writers and disks that hang or fail beside what waits in memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use spindle_base::Redundancy;
use spindle_device::SeededRandom;
use spindle_fs::{Handle, Time};

use crate::fixture::{Fixture, ROOT};

use super::{BLOCK, TEST_MOST, behind, kept};

/// A program goes on as fast as the disks take what it writes.
#[test]
fn a_sync_ends_though_a_program_goes_on_behind_what_it_writes() {
    const PIECE_BYTES: usize = 1 << 20;
    const PIECES_MOST: u64 = 32;
    let mut fixture = kept();
    let handle = fixture.make(ROOT, "log");
    fixture.write(&handle, 0, &vec![1; PIECES_MOST as usize * PIECE_BYTES]);
    drop(handle);
    let syncs = Arc::new(AtomicBool::new(false));
    let (asks, asked) = channel();
    let (answers, answered) = channel();
    let (is_asked, answered) = (Arc::clone(&syncs), Mutex::new(answered));
    let asks_before_writes = asks.clone();
    fixture.reopen_watched(move || {
        if is_asked.load(Ordering::Relaxed) {
            asks_before_writes.send(false).unwrap();
            answered.lock().unwrap().recv().unwrap();
        }
    });
    let handle = (fixture.fs().open_file(fixture.find("/log").id)).unwrap();
    let write_piece = |piece: u64| {
        let offset = piece * PIECE_BYTES as u64;
        behind(&fixture, &handle, offset, &vec![2; PIECE_BYTES]).unwrap();
    };
    let mut pieces = 0..PIECES_MOST;
    pieces.by_ref().take(2).for_each(write_piece);
    let fs = fixture.fs();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            syncs.store(true, Ordering::Relaxed);
            fs.sync_file(&handle, true).unwrap();
            syncs.store(false, Ordering::Relaxed);
            asks.send(true).unwrap();
        });
        while !asked.recv().unwrap() {
            pieces.next().into_iter().for_each(write_piece);
            answers.send(()).unwrap();
        }
    });
    assert_ne!(pieces.next(), None, "the sync ended with the program");
}

#[test]
fn a_write_past_the_memory_that_panics_sends_no_later_write_past_it() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; BLOCK]);
    drop(file);
    let panics = Arc::new(AtomicBool::new(false));
    let is_asked = Arc::clone(&panics);
    fixture.reopen_watched(move || {
        let is_asked = is_asked.swap(false, Ordering::Relaxed);
        assert!(!is_asked, "as the test wants it");
    });
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    panics.store(true, Ordering::Relaxed);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        fixture.write(&file, 0, &[2; BLOCK]);
    }));
    panicked.unwrap_err();
    behind(&fixture, &file, 5, &[3; 10]).unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), BLOCK as u64);
}

#[test]
fn writers_wait_for_the_disks_where_too_much_waits_and_write_themselves() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    fixture.fs().set_unwritten_most(1 << 20);
    for piece in 0..8 {
        behind(&fixture, &handle, piece << 20, &[piece as u8; 1 << 20]).unwrap();
        // What is answered while there is room may go beyond it by one write.
        assert!(fixture.fs().unwritten_bytes() <= 2 << 20);
    }
    let bytes = fixture.contents(&handle);
    for (piece, bytes) in bytes.chunks(1 << 20).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == piece as u8));
    }
}

#[test]
fn a_stream_keeps_neither_another_file_nor_its_own_beginning_from_the_disks() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let small = fixture.make(ROOT, "small");
    let stream = fixture.make(ROOT, "stream");
    behind(&fixture, &small, 0, &[1; BLOCK]).unwrap();
    behind(&fixture, &stream, 0, &[1; BLOCK]).unwrap();
    for second in 1..12 {
        behind(&fixture, &stream, second << 20, &[2; 1 << 20]).unwrap();
        fs.step(1000 + second * 1000).unwrap();
        // The disks write as much as comes, and a little more.
        for _ in 0..2 {
            fs.write_due();
        }
    }
    assert_eq!(
        fs.unwritten_bytes() % (1 << 20),
        0,
        "both blocks are written"
    );
}

/// It comes faster than the disks write, so that no look for a free block behind its last one ends.
#[test]
fn a_stream_that_is_faster_than_the_disks_keeps_nothing_from_them() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let small = fixture.make(ROOT, "small");
    let stream = fixture.make(ROOT, "stream");
    behind(&fixture, &stream, 0, &[1; BLOCK]).unwrap();
    let mut runs = 0;
    for second in 1..=60 {
        for _ in 0..2 {
            // Each is a run of its own.
            runs += 2;
            behind(&fixture, &stream, runs * BLOCK as u64, &[2; BLOCK]).unwrap();
        }
        if second == 2 {
            behind(&fixture, &small, 0, &[3; BLOCK]).unwrap();
            behind(&fixture, &stream, 0, &[3; BLOCK]).unwrap();
        }
        fs.step(1000 + second * 1000).unwrap();
        fs.write_due();
        fs.make_durable().unwrap();
    }
    assert!(fs.unwritten_bytes() > 0, "it was no faster than the disks");
    let after = spindle_fs::FileSystem::open(fixture.after_power_cut(1)).unwrap();
    for file in [&small, &stream] {
        let found = after.open_file(file.id()).unwrap();
        let mut block = [0; BLOCK];
        assert_eq!(after.read(&found, 0, &mut block).unwrap(), BLOCK);
        assert_eq!(block, [3; BLOCK]);
    }
}

#[test]
fn a_disk_that_hangs_keeps_no_writer_of_a_file_that_lies_elsewhere() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let slots = names.map(|text| {
        let file = fixture.make(ROOT, text);
        fixture.write(&file, 0, &[1; BLOCK]);
        fixture.places(&file, 0)[0].0
    });
    let hangs = slots[0];
    let elsewhere = slots.iter().position(|slot| *slot != hangs).unwrap();
    let (goes_on, does) = channel::<()>();
    let (begun, has_begun) = channel();
    let does = Mutex::new(does);
    let is_hung = Arc::new(AtomicBool::new(false));
    let hung = Arc::clone(&is_hung);
    fixture.reopen_asked(move |batch| {
        if hung.load(Ordering::Relaxed) && batch.iter().any(|request| request.slot == hangs) {
            begun.send(()).unwrap();
            // It ends when the test does.
            let _ = does.lock().unwrap().recv();
        }
    });
    let fs = fixture.fs();
    let open = |text: &str| fs.open_file(fixture.find(&format!("/{text}")).id).unwrap();
    let (bad, good) = (open(names[0]), open(names[elsewhere]));
    fs.set_unwritten_most(BLOCK as u64);
    fs.step(1000).unwrap();
    behind(&fixture, &bad, 0, &[2; BLOCK]).unwrap();
    is_hung.store(true, Ordering::Relaxed);
    fs.hurry_writes();
    let now = fixture.now();
    let (answers, answered) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| fs.write_due());
        has_begun.recv().unwrap();
        scope.spawn(|| {
            for _ in 0..20 {
                let data = [3; BLOCK];
                (fs.write_behind(&good, 0, data[..].into(), now)).unwrap();
            }
            answers.send(()).unwrap();
        });
        let answer = answered.recv_timeout(TEST_MOST);
        is_hung.store(false, Ordering::Relaxed);
        drop(goes_on);
        answer.expect("it waits for the other's disk");
    });
}

#[test]
fn a_disk_that_takes_nothing_is_asked_a_few_times_for_a_run() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    behind(&fixture, &file, 0, &[2; 256 * BLOCK]).unwrap();
    let slots: Vec<_> = (fixture.places(&file, 0).iter())
        .map(|place| place.0)
        .collect();
    for slot in &slots {
        fixture
            .disks
            .fail_writes(*slot, 1 << 20..u64::MAX, u64::MAX);
    }
    let before = fixture.disks.counts().writes;
    assert!(fixture.fs().sync_file(&file, true).is_err());
    let count = fixture.disks.counts().writes - before;
    assert!(count < 100, "{count}");
    assert!(fixture.fs().unwritten_bytes() > 0);
    assert_eq!(fixture.contents(&file), vec![2; 256 * BLOCK]);
}

/// Each of some threads has every fourth half of a block of one file to itself, so that it shares each
/// block with another; others write out, sync and read meanwhile.
#[test]
fn threads_that_write_past_the_memory_and_into_it_lose_nothing_of_each_other() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    let is_over = AtomicBool::new(false);
    let fs = fixture.fs();
    let now = fixture.now();
    const THREADS: usize = 4;
    const BLOCKS: usize = 64;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let handle = Arc::clone(&handle);
                scope.spawn(move || write_some(fs, &handle, thread, now))
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs.sync_file(&handle, true).unwrap();
            }
        });
        scope.spawn(|| {
            let mut clock_ms = 0;
            while !is_over.load(Ordering::Relaxed) {
                clock_ms += 3000;
                fs.step(clock_ms).unwrap();
                fs.write_due();
            }
        });
        let last: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let bytes = fixture.contents(&handle);
        for (at, byte) in bytes.iter().enumerate() {
            let (half, inside) = (at / (BLOCK / 2), at % (BLOCK / 2));
            let expected = last[half % THREADS][half / THREADS];
            assert_eq!(*byte, expected, "half {half}, byte {inside}");
        }
    });
    fixture.check();

    fn write_some(
        fs: &spindle_fs::FileSystem,
        handle: &Handle,
        thread: usize,
        now: Time,
    ) -> Vec<u8> {
        let mut random = SeededRandom::new(thread as u64);
        let mut last = vec![0; BLOCKS * 2 / THREADS];
        for round in 0..3000 {
            let mine = random.below(last.len() as u64) as usize;
            let offset = ((mine * THREADS + thread) * BLOCK / 2) as u64;
            let byte = (round % 251) as u8 + 1;
            let data = [byte; BLOCK / 2];
            if random.below(3) == 0 {
                fs.write(handle, offset, &data, false, now).unwrap();
            } else {
                fs.write_behind(handle, offset, data[..].into(), now)
                    .unwrap();
            }
            last[mine] = byte;
            if round % 16 == 0 {
                let mut read = [0; BLOCK / 2];
                fs.read(handle, offset, &mut read).unwrap();
                assert_eq!(read, data);
            }
        }
        last
    }
}

#[test]
fn a_disk_that_fails_what_is_written_behind_hides_nothing_and_keeps_nothing_else() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let bad = fixture.make(ROOT, "bad");
    let good = fixture.make(ROOT, "good");
    fixture.write(&bad, 0, &[1; 8 * BLOCK]);
    fixture.fs().sync().unwrap();
    behind(&fixture, &bad, 0, &[2; 8 * BLOCK]).unwrap();
    // The third of them only: the others of its run get to the disk.
    let places = fixture.places(&bad, 2 * BLOCK as u64);
    for (slot, offset) in &places {
        let range = *offset..*offset + BLOCK as u64;
        fixture.disks.fail_writes(*slot, range, u64::MAX);
    }
    behind(&fixture, &good, 0, &[3; BLOCK]).unwrap();
    let fs = fixture.fs();
    assert!(fs.sync_file(&bad, false).is_err());
    // Neither older bytes, nor a second answer that says otherwise.
    assert_eq!(fixture.contents(&bad), vec![2; 8 * BLOCK]);
    assert!(fs.sync_file(&bad, false).is_err());
    assert_eq!(fs.unwritten_bytes(), 2 * BLOCK as u64);
    fs.sync_file(&good, false).unwrap();
    fs.make_durable().unwrap();
    // What waits stays where a kill leaves it.
    std::mem::forget((bad, good));
    fixture.kill();
    let bad = fixture.fs().open_file(fixture.find("/bad").id).unwrap();
    assert_eq!(fixture.contents(&bad), vec![2; 8 * BLOCK]);
    for (slot, _) in &places {
        fixture.disks.clear_faults(*slot);
    }
    // Told to nobody who is known to have heard it: a kill may have come before the answer.
    assert!(fixture.fs().sync_file(&bad, false).is_err());
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    fixture.fs().sync_file(&bad, false).unwrap();
}
