//! What the record of dirty regions costs: 8 KiB random writes at depth 16 to a mirrored file,
//! with the record and without.
//!
//! `dirty_record_cost [--seconds N] PATH...` makes two groups of normal redundancy over the disks
//! at these paths, which lose what they hold: the first half keeps the record, the second does
//! not. Sixteen threads write to one and then to the other, in turns of a fraction of a second, so
//! that both meet the same machine; the lazy work of each goes on as a daemon does it. It prints
//! JSON: writes a second of both.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{AlignedBuffer, DEADLINE_DEFAULT, Disks, OpenDisk, SeededRandom, open_engine};
use spindle_group::{File, Group, Layout, NewDisk, NewGroup, Opener};

const DEPTH: u64 = 16;
const WRITE_BYTES: u64 = 8 << 10;
const FILE_BYTES: u64 = 512 << 20;
const FILL_BYTES: u64 = 1 << 20;
/// A turn of one of them.
const TURN: Duration = Duration::from_millis(500);
/// As often as the daemon asks for lazy work.
const STEP_INTERVAL: Duration = Duration::from_millis(200);

type Failure = Box<dyn std::error::Error>;

struct Side {
    group: Group,
    file: Arc<File>,
    writes: u64,
    seconds: f64,
}

fn main() -> Result<(), Failure> {
    let mut seconds = 8.0;
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            seconds = arguments
                .next()
                .ok_or("--seconds needs a number")?
                .parse()?;
        } else {
            paths.push(PathBuf::from(argument));
        }
    }
    if paths.len() < 4 || paths.len() % 2 == 1 {
        return Err(
            "usage: dirty_record_cost [--seconds N] PATH... (an even number, at least 4)".into(),
        );
    }
    let (first, second) = paths.split_at(paths.len() / 2);
    let mut with = Side::make("WITH", first)?;
    let mut without = Side::make("WITHOUT", second)?;
    without.group.leave_out_dirty_record();
    let began = Instant::now();
    let mut turn = 0;
    while began.elapsed().as_secs_f64() < seconds {
        // Each goes first as often as the other.
        let order = if turn % 2 == 0 {
            [&mut with, &mut without]
        } else {
            [&mut without, &mut with]
        };
        for side in order {
            side.turn(turn, began)?;
        }
        turn += 1;
    }
    println!(
        "{{\"with_per_second\": {:.0}, \"without_per_second\": {:.0}, \"ratio\": {:.4}}}",
        with.rate(),
        without.rate(),
        with.rate() / without.rate()
    );
    with.group.close()?;
    without.group.close()?;
    Ok(())
}

impl Side {
    fn make(name: &str, paths: &[PathBuf]) -> Result<Self, Failure> {
        let (engine, _) = open_engine(DEADLINE_DEFAULT);
        let mut slots = Vec::new();
        let mut new_disks = Vec::new();
        for (number, path) in (1_u8..).zip(paths) {
            let slot = engine.attach(OpenDisk::open(path)?);
            slots.push(slot);
            new_disks.push(NewDisk {
                slot,
                name: DiskName::new(format!("D{number}"))?,
                failure_group: FailureGroupName::new(format!("F{number}"))?,
                uuid: Uuid([number; 16]),
            });
        }
        let disks: Arc<dyn Disks> = Arc::new(engine);
        let name = GroupName::new(name)?;
        Group::create(
            Arc::clone(&disks),
            &NewGroup {
                name: name.clone(),
                uuid: Uuid([9; 16]),
                redundancy: Redundancy::Normal,
                au_size: AuSize::DEFAULT,
                disks: new_disks,
                profile: "plain".to_owned(),
                created_s: 1,
            },
        )?;
        let opener = Opener {
            host: "measurement".to_owned(),
            origin: None,
            booted_s: None,
            boot: Uuid([1; 16]),
            process_id: std::process::id(),
            now_s: 1,
            force: false,
            preferred_failure_group: None,
        };
        let group = Group::open(disks, &slots, &name, &opener)?;
        let layout = Layout {
            redundancy: Redundancy::Normal,
            striping: Striping::Coarse,
        };
        let file = group.create_file(&group.change(), FileId(2), layout)?;
        let mut buffer = AlignedBuffer::zeroed(usize::try_from(FILL_BYTES)?);
        buffer.fill(7);
        for at in (0..FILE_BYTES).step_by(usize::try_from(FILL_BYTES)?) {
            group.write(&file, at, &buffer)?;
        }
        group.sync()?;
        Ok(Self {
            group,
            file,
            writes: 0,
            seconds: 0.0,
        })
    }

    fn rate(&self) -> f64 {
        self.writes as f64 / self.seconds
    }

    /// Sixteen threads write for one turn; a further one does the lazy work.
    fn turn(&mut self, number: u64, clock: Instant) -> Result<(), Failure> {
        let is_over = AtomicBool::new(false);
        let writes = AtomicU64::new(0);
        let (group, file) = (&self.group, &self.file);
        let began = Instant::now();
        let answer = std::thread::scope(|scope| {
            let lazy = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let now_ms = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
                    group.step(now_ms)?;
                    std::thread::park_timeout(STEP_INTERVAL);
                }
                Ok::<(), spindle_group::GroupError>(())
            });
            let writers: Vec<_> = (0..DEPTH)
                .map(|thread| {
                    let writes = &writes;
                    scope.spawn(move || {
                        let mut random = SeededRandom::new(number << 8 | thread);
                        let mut buffer = AlignedBuffer::zeroed(8 << 10);
                        buffer.fill(3);
                        while began.elapsed() < TURN {
                            let at = random.below(FILE_BYTES / WRITE_BYTES) * WRITE_BYTES;
                            group.write(file, at, &buffer)?;
                            writes.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok::<(), spindle_group::GroupError>(())
                    })
                })
                .collect();
            let answers: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            let seconds = began.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            lazy.thread().unpark();
            for answer in answers.into_iter().chain([lazy.join()]) {
                answer.map_err(|_| "a thread panicked")??;
            }
            Ok::<f64, Failure>(seconds)
        });
        self.seconds += answer?;
        self.writes += writes.load(Ordering::Relaxed);
        Ok(())
    }
}
