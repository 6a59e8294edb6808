//! The ways in which a single write is made durable without a database.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use super::ground::Ground;
use crate::measure::contender::Place;
use crate::quantity::as_float;
use crate::record::WayCount;

/// How long the pace of fdatasync is looked at.
const PACE: Duration = Duration::from_millis(300);
const BLOCK_BYTES: usize = 8192;
/// Each writer goes over these in turn, as a log is written.
const BLOCK_COUNT: u64 = 256;
/// One writer does so many, several do as many each as makes three times that together.
const WRITES: u64 = 48;
/// A slow disk answers fewer.
const LENGTH: Duration = Duration::from_millis(400);

/// A way to make a write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A write and fdatasync.
    Fdatasync,
    /// A write to a file that was opened with `O_DSYNC`.
    OpenDsync,
    /// A write with `RWF_DSYNC`.
    WriteDsync,
    /// A new file, written and synced, renamed over another, and its directory synced.
    Rename,
}

impl Way {
    /// As it is recorded. Those of a single forced write say so: `judgement` reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fdatasync => "fdatasync",
            Self::OpenDsync => "O_DSYNC",
            Self::WriteDsync => "RWF_DSYNC",
            Self::Rename => "rename",
        }
    }
}

/// Those that a place has: a device has no names.
pub fn all(place: &Place) -> &'static [Way] {
    const ALL: [Way; 4] = [Way::Fdatasync, Way::OpenDsync, Way::WriteDsync, Way::Rename];
    match place {
        Place::Directory(_) => &ALL,
        Place::Device(_) => &ALL[..3],
    }
}

/// How many writes of 8 KiB, each followed by fdatasync, it answers a second.
pub fn pace(place: &Place) -> Result<f64> {
    let stage = Stage::set(place, 1)?;
    let file = stage.open(0, OFlags::empty())?;
    let block = vec![2; BLOCK_BYTES];
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < PACE {
        file.write_all_at(&block, stage.offset(0, count))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(as_float(count) / began.elapsed().as_secs_f64())
}

/// Counts one way; nothing where the place does not offer it.
pub fn count(ground: &Ground, place: &Place, way: Way, writers: u32) -> Result<Option<WayCount>> {
    let stage = Stage::set(place, writers)?;
    let each = if writers == 1 {
        WRITES
    } else {
        3 * WRITES / u64::from(writers)
    };
    let before = ground.read();
    let barrier = Barrier::new(writers as usize);
    let results: Vec<Result<Option<u64>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (stage, barrier) = (&stage, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    stage.write(way, writer, each)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a writer of the probe panicked")))
            })
            .collect()
    });
    let mut acknowledged = 0;
    for result in results {
        let Some(count) = result.with_context(|| format!("writing by {}", way.name()))? else {
            return Ok(None);
        };
        acknowledged += count;
    }
    Ok(Some(ground.since(
        &before,
        way.name(),
        writers,
        acknowledged,
    )))
}

/// The files of the probe, written once: what is counted is the flush, not the growth of a file.
struct Stage {
    /// Of the directory; none on a device.
    directory: Option<PathBuf>,
    device: PathBuf,
}

impl Stage {
    fn set(place: &Place, writers: u32) -> Result<Self> {
        let stage = match place {
            Place::Directory(directory) => Self {
                directory: Some(directory.join("durability-probe")),
                device: PathBuf::new(),
            },
            Place::Device(device) => Self {
                directory: None,
                device: device.clone(),
            },
        };
        if let Some(directory) = &stage.directory {
            fs::create_dir(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            for writer in 0..writers {
                let file = File::create_new(named(directory, "file", writer))?;
                let blocks = usize::try_from(BLOCK_COUNT)?;
                file.write_all_at(&vec![1; BLOCK_BYTES * blocks], 0)?;
                file.sync_all()?;
            }
            File::open(directory)?.sync_all()?;
        }
        Ok(stage)
    }

    fn open(&self, writer: u32, flags: OFlags) -> Result<File> {
        let path = self.directory.as_ref().map_or_else(
            || self.device.clone(),
            |directory| named(directory, "file", writer),
        );
        open(&path, flags)
    }

    /// On a device each writer has a stretch of its own.
    fn offset(&self, writer: u32, number: u64) -> u64 {
        let first = match self.directory {
            Some(_) => 0,
            None => u64::from(writer) * BLOCK_COUNT,
        };
        (first + number % BLOCK_COUNT) * BLOCK_BYTES as u64
    }

    /// How many writes were acknowledged; nothing where the place does not offer this way.
    fn write(&self, way: Way, writer: u32, most: u64) -> Result<Option<u64>> {
        let flags = if way == Way::OpenDsync {
            OFlags::DSYNC
        } else {
            OFlags::empty()
        };
        let file = self.open(writer, flags)?;
        let block = vec![3; BLOCK_BYTES];
        let began = Instant::now();
        let mut count = 0;
        // A few even where each takes long.
        while count < most && (count < 4 || began.elapsed() < LENGTH) {
            let offset = self.offset(writer, count);
            match way {
                Way::Fdatasync => {
                    file.write_all_at(&block, offset)?;
                    file.sync_data()?;
                }
                Way::OpenDsync => file.write_all_at(&block, offset)?,
                Way::WriteDsync => {
                    let pieces = [IoSlice::new(&block)];
                    match rustix::io::pwritev2(&file, &pieces, offset, ReadWriteFlags::DSYNC) {
                        Ok(_) => {}
                        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                            return Ok(None);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Way::Rename => match &self.directory {
                    Some(directory) => replace(directory, writer, &block)?,
                    None => return Ok(None),
                },
            }
            count += 1;
        }
        Ok(Some(count))
    }
}

/// Opens a file to write, with these flags besides.
pub fn open(path: &Path, flags: OFlags) -> Result<File> {
    File::options()
        .write(true)
        .custom_flags(i32::try_from(flags.bits())?)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn replace(directory: &Path, writer: u32, block: &[u8]) -> Result<()> {
    let beside = named(directory, "new", writer);
    let file = File::create(&beside)?;
    file.write_all_at(block, 0)?;
    file.sync_all()?;
    fs::rename(&beside, named(directory, "renamed", writer))?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

fn named(directory: &Path, word: &str, writer: u32) -> PathBuf {
    directory.join(format!("{word}-{writer}"))
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What stays goes with the contender.
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
