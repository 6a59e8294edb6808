//! Other programs: run to their end, or kept running and ended with us.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use spindle_testbed::interrupt;

use super::process::Identity;

/// Where Debian keeps what a plain user's search path does not show.
const FURTHER_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Which package has a program.
const PACKAGES: [(&str, &str); 26] = [
    ("fio", "fio"),
    ("mkfs.ext3", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("losetup", "mount"),
    ("lvcreate", "lvm2"),
    ("mdadm", "mdadm"),
    ("zpool", "zfsutils-linux"),
    ("blkid", "util-linux"),
    ("fallocate", "util-linux"),
    ("pgbench", "postgresql-15"),
    ("initdb", "postgresql-15"),
    ("mariadbd", "mariadb-server"),
    ("mariadb-install-db", "mariadb-server"),
    ("setpriv", "util-linux"),
    ("cp", "coreutils"),
    ("wipefs", "util-linux"),
    ("modprobe", "kmod"),
    ("unshare", "util-linux"),
    ("fsfreeze", "util-linux"),
    ("mount.nfs", "nfs-common"),
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
    ("ip", "iproute2"),
];

/// Where a program is.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FURTHER_PLACES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// A line that says that a program is missing, and which package has it.
#[must_use]
pub fn lacking(program: &str) -> Option<String> {
    if find(program).is_some() {
        return None;
    }
    let package = PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map_or(program, |(_, package)| package);
    Some(format!(
        "the program `{program}` is not installed; on Debian: apt-get install {package}"
    ))
}

/// A command, found where a plain user's search path does not look, too.
#[must_use]
pub fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// A command as it would be typed.
#[must_use]
pub fn as_typed(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    for word in command.get_args() {
        let word = word.to_string_lossy();
        let needs_quotes = word.is_empty() || word.contains([' ', '$', '&', '"', '>', '*', '\n']);
        let _ = if needs_quotes {
            write!(text, " '{word}'")
        } else {
            write!(text, " {word}")
        };
    }
    text
}

/// What came of a command.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs a command to its end; after `limit`, or when we are asked to stop, it is killed with all
/// that it started.
///
/// # Errors
/// Where it cannot be started, does not end, or we are asked to stop.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Ended> {
    run_unless(command, limit, || false)?.context("nobody ends it before")
}

/// The same, but it is killed without an error once `is_over`: none then.
///
/// # Errors
/// As [`run_within`].
pub fn run_unless(
    command: &mut Command,
    limit: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<Option<Ended>> {
    let typed = as_typed(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {typed}"))?;
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let is_over = is_over();
        let stopped = interrupt::check();
        if stopped.is_err() || is_over || began.elapsed() > limit {
            if let Some(identity) = Identity::of(child.id()) {
                identity.kill_family();
            }
            let has_ended = child.try_wait()?.is_some();
            stopped?;
            if is_over && has_ended {
                return Ok(None);
            }
            let held = if has_ended {
                ""
            } else {
                ", and cannot be ended: it waits in the kernel"
            };
            bail!("{typed} did not end within {} s{held}", limit.as_secs());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    Ok(Some(Ended {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    }))
}

fn read_all(pipe: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Making a file system takes seconds; beyond this something is stuck.
const RUN_AT_MOST: Duration = Duration::from_secs(300);

/// Runs a command that must succeed, and gives what it printed.
///
/// # Errors
/// Where it fails, with its own words.
pub fn run(command: &mut Command) -> Result<String> {
    let ended = run_within(command, RUN_AT_MOST)?;
    if !ended.status.success() {
        bail!("{}", complained(&as_typed(command), &ended));
    }
    Ok(ended.stdout)
}

/// How a command failed, with its own words.
#[must_use]
pub fn complained(typed: &str, ended: &Ended) -> String {
    let said = format!("{}\n{}", ended.stderr.trim(), ended.stdout.trim());
    format!("{typed} failed ({}): {}", ended.status, tail(&said, 8))
}

/// The last lines of a text.
#[must_use]
pub fn tail(text: &str, line_count: usize) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(line_count)..].join("\n")
}

/// A program that is kept running; a drop kills it and all that it started.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    identity: Identity,
    log: PathBuf,
}

impl Service {
    /// Starts it with both outputs going to the end of `log`.
    ///
    /// # Errors
    /// Where the log cannot be written or the program not be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", as_typed(command)))?;
        let id = child.id();
        Ok(Self {
            name: name.to_owned(),
            child,
            identity: Identity::of(id).unwrap_or(Identity { id, started: 0 }),
            log: log.to_owned(),
        })
    }

    /// Which process it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// An error with the end of its log, where it has ended by itself.
    ///
    /// # Errors
    /// Then.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}): {}", self.name, self.log_tail()),
        }
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        tail(&log, 12)
    }

    /// Sends `signal` and waits for an end without a fault; after `limit` it is killed.
    ///
    /// # Errors
    /// Where it did not end by itself, or ended badly: with the end of its log.
    pub fn end_well(&mut self, signal: Signal, limit: Duration) -> Result<()> {
        let status = self.end(signal, limit)?;
        ensure!(
            status.success(),
            "{} ended badly ({status}): {}",
            self.name,
            self.log_tail()
        );
        Ok(())
    }

    /// Sends `signal` and waits; after `limit` it is killed, which is an error.
    ///
    /// # Errors
    /// Where it did not end by itself.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        self.identity.send(signal);
        self.wait(limit)
    }

    /// Waits for its end; after `limit` it is killed, which is an error.
    ///
    /// # Errors
    /// Where it did not end by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > limit {
                self.kill();
                bail!(
                    "{} did not end within {} s and was killed",
                    self.name,
                    limit.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL to it and to all that it started. One that waits in the kernel is left to it.
    pub fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.identity.kill_family();
            let _ = self.child.try_wait();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_its_package() {
        assert_eq!(lacking("sh"), None);
        let line = lacking("zpool-of-nobody").unwrap();
        assert!(line.contains("is not installed"), "{line}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_told() {
        let mut hanging = Command::new("sh");
        hanging.args(["-c", "sleep 60"]);
        let error = run_within(&mut hanging, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_program_that_fails_speaks_for_itself() {
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo no room left >&2; exit 3"]);
        let error = run(&mut failing).unwrap_err().to_string();
        assert!(
            error.contains("no room left") && error.contains('3'),
            "{error}"
        );
    }
}
