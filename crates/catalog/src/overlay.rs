//! Edits that are applied and not yet durable, readable at once.
//!
//! Three layers: `pending` takes new edits, `committing` is the batch that a commit is writing,
//! `journaled` is durable in the journal and not yet in the committed state below. Where a commit
//! fails, its batch goes back under `pending`, so the order is kept. A crash loses the first
//! two, which is what the callers were told: nothing is durable before its commit.

use std::collections::BTreeMap;
use std::ops::{Add, Bound};
use std::sync::Arc;

use crate::store::Reader;
use crate::{Bracket, Edit, KeptJournal, Rows, Sequence, Table};

/// A key's newest value, `None` where it was removed.
pub(crate) type Change = Option<Vec<u8>>;

/// The newest change of each key that a run of edits touched.
#[derive(Debug, Default, Clone)]
pub(crate) struct Layer {
    tables: [BTreeMap<Vec<u8>, Change>; Table::COUNT],
    bytes: usize,
    /// Changes, one of a table of large values counted for as many rows as it copies pages of.
    rows_count: usize,
}

impl Layer {
    /// What a row costs beside its key and value: the tree's share and two allocations.
    const ROW_OVERHEAD_BYTES: usize = 64;

    fn weight_bytes(key: &[u8], change: &Change) -> usize {
        Self::ROW_OVERHEAD_BYTES + key.len() + change.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn set(&mut self, table: Table, key: Vec<u8>, change: Change) {
        let key_bytes = key.len();
        self.bytes += Self::weight_bytes(&key, &change);
        self.rows_count += table.rows_of_a_change();
        if let Some(old) = self.tables[table.index()].insert(key, change) {
            self.rows_count -= table.rows_of_a_change();
            self.bytes -= Self::ROW_OVERHEAD_BYTES + key_bytes + old.as_ref().map_or(0, Vec::len);
        }
    }

    /// The change of `key`, if this layer has one.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<&Change> {
        self.tables[table.index()].get(key)
    }

    /// Every change of `table` in key order.
    pub(crate) fn changes(&self, table: Table) -> &BTreeMap<Vec<u8>, Change> {
        &self.tables[table.index()]
    }

