//! The loads: what fills a database, what clients do in it, and what shows that it was real. One
//! more is one more file here with its line in [`load`].

mod as3ap;
pub mod fio;
mod growth;
mod random;
mod scan;
pub mod script;
mod tpcb;
mod tpcc;
mod tpch;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::database::dialect::numbers;
use super::database::{Server, Session};
use super::load::{Client, Driven};
use crate::experiment::{DatabaseKind, Kind, Workload};
use crate::quantity::as_float;
use crate::record::Check;

/// A load that runs in a database.
pub trait Load {
    /// What tells its golden image from those of others: loads with the same share one.
    fn image(&self) -> String;

    /// Why a database cannot do it, where it cannot: told before anything is made.
    fn refuses(&self, _kind: DatabaseKind) -> Option<String> {
        None
    }

    /// Fills an empty database: the golden image.
    ///
    /// # Errors
    /// What the database says.
    fn fill(&self, server: &dyn Server) -> Result<()>;

    /// The clients, connected and prepared.
    ///
    /// # Errors
    /// What the database says.
    fn clients(&self, server: &dyn Server, seed: u64) -> Result<Vec<Box<dyn Client>>>;

    /// What is compared: (unit, how much of it one operation is). More is better.
    fn unit(&self) -> (&'static str, f64);

    /// How much was produced so far, where one operation is not always as much as another: it is
    /// read at both ends of the measured time. Else every operation counts.
    fn produced(&self) -> Option<u64> {
        None
    }

    /// The mean of the pauses that the clients say themselves.
    fn mean_pause(&self) -> Option<Duration> {
        None
    }

    /// What is compared, in that unit. More is better.
    fn rate(&self, driven: &Driven) -> f64 {
        driven.rate() * self.unit().1
    }

    /// How many operations each client does, where the work is measured to its end, however long it
    /// takes; none where it goes on for the stated time.
    fn operations_each(&self) -> Option<u64> {
        None
    }

    /// How many transactions that wrote are acknowledged so far, at least; `operations` are how many
    /// operations are. None where that is not counted.
    fn commits(&self, _operations: u64) -> Option<u64> {
        None
    }

    /// Why [`Load::commits`] has not all that wrote, where more did by the server's own count: asked
    /// once the clients are gone. None where all was counted, or nothing is.
    ///
    /// # Errors
    /// What the database says.
    fn uncounted(&self, _server: &dyn Server) -> Result<Option<String>> {
        Ok(None)
    }

    /// The kinds of operations that are told by themselves, in the order of [`Client::kind`].
    fn kinds(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many of them may wait for one flush: those that are under way at once.
    fn writers(&self) -> u32 {
        1
    }

    /// Digests of what was answered, by question, after the load: under the same seed they are the
    /// same for every contender, or the run has failed.
    fn answers(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Shows that the work was real: a check that fails fails the run.
    ///
    /// # Errors
    /// What the database says.
    fn checks(&self, server: &dyn Server, driven: &Driven) -> Result<Vec<Check>>;

    /// Whatever else is worth telling.
    ///
    /// # Errors
    /// What the database says.
    fn facts(&self, _server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        Ok(BTreeMap::new())
    }
}

/// The load of a workload that needs a database.
#[must_use]
pub fn load(workload: &Workload) -> Option<Box<dyn Load>> {
    match workload.kind {
        Kind::Block | Kind::Validate => None,
        Kind::Tpcb => Some(Box::new(tpcb::Tpcb::new(workload))),
        Kind::Tpcc => Some(Box::new(tpcc::Tpcc::new(workload))),
        Kind::Random => Some(Box::new(random::Random::new(workload))),
        Kind::Scan => Some(Box::new(scan::Scan::new(workload))),
        Kind::Growth => Some(Box::new(growth::Growth)),
        Kind::As3ap => Some(Box::new(as3ap::As3ap::new(workload))),
        Kind::Tpch => Some(Box::new(tpch::Tpch::new(workload))),
        Kind::Script => Some(Box::new(script::Scripted::new(workload))),
    }
}

/// Rows that are made by one statement.
const ROWS_AT_ONCE: u64 = 100_000;

/// Fills a table of so many rows by statements of which each makes a part: `insert` writes one, from
/// a table of the whole numbers `n` that it is given.
fn fill_rows(session: &mut dyn Session, rows: u64, insert: impl Fn(&str) -> String) -> Result<()> {
    let mut from = 1;
    while from <= rows {
        let until = rows.min(from + ROWS_AT_ONCE - 1);
        session.batch(&insert(&numbers(session.kind(), from, until)))?;
        from = until + 1;
    }
    Ok(())
}

/// A check of two counts that must be the same.
fn equal(name: &str, one: (&str, i64), other: (&str, i64)) -> Check {
    Check {
        name: name.to_owned(),
        passed: one.1 == other.1,
        detail: format!("{} {}, {} {}", one.0, one.1, other.0, other.1),
    }
}

/// A question of a suite that takes less than this part of the longest counts as if it took so much
/// (the rule of TPC-H, clause 5.4.1.4), so that one that finds nothing does not carry the rate.
const SHORTEST_PART: f64 = 1000.0;

/// Of the times of a suite, so that each question weighs the same.
fn geometric_mean(seconds: &[f64]) -> f64 {
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    let at_least = (longest / SHORTEST_PART).max(f64::MIN_POSITIVE);
    let logs: f64 = seconds
        .iter()
        .map(|seconds| seconds.max(at_least).ln())
        .sum();
    (logs / as_float(seconds.len().max(1) as u64)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_weighs_the_same_in_the_rate_of_a_suite() {
        assert!((geometric_mean(&[1.0, 4.0]) - 2.0).abs() < 1e-9);
        // Half the time of any one is the same gain.
        let all = geometric_mean(&[1.0, 10.0, 100.0]);
        let one = geometric_mean(&[0.5, 10.0, 100.0]);
        let other = geometric_mean(&[1.0, 10.0, 50.0]);
        assert!((all / one - all / other).abs() < 1e-9);
        // What takes no time at all counts as a thousandth of the longest.
        assert!((geometric_mean(&[0.0, 10.0]) - (0.01_f64 * 10.0).sqrt()).abs() < 1e-9);
    }
}
