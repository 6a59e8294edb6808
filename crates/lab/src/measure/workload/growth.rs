//! `growth`: one client inserts in a loop and commits each 100 rows; the table has a primary key of
//! two columns, a unique key of two columns and two wide texts. It runs for the stated time, not to
//! a stated number of rows; the samples say how the rate moves with the size.

use std::collections::BTreeMap;

use anyhow::Result;
use postgres::Statement;

use super::{Load, equal};
use crate::measure::load::{Client, Driven};
use crate::measure::postgresql::Server;
use crate::quantity::as_float;
use crate::record::Check;

const ROWS_PER_COMMIT: i64 = 100;

pub(super) struct Growth;

impl Load for Growth {
    fn image(&self) -> String {
        "growth".to_owned()
    }

    fn fill(&self, server: &Server) -> Result<()> {
        server.connect()?.batch_execute(
            "CREATE TABLE grown (
                 first int8 NOT NULL, second int8 NOT NULL,
                 third int8 NOT NULL, fourth int8 NOT NULL,
                 one text NOT NULL, other text NOT NULL,
                 PRIMARY KEY (first, second), CONSTRAINT grown_unique UNIQUE (third, fourth))",
        )?;
        Ok(())
    }

    fn clients(&self, server: &Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let mut client = server.connect()?;
        let insert = client.prepare(
            "INSERT INTO grown VALUES ($1::int8, $1::int8 % 97, $1::int8 * 7919 % 1000003, $1::int8,
                 repeat('one wide text ', 15), repeat('another wide text ', 12))",
        )?;
        Ok(vec![Box::new(Inserter {
            client,
            insert,
            next: 1,
        })])
    }

    fn unit(&self) -> (&'static str, f64) {
        ("rows/s", 100.0)
    }

    fn checks(&self, server: &Server, driven: &Driven) -> Result<Vec<Check>> {
        let row = server
            .connect()?
            .query_one("SELECT count(*) FROM grown", &[])?;
        Ok(vec![equal(
            "the table holds what was acknowledged",
            ("rows", row.get(0)),
            (
                "acknowledged",
                i64::try_from(driven.acknowledged)? * ROWS_PER_COMMIT,
            ),
        )])
    }

    fn facts(&self, server: &Server) -> Result<BTreeMap<String, f64>> {
        let row = server.connect()?.query_one(
            "SELECT pg_relation_size('grown')::int8, pg_relation_size('grown_pkey')::int8,
                    pg_relation_size('grown_unique')::int8",
            &[],
        )?;
        let size = |index| u64::try_from(row.get::<_, i64>(index)).map_or(0.0, as_float);
        Ok([
            ("table_bytes", size(0)),
            ("primary_key_bytes", size(1)),
            ("unique_key_bytes", size(2)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

struct Inserter {
    client: postgres::Client,
    insert: Statement,
    next: i64,
}

impl Client for Inserter {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        let mut transaction = self.client.transaction()?;
        for _ in 0..ROWS_PER_COMMIT {
            transaction.execute(&self.insert, &[&self.next])?;
            self.next += 1;
        }
        transaction.commit()?;
        Ok(())
    }
}