    /// Every change, in the order of tables and keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Table, &[u8], Option<&[u8]>)> {
        Table::ALL.into_iter().flat_map(|table| {
            let changes = self.changes(table).iter();
            changes.map(move |(key, change)| (table, key.as_slice(), change.as_deref()))
        })
    }

    /// Its changes as rows of the region.
    pub(crate) const fn size(&self) -> Rows {
        Rows {
            count: self.rows_count as u64,
            bytes: self.bytes as u64,
        }
    }

    /// Puts the changes of a newer layer over this one's.
    fn put_over(&mut self, newer: &Self) {
        for table in Table::ALL {
            for (key, change) in newer.changes(table) {
                self.set(table, key.clone(), change.clone());
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    /// Puts the changes of an older layer below this one's.
    fn put_under(&mut self, older: &Self) {
        for table in Table::ALL {
            for (key, change) in older.changes(table) {
                if self.get(table, key).is_none() {
                    self.set(table, key.clone(), change.clone());
                }
            }
        }
    }
}

/// What a range read needs of the layers: the changes of a window, and where the window ends.
pub(crate) struct Window {
    /// Changes in key order.
    pub(crate) changes: BTreeMap<Vec<u8>, Change>,
    /// The last key that the window speaks of; `None` where it reaches the end of the range.
    pub(crate) last_key: Option<Vec<u8>>,
}

/// The layers and the committed state below them. They change together, under one lock, so
/// that no reader sees a batch twice or not at all.
#[derive(Debug)]
pub(crate) struct Overlay {
    pending: Layer,
    committing: Option<Arc<Layer>>,
    journaled: Arc<Layer>,
    reader: Arc<Reader>,
    /// Notes every edit before it is readable, once there is one.
    journal: Option<Arc<KeptJournal>>,
    applied: Sequence,
    committed: Sequence,
    /// Commits are numbered as they begin; a caller that came before number n began is served
    /// by n.
    begun_commits_count: u64,
    newest_good_commit: u64,
}

impl Overlay {
    pub(crate) fn new(reader: Arc<Reader>) -> Self {
        Self {
            pending: Layer::default(),
            committing: None,
            journaled: Arc::default(),
            reader,
            journal: None,
            applied: Sequence(0),
            committed: Sequence(0),
            begun_commits_count: 0,
            newest_good_commit: 0,
        }
    }

    /// Applies an edit, noted in the journal as a part of `bracket` where that says so.
    pub(crate) fn apply(&mut self, bracket: Option<Bracket>, edit: Edit) -> Sequence {
        if let Some(journal) = &self.journal {
            journal.edit(bracket, &edit);
        }
        self.apply_unnoted(edit)
    }

    /// Applies what the journal has in another form.
    pub(crate) fn apply_unnoted(&mut self, edit: Edit) -> Sequence {
        for (table, key, change) in edit.changes {
            self.pending.set(table, key, change);
        }
        self.applied.0 += 1;
        self.applied
    }

    pub(crate) fn set_journal(&mut self, journal: Arc<KeptJournal>) {
        self.journal = Some(journal);
    }

    pub(crate) const fn journal(&self) -> Option<&Arc<KeptJournal>> {
        self.journal.as_ref()
    }

    pub(crate) const fn applied(&self) -> Sequence {
        self.applied
    }

    pub(crate) const fn committed(&self) -> Sequence {
        self.committed
    }

    pub(crate) const fn begun_commits_count(&self) -> u64 {
        self.begun_commits_count
    }

    /// The number of the newest commit that succeeded.
    pub(crate) const fn newest_good_commit(&self) -> u64 {
        self.newest_good_commit
    }

    /// A commit begins; only one at a time does.
    pub(crate) const fn begin_commit(&mut self) {
        self.begun_commits_count += 1;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pending.bytes + self.committing.as_ref().map_or(0, |layer| layer.bytes)
    }

    /// What is in no transaction of the region yet, whether it is durable or not.
    pub(crate) fn outside_of_the_region(&self) -> Rows {
        let layers = [
            Some(&self.pending),
            self.committing.as_deref(),
            Some(&*self.journaled),
        ];
        let sizes = layers.into_iter().flatten().map(Layer::size);
        sizes.fold(Rows::default(), Add::add)
    }

    pub(crate) const fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    pub(crate) fn set_reader(&mut self, reader: Arc<Reader>) -> Arc<Reader> {
        std::mem::replace(&mut self.reader, reader)
    }

    /// The newest change of `key` that is not yet in the committed state.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<&Change> {
        let committing = || self.committing.as_ref()?.get(table, key);
        let newer = self.pending.get(table, key).or_else(committing);
        newer.or_else(|| self.journaled.get(table, key))
    }

    /// Changes from `from` on and before `to`, at most about `most` of each layer.
    pub(crate) fn window(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        to: &[u8],
        most: usize,
    ) -> Window {
        let mut changes = BTreeMap::new();
        let mut last_key: Option<Vec<u8>> = None;
        let layers = [
            Some(&*self.journaled),
            self.committing.as_deref(),
            Some(&self.pending),
        ];
        // The older layer first, so that the newer one's changes replace it.
        for layer in layers.into_iter().flatten() {
            let mut rows = layer
                .changes(table)
                .range::<[u8], _>((from, Bound::Excluded(to)));
            for (count, (key, change)) in rows.by_ref().enumerate() {
                changes.insert(key.clone(), change.clone());
                if count + 1 == most {
                    if last_key.as_ref().is_none_or(|last| key < last) {
                        last_key = Some(key.clone());
                    }
                    break;
                }
            }
        }
        if let Some(last) = &last_key {
            // A layer that went further than the other must not speak for keys the other left.
            let mut beyond = changes.split_off(last);
            if let Some(change) = beyond.remove(last) {
                changes.insert(last.clone(), change);
            }
        }
        Window { changes, last_key }
    }

    /// Takes the pending edits as the batch to commit.
    pub(crate) fn take_batch(&mut self) -> (Arc<Layer>, Sequence) {
        assert!(self.committing.is_none(), "two commits at one time");
        let batch = Arc::new(std::mem::take(&mut self.pending));
        self.committing = Some(Arc::clone(&batch));
        (batch, self.applied)
    }

    /// What is durable in the journal and not in the committed state.
    pub(crate) const fn journaled(&self) -> &Arc<Layer> {
        &self.journaled
    }

    /// The committed state has all that the journal held. The former reader is returned, to be
    /// dropped without the lock.
    pub(crate) fn empty_journal(&mut self, reader: Arc<Reader>) -> Arc<Reader> {
        self.journaled = Arc::default();
        self.set_reader(reader)
    }

    /// The batch is durable: in the journal, or in the committed state that [`Self::empty_journal`]
    /// was told of.
    pub(crate) fn finish_batch(&mut self, through: Sequence, in_journal: bool) {
        let batch = self.committing.take().expect("a commit is under way");
        if in_journal && !batch.is_empty() {
            Arc::make_mut(&mut self.journaled).put_over(&batch);
        }
        self.committed = through;
        self.newest_good_commit = self.begun_commits_count;
    }

    /// The commit failed: its batch is pending again, below what was applied meanwhile.
    pub(crate) fn return_batch(&mut self) {
        let batch = self.committing.take().expect("a commit is under way");
        if self.pending.is_empty() {
            match Arc::try_unwrap(batch) {
                Ok(layer) => self.pending = layer,
                Err(shared) => self.pending.put_under(&shared),
            }
        } else {
            self.pending.put_under(&batch);
        }
    }
}
