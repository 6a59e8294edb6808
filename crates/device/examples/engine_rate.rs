//! How near the engine comes to raw io_uring: the same reads of the same disks, side by side.
//!
//! `engine_rate [--seconds N] PATH...` reads (never writes) the disks at these paths: 8 KiB at
//! random, one at a time, 32 in a batch, and by two threads, then 1 MiB in sequence. Engine and
//! raw loop take turns of a fraction of a second each, so that both meet the same machine. It
//! prints JSON: for each workload both rates, the time and the processor time of the calling thread
//! per request, and the ratios. On a machine that does other things meanwhile only the ratio of
//! processor times tells anything, and only for devices that answer within the call.
#![allow(
    unsafe_code,
    reason = "the raw loop hands memory to the kernel, as the engine it is compared with does"
)]

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use nix::time::{ClockId, clock_gettime};
use spindle_device::{
    AlignedBuffer, DiskSlot, Disks, OpenDisk, Request, SeededRandom, UringDisks, Work,
};

/// Turns that engine and raw loop each take for one workload.
const TURNS: u32 = 16;

#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    length_bytes: usize,
    depth: usize,
    threads: usize,
    sequential: bool,
}

const WORKLOADS: [Workload; 6] = [
    Workload::random("random_8k_depth_1", 1, 1),
    Workload::random("random_8k_depth_4", 4, 1),
    Workload::random("random_8k_depth_32", 32, 1),
    Workload::random("random_8k_depth_1_two_threads", 1, 2),
    Workload::random("random_8k_depth_32_two_threads", 32, 2),
    Workload {
        name: "sequential_1m_depth_4",
        length_bytes: 1 << 20,
        depth: 4,
        threads: 1,
        sequential: true,
    },
];

impl Workload {
    const fn random(name: &'static str, depth: usize, threads: usize) -> Self {
        Self {
            name,
            length_bytes: 8192,
            depth,
            threads,
            sequential: false,
        }
    }
}

/// Where the next read goes: a disk and an offset.
struct Places {
    workload: Workload,
    disks: u64,
    slots_per_disk: u64,
    random: SeededRandom,
    next: u64,
}

impl Places {
    fn next(&mut self) -> (u16, u64) {
        let place = if self.workload.sequential {
            self.next += 1;
            self.next % (self.disks * self.slots_per_disk)
        } else {
            self.random.below(self.disks * self.slots_per_disk)
        };
        let disk = u16::try_from(place % self.disks).expect("few disks");
        (disk, place / self.disks * self.workload.length_bytes as u64)
    }
}

fn main() {
    let mut seconds = 2.0;
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let text = arguments.next().expect("--seconds needs a number");
            seconds = text.parse().expect("--seconds needs a number");
        } else {
            paths.push(PathBuf::from(argument));
        }
    }
    assert!(
        !paths.is_empty(),
        "usage: engine_rate [--seconds N] PATH..."
    );
    let files: Vec<OpenDisk> = paths.iter().map(|path| open(path)).collect();
    let engine = UringDisks::new().expect("this machine has no io_uring");
    for path in &paths {
        engine.attach(open(path));
    }
    let turn = Duration::from_secs_f64(seconds / f64::from(2 * TURNS));
    println!("{{");
    for (index, workload) in WORKLOADS.into_iter().enumerate() {
        let comma = if index + 1 < WORKLOADS.len() { "," } else { "" };
        println!("  {}{comma}", compare(workload, &files, &engine, turn));
    }
    println!("}}");
}

/// The raw loop has descriptors of its own, opened in the same way.
fn open(path: &Path) -> OpenDisk {
    OpenDisk::open_read_only(path).expect("the disk can be opened")
}

fn compare(workload: Workload, files: &[OpenDisk], engine: &UringDisks, turn: Duration) -> String {
    let (mut raw, mut ours) = (Sum::default(), Sum::default());
    for number in 0..u64::from(TURNS) {
        raw.add(&in_threads(workload, files, engine, number, |places| {
            raw_turn(files, places, turn)
        }));
        ours.add(&in_threads(workload, files, engine, number, |places| {
            engine_turn(engine, places, turn)
        }));
    }
    let (raw_rate, engine_rate) = (raw.per_second(), ours.per_second());
    let cost_us = |rate: f64| 1e6 / rate;
    format!(
        "\"{}\": {{\"raw_per_second\": {raw_rate:.0}, \"engine_per_second\": {engine_rate:.0}, \
         \"raw_us\": {:.3}, \"engine_us\": {:.3}, \"ratio\": {:.3}, \"raw_processor_us\": {:.3}, \
         \"engine_processor_us\": {:.3}, \"processor_ratio\": {:.3}}}",
        workload.name,
        cost_us(raw_rate),
        cost_us(engine_rate),
        engine_rate / raw_rate,
        raw.processor_us(),
        ours.processor_us(),
        raw.processor_us() / ours.processor_us()
    )
}

