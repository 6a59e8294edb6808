//! How long a group of many extents takes to open, and how much memory.
//!
//! `mount_scale DIRECTORY EXTENTS` makes a group of four sparse file disks in the directory,
//! reserves so many extents of one AU at normal redundancy, and opens it in a fresh process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{DEADLINE_DEFAULT, DiskSlot, Disks, OpenDisk, open_engine};
use spindle_group::{Group, Layout, NewDisk, NewGroup, Opener};

const DISKS: u16 = 4;
/// Extents of one file: below the number from which they have four AUs.
const EXTENTS_PER_FILE: u64 = 16_384;
const MIB: u64 = 1 << 20;

type Failure = Box<dyn std::error::Error>;

fn attach(directory: &Path) -> Result<(Arc<dyn Disks>, Vec<DiskSlot>), Failure> {
    let (engine, _) = open_engine(DEADLINE_DEFAULT);
    let mut slots = Vec::new();
    for number in 0..DISKS {
        slots.push(engine.attach(OpenDisk::open(&path(directory, number))?));
    }
    Ok((Arc::new(engine), slots))
}

fn path(directory: &Path, number: u16) -> PathBuf {
    directory.join(format!("disk{number}"))
}

fn opener() -> Opener {
    Opener {
        host: "measurement".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([1; 16]),
        process_id: std::process::id(),
        now_s: 1,
        force: false,
        preferred_failure_group: None,
    }
}

fn make(directory: &Path, extents: u64) -> Result<(), Failure> {
    let disk_bytes = (extents * 2 / u64::from(DISKS) * 11 / 10 + 256) * MIB;
    for number in 0..DISKS {
        std::fs::File::create(path(directory, number))?.set_len(disk_bytes)?;
    }
    let (disks, slots) = attach(directory)?;
    let mut new_disks = Vec::new();
    for (number, slot) in (0..DISKS).zip(&slots) {
        new_disks.push(NewDisk {
            slot: *slot,
            name: DiskName::new(format!("D{number}"))?,
            failure_group: FailureGroupName::new(format!("F{}", number / 2))?,
            uuid: Uuid([u8::try_from(number)? + 1; 16]),
        });
    }
    let name = GroupName::new("SCALE")?;
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
    let group = Group::open(disks, &slots, &name, &opener())?;
    let started = Instant::now();
    let mut left = extents;
    for id in 2.. {
        if left == 0 {
            break;
        }
        let layout = Layout {
            redundancy: Redundancy::Normal,
            striping: Striping::Coarse,
        };
        let file = group.create_file(&group.change(), FileId(id), layout)?;
        let count = left.min(EXTENTS_PER_FILE);
        group.allocate(&file, 0, count * MIB)?;
        left -= count;
        if id % 16 == 0 {
            group.sync()?;
        }
    }
    group.close()?;
    println!("reserved {extents} extents in {:.2?}", started.elapsed());
    Ok(())
}

fn open(directory: &Path) -> Result<(), Failure> {
    let (disks, slots) = attach(directory)?;
    let before = resident_bytes()?;
    let started = Instant::now();
    let group = Group::open(disks, &slots, &GroupName::new("SCALE")?, &opener())?;
    let elapsed = started.elapsed();
    let extents = group.view().extents_count;
    let grown = resident_bytes()?.saturating_sub(before);
    let limit = 64 * MIB + 32 * extents;
    println!(
        "opened {extents} extents in {elapsed:.3?}; resident memory grew by {:.1} MiB ({:.1} bytes \
         an extent; the aim is at most {:.1} MiB)",
        grown as f64 / MIB as f64,
        grown as f64 / extents as f64,
        limit as f64 / MIB as f64
    );
    group.close()?;
    Ok(())
}

fn resident_bytes() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status
        .split_whitespace()
        .nth(1)
        .ok_or("statm has a second field")?
        .parse()?;
    Ok(pages * 4096)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("a directory is missing")?);
    let what = arguments.next().ok_or("a number of extents is missing")?;
    if what == "open" {
        return open(&directory);
    }
    make(&directory, what.parse()?)?;
    for _ in 0..3 {
        let status = Command::new(std::env::current_exe()?)
            .arg(&directory)
            .arg("open")
            .status()?;
        if !status.success() {
            return Err("the opening failed".into());
        }
    }
    for number in 0..DISKS {
        std::fs::remove_file(path(&directory, number))?;
    }
    Ok(())
}
