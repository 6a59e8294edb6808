//! The catalog: reading through the overlay to the committed state.

use std::ops::Bound;
use std::sync::Arc;

use redb::ReadableTable;
use spindle_sync::{Mutex, RwLock, level};

use crate::commit::Committer;
use crate::journal;
use crate::levels::Committing;
use crate::overlay::{Change, Layer, Overlay, Window};
use crate::room::Room;
use crate::store::{Reader, Store};
use crate::{Bracket, CatalogError, Edit, KeptJournal, Region, Rows, Sequence, Table, Wish};

/// The key and value of a row that a range read found.
pub type Row = (Vec<u8>, Vec<u8>);

/// What a scan calls for each row, with its key and value.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), CatalogError> + 'a;

/// The group's tables. All methods may be called from many threads.
///
/// Dropping it leaves the region as a crash would; [`Catalog::close`] is the clean end.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) overlay: RwLock<Overlay>,
    pub(crate) committer: level::Mutex<Committer, Committing>,
    pub(crate) region: Arc<dyn Region>,
    pub(crate) room: Room,
    /// Held while the state that is read from is about to be replaced. Whoever holds it waits for
    /// the region only; readers may hold any lock of the layers above.
    pub(crate) renewing: Mutex<()>,
}

impl Catalog {
    /// Makes an empty catalog on `region`, whatever it held.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be written.
    pub fn create(region: Arc<dyn Region>, cache_bytes: usize) -> Result<Self, CatalogError> {
        let store = Store::create(Arc::clone(&region), cache_bytes)?;
        Self::over(region, cache_bytes, store)
    }

    /// Opens the catalog that `region` holds, as of the last commit.
    ///
    /// # Errors
    /// [`CatalogError`] where it cannot be read or is damaged.
    pub fn open(region: Arc<dyn Region>, cache_bytes: usize) -> Result<Self, CatalogError> {
        let mut store = Store::open(Arc::clone(&region), cache_bytes)?;
        let generation = store.journal_generation()?;
        let journal::Replayed {
            layer: journaled,
            must_end,
        } = journal::replay(&*region, generation)?;
        if must_end || !journaled.is_empty() {
            let mut written = store.write(&[&journaled], generation + 1);
            if matches!(written, Err(CatalogError::Full)) {
                // The library asks for twice the size that it has, and nobody knows yet what is
                // free on the disks: it has to do with what was set aside.
                drop(store);
                region.grow(region.capacity_bytes())?;
                store = Store::open(Arc::clone(&region), cache_bytes)?;
                // What the transaction before gave up is free after one more; the journal counts on.
                store.write(&[&Layer::default()], generation)?;
                written = store.write(&[&journaled], generation + 1);
            }
            written?;
        }
        Self::over(region, cache_bytes, store)
    }

    fn over(
        region: Arc<dyn Region>,
        cache_bytes: usize,
        store: Store,
    ) -> Result<Self, CatalogError> {
        let overlay = Overlay::new(store.reader()?);
        let generation = store.journal_generation()?;
        Ok(Self {
            room: Room::new(store.length_bytes()),
            renewing: Mutex::new(()),
            region: Arc::clone(&region),
            overlay: RwLock::new(overlay),
            committer: level::Mutex::new(Committer::new(region, cache_bytes, store, generation)),
        })
    }

