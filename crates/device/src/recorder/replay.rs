//! Rebuilding disks from a log.
//!
//! Invariants: the images in the work folder hold exactly what is durable at the present cut,
//! whatever luck the disks have; `pending` holds every other write before the cut. Cuts in
//! ascending order apply each record once; an earlier cut starts over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use spindle_base::BLOCK_SIZE_BYTES;

use super::log::RecordKind;
use super::reading::{Record, RecordLog};
use crate::power_cut::{Fate, Mood, SECTOR_BYTES};
use crate::random::SeededRandom;
use crate::request::DiskSlot;

const COPY_BYTES: usize = 1 << 20;

/// Why a log could not be read or replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is no log of this version.
    #[error("{} is no recording that this version can read", .0.display())]
    NoLog(PathBuf),
    /// The cut lies behind the last record.
    #[error("the log has {records} records, there is no cut after {cut}")]
    CutBeyondEnd {
        /// The cut that was asked for.
        cut: usize,
        /// How many records there are.
        records: usize,
    },
    /// Neither the log nor a base image tells what this disk is.
    #[error("the log tells nothing of the disk in slot {}", .0.0)]
    UnknownDisk(DiskSlot),
}

/// What went into one rebuilt set of disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Writes that are durable whatever happens.
    pub durable: u64,
    /// Writes that were answered, but not covered by a flush.
    pub unsynced: u64,
    /// Writes that were under way.
    pub under_way: u64,
    /// How many of the last two sorts the disks kept whole.
    pub kept: u64,
    /// How many of them the disks lost.
    pub lost: u64,
    /// How many of them were torn.
    pub torn: u64,
}

/// A write before the cut that is not durable yet.
#[derive(Debug)]
struct PendingWrite {
    record: Record,
    submitted_at: usize,
    answered_at: Option<usize>,
    failed: bool,
    /// Blocks that a later, durable write has taken the place of; empty while there is none.
    superseded: Vec<bool>,
}

/// Rebuilds disks as power cuts along a log could have left them.
#[derive(Debug)]
pub struct Replayer {
    log: RecordLog,
    bases: BTreeMap<DiskSlot, PathBuf>,
    work_folder: PathBuf,
    durable: BTreeMap<DiskSlot, (PathBuf, File)>,
    cut: usize,
    pending: BTreeMap<u64, PendingWrite>,
    /// Flushes under way: their disk and the place of their record.
    flushes: BTreeMap<u64, (DiskSlot, usize)>,
    durable_count: u64,
}

