//! A connection to MariaDB. Parameters and columns go in its binary protocol, a bulk by inserts of
//! many rows.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use mysql::prelude::{Protocol, Queryable as _};
use mysql::{Conn, Params, QueryResult};

use super::super::dialect::question_marks;
use super::super::{Row, Session, Statement, Value};
use crate::experiment::DatabaseKind;

pub(super) struct MariadbSession {
    client: Conn,
    statements: Vec<Prepared>,
}

struct Prepared {
    statement: mysql::Statement,
    /// Which parameter each `?` is.
    order: Vec<usize>,
}

impl MariadbSession {
    pub fn new(client: Conn) -> Self {
        Self {
            client,
            statements: Vec::new(),
        }
    }

    fn run(&mut self, statement: Statement, values: &[Value]) -> Result<(u64, Vec<Row>)> {
        let prepared = self
            .statements
            .get(statement.0)
            .context("a statement of this session")?;
        let parameters: Vec<mysql::Value> = prepared
            .order
            .iter()
            .map(|index| {
                let value = values.get(*index);
                value
                    .map(parameter)
                    .with_context(|| format!("a statement asks for a parameter ${}", index + 1))
            })
            .collect::<Result<_>>()?;
        let parameters = if parameters.is_empty() {
            Params::Empty
        } else {
            Params::Positional(parameters)
        };
        let mut result = self.client.exec_iter(&prepared.statement, parameters)?;
        let changed = result.affected_rows();
        let mut rows = Vec::new();
        // A procedure gives several results; the first that has rows is the answer.
        while let Some(set) = result.iter() {
            let mut of_set = Vec::new();
            for row in set {
                of_set.push(Row {
                    values: row?.unwrap().into_iter().map(column).collect(),
                });
            }
            if rows.is_empty() {
                rows = of_set;
            }
        }
        Ok((changed, rows))
    }
}

/// Reads all that a statement gives: an error may come late.
pub(super) fn to_its_end<T: Protocol>(result: &mut QueryResult<'_, '_, '_, T>) -> Result<()> {
    while let Some(set) = result.iter() {
        for row in set {
            row?;
        }
    }
    Ok(())
}

fn parameter(value: &Value) -> mysql::Value {
    match value {
        Value::Null => mysql::Value::NULL,
        Value::Integer(value) => mysql::Value::Int(*value),
        Value::Float(value) => mysql::Value::Double(*value),
        Value::Text(text) => mysql::Value::Bytes(text.clone().into_bytes()),
    }
}

fn column(value: mysql::Value) -> Value {
    match value {
        mysql::Value::NULL => Value::Null,
        mysql::Value::Bytes(bytes) => Value::Text(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
        mysql::Value::Int(value) => Value::Integer(value),
        mysql::Value::UInt(value) => {
            i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Integer)
        }
        mysql::Value::Float(value) => Value::Float(f64::from(value)),
        mysql::Value::Double(value) => Value::Float(value),
        mysql::Value::Date(year, month, day, 0, 0, 0, 0) => {
            Value::Text(format!("{year:04}-{month:02}-{day:02}"))
        }
        mysql::Value::Date(year, month, day, hour, minute, second, us) => Value::Text(format!(
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{us:06}"
        )),
        mysql::Value::Time(is_negative, days, hours, minutes, seconds, us) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = u32::from(hours) + 24 * days;
            Value::Text(format!(
                "{sign}{hours:02}:{minutes:02}:{seconds:02}.{us:06}"
            ))
        }
    }
}

/// Rows go into one insert up to this; the server takes sixteen times as much.
const INSERT_BYTES: usize = 1 << 20;

impl Session for MariadbSession {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Mariadb
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        let mut result = self.client.query_iter(statements)?;
        to_its_end(&mut result)
    }

    fn prepare(&mut self, statement: &str) -> Result<Statement> {
        let (text, order) = question_marks(statement);
        let prepared = self
            .client
            .prep(&text)
            .with_context(|| format!("MariaDB does not take `{statement}`"))?;
        self.statements.push(Prepared {
            statement: prepared,
            order,
        });
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value]) -> Result<u64> {
        Ok(self.run(statement, values)?.0)
    }

    fn query(&mut self, statement: Statement, values: &[Value]) -> Result<Vec<Row>> {
        Ok(self.run(statement, values)?.1)
    }

    fn insert_many(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: &mut dyn Iterator<Item = Vec<Value>>,
    ) -> Result<u64> {
        let head = format!("INSERT INTO {table} ({}) VALUES ", columns.join(", "));
        let mut text = head.clone();
        let mut count = 0;
        for row in rows {
            text.push_str(if text.len() == head.len() { "(" } else { ",(" });
            for (index, value) in row.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                literal(value, &mut text);
            }
            text.push(')');
            count += 1;
            if text.len() >= INSERT_BYTES {
                self.batch(&text)?;
                text.truncate(head.len());
            }
        }
        if text.len() > head.len() {
            self.batch(&text)?;
        }
        Ok(count)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        self.batch(&format!("ANALYZE TABLE {table}"))
    }
}

/// A value as a statement writes it.
fn literal(value: &Value, text: &mut String) {
    match value {
        Value::Text(letters) => {
            text.push('\'');
            for letter in letters.chars() {
                if matches!(letter, '\'' | '\\') {
                    text.push('\\');
                }
                text.push(letter);
            }
            text.push('\'');
        }
        other => {
            // Writing to memory cannot fail.
            let _ = write!(text, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_in_a_text_end_nothing() {
        let mut text = String::new();
        literal(&Value::from("it's a \\"), &mut text);
        literal(&Value::Null, &mut text);
        literal(&Value::from(7), &mut text);
        assert_eq!(text, "'it\\'s a \\\\'NULL7");
    }

    #[test]
    fn dates_and_large_numbers_come_as_text() {
        let date = mysql::Value::Date(2006, 8, 1, 0, 0, 0, 0);
        assert_eq!(column(date), Value::from("2006-08-01"));
        assert_eq!(column(mysql::Value::UInt(7)), Value::Integer(7));
        assert_eq!(
            column(mysql::Value::UInt(u64::MAX)),
            Value::from("18446744073709551615")
        );
    }
}
