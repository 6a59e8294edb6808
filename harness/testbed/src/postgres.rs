//! An unchanged PostgreSQL: its programs, a cluster on any directory, a running server.
//!
//! PostgreSQL refuses to run as root, so root runs it as the user `postgres`, and what the server
//! must write is given to that user. The socket and the server's log lie outside of the cluster.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::interrupt;
use crate::process::{Service, run, run_well};
use crate::user::user_named;
use crate::wire::Connection;

/// Recovery of the small clusters here takes seconds; beyond this something is stuck.
const START_AT_MOST: Duration = Duration::from_secs(120);
const STOP_AT_MOST: Duration = Duration::from_secs(60);
const QUIT_AT_MOST: Duration = Duration::from_secs(10);

/// The database's superuser, whoever runs the server.
const USER: &str = "postgres";

/// PostgreSQL as it was found on this machine.
#[derive(Debug, Clone)]
pub struct Installation {
    programs: PathBuf,
    /// The user and group to run as, where we are root.
    owner: Option<(u32, u32)>,
}

impl Installation {
    /// Looks where Debian keeps it (the newest version), then along the search path.
    ///
    /// # Errors
    /// Where there is none; or where we are root and there is no user to run it as.
    pub fn find() -> Result<Self> {
        let programs = programs()
            .context("PostgreSQL is not installed; on Debian: apt-get install postgresql")?;
        let owner = if rustix::process::geteuid().is_root() {
            Some(user_named(USER).context(
                "PostgreSQL does not run as root, and there is no user `postgres` to run it as",
            )?)
        } else {
            None
        };
        Ok(Self { programs, owner })
    }

    /// The server's version in its own words.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn version(&self) -> Result<String> {
        let text = run_well(Command::new(self.programs.join("postgres")).arg("--version"))?;
        Ok(text.trim().to_owned())
    }

    /// One of its programs, run as we are: a client.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        Command::new(self.programs.join(program))
    }

    /// One of its programs, run as the server's user.
    #[must_use]
    pub fn server_side(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Our own working directory may be closed to the server's user.
        command.current_dir("/");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives `path` to the server's user.
    ///
    /// # Errors
    /// Where the owner cannot be changed.
    pub fn give(&self, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group))
                .with_context(|| format!("cannot give {} to `{USER}`", path.display()))?;
        }
        Ok(())
    }
}

/// Where its programs are: the newest version that Debian keeps, else along the search path.
#[must_use]
pub fn programs() -> Option<PathBuf> {
    debian_programs().or_else(programs_on_path)
}

fn debian_programs() -> Option<PathBuf> {
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

fn programs_on_path() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .find(|directory| directory.join("initdb").exists() && directory.join("postgres").exists())
}

/// A database cluster: where its data lies, and how its server is run.
#[derive(Debug, Clone)]
pub struct Cluster {
    installation: Installation,
    data: PathBuf,
    runtime: PathBuf,
    settings: Vec<String>,
    port: u16,
}

