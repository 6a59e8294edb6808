//! `as3ap`: AS3AP-like, after what is published of the "ANSI SQL Standard Scalable and Portable"
//! benchmark (Turbyfill, Orji and Bitton, in Gray's Benchmark Handbook): its relations, the kinds of
//! its tests and its mixes of users; the data and the statements are the lab's own.
//!
//! - `single-user`: loading and indexes, selections of several sizes over clustered and unclustered
//!   indexes, joins, projections, aggregates and reports, bulk and single updates, one after the
//!   other. Measured to its end; the rate is that of the geometric mean of the times.
//! - `information-retrieval` and `oltp`: every user reads, or changes, a row by its key.
//! - `mixed-...`: the same, and one user runs the cross-section of ten statements in turn.
//!
//! The published metric, the largest database for which all of it ends within twelve hours, is not
//! taken: what is compared here is storage under the same database. Each statement must give or
//! change as many rows as the data says; the sums of two columns must tell the acknowledged changes.
//! Nothing here survives a run; a crash loses nothing.

mod data;
mod statements;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::data::{KEY_STEP, row_count};
use self::statements::{Statement, cross_section, single_user};
use super::{Load, equal, geometric_mean};
use crate::experiment::{DatabaseKind, Mode, Workload};
use crate::measure::database::{Server, Session};
use crate::measure::load::{Client, Driven};
use crate::record::Check;

pub(super) struct As3ap {
    rows: u64,
    mode: Mode,
    users: u32,
    /// Of the single-user tests.
    times: Arc<Mutex<Vec<(&'static str, f64)>>>,
    /// What was added to `signed`, one by one.
    changed: Arc<AtomicI64>,
    /// What the cross-section added to `amount`, less what it took back.
    added: Arc<AtomicI64>,
}

impl As3ap {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            rows: row_count(workload.size_bytes),
            mode: workload.mode,
            users: workload.users,
            times: Arc::default(),
            changed: Arc::default(),
            added: Arc::default(),
        }
    }

    fn is_mixed(&self) -> bool {
        matches!(self.mode, Mode::MixedInformationRetrieval | Mode::MixedOltp)
    }
}

impl Load for As3ap {
    fn image(&self) -> String {
        format!("as3ap-{}", self.rows)
    }

    fn refuses(&self, kind: DatabaseKind) -> Option<String> {
        (kind != DatabaseKind::Postgresql)
            .then(|| "its statements are written for PostgreSQL".to_owned())
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        data::fill(server, self.rows)
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|user| {
                let mut session = server.connect()?;
                if self.mode == Mode::SingleUser {
                    let mut left = single_user(self.rows);
                    // The next one is taken from the end.
                    left.reverse();
                    return Ok(Box::new(Single {
                        session,
                        left,
                        times: Arc::clone(&self.times),
                    }) as Box<dyn Client>);
                }
                if user == 0 && self.is_mixed() {
                    return Ok(Box::new(Section {
                        session,
                        rows: self.rows,
                        left: Vec::new(),
                        added: Arc::clone(&self.added),
                    }) as Box<dyn Client>);
                }
                let is_change = matches!(self.mode, Mode::Oltp | Mode::MixedOltp);
                let text = if is_change {
                    "UPDATE updates SET signed = signed + 1 WHERE key = $1"
                } else {
                    "SELECT key, code, day, signed, name FROM updates WHERE key = $1"
                };
                Ok(Box::new(User {
                    statement: session.prepare(text)?,
                    session,
                    rows: self.rows,
                    changed: is_change.then(|| Arc::clone(&self.changed)),
                }) as Box<dyn Client>)
            })
            .collect()
    }

    fn unit(&self) -> (&'static str, f64) {
        match self.mode {
            Mode::SingleUser => ("tests/h, geometric mean", 3600.0),
            _ => ("operations/s", 1.0),
        }
    }

    fn rate(&self, driven: &Driven) -> f64 {
        if self.mode != Mode::SingleUser {
            return driven.rate();
        }
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds: Vec<f64> = times.iter().map(|(_, seconds)| *seconds).collect();
        self.unit().1 / geometric_mean(&seconds)
    }

    fn operations_each(&self) -> Option<u64> {
        (self.mode == Mode::SingleUser).then(|| single_user(self.rows).len() as u64)
    }

    fn checks(&self, server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let row = server
            .connect()?
            .ask_one("SELECT count(*), sum(signed)::int8, sum(amount)::int8 FROM updates")?;
        let rows = i64::try_from(self.rows)?;
        // Every value of 0..rows stands in it once; `signed` has half of the rows taken off.
        let amount = rows * (rows - 1) / 2;
        let bulk = if self.mode == Mode::SingleUser {
            1000
        } else {
            0
        };
        Ok(vec![
            equal(
                "what was put in was taken out",
                ("rows", row.integer(0)?),
                ("at the beginning", rows),
            ),
            equal(
                "one column holds the acknowledged changes",
                ("sum", row.integer(1)?),
                (
                    "acknowledged",
                    amount - rows * (rows / 2) + self.changed.load(Ordering::Relaxed),
                ),
            ),
            equal(
                "another holds those of the cross-section",
                ("sum", row.integer(2)?),
                (
                    "acknowledged",
                    amount + bulk + self.added.load(Ordering::Relaxed),
                ),
            ),
        ])
    }

    fn facts(&self, _server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(times
            .iter()
            .map(|(name, seconds)| (format!("{name} (s)"), *seconds))
            .collect())
    }
}

