//! Which verifiers the writes have that no flush has covered.

use std::collections::BTreeSet;

use super::JobId;
use crate::compound::Verifier;

/// Verifiers of writes that are in the server's memory, as far as is known.
#[derive(Debug, Default)]
pub struct Unflushed {
    /// Of those that no flush under way covers.
    open: BTreeSet<Verifier>,
    /// Of those that the flush under way covers.
    covered: BTreeSet<Verifier>,
    /// That flush. There is one at most: the next one would not know what this one covers.
    flush: Option<JobId>,
}

impl Unflushed {
    /// Whether nothing has to be made durable.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.covered.is_empty()
    }

    /// Whether a flush is under way.
    pub const fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// A write into the server's memory was answered. False: by a server that has forgotten others.
    pub fn written(&mut self, verifier: Verifier) -> bool {
        let is_same = self
            .open
            .iter()
            .chain(&self.covered)
            .all(|one| *one == verifier);
        if !is_same {
            self.open.clear();
            self.covered.clear();
        }
        self.open.insert(verifier);
        is_same
    }

    /// A flush begins, which covers every write that was answered.
    pub fn begin(&mut self, flush: JobId) {
        assert!(self.flush.is_none(), "one flush is under way");
        self.flush = Some(flush);
        self.covered = std::mem::take(&mut self.open);
    }

    /// The flush was answered. False: by a server that has forgotten writes that it covers.
    pub fn flushed(&mut self, verifier: Verifier) -> bool {
        self.flush = None;
        let covered = std::mem::take(&mut self.covered);
        covered.iter().all(|one| *one == verifier)
    }

    /// The flush, where it is the one under way, came to nothing: the next one covers it all.
    pub fn put_back(&mut self, flush: JobId) {
        if self.flush == Some(flush) {
            self.flush = None;
            self.open.append(&mut self.covered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobId, Unflushed};

    const A: [u8; 8] = [1; 8];
    const B: [u8; 8] = [2; 8];

    #[test]
    fn a_flush_by_another_verifier_than_that_of_a_write_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin(JobId(1));
        assert!(!unflushed.flushed(B));
        assert!(unflushed.is_empty());
    }

    #[test]
    fn a_write_by_another_verifier_than_that_of_a_write_under_flush_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin(JobId(1));
        assert!(!unflushed.written(B));
    }

    #[test]
    fn a_flush_that_came_to_nothing_leaves_its_writes_to_the_next() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin(JobId(1));
        unflushed.put_back(JobId(1));
        assert!(!unflushed.is_empty());
        unflushed.begin(JobId(2));
        assert!(unflushed.flushed(A));
        assert!(unflushed.is_empty());
    }

    #[test]
    fn an_answer_of_before_a_restart_that_comes_after_one_of_behind_it_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(B));
        assert!(!unflushed.written(A));
        unflushed.begin(JobId(1));
        assert!(!unflushed.flushed(B));
    }
}
