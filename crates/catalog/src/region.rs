//! What the catalog stands on: a block-addressed store that the group replicates.

use spindle_base::Uuid;

use crate::CatalogError;

/// A replica's journal, as far as it can be read.
#[derive(Debug, Clone)]
pub struct JournalCopy {
    /// Whole blocks; zeros stand for those that could not be read.
    pub bytes: Vec<u8>,
    /// Of each block whether it was read.
    pub read: Vec<bool>,
}

/// The journal as its replicas hold it.
#[derive(Debug, Clone)]
pub struct Journals {
    /// That of each replica.
    pub copies: Vec<JournalCopy>,
    /// A person has forced the opening: the journal ends before the first block that no replica
    /// gives, whatever was there. Else the opening is refused.
    pub ends_where_unread: bool,
}

/// The block-addressed store that the catalog stands on; the group gives it, replicated over
/// its disks. Addresses are in bytes, multiples of 4,096; blocks never written read as zeros.
///
/// Writes are buffered by the catalog and arrive in one call with the flush that ends them, so
/// an implementation may send all of them in one batch to all replicas and flush once.
pub trait Region: Send + Sync + std::fmt::Debug {
    /// Bytes that can be addressed now.
    fn size_bytes(&self) -> u64;
    /// Bytes that it can grow to for certain: what is set aside for it on every replica.
    fn capacity_bytes(&self) -> u64;
    /// Sets so much aside, where there is room for it; its size stays.
    ///
    /// # Errors
    /// [`CatalogError::Full`], or [`CatalogError::Region`] where it cannot be written.
    fn set_aside(&self, bytes: u64) -> Result<(), CatalogError>;
    /// Makes at least `bytes` addressable.
    ///
    /// # Errors
    /// [`CatalogError::Full`] where the group has no room for it.
    fn grow(&self, bytes: u64) -> Result<(), CatalogError>;
    /// Fills `out` from a copy whose checksum is right; a damaged copy is repaired from another.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where no copy is good.
    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), CatalogError>;
    /// Writes whole 4 KiB blocks (offset, contents) to every replica and makes them durable.
    /// After a crash any subset of them may be there; blocks not named keep their contents.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where no replica took the write.
    fn write_durably(&self, blocks: &[(u64, &[u8])]) -> Result<(), CatalogError>;
    /// Whose region it is.
    fn group_uuid(&self) -> Uuid;
    /// Bytes of the journal beside the region, whole blocks; 0 where there is none.
    fn journal_bytes(&self) -> usize;
    /// The journal as each replica holds it; none after a clean stop, which emptied it.
    fn read_journals(&self) -> Journals;
    /// An opening that a person forced ended the journal at this block, where a record may be that no
    /// replica gives whole: to be told, because commits may be lost.
    fn journal_was_cut(&self, block: usize);
    /// A record begins at this block of the journal and is whole on no replica, though each was read:
    /// it counts as one that was being written at a crash. To be told where a replica is away that may
    /// have it whole, because it was acknowledged and has rotted on the others then.
    fn journal_ends_broken(&self, block: usize);
    /// Writes whole blocks at `offset_bytes` of every replica's journal, in aligned memory, and
    /// makes them durable. After a crash any part of them may be there.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where no replica took the write.
    fn write_journal(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), CatalogError>;
}
