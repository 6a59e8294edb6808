//! Commits: one at a time, shared by everybody who waited for the one before.
//!
//! A commit goes in steps, each a type that only the one before gives: begun ([`BegunCommit`]),
//! batch taken ([`TakenBatch`]), durable. What the group does between them (closing its books,
//! flushing) is its own code, called from nowhere in here.
//!
//! A caller that waits behind a running commit needs the next one, and that one seals the books
//! after the caller came, so whoever gets the lock later finds its work done and returns.

use std::sync::Arc;

use crate::journal::Journal;
use crate::kept::Place;
use crate::levels::Committing;
use crate::overlay::Layer;
use crate::store::{Reader, Store};
use spindle_sync::MutexGuard;
use spindle_sync::level::{self, Holds, Unshown};

use crate::{Catalog, CatalogError, KeptJournal, Region, Sequence};

/// A region up to which what is in use is counted after each transaction: some milliseconds.
const MEASURED_BYTES_MAX: u64 = 16 << 20;

/// What only one commit at a time may touch.
#[derive(Debug)]
pub(crate) struct Committer {
    region: Arc<dyn Region>,
    cache_bytes: usize,
    /// `None` after a failure that could not be got over yet, and after closing.
    store: Option<Store>,
    journal: Journal,
    /// The store refused something; nothing it says later counts.
    broken: bool,
    /// What its closing answered.
    closed: Option<Result<(), CatalogError>>,
}

impl Committer {
    pub(crate) fn new(
        region: Arc<dyn Region>,
        cache_bytes: usize,
        store: Store,
        journal_generation: u64,
    ) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&region), journal_generation),
            region,
            cache_bytes,
            store: Some(store),
            broken: false,
            closed: None,
        }
    }

    /// Opens the store anew over the same region, as a restart would. A commit that failed may
    /// be there or not; its batch is pending again and gives the same rows once more. The generation
    /// moves where it is.
    fn reopen(&mut self) -> Result<Arc<Reader>, CatalogError> {
        if self.closed.is_some() {
            return Err(CatalogError::Region {
                operation: "used",
                detail: "this catalog is closed".to_owned(),
            });
        }
        if let Some(former) = self.store.take() {
            former.abandon();
        }
        let store = Store::open(Arc::clone(&self.region), self.cache_bytes)?;
        let reader = store.reader()?;
        // A transaction that failed may be there all the same, and the journal empty with it.
        let generation = store.journal_generation()?;
        if generation != self.journal.generation() {
            self.journal = Journal::new(Arc::clone(&self.region), generation);
        }
        self.store = Some(store);
        self.broken = false;
        Ok(reader)
    }

    /// Takes the layers, the older first, into the region, and empties the journal. It must be
    /// usable.
    fn write_region(&mut self, layers: &[&Layer]) -> Result<Arc<Reader>, CatalogError> {
        let store = self.store.as_ref().expect("made usable before");
        let generation = self.journal.generation() + 1;
        let written = store
            .write(layers, generation)
            .and_then(|()| store.reader());
        self.broken = written.is_err();
        let reader = written?;
        self.journal = Journal::new(Arc::clone(&self.region), generation);
        Ok(reader)
    }

    /// No transaction failed that nobody has got over.
    fn is_settled(&self) -> bool {
        !self.broken && self.store.is_some()
    }

    /// The store takes a transaction: no read of it failed either, be it another thread's and long
    /// ago, because the library refuses everything from then on.
    fn is_usable(&self) -> bool {
        let failed = |store: &Store| store.failure().is_some();
        self.is_settled() && !self.store.as_ref().is_some_and(failed)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.abandon();
        }
    }
}

/// A commit that has begun, and no other runs until it is over. The group closes its books now:
/// what it applies before the batch is taken is in it. Whoever holds this must not begin another.
#[derive(Debug)]
pub struct BegunCommit<'a> {
    catalog: &'a Catalog,
    committer: level::MutexGuard<'a, Committer, Committing>,
}

/// A commit whose batch was taken: edits belong to the next one from here on. The group flushes
/// the data that the batch speaks of. Dropped, the batch is pending again, below what was applied
/// meanwhile.
#[derive(Debug)]
pub struct TakenBatch<'a> {
    catalog: &'a Catalog,
    committer: level::MutexGuard<'a, Committer, Committing>,
    /// `None` once it was made durable or given back.
    batch: Option<Arc<Layer>>,
    last: Sequence,
    /// What the kept journal had when the batch was taken.
    noted: Option<(Arc<KeptJournal>, Place)>,
}

impl Holds for BegunCommit<'_> {
    type Level = Committing;
}

impl<'a> BegunCommit<'a> {
    /// Takes what is applied.
    #[must_use]
    pub fn take_batch(self) -> TakenBatch<'a> {
        let mut overlay = self.catalog.overlay.write();
        // Under the lock that orders edits: the batch has every record before this place.
        let noted = overlay
            .journal()
            .map(|journal| (Arc::clone(journal), journal.place()));
        if let Some(covered) = noted
            .as_ref()
            .and_then(|(journal, place)| journal.covered(*place))
        {
            overlay.apply_unnoted(covered);
        }
        let (batch, last) = overlay.take_batch();
        drop(overlay);
        TakenBatch {
            catalog: self.catalog,
            committer: self.committer,
            batch: Some(batch),
            last,
            noted,
        }
    }
}

