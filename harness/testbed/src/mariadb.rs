//! An unchanged MariaDB: its programs, a data directory anywhere, a running server, and clients.
//!
//! InnoDB writes past the page cache and with its native asynchronous I/O here, which PostgreSQL
//! never does. Root runs the server as the user `mysql`. A client is MariaDB's own command line
//! program, fed by a pipe: what it prints after a commit, the server has acknowledged.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::interrupt;
use crate::process::{Service, run_well};
use crate::user::user_named;

const START_AT_MOST: Duration = Duration::from_secs(120);
const STOP_AT_MOST: Duration = Duration::from_secs(120);

/// The user that runs the server, where root starts it.
const USER: &str = "mysql";

/// A small server whose data does not fit into its memory.
///
/// With a pool of 8 MiB its commits stood still for three seconds at a time, on ext4 over memory
/// too: InnoDB waits for its own page cleaner. With 32 MiB none took half a second there.
const OPTIONS: [&str; 12] = [
    "--skip-networking",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-flush-method=O_DIRECT",
    "--innodb-use-native-aio=ON",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--innodb-fast-shutdown=1",
    "--performance-schema=OFF",
    "--max-connections=40",
    "--max-recursive-iterations=1000000",
];

/// MariaDB as it was found on this machine.
#[derive(Debug, Clone)]
pub struct Installation {
    server: PathBuf,
    client: PathBuf,
    install: PathBuf,
    owner: Option<(u32, u32)>,
}

impl Installation {
    /// Looks where Debian keeps it, and along the search path.
    ///
    /// # Errors
    /// Where there is none; or where we are root and there is no user to run it as.
    pub fn find() -> Result<Self> {
        let program = |name: &str| {
            program_named(name).with_context(|| {
                format!("MariaDB is not installed (no {name}); on Debian: apt-get install mariadb-server")
            })
        };
        let owner = if rustix::process::geteuid().is_root() {
            Some(user_named(USER).context("there is no user `mysql` to run MariaDB as")?)
        } else {
            None
        };
        Ok(Self {
            server: program("mariadbd")?,
            client: program("mariadb")?,
            install: program("mariadb-install-db")?,
            owner,
        })
    }

    /// The server's version in its own words.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn version(&self) -> Result<String> {
        let text = run_well(Command::new(&self.server).arg("--version"))?;
        let version = text.split_whitespace().skip_while(|word| *word != "Ver");
        let version = version.skip(1).take(1).next().unwrap_or("of no version");
        Ok(format!("MariaDB {version}"))
    }

    fn server_side(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn give(&self, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group))
                .with_context(|| format!("cannot give {} to `{USER}`", path.display()))?;
        }
        Ok(())
    }
}

fn program_named(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A plain user's search path lacks the directories of servers.
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/libexec"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|program| program.exists())
}

/// A data directory, and how its server is run.
#[derive(Debug, Clone)]
pub struct Cluster {
    installation: Installation,
    data: PathBuf,
    runtime: PathBuf,
}

impl Cluster {
    /// Of `data`, made or to be made; `runtime` is a directory of our own for socket and log.
    ///
    /// # Errors
    /// Where `runtime` cannot be given to the server's user.
    pub fn new(installation: &Installation, data: &Path, runtime: &Path) -> Result<Self> {
        installation.give(runtime)?;
        Ok(Self {
            installation: installation.clone(),
            data: data.to_owned(),
            runtime: runtime.to_owned(),
        })
    }

    /// Makes the data directory and fills it with what every server has.
    ///
    /// # Errors
    /// What `mariadb-install-db` says.
    pub fn init(&self) -> Result<()> {
        fs::create_dir(&self.data)
            .with_context(|| format!("cannot make {}", self.data.display()))?;
        self.installation.give(&self.data)?;
        let mut command = self.installation.server_side(&self.installation.install);
        command
            .args(["--no-defaults", "--skip-test-db"])
            .args(["--auth-root-authentication-method=normal"])
            .arg(format!("--datadir={}", self.data.display()))
            // A server that starts removes what it finds in there of another's temporary tables.
            .arg(format!("--tmpdir={}", self.runtime.display()))
            .args([
                "--innodb-log-file-size=16M",
                "--innodb-flush-method=O_DIRECT",
            ]);
        run_well(&mut command).map(drop)
    }

