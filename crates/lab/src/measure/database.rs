//! Databases behind one small interface: a load says what it asks in `$1` and in
//! [`Value`]s, and which database answers is the experiment's choice.
//!
//! - An [`Installation`] makes clusters and starts servers: as an unprivileged user, within the
//!   control group of the run, reached by a socket in the run's own directory and by nothing else.
//! - A [`Server`] gives sessions and its own counters. A drop ends it at once.
//! - A [`Session`] prepares statements and executes them with parameters, whose places are written
//!   `$1`, `$2`, ... for every database; each may stand several times. What else differs between
//!   the dialects is the load's to write, by [`Session::kind`] and with [`dialect`].
//!
//! Durability is left on in every measured run ([`Purpose::Measure`]). A failed run drops what it
//! holds, and a SIGKILL leaves processes that the run's control group names: the next start ends
//! them. One more database is one more file here, with its line in [`find`].

pub mod account;
pub mod dialect;
mod mariadb;
mod postgresql;
mod sqlite;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

pub use self::value::{Row, Value};
use super::control_group::ControlGroup;
use super::journal::Journal;
use crate::experiment::{Database, DatabaseKind};

/// Settings by name.
pub type Settings = BTreeMap<String, String>;

/// A database as it was found on this machine.
pub trait Installation: fmt::Debug + Send + Sync {
    /// Which it is.
    fn kind(&self) -> DatabaseKind;

    /// Its version in its own words.
    ///
    /// # Errors
    /// Where its programs cannot be run as the user that is to run them.
    fn version(&self) -> Result<String>;

    /// Makes a new cluster in `data`, which is made. Of the settings it takes those that cannot be
    /// changed afterwards, such as the size of a page.
    ///
    /// # Errors
    /// What its programs say.
    fn initialise(&self, data: &Path, settings: &Settings) -> Result<()>;

    /// What its clusters are copies of; none where they are made anew. The original is asked.
    ///
    /// # Errors
    /// Where it does not answer, or cannot be copied.
    fn original(&self) -> Result<Option<Original>> {
        Ok(None)
    }

    /// Which settings those are.
    fn lasting(&self) -> &'static [&'static str] {
        &[]
    }

    /// Why it does not take one of these settings, in a line with its name and its value, where it
    /// does not: asked before anything is made.
    ///
    /// # Errors
    /// Where its programs cannot be run.
    fn refuses(&self, settings: &Settings) -> Result<Option<String>>;

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// Where it does not start, with the end of its log.
    fn start(&self, plan: &ServerPlan<'_>) -> Result<Box<dyn Server>>;

    /// Whether its clients are threads of the lab itself: then the processor time of the two cannot
    /// be told apart.
    fn is_embedded(&self) -> bool {
        false
    }
}

/// A database that is already there, and whose copies are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Of all that its server has.
    pub size_bytes: u64,
    /// Its name, its size, its directory and what that lies on, in a line.
    pub described: String,
}

/// What a server is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A golden image: quick, and nothing that a crash would spare.
    Fill,
    /// Figures: durable.
    Measure,
}

/// How a server is run.
pub struct ServerPlan<'a> {
    /// The cluster.
    pub data: &'a Path,
    /// For socket and log; it is given to the server's user.
    pub runtime: &'a Path,
    /// What for.
    pub purpose: Purpose,
    /// Beyond the lab's own. A server that fills takes only those of [`Installation::initialise`].
    pub settings: &'a Settings,
    /// The memory of the group, where it is limited.
    pub memory_bytes: Option<u64>,
    /// What its write-ahead log may take.
    pub log_bytes: u64,
    /// Connections for the load.
    pub users: u32,
    /// Whose member it is to be.
    pub group: &'a ControlGroup,
    /// Who undoes it after a SIGKILL.
    pub journal: &'a Journal,
}

/// A running server; a drop ends it at once.
pub trait Server {
    /// Which it is.
    fn kind(&self) -> DatabaseKind;

