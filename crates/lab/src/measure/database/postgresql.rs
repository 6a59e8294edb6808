//! PostgreSQL, unchanged: its programs, a cluster on any directory, a server in the control group.
//!
//! Debian's, or any other by its directory: only `initdb` and `postgres` are needed, so that the
//! ready binaries of a newer version serve, too. The socket and the log lie outside of the cluster,
//! in the run's own directory.

mod copy;
mod decimal;
mod session;
mod statistics;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls};
use rustix::process::Signal;
use spindle_testbed::interrupt;

use self::session::PostgresqlSession;
use self::statistics::PostgresqlStatistics;
use super::account::Account;
use super::{Original, Purpose, ServerPlan, Session, Settings, Statistics, own_cache_bytes};
use crate::experiment::{CopyOf, DatabaseKind};
use crate::measure::journal::{Made, Undo};
use crate::measure::program::{Service, run, run_within};

const START_AT_MOST: Duration = Duration::from_secs(120);
const STOP_AT_MOST: Duration = Duration::from_secs(300);
const USER: &str = "postgres";
/// The number only names the socket's file: nothing listens on a network.
const PORT: u16 = 5432;
/// Of every build that one meets.
const BLOCK_BYTES: u64 = 8192;

/// PostgreSQL as it was found.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    programs: PathBuf,
    account: Account,
    /// Whose copies its clusters are; none where they are made anew.
    copy_of: Option<CopyOf>,
}

impl Installation {
    pub fn find(directory: Option<&Path>, copy_of: Option<&CopyOf>) -> Result<Self> {
        let programs = match directory {
            Some(given) => [given.join("bin"), given.to_owned()]
                .into_iter()
                .find(|programs| programs.join("initdb").is_file())
                .with_context(|| {
                    format!(
                        "{} has no PostgreSQL: neither `bin/initdb` nor `initdb` is in it",
                        given.display()
                    )
                })?,
            None => spindle_testbed::postgres::programs()
                .context("PostgreSQL is not installed; on Debian: apt-get install postgresql-15")?,
        };
        Ok(Self {
            programs,
            account: Account::find(USER)?,
            copy_of: copy_of.cloned(),
        })
    }

    /// The number of its version before the point.
    fn major(&self) -> Result<String> {
        let told = run(self.program("postgres").arg("--version"))?;
        let digits = |text: &str| {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        let mut words = told.split_whitespace().map(digits);
        words
            .find(|number| !number.is_empty())
            .with_context(|| format!("`{}` tells no version", told.trim()))
    }

    /// One of its programs, as the server's user.
    fn program(&self, name: &str) -> Command {
        self.account.program(&self.programs.join(name))
    }
}

impl super::Installation for Installation {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Postgresql
    }

    fn version(&self) -> Result<String> {
        let version = |program: &str| {
            run(self.program(program).arg("--version")).with_context(|| {
                format!(
                    "the PostgreSQL of {} cannot be run as `{}`",
                    self.programs.display(),
                    self.account.name()
                )
            })
        };
        // The two need different libraries: a directory that was not unpacked whole has one only.
        version("initdb")?;
        Ok(version("postgres")?.trim().to_owned())
    }

    fn original(&self) -> Result<Option<Original>> {
        (self.copy_of.as_ref())
            .map(|original| copy::look(self, original))
            .transpose()
    }

    fn initialise(&self, data: &Path, _settings: &Settings) -> Result<()> {
        fs::create_dir(data).with_context(|| format!("cannot make {}", data.display()))?;
        self.account.give(data)?;
        if let Some(original) = &self.copy_of {
            return copy::take(self, original, data);
        }
        let mut command = self.program("initdb");
        command.arg("--pgdata").arg(data);
        command.args(["--username", USER, "--auth", "trust"]);
        command.args(["--encoding", "UTF8", "--locale", "C", "--no-sync"]);
        run(&mut command).map(drop)
    }

    /// A server that is only asked for a setting reads its file and its arguments, and makes nothing.
    fn refuses(&self, settings: &Settings) -> Result<Option<String>> {
        for (name, value) in settings {
            let mut command = self.program("postgres");
            command.args(["-D", "/", "-c", "config_file=/dev/null"]);
            command.arg("-c").arg(format!("{name}={value}"));
            command.args(["-C", "max_connections"]);
            let ended = run_within(&mut command, START_AT_MOST)?;
            if !ended.status.success() {
                return Ok(Some(refusal(name, value, &ended.stderr)));
            }
        }
        Ok(None)
    }

    fn start(&self, plan: &ServerPlan<'_>) -> Result<Box<dyn super::Server>> {
        Ok(Box::new(Server::start(self, plan)?))
    }
}

