//! What may be in the server's memory and not on its disk, by the verifiers it was written under.

use std::collections::BTreeSet;

use crate::compound::Verifier;

/// Verifiers of what is not durable, as far as is known; nothing stands for one that is not known.
#[derive(Debug, Default)]
pub struct Unflushed {
    /// The verifier that the server showed last.
    known: Option<Verifier>,
    /// Of what no COMMIT under way covers.
    open: BTreeSet<Option<Verifier>>,
    /// Of what the COMMIT under way covers.
    covered: BTreeSet<Option<Verifier>>,
    /// There is one COMMIT under way at most: the next one would not know what this one covers, and
    /// might succeed because this one has told the server's error.
    is_flushing: bool,
}

impl Unflushed {
    /// Whether nothing has to be made durable.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.covered.is_empty()
    }

    /// Whether a COMMIT is under way.
    pub const fn is_flushing(&self) -> bool {
        self.is_flushing
    }

    /// A write into the server's memory was answered. False: by a server that has forgotten others.
    pub fn written(&mut self, verifier: Verifier) -> bool {
        let all = self.open.iter().chain(&self.covered);
        let is_same = agree(all, verifier);
        if !is_same {
            self.lose();
        }
        self.known = Some(verifier);
        self.open.insert(self.known);
        is_same
    }

    /// The server may have something in its memory that no answer told of: a write that was given up,
    /// or whose answer is of no use.
    pub fn doubt(&mut self) {
        self.open.insert(self.known);
    }

    /// What was there is lost, and nothing is there any more.
    pub fn forget(&mut self) {
        self.covered.clear();
        self.open.clear();
    }

    /// What was there is lost. What is there now is not known, so that the next flush asks for a
    /// COMMIT.
    pub fn lose(&mut self) {
        self.forget();
        self.open.insert(None);
    }

    /// A COMMIT begins, which covers every write that was answered.
    pub fn begin(&mut self) {
        assert!(!self.is_flushing, "one COMMIT is under way");
        self.is_flushing = true;
        self.covered = std::mem::take(&mut self.open);
    }

    /// The COMMIT was done. False: by a server that has forgotten what it covers.
    pub fn flushed(&mut self, verifier: Verifier) -> bool {
        self.is_flushing = false;
        self.known = Some(verifier);
        let covered = std::mem::take(&mut self.covered);
        agree(covered.iter(), verifier)
    }

    /// The COMMIT came to nothing: the next one covers it all.
    pub fn put_back(&mut self) {
        self.is_flushing = false;
        self.open.append(&mut self.covered);
    }
}

fn agree<'a>(mut all: impl Iterator<Item = &'a Option<Verifier>>, verifier: Verifier) -> bool {
    all.all(|one| one.is_none_or(|one| one == verifier))
}

#[cfg(test)]
mod tests {
    use super::Unflushed;

    const A: [u8; 8] = [1; 8];
    const B: [u8; 8] = [2; 8];

    #[test]
    fn a_flush_by_another_verifier_than_that_of_a_write_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin();
        assert!(!unflushed.flushed(B));
        assert!(unflushed.is_empty());
    }

    #[test]
    fn a_write_by_another_verifier_than_that_of_a_write_under_flush_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin();
        assert!(!unflushed.written(B));
    }

    #[test]
    fn a_flush_that_came_to_nothing_leaves_its_writes_to_the_next() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(A));
        unflushed.begin();
        unflushed.put_back();
        assert!(!unflushed.is_empty());
        unflushed.begin();
        assert!(unflushed.flushed(A));
        assert!(unflushed.is_empty());
    }

    #[test]
    fn an_answer_of_before_a_restart_that_comes_after_one_of_behind_it_is_a_loss() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.written(B));
        assert!(!unflushed.written(A));
        unflushed.begin();
        assert!(!unflushed.flushed(B));
    }

    #[test]
    fn a_doubtful_write_counts_as_one_under_the_verifier_that_was_known() {
        let mut unflushed = Unflushed::default();
        unflushed.doubt();
        unflushed.begin();
        assert!(unflushed.flushed(A), "nothing else is known");
        unflushed.doubt();
        unflushed.begin();
        // What is doubtful from now on is not covered.
        unflushed.doubt();
        assert!(!unflushed.flushed(B));
        assert!(!unflushed.is_empty());
    }
}
