use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use super::UringDisks;
use crate::engine_tests::Folder;
use crate::open::OpenDisk;
use crate::{AlignedBuffer, DeviceErrorKind, DiskSlot, Disks, Request, Work};

const DEADLINE: Duration = Duration::from_millis(200);

/// A disk whose reads wait until somebody writes into the pipe, and whose size is a lie.
fn pipe_disk() -> (OpenDisk, File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let folder = Folder::new("pipe");
    let mut disk = folder.disk("disk", 1 << 20);
    disk.file = File::from(reader);
    (disk, File::from(writer))
}

fn read_kind(disks: &UringDisks, slot: DiskSlot) -> Result<(), DeviceErrorKind> {
    let mut memory = AlignedBuffer::zeroed(4096);
    let mut batch = [Request::new(slot, 0, Work::Read(&mut memory))];
    disks.run(&mut batch);
    batch[0].result.clone().map_err(|error| error.kind)
}

#[test]
fn a_disk_that_does_not_answer_times_out_and_its_neighbours_in_the_batch_do_not() {
    let folder = Folder::new("deadline");
    let disks = UringDisks::with_deadline(DEADLINE).unwrap();
    let good = disks.attach(folder.disk("good", 1 << 20));
    let (disk, mut writer) = pipe_disk();
    let silent = disks.attach(disk);
    let mut memory = AlignedBuffer::zeroed(3 * 4096);
    memory.fill(1);
    let mut pieces = memory.chunks_exact_mut(4096);
    let mut batch =
        [good, silent, good].map(|slot| Request::new(slot, 0, Work::Read(pieces.next().unwrap())));
    let started = Instant::now();
    disks.run(&mut batch);
    assert!(started.elapsed() >= DEADLINE);
    assert!(started.elapsed() < 20 * DEADLINE, "{:?}", started.elapsed());
    let kinds = batch.map(|request| request.result.map_err(|error| error.kind));
    assert_eq!(kinds, [Ok(()), Err(DeviceErrorKind::TimedOut), Ok(())]);
    // The kernel gave the cancelled piece back, so the disk may be tried again at once.
    writer.write_all(&[7; 4096]).unwrap();
    assert_eq!(read_kind(&disks, silent), Ok(()));
    assert_eq!(disks.in_flight_count(silent), 0);
    assert_eq!(disks.counters(silent).errors, 1);
}

#[test]
fn pieces_that_had_to_wait_for_a_place_in_the_ring_time_out_with_the_rest() {
    let disks = UringDisks::with_deadline(DEADLINE).unwrap();
    let (disk, _writer) = pipe_disk();
    let silent = disks.attach(disk);
    let mut memory = AlignedBuffer::zeroed(200 * 4096);
    let mut batch: Vec<_> = memory
        .chunks_exact_mut(4096)
        .map(|piece| Request::new(silent, 0, Work::Read(piece)))
        .collect();
    disks.run(&mut batch);
    let timed_out = |request: &Request<'_>| {
        let kind = request.result.as_ref().map_err(|error| error.kind);
        kind == Err(DeviceErrorKind::TimedOut)
    };
    assert!(batch.iter().all(timed_out));
    assert_eq!(disks.in_flight_count(silent), 0);
}

#[test]
fn short_reads_are_continued() {
    let disks = UringDisks::with_deadline(10 * DEADLINE).unwrap();
    let (disk, mut writer) = pipe_disk();
    let slot = disks.attach(disk);
    let feeder = std::thread::spawn(move || {
        for byte in 1..=8 {
            writer.write_all(&[byte; 512]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut memory = AlignedBuffer::zeroed(4096);
    let mut batch = [Request::new(slot, 0, Work::Read(&mut memory))];
    disks.run(&mut batch);
    batch[0].result.clone().unwrap();
    let sectors: Vec<u8> = memory.chunks(512).map(|sector| sector[511]).collect();
    assert_eq!(sectors, [1, 2, 3, 4, 5, 6, 7, 8]);
    feeder.join().unwrap();
}
