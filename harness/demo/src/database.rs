//! What the story needs of a database: a load whose commits are acknowledged and logged outside,
//! a sudden end, and an account of what is there afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use spindle_testbed::pgbench::Acknowledged;

/// How many clients write at once.
pub const CLIENT_COUNT: u32 = 8;

/// A run of the load and a client of it.
pub type ClientOfRun = (u32, u32);

/// How many commits each client of each run was told of. A client numbers its commits 1, 2, 3,
/// ..., one after the other, so that the count says which.
pub type Acknowledgements = BTreeMap<ClientOfRun, u64>;

/// A database in a directory.
pub trait Database {
    /// What runs, for the page.
    fn title(&self) -> String;

    /// Makes it in `place`, fills it and leaves it running.
    fn create(&mut self, place: &Path) -> Result<()>;

    /// Begins the load number `run`, for `duration`.
    fn begin_load(&mut self, run: u32, duration: Duration) -> Result<Box<dyn Load>>;

    /// Sends the clients of a load away and gives every acknowledged commit; the errors that
    /// they see from here on are ours.
    fn end_load(&mut self, load: Box<dyn Load>, limit: Duration) -> Result<Vec<Acknowledged>>;

    /// SIGKILL to everything of it.
    fn kill(&mut self);

    /// Starts it again in `place`, and gives what it had to do.
    fn recover(&mut self, place: &Path) -> Result<()>;

    /// Compares what is there with what was acknowledged.
    fn prove(&mut self, acknowledgements: &Acknowledgements) -> Result<Proof>;

    /// Ends it as an administrator would.
    fn stop(&mut self) -> Result<()>;
}

/// A running load; a drop ends it.
pub trait Load {
    /// Whether it still runs.
    fn is_running(&mut self) -> Result<bool>;

    /// A word about its rate.
    fn progress(&self) -> String;

    /// The errors that clients saw so far.
    fn errors(&self) -> Vec<(Instant, String)>;

    /// Waits for its end and gives every acknowledged commit.
    fn finish(self: Box<Self>, limit: Duration) -> Result<Vec<Acknowledged>>;
}

/// What was found in the database.
#[derive(Debug, Default)]
pub struct Proof {
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// Commits that are there although no client was told of them: each client can have one.
    pub unheard: u64,
    /// What else was checked and holds, a sentence each.
    pub held: Vec<String>,
    /// What was broken, a sentence each.
    pub faults: Vec<String>,
}

impl Proof {
    /// Compares, for each client of each run, the commits that are there (how many, and the
    /// highest number) with those acknowledged.
    pub fn compare(
        acknowledgements: &Acknowledgements,
        found: &BTreeMap<ClientOfRun, (u64, u64)>,
    ) -> Self {
        let mut proof = Self::default();
        for (&(run, client), &acknowledged) in acknowledgements {
            proof.acknowledged += acknowledged;
            let (count, highest) = found.get(&(run, client)).copied().unwrap_or((0, 0));
            if highest < acknowledged {
                proof.faults.push(format!(
                    "run {run}, client {client}: {acknowledged} commits were acknowledged, the \
                     last one there is number {highest}"
                ));
            }
            if count != highest {
                proof.faults.push(format!(
                    "run {run}, client {client}: {count} commits are there, but they are \
                     numbered up to {highest}"
                ));
            }
            let unheard = highest.saturating_sub(acknowledged);
            if unheard > 1 {
                proof.faults.push(format!(
                    "run {run}, client {client}: {unheard} commits are there that were never \
                     acknowledged; a client waits for each, so there can be one"
                ));
            }
            proof.unheard += unheard;
        }
        for (run, client) in found.keys() {
            // A client may be killed before its first answer.
            if !acknowledgements.contains_key(&(*run, *client)) {
                proof.unheard += 1;
            }
        }
        proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(acknowledged: u64, found: Option<(u64, u64)>) -> Proof {
        let acknowledgements = BTreeMap::from([((1, 3), acknowledged)]);
        Proof::compare(
            &acknowledgements,
            &found.map(|found| ((1, 3), found)).into_iter().collect(),
        )
    }

    #[test]
    fn a_commit_without_an_answer_may_be_there_or_not() {
        assert!(proof(10, Some((10, 10))).faults.is_empty());
        let one_more = proof(10, Some((11, 11)));
        assert!(one_more.faults.is_empty());
        assert_eq!(one_more.unheard, 1);
    }

    #[test]
    fn a_lost_commit_a_gap_and_a_stranger_are_faults() {
        assert_eq!(proof(10, Some((9, 9))).faults.len(), 1);
        assert_eq!(proof(10, None).faults.len(), 1);
        assert_eq!(proof(10, Some((9, 10))).faults.len(), 1);
        assert_eq!(proof(10, Some((12, 12))).faults.len(), 1);
    }
}