    /// A connection of its own.
    ///
    /// # Errors
    /// Where the server does not accept it.
    fn connect(&self) -> Result<Box<dyn Session>>;

    /// Its own counters, over a connection that does nothing else.
    ///
    /// # Errors
    /// Where the server does not accept it.
    fn statistics(&self) -> Result<Box<dyn Statistics>>;

    /// Of a page of data.
    fn block_bytes(&self) -> u64;

    /// The settings it was started with.
    fn settings(&self) -> &Settings;

    /// What a setting is, in the server's own words; none where it has no such setting.
    fn told(&self, name: &str) -> Option<String>;

    /// The end of its log.
    fn log_tail(&self) -> String;

    /// Brings the data into the cache, where that is not the kernel's.
    ///
    /// # Errors
    /// What the database says.
    fn warm(&self) -> Result<()> {
        Ok(())
    }

    /// Stops it as an administrator would: everything is in its files then.
    ///
    /// # Errors
    /// Where it does not end, or not well.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// The database's own counters.
pub trait Statistics: Send {
    /// Every counter by its name, which begins with `database_`; not a number where the server does
    /// not answer (it may be ending). The names are the same at each call.
    fn read(&mut self) -> Vec<(&'static str, f64)>;

    /// Sessions that work for a client now, by what they wait for: (class, event, how many). Who
    /// runs has the class and the event `CPU`. None where the database does not tell.
    fn sessions(&mut self) -> Vec<(String, String, u64)> {
        Vec::new()
    }

    /// Blocks of every table and index so far: (name, read, found in the database's memory). None
    /// where the database does not tell.
    fn objects(&mut self) -> Vec<(String, f64, f64)> {
        Vec::new()
    }
}

/// What a statement answered, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows; what is null has no text.
    pub rows: Vec<Vec<Option<String>>>,
    /// Rows that it gave or met.
    pub count: u64,
}

/// A statement that a session has prepared; it means nothing to another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement(usize);

/// A connection. Without a transaction each statement is one of its own.
pub trait Session: Send {
    /// Whose it is.
    fn kind(&self) -> DatabaseKind;

    /// Executes statements without parameters, `;` between them, and drops what they give.
    ///
    /// # Errors
    /// What the database says.
    fn batch(&mut self, statements: &str) -> Result<()>;

    /// Executes statements as they are written, without parameters, and gives what each answers as
    /// text.
    ///
    /// # Errors
    /// What the database says; see [`is_conflict`]. Not every database is spoken to so.
    fn speak(&mut self, _statements: &str) -> Result<Vec<Answer>> {
        bail!("{} is not spoken to by text", self.kind())
    }

    /// Prepares a statement with `$1`, `$2`, ... for its parameters.
    ///
    /// # Errors
    /// What the database says.
    fn prepare(&mut self, statement: &str) -> Result<Statement>;

    /// Executes a statement that changes something, and gives the number of rows that it met.
    ///
    /// # Errors
    /// What the database says; see [`is_conflict`].
    fn execute(&mut self, statement: Statement, parameters: &[Value]) -> Result<u64>;

    /// Executes a statement and gives its rows.
    ///
    /// # Errors
    /// What the database says; see [`is_conflict`].
    fn query(&mut self, statement: Statement, parameters: &[Value]) -> Result<Vec<Row>>;

    /// Begins a transaction, one that may write.
    ///
    /// # Errors
    /// What the database says.
    fn begin(&mut self) -> Result<()> {
        self.batch("BEGIN")
    }

    /// Ends it: durable once this returns.
    ///
    /// # Errors
    /// What the database says.
    fn commit(&mut self) -> Result<()> {
        self.batch("COMMIT")
    }

    /// Gives it up. Also needed after every error within it.
    ///
    /// # Errors
    /// What the database says.
    fn rollback(&mut self) -> Result<()> {
        self.batch("ROLLBACK")
    }

