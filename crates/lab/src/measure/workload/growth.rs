//! `growth`: one client inserts in a loop and commits each 100 rows; the table has a primary key of
//! two columns, a unique key of two columns and two wide texts. The loop is a procedure of the
//! server, where there is one, as the published script was: a round trip for each row would measure
//! the client. It runs for the stated time, not to a stated number of rows; the samples say how the
//! rate moves with the size.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Load, equal};
use crate::experiment::DatabaseKind;
use crate::measure::database::dialect::integer;
use crate::measure::database::{Server, Session, Statement};
use crate::measure::load::{Client, Driven};
use crate::record::Check;

const ROWS_PER_COMMIT: i64 = 100;

pub(super) struct Growth;

impl Load for Growth {
    fn image(&self) -> String {
        "growth".to_owned()
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        let mut session = server.connect()?;
        session.batch(
            "CREATE TABLE grown (
                 first bigint NOT NULL, second bigint NOT NULL,
                 third bigint NOT NULL, fourth bigint NOT NULL,
                 one text NOT NULL, other text NOT NULL,
                 PRIMARY KEY (first, second), CONSTRAINT grown_unique UNIQUE (third, fourth))",
        )?;
        match procedure(server.kind()) {
            Some(procedure) => session.batch(&procedure),
            None => Ok(()),
        }
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let mut session = server.connect()?;
        let kind = server.kind();
        let (statement, rows_each) = if procedure(kind).is_some() {
            (
                format!("CALL grow({})", integer(kind, "$1")),
                ROWS_PER_COMMIT,
            )
        } else {
            (insert("$1"), 1)
        };
        let statement = session.prepare(&statement)?;
        Ok(vec![Box::new(Inserter {
            session,
            statement,
            rows_each,
            next: 1,
        })])
    }

    fn unit(&self) -> (&'static str, f64) {
        ("rows/s", 100.0)
    }

    fn commits(&self, operations: u64) -> Option<u64> {
        Some(operations)
    }

    fn checks(&self, server: &dyn Server, driven: &Driven) -> Result<Vec<Check>> {
        let row = server.connect()?.ask_one("SELECT count(*) FROM grown")?;
        Ok(vec![equal(
            "the table holds what was acknowledged",
            ("rows", row.integer(0)?),
            (
                "acknowledged",
                i64::try_from(driven.acknowledged)? * ROWS_PER_COMMIT,
            ),
        )])
    }

    fn facts(&self, server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let mut session = server.connect()?;
        let sizes = match server.kind() {
            DatabaseKind::Postgresql => {
                "SELECT pg_relation_size('grown'), pg_relation_size('grown_pkey'),
                        pg_relation_size('grown_unique')"
            }
            DatabaseKind::Mariadb => {
                session.settle("grown")?;
                // The table is its primary key.
                "SELECT sum(CASE index_name WHEN 'PRIMARY' THEN stat_value ELSE 0 END)
                            * @@innodb_page_size,
                        0,
                        sum(CASE index_name WHEN 'grown_unique' THEN stat_value ELSE 0 END)
                            * @@innodb_page_size
                 FROM mysql.innodb_index_stats
                 WHERE table_name = 'grown' AND stat_name = 'size'"
            }
            DatabaseKind::Sqlite => {
                "SELECT (SELECT sum(pgsize) FROM dbstat WHERE name = 'grown'),
                        (SELECT sum(pgsize) FROM dbstat WHERE name = 'sqlite_autoindex_grown_1'),
                        (SELECT sum(pgsize) FROM dbstat WHERE name = 'sqlite_autoindex_grown_2')"
            }
        };
        let row = session.ask_one(sizes)?;
        Ok([
            ("table_bytes", row.float(0)?),
            ("primary_key_bytes", row.float(1)?),
            ("unique_key_bytes", row.float(2)?),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

/// Inserts the row of this number.
fn insert(number: &str) -> String {
    format!(
        "INSERT INTO grown VALUES
             ({number}, {number} % 97, {number} * 7919 % 1000003, {number}, '{}', '{}')",
        "one wide text ".repeat(15),
        "another wide text ".repeat(12)
    )
}

/// Makes the procedure that inserts the rows of one commit; none for a database without procedures.
fn procedure(kind: DatabaseKind) -> Option<String> {
    let insert = insert("number");
    match kind {
        DatabaseKind::Postgresql => Some(format!(
            "CREATE PROCEDURE grow(first_number bigint) LANGUAGE plpgsql AS $$
             BEGIN
                 FOR number IN first_number .. first_number + {ROWS_PER_COMMIT} - 1 LOOP
                     {insert};
                 END LOOP;
             END $$"
        )),
        DatabaseKind::Mariadb => Some(format!(
            "CREATE PROCEDURE grow(first_number bigint)
             BEGIN
                 DECLARE number bigint DEFAULT first_number;
                 WHILE number < first_number + {ROWS_PER_COMMIT} DO
                     {insert};
                     SET number = number + 1;
                 END WHILE;
             END"
        )),
        DatabaseKind::Sqlite => None,
    }
}

struct Inserter {
    session: Box<dyn Session>,
    statement: Statement,
    rows_each: i64,
    next: i64,
}

impl Client for Inserter {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        self.session.begin()?;
        for _ in 0..ROWS_PER_COMMIT / self.rows_each {
            self.session.execute(self.statement, &[self.next.into()])?;
            self.next += self.rows_each;
        }
        self.session.commit()
    }
}
