//! `random`: single-block reads through an index in random order, with shares of updates and of
//! scans, after the method that is known as SLOB; none of its code.
//!
//! Each row has 8 KiB of the table for itself, so that a row that is asked for is a block that is
//! read: in PostgreSQL by the fill factor, in SQLite by a row that leaves no room for a second one in
//! its page. InnoDB puts at least two rows into each of its pages, which have 16 KiB: there two rows
//! fill a page. An update changes a counter in its block; the sum of the counters must equal the
//! acknowledged updates.
//!
//! A schema is a table of such rows for a group of the users, who meet nobody else in it, and beside
//! it a small table that is scanned from end to end; a scan must see every row of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, ensure};

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
/// A row of a table that is scanned, with what the database adds.
const SCANNED_BYTES: u64 = 1170;
/// Its text.
const SCANNED_TEXT_BYTES: usize = 1100;

pub(super) struct Random {
    /// Of each schema.
    rows: u64,
    schemas: u32,
    users: u32,
    update_percent: u32,
    hot_percent: u32,
    scan_percent: u32,
    /// Of the table that is scanned; none where nothing is.
    scanned_rows: u64,
    done: Arc<Done>,
}

/// What was acknowledged.
#[derive(Default)]
struct Done {
    updates: AtomicI64,
    scans: AtomicI64,
}

impl Random {
    pub(super) fn new(workload: &Workload) -> Self {
        let rows = workload.size_bytes / BLOCK_BYTES / u64::from(workload.schemas);
        Self {
            rows: rows.max(HOT_PART),
            schemas: workload.schemas,
            users: workload.users,
            update_percent: workload.update_percent,
            hot_percent: workload.hot_percent,
            scan_percent: workload.scan_percent,
            scanned_rows: match workload.scan_percent {
                0 => 0,
                _ => workload.scan_bytes / SCANNED_BYTES,
            },
            done: Arc::default(),
        }
    }

    fn fill_schema(&self, session: &mut dyn Session, schema: u32) -> Result<()> {
        let kind = session.kind();
        let block = block(schema);
        session.batch(&match kind {
            DatabaseKind::Postgresql => format!(
                "CREATE TABLE {block} (id integer, counter integer NOT NULL, filler text NOT NULL)
                     WITH (fillfactor = 10);
                 ALTER TABLE {block} ALTER COLUMN filler SET STORAGE PLAIN"
            ),
            DatabaseKind::Mariadb | DatabaseKind::Sqlite => format!(
                "CREATE TABLE {block} (id integer PRIMARY KEY, counter integer NOT NULL,
                     filler varchar(8000) NOT NULL)"
            ),
        })?;
        fill_rows(session, self.rows, |numbers| {
            format!(
                "INSERT INTO {block} SELECT n, 0, {} FROM {numbers}",
                filler(kind, "n", filler_bytes(kind))
            )
        })?;
        if kind == DatabaseKind::Postgresql {
            session.batch(&format!("ALTER TABLE {block} ADD PRIMARY KEY (id)"))?;
        }
        session.settle(&block)?;
        if self.scanned_rows > 0 {
            let scanned = scanned(schema);
            session.batch(&format!(
                "CREATE TABLE {scanned} (id integer NOT NULL, filler varchar(2000) NOT NULL)"
            ))?;
            fill_rows(session, self.scanned_rows, |numbers| {
                let text = filler(kind, "n", SCANNED_TEXT_BYTES);
                format!("INSERT INTO {scanned} SELECT n, {text} FROM {numbers}")
            })?;
            session.settle(&scanned)?;
        }
        Ok(())
    }
}

fn block(schema: u32) -> String {
    format!("block_{schema}")
}

