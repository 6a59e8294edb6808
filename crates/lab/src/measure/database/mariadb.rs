//! MariaDB with InnoDB, unchanged: past the page cache (`innodb_flush_method=O_DIRECT`), with the
//! kernel's asynchronous I/O, durable at each commit.
//!
//! What is called the data here is a directory of two: the server's own and the one for temporary
//! tables, which so lie on the contender as the data do. Socket and log lie outside of it.

mod session;
mod statistics;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable as _;
use mysql::{Conn, OptsBuilder};
use rustix::process::Signal;
use spindle_testbed::interrupt;

use self::session::MariadbSession;
use self::statistics::MariadbStatistics;
use super::account::Account;
use super::{Purpose, ServerPlan, Session, Settings, Statistics, own_cache_bytes};
use crate::experiment::DatabaseKind;
use crate::measure::program::{Service, find, lacking, run, run_within};
use crate::nearness::hint;
use crate::quantity::parse_size;

const START_AT_MOST: Duration = Duration::from_secs(120);
const STOP_AT_MOST: Duration = Duration::from_secs(300);
const USER: &str = "mysql";
/// The database that loads live in.
const SCHEMA: &str = "lab";
const DEFAULT_PAGE_BYTES: u64 = 16 << 10;
/// Settings that a data directory keeps from its making on.
const AT_ITS_MAKING: [&str; 3] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
];

/// MariaDB as it was found.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    server: PathBuf,
    install: PathBuf,
    /// Where it lies, if not where it was built for.
    base: Option<PathBuf>,
    account: Account,
}

impl Installation {
    pub fn find(directory: Option<&Path>) -> Result<Self> {
        let program = |name: &str| match directory {
            None => find(name).with_context(|| lacking(name).unwrap_or_default()),
            Some(base) => ["bin", "sbin", "scripts"]
                .into_iter()
                .map(|part| base.join(part).join(name))
                .find(|candidate| candidate.is_file())
                .with_context(|| {
                    format!(
                        "{} has no MariaDB: `{name}` is in none of its bin, sbin and scripts",
                        base.display()
                    )
                }),
        };
        Ok(Self {
            server: program("mariadbd")?,
            install: program("mariadb-install-db")?,
            base: directory.map(Path::to_owned),
            account: Account::find(USER)?,
        })
    }

    /// One of its programs, as the server's user, without anybody's files of settings.
    fn program(&self, program: &Path) -> Command {
        let mut command = self.account.program(program);
        command.arg("--no-defaults");
        if let Some(base) = &self.base {
            command.arg(format!("--basedir={}", base.display()));
        }
        command
    }
}

impl super::Installation for Installation {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Mariadb
    }

    fn version(&self) -> Result<String> {
        let mut command = self.account.program(&self.server);
        let text = run(command.arg("--version")).with_context(|| {
            format!(
                "{} cannot be run as `{}`",
                self.server.display(),
                self.account.name()
            )
        })?;
        let mut words = text.split_whitespace().skip_while(|word| *word != "Ver");
        let number = words.nth(1).unwrap_or("of no version");
        Ok(format!("MariaDB {number}"))
    }

    fn initialise(&self, data: &Path, settings: &Settings) -> Result<()> {
        for directory in [data.to_owned(), own(data), temporary(data)] {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            self.account.give(&directory)?;
        }
        let mut command = self.program(&self.install);
        command
            .arg("--skip-test-db")
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", own(data).display()))
            // A server that starts removes what it finds in there of another's temporary tables.
            .arg(format!("--tmpdir={}", temporary(data).display()))
            .arg("--innodb-log-file-size=16M");
        for (name, value) in at_its_making(settings) {
            command.arg(format!("--{name}={value}"));
        }
        run(&mut command).map(drop)
    }

    fn lasting(&self) -> &'static [&'static str] {
        &AT_ITS_MAKING
    }

    /// A server that is only asked for its help lists all variables, and complains of what it does
    /// not take.
    fn refuses(&self, settings: &Settings) -> Result<Option<String>> {
        for (name, value) in settings {
            let mut command = self.program(&self.server);
            command.arg(format!("--{name}={value}"));
            command.args(["--verbose", "--help"]);
            let ended = run_within(&mut command, START_AT_MOST)?;
            let refused = format!("MariaDB does not take `{name} = {value:?}`");
            let said = [ended.stdout.as_str(), ended.stderr.as_str()].concat();
            if let Some(words) = said
                .lines()
                .find_map(|line| Some(line.split_once("[ERROR]")?.1))
            {
                return Ok(Some(format!("{refused}: {}", words.trim())));
            }
            let known = variables(&ended.stdout);
            // An abbreviation is taken with a remark, and read by nobody as what it is.
            if !known.is_empty() && !known.contains(name) {
                let near = hint(name, known.iter().map(String::as_str));
                return Ok(Some(format!("{refused}: it has no such variable{near}")));
            }
        }
        Ok(None)
    }

    fn start(&self, plan: &ServerPlan<'_>) -> Result<Box<dyn super::Server>> {
        Ok(Box::new(Server::start(self, plan)?))
    }
}

