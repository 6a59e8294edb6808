//! `random`: single-block reads through an index in random order, with a share of updates, after
//! the method that is known as SLOB; none of its code.
//!
//! Each row has 8 KiB of the table for itself, so that a row that is asked for is a block that is
//! read: in PostgreSQL by the fill factor, in SQLite by a row that leaves no room for a second one in
//! its page. InnoDB puts at least two rows into each of its pages, which have 16 KiB: there two rows
//! fill a page. An update changes a counter in its block; the sum of the counters must equal the
//! acknowledged updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;

use super::{Load, equal, fill_rows};
use crate::experiment::{DatabaseKind, Workload};
use crate::measure::database::dialect::filler;
use crate::measure::database::{Server, Session, Statement};
use crate::measure::load::{Client, Driven};
use crate::record::Check;

/// Of a row, with the room that is left beside it.
const BLOCK_BYTES: u64 = 8192;
/// The hot rows are the first tenth.
const HOT_PART: u64 = 10;
/// What a reader gets of a row, whatever its database fills the block with.
const SEEN_BYTES: usize = 600;

pub(super) struct Random {
    rows: u64,
    users: u32,
    update_percent: u32,
    hot_percent: u32,
    updates: Arc<AtomicI64>,
}

impl Random {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            rows: (workload.size_bytes / BLOCK_BYTES).max(HOT_PART),
            users: workload.users,
            update_percent: workload.update_percent,
            hot_percent: workload.hot_percent,
            updates: Arc::new(AtomicI64::new(0)),
        }
    }
}

/// How much text makes a row fill its share of a page.
fn filler_bytes(kind: DatabaseKind) -> usize {
    match kind {
        // A tenth of a block is 819 bytes: a row of more than half of that fills its share alone.
        DatabaseKind::Postgresql => SEEN_BYTES,
        // Less than half of a page, or it would be put elsewhere.
        DatabaseKind::Mariadb => 7168,
        DatabaseKind::Sqlite => 7000,
    }
}

impl Load for Random {
    fn image(&self) -> String {
        format!("random-{}", self.rows)
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        let mut session = server.connect()?;
        let kind = server.kind();
        session.batch(match kind {
            DatabaseKind::Postgresql => {
                "CREATE TABLE block (id integer, counter integer NOT NULL, filler text NOT NULL)
                     WITH (fillfactor = 10);
                 ALTER TABLE block ALTER COLUMN filler SET STORAGE PLAIN"
            }
            DatabaseKind::Mariadb | DatabaseKind::Sqlite => {
                "CREATE TABLE block (id integer PRIMARY KEY, counter integer NOT NULL,
                     filler varchar(8000) NOT NULL)"
            }
        })?;
        fill_rows(session.as_mut(), self.rows, |numbers| {
            format!(
                "INSERT INTO block SELECT n, 0, {} FROM {numbers}",
                filler(kind, "n", filler_bytes(kind))
            )
        })?;
        if kind == DatabaseKind::Postgresql {
            session.batch("ALTER TABLE block ADD PRIMARY KEY (id)")?;
        }
        session.settle("block")
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|_| {
                let mut session = server.connect()?;
                if server.kind() == DatabaseKind::Postgresql {
                    // The planner must not leave the index because the table is small.
                    session.batch("SET enable_seqscan = off")?;
                }
                Ok(Box::new(Reader {
                    select: session.prepare(&format!(
                        "SELECT counter, substr(filler, 1, {SEEN_BYTES}) FROM block WHERE id = $1"
                    ))?,
                    update: session
                        .prepare("UPDATE block SET counter = counter + 1 WHERE id = $1")?,
                    session,
                    rows: self.rows,
                    update_percent: self.update_percent,
                    hot_percent: self.hot_percent,
                    updates: Arc::clone(&self.updates),
                }) as Box<dyn Client>)
            })
            .collect()
    }

    fn unit(&self) -> (&'static str, f64) {
        ("operations/s", 1.0)
    }

    fn checks(&self, server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let mut session = server.connect()?;
        let row = session.ask_one("SELECT count(*), sum(counter) FROM block")?;
        let rows = row.integer(0)?;
        let blocks = match server.kind() {
            DatabaseKind::Postgresql => {
                "SELECT pg_relation_size('block') / current_setting('block_size')::bigint"
            }
            DatabaseKind::Mariadb => {
                "SELECT stat_value FROM mysql.innodb_index_stats
                 WHERE table_name = 'block' AND index_name = 'PRIMARY'
                     AND stat_name = 'n_leaf_pages'"
            }
            DatabaseKind::Sqlite => {
                "SELECT count(*) FROM dbstat WHERE name = 'block' AND pagetype = 'leaf'"
            }
        };
        let blocks = session.ask_one(blocks)?.integer(0)?;
        let rows_of_a_block = match server.kind() {
            DatabaseKind::Mariadb => 2,
            DatabaseKind::Postgresql | DatabaseKind::Sqlite => 1,
        };
        Ok(vec![
            equal(
                "the counters hold the acknowledged updates",
                ("counters", row.integer(1)?),
                ("acknowledged", self.updates.load(Ordering::Relaxed)),
            ),
            Check {
                name: "no two rows share 8 KiB".to_owned(),
                passed: blocks * rows_of_a_block >= rows,
                detail: format!("rows {rows}, blocks {blocks}, rows a block {rows_of_a_block}"),
            },
        ])
    }
}

struct Reader {
    session: Box<dyn Session>,
    select: Statement,
    update: Statement,
    rows: u64,
    update_percent: u32,
    hot_percent: u32,
    updates: Arc<AtomicI64>,
}

impl Client for Reader {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let range = if random.u32(0..100) < self.hot_percent {
            self.rows / HOT_PART
        } else {
            self.rows
        };
        let id = i64::try_from(random.u64(1..=range))?;
        if random.u32(0..100) < self.update_percent {
            self.session.execute(self.update, &[id.into()])?;
            self.updates.fetch_add(1, Ordering::Relaxed);
        } else {
            self.session.query_one(self.select, &[id.into()])?;
        }
        Ok(())
    }
}