/// Runs a statement and sees that it gave or changed what it had to.
fn run(session: &mut dyn Session, statement: &Statement) -> Result<()> {
    let mut ask = || -> Result<u64> {
        let prepared = session.prepare(&statement.text)?;
        if statement.text.starts_with("SELECT") {
            return Ok(session.query(prepared, &[])?.len() as u64);
        }
        session.execute(prepared, &[])
    };
    let rows = ask().with_context(|| format!("`{}` failed", statement.name))?;
    ensure!(
        rows == statement.rows,
        "`{}` gave {rows} rows, there are to be {}",
        statement.name,
        statement.rows
    );
    Ok(())
}

struct Single {
    session: Box<dyn Session>,
    left: Vec<Statement>,
    times: Arc<Mutex<Vec<(&'static str, f64)>>>,
}

impl Client for Single {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        let statement = self.left.pop().context("there are tests left")?;
        let began = Instant::now();
        run(self.session.as_mut(), &statement)?;
        let seconds = began.elapsed().as_secs_f64();
        self.times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((statement.name, seconds));
        Ok(())
    }
}

struct Section {
    session: Box<dyn Session>,
    rows: u64,
    left: Vec<Statement>,
    added: Arc<AtomicI64>,
}

impl Client for Section {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        if self.left.is_empty() {
            self.left = cross_section(self.rows, random);
            self.left.reverse();
        }
        let statement = self.left.pop().context("a cross-section has statements")?;
        run(self.session.as_mut(), &statement)?;
        let rows = i64::try_from(statement.rows)?;
        match statement.name.split(' ').next() {
            Some("add") => self.added.fetch_add(rows, Ordering::Relaxed),
            Some("subtract") => self.added.fetch_sub(rows, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

struct User {
    session: Box<dyn Session>,
    statement: crate::measure::database::Statement,
    rows: u64,
    changed: Option<Arc<AtomicI64>>,
}

impl Client for User {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let key = i64::try_from(random.u64(0..self.rows) * KEY_STEP)?;
        match &self.changed {
            None => {
                self.session.query_one(self.statement, &[key.into()])?;
            }
            Some(changed) => {
                let rows = self.session.execute(self.statement, &[key.into()])?;
                ensure!(rows == 1, "an update of one row changed {rows}");
                changed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