/// The names below the line that stands over all variables and their values.
fn variables(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Variables (--variable-name=value)"))
        .skip(1)
        .filter(|line| !line.starts_with([' ', '-']))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| Some(line.split_whitespace().next()?.replace('-', "_")))
        .collect()
}

/// Its buffers, unless its settings have it read through the page cache.
pub(super) fn direct_cache_bytes(memory: Option<u64>, settings: &Settings) -> Option<u64> {
    let method = settings
        .get("innodb_flush_method")
        .map_or("O_DIRECT", String::as_str);
    method
        .to_ascii_uppercase()
        .starts_with("O_DIRECT")
        .then(|| {
            settings
                .get("innodb_buffer_pool_size")
                .and_then(|text| size_bytes(text))
                .unwrap_or_else(|| own_cache_bytes(memory))
        })
}

/// As MariaDB writes sizes: `64M` is 64 MiB.
fn size_bytes(text: &str) -> Option<u64> {
    parse_size(text)
        .or_else(|_| parse_size(&format!("{text}iB")))
        .ok()
}

fn own(data: &Path) -> PathBuf {
    data.join("mariadb")
}

fn temporary(data: &Path) -> PathBuf {
    data.join("temporary")
}

fn at_its_making(settings: &Settings) -> Settings {
    settings
        .iter()
        .filter(|(name, _)| AT_ITS_MAKING.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The lab's own settings: the server's defaults but for memory, connections, direct I/O and what
/// would make two runs differ by chance.
fn settings(plan: &ServerPlan<'_>) -> Settings {
    let mut settings: Settings = [
        (
            "innodb_buffer_pool_size",
            own_cache_bytes(plan.memory_bytes).to_string(),
        ),
        ("innodb_log_file_size", plan.log_bytes.to_string()),
        ("innodb_flush_method", "O_DIRECT".to_owned()),
        ("innodb_use_native_aio", "ON".to_owned()),
        // What was in the buffers when the image was made is nobody's to read.
        ("innodb_buffer_pool_dump_at_shutdown", "OFF".to_owned()),
        ("innodb_buffer_pool_load_at_startup", "OFF".to_owned()),
        ("max_connections", (plan.users + 10).to_string()),
        ("performance_schema", "OFF".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    match plan.purpose {
        Purpose::Measure => settings.extend(
            plan.settings
                .iter()
                .map(|(name, value)| (name.replace('-', "_"), value.clone())),
        ),
        Purpose::Fill => {
            settings.extend(at_its_making(plan.settings));
            for (name, value) in [
                ("innodb_flush_log_at_trx_commit", "0"),
                ("innodb_doublewrite", "OFF"),
                ("innodb_flush_method", "fsync"),
            ] {
                settings.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    settings
}

/// A running server; a drop ends it at once.
#[derive(Debug)]
struct Server {
    service: Service,
    runtime: PathBuf,
    settings: Settings,
    block_bytes: u64,
}

impl Server {
    fn start(installation: &Installation, plan: &ServerPlan<'_>) -> Result<Self> {
        installation.account.give(plan.runtime)?;
        let settings = settings(plan);
        let mut command = installation.program(&installation.server);
        command
            .arg(format!("--datadir={}", own(plan.data).display()))
            .arg(format!("--tmpdir={}", temporary(plan.data).display()))
            .arg(format!("--socket={}", socket(plan.runtime).display()))
            .arg(format!("--pid-file={}/pid", plan.runtime.display()))
            .args(["--skip-networking", "--skip-name-resolve"])
            .arg("--skip-log-bin");
        for (name, value) in &settings {
            command.arg(format!("--{name}={value}"));
        }
        // The control group names the process to whoever clears away after a SIGKILL.
        let log = plan.runtime.join("mariadb.log");
        let service = Service::start("MariaDB", &mut plan.group.wrap(&command), &log)?;
        let mut server = Self {
            service,
            runtime: plan.runtime.to_owned(),
            settings,
            block_bytes: DEFAULT_PAGE_BYTES,
        };
        let mut client = interrupt::wait_for("MariaDB to answer", START_AT_MOST, || {
            server
                .service
                .check_alive()
                .map_err(|error| match complaint(&log) {
                    Some(words) => error.context(format!("MariaDB says: {words}")),
                    None => error,
                })?;
            if !socket(&server.runtime).exists() {
                return Ok(None);
            }
            Ok(server.client(None).ok())
        })?;
        let size: Option<u64> = client.query_first("SELECT @@innodb_page_size")?;
        server.block_bytes = size.context("InnoDB's pages have a size")?;
        if plan.purpose == Purpose::Fill {
            // Texts are compared by their letters, as PostgreSQL in its locale C does.
            client.query_drop(format!(
                "CREATE DATABASE IF NOT EXISTS {SCHEMA} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            ))?;
        }
        Ok(server)
    }

    fn client(&self, schema: Option<&str>) -> Result<Conn> {
        let options = OptsBuilder::new()
            .socket(Some(socket(&self.runtime).display().to_string()))
            .user(Some("root"))
            .db_name(schema)
            // Rows met count, also those that had the new value already: as elsewhere.
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            // A load holds more statements than the library would keep open.
            .stmt_cache_size(Some(1024));
        Conn::new(options).context("cannot connect to MariaDB")
    }
}

/// The first of the errors in a log, which stands among many remarks.
fn complaint(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    text.lines()
        .find_map(|line| Some(line.split_once("[ERROR] ")?.1.to_owned()))
}

fn socket(runtime: &Path) -> PathBuf {
    runtime.join("socket")
}

impl super::Server for Server {
    fn kind(&self) -> DatabaseKind {
        DatabaseKind::Mariadb
    }

    fn connect(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(MariadbSession::new(self.client(Some(SCHEMA))?)))
    }

    fn statistics(&self) -> Result<Box<dyn Statistics>> {
        Ok(Box::new(MariadbStatistics::new(self.client(None)?)))
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn told(&self, name: &str) -> Option<String> {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !name.bytes().all(is_right) {
            return None;
        }
        let mut client = self.client(None).ok()?;
        // Numbers come as numbers, and are wanted as they are written.
        let asked = format!("SELECT CAST(@@global.{name} AS CHAR)");
        client.query_first(asked).ok().flatten()
    }

    fn log_tail(&self) -> String {
        self.service.log_tail()
    }

    fn warm(&self) -> Result<()> {
        let mut client = self.client(Some(SCHEMA))?;
        let tables: Vec<String> = client.query("SHOW TABLES")?;
        for table in tables {
            // It reads every row, in the order in which they lie.
            let mut result = client.query_iter(format!("CHECKSUM TABLE `{table}`"))?;
            session::to_its_end(&mut result)?;
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>) -> Result<()> {
        self.service.end_well(Signal::TERM, STOP_AT_MOST)
    }
}

/// A deadlock, or a lock that was waited for too long.
const CONFLICTS: [u16; 2] = [1213, 1205];

pub(super) fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    matches!(
        cause.downcast_ref::<mysql::Error>(),
        Some(mysql::Error::MySqlError(error)) if CONFLICTS.contains(&error.code)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_server_reads_them() {
        assert_eq!(size_bytes("64M"), Some(64 << 20));
        assert_eq!(size_bytes("2g"), Some(2 << 30));
        assert_eq!(size_bytes("1048576"), Some(1 << 20));
        assert_eq!(size_bytes("much"), None);
    }
}
