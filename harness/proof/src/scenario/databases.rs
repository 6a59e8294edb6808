//! The two databases of a scenario: made, filled, and judged at the end.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;
use spindle_testbed::{mariadb, postgres};

use super::clients::{Kind, Told};

/// The database that is ours in MariaDB; in PostgreSQL it is `postgres`.
pub const DATABASE: &str = "scenario";

/// Rows that the clients change.
pub const ACCOUNT_COUNT: u64 = 20_000;

/// Rows of the table that nobody changes.
const COLD_COUNT: u64 = 120_000;

/// A small server: what does not fit into its memory goes through the mount at once.
const SETTINGS: [&str; 6] = [
    "shared_buffers=8MB",
    "max_wal_size=48MB",
    "min_wal_size=32MB",
    "checkpoint_timeout=30s",
    "checkpoint_completion_target=0.3",
    "autovacuum_naptime=5s",
];

/// What both are told; the differences between their languages are few.
const TABLES: &str = "CREATE TABLE account (id int PRIMARY KEY, balance bigint, filler varchar(80)); \
     CREATE TABLE told (client int, number bigint, delta bigint, filler varchar(700), \
                        PRIMARY KEY (client, number)); \
     CREATE TABLE cold (id int PRIMARY KEY, filler varchar(300))";

/// The statements that fill these tables, for both.
fn rows() -> String {
    let numbers = |count: u64| {
        format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers \
             WHERE n < {count})"
        )
    };
    format!(
        "INSERT INTO account {} SELECT n, 0, repeat('.', 60) FROM numbers; \
         INSERT INTO cold {} SELECT n, repeat(md5(concat(n, '')), 8) FROM numbers",
        numbers(ACCOUNT_COUNT),
        numbers(COLD_COUNT)
    )
}

/// The installations that are needed.
pub struct Installations {
    /// PostgreSQL.
    pub postgresql: postgres::Installation,
    /// MariaDB.
    pub mariadb: mariadb::Installation,
}

/// Both clusters.
pub struct Databases {
    postgresql: postgres::Cluster,
    mariadb: mariadb::Cluster,
}

/// Both servers, running.
pub struct Servers {
    /// PostgreSQL.
    pub postgresql: postgres::Server,
    /// MariaDB.
    pub mariadb: mariadb::Server,
}

/// A file of the group with pages that nobody writes.
#[derive(Debug, Clone)]
pub struct ColdFile {
    /// Whose.
    pub kind: Kind,
    /// Its path in the group.
    pub path: String,
    /// Bytes of a page.
    pub page_bytes: u64,
}

impl Databases {
    /// In the mounted directory `point`.
    pub fn new(installations: &Installations, scene: &Scene, point: &Path) -> Result<Self> {
        Ok(Self {
            postgresql: postgres::Cluster::new(
                &installations.postgresql,
                &point.join("postgresql"),
                &scene.directory("postgresql")?,
                &SETTINGS,
            )?,
            mariadb: mariadb::Cluster::new(
                &installations.mariadb,
                &point.join("mariadb"),
                &scene.directory("mariadb")?,
            )?,
        })
    }

    /// Makes and fills both, and stops them, so that nothing of it is left to be written.
    pub fn make(&self) -> Result<[ColdFile; 2]> {
        let step = Step::begin("making PostgreSQL's cluster", 0);
        self.postgresql
            .init(&["--wal-segsize=1", "--data-checksums"])?;
        let server = self.postgresql.start()?;
        let mut connection = server.connect("postgres")?;
        connection.query(TABLES)?;
        connection.query("ALTER TABLE cold SET (autovacuum_enabled = off)")?;
        connection.query(&rows())?;
        connection.query("VACUUM FREEZE cold")?;
        let relation = connection.value("SELECT pg_relation_filepath('cold')")?;
        drop(connection);
        server.stop()?;
        step.done("");
        let step = Step::begin("making MariaDB's data directory", 0);
        self.mariadb.init()?;
        let server = self.mariadb.start()?;
        server
            .connect("mysql")?
            .query(&format!("CREATE DATABASE {DATABASE}"))?;
        let mut client = server.connect(DATABASE)?;
        client.query(TABLES)?;
        // Nobody reads its pages behind the scenario's back, which PostgreSQL is told above: a
        // server that meets a damaged page before the scrub does is right to end.
        client.query("ALTER TABLE cold STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")?;
        client.query(&rows())?;
        client.query("ANALYZE TABLE cold")?;
        drop(client);
        server.stop()?;
        step.done("");
        Ok([
            ColdFile {
                kind: Kind::PostgreSql,
                path: format!("/postgresql/{relation}"),
                page_bytes: 8192,
            },
            ColdFile {
                kind: Kind::MariaDb,
                path: format!("/mariadb/{DATABASE}/cold.ibd"),
                page_bytes: 16_384,
            },
        ])
    }

