//! Commits: one at a time, shared by everybody who waited for the one before.
//!
//! A caller that waits behind a running commit needs the next one, and that one seals the books
//! after the caller came, so whoever gets the lock later finds its work done and returns.

use std::sync::Arc;

use crate::store::{Reader, Store};
use crate::{Catalog, CatalogError, Region, Sequence};

/// What only one commit at a time may touch.
#[derive(Debug)]
pub(crate) struct Committer {
    region: Arc<dyn Region>,
    cache_bytes: usize,
    /// `None` after a failure that could not be got over yet, and after closing.
    store: Option<Store>,
    /// The store refused something; nothing it says later counts.
    broken: bool,
    closed: bool,
}

impl Committer {
    pub(crate) const fn new(region: Arc<dyn Region>, cache_bytes: usize, store: Store) -> Self {
        Self {
            region,
            cache_bytes,
            store: Some(store),
            broken: false,
            closed: false,
        }
    }

    /// Opens the store anew over the same region, as a restart would. A commit that failed may
    /// be there or not; its batch is pending again and gives the same rows once more.
    pub(crate) fn reopen(&mut self) -> Result<Arc<Reader>, CatalogError> {
        if self.closed {
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
        self.store = Some(store);
        self.broken = false;
        Ok(reader)
    }

    fn is_usable(&self) -> bool {
        !self.broken && self.store.is_some()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.abandon();
        }
    }
}

impl Catalog {
    /// Makes every edit up to `through` durable; returns at once where they are. Commits run one
    /// at a time and callers that wait meanwhile share the next one.
    ///
    /// `seal` runs first, under the commit's lock: the group closes its books there (applies
    /// what it still holds back). Then the batch is taken, then `before` runs (the group flushes
    /// the data that the batch speaks of), then the transaction is written, if there is anything
    /// in it. A `through` beyond [`Catalog::applied`] asks for what `seal` adds: a commit that
    /// begins after the call is then always waited for.
    ///
    /// Neither closure may commit; both may read and apply.
    ///
    /// # Errors
    /// What `before` returns, or [`CatalogError`]; the batch then stays to be committed later.
    pub fn commit(
        &self,
        through: Sequence,
        seal: &mut dyn FnMut(),
        before: &mut dyn FnMut() -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let begun_at_call = {
            let overlay = self.overlay.read();
            if overlay.committed() >= through {
                return Ok(());
            }
            overlay.begun_commits_count()
        };
        let mut committer = self.committer.lock();
        {
            let mut overlay = self.overlay.write();
            // The commit that did our work began after we came, so it sealed after we came.
            if overlay.committed() >= through || overlay.newest_good_commit() > begun_at_call {
                return Ok(());
            }
            overlay.begin_commit();
        }
        seal();
        let (batch, last) = self.overlay.write().take_batch();
        let result = before().and_then(|()| {
            if batch.is_empty() {
                return Ok(None);
            }
            if !committer.is_usable() {
                let reader = committer.reopen()?;
                let former = self.overlay.write().set_reader(reader);
                drop(former);
            }
            let store = committer
                .store
                .as_ref()
                .expect("reopened where it was missing");
            let written = store.write(&batch).and_then(|()| store.reader());
            committer.broken = written.is_err();
            written.map(Some)
        });
        drop(batch);
        match result {
            Ok(reader) => {
                let former = self.overlay.write().finish_batch(last, reader);
                drop(former);
                Ok(())
            }
            Err(error) => {
                self.overlay.write().return_batch();
                Err(error)
            }
        }
    }

    /// Marks the region as cleanly closed, so that the next opening has nothing to recover.
    /// Edits that are not committed are lost, and later calls fail.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where an earlier failure stands; the region is then as after a
    /// crash, with every commit in it.
    pub fn close(&self) -> Result<(), CatalogError> {
        let mut committer = self.committer.lock();
        committer.closed = true;
        let usable = committer.is_usable();
        let Some(store) = committer.store.take() else {
            return Ok(());
        };
        if usable {
            store.close();
            Ok(())
        } else {
            store.abandon();
            Err(CatalogError::Region {
                operation: "closed",
                detail: "its last commit failed".to_owned(),
            })
        }
    }
}

#[cfg(test)]
mod tests;
