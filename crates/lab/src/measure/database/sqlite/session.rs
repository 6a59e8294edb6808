//! A connection to SQLite.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::super::dialect::numbered_marks;
use super::super::{Row, Session, Statement, Value};
use super::Shared;
use crate::experiment::DatabaseKind;

pub(super) struct SqliteSession {
    connection: Connection,
    /// The library keeps them prepared by their texts.
    statements: Vec<String>,
    shared: Arc<Shared>,
    /// Whether it is this session's turn to write.
    is_writing: bool,
}

/// More statements than any load prepares.
const STATEMENTS_AT_MOST: usize = 1024;

impl SqliteSession {
    pub fn new(connection: Connection, shared: Arc<Shared>) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS_AT_MOST);
        Self {
            connection,
            statements: Vec::new(),
            shared,
            is_writing: false,
        }
    }

    /// Does something that may write when it is this session's turn.
    fn in_turn<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_writing {
            return act(self);
        }
        self.shared.queue.enter();
        let done = act(self);
        self.shared.queue.leave();
        if done.is_ok() {
            self.shared.commits.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    fn end(&mut self, word: &str) -> Result<()> {
        let ended = self.connection.execute_batch(word);
        if self.is_writing {
            self.is_writing = false;
            self.shared.queue.leave();
        }
        Ok(ended?)
    }
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        if self.is_writing {
            let _ = self.end("ROLLBACK");
        }
    }
}

impl Session for SqliteSession {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Sqlite
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.in_turn(|session| Ok(session.connection.execute_batch(statements)?))
    }

    fn prepare(&mut self, statement: &str) -> Result<Statement> {
        let text = numbered_marks(statement);
        self.connection
            .prepare_cached(&text)
            .with_context(|| format!("SQLite does not take `{statement}`"))?;
        self.statements.push(text);
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value]) -> Result<u64> {
        self.in_turn(|session| {
            let text = session.statements.get(statement.0).context(PREPARED)?;
            let mut statement = session.connection.prepare_cached(text)?;
            let count = statement.parameter_count();
            let changed = statement.execute(params_from_iter(values.iter().take(count)))?;
            Ok(u64::try_from(changed)?)
        })
    }

    fn query(&mut self, statement: Statement, values: &[Value]) -> Result<Vec<Row>> {
        let text = self.statements.get(statement.0).context(PREPARED)?;
        let mut statement = self.connection.prepare_cached(text)?;
        let column_count = statement.column_count();
        let count = statement.parameter_count();
        let mut found = statement.query(params_from_iter(values.iter().take(count)))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let values = (0..column_count)
                .map(|index| Ok(column(row.get_ref(index)?)))
                .collect::<Result<_>>()?;
            rows.push(Row { values });
        }
        Ok(rows)
    }

    fn begin(&mut self) -> Result<()> {
        self.shared.queue.enter();
        self.is_writing = true;
        // At once: a reader that becomes a writer later may be refused for good.
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        if begun.is_err() {
            self.is_writing = false;
            self.shared.queue.leave();
        }
        Ok(begun?)
    }

    fn commit(&mut self) -> Result<()> {
        self.end("COMMIT")?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        self.end("ROLLBACK")
    }

    fn insert_many(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: &mut dyn Iterator<Item = Vec<Value>>,
    ) -> Result<u64> {
        let places: Vec<String> = (1..=columns.len())
            .map(|number| format!("${number}"))
            .collect();
        let insert = self.prepare(&format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            columns.join(", "),
            places.join(", ")
        ))?;
        self.begin()?;
        let mut count = 0;
        for row in rows {
            if let Err(error) = self.execute(insert, &row) {
                // Why it failed is told, not that there is nothing to roll back.
                let _ = self.rollback();
                return Err(error);
            }
            count += 1;
        }
        self.commit()?;
        Ok(count)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        self.batch(&format!("ANALYZE {table}"))
    }
}

const PREPARED: &str = "a statement of this session";

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Float(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn column(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Float(value),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Value::Text(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}
