//! The clients of both databases, and their log: each commits numbered rows one after the other
//! and notes when it asked and when it was told. Two more make and remove tables.
//!
//! An error that a client sees ends the scenario: it is for this that redundancy is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use spindle_device::SeededRandom;
use spindle_testbed::{mariadb, postgres};

use super::databases::{ACCOUNT_COUNT, DATABASE};

/// Clients of each database that commit rows.
pub const CLIENT_COUNT: u32 = 3;

/// A person thinks between two transactions; two cores have other things to do, too.
const THINK: Duration = Duration::from_millis(4);
const CHURN_INTERVAL: Duration = Duration::from_millis(250);

/// Whoever waits longer for an answer waits in vain.
const ANSWER_AT_MOST: Duration = Duration::from_secs(60);

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB.
    MariaDb,
}

/// A connection to either.
pub enum Connection {
    /// To PostgreSQL.
    PostgreSql(spindle_testbed::wire::Connection),
    /// To MariaDB.
    MariaDb(mariadb::Client),
}

impl Connection {
    fn run(&mut self, statements: &str) -> Result<()> {
        match self {
            // Several statements in one message are one transaction.
            Self::PostgreSql(connection) => connection.query(statements).map(drop),
            Self::MariaDb(client) => client
                .query(&format!("BEGIN; {statements}; COMMIT"))
                .map(drop),
        }
    }
}

/// An acknowledged commit.
#[derive(Debug, Clone, Copy)]
pub struct Commit {
    /// When it was asked for.
    pub asked: Instant,
    /// When the client was told that it is there.
    pub told: Instant,
}

/// How long a client waited for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    kind: Kind,
    client: Option<u32>,
    /// When it asked.
    pub asked: Instant,
    /// From then on.
    pub length: Duration,
}

impl Wait {
    /// Who waited.
    pub fn who(&self) -> String {
        match self.client {
            Some(number) => format!("client {number} of {:?}", self.kind),
            None => format!(
                "the client of {:?} that makes and removes tables",
                self.kind
            ),
        }
    }
}

/// What a client knows.
#[derive(Debug, Default)]
struct Log {
    commits: Vec<Commit>,
    asked: Option<Instant>,
    failure: Option<String>,
}

/// A client under way.
struct Client {
    kind: Kind,
    /// Its number; none of one that makes and removes tables.
    number: Option<u32>,
    log: Arc<Mutex<Log>>,
    thread: Option<JoinHandle<()>>,
}

/// All of them; a drop tells them to stop, and does not wait.
pub struct Clients {
    clients: Vec<Client>,
    stop: Arc<AtomicBool>,
}

/// A client's acknowledged commits; they are numbered 1, 2, 3, ...
#[derive(Debug)]
pub struct Told {
    /// Whose.
    pub kind: Kind,
    /// Its number.
    pub client: u32,
    /// In order.
    pub commits: Vec<Commit>,
}

impl Clients {
    /// Starts them.
    pub fn start(postgresql: &postgres::Server, mariadb: &mariadb::Server) -> Result<Self> {
        let mut clients = Self {
            clients: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
        };
        for kind in [Kind::PostgreSql, Kind::MariaDb] {
            let connect = || {
                Ok::<_, anyhow::Error>(match kind {
                    Kind::PostgreSql => Connection::PostgreSql(postgresql.connect("postgres")?),
                    Kind::MariaDb => Connection::MariaDb(mariadb.connect(DATABASE)?),
                })
            };
            for number in 0..CLIENT_COUNT {
                clients.spawn(kind, Some(number), connect()?);
            }
            clients.spawn(kind, None, connect()?);
        }
        Ok(clients)
    }

    fn spawn(&mut self, kind: Kind, number: Option<u32>, mut connection: Connection) {
        let log = Arc::new(Mutex::new(Log::default()));
        let (own, stop) = (Arc::clone(&log), Arc::clone(&self.stop));
        let thread = std::thread::spawn(move || {
            let ended = match number {
                Some(number) => commit_rows(&mut connection, number, &own, &stop),
                None => make_and_remove_tables(&mut connection, &own, &stop),
            };
            if let Err(error) = ended {
                locked(&own).failure = Some(format!("{error:#}"));
            }
        });
        self.clients.push(Client {
            kind,
            number,
            log,
            thread: Some(thread),
        });
    }

