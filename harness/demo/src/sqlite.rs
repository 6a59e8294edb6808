//! The story's database where there is no PostgreSQL: SQLite, in write-ahead mode and
//! `synchronous=FULL`, with a process for each client.
//!
//! A client is this very program started once more, so that SIGKILL ends it as it would end a
//! server. It logs each acknowledged commit as pgbench does, in a file outside of the group, by
//! one system call a line: what is in that file was acknowledged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use rusqlite::{Connection, TransactionBehavior, params};
use spindle_testbed::interrupt;
use spindle_testbed::pgbench::{Acknowledged, parse_log};
use spindle_testbed::process::Service;
use spindle_testbed::scene::Scene;

use crate::database::{Acknowledgements, CLIENT_COUNT, Database, Load, Proof};

const ACCOUNT_COUNT: u32 = 100_000;
const TELLER_COUNT: u32 = 100;
const BRANCH_COUNT: u32 = 10;

/// Clients wait for each other's transactions: SQLite has one writer at a time.
const LOCK_WAIT_AT_MOST: Duration = Duration::from_secs(60);

/// A client's own entry into this program.
#[derive(Debug, Subcommand)]
pub enum Writer {
    /// A client of the story on SQLite; the story starts it.
    #[command(hide = true)]
    Write {
        /// The database's file.
        database: PathBuf,
        /// The file for acknowledged commits.
        log: PathBuf,
        /// Which run of the load.
        run: u32,
        /// Which client.
        client: u32,
        /// How long.
        seconds: u64,
    },
}