/// The server's own words after their marks, in a line.
fn refusal(name: &str, value: &str, said: &str) -> String {
    let words: Vec<&str> = said
        .lines()
        .filter_map(|line| {
            (line
                .split_once("FATAL:")
                .or_else(|| line.split_once("HINT:")))
            .map(|(_, words)| words)
        })
        .map(str::trim)
        .collect();
    let words = if words.is_empty() {
        said.trim().to_owned()
    } else {
        words.join("; ")
    };
    format!(
        "PostgreSQL does not take `{name} = {value:?}`: {}",
        words.replace('\n', " ")
    )
}

/// The lab's own settings: the server's defaults but for memory, connections and what would make
/// two runs differ by chance.
fn settings(plan: &ServerPlan<'_>) -> Settings {
    let own = |pairs: &[(&str, String)]| -> Settings {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    };
    let mut settings = own(&[
        (
            "shared_buffers",
            format!("{}kB", own_cache_bytes(plan.memory_bytes) >> 10),
        ),
        ("max_connections", (plan.users + 10).to_string()),
        ("max_wal_size", format!("{}MB", plan.log_bytes >> 20)),
        ("jit", "off".to_owned()),
        ("track_io_timing", "on".to_owned()),
        ("track_wal_io_timing", "on".to_owned()),
        ("autovacuum_naptime", "15s".to_owned()),
        ("huge_pages", "off".to_owned()),
    ]);
    match plan.purpose {
        Purpose::Measure => settings.extend(plan.settings.clone()),
        Purpose::Fill => settings.extend(own(&[
            ("fsync", "off".to_owned()),
            ("wal_level", "minimal".to_owned()),
            ("max_wal_senders", "0".to_owned()),
            ("max_wal_size", "1GB".to_owned()),
        ])),
    }
    settings
}

/// A running server; a drop ends it at once.
#[derive(Debug)]
struct Server {
    service: Service,
    runtime: PathBuf,
    /// Whom its clients are, and where they work.
    user: String,
    database: String,
    settings: Settings,
    _made: Made,
}

impl Server {
    fn start(installation: &Installation, plan: &ServerPlan<'_>) -> Result<Self> {
        installation.account.give(plan.runtime)?;
        let settings = settings(plan);
        let mut command = installation.program("postgres");
        command.arg("-D").arg(plan.data);
        command.args(["-c", "listen_addresses="]);
        command.arg("-c");
        command.arg(format!(
            "unix_socket_directories={}",
            plan.runtime.display()
        ));
        let of_a_copy = match &installation.copy_of {
            Some(_) => copy::settings(plan.data),
            None => Settings::new(),
        };
        // The last word counts: that of the experiment.
        for (name, value) in of_a_copy.iter().chain(&settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let id_file = plan.data.join("postmaster.pid");
        let made = plan.journal.intend(Undo::PostgreSql(id_file))?;
        let log = plan.runtime.join("postgresql.log");
        let service = Service::start("PostgreSQL", &mut plan.group.wrap(&command), &log)?;
        let (user, database) = match &installation.copy_of {
            Some(original) => (original.user.clone(), original.database.clone()),
            None => (USER.to_owned(), "postgres".to_owned()),
        };
        let mut server = Self {
            service,
            user,
            database,
            runtime: plan.runtime.to_owned(),
            settings,
            _made: made,
        };
        interrupt::wait_for("PostgreSQL to answer", START_AT_MOST, || {
            server.service.check_alive()?;
            Ok(server.client().ok())
        })?;
        Ok(server)
    }

    fn client(&self) -> Result<Client> {
        Config::new()
            .host_path(&self.runtime)
            .port(PORT)
            .user(&self.user)
            .dbname(&self.database)
            .application_name("spindle-lab")
            .connect(NoTls)
            .context("cannot connect to PostgreSQL")
    }
}

impl super::Server for Server {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Postgresql
    }

    fn connect(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(PostgresqlSession::new(self.client()?)))
    }

    fn statistics(&self) -> Result<Box<dyn Statistics>> {
        Ok(Box::new(PostgresqlStatistics::new(self.client()?)?))
    }

    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn told(&self, name: &str) -> Option<String> {
        let mut client = self.client().ok()?;
        let row = client.query_one("SELECT current_setting($1, true)", &[&name]);
        row.ok()?.get(0)
    }

    fn log_tail(&self) -> String {
        self.service.log_tail()
    }

    /// Fast shutdown.
    fn stop(mut self: Box<Self>) -> Result<()> {
        self.service.end_well(Signal::INT, STOP_AT_MOST)
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

pub(super) fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    cause
        .downcast_ref::<postgres::Error>()
        .and_then(postgres::Error::code)
        .is_some_and(|code| {
            [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code)
        })
}
