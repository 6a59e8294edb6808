//! Readers through the kernel's page cache beside writers that pass it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use spindle_device::{AlignedBuffer, Disks, OpenDisk, Request, UringDisks, Work};
use support::in_both_modes;

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: u64 = 64;
const ROUNDS: u8 = 120;

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
        thread::scope(|scope| {
            for start in 0..4 {
                let (reader, is_over) = (&reader, &is_over);
                scope.spawn(move || {
                    let mut read = vec![0; BLOCK_BYTES];
                    for block in (0..BLOCKS).cycle().skip(start * 16) {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        reader
                            .read_exact_at(&mut read, block * BLOCK_BYTES as u64)
                            .unwrap();
                    }
                });
            }
            let mut old_count = 0;
            for round in 1..=ROUNDS {
                let mut memory = AlignedBuffer::zeroed(BLOCK_BYTES);
                memory.fill(round);
                let mut batch: Vec<Request<'_>> = (0..BLOCKS)
                    .map(|block| {
                        Request::new(slot, block * BLOCK_BYTES as u64, Work::Write(&memory))
                    })
                    .collect();
                writer.run(&mut batch);
                assert!(batch.iter().all(|request| request.result.is_ok()));
                let mut seen = vec![0; BLOCK_BYTES * 64];
                reader.read_exact_at(&mut seen, 0).unwrap();
                old_count += seen
                    .chunks(BLOCK_BYTES)
                    .filter(|block| block.iter().any(|byte| *byte != round))
                    .count();
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(old_count, 0, "blocks that were old");
        });
    });
}
