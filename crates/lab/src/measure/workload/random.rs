//! `random`: single-block reads through an index in random order, with a share of updates, after
//! the method that is known as SLOB; none of its code.
//!
//! One row lies in each block of 8 KiB (by the fill factor), so that a row that is asked for is a
//! block that is read. An update changes a counter in its block; the sum of the counters must equal
//! the acknowledged updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;
use postgres::Statement;

use super::{Load, equal};
use crate::experiment::Workload;
use crate::measure::load::{Client, Driven};
use crate::measure::postgresql::Server;
use crate::record::Check;

const BLOCK_BYTES: u64 = 8192;
/// The hot rows are the first tenth.
const HOT_PART: u64 = 10;

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

impl Load for Random {
    fn image(&self) -> String {
        format!("random-{}", self.rows)
    }

    fn fill(&self, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        // A tenth of a block is 819 bytes: a row of more than half of that fills its share alone.
        client.batch_execute(&format!(
            "CREATE TABLE block (id int, counter int NOT NULL, filler text NOT NULL)
                 WITH (fillfactor = 10);
             ALTER TABLE block ALTER COLUMN filler SET STORAGE PLAIN;
             INSERT INTO block SELECT id, 0, rpad(md5(id::text), 600, 'x')
                 FROM generate_series(1, {}) AS id;
             ALTER TABLE block ADD PRIMARY KEY (id);",
            self.rows
        ))?;
        // Several statements at once would be one transaction, in which nothing can be vacuumed.
        client.batch_execute("VACUUM ANALYZE block")?;
        Ok(())
    }

    fn clients(&self, server: &Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|_| {
                let mut client = server.connect()?;
                // The planner must not leave the index because the table is small.
                client.batch_execute("SET enable_seqscan = off")?;
                Ok(Box::new(Reader {
                    select: client.prepare("SELECT counter, filler FROM block WHERE id = $1")?,
                    update: client
                        .prepare("UPDATE block SET counter = counter + 1 WHERE id = $1")?,
                    client,
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

    fn checks(&self, server: &Server, _driven: &Driven) -> Result<Vec<Check>> {
        let row = server.connect()?.query_one(
            "SELECT count(*), sum(counter)::int8,
                    (pg_relation_size('block') / current_setting('block_size')::int8)::int8
             FROM block",
            &[],
        )?;
        let blocks: i64 = row.get(2);
        let rows: i64 = row.get(0);
        Ok(vec![
            equal(
                "the counters hold the acknowledged updates",
                ("counters", row.get(1)),
                ("acknowledged", self.updates.load(Ordering::Relaxed)),
            ),
            Check {
                name: "a row lies in each block".to_owned(),
                passed: blocks >= rows,
                detail: format!("rows {rows}, blocks {blocks}"),
            },
        ])
    }
}

struct Reader {
    client: postgres::Client,
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
        let id = i32::try_from(random.u64(1..=range))?;
        if random.u32(0..100) < self.update_percent {
            self.client.execute(&self.update, &[&id])?;
            self.updates.fetch_add(1, Ordering::Relaxed);
        } else {
            self.client.query_one(&self.select, &[&id])?;
        }
        Ok(())
    }
}