impl Replayer {
    /// A replayer at the beginning of the log. `bases` are copies of the disks at the start of
    /// the recording; a disk without one began as zeros. Sparse images of the disks go into
    /// `work_folder`, which must be there and stays for the caller to remove.
    ///
    /// # Errors
    /// [`ReplayError`] where the base images cannot be copied.
    pub fn new(
        log: RecordLog,
        bases: BTreeMap<DiskSlot, PathBuf>,
        work_folder: &Path,
    ) -> Result<Self, ReplayError> {
        let mut replayer = Self {
            log,
            bases,
            work_folder: work_folder.to_owned(),
            durable: BTreeMap::new(),
            cut: 0,
            pending: BTreeMap::new(),
            flushes: BTreeMap::new(),
            durable_count: 0,
        };
        replayer.start_over()?;
        Ok(replayer)
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> &RecordLog {
        &self.log
    }

    /// Writes into the `targets` what a power cut after the first `cut` records could have left:
    /// every write that is durable, and of the others any subset in any order, torn at 512
    /// bytes, as `seed` decides. Targets are made anew, sparse.
    ///
    /// # Errors
    /// [`ReplayError`] where there is no such cut or disk, or a file cannot be read or written.
    pub fn rebuild(
        &mut self,
        cut: usize,
        seed: u64,
        targets: &BTreeMap<DiskSlot, PathBuf>,
    ) -> Result<ReplaySummary, ReplayError> {
        let records = self.log.records().len();
        if cut > records {
            return Err(ReplayError::CutBeyondEnd { cut, records });
        }
        if cut < self.cut {
            self.start_over()?;
        }
        while self.cut < cut {
            self.advance()?;
        }
        let mut random = SeededRandom::new(seed);
        let mut summary = ReplaySummary {
            durable: self.durable_count,
            ..ReplaySummary::default()
        };
        for (&slot, path) in targets {
            let (base, image) = self
                .durable
                .get(&slot)
                .ok_or(ReplayError::UnknownDisk(slot))?;
            let target = copy_sparse(base, image, path)?;
            self.lay_over(slot, &target, &mut random, &mut summary)
                .map_err(|error| error.at(path))?;
        }
        Ok(summary)
    }

    fn start_over(&mut self) -> Result<(), ReplayError> {
        self.cut = 0;
        self.durable_count = 0;
        self.pending.clear();
        self.flushes.clear();
        self.durable.clear();
        for (&slot, base) in &self.bases {
            let image = self.image_path(slot);
            let source = File::open(base).map_err(|source| io_error(base, source))?;
            let copy = copy_sparse(base, &source, &image)?;
            self.durable.insert(slot, (image, copy));
        }
        for disk in self.log.disks() {
            if self.durable.contains_key(&disk.slot) {
                continue;
            }
            let image = self.image_path(disk.slot);
            let file = create(&image, disk.size_bytes)?;
            self.durable.insert(disk.slot, (image, file));
        }
        Ok(())
    }

    fn image_path(&self, slot: DiskSlot) -> PathBuf {
        self.work_folder.join(format!("durable-{}.image", slot.0))
    }

    /// Lets one more record happen.
    fn advance(&mut self) -> Result<(), ReplayError> {
        let position = self.cut;
        let record = self.log.records()[position];
        self.cut += 1;
        match record.kind {
            RecordKind::Disk => {}
            RecordKind::Write | RecordKind::WriteDurable => {
                let write = PendingWrite {
                    record,
                    submitted_at: position,
                    answered_at: None,
                    failed: false,
                    superseded: Vec::new(),
                };
                self.pending.insert(record.number, write);
            }
            RecordKind::Flush => {
                self.flushes.insert(record.number, (record.slot, position));
            }
            RecordKind::Done => {
                if let Some((slot, begun_at)) = self.flushes.remove(&record.number) {
                    self.finish_flush(slot, begun_at)?;
                } else if let Some(write) = self.pending.get_mut(&record.number) {
                    write.answered_at = Some(position);
                    if write.record.kind == RecordKind::WriteDurable {
                        self.make_durable(record.number)?;
                    }
                }
            }
            RecordKind::Failed => {
                self.flushes.remove(&record.number);
                // What a failed write left is unknown, now and after any flush.
                if let Some(write) = self.pending.get_mut(&record.number) {
                    write.answered_at = Some(position);
                    write.failed = true;
                }
            }
        }
        Ok(())
    }

    /// A flush covers what was answered before it began.
    fn finish_flush(&mut self, slot: DiskSlot, begun_at: usize) -> Result<(), ReplayError> {
        let is_covered = |write: &PendingWrite| {
            write.record.slot == slot
                && !write.failed
                && write
                    .answered_at
                    .is_some_and(|answered| answered < begun_at)
        };
        let covered: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, write)| is_covered(write))
            .map(|(&number, _)| number)
            .collect();
        for number in covered {
            self.make_durable(number)?;
        }
        Ok(())
    }

    /// Puts a write into the durable image. What was answered before it began and lies under it
    /// can no longer come to light.
    fn make_durable(&mut self, number: u64) -> Result<(), ReplayError> {
        let Some(write) = self.pending.remove(&number) else {
            return Ok(());
        };
        self.durable_count += 1;
        let data = self.log.data(&write.record)?;
        let (path, image) = &self.durable[&write.record.slot];
        lay_sectors(image, &write, &data, |_| true).map_err(|source| io_error(path, source))?;
        let blocks = blocks_of(&write.record);
        for older in self.pending.values_mut() {
            let is_older = older
                .answered_at
                .is_some_and(|answered| answered < write.submitted_at);
            let own = blocks_of(&older.record);
            let is_under = own.start < blocks.end && blocks.start < own.end;
            if older.record.slot != write.record.slot || !is_older || !is_under {
                continue;
            }
            older
                .superseded
                .resize(index_of(own.end - own.start), false);
            for block in own.start.max(blocks.start)..own.end.min(blocks.end) {
                older.superseded[index_of(block - own.start)] = true;
            }
        }
        Ok(())
    }

    /// Lets the writes that are not durable reach the target, or not.
    fn lay_over(
        &self,
        slot: DiskSlot,
        target: &File,
        random: &mut SeededRandom,
        summary: &mut ReplaySummary,
    ) -> Result<(), OverlayError> {
        let mut writes: Vec<&PendingWrite> = self
            .pending
            .values()
            .filter(|write| write.record.slot == slot && write.record.length_bytes > 0)
            .collect();
        let mood = Mood::draw(random);
        if mood == Mood::Mixed {
            random.shuffle(&mut writes);
        }
        for write in writes {
            match write.answered_at {
                Some(_) => summary.unsynced += 1,
                None => summary.under_way += 1,
            }
            let sector_count = index_of(write.record.length_bytes) / SECTOR_BYTES;
            let fate = mood.fate(sector_count, random);
            match fate {
                Fate::Kept => summary.kept += 1,
                Fate::Lost => {
                    summary.lost += 1;
                    continue;
                }
                Fate::TornTo(_) | Fate::Scattered => summary.torn += 1,
            }
            let data = self.log.data(&write.record)?;
            lay_sectors(target, write, &data, |sector| fate.takes(sector, random))?;
        }
        Ok(())
    }
}

