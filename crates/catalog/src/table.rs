//! The tables and their keys. Keys are big-endian, so that a range is in the order of the numbers.

use redb::TableDefinition;
use spindle_base::FileId;

/// The tables of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Group-wide values by name: next file id, profile, templates, attributes.
    Attribute,
    /// Disk number (u16) to the disk's record.
    Disk,
    /// File id (u64) to the POSIX inode record.
    Inode,
    /// Directory id (u64), then the name's bytes, to the entry's record (file id, kind).
    Name,
    /// File id (u64), then the attribute's name, to its value.
    ExtendedAttribute,
    /// File id (u64) to the file's layout record (redundancy, striping, extents).
    File,
    /// File id (u64), row (u32) to 128 packed extents.
    Extent,
    /// File id (u64), region (u32) to the dirty-region record.
    DirtyRegion,
    /// File id (u64): files that are open but have no name, removed at the next mount.
    Orphan,
    /// Job number (u64) to a long operation's record.
    Job,
    /// Severity (u8), then a number that grows (u64), to the record of an event.
    Event,
}

/// How the library sees every table: bytes to bytes.
pub(crate) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

impl Table {
    /// How many there are.
    pub(crate) const COUNT: usize = 11;

    /// Every table, in the order of [`Table::index`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::Attribute,
        Self::Disk,
        Self::Inode,
        Self::Name,
        Self::ExtendedAttribute,
        Self::File,
        Self::Extent,
        Self::DirtyRegion,
        Self::Orphan,
        Self::Job,
        Self::Event,
    ];

    /// Its place in an array of all tables.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// For how many rows a change counts where pages are: one that lies beside a value of 64 KiB
    /// copies a leaf of 128 KiB.
    pub(crate) const fn rows_of_a_change(self) -> usize {
        match self {
            Self::ExtendedAttribute => 12,
            _ => 1,
        }
    }

    /// Its number in the journal, part of the on-disk format: never to be changed.
    #[expect(clippy::cast_possible_truncation, reason = "there are eleven tables")]
    pub(crate) const fn number(self) -> u8 {
        self.index() as u8
    }

    /// The table with that number in the journal.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its name inside `redb`, part of the on-disk format: never to be changed.
    pub(crate) const fn definition(self) -> Definition {
        TableDefinition::new(match self {
            Self::Attribute => "attribute",
            Self::Disk => "disk",
            Self::Inode => "inode",
            Self::Name => "name",
            Self::ExtendedAttribute => "extended_attribute",
            Self::File => "file",
            Self::Extent => "extent",
            Self::DirtyRegion => "dirty_region",
            Self::Orphan => "orphan",
            Self::Job => "job",
            Self::Event => "event",
        })
    }
}

/// The key of a file in the tables keyed by file id alone.
#[must_use]
pub fn file_key(id: FileId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn every_table_stands_at_its_own_index() {
        for (index, table) in Table::ALL.into_iter().enumerate() {
            assert_eq!(table.index(), index);
        }
    }
}
