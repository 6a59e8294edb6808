//! `scan`: one full scan of one large table, serial or by parallel workers of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;

use super::{Load, equal, fill_rows};
use crate::experiment::{DatabaseKind, Workload};
use crate::measure::database::dialect::filler;
use crate::measure::database::{Server, Session, Statement};
use crate::measure::load::{Client, Driven};
use crate::quantity::as_float;
use crate::record::Check;

/// Of a row, with what the database adds: seven lie in a block.
const ROW_BYTES: u64 = 1170;
const FILLER_BYTES: usize = 1100;

pub(super) struct Scan {
    rows: u64,
    degree: u32,
    counted: Arc<AtomicI64>,
}

impl Scan {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            rows: workload.size_bytes / ROW_BYTES,
            degree: workload.degree,
            counted: Arc::new(AtomicI64::new(-1)),
        }
    }
}

impl Load for Scan {
    fn image(&self) -> String {
        format!("scan-{}", self.rows)
    }

    fn refuses(&self, kind: DatabaseKind) -> Option<String> {
        (self.degree > 0 && kind != DatabaseKind::Postgresql).then(|| {
            format!(
                "{kind} scans a table with one thread, not with {}; leave `degree` out",
                self.degree
            )
        })
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        let mut session = server.connect()?;
        let kind = server.kind();
        session.batch(match kind {
            DatabaseKind::Postgresql => {
                "CREATE TABLE wide (id bigint NOT NULL, filler text NOT NULL);
                 ALTER TABLE wide ALTER COLUMN filler SET STORAGE PLAIN"
            }
            // A table of theirs is an index, so that it lies in the order of a key.
            DatabaseKind::Mariadb | DatabaseKind::Sqlite => {
                "CREATE TABLE wide (id integer PRIMARY KEY, filler text NOT NULL)"
            }
        })?;
        fill_rows(session.as_mut(), self.rows, |numbers| {
            format!(
                "INSERT INTO wide SELECT n, {} FROM {numbers}",
                filler(kind, "n", FILLER_BYTES)
            )
        })?;
        session.settle("wide")
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let mut session = server.connect()?;
        if server.kind() == DatabaseKind::Postgresql {
            session.batch(&format!(
                "SET max_parallel_workers_per_gather = {};
                 SET min_parallel_table_scan_size = 0;
                 SET parallel_setup_cost = 0;
                 SET parallel_tuple_cost = 0;",
                self.degree
            ))?;
        }
        let scan = session.prepare("SELECT count(*) FROM wide WHERE length(filler) > 0")?;
        Ok(vec![Box::new(Scanner {
            session,
            scan,
            counted: Arc::clone(&self.counted),
        })])
    }

    fn unit(&self) -> (&'static str, f64) {
        ("MB/s", as_float(self.rows * ROW_BYTES) / 1e6)
    }

    fn operations_each(&self) -> Option<u64> {
        Some(1)
    }

    fn checks(&self, _server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        Ok(vec![equal(
            "every row was seen",
            ("rows", i64::try_from(self.rows)?),
            ("seen", self.counted.load(Ordering::Relaxed)),
        )])
    }
}

struct Scanner {
    session: Box<dyn Session>,
    scan: Statement,
    counted: Arc<AtomicI64>,
}

impl Client for Scanner {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        let row = self.session.query_one(self.scan, &[])?;
        self.counted.store(row.integer(0)?, Ordering::Relaxed);
        Ok(())
    }
}
