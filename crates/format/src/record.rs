//! The small records of the catalog: a file's layout, a disk.
//!
//! The table's key says what each is about and the region below carries the checksum; a version
//! byte is all that a record adds.

use serde::Serialize;
use spindle_base::{DiskName, DiskNumber, FailureGroupName, Redundancy, Striping, Uuid};

use crate::error::{FormatError, Structure};
use crate::field::{Reader, Writer};

/// The newest version of the file record: that of files whose redundancy was changed.
pub const FILE_RECORD_VERSION: u8 = 2;
/// The version of the record of a file whose rows all have as many copies as it says.
const UNIFORM_FILE_RECORD_VERSION: u8 = 1;
/// The bytes of a file record.
pub const FILE_RECORD_BYTES: usize = 16;
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
    /// The redundancy was changed since the file was made: a row may have fewer copies of each
    /// extent, those that lack are missing then, or more, of which the surplus is to go.
    pub rows_vary: bool,
}

impl FileRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no file record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::FileRecord, bytes);
        let version = reader.record_versions(UNIFORM_FILE_RECORD_VERSION..=FILE_RECORD_VERSION)?;
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
            rows_vary: version == FILE_RECORD_VERSION,
        })
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(FILE_RECORD_BYTES);
        writer.u8(if self.rows_vary {
            FILE_RECORD_VERSION
        } else {
            UNIFORM_FILE_RECORD_VERSION
        });
        writer.u8(redundancy_code(self.redundancy));
        writer.u8(match self.striping {
            Striping::Coarse => 1,
            Striping::Fine => 2,
        });
        writer.reserved_until(FILE_RECORD_BYTES);
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
        let partners = reader.ascending_disks(usize::from(partners))?;
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
