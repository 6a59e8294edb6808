//! PostgreSQL, unchanged: its programs, a cluster on any directory, a server in the control group.
//!
//! The server never runs as root: root starts it as the user `postgres`. The socket and the log lie
//! outside of the cluster, in the run's own directory. Durability is left on in every setting.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use postgres::{Client, Config, NoTls};
use rustix::process::Signal;
use spindle_rig::interrupt;

use super::control_group::ControlGroup;
use super::journal::{Journal, Made, Undo};
use super::process::Identity;
use super::program::{Service, find, run, tail};

const START_AT_MOST: Duration = Duration::from_secs(120);
const STOP_AT_MOST: Duration = Duration::from_secs(300);
const USER: &str = "postgres";
/// The number only names the socket's file: nothing listens on a network.
const PORT: u16 = 5432;

/// PostgreSQL as it was found.
#[derive(Debug, Clone)]
pub struct Installation {
    programs: PathBuf,
    owner: (u32, u32),
}

impl Installation {
    /// In `programs`, or where Debian keeps the newest, or on the search path.
    ///
    /// # Errors
    /// Where there is none, or no user to run it as.
    pub fn find(programs: Option<&Path>) -> Result<Self> {
        let programs = match programs {
            Some(given) => {
                if !given.join("initdb").is_file() {
                    bail!(
                        "{} has no PostgreSQL: `initdb` is not in it",
                        given.display()
                    );
                }
                given.to_owned()
            }
            None => debian()
                .or_else(|| Some(find("initdb")?.parent()?.to_owned()))
                .context("PostgreSQL is not installed; on Debian: apt-get install postgresql-15")?,
        };
        let owner = user(USER)
            .with_context(|| format!("there is no user `{USER}` to run PostgreSQL as"))?;
        Ok(Self { programs, owner })
    }

    /// Its version in its own words.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn version(&self) -> Result<String> {
        let mut command = Command::new(self.programs.join("postgres"));
        Ok(run(command.arg("--version"))?.trim().to_owned())
    }

    /// One of its programs, as the server's user.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(find("setpriv").unwrap_or_else(|| "setpriv".into()));
        let (user, group) = self.owner;
        command
            .args([&format!("--reuid={user}"), &format!("--regid={group}")])
            .args(["--clear-groups", "--"])
            .arg(self.programs.join(name))
            // Our own working directory may be closed to that user.
            .current_dir("/");
        command
    }

    /// Gives a path to the server's user.
    ///
    /// # Errors
    /// Where it cannot be given.
    pub fn give(&self, path: &Path) -> Result<()> {
        let (user, group) = self.owner;
        chown(path, Some(user), Some(group))
            .with_context(|| format!("cannot give {} to `{USER}`", path.display()))
    }
}

fn debian() -> Option<PathBuf> {
    fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs
                .join("initdb")
                .exists()
                .then_some((version, programs))
        })
        .max()
        .map(|(_, programs)| programs)
}

fn user(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&name)).then_some(())?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    })
}

/// Makes a new cluster in `data`, which is made.
///
/// # Errors
/// What `initdb` says.
pub fn initialise(installation: &Installation, data: &Path) -> Result<()> {
    fs::create_dir(data).with_context(|| format!("cannot make {}", data.display()))?;
    installation.give(data)?;
    let mut command = installation.program("initdb");
    command.arg("--pgdata").arg(data);
    command.args(["--username", USER, "--auth", "trust"]);
    command.args(["--encoding", "UTF8", "--locale", "C", "--no-sync"]);
    run(&mut command).map(drop)
}

/// How a server is run.
pub struct ServerPlan<'a> {
    /// Its programs.
    pub installation: &'a Installation,
    /// The cluster.
    pub data: &'a Path,
    /// For socket and log; it is given to the server's user.
    pub runtime: &'a Path,
    /// Beyond the lab's own.
    pub settings: &'a BTreeMap<String, String>,
    /// The memory of the group, where it is limited.
    pub memory_bytes: Option<u64>,
    /// Connections for the load.
    pub users: u32,
}

/// A running server; a drop ends it at once.
#[derive(Debug)]
pub struct Server {
    service: Service,
    runtime: PathBuf,
    programs: PathBuf,
    settings: BTreeMap<String, String>,
    _made: Made,
}

