//! A PostgreSQL client for a local socket, as small as the proofs need it.
//!
//! The method is the frontend/backend protocol 3.0 as PostgreSQL documents it: a startup message,
//! then simple queries, each answered up to `ReadyForQuery`. Only trusted local connections and
//! text results. Of our own, because what is proved is the moment of an acknowledgement: nothing
//! stands between the server's answer and the clock.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

/// A message longer than this is not one of ours: the length is checked before memory is taken.
const MESSAGE_LENGTH_BYTES_AT_MOST: usize = 64 << 20;

/// A row: each column's text, `None` for NULL.
pub type Row = Vec<Option<String>>;

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Connection {
    /// Connects through `DIRECTORY/.s.PGSQL.PORT`.
    ///
    /// # Errors
    /// Where nobody listens, or the server refuses (it says so while it recovers).
    pub fn open(directory: &Path, port: u16, user: &str, database: &str) -> Result<Self> {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let writer = UnixStream::connect(&path)
            .with_context(|| format!("no server listens at {}", path.display()))?;
        let mut connection = Self {
            reader: BufReader::new(writer.try_clone()?),
            writer,
        };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for word in ["user", user, "database", database, ""] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        connection.send(None, &body)?;
        connection.answer()?;
        Ok(connection)
    }

    /// Runs one statement, or several with `;` between them, and gives the rows of all.
    ///
    /// # Errors
    /// What the server says, or the loss of the connection: then nobody knows whether the
    /// statement took place.
    pub fn query(&mut self, statement: &str) -> Result<Vec<Row>> {
        let mut body = statement.as_bytes().to_vec();
        body.push(0);
        self.send(Some(b'Q'), &body)?;
        self.answer()
            .with_context(|| format!("statement: {statement}"))
    }

    /// Runs a statement whose answer is one value.
    ///
    /// # Errors
    /// As [`Connection::query`], and where the answer is something else.
    pub fn value(&mut self, statement: &str) -> Result<String> {
        let rows = self.query(statement)?;
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0]
                .clone()
                .ok_or_else(|| anyhow!("{statement}: the answer is NULL")),
            _ => bail!("{statement}: the answer is not one value"),
        }
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> Result<()> {
        let length = u32::try_from(body.len() + 4)?;
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(body);
        Ok(self.writer.write_all(&message)?)
    }

    /// Reads up to the server's readiness for the next query.
    fn answer(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let mut head = [0_u8; 5];
            if let Err(error) = self.reader.read_exact(&mut head) {
                // A server that refuses says why, and then closes.
                return Err(failure.unwrap_or_else(|| {
                    anyhow!(error).context("the server closed the connection")
                }));
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if !(4..=MESSAGE_LENGTH_BYTES_AT_MOST).contains(&length) {
                bail!("the server sent a message of {length} bytes");
            }
            let mut body = vec![0; length - 4];
            self.reader.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return failure.map_or(Ok(rows), Err),
                b'D' => rows.push(parse_row(&body)?),
                b'E' => failure = Some(anyhow!("the server says: {}", parse_error(&body))),
                b'R' if body[..4.min(body.len())] != [0; 4] => {
                    bail!("the server asks for a password");
                }
                // Notices, parameters, tags and column descriptions: nothing we need.
                _ => {}
            }
        }
    }
}

/// A row: a count, then for each column a length (-1 for NULL) and as many bytes.
fn parse_row(body: &[u8]) -> Result<Row> {
    let mut rest = body;
    let column_count = u16::from_be_bytes(take(&mut rest)?);
    let mut row = Vec::new();
    for _ in 0..column_count {
        let length = i32::from_be_bytes(take(&mut rest)?);
        let Ok(length) = usize::try_from(length) else {
            row.push(None);
            continue;
        };
        let (text, after) = rest
            .split_at_checked(length)
            .context("the server sent a short row")?;
        row.push(Some(String::from_utf8_lossy(text).into_owned()));
        rest = after;
    }
    Ok(row)
}

fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Result<[u8; LENGTH]> {
    let (bytes, after) = rest
        .split_first_chunk()
        .context("the server sent a short row")?;
    *rest = after;
    Ok(*bytes)
}

/// An error: fields of a letter and a text each; `M` is the message, `C` its code.
fn parse_error(body: &[u8]) -> String {
    let fields: Vec<String> = body
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .collect();
    let field = |letter| {
        fields
            .iter()
            .find_map(|field| field.strip_prefix(letter))
            .unwrap_or("?")
    };
    format!("{} ({})", field('M'), field('C'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_null_apart_from_an_empty_text() {
        let body = [
            0, 3, 0, 0, 0, 2, b'4', b'2', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
        ];
        let row = parse_row(&body).unwrap();
        assert_eq!(row, [Some("42".to_owned()), None, Some(String::new())]);
    }

    #[test]
    fn a_row_that_ends_early_is_an_error() {
        assert!(parse_row(&[0, 1, 0, 0, 0, 9, b'x']).is_err());
        assert!(parse_row(&[0]).is_err());
    }

    #[test]
    fn an_error_shows_message_and_code() {
        let body = b"SERROR\0C57P03\0Mthe database system is starting up\0\0";
        assert_eq!(
            parse_error(body),
            "the database system is starting up (57P03)"
        );
    }
}
