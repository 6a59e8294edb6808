//! A connection as the transactions use it: statements are named by their texts, prepared once, and
//! each is written once for every database.
//!
//! Amounts travel as whole hundredths, because no number with a point keeps them exactly. What is
//! cast says `AS BIGINT`, which is put as the database's dialect has it.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

use crate::experiment::DatabaseKind;
pub use crate::measure::database::{Row, Value, is_conflict};
use crate::measure::database::{Server, Session, Statement};

/// A connection.
pub struct Dialogue {
    session: Box<dyn Session>,
    prepared: HashMap<&'static str, Statement>,
}

impl Dialogue {
    /// A new one.
    pub fn new(server: &dyn Server) -> Result<Self> {
        Ok(Self {
            session: server.connect()?,
            prepared: HashMap::new(),
        })
    }

    /// Statements that give nothing.
    pub fn batch(&mut self, statements: &str) -> Result<()> {
        self.session.batch(statements)
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Result<()> {
        self.session.begin()
    }

    /// Makes it durable.
    pub fn commit(&mut self) -> Result<()> {
        self.session.commit()
    }

    /// Undoes it.
    pub fn rollback(&mut self) -> Result<()> {
        self.session.rollback()
    }

    /// Gets a statement ready, so that its first use costs no more than the next.
    pub fn prepare(&mut self, statement: &'static str) -> Result<()> {
        self.statement(statement).map(drop)
    }

    fn statement(&mut self, text: &'static str) -> Result<Statement> {
        if let Some(statement) = self.prepared.get(text) {
            return Ok(*statement);
        }
        let put = in_dialect(self.session.kind(), text);
        let statement = self.session.prepare(&put)?;
        self.prepared.insert(text, statement);
        Ok(statement)
    }

    /// The rows that a statement gives.
    pub fn rows(&mut self, statement: &'static str, parameters: &[Value]) -> Result<Vec<Row>> {
        let prepared = self.statement(statement)?;
        self.session.query(prepared, parameters)
    }

    /// How many rows a statement changed.
    pub fn change(&mut self, statement: &'static str, parameters: &[Value]) -> Result<u64> {
        let prepared = self.statement(statement)?;
        self.session.execute(prepared, parameters)
    }

    /// The one row that a statement gives.
    pub fn row(&mut self, statement: &'static str, parameters: &[Value]) -> Result<Row> {
        let mut rows = self.rows(statement, parameters)?;
        let count = rows.len();
        let row = rows.pop().filter(|_| count == 1);
        row.with_context(|| format!("{count} rows instead of one: {statement} {parameters:?}"))
    }

    /// Changes exactly one row.
    pub fn change_one(&mut self, statement: &'static str, parameters: &[Value]) -> Result<()> {
        let count = self.change(statement, parameters)?;
        ensure!(
            count == 1,
            "{count} rows changed instead of one: {statement} {parameters:?}"
        );
        Ok(())
    }

    /// Fills a table.
    pub fn insert_many(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: &mut dyn Iterator<Item = Vec<Value>>,
    ) -> Result<u64> {
        self.session.insert_many(table, columns, rows)
    }

    /// Brings a filled table to rest.
    pub fn settle(&mut self, table: &str) -> Result<()> {
        self.session.settle(table)
    }
}

/// A statement as the database writes it.
fn in_dialect(kind: DatabaseKind, statement: &str) -> String {
    match kind {
        DatabaseKind::Mariadb => statement.replace("AS BIGINT)", "AS SIGNED)"),
        DatabaseKind::Postgresql | DatabaseKind::Sqlite => statement.to_owned(),
    }
}