/// The lab's own settings: the server's defaults but for memory, connections and what would make
/// two runs differ by chance.
#[must_use]
pub fn settings(
    memory_bytes: Option<u64>,
    users: u32,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let shared = memory_bytes.map_or(128 << 20, |memory| (memory / 4).clamp(16 << 20, 8 << 30));
    let mut settings: BTreeMap<String, String> = [
        ("shared_buffers", format!("{}kB", shared >> 10)),
        ("max_connections", (users + 10).to_string()),
        ("jit", "off".to_owned()),
        ("track_io_timing", "on".to_owned()),
        ("autovacuum_naptime", "15s".to_owned()),
        ("huge_pages", "off".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    settings.extend(given.clone());
    settings
}

impl Server {
    /// Starts it as a member of `group` and waits until it answers.
    ///
    /// # Errors
    /// Where it does not start, with the end of its log.
    pub fn start(plan: &ServerPlan<'_>, group: &ControlGroup, journal: &Journal) -> Result<Self> {
        plan.installation.give(plan.runtime)?;
        let settings = settings(plan.memory_bytes, plan.users, plan.settings);
        let mut command = plan.installation.program("postgres");
        command.arg("-D").arg(plan.data);
        command.args(["-c", "listen_addresses="]);
        command.arg("-c");
        command.arg(format!(
            "unix_socket_directories={}",
            plan.runtime.display()
        ));
        for (name, value) in &settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let made = journal.intend(Undo::PostgreSql(plan.data.join("postmaster.pid")))?;
        let log = plan.runtime.join("postgresql.log");
        let service = Service::start("PostgreSQL", &mut group.wrap(&command), &log)?;
        let mut server = Self {
            service,
            runtime: plan.runtime.to_owned(),
            programs: plan.installation.programs.clone(),
            settings,
            _made: made,
        };
        interrupt::wait_for("PostgreSQL to answer", START_AT_MOST, || {
            server.service.check_alive()?;
            Ok(server.connect().ok())
        })?;
        Ok(server)
    }

    /// A connection.
    ///
    /// # Errors
    /// Where the server does not accept it.
    pub fn connect(&self) -> Result<Client> {
        Config::new()
            .host_path(&self.runtime)
            .port(PORT)
            .user(USER)
            .dbname("postgres")
            .application_name("spindle-lab")
            .connect(NoTls)
            .context("cannot connect to PostgreSQL")
    }

    /// A client program with everything set to reach the server; the database comes last.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("--host").arg(&self.runtime);
        command.args(["--port", &PORT.to_string(), "--username", USER]);
        command
    }

    /// The settings it was started with.
    #[must_use]
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Which process it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.service.identity()
    }

    /// Stops it as an administrator would (fast shutdown).
    ///
    /// # Errors
    /// Where it does not end, or not well.
    pub fn stop(mut self) -> Result<()> {
        let status = self.service.end(Signal::INT, STOP_AT_MOST)?;
        if !status.success() {
            bail!("PostgreSQL ended badly ({status}): {}", self.log_tail());
        }
        Ok(())
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.runtime.join("postgresql.log")).unwrap_or_default();
        tail(&log, 12)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked to stop at once it flushes nothing, but takes its shared memory along.
        if self.service.check_alive().is_ok() {
            let _ = self.service.end(Signal::QUIT, Duration::from_secs(10));
        }
    }
}

/// The database's own counters.
pub struct Statistics {
    client: Client,
}

/// What [`Statistics::read`] asks for: our name, and the sum of it.
const COUNTERS: [(&str, &str); 9] = [
    (
        "database_blocks_read",
        "(SELECT sum(blks_read) FROM pg_stat_database)",
    ),
    (
        "database_blocks_hit",
        "(SELECT sum(blks_hit) FROM pg_stat_database)",
    ),
    (
        "database_commits",
        "(SELECT sum(xact_commit) FROM pg_stat_database)",
    ),
    (
        "database_temporary_bytes",
        "(SELECT sum(temp_bytes) FROM pg_stat_database)",
    ),
    (
        "database_read_ms",
        "(SELECT sum(blk_read_time) FROM pg_stat_database)",
    ),
    (
        "database_blocks_written",
        "(SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter)",
    ),
    (
        "database_checkpoints",
        "(SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter)",
    ),
    ("database_log_bytes", "(SELECT wal_bytes FROM pg_stat_wal)"),
    ("database_log_writes", "(SELECT wal_write FROM pg_stat_wal)"),
];

impl Statistics {
    /// Over a connection of its own.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Every counter, or none where the server does not answer (it may be ending).
    pub fn read(&mut self) -> Vec<(&'static str, f64)> {
        let columns: Vec<String> = COUNTERS
            .iter()
            .map(|(_, query)| format!("{query}::float8"))
            .collect();
        let query = format!("SELECT {}", columns.join(", "));
        let Ok(row) = self.client.query_one(&query, &[]) else {
            return COUNTERS.iter().map(|(name, _)| (*name, f64::NAN)).collect();
        };
        COUNTERS
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (*name, row.get::<_, Option<f64>>(index).unwrap_or(0.0)))
            .collect()
    }
}