impl Writer {
    /// Commits until the time is over.
    pub fn run(&self) -> Result<()> {
        let Self::Write {
            database,
            log,
            run,
            client,
            seconds,
        } = self;
        let mut connection = open(database)?;
        let mut log = File::options().create(true).append(true).open(log)?;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(*client) << 32 ^ u64::from(*run);
        let began = Instant::now();
        let mut number = 0_u64;
        while began.elapsed() < Duration::from_secs(*seconds) {
            number += 1;
            let asked = Instant::now();
            transaction(&mut connection, *run, *client, number, &mut random)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            let line = format!(
                "{client} {number} {} 0 {} {}\n",
                asked.elapsed().as_micros(),
                now.as_secs(),
                now.subsec_micros()
            );
            log.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

fn open(database: &Path) -> Result<Connection> {
    let connection = Connection::open(database)
        .with_context(|| format!("cannot open {}", database.display()))?;
    connection.busy_timeout(LOCK_WAIT_AT_MOST)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

fn transaction(
    connection: &mut Connection,
    run: u32,
    client: u32,
    number: u64,
    random: &mut u64,
) -> Result<()> {
    // Immediate: a reader that turns into a writer could be refused by another writer.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let delta = i64::from(below(random, 10_001)) - 5000;
    for (table, rows) in [
        ("accounts", ACCOUNT_COUNT),
        ("tellers", TELLER_COUNT),
        ("branches", BRANCH_COUNT),
    ] {
        transaction
            .prepare_cached(&format!(
                "UPDATE {table} SET balance = balance + ?1 WHERE id = ?2"
            ))?
            .execute(params![delta, below(random, rows) + 1])?;
    }
    transaction
        .prepare_cached("INSERT INTO history (delta) VALUES (?1)")?
        .execute(params![delta])?;
    transaction
        .prepare_cached("INSERT INTO told (run, client, number) VALUES (?1, ?2, ?3)")?
        .execute(params![run, client, i64::try_from(number)?])?;
    Ok(transaction.commit()?)
}

/// The next number of a xorshift sequence (Marsaglia 2003), cut to below `limit`.
fn below(random: &mut u64, limit: u32) -> u32 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    u32::try_from(*random % u64::from(limit)).unwrap_or(0)
}

/// SQLite in one file.
pub struct Sqlite {
    logs: PathBuf,
    database: Option<PathBuf>,
    /// The clients' process ids end with the load; a kill must reach them too.
    writers: Vec<Service>,
}

impl Sqlite {
    /// Not yet made.
    pub fn new(scene: &Scene) -> Result<Self> {
        Ok(Self {
            logs: scene.directory("client")?,
            database: None,
            writers: Vec::new(),
        })
    }

    fn path(&self) -> Result<&Path> {
        self.database.as_deref().context("the database is not made")
    }
}

impl Database for Sqlite {
    fn title(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn create(&mut self, place: &Path) -> Result<()> {
        let path = place.join("demo.sqlite");
        let mut connection = open(&path)?;
        connection.execute_batch(
            "CREATE TABLE history (id INTEGER PRIMARY KEY, delta INTEGER);
             CREATE TABLE told (run INTEGER, client INTEGER, number INTEGER,
                                PRIMARY KEY (run, client, number));",
        )?;
        let filling = connection.transaction()?;
        for (table, rows) in [
            ("accounts", ACCOUNT_COUNT),
            ("tellers", TELLER_COUNT),
            ("branches", BRANCH_COUNT),
        ] {
            filling.execute_batch(&format!(
                "CREATE TABLE {table} (id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT);
                 WITH RECURSIVE ids(id) AS
                     (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < {rows})
                 INSERT INTO {table} SELECT id, 0, printf('%84s', id) FROM ids;"
            ))?;
        }
        filling.commit()?;
        self.database = Some(path);
        Ok(())
    }

    fn begin_load(&mut self, run: u32, duration: Duration) -> Result<Box<dyn Load>> {
        let program = std::env::current_exe()?;
        let log = |client: u32| self.logs.join(format!("acknowledged-{run}.{client}"));
        let complaints = self.logs.join(format!("complaints-{run}"));
        for client in 0..CLIENT_COUNT {
            let mut command = Command::new(&program);
            command
                .arg("write")
                .arg(self.path()?)
                .arg(log(client))
                .args([run.to_string(), client.to_string()])
                .arg(duration.as_secs().to_string());
            let writer = Service::start("a client", &mut command, &complaints)?;
            self.writers.push(writer);
        }
        Ok(Box::new(WriterLoad {
            processes: self.writers.iter().map(Service::id).collect(),
            logs: (0..CLIENT_COUNT).map(log).collect(),
            complaints,
        }))
    }

    fn end_load(&mut self, load: Box<dyn Load>, limit: Duration) -> Result<Vec<Acknowledged>> {
        // Each line of their logs is whole, or no acknowledgement.
        self.kill();
        load.finish(limit)
    }

    fn kill(&mut self) {
        for mut writer in self.writers.drain(..) {
            writer.kill();
        }
    }

    fn recover(&mut self, _place: &Path) -> Result<()> {
        // SQLite recovers when the first connection opens it.
        open(self.path()?)?.query_row("SELECT count(*) FROM told", [], |_| Ok(()))?;
        Ok(())
    }

    fn prove(&mut self, acknowledgements: &Acknowledgements) -> Result<Proof> {
        self.kill();
        let connection = open(self.path()?)?;
        let mut statement = connection
            .prepare("SELECT run, client, count(*), max(number) FROM told GROUP BY run, client")?;
        let found = statement
            .query_map([], |row| {
                let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
                Ok(((row.get(0)?, row.get(1)?), (number(2)?, number(3)?)))
            })?
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let mut proof = Proof::compare(acknowledgements, &found);

        let sum = |what: &str| -> Result<i64> {
            Ok(connection.query_row(&format!("SELECT {what}"), [], |row| row.get(0))?)
        };
        let sums = [
            sum("sum(balance) FROM accounts")?,
            sum("sum(balance) FROM tellers")?,
            sum("sum(balance) FROM branches")?,
            sum("coalesce(sum(delta), 0) FROM history")?,
        ];
        if sums.iter().all(|sum| *sum == sums[0]) {
            proof.held.push(format!(
                "accounts, tellers, branches and history agree on the balance: {}",
                sums[0]
            ));
        } else {
            proof.faults.push(format!(
                "accounts, tellers, branches and history differ: {sums:?}"
            ));
        }
        let verdict: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if verdict == "ok" {
            proof
                .held
                .push("SQLite's integrity check finds every page and index sound".to_owned());
        } else {
            proof.faults.push(format!("integrity_check: {verdict}"));
        }
        Ok(proof)
    }

    fn stop(&mut self) -> Result<()> {
        self.kill();
        Ok(())
    }
}

/// The clients under way; the database ends them.
struct WriterLoad {
    processes: Vec<u32>,
    logs: Vec<PathBuf>,
    complaints: PathBuf,
}

impl WriterLoad {
    fn running_count(&self) -> usize {
        // An ended client is a zombie until the database's own handle is dropped.
        self.processes
            .iter()
            .filter(|process| {
                fs::read_to_string(format!("/proc/{process}/stat"))
                    .is_ok_and(|stat| !stat.contains(") Z "))
            })
            .count()
    }
}

impl Load for WriterLoad {
    fn is_running(&mut self) -> Result<bool> {
        Ok(self.running_count() > 0)
    }

    fn progress(&self) -> String {
        let line_count: usize = self
            .logs
            .iter()
            .filter_map(|log| fs::read_to_string(log).ok())
            .map(|text| text.lines().count())
            .sum();
        format!("{line_count} commits")
    }

    fn errors(&self) -> Vec<(Instant, String)> {
        fs::read_to_string(&self.complaints)
            .unwrap_or_default()
            .lines()
            .map(|line| (Instant::now(), line.to_owned()))
            .collect()
    }

    fn finish(self: Box<Self>, limit: Duration) -> Result<Vec<Acknowledged>> {
        interrupt::wait_for("the clients to end", limit, || {
            Ok((self.running_count() == 0).then_some(()))
        })?;
        let mut log = Vec::new();
        for path in &self.logs {
            // A client that was killed before its first commit has no log.
            if let Ok(text) = fs::read_to_string(path) {
                log.extend(parse_log(&text)?);
            }
        }
        if log.is_empty() {
            bail!("nothing was acknowledged: {:?}", self.errors());
        }
        log.sort_by_key(|entry| entry.at_us);
        Ok(log)
    }
}
