//! Lazy work, a small piece at a time, driven from outside: aged batches are committed, quiet
//! dirty regions cleaned, and lost replicas of the catalog replaced. A crash at any point leaves more to do, nothing wrong.

use spindle_catalog::Edit;

use super::Group;
use crate::error::GroupError;
use crate::event::{Event, EventKind};

/// A batch is committed when it is this old.
const COMMIT_AGE_MS: u64 = 5000;
/// A batch is committed when it is this large.
const COMMIT_BYTES: usize = 8 << 20;
/// Time between two rounds of cleaning.
const ROUND_MS: u64 = 5000;

/// What the steps remember.
#[derive(Debug, Default)]
pub struct Lazy {
    pending_since_ms: Option<u64>,
    /// Something is pending that must not wait for its age.
    urgent: bool,
    last_round_ms: Option<u64>,
    /// A lost replica could not be replaced, and that was told.
    lacks_replica: bool,
}

impl Group {
    /// One small piece of lazy work (clean dirty regions, commit an aged batch); `now_ms` is any
    /// monotonic clock. True where more is to do at once.
    ///
    /// # Errors
    /// As [`Group::sync`].
    pub fn step(&self, now_ms: u64) -> Result<bool, GroupError> {
        self.check_fence()?;
        self.notice_offline();
        self.move_bad_places()?;
        if self.is_commit_due(now_ms) {
            self.commit_everything()?;
            return Ok(true);
        }
        if self.is_round_due(now_ms) {
            self.clean_round()?;
            self.replace_replica();
            self.move_replica();
            self.note_away();
            self.give_up_overdue()?;
            // A disk whose files were removed is empty without a rebalance.
            self.forget_empty_disks()?;
        }
        Ok(false)
    }

    /// The next step commits what is pending, however young it is.
    pub(crate) fn commit_soon(&self) {
        self.lazy.lock().urgent = true;
    }

    fn is_commit_due(&self, now_ms: u64) -> bool {
        let pending =
            self.catalog.committed() < self.catalog.applied() || !self.dirty_maps.lock().is_empty();
        let mut lazy = self.lazy.lock();
        if !pending {
            lazy.pending_since_ms = None;
            lazy.urgent = false;
            return false;
        }
        let since_ms = *lazy.pending_since_ms.get_or_insert(now_ms);
        let due = lazy.urgent
            || now_ms.saturating_sub(since_ms) >= COMMIT_AGE_MS
            || self.catalog.pending_bytes() >= COMMIT_BYTES
            || self.journal().is_some_and(|journal| journal.is_long());
        if due {
            lazy.pending_since_ms = None;
            lazy.urgent = false;
        }
        due
    }

    fn is_round_due(&self, now_ms: u64) -> bool {
        let mut lazy = self.lazy.lock();
        let last_ms = *lazy.last_round_ms.get_or_insert(now_ms);
        let due = now_ms.saturating_sub(last_ms) >= ROUND_MS;
        if due {
            lazy.last_round_ms = Some(now_ms);
        }
        due
    }

    /// Copies the catalog to another disk where a replica was lost with its disk. A disk that
    /// cannot take it is told of once, and asked again at every round. Whether a replica was made.
    pub(super) fn replace_replica(&self) -> bool {
        let candidate = self.membership.replica_candidate();
        let answer = candidate.map(|disk| (disk, self.region.add_replica(disk)));
        let mut lazy = self.lazy.lock();
        match answer {
            Some((disk, Err(error))) if !lazy.lacks_replica => {
                lazy.lacks_replica = true;
                drop(lazy);
                let title = self.membership.disk_title(disk);
                let message = format!(
                    "the catalog has lost a replica, and disk {title} cannot hold another: {error}"
                );
                self.event(Event::new(EventKind::CatalogReplicaLost, message).disk(disk));
                false
            }
            Some((_, Err(_))) => false,
            Some((disk, Ok(()))) => {
                lazy.lacks_replica = false;
                drop(lazy);
                let title = self.membership.disk_title(disk);
                let message = format!("disk {title} holds a replica of the catalog now");
                self.event(Event::new(EventKind::CatalogReplicaAdded, message).disk(disk));
                true
            }
            None => {
                lazy.lacks_replica = false;
                false
            }
        }
    }

    /// Takes the catalog off a disk that is on its way out, as soon as another can have it.
    fn move_replica(&self) {
        let Some((from, Some(to))) = self.membership.replica_to_move() else {
            return;
        };
        // Where it cannot be now, forgetting the disk asks again.
        if self.region.move_replica(from, Some(to), false).is_ok() {
            let (from, to) = (self.disks.describe(from), self.disks.describe(to));
            self.event(Event::new(
                EventKind::CatalogReplicaAdded,
                format!("{to} holds a replica of the catalog now, in place of {from}"),
            ));
        }
    }

    /// One round of cleaning; whether a further one could clean more. The disks are flushed
    /// first, and again by the commit that drops the rows.
    pub(super) fn clean_round(&self) -> Result<bool, GroupError> {
        if self.dirty.count() == 0 {
            return Ok(false);
        }
        self.dirty.begin_round();
        self.flush_written()?;
        self.notice_offline();
        // Alone, so that nobody records a region between the decision and its edit.
        let _alone = self.change.write();
        let mut edit = Edit::default();
        let more = self.dirty.round(&mut edit);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        Ok(more)
    }

    /// Cleans all that can be cleaned, for a close: nobody writes any more.
    pub(super) fn clean_everything(&self) -> Result<(), GroupError> {
        while self.clean_round()? {}
        Ok(())
    }
}