fn scanned(schema: u32) -> String {
    format!("scanned_{schema}")
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
        format!(
            "random-{}-{}-{}",
            self.rows, self.schemas, self.scanned_rows
        )
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        let mut session = server.connect()?;
        (0..self.schemas).try_for_each(|schema| self.fill_schema(session.as_mut(), schema))
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|user| {
                let mut session = server.connect()?;
                if server.kind() == DatabaseKind::Postgresql {
                    // The planner must not leave the index because the table is small.
                    session.batch("SET enable_seqscan = off")?;
                }
                let schema = user % self.schemas;
                let block = block(schema);
                let scan = format!(
                    "SELECT count(*) FROM {} WHERE length(filler) > 0",
                    scanned(schema)
                );
                Ok(Box::new(Reader {
                    select: session.prepare(&format!(
                        "SELECT counter, substr(filler, 1, {SEEN_BYTES}) FROM {block} WHERE id = $1"
                    ))?,
                    update: session.prepare(&format!(
                        "UPDATE {block} SET counter = counter + 1 WHERE id = $1"
                    ))?,
                    scan: match self.scan_percent {
                        0 => None,
                        _ => Some((session.prepare(&scan)?, i64::try_from(self.scanned_rows)?)),
                    },
                    session,
                    rows: self.rows,
                    update_percent: self.update_percent,
                    hot_percent: self.hot_percent,
                    scan_percent: self.scan_percent,
                    done: Arc::clone(&self.done),
                }) as Box<dyn Client>)
            })
            .collect()
    }

    fn commits(&self, _operations: u64) -> Option<u64> {
        u64::try_from(self.done.updates.load(Ordering::Relaxed)).ok()
    }

    fn writers(&self) -> u32 {
        self.users
    }

    fn unit(&self) -> (&'static str, f64) {
        ("operations/s", 1.0)
    }

    fn checks(&self, server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let mut session = server.connect()?;
        let (mut rows, mut counters, mut blocks) = (0, 0, 0);
        for schema in 0..self.schemas {
            let block = block(schema);
            let row = session.ask_one(&format!("SELECT count(*), sum(counter) FROM {block}"))?;
            rows += row.integer(0)?;
            counters += row.integer(1)?;
            let count = match server.kind() {
                DatabaseKind::Postgresql => format!(
                    "SELECT pg_relation_size('{block}') / current_setting('block_size')::bigint"
                ),
                DatabaseKind::Mariadb => format!(
                    "SELECT stat_value FROM mysql.innodb_index_stats
                     WHERE table_name = '{block}' AND index_name = 'PRIMARY'
                         AND stat_name = 'n_leaf_pages'"
                ),
                DatabaseKind::Sqlite => format!(
                    "SELECT count(*) FROM dbstat WHERE name = '{block}' AND pagetype = 'leaf'"
                ),
            };
            blocks += session.ask_one(&count)?.integer(0)?;
        }
        let rows_of_a_block = match server.kind() {
            DatabaseKind::Mariadb => 2,
            DatabaseKind::Postgresql | DatabaseKind::Sqlite => 1,
        };
        Ok(vec![
            equal(
                "the counters hold the acknowledged updates",
                ("counters", counters),
                ("acknowledged", self.done.updates.load(Ordering::Relaxed)),
            ),
            Check {
                name: "no two rows share 8 KiB".to_owned(),
                passed: blocks * rows_of_a_block >= rows,
                detail: format!("rows {rows}, blocks {blocks}, rows a block {rows_of_a_block}"),
            },
        ])
    }

    fn facts(&self, _server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let scans = self.done.scans.load(Ordering::Relaxed);
        let scans = u64::try_from(scans).unwrap_or(0);
        Ok([("scans".to_owned(), crate::quantity::as_float(scans))].into())
    }
}

struct Reader {
    session: Box<dyn Session>,
    select: Statement,
    update: Statement,
    /// With the number of rows that it must see.
    scan: Option<(Statement, i64)>,
    rows: u64,
    update_percent: u32,
    hot_percent: u32,
    scan_percent: u32,
    done: Arc<Done>,
}

impl Client for Reader {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        if let Some((scan, rows)) = self.scan
            && random.u32(0..100) < self.scan_percent
        {
            let seen = self.session.query_one(scan, &[])?.integer(0)?;
            ensure!(seen == rows, "a scan saw {seen} of {rows} rows");
            self.done.scans.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let range = if random.u32(0..100) < self.hot_percent {
            self.rows / HOT_PART
        } else {
            self.rows
        };
        let id = i64::try_from(random.u64(1..=range))?;
        if random.u32(0..100) < self.update_percent {
            self.session.execute(self.update, &[id.into()])?;
            self.done.updates.fetch_add(1, Ordering::Relaxed);
        } else {
            self.session.query_one(self.select, &[id.into()])?;
        }
        Ok(())
    }
}
