//! A connection to PostgreSQL. Parameters and columns go in its binary forms, a bulk by `COPY`.

use std::error::Error;
use std::io::Write as _;

use anyhow::{Context, Result};
use bytes::{BufMut as _, BytesMut};
use postgres::SimpleQueryMessage;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::super::{Answer, Row, Session, Statement, Value};
use super::decimal;
use crate::experiment::DatabaseKind;

pub(super) struct PostgresqlSession {
    client: postgres::Client,
    statements: Vec<postgres::Statement>,
}

impl PostgresqlSession {
    pub fn new(client: postgres::Client) -> Self {
        Self {
            client,
            statements: Vec::new(),
        }
    }
}

/// The parameters as the library takes them.
fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .collect()
}

fn row(row: &postgres::Row) -> Result<Row> {
    let values = (0..row.len())
        .map(|index| Ok(row.try_get::<_, Column>(index)?.0))
        .collect::<Result<_>>()?;
    Ok(Row { values })
}

const PREPARED: &str = "a statement of this session";
/// What `COPY` is given at once.
const COPY_BYTES: usize = 64 << 10;

impl Session for PostgresqlSession {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Postgresql
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        Ok(self.client.batch_execute(statements)?)
    }

    fn speak(&mut self, statements: &str) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let mut answer = Answer::default();
        for message in self.client.simple_query(statements)? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    answer.columns = columns.iter().map(|one| one.name().to_owned()).collect();
                }
                SimpleQueryMessage::Row(row) => answer.rows.push(
                    (0..row.len())
                        .map(|index| row.get(index).map(str::to_owned))
                        .collect(),
                ),
                SimpleQueryMessage::CommandComplete(count) => {
                    answer.count = count;
                    answers.push(std::mem::take(&mut answer));
                }
                _ => {}
            }
        }
        Ok(answers)
    }

    fn prepare(&mut self, statement: &str) -> Result<Statement> {
        let prepared = self
            .client
            .prepare(statement)
            .with_context(|| format!("PostgreSQL does not take `{statement}`"))?;
        self.statements.push(prepared);
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value]) -> Result<u64> {
        let statement = self.statements.get(statement.0).context(PREPARED)?;
        Ok(self.client.execute(statement, &parameters(values))?)
    }

    fn query(&mut self, statement: Statement, values: &[Value]) -> Result<Vec<Row>> {
        let statement = self.statements.get(statement.0).context(PREPARED)?;
        let rows = self.client.query(statement, &parameters(values))?;
        rows.iter().map(row).collect()
    }

    fn insert_many(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: &mut dyn Iterator<Item = Vec<Value>>,
    ) -> Result<u64> {
        let copy = format!("COPY {table} ({}) FROM STDIN", columns.join(", "));
        let mut writer = self.client.copy_in(&copy)?;
        let mut text = Vec::with_capacity(2 * COPY_BYTES);
        for row in rows {
            for (index, value) in row.iter().enumerate() {
                if index > 0 {
                    text.push(b'\t');
                }
                copy_value(value, &mut text);
            }
            text.push(b'\n');
            if text.len() >= COPY_BYTES {
                writer.write_all(&text)?;
                text.clear();
            }
        }
        writer.write_all(&text)?;
        Ok(writer.finish()?)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        // Its hint bits are set, so that a scan reads and does not write.
        self.batch(&format!("VACUUM (FREEZE, ANALYZE) {table}"))
    }
}

/// A value as `COPY` reads it.
fn copy_value(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Null => text.extend_from_slice(b"\\N"),
        Value::Text(letters) => {
            for byte in letters.bytes() {
                let escape = match byte {
                    b'\\' => b'\\',
                    b'\t' => b't',
                    b'\n' => b'n',
                    b'\r' => b'r',
                    _ => {
                        text.push(byte);
                        continue;
                    }
                };
                text.extend_from_slice(&[b'\\', escape]);
            }
        }
        number => {
            // Writing to memory cannot fail.
            let _ = write!(text, "{number}");
        }
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, kind) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Integer(value), &Type::INT2) => out.put_i16(i16::try_from(*value)?),
            (Self::Integer(value), &Type::INT4) => out.put_i32(i32::try_from(*value)?),
            (Self::Integer(value), &Type::INT8) => out.put_i64(*value),
            (Self::Integer(_) | Self::Float(_), &Type::FLOAT8) => out.put_f64(self.float()?),
            (Self::Integer(_) | Self::Float(_) | Self::Text(_), &Type::NUMERIC) => {
                decimal::encode(&self.to_string(), out)?;
            }
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::BPCHAR | &Type::UNKNOWN) => {
                out.put_slice(text.as_bytes());
            }
            (value, kind) => {
                return Err(format!(
                    "the parameter {value} is of no type that goes with {kind}; cast the parameter in the statement"
                )
                .into());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_kind: &Type) -> bool {
        // What does not go together is told with the value.
        true
    }

    to_sql_checked!();
}

/// A column as it comes.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::BOOL => Value::Integer(i64::from(bool::from_sql(kind, raw)?)),
            Type::INT2 => Value::Integer(i64::from(i16::from_sql(kind, raw)?)),
            Type::INT4 => Value::Integer(i64::from(i32::from_sql(kind, raw)?)),
            Type::INT8 => Value::Integer(i64::from_sql(kind, raw)?),
            Type::OID => Value::Integer(i64::from(u32::from_sql(kind, raw)?)),
            Type::FLOAT4 => Value::Float(f64::from(f32::from_sql(kind, raw)?)),
            Type::FLOAT8 => Value::Float(f64::from_sql(kind, raw)?),
            Type::NUMERIC => Value::Text(decimal::decode(raw)?),
            Type::DATE => {
                let days = i32::from_be_bytes(raw.try_into()?);
                Value::Text(date(i64::from(days)))
            }
            Type::TIMESTAMP | Type::TIMESTAMPTZ => {
                Value::Text(moment(i64::from_be_bytes(raw.try_into()?)))
            }
            Type::VOID => Value::Null,
            // Texts, names, and whatever else is sent as it is written.
            _ => Value::Text(std::str::from_utf8(raw)?.to_owned()),
        }))
    }

    fn from_sql_null(_kind: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

const US_PER_DAY: i64 = 86_400_000_000;

/// A date from the days since 2000-01-01, by counting years from March on: leap days come last so.
fn date(days: i64) -> String {
    // From 0000-03-01, in eras of 400 years.
    let days = days + 730_425;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A moment from the microseconds since 2000-01-01.
fn moment(us: i64) -> String {
    let of_day = us.rem_euclid(US_PER_DAY);
    let seconds = of_day / 1_000_000;
    format!(
        "{} {:02}:{:02}:{:02}.{:06}",
        date(us.div_euclid(US_PER_DAY)),
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        of_day % 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, expected) in [
            (0, "2000-01-01"),
            (59, "2000-02-29"),
            (60, "2000-03-01"),
            (-1, "1999-12-31"),
            (-2922, "1992-01-01"),
            (8767, "2024-01-02"),
            (9190, "2025-02-28"),
            (9191, "2025-03-01"),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
        assert_eq!(moment(-1), "1999-12-31 23:59:59.999999");
        assert_eq!(moment(3_723_000_004), "2000-01-01 01:02:03.000004");
    }

    #[test]
    fn copied_text_keeps_its_tabs_and_backslashes() {
        let mut text = Vec::new();
        copy_value(&Value::from("a\tb\\c\nd"), &mut text);
        copy_value(&Value::Null, &mut text);
        copy_value(&Value::from(-5), &mut text);
        assert_eq!(text, b"a\\tb\\\\c\\nd\\N-5");
    }
}
