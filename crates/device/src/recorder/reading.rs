//! Reading a log back.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use spindle_base::BLOCK_SIZE_BYTES;

use super::log::{FILE_HEAD_BYTES, HEAD_BYTES, RecordKind, checksum, file_head};
use super::replay::ReplayError;
use crate::request::DiskSlot;

/// No write is this long; a longer one in a log is damage.
const DATA_BYTES_MAX: u64 = 1 << 32;

fn kind_of(byte: u8) -> Option<RecordKind> {
    let known = RecordKind::ALL.iter().find(|(code, _)| *code == byte)?;
    Some(known.1)
}

fn u64_at(bytes: &[u8; HEAD_BYTES], offset: usize) -> u64 {
    let field = bytes[offset..offset + 8].try_into();
    u64::from_le_bytes(field.expect("eight bytes"))
}

/// One record of a log, its data left in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// Which disk.
    pub slot: DiskSlot,
    /// The number of the request, from 1; 0 for a disk.
    pub number: u64,
    /// Where a write goes, in bytes.
    pub offset_bytes: u64,
    /// How much a write has, in bytes.
    pub length_bytes: u64,
    /// When, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    data_position: u64,
}

/// A disk that a log tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedDisk {
    /// The slot that its records name.
    pub slot: DiskSlot,
    /// Its path when it was recorded.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
}

/// A log that was read and checked. Its records stay in memory, 64 bytes each; their data stays
/// in the file.
#[derive(Debug)]
pub struct RecordLog {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
    disks: Vec<RecordedDisk>,
    truncation: Option<String>,
}

impl RecordLog {
    /// Reads a log up to its end, or up to the first record that is incomplete or damaged.
    ///
    /// # Errors
    /// [`ReplayError`] where the file cannot be read or is no log.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let io_error = |source| ReplayError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io_error)?;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut head = [0; FILE_HEAD_BYTES];
        if !read_whole(&mut reader, &mut head).map_err(io_error)? || head != file_head() {
            return Err(ReplayError::NoLog(path.to_owned()));
        }
        let mut records = Vec::new();
        let mut disks: Vec<RecordedDisk> = Vec::new();
        let mut position = FILE_HEAD_BYTES as u64;
        let mut data = Vec::new();
        let truncation = loop {
            let record = match read_record(&mut reader, position, &disks, &mut data) {
                Ok(Some(record)) => record,
                Ok(None) => break None,
                Err(Incomplete::Io(source)) => return Err(io_error(source)),
                Err(Incomplete::Bad(what)) => {
                    break Some(format!(
                        "record {} at byte {position} {what}; it and what follows is left out",
                        records.len()
                    ));
                }
            };
            if record.kind == RecordKind::Disk {
                disks.push(RecordedDisk {
                    slot: record.slot,
                    path: String::from_utf8_lossy(&data).into_owned(),
                    size_bytes: record.offset_bytes,
                });
            }
            position += HEAD_BYTES as u64 + record.length_bytes;
            records.push(record);
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            records,
            disks,
            truncation,
        })
    }

    /// All records in order. A cut is a number of records: those before it had happened.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The disks that the log tells of.
    #[must_use]
    pub fn disks(&self) -> &[RecordedDisk] {
        &self.disks
    }

    /// Why the log ends before its file does, where it does.
    #[must_use]
    pub fn truncation(&self) -> Option<&str> {
        self.truncation.as_deref()
    }

    /// The cut that has all records up to this time.
    #[must_use]
    pub fn cut_at_time(&self, time_ns: u64) -> usize {
        self.records
            .partition_point(|record| record.time_ns <= time_ns)
    }

    /// The data of a write.
    pub(super) fn data(&self, record: &Record) -> Result<Vec<u8>, ReplayError> {
        let length = usize::try_from(record.length_bytes).expect("checked when it was read");
        let mut data = vec![0; length];
        self.file
            .read_exact_at(&mut data, record.data_position)
            .map_err(|source| ReplayError::Io {
                path: self.path.clone(),
                source,
            })?;
        Ok(data)
    }
}

enum Incomplete {
    Io(io::Error),
    Bad(&'static str),
}

/// The record at `position` and its data, checked; none at the end of the file.
fn read_record(
    reader: &mut impl Read,
    position: u64,
    disks: &[RecordedDisk],
    data: &mut Vec<u8>,
) -> Result<Option<Record>, Incomplete> {
    let mut head = [0; HEAD_BYTES];
    let length = read_some(reader, &mut head).map_err(Incomplete::Io)?;
    if length == 0 {
        return Ok(None);
    }
    let length_bytes = u64_at(&head, 8);
    if length < HEAD_BYTES || length_bytes > DATA_BYTES_MAX {
        return Err(Incomplete::Bad("is incomplete"));
    }
    data.clear();
    reader
        .take(length_bytes)
        .read_to_end(data)
        .map_err(Incomplete::Io)?;
    if (data.len() as u64) < length_bytes {
        return Err(Incomplete::Bad("is incomplete"));
    }
    let stored = u32::from_le_bytes(head[40..44].try_into().expect("four bytes"));
    let kind = kind_of(head[0]);
    let (Some(kind), true) = (kind, stored == checksum(&head, data)) else {
        return Err(Incomplete::Bad("is damaged"));
    };
    let record = Record {
        kind,
        slot: DiskSlot(u16::from_le_bytes([head[2], head[3]])),
        number: u64_at(&head, 16),
        offset_bytes: u64_at(&head, 24),
        length_bytes,
        time_ns: u64_at(&head, 32),
        data_position: position + HEAD_BYTES as u64,
    };
    if record.is_sensible(disks) {
        Ok(Some(record))
    } else {
        Err(Incomplete::Bad("contradicts what comes before it"))
    }
}

impl Record {
    /// Whether a write lies on a disk that was met before.
    fn is_sensible(&self, disks: &[RecordedDisk]) -> bool {
        let is_write = matches!(self.kind, RecordKind::Write | RecordKind::WriteDurable);
        if !is_write {
            return true;
        }
        let disk = disks.iter().find(|disk| disk.slot == self.slot);
        let end = self.offset_bytes.checked_add(self.length_bytes);
        let is_whole = (self.offset_bytes | self.length_bytes).is_multiple_of(BLOCK_SIZE_BYTES);
        is_whole && disk.is_some_and(|disk| end.is_some_and(|end| end <= disk.size_bytes))
    }
}

fn read_whole(reader: &mut impl Read, memory: &mut [u8]) -> io::Result<bool> {
    Ok(read_some(reader, memory)? == memory.len())
}

/// Fills the memory as far as the file goes.
fn read_some(reader: &mut impl Read, memory: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < memory.len() {
        match reader.read(&mut memory[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