    /// Starts both.
    pub fn start(&self) -> Result<Servers> {
        Ok(Servers {
            postgresql: self.postgresql.start()?,
            mariadb: self.mariadb.start()?,
        })
    }
}

/// Figures of a database: by client, how many commits are there and the highest number.
type Found = BTreeMap<u32, (u64, u64)>;

impl Servers {
    /// An error where one of them has ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        self.postgresql.check_alive()?;
        self.mariadb.check_alive()
    }

    /// Everything that was acknowledged is there, nothing else is, and both databases find
    /// every page and index of theirs sound.
    pub fn judge(&self, told: &[Told]) -> Result<()> {
        for (kind, mut ask) in self.connections()? {
            let found = found(&mut *ask).with_context(|| format!("{kind:?}"))?;
            for client in told.iter().filter(|client| client.kind == kind) {
                let acknowledged = client.commits_count as u64;
                let there = found.get(&client.client).copied().unwrap_or((0, 0));
                ensure!(
                    there == (acknowledged, acknowledged),
                    "{kind:?}, client {}: {acknowledged} commits were acknowledged, {} are there, \
                     numbered up to {}",
                    client.client,
                    there.0,
                    there.1
                );
            }
            let one = |ask: &mut Ask<'_>, statement: &str| -> Result<String> {
                ask(statement)?.pop().context("a sum is one row")
            };
            let balance = one(&mut *ask, "SELECT sum(balance) FROM account")?;
            let moved = one(&mut *ask, "SELECT sum(delta) FROM told")?;
            ensure!(
                balance == moved,
                "{kind:?}: the accounts hold {balance}, but {moved} was moved"
            );
            let cold = one(
                &mut *ask,
                "SELECT count(*) FROM cold \
                 WHERE md5(filler) = md5(repeat(md5(concat(id, '')), 8))",
            )?;
            ensure!(
                cold == COLD_COUNT.to_string(),
                "{kind:?}: {cold} rows of the cold table are as they were"
            );
        }
        self.postgresql.check_structure()?;
        self.mariadb.check_tables()
    }

    fn connections(&self) -> Result<Vec<(Kind, Box<Ask<'static>>)>> {
        let mut connection = self.postgresql.connect("postgres")?;
        let mut client = self.mariadb.connect(DATABASE)?;
        let postgresql = move |statement: &str| -> Result<Vec<String>> {
            let rows = connection.query(statement)?;
            Ok(rows
                .into_iter()
                .map(|row| {
                    let texts = row.into_iter().map(Option::unwrap_or_default);
                    texts.collect::<Vec<String>>().join("\t")
                })
                .collect())
        };
        let mariadb = move |statement: &str| client.query(statement);
        Ok(vec![
            (Kind::PostgreSql, Box::new(postgresql)),
            (Kind::MariaDb, Box::new(mariadb)),
        ])
    }

    /// Stops both as an administrator would.
    pub fn stop(self) -> Result<()> {
        self.postgresql.stop()?;
        self.mariadb.stop()
    }
}

/// Asks a database for rows, columns apart by tabs.
type Ask<'a> = dyn FnMut(&str) -> Result<Vec<String>> + 'a;

fn found(ask: &mut Ask<'_>) -> Result<Found> {
    let mut found = Found::new();
    for row in ask("SELECT client, count(*), max(number) FROM told GROUP BY client")? {
        let fields: Vec<&str> = row.split('\t').collect();
        let [client, count, highest] = fields[..] else {
            anyhow::bail!("not three columns: {row}");
        };
        found.insert(client.parse()?, (count.parse()?, highest.parse()?));
    }
    Ok(found)
}