    /// The newest value of `key`, committed or not.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogError> {
        let mut reader = {
            let overlay = self.overlay.read();
            if let Some(change) = overlay.get(table, key) {
                return Ok(change.clone());
            }
            Arc::clone(overlay.reader())
        };
        match reader.get(table, key) {
            Ok(value) => Ok(value),
            Err(error) => {
                reader = self.reader_after(&reader, error)?;
                reader.get(table, key)
            }
        }
    }

    /// At most `most` rows with `from` <= key < `to` in key order, committed or not.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read.
    pub fn range(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        most: usize,
    ) -> Result<Vec<Row>, CatalogError> {
        let mut rows = Vec::new();
        let mut start = Bound::Included(from.to_vec());
        while rows.len() < most {
            let begin = start.as_ref().map(Vec::as_slice);
            if !reaches(begin, to) {
                break;
            }
            let (window, mut reader) = {
                let overlay = self.overlay.read();
                // Some slack, so that removed rows seldom cost a second window.
                let window =
                    overlay.window(table, begin, to, (most - rows.len()).saturating_add(16));
                (window, Arc::clone(overlay.reader()))
            };
            let mut found = merge(&reader, table, begin, to, &window, most - rows.len());
            if let Err(error) = found {
                reader = self.reader_after(&reader, error)?;
                found = merge(&reader, table, begin, to, &window, most - rows.len());
            }
            rows.append(&mut found?);
            match window.last_key {
                Some(last) => start = Bound::Excluded(last),
                None => break,
            }
        }
        Ok(rows)
    }

    /// Calls `visit` for each committed row of `table` in key order, without copying it; meant
    /// for mounting, before any edit was applied.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be read, or what `visit` returns.
    pub fn scan(&self, table: Table, visit: &mut Visit<'_>) -> Result<(), CatalogError> {
        let reader = Arc::clone(self.overlay.read().reader());
        let rows = ReadableTable::iter(reader.table(table)?).map_err(CatalogError::from_library)?;
        for row in rows {
            let (key, value) = row.map_err(CatalogError::from_library)?;
            visit(key.value(), value.value())?;
        }
        Ok(())
    }

    /// Adds an edit to the batch; it is readable at once and durable after a later commit.
    pub fn apply(&self, edit: Edit) -> Sequence {
        self.overlay.write().apply(None, edit)
    }

    /// As [`Catalog::apply`], as a part of an operation that the journal counts only whole.
    pub fn apply_within(&self, bracket: Bracket, edit: Edit) -> Sequence {
        self.overlay.write().apply(Some(bracket), edit)
    }

    /// As [`Catalog::apply`], for rows that the journal has in another form: those of extents,
    /// which it notes one by one.
    pub fn apply_unnoted(&self, edit: Edit) -> Sequence {
        self.overlay.write().apply_unnoted(edit)
    }

    /// Every edit from now on is noted in `journal`, and each commit cuts it.
    pub fn set_journal(&self, journal: Arc<KeptJournal>) {
        self.overlay.write().set_journal(journal);
    }

    /// The newest applied edit.
    pub fn applied(&self) -> Sequence {
        self.overlay.read().applied()
    }

    /// The newest durable edit.
    pub fn committed(&self) -> Sequence {
        self.overlay.read().committed()
    }

    /// How many commits succeeded since the catalog was opened, empty ones counted.
    pub fn commits_count(&self) -> u64 {
        self.overlay.read().newest_good_commit()
    }

    /// Bytes that an operation may still add to what is applied, and to `lagging`, which will be;
    /// 0 where it must not begin.
    pub fn room_bytes(&self, lagging: Rows, wish: Wish) -> u64 {
        let rows = self.overlay.read().outside_of_the_region() + lagging;
        self.room
            .left_bytes(self.region.capacity_bytes(), rows, wish)
    }

    /// What the region should be able to grow to, so that there is room for all this, and for as
    /// much again, without a commit or a measurement.
    pub fn wished_capacity_bytes(&self, lagging: Rows) -> u64 {
        let rows = self.overlay.read().outside_of_the_region() + lagging;
        self.room.wished_capacity_bytes(rows)
    }

    /// Edits applied and not yet durable, as a rough number of bytes.
    pub fn pending_bytes(&self) -> usize {
        self.overlay.read().bytes()
    }

    /// A reader in place of one that failed: the store is opened anew, unless that was done
    /// meanwhile, be it by a commit that runs. Where a commit runs that does not, the failure
    /// stands: it may have to wait for what the caller holds.
    fn reader_after(
        &self,
        failed: &Arc<Reader>,
        error: CatalogError,
    ) -> Result<Arc<Reader>, CatalogError> {
        let renewing = self.renewing.lock();
        let current = Arc::clone(self.overlay.read().reader());
        if !Arc::ptr_eq(&current, failed) {
            return Ok(current);
        }
        let Some(mut committer) = self.committer.try_lock() else {
            return Err(error);
        };
        self.reopen(&mut committer, &renewing)
    }
}

/// Whether anything can lie between `from` and `to`.
fn reaches(from: Bound<&[u8]>, to: &[u8]) -> bool {
    match from {
        Bound::Included(key) | Bound::Excluded(key) => key < to,
        Bound::Unbounded => true,
    }
}

/// The committed rows of the window with the uncommitted changes laid over them.
fn merge(
    reader: &Reader,
    table: Table,
    from: Bound<&[u8]>,
    to: &[u8],
    window: &Window,
    most: usize,
) -> Result<Vec<Row>, CatalogError> {
    let end = match &window.last_key {
        Some(last) => Bound::Included(last.as_slice()),
        None => Bound::Excluded(to),
    };
    let mut committed = ReadableTable::range::<&[u8]>(reader.table(table)?, (from, end))
        .map_err(CatalogError::from_library)?
        .map(|row| {
            let (key, value) = row.map_err(CatalogError::from_library)?;
            Ok::<Row, CatalogError>((key.value().to_vec(), value.value().to_vec()))
        })
        .peekable();
    let mut changes = window.changes.iter().peekable();
    let mut rows = Vec::new();
    let mut push = |key: &[u8], change: &Change| {
        if let Some(value) = change {
            rows.push((key.to_vec(), value.clone()));
        }
        rows.len() < most
    };
    loop {
        let change_is_next = match (committed.peek(), changes.peek()) {
            (None, None) => break,
            (None, Some(_)) => true,
            (Some(Err(_)), _) | (Some(_), None) => false,
            (Some(Ok((key, _))), Some((changed, _))) => *changed <= key,
        };
        let more = if change_is_next {
            let Some((changed, change)) = changes.next() else {
                break;
            };
            if let Some(Ok((key, _))) = committed.peek()
                && key == changed
            {
                committed.next();
            }
            push(changed, change)
        } else {
            let Some(row) = committed.next() else { break };
            let (key, value) = row?;
            push(&key, &Some(value))
        };
        if !more {
            break;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
