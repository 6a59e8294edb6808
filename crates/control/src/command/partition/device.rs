//! A whole device that nobody else uses while its table is written.
//!
//! udev looks at every partition that the kernel reads in a table, and reads the table itself when
//! somebody has closed the device: it would hold the partitions that are to go, and take the new one
//! away while a group opens it. It leaves a device alone that has an exclusive `flock`. That lock
//! is on a descriptor that cannot write, of which the closing is no event for it.

use std::error::Error;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gpt::GptConfig;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::{OperatingSystem, Type};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use spindle_device::OpenDisk;
use spindle_format::{SIGNATURE_END_BYTES, SIGNATURE_START_BYTES};

use super::{NUMBER, Plan, START_BYTES, TYPE, in_use, takes_none, written_and_not_read};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// How long those are waited for who look at a device and its partitions.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_INTERVAL: Duration = Duration::from_millis(20);

/// The device. Dropping it gives it up.
pub(super) struct WholeDevice<'a> {
    path: &'a Path,
    /// Keeps others away who lock devices.
    lock: File,
    /// Keeps everybody away who takes a device for himself.
    alone: OpenDisk,
    file: File,
}

impl<'a> WholeDevice<'a> {
    /// # Errors
    /// Where it is in use, and stays so, or cannot be opened.
    pub(super) fn take(path: &'a Path) -> ControlResult<Self> {
        let failed = |error: std::io::Error| ControlError::io("open", path.display(), &error);
        let lock = File::open(path).map_err(failed)?;
        let lock_it = || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        patiently(lock_it).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                let message = format!(
                    "{} is locked by another program: wait until that has ended",
                    path.display()
                );
                ControlError::new(ControlErrorKind::Busy, message)
            }
            error => ControlError::io("lock", path.display(), &error.into()),
        })?;
        let alone = OpenDisk::open(path)?;
        let file = File::options().read(true).write(true).open(path);
        Ok(Self {
            path,
            lock,
            alone,
            file: file.map_err(failed)?,
        })
    }

    /// Has the kernel read the partitions before anything is written: none may be in use, and a
    /// loop device may say only here that it takes none.
    pub(super) fn try_partitions(&self) -> ControlResult<()> {
        self.read_partitions().map_err(|error| match error {
            Errno::INVAL => takes_none(self.path),
            Errno::BUSY => in_use(self.path),
            error => {
                let doing = "have the kernel read the partitions of";
                ControlError::io(doing, self.path.display(), &error.into())
            }
        })
    }

    /// Writes the table with the one partition, and tells the kernel of it.
    pub(super) fn write(&mut self, plan: &Plan) -> ControlResult<()> {
        let path = self.path;
        let failed = |error: std::io::Error| ControlError::io("write", path.display(), &error);
        self.zero_ends(plan).map_err(failed)?;
        self.write_table(plan)?;
        self.file.sync_all().map_err(failed)?;
        self.read_partitions().map_err(|error| {
            written_and_not_read(path, &format!("it cannot read them: {error}"))
        })?;
        match spindle_device::add_partition(&self.alone, NUMBER, START_BYTES, plan.length_bytes) {
            // The kernel has read it in the table, or has others, which is judged by what it shows.
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(error) => Err(written_and_not_read(
                path,
                &format!("it cannot be told of it: {error}"),
            )),
        }
    }

    /// The lock, when the partition is to be opened: nobody can while the device is held.
    pub(super) fn into_lock(self) -> File {
        self.lock
    }

    fn read_partitions(&self) -> Result<(), Errno> {
        patiently(|| spindle_device::read_partitions_anew(&self.alone))
    }

    /// Of labels, file systems and other tables that stood there nothing is found any more, nor in
    /// the partition: one that no group took yet is known by that.
    fn zero_ends(&mut self, plan: &Plan) -> std::io::Result<()> {
        const PIECE_BYTES: u64 = 64 << 10;
        let start = START_BYTES + SIGNATURE_START_BYTES as u64;
        let end = (START_BYTES + plan.length_bytes).min(plan.size_bytes);
        let end = end.saturating_sub(SIGNATURE_END_BYTES as u64).max(start);
        let zeros = vec![0; 64 << 10];
        for (mut place, end) in [(0, start), (end, plan.size_bytes)] {
            self.file.seek(SeekFrom::Start(place))?;
            while place < end {
                let length = (end - place).min(PIECE_BYTES);
                let piece = usize::try_from(length).unwrap_or(zeros.len());
                self.file.write_all(&zeros[..piece])?;
                place += length;
            }
        }
        Ok(())
    }

    fn write_table(&mut self, plan: &Plan) -> ControlResult<()> {
        let cannot_write = |error| self::cannot_write(self.path, error);
        let sector_bytes = plan.sector.as_u64();
        let sectors = (plan.size_bytes / sector_bytes).saturating_sub(1);
        let protective = ProtectiveMBR::with_lb_size(u32::try_from(sectors).unwrap_or(u32::MAX));
        protective
            .overwrite_lba0(&mut self.file)
            .map_err(|error| self::cannot_write(self.path, error))?;
        let mut table = GptConfig::new()
            .writable(true)
            .logical_block_size(plan.sector)
            .create_from_device(&mut self.file, None)
            .map_err(cannot_write)?;
        let kind = Type {
            guid: TYPE,
            os: OperatingSystem::Custom("spindle".to_owned()),
        };
        let first = START_BYTES / sector_bytes;
        let count = plan.length_bytes / sector_bytes;
        table
            .add_partition_at("spindle", NUMBER, first, count, kind, 0)
            .map_err(cannot_write)?;
        table.write_inplace().map_err(cannot_write)
    }
}

fn cannot_write(path: &Path, error: impl Error + Send + Sync + 'static) -> ControlError {
    let message = format!("cannot write a partition table to {}", path.display());
    ControlError::new(ControlErrorKind::Io, message).because(error)
}

/// Asks as long as [`PATIENCE`] allows while somebody is in the way.
fn patiently<T>(ask: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => {
                thread::sleep(PATIENCE_INTERVAL);
            }
            answer => return answer,
        }
    }
}
