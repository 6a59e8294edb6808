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
pub const ANSWER_AT_MOST: Duration = Duration::from_secs(60);

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

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Commit,
    MakeTable,
    RemoveTable,
}

/// What a client asked for and was told of.
#[derive(Debug, Clone, Copy)]
struct Ended {
    task: Task,
    asked: Instant,
    told: Instant,
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
    /// What the same takes that client: the median of all that ended before. Nothing for a commit; a
    /// table that is made or removed is a dozen requests, each of them flushed, and on a busy machine
    /// no short wait.
    pub usual: Duration,
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
    asked: Option<(Instant, Task)>,
    /// In the order in which it was asked.
    ended: Vec<Ended>,
    failure: Option<String>,
}

impl Log {
    fn commits_count(&self) -> usize {
        let is_commit = |ended: &&Ended| ended.task == Task::Commit;
        self.ended.iter().filter(is_commit).count()
    }

    /// The median of what this took before that time; nothing for a commit, and where it was never
    /// done.
    fn usual(&self, task: Task, before: Instant) -> Duration {
        if task == Task::Commit {
            return Duration::ZERO;
        }
        let ended = self.ended.iter();
        let mut lengths: Vec<Duration> = ended
            .filter(|ended| ended.task == task && ended.told < before)
            .map(|ended| ended.told - ended.asked)
            .collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or_default()
    }
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

/// How many commits a client was told of; they are numbered 1, 2, 3, ...
#[derive(Debug)]
pub struct Told {
    /// Whose.
    pub kind: Kind,
    /// Its number.
    pub client: u32,
    /// So many.
    pub commits_count: usize,
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
            let since = log.asked.map(|(asked, _)| asked.elapsed());
            ensure!(
                since.is_none_or(|since| since < ANSWER_AT_MOST),
                "client {who:?} waits for an answer since {since:?}"
            );
        }
        Ok(())
    }

    /// Commits so far.
    pub fn commits_count(&self) -> usize {
        let count = |client: &Client| locked(&client.log).commits_count();
        self.clients.iter().map(count).sum()
    }

    /// Whether nobody waits for an answer who asked before that time.
    pub fn are_told(&self, before: Instant) -> bool {
        let is_told = |client: &Client| {
            let asked = locked(&client.log).asked;
            asked.is_none_or(|(asked, _)| asked >= before)
        };
        self.clients.iter().all(is_told)
    }

    /// The wait that is the longest beyond the usual, of all that reach into that time and have ended;
    /// none where all clients were told before.
    pub fn longest_wait(&self, from: Instant, until: Instant) -> Option<Wait> {
        let mut waits = Vec::new();
        for client in &self.clients {
            let log = locked(&client.log);
            let told = log.ended.iter().rev();
            let told = told.take_while(|ended| ended.told >= from);
            let told = told.map(|ended| (ended.task, ended.asked, ended.told - ended.asked));
            let reaching = told.filter(|(_, asked, _)| *asked < until);
            waits.extend(reaching.map(|(task, asked, length)| Wait {
                kind: client.kind,
                client: client.number,
                asked,
                length,
                usual: log.usual(task, from),
            }));
        }
        waits
            .into_iter()
            .max_by_key(|wait| wait.length.saturating_sub(wait.usual))
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
                    commits_count: locked(&client.log).commits_count(),
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
fn ask(connection: &mut Connection, log: &Mutex<Log>, task: Task, statements: &str) -> Result<()> {
    let asked = Instant::now();
    locked(log).asked = Some((asked, task));
    connection.run(statements)?;
    let told = Instant::now();
    let mut log = locked(log);
    log.asked = None;
    log.ended.push(Ended { task, asked, told });
    Ok(())
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
        ask(
            connection,
            log,
            Task::Commit,
            &format!(
                "UPDATE account SET balance = balance + {delta} WHERE id = {account}; \
                 INSERT INTO told VALUES ({client}, {number}, {delta}, repeat('x', {filler}))"
            ),
        )?;
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
        ask(connection, log, Task::MakeTable, &make)?;
        if round > 3 {
            let remove = format!("DROP TABLE round_{}", round - 3);
            ask(connection, log, Task::RemoveTable, &remove)?;
        }
        std::thread::sleep(CHURN_INTERVAL);
    }
    Ok(())
}
