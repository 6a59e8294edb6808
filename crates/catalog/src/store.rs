//! The committed state: `redb` over the region, one transaction a commit.
//!
//! After an I/O error `redb` refuses everything; the store is then opened anew over the same
//! region, which is what a crash and a restart would do.

use std::fmt;
use std::sync::{Arc, OnceLock};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError,
};

use crate::backend::{Backend, Buffer};
use crate::overlay::Layer;
use crate::{CatalogError, Region, Table};

/// The generation of the journal that counts, under key 0: written with what the one before held.
const JOURNAL_TABLE: TableDefinition<'static, u8, u64> = TableDefinition::new("journal");

type OpenTable = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The state as of one commit. It stays readable while later commits are written; its pages are
/// reused only after it is dropped.
pub(crate) struct Reader {
    transaction: ReadTransaction,
    tables: [OnceLock<OpenTable>; Table::COUNT],
}

impl Reader {
    /// The table, opened at its first use: a commit renews the reader, and most are not asked
    /// for every table before the next one.
    pub(crate) fn table(&self, table: Table) -> Result<&OpenTable, CatalogError> {
        let place = &self.tables[table.index()];
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let open = self
            .transaction
            .open_table(table.definition())
            .map_err(CatalogError::from_library)?;
        Ok(place.get_or_init(|| open))
    }

    /// The committed value of `key`.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogError> {
        let found =
            ReadableTable::get(self.table(table)?, key).map_err(CatalogError::from_library)?;
        Ok(found.map(|value| value.value().to_vec()))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// An open database.
pub(crate) struct Store {
    database: Database,
    buffer: Arc<Buffer>,
}

impl Store {
    /// An empty database with every table made.
    pub(crate) fn create(
        region: Arc<dyn Region>,
        cache_bytes: usize,
    ) -> Result<Self, CatalogError> {
        let store = Self::over(Buffer::create(region)?, cache_bytes)?;
        store.write(&[], 0)?;
        Ok(store)
    }

    /// The database that the region holds, as of its last commit.
    pub(crate) fn open(region: Arc<dyn Region>, cache_bytes: usize) -> Result<Self, CatalogError> {
        let store = Self::over(Buffer::open(region), cache_bytes)?;
        let mut reader = store.reader()?;
        if reader.table(Table::Event).is_err() {
            // A group from before there was an event log: whatever else is missing stays missing.
            store.make_table(Table::Event)?;
            reader = store.reader()?;
        }
        for table in Table::ALL {
            reader.table(table)?;
        }
        Ok(store)
    }

    fn make_table(&self, table: Table) -> Result<(), CatalogError> {
        let mut transaction = self
            .database
            .begin_write()
            .map_err(CatalogError::from_library)?;
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        transaction
            .open_table(table.definition())
            .map_err(CatalogError::from_library)?;
        transaction.commit().map_err(CatalogError::from_library)
    }

    fn over(buffer: Arc<Buffer>, cache_bytes: usize) -> Result<Self, CatalogError> {
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create_with_backend(Backend(Arc::clone(&buffer)))
            .map_err(CatalogError::from_library)?;
        Ok(Self { database, buffer })
    }

    /// The state as of the last commit.
    pub(crate) fn reader(&self) -> Result<Arc<Reader>, CatalogError> {
        let transaction = self
            .database
            .begin_read()
            .map_err(CatalogError::from_library)?;
        Ok(Arc::new(Reader {
            transaction,
            tables: Default::default(),
        }))
    }

    /// The generation of the journal that counts.
    pub(crate) fn journal_generation(&self) -> Result<u64, CatalogError> {
        let transaction = self
            .database
            .begin_read()
            .map_err(CatalogError::from_library)?;
        match transaction.open_table(JOURNAL_TABLE) {
            Ok(table) => {
                let found = ReadableTable::get(&table, 0).map_err(CatalogError::from_library)?;
                Ok(found.map_or(0, |value| value.value()))
            }
            // Made before there was a journal.
            Err(TableError::TableDoesNotExist(_)) => Ok(0),
            Err(error) => Err(CatalogError::from_library(error)),
        }
    }

    /// Writes the layers, the older first, in one transaction, and which generation of the
    /// journal counts from then on. Two phases: the pages are durable before the header
    /// names them, so a crash finds the last commit's pages as they were, whatever became of
    /// the blocks in flight. The allocator's state is saved along, so that opening after a
    /// crash walks no tree.
    pub(crate) fn write(
        &self,
        layers: &[&Layer],
        journal_generation: u64,
    ) -> Result<(), CatalogError> {
        let mut transaction = self
            .database
            .begin_write()
            .map_err(CatalogError::from_library)?;
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        let creating = layers.is_empty();
        for table in Table::ALL {
            if !creating && layers.iter().all(|layer| layer.changes(table).is_empty()) {
                continue;
            }
            let mut open = transaction
                .open_table(table.definition())
                .map_err(CatalogError::from_library)?;
            for (key, change) in layers.iter().flat_map(|layer| layer.changes(table)) {
                match change {
                    Some(value) => open.insert(key.as_slice(), value.as_slice()),
                    None => open.remove(key.as_slice()),
                }
                .map_err(CatalogError::from_library)?;
            }
        }
        transaction
            .open_table(JOURNAL_TABLE)
            .map_err(CatalogError::from_library)?
            .insert(0, journal_generation)
            .map_err(CatalogError::from_library)?;
        transaction.commit().map_err(CatalogError::from_library)
    }

    /// Blocks written since the last call.
    pub(crate) fn take_written_blocks(&self) -> u64 {
        self.buffer.take_written_blocks()
    }

    /// Bytes of the region that the library knows of.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.buffer.length_bytes()
    }

    /// Pages in use, those included that the last transaction gave up. It reads all of them.
    pub(crate) fn used_pages(&self) -> Result<u64, CatalogError> {
        let transaction = self
            .database
            .begin_write()
            .map_err(CatalogError::from_library)?;
        let stats = transaction.stats().map_err(CatalogError::from_library)?;
        transaction.abort().map_err(CatalogError::from_library)?;
        Ok(stats.allocated_pages())
    }

    /// The first failure that the library was told of: it refuses everything since.
    pub(crate) fn failure(&self) -> Option<CatalogError> {
        self.buffer.failure()
    }

    /// Leaves the region as a clean shutdown does.
    ///
    /// # Errors
    /// What the region said to the library, which writes while it is dropped and tells nobody.
    pub(crate) fn close(self) -> Result<(), CatalogError> {
        drop(self.database);
        self.buffer.detach();
        self.buffer.failure().map_or(Ok(()), Err)
    }

    /// Leaves the region as it is.
    pub(crate) fn abandon(self) {
        self.buffer.detach();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
