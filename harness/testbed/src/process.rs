//! Programs: run to their end, or kept running and ended by process id.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::interrupt;

/// A killed process ends at once, unless it waits for a disk.
const DEATH_AT_MOST: Duration = Duration::from_secs(20);

/// What a program said when it ended.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A command as a person would type it, for messages.
#[must_use]
pub fn as_typed(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a program to its end, whatever that is.
///
/// # Errors
/// Where it cannot be started, or where we are asked to stop; it is killed then.
pub fn run(command: &mut Command) -> Result<Outcome> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", as_typed(command)))?;
    // Both pipes are emptied while the program runs, else it would stop when one is full.
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let status = match wait(&mut child) {
        Ok(status) => status,
        Err(error) => {
            kill_tree(child.id());
            child.wait()?;
            return Err(error);
        }
    };
    Ok(Outcome {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// Runs a program that has to succeed, and gives its standard output.
///
/// # Errors
/// Where it fails: with what was typed and what it said.
pub fn run_well(command: &mut Command) -> Result<String> {
    let outcome = run(command)?;
    if !outcome.status.success() {
        // A program that reports what it found wrong does so on its standard output.
        let said = match outcome.stderr.trim() {
            "" => outcome.stdout.trim(),
            said => said,
        };
        bail!("{} failed ({}): {said}", as_typed(command), outcome.status);
    }
    Ok(outcome.stdout)
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A broken pipe ends the text where it broke; the exit status tells the rest.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        interrupt::check()?;
        thread::sleep(Duration::from_millis(5));
    }
}

/// A program that runs until it is told to end; a drop kills it with all of its children.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log_path: PathBuf,
}

impl Service {
    /// Starts it with both outputs going to `log_path`.
    ///
    /// # Errors
    /// Where the log cannot be made, or the program not be started.
    pub fn start(name: &str, command: &mut Command, log_path: &Path) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", as_typed(command)))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log_path: log_path.to_owned(),
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
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

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log_path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Sends `signal` and waits for the end.
    ///
    /// # Errors
    /// Where it has not ended after `limit`.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        send(self.child.id(), signal);
        let name = self.name.clone();
        interrupt::wait_for(&format!("{name} to end"), limit, || {
            Ok(self.child.try_wait()?)
        })
    }

    /// SIGKILL to it and to its children, as a power cut would end them: nothing is flushed.
    pub fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_tree(self.child.id());
            // Killed processes end; there is nothing to be told if the wait is interrupted.
            let _ = self.child.wait();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal; a process that has ended already is no error.
pub fn send(process: u32, signal: Signal) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// SIGKILL to a process and to all that it started, and waits until they hold nothing any more:
/// files they had open keep a mount busy until then.
pub fn kill_tree(process: u32) {
    // The family is listed before the parent dies: afterwards nobody knows whose they were.
    let family = family(process);
    for &member in &family {
        send(member, Signal::KILL);
    }
    let until = Instant::now() + DEATH_AT_MOST;
    while family.iter().any(|member| is_alive(*member)) && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process still runs; one that has ended and waits for its parent does not.
fn is_alive(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .ok()
        .and_then(|stat| Some(stat.rsplit_once(')')?.1.trim_start().chars().next()? != 'Z'))
        .unwrap_or(false)
}

/// A process and all that it started, itself first.
#[must_use]
pub fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while next < family.len() {
        family.extend(children(family[next]));
        next += 1;
    }
    family
}

fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process| parent_of(*process) == Some(parent))
        .collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses: count from the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