    /// Fills a table by the quickest way that the database has (`COPY`, or inserts of many rows).
    ///
    /// # Errors
    /// What the database says.
    fn insert_many(
        &mut self,
        table: &str,
        columns: &[&str],
        rows: &mut dyn Iterator<Item = Vec<Value>>,
    ) -> Result<u64>;

    /// Brings a filled table to rest: its statistics are known, and no later reader has to write.
    ///
    /// # Errors
    /// What the database says.
    fn settle(&mut self, table: &str) -> Result<()>;

    /// Executes a statement that gives one row.
    ///
    /// # Errors
    /// What the database says, and where it gives none or several.
    fn query_one(&mut self, statement: Statement, parameters: &[Value]) -> Result<Row> {
        let mut rows = self.query(statement, parameters)?;
        let count = rows.len();
        ensure!(count == 1, "a statement gave {count} rows instead of one");
        rows.pop().context("there is one")
    }

    /// Prepares a statement without parameters and gives its rows.
    ///
    /// # Errors
    /// What the database says.
    fn ask(&mut self, statement: &str) -> Result<Vec<Row>> {
        let prepared = self.prepare(statement)?;
        self.query(prepared, &[])
    }

    /// Prepares a statement without parameters and gives its one row.
    ///
    /// # Errors
    /// What the database says, and where it gives none or several.
    fn ask_one(&mut self, statement: &str) -> Result<Row> {
        let prepared = self.prepare(statement)?;
        self.query_one(prepared, &[])
    }
}

/// The database of this kind: in `directory`, or where Debian keeps it.
///
/// # Errors
/// Where it is not there, with the package that has it; or no user to run it as.
pub fn find(kind: DatabaseKind, directory: Option<&Path>) -> Result<Box<dyn Installation>> {
    Ok(match kind {
        DatabaseKind::Postgresql => Box::new(postgresql::Installation::find(directory, None)?),
        DatabaseKind::Mariadb => Box::new(mariadb::Installation::find(directory)?),
        DatabaseKind::Sqlite => Box::new(sqlite::Installation),
    })
}

/// The database that an experiment asks for, with what it is to be a copy of.
///
/// # Errors
/// As [`find`].
pub fn installation(asked: &Database) -> Result<Box<dyn Installation>> {
    let directory = asked.directory.as_deref();
    match &asked.copy_of {
        None => find(asked.kind, directory),
        Some(original) => Ok(Box::new(postgresql::Installation::find(
            directory,
            Some(original),
        )?)),
    }
}

/// The bytes of its own cache, where this database reads past the page cache.
#[must_use]
pub fn direct_cache_bytes(asked: &Database) -> Option<u64> {
    match asked.kind {
        DatabaseKind::Mariadb => mariadb::direct_cache_bytes(asked.memory_bytes, &asked.settings),
        DatabaseKind::Postgresql | DatabaseKind::Sqlite => None,
    }
}

/// Less memory than this a server does not start with.
#[must_use]
pub fn memory_bytes_at_least(kind: DatabaseKind) -> u64 {
    match kind {
        // What the server takes beside its buffers.
        DatabaseKind::Mariadb => 128 << 20,
        DatabaseKind::Postgresql | DatabaseKind::Sqlite => 64 << 20,
    }
}

/// Whether an operation failed only because of another one at the same time (a deadlock, a
/// serialisation failure): rolled back and begun anew, it may succeed.
#[must_use]
pub fn is_conflict(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        postgresql::is_conflict(cause) || mariadb::is_conflict(cause) || sqlite::is_conflict(cause)
    })
}

/// A cache of the database's own: a quarter of the memory, as is advised for PostgreSQL.
fn own_cache_bytes(memory_bytes: Option<u64>) -> u64 {
    memory_bytes.map_or(128 << 20, |memory| (memory / 4).clamp(16 << 20, 8 << 30))
}