    /// An error where a client saw one, or waits in vain.
    pub fn check(&self) -> Result<()> {
        for client in &self.clients {
            let log = locked(&client.log);
            let who = (client.kind, client.number);
            if let Some(failure) = &log.failure {
                bail!("client {who:?} saw an error: {failure}");
            }
            let since = log.asked.map(|asked| asked.elapsed());
            ensure!(
                since.is_none_or(|since| since < ANSWER_AT_MOST),
                "client {who:?} waits for an answer since {since:?}"
            );
        }
        Ok(())
    }

    /// Commits so far.
    pub fn commits_count(&self) -> usize {
        let count = |client: &Client| locked(&client.log).commits.len();
        self.clients.iter().map(count).sum()
    }

    /// The longest that any client waited, or waits, whose wait reaches into that time; none where all
    /// were told before.
    pub fn longest_wait(&self, from: Instant, until: Instant) -> Option<Wait> {
        let mut waits = Vec::new();
        for client in &self.clients {
            let log = locked(&client.log);
            let told = log.commits.iter().rev();
            let told = told.take_while(|commit| commit.told >= from);
            let told = told.map(|commit| (commit.asked, commit.told - commit.asked));
            let asks = log.asked.map(|asked| (asked, asked.elapsed()));
            let reaching = told.chain(asks).filter(|(asked, _)| *asked < until);
            waits.extend(reaching.map(|(asked, length)| Wait {
                kind: client.kind,
                client: client.number,
                asked,
                length,
            }));
        }
        waits.into_iter().max_by_key(|wait| wait.length)
    }

    /// Lets each finish what it is at, and gives the log.
    pub fn stop(mut self) -> Result<Vec<Told>> {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + ANSWER_AT_MOST;
        let mut told = Vec::new();
        for client in &mut self.clients {
            let thread = client.thread.take();
            while thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                ensure!(Instant::now() < until, "a client does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.check()?;
        for client in &self.clients {
            if let Some(number) = client.number {
                told.push(Told {
                    kind: client.kind,
                    client: number,
                    commits: locked(&client.log).commits.clone(),
                });
            }
        }
        Ok(told)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Who still waits for an answer ends with its server.
        self.stop.store(true, Ordering::Relaxed);
    }
}

pub fn locked<T>(log: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs statements; the log says since when, while they run.
fn ask(connection: &mut Connection, log: &Mutex<Log>, statements: &str) -> Result<Commit> {
    let asked = Instant::now();
    locked(log).asked = Some(asked);
    connection.run(statements)?;
    let told = Instant::now();
    locked(log).asked = None;
    Ok(Commit { asked, told })
}

fn commit_rows(
    connection: &mut Connection,
    client: u32,
    log: &Mutex<Log>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut random = SeededRandom::new(u64::from(client));
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let delta = random.below(2001).cast_signed() - 1000;
        let account = random.below(ACCOUNT_COUNT) + 1;
        let filler = random.below(500);
        let commit = ask(
            connection,
            log,
            &format!(
                "UPDATE account SET balance = balance + {delta} WHERE id = {account}; \
                 INSERT INTO told VALUES ({client}, {number}, {delta}, repeat('x', {filler}))"
            ),
        )?;
        locked(log).commits.push(commit);
        std::thread::sleep(THINK);
    }
    Ok(())
}

fn make_and_remove_tables(
    connection: &mut Connection,
    log: &Mutex<Log>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let make = format!("CREATE TABLE round_{round} AS SELECT * FROM account WHERE id <= 200");
        ask(connection, log, &make)?;
        if round > 3 {
            ask(connection, log, &format!("DROP TABLE round_{}", round - 3))?;
        }
        std::thread::sleep(CHURN_INTERVAL);
    }
    Ok(())
}
