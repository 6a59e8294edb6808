//! Lazy work, a small piece at a time, driven from outside: a step takes silent disks offline, mends
//! bad places and commits an aged batch; every five seconds it cleans quiet dirty regions, replaces
//! or moves replicas of the catalog, gives up overdue disks and forgets empty ones. A crash at any
//! point leaves more to do, nothing wrong.

use crate::background::Group;
use crate::error::GroupError;

/// A batch is committed when it is this old.
const COMMIT_AGE_MS: u64 = 5000;
/// Time between two rounds of cleaning.
const ROUND_MS: u64 = 5000;

impl Group {
    /// One small piece of lazy work (clean dirty regions, commit an aged batch); `now_ms` is any
    /// monotonic clock. True where more is to do at once.
    ///
    /// # Errors
    /// As [`Core::sync`](crate::core::Core::sync).
    pub fn step(&self, now_ms: u64) -> Result<bool, GroupError> {
        self.check_fence()?;
        self.take_silent_offline()?;
        self.notice_offline();
        // Before anything waits for a disk that keeps silent, which perhaps can be done without then.
        self.note_caught_up()?;
        self.move_bad_places()?;
        if self.is_commit_due(now_ms) {
            self.commit_everything()?;
            return Ok(true);
        }
        if self.is_round_due(now_ms) {
            self.tell_standing_failures()?;
            self.let_rows_list()?;
            self.clean_round()?;
            self.replace_replica();
            self.move_replicas();
            self.note_away();
            self.membership.tell_of_answers();
            self.give_up_overdue()?;
            // A disk whose files were removed is empty without a rebalance.
            self.forget_empty_disks()?;
        }
        Ok(false)
    }

    /// Takes disks offline that did not answer in time to somebody who could do without.
    fn take_silent_offline(&self) -> Result<(), GroupError> {
        let silent = self.membership.take_silent();
        if silent.is_empty() {
            return Ok(());
        }
        self.take_offline(&silent, "it did not answer in time")
    }

    fn is_commit_due(&self, now_ms: u64) -> bool {
        let is_pending = self.is_commit_pending();
        let mut lazy = self.lazy.lock();
        let since_ms = *lazy.pending_since_ms.get_or_insert(now_ms);
        let is_old = now_ms.saturating_sub(since_ms) >= COMMIT_AGE_MS;
        let is_due = is_pending && (is_old || self.is_commit_urgent());
        if is_due || !is_pending {
            lazy.pending_since_ms = None;
            self.is_not_urgent_any_more();
        }
        is_due
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
}
