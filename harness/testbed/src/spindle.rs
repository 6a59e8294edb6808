//! The binary `spindle`, as a person would use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::interrupt;
use crate::process::{Service, run, run_well};

const MOUNT_AT_MOST: Duration = Duration::from_secs(60);
const UMOUNT_AT_MOST: Duration = Duration::from_secs(60);

/// The program, and where it looks for disks.
#[derive(Debug, Clone)]
pub struct Spindle {
    program: PathBuf,
    disks: String,
    runtime: PathBuf,
    volatile_caches: Option<u64>,
}

impl Spindle {
    /// The binary beside our own (or what `SPINDLE_BINARY` names), with the search path `disks`
    /// (globs) and `runtime` for its socket and its log: nothing of it touches what else runs on
    /// this machine.
    ///
    /// # Errors
    /// Where it is not there.
    pub fn find(disks: &str, runtime: &Path) -> Result<Self> {
        let program = match std::env::var_os("SPINDLE_BINARY") {
            Some(path) => PathBuf::from(path),
            None => std::env::current_exe()?.with_file_name("spindle"),
        };
        if !program.exists() {
            bail!(
                "{} is not there; build it: cargo build -p spindle-cli",
                program.display()
            );
        }
        Ok(Self {
            program,
            disks: disks.to_owned(),
            runtime: runtime.to_owned(),
            volatile_caches: None,
        })
    }

    /// A disk that is pulled loses of what no flush had covered, by chances drawn from the seed.
    #[must_use]
    pub fn with_volatile_caches(self, seed: u64) -> Self {
        Self {
            volatile_caches: Some(seed),
            ..self
        }
    }

    fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("SPINDLE_DISKS", &self.disks)
            .env("SPINDLE_RUNTIME_DIR", &self.runtime)
            .args(words);
        if let Some(seed) = self.volatile_caches {
            command.env("SPINDLE_VOLATILE_CACHES", seed.to_string());
        }
        command
    }

    /// Runs a command that has to succeed, and gives what it printed.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn tell<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<String> {
        run_well(&mut self.command(words))
    }

    /// Runs a listing with `--json`.
    ///
    /// # Errors
    /// Where it fails, or what it printed is not JSON.
    pub fn ask<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<Value> {
        let mut command = self.command(words);
        let text = run_well(command.arg("--json"))?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// Runs a listing with `--json` whose exit code tells what it found: it is shown all the same.
    ///
    /// # Errors
    /// Where what it printed is not JSON, with what it said instead.
    pub fn ask_findings<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<Value> {
        let mut command = self.command(words);
        let outcome = run(command.arg("--json"))?;
        serde_json::from_str(&outcome.stdout)
            .with_context(|| format!("{}: {}", outcome.status, outcome.stderr.trim()))
    }

    /// Makes the disk at `path` of an open group answer nothing any more, and gives its name.
    ///
    /// # Errors
    /// Where the group has no such disk, or is not open.
    pub fn pull(&self, group: &str, path: &Path) -> Result<String> {
        let shown = self.ask(["group", "show", group])?;
        let disks = shown["disks"].as_array();
        let name = disks
            .into_iter()
            .flatten()
            .find(|disk| {
                disk["path"]
                    .as_str()
                    .is_some_and(|at| Path::new(at) == path)
            })
            .and_then(|disk| disk["name"].as_str())
            .with_context(|| format!("no disk of the group is {}", path.display()))?;
        self.tell(["fault", "pull", group, name])?;
        Ok(name.to_owned())
    }

    /// Mounts `group` at `directory` by a daemon of our own, and waits until it serves.
    ///
    /// # Errors
    /// Where the daemon ends instead, with its last words.
    pub fn mount(&self, group: &str, directory: &Path, options: &[&str]) -> Result<Mount> {
        let place = directory.to_string_lossy().into_owned();
        let mut command = self.command(["mount", group, &place, "--foreground"]);
        command.args(options);
        std::fs::create_dir_all(&self.runtime)?;
        let log = self.runtime.join("foreground.log");
        let daemon = Service::start("the storage daemon", &mut command, &log)?;
        let mut mount = Mount {
            spindle: self.clone(),
            daemon: Some(daemon),
            directory: directory.to_owned(),
        };
        interrupt::wait_for("the mount", MOUNT_AT_MOST, || {
            if let Some(daemon) = &mut mount.daemon {
                daemon.check_alive()?;
            }
            Ok(is_mounted(directory)?.then_some(()))
        })?;
        Ok(mount)
    }
}

/// A mounted group and the daemon that serves it; a drop unmounts, by force where it must.
#[derive(Debug)]
pub struct Mount {
    spindle: Spindle,
    daemon: Option<Service>,
    directory: PathBuf,
}

impl Mount {
    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The daemon's process id, while it runs.
    #[must_use]
    pub fn daemon_id(&self) -> Option<u32> {
        self.daemon.as_ref().map(Service::id)
    }

    /// The last lines of what the daemon said.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.daemon
            .as_ref()
            .map_or_else(String::new, Service::log_tail)
    }

    /// Unmounts as an administrator would, and waits for the daemon's end.
    ///
    /// # Errors
    /// Where that fails, or the daemon ends badly.
    pub fn unmount(mut self) -> Result<()> {
        let place = self.directory.to_string_lossy().into_owned();
        self.spindle.tell(["umount", &place])?;
        if let Some(mut daemon) = self.daemon.take() {
            let ended = interrupt::wait_for("the daemon to end", UMOUNT_AT_MOST, || {
                Ok(daemon.check_alive().err())
            })?;
            if !ended.to_string().contains("exit status: 0") {
                return Err(ended);
            }
        }
        Ok(())
    }

    /// SIGKILL to the daemon, and the dead mount is taken away.
    ///
    /// # Errors
    /// Where the mount point cannot be freed.
    pub fn kill(mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
        free(&self.directory)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        interrupt::clean_up(|| {
            if let Some(mut daemon) = self.daemon.take() {
                daemon.kill();
            }
            if let Err(error) = free(&self.directory) {
                eprintln!("{} is still mounted: {error:#}", self.directory.display());
            }
        });
    }
}

/// Takes a mount away that nobody serves any more.
fn free(directory: &Path) -> Result<()> {
    while is_mounted(directory)? {
        // Root has umount(8); a plain user may only ask FUSE's own helper.
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("umount");
            command.arg("--lazy");
            command
        } else {
            let mut command = Command::new("fusermount3");
            command.args(["-u", "-z"]);
            command
        };
        let outcome = run(command.arg(directory))?;
        if !outcome.status.success() && is_mounted(directory)? {
            bail!("{}", outcome.stderr.trim());
        }
    }
    Ok(())
}

/// Whether something is mounted at `directory`.
///
/// # Errors
/// Where the kernel's list cannot be read.
pub fn is_mounted(directory: &Path) -> Result<bool> {
    let wanted = directory.to_string_lossy();
    let list = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(list.lines().any(|line| {
        // The fifth field is the mount point; blanks in it are written as \040.
        line.split(' ')
            .nth(4)
            .is_some_and(|place| place.replace("\\040", " ") == wanted)
    }))
}