/// Requests and the time they took.
#[derive(Default)]
struct Sum {
    requests: u32,
    seconds: f64,
    processor_seconds: f64,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.processor_seconds += other.processor_seconds;
        self.seconds += other.seconds;
    }

    fn per_second(&self) -> f64 {
        f64::from(self.requests) / self.seconds
    }

    fn processor_us(&self) -> f64 {
        self.processor_seconds * 1e6 / f64::from(self.requests)
    }
}

/// Measures one turn of one thread.
struct Watch {
    started: Instant,
    processor_started: f64,
}

impl Watch {
    fn start() -> Self {
        Self {
            started: Instant::now(),
            processor_started: processor_seconds(),
        }
    }

    fn stop(&self, requests: u32) -> Sum {
        Sum {
            requests,
            seconds: self.started.elapsed().as_secs_f64(),
            processor_seconds: processor_seconds() - self.processor_started,
        }
    }
}

fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel has it");
    used.tv_sec() as f64 + used.tv_nsec() as f64 / 1e9
}

fn in_threads(
    workload: Workload,
    files: &[OpenDisk],
    engine: &UringDisks,
    number: u64,
    turn: impl Fn(Places) -> Sum + Sync,
) -> Sum {
    let slots = 0..u16::try_from(files.len()).expect("few disks");
    let size_bytes = slots
        .map(|slot| engine.size_bytes(DiskSlot(slot)))
        .min()
        .expect("at least one disk");
    let places = |thread: usize| Places {
        workload,
        disks: files.len() as u64,
        slots_per_disk: size_bytes / workload.length_bytes as u64,
        random: SeededRandom::new(number << 8 | thread as u64),
        next: 0,
    };
    let sums: Vec<Sum> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workload.threads)
            .map(|thread| {
                let (turn, places) = (&turn, places(thread));
                scope.spawn(move || turn(places))
            })
            .collect();
        let finished = threads.into_iter().map(|thread| thread.join());
        finished.map(|sum| sum.expect("no thread fails")).collect()
    });
    Sum {
        requests: sums.iter().map(|sum| sum.requests).sum(),
        seconds: sums.iter().map(|sum| sum.seconds).sum::<f64>() / sums.len() as f64,
        processor_seconds: sums.iter().map(|sum| sum.processor_seconds).sum(),
    }
}

fn buffers(workload: Workload) -> Vec<AlignedBuffer> {
    let one = |_| {
        let mut buffer = AlignedBuffer::zeroed(workload.length_bytes);
        // Touched now, so that no turn pays for the first use of a page.
        buffer.fill(1);
        buffer
    };
    (0..workload.depth).map(one).collect()
}

/// The least that can be done with io_uring: queue, enter once, take the answers.
fn raw_turn(files: &[OpenDisk], mut places: Places, turn: Duration) -> Sum {
    let workload = places.workload;
    let mut buffers = buffers(workload);
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(128)
        .expect("the engine has a ring, so there is one");
    let length = u32::try_from(workload.length_bytes).expect("short");
    let watch = Watch::start();
    let mut requests = 0;
    while watch.started.elapsed() < turn {
        let mut submission = ring.submission();
        for buffer in &mut buffers {
            let (disk, offset_bytes) = places.next();
            let file = types::Fd(files[usize::from(disk)].as_fd().as_raw_fd());
            let entry = opcode::Read::new(file, buffer.as_mut_ptr(), length)
                .offset(offset_bytes)
                .build();
            // SAFETY: the buffers outlive the loop, which takes every answer before its next
            // round and before it ends.
            unsafe { submission.push(&entry) }.expect("the ring has room");
        }
        drop(submission);
        ring.submit_and_wait(workload.depth)
            .expect("the kernel takes a batch");
        for answer in ring.completion() {
            assert_eq!(answer.result(), length.cast_signed(), "a whole read");
            requests += 1;
        }
    }
    watch.stop(requests)
}

fn engine_turn(engine: &UringDisks, mut places: Places, turn: Duration) -> Sum {
    let workload = places.workload;
    let mut buffers = buffers(workload);
    let mut batch: Vec<Request<'_>> = (buffers.iter_mut())
        .map(|buffer| {
            // As the mount reads: into memory that the engine can keep.
            let whole = buffer.lend(0..workload.length_bytes);
            Request::new(DiskSlot(0), 0, Work::ReadPart(whole))
        })
        .collect();
    let watch = Watch::start();
    let mut requests = 0;
    while watch.started.elapsed() < turn {
        for request in &mut batch {
            let (disk, offset_bytes) = places.next();
            request.slot = DiskSlot(disk);
            request.offset_bytes = offset_bytes;
        }
        engine.run(&mut batch);
        for request in &batch {
            assert!(request.result.is_ok(), "a whole read");
            requests += 1;
        }
    }
    watch.stop(requests)
}