impl Cluster {
    /// A cluster in `data`, made or to be made; `runtime` is a directory of our own for socket
    /// and log. Each setting is `name=value`.
    ///
    /// # Errors
    /// Where `runtime` cannot be given to the server's user.
    pub fn new(
        installation: &Installation,
        data: &Path,
        runtime: &Path,
        settings: &[&str],
    ) -> Result<Self> {
        installation.give(runtime)?;
        Ok(Self {
            installation: installation.clone(),
            data: data.to_owned(),
            runtime: runtime.to_owned(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            // The number only names the socket's file: nothing listens on a network.
            port: 5432,
        })
    }

    /// Makes the cluster; `data` is made first and given to the server's user.
    ///
    /// # Errors
    /// What `initdb` says.
    pub fn init(&self, options: &[&str]) -> Result<()> {
        fs::create_dir(&self.data)
            .with_context(|| format!("cannot make {}", self.data.display()))?;
        self.installation.give(&self.data)?;
        let mut command = self.installation.server_side("initdb");
        command
            .arg("--pgdata")
            .arg(&self.data)
            .args(["--username", USER, "--auth", "trust"])
            .args(["--encoding", "UTF8", "--locale", "C"])
            .args(options);
        run_well(&mut command).map(drop)
    }

    /// Starts the server and waits until it answers; after a crash, until it has recovered.
    ///
    /// # Errors
    /// Where it ends instead, with its last words.
    pub fn start(&self) -> Result<Server> {
        // What a killed server left: its socket, and a process id that may be another's by now.
        for leftover in [
            self.runtime.join(format!(".s.PGSQL.{}", self.port)),
            self.runtime.join(format!(".s.PGSQL.{}.lock", self.port)),
        ] {
            let _ = fs::remove_file(leftover);
        }
        let mut command = self.installation.server_side("postgres");
        command.arg("-D").arg(&self.data);
        command.arg("-c").arg("listen_addresses=");
        command.arg("-c").arg(format!(
            "unix_socket_directories={}",
            self.runtime.display()
        ));
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        let service = Service::start("the server", &mut command, &self.log_path())?;
        let mut server = Server {
            cluster: self.clone(),
            service,
        };
        interrupt::wait_for("the server to answer", START_AT_MOST, || {
            server.service.check_alive()?;
            Ok(server.connect("postgres").ok())
        })?;
        Ok(server)
    }

    /// Where the server writes what it has to say.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.runtime.join("server.log")
    }

    /// A client program with everything set to reach the server; the database comes last.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.installation.client(program);
        command
            .arg("--host")
            .arg(&self.runtime)
            .args(["--port", &self.port.to_string()])
            .args(["--username", USER]);
        command
    }
}

/// A running server; a drop ends it at once (an immediate shutdown).
#[derive(Debug)]
pub struct Server {
    cluster: Cluster,
    service: Service,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is only killed leaves its shared memory to its next start; there may be
        // none. Asked to stop at once it flushes nothing, but takes its shared memory along.
        if self.service.check_alive().is_ok() {
            interrupt::clean_up(|| {
                let _ = self.service.end(Signal::QUIT, QUIT_AT_MOST);
            });
        }
    }
}

impl Server {
    /// The cluster it serves.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The process id of the postmaster.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.service.id()
    }

    /// A connection to `database`.
    ///
    /// # Errors
    /// Where the server does not accept it.
    pub fn connect(&self, database: &str) -> Result<Connection> {
        Connection::open(&self.cluster.runtime, self.cluster.port, USER, database)
    }

    /// An error where the server has ended by itself.
    ///
    /// # Errors
    /// Then.
    pub fn check_alive(&mut self) -> Result<()> {
        self.service.check_alive()
    }

    /// Reads every table and index of all databases and checks their structure (`amcheck`).
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check_structure(&self) -> Result<()> {
        // --install-missing brings the extension into databases that lack it.
        let outcome = run(self.cluster.client("pg_amcheck").args([
            "--all",
            "--install-missing",
            "--heapallindexed",
        ]))?;
        // Corruption is reported on standard output, other trouble on standard error.
        if !outcome.status.success() {
            bail!(
                "pg_amcheck: {} {}",
                outcome.stdout.trim(),
                outcome.stderr.trim()
            );
        }
        Ok(())
    }

    /// Stops it as an administrator would (fast shutdown).
    ///
    /// # Errors
    /// Where it does not end, or not well.
    pub fn stop(mut self) -> Result<()> {
        let tail = self.cluster.log_path();
        let status = self.service.end(Signal::INT, STOP_AT_MOST)?;
        if !status.success() {
            bail!("the server ended badly ({status}), see {}", tail.display());
        }
        Ok(())
    }

    /// SIGKILL to it and all of its processes. Its shared memory stays for its next start.
    pub fn kill(mut self) {
        self.service.kill();
    }
}