/// An error that does not know its file yet, or does.
enum OverlayError {
    Target(io::Error),
    Known(ReplayError),
}

impl From<io::Error> for OverlayError {
    fn from(error: io::Error) -> Self {
        Self::Target(error)
    }
}

impl From<ReplayError> for OverlayError {
    fn from(error: ReplayError) -> Self {
        Self::Known(error)
    }
}

impl OverlayError {
    fn at(self, path: &Path) -> ReplayError {
        match self {
            Self::Target(source) => io_error(path, source),
            Self::Known(error) => error,
        }
    }
}

/// Writes the sectors that are taken and not superseded, neighbours together.
fn lay_sectors(
    image: &File,
    write: &PendingWrite,
    data: &[u8],
    mut takes: impl FnMut(usize) -> bool,
) -> io::Result<()> {
    let sectors_per_block = index_of(BLOCK_SIZE_BYTES) / SECTOR_BYTES;
    let sector_count = data.len() / SECTOR_BYTES;
    let mut taken = |sector: usize| {
        let block = sector / sectors_per_block;
        let is_superseded = write.superseded.get(block).copied().unwrap_or(false);
        takes(sector) && !is_superseded
    };
    let mut run_start = None;
    for sector in 0..=sector_count {
        let is_taken = sector < sector_count && taken(sector);
        match (run_start, is_taken) {
            (None, true) => run_start = Some(sector),
            (Some(start), false) => {
                let bytes = start * SECTOR_BYTES..sector * SECTOR_BYTES;
                let at = write.record.offset_bytes + bytes.start as u64;
                image.write_all_at(&data[bytes], at)?;
                run_start = None;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A new file at `path` with the data of `source`, and holes where that has holes.
fn copy_sparse(source_path: &Path, source: &File, path: &Path) -> Result<File, ReplayError> {
    let size_bytes = rustix::fs::seek(source, SeekFrom::End(0))
        .map_err(|errno| io_error(source_path, errno.into()))?;
    let target = create(path, size_bytes)?;
    let mut memory = vec![0; COPY_BYTES];
    let mut position = 0;
    loop {
        let start = match rustix::fs::seek(source, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(target),
            // A block device has no holes that it could tell.
            Err(Errno::INVAL) => position,
            Err(errno) => return Err(io_error(source_path, errno.into())),
        };
        let end = rustix::fs::seek(source, SeekFrom::Hole(start)).unwrap_or(size_bytes);
        position = start;
        while position < end {
            let length = index_of((end - position).min(COPY_BYTES as u64));
            let piece = &mut memory[..length];
            source
                .read_exact_at(piece, position)
                .map_err(|error| io_error(source_path, error))?;
            target
                .write_all_at(piece, position)
                .map_err(|error| io_error(path, error))?;
            position += length as u64;
        }
        if position >= size_bytes {
            return Ok(target);
        }
    }
}

/// A file of zeros that takes no space, in place of what was there.
fn create(path: &Path, size_bytes: u64) -> Result<File, ReplayError> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .and_then(|file| file.set_len(size_bytes).map(|()| file))
        .map_err(|source| io_error(path, source))
}

const fn blocks_of(record: &Record) -> std::ops::Range<u64> {
    let start = record.offset_bytes / BLOCK_SIZE_BYTES;
    start..start + record.length_bytes / BLOCK_SIZE_BYTES
}

fn io_error(path: &Path, source: io::Error) -> ReplayError {
    ReplayError::Io {
        path: path.to_owned(),
        source,
    }
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("lengths of data fit into memory")
}
