//! How long a commit keeps writers waiting while it closes its books over many changed maps.
//!
//! `seal_hold PATH PATH [FILES] [ROUNDS]` makes a group of normal redundancy over the disks at the
//! two paths, which lose what they hold. In each round every file gets a new extent, so that as
//! many maps are dirty, and then one thread commits while another begins and ends changes, which
//! is what a writer to new space waits for. It prints each round's commit, the longest wait while
//! the commit went on, and the longest of a stretch of the same length without one: what the
//! machine itself adds.
//!
//! `chrt -f 10 seal_hold PATH PATH 4000 2` keeps other programs from taking the processor away. With
//! more rounds the kernel does: it stops such threads for 50 ms in each second, and the figure is its.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{AlignedBuffer, DEADLINE_DEFAULT, Disks, OpenDisk, open_engine};
use spindle_group::{Group, Layout, NewDisk, NewGroup, Opener};

const BLOCK_BYTES: u64 = 8 << 10;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut path = || {
        arguments
            .next()
            .map(PathBuf::from)
            .ok_or("two paths, please")
    };
    let paths = [path()?, path()?];
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let files: u64 = number(4000)?;
    let rounds: u64 = number(10)?;
    let group = make(&paths)?;
    let layout = Layout {
        redundancy: Redundancy::Normal,
        striping: Striping::Coarse,
    };
    let mut all = Vec::new();
    for id in 0..files {
        all.push(group.create_file(&group.change(), FileId(id + 2), layout)?);
    }
    group.sync()?;
    let mut block = AlignedBuffer::zeroed(usize::try_from(BLOCK_BYTES)?);
    block.fill(7);
    for round in 0..rounds {
        for file in &all {
            group.write(file, round * BLOCK_BYTES, &block)?;
        }
        let is_over = AtomicBool::new(false);
        let (commit, with) = std::thread::scope(|scope| {
            let waits = scope.spawn(|| longest_wait(&group, || is_over.load(Ordering::Relaxed)));
            let began = Instant::now();
            let answer = group.sync();
            let commit = began.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let with = waits.join().map_err(|_| "a thread panicked")?;
            answer?;
            Ok::<_, Failure>((commit, with))
        })?;
        let began = Instant::now();
        let without = longest_wait(&group, || began.elapsed() >= commit);
        println!(
            "{files} maps: commit {commit:.1?}, longest wait {with:.3?} beside it, {without:.3?} without"
        );
    }
    group.close()?;
    Ok(())
}

/// The longest time that a change took to begin and end.
fn longest_wait(group: &Group, is_over: impl Fn() -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over() {
        let began = Instant::now();
        drop(group.change());
        longest = longest.max(began.elapsed());
    }
    longest
}

fn make(paths: &[PathBuf]) -> Result<Group, Failure> {
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
    let name = GroupName::new("SEAL")?;
    let new_group = NewGroup {
        name: name.clone(),
        uuid: Uuid([9; 16]),
        redundancy: Redundancy::Normal,
        au_size: AuSize::DEFAULT,
        disks: new_disks,
        profile: "plain".to_owned(),
        created_s: 1,
    };
    Group::create(Arc::clone(&disks), &new_group)?;
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
    Ok(Group::open(disks, &slots, &name, &opener)?)
}
