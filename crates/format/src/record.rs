//! The small records of the catalog: a file's layout, a dirty region, a disk.
//!
//! The table's key says what each is about and the region below carries the checksum; a version
//! byte is all that a record adds.

use serde::Serialize;
use spindle_base::{DiskName, DiskNumber, FailureGroupName, Redundancy, Striping, Uuid};

use crate::error::{FormatError, Structure};
use crate::field::{Reader, Writer};

/// The version of the file record that this program writes.
pub const FILE_RECORD_VERSION: u8 = 1;
/// The bytes of a file record.
pub const FILE_RECORD_BYTES: usize = 16;
/// The version of the dirty-region record that this program writes.
pub const DIRTY_RECORD_VERSION: u8 = 1;
/// The bytes of a dirty-region record before its disks.
pub const DIRTY_RECORD_HEADER_BYTES: usize = 4;
/// The version of the disk record that this program writes.
pub const DISK_RECORD_VERSION: u8 = 1;
/// The bytes of a disk record before its partners.
pub const DISK_RECORD_HEADER_BYTES: usize = 96;

pub(crate) const fn redundancy_code(redundancy: Redundancy) -> u8 {
    match redundancy {
        Redundancy::External => 1,
        Redundancy::Normal => 2,
        Redundancy::High => 3,
    }
}

pub(crate) const fn redundancy_of(code: u8) -> Option<Redundancy> {
    match code {
        1 => Some(Redundancy::External),
        2 => Some(Redundancy::Normal),
        3 => Some(Redundancy::High),
        _ => None,
    }
}

/// How a file's bytes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FileRecord {
    /// Copies of each extent.
    pub redundancy: Redundancy,
    /// How bytes go over extents.
    pub striping: Striping,
}

impl FileRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no file record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::FileRecord, bytes);
        reader.record_version(FILE_RECORD_VERSION)?;
        let redundancy = reader.judged("redundancy", Reader::u8, redundancy_of)?;
        let striping = reader.judged("striping", Reader::u8, |code| match code {
            1 => Some(Striping::Coarse),
            2 => Some(Striping::Fine),
            _ => None,
        })?;
        reader.reserved_until(FILE_RECORD_BYTES)?;
        reader.end()?;
        Ok(Self {
            redundancy,
            striping,
        })
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(FILE_RECORD_BYTES);
        writer.u8(FILE_RECORD_VERSION);
        writer.u8(redundancy_code(self.redundancy));
        writer.u8(match self.striping {
            Striping::Coarse => 1,
            Striping::Fine => 2,
        });
        writer.reserved_until(FILE_RECORD_BYTES);
        writer.finish()
    }
}

/// A region of a mirrored file whose copies may differ after an unclean stop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DirtyRecord {
    /// Disks that missed writes to the region while they were offline, in ascending order; their
    /// copies are stale until a resync. Empty: only an unclean stop makes the copies doubtful.
    pub stale_disks: Vec<DiskNumber>,
}

impl DirtyRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no dirty-region record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::DirtyRecord, bytes);
        reader.record_version(DIRTY_RECORD_VERSION)?;
        reader.reserved(1)?;
        let count = reader.u16()?;
        let stale_disks = ascending_disks(&mut reader, usize::from(count))?;
        reader.end()?;
        Ok(Self { stale_disks })
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// Where the disks are not in ascending order: our own state is wrong then.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.stale_disks.is_sorted_by(|left, right| left < right),
            "stale disks are in ascending order"
        );
        let count = u16::try_from(self.stale_disks.len()).expect("disk numbers have 16 bits");
        let mut writer = Writer::with_capacity(DIRTY_RECORD_HEADER_BYTES + 2 * usize::from(count));
        writer.u8(DIRTY_RECORD_VERSION);
        writer.reserved(1);
        writer.u16(count);
        for disk in &self.stale_disks {
            writer.u16(disk.0);
        }
        writer.finish()
    }
}

/// What the catalog knows of a disk beyond the group state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskRecord {
    /// Its identity, as in its label.
    pub uuid: Uuid,
    /// Its name.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Its usable size in AUs, AU 0 included.
    pub size_aus: u32,
    /// The disks that hold other copies of its extents, in ascending order; empty where they
    /// follow from the set of disks alone.
    pub partners: Vec<DiskNumber>,
}

impl DiskRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no disk record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::DiskRecord, bytes);
        reader.record_version(DISK_RECORD_VERSION)?;
        reader.reserved(1)?;
        let partners = reader.u16()?;
        let size_aus = reader.u32()?;
        let uuid = reader.uuid()?;
        let name = reader.disk_name()?;
        let failure_group = reader.failure_group_name()?;
        reader.reserved_until(DISK_RECORD_HEADER_BYTES)?;
        let partners = ascending_disks(&mut reader, usize::from(partners))?;
        reader.end()?;
        Ok(Self {
            uuid,
            name,
            failure_group,
            size_aus,
            partners,
        })
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// Where the partners are not in ascending order: our own state is wrong then.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.partners.is_sorted_by(|left, right| left < right),
            "partners are in ascending order"
        );
        let mut writer = Writer::with_capacity(DISK_RECORD_HEADER_BYTES + 2 * self.partners.len());
        writer.u8(DISK_RECORD_VERSION);
        writer.reserved(1);
        writer.u16(u16::try_from(self.partners.len()).expect("disk numbers have 16 bits"));
        writer.u32(self.size_aus);
        writer.bytes(&self.uuid.0);
        writer.name(self.name.as_str());
        writer.name(self.failure_group.as_str());
        writer.reserved_until(DISK_RECORD_HEADER_BYTES);
        for disk in &self.partners {
            writer.u16(disk.0);
        }
        writer.finish()
    }
}

/// Disk numbers in strictly ascending order: one way only to write a set.
fn ascending_disks(reader: &mut Reader<'_>, count: usize) -> Result<Vec<DiskNumber>, FormatError> {
    let mut disks: Vec<DiskNumber> = Vec::new();
    for _ in 0..count {
        let disk = reader.judged("disk number", Reader::u16, |number| {
            let disk = DiskNumber(number);
            (number != u16::MAX && disks.last().is_none_or(|last| *last < disk)).then_some(disk)
        })?;
        disks.push(disk);
    }
    Ok(disks)
}
