//! The loads: what fills a database, what clients do in it, and what shows that it was real. One
//! more is one more file here with its line in [`load`].

pub mod fio;
mod growth;
mod random;
mod scan;
mod tpcb;

use std::collections::BTreeMap;

use anyhow::Result;

use super::database::dialect::numbers;
use super::database::{Server, Session};
use super::load::{Client, Driven};
use crate::experiment::{DatabaseKind, Kind, Workload};
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

    /// Whether there is one operation that is measured to its end, however long it takes.
    fn is_one_operation(&self) -> bool {
        false
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
        Kind::Random => Some(Box::new(random::Random::new(workload))),
        Kind::Scan => Some(Box::new(scan::Scan::new(workload))),
        Kind::Growth => Some(Box::new(growth::Growth)),
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