    /// Starts the server and waits until it answers; after a crash, until it has recovered.
    ///
    /// # Errors
    /// Where it ends instead, with its last words, or does not write as it was told to.
    pub fn start(&self) -> Result<Server> {
        let mut command = self.installation.server_side(&self.installation.server);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", self.data.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}/pid", self.runtime.display()))
            .arg(format!("--tmpdir={}", self.runtime.display()))
            .args(OPTIONS);
        let service = Service::start("the server", &mut command, &self.runtime.join("server.log"))?;
        let mut server = Server {
            cluster: self.clone(),
            service,
        };
        interrupt::wait_for("MariaDB to answer", START_AT_MOST, || {
            server.service.check_alive()?;
            if !self.socket().exists() {
                return Ok(None);
            }
            let answer = server
                .connect("mysql")
                .and_then(|mut client| client.query("SELECT 1"));
            Ok(answer.ok())
        })?;
        let settings = server
            .connect("mysql")?
            .query("SELECT @@innodb_use_native_aio, @@innodb_flush_method")?;
        ensure!(
            settings == ["1\tO_DIRECT"],
            "InnoDB does not write as it was told to: {settings:?}"
        );
        Ok(server)
    }

    fn socket(&self) -> PathBuf {
        self.runtime.join("socket")
    }
}

/// A running server; a drop kills it.
#[derive(Debug)]
pub struct Server {
    cluster: Cluster,
    service: Service,
}

impl Server {
    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.service.log_tail()
    }

    /// A client that uses `database`.
    ///
    /// # Errors
    /// Where it cannot be started; that nobody listens is told by its first query.
    pub fn connect(&self, database: &str) -> Result<Client> {
        let mut command = Command::new(&self.cluster.installation.client);
        command
            .args(["--no-defaults", "--user=root", "--batch", "--silent"])
            .args(["--skip-column-names", "--unbuffered", "--skip-reconnect"])
            .arg(format!("--socket={}", self.cluster.socket().display()))
            .arg(format!("--database={database}"));
        Client::start(&mut command)
    }

    /// An error where the server has ended by itself.
    ///
    /// # Errors
    /// Then.
    pub fn check_alive(&mut self) -> Result<()> {
        self.service.check_alive()
    }

    /// Reads every table of every database and checks it (`CHECK TABLE ... EXTENDED`).
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check_tables(&self) -> Result<()> {
        let mut client = self.connect("mysql")?;
        let tables = client.query(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`')
             FROM information_schema.tables
             WHERE table_type = 'BASE TABLE' AND table_schema NOT IN
                 ('information_schema', 'performance_schema')",
        )?;
        ensure!(!tables.is_empty(), "there is no table to check");
        for row in client.query(&format!("CHECK TABLE {} EXTENDED", tables.join(", ")))? {
            // Table, operation, kind of message, message.
            let is_good = row.ends_with("\tstatus\tOK")
                || row.contains("\tnote\t")
                || row.ends_with("\tstatus\tTable is already up to date");
            ensure!(is_good, "CHECK TABLE: {row}");
        }
        Ok(())
    }

    /// Stops it as an administrator would.
    ///
    /// # Errors
    /// Where it does not end, or not well.
    pub fn stop(mut self) -> Result<()> {
        let status = self.service.end(Signal::TERM, STOP_AT_MOST)?;
        if !status.success() {
            bail!(
                "MariaDB ended badly ({status}): {}",
                self.service.log_tail()
            );
        }
        Ok(())
    }
}

/// A client; a drop ends it.
#[derive(Debug)]
pub struct Client {
    child: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
    queries_count: u64,
}

impl Client {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start a client of MariaDB")?;
        let statements = child.stdin.take().context("a client has an input")?;
        let answers = child.stdout.take().context("a client has an output")?;
        Ok(Self {
            child,
            statements,
            answers: BufReader::new(answers),
            queries_count: 0,
        })
    }

    /// Runs statements, with `;` between them, and gives their rows, columns apart by tabs.
    ///
    /// # Errors
    /// What the server says, or the loss of the connection: then nobody knows whether the
    /// statements took place. The client is of no further use then.
    pub fn query(&mut self, statements: &str) -> Result<Vec<String>> {
        self.queries_count += 1;
        let end = format!("end of query {}", self.queries_count);
        // The program goes through what it reads in order, and ends at the first error.
        let asked = format!("{statements};\nSELECT '{end}';\n");
        let sent = self
            .statements
            .write_all(asked.as_bytes())
            .and_then(|()| self.statements.flush());
        let mut rows = Vec::new();
        while sent.is_ok() {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                break;
            }
            let row = line.trim_end_matches('\n');
            if row == end {
                return Ok(rows);
            }
            rows.push(row.to_owned());
        }
        bail!(
            "the server says: {} (statement: {statements})",
            self.last_words()
        )
    }

    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            // The program has ended, or ends now that nothing more comes.
            let _ = self.child.kill();
            let _ = pipe.read_to_string(&mut said);
        }
        said.trim().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
