//! The group's metadata: transactions over a replicated region.
//!
//! Every change is an [`Edit`]. Edits gather in memory in the order of [`Catalog::apply`] and
//! are readable at once; [`Catalog::commit`] makes all edits applied before it durable in one
//! transaction of `redb`. A crash keeps a prefix of the commits, never a part of one.

use spindle_base::FileId;

/// The tables. Keys are big-endian, so that a range is in the order of the numbers.
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
}

/// Changes that become durable together or not at all.
#[derive(Debug, Default, Clone)]
pub struct Edit {
    /// Table, key, and the new value; `None` removes the key. Later entries win.
    pub changes: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
}

impl Edit {
    /// Sets a key.
    pub fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push((table, key, Some(value)));
    }
    /// Removes a key.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.changes.push((table, key, None));
    }
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The key of a file in the tables keyed by file id alone.
#[must_use]
pub fn file_key(id: FileId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

/// Counts applied edits; a later edit has a larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// Why the catalog could not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No copy of the region could be read or written.
    #[error("the catalog region cannot be {operation}: {detail}")]
    Region {
        /// `read` or `written`.
        operation: &'static str,
        /// Which replicas failed, and how.
        detail: String,
    },
    /// The library found its own structures damaged.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// The region is full and the group has no room to let it grow.
    #[error("the catalog region is full and no disk of it has room to grow")]
    Full,
}

/// The table, key and value of a row that a range read found.
pub type Row = (Vec<u8>, Vec<u8>);

/// The block-addressed store that the catalog stands on; the group gives it, replicated over
/// its disks. Addresses are in bytes, multiples of 4,096; blocks never written read as zeros.
///
/// Writes are buffered by the catalog and arrive in one call with the flush that ends them, so
/// an implementation may send all of them in one batch to all replicas and flush once.
pub trait Region: Send + Sync + std::fmt::Debug {
    /// Bytes that can be addressed now.
    fn size_bytes(&self) -> u64;
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
}

/// The group's tables. All methods may be called from many threads.
#[derive(Debug)]
pub struct Catalog {}

impl Catalog {
    /// Makes an empty catalog on `region`, whatever it held.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be written.
    pub fn create(
        _region: std::sync::Arc<dyn Region>,
        _cache_bytes: usize,
    ) -> Result<Self, CatalogError> {
        unimplemented!("stub of the contract")
    }
    /// Opens the catalog that `region` holds, as of the last commit.
    ///
    /// # Errors
    /// [`CatalogError`] where it cannot be read or is damaged.
    pub fn open(
        _region: std::sync::Arc<dyn Region>,
        _cache_bytes: usize,
    ) -> Result<Self, CatalogError> {
        unimplemented!("stub of the contract")
    }
    /// The newest value of `key`, committed or not.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read.
    pub fn get(&self, _table: Table, _key: &[u8]) -> Result<Option<Vec<u8>>, CatalogError> {
        unimplemented!("stub of the contract")
    }
    /// At most `most` rows with `from` <= key < `to` in key order, committed or not.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read.
    pub fn range(
        &self,
        _table: Table,
        _from: &[u8],
        _to: &[u8],
        _most: usize,
    ) -> Result<Vec<Row>, CatalogError> {
        unimplemented!("stub of the contract")
    }
    /// Calls `visit` for each committed row of `table` in key order, without copying it; meant
    /// for mounting, before any edit was applied.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read, or what `visit` returns.
    pub fn scan(
        &self,
        _table: Table,
        _visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        unimplemented!("stub of the contract")
    }
    /// Adds an edit to the batch; it is readable at once and durable after a later commit.
    pub fn apply(&self, _edit: Edit) -> Sequence {
        unimplemented!("stub of the contract")
    }
    /// The newest applied edit.
    pub fn applied(&self) -> Sequence {
        unimplemented!("stub of the contract")
    }
    /// The newest durable edit.
    pub fn committed(&self) -> Sequence {
        unimplemented!("stub of the contract")
    }
    /// Edits applied and not yet durable, as a rough number of bytes.
    pub fn pending_bytes(&self) -> usize {
        unimplemented!("stub of the contract")
    }
    /// Makes every edit up to `through` durable; returns at once where they are. Commits run one
    /// at a time and callers that wait meanwhile share the next one.
    ///
    /// `seal` runs first, under the commit's lock: the group closes its books there (applies
    /// what it still holds back). Then the batch is taken, then `before` runs (the group flushes
    /// the data that the batch speaks of), then the transaction is written.
    ///
    /// # Errors
    /// What `before` returns, or [`CatalogError`]; the batch then stays to be committed later.
    pub fn commit(
        &self,
        _through: Sequence,
        _seal: &mut dyn FnMut(),
        _before: &mut dyn FnMut() -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        unimplemented!("stub of the contract")
    }
}