impl TakenBatch<'_> {
    /// Writes the batch, if there is anything in it.
    ///
    /// # Errors
    /// [`CatalogError`]; the batch then stays to be committed later.
    pub fn make_durable(mut self) -> Result<(), CatalogError> {
        let batch = self.batch.take().expect("it is taken here only");
        let result = self.catalog.write_batch(&mut self.committer, &batch);
        drop(batch);
        let mut overlay = self.catalog.overlay.write();
        match result {
            Ok(in_journal) => overlay.finish_batch(self.last, in_journal),
            Err(_) => overlay.return_batch(),
        }
        drop(overlay);
        if let (Ok(_), Some((journal, place))) = (&result, &self.noted) {
            journal.cut(*place);
        }
        result.map(drop)
    }
}

impl Drop for TakenBatch<'_> {
    fn drop(&mut self) {
        if self.batch.take().is_some() {
            self.catalog.overlay.write().return_batch();
        }
    }
}

impl Catalog {
    /// Begins a commit that makes every edit up to `through` durable; `None` where they are.
    /// Commits run one at a time, and callers that wait meanwhile share the next one. A
    /// `through` beyond [`Catalog::applied`] asks for what is applied before the batch is taken:
    /// a commit that begins after the call is then always waited for.
    pub fn begin_commit(&self, through: Sequence) -> Option<BegunCommit<'_>> {
        let begun_at_call = {
            let overlay = self.overlay.read();
            if overlay.committed() >= through {
                return None;
            }
            overlay.begun_commits_count()
        };
        let committer = self.committer.lock(Unshown);
        let mut overlay = self.overlay.write();
        // The commit that did our work began after we came, so it sealed after we came.
        if overlay.committed() >= through || overlay.newest_good_commit() > begun_at_call {
            return None;
        }
        overlay.begin_commit();
        Some(BegunCommit {
            catalog: self,
            committer,
        })
    }

    /// All steps of a commit, for whoever holds nothing back and has nothing to flush.
    ///
    /// # Errors
    /// As [`TakenBatch::make_durable`].
    pub fn commit(&self, through: Sequence) -> Result<(), CatalogError> {
        match self.begin_commit(through) {
            Some(begun) => begun.take_batch().make_durable(),
            None => Ok(()),
        }
    }

    /// Makes the batch durable; whether it is in the journal and not in the committed state.
    fn write_batch(&self, committer: &mut Committer, batch: &Layer) -> Result<bool, CatalogError> {
        if batch.is_empty() {
            return Ok(false);
        }
        // A record needs no more than to know which generation it belongs to: where a read failed,
        // it goes to disks that may answer no other.
        if !committer.is_settled() {
            self.make_usable(committer)?;
        }
        // What the journal takes is durable: it has to fit into the region, too.
        let rows = self.overlay.read().journaled().size() + batch.size();
        let capacity_bytes = self.region.capacity_bytes();
        let fits = self.room.takes(capacity_bytes, rows);
        if fits && committer.journal.append(batch)? {
            return Ok(true);
        }
        self.make_usable(committer)?;
        self.write_region(committer, batch)?;
        if !fits && self.room.take_due_count(capacity_bytes) {
            // The batch is durable, whatever fails here; and a failed read is got over at once,
            // because whoever scans the region next does not do it.
            if self.free_and_count(committer).is_err() {
                let _ = self.make_usable(committer);
            }
        }
        Ok(false)
    }

    /// Opens the store anew where an earlier failure stands.
    fn make_usable(&self, committer: &mut Committer) -> Result<(), CatalogError> {
        if !committer.is_usable() {
            self.reopen(committer, &self.renewing.lock())?;
        }
        Ok(())
    }

    /// Opens the store anew, and reads from it.
    pub(crate) fn reopen(
        &self,
        committer: &mut Committer,
        _renewing: &MutexGuard<'_, ()>,
    ) -> Result<Arc<Reader>, CatalogError> {
        let written_blocks = (committer.store.as_ref()).map_or(0, Store::take_written_blocks);
        let generation = committer.journal.generation();
        let reader = committer.reopen()?;
        if let Some(store) = &committer.store {
            self.room.note_written(written_blocks, store.length_bytes());
        }
        if committer.journal.generation() == generation {
            let former = self.overlay.write().set_reader(Arc::clone(&reader));
            drop(former);
        } else {
            // What the journal held is older than the commit that is there: nobody writes it over it.
            self.read_from(Arc::clone(&reader));
        }
        Ok(reader)
    }

    /// Reads from a state that has all that the journal held. The pages of the one before are given
    /// back once nobody reads it.
    fn read_from(&self, reader: Arc<Reader>) {
        let former = self.overlay.write().empty_journal(reader);
        drop(former);
    }

    /// Takes what the journal holds, and the batch, into the region, and reads them from there. The
    /// library asks for twice the size that it has; where there is no room for so much, it is opened
    /// anew over all that there is, and has the two one after the other.
    fn take_into_region(
        &self,
        committer: &mut Committer,
        batch: &Layer,
    ) -> Result<(), CatalogError> {
        let renewing = self.renewing.lock();
        let journaled = Arc::clone(self.overlay.read().journaled());
        let mut written = committer.write_region(&[&journaled, batch]);
        // First over what is set aside, then over as much more as may be.
        for more_bytes in [0, self.region.capacity_bytes() / 4] {
            if !matches!(written, Err(CatalogError::Full)) {
                break;
            }
            match (self.region).set_aside(self.region.capacity_bytes() + more_bytes) {
                Err(CatalogError::Full) => break,
                set_aside => set_aside?,
            }
            self.region.grow(self.region.capacity_bytes())?;
            self.reopen(committer, &renewing)?;
            written = self
                .settle_alone(committer)
                .and_then(|()| committer.write_region(&[batch]));
        }
        if let Some(store) = &committer.store {
            self.room
                .note_written(store.take_written_blocks(), store.length_bytes());
        }
        if matches!(written, Err(CatalogError::Full)) {
            // What is there can still be read.
            self.reopen(committer, &renewing)?;
        }
        self.read_from(written?);
        Ok(())
    }

    /// As [`Catalog::take_into_region`]; a small region is measured each time, from memory: what a
    /// group of small disks has for its catalog is soon less than what the bound adds up to.
    fn write_region(&self, committer: &mut Committer, batch: &Layer) -> Result<(), CatalogError> {
        self.take_into_region(committer, batch)?;
        let _renewing = self.renewing.lock();
        if let Some(store) = &committer.store
            && store.length_bytes() <= MEASURED_BYTES_MAX
            && let Ok(used_pages) = store.used_pages()
        {
            self.room.measured(used_pages);
        }
        Ok(())
    }

    /// Takes what the journal holds into the region, by itself, and gives back the pages that this
    /// replaced.
    fn settle_alone(&self, committer: &mut Committer) -> Result<(), CatalogError> {
        for _ in 0..2 {
            let journaled = Arc::clone(self.overlay.read().journaled());
            self.read_from(committer.write_region(&[&journaled])?);
        }
        Ok(())
    }

    fn free_and_count(&self, committer: &mut Committer) -> Result<(), CatalogError> {
        self.settle_and_free_of(committer)?;
        self.make_usable(committer)?;
        let store = committer.store.as_ref().expect("made usable before");
        self.room.measured(store.used_pages()?);
        Ok(())
    }

    /// Brings what the journal holds into the region and measures what is in use. It reads all of
    /// the region.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be written or read.
    pub fn measure(&self) -> Result<(), CatalogError> {
        self.free_and_count(&mut self.committer.lock(Unshown))
    }

    /// Brings what the journal holds into the region, and gives back the pages that this replaced: the
    /// next transaction may have as many.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be written.
    pub fn settle_and_free(&self) -> Result<(), CatalogError> {
        self.settle_and_free_of(&mut self.committer.lock(Unshown))
    }

    fn settle_and_free_of(&self, committer: &mut Committer) -> Result<(), CatalogError> {
        self.make_usable(committer)?;
        self.write_region(committer, &Layer::default())?;
        // What the transaction before gave up is free after one more.
        self.make_usable(committer)?;
        self.write_region(committer, &Layer::default())
    }

    /// Brings what the journal of commits holds into the region, so that a scan sees it.
    ///
    /// # Errors
    /// [`CatalogError`] where the region cannot be written.
    pub fn settle(&self) -> Result<(), CatalogError> {
        let mut committer = self.committer.lock(Unshown);
        if self.overlay.read().journaled().is_empty() {
            return Ok(());
        }
        self.make_usable(&mut committer)?;
        self.write_region(&mut committer, &Layer::default())
    }

    /// Marks the region as cleanly closed, so that the next opening has nothing to recover.
    /// Edits that are not committed are lost, and later calls fail. An earlier failure is got over
    /// first.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where it cannot be, or the region takes the last of it not; it is then
    /// as after a crash, with every commit in it. Asked again it says the same.
    pub fn close(&self) -> Result<(), CatalogError> {
        let mut committer = self.committer.lock(Unshown);
        if let Some(answer) = &committer.closed {
            return answer.clone();
        }
        // What a failed transaction left open only another one settles, and only another generation
        // makes a record void that failed and may be there.
        let is_owed = !self.overlay.read().journaled().is_empty()
            || !committer.is_settled()
            || committer.journal.is_broken();
        let mut answer = self.make_usable(&mut committer);
        if is_owed && answer.is_ok() {
            answer = self.take_into_region(&mut committer, &Layer::default());
        }
        match committer.store.take() {
            Some(store) if answer.is_ok() => answer = store.close(),
            Some(store) => store.abandon(),
            None => {}
        }
        committer.closed = Some(answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests;
