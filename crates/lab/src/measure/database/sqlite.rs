//! SQLite within the lab's own process: clients are its threads, the database is a file.
//!
//! In write-ahead mode with `synchronous=FULL`, so that a commit is durable when it returns. There
//! is one writer at a time; clients wait for each other in the order in which they came
//! ([`queue`]), as in a program that has one writer, and not by SQLite's own sleeping and trying
//! again, which would measure chance.
//!
//! While a server "runs", the lab itself is a member of the run's control group: the page cache that
//! it uses then counts as that of the others does. Its processor time is also the database's.

mod queue;
mod session;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, ErrorCode};

use self::queue::Queue;
use self::session::SqliteSession;
use super::{Purpose, ServerPlan, Session, Settings, Statistics, own_cache_bytes};
use crate::experiment::DatabaseKind;
use crate::measure::control_group::Membership;
use crate::quantity::as_float;

/// Beyond this somebody who holds a lock hangs.
const LOCK_WAIT_AT_MOST: Duration = Duration::from_secs(60);
/// A connection has a cache of its own, and needs some.
const CACHE_KIB_AT_LEAST: u64 = 64;
/// The page of PostgreSQL, and of the published experiments.
const PAGE_BYTES: &str = "8192";

/// SQLite as it is built into the lab.
#[derive(Debug, Clone, Copy)]
pub(super) struct Installation;

impl super::Installation for Installation {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Sqlite
    }

    fn version(&self) -> Result<String> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn initialise(&self, data: &Path, settings: &Settings) -> Result<()> {
        for directory in [data.to_owned(), temporary(data)] {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let connection = Connection::open(file(data))?;
        let page_size = settings.get("page_size").map_or(PAGE_BYTES, String::as_str);
        set(&connection, "page_size", page_size)?;
        // The file has its pages once something stands in it.
        connection.execute_batch("PRAGMA user_version = 1")?;
        Ok(())
    }

    fn lasting(&self) -> &'static [&'static str] {
        &["page_size"]
    }

    fn refuses(&self, settings: &Settings) -> Result<Option<String>> {
        let connection = Connection::open_in_memory()?;
        Ok((settings.iter())
            .find_map(|(name, value)| set(&connection, name, value).err())
            .map(|error| format!("{error:#}")))
    }

    fn start(&self, plan: &ServerPlan<'_>) -> Result<Box<dyn super::Server>> {
        Ok(Box::new(Server::start(plan)?))
    }

    fn is_embedded(&self) -> bool {
        true
    }
}

fn file(data: &Path) -> PathBuf {
    data.join("lab.db")
}

fn temporary(data: &Path) -> PathBuf {
    data.join("temporary")
}

/// Sets a pragma, and sees that SQLite knows it: one that it does not know it passes over.
fn set(connection: &Connection, name: &str, value: &str) -> Result<()> {
    let is_word = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    ensure!(
        is_word(name) && is_word(value),
        "`{name} = {value}` is no setting of SQLite"
    );
    connection
        .pragma_update(None, name, value)
        .with_context(|| format!("SQLite does not take `{name} = {value}`"))?;
    let mut is_known = false;
    connection.pragma_query(None, name, |_| {
        is_known = true;
        Ok(())
    })?;
    ensure!(is_known, "SQLite has no pragma `{name}`");
    Ok(())
}

/// What the sessions of a server share.
#[derive(Debug, Default)]
struct Shared {
    queue: Queue,
    commits: AtomicU64,
}

/// An open database; the sessions hold what there is of it.
#[derive(Debug)]
struct Server {
    data: PathBuf,
    settings: Settings,
    block_bytes: u64,
    shared: Arc<Shared>,
    _membership: Membership,
}

impl Server {
    fn start(plan: &ServerPlan<'_>) -> Result<Self> {
        let cache_kib = (own_cache_bytes(plan.memory_bytes) >> 10) / u64::from(plan.users.max(1));
        let mut settings: Settings = match plan.purpose {
            Purpose::Measure => [("journal_mode", "wal"), ("synchronous", "full")],
            Purpose::Fill => [("journal_mode", "memory"), ("synchronous", "off")],
        }
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        settings.insert(
            "cache_size".to_owned(),
            // Negative: KiB, not pages.
            format!("-{}", cache_kib.max(CACHE_KIB_AT_LEAST)),
        );
        if plan.purpose == Purpose::Measure {
            settings.extend(plan.settings.clone());
        }
        let mut server = Self {
            data: plan.data.to_owned(),
            settings,
            block_bytes: 0,
            shared: Arc::default(),
            _membership: plan.group.enter()?,
        };
        let connection = server.open()?;
        let size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        server.block_bytes = u64::try_from(size)?;
        Ok(server)
    }

    fn open(&self) -> Result<Connection> {
        let path = file(&self.data);
        let connection =
            Connection::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        connection.busy_timeout(LOCK_WAIT_AT_MOST)?;
        // Sorts that do not fit into memory go to the contender, too.
        let temporary = temporary(&self.data).display().to_string();
        connection.pragma_update(None, "temp_store_directory", temporary)?;
        for (name, value) in &self.settings {
            set(&connection, name, value)?;
        }
        Ok(connection)
    }
}

impl super::Server for Server {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Sqlite
    }

    fn connect(&self) -> Result<Box<dyn Session>> {
        let connection = self.open()?;
        Ok(Box::new(SqliteSession::new(
            connection,
            Arc::clone(&self.shared),
        )))
    }

    fn statistics(&self) -> Result<Box<dyn Statistics>> {
        Ok(Box::new(SqliteStatistics {
            shared: Arc::clone(&self.shared),
            block_bytes: as_float(self.block_bytes),
        }))
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn told(&self, name: &str) -> Option<String> {
        let connection = self.open().ok()?;
        let value = connection
            .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
            .ok()?;
        let text = match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Real(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            _ => return None,
        };
        Some(match (name, text.as_str()) {
            ("synchronous", "0") => "off".to_owned(),
            ("synchronous", "1") => "normal".to_owned(),
            ("synchronous", "2") => "full".to_owned(),
            ("synchronous", "3") => "extra".to_owned(),
            _ => text,
        })
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(self: Box<Self>) -> Result<()> {
        // Afterwards the file holds everything; the last connection takes the log away.
        let connection = self.open()?;
        if self
            .settings
            .get("journal_mode")
            .is_some_and(|mode| mode == "wal")
        {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
        connection
            .close()
            .map_err(|(_, error)| error)
            .context("SQLite cannot close the database")
    }
}

/// SQLite counts by connection and asks for code that the lab does not allow itself; so the
/// process's own reads and writes are taken, as the kernel counts them: nearly all are SQLite's.
struct SqliteStatistics {
    shared: Arc<Shared>,
    block_bytes: f64,
}

impl Statistics for SqliteStatistics {
    fn read(&mut self) -> Vec<(&'static str, f64)> {
        let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let of = |name: &str| -> f64 {
            text.lines()
                .find_map(|line| {
                    line.strip_prefix(name)?
                        .strip_prefix(':')?
                        .trim()
                        .parse()
                        .ok()
                })
                .unwrap_or(f64::NAN)
        };
        vec![
            ("database_blocks_read", of("rchar") / self.block_bytes),
            ("database_blocks_written", of("wchar") / self.block_bytes),
            (
                "database_commits",
                as_float(self.shared.commits.load(Ordering::Relaxed)),
            ),
        ]
    }
}

pub(super) fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    matches!(
        cause.downcast_ref::<rusqlite::Error>(),
        Some(rusqlite::Error::SqliteFailure(error, _))
            if matches!(error.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
