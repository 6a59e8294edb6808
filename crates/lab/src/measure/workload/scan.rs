//! `scan`: one full scan of one large table, serial or by parallel workers of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;

use super::{Load, equal};
use crate::experiment::Workload;
use crate::measure::load::{Client, Driven};
use crate::measure::postgresql::Server;
use crate::quantity::as_float;
use crate::record::Check;

/// Of a row, with what the database adds: seven lie in a block.
const ROW_BYTES: u64 = 1170;

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

    fn fill(&self, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        client.batch_execute(&format!(
            "CREATE TABLE wide (id int8 NOT NULL, filler text NOT NULL);
             ALTER TABLE wide ALTER COLUMN filler SET STORAGE PLAIN;
             INSERT INTO wide SELECT id, rpad(md5(id::text), 1100, 'x')
                 FROM generate_series(1, {}) AS id;",
            self.rows
        ))?;
        // Its hint bits are set, so that the scan reads and does not write.
        client.batch_execute("VACUUM (FREEZE, ANALYZE) wide")?;
        Ok(())
    }

    fn clients(&self, server: &Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let mut client = server.connect()?;
        client.batch_execute(&format!(
            "SET max_parallel_workers_per_gather = {};
             SET min_parallel_table_scan_size = 0;
             SET parallel_setup_cost = 0;
             SET parallel_tuple_cost = 0;",
            self.degree
        ))?;
        Ok(vec![Box::new(Scanner {
            client,
            counted: Arc::clone(&self.counted),
        })])
    }

    fn unit(&self) -> (&'static str, f64) {
        ("MB/s", as_float(self.rows * ROW_BYTES) / 1e6)
    }

    fn is_one_operation(&self) -> bool {
        true
    }

    fn checks(&self, _server: &Server, _driven: &Driven) -> Result<Vec<Check>> {
        Ok(vec![equal(
            "every row was seen",
            ("rows", i64::try_from(self.rows)?),
            ("seen", self.counted.load(Ordering::Relaxed)),
        )])
    }
}

struct Scanner {
    client: postgres::Client,
    counted: Arc<AtomicI64>,
}

impl Client for Scanner {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        let row = self
            .client
            .query_one("SELECT count(*) FROM wide WHERE length(filler) > 0", &[])?;
        self.counted.store(row.get(0), Ordering::Relaxed);
        Ok(())
    }
}
